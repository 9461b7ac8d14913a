"""Measures this host and makes a machine of it, for the sim engine.

What is measured: loads that wait for one another, over working sets of many sizes;
atomic instructions; lines that another CPU has changed or read; a lock taken alone and
handed over. What cannot be measured from user space, interrupts and the scheduler's own
paths, is taken from published figures, and each value says where it is from.
"""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from slabq import _core
from slabq.calibration_costs import Figure, Measured, bytes_text, figures_of, today
from slabq.calibration_host import KIB, MIB, CalibratedHost
from slabq.machine import Machine
from slabq.progress import ProgressBar, ProgressFunction
from slabq.table import Section, Table

__all__ = ["Calibration", "calibrate"]

CHASE_BYTES_MIN = 16 * KIB
CHASE_BYTES_MAX = 256 * MIB
LOCKERS_MAX = 16
STEPS_BESIDE = 5  # measurements beside the chases, for the progress bar


@dataclasses.dataclass(frozen=True)
class Calibration:
    """What was measured of a host, and the machine it makes.

    Parameters
    ----------
    shape : Machine
        CPUs, nodes, distances and shared caches.
    figures : sequence of Figure
        Its costs.
    latencies : mapping of int to float
        Time of a load in ns, by the bytes of the working set.
    processor : str, default ""
        What the host calls itself.

    Examples
    --------
    >>> found = Calibration(Machine(cpus=2), [], {16384: 1.5})
    >>> found.machine.cpus
    2
    """

    shape: Machine
    figures: Sequence[Figure]
    latencies: Mapping[int, float]
    processor: str = ""

    @property
    def machine(self) -> Machine:
        """The machine, for the sim engine."""
        costs = {figure.name: figure.value for figure in self.figures}
        return self.shape.replace(costs=costs, name="calibrated")

    def toml(self) -> str:
        """Return the text of the machine file.

        Returns
        -------
        str
            As `read_machine` and ``--machine FILE`` take it.

        Examples
        --------
        >>> text = Calibration(Machine(cpus=2), [], {}).toml()
        >>> "cpus = 2" in text
        True
        """
        shape = self.shape
        about = f"this host when it was calibrated: {_shape_text(shape)}"
        lines = [
            f"# Measured by slabq calibrate on {today()}; "
            f"{_plain(self.processor) or 'a host without a name'}.",
            f'about = "{about}"',
            f"cpus = {shape.cpus}",
            f"nodes = {shape.nodes}",
            f"distance = {[list(row) for row in shape.distance or ()]}",
            f"node_of_cpu = {list(shape.node_of_cpu or ())}",
            f"llc_of_cpu = {list(shape.llc_of_cpu or ())}",
            "",
            "[costs]",
            *(figure.line() for figure in self.figures),
            "",
            "# Time of a load that waits for the one before, by working set.",
            "[latency_ns_by_bytes]",
            *(f"{size} = {ns:.2f}" for size, ns in sorted(self.latencies.items())),
        ]
        return "\n".join(lines) + "\n"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the machine file.

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
        >>> Calibration(Machine(cpus=2), [], {}).save("no/such/folder/x.toml")
        Traceback (most recent call last):
        FileNotFoundError: [Errno 2] No such file or directory
        """
        Path(path).write_text(self.toml(), encoding="utf-8")

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, in types that JSON has.

        Returns
        -------
        dict
            ``machine``, ``costs`` with value, unit, source and confidence of each, and
            ``latency_ns_by_bytes``.

        Examples
        --------
        >>> Calibration(Machine(cpus=2), [], {4096: 1.5}).to_dict()["costs"]
        {}
        """
        costs = {figure.name: dataclasses.asdict(figure) for figure in self.figures}
        return {
            "processor": self.processor,
            "machine": self.machine.to_dict(),
            "costs": costs,
            "latency_ns_by_bytes": {str(k): v for k, v in self.latencies.items()},
        }

    def table(self) -> Table:
        """Return what was found, as a table.

        Returns
        -------
        Table
            The costs, then the latency by working set.

        Examples
        --------
        >>> len(Calibration(Machine(cpus=2), [], {}).table().sections)
        2
        """
        costs = [
            [f.name, str(f.value), f.unit, f.confidence, f.origin] for f in self.figures
        ]
        sizes = [
            [bytes_text(size), f"{ns:.1f}"]
            for size, ns in sorted(self.latencies.items())
        ]
        title = f"costs of this host, {today()}"
        return Table(
            [
                Section(
                    title,
                    ["cost", "value", "unit", "confidence", "from"],
                    costs,
                    ["a machine file says of each in full where it is from"],
                ),
                Section(
                    "load that waits for the one before",
                    ["working set", "ns"],
                    sizes,
                ),
            ]
        )


def calibrate(progress: ProgressFunction | bool | None = None) -> Calibration:
    """Measure this host; it takes ten seconds or so.

    Parameters
    ----------
    progress : callable or bool, optional
        A function that is called with the fraction done; False for no progress bar.
        Default: a bar on a terminal.

    Returns
    -------
    Calibration
        ``.machine`` is the machine; ``.save(path)`` writes a file of it.

    Raises
    ------
    Error
        If the host does not let a thread run on a CPU.
    OutOfMemory
        If it has no memory for the working sets.

    Notes
    -----
    A figure of one CPU is a low percentile of many short windows, since what else runs
    on the host only adds time; one of two CPUs is a median. Run it on an idle host if
    you can: hosts change their clock under load.

    Examples
    --------
    >>> import slabq
    >>> found = slabq.calibrate()
    >>> result = slabq.run("hackbench", policy="slub", machine=found.machine,
    ...                    engine="sim", groups=1, loops=10)
    >>> result.operations
    4000
    """
    place = CalibratedHost.read()
    if callable(progress):
        return _calibrate(place, progress)
    show = None if progress is None else bool(progress)
    with ProgressBar("calibrate", show=show) as bar:
        return _calibrate(place, bar)


# -- measuring -------------------------------------------------------------------------


def _shape_text(shape: Machine) -> str:
    counts = ((shape.cpus, "CPU"), (shape.nodes, "node"))
    return ", ".join(f"{n} {word}" + ("" if n == 1 else "s") for n, word in counts)


def _plain(text: str) -> str:
    return "".join(c for c in text if c.isascii() and c.isprintable())


def _chase_sizes(place: CalibratedHost) -> list[int]:
    """Working sets from the first level's half to well beyond the last level."""
    largest = max(place.cache_bytes.values(), default=0)
    end = min(max(4 * largest, 64 * MIB), CHASE_BYTES_MAX)
    sizes = [CHASE_BYTES_MIN]
    while sizes[-1] < end:
        sizes.append(2 * sizes[-1])
    return sizes


def _distances(place: CalibratedHost) -> dict[str, tuple[int, int] | None]:
    """One pair of CPUs for each distance the simulated machine knows."""
    shape = place.shape
    llc, node = shape.llc_of_cpu or (), shape.node_of_cpu or ()
    package = place.package

    def is_socket(a: int, b: int) -> bool:
        return llc[a] != llc[b] and package[a] == package[b] and node[a] == node[b]

    def is_far(a: int, b: int) -> bool:
        return package[a] != package[b] or node[a] != node[b]

    return {
        "core": place.pair(lambda a, b: llc[a] == llc[b]),
        "socket": place.pair(is_socket),
        "hop1": place.pair(is_far),
    }


def _lockers(place: CalibratedHost) -> list[int]:
    """One CPU of each last-level cache."""
    llc_of_cpu = place.shape.llc_of_cpu or ()
    first: dict[int, int] = {}
    for cpu in place.allowed:
        first.setdefault(llc_of_cpu[cpu], cpu)
    return sorted(first.values())[:LOCKERS_MAX]


def _calibrate(place: CalibratedHost, progress: ProgressFunction) -> Calibration:
    sizes = _chase_sizes(place)
    steps = len(sizes) + STEPS_BESIDE
    done = 0

    def told(value: Any) -> Any:
        nonlocal done
        done += 1
        progress(min(done / steps, 1.0))
        return value

    measured = _measure(place, sizes, told)
    progress(1.0)
    figures = list(figures_of(place, measured))
    return Calibration(place.shape, figures, measured.latencies, place.processor)


def _measure(
    place: CalibratedHost, sizes: Sequence[int], told: Callable[[Any], Any]
) -> Measured:
    cpu = place.kernel_cpu(place.allowed[0])
    pairs = {name: pair for name, pair in _distances(place).items() if pair is not None}
    latencies = {
        size: told(_core.calibrate_chase(size, False, cpu, cpu)) for size in sizes
    }
    stream = told(_core.calibrate_chase(sizes[-1], True, cpu, cpu))
    remote = None
    if place.shape.nodes > 1 and "hop1" in pairs:
        near, far = map(place.kernel_cpu, pairs["hop1"])
        remote = _core.calibrate_chase(sizes[-1], False, near, far)
    single = told(_core.calibrate_one(cpu))
    found = {
        name: told(_core.calibrate_two(*map(place.kernel_cpu, pair)))
        for name, pair in pairs.items()
    }
    handover = None
    pair = next(iter(pairs.values()), None)
    if pair is not None:
        handover = told(_core.calibrate_lock([place.kernel_cpu(c) for c in pair]))
    many = None
    lockers = _lockers(place)
    if len(lockers) > 2:
        time = told(_core.calibrate_lock([place.kernel_cpu(c) for c in lockers]))
        many = (len(lockers), time)
    return Measured(latencies, stream, remote, single, found, handover, many)
