"""A comparison sets the results of several policies side by side, as a table.

A figure is any number of a result's row, by its name. Ratios are against one policy,
the baseline. Results of different workloads, machines or engines are sections of their
own and never share a column.
"""

import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from slabq.checks import require_choice
from slabq.errors import ParameterError
from slabq.policy import kernel_profiles
from slabq.result import REPLAY, Result
from slabq.table import Section, Table
from slabq.workload import workload_kinds

__all__ = ["comparison_table", "figure_label", "policy_labels"]

SHOWN_PARAMETERS = 4  # of a workload, in titles; others if not the default
DECIMALS_MAX = 6
MIB = 1 << 20
_OTHER_LOCKS = ("workload", "wait_lock", "runqueue_lock")

# Figure -> (what it is, unit, factor from the stored unit, decimals)
_FIGURES: Mapping[str, tuple[str, str, float, int]] = {
    "elapsed_s": ("elapsed time", "s", 1.0, 3),
    "ns_per_operation": ("time per operation", "ns", 1.0, 1),
    "rate": ("rate", "1/s", 1.0, 0),
    "operations": ("operations", "", 1.0, 0),
    "memory.bytes": ("slab memory", "MiB", 1 / MIB, 2),
    "memory.peak_bytes": ("peak slab memory", "MiB", 1 / MIB, 2),
    "context_switches": ("context switches", "", 1.0, 0),
    "cpu_migrations": ("CPU migrations", "", 1.0, 0),
}


def figure_label(figure: str) -> str:
    """Name a figure with its unit, for headings and axes.

    Parameters
    ----------
    figure : str
        Name of a figure, as for `Result.figures`.

    Returns
    -------
    str

    Examples
    --------
    >>> figure_label("memory.peak_bytes")
    'peak slab memory [MiB]'
    """
    name, unit, _, _ = _describe(figure)
    return f"{name} [{unit}]" if unit else name


def _describe(figure: str) -> tuple[str, str, float, int]:
    if figure in _FIGURES:
        return _FIGURES[figure]
    unit = next((u for u in ("ns", "bytes", "s") if figure.endswith("_" + u)), "")
    words = figure.removesuffix("_" + unit) if unit else figure
    return words.replace("_", " ").replace(".", " "), unit, 1.0, 0


def scaled(result: Result, figure: str) -> list[float]:
    """Return a figure of every repeat in the unit that `figure_label` names."""
    factor = _describe(figure)[2]
    return [value * factor for value in result.figures(figure)]


def policy_labels(results: Sequence[Result], *, kernel: bool = False) -> list[str]:
    """Name the policy of each result by what tells it from the others.

    Parameters
    ----------
    results : sequence of Result
        What is shown together.
    kernel : bool, default False
        Name the kernel profile always, and not only where one policy has several.

    Returns
    -------
    list of str
        The policy's name; its kernel profile and its options where they differ.

    Examples
    --------
    >>> policy_labels([])
    []
    """
    by_name: dict[str, list[Result]] = {}
    for result in results:
        by_name.setdefault(result.policy.name, []).append(result)
    return [
        _policy_label(result, by_name[result.policy.name], kernel) for result in results
    ]


def _policy_label(result: Result, alike: Sequence[Result], kernel: bool) -> str:
    label = result.policy.name
    if result.kernel and (kernel or len({other.kernel for other in alike}) > 1):
        label += f" {result.kernel}"
    given = [other.policy.given() for other in alike]
    for name, value in result.policy.given().items():
        if len({options.get(name) for options in given}) > 1:
            label += f" {name}={int(value)}"
    return label


def _option_notes(group: Sequence[Result]) -> list[str]:
    """Say which options were given, and of which rows or columns that is."""
    notes: list[str] = []
    for policy in dict.fromkeys(result.policy.name for result in group):
        alike = [result for result in group if result.policy.name == policy]
        notes += _options_of(policy, alike)
    return notes


def _options_of(policy: str, alike: Sequence[Result]) -> list[str]:
    """One line of what all of a policy have, and what the label of one leaves out."""
    given = [result.policy.given() for result in alike]
    names = list(dict.fromkeys(name for options in given for name in options))
    same = [n for n in names if len({options.get(n) for options in given}) == 1]
    labels = dict.fromkeys(_policy_label(result, alike, False) for result in alike)
    owner = policy if len(labels) == 1 else f"every {policy}"
    values = ", ".join(f"{name}={int(given[0][name])}" for name in same)
    notes = [f"options of {owner}: {values}"] if same else []
    # The others are in the labels, but for rows that have the profile's own value.
    for result in alike:
        own = result.policy.values()
        left = [n for n in names if n not in same and n not in result.policy.given()]
        values = ", ".join(f"{name}={own[name]}" for name in left)
        label = _policy_label(result, alike, False)
        notes += [f"not given to {label}: {values} by default"] if left else []
    return list(dict.fromkeys(notes))


def comparison_table(
    results: Sequence[Result],
    *,
    baseline: str | None = None,
    figure: str = "elapsed_s",
) -> Table:
    """Compare results; see `Results.table`.

    Parameters
    ----------
    results : sequence of Result
        What is compared.
    baseline : str, optional
        Policy that ratios are against. Default: that of the first result.
    figure : str, default "elapsed_s"
        What is compared.

    Returns
    -------
    Table

    Raises
    ------
    ParameterError
        If there is no such policy or figure, or no result at all.

    Examples
    --------
    >>> comparison_table([])
    Traceback (most recent call last):
    slabq.errors.ParameterError: there are no results: accepted is at least one
    """
    if not results:
        raise ParameterError("there are no results: accepted is at least one")
    if baseline is not None:
        require_choice("baseline", baseline, sorted({r.policy.name for r in results}))
    groups: dict[tuple[object, ...], list[Result]] = {}
    for result in results:
        key = (result.workload, result.machine, result.engine, result.repeat_count)
        groups.setdefault(key, []).append(result)
    sections = []
    for group in groups.values():
        if len({_setting(result, group) for result in group}) == 1:
            sections.append(_policy_section(group, baseline, figure))
        else:
            sections.append(_sweep_section(group, baseline, figure))
    return Table(sections)


def varied_parameters(results: Sequence[Result]) -> list[str]:
    """Names of the parameters that are not the same in all `results`."""
    names = dict.fromkeys(name for result in results for name in result.parameters)
    return [n for n in names if len({str(r.parameters.get(n)) for r in results}) > 1]


def _setting(result: Result, group: Sequence[Result]) -> tuple[object, ...]:
    return tuple(result.parameters.get(name) for name in varied_parameters(group))


def _shown_parameters(result: Result) -> list[tuple[str, str]]:
    """Parameters for a title: the leading ones, and what is not at its default."""
    if result.workload == REPLAY:
        path = str(result.parameters.get("trace", ""))
        return [("trace", os.path.basename(path))] if path else []
    kind = workload_kinds().get(result.workload)
    known = kind.parameters if kind is not None else {}  # none of one in C
    # Real system calls take what they take: the parameter is of simulated ones.
    hidden = {"syscall_ns"} if result.engine == "native" else set()
    return [
        (name, f"{name} {value}")
        for number, (name, value) in enumerate(result.parameters.items())
        if name not in hidden
        and (
            number < SHOWN_PARAMETERS
            or (kind is not None and name not in known)
            or (name in known and value != known[name].default_value)
        )
    ]


def _title(group: Sequence[Result]) -> str:
    first = group[0]
    varied = varied_parameters(group)
    fixed = [text for name, text in _shown_parameters(first) if name not in varied]
    repeats = f", median of {first.repeat_count} runs" if first.repeat_count > 1 else ""
    what = "measured on this host" if first.engine == "native" else "simulated"
    parameters = ": " + ", ".join(fixed) if fixed else ""
    return (
        f"{first.workload}{parameters}; machine {first.machine.name}, "
        f"engine {first.engine} ({what}){repeats}"
    )


def _kernel_notes(group: Sequence[Result]) -> list[str]:
    """Say which kernel profile each policy took."""
    taken = dict.fromkeys(
        f"{r.policy.name} {r.kernel}" for r in group if r.kernel is not None
    )
    return ["kernel profiles: " + ", ".join(taken)] if taken else []


def _baseline_of(group: Sequence[Result], baseline: str | None) -> Result:
    name = baseline or group[0].policy.name
    for result in group:
        if result.policy.name == name:
            return result
    raise ParameterError(
        f"baseline {name!r} has no result of {group[0].workload} on "
        f"{group[0].machine.name}: accepted are "
        + ", ".join(dict.fromkeys(r.policy.name for r in group))
    )


def _decimals(group: Sequence[Result], figure: str) -> int:
    """Decimals that leave three digits of the smallest value, within reason."""
    values = [abs(_middle(result, figure)) for result in group]
    smallest = min((value for value in values if value > 0), default=1.0)
    needed = 2 - math.floor(math.log10(smallest))
    return min(max(_describe(figure)[3], needed), DECIMALS_MAX)


def _ratio(value: float, base: float) -> str:
    return f"{value / base:.3f}" if base else "-"


def _policy_section(
    group: Sequence[Result], baseline: str | None, figure: str
) -> Section:
    """One line a policy: the figure, its ratio, its range, what stands behind it."""
    base = _middle(_baseline_of(group, baseline), figure)
    heading = "time [s]" if figure == "elapsed_s" else figure_label(figure)
    columns = ["policy", "kernel", heading, "ratio"]
    decimals = _decimals(group, figure)
    repeated = group[0].repeat_count > 1
    columns += ["min..max"] if repeated else []
    extras = [
        extra for extra in _EXTRAS if extra.figure != figure and extra.in_all(group)
    ]
    columns += [extra.heading for extra in extras]
    rows = []
    for result, label in zip(group, policy_labels(group), strict=True):
        value = _middle(result, figure)
        row = [label, result.kernel or "-"]
        row += [f"{value:.{decimals}f}", _ratio(value, base)]
        row += [_range(result, figure, decimals)] if repeated else []
        row += [extra.cell(result) for extra in extras]
        rows.append(row)
    notes = [f"ratio: against {_baseline_of(group, baseline).policy.name}"]
    notes += [*_newest_notes(group), *_option_notes(group), *_latency_notes(group)]
    notes += _trace_notes(group[0])
    return Section(_title(group), columns, rows, notes, left_count=2)


def _latency_notes(group: Sequence[Result]) -> list[str]:
    """List the times that the workload itself took, as a wake-up's."""
    return [
        f"{path}, {label}: p50 {found['p50']:.0f}, p99 {found['p99']:.0f}, "
        f"max {found['max']:.0f} ns of {found['count']:.0f}"
        for result, label in zip(group, policy_labels(group), strict=True)
        for path, found in result.latency_ns.items()
        if path not in ("alloc", "free")
    ]


def _newest_notes(group: Sequence[Result]) -> list[str]:
    """Say so if the policies have different profiles, since each has its newest."""
    newest = {r.policy.name: [None, *kernel_profiles(r.policy.name)][-1] for r in group}
    own = all(result.kernel == newest[result.policy.name] for result in group)
    if own and len({result.kernel for result in group}) > 1:
        return ["kernel: each policy as in the newest kernel profile that has it"]
    return []


def _trace_notes(result: Result) -> list[str]:
    """Account for every event of a replayed trace, the unmatched ones above all."""
    counts = result.row().get("trace")
    if counts is None:
        return []
    kinds = {
        "matched_frees": "freed in it",
        "live": "live at its end",
        "reused": "freed without an event (bulk frees), seen as the address came again",
        "failed_allocations": "failed",
    }
    outside = {
        "unmatched_frees": "frees of what was allocated before it began",
        "nil_frees": "frees of NULL",
        "lost": "events that the recorder lost",
    }
    inside = [f"{counts[name]} {text}" for name, text in kinds.items() if counts[name]]
    left = [f"{counts[name]} {text}" for name, text in outside.items() if counts[name]]
    notes = [f"trace: {counts['allocations']} allocations: " + ", ".join(inside)]
    notes += ["left out: " + ", ".join(left)] if left else []
    return notes


def _middle(result: Result, figure: str) -> float:
    return result.spread(figure).median * _describe(figure)[2]


def _range(result: Result, figure: str, decimals: int) -> str:
    found = result.spread(figure)
    factor = _describe(figure)[2]
    low, high = found.minimum * factor, found.maximum * factor
    return f"{low:.{decimals}f}..{high:.{decimals}f}"


@dataclasses.dataclass(frozen=True)
class _Extra:
    """A further column of the table of policies, if every result has its figure."""

    figure: str
    heading: str
    decimals: int
    value: Callable[[Mapping[str, Any]], float]

    def in_all(self, group: Sequence[Result]) -> bool:
        try:
            return all(self.value(result.sample) is not None for result in group)
        except (KeyError, TypeError, ZeroDivisionError):
            return False

    def cell(self, result: Result) -> str:
        return f"{self.value(result.sample):.{self.decimals}f}"


def _allocator_wait_ns(sample: Mapping[str, Any]) -> float:
    """Time that all CPUs together waited for locks of policy and page allocator."""
    locks = sample["locks"].items()
    waits = [lock["wait_ns"] for name, lock in locks if name not in _OTHER_LOCKS]
    return float(sum(waits))


_EXTRAS = (
    _Extra("ns_per_operation", "ns/op", 0, lambda s: float(s["ns_per_operation"])),
    _Extra(
        "memory.peak_bytes", "peak MiB", 1, lambda s: s["memory"]["peak_bytes"] / MIB
    ),
    _Extra(
        "locks",
        "lock ms",
        2,
        lambda s: _allocator_wait_ns(s) / 1e6,
    ),
)


def _sweep_section(
    group: Sequence[Result], baseline: str | None, figure: str
) -> Section:
    """One line a setting, one column a policy, and one for each ratio."""
    names = varied_parameters(group)
    label_of = dict(zip(map(id, group), policy_labels(group), strict=True))
    labels = list(dict.fromkeys(label_of.values()))
    base_label = label_of[id(_baseline_of(group, baseline))]
    settings: dict[tuple[object, ...], dict[str, Result]] = {}
    for result in group:
        settings.setdefault(_setting(result, group), {})[label_of[id(result)]] = result
    others = [label for label in labels if label != base_label]
    columns = [*names, *labels, *(f"{label}/{base_label}" for label in others)]
    decimals = _decimals(group, figure)
    rows = []
    for setting, found in settings.items():
        values = {label: _middle(result, figure) for label, result in found.items()}
        cells = _sweep_cells(values, labels, base_label, decimals)
        rows.append([*map(str, setting), *cells])
    notes = [
        f"cells: {figure_label(figure)}",
        *_kernel_notes(group),
        *_option_notes(group),
    ]
    return Section(_title(group), columns, rows, notes, left_count=len(names))


def _sweep_cells(
    values: Mapping[str, float], labels: Sequence[str], base_label: str, decimals: int
) -> list[str]:
    cells = [
        f"{values[name]:.{decimals}f}" if name in values else "-" for name in labels
    ]
    for label in labels:
        if label != base_label:
            known = label in values and base_label in values
            cells.append(_ratio(values[label], values[base_label]) if known else "-")
    return cells
