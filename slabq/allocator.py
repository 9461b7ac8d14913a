"""An allocator is one policy on one machine, to be used call by call.

Objects are plain integers, their addresses on the emulated machine. The core checks
every address that comes back: what it did not hand out, or has back already, is refused
with `CorruptionError` and changes nothing.
"""

import json
from typing import Any

from slabq import _core
from slabq.allocator_control import AllocatorControl
from slabq.allocator_memory import AllocatorMemory
from slabq.cache import Cache, call_policy, check_address, check_cpu, check_node
from slabq.cache_flags import check_sheaf_capacity, flag_bits
from slabq.cache_geometry import ALIGN_MAX, SIZE_MAX
from slabq.cache_record import CacheRecord, summarize_cache
from slabq.checks import check_debug, require_int, shown
from slabq.debugging import Report, read_reports
from slabq.errors import ParameterError
from slabq.machine import Machine, MachineLike, find_machine
from slabq.memory_policy import MemoryPolicy, MemoryPolicyLike
from slabq.policy import Policy, find_policy
from slabq.slabinfo import format_slabinfo
from slabq.slabinfo_tool import run_slabinfo

__all__ = ["Allocator"]

NAME_BYTES_MAX = 63
KMALLOC_MAX = 1 << 40


class Allocator(AllocatorControl, AllocatorMemory):
    """One policy on one machine of the native engine, for use call by call.

    Parameters
    ----------
    policy : Policy or str
        The policy, or its name.
    machine : Machine, str or path-like, optional
        The machine. Default: the host.
    kernel : str, optional
        Kernel profile of a policy given by name. Default: the newest that has it.
    seed : int, default 0
        Seed of the machine's random numbers.
    debug : str, optional
        Debug flags of its caches, as the kernel's boot parameter ``slub_debug=``
        takes them: letters of ``FZPUT`` (checks, red zones, poison, tracks, trace),
        then after a comma the names of the caches that are meant; a final ``*`` stands
        for any rest. `Slab` has ``ZPU``.
    panic_on_report : bool, default False
        A report of a debug cache ends the call that made it with `CorruptionError`.
    memory_policy : MemoryPolicy or str, default "local"
        Node of calls that name none, such as ``"interleave:0-3"``.
    **options
        Options of the policy.

    Raises
    ------
    ParameterError
        If the policy, the machine or an option is not accepted.
    OutOfMemory
        If the machine is too small for the policy's own caches.

    Notes
    -----
    Calls name the CPU they are made on and run to their end on it, so a sequence of
    calls has one outcome. Any Python thread may call.

    Caches of like sizes are merged where the kernel profile does so: SLUB always, SLAB
    since 3.18. ``slab_nomerge=True`` keeps every cache apart.

    Examples
    --------
    >>> allocator = Allocator("slab", machine=Machine(cpus=2), kernel="6.1")
    >>> address = allocator.kmalloc(100)
    >>> allocator.ksize(address)
    128
    >>> allocator.kfree(address)
    """

    def __init__(
        self,
        policy: Policy | str,
        *,
        machine: MachineLike = None,
        kernel: str | None = None,
        seed: int = 0,
        debug: str | None = None,
        panic_on_report: bool = False,
        memory_policy: MemoryPolicyLike = "local",
        **options: object,
    ) -> None:
        self._policy = find_policy(policy, kernel=kernel, **options)
        self._machine = find_machine(machine)
        self._core = _core.Allocator(
            self._machine.core(
                require_int("seed", seed, 0, 2**64 - 1), kernel=self._policy.kernel
            ),
            self._policy.name,
            list(self._policy.values().items()),
            check_debug(debug),
            bool(panic_on_report),
        )
        self._memory_policy = MemoryPolicy.local()
        self.memory_policy = memory_policy

    def __repr__(self) -> str:
        return f"Allocator({self._policy!r}, machine={self._machine.name!r})"

    @property
    def policy(self) -> Policy:
        """The policy, with its kernel profile."""
        return self._policy

    @property
    def machine(self) -> Machine:
        """The machine."""
        return self._machine

    def create_cache(
        self,
        name: str,
        size: int,
        *,
        align: int = 0,
        hwcache_align: bool = False,
        reclaim_account: bool = False,
        typesafe_by_rcu: bool = False,
        no_merge: bool = False,
        red_zone: bool = False,
        poison: bool = False,
        store_user: bool = False,
        consistency_checks: bool = False,
        trace: bool = False,
        sheaf_capacity: int = 0,
        constructor: bytes | None = None,
    ) -> Cache:
        """Make a cache of objects of one size, the kernel's ``kmem_cache_create``.

        Parameters
        ----------
        name : str
            Name in listings; at most 63 bytes.
        size : int
            Size of an object in bytes.
        align : int, default 0
            Alignment in bytes, a power of two; 0 is the policy's minimum.
        hwcache_align, reclaim_account, typesafe_by_rcu : bool, default False
            The kernel's flags ``SLAB_HWCACHE_ALIGN``, ``SLAB_RECLAIM_ACCOUNT`` and
            ``SLAB_TYPESAFE_BY_RCU``.
        no_merge : bool, default False
            The kernel's flag ``SLAB_NO_MERGE``: keep the cache apart.
        red_zone, poison, store_user, consistency_checks, trace : bool, default False
            The kernel's debugging flags of the same names; `Slab` has the first three.
            What they find is in `reports`, what `trace` tells in `trace_lines`. A cache
            whose objects leave no room for them does without, which its properties of
            these names say.
        sheaf_capacity : int, default 0
            Objects of a sheaf; policy `Sheaves` only.
        constructor : bytes, optional
            What each object holds when its slab is made, repeated to the object's end;
            at most as long as an object. An object that is freed keeps what it holds.
            The kernel's constructors are functions; a Python function could not be
            called where slabs are made, so here they are what such a function writes.

        Returns
        -------
        Cache
            The cache, or another name of one it is merged with; see `Cache.aliases`.

        Raises
        ------
        ParameterError
            If the policy does not accept such a cache.
        OutOfMemory
            If the machine has no page left for it.

        Examples
        --------
        >>> allocator = Allocator("slab", machine=Machine(cpus=2), kernel="6.1")
        >>> allocator.create_cache("skbuff_head_cache", 232, hwcache_align=True).name
        'skbuff_head_cache'
        """
        flags = flag_bits(
            self._policy,
            hwcache_align=hwcache_align,
            reclaim_account=reclaim_account,
            typesafe_by_rcu=typesafe_by_rcu,
            no_merge=no_merge,
            red_zone=red_zone,
            poison=poison,
            store_user=store_user,
            consistency_checks=consistency_checks,
            trace=trace,
        )
        size = require_int("size", size, 1, SIZE_MAX)
        core = self._core.create_cache(
            _check_name(name),
            size,
            require_int("align", align, 0, ALIGN_MAX),
            flags,
            check_sheaf_capacity(self._policy, sheaf_capacity),
            _check_constructor(constructor),
        )
        return Cache(core, self._machine, self._policy, name, size, self._core)

    def kmalloc(
        self,
        size: int,
        *,
        cpu: int = 0,
        node: int | None = None,
        policy: MemoryPolicyLike | None = None,
    ) -> int:
        """Allocate `size` bytes from the policy's size classes.

        Parameters
        ----------
        size : int
            Bytes.
        cpu : int, default 0
            CPU that calls.
        node : int, optional
            Node asked for, as ``kmalloc_node`` does.
        policy : MemoryPolicy or str, optional
            Memory policy of this call, if it names no node. Default: the allocator's.

        Returns
        -------
        int
            Address.

        Raises
        ------
        ParameterError
            If the machine has no such CPU or node, or the size is not accepted.
        OutOfMemory
            If no node that may be used has the pages.

        Examples
        --------
        >>> allocator = Allocator("slub", machine=Machine(cpus=4, nodes=2))
        >>> allocator.node_of(allocator.kmalloc(100, cpu=0, node=1))
        1
        """
        size = require_int("size", size, 0, KMALLOC_MAX)
        cpu = check_cpu(self._machine, cpu)
        request = call_policy(self._machine, node, policy)
        return self._core.kmalloc(cpu, size, *request)

    def krealloc(
        self, address: int, size: int, *, cpu: int = 0, node: int | None = None
    ) -> int:
        """Make what `kmalloc` returned larger, where it is or elsewhere.

        Parameters
        ----------
        address : int
            The address; 0 allocates.
        size : int
            Bytes; 0 frees.
        cpu : int, default 0
            CPU that calls.
        node : int, optional
            Node asked for, if the memory must move.

        Returns
        -------
        int
            Address; the same if `ksize` of it has room. What was there is copied.

        Raises
        ------
        CorruptionError
            If the address is not live.
        OutOfMemory
            If no node that may be used has the pages; the old memory stays as it is.

        Examples
        --------
        >>> allocator = Allocator("slub", machine=Machine(cpus=1))
        >>> address = allocator.kmalloc(40)
        >>> allocator.krealloc(address, 64) == address
        True
        >>> allocator.ksize(allocator.krealloc(address, 65))
        96
        """
        return self._core.krealloc(
            check_cpu(self._machine, cpu),
            check_address(address),
            require_int("size", size, 0, KMALLOC_MAX),
            check_node(self._machine, node),
        )

    def kfree(self, address: int, *, cpu: int = 0) -> None:
        """Give back what `kmalloc` returned.

        Parameters
        ----------
        address : int
            The address; 0 does nothing, as in the kernel.
        cpu : int, default 0
            CPU that calls.

        Raises
        ------
        CorruptionError
            If the address is not live: free already, or never handed out.
        ParameterError
            If the machine has no such CPU.

        Examples
        --------
        >>> allocator = Allocator("slub", machine=Machine(cpus=1))
        >>> allocator.kfree(allocator.kmalloc(32))
        """
        self._core.kfree(check_cpu(self._machine, cpu), check_address(address))

    @property
    def reports(self) -> list[Report]:
        """Reports of the debug caches, the oldest first; at most 4096 are kept."""
        return read_reports(self._core)

    @property
    def trace_lines(self) -> list[str]:
        """What caches with the flag `trace` told, a line for each call."""
        return self._core.reports()[2].splitlines()

    def clear_reports(self) -> None:
        """Forget the reports and trace lines so far.

        Examples
        --------
        >>> allocator = Allocator("slub", machine=Machine(cpus=1))
        >>> allocator.clear_reports()
        >>> allocator.reports
        []
        """
        self._core.clear_reports()

    def live_count(self) -> int:
        """Count the objects handed out and not given back.

        Returns
        -------
        int

        Examples
        --------
        >>> allocator = Allocator("slub", machine=Machine(cpus=1))
        >>> address = allocator.kmalloc(8)
        >>> allocator.live_count()
        1
        """
        return self._core.live_count()

    def caches(self) -> list[dict[str, Any]]:
        """Every cache with its geometry, usage and counters.

        Returns
        -------
        list of dict
            The oldest cache first; the policy's own caches are among them.

        Examples
        --------
        >>> allocator = Allocator("slab", machine=Machine(cpus=1), kernel="6.1")
        >>> "kmalloc-128" in [cache["name"] for cache in allocator.caches()]
        True
        """
        found: list[dict[str, Any]] = json.loads(self._core.caches())
        return found

    def records(self) -> list[CacheRecord]:
        """Every cache as the functions of `slabq.slabinfo_tool` take it.

        Returns
        -------
        list of CacheRecord
            The oldest cache first; the policy's own caches are among them.

        Examples
        --------
        >>> allocator = Allocator("slab", machine=Machine(cpus=1), kernel="6.1")
        >>> sum(record.slabs for record in allocator.records())
        0
        """
        return [CacheRecord.of(summary) for summary in self._summaries()]

    def _summaries(self) -> list[dict[str, Any]]:
        return [summarize_cache(one) for one in json.loads(self._core.caches(True))]

    def report(self, options: str = "") -> str:
        """Return what the kernel's slabinfo tool would print.

        Parameters
        ----------
        options : str, default ""
            Options of the tool, such as ``-AD`` or ``-r kmalloc-64``; see
            `slabq.slabinfo_tool.run_slabinfo`.

        Returns
        -------
        str

        Raises
        ------
        ParameterError
            If an option is not accepted.

        Examples
        --------
        >>> allocator = Allocator("slub", machine=Machine(cpus=1), kernel="6.1")
        >>> address = allocator.kmalloc(64)
        >>> allocator.report("-D -N 1 -A").splitlines()[1].split()[:4]
        ['kmalloc-64', '64', '1', '0']
        """
        return run_slabinfo(self.records(), options, kernel=self._policy.kernel)

    def slabinfo(self, *, statistics: bool = False) -> str:
        """Return ``/proc/slabinfo`` of this allocator, version 2.1.

        Parameters
        ----------
        statistics : bool, default False
            With the columns of SLAB's statistics; policy `Slab` only.

        Returns
        -------
        str
            Two header lines and a line for each cache, the newest first.

        Raises
        ------
        ParameterError
            If statistics are asked for that the policy has not.

        Examples
        --------
        >>> allocator = Allocator("slab", machine=Machine(cpus=1), kernel="6.1")
        >>> print(allocator.slabinfo().splitlines()[0])
        slabinfo - version: 2.1
        """
        caches = self._summaries() if statistics else self.caches()
        return format_slabinfo(caches, statistics=bool(statistics))

    def check(self) -> None:
        """Walk every structure of every cache and check that all counts add up.

        Raises
        ------
        CorruptionError
            If something does not; the message says what and where.

        Examples
        --------
        >>> Allocator("slub", machine=Machine(cpus=1)).check()
        """
        self._core.check()


def _check_constructor(value: object) -> bytes | None:
    """Return what a constructor writes, or raise if it is no bytes."""
    if value is None or isinstance(value, bytes):
        return value
    raise ParameterError(
        f"constructor is {value!r}: accepted are bytes that it writes into each object"
    )


def _check_name(name: object) -> str:
    """Return the name of a cache if the kernel's listings could hold it."""
    given = f"name of a cache is {shown(name)}"
    if not isinstance(name, str) or not name.isprintable() or " " in name:
        raise ParameterError(f"{given}: accepted are printable letters, no blanks")
    if not 0 < len(name.encode()) <= NAME_BYTES_MAX:
        raise ParameterError(f"{given}: accepted are 1 to {NAME_BYTES_MAX} bytes")
    return name
