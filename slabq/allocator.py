"""An allocator is one policy on one machine, to be used call by call.

Objects are plain integers, their addresses on the emulated machine. The core checks
every address that comes back: what it did not hand out, or has back already, is
refused with `CorruptionError` and changes nothing.
"""

import enum
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from slabq import _core
from slabq.checks import require_int
from slabq.machine import Machine, find_machine
from slabq.policy import Policy, find_policy
from slabq.slabinfo import format_slabinfo

__all__ = ["Allocator", "Cache", "Place", "execute", "geometry"]

ANY_NODE = -1
COUNT_MAX = 1 << 24
SIZE_MAX = 1 << 40
ALIGN_MAX = 1 << 22
SHEAF_CAPACITY_MAX = 1 << 16


class _Flag(enum.IntFlag):
    """Flags of a cache, as csrc/policy/policy.h numbers them."""

    HWCACHE_ALIGN = 1 << 0
    RECLAIM_ACCOUNT = 1 << 1
    TYPESAFE_BY_RCU = 1 << 2
    RED_ZONE = 1 << 5
    POISON = 1 << 6
    STORE_USER = 1 << 7
    CONSISTENCY_CHECKS = 1 << 8


class Place(NamedTuple):
    """Where an object lies: n-th slab of its cache, index in the slab, node."""

    slab: int
    object_index: int
    node: int


def _flag_bits(**switches: bool) -> int:
    return sum(int(_Flag[name.upper()]) for name, on in switches.items() if on)


class Allocator:
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
        machine: Machine | str | None = None,
        kernel: str | None = None,
        seed: int = 0,
        **options: object,
    ) -> None:
        self._policy = find_policy(policy, kernel=kernel, **options)
        self._machine = find_machine(machine)
        self._core = _core.Allocator(
            self._machine.core(require_int("seed", seed, 0, 2**64 - 1)),
            self._policy.name,
            list(self._policy.values().items()),
        )

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

    def _cpu(self, cpu: int) -> int:
        return require_int("cpu", cpu, 0, self._machine.cpus - 1)

    def _node(self, node: int | None) -> int:
        if node is None:
            return ANY_NODE
        return require_int("node", node, 0, self._machine.nodes - 1)

    def create_cache(
        self,
        name: str,
        size: int,
        *,
        align: int = 0,
        hwcache_align: bool = False,
        reclaim_account: bool = False,
        typesafe_by_rcu: bool = False,
        sheaf_capacity: int = 0,
    ) -> "Cache":
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
        sheaf_capacity : int, default 0
            Objects of a sheaf; policy `Sheaves` only.

        Returns
        -------
        Cache

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
        flags = _flag_bits(
            hwcache_align=hwcache_align,
            reclaim_account=reclaim_account,
            typesafe_by_rcu=typesafe_by_rcu,
        )
        core = self._core.create_cache(
            name,
            require_int("size", size, 1, SIZE_MAX),
            require_int("align", align, 0, ALIGN_MAX),
            flags,
            require_int("sheaf_capacity", sheaf_capacity, 0, SHEAF_CAPACITY_MAX),
        )
        return Cache(self, core, name, size)

    def kmalloc(self, size: int, *, cpu: int = 0, node: int | None = None) -> int:
        """Allocate `size` bytes from the policy's size classes.

        Parameters
        ----------
        size : int
            Bytes.
        cpu : int, default 0
            CPU that calls.
        node : int, optional
            Node asked for.

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
        size = require_int("size", size, 0, SIZE_MAX)
        return self._core.kmalloc(self._cpu(cpu), size, self._node(node))

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
        self._core.kfree(self._cpu(cpu), _address(address))

    def ksize(self, address: int) -> int:
        """Bytes that may be used at a live address.

        Parameters
        ----------
        address : int
            What `kmalloc` returned.

        Returns
        -------
        int
            At least the size asked for.

        Raises
        ------
        CorruptionError
            If the address is not live.

        Examples
        --------
        >>> allocator = Allocator("slub", machine=Machine(cpus=1))
        >>> allocator.ksize(allocator.kmalloc(33))
        64
        """
        return self._core.ksize(_address(address))

    def node_of(self, address: int) -> int:
        """Node whose memory an address is in.

        Parameters
        ----------
        address : int
            An address of this allocator.

        Returns
        -------
        int

        Raises
        ------
        CorruptionError
            If the address is not of this machine.

        Examples
        --------
        >>> allocator = Allocator("slub", machine=Machine(cpus=2, nodes=2))
        >>> allocator.node_of(allocator.kmalloc(64, cpu=1))
        1
        """
        return self._core.node_of(_address(address))

    def read(self, address: int, length: int) -> bytes:
        """Return the first bytes of a live object.

        Parameters
        ----------
        address : int
            The object.
        length : int
            Number of bytes, at most what the object has.

        Returns
        -------
        bytes

        Raises
        ------
        CorruptionError
            If the address is not live.
        ParameterError
            If the object is shorter.

        Examples
        --------
        >>> allocator = Allocator("slub", machine=Machine(cpus=1))
        >>> address = allocator.kmalloc(32)
        >>> allocator.write(address, b"hello")
        >>> allocator.read(address, 5)
        b'hello'
        """
        length = require_int("length", length, 0, SIZE_MAX)
        return self._core.read(_address(address), length)

    def write(self, address: int, data: bytes) -> None:
        """Write into the first bytes of a live object.

        Parameters
        ----------
        address : int
            The object.
        data : bytes
            What to write, at most as long as the object.

        Raises
        ------
        CorruptionError
            If the address is not live.
        ParameterError
            If the object is shorter.

        Examples
        --------
        >>> allocator = Allocator("slub", machine=Machine(cpus=1))
        >>> allocator.write(allocator.kmalloc(32), b"x" * 32)
        """
        self._core.write(_address(address), bytes(data))

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

    def slabinfo(self) -> str:
        """Return ``/proc/slabinfo`` of this allocator, version 2.1.

        Returns
        -------
        str
            Two header lines and a line for each cache, the newest first.

        Examples
        --------
        >>> allocator = Allocator("slab", machine=Machine(cpus=1), kernel="6.1")
        >>> print(allocator.slabinfo().splitlines()[0])
        slabinfo - version: 2.1
        """
        return format_slabinfo(self.caches())

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


def _address(value: object) -> int:
    return require_int("address", value, 0, 2**64 - 1)


class Cache:
    """A cache of objects of one size, the kernel's ``kmem_cache``.

    Made by `Allocator.create_cache`.

    Examples
    --------
    >>> allocator = Allocator("slab", machine=Machine(cpus=2), kernel="6.1")
    >>> cache = allocator.create_cache("example", 64)
    >>> objects = cache.alloc_bulk(3, cpu=0)
    >>> cache.free_bulk(objects, cpu=1)
    >>> cache.destroy()
    0
    """

    def __init__(
        self, allocator: Allocator, core: _core.Cache, name: str, size: int
    ) -> None:
        self._allocator = allocator
        self._core = core
        self._name = name
        self._size = size

    def __repr__(self) -> str:
        return f"Cache({self._name!r}, {self._size}, {self._allocator.policy.name})"

    @property
    def name(self) -> str:
        """Name of the cache."""
        return self._name

    @property
    def size(self) -> int:
        """Size of an object in bytes, as asked for."""
        return self._size

    @property
    def allocator(self) -> Allocator:
        """The allocator that has the cache."""
        return self._allocator

    def alloc(self, *, cpu: int = 0, node: int | None = None) -> int:
        """Allocate one object.

        Parameters
        ----------
        cpu : int, default 0
            CPU that calls.
        node : int, optional
            Node asked for.

        Returns
        -------
        int
            Address of the object.

        Raises
        ------
        OutOfMemory
            If no node that may be used has a page.
        CorruptionError
            If the cache is destroyed.
        ParameterError
            If the machine has no such CPU or node.

        Examples
        --------
        >>> allocator = Allocator("slub", machine=Machine(cpus=1))
        >>> cache = allocator.create_cache("example", 64)
        >>> cache.locate(cache.alloc())
        Place(slab=0, object_index=0, node=0)
        """
        return self._core.alloc(self._allocator._cpu(cpu), self._allocator._node(node))

    def free(self, address: int, *, cpu: int = 0) -> None:
        """Give back one object.

        Parameters
        ----------
        address : int
            The object.
        cpu : int, default 0
            CPU that calls; need not be the one that allocated.

        Raises
        ------
        CorruptionError
            If the object is free already, not of this cache or not the start of an
            object, or the cache is destroyed.
        ParameterError
            If the machine has no such CPU.

        Examples
        --------
        >>> allocator = Allocator("slub", machine=Machine(cpus=2))
        >>> cache = allocator.create_cache("example", 64)
        >>> cache.free(cache.alloc(cpu=0), cpu=1)
        """
        self._core.free(self._allocator._cpu(cpu), _address(address))

    def alloc_bulk(self, count: int, *, cpu: int = 0) -> list[int]:
        """Allocate `count` objects in one call, all or none.

        Parameters
        ----------
        count : int
            Number of objects.
        cpu : int, default 0
            CPU that calls.

        Returns
        -------
        list of int
            Addresses, in the order they were handed out.

        Raises
        ------
        OutOfMemory
            If there are not that many.
        CorruptionError
            If the cache is destroyed.
        ParameterError
            If the count or the CPU is not accepted.

        Examples
        --------
        >>> allocator = Allocator("slub", machine=Machine(cpus=1))
        >>> len(allocator.create_cache("example", 64).alloc_bulk(10))
        10
        """
        count = require_int("count", count, 0, COUNT_MAX)
        return self._core.alloc_bulk(self._allocator._cpu(cpu), count)

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
        >>> allocator = Allocator("slub", machine=Machine(cpus=1))
        >>> cache = allocator.create_cache("example", 64)
        >>> cache.free_bulk(cache.alloc_bulk(10))
        """
        numbers = [_address(address) for address in addresses]
        self._core.free_bulk(self._allocator._cpu(cpu), numbers)

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
        CorruptionError
            If the cache is destroyed.

        Examples
        --------
        >>> allocator = Allocator("slub", machine=Machine(cpus=1))
        >>> cache = allocator.create_cache("example", 64)
        >>> cache.free(cache.alloc())
        >>> cache.shrink()
        0
        """
        return self._core.shrink(self._allocator._cpu(cpu))

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
        >>> allocator = Allocator("slab", machine=Machine(cpus=1), kernel="6.1")
        >>> allocator.create_cache("example", 64).reap(with_node=True)
        """
        self._core.reap(self._allocator._cpu(cpu), bool(with_node))

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
        >>> allocator = Allocator("slub", machine=Machine(cpus=1))
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
        >>> allocator = Allocator("slub", machine=Machine(cpus=1))
        >>> allocator.create_cache("example", 64).check()
        """
        self._core.check()

    def stats(self) -> dict[str, int]:
        """Counters of the cache, by the kernel's names.

        Returns
        -------
        dict of str to int
            Sums over the CPUs.

        Examples
        --------
        >>> allocator = Allocator("slub", machine=Machine(cpus=1))
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
        >>> allocator = Allocator("slub", machine=Machine(cpus=2))
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
        >>> allocator = Allocator("slub", machine=Machine(cpus=1))
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
        >>> allocator = Allocator("slub", machine=Machine(cpus=1))
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
        >>> allocator = Allocator("slab", machine=Machine(cpus=16), kernel="6.1")
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
        >>> allocator = Allocator("slub", machine=Machine(cpus=1))
        >>> cache = allocator.create_cache("example", 64)
        >>> cache.locate(cache.alloc()).object_index
        0
        """
        return Place(*self._core.locate(_address(address)))

    def destroy(self) -> int:
        """Give all memory of the cache back; any later use is refused.

        Returns
        -------
        int
            Number of objects that were still live.

        Raises
        ------
        CorruptionError
            If the cache is destroyed already.

        Examples
        --------
        >>> allocator = Allocator("slub", machine=Machine(cpus=1))
        >>> cache = allocator.create_cache("example", 64)
        >>> address = cache.alloc()
        >>> cache.destroy()
        1
        """
        return self._core.destroy()


def _parse(text: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(text)
    return value


def geometry(
    policy: Policy | str,
    size: int,
    *,
    machine: Machine | str | None = None,
    kernel: str | None = None,
    align: int = 0,
    hwcache_align: bool = False,
    reclaim_account: bool = False,
    sheaf_capacity: int = 0,
) -> Mapping[str, Any]:
    """Order, objects a slab and limits that a cache would have; makes none.

    Parameters
    ----------
    policy : Policy or str
        The policy, or its name.
    size : int
        Size of an object in bytes.
    machine : Machine, str or path-like, optional
        The machine; limits depend on its CPUs and nodes. Default: the host.
    kernel : str, optional
        Kernel profile of a policy given by name.
    align : int, default 0
        Alignment in bytes, a power of two; 0 is the policy's minimum.
    hwcache_align, reclaim_account : bool, default False
        The kernel's flags ``SLAB_HWCACHE_ALIGN`` and ``SLAB_RECLAIM_ACCOUNT``.
    sheaf_capacity : int, default 0
        Objects of a sheaf; policy `Sheaves` only.

    Returns
    -------
    mapping
        ``size``, ``align``, ``order``, ``num`` and the policy's limits.

    Raises
    ------
    ParameterError
        If the policy does not accept such a cache.

    Examples
    --------
    >>> found = geometry("slub", 256, machine=Machine(cpus=16), kernel="6.1")
    >>> found["order"], found["num"], found["cpu_partial"]
    (1, 32, 52)
    """
    value = find_policy(policy, kernel=kernel)
    text = _core.geometry(
        find_machine(machine).core(),
        value.name,
        list(value.values().items()),
        require_int("size", size, 1, SIZE_MAX),
        require_int("align", align, 0, ALIGN_MAX),
        _flag_bits(hwcache_align=hwcache_align, reclaim_account=reclaim_account),
        require_int("sheaf_capacity", sheaf_capacity, 0, SHEAF_CAPACITY_MAX),
    )
    return _parse(text)


def execute(
    script: str,
    policy: Policy | str,
    *,
    machine: Machine | str | None = None,
    kernel: str | None = None,
) -> str:
    """Run an operation script on one host thread.

    Parameters
    ----------
    script : str
        The script, an operation a line.
    policy : Policy or str
        The policy, or its name.
    machine : Machine, str or path-like, optional
        The machine. Default: the host.
    kernel : str, optional
        Kernel profile of a policy given by name.

    Returns
    -------
    str
        One JSON object a line: what each operation did, object by object.

    Raises
    ------
    ParameterError
        If a line of the script is not accepted; the message has its number.

    Notes
    -----
    The lines are those of recordings made inside a kernel; for the profiles of the 2.6
    series those of the 2.6 sources run by themselves, with whole commands and fallback
    lists.

    Examples
    --------
    >>> text = execute("cache x 64 0 -", "slub", machine=Machine(cpus=1))
    >>> [line[:6] for line in text.splitlines()]
    ['{"vars', '{"cmd"']
    """
    value = find_policy(policy, kernel=kernel)
    options: Sequence[tuple[str, int]] = list(value.values().items())
    original = (value.kernel or "").startswith("2.6.")
    core = find_machine(machine).core()
    return _core.execute(core, value.name, options, script, original)
