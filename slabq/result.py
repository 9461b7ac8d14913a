"""A result is what one configuration did, with all it takes to repeat it.

`Result` is one configuration and its repeats, `Results` a list of them that makes
tables and plots. Both save to one file, JSON inside gzip, which `load` reads back.
"""

import dataclasses
import gzip
import json
import os
import platform
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from slabq import _core
from slabq.errors import Error, ParameterError
from slabq.machine import Machine
from slabq.policy import Policy, find_policy
from slabq.stats import Spread, median_index, spread
from slabq.version import __version__

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from slabq.table import Table
    from slabq.trace import Trace

__all__ = ["Result", "Results", "load"]

FORMAT_NAME = "slabq results"
FORMAT_VERSION = 1
REPLAY = "replay"


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
        row = {**identity, **self.sample, **identity}
        row["slabq_version"] = self.versions.get("slabq", "")
        if self.repeat_count > 1:
            row["samples"] = [dict(sample) for sample in self.samples]
        return row

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
        return Results([self]).table(**options)

    def plot(self, ax: "Axes | None" = None, **options: Any) -> "Axes":
        """Plot this one result; see `Results.plot`."""
        return Results([self]).plot(ax, **options)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save to one file; see `Results.save`. `load` returns a `Results` of one."""
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


class Results(Sequence[Result]):
    """A list of results, in the order they were asked for.

    Parameters
    ----------
    results : iterable of Result
        The results.

    Examples
    --------
    >>> len(Results([]))
    0
    """

    def __init__(self, results: Iterable[Result]) -> None:
        self._results = tuple(results)

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> "Results": ...
    def __getitem__(self, index: int | slice) -> "Result | Results":
        if isinstance(index, slice):
            return Results(self._results[index])
        return self._results[index]

    def __len__(self) -> int:
        return len(self._results)

    def __iter__(self) -> Iterator[Result]:
        return iter(self._results)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Results) and self._results == other._results

    def __hash__(self) -> int:
        return id(self)

    def __add__(self, other: "Results") -> "Results":
        return Results([*self, *other])

    def __repr__(self) -> str:
        return f"<slabq.Results: {len(self)} results>"

    def where(self, condition: Callable[[Result], bool]) -> "Results":
        """Return the results for which `condition` holds.

        Parameters
        ----------
        condition : callable
            Takes a `Result`.

        Returns
        -------
        Results

        Examples
        --------
        >>> Results([]).where(lambda result: result.policy.name == "slab")
        <slabq.Results: 0 results>
        """
        return Results(result for result in self if condition(result))

    def table(self, baseline: str | None = None, figure: str = "elapsed_s") -> "Table":
        """Return a comparison table.

        Parameters
        ----------
        baseline : str, optional
            Policy that ratios are against. Default: that of the first result.
        figure : str, default "elapsed_s"
            What is compared, as for `Result.figures`.

        Returns
        -------
        slabq.table.Table
            Prints as text; ``.format("markdown")`` and others.

        Raises
        ------
        ParameterError
            If there is no such policy or figure, or no result at all.

        Notes
        -----
        With repeats a cell is the median. Results of different engines, workloads or
        machines never share a column: each such group is a table of its own.

        Examples
        --------
        >>> import slabq
        >>> rs = slabq.sweep("hackbench", policy=["slab", "slub"], groups=1, loops=10,
        ...                  machine=slabq.Machine(cpus=2))
        >>> print(rs.table(baseline="slab").format("csv").splitlines()[1][:9])
        policy,ke
        """
        from slabq.table import comparison_table

        return comparison_table(self, baseline=baseline, figure=figure)

    def rows(self) -> list[dict[str, Any]]:
        """Return every result as a row of ``slabq run --json``.

        Returns
        -------
        list of dict

        Examples
        --------
        >>> Results([]).rows()
        []
        """
        return [result.row() for result in self]

    def to_pandas(self) -> "pd.DataFrame":
        """Return a data frame, one line a repeat.

        Returns
        -------
        pandas.DataFrame
            Nested figures become columns with dots, such as ``counters.allocmiss``.

        Raises
        ------
        Error
            If pandas is not installed.

        Examples
        --------
        >>> import slabq
        >>> rs = slabq.sweep("hackbench", policy="slab", groups=[1, 2], loops=10,
        ...                  machine=slabq.Machine(cpus=2))
        >>> list(rs.to_pandas()["parameters.groups"])
        [1, 2]
        """
        try:
            import pandas as pd
        except ImportError:
            raise Error("to_pandas needs pandas: pip install 'slabq[pandas]'") from None
        lines = []
        for result in self:
            row = result.row()
            row.pop("samples", None)
            for number, sample in enumerate(result.samples):
                lines.append({**row, **sample, "repeat": number})
        return pd.json_normalize(lines)

    def plot(self, ax: "Axes | None" = None, figure: str = "elapsed_s") -> "Axes":
        """Plot a comparison: bars by policy, or lines over what was varied.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw. Default: a new figure.
        figure : str, default "elapsed_s"
            What is compared, as for `Result.figures`.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ParameterError
            If the results are of more than one workload, machine or engine, or there
            are none.

        Examples
        --------
        >>> import slabq
        >>> rs = slabq.sweep("hackbench", policy=["slab", "slub"], groups=1, loops=10,
        ...                  machine=slabq.Machine(cpus=2))
        >>> rs.plot().get_ylabel()
        'elapsed time [s]'
        """
        from slabq.plot import plot_comparison

        return plot_comparison(self, ax, figure=figure)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save to one file.

        Parameters
        ----------
        path : path-like
            The file; an existing one is replaced.

        Raises
        ------
        OSError
            If it cannot be written.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile(suffix=".slabq") as file:
        ...     Results([]).save(file.name)
        ...     len(load(file.name))
        0
        """
        document = {
            "format": FORMAT_NAME,
            "version": FORMAT_VERSION,
            "results": [result.to_dict() for result in self],
        }
        data = json.dumps(document, separators=(",", ":")).encode()
        with open(path, "wb") as file:
            file.write(gzip.compress(data, mtime=0))


def load(path: str | os.PathLike[str]) -> Results:
    """Read results that were saved.

    Parameters
    ----------
    path : path-like
        A file that `Results.save` or ``slabq run -o`` wrote.

    Returns
    -------
    Results

    Raises
    ------
    ParameterError
        If the file is not one, is of a later version, or is damaged.
    OSError
        If it cannot be read.

    Examples
    --------
    >>> load("no such file")
    Traceback (most recent call last):
    FileNotFoundError: [Errno 2] No such file or directory: 'no such file'
    """
    name = os.fspath(path)
    with open(path, "rb") as file:
        data = file.read()
    if data[:2] != b"\x1f\x8b":
        raise ParameterError(
            f"{name} is not a result file: accepted are files that slabq saved"
        )
    try:
        document = json.loads(gzip.decompress(data))
    except (OSError, EOFError, zlib.error, ValueError):
        raise ParameterError(
            f"result file {name} is damaged or cut off: accepted are whole files"
        ) from None
    return _from_document(document, name)


def _from_document(document: Any, name: str) -> Results:
    if not isinstance(document, dict) or document.get("format") != FORMAT_NAME:
        raise ParameterError(
            f"{name} is not a result file: accepted are files that slabq saved"
        )
    version = document.get("version")
    if version != FORMAT_VERSION:
        raise ParameterError(
            f"result file {name} is of version {version}: accepted is {FORMAT_VERSION}"
        )
    try:
        return Results(Result.from_dict(values) for values in document["results"])
    except ParameterError as error:
        raise ParameterError(f"result file {name}: {error}") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise ParameterError(
            f"result file {name} is damaged ({type(error).__name__}: {error}): "
            "accepted are whole files"
        ) from None
