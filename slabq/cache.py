"""A cache is where objects of one size come from, the kernel's ``kmem_cache``."""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from slabq import _core
from slabq.checks import require_int
from slabq.debugging import Finding, read_findings
from slabq.errors import CorruptionError, ParameterError
from slabq.machine import Machine
from slabq.memory_policy import MemoryPolicyLike, core_memory_policy
from slabq.policy import Policy
from slabq.sheaf import COUNT_MAX as PREFILL_MAX
from slabq.sheaf import Sheaf
from slabq.sysfs import SysfsAttributes

__all__ = ["Cache", "Leaks", "Place"]

ANY_NODE = -1
COUNT_MAX = 1 << 24


class Place(NamedTuple):
    """Where an object lies: n-th slab of its cache, index in the slab, node."""

    slab: int
    object_index: int
    node: int


class Leaks(int):
    """Number of objects that were live when their cache was destroyed.

    A number like any other, and with it `places`, where up to ten of the objects lay,
    by slab and index. Made by `Cache.destroy`.
    """

    places: tuple[Place, ...]

    def __new__(cls, count: int, places: Iterable[Place] = ()) -> "Leaks":
        """Make the number and note the places."""
        self = super().__new__(cls, count)
        self.places = tuple(places)
        return self


def check_cpu(machine: Machine, cpu: int) -> int:
    """Return `cpu` if `machine` has it, or raise `ParameterError`."""
    return require_int("cpu", cpu, 0, machine.cpus - 1)


def check_node(machine: Machine, node: int | None) -> int:
    """Return `node` as the core takes it if `machine` has it; None is any node."""
    return ANY_NODE if node is None else require_int("node", node, 0, machine.nodes - 1)


def call_policy(
    machine: Machine, node: int | None, policy: MemoryPolicyLike | None
) -> tuple[int, ...]:
    """Return node and memory policy of a call as the core takes them, or raise."""
    if policy is None:
        return (check_node(machine, node),)
    if node is not None:
        raise ParameterError(
            f"node is {node!r} and policy is {policy!r}: accepted is one of them"
        )
    return (ANY_NODE, *core_memory_policy(machine, policy))


def check_address(value: object) -> int:
    """Return `value` if it can be an address, or raise `ParameterError`."""
    return require_int("address", value, 0, 2**64 - 1)


class Cache(SysfsAttributes):
    """A cache of objects of one size, the kernel's ``kmem_cache``.

    Made by `Allocator.create_cache`. What the kernel shows of a cache in its
    ``/sys/kernel/slab`` are properties here: ``slabs``, ``objects``, ``order`` and the
    others; those that the kernel lets be written may be set.

    Examples
    --------
    >>> import slabq
    >>> allocator = slabq.Allocator("slab", machine=slabq.Machine(cpus=2), kernel="6.1")
    >>> cache = allocator.create_cache("example", 64)
    >>> objects = cache.alloc_bulk(3, cpu=0)
    >>> cache.free_bulk(objects, cpu=1)
    >>> cache.destroy()
    0
    """

    def __init__(
        self,
        core: _core.Cache,
        machine: Machine,
        policy: Policy,
        name: str,
        size: int,
        allocator: _core.Allocator,
    ) -> None:
        self._core = core
        self._allocator = allocator
        self._machine = machine
        self._policy = policy
        self._name = name
        self._size = size

    def __repr__(self) -> str:
        return f"<slabq.Cache {self._name!r} of {self._size} bytes>"

    @property
    def name(self) -> str:
        """Name of the cache."""
        return self._name

    @property
    def size(self) -> int:
        """Size of an object in bytes, as asked for."""
        return self._size

    @property
    def sysfs_name(self) -> str:
        """Name of its directory in sysfs: of its own, or an id such as ``:0000064``."""
        return self._core.names()[0]

    @property
    def alias_names(self) -> tuple[str, ...]:
        """Names of caches that were merged into this one, the oldest first."""
        return tuple(self._core.names()[1])

    def alloc(
        self,
        *,
        cpu: int = 0,
        node: int | None = None,
        policy: MemoryPolicyLike | None = None,
        site: int | None = None,
    ) -> int:
        """Allocate one object.

        Parameters
        ----------
        cpu : int, default 0
            CPU that calls.
        node : int, optional
            Node asked for, as ``kmem_cache_alloc_node`` does.
        policy : MemoryPolicy or str, optional
            Memory policy of this call, if it names no node. Default: the allocator's.
        site : int, optional
            Number of the call site that reports of a cache with `store_user` name, of
            this CPU's calls from now on.

        Returns
        -------
        int
            Address of the object.

        Raises
        ------
        OutOfMemory
            If no node that may be used has a page.
        ParameterError
            If the machine has no such CPU or node, or the cache is destroyed.

        Examples
        --------
        >>> import slabq
        >>> allocator = slabq.Allocator("slub", machine=slabq.Machine(cpus=1))
        >>> cache = allocator.create_cache("example", 64)
        >>> cache.locate(cache.alloc())
        Place(slab=0, object_index=0, node=0)
        """
        cpu = check_cpu(self._machine, cpu)
        self._note_site(cpu, site)
        return self._core.alloc(cpu, *call_policy(self._machine, node, policy))

    def _note_site(self, cpu: int, site: int | None) -> None:
        if site is not None:
            number = require_int("site", site, 0, 2**64 - 1)
            self._allocator.set_call_site(cpu, number)

    def free(self, address: int, *, cpu: int = 0, site: int | None = None) -> None:
        """Give back one object.

        Parameters
        ----------
        address : int
            The object.
        cpu : int, default 0
            CPU that calls; need not be the one that allocated.
        site : int, optional
            Number of the call site, as of `alloc`.

        Raises
        ------
        CorruptionError
            If the object is free already, not of this cache or not the start of one. A
            cache that checks frees itself (`consistency_checks`) reports that instead,
            and frees nothing.
        ParameterError
            If the machine has no such CPU, or the cache is destroyed.

        Examples
        --------
        >>> import slabq
        >>> allocator = slabq.Allocator("slub", machine=slabq.Machine(cpus=2))
        >>> cache = allocator.create_cache("example", 64)
        >>> cache.free(cache.alloc(cpu=0), cpu=1)
        """
        self._note_site(check_cpu(self._machine, cpu), site)
        self._core.free(cpu, check_address(address))

    def alloc_bulk(
        self, count: int, *, cpu: int = 0, policy: MemoryPolicyLike | None = None
    ) -> list[int]:
        """Allocate `count` objects in one call, all or none.

        Parameters
        ----------
        count : int
            Number of objects.
        cpu : int, default 0
            CPU that calls.
        policy : MemoryPolicy or str, optional
            Memory policy of this call, which picks a node for each object. Default: the
            allocator's.

        Returns
        -------
        list of int
            Addresses, in the order they were handed out.

        Raises
        ------
        OutOfMemory
            If there are not that many.
        ParameterError
            If the count, the CPU or a node of the policy is not accepted, or the cache
            is destroyed.

        Examples
        --------
        >>> import slabq
        >>> allocator = slabq.Allocator("slub", machine=slabq.Machine(cpus=1))
        >>> len(allocator.create_cache("example", 64).alloc_bulk(10))
        10
        """
        count = require_int("count", count, 0, COUNT_MAX)
        chosen = () if policy is None else core_memory_policy(self._machine, policy)
        return self._core.alloc_bulk(check_cpu(self._machine, cpu), count, *chosen)

    def free_bulk(self, addresses: Iterable[int], *, cpu: int = 0) -> None:
        """Give back objects in one call.

        Parameters
        ----------
        addresses : iterable of int
            The objects, each once.
        cpu : int, default 0
            CPU that calls.

        Raises
        ------
        CorruptionError
            If one of them may not be given back; then none is.
        ParameterError
            If the machine has no such CPU.

        Examples
        --------
        >>> import slabq
        >>> allocator = slabq.Allocator("slub", machine=slabq.Machine(cpus=1))
        >>> cache = allocator.create_cache("example", 64)
        >>> cache.free_bulk(cache.alloc_bulk(10))
        """
        numbers = [check_address(address) for address in addresses]
        self._core.free_bulk(check_cpu(self._machine, cpu), numbers)

    def shrink(self, *, cpu: int = 0) -> int:
        """Give empty slabs back to the machine, the kernel's ``kmem_cache_shrink``.

        Parameters
        ----------
        cpu : int, default 0
            CPU that calls.

        Returns
        -------
        int
            What the kernel's function returns: 0 if no slab is left, by policy.

        Raises
        ------
        ParameterError
            If the cache is destroyed.

        Examples
        --------
        >>> import slabq
        >>> allocator = slabq.Allocator("slub", machine=slabq.Machine(cpus=1))
        >>> cache = allocator.create_cache("example", 64)
        >>> cache.free(cache.alloc())
        >>> cache.shrink()
        0
        """
        return self._core.shrink(check_cpu(self._machine, cpu))

    def prefill_sheaf(self, count: int, *, cpu: int = 0) -> Sheaf:
        """Get a sheaf with objects filled in advance (``kmem_cache_prefill_sheaf``).

        Parameters
        ----------
        count : int
            Objects that it must hold, 1 to 262144. More than the sheaves of the cache
            have room for, or of a cache without sheaves, make one for this caller.
        cpu : int, default 0
            CPU that asks.

        Returns
        -------
        Sheaf

        Raises
        ------
        OutOfMemory
            If the machine has not the memory.
        ParameterError
            If the policy has no sheaves for callers: ``slub`` and ``sheaves`` have.

        Examples
        --------
        >>> import slabq
        >>> allocator = slabq.Allocator("sheaves", machine=slabq.Machine(cpus=1))
        >>> cache = allocator.create_cache("maple_node", 256, sheaf_capacity=32)
        >>> cache.prefill_sheaf(10)
        Sheaf(32 of 32 objects)
        """
        wanted = require_int("count", count, 1, PREFILL_MAX)
        number = check_cpu(self._machine, cpu)
        core = self._core.prefill_sheaf(number, wanted)
        return Sheaf(core, self._machine.cpus, number)

    def reap(self, *, cpu: int = 0, with_node: bool = False) -> None:
        """Run one pass of SLAB's periodic reaper on one CPU.

        Parameters
        ----------
        cpu : int, default 0
            CPU of the pass.
        with_node : bool, default False
            The node's part too: shared array and free slabs.

        Raises
        ------
        ParameterError
            If the policy has no reaper.

        Examples
        --------
        >>> import slabq
        >>> allocator = slabq.Allocator("slab", machine=slabq.Machine(cpus=1))
        >>> allocator.create_cache("example", 64).reap(with_node=True)
        """
        self._core.reap(check_cpu(self._machine, cpu), bool(with_node))

    def tune(self, **values: int) -> None:
        """Change tunables of the live cache, as writing to sysfs or slabinfo does.

        Parameters
        ----------
        **values
            The policy's tunables by name, such as ``cpu_partial`` or ``limit``.

        Raises
        ------
        ParameterError
            If the policy has no such tunable or does not accept the value.

        Examples
        --------
        >>> import slabq
        >>> allocator = slabq.Allocator("slub", machine=slabq.Machine(cpus=1))
        >>> allocator.create_cache("example", 64).tune(min_partial=7)
        """
        for name, value in values.items():
            self._core.tune(name, require_int(name, value, -(2**63), 2**63 - 1))

    def check(self) -> None:
        """Walk every structure of the cache and check that all counts add up.

        Raises
        ------
        CorruptionError
            If something does not; the message says what and where.

        Examples
        --------
        >>> import slabq
        >>> allocator = slabq.Allocator("slub", machine=slabq.Machine(cpus=1))
        >>> allocator.create_cache("example", 64).check()
        """
        self._core.check()

    def validate(self) -> list[Finding]:
        """Look at every byte of the cache's slabs that must have a known value.

        What is wrong is reported and put right, as the kernel's ``validate`` does; then
        the structures are checked as `check` does.

        Returns
        -------
        list of Finding
            What was wrong and where; empty if nothing was.

        Raises
        ------
        CorruptionError
            If something was found and the allocator has `panic_on_report`.

        Notes
        -----
        Of a slab the faults up to the first object that has some are told, as in the
        kernel. Caches without debug flags have no such bytes. SLUB+Q's V4 also
        prints a line of sums a cache (objects available, checked, in queues, and a
        histogram of slabs by objects in use); its form is not known, so there is none.

        Examples
        --------
        >>> import slabq
        >>> allocator = slabq.Allocator("slub", machine=slabq.Machine(cpus=1))
        >>> cache = allocator.create_cache("example", 64, red_zone=True)
        >>> allocator.poke(cache.alloc(), 64, b"!")
        >>> cache.validate()[0].what
        'Right Redzone overwritten'
        """
        since = self._allocator.reports()[3]
        self._core.validate()
        findings = read_findings(self._allocator, self._name, since)
        try:
            self._core.check()
        except CorruptionError as error:
            findings.append(Finding(str(error), None, None, None))
        return findings

    def stats(self) -> dict[str, int]:
        """Counters of the cache, by the kernel's names.

        Returns
        -------
        dict of str to int
            Sums over the CPUs.

        Examples
        --------
        >>> import slabq
        >>> allocator = slabq.Allocator("slub", machine=slabq.Machine(cpus=1))
        >>> cache = allocator.create_cache("example", 64)
        >>> objects = cache.alloc(), cache.alloc()
        >>> cache.stats()["alloc_fastpath"]
        1
        """
        return {name: sum(values) for name, values in self._core.counters()}

    def stats_by_cpu(self) -> dict[str, list[int]]:
        """Counters of the cache by CPU.

        Returns
        -------
        dict of str to list of int, length cpus

        Examples
        --------
        >>> import slabq
        >>> allocator = slabq.Allocator("slub", machine=slabq.Machine(cpus=2))
        >>> cache = allocator.create_cache("example", 64)
        >>> address = cache.alloc(cpu=1)
        >>> cache.stats_by_cpu()["alloc_slowpath"]
        [0, 1]
        """
        return {name: list(values) for name, values in self._core.counters()}

    def snapshot(self) -> dict[str, Any]:
        """Every list, array and slab of the cache as it is now.

        Returns
        -------
        dict
            The structures by the policy's own words.

        Examples
        --------
        >>> import slabq
        >>> allocator = slabq.Allocator("slub", machine=slabq.Machine(cpus=1))
        >>> sorted(allocator.create_cache("example", 64).snapshot())[:2]
        ['counters', 'counters_cpu']
        """
        return _parse(self._core.snapshot())

    def usage(self) -> dict[str, Any]:
        """Slabs, bytes and objects that the cache holds.

        Returns
        -------
        dict

        Examples
        --------
        >>> import slabq
        >>> allocator = slabq.Allocator("slub", machine=slabq.Machine(cpus=1))
        >>> allocator.create_cache("example", 64).usage()["slabs"]
        0
        """
        return _parse(self._core.usage())

    def geometry(self) -> dict[str, Any]:
        """Order, objects a slab and limits of the cache.

        Returns
        -------
        dict

        Examples
        --------
        >>> import slabq
        >>> allocator = slabq.Allocator("slab", machine=slabq.Machine(cpus=16))
        >>> allocator.create_cache("example", 64).geometry()["num"]
        64
        """
        return _parse(self._core.describe())

    def locate(self, address: int) -> Place:
        """Where an object of the cache lies.

        Parameters
        ----------
        address : int
            The object.

        Returns
        -------
        Place
            Slab (n-th of the cache, from 0), index in the slab, node.

        Raises
        ------
        CorruptionError
            If it is not an object of the cache.

        Examples
        --------
        >>> import slabq
        >>> allocator = slabq.Allocator("slub", machine=slabq.Machine(cpus=1))
        >>> cache = allocator.create_cache("example", 64)
        >>> cache.locate(cache.alloc()).object_index
        0
        """
        return Place(*self._core.locate(check_address(address)))

    def destroy(self) -> Leaks:
        """Give all memory of the cache back; any later use is refused.

        Of a cache with several names only this name goes: its objects stay live, and
        can be freed through another name.

        Returns
        -------
        Leaks
            Number of objects that were still live, and where the first ones lay.

        Raises
        ------
        ParameterError
            If the cache is destroyed already.

        Examples
        --------
        >>> import slabq
        >>> allocator = slabq.Allocator("slub", machine=slabq.Machine(cpus=1))
        >>> cache = allocator.create_cache("example", 64)
        >>> address = cache.alloc()
        >>> leaks = cache.destroy()
        >>> leaks, leaks.places
        (1, (Place(slab=0, object_index=0, node=0),))
        """
        places = [Place(*place) for place in self._core.leaks()]
        return Leaks(self._core.destroy(), places)


def _parse(text: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(text)
    return value
