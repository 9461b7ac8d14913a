"""A result is what one configuration did, with all it takes to repeat it.

A `Result` is immutable and holds the samples of all repeats; lists of them, which make
tables and files, are in `slabq.results`.
"""

import dataclasses
import os
import platform
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from slabq import _core
from slabq.cache_record import CacheRecord
from slabq.errors import ParameterError
from slabq.machine import Machine
from slabq.policy import Policy, find_policy
from slabq.slabinfo import format_slabinfo
from slabq.slabinfo_tool import run_slabinfo
from slabq.stats import Spread, median_index, spread
from slabq.version import __version__

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from slabq.table import Table
    from slabq.trace import Trace

__all__ = ["REPLAY", "Result"]

REPLAY = "replay"
CACHES = "caches"  # of a sample: no part of a row
TIMELINE = "timeline"  # likewise


def this_host() -> dict[str, str]:
    """Describe the host: system, processor architecture and number of CPUs."""
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": platform.machine(),
        "cpus": str(os.cpu_count()),
    }


def this_build() -> dict[str, str]:
    """Versions of slabq, of Python, and how the core was built."""
    return {
        "slabq": __version__,
        "python": platform.python_version(),
        **{f"core {key}": value for key, value in _core.build_info().items()},
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """What one policy did in one workload on one machine.

    Parameters
    ----------
    workload : str
        Name of the workload; ``replay`` for a recorded trace.
    policy : Policy
        The policy with its kernel profile and options.
    machine : Machine
        The machine.
    engine : str
        ``native``: the figures are measured on the host.
    seed : int
        Seed of the first repeat; the n-th has ``seed + n``.
    parameters : mapping
        Parameters of the workload.
    samples : sequence of mapping, length at least 1
        The measured part of each repeat.
    host, versions : mapping of str to str
        Where it ran and what ran it.
    source : Trace, optional
        The trace of a replay, while in memory; a file holds its path only.

    Notes
    -----
    With repeats, the figures of a result are those of one of them, the run whose
    elapsed time is the median (the lower one of an even number), so that time, counters
    and locks belong together. `spread` has the range.

    Examples
    --------
    >>> result = Result(workload="replay", policy=find_policy("slab"),
    ...                 machine=Machine(cpus=1), engine="native", seed=1, parameters={},
    ...                 samples=[{"elapsed_s": 2.0}, {"elapsed_s": 3.0}])
    >>> result.elapsed_s
    2.0
    """

    workload: str
    policy: Policy
    machine: Machine
    engine: str
    seed: int
    parameters: Mapping[str, Any]
    samples: Sequence[Mapping[str, Any]]
    host: Mapping[str, str] = dataclasses.field(default_factory=this_host)
    versions: Mapping[str, str] = dataclasses.field(default_factory=this_build)
    source: "Trace | None" = dataclasses.field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "samples", tuple(self.samples))
        if not self.samples:
            raise ParameterError("a result has no samples: accepted is at least one")

    @property
    def kernel(self) -> str | None:
        """Kernel profile of the policy."""
        return self.policy.kernel

    @property
    def repeat_count(self) -> int:
        """Number of repeats."""
        return len(self.samples)

    @property
    def sample(self) -> Mapping[str, Any]:
        """The repeat with the median elapsed time."""
        return self.samples[median_index([s["elapsed_s"] for s in self.samples])]

    @property
    def elapsed_s(self) -> float:
        """Time the workload took, in seconds."""
        return float(self.sample["elapsed_s"])

    @property
    def operations(self) -> int:
        """Number of operations of the workload, in its own unit."""
        return int(self.sample.get("operations", 0))

    @property
    def rate(self) -> float:
        """Operations a second, in `rate_unit`."""
        return float(self.sample.get("rate", 0.0))

    @property
    def rate_unit(self) -> str:
        """Unit of `rate`."""
        return str(self.sample.get("rate_unit", "1/s"))

    @property
    def counters(self) -> Mapping[str, int]:
        """Counters of the policy by the kernel's names, sums over caches and CPUs."""
        return dict(self.sample.get("counters", {}))

    @property
    def locks(self) -> Mapping[str, Mapping[str, int]]:
        """Acquisitions, contended ones and waiting time in ns of each kind of lock."""
        return dict(self.sample.get("locks", {}))

    @property
    def memory(self) -> Mapping[str, float]:
        """Slabs, bytes and fragmentation at the end, and the peak."""
        return dict(self.sample.get("memory", {}))

    @property
    def latency_ns(self) -> Mapping[str, Mapping[str, float]]:
        """Percentiles of the time of an operation in ns, by path."""
        return dict(self.sample.get("latency_ns", {}))

    def figures(self, name: str) -> list[float]:
        """One figure of every repeat.

        Parameters
        ----------
        name : str
            Name of a number in a row, with dots into it: ``elapsed_s``,
            ``memory.peak_bytes``, ``locks.list_lock.wait_ns``.

        Returns
        -------
        list of float, length repeat_count

        Raises
        ------
        ParameterError
            If a repeat has no such number; the message lists what is there.

        Examples
        --------
        >>> import slabq
        >>> machine = slabq.Machine(cpus=2)
        >>> result = slabq.run("hackbench", policy="slab", machine=machine, groups=1,
        ...                    loops=10, repeat=2)
        >>> len(result.figures("elapsed_s"))
        2
        """
        return [_figure(sample, name) for sample in self.samples]

    def spread(self, name: str) -> Spread:
        """Median and range of one figure over the repeats.

        Parameters
        ----------
        name : str
            As for `figures`.

        Returns
        -------
        Spread

        Raises
        ------
        ParameterError
            If a repeat has no such number.

        Examples
        --------
        >>> result = Result(workload="replay", policy=find_policy("slab"),
        ...                 machine=Machine(cpus=1), engine="native", seed=1,
        ...                 parameters={}, samples=[{"elapsed_s": 2.0}])
        >>> result.spread("elapsed_s").maximum
        2.0
        """
        return spread(self.figures(name))

    def row(self) -> dict[str, Any]:
        """Return the result as one row of ``slabq run --json``.

        Returns
        -------
        dict
            The figures of `sample`; with repeats also ``samples``, the figures of all.

        Examples
        --------
        >>> result = Result(workload="replay", policy=find_policy("slab"),
        ...                 machine=Machine(cpus=1), engine="native", seed=1,
        ...                 parameters={}, samples=[{"elapsed_s": 2.0}])
        >>> result.row()["policy"], result.row()["elapsed_s"]
        ('slab', 2.0)
        """
        identity: dict[str, Any] = {
            "workload": self.workload,
            "policy": self.policy.name,
            "kernel": self.policy.kernel,
            "options": self.policy.given(),
            "machine": self.machine.name,
            "engine": self.engine,
            "seed": self.seed,
            "parameters": dict(self.parameters),
        }
        row = {**identity, **_without_caches(self.sample), **identity}
        row["slabq_version"] = self.versions.get("slabq", "")
        if self.repeat_count > 1:
            row["samples"] = [_without_caches(sample) for sample in self.samples]
        return row

    def caches(self) -> list[dict[str, Any]]:
        """Every cache at the end of the run, if it was told to keep them.

        Returns
        -------
        list of dict
            As `Allocator.caches` returns them, with more; the oldest cache first.

        Raises
        ------
        ParameterError
            If the run did not keep them.

        Examples
        --------
        >>> import slabq
        >>> result = slabq.run("hackbench", policy="slab", groups=1, loops=10,
        ...                    machine=slabq.Machine(cpus=2), with_caches=True)
        >>> sum(cache["slabs"] for cache in result.caches()) > 0
        True
        """
        if CACHES not in self.sample:
            raise ParameterError(
                "the result has no caches: accepted are results of with_caches=True"
            )
        return [dict(cache) for cache in self.sample[CACHES]]

    def slabinfo(self, *, statistics: bool = False) -> str:
        """Return ``/proc/slabinfo`` at the end of the run, version 2.1.

        Parameters
        ----------
        statistics : bool, default False
            With the columns of SLAB's statistics; policy `Slab` only.

        Returns
        -------
        str

        Raises
        ------
        ParameterError
            If the run did not keep its caches, or the policy has no statistics.

        Examples
        --------
        >>> import slabq
        >>> result = slabq.run("hackbench", policy="slab", groups=1, loops=10,
        ...                    machine=slabq.Machine(cpus=2), with_caches=True)
        >>> result.slabinfo().splitlines()[0]
        'slabinfo - version: 2.1'
        """
        return format_slabinfo(self.caches(), statistics=bool(statistics))

    def report(self, options: str = "") -> str:
        """Return what the kernel's slabinfo tool would print at the end of the run.

        Parameters
        ----------
        options : str, default ""
            Options of the tool; see `slabq.slabinfo_tool.run_slabinfo`.

        Returns
        -------
        str

        Raises
        ------
        ParameterError
            If the run did not keep its caches, or an option is not accepted.

        Examples
        --------
        >>> import slabq
        >>> result = slabq.run("hackbench", policy="slub", groups=1, loops=10,
        ...                    machine=slabq.Machine(cpus=2), with_caches=True)
        >>> result.report("-T").splitlines()[0]
        'Slabcache Totals'
        """
        records = [CacheRecord.of(cache) for cache in self.caches()]
        return run_slabinfo(records, options, kernel=self.kernel)

    def repeat(self) -> "Result":
        """Run the same again: same parameters, same seeds, this host and build.

        Returns
        -------
        Result

        Raises
        ------
        ParameterError
            If it was a replay and the trace file is gone or another one.

        Examples
        --------
        >>> import slabq
        >>> result = slabq.run("hackbench", policy="slab", groups=1, loops=10,
        ...                    machine=slabq.Machine(cpus=2))
        >>> result.repeat().parameters == result.parameters
        True
        """
        from slabq.run import repeat_result

        return repeat_result(self)

    def table(self, **options: Any) -> "Table":
        """Return a table of this one result; see `Results.table`."""
        from slabq.results import Results

        return Results([self]).table(**options)

    def plot(self, ax: "Axes | None" = None, **options: Any) -> "Axes":
        """Plot this one result; see `Results.plot`."""
        from slabq.results import Results

        return Results([self]).plot(ax, **options)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save to one file; see `Results.save`. `load` returns a `Results` of one."""
        from slabq.results import Results

        Results([self]).save(path)

    def to_dict(self) -> dict[str, Any]:
        """Return everything, in types that JSON has.

        Returns
        -------
        dict
            What a file holds of the result.

        Examples
        --------
        >>> result = Result(workload="replay", policy=find_policy("slab"),
        ...                 machine=Machine(cpus=1), engine="native", seed=1,
        ...                 parameters={}, samples=[{"elapsed_s": 2.0}])
        >>> Result.from_dict(result.to_dict()) == result
        True
        """
        return {
            "workload": self.workload,
            **self.policy.to_dict(),
            "machine": self.machine.to_dict(),
            "engine": self.engine,
            "seed": self.seed,
            "parameters": dict(self.parameters),
            "samples": [dict(sample) for sample in self.samples],
            "host": dict(self.host),
            "versions": dict(self.versions),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Result":
        """Make a result from what `to_dict` returned.

        Parameters
        ----------
        values : mapping
            All of it.

        Returns
        -------
        Result

        Raises
        ------
        ParameterError
            If a value is not accepted.
        KeyError
            If one is missing.

        Examples
        --------
        >>> Result.from_dict({})
        Traceback (most recent call last):
        KeyError: 'policy'
        """
        policy = find_policy(
            values["policy"], kernel=values["kernel"], **values["options"]
        )
        return cls(
            workload=values["workload"],
            policy=policy,
            machine=Machine(**values["machine"]),
            engine=values["engine"],
            seed=values["seed"],
            parameters=values["parameters"],
            samples=values["samples"],
            host=values["host"],
            versions=values["versions"],
        )


def _without_caches(sample: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value for key, value in sample.items() if key not in (CACHES, TIMELINE)
    }


def _figure(sample: Mapping[str, Any], name: str) -> float:
    found: Any = sample
    for part in name.split("."):
        if not isinstance(found, Mapping) or part not in found:
            known = ", ".join(sorted(found)) if isinstance(found, Mapping) else "none"
            raise ParameterError(f"unknown figure {name!r}: known here are {known}")
        found = found[part]
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise ParameterError(f"figure {name!r} is not a number: accepted are numbers")
    return float(found)
