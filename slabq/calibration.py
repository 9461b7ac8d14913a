"""Measures this host and makes a machine of it, for the sim engine.

What is measured: loads that wait for one another, over working sets of many sizes;
atomic instructions; lines that another CPU has changed or read; a lock taken alone and
handed over. What cannot be measured from user space, interrupts and the scheduler's own
paths, is taken from published figures, and each value says where it is from.
"""

import dataclasses
import datetime
import os
import platform
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from slabq import _core, topology
from slabq.costs import values_of_table
from slabq.errors import ParameterError
from slabq.machine import Machine, host
from slabq.progress import ProgressBar, ProgressFunction
from slabq.table import Section, Table

__all__ = ["Calibration", "Figure", "calibrate"]

KIB = 1 << 10
MIB = 1 << 20
LINE_BYTES = 64
CHASE_BYTES_MIN = 16 * KIB
CHASE_BYTES_MAX = 256 * MIB
MULTIPLY_CYCLES = 3  # of a 32-bit multiplication, of most processors since 2006
LOCKERS_MAX = 16
STEPS_BESIDE = 5  # measurements beside the chases, for the progress bar
ALIKE = "i7-4790"  # the preset that what is not measured is taken from
SYSFS = Path("/sys/devices/system")
# Where the cycles of interrupts on this kind of processor are from.
_IRQ_CYCLES = (19, 18, "half of 37 cycles, i7-4790K, Brouer 2015")
_PREEMPT_CYCLES = (6, "estimate")
_UNMEASURED = (
    "memory_line_ps",
    "ipi_ps",
    "idle_exit_ps",
    "context_switch_ps",
    "wakeup_ps",
    "schedule_ps",
)


@dataclasses.dataclass(frozen=True)
class Figure:
    """One value of a machine file.

    Parameters
    ----------
    name : str
        The cost.
    value : int
        Its value.
    unit : str
        Its unit.
    source : str
        Where it is from.
    confidence : {"high", "medium", "low"}
        How sure it is.

    Examples
    --------
    >>> Figure("cycle_ps", 280, "ps", "measured", "medium").line()[:24]
    'cycle_ps = { value = 280'
    """

    name: str
    value: int
    unit: str
    source: str
    confidence: str

    @property
    def origin(self) -> str:
        """The source in a word."""
        for word in ("measured", "not measured", "sysfs", "unused"):
            if self.source.startswith(word):
                return word
        return "known"

    def line(self) -> str:
        """Return the line of a machine file.

        Returns
        -------
        str
        """
        source = self.source.replace("\\", "/").replace('"', "'")
        return (
            f'{self.name} = {{ value = {self.value}, unit = "{self.unit}", '
            f'confidence = "{self.confidence}", source = "{source}" }}'
        )


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
        >>> tomllib.loads(text)["cpus"]
        2
        """
        shape = self.shape
        about = f"this host when it was calibrated: {_shape_text(shape)}"
        lines = [
            f"# Measured by slabq calibrate on {_today()}; "
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
        """
        costs = [
            [f.name, str(f.value), f.unit, f.confidence, f.origin] for f in self.figures
        ]
        sizes = [
            [_bytes_text(size), f"{ns:.1f}"]
            for size, ns in sorted(self.latencies.items())
        ]
        title = f"costs of this host, {_today()}"
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
    ...                    engine="sim", groups=1, loops=5)
    >>> result.operations
    4000
    """
    place = _Host.read()
    if callable(progress):
        return _calibrate(place, progress)
    show = None if progress is None else bool(progress)
    with ProgressBar("calibrate", show=show) as bar:
        return _calibrate(place, bar)


# -- the host --------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Host:
    """What sysfs says of this host; numbers of CPUs are the kernel's."""

    shape: Machine
    cpus: Sequence[int]  # the kernel's number of each CPU of the shape
    allowed: Sequence[int]  # those this process may use, as numbers of the shape
    siblings: Sequence[tuple[int, ...]]  # by CPU of the shape
    package: Sequence[str]
    cache_bytes: Mapping[int, int]  # data caches by level, of the first CPU
    processor: str

    @classmethod
    def read(cls, sysfs: Path = SYSFS) -> "_Host":
        shape = host()
        cpus = topology.parse_cpu_list(_text(sysfs / "cpu/online") or "0")
        number = {cpu: index for index, cpu in enumerate(cpus)}
        allowed = sorted(number[c] for c in os.sched_getaffinity(0) if c in number)
        folders = [sysfs / f"cpu/cpu{cpu}" for cpu in cpus]
        siblings = []
        for index, folder in enumerate(folders):
            listed = _text(folder / "topology/thread_siblings_list")
            threads = topology.parse_cpu_list(listed) if listed else [cpus[index]]
            siblings.append(tuple(sorted(number[c] for c in threads if c in number)))
        return cls(
            shape=shape,
            cpus=cpus,
            allowed=allowed or [0],
            siblings=siblings,
            package=[_text(f / "topology/physical_package_id") for f in folders],
            cache_bytes=_cache_bytes(folders[0] / "cache"),
            processor=_processor_name(),
        )

    def pair(self, is_wanted: Callable[[int, int], bool]) -> tuple[int, int] | None:
        """Two CPUs of different cores for which `is_wanted` holds, if there are."""
        return next(
            (
                (one, other)
                for one in self.allowed
                for other in self.allowed
                if other > one
                and other not in self.siblings[one]
                and is_wanted(one, other)
            ),
            None,
        )

    def kernel_cpu(self, cpu: int) -> int:
        """Return the kernel's number of a CPU of the shape."""
        return self.cpus[cpu]

    @property
    def threads_per_core(self) -> int:
        """Threads of a core, where CPUs are numbered as the simulated machine's are."""
        threads = len(self.siblings[0])
        count = self.shape.cpus
        cores = count // threads if threads and count % threads == 0 else count
        regular = all(
            group == tuple(range(index % cores, count, cores))
            for index, group in enumerate(self.siblings)
        )
        return threads if regular else 1

    @property
    def domains_per_socket(self) -> int:
        """Last-level caches of a package."""
        llc_of_cpu = self.shape.llc_of_cpu or ()
        by_package: dict[str, set[int]] = {}
        for package, llc in zip(self.package, llc_of_cpu, strict=True):
            by_package.setdefault(package, set()).add(llc)
        return max(map(len, by_package.values()))


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _cache_bytes(folder: Path) -> dict[int, int]:
    """Size of the data or unified cache of each level."""
    units = {"K": KIB, "M": MIB, "G": 1 << 30}
    found = {}
    for index in sorted(folder.glob("index*")):
        level, size = _text(index / "level"), _text(index / "size")
        if not level.isdigit() or _text(index / "type") == "Instruction" or not size:
            continue
        number, unit = size.rstrip("KMG"), size[-1]
        if number.isdigit():
            found[int(level)] = int(number) * units.get(unit, 1)
    return found


def _processor_name() -> str:
    for line in _text(Path("/proc/cpuinfo")).splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _shape_text(shape: Machine) -> str:
    counts = ((shape.cpus, "CPU"), (shape.nodes, "node"))
    return ", ".join(f"{n} {word}" + ("" if n == 1 else "s") for n, word in counts)


def _plain(text: str) -> str:
    return "".join(c for c in text if c.isascii() and c.isprintable())


def _today() -> str:
    return datetime.date.today().isoformat()


def _bytes_text(size: int) -> str:
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


# -- measuring -------------------------------------------------------------------------


@dataclasses.dataclass
class _Measured:
    """Times in ns; of pairs by how far apart the two CPUs are."""

    latencies: dict[int, float]
    stream: float
    remote: float | None
    single: Mapping[str, float]
    pairs: dict[str, Mapping[str, float]]
    handover: float | None
    handover_many: tuple[int, float] | None


def _chase_sizes(place: _Host) -> list[int]:
    """Working sets from the first level's half to well beyond the last level."""
    largest = max(place.cache_bytes.values(), default=0)
    end = min(max(4 * largest, 64 * MIB), CHASE_BYTES_MAX)
    sizes = [CHASE_BYTES_MIN]
    while sizes[-1] < end:
        sizes.append(2 * sizes[-1])
    return sizes


def _distances(place: _Host) -> dict[str, tuple[int, int] | None]:
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


def _lockers(place: _Host) -> list[int]:
    """One CPU of each last-level cache."""
    llc_of_cpu = place.shape.llc_of_cpu or ()
    first: dict[int, int] = {}
    for cpu in place.allowed:
        first.setdefault(llc_of_cpu[cpu], cpu)
    return sorted(first.values())[:LOCKERS_MAX]


def _calibrate(place: _Host, progress: ProgressFunction) -> Calibration:
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
    figures = list(_figures(place, measured))
    return Calibration(place.shape, figures, measured.latencies, place.processor)


def _measure(
    place: _Host, sizes: Sequence[int], told: Callable[[Any], Any]
) -> _Measured:
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
    return _Measured(latencies, stream, remote, single, found, handover, many)


# -- from times to costs ---------------------------------------------------------------


def _level_size(place: _Host, sizes: Sequence[int], level: str) -> int:
    """Choose the working set that stands for a level, beyond the one below."""
    caches = place.cache_bytes
    l1, l2, llc = _levels(caches)
    if level == "l1":
        wanted = l1 // 2
    elif level == "l2":
        wanted = max(2 * l1, l2 // 4) if l2 else 2 * l1
    elif level == "llc":
        wanted = min(2 * max(l1, l2), llc // 2)
    else:
        wanted = sizes[-1]
    return max((size for size in sizes if size <= wanted), default=sizes[0])


def _levels(caches: Mapping[int, int]) -> tuple[int, int, int]:
    """Bytes of the first level, of a second level that is not the last, of the last."""
    l1 = caches.get(1, 32 * KIB)
    last = max(caches, default=1)
    llc = caches.get(last, 8 * MIB) if last > 1 else 8 * MIB
    l2 = caches.get(2, 0) if last > 2 else 0
    return l1, l2, llc


def _figures(place: _Host, found: _Measured) -> Iterator[Figure]:
    """Every cost of a simulated machine, in the order of the presets."""
    yield from _shape_figures(place, found)
    yield from _latency_figures(place, found)
    yield from _transfer_figures(place, found)
    yield from _instruction_figures(found)
    yield from _lock_figures(place, found)
    yield from _taken_figures(place)


def _by(what: str) -> str:
    return f"measured by slabq calibrate on {_today()}: {what}"


def _ps(name: str, ns: float, what: str, confidence: str = "high") -> Figure:
    value = max(round(1000 * ns), 0)
    return Figure(name, value, "ps", _by(what), confidence)


def _cycle_ps(found: _Measured) -> int:
    return max(round(1000 * found.single["multiply"] / MULTIPLY_CYCLES), 50)


def _shape_figures(place: _Host, found: _Measured) -> Iterator[Figure]:
    yield Figure(
        "cycle_ps",
        _cycle_ps(found),
        "ps",
        _by(f"a 32-bit multiplication is taken to be {MULTIPLY_CYCLES} cycles"),
        "medium",
    )
    counts = {
        "threads_per_core": (place.threads_per_core, "CPUs"),
        "domains_per_socket": (place.domains_per_socket, "caches"),
    }
    for name, (value, unit) in counts.items():
        yield Figure(name, value, unit, "sysfs", "high")
    known = dict(zip(("l1", "l2", "llc"), _levels(place.cache_bytes), strict=True))
    sure = "high" if place.cache_bytes else "low"
    source = "sysfs" if place.cache_bytes else "estimate: sysfs does not say"
    for name, size in known.items():
        text = f"{source}, {_bytes_text(size)}" if size else "no second level beside it"
        lines = size // LINE_BYTES
        yield Figure(f"{name}_lines", lines, "lines", text, sure)


def _latency_figures(place: _Host, found: _Measured) -> Iterator[Figure]:
    sizes = sorted(found.latencies)
    largest = max(place.cache_bytes.values(), default=0)
    for level in ("l1", "l2", "llc"):
        size = _level_size(place, sizes, level)
        text = f"chase over {_bytes_text(size)}"
        sure = "high" if level == "l1" else "medium"
        yield _ps(f"{level}_hit_ps", found.latencies[size], text, sure)
    dram = found.latencies[sizes[-1]]
    text = f"chase over {_bytes_text(sizes[-1])}"
    sure = "medium"
    if sizes[-1] < 2 * largest:
        text += f", though sysfs says a cache of {_bytes_text(largest)}"
        sure = "low"
    yield _ps("dram_local_ps", dram, text, sure)
    if found.remote is not None:
        yield _ps("dram_hop1_ps", found.remote, f"{text}, of another node", sure)
        yield _ps("dram_hop2_ps", found.remote, "taken as one hop", "low")
    else:
        for name in ("dram_hop1_ps", "dram_hop2_ps"):
            yield _unused(name, dram)
    yield Figure(
        "stream_percent",
        min(max(round(100 * found.stream / dram), 0), 100),
        "percent",
        _by(f"the same chase line by line, {found.stream:.1f} ns"),
        "medium",
    )


def _unused(name: str, ns: float) -> Figure:
    text = "unused: this host has no CPUs so far apart"
    return Figure(name, max(round(1000 * ns), 0), "ps", text, "high")


def _preset() -> Mapping[str, Mapping[str, Any]]:
    file = resources.files("slabq.data").joinpath("machines", f"{ALIKE}.toml")
    costs: Mapping[str, Mapping[str, Any]] = tomllib.loads(file.read_text())["costs"]
    return costs


def _as_preset(name: str, why: str) -> Figure:
    entry = _preset()[name]
    value = values_of_table({name: entry}, ALIKE)[name]
    text = f"{why}; as {ALIKE}: {entry['source']}"
    return Figure(name, value, str(entry["unit"]), text, "low")


def _transfer_figures(place: _Host, found: _Measured) -> Iterator[Figure]:
    text = "loads of lines that the other CPU had changed"
    last: float | None = None
    for distance in ("core", "socket", "hop1"):
        pair = found.pairs.get(distance)
        name = f"{distance}_transfer_ps"
        if pair is not None:
            last = pair["read_changed"]
            yield _ps(name, last, text)
        elif last is not None:
            yield _unused(name, last)
        else:
            yield _as_preset(name, "no two CPUs so near")
    far = found.pairs.get("hop1")
    if far is not None:
        yield _ps("hop2_transfer_ps", far["read_changed"], "taken as one hop", "low")
    elif last is not None:
        yield _unused("hop2_transfer_ps", last)
    else:
        yield _as_preset("hop2_transfer_ps", "no two CPUs")
    yield from _store_figures(found)


def _store_figures(found: _Measured) -> Iterator[Figure]:
    near = found.pairs.get("core")
    far = found.pairs.get("socket") or found.pairs.get("hop1") or near
    text = "locked compare and exchange of lines both had read, less one of own lines"
    for name, pair in (("upgrade_core_ps", near), ("upgrade_ps", far)):
        if pair is None:
            yield _as_preset(name, "no two CPUs so near")
        else:
            yield _ps(name, pair["cas_shared"] - pair["cas_own"], text, "medium")
    pair = near or far
    if pair is None or pair["read_changed"] <= 0:
        yield _as_preset("store_wait_percent", "no two CPUs")
        return
    share = 100 * (pair["store_changed"] - pair["store_own"]) / pair["read_changed"]
    yield Figure(
        "store_wait_percent",
        min(max(round(share), 0), 100),
        "percent",
        _by("stores one behind the other to changed lines, against loads"),
        "medium",
    )


def _instruction_figures(found: _Measured) -> Iterator[Figure]:
    single = found.single
    l1 = found.latencies[min(found.latencies)]
    less = "less a load of the L1"
    text = f"locked compare and exchange, {less}"
    yield _ps("atomic_ps", single["cas"] - l1, text)
    wide = single["cas_double"]
    if wide > 0:
        yield _ps("cas_double_ps", wide - l1, f"lock cmpxchg16b, {less}")
        yield _ps("local_cas_ps", single["local_cas"] - l1, f"cmpxchg16b, {less}")
    else:
        text = "no such instruction measured here; that of 8 bytes"
        yield _ps("cas_double_ps", single["cas"] - l1, text, "low")
        yield _ps("local_cas_ps", single["cas"] - l1, text, "low")
    text = f"exchange of a lock's word, {less}"
    yield _ps("lock_acquire_ps", single["exchange"] - l1, text)
    release = single["lock_pair"] - single["exchange"]
    text = f"a pair of exchange and store less the exchange, {less}"
    yield _ps("lock_release_ps", release - l1, text, "medium")


def _lock_figures(place: _Host, found: _Measured) -> Iterator[Figure]:
    pair = next(iter(found.pairs.values()), None)
    name = "lock_handover_ps"
    if pair is None or found.handover is None or found.handover < 0:
        why = "not measured: two CPUs did not want a lock at the same time"
        yield _as_preset(name, why)
    else:
        text = f"ticket lock, {found.handover:.0f} ns handed over less its line's"
        yield _ps(name, found.handover - pair["read_changed"], text, "medium")
    name = "lock_handover_per_waiter_ps"
    many = found.handover_many
    if many is None or many[1] < 0 or found.handover is None or found.handover < 0:
        yield _as_preset(name, "not measured: fewer than three last-level caches")
        return
    count, ns = many
    text = f"ticket lock, {count} caches want it, against two CPUs"
    yield _ps(name, (ns - found.handover) / (count - 2), text, "medium")


def _taken_figures(place: _Host) -> Iterator[Figure]:
    """Take what user space cannot measure from published figures."""
    cycles = _preset()["cycle_ps"]["value"]
    save, restore, source = _IRQ_CYCLES
    for name, count in (("irq_save_ps", save), ("irq_restore_ps", restore)):
        yield Figure(name, count * cycles, "ps", f"not measured; {source}", "low")
    count, source = _PREEMPT_CYCLES
    yield Figure("preempt_ps", count * cycles, "ps", f"not measured; {source}", "low")
    for name in ("bus_line_ps", "bus_snoop_ps"):
        yield Figure(name, 0, "ps", "no front-side bus", "high")
    if place.shape.nodes > 1:
        yield _as_preset("link_line_ps", "not measured")
    else:
        yield Figure("link_line_ps", 0, "ps", "unused: one node", "high")
    for name in _UNMEASURED:
        yield _as_preset(name, "not measured")


def check_complete(figures: Sequence[Figure]) -> None:
    """Refuse figures that leave out what a simulated machine must be given.

    Parameters
    ----------
    figures : sequence of Figure
        The costs.

    Raises
    ------
    ParameterError
        If one is missing; the message names it.

    Examples
    --------
    >>> check_complete([])
    Traceback (most recent call last):
    slabq.errors.ParameterError: cost cycle_ps is missing: accepted are all
    """
    given = {figure.name for figure in figures}
    for name, default, *_ in _core.SimMachine.parameters():
        if default < 0 and name not in given:
            raise ParameterError(f"cost {name} is missing: accepted are all")
