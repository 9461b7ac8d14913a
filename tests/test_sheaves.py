"""The policy `sheaves` beyond the recordings: rules, knobs, limits, broken data."""

import ctypes
import itertools
import json
import random
import threading

import pytest

import slabq
from slabq import _core, errors

ANY = -1
POISON = 1 << 6
MIB = 1 << 20
SIZE = 256
ACTIONS = ["alloc", "alloc", "node", "free", "free", "bulk", "shrink"]
KERNEL = slabq.Sheaves().values()

KNOBS = [
    {},
    {"sheaf_cpu_slab": 0},
    {"barn_full_max": 0},
    {"barn_full_max": 1},
    {"barn_empty_max": 1},
    {"sheaf_flush_percent": 50},
    {"sheaf_flush_percent": 1},
    {"sheaf_capacity": 3},
    {"sheaf_all_caches": 1},
    {"sheaf_cpu_slab": 0, "barn_full_max": 1, "sheaf_flush_percent": 30},
    {"slub_cpu_partial": 0},
    {"fast_path": 0, "slab_cmpxchg": 0, "cpu_partial_frozen": 1},
]


def make_machine(cpus=4, nodes=2, node_bytes=16 * MIB):
    node_of_cpu = [cpu * nodes // cpus for cpu in range(cpus)]
    distance = [[10 if a == b else 20 for a in range(nodes)] for b in range(nodes)]
    return _core.Machine(node_of_cpu, node_of_cpu, distance, node_bytes, 3, 0, 1)


def make_allocator(machine, **options):
    return _core.Allocator(machine, "sheaves", list({**KERNEL, **options}.items()))


def make_cache(capacity, machine=None, size=SIZE, flags=0, **options):
    allocator = make_allocator(machine or make_machine(), **options)
    return allocator.create_cache("objects", size, 0, flags, capacity)


def run(script, policy="sheaves", **options):
    """The lines of a script on 4 CPUs and 2 nodes, parsed."""
    values = [*KERNEL.items(), *options.items()] if policy == "sheaves" else []
    text = _core.execute(make_machine(), policy, values, script)
    return [json.loads(line) for line in text.splitlines()]


def counters(cache):
    return {name: sum(values) for name, values in cache.counters() if sum(values)}


def usage(cache):
    return json.loads(cache.usage())


def snapshot(cache):
    return json.loads(cache.snapshot())


def take(cache, count, cpu=0, node=ANY):
    return [cache.alloc(cpu, node) for _ in range(count)]


def give(cache, objects, cpu=0):
    for address in objects:
        cache.free(cpu, address)


def barn(cache, node=0):
    return snapshot(cache)["nodes"][node]["barn"]


# ---- one object ----------------------------------------------------------------------


def test_a_cache_without_sheaves_is_slubs():
    cache = make_cache(0)
    objects = take(cache, 5)

    give(cache, objects)

    assert take(cache, 5) == objects[::-1]
    assert counters(cache)["alloc_fastpath"] == 9
    assert "alloc_cpu_sheaf" not in counters(cache)


def test_the_last_object_freed_is_the_first_out_whatever_its_slab():
    cache = make_cache(60)
    objects = take(cache, 90)
    chosen = objects[::7]

    give(cache, chosen)

    assert take(cache, len(chosen)) == chosen[::-1]
    assert len({cache.locate(address)[0] for address in chosen}) > 1


def test_a_sheaf_is_filled_to_the_brim_from_slabs():
    cache = make_cache(12)

    cache.alloc(0, ANY)

    assert counters(cache)["sheaf_refill"] == 12
    assert usage(cache)["objects_allocated"] == 1


def test_each_cpu_has_a_sheaf_from_the_start_and_a_spare_later():
    cache = make_cache(4)
    assert counters(cache) == {"sheaf_alloc": 4}

    give(cache, take(cache, 9))

    assert counters(cache)["sheaf_alloc"] > 4
    assert snapshot(cache)["cpus"][0]["sheaf_spare"] is not None


def test_an_object_of_another_node_goes_to_its_slab():
    cache = make_cache(12)
    objects = take(cache, 24)

    give(cache, objects, cpu=3)

    assert "free_cpu_sheaf" not in counters(cache)
    assert usage(cache)["objects_allocated"] == 0


def test_an_allocation_for_another_node_does_without_sheaves():
    cache = make_cache(12)

    objects = take(cache, 5, cpu=0, node=1)

    assert {cache.locate(address)[2] for address in objects} == {1}
    assert "alloc_cpu_sheaf" not in counters(cache)


def test_an_allocation_that_may_not_wait_leaves_an_empty_sheaf_empty():
    lines = run("cache c 256 0 - 12\nan 0 0 5\ndump 0\na 0 0 1\ndump 0\n")

    assert "sheaf_refill" not in lines[2]["counters"]
    assert lines[2]["counters"]["barn_get_fail"] == 5
    assert lines[4]["counters"]["sheaf_refill"] == 12


def test_a_node_asked_for_is_honoured_though_a_sheaf_has_objects_of_another():
    script = "cache c 256 0 - 4\nsp 0 0 4\nst 0 3 0\na 0 3 2 1\ndump 0\n"

    alloc, dump = run(script)[3:]

    nodes = {slab: new[4] for new in alloc["ev"] for slab in [new[3]]}
    assert {nodes[slab] for slab, _ in alloc["objs"]} == {1}
    assert dump["cpus"][-1]["sheaf_main"] == [[0, 0], [0, 1], [0, 2], [0, 3]]


# ---- the barn ------------------------------------------------------------------------


def test_sheaves_pass_from_the_cpu_that_frees_to_the_cpu_that_allocates():
    cache = make_cache(12)
    objects = take(cache, 96, cpu=0)
    give(cache, objects, cpu=1)
    before = counters(cache)["sheaf_refill"]

    again = take(cache, 60, cpu=0)

    assert set(again) < set(objects)
    assert counters(cache)["barn_get"] == 5
    assert counters(cache)["sheaf_refill"] == before


def test_a_barn_keeps_to_its_limit_of_full_sheaves():
    for limit in (0, 1, 10):
        cache = make_cache(4, barn_full_max=limit)

        give(cache, take(cache, 200))

        assert barn(cache)["nr_full"] == limit
        assert counters(cache)["barn_put_fail"] > 0


def test_a_barn_gives_back_empty_sheaves_above_a_limit_only_if_there_is_one():
    kept = []
    for limit in (0, 2):
        cache = make_cache(4, barn_empty_max=limit)
        objects = take(cache, 44)
        give(cache, objects, cpu=1)
        take(cache, 44, cpu=0)
        kept.append(barn(cache)["nr_empty"])

    assert kept[0] > 2
    assert kept[1] == 2


@pytest.mark.parametrize(("percent", "flushed"), [(100, 10), (50, 5), (1, 1)])
def test_a_barn_that_is_full_sends_part_of_the_spare_to_slabs(percent, flushed):
    cache = make_cache(10, barn_full_max=0, sheaf_flush_percent=percent)
    objects = take(cache, 40)
    room = 1 + 10  # the main sheaf has 9 objects left of what was taken: with a spare
    give(cache, objects[:room])
    assert "sheaf_flush" not in counters(cache)

    for address in objects[room:]:
        cache.free(0, address)
        if counters(cache).get("sheaf_flush"):
            break

    assert counters(cache)["sheaf_flush"] == flushed
    cache.check()


def test_without_cpu_slabs_no_cpu_keeps_one():
    cache = make_cache(12, sheaf_cpu_slab=0)

    give(cache, take(cache, 100)[::2])
    take(cache, 10, cpu=0, node=1)

    assert all(cpu["slab"] == -1 for cpu in snapshot(cache)["cpus"])
    assert all(cpu["cpu_partial"] == [] for cpu in snapshot(cache)["cpus"])
    cache.check()


# ---- bulk ----------------------------------------------------------------------------


def test_a_bulk_allocation_empties_full_sheaves_before_it_asks_slabs():
    cache = make_cache(12)
    give(cache, take(cache, 60), cpu=1)
    before = counters(cache)

    objects = cache.alloc_bulk(1, 70)

    assert len(set(objects)) == 70
    after = counters(cache)
    assert after["alloc_cpu_sheaf"] - before["alloc_cpu_sheaf"] == 60
    assert after["sheaf_refill"] == before["sheaf_refill"]


@pytest.mark.parametrize("remote", [0, 1, 31, 32, 33, 64, 65])
@pytest.mark.parametrize("local", [0, 1, 20])
@pytest.mark.parametrize("remote_last", [True, False])
def test_a_bulk_free_loses_nothing_however_many_are_remote(local, remote, remote_last):
    cache = make_cache(12)
    near, far = cache.alloc_bulk(0, local), cache.alloc_bulk(3, remote)

    cache.free_bulk(0, near + far if remote_last else far + near)

    assert usage(cache)["objects_allocated"] == 0
    assert counters(cache).get("free_cpu_sheaf", 0) == min(local, 12)
    cache.check()


@pytest.mark.parametrize("policy", ["slab", "slub", "slub+q", "sheaves"])
def test_scripts_allocate_and_free_in_bulk_under_every_policy(policy):
    script = "cache c 64 0 -\nab 0 0 30\nfb 0 1 0-9 29-20\nfb 0 0 10-19\ndump 0\n"

    _, alloc, mixed, last, _ = run(script, policy)

    assert alloc["ret"] == len({tuple(place) for place in alloc["objs"]}) == 30
    assert [mixed["ids"][0], mixed["ids"][-1]] == [0, 20]
    assert [place[:2] for place in last["objs"]] == alloc["objs"][10:20]


# ---- sheaves for callers -------------------------------------------------------------


def test_a_prefilled_sheaf_gives_its_objects_without_asking_anyone():
    lines = run("cache c 256 0 - 12\nsp 0 0 5\nsa 0 0 0 20\nst 0 0 0\ndump 0\n")

    prefilled, taken, returned, dump = lines[1:]
    assert len(prefilled["sheaf"]) == prefilled["capacity"] == 12
    assert taken["objs"] == prefilled["sheaf"][::-1]
    assert taken["got"] == 12
    assert returned["sheaf"] is None
    assert dump["cpus"][0]["sheaf_spare"] == []


def test_a_sheaf_larger_than_the_caches_own_is_made_for_its_caller():
    lines = run(
        "cache c 256 0 - 12\nsp 0 0 40\nsr 0 0 0 50\ndump 0\nst 0 0 0\ndump 0\n"
    )

    assert [line["capacity"] for line in lines[1:3]] == [40, 50]
    assert lines[3]["handles"][0][:2] == [0, 50]
    assert "handles" not in lines[5]
    assert lines[5]["counters"]["sheaf_prefill_oversize"] == 2


@pytest.mark.parametrize("policy", ["slub", "sheaves"])
def test_a_cache_without_sheaves_prefills_one_for_its_caller(policy):
    lines = run("cache c 256 0 -\nsp 0 0 7\nsa 0 0 0 3\nst 0 0 0\ndump 0\n", policy)

    assert len(lines[1]["sheaf"]) == lines[1]["capacity"] == 7
    assert sum(cpu["inuse"] for cpu in lines[4]["cpus"]) > 0
    assert lines[4]["counters"]["sheaf_flush"] == 4


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("sa 0 0 1 1", "the sheaf is 1"),
        ("st 0 0 7", "the sheaf is 7"),
        ("sa 1 0 0 1", "sheaf 0 is of another cache"),
        ("st 0 0 0\nst 0 0 0", "sheaf 0 is not held"),
        ("sp 0 0 -1", "N is -1"),
        ("ab 0 0 0", "N is 0"),
        ("fb 0 0 5", "the id is 5"),
        ("sp 0 9 1", "the CPU is 9"),
    ],
)
def test_a_script_that_names_a_wrong_sheaf_is_told_so(line, message):
    script = f"cache a 64 0 - 4\ncache b 64 0 - 4\nsp 0 0 4\n{line}\n"

    with pytest.raises(errors.ParameterError, match=message):
        run(script)


@pytest.mark.parametrize("policy", ["slab", "slub+q"])
def test_policies_without_sheaves_prefill_none(policy):
    with pytest.raises(errors.ParameterError, match="fills no sheaves"):
        run("cache c 64 0 -\nsp 0 0 4\n", policy)


# ---- which caches have them ----------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "capacity"),
    [(64, 60), (192, 60), (256, 28), (512, 28), (1024, 12), (2048, 12), (4096, 4)],
)
def test_where_all_caches_have_sheaves_the_size_says_how_large(size, capacity):
    own = make_cache(0, size=size, sheaf_all_caches=1)
    asked = make_cache(100, size=size, sheaf_all_caches=1)

    assert json.loads(own.describe())["sheaf_capacity"] == capacity
    assert json.loads(asked.describe())["sheaf_capacity"] == 100


def test_kmalloc_has_sheaves_only_where_all_caches_have():
    for switch in (0, 1):
        allocator = make_allocator(make_machine(), sheaf_all_caches=switch)

        allocator.kfree(0, allocator.kmalloc(0, 100, ANY))

        rows = {row["name"]: row for row in json.loads(allocator.caches())}
        assert rows["kmalloc-128"]["counters"]["alloc_cpu_sheaf"] == switch
        allocator.check()


def test_debug_flags_end_sheaves():
    cache = make_cache(12, flags=POISON)

    give(cache, take(cache, 30))

    assert json.loads(cache.describe())["sheaf_capacity"] == 0
    assert "alloc_cpu_sheaf" not in counters(cache)


def test_geometry_says_the_capacity_and_what_is_beneath():
    found = slabq.geometry("sheaves", 256, sheaf_capacity=12)
    bare = slabq.geometry(slabq.Sheaves(sheaf_cpu_slab=False), 256, sheaf_capacity=12)

    assert (found["sheaf_capacity"], bare["sheaf_capacity"]) == (12, 12)
    assert found["cpu_partial"] > bare["cpu_partial"] == 0


# ---- shrink, tune, release -----------------------------------------------------------


def test_shrink_empties_sheaves_and_barns():
    cache = make_cache(4)
    objects = take(cache, 100)
    give(cache, objects, cpu=1)

    cache.shrink(0)  # what the barn held may lie on a cpu partial list now

    assert [barn(cache)[name] for name in ("nr_full", "nr_empty")] == [0, 0]
    assert usage(cache)["objects_queued"] == 0
    assert counters(cache)["sheaf_flush"] >= 100
    assert cache.shrink(0) == 0
    assert usage(cache)["slabs"] == 0


def test_a_new_cpu_partial_empties_sheaves_too():
    cache = make_cache(12)
    give(cache, take(cache, 5))

    cache.tune("cpu_partial", 0)

    assert usage(cache)["objects_queued"] == 0


def test_a_bad_tunable_is_refused_in_the_name_of_the_policy():
    with pytest.raises(errors.ParameterError, match="policy sheaves accepts"):
        make_cache(12).tune("limit", 3)


def test_destroying_a_cache_gives_all_its_pages_back():
    machine = make_machine()
    allocator = make_allocator(machine)
    before = json.loads(machine.describe())["bytes_in_use"]
    cache = allocator.create_cache("objects", 700, 0, 0, 12)
    give(cache, take(cache, 300)[::3], cpu=1)

    assert cache.destroy() == 200

    assert json.loads(machine.describe())["bytes_in_use"] == before


# ---- memory runs out -----------------------------------------------------------------


@pytest.mark.parametrize("options", KNOBS, ids=str)
def test_a_cache_survives_memory_that_runs_out(options):
    machine = make_machine(node_bytes=4 * MIB)
    cache = make_cache(12, machine, size=4096, **options)
    objects = []

    with pytest.raises(errors.OutOfMemory):
        objects.extend(cache.alloc(0, ANY) for _ in range(8192))
    objects = objects or exhaust(cache)
    cache.check()
    give(cache, objects, cpu=1)
    cache.check()

    assert usage(cache)["objects_allocated"] == 0
    assert len(take(cache, 500)) == 500


def exhaust(cache):
    objects = []
    try:
        while True:
            objects.append(cache.alloc(0, ANY))
    except errors.OutOfMemory:
        return objects


def test_a_bulk_allocation_is_all_or_nothing():
    cache = make_cache(12, make_machine(node_bytes=4 * MIB), size=4096)
    give(cache, take(cache, 30))

    with pytest.raises(errors.OutOfMemory):
        cache.alloc_bulk(0, 4096)

    assert usage(cache)["objects_allocated"] == 0
    cache.check()


def test_sheaves_that_cannot_be_made_are_done_without():
    """Objects of a page each use all memory; then there is none for empty sheaves."""
    machine = make_machine(cpus=1, nodes=1, node_bytes=4 * MIB)
    cache = make_cache(500, machine, size=4096)
    objects = exhaust(cache)

    give(cache, objects)

    assert usage(cache)["objects_allocated"] == 0
    cache.check()


@pytest.mark.parametrize("capacity", [12, 4000])
def test_a_cache_that_cannot_be_made_leaves_nothing_behind(capacity):
    machine = make_machine(node_bytes=4 * MIB)
    allocator = make_allocator(machine)
    pages = allocator.create_cache("pages", 4096, 0, 0, 0)
    exhaust(pages)
    before = json.loads(machine.describe())["bytes_in_use"]
    made = []

    with pytest.raises(errors.OutOfMemory):
        for number in range(1000):
            made.append(allocator.create_cache(f"c{number}", 64, 0, 0, capacity))

    for cache in made:
        cache.destroy()
    assert json.loads(machine.describe())["bytes_in_use"] <= before
    allocator.check()


# ---- all of it at random -------------------------------------------------------------


def walk(cache, cpus, nodes, seed, steps=60):
    """Allocate, free and shrink at random; check after each step."""
    rng = random.Random(seed)
    live = []
    for _ in range(steps):
        cpu = rng.randrange(cpus)
        action = rng.choice(
            ["alloc", "alloc", "node", "free", "free", "bulk", "shrink"]
        )
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
            cache.free_bulk(cpu, [live.pop() for _ in range(min(len(live), 90))])
        else:
            cache.shrink(cpu)
        cache.check()
        assert len(set(live)) == len(live)
        assert usage(cache)["objects_allocated"] == len(live)
    give(cache, live)
    cache.check()


@pytest.mark.parametrize("options", KNOBS, ids=str)
@pytest.mark.parametrize("capacity", [1, 2, 12])
def test_every_knob_keeps_the_structures_sound(options, capacity):
    cache = make_cache(capacity, **options)

    walk(cache, 4, 2, seed=capacity)

    assert usage(cache)["objects_allocated"] == 0


@pytest.mark.parametrize("options", [{}, {"sheaf_cpu_slab": 0}, {"barn_full_max": 1}])
def test_threads_on_all_cpus_share_a_cache_without_harm(options):
    """Each thread is one CPU; objects go round, so that most frees are another's."""
    cache = make_cache(4, make_machine(cpus=4, nodes=2), **options)
    mail = [[] for _ in range(4)]
    failures = []

    def work(cpu):
        rng = random.Random(cpu)
        try:
            for step in range(150):
                objects = take(cache, rng.randint(1, 30), cpu)
                objects += cache.alloc_bulk(cpu, rng.randint(1, 20))
                mail[(cpu + rng.randint(0, 3)) % 4].append(objects)
                while mail[cpu]:
                    received = mail[cpu].pop()
                    half = len(received) // 2
                    give(cache, received[:half], cpu)
                    cache.free_bulk(cpu, received[half:])
                if cpu == 0 and step % 25 == 0:
                    cache.shrink(cpu)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(cpu,)) for cpu in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    cache.check()
    give(cache, itertools.chain.from_iterable(itertools.chain.from_iterable(mail)))
    cache.check()
    assert usage(cache)["objects_allocated"] == 0


# ---- broken data ---------------------------------------------------------------------


def slot_of(cache, address, index):
    """The word of a sheaf that holds `address`: one that is outside of its slab, in
    which the object has that index."""
    first = address - index * SIZE
    slab = range(first, first + json.loads(cache.describe())["num"] * SIZE)
    base = address & ~(4 * MIB - 1)  # all memory of the machine
    memory = (ctypes.c_uint64 * (4 * MIB // 8)).from_address(base)
    places = [base + 8 * n for n, word in enumerate(memory) if word == address]
    (place,) = [place for place in places if place not in slab]
    return ctypes.c_uint64.from_address(place)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda objects, free: objects[0], "an object is in sheaves twice"),
        (lambda objects, free: objects[0] + 8, "holds what is no object"),
        (lambda objects, free: 0, "holds what is no object"),
        (lambda objects, free: 0xDEAD_BEEF_0000, "holds what is no object"),
        (lambda objects, free: free, "an object is in a sheaf and free"),
    ],
)
def test_a_check_finds_a_wrong_object_in_a_sheaf_and_ends(value, message):
    cache = make_cache(12, make_machine(1, 1, 4 * MIB))
    objects = take(cache, 4)
    indexes = [cache.locate(address)[1] for address in objects]
    give(cache, objects)
    index = snapshot(cache)["cpus"][0]["cpu_freelist"][0]
    free = objects[0] + (index - indexes[0]) * SIZE
    slot = slot_of(cache, objects[3], indexes[3])
    kept = slot.value
    slot.value = value(objects, free)

    with pytest.raises(errors.CorruptionError, match=message) as caught:
        cache.check()

    assert "cache objects" in str(caught.value)
    slot.value = kept
    cache.check()


@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [
        (16, 13, "a CPU's sheaf is none of the cache"),  # size above the capacity
        (20, 11, "a CPU's sheaf is none of the cache"),  # another capacity
        (20, 1 << 30, "a CPU's sheaf is none of the cache"),
    ],
)
def test_a_check_finds_a_broken_sheaf_and_ends(offset, value, message):
    cache = make_cache(12, make_machine(1, 1, 4 * MIB))
    address = cache.alloc(0, ANY)
    index = cache.locate(address)[1]
    cache.free(0, address)
    slot = slot_of(cache, address, index)
    sheaf = ctypes.addressof(slot) - 8 * 11 - 32  # the last of twelve, after 32 bytes
    field = ctypes.c_uint32.from_address(sheaf + offset)
    kept = field.value
    assert kept == 12
    field.value = value

    with pytest.raises(errors.CorruptionError, match=message):
        cache.check()

    field.value = kept
    cache.check()
