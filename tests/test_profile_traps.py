"""The traps of each release, one test each (facts/policies.md section 10)."""

import itertools

import pytest
from profile_geometry import (
    SLAB_KERNELS,
    geometry,
    machine_of,
)

import slabq

# ---- traps: SLAB ---------------------------------------------------------------------


def make(policy, size, cpus=2, nodes=1):
    allocator = slabq.Allocator(policy, machine=machine_of(cpus, nodes))
    return allocator.create_cache("objects", size)


def take(cache, count, cpu=0):
    return [cache.alloc(cpu=cpu) for _ in range(count)]


def give(cache, objects, cpu=0):
    for address in objects:
        cache.free(address, cpu=cpu)


def by_slab(cache, objects):
    """Addresses by the slab they lie in, the n-th of the cache."""
    found = {}
    for address in objects:
        found.setdefault(cache.locate(address).slab, []).append(address)
    return found


def listed(cache, name, node=0):
    """Serials of the slabs on a list of a node, head first."""
    return [slab[0] for slab in cache.snapshot()["nodes"][node][name]]


def single_slab_cache(kernel):
    """An array of one object and nothing shared: the object freed before goes home."""
    return make(slabq.Slab(kernel=kernel, limit=1, batchcount=1, shared=0), 1024)


@pytest.mark.parametrize("kernel", SLAB_KERNELS)
def test_slab_moves_a_slab_to_the_tail_of_partial_with_every_object_freed(kernel):
    cache = single_slab_cache(kernel)
    slabs = by_slab(cache, take(cache, 12))

    for number in (0, 1, 2, 0, 1):
        cache.free(slabs[number].pop())

    # The last object is still in the array; without it slab 1 was freed to first.
    assert listed(cache, "partial") == [1, 2, 0]


@pytest.mark.parametrize("kernel", SLAB_KERNELS)
def test_slab_refills_from_the_head_of_partial_and_puts_full_slabs_at_the_head(kernel):
    cache = single_slab_cache(kernel)
    slabs = by_slab(cache, take(cache, 12))
    give(cache, [slabs[1][0], slabs[0][0], slabs[2][0]])
    assert listed(cache, "partial") == [1, 0]

    take(cache, 2)  # the array's own, then one of the first slab

    assert listed(cache, "partial") == [0]
    assert listed(cache, "full") == [1, 2]


def shared_slab_cache(kernel, **options):
    """Arrays of 10, batches of 5, a shared array of 10, which is full."""
    policy = slabq.Slab(kernel=kernel, limit=10, batchcount=5, shared=2, **options)
    cache = make(policy, 64)
    objects = take(cache, 60)
    while shared(cache)["avail"] < 10:
        cache.free(objects.pop())
    return cache, objects


def shared(cache):
    return cache.snapshot()["nodes"][0]["shared"]


def in_array(cache):
    return cache.snapshot()["cpu_arrays"][0]["avail"]


@pytest.mark.parametrize("kernel", SLAB_KERNELS)
def test_a_flush_of_slab_ends_at_the_shared_array_however_little_fits(kernel):
    cache, objects = shared_slab_cache(kernel)
    cache.reap(with_node=True)  # a fifth of the shared array's limit
    assert shared(cache)["avail"] == 8
    while in_array(cache) < 10:
        cache.free(objects.pop())
    free_objects = cache.snapshot()["nodes"][0]["free_objects"]

    cache.free(objects.pop())

    assert (shared(cache)["avail"], in_array(cache)) == (10, 10 - 2 + 1)
    assert cache.snapshot()["nodes"][0]["free_objects"] == free_objects
    give(cache, [objects.pop(), objects.pop()])  # nothing fits: a batch to the slabs
    assert (shared(cache)["avail"], in_array(cache)) == (10, 10 - 5 + 1)
    assert cache.snapshot()["nodes"][0]["free_objects"] == free_objects + 5


@pytest.mark.parametrize(
    ("kernel", "marked", "left"),
    [("2.6.24", 0, 3), ("2.6.25", 0, 3), ("2.6.35", 1, 5), ("6.1", 1, 5)],
)
def test_slab_marked_the_wrong_array_touched_before_2_6_34(kernel, marked, left):
    cache, _ = shared_slab_cache(kernel)
    take(cache, in_array(cache) + 1)  # the last one refills from the shared array
    assert (shared(cache)["avail"], shared(cache)["touched"]) == (5, marked)

    cache.reap(with_node=True)

    assert shared(cache)["avail"] == left


# ---- traps: SLUB ---------------------------------------------------------------------


def slub_cache(kernel, cpus=2, nodes=1, **options):
    """Four objects a slab, so that slabs are full and partial soon."""
    return make(
        slabq.Slub(kernel=kernel, slub_max_order=0, **options), 1024, cpus, nodes
    )


NO_CPU_PARTIAL = {"slub_cpu_partial": False}


@pytest.mark.parametrize(
    ("kernel", "order"),
    [("2.6.22", [1, 0]), ("2.6.24", [0, 1]), ("2.6.35", [0, 1]), ("6.1", [0, 1])],
)
def test_a_full_slab_that_is_freed_to_goes_to_the_tail_since_2_6_24(kernel, order):
    cache = slub_cache(kernel, **NO_CPU_PARTIAL)
    slabs = by_slab(cache, take(cache, 12))

    give(cache, [slabs[0][0], slabs[1][0]])

    assert listed(cache, "partial") == order


@pytest.mark.parametrize(
    ("kernel", "own", "remote", "place"),
    [
        *((kernel, 2, 0, "head") for kernel in ("2.6.35", "3.1", "6.1", "6.18")),
        *((kernel, 0, 1, "tail") for kernel in ("2.6.35", "3.1", "6.1", "6.18")),
        ("2.6.35", 2, 1, "head"),
        *((kernel, 2, 1, "tail") for kernel in ("3.1", "6.1", "6.18")),
    ],
)
def test_where_a_cpu_slab_goes_is_told_by_its_own_or_by_others_frees(
    kernel, own, remote, place
):
    cache = slub_cache(kernel)
    objects = take(cache, 4 - own)
    give(cache, objects[:remote], cpu=1)

    cache.shrink()

    stats = cache.stats()
    assert stats[f"deactivate_to_{place}"] == 1
    assert stats["deactivate_to_head"] + stats["deactivate_to_tail"] == 1
    assert stats["deactivate_remote_frees"] == remote


@pytest.mark.parametrize(
    ("kernel", "kept"),
    [
        *((kernel, 0) for kernel in ("2.6.22", "2.6.24", "2.6.35", "2.6.39")),
        # min_partial is 3; the slab itself is on the list and counts
        *(("3.1", 3), ("3.2", 3), ("3.16", 2), ("4.19", 2), ("6.1", 2), ("6.18", 2)),
    ],
)
def test_each_release_keeps_the_empty_slabs_it_kept(kernel, kept):
    cache = slub_cache(kernel, **NO_CPU_PARTIAL)
    slabs = by_slab(cache, take(cache, 32))
    cache.tune(min_partial=3)

    partial = [slabs[number] for number in range(7)]  # the eighth is the CPU's
    give(cache, [objects.pop() for objects in partial])
    give(cache, itertools.chain.from_iterable(partial))

    assert len(listed(cache, "partial")) == kept


@pytest.mark.parametrize(
    ("kernel", "kept"),
    [("2.6.35", 0), ("3.1", 1), ("3.2", 1), ("3.16", 0), ("6.1", 0), ("6.18", 0)],
)
def test_an_empty_cpu_slab_is_given_up_by_the_rule_of_the_release(kernel, kept):
    # One partial slab and min_partial 1: not more than that, but as many.
    cache = slub_cache(kernel, nodes=2, **NO_CPU_PARTIAL)
    slabs = by_slab(cache, take(cache, 8))
    cache.free(slabs[0][0])
    cache.tune(min_partial=1, remote_node_defrag_ratio=0)
    give(cache, slabs[1])

    cache.alloc(node=1)  # the CPU's slab, empty, is of node 0

    assert listed(cache, "partial", node=0) == ([1, 0] if kept else [0])
    assert cache.stats()["free_slab"] == 1 - kept


@pytest.mark.parametrize("kernel", ["2.6.24", "2.6.35", "3.2", "6.1", "6.18"])
@pytest.mark.parametrize(("slabs", "taken"), [(3, 0), (4, 1)])
def test_other_nodes_are_asked_only_if_they_hold_more_than_min_partial(
    kernel, slabs, taken
):
    cache = slub_cache(kernel, cpus=2, nodes=2, **NO_CPU_PARTIAL)
    found = by_slab(cache, take(cache, 4 * (slabs + 1), cpu=1))
    give(cache, [found[number][0] for number in range(slabs)], cpu=1)
    cache.tune(min_partial=3, remote_node_defrag_ratio=1024)
    assert len(listed(cache, "partial", node=1)) == slabs

    cache.alloc(cpu=0)

    assert cache.stats_by_cpu()["alloc_from_partial"][0] == taken


@pytest.mark.parametrize(
    ("ratio", "least", "most"), [(0, 0, 0), (256, 50, 150), (512, 140, 260)]
)
def test_the_defrag_ratio_is_a_chance_in_1024_and_no_distance(ratio, least, most):
    cache = slub_cache("2.6.35", cpus=2, nodes=2)
    slabs = by_slab(cache, take(cache, 4 * 501, cpu=1))
    give(cache, [slabs[number][0] for number in range(500)], cpu=1)
    cache.tune(min_partial=0, remote_node_defrag_ratio=ratio)

    def attempts():
        stats = cache.stats_by_cpu()
        return stats["alloc_from_partial"][0] + stats["alloc_slab"][0]

    while attempts() < 400:
        cache.alloc(cpu=0)

    assert least <= cache.stats_by_cpu()["alloc_from_partial"][0] <= most


@pytest.mark.parametrize(
    ("kernel", "ratio"),
    [("2.6.22", 100), ("2.6.26", 100), ("2.6.27", 1000), ("6.18", 1000)],
)
def test_the_chance_to_look_at_other_nodes_grew_in_2_6_27(kernel, ratio):
    assert geometry("slub", kernel, 64)["defrag_ratio"] == ratio


@pytest.mark.parametrize("kernel", ["2.6.24", "2.6.35", "3.2", "5.15", "6.1", "6.18"])
def test_what_others_free_to_a_cpu_slab_comes_back_by_a_refill(kernel):
    cache = slub_cache(kernel)
    first = cache.alloc(cpu=0)
    cache.free(first, cpu=1)
    assert cache.stats()["free_frozen"] == 1
    before = cache.stats()

    objects = take(cache, 4)

    after = cache.stats()
    assert objects[3] == first  # after the CPU's own three
    assert after["alloc_refill"] - before["alloc_refill"] == 1
    assert after["alloc_slowpath"] - before["alloc_slowpath"] == 1
    assert after["alloc_fastpath"] - before["alloc_fastpath"] == 3


@pytest.mark.parametrize("freed_a_slab", [1, 3])
@pytest.mark.parametrize(
    ("kernel", "slabs"),
    [("3.16", 7), ("4.19", 7), ("5.15", 7), ("6.1", 12), ("6.18", 12)],
)
def test_cpu_partial_counts_objects_when_put_there_or_slabs(
    kernel, slabs, freed_a_slab
):
    # 6 objects: the list is full with 7 slabs of one free object; what is freed to
    # them later does not count. 24 objects in slabs of 4, half full: 12 slabs.
    cache = slub_cache(kernel)
    found = by_slab(cache, take(cache, 4 * 20))
    held = 0

    while cache.stats()["cpu_partial_drain"] == 0:
        give(cache, found[held][:freed_a_slab], cpu=1)
        held += 1

    assert held - 1 == slabs
    assert len(listed(cache, "partial")) == slabs


def test_3_2_moved_cpu_partial_slabs_without_counting_it():
    cache = slub_cache("3.2")
    found = by_slab(cache, take(cache, 4 * 20))

    give(cache, [found[number][0] for number in range(8)], cpu=1)

    assert len(listed(cache, "partial")) == 7
    assert cache.stats()["cpu_partial_free"] == 8
    assert cache.stats()["cpu_partial_drain"] == 0


@pytest.mark.parametrize("kernel", ["2.6.25", "2.6.35", "3.2", "6.1", "6.18"])
def test_slabs_from_any_list_are_allocations_of_the_slow_path(kernel):
    cache = slub_cache(kernel)
    objects = take(cache, 40)
    give(cache, objects[::2], cpu=1)

    take(cache, 30, cpu=1)

    stats = cache.stats()
    slow = ("cpu_partial_alloc", "alloc_from_partial", "alloc_slab")
    assert stats["alloc_fastpath"] + stats["alloc_slowpath"] == 70
    assert stats["alloc_slowpath"] == sum(stats[name] for name in slow)
    assert stats["free_fastpath"] + stats["free_slowpath"] == 20
