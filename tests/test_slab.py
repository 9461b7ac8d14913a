"""The policy `slab` beyond the recordings: options, limits, bad input, broken data."""

import ctypes
import itertools
import json
import random
import tomllib
from importlib import resources

import pytest

from slabq import _core, errors

PAGE_BYTES = 4096
HWCACHE_ALIGN, RECLAIM_ACCOUNT = 1, 2
ANY = -1
INUSE_OFFSET, FREE_OFFSET = 32, 36  # in struct slab of 2.6
ACTIONS = ["alloc", "alloc", "node", "free", "free", "reap", "shrink"]

CLASSIC = {
    "freelist_index_stack": 0,
    "objfreelist": 0,
    "cache_grow_begin": 0,
    "lockless_refill_check": 0,
    "destroy_after_batch": 0,
    "free_limit_first": 0,
}
SWITCHES = (
    "freelist_index_stack",
    "objfreelist",
    "cache_grow_begin",
    "lockless_refill_check",
    "shared_touched",
    "destroy_after_batch",
    "free_limit_first",
    "noaliencache",
)


def make_machine(cpus=4, nodes=2, node_bytes=16 << 20):
    node_of_cpu = [cpu * nodes // cpus for cpu in range(cpus)]
    distance = [[10 if a == b else 20 for a in range(nodes)] for b in range(nodes)]
    return _core.Machine(node_of_cpu, node_of_cpu, distance, node_bytes, 3, 0, 1)


def make_allocator(machine, options=None):
    return _core.Allocator(machine, "slab", list((options or {}).items()))


def options(table):
    return {name: value for name, value in table.items() if name != "about"}


def profiles():
    path = resources.files("slabq.data") / "kernels" / "slab.toml"
    tables = tomllib.loads(path.read_text())
    return {kernel: options(table) for kernel, table in tables.items()}


def bytes_in_use(machine):
    return sum(json.loads(machine.describe())["bytes_in_use"])


def counter(cache, name):
    return sum(dict(cache.counters())[name])


def walk(cache, machine_cpus, nodes, seed, steps=60):
    """Allocate, free, reap, shrink and retune at random; check after each step."""
    rng = random.Random(seed)
    live = []
    for _ in range(steps):
        cpu = rng.randrange(machine_cpus)
        action = rng.choice(ACTIONS)
        if action == "alloc":
            live += [cache.alloc(cpu, ANY) for _ in range(rng.randint(1, 90))]
        elif action == "node":
            live += [cache.alloc(cpu, rng.randrange(nodes)) for _ in range(10)]
        elif action == "free":
            rng.shuffle(live)
            for _ in range(min(len(live), rng.randint(1, 120))):
                cache.free(cpu, live.pop())
        elif action == "reap":
            cache.reap(cpu, rng.random() < 0.5)
        elif rng.random() < 0.5:
            cache.shrink(cpu)
        else:
            cache.tune("batchcount", 1)
            limit = rng.randint(1, 60)
            cache.tune("limit", limit)
            cache.tune("batchcount", rng.randint(1, limit))
            cache.tune("shared", rng.choice([0, 1, 8]))
        cache.check()
    for address in live:
        cache.free(0, address)
    cache.check()


# ---- every combination of the releases' rules ----------------------------------------


@pytest.mark.parametrize("size", [16, 200, 512, 4096])
@pytest.mark.parametrize("kernel", sorted(profiles()))
def test_a_profile_stays_sound_and_gives_all_memory_back(kernel, size):
    machine = make_machine()
    before = bytes_in_use(machine)
    allocator = make_allocator(machine, profiles()[kernel])
    cache = allocator.create_cache("walked", size, 0, HWCACHE_ALIGN, 0)

    walk(cache, 4, 2, seed=size)
    allocator.check()

    assert cache.destroy() == 0
    del cache, allocator
    assert bytes_in_use(machine) == before


@pytest.mark.parametrize(
    "values", list(itertools.product([0, 1], repeat=len(SWITCHES))), ids=str
)
def test_any_combination_of_rules_is_a_sound_allocator(values):
    machine = make_machine()
    allocator = make_allocator(machine, dict(zip(SWITCHES, values, strict=True)))
    cache = allocator.create_cache("combined", 640, 0, 0, 0)

    walk(cache, 4, 2, seed=str(values), steps=15)
    allocator.check()

    assert cache.destroy() == 0


def test_every_profile_names_options_of_the_policy_only():
    known = {row[1] for row in _core.options() if row[0] == "slab"}

    for kernel, values in profiles().items():
        assert set(values) <= known, kernel


# ---- management outside the slab -----------------------------------------------------


def kmalloc_allocated(allocator, size):
    rows = json.loads(allocator.caches())
    return next(r["objects_allocated"] for r in rows if r["name"].endswith(f"-{size}"))


def test_large_objects_keep_their_descriptors_in_kmalloc_objects():
    machine = make_machine(2, 1)
    allocator = make_allocator(machine, CLASSIC)
    cache = allocator.create_cache("large", 1024, 0, HWCACHE_ALIGN, 0)
    assert json.loads(cache.describe())["mgmt"] == "off"

    objects = [cache.alloc(0, ANY) for _ in range(40)]

    slabs = json.loads(cache.usage())["slabs"]
    assert slabs == 10
    assert kmalloc_allocated(allocator, 64) == slabs
    for address in objects:
        cache.free(0, address)
    cache.shrink(0)
    assert kmalloc_allocated(allocator, 64) == 0


def test_a_destroyed_cache_returns_descriptors_of_slabs_in_use():
    machine = make_machine(2, 1)
    allocator = make_allocator(machine, CLASSIC)
    cache = allocator.create_cache("large", 1024, 0, HWCACHE_ALIGN, 0)
    for _ in range(10):
        cache.alloc(0, ANY)

    assert cache.destroy() == 10

    assert kmalloc_allocated(allocator, 64) == 0
    allocator.check()


# ---- what the counters say -----------------------------------------------------------


def test_a_cold_array_is_filled_with_sixteen_objects_then_with_a_batch():
    cache = make_allocator(make_machine(2, 1)).create_cache("c", 64, 0, 0, 0)

    cache.alloc(0, ANY)
    assert counter(cache, "num_allocations") == 16
    for _ in range(16):
        cache.alloc(0, ANY)

    assert counter(cache, "num_allocations") == 64  # the rest of the slab
    assert counter(cache, "allocmiss") == 2
    assert counter(cache, "allochit") == 15


@pytest.mark.parametrize(
    ("batchrefill_limit", "first"), [(1, 1), (16, 16), (60, 60), (4096, 60)]
)
def test_the_first_refill_is_an_option(batchrefill_limit, first):
    options = {"batchrefill_limit": batchrefill_limit}
    cache = make_allocator(make_machine(2, 1), options).create_cache("c", 64, 0, 0, 0)

    cache.alloc(0, ANY)

    assert counter(cache, "num_allocations") == first


@pytest.mark.parametrize("alien_limit", [1, 12, 100])
def test_remote_frees_go_home_when_the_alien_array_is_full(alien_limit):
    options = {"alien_limit": alien_limit}
    allocator = make_allocator(make_machine(4, 2), options)
    cache = allocator.create_cache("c", 256, 0, 0, 0)
    objects = [cache.alloc(0, ANY) for _ in range(200)]

    for address in objects:
        cache.free(2, address)

    assert counter(cache, "node_frees") == 200
    assert counter(cache, "node_overflow") == (200 - 1) // alien_limit
    assert counter(cache, "freehit") == 0


def test_bulk_allocation_is_all_or_nothing():
    machine = make_machine(2, 1, 4 << 20)
    allocator = make_allocator(machine)
    cache = allocator.create_cache("bulk", 4096, 0, 0, 0)

    with pytest.raises(errors.OutOfMemory):
        cache.alloc_bulk(0, 2000)

    assert json.loads(cache.usage())["objects_allocated"] == 0
    allocator.check()
    addresses = cache.alloc_bulk(0, 100)
    assert len(set(addresses)) == 100
    cache.free_bulk(1, addresses)
    allocator.check()


# ---- memory that runs out ------------------------------------------------------------


def alloc_until_it_fails(cache, cpu):
    live = []
    try:
        while True:
            live.append(cache.alloc(cpu, ANY))
    except errors.OutOfMemory:
        return live


@pytest.mark.parametrize("options", [{}, CLASSIC], ids=["6.1", "classic"])
@pytest.mark.parametrize("size", [512, 8192])
def test_exhaustion_leaves_every_structure_sound(options, size):
    machine = make_machine(4, 2, 4 << 20)
    before = bytes_in_use(machine)
    allocator = make_allocator(machine, options)
    cache = allocator.create_cache("greedy", size, 0, 0, 0)
    live = []

    for cpu in (0, 3):
        live += alloc_until_it_fails(cache, cpu)
    allocator.check()

    assert {allocator.node_of(address) for address in live} == {0, 1}
    for address in live:
        cache.free(1, address)
    cache.shrink(0)
    allocator.check()
    assert cache.destroy() == 0
    del cache, allocator
    assert bytes_in_use(machine) == before


# ---- bad input -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("limit", 0, "limit of cache tuned is 0: accepted are 1 to 4096"),
        ("batchcount", -1, "batchcount of cache tuned is -1: accepted are 1 to 4096"),
        ("shared", 65, "shared of cache tuned is 65: accepted are 0 to 64"),
        ("batchcount", 121, "batchcount of cache tuned is 121: accepted are 1 to the "),
        ("reap_node", 2, "reap_node of cache tuned is 2: accepted are 0 to 1"),
        ("cpu_partial", 1, "no tunable cpu_partial: accepted are limit, batchcount, "),
    ],
)
def test_a_tunable_out_of_range_is_refused_and_changes_nothing(name, value, message):
    cache = make_allocator(make_machine()).create_cache("tuned", 64, 0, 0, 0)
    before = cache.snapshot()

    with pytest.raises(errors.ParameterError, match=message):
        cache.tune(name, value)

    assert cache.snapshot() == before


@pytest.mark.parametrize("options", [{}, CLASSIC], ids=["6.1", "classic"])
@pytest.mark.parametrize("size", [1, 8, 4 << 20])
def test_the_smallest_and_the_largest_object_have_a_geometry(options, size):
    rows = list(options.items())
    row = json.loads(_core.geometry(make_machine(), "slab", rows, size, 0, 0, 0))

    assert row["num"] >= 1
    assert row["num"] * row["size"] <= PAGE_BYTES << row["order"]


# ---- broken memory -------------------------------------------------------------------


def poke(address, offset, value):
    """Overwrite a word behind slabq's back; returns the old value."""
    word = ctypes.c_uint32.from_address(address + offset)
    old, word.value = word.value, value & 0xFFFFFFFF
    return old


@pytest.fixture
def classic_slab():
    """A cache of 2.6 with one partial slab, and the address of its descriptor."""
    allocator = make_allocator(make_machine(1, 1), CLASSIC)
    cache = allocator.create_cache("broken", 128, 0, 0, 0)
    live = [cache.alloc(0, ANY) for _ in range(10)]  # 16 of 30 are out of the slab
    serial, index, _ = cache.locate(live[0])
    assert serial == 0
    first = live[0] - index * 128
    geometry = json.loads(cache.describe())
    descriptor = first - geometry["slab_size"]
    assert geometry["mgmt"] == "on"
    cache.check()
    return allocator, cache, descriptor


@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [
        (INUSE_OFFSET, 5, "which does not exist"),
        (INUSE_OFFSET, 20, "counts 10 free objects, its chain has more"),
        (INUSE_OFFSET, 0, "objects in use: its list takes"),
        (INUSE_OFFSET, 31, "objects in use: its list takes"),
        (INUSE_OFFSET, -1, "objects in use: its list takes"),
        (FREE_OFFSET, 20, "which does not exist"),
        (FREE_OFFSET, 500, "which does not exist"),
        (0, 0, "a slab list is broken|its lists have more"),
        (8, 64, "a slab list is broken"),
        (16, 8, "does not lead back|objects start|objects pass"),
        (40, 3, "listed on node"),
    ],
)
def test_a_broken_descriptor_is_found_and_named(classic_slab, offset, value, message):
    _, cache, descriptor = classic_slab

    old = poke(descriptor, offset, value)

    with pytest.raises(errors.CorruptionError, match=message):
        cache.check()
    poke(descriptor, offset, old)
    cache.check()


def test_a_check_ends_whatever_the_management_holds(classic_slab):
    _, cache, descriptor = classic_slab
    bytes_count = json.loads(cache.describe())["slab_size"]
    saved = ctypes.string_at(descriptor, bytes_count)
    rng = random.Random(7)
    found = 0

    for _ in range(300):
        at = rng.randrange(0, bytes_count - 8, 4)
        ctypes.memmove(descriptor + at, rng.randbytes(8), 8)
        try:
            cache.check()
        except errors.CorruptionError:
            found += 1
        ctypes.memmove(descriptor, saved, bytes_count)

    cache.check()
    assert found > 100


def test_a_write_after_free_into_the_index_stack_is_found():
    allocator = make_allocator(make_machine(1, 1))
    cache = allocator.create_cache("stale", 256, 0, 0, 0)
    assert json.loads(cache.describe())["freelist"] == "obj"
    live = [cache.alloc(0, ANY) for _ in range(16)]
    last_to_go = live[0]  # the first to come back holds the stack
    for address in live:
        cache.free(0, address)
    cache.tune("shared", 0)  # flushes the array into the slab
    cache.check()

    old = poke(last_to_go, 12, 0xFFFFFFFF)

    with pytest.raises(errors.CorruptionError, match="which does not exist"):
        cache.check()
    poke(last_to_go, 12, old)
    cache.check()
