"""A record is what reports need of one cache: plain numbers, at one moment."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["CacheRecord", "summarize_cache"]

PAGE_SIZE = 4096

# Bits of a cache's flags, as csrc/policy/policy.h numbers them, by sysfs name.
_FLAG_BITS = {
    "hwcache_align": 0,
    "reclaim_account": 1,
    "destroy_by_rcu": 2,
    "red_zone": 5,
    "poison": 6,
    "store_user": 7,
    "sanity_checks": 8,
}
NODE_COUNTS = (
    "objects",
    "objects_partial",
    "total_objects",
    "slabs",
    "partial",
    "cpu_slabs",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CacheRecord:
    """One cache as the kernel's reports see it.

    Fields have the names of the files in ``/sys/kernel/slab``; sizes are in bytes.

    Parameters
    ----------
    name : str
        Name of the cache.
    object_size, slab_size : int
        An object as asked for, and the slot it lies in.
    objs_per_slab, order, align : int
        Geometry.
    objects, objects_partial, total_objects : int, default 0
        Objects not free in a listed slab; those of partial slabs; slots.
    slabs, partial, cpu_slabs : int, default 0
        All slabs, those on partial lists, those that CPUs hold.
    aliases : int, default 0
        Names merged into this cache.
    cache_dma, hwcache_align, reclaim_account, destroy_by_rcu : bool, default False
        Flags of the cache.
    red_zone, poison, store_user, sanity_checks, trace : bool, default False
        Debugging of the cache.
    nodes : mapping of str to sequence of int, optional
        Any of the counts by node.
    counters : mapping of str to int, optional
        Sums over the CPUs by the kernel's names.

    Examples
    --------
    >>> record = CacheRecord(name="example", object_size=60, slab_size=64, slabs=2,
    ...                      objs_per_slab=64, order=0, align=8, objects=100)
    >>> record.slab_bytes, record.used_bytes, record.lost_bytes
    (8192, 6000, 2192)
    """

    name: str
    object_size: int
    slab_size: int
    objs_per_slab: int
    order: int
    align: int
    objects: int = 0
    objects_partial: int = 0
    total_objects: int = 0
    slabs: int = 0
    partial: int = 0
    cpu_slabs: int = 0
    aliases: int = 0
    cache_dma: bool = False
    hwcache_align: bool = False
    reclaim_account: bool = False
    destroy_by_rcu: bool = False
    red_zone: bool = False
    poison: bool = False
    store_user: bool = False
    sanity_checks: bool = False
    trace: bool = False
    nodes: Mapping[str, Sequence[int]] = dataclasses.field(default_factory=dict)
    counters: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, summary: Mapping[str, Any]) -> "CacheRecord":
        """Return the record of a cache that `summarize_cache` summarized."""
        nodes: Mapping[str, Sequence[int]] = summary["nodes"]
        figures: dict[str, Any] = {name: sum(nodes[name]) for name in NODE_COUNTS}
        for name, bit in _FLAG_BITS.items():
            figures[name] = bool(summary["flags"] >> bit & 1)
        return cls(
            name=summary["name"],
            object_size=summary["object_size"],
            slab_size=summary["size"],
            objs_per_slab=summary["objects_per_slab"],
            order=summary["order"],
            align=summary["geometry"].get("align", summary["align"]),
            aliases=summary["references"] - 1,
            nodes=nodes,
            counters=summary["counters"],
            **figures,
        )

    @property
    def one_slab_bytes(self) -> int:
        """Bytes of one slab of the preferred order."""
        return PAGE_SIZE << self.order

    @property
    def slab_bytes(self) -> int:
        """Bytes of all slabs, taken to be of the preferred order."""
        return self.slabs * self.one_slab_bytes

    @property
    def used_bytes(self) -> int:
        """Bytes of objects."""
        return self.objects * self.object_size

    @property
    def lost_bytes(self) -> int:
        """Bytes of slabs that are not objects."""
        return self.slab_bytes - self.used_bytes

    @property
    def alloc_counts(self) -> tuple[int, int]:
        """Allocations by the fast and by the slow path.

        Of SLAB, by the CPU's array and past it: refills and those from a node's slabs.
        """
        return self._paths("alloc_fastpath", "alloc_slowpath", _SLAB_ALLOC)

    @property
    def free_counts(self) -> tuple[int, int]:
        """Frees by the fast and by the slow path.

        Of SLAB, into the CPU's array and past it: flushes and frees to other nodes.
        """
        return self._paths("free_fastpath", "free_slowpath", _SLAB_FREE)

    def _paths(self, fast: str, slow: str, of_slab: Sequence[str]) -> tuple[int, int]:
        count = self.count
        if of_slab[0] in self.counters:
            return count(of_slab[0]), sum(count(name) for name in of_slab[1:])
        return count(fast), count(slow)

    def count(self, name: str) -> int:
        """Return a counter; 0 if the policy or release has none of that name."""
        return self.counters.get(name, 0)


_SLAB_ALLOC = ("allochit", "allocmiss", "node_allocs")
_SLAB_FREE = ("freehit", "freemiss", "node_frees")


def summarize_cache(printed: Mapping[str, Any]) -> dict[str, Any]:
    """Count what the lists of a cache hold, and leave the lists out.

    Parameters
    ----------
    printed : mapping
        A cache as the core prints it with its state.

    Returns
    -------
    dict
        The same without ``state``; instead ``nodes``, counts by node, and ``levels``,
        figures of SLAB's statistics that are no counters.
    """
    summary = {key: value for key, value in printed.items() if key != "state"}
    state = printed["state"]
    summary["nodes"] = _node_counts(state, printed["objects_per_slab"])
    levels = state["counters"] if "cpu_arrays" in state else {}
    summary["levels"] = {
        name: value for name, value in levels.items() if name not in printed["counters"]
    }
    return summary


def _node_counts(state: Mapping[str, Any], slots: int) -> dict[str, list[int]]:
    nodes = [_count_node(node, slots) for node in state["nodes"]]
    counts = {name: [node[name] for node in nodes] for name in nodes[0]}
    counts["cpu_slabs"] = [0] * len(nodes)
    for cpu in state.get("cpus", ()):
        for node, slabs in _cpu_slabs(cpu):
            counts["cpu_slabs"][node] += slabs
    return counts


def _count_node(node: Mapping[str, Any], slots: int) -> dict[str, int]:
    """Count the slabs and objects of a node; SLAB has other words than SLUB."""
    partial = node["partial"]  # of each: serial, objects in use, ..., free indexes
    slabs = node["total_slabs"] if "total_slabs" in node else node["nr_slabs"]
    total = node.get("total_objects", slabs * slots)
    free = node.get("free_objects", sum(len(slab[-1]) for slab in partial))
    return {
        "objects": total - free,
        "objects_partial": sum(slab[1] for slab in partial),
        "total_objects": total,
        "slabs": slabs,
        "partial": len(partial),
    }


def _cpu_slabs(cpu: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Node and number of the slabs a CPU holds: its own, then its partial list.

    The list counts for the node of its head, wherever the rest lies, as the kernel has
    it.
    """
    found = []
    if cpu.get("slab", -1) >= 0:
        found.append((cpu["node"], 1))
    if cpu.get("cpu_partial"):
        head = cpu["cpu_partial"][0]
        found.append((head[4], head[3]))
    return found
