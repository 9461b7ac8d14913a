"""Signatures of the C core. Values are validated in Python before they come here."""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, Self, final

from typing_extensions import Buffer

# -- tables of the core --------------------------------------------------------------
def policies() -> list[str]: ...
def options() -> list[tuple[str, str, int, int, int, str]]:
    """(policy, name, default, minimum, maximum, help) of every option."""

def counters(policy: str) -> list[tuple[str, str]]:
    """(name, help) of every counter of a policy, in the kernel's order."""

def workloads() -> list[tuple[str, str, list[tuple[str, int, int, int, str]]]]:
    """(name, help, [(parameter, default, minimum, maximum, help)]) of the built-in."""

def describe_workload(
    address: int,
) -> tuple[str, str, list[tuple[str, int, int, int, str]]]:
    """Describe the compiled workload whose sq_workload lies at `address`."""

def build_info() -> dict[str, str]:
    """Compiler, assertion level and sanitizers of this build."""

# -- what this host takes, in ns; each call takes about a second -----------------------
def calibrate_chase(bytes: int, in_order: bool, cpu: int, home: int, /) -> float:
    """Time of a load that waits for the one before, in memory of the node of `home`."""

def calibrate_one(cpu: int, /) -> dict[str, float]:
    """Time of an instruction: ``multiply``, ``cas``, ``lock_pair`` and more."""

def calibrate_two(cpu: int, other: int, /) -> dict[str, float]:
    """Time of a line that `other` changed or read: ``read_changed`` and more."""

def calibrate_lock(cpus: list[int], /) -> float:
    """Time that handing a lock over adds to taking it; below 0: not measured."""

# -- single primitives of a simulated machine ------------------------------------------
def probe(
    machine: SimMachine, steps: list[tuple[str, int, int, int, int]], /
) -> list[int]:
    """Picoseconds of each step: (kind, CPU, node, line, count)."""

def probe_waiters(machine: SimMachine, cpus: int, /) -> list[tuple[int, int, int]]:
    """Picoseconds at which each CPU asked for a lock, got it and had let it go."""

def probe_turns(
    machine: SimMachine, turns: int, other: int, yields: bool, /
) -> list[int]:
    """Picoseconds from one task to the next, on CPU 0 and CPU `other`."""

# -- machine and allocator -----------------------------------------------------------
@final
class Machine:
    """A machine of the native engine: CPUs, nodes with memory, page allocator."""

    def __init__(
        self,
        node_of_cpu: Sequence[int],
        llc_of_cpu: Sequence[int],
        distance: Sequence[Sequence[int]],
        node_bytes: int,
        pcp_order_max: int,
        remote_delay_ns: int,
        seed: int,
    ) -> None: ...
    def describe(self) -> str:
        """JSON: topology, fallback order, memory by node, the effective cost table."""

@final
class SimMachine:
    """A machine of the sim engine: virtual CPUs, lines, locks, virtual time."""

    def __init__(
        self,
        node_of_cpu: Sequence[int],
        llc_of_cpu: Sequence[int],
        distance: Sequence[Sequence[int]],
        node_bytes: int,
        seed: int,
        parameters: Sequence[tuple[str, int]],
        pcp_order_max: int = 0,
    ) -> None: ...
    def describe(self) -> str:
        """JSON: topology, fallback order, memory by node, parameters, line costs."""

    def accesses(self) -> int:
        """How many accesses to lines have been simulated."""

    def now_ps(self) -> int:
        """Virtual time at which the last operation or run ended."""

    @staticmethod
    def parameters() -> list[tuple[str, int, int, int, str]]:
        """(name, default, minimum, maximum, help); default -1: it must be given."""

@final
class Allocator:
    """One policy on one machine. Any thread may call; each call names its CPU."""

    def __init__(
        self,
        machine: Machine | SimMachine,
        policy: str,
        options: Sequence[tuple[str, int]],
        debug: str | None = None,
        panic: bool = False,
    ) -> None: ...
    def create_cache(
        self,
        name: str,
        size: int,
        align: int,
        flags: int,
        sheaf_capacity: int,
        pattern: bytes | None = None,
        /,
    ) -> Cache: ...
    def kmalloc(
        self, cpu: int, size: int, node: int, mode: int = -1, nodes: int = 0, /
    ) -> int:
        """``mode`` and ``nodes``: memory policy of this call; -1: the allocator's."""

    def krealloc(self, cpu: int, address: int, size: int, node: int, /) -> int: ...
    def set_memory_policy(self, mode: int, nodes: int, /) -> None: ...
    def offline_cpu(self, cpu: int, /) -> None: ...
    def online_cpu(self, cpu: int, /) -> None: ...
    def online_cpus(self) -> list[int]: ...
    def advance(self, milliseconds: int, /) -> int: ...
    def clock_ms(self) -> int: ...
    def kfree(self, cpu: int, address: int) -> None: ...
    def ksize(self, address: int) -> int: ...
    def caches(self, with_state: bool = False, /) -> str:
        """JSON list, one object a cache: name, geometry, usage, counters (totals).

        ``with_state`` adds flags, geometry, state and counters by CPU.
        """

    def check(self) -> None: ...
    def live_count(self) -> int: ...
    def node_of(self, address: int) -> int: ...
    def read(self, address: int, count: int) -> bytes: ...
    def write(self, address: int, data: bytes) -> None: ...
    def peek(self, address: int, offset: int, count: int) -> bytes: ...
    def poke(self, address: int, offset: int, data: bytes) -> None: ...
    def reports(self) -> tuple[str, str, str, int]:
        """(JSON of the reports, their text, text of traces, how many there were)."""

    def clear_reports(self) -> None: ...
    def set_call_site(self, cpu: int, site: int) -> None: ...

@final
class Sheaf:
    def alloc(self, cpu: int, /) -> int | None: ...
    def refill(self, cpu: int, count: int, /) -> None: ...
    def give_back(self, cpu: int, /) -> None: ...
    def usage(self) -> tuple[int, int] | None:
        """(objects, objects that fit); None once it was given back."""

class Cache:
    def alloc(self, cpu: int, node: int, mode: int = -1, nodes: int = 0, /) -> int: ...
    def free(self, cpu: int, address: int) -> None: ...
    def alloc_bulk(
        self, cpu: int, count: int, mode: int = -1, nodes: int = 0
    ) -> list[int]: ...
    def free_bulk(self, cpu: int, addresses: Sequence[int]) -> None: ...
    def prefill_sheaf(self, cpu: int, count: int) -> Sheaf: ...
    def shrink(self, cpu: int) -> int: ...
    def flush(self, cpu: int) -> None:
        """Empty this CPU's own part of the cache."""

    def reap(self, cpu: int, with_node: bool) -> None: ...
    def tune(self, name: str, value: int) -> None: ...
    def check(self) -> None: ...
    def validate(self) -> None: ...
    def describe(self) -> str: ...
    def snapshot(self) -> str: ...
    def usage(self, with_state: bool = False, /) -> str: ...
    def counters(self) -> list[tuple[str, list[int]]]:
        """(name, [value of cpu 0, cpu 1, ...]) of each counter."""

    def locate(self, address: int) -> tuple[int, int, int]:
        """(slab serial, object index, node) of an object of this cache."""

    def names(self) -> tuple[str, list[str]]:
        """(name in sysfs, aliases)."""

    def leaks(self) -> list[tuple[int, int, int]]:
        """(slab, index, node) of the first objects that destroying would forget."""

    def destroy(self) -> int:
        """Number of objects that were still live."""

def geometry(
    machine: Machine | SimMachine,
    policy: str,
    options: Sequence[tuple[str, int]],
    size: int,
    align: int,
    flags: int,
    sheaf_capacity: int,
) -> str:
    """JSON object of the geometry such a cache would have."""

# -- whole runs; the GIL is released, signals are checked every 50 ms -----------------
def run(
    machine: Machine | SimMachine,
    policy: str,
    options: Sequence[tuple[str, int]],
    workload: str | tuple[str, bytes] | int,
    parameters: Sequence[tuple[str, int]],
    seed: int,
    progress: Callable[[float], Any] | None,
    with_caches: bool = False,
    with_timeline: bool = False,
    debug: str | None = None,
    panic: bool = False,
) -> str:
    """JSON of the measured part of one result row.

    `workload` is the name of a built-in one, or the address of a `struct sq_workload`.
    ``with_caches`` adds ``caches``, the state of every cache at the end;
    ``with_timeline`` adds ``timeline``, samples of what the run was like over time;
    ``debug`` gives caches debug flags and adds ``reports``, what these found.
    """

def replay(
    machine: Machine | SimMachine,
    policy: str,
    options: Sequence[tuple[str, int]],
    trace: Trace,
    seed: int,
    progress: Callable[[float], Any] | None,
    with_caches: bool = False,
    with_timeline: bool = False,
    debug: str | None = None,
    panic: bool = False,
) -> str: ...
def execute(
    machine: Machine | SimMachine,
    policy: str,
    options: Sequence[tuple[str, int]],
    script: str,
    original: bool = False,
) -> str:
    """Output of an operation script, one JSON object a line.

    ``original`` prints as the recordings of the 2.6 sources do (whole commands,
    fallback lists); otherwise as those made inside a kernel.
    """

@final
class Trace:
    def __new__(cls, name: str = "<memory>", /) -> Self: ...
    def feed(self, block: Buffer, /) -> None: ...
    def finish(self, allow_truncated: bool = False, /) -> None: ...
    @classmethod
    def from_file(
        cls,
        path: str | bytes | PathLike[str],
        allow_truncated: bool = False,
        progress: Callable[[float], object] | None = None,
        /,
    ) -> Self: ...
    @classmethod
    def decode(cls, buffer: Buffer, name: str = "<memory>", /) -> Self: ...
    def encode(self) -> bytes: ...
    def summary(self) -> str: ...
    def strings(self, table: str, /) -> list[str]: ...
    def add_alias(self, alias: str, cache: str, /) -> None: ...
    def stat(
        self,
        by_caller: bool,
        keys: str,
        limit: int,
        raw_ip: bool,
        node_of_cpu: Buffer,
        /,
    ) -> tuple[bytes, dict[str, int], bytes, bytes]: ...
    def program(self, cpu_count: int, /) -> tuple[str, list[bytes]]: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

def trace_layout(record: str, /) -> tuple[int, list[tuple[str, int, int]]]: ...
