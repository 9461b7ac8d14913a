"""What sysfs says of this host that a calibration needs: cores, packages, caches."""

import dataclasses
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from slabq import topology
from slabq.machine import Machine, host

__all__ = ["CalibratedHost"]

KIB = 1 << 10
MIB = 1 << 20
SYSFS = Path("/sys/devices/system")


@dataclasses.dataclass(frozen=True)
class CalibratedHost:
    """What sysfs says of this host; numbers of CPUs are the kernel's."""

    shape: Machine
    cpus: Sequence[int]  # the kernel's number of each CPU of the shape
    allowed: Sequence[int]  # those this process may use, as numbers of the shape
    siblings: Sequence[tuple[int, ...]]  # by CPU of the shape
    package: Sequence[str]
    cache_bytes: Mapping[int, int]  # data caches by level, of the first CPU
    processor: str

    @classmethod
    def read(cls, sysfs: Path = SYSFS) -> "CalibratedHost":
        """Read sysfs, and which CPUs this process may use."""
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
