"""The simplest model of an allocator, beside a real one: which objects are live.

`Model` applies operations to one heap and knows what must come of them. An operation
is a method that takes whole numbers only: a CPU, a place in the list of live objects
and the like are taken modulo what there is. So an operation makes sense in any state,
and a script of them still runs when some are left out.
"""

import dataclasses
import json
from types import ModuleType
from typing import Any, NamedTuple

from slabq import _core as product_core
from slabq.errors import CorruptionError, Error, OutOfMemory, ParameterError

ANY = -1
MEBIBYTE = 1 << 20
HWCACHE_ALIGN, RECLAIM_ACCOUNT, TYPESAFE_BY_RCU, STORE_USER = 1, 2, 4, 128
DISTANCES = [[10, 20, 20, 30], [20, 10, 20, 20], [20, 20, 10, 20], [30, 20, 20, 10]]
LIVE_MAX = 800  # objects of one cache: check() looks at all of them after every step
STAMP_MAX = 1024  # bytes written into an object, at most
FREED_MAX = 8  # addresses that were freed last, to be freed again by mistake

# What of the counters must add up to the model's calls, allocations and then frees:
# those that count a call each, and how many calls may go uncounted by them. SLAB of
# 4.19 and later does not count the first object of a slab that was made for another
# node's request; SLUB+Q V4 counts no slow path where a shared queue served.
CALL_COUNTERS = {
    "slab": (
        (("allochit", "allocmiss", "node_allocs"), "grown"),
        (("freehit", "freemiss", "node_frees"), None),
    ),
    "slub": (
        (("alloc_fastpath", "alloc_slowpath"), None),
        (("free_fastpath", "free_slowpath"), None),
    ),
    "sheaves": (
        (("alloc_cpu_sheaf", "alloc_fastpath", "alloc_slowpath"), None),
        (("free_cpu_sheaf", "free_fastpath", "free_slowpath"), None),
    ),
    "slub+q": (
        (
            (
                *("alloc_fastpath", "alloc_slowpath"),
                *("alloc_alien", "alloc_direct", "alloc_remote"),
            ),
            "alloc_shared",
        ),
        (
            (
                *("free_fastpath", "free_slowpath"),
                *("free_alien", "free_alien_slow", "free_direct"),
            ),
            "free_shared",
        ),
    ),
}
TUNABLES = (
    "limit",
    "batchcount",
    "shared",
    "reap_node",
    "cpu_partial",
    "min_partial",
    "remote_node_defrag_ratio",
    "cpu_queue_size",
    "shared_queue_size",
    "expire",
    "colour",
)


# Heaps that were found broken: to free one might crash, or never end.
BROKEN: list["Model"] = []


class Violation(AssertionError):  # noqa: N818 - what it is, not that it is an error
    """The allocator did what the model does not allow."""


class Refused(Exception):  # noqa: N818
    """The options contradict one another or ask for more memory than there is."""


class Shape(NamedTuple):
    """What a cache is made from."""

    size: int
    align: int = 0
    flags: int = 0
    sheaf_capacity: int = 0  # sheaves only


@dataclasses.dataclass(frozen=True)
class Setup:
    """What a heap under test is made from."""

    policy: str
    cpus: int = 1
    nodes: int = 1
    node_bytes: int = 16 * MEBIBYTE
    options: tuple[tuple[str, int], ...] = ()
    caches: tuple[Shape, ...] = (Shape(64),)

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Setup":
        """Read back what `dataclasses.asdict` gave, by way of JSON."""
        options = tuple((name, value) for name, value in record["options"])
        caches = tuple(Shape(*shape) for shape in record["caches"])
        return cls(**{**record, "options": options, "caches": caches})


def make_machine(core: ModuleType, setup: Setup) -> Any:
    """Return the machine of a setup: its CPUs spread evenly over its nodes."""
    node_of_cpu = [cpu * setup.nodes // setup.cpus for cpu in range(setup.cpus)]
    distance = [row[: setup.nodes] for row in DISTANCES[: setup.nodes]]
    bytes_of_node = setup.node_bytes
    return core.Machine(node_of_cpu, node_of_cpu, distance, bytes_of_node, 3, 0, 1)


def honours_node(setup: Setup) -> bool:
    """Say if a node that is asked for is given while it has memory.

    SLUB before 2.6.37 also took other nodes' partial slabs; SLUB+Q as posted gives
    queued objects of any node (test_slubq.py says which posting does what).
    """
    options = dict(setup.options)
    if setup.policy in ("slub", "sheaves"):
        return options.get("explicit_node_any_partial", 0) == 0
    if setup.policy == "slub+q":
        return options.get("version", 2) == 4 and options.get("honour_node", 0) == 1
    return True


def require(condition: bool, what: str) -> None:
    """Raise `Violation` unless the condition holds."""
    if not condition:
        raise Violation(what)


class Model:
    """A heap under test, and what it must hold."""

    def __init__(self, setup: Setup, core: ModuleType = product_core) -> None:
        self.setup = setup
        self.machine = make_machine(core, setup)
        self.empty = self.machine.describe()
        self.check_count = self.ran_out_count = 0
        try:
            self.allocator = core.Allocator(
                self.machine, setup.policy, list(setup.options)
            )
            self.kmalloc_cache_count = len(json.loads(self.allocator.caches()))
            self.caches = [
                self.allocator.create_cache(f"cache-{number}", *shape)
                for number, shape in enumerate(setup.caches)
            ]
        except (ParameterError, OutOfMemory) as error:
            raise Refused(str(error)) from error
        caches = json.loads(self.allocator.caches())
        kmalloc_caches = caches[: self.kmalloc_cache_count]
        usages = [json.loads(cache.usage()) for cache in self.caches]
        self.orders = [usage["order"] for usage in usages]
        # Caches that were merged are one: the first of them keeps its account (`home`).
        names = [usage["name"] for usage in usages]
        self.home = [names.index(name) for name in names]
        kmalloc_names = {cache["name"] for cache in kmalloc_caches}
        self.is_kmalloc = [name in kmalloc_names for name in names]
        self.kmalloc_order = max(
            row["order"] for row in kmalloc_caches if row["object_size"] <= 8192
        )
        self.kmalloc_size_max = max(cache["object_size"] for cache in kmalloc_caches)
        # Some releases do not say how they align, or what was asked for: 0.
        said = [json.loads(cache.describe()).get("align", 0) for cache in self.caches]
        self.aligns = [max(1, min(align, 64)) for align in said]
        self.honours_node = honours_node(setup)
        self.held: list[list[int]] = [[] for _ in self.caches]
        self.held = [self.held[home] for home in self.home]
        self.blocks: list[int] = []  # of kmalloc
        self.stamps: dict[int, bytes] = {}  # what was written into each live object
        self.stamp_count = 0
        self.freed: list[int] = []
        self.calls = [[0, 0] for _ in self.caches]
        self.calls = [self.calls[home] for home in self.home]
        # Do the counters of a cache still add up to the calls? Bulk calls and failed
        # ones are counted by other rules, a retuned cache may forget, and a sheaf is
        # filled by calls of the slab layer beneath it.
        has_sheaves = dict(setup.options).get("sheaf_all_caches", 0) == 1
        self.counts_calls = [
            not is_kmalloc
            and (setup.policy != "sheaves" or not (shape.sheaf_capacity or has_sheaves))
            for shape, is_kmalloc in zip(setup.caches, self.is_kmalloc, strict=True)
        ]

    # -- objects come and go --------------------------------------------------------

    def alloc(self, cache: int, cpu: int, node: int, count: int) -> None:
        """Allocate one by one, on a node (-1: any)."""
        cache, cpu = cache % len(self.caches), cpu % self.setup.cpus
        node = node if node == ANY else node % self.setup.nodes
        for _ in range(min(count, LIVE_MAX - len(self.held[cache]))):
            try:
                address = self.caches[cache].alloc(cpu, node)
            except OutOfMemory as error:
                self.counts_calls[self.home[cache]] = False
                self.note_ran_out(error, self.orders[cache])
                return
            self.calls[cache][0] += 1
            self.note_object(cache, address)
            if node != ANY and self.honours_node:
                self.require_node(address, node, self.orders[cache])

    def free(self, cache: int, cpu: int, first: int, count: int) -> None:
        """Free one by one, from the `first` of the live objects on."""
        cache, cpu = cache % len(self.caches), cpu % self.setup.cpus
        for _ in range(min(count, len(self.held[cache]))):
            address = self.take(self.held[cache], first)
            self.caches[cache].free(cpu, address)
            self.calls[cache][1] += 1

    def alloc_bulk(self, cache: int, cpu: int, count: int) -> None:
        """Allocate all or none with one call."""
        cache, cpu = cache % len(self.caches), cpu % self.setup.cpus
        count = min(count, LIVE_MAX - len(self.held[cache]))
        self.counts_calls[self.home[cache]] = False
        try:
            addresses = self.caches[cache].alloc_bulk(cpu, count)
        except OutOfMemory as error:
            self.note_ran_out(error, self.orders[cache])
            return
        require(len(addresses) == count, f"{count} asked for, {len(addresses)} given")
        for address in addresses:
            self.note_object(cache, address)

    def free_bulk(self, cache: int, cpu: int, first: int, count: int) -> None:
        """Free several with one call."""
        cache, cpu = cache % len(self.caches), cpu % self.setup.cpus
        self.counts_calls[self.home[cache]] = False
        count = min(count, len(self.held[cache]))
        addresses = [self.take(self.held[cache], first) for _ in range(count)]
        self.caches[cache].free_bulk(cpu, addresses)

    def prefill(self, cache: int, cpu: int, count: int, number: int) -> None:
        """Take a sheaf filled in advance, some of its objects, and give it back."""
        cache, chosen = cache % len(self.caches), self.caches[cache % len(self.caches)]
        cpu, count = cpu % self.setup.cpus, count + 1
        if self.setup.policy not in ("slub", "sheaves"):
            self.require_refused(ParameterError, chosen.prefill_sheaf, cpu, count)
            return
        self.counts_calls[self.home[cache]] = False
        try:
            sheaf = chosen.prefill_sheaf(cpu, count)
            if number % 3 == 0:
                sheaf.refill(cpu, count + number % 50)
        except OutOfMemory as error:
            self.note_ran_out(error, self.orders[cache])
            return
        require(sheaf.usage()[0] >= count, f"{sheaf.usage()}: {count} were asked for")
        for _ in range(min(number % (count + 1), LIVE_MAX - len(self.held[cache]))):
            self.note_object(cache, sheaf.alloc(cpu))
        self.allocator.check()
        sheaf.give_back(number % self.setup.cpus)
        require(sheaf.usage() is None, "a sheaf that was given back is still held")

    def kmalloc(self, cpu: int, size: int, node: int, count: int) -> None:
        """Allocate bytes, on a node (-1: any)."""
        cpu = cpu % self.setup.cpus
        node = node if node == ANY else node % self.setup.nodes
        for _ in range(min(count, LIVE_MAX - len(self.blocks))):
            try:
                address = self.allocator.kmalloc(cpu, size, node)
            except OutOfMemory as error:
                if size <= 4096:
                    self.note_ran_out(error, self.kmalloc_order)
                return
            usable = self.allocator.ksize(address)
            require(usable >= size, f"ksize is {usable}, {size} were asked for")
            self.stamp(address, usable)
            self.blocks.append(address)

    def kfree(self, cpu: int, first: int, count: int) -> None:
        """Free bytes; now and then NULL, which does nothing."""
        if first % 8 == 0:
            self.allocator.kfree(cpu % self.setup.cpus, 0)
        for _ in range(min(count, len(self.blocks))):
            address = self.take(self.blocks, first)
            self.allocator.kfree(cpu % self.setup.cpus, address)

    # -- the control plane ----------------------------------------------------------

    def shrink(self, cache: int, cpu: int) -> None:
        """Give back free slabs (kmem_cache_shrink)."""
        self.caches[cache % len(self.caches)].shrink(cpu % self.setup.cpus)

    def flush(self, cache: int, cpu: int) -> None:
        """Empty one CPU's part."""
        self.caches[cache % len(self.caches)].flush(cpu % self.setup.cpus)

    def reap(self, cache: int, cpu: int, with_node: int) -> None:
        """One pass of the periodic reaper, which only SLAB has."""
        chosen, cpu = self.caches[cache % len(self.caches)], cpu % self.setup.cpus
        if self.setup.policy == "slab":
            chosen.reap(cpu, bool(with_node % 2))
        else:
            self.require_refused(ParameterError, chosen.reap, cpu, True)

    def tune(self, cache: int, name: int, value: int) -> None:
        """Change a tunable of any policy to any value; most are refused."""
        cache, tunable = cache % len(self.caches), TUNABLES[name % len(TUNABLES)]
        try:
            self.caches[cache].tune(tunable, value)
        except ParameterError as error:
            require(
                tunable in str(error), f"{error}: does not name {tunable} = {value}"
            )
        except OutOfMemory:
            self.ran_out_count += 1
            self.counts_calls[self.home[cache]] = False
        else:
            self.counts_calls[self.home[cache]] = False

    # -- mistakes of the caller -----------------------------------------------------

    def wrong_pointer(self, cache: int, kind: int, number: int, offset: int) -> None:
        """Free what must not be freed here: refused, and nothing changes."""
        cache = cache % len(self.caches)
        held = self.held[cache]
        wrong: list[int] = [0, offset, number * 4096 + offset, -1 & (1 << 64) - 1]
        if held:
            wrong.append(held[number % len(held)] + 1 + offset % 15)
        if self.freed:
            wrong.append(self.freed[number % len(self.freed)])
        if self.blocks:
            wrong.append(self.blocks[number % len(self.blocks)])
        others = [item for row in self.held if row is not held for item in row]
        if others:
            wrong.append(others[number % len(others)])
        address = wrong[kind % len(wrong)]
        if address in held:
            return
        chosen = self.caches[cache]
        self.require_refused(CorruptionError, chosen.locate, address)
        if not self.is_reported(chosen.free, address):
            bulk = [*held, address]
            self.require_refused(CorruptionError, chosen.free_bulk, 0, bulk)
        if address != 0 and address not in self.blocks:
            self.is_reported(self.allocator.kfree, address)
            self.require_refused(CorruptionError, self.allocator.ksize, address)

    def wrong_place(self, cache: int, kind: int) -> None:
        """Name a CPU or a node that is not there: refused, and nothing changes."""
        chosen = self.caches[cache % len(self.caches)]
        cpu = (self.setup.cpus, ANY, 1 << 40)[kind % 3]
        node = (self.setup.nodes, -2, 1 << 40)[kind % 3]
        for call, arguments in (
            (chosen.alloc, (cpu, ANY)),
            (chosen.alloc, (0, node)),
            (chosen.alloc_bulk, (cpu, 1)),
            (chosen.alloc_bulk, (0, -1)),
            (chosen.free_bulk, (cpu, [])),
            (chosen.shrink, (cpu,)),
            (chosen.flush, (cpu,)),
            (self.allocator.kmalloc, (cpu, 8, ANY)),
            (self.allocator.kmalloc, (0, 8, node)),
        ):
            self.require_refused(ParameterError, call, *arguments)

    # -- looking --------------------------------------------------------------------

    def look(self, cache: int, number: int) -> None:
        """Every view of a cache agrees with the model."""
        cache = cache % len(self.caches)
        chosen, held = self.caches[cache], self.held[cache]
        for text in (chosen.describe(), chosen.snapshot(), chosen.usage(True)):
            json.loads(text)
        usage = json.loads(chosen.usage())
        if not self.is_kmalloc[cache]:
            self.require_count(usage["objects_allocated"], len(held), usage["name"])
        if held:
            address = held[number % len(held)]
            node = chosen.locate(address)[2]
            require(node == self.allocator.node_of(address), "locate: another node")
            self.require_stamp(address)
        rows = json.loads(self.allocator.caches())[: self.kmalloc_cache_count]
        self.require_kmalloc(sum(row["objects_allocated"] for row in rows))

    def settle(self) -> None:
        """After every step: the policy is sound and counts what the model counts."""
        self.check_count += 1
        self.allocator.check()
        live = len(self.blocks) + sum(len(self.held[home]) for home in set(self.home))
        self.require_count(self.allocator.live_count(), live, "the allocator")
        for cache, counts in enumerate(self.counts_calls):
            if counts and self.home[cache] == cache:
                self.require_calls(cache)

    def finish(self) -> None:
        """Free everything; the machine must be as empty as it was at first."""
        for cache, held in enumerate(self.held):
            for number in range(len(held)):
                self.free(cache, number, number, 1)
        self.kfree(0, 1, len(self.blocks))
        self.settle()
        for cache in range(len(self.caches)):
            self.look(cache, 0)
        while self.caches:
            self.require_count(self.caches.pop().destroy(), 0, "destroy")
            self.check_count += 1
            self.allocator.check()
        del self.allocator
        left = self.machine.describe()
        require(left == self.empty, f"memory is lost: {left}, at first {self.empty}")

    # -- what the operations are made of --------------------------------------------

    def stamp(self, address: int, size: int) -> None:
        """Fill a new object; it must not be live already."""
        require(address not in self.stamps, f"{address:#x} is handed out twice")
        self.stamp_count += 1
        stamp = bytes([self.stamp_count % 255 + 1]) * min(size, STAMP_MAX)
        self.allocator.write(address, stamp)
        self.stamps[address] = stamp

    def note_object(self, cache: int, address: int) -> None:
        """Take over a new object of a cache."""
        shape = self.setup.caches[cache]
        self.stamp(address, shape.size)
        align = max(shape.align, self.aligns[cache])
        require(address % align == 0, f"{address:#x} is not aligned to {align}")
        self.held[cache].append(address)

    def take(self, addresses: list[int], number: int) -> int:
        """Take a live object out of the model; it must hold what was written."""
        number %= len(addresses)
        self.require_stamp(addresses[number])
        return self.forget(addresses, number)

    def forget(self, addresses: list[int], number: int) -> int:
        """Take an object out of the model, whatever it holds."""
        addresses[number], addresses[-1] = addresses[-1], addresses[number]
        address = addresses.pop()
        del self.stamps[address]
        self.freed = [*self.freed[1 - FREED_MAX :], address]
        return address

    def require_stamp(self, address: int) -> None:
        """Nobody may have written into a live object."""
        stamp = self.stamps[address]
        found = self.allocator.read(address, len(stamp))
        require(found == stamp, f"{address:#x} holds {found!r}, {stamp!r} was written")

    def node_is_roomy(self, node: int, order: int) -> bool:
        """Say if it is beyond doubt that the node could have given such a slab."""
        in_use = json.loads(self.machine.describe())["bytes_in_use"][node]
        return (
            order <= 4
            and self.setup.node_bytes >= 16 * MEBIBYTE
            and in_use < self.setup.node_bytes // 4
        )

    def require_node(self, address: int, node: int, order: int) -> None:
        """An object must lie on the node that was asked for, if that has memory."""
        found = self.allocator.node_of(address)
        if found != node and self.node_is_roomy(node, order):
            raise Violation(f"node {node} has memory, the object is on node {found}")

    def note_ran_out(self, error: Error, order: int) -> None:
        """Memory may be had no more: believe it only if the nodes are not empty."""
        self.ran_out_count += 1
        if all(self.node_is_roomy(node, order) for node in range(self.setup.nodes)):
            raise Violation(f"{error}: but {self.machine.describe()}")

    def require_count(self, counted: int, wanted: int, what: str) -> None:
        """Two counts of the same objects must be one number."""
        require(
            counted == wanted, f"{what} counts {counted} objects, {wanted} are live"
        )

    def require_kmalloc(self, counted: int) -> None:
        """What the kmalloc caches count is live, or is of a cache merged into one."""
        live = sum(
            len(self.held[home]) for home in set(self.home) if self.is_kmalloc[home]
        )
        live += sum(
            self.allocator.ksize(address) <= self.kmalloc_size_max
            for address in self.blocks
        )
        if self.setup.policy == "slab":  # keeps its own management in kmalloc caches
            require(counted >= live, f"kmalloc caches count {counted}, {live} are live")
        elif not dict(self.setup.options).get("kmalloc_few_order"):  # pages instead
            self.require_count(counted, live, "kmalloc")

    def require_refused(self, kind: type[Error], call: Any, *arguments: Any) -> None:
        """A call must raise `kind`."""
        try:
            call(*arguments)
        except kind:
            return
        raise Violation(f"{call.__name__}{arguments} was not refused")

    def is_reported(self, free: Any, address: int) -> bool:
        """A wrong free must be refused: by the call, or by the report of a debug cache.

        The second as the kernel does it: a line of text, a call that is counted, and
        the object stays; but an object of another cache goes back to that one.
        """
        before, live = self.allocator.reports()[3], self.allocator.live_count()
        try:
            free(0, address)
        except CorruptionError:
            return False
        require(
            self.allocator.reports()[3] > before,
            f"{free.__name__}(0, {address}) was neither refused nor reported",
        )
        self.counts_calls = [False] * len(self.counts_calls)
        if self.allocator.live_count() < live:
            owners = [row for row in self.held if address in row]
            require(owners != [], f"{address:#x} was freed and is nobody's")
            self.forget(owners[0], owners[0].index(address))
        return True

    def require_calls(self, cache: int) -> None:
        """Counters of a cache that only saw single calls add up to the calls."""
        counters = {name: sum(each) for name, each in self.caches[cache].counters()}
        rules = CALL_COUNTERS[self.setup.policy]
        for (names, beside), calls in zip(rules, self.calls[cache], strict=True):
            counted = sum(counters[name] for name in names)
            uncounted = counters[beside] if beside else 0
            if not calls - uncounted <= counted <= calls:
                # Short of memory, a policy may try, and count, twice.
                self.counts_calls[cache] = False
                order = self.orders[cache]
                if all(self.node_is_roomy(n, order) for n in range(self.setup.nodes)):
                    raise Violation(f"{names} count {counted}, calls were {calls}")
