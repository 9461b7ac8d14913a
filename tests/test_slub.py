"""The policy `slub` beyond the recordings: options, limits, bad input, broken data."""

import ctypes
import itertools
import json
import random
import threading
import tomllib
from importlib import resources

import pytest

from slabq import _core, errors

ANY = -1
POISON, STORE_USER = 1 << 6, 1 << 7
ACTIONS = ["alloc", "alloc", "node", "free", "free", "bulk", "shrink", "tune"]
OBJECT_BYTES = 256

# Rules that are not the default; each was some release's.
RULES = {
    "order_search": (0, 1, 3),
    "order_fallback": (0,),
    "free_pointer_middle": (0,),
    "explicit_node_any_partial": (1,),
    "explicit_node_new_first": (1,),
    "fast_path": (0,),  # 2 goes with PREEMPT_RT alone (test_rt.py)
    "slab_cmpxchg": (0,),
    "discard_rule": (0, 1),
    "free_add_tail": (0,),
    "deactivate_head": (0,),
    "deactivate_splice": (0,),
    "slub_cpu_partial": (0,),
    "cpu_partial_unit": (0, 1),
    "cpu_partial_frozen": (0,),
    "cpu_partial_zero_drain": (1,),
    "cpu_partial_zero_stop": (1,),
    "shrink_promote": (0,),
    "count_cpu_partial_moves": (0,),
    "debug_single": (0,),
}
ABLATIONS = [(name, value) for name, values in RULES.items() for value in values]


def make_machine(cpus=4, nodes=2, node_bytes=16 << 20):
    node_of_cpu = [cpu * nodes // cpus for cpu in range(cpus)]
    distance = [[10 if a == b else 20 for a in range(nodes)] for b in range(nodes)]
    return _core.Machine(node_of_cpu, node_of_cpu, distance, node_bytes, 3, 0, 1)


def make_allocator(machine, options=None):
    return _core.Allocator(machine, "slub", list((options or {}).items()))


def make_cache(machine, options=None, size=OBJECT_BYTES, flags=0):
    return make_allocator(machine, options).create_cache("objects", size, 0, flags, 0)


def options(table):
    return {name: value for name, value in table.items() if name != "about"}


def profiles():
    path = resources.files("slabq.data") / "kernels" / "slub.toml"
    tables = tomllib.loads(path.read_text())
    return {kernel: options(table) for kernel, table in tables.items()}


def bytes_in_use(machine):
    return sum(json.loads(machine.describe())["bytes_in_use"])


def counter(cache, name):
    return sum(dict(cache.counters())[name])


def usage(cache):
    return json.loads(cache.usage())


def snapshot(cache):
    return json.loads(cache.snapshot())


def take(cache, count, cpu=0, node=ANY):
    return [cache.alloc(cpu, node) for _ in range(count)]


def give(cache, objects, cpu=0):
    for address in objects:
        cache.free(cpu, address)


def walk(cache, cpus, nodes, seed, steps=60):
    """Allocate, free, shrink and retune at random; check after each step."""
    rng = random.Random(seed)
    live = []
    for _ in range(steps):
        cpu = rng.randrange(cpus)
        action = rng.choice(ACTIONS)
        if action == "alloc":
            live += take(cache, rng.randint(1, 90), cpu)
        elif action == "node":
            live += take(cache, 10, cpu, rng.randrange(nodes))
        elif action == "free":
            rng.shuffle(live)
            give(cache, [live.pop() for _ in range(min(len(live), 80))], cpu)
        elif action == "bulk":
            live += cache.alloc_bulk(cpu, rng.randint(1, 50))
            rng.shuffle(live)
            cache.free_bulk(cpu, [live.pop() for _ in range(min(len(live), 40))])
        elif action == "shrink":
            cache.shrink(cpu)
        else:
            cache.tune("min_partial", rng.randint(0, 8))
        cache.check()
        assert len(set(live)) == len(live)
        assert usage(cache)["objects_allocated"] == len(live)
    give(cache, live)
    cache.check()


@pytest.mark.parametrize("kernel", sorted(profiles()))
def test_a_kernel_profile_is_values_of_options_in_their_ranges(kernel):
    rows = {row[1]: row for row in _core.options() if row[0] == "slub"}

    for name, value in profiles()[kernel].items():
        low, high = rows[name][3], rows[name][4]
        assert low <= value <= high, name


@pytest.mark.parametrize("kernel", sorted(profiles()))
@pytest.mark.parametrize("size", [8, 200, 1024, 4096])
def test_every_profile_keeps_its_structures_sound(kernel, size):
    cache = make_cache(make_machine(), profiles()[kernel], size)

    walk(cache, 4, 2, seed=size)

    assert usage(cache)["objects_allocated"] == 0


@pytest.mark.parametrize(("name", "value"), ABLATIONS)
def test_every_rule_can_be_changed_alone(name, value):
    for flags in (0, POISON, STORE_USER):
        cache = make_cache(make_machine(), {name: value}, flags=flags)

        walk(cache, 4, 2, seed=7, steps=30)


@pytest.mark.parametrize("seed", range(12))
def test_any_mixture_of_rules_keeps_its_structures_sound(seed):
    rng = random.Random(seed)
    chosen = {name: rng.choice(v) for name, v in RULES.items() if rng.random() < 0.5}
    cache = make_cache(make_machine(), chosen, flags=rng.choice([0, 0, STORE_USER]))

    walk(cache, 4, 2, seed)


def test_a_new_slab_hands_out_its_objects_in_ascending_order():
    cache = make_cache(make_machine())

    places = [cache.locate(address) for address in take(cache, 16)]

    assert places == [(0, index, 0) for index in range(16)]


def test_the_last_object_freed_to_the_cpu_slab_is_the_first_out():
    cache = make_cache(make_machine())
    objects = take(cache, 5)

    give(cache, objects)

    assert take(cache, 5) == objects[::-1]
    assert counter(cache, "free_fastpath") == 5


@pytest.mark.parametrize(("fast_path", "name"), [(1, "alloc_fastpath"), (2, "")])
def test_preempt_rt_has_no_lockless_allocation(fast_path, name):
    rt = {"preempt_rt": 1, "irq_scope": 1, "slub_cpu_partial": 0}
    cache = make_cache(make_machine(), {"fast_path": fast_path, **rt})

    take(cache, 10)

    assert counter(cache, "alloc_slowpath") == (1 if name else 10)
    assert counter(cache, "alloc_fastpath") == (9 if name else 0)


@pytest.mark.parametrize(("rule", "kept"), [(0, 0), (1, 5), (2, 4)])
def test_the_discard_rule_says_how_many_empty_slabs_a_node_keeps(rule, kept):
    options = {"discard_rule": rule, "slub_cpu_partial": 0}
    cache = make_cache(make_machine(), options)
    per_slab = json.loads(cache.describe())["num"]
    objects = take(cache, 10 * per_slab)

    give(cache, objects, cpu=1)

    # an emptied slab is itself counted in nr_partial; the slab that CPU 0 owns stays
    assert usage(cache)["slabs"] == kept + 1
    assert counter(cache, "free_slab") == 10 - kept - 1


@pytest.mark.parametrize("kernel", ["2.6.35", "6.1"])
def test_a_shrunk_cache_without_objects_has_no_slab(kernel):
    cache = make_cache(make_machine(), profiles()[kernel])
    give(cache, take(cache, 500), cpu=3)

    assert cache.shrink(0) == 0

    assert usage(cache)["slabs"] == 0


def test_cpu_partial_holds_no_more_slabs_than_it_is_tuned_to():
    cache = make_cache(make_machine())
    per_slab = json.loads(cache.describe())["num"]
    cache.tune("cpu_partial", per_slab)  # 2 slabs, each taken as half full
    objects = take(cache, 9 * per_slab)

    give(cache, objects[::per_slab], cpu=1)

    lists = {cpu["cpu"]: cpu["cpu_partial"] for cpu in snapshot(cache)["cpus"]}
    assert [entry[3] for entry in lists[1]] == [2, 1]
    assert counter(cache, "cpu_partial_drain") == 3


def test_a_ratio_of_nought_never_takes_other_nodes_slabs():
    for ratio, expected in ((0, 1), (1024, 0)):
        options = {"slub_cpu_partial": 0, "remote_node_defrag_ratio": ratio}
        cache = make_cache(make_machine(), options)
        per_slab = json.loads(cache.describe())["num"]
        objects = take(cache, 9 * per_slab)  # node 0
        give(cache, objects[::per_slab], cpu=1)

        node = cache.locate(cache.alloc(3, ANY))[2]

        assert node == expected


@pytest.mark.parametrize("kernel", ["2.6.35", "5.15", "6.18"])
def test_a_node_that_was_named_gives_the_object(kernel):
    cache = make_cache(make_machine(), profiles()[kernel])

    nodes = [cache.locate(cache.alloc(0, node))[2] for node in (0, 1, 1, 0, 1)]

    assert nodes == [0, 1, 1, 0, 1]


def exhaust(cache):
    """Objects until the machine has no memory."""
    objects = []
    try:
        for _ in range(8192):
            objects.append(cache.alloc(0, ANY))
    except errors.OutOfMemory:
        return objects
    raise AssertionError("memory did not run out")


@pytest.mark.parametrize("kernel", ["2.6.25", "2.6.35", "4.19", "6.1", "6.18"])
def test_a_cache_survives_memory_that_runs_out(kernel):
    cache = make_cache(make_machine(node_bytes=4 << 20), profiles()[kernel], 4096)

    objects = exhaust(cache)
    cache.check()
    give(cache, objects, cpu=2)
    cache.check()

    assert len(objects) > 1000
    assert len(take(cache, 500)) == 500


def leave_single_pages(machine):
    """Use all memory, then free every second page: no block of two is left."""
    options = {"slub_max_order": 0, "slub_cpu_partial": 0}
    allocator = make_allocator(machine, options)
    pages = allocator.create_cache("pages", 4096, 0, 0, 0)
    pages.tune("min_partial", 0)
    objects = sorted(exhaust(pages))
    give(pages, objects[::2])
    return allocator, pages


@pytest.mark.parametrize("has_fallback", [0, 1])
def test_slabs_of_the_smallest_order_are_made_when_memory_is_in_pieces(has_fallback):
    machine = make_machine(cpus=1, nodes=1, node_bytes=4 << 20)
    options = {"order_fallback": has_fallback, "slub_min_objects": 16}
    small = make_allocator(machine, options)
    cache = small.create_cache("objects", 512, 0, 0, 0)
    pieces = leave_single_pages(machine)

    objects = exhaust(cache)
    cache.check()

    assert json.loads(cache.describe())["order"] > 0
    assert bool(objects) == bool(has_fallback)
    assert counter(cache, "order_fallback") == len(objects) // 8
    assert all(cache.locate(address)[1] < 8 for address in objects)
    assert pieces


def test_a_bulk_allocation_is_all_or_nothing():
    cache = make_cache(make_machine(node_bytes=4 << 20), size=4096)

    with pytest.raises(errors.OutOfMemory):
        cache.alloc_bulk(0, 4096)

    assert usage(cache)["objects_allocated"] == 0
    cache.check()


def test_destroying_a_cache_gives_all_its_pages_back():
    machine = make_machine()
    allocator = make_allocator(machine)
    before = bytes_in_use(machine)
    cache = allocator.create_cache("objects", 700, 0, 0, 0)
    give(cache, take(cache, 300)[::3], cpu=3)

    assert cache.destroy() == 200

    assert bytes_in_use(machine) == before


@pytest.mark.parametrize(
    ("kernel", "size", "is_slab"),
    [
        *(("2.6.24", 2048, True), ("2.6.24", 2049, False)),
        *(("2.6.25", 4096, True), ("2.6.25", 4097, False)),
        *(("2.6.35", 8192, True), ("6.1", 8193, False)),
    ],
)
def test_large_kmalloc_passes_through_where_the_release_did(kernel, size, is_slab):
    allocator = make_allocator(make_machine(), profiles()[kernel])

    allocator.kmalloc(0, size, ANY)

    caches = json.loads(allocator.caches())
    allocated = [cache for cache in caches if cache["objects_allocated"] > 0]
    assert bool(allocated) == is_slab


def test_2_6_25_gives_large_classes_high_order_slabs():
    names = {"kmalloc-1024": 0, "kmalloc-2048": 3, "kmalloc-4096": 3}
    allocator = make_allocator(make_machine(), profiles()["2.6.25"])

    caches = {cache["name"]: cache for cache in json.loads(allocator.caches())}

    orders = {name: caches[name]["order"] for name in names}
    assert orders == names


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("limit", 3, "tunable is limit"),
        ("min_partial", -1, "min_partial of cache objects is -1: accepted are 0"),
        ("cpu_partial", 1 << 40, "cpu_partial of cache objects is"),
    ],
)
def test_a_bad_tunable_is_refused_by_name(name, value, message):
    cache = make_cache(make_machine())

    with pytest.raises(errors.ParameterError, match=message):
        cache.tune(name, value)


def test_cpu_partial_cannot_be_tuned_where_there_is_none():
    cache = make_cache(make_machine(), {"slub_cpu_partial": 0})

    with pytest.raises(errors.ParameterError, match="accepted are 0 to 0"):
        cache.tune("cpu_partial", 4)


def test_an_object_too_large_with_its_padding_is_refused():
    allocator = make_allocator(make_machine())

    with pytest.raises(errors.ParameterError, match="bytes with its padding"):
        allocator.create_cache("huge", 4 << 20, 0, STORE_USER, 0)


def free_pointer(address):
    """The word where a free object of 6.1 holds the address of the next one."""
    return ctypes.c_uint64.from_address(address + OBJECT_BYTES // 2)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (lambda objects: objects[2], "an object is free twice"),
        (lambda objects: objects[3] + 8, "leads to what is no object"),
        (lambda objects: 0xDEAD_BEEF_0000, "leads to what is no object"),
        (lambda objects: 0, "do not add up"),
    ],
)
def test_a_check_finds_a_broken_free_list_and_ends(word, message):
    cache = make_cache(make_machine())
    per_slab = json.loads(cache.describe())["num"]
    objects = take(cache, per_slab + 1)
    give(cache, objects[:3], cpu=1)  # 2, then 1, then 0
    place = free_pointer(objects[1])
    kept = place.value
    place.value = word(objects)

    with pytest.raises(errors.CorruptionError, match=message) as caught:
        cache.check()

    assert "cache objects, slab 0 on node 0" in str(caught.value)
    place.value = kept
    cache.check()


@pytest.mark.threads
@pytest.mark.parametrize("kernel", ["2.6.35", "4.19", "6.1", "6.18"])
def test_objects_that_travel_between_cpus_are_never_two_at_once(kernel):
    cache = make_cache(make_machine(), profiles()[kernel])
    places = [0] * 64
    guard = threading.Lock()
    wrong = []

    def run(cpu):
        rng = random.Random(cpu)
        for _ in range(1500):
            address = cache.alloc(cpu, ANY)
            with guard:
                if address in places:
                    wrong.append(address)
                index = rng.randrange(len(places))
                old, places[index] = places[index], address
            if old:
                cache.free(cpu, old)

    threads = [threading.Thread(target=run, args=(cpu,)) for cpu in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cache.check()
    live = sum(address != 0 for address in places)

    assert not wrong
    assert usage(cache)["objects_allocated"] == live


def test_slabinfo_counts_objects_off_the_partial_lists_as_active():
    cache = make_cache(make_machine(), {"slub_cpu_partial": 0})
    per_slab = json.loads(cache.describe())["num"]
    objects = take(cache, 2 * per_slab + 1)
    give(cache, itertools.islice(objects, 3), cpu=1)

    found = usage(cache)

    assert found["objects_total"] == 3 * per_slab
    assert found["objects_allocated"] == 2 * per_slab - 2
    assert found["objects_queued"] == per_slab - 1
    assert found["active_objs"] == 3 * per_slab - 3
