"""What runs were like over time, as a file that Chrome's and Perfetto's viewers open.

Each result is a process there: slab memory, the CPUs that waited at each lock, and how
often each of the kernel's counters counted, over virtual time of a simulated run or the
host's time of a measured one; and a row a CPU with what it got done.
"""

import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from slabq.chapters import how
from slabq.comparison import policy_labels
from slabq.errors import ParameterError
from slabq.result import TIMELINE, Result

__all__ = ["save_timeline", "trace_events"]

MIB = 1 << 20
Event = dict[str, Any]
Sample = Mapping[str, Any]


def save_timeline(
    results: Result | Iterable[Result], path: str | os.PathLike[str]
) -> None:
    """Write what results were like over time, in Chrome's trace event format.

    Parameters
    ----------
    results : Result or iterable of Result
        Results that were run with ``with_timeline=True``. Of repeats, the one with the
        median time is written.
    path : path-like
        The file, a JSON document; an existing one is replaced.

    Raises
    ------
    ParameterError
        If a result has no timeline.
    OSError
        If the file cannot be written.

    Notes
    -----
    Values between two samples are averages: operations and counts a millisecond, and at
    locks the number of CPUs that waited. A measured run has operations and memory only,
    about every 50 ms.

    Examples
    --------
    >>> import slabq, tempfile
    >>> result = slabq.run("hackbench", policy="slub", groups=1, loops=10, engine="sim",
    ...                    machine="penryn-2x4", with_timeline=True)
    >>> with tempfile.NamedTemporaryFile(suffix=".json") as file:
    ...     slabq.save_timeline(result, file.name)
    """
    listed = [results] if isinstance(results, Result) else list(results)
    document = {"displayTimeUnit": "ms", "traceEvents": list(trace_events(listed))}
    Path(path).write_text(json.dumps(document, separators=(",", ":")) + "\n")


def trace_events(results: Sequence[Result]) -> Iterator[Event]:
    """Return the events of `save_timeline`, one process a result.

    Parameters
    ----------
    results : sequence of Result

    Yields
    ------
    dict
        Events of Chrome's format; ``ts`` in microseconds from a result's first sample.

    Raises
    ------
    ParameterError
        If a result has no timeline.

    Examples
    --------
    >>> list(trace_events([]))
    []
    """
    labels = policy_labels(results, kernel=True)
    for process, (result, label) in enumerate(zip(results, labels, strict=True), 1):
        if TIMELINE not in result.sample:
            raise ParameterError(
                f"the result of {label} has no timeline: accepted are results of "
                "with_timeline=True"
            )
        yield {
            "ph": "M",
            "pid": process,
            "name": "process_name",
            "args": {"name": f"{result.workload}, {label} ({how(result)})"},
        }
        yield from _events_of(result, process)


def _events_of(result: Result, process: int) -> Iterator[Event]:
    samples: Sequence[Sample] = result.sample[TIMELINE]
    if not samples:
        return
    first_ns = samples[0]["at_ns"]
    unit = result.rate_unit.removesuffix("/s")

    def event(at_ns: float, name: str, **values: float) -> Event:
        time_us = (at_ns - first_ns) / 1000
        return {"ph": "C", "pid": process, "ts": time_us, "name": name, "args": values}

    if first_ns < 0:
        yield {
            "ph": "i",
            "pid": process,
            "tid": 0,
            "s": "p",
            "ts": -first_ns / 1000,
            "name": "the workload's clock starts",
        }
    for sample in samples:
        yield event(sample["at_ns"], "slab memory", MiB=sample["slab_bytes"] / MIB)
    for before, after in itertools.pairwise(samples):
        span_ns = after["at_ns"] - before["at_ns"]
        if span_ns <= 0:
            continue
        at_ns = before["at_ns"]
        for cpu, done in enumerate(_done_by_cpu(before, after)):
            yield event(at_ns, f"CPU {cpu}", **{f"{unit}/ms": 1e6 * done / span_ns})
        waiting = {
            name: wait_ns / span_ns for name, wait_ns in _waits(before, after).items()
        }
        if waiting:
            yield event(at_ns, "CPUs that wait, by lock", **waiting)
        for name, count in _counts(before, after).items():
            yield event(at_ns, name, **{"1/ms": 1e6 * count / span_ns})


def _done_by_cpu(before: Sample, after: Sample) -> list[int]:
    pairs = zip(before["operations_by_cpu"], after["operations_by_cpu"], strict=True)
    return [later - earlier for earlier, later in pairs]


def _waits(before: Sample, after: Sample) -> dict[str, int]:
    earlier = before.get("locks", {})
    return {
        name: lock["wait_ns"] - earlier.get(name, {}).get("wait_ns", 0)
        for name, lock in after.get("locks", {}).items()
    }


def _counts(before: Sample, after: Sample) -> dict[str, int]:
    earlier = before.get("counters", {})
    return {
        name: count - earlier.get(name, 0)
        for name, count in after.get("counters", {}).items()
    }
