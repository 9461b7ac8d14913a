"""An allocator driven call by call: what it hands out, and what it refuses."""

import json
import threading

import pytest

import slabq
from slabq.policy import policy_names

MIB = 1 << 20
POLICIES = policy_names()


@pytest.fixture(params=POLICIES)
def allocator(request):
    machine = slabq.Machine(cpus=4, nodes=2, node_bytes=64 * MIB)
    return slabq.Allocator(request.param, machine=machine, slab_nomerge=True)


@pytest.fixture
def cache(allocator):
    return allocator.create_cache("example", 64)


def test_objects_are_distinct_and_writable(allocator, cache):
    objects = [cache.alloc(cpu=index % 4) for index in range(500)]
    for number, address in enumerate(objects):
        allocator.write(address, number.to_bytes(8, "little"))

    read = [int.from_bytes(allocator.read(address, 8), "little") for address in objects]

    assert read == list(range(500))
    assert allocator.live_count() == 500


def test_an_object_goes_back_from_any_cpu(allocator, cache):
    for cpu in range(4):
        cache.free(cache.alloc(cpu=0), cpu=cpu)

    allocator.check()
    assert allocator.live_count() == 0
    assert cache.usage()["objects_allocated"] == 0


def test_bulk_calls_hand_out_and_take_back_all(cache):
    objects = cache.alloc_bulk(300, cpu=1)
    assert len(set(objects)) == 300

    cache.free_bulk(objects, cpu=2)

    cache.check()
    assert cache.usage()["objects_allocated"] == 0


def test_memory_comes_from_the_node_of_the_cpu(allocator, cache):
    assert allocator.node_of(cache.alloc(cpu=0)) == 0
    assert allocator.node_of(cache.alloc(cpu=3)) == 1


def test_kmalloc_rounds_up_and_kfree_takes_nil(allocator):
    address = allocator.kmalloc(100, cpu=0)

    assert allocator.ksize(address) == 128
    allocator.kfree(address, cpu=3)
    allocator.kfree(0)
    assert allocator.live_count() == 0


def test_shrink_gives_the_slabs_back(cache):
    cache.free_bulk(cache.alloc_bulk(1000))
    cache.shrink()

    assert cache.usage()["slabs"] == 0


def test_counters_by_cpu_add_up_to_the_totals(cache):
    for cpu in (0, 1, 3):
        cache.free(cache.alloc(cpu=cpu), cpu=cpu)

    by_cpu = cache.stats_by_cpu()

    assert {name: sum(values) for name, values in by_cpu.items()} == cache.stats()
    assert all(len(values) == 4 for values in by_cpu.values())


def test_slabinfo_has_the_columns_of_version_2_1(allocator, cache):
    objects = cache.alloc_bulk(100)
    lines = allocator.slabinfo().splitlines()
    words = next(line for line in lines if line.startswith("example ")).split()

    assert lines[0] == "slabinfo - version: 2.1"
    assert [words[6], words[7], words[11], words[12]] == [
        ":",
        "tunables",
        ":",
        "slabdata",
    ]
    active, total, size, per_slab, pages = map(int, words[1:6])
    assert len(objects) <= active <= total
    assert (size, per_slab * size <= pages * 4096) == (64, True)
    assert total == per_slab * int(words[14])


def test_snapshot_usage_and_geometry_are_plain_data(cache):
    cache.alloc()

    for value in (cache.snapshot(), cache.usage(), cache.geometry()):
        assert json.loads(json.dumps(value)) == value
    assert cache.geometry()["size"] == 64


MISUSES = {
    "double free": lambda a, c, o: (c.free(o), c.free(o)),
    "double free from another cpu": lambda a, c, o: (
        c.free(o, cpu=1),
        c.free(o, cpu=2),
    ),
    "double free in one bulk": lambda a, c, o: c.free_bulk([o, o]),
    "bulk with a foreign pointer": lambda a, c, o: c.free_bulk([o, o + 1]),
    "misaligned pointer": lambda a, c, o: c.free(o + 8),
    "pointer from nowhere": lambda a, c, o: c.free(0xDEADBEEF),
    "nil": lambda a, c, o: c.free(0),
    "object of another cache": lambda a, c, o: a.create_cache("other", 64).free(o),
    "kfree of a cache's object": lambda a, c, o: a.kfree(o),
    "free of kmalloc memory": lambda a, c, o: c.free(a.kmalloc(64)),
    "double kfree": lambda a, c, o: [a.kfree(p) for p in [a.kmalloc(64)] * 2],
    "ksize of no pointer": lambda a, c, o: a.ksize(12345),
    "node of no pointer": lambda a, c, o: a.node_of(12345),
    "read of a freed object": lambda a, c, o: (c.free(o), a.read(o, 8)),
    "place of a freed object": lambda a, c, o: (c.free(o), c.locate(o)),
}


@pytest.mark.parametrize("name", MISUSES)
def test_a_wrong_pointer_is_refused_and_the_state_unharmed(allocator, cache, name):
    address = cache.alloc()

    with pytest.raises(slabq.CorruptionError) as caught:
        MISUSES[name](allocator, cache, address)

    message = str(caught.value)
    assert "\n" not in message
    assert "%" not in message
    allocator.check()
    assert cache.alloc() != 0


def test_a_refused_free_names_address_and_cache(cache):
    address = cache.alloc()
    cache.free(address)

    with pytest.raises(slabq.CorruptionError) as caught:
        cache.free(address)

    assert hex(address) in str(caught.value)
    assert "example" in str(caught.value)
    assert "double free" in str(caught.value)


@pytest.mark.parametrize(
    "use",
    [
        lambda c: c.alloc(),
        lambda c: c.alloc_bulk(2),
        lambda c: c.free(64),
        lambda c: c.shrink(),
        lambda c: c.check(),
        lambda c: c.stats(),
        lambda c: c.snapshot(),
        lambda c: c.usage(),
        lambda c: c.destroy(),
    ],
)
def test_a_destroyed_cache_is_refused_by_name(cache, use):
    cache.alloc()
    assert cache.destroy() == 1

    with pytest.raises(slabq.Error, match="example is destroyed"):
        use(cache)


WRONG_ARGUMENTS = {
    "cpu": (lambda a, c: c.alloc(cpu=4), "cpu is 4: accepted are 0 to 3"),
    "negative cpu": (lambda a, c: c.alloc(cpu=-1), "cpu is -1"),
    "node": (lambda a, c: c.alloc(node=2), "node is 2: accepted are 0 to 1"),
    "kmalloc node": (lambda a, c: a.kmalloc(8, node=-2), "node is -2"),
    "count": (lambda a, c: c.alloc_bulk(-1), "count is -1"),
    "address": (lambda a, c: c.free("x"), "address is 'x'"),
    "size": (lambda a, c: a.create_cache("y", 0), "size is 0"),
    "size too large": (lambda a, c: a.create_cache("y", 1 << 23), "size is 8388608"),
    "align": (lambda a, c: a.create_cache("y", 8, align=3), "align of cache y is 3"),
    "empty name": (lambda a, c: a.create_cache("", 8), "name of a cache is ''"),
    "long name": (lambda a, c: a.create_cache("n" * 64, 8), "1 to 63 bytes"),
    "name with nul": (lambda a, c: a.create_cache("a\0b", 8), "printable"),
    "sheaf": (lambda a, c: a.create_cache("y", 8, sheaf_capacity=-1), "is -1"),
    "tunable": (lambda a, c: c.tune(no_such_tunable=1), "no_such_tunable"),
    "read too long": (lambda a, c: a.read(c.alloc(), 65), "65"),
    "write too long": (lambda a, c: a.write(c.alloc(), b"x" * 65), "65"),
}


@pytest.mark.parametrize("name", WRONG_ARGUMENTS)
def test_a_wrong_argument_is_refused_with_what_is_accepted(allocator, cache, name):
    use, words = WRONG_ARGUMENTS[name]

    with pytest.raises(slabq.ParameterError) as caught:
        use(allocator, cache)

    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_machine_without_pages_left_says_out_of_memory(policy):
    machine = slabq.Machine(cpus=1, node_bytes=4 * MIB)
    allocator = slabq.Allocator(policy, machine=machine)
    cache = allocator.create_cache("big", 8192)
    objects = []

    with pytest.raises(slabq.OutOfMemory):
        objects.extend(cache.alloc() for _ in range(10000))

    cache.free_bulk(objects)
    allocator.check()
    assert len(set(objects)) == len(objects) > 0


@pytest.mark.parametrize("policy", POLICIES)
def test_geometry_is_that_of_a_cache_made_with_it(policy):
    machine = slabq.Machine(cpus=16)
    cache = slabq.Allocator(policy, machine=machine).create_cache(
        "x", 200, hwcache_align=True
    )

    found = slabq.geometry(policy, 200, machine=machine, hwcache_align=True)

    made = cache.geometry()
    assert {name: made[name] for name in ("size", "order", "num")} == {
        name: found[name] for name in ("size", "order", "num")
    }


def test_an_option_changes_what_a_cache_is_made_like():
    machine = slabq.Machine(cpus=16)

    large = slabq.geometry("slub", 256, machine=machine, kernel="6.1")
    small = slabq.geometry(
        slabq.Slub(kernel="6.1", slub_max_order=0), 256, machine=machine
    )

    assert (large["order"], small["order"]) == (1, 0)


@pytest.mark.parametrize("flag", ["red_zone", "poison", "store_user"])
def test_debugging_flags_need_room(flag):
    machine = slabq.Machine(cpus=2)
    plain = slabq.geometry("slub", 64, machine=machine, kernel="6.1")
    debug = slabq.geometry("slub", 64, machine=machine, kernel="6.1", **{flag: True})

    assert debug["size"] > plain["size"]


def test_a_script_prints_one_json_object_a_line():
    script = "cache example 64 0 -\na 0 0 3\nf 0 0 0-2\n"

    text = slabq.execute(script, "slab", machine=slabq.Machine(cpus=1), kernel="6.1")

    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["cmd"] for line in lines] == script.splitlines()


def test_a_wrong_script_line_is_told_with_its_number():
    with pytest.raises(slabq.ParameterError, match="line 2"):
        slabq.execute("cache a 8 0 -\nfrobnicate\n", "slab")


@pytest.mark.parametrize("name", ["n" * 1_000_000, "two words", "a\0b", "", 3])
def test_a_name_that_no_cache_can_have_is_told_in_a_short_line(allocator, name):
    with pytest.raises(slabq.ParameterError, match="name of a cache is") as caught:
        allocator.create_cache(name, 64)

    assert len(str(caught.value)) < 200


def test_a_size_of_very_many_digits_is_told_in_a_short_line(allocator):
    with pytest.raises(
        slabq.ParameterError, match=r"size is 0x.*\.\.\.: accepted"
    ) as told:
        allocator.create_cache("c", 10**9999)

    assert len(str(told.value)) < 200


# -- threads in one allocator ----------------------------------------------------------


def bulk_beside(allocator, name, act, rounds=300):
    """Bulk calls of two threads in a cache while this one does `act`; their errors."""
    caches = [allocator.create_cache(name, 96)]
    done = threading.Event()
    refused = []

    def work():
        while not done.is_set():
            cache = caches[0]
            try:
                cache.free_bulk(cache.alloc_bulk(150, cpu=1), cpu=2)
            except slabq.Error as error:
                refused.append(str(error))

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    try:
        for _ in range(rounds):
            act(caches)
    finally:
        done.set()
        for worker in workers:
            worker.join()
    return refused


@pytest.mark.threads
def test_a_cache_can_be_destroyed_while_others_use_it_and_they_are_told(allocator):
    def replace(caches):
        caches[0].destroy()
        caches[0] = allocator.create_cache("shared", 96)

    refused = bulk_beside(allocator, "shared", replace)

    assert set(refused) <= {"cache shared is destroyed"}
    allocator.check()


@pytest.mark.threads
@pytest.mark.parametrize("look", ["check", "snapshot", "usage"])
def test_whoever_looks_at_a_cache_sees_it_between_the_calls_of_others(allocator, look):
    refused = bulk_beside(allocator, "seen", lambda caches: getattr(caches[0], look)())

    assert refused == []
    allocator.check()


def test_an_address_twice_in_a_bulk_is_told_and_none_of_it_freed(cache):
    addresses = cache.alloc_bulk(3)

    with pytest.raises(slabq.CorruptionError, match="more than once: double free"):
        cache.free_bulk([*addresses, addresses[1]])

    cache.free_bulk(addresses)
