"""SLUB+Q: queues of objects over slabs with bitmaps, as posted in 2010.

Expected numbers are those of the postings: sizes, orders of objects, thresholds. What a
whole script gives is compared with recordings in test_slubq_oracle.py.
"""

import json
import random
from typing import Any

import pytest

from slabq import _core
from slabq.errors import CorruptionError, OutOfMemory, ParameterError

ANY = -1
VERSIONS = [1, 2, 3, 4]
ALWAYS = 2000  # remote_node_defrag_ratio: from 1024 on it is no dice


def machine(cpus: int = 4, nodes: int = 2, node_mib: int = 16, **llc: Any) -> Any:
    """`cpus` CPUs spread over `nodes` nodes; a last-level cache a node."""
    node_of_cpu = [cpu * nodes // cpus for cpu in range(cpus)]
    distance = [[10 if a == b else 20 for b in range(nodes)] for a in range(nodes)]
    groups = llc.get("llc", node_of_cpu)
    return _core.Machine(node_of_cpu, groups, distance, node_mib << 20, 0, 0, 1)


def make(
    version: int, size: int = 256, on: Any = None, **options: int
) -> tuple[_core.Allocator, _core.Cache]:
    values = [("version", version), *options.items()]
    allocator = _core.Allocator(on or machine(), "slub+q", values)
    return allocator, allocator.create_cache("test", size, 0, 0, 0)


def take(cache: _core.Cache, count: int, cpu: int = 0, node: int = ANY) -> list[int]:
    return [cache.alloc(cpu, node) for _ in range(count)]


def give(cache: _core.Cache, objects: list[int], cpu: int = 0) -> None:
    for address in objects:
        cache.free(cpu, address)


def state(cache: _core.Cache) -> dict[str, Any]:
    return json.loads(cache.snapshot())


def queued(cache: _core.Cache, cpu: int) -> int:
    return {c["cpu"]: c["objects"] for c in state(cache)["cpus"]}.get(cpu, 0)


def aliens(cache: _core.Cache, node: int) -> dict[int, int]:
    """Objects in the alien queues of a node's first group, by node they go to."""
    group = next(g for g in state(cache)["shared"] if g["node"] == node)
    return {alien["to"]: alien["objects"] for alien in group["aliens"]}


def count(cache: _core.Cache, name: str) -> int:
    return {key: sum(values) for key, values in cache.counters()}[name]


def usage(cache: _core.Cache) -> dict[str, Any]:
    return json.loads(cache.usage())


# ---- slabs and their bitmap ----------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "objects"),
    [(8, 504), (16, 254), (32, 127), (40, 102), (56, 72), (64, 64), (128, 32)],
)
def test_a_page_holds_the_objects_that_fit_beside_their_bitmap(size, objects):
    _, cache = make(2, size)
    description = json.loads(cache.describe())
    assert (description["order"], description["num"]) == (0, objects)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [8, 64, 1024])
def test_the_allocator_never_touches_an_object(version, size):
    allocator, cache = make(version, size)
    objects = take(cache, 700)
    for number, address in enumerate(objects):
        allocator.write(address, number.to_bytes(8, "little"))
    # Every third is held, so that no slab leaves and comes again as other memory.
    kept = {a: allocator.read(a, 8) for a in objects}
    give(cache, objects[::3], cpu=0)
    give(cache, objects[1::3], cpu=3)
    cache.shrink(1)
    again = take(cache, 30) + take(cache, 30, cpu=3)
    seen = [address for address in again if address in kept]
    assert len(seen) >= 30
    assert all(allocator.read(address, 8) == kept[address] for address in seen)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_found_where_it_lies(version):
    _, cache = make(version, 8)
    places = [cache.locate(address) for address in take(cache, 600)]
    assert len(set(places)) == 600
    assert all(index < 504 and node == 0 for _, index, node in places)


# ---- the queue of a CPU --------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "queue", "batch"),
    [
        (256, 120, 60),
        (264, 54, 27),
        (1024, 54, 27),
        (1032, 24, 12),
        (4096, 24, 12),
        (4104, 8, 4),
    ],
)
def test_the_size_of_an_object_decides_the_size_of_the_queue(size, queue, batch):
    _, cache = make(2, size)
    description = json.loads(cache.describe())
    assert (description["queue"], description["batch"]) == (queue, batch)


@pytest.mark.parametrize(
    ("size", "holds"), [(256, 125), (1024, 61), (4096, 29), (8192, 13)]
)
def test_a_queue_of_v3_on_fills_its_cache_lines(size, holds):
    _, cache = make(3, size)
    assert json.loads(cache.describe())["cpu_max"] == holds


def test_a_refill_takes_a_batch_and_the_last_slab_lies_on_top():
    # 32 objects a slab at 16 CPUs: 60 = 32 of slab 0, then 28 of slab 1.
    _, cache = make(2, 256, machine(16, 1))
    places = [cache.locate(address)[:2] for address in take(cache, 60)]
    assert places == [(1, i) for i in range(28)] + [(0, i) for i in range(32)]


def test_a_full_queue_gives_its_oldest_batch_back():
    _, cache = make(2, 256, machine(16, 1))
    objects = take(cache, 180)
    places = [cache.locate(address)[:2] for address in objects]
    assert queued(cache, 0) == 0
    give(cache, objects[:120])
    assert queued(cache, 0) == 120
    give(cache, objects[120:121])
    assert queued(cache, 0) == 120 - 60 + 1
    left = [tuple(place) for place in state(cache)["cpus"][0]["queue"]]
    assert left == places[60:121]


def test_a_queue_of_v3_on_is_full_at_what_its_memory_holds():
    _, cache = make(3, 256, machine(2, 1), shared_queue_size=0)
    objects = take(cache, 180)
    give(cache, objects[:125])
    assert queued(cache, 0) == 125
    give(cache, objects[125:126])
    assert queued(cache, 0) == 125 - 60 + 1


@pytest.mark.parametrize(("version", "first"), [(2, 60), (3, 60), (4, 16)])
def test_only_v4_refills_an_unused_queue_with_sixteen(version, first):
    _, cache = make(version, 64)
    take(cache, 1)
    assert queued(cache, 0) == first - 1
    take(cache, first)  # the second refill is a batch in every version, as far as the
    assert queued(cache, 0) >= (48 if version == 4 else 60) - 1  # slab goes


@pytest.mark.parametrize("version", [1, 2])
def test_a_queue_of_v1_and_v2_begins_on_node_0_whatever_the_cpu(version):
    _, cache = make(version)
    objects = take(cache, 1, cpu=3)
    assert cache.locate(objects[0])[2] == 1
    # CPU 3 lies on node 1, but the queue says 0: an object of node 1 comes for node 0.
    assert cache.locate(cache.alloc(3, 0))[2] == 1
    assert count(cache, "queue_flush") == 0
    assert cache.locate(cache.alloc(3, 1))[2] == 1
    assert count(cache, "queue_flush") == 1


@pytest.mark.parametrize("version", [1, 2])
def test_a_foreign_object_is_queued_as_any_other_in_v1_and_v2(version):
    _, cache = make(version)
    objects = take(cache, 1, cpu=0)
    give(cache, objects, cpu=3)
    assert queued(cache, 3) == 1
    assert cache.alloc(3, ANY) == objects[0]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_queue_is_resized_while_it_is_in_use(version):
    _, cache = make(version, 256, machine(2, 1))
    objects = take(cache, 200)
    give(cache, objects[:100])
    for size in (20, 300, 4):
        cache.tune("cpu_queue_size", size)
        description = json.loads(cache.describe())
        assert (description["queue"], description["batch"]) == (size, (size + 1) // 2)
        assert queued(cache, 0) == 0
        cache.check()
        give(cache, [cache.alloc(1, ANY)])
    assert usage(cache)["objects_allocated"] == 100


# ---- partial lists -------------------------------------------------------------------


@pytest.mark.parametrize(("version", "kept"), [(1, 0), (2, 0), (3, 0), (4, 5)])
def test_only_v4_keeps_min_partial_empty_slabs(version, kept):
    _, cache = make(version, 8192, machine(1, 1), shared_queue_size=0)
    cache.tune("min_partial", 5)
    per_slab = json.loads(cache.describe())["num"]
    objects = take(cache, 20 * per_slab)
    give(cache, objects)
    in_queue = usage(cache)["objects_queued"]
    whole_free = usage(cache)["slabs"] - -(-in_queue // per_slab)
    assert abs(whole_free - kept) <= 1
    assert usage(cache)["slabs"] < 20


@pytest.mark.parametrize("version", VERSIONS)
def test_shrink_gives_every_empty_slab_back_and_sorts_the_rest(version):
    _, cache = make(version, 1024, machine(2, 1))
    objects = take(cache, 300)
    random.Random(1).shuffle(objects)
    give(cache, objects[:250])
    cache.shrink(0)
    partial = state(cache)["nodes"][0]["partial"]
    in_use = [slab[1] for slab in partial]
    assert in_use == sorted(in_use, reverse=True)
    assert 0 not in in_use
    assert usage(cache)["objects_queued"] == 0
    give(cache, objects[250:])
    cache.shrink(0)
    assert usage(cache)["slabs"] == 0


@pytest.mark.parametrize(("ratio", "from_other_node"), [(0, False), (ALWAYS, True)])
def test_the_defrag_ratio_says_whether_other_nodes_are_looked_at(
    ratio, from_other_node
):
    _, cache = make(2, 1024, remote_node_defrag_ratio=ratio)
    cache.tune("min_partial", 0)
    objects = take(cache, 300, cpu=0)
    give(cache, objects[::3])
    cache.shrink(0)
    assert usage(cache)["partial_slabs"] > 0
    node = cache.locate(cache.alloc(3, ANY))[2]
    assert (node == 0) == from_other_node


# ---- shared and alien queues ---------------------------------------------------------


def test_cpus_of_one_last_level_cache_share_a_queue_and_others_do_not():
    _, cache = make(3, 256, machine(8, 1, llc=[0, 1, 0, 1, 2, 2, 3, 3]))
    groups = [group["cpus"] for group in state(cache)["shared"]]
    assert groups == [[0, 2], [1, 3], [4, 5], [6, 7]]


def test_cpus_that_are_alone_share_one_queue_a_node():
    _, cache = make(4, 256, machine(6, 2, llc=[0, 1, 2, 3, 3, 4]))
    groups = [group["cpus"] for group in state(cache)["shared"]]
    assert groups == [[0, 1, 2], [3, 4], [5]]


@pytest.mark.parametrize("version", [3, 4])
def test_what_one_cpu_frees_another_of_its_group_takes_from_the_shared_queue(version):
    _, cache = make(version, 256, machine(2, 1))
    objects = take(cache, 126)
    give(cache, objects)  # the 126th finds 125: a batch of the oldest goes to `shared`
    assert state(cache)["shared"][0]["objects"] >= 60 - 1
    taken = take(cache, 1, cpu=1)
    assert taken[0] in objects
    assert count(cache, "alloc_shared") == 1


@pytest.mark.parametrize(("version", "size", "has"), [(4, 4096, 0), (3, 4096, 2)])
def test_v4_has_no_shared_queue_for_objects_of_a_page(version, size, has):
    _, cache = make(version, size)
    assert json.loads(cache.describe())["nr_shared"] == has


@pytest.mark.parametrize("version", [3, 4])
def test_a_foreign_object_goes_to_the_alien_queue_of_its_node(version):
    _, cache = make(version)
    objects = take(cache, 40, cpu=0)
    give(cache, objects, cpu=3)
    assert queued(cache, 3) == 0
    assert aliens(cache, 1) == {0: 40}
    assert count(cache, "free_alien") == 40


def test_without_alien_queues_a_foreign_object_goes_to_its_slab():
    _, cache = make(4, 4096)
    give(cache, take(cache, 10, cpu=0), cpu=3)
    assert count(cache, "free_direct") == 10
    assert queued(cache, 3) == 0


@pytest.mark.parametrize(
    ("version", "options", "node"),
    [(3, {}, 1), (4, {}, 0), (4, {"honour_node": 1}, 1)],
)
def test_v4_as_posted_does_not_look_at_the_node_that_is_asked_for(
    version, options, node
):
    _, cache = make(version, 256, **options)
    assert cache.locate(cache.alloc(0, 1))[2] == node


def test_a_full_node_is_answered_with_local_objects():
    _, cache = make(4, 2048, machine(4, 2, node_mib=4), honour_node=1)
    nodes = [cache.locate(cache.alloc(0, 1))[2] for _ in range(2500)]
    assert nodes[0] == 1
    assert nodes[-1] == 0
    cache.check()


# ---- expiry --------------------------------------------------------------------------


def expiring(**options: int) -> _core.Cache:
    """40 objects of node 0 in the alien queue of node 1, more in queues of node 0."""
    _, cache = make(4, 256, **options)
    objects = take(cache, 300, cpu=0)
    give(cache, objects[:40], cpu=3)
    give(cache, objects[40:300], cpu=0)
    return cache


def test_expiry_spares_what_was_in_use_and_takes_it_the_next_time():
    cache = expiring(expire_mended=1)
    before = aliens(cache, 1)
    cache.tune("expire", 1)
    assert aliens(cache, 1) == before
    cache.tune("expire", 1)
    assert aliens(cache, 1) == {}
    cache.check()


def test_expiry_as_posted_misses_the_last_alien_queue():
    cache = expiring()
    for _ in range(4):
        cache.tune("expire", 1)
    assert aliens(cache, 1) == {0: 40}
    cache.check()


def test_expiry_of_all_nodes_as_posted_leaves_the_queues():
    cache = expiring()
    full = queued(cache, 0)
    for _ in range(3):
        cache.tune("expire", ANY)
    assert queued(cache, 0) == full
    mended = expiring(expire_mended=1)
    for _ in range(12):
        mended.tune("expire", ANY)
    assert queued(mended, 0) < full
    mended.check()


# ---- every difference is an option ---------------------------------------------------


def churn(cache: _core.Cache, rounds: int = 40) -> None:
    """The same operations on all CPUs, whatever the cache."""
    rng = random.Random(7)
    live: list[int] = []
    for _ in range(rounds):
        cpu = rng.randrange(4)
        live += take(cache, rng.randrange(100), cpu, rng.choice([ANY, ANY, 0, 1]))
        rng.shuffle(live)
        give(cache, live[:60], rng.randrange(4))
        del live[:60]
    give(cache, live)
    cache.check()


def test_an_emptied_slab_is_counted_only_from_v4_on_or_by_option():
    for version, options, counted in (
        (1, {}, False),
        (2, {}, False),
        (2, {"count_free_slab": 1}, True),
        (4, {}, True),
        (4, {"count_free_slab": 0}, False),
    ):
        _, cache = make(version, 256, **options)
        churn(cache)
        cache.shrink(0)
        assert (count(cache, "free_slab") > 0) == counted


def test_v1_counts_slabs_added_as_slabs_removed():
    _, slip = make(1, 256)
    _, mended = make(1, 256, count_partial_mended=1)
    churn(slip)
    churn(mended)
    added = count(mended, "free_add_partial")
    assert added > 0
    assert count(mended, "free_remove_partial") > 0
    assert count(slip, "free_add_partial") == 0
    assert count(slip, "free_remove_partial") == added


@pytest.mark.parametrize(("clears", "left"), [(1, 0), (0, 30)])
def test_a_resize_of_v2_begins_counting_anew_unless_told_otherwise(clears, left):
    _, cache = make(2, 256, resize_clears_counters=clears)
    give(cache, take(cache, 30))
    cache.tune("cpu_queue_size", 50)
    assert count(cache, "free_fastpath") == left


@pytest.mark.parametrize(("keeps", "lost"), [(1, 0), (0, 40)])
def test_a_resize_of_v4_as_posted_loses_the_objects_of_alien_queues(keeps, lost):
    _, cache = make(4, 256, resize_keeps_aliens=keeps)
    give(cache, take(cache, 40, cpu=0), cpu=3)
    cache.tune("shared_queue_size", 100)
    cache.check()
    cache.shrink(0)  # whatever is in a queue goes back; the lost ones are in none
    assert usage(cache)["objects_queued"] == lost
    assert usage(cache)["objects_allocated"] == 0


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("all_levels", [0, 1])
def test_shrink_as_posted_leaves_what_a_cpu_with_an_empty_queue_shares(
    version, all_levels
):
    _, cache = make(version, 256, flush_all_levels=all_levels)
    give(cache, take(cache, 40, cpu=0), cpu=3)
    cache.shrink(0)
    assert aliens(cache, 1) == ({} if all_levels else {0: 40})


ABLATIONS: list[dict[str, int]] = [
    {},
    {"slab_lock": 0},
    {"slab_lock": 1},
    {"discard_at_once": 0},
    {"discard_at_once": 1},
    {"touched": 0},
    {"touched": 1},
    {"alien_queues": 0},
    {"alien_queues": 1},
    {"shared_queue_size": 0},
    {"shared_queue_size": 50, "alien_queues": 1, "honour_node": 1},
    {"cpu_queue_size": 4},
    {"slub_max_order": 0},
    {"slub_min_objects": 64},
]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("options", ABLATIONS, ids=str)
@pytest.mark.parametrize("size", [8, 256, 4096])
def test_no_mixture_of_options_loses_an_object(version, options, size):
    _, cache = make(version, size, **options)
    rng = random.Random(version * size)
    live: set[int] = set()
    for step in range(60):
        cpu = rng.randrange(4)
        for address in take(cache, rng.randrange(60), cpu, rng.choice([ANY, 0, 1])):
            assert address not in live
            live.add(address)
        freed = rng.sample(sorted(live), min(len(live), rng.randrange(60)))
        live.difference_update(freed)
        give(cache, freed, rng.randrange(4))
        if step % 20 == 19:
            cache.shrink(cpu)
        cache.check()
        assert usage(cache)["objects_allocated"] == len(live)
    give(cache, sorted(live))
    assert cache.destroy() == 0


# ---- memory, errors, the end ---------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [64, 2048])
def test_memory_that_runs_out_leaves_every_structure_sound(version, size):
    _, cache = make(version, size, machine(2, 2, node_mib=4))
    objects: list[int] = []
    with pytest.raises(OutOfMemory):
        objects.extend(cache.alloc(number % 2, ANY) for number in range(1 << 20))
    cache.check()
    assert usage(cache)["objects_allocated"] == len(objects)
    give(cache, objects[::2])
    cache.check()
    # Queues hold some of them back; far more than half of the rest comes again.
    again = take(cache, len(objects) // 4)
    assert len(set(again)) == len(again)
    cache.check()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_destroyed_cache_gives_all_its_memory_back(version):
    on = machine()
    allocator = _core.Allocator(on, "slub+q", [("version", version)])
    before = json.loads(on.describe())["bytes_in_use"]
    cache = allocator.create_cache("passing", 256, 0, 0, 0)
    give(cache, take(cache, 500, cpu=0)[:300], cpu=3)
    assert cache.destroy() == 200
    assert json.loads(on.describe())["bytes_in_use"] == before


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("cpu_queue_size", 3, "4 to 10000"),
        ("cpu_queue_size", 10001, "4 to 10000"),
        ("min_partial", -1, "0 to 4294967295"),
        ("expire", 2, "-1 to 1"),
        ("shared_queue_size", -1, "0 to 10000"),
        ("limit", 1, "known: cpu_queue_size"),
    ],
)
def test_a_tunable_out_of_range_is_refused_by_name_and_value(name, value, accepted):
    _, cache = make(4)
    with pytest.raises(ParameterError, match=accepted):
        cache.tune(name, value)
    cache.check()


@pytest.mark.parametrize("name", ["shared_queue_size", "expire"])
def test_v2_does_not_know_the_tunables_of_later_postings(name):
    _, cache = make(2)
    with pytest.raises(ParameterError, match="slub\\+q V2 has no tunable"):
        cache.tune(name, 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_object_freed_twice_is_refused_and_nothing_is_lost(version):
    _, cache = make(version)
    objects = take(cache, 5)
    cache.free(0, objects[0])
    with pytest.raises(CorruptionError):
        cache.free(0, objects[0])
    cache.check()
    assert usage(cache)["objects_allocated"] == 4
