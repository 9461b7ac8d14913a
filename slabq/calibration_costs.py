"""From the times that a calibration measured to the costs of a simulated machine."""

import dataclasses
import datetime
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Any

from slabq import _core
from slabq.calibration_host import KIB, MIB, CalibratedHost
from slabq.costs import values_of_table
from slabq.errors import ParameterError

__all__ = ["Figure", "Measured", "bytes_text", "check_complete", "figures_of", "today"]

LINE_BYTES = 64
MULTIPLY_CYCLES = 3  # of a 32-bit multiplication, of most processors since 2006
ALIKE = "i7-4790"  # the preset that what is not measured is taken from
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


@dataclasses.dataclass
class Measured:
    """Times in ns; of pairs by how far apart the two CPUs are."""

    latencies: dict[int, float]
    stream: float
    remote: float | None
    single: Mapping[str, float]
    pairs: dict[str, Mapping[str, float]]
    handover: float | None
    handover_many: tuple[int, float] | None


def today() -> str:
    """Return the day, as sources name it."""
    return datetime.date.today().isoformat()


def bytes_text(size: int) -> str:
    """Write a number of bytes in KiB or MiB."""
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


def _level_size(place: CalibratedHost, sizes: Sequence[int], level: str) -> int:
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


def figures_of(place: CalibratedHost, found: Measured) -> Iterator[Figure]:
    """Every cost of a simulated machine, in the order of the presets."""
    yield from _shape_figures(place, found)
    yield from _latency_figures(place, found)
    yield from _transfer_figures(place, found)
    yield from _instruction_figures(found)
    yield from _lock_figures(place, found)
    yield from _taken_figures(place)


def _by(what: str) -> str:
    return f"measured by slabq calibrate on {today()}: {what}"


def _ps(name: str, ns: float, what: str, confidence: str = "high") -> Figure:
    value = max(round(1000 * ns), 0)
    return Figure(name, value, "ps", _by(what), confidence)


def _cycle_ps(found: Measured) -> int:
    return max(round(1000 * found.single["multiply"] / MULTIPLY_CYCLES), 50)


def _shape_figures(place: CalibratedHost, found: Measured) -> Iterator[Figure]:
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
        text = f"{source}, {bytes_text(size)}" if size else "no second level beside it"
        lines = size // LINE_BYTES
        yield Figure(f"{name}_lines", lines, "lines", text, sure)


def _latency_figures(place: CalibratedHost, found: Measured) -> Iterator[Figure]:
    sizes = sorted(found.latencies)
    largest = max(place.cache_bytes.values(), default=0)
    for level in ("l1", "l2", "llc"):
        size = _level_size(place, sizes, level)
        text = f"chase over {bytes_text(size)}"
        sure = "high" if level == "l1" else "medium"
        yield _ps(f"{level}_hit_ps", found.latencies[size], text, sure)
    dram = found.latencies[sizes[-1]]
    text = f"chase over {bytes_text(sizes[-1])}"
    sure = "medium"
    if sizes[-1] < 2 * largest:
        text += f", though sysfs says a cache of {bytes_text(largest)}"
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
    text = f"not measured, {why}; as {ALIKE}: {entry['source']}"
    return Figure(name, value, str(entry["unit"]), text, "low")


def _transfer_figures(place: CalibratedHost, found: Measured) -> Iterator[Figure]:
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


def _store_figures(found: Measured) -> Iterator[Figure]:
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


def _instruction_figures(found: Measured) -> Iterator[Figure]:
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


def _lock_figures(place: CalibratedHost, found: Measured) -> Iterator[Figure]:
    pair = next(iter(found.pairs.values()), None)
    name = "lock_handover_ps"
    if pair is None or found.handover is None or found.handover < 0:
        why = "two CPUs did not want a lock at the same time"
        yield _as_preset(name, why)
    else:
        text = f"ticket lock, {found.handover:.0f} ns handed over less its line's"
        yield _ps(name, found.handover - pair["read_changed"], text, "medium")
    name = "lock_handover_per_waiter_ps"
    many = found.handover_many
    if many is None or many[1] < 0 or found.handover is None or found.handover < 0:
        yield _as_preset(name, "fewer than three last-level caches")
        return
    count, ns = many
    text = f"ticket lock, {count} caches want it, against two CPUs"
    yield _ps(name, (ns - found.handover) / (count - 2), text, "medium")


def _taken_figures(place: CalibratedHost) -> Iterator[Figure]:
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
        yield _as_preset("link_line_ps", "no matter of one CPU")
    else:
        yield Figure("link_line_ps", 0, "ps", "unused: one node", "high")
    for name in _UNMEASURED:
        yield _as_preset(name, "no matter of user space")


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
