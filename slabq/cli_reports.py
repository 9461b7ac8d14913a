"""What ``slabq run`` and ``replay`` say of the caches at the end, on request."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import click

from slabq.cache_record import CacheRecord
from slabq.errors import ParameterError
from slabq.result import Result
from slabq.results import Results
from slabq.slabinfo import format_slab_statistics
from slabq.slabinfo_tool import format_counter, format_report, run_slabinfo

__all__ = ["REPORT_OPTIONS", "Reports"]

REPORT_OPTIONS = (
    click.option(
        "--slabinfo", is_flag=True, help="Print /proc/slabinfo at the end of the run."
    ),
    click.option(
        "--stats", is_flag=True, help="Print the reports of the slabinfo tool."
    ),
    click.option(
        "--report",
        metavar='"-AD"',
        help="Print the slabinfo tool's report with these options of its own.",
    ),
)


class Reports(NamedTuple):
    """Which reports are wanted of each result."""

    slabinfo: bool = False
    stats: bool = False
    report: str | None = None

    def check(self, as_json: bool, format_name: str) -> None:
        """Refuse what could not be printed before the work, not after it."""
        if any(self) and not as_json and format_name != "text":
            raise ParameterError(
                f"format is {format_name!r} with reports of caches: accepted are text "
                "and --json"
            )
        if self.report is not None:
            run_slabinfo([], self.report)

    def of(self, result: Result) -> dict[str, str]:
        """Return the reports of one result by the name of their option."""
        found = {}
        if self.slabinfo:
            found["slabinfo"] = result.slabinfo()
        if self.stats:
            found["stats"] = format_stats(result)
        if self.report is not None:
            found["report"] = result.report(self.report)
        return found

    def listed(self, results: Results) -> dict[str, list[str]]:
        """Return each report as a list with the text of every result."""
        found: dict[str, list[str]] = {}
        for result in results:
            for name, text in self.of(result).items():
                found.setdefault(name, []).append(text)
        return found

    def text(self, results: Results) -> str:
        """Return the reports of all results, each below its configuration."""
        if not any(self):
            return ""
        varied = _varied(results)
        return "".join(
            f"\n{_title(result, varied)}\n\n{text.lstrip()}"
            for result in results
            for text in self.of(result).values()
        )


def _varied(results: Results) -> list[str]:
    """Names of the parameters that are not the same in all results."""
    names = dict.fromkeys(name for result in results for name in result.parameters)
    return [n for n in names if len({str(r.parameters.get(n)) for r in results}) > 1]


def _title(result: Result, varied: Sequence[str]) -> str:
    values = [f"{name} {result.parameters.get(name)}" for name in varied]
    words = [result.workload, *values, f"policy {result.policy.name}"]
    return ", ".join([*words, f"kernel {result.kernel}:"])


def format_stats(result: Result) -> str:
    """Write the tool's totals and listings, then a report of each cache that was used.

    SLAB has no such tool: its statistics stand by name for those reports.

    Parameters
    ----------
    result : Result
        A result that kept its caches.

    Returns
    -------
    str

    Raises
    ------
    ParameterError
        If it did not.

    Examples
    --------
    >>> import slabq
    >>> result = slabq.run("hackbench", policy="slub", groups=1, loops=10,
    ...                    machine=slabq.Machine(cpus=2), with_caches=True)
    >>> format_stats(result).splitlines()[0]
    'Slabcache Totals'
    """
    text = "\n".join(result.report(options) for options in ("-T", "-S", "-AD"))
    caches = result.caches()
    if result.policy.name == "slab":
        return f"{text}\n{format_slab_statistics(caches)}"
    for cache in caches:
        record = CacheRecord.of(cache)
        if sum(record.alloc_counts) > 0:
            text += format_report(record, kernel=result.kernel) + _by_cpu(cache)
    return text


def _by_cpu(cache: Mapping[str, Any]) -> str:
    """Counters that counted, with the CPUs, as their files have them."""
    counters = cache["counters_by_cpu"]
    lines = (f"{name:<24s} {format_counter(row)}\n" for name, row in counters.items())
    return "\n" + "".join(lines)
