"""The files of ``/sys/kernel/slab/<cache>``: which a release has, and their text."""

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar, overload

from slabq import _core
from slabq.cache_record import CacheRecord, summarize_cache
from slabq.checks import require_choice, require_int
from slabq.errors import ParameterError
from slabq.machine import Machine
from slabq.policy import Policy, version_key
from slabq.slabinfo_tool import format_counter

__all__ = ["SysfsAttributes", "attribute_names", "format_counts"]

T = TypeVar("T")

UNSIGNED_MAX = 2**31 - 1  # what the policies hold of the kernel's unsigned long
RATIO_SCALE = 10  # the file has percent of what the allocator compares with 1024
NEW_COUNTERS = {
    "order_fallback": (2, 6, 26),
    "alloc_node_mismatch": (3, 1),
    "deactivate_bypass": (3, 1),
    "cmpxchg_double_cpu_fail": (3, 1),
    "cmpxchg_double_fail": (3, 1),
    "cpu_partial_alloc": (3, 2),
    "cpu_partial_free": (3, 2),
    "cpu_partial_node": (3, 16),
    "cpu_partial_drain": (3, 16),
}
FIRST_COUNTERS = (2, 6, 25)
SLABS_OF_CPUS_COUNTED = 2  # option cpu_partial_unit: the lists count slabs


def format_counts(counts: Sequence[int]) -> str:
    """Write a count by node as sysfs does.

    Parameters
    ----------
    counts : sequence of int
        The count of node 0, node 1 and so on.

    Returns
    -------
    str
        The sum, then the nodes that have any.

    Examples
    --------
    >>> format_counts([3, 0, 4])
    '7 N0=3 N2=4'
    """
    nodes = (f" N{node}={count}" for node, count in enumerate(counts) if count)
    return str(sum(counts)) + "".join(nodes)


# -- a cache as the files see it -------------------------------------------------------


class _View(NamedTuple):
    """What the text of a file is made from."""

    record: CacheRecord
    geometry: Mapping[str, Any]
    state: Mapping[str, Any]
    policy: Policy
    cpus: int

    def node_text(self, name: str) -> str:
        return format_counts(self.record.nodes[name])

    def slabs_cpu_partial(self) -> dict[int, tuple[int, int]]:
        """Objects, as the release guesses them, and slabs of each CPU's list."""
        unit = self.policy.values().get("cpu_partial_unit")
        slots = self.record.objs_per_slab
        found = {}
        for cpu in self.state["cpus"]:
            if cpu.get("cpu_partial"):
                head = cpu["cpu_partial"][0]
                slabs = head[3]
                is_guess = unit == SLABS_OF_CPUS_COUNTED
                objects = slabs * slots // 2 if is_guess else head[-1]
                found[cpu["cpu"]] = (objects, slabs)
        return found

    def queues(self) -> dict[int, int]:
        """Objects in the queue of each CPU."""
        found = dict.fromkeys(range(self.cpus), 0)
        return found | {cpu["cpu"]: cpu["objects"] for cpu in self.state["cpus"]}


def _partial_text(view: _View) -> str:
    lists = view.slabs_cpu_partial()
    objects = sum(pair[0] for pair in lists.values())
    slabs = sum(pair[1] for pair in lists.values())
    if view.policy.values().get("cpu_partial_unit") == SLABS_OF_CPUS_COUNTED:
        objects = slabs * view.record.objs_per_slab // 2  # halved once, of the sum
    cells = (f" C{cpu}={part[0]}({part[1]})" for cpu, part in lists.items())
    return f"{objects}({slabs})" + "".join(cells)


def _mark(view: _View, queue: Mapping[str, Any] | None) -> str:
    """Sign of a queue that was not in use lately."""
    has_marks = _queue_version(view.policy) >= 4
    return "*" if has_marks and not (queue or {}).get("touched") else ""


def _queue_version(policy: Policy) -> int:
    return policy.values().get("version", 0)


def _queues_text(view: _View) -> str:
    """V1 and V2 have the numbers alone, V3 on the room too, V4 all CPUs."""
    version = _queue_version(view.policy)
    known = {cpu["cpu"]: cpu for cpu in view.state["cpus"]}
    cells = []
    for cpu, objects in view.queues().items():
        if objects == 0 and version < 4:
            continue
        room = f"/{view.geometry['cpu_max']}" if version >= 3 else ""
        cells.append(f" C{cpu}={objects}{room}{_mark(view, known.get(cpu))}")
    return str(sum(view.queues().values())) + "".join(cells)


def _shared_text(view: _View) -> str:
    groups = view.state["shared"]
    cells = (
        f" C{','.join(map(str, group['cpus']))}={group['objects']}/{group['max']}"
        f"{_mark(view, group)}"
        for group in groups
    )
    return str(sum(group["objects"] for group in groups)) + "".join(cells)


def _alien_text(view: _View) -> str:
    nodes, room = len(view.state["nodes"]), view.geometry["alien_max"]
    total, cells = 0, []
    for group in view.state["shared"]:
        known = {alien["to"]: alien for alien in group["aliens"]}
        objects = {to: known.get(to, {}).get("objects", 0) for to in range(nodes)}
        parts = (
            f"N{to}={objects[to]}/{room}{_mark(view, known.get(to))}"
            for to in range(nodes)
            if to != group["node"]
        )
        cpus = ",".join(map(str, group["cpus"]))
        cells.append(f" C{cpus}={sum(objects.values())}[{':'.join(parts)}]")
        total += sum(objects.values())
    return str(total) + "".join(cells)


def _alien_size_text(view: _View) -> str:
    room, shift = view.geometry["alien_max"], view.geometry["alien_shift"]
    return f"{room} {shift}" if room else "0"


# -- the files -------------------------------------------------------------------------

Release = tuple[int, ...]


class _File(NamedTuple):
    """A file: which releases have it, what it reads as."""

    text: Callable[[_View], str]
    first: Release = ()
    before: Release = (99,)


def _of_record(name: str) -> Callable[[_View], str]:
    return lambda view: str(int(getattr(view.record, name)))


def _of_nodes(name: str) -> Callable[[_View], str]:
    return lambda view: view.node_text(name)


def _of_geometry(name: str) -> Callable[[_View], str]:
    return lambda view: str(view.geometry[name])


def _cpu_partial(view: _View) -> int:
    """0 where the kernel is built without these lists, as its file reads then."""
    return max(int(view.geometry["cpu_partial"]), 0)


def _ratio_text(view: _View) -> str:
    return str(view.geometry["remote_node_defrag_ratio"] // RATIO_SCALE)


_FILES: Mapping[str, _File] = {
    "slab_size": _File(_of_record("slab_size")),
    "object_size": _File(_of_record("object_size")),
    "objs_per_slab": _File(_of_record("objs_per_slab")),
    "order": _File(_of_record("order")),
    "min_partial": _File(_of_geometry("min_partial"), (2, 6, 30)),
    "objects": _File(_of_nodes("objects")),
    "objects_partial": _File(_of_nodes("objects_partial"), (2, 6, 26)),
    "total_objects": _File(_of_nodes("total_objects"), (2, 6, 26)),
    "slabs": _File(_of_nodes("slabs")),
    "partial": _File(_of_nodes("partial")),
    "aliases": _File(_of_record("aliases")),
    "align": _File(_of_record("align")),
    "cache_dma": _File(_of_record("cache_dma")),
    "hwcache_align": _File(_of_record("hwcache_align")),
    "reclaim_account": _File(_of_record("reclaim_account")),
    "destroy_by_rcu": _File(_of_record("destroy_by_rcu")),
    "red_zone": _File(_of_record("red_zone")),
    "poison": _File(_of_record("poison")),
    "store_user": _File(_of_record("store_user")),
    "sanity_checks": _File(_of_record("sanity_checks")),
    "trace": _File(_of_record("trace")),
}
_SLUB_FILES: Mapping[str, _File] = {
    "cpu_slabs": _File(_of_nodes("cpu_slabs")),
    "cpu_partial": _File(lambda view: str(_cpu_partial(view)), (3, 2)),
    "slabs_cpu_partial": _File(_partial_text, (3, 2)),
    "defrag_ratio": _File(_ratio_text, before=(2, 6, 25)),
    "remote_node_defrag_ratio": _File(_ratio_text, (2, 6, 25)),
    "usersize": _File(lambda view: "0", (6, 18)),
    "sheaf_capacity": _File(
        lambda view: str(view.geometry.get("sheaf_capacity", 0)), (6, 18)
    ),
}
# Of the postings of SLUB+Q the version stands for the release.
_QUEUE_FILES: Mapping[str, _File] = {
    "cpu_queues": _File(_queues_text),
    "remote_node_defrag_ratio": _File(_ratio_text, before=(4,)),
    "cpu_queue_size": _File(_of_geometry("queue"), before=(3,)),
    "cpu_batch_size": _File(_of_geometry("batch"), before=(3,)),
    "queue_size": _File(_of_geometry("queue"), (3,)),
    "batch_size": _File(_of_geometry("batch"), (3,)),
    "shared_queue_size": _File(
        lambda view: "{shared_max} {shared_wanted}".format(**view.geometry), (3,)
    ),
    "shared_caches": _File(_shared_text, (3,)),
    "per_cpu_caches": _File(_queues_text, (3,)),
    "alien_queue_size": _File(_alien_size_text, (3,)),
    "alien_caches": _File(_alien_text, (3,)),
    "expire": _File(_of_geometry("expire"), (4,)),
}
_WIDE_QUEUE_SIZE = _File(_of_geometry("cpu_max"), (3,))


def _of_release(files: Mapping[str, _File], release: Release) -> dict[str, _File]:
    return {
        name: file
        for name, file in files.items()
        if file.first <= release < file.before
    }


@functools.lru_cache(maxsize=64)
def _files_of(policy: Policy) -> Mapping[str, _File]:
    if policy.name == "slab":
        return {}
    release = version_key(policy.kernel or "")[0]
    files = _of_release(_FILES, release)
    if policy.name == "slub+q":
        version = (_queue_version(policy),)
        files |= _of_release(_QUEUE_FILES, version)
        files |= _of_release({"cpu_queue_size": _WIDE_QUEUE_SIZE}, version)
    else:
        files |= _of_release(_SLUB_FILES, release)
    return files


def _counters_of(policy: Policy) -> list[str]:
    if policy.name == "slab":
        return []
    release = version_key(policy.kernel or "")[0]
    return [
        name
        for name, _ in _core.counters(policy.name)
        if release >= NEW_COUNTERS.get(name, FIRST_COUNTERS)
    ]


def attribute_names(policy: Policy) -> list[str]:
    """Names of the files that a cache has under this policy and release.

    Parameters
    ----------
    policy : Policy
        The policy. SLAB has no files.

    Returns
    -------
    list of str
        Attributes, then the counters.

    Examples
    --------
    >>> from slabq.policy import Slub
    >>> "cpu_partial" in attribute_names(Slub(kernel="2.6.35"))
    False
    """
    return [*_files_of(policy), *_counters_of(policy)]


# -- as properties of a cache ----------------------------------------------------------


class _Attribute(Generic[T]):
    """A property of a cache that is read from its state.

    `read` makes the value. `tunable` is what is written, if anything may be: the name
    that ``tune`` takes, the accepted range and a factor.
    """

    def __init__(
        self,
        about: str,
        read: Callable[[_View], T],
        tunable: "_Tunable | None" = None,
    ) -> None:
        self.__doc__ = about
        self._read = read
        self._tunable = tunable

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, cache: None, owner: type) -> "_Attribute[T]": ...
    @overload
    def __get__(self, cache: "SysfsAttributes", owner: type) -> T: ...
    def __get__(
        self, cache: "SysfsAttributes | None", owner: type
    ) -> "T | _Attribute[T]":
        if cache is None:
            return self
        try:
            return self._read(cache._view())
        except KeyError:
            raise ParameterError(
                f"cache {cache._name} has no {self._name}: policy {cache._policy.name} "
                f"of kernel {cache._policy.kernel} keeps none"
            ) from None

    def __set__(self, cache: "SysfsAttributes", value: object) -> None:
        if self._tunable is None:
            may_be_set = ", ".join(_settable(cache._policy)) or "none"
            raise AttributeError(
                f"{self._name} of cache {cache._name} is read only: accepted are "
                f"{may_be_set}"
            )
        self._tunable.write(cache, self._name, value)


class _Tunable(NamedTuple):
    """What may be written to a file."""

    name: str
    policies: Sequence[str]
    minimum: int = 0
    maximum: int = UNSIGNED_MAX
    scale: int = 1

    def range_in(self, policy: Policy) -> tuple[int, int]:
        """Smallest and largest value that the release takes as it is."""
        release = version_key(policy.kernel or "")[0]
        if self.name == "min_partial" and release < (5, 18):
            return 5, 10  # what is beyond is moved there
        if self.name == "remote_node_defrag_ratio" and release < (2, 6, 28):
            return self.minimum, self.maximum - 1
        return self.minimum, self.maximum

    def write(self, cache: "SysfsAttributes", name: str, value: object) -> None:
        if cache._policy.name not in self.policies:
            raise ParameterError(
                f"{name} of cache {cache._name} is {value!r}: accepted are none with "
                f"policy {cache._policy.name}, only of {' and '.join(self.policies)}"
            )
        what = f"{name} of cache {cache._name}"
        number = require_int(what, value, *self.range_in(cache._policy))
        cache._core.tune(self.name, number * self.scale)


_SLUB = ("slub", "sheaves")
_RATIO = _Tunable(
    "remote_node_defrag_ratio", (*_SLUB, "slub+q"), 0, 100, scale=RATIO_SCALE
)
_TUNABLES = {
    "min_partial": _Tunable("min_partial", (*_SLUB, "slub+q")),
    "cpu_partial": _Tunable("cpu_partial", _SLUB),
    "remote_node_defrag_ratio": _RATIO,
    "cpu_queue_size": _Tunable("cpu_queue_size", ("slub+q",), 4, 10000),
    "shared_queue_size": _Tunable("shared_queue_size", ("slub+q",), 4, 10000),
}


def _settable(policy: Policy) -> list[str]:
    return [name for name, row in _TUNABLES.items() if policy.name in row.policies]


def _record(name: str, about: str) -> _Attribute[int]:
    return _Attribute(about, lambda view: int(getattr(view.record, name)))


def _flag(name: str, about: str) -> _Attribute[bool]:
    return _Attribute(about, lambda view: bool(getattr(view.record, name)))


def _geometry(name: str, about: str, key: str = "") -> _Attribute[int]:
    return _Attribute(
        about, lambda view: int(view.geometry[key or name]), _TUNABLES.get(name)
    )


class SysfsAttributes:
    """The files of a cache as properties; base of `Cache`.

    Reading one walks the cache, so it is to be read at a quiet moment. A property that
    the policy has nothing for raises `ParameterError`; so does a value that the kernel
    would not take as it is.
    """

    _core: _core.Cache
    _machine: Machine
    _policy: Policy
    _name: str

    slab_size = _record("slab_size", "Bytes of the slot of an object.")
    object_size = _record("object_size", "Bytes of an object, as asked for.")
    objs_per_slab = _record("objs_per_slab", "Slots of a slab.")
    order = _record("order", "A slab has two to the power of this pages.")
    align = _record("align", "Alignment of objects in bytes.")
    aliases = _record("aliases", "Number of other names that are in use of this cache.")
    objects = _record("objects", "Objects that are not free in a listed slab.")
    objects_partial = _record("objects_partial", "Objects of slabs on partial lists.")
    total_objects = _record("total_objects", "Slots of all slabs.")
    slabs = _record("slabs", "Number of slabs.")
    partial = _record("partial", "Slabs on the nodes' partial lists.")
    hwcache_align = _flag("hwcache_align", "True if objects begin on cache lines.")
    reclaim_account = _flag("reclaim_account", "True if slabs count as reclaimable.")
    destroy_by_rcu = _flag("destroy_by_rcu", "True if slabs go by RCU.")
    red_zone = _flag("red_zone", "True if red zones guard objects.")
    poison = _flag("poison", "True if free objects are poisoned.")
    store_user = _flag("store_user", "True if the last users are kept.")
    sanity_checks = _flag("sanity_checks", "True if free lists are checked.")

    min_partial = _geometry("min_partial", "Slabs that a node's partial list keeps.")
    cpu_partial = _Attribute(
        "Objects a CPU's partial list may hold.", _cpu_partial, _TUNABLES["cpu_partial"]
    )
    remote_node_defrag_ratio = _Attribute(
        "How readily slabs of other nodes are taken, in percent.",
        lambda view: int(view.geometry["remote_node_defrag_ratio"]) // RATIO_SCALE,
        _TUNABLES["remote_node_defrag_ratio"],
    )
    sheaf_capacity = _geometry("sheaf_capacity", "Objects of a sheaf.")

    queue_size = _geometry("queue_size", "Objects that a queue should hold.", "queue")
    batch_size = _geometry("batch_size", "Objects moved at a time.", "batch")
    cpu_queue_size = _geometry("cpu_queue_size", "As `queue_size`, settable.", "queue")
    shared_queue_size = _geometry(
        "shared_queue_size", "Objects that a shared queue should hold.", "shared_wanted"
    )
    alien_queue_size = _geometry(
        "alien_queue_size", "Objects that an alien queue holds.", "alien_max"
    )

    @property
    def cpu_slabs(self) -> int:
        """Slabs that CPUs hold, those of their partial lists included; SLUB only."""
        if self._policy.name not in _SLUB:
            raise self._refuse("cpu_slabs", _SLUB)
        return self._view().record.cpu_slabs

    @property
    def slabs_cpu_partial(self) -> dict[int, tuple[int, int]]:
        """Objects and slabs on the partial list of each CPU that has any; SLUB only.

        From 5.16 on the objects are half the slots, as the kernel guesses.
        """
        if self._policy.name not in _SLUB:
            raise self._refuse("slabs_cpu_partial", _SLUB)
        return self._view().slabs_cpu_partial()

    @property
    def cpu_queues(self) -> dict[int, int]:
        """Objects in the queue of each CPU; SLUB+Q only."""
        if self._policy.name != "slub+q":
            raise self._refuse("cpu_queues", ("slub+q",))
        return self._view().queues()

    def _refuse(self, what: str, policies: Sequence[str]) -> ParameterError:
        return ParameterError(
            f"cache {self._name} has no {what}: policy {self._policy.name} keeps none, "
            f"only {' and '.join(policies)} do"
        )

    def _view(self) -> _View:
        printed = json.loads(self._core.usage(True))
        record = CacheRecord.of(summarize_cache(printed))
        return _View(
            record,
            printed["geometry"],
            printed["state"],
            self._policy,
            self._machine.cpus,
        )

    def by_node(self, name: str) -> dict[int, int]:
        """One of the counts, node by node.

        Parameters
        ----------
        name : str
            ``objects``, ``objects_partial``, ``total_objects``, ``slabs``, ``partial``
            or ``cpu_slabs``.

        Returns
        -------
        dict of int to int
            All nodes of the machine.

        Raises
        ------
        ParameterError
            If there is no such count, or the cache is destroyed.

        Examples
        --------
        >>> import slabq
        >>> machine = slabq.Machine(cpus=2, nodes=2)
        >>> cache = slabq.Allocator("slub", machine=machine).create_cache("x", 64)
        >>> address = cache.alloc(cpu=1)
        >>> cache.by_node("slabs")
        {0: 0, 1: 1}
        """
        nodes = self._view().record.nodes
        return dict(enumerate(nodes[require_choice("count", name, list(nodes))]))

    def sysfs(self, name: str) -> str:
        """Text of a file of ``/sys/kernel/slab/<cache>``, without its last newline.

        Parameters
        ----------
        name : str
            Name of the file: an attribute or a counter that the release has.

        Returns
        -------
        str
            Counts with their nodes, ``total N0=x N1=y``; counters with their CPUs.

        Raises
        ------
        ParameterError
            If the release has no such file, or the cache is destroyed.

        Examples
        --------
        >>> import slabq
        >>> machine = slabq.Machine(cpus=2, nodes=2)
        >>> allocator = slabq.Allocator("slub", machine=machine, kernel="6.1")
        >>> cache = allocator.create_cache("example", 64)
        >>> objects = cache.alloc(cpu=0), cache.alloc(cpu=1), cache.alloc(cpu=1)
        >>> cache.sysfs("objects"), cache.sysfs("alloc_slowpath")
        ('128 N0=64 N1=64', '2 C0=1 C1=1')
        """
        known = attribute_names(self._policy)
        if not known:
            raise ParameterError(
                f"file is {name!r}: policy {self._policy.name} has no "
                "/sys/kernel/slab, only slub, sheaves and slub+q have"
            )
        what = f"file of {self._policy.name} {self._policy.kernel}"
        name = require_choice(what, name, known)
        files = _files_of(self._policy)
        if name not in files:
            return format_counter(dict(self._core.counters())[name])
        return files[name].text(self._view())
