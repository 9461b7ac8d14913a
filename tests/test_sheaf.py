"""Sheaves that a caller holds, from Python: prefill, take, refill, give back."""

import pytest

import slabq

MACHINE = slabq.Machine(cpus=2)


def make_cache(policy="sheaves", **options):
    allocator = slabq.Allocator(policy, machine=MACHINE)
    return allocator, allocator.create_cache("maple_node", 256, **options)


@pytest.mark.parametrize(
    ("policy", "capacity", "count", "filled"),
    [
        ("sheaves", 32, 10, 32),  # a sheaf of the cache is filled to the brim
        ("sheaves", 32, 40, 40),  # a larger one is made for this caller
        ("sheaves", 0, 5, 5),  # and so it is where the cache has none
        ("slub", 0, 5, 5),
    ],
)
def test_a_prefilled_sheaf_holds_what_was_asked_for(policy, capacity, count, filled):
    options = {"sheaf_capacity": capacity} if capacity else {}
    allocator, cache = make_cache(policy, **options)

    sheaf = cache.prefill_sheaf(count)

    assert (sheaf.object_count, sheaf.capacity) == (filled, filled)
    assert repr(sheaf) == f"Sheaf({filled} of {filled} objects)"
    allocator.check()


def test_its_objects_are_freed_like_any_other():
    allocator, cache = make_cache(sheaf_capacity=4)
    sheaf = cache.prefill_sheaf(4)

    objects = [sheaf.alloc() for _ in range(4)]

    assert len(set(objects)) == 4
    assert sheaf.alloc() is None
    cache.free_bulk(objects)
    allocator.check()
    with pytest.raises(slabq.CorruptionError):
        cache.free(objects[0])


def test_a_refill_makes_it_larger_where_it_must():
    _, cache = make_cache(sheaf_capacity=8)
    sheaf = cache.prefill_sheaf(8)

    sheaf.refill(20)

    assert sheaf.object_count == 20
    assert cache.stats()["sheaf_prefill_oversize"] == 1


def test_a_with_block_gives_it_back_as_the_cpu_that_made_it():
    _, cache = make_cache(sheaf_capacity=8)

    with cache.prefill_sheaf(3, cpu=1) as sheaf:
        pass

    assert sheaf.object_count == 0
    assert repr(sheaf) == "Sheaf(given back)"
    assert cache.stats_by_cpu()["sheaf_return_fast"] == [0, 1]


def test_a_with_block_leaves_one_alone_that_was_given_back_inside():
    _, cache = make_cache(sheaf_capacity=8)

    with cache.prefill_sheaf(3) as sheaf:
        sheaf.give_back()

    assert cache.stats()["sheaf_return_fast"] == 1


def test_one_that_was_given_back_is_refused():
    _, cache = make_cache(sheaf_capacity=8)
    sheaf = cache.prefill_sheaf(3)
    sheaf.give_back()

    for use in (sheaf.alloc, sheaf.give_back, lambda: sheaf.refill(2)):
        with pytest.raises(slabq.ParameterError, match="maple_node was given back"):
            use()


def test_one_of_a_destroyed_cache_is_refused():
    allocator, cache = make_cache(sheaf_capacity=8)
    sheaf = cache.prefill_sheaf(3)

    assert cache.destroy() == 0  # what lies in the sheaf is nobody's

    for use in (sheaf.alloc, sheaf.give_back, lambda: sheaf.refill(2)):
        with pytest.raises(slabq.ParameterError, match="maple_node is destroyed"):
            use()
    assert sheaf.object_count == 0
    allocator.check()


@pytest.mark.parametrize("policy", ["slab", "slub+q"])
def test_other_policies_say_who_has_them(policy):
    _, cache = make_cache(policy)

    with pytest.raises(slabq.ParameterError, match="slub and sheaves have"):
        cache.prefill_sheaf(3)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"count": 0}, "count is 0: accepted are 1 to 262144"),
        ({"count": 1 << 19}, "count is 524288: accepted are 1 to 262144"),
        ({"count": "3"}, "count is '3'"),
        ({"count": 3, "cpu": 2}, "cpu is 2: accepted are 0 to 1"),
    ],
)
def test_wrong_numbers_are_named(values, says):
    _, cache = make_cache(sheaf_capacity=8)

    with pytest.raises(slabq.ParameterError, match=says):
        cache.prefill_sheaf(**values)


def test_without_memory_there_is_no_sheaf_and_nothing_is_lost():
    machine = slabq.Machine(cpus=1, node_bytes=8 << 20)
    allocator = slabq.Allocator("sheaves", machine=machine)
    cache = allocator.create_cache("large", 4096, sheaf_capacity=8)

    with pytest.raises(slabq.OutOfMemory):
        cache.prefill_sheaf(1 << 18)

    allocator.check()
    assert cache.prefill_sheaf(8).object_count == 8
