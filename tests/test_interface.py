"""The kmem_cache interface, the same for every policy: constructors, krealloc, names,
leaks, CPUs that go and come, and the reaper's clock."""

import gzip
import json

import pytest
from every_kernel import FOUR_NODES, KERNELS, MIB, POLICIES, machine, make

import slabq


@pytest.fixture(params=KERNELS, ids=lambda k: f"{k[0]}-{k[1]}-{k[2]}")
def allocator(request):
    name, kernel, options = request.param
    return slabq.Allocator(
        name, machine=machine(), kernel=kernel, slab_nomerge=True, **options
    )


# -- constructors ----------------------------------------------------------------------


@pytest.mark.parametrize("size", [8, 24, 60, 200, 700, 5000])
def test_a_constructor_writes_its_pattern_over_the_whole_object(allocator, size):
    cache = allocator.create_cache("made", size, constructor=b"abc")
    objects = [cache.alloc(cpu=cpu) for cpu in (0, 5) for _ in range(20)]

    assert {allocator.read(o, size) for o in objects} == {(b"abc" * size)[:size]}


def test_an_object_keeps_what_it_holds_from_its_free_to_its_next_use(allocator):
    cache = allocator.create_cache("made", 64, constructor=bytes(64))
    first = cache.alloc()
    allocator.write(first, b"x" * 64)
    cache.free(first)
    again = cache.alloc_bulk(cache.geometry()["num"])

    kept = [o for o in again if allocator.read(o, 64) == b"x" * 64]
    fresh = [o for o in again if allocator.read(o, 64) == bytes(64)]
    assert kept == [first]
    assert len(fresh) == len(again) - 1


@pytest.mark.parametrize("constructor", [b"", b"x" * 65, "text", lambda o: None])
def test_a_constructor_that_is_no_pattern_of_an_object_is_refused(constructor):
    with pytest.raises(slabq.ParameterError, match="constructor"):
        make("slub", "6.1").create_cache("made", 64, constructor=constructor)


# -- krealloc --------------------------------------------------------------------------


def test_krealloc_grows_in_place_within_ksize(allocator):
    address = allocator.kmalloc(40)
    room = allocator.ksize(address)

    assert allocator.krealloc(address, room) == address
    assert allocator.krealloc(address, 1) == address
    assert allocator.live_count() == 1


@pytest.mark.parametrize("size", [65, 100, 3000, 20000, 1 << 20])
def test_krealloc_beyond_ksize_moves_and_copies_what_was_there(allocator, size):
    address = allocator.kmalloc(64)
    allocator.write(address, bytes(range(64)))

    moved = allocator.krealloc(address, size, cpu=5)

    assert moved != address
    assert allocator.read(moved, 64) == bytes(range(64))
    assert allocator.ksize(moved) >= size
    assert allocator.live_count() == 1
    with pytest.raises(slabq.CorruptionError):
        allocator.kfree(address)
    allocator.kfree(moved)
    allocator.check()


def test_krealloc_of_nil_allocates_and_to_nothing_frees(allocator):
    address = allocator.krealloc(0, 100)

    assert allocator.live_count() == 1
    assert allocator.krealloc(address, 0) == 0
    assert allocator.live_count() == 0


def test_krealloc_without_memory_leaves_the_old_block_live(allocator):
    address = allocator.kmalloc(64)
    allocator.write(address, b"kept")

    with pytest.raises(slabq.OutOfMemory):
        allocator.krealloc(address, 1 << 30)

    assert allocator.read(address, 4) == b"kept"
    allocator.kfree(address)


def test_krealloc_of_what_kmalloc_did_not_give_is_refused(allocator):
    cache = allocator.create_cache("own", 64)
    for address in (cache.alloc(), 4096):
        with pytest.raises(slabq.CorruptionError):
            allocator.krealloc(address, 200)


# -- destroying ------------------------------------------------------------------------


def test_destroying_tells_how_many_objects_leak_and_where_the_first_lie(allocator):
    cache = allocator.create_cache("leaky", 64)
    objects = cache.alloc_bulk(30)
    places = sorted(cache.locate(o) for o in objects[3:])
    cache.free_bulk(objects[:3])

    leaks = cache.destroy()

    assert leaks == 27
    assert leaks.places == tuple(places[:10])


def test_destroying_an_unused_cache_leaks_nothing(allocator):
    leaks = allocator.create_cache("clean", 64).destroy()

    assert (leaks, leaks.places) == (0, ())


# -- merging ---------------------------------------------------------------------------

MERGING = [("slub", "2.6.35"), ("slub", "6.18"), ("slab", "4.19"), ("slab", "6.1")]
MERGING += [("slub+q", "2.6.35")]
merging = pytest.mark.parametrize(("policy", "kernel"), MERGING)


@merging
def test_caches_of_like_size_share_their_slabs(policy, kernel):
    allocator = make(policy, kernel)
    first = allocator.create_cache("first", 1000)
    second = allocator.create_cache("second", 996)
    objects = [first.alloc(), second.alloc()]

    assert first.usage()["objects_allocated"] == 2
    assert first.alias_names == second.alias_names == ("second",)
    assert (first.name, second.name) == ("first", "second")
    second.free(objects[0])
    first.free(objects[1])
    allocator.check()


@merging
@pytest.mark.parametrize(
    "other",
    [
        {"size": 992},  # a word smaller: another slot
        {"size": 1001},
        {"reclaim_account": True},
        {"typesafe_by_rcu": True},
        {"no_merge": True},
        {"constructor": b"x"},
        {"align": 64},
    ],
    ids=str,
)
def test_caches_that_differ_are_not_merged(policy, kernel, other):
    allocator = make(policy, kernel)
    first = allocator.create_cache("first", 1000)
    second = allocator.create_cache("second", **{"size": 1000} | other)
    second.alloc()

    assert first.usage()["objects_allocated"] == 0
    assert first.alias_names == ()


@pytest.mark.parametrize("flag", ["red_zone", "poison", "store_user"])
def test_a_cache_with_debugging_is_not_merged(flag):
    allocator = make("slub", "6.1")
    allocator.create_cache("first", 1000)
    cache = allocator.create_cache("second", 1000, **{flag: True})

    assert cache.alias_names == ()
    assert cache.sysfs_name == "second"


@pytest.mark.parametrize(
    ("policy", "kernel"), [("slab", "2.6.25"), ("slab", "2.6.35"), ("slab", "3.2")]
)
def test_slab_merges_nothing_before_3_18(policy, kernel):
    allocator = make(policy, kernel)
    allocator.create_cache("first", 1000)

    assert allocator.create_cache("second", 1000).alias_names == ()


@merging
def test_slab_nomerge_keeps_every_cache_apart(policy, kernel):
    allocator = make(policy, kernel, slab_nomerge=True)
    first = allocator.create_cache("first", 1000)

    assert allocator.create_cache("second", 1000).alias_names == ()
    assert first.sysfs_name == "first"


@pytest.mark.parametrize(
    ("kernel", "merged"), [("2.6.25", True), ("3.2", True), ("6.18", False)]
)
def test_kmalloc_caches_take_part_until_they_are_guarded_for_users(kernel, merged):
    allocator = make("slub", kernel)
    cache = allocator.create_cache("mine", 512)
    cache.alloc()

    by_name = {one["name"]: one for one in allocator.caches()}
    assert ("mine" in by_name["kmalloc-512"]["aliases"]) == merged
    assert by_name["kmalloc-512"]["objects_allocated"] == int(merged)


@pytest.mark.parametrize("policy", ["slub", "slub+q"])
def test_a_merged_cache_has_the_largest_object_and_in_use_bytes(policy):
    allocator = make(policy, "2.6.35")
    first = allocator.create_cache("first", 40, align=64, reclaim_account=True)
    assert (first.object_size, first.geometry()["inuse"]) == (40, 40)

    second = allocator.create_cache("second", 57, align=64, reclaim_account=True)

    assert (first.object_size, first.geometry()["inuse"]) == (57, 64)
    assert (first.size, second.size, second.aliases) == (40, 57, 1)


def test_slab_colours_keep_the_alignment_of_every_merged_cache():
    allocator = make("slab", "6.1")
    allocator.create_cache("loose", 768)
    strict = allocator.create_cache("strict", 768, align=256)

    assert strict.alias_names == ()
    assert all(address % 256 == 0 for address in strict.alloc_bulk(100))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, ":0001000"),
        ({"reclaim_account": True}, ":a-0001000"),
        ({"consistency_checks": True}, ":F-0001000"),
        ({"consistency_checks": True, "reclaim_account": True}, ":aF-0001000"),
        ({"hwcache_align": True}, ":0001024"),
        ({"typesafe_by_rcu": True}, "example"),
    ],
    ids=str,
)
def test_sysfs_knows_a_mergeable_cache_by_flags_and_slot_size(options, name):
    cache = make("slub", "6.1").create_cache("example", 1000, **options)

    assert cache.sysfs_name == name


@merging
def test_destroying_a_name_keeps_the_cache_for_the_others(policy, kernel):
    allocator = make(policy, kernel)
    names = [allocator.create_cache(name, 1000) for name in ("a", "b", "c")]
    kept = names[1].alloc()

    assert names[0].destroy() == 0
    assert names[2].alias_names == ("b", "c")
    with pytest.raises(slabq.ParameterError, match="cache a is destroyed"):
        names[0].alloc()
    assert names[1].destroy() == 0
    names[2].free(kept)
    leaked = names[2].alloc()
    place = names[2].locate(leaked)
    assert [*names[2].destroy().places] == [place]
    assert allocator.live_count() == 0
    assert "a" not in [one["name"] for one in allocator.caches()]


def test_scripts_merge_nothing_whatever_the_kernel_does():
    script = "cache one 1000 0 -\ncache two 1000 0 -\na 0 0 1\na 1 0 1\n"
    lines = slabq.execute(script, "slub", machine=machine(), kernel="6.1").splitlines()

    assert [json.loads(line)["objs"] for line in lines[2:]] == [[[0, 0]], [[0, 0]]]


# -- CPUs that go and come -------------------------------------------------------------


def held_by_cpu(cache, cpu):
    """What the policy's own words say a CPU holds."""
    snapshot = cache.snapshot()
    listed = snapshot.get("cpu_arrays", snapshot.get("cpus", []))
    found = next((one for one in listed if one["cpu"] == cpu), {})
    return (
        found.get("avail", 0)
        + found.get("objects", 0)
        + (found.get("slab", -1) != -1)
        + len(found.get("cpu_partial", []))
    )


def test_a_cpu_that_goes_offline_gives_up_what_it_holds(allocator):
    cache = allocator.create_cache("example", 64)
    objects = cache.alloc_bulk(200, cpu=3)
    cache.free_bulk(objects[:100], cpu=3)
    assert held_by_cpu(cache, 3) > 0

    allocator.offline_cpu(3)

    assert held_by_cpu(cache, 3) == 0
    allocator.check()
    cache.free_bulk(objects[100:], cpu=0)
    allocator.check()
    cache.shrink()
    assert cache.usage()["slabs"] == 0


def test_no_call_may_name_a_cpu_that_is_offline(allocator):
    cache = allocator.create_cache("example", 64)
    objects = cache.alloc_bulk(3)
    memory = allocator.kmalloc(8)
    allocator.offline_cpu(2)
    calls = [
        lambda: cache.alloc(cpu=2),
        lambda: cache.free(objects[0], cpu=2),
        lambda: cache.alloc_bulk(5, cpu=2),
        lambda: cache.free_bulk(objects, cpu=2),
        lambda: cache.shrink(cpu=2),
        lambda: allocator.kmalloc(8, cpu=2),
        lambda: allocator.kfree(memory, cpu=2),
        lambda: allocator.krealloc(memory, 500, cpu=2),
        lambda: allocator.offline_cpu(2),
    ]

    for call in calls:
        with pytest.raises(slabq.ParameterError, match="cpu is 2, which is offline"):
            call()

    assert allocator.live_count() == 4
    allocator.check()
    allocator.online_cpu(2)
    cache.free_bulk(objects, cpu=2)


def test_every_cpu_but_the_last_may_go_and_come_back(allocator):
    cache = allocator.create_cache("example", 200)
    for cpu in range(8):
        cache.alloc_bulk(50, cpu=cpu)
    for cpu in range(7):
        allocator.offline_cpu(cpu)
    allocator.check()
    allocator.create_cache("made meanwhile".replace(" ", "_"), 300).alloc(cpu=7)

    with pytest.raises(slabq.ParameterError, match="last one online"):
        allocator.offline_cpu(7)
    assert allocator.online_cpus == [7]
    for cpu in range(7):
        allocator.online_cpu(cpu)
        cache.free(cache.alloc(cpu=cpu), cpu=7)
    with pytest.raises(slabq.ParameterError, match="which is online"):
        allocator.online_cpu(0)

    allocator.check()
    assert cache.usage()["objects_allocated"] == 400


@pytest.mark.parametrize("kernel", ["2.6.25", "2.6.35", "6.1"])
def test_slab_keeps_a_batch_less_on_a_node_for_each_cpu_that_is_gone(kernel):
    allocator = make("slab", kernel, slab_nomerge=True)
    cache = allocator.create_cache("example", 256)
    limits = [[node[1] for node in cache.geometry()["nodes"]]]
    for change in (allocator.offline_cpu, allocator.online_cpu):
        change(1)
        limits.append([node[1] for node in cache.geometry()["nodes"]])

    batch, num = cache.geometry()["batchcount"], cache.geometry()["num"]
    full = (1 + 4) * batch + num  # four CPUs a node and one more
    assert limits == [[full, full], [full - batch, full], [full, full]]


@pytest.mark.parametrize("kernel", ["2.6.35", "6.1"])
def test_slab_closes_a_node_with_its_last_cpu(kernel):
    allocator = make("slab", kernel, slab_nomerge=True)
    cache = allocator.create_cache("example", 256)
    away = cache.alloc_bulk(5, cpu=0)
    cache.free_bulk(cache.alloc_bulk(400, cpu=4), cpu=4)
    cache.free_bulk(away, cpu=4)  # wait on node 1 for node 0
    node = cache.snapshot()["nodes"][1]
    assert (node["shared"]["avail"] > 0, node["alien"][0]["avail"]) == (True, 5)

    for cpu in (4, 5, 6, 7):
        allocator.offline_cpu(cpu)

    node = cache.snapshot()["nodes"][1]
    assert ("shared" in node, node["alien"], node["total_slabs"]) == (False, [], 0)
    allocator.check()
    # What other nodes bring home now goes to slabs at once.
    stray = [cache.alloc(cpu=0, node=1) for _ in range(40)]
    cache.free_bulk(stray, cpu=0)
    allocator.check()
    allocator.online_cpu(5)
    assert cache.snapshot()["nodes"][1]["shared"]["avail"] == 0
    cache.free(cache.alloc(cpu=5), cpu=5)
    allocator.check()


# -- the reaper's clock ----------------------------------------------------------------


def test_each_cpu_reaps_every_two_seconds_from_the_first_on():
    allocator = slabq.Allocator("slab", machine=machine(4, 1))

    assert [allocator.advance(1) for _ in range(8)] == [4, 0, 4, 0, 4, 0, 4, 0]
    assert allocator.clock == 8.0


def test_cpus_reap_one_after_the_other_thirty_milliseconds_apart():
    allocator = slabq.Allocator("slab", machine=machine(4, 1))

    passes = [allocator.advance(0.01) for _ in range(100)]

    assert [90 < tick < 100 for tick, count in enumerate(passes, 1) if count] == [
        True,
        True,
        True,
        False,
    ]
    assert [tick for tick, count in enumerate(passes, 1) if count] == [91, 94, 97, 100]


@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "slab"])
def test_time_passes_without_a_reaper_too(policy):
    allocator = slabq.Allocator(policy, machine=machine())

    assert allocator.advance(3.5) == 0
    assert allocator.clock == 3.5


def test_a_cpu_that_is_offline_does_not_reap():
    allocator = slabq.Allocator("slab", machine=machine(4, 1))
    allocator.offline_cpu(1)
    assert allocator.advance(10) == 3 * 5
    allocator.online_cpu(1)
    assert allocator.advance(10) == 4 * 5


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), 1e9, "1", None])
def test_time_that_cannot_pass_is_refused(seconds):
    with pytest.raises(slabq.ParameterError, match="seconds is"):
        make("slab", "6.1").advance(seconds)


def test_an_array_in_use_is_spared_once_and_then_loses_a_fifth_of_its_limit():
    allocator = slabq.Allocator("slab", machine=machine(1, 1), slab_nomerge=True)
    cache = allocator.create_cache("example", 64)
    # One slab: refills of 16 and the other 48, so that the array ends empty.
    cache.free_bulk(cache.alloc_bulk(64))

    def avail():
        arrays = cache.snapshot()["cpu_arrays"]
        return arrays[0]["avail"] if arrays else 0

    found = [avail()]
    for _ in range(9):
        allocator.advance(2)
        found.append(avail())

    # A fifth of 120 is 24; less than that goes by halves, rounded up.
    assert found == [64, 64, 40, 16, 8, 4, 2, 1, 0, 0]


@pytest.mark.parametrize("kernel", ["2.6.25", "2.6.35", "6.1"])
def test_an_idle_cache_gives_everything_back_in_time(kernel):
    allocator = make("slab", kernel, slab_nomerge=True)
    cache = allocator.create_cache("example", 256)
    cache.free_bulk(cache.alloc_bulk(1000, cpu=0), cpu=0)
    cache.free_bulk(cache.alloc_bulk(11, cpu=0), cpu=4)  # wait in an alien array
    bytes_held = [cache.usage()["slab_bytes"]]
    for _ in range(60):
        allocator.advance(4)
        bytes_held.append(cache.usage()["slab_bytes"])
        allocator.check()

    assert bytes_held == sorted(bytes_held, reverse=True)
    assert bytes_held[0] > 0
    assert bytes_held[-1] == 0


def recorded_states(shared):
    """Command lines of the recording, then what changes from `brief` to `brief`."""
    path = shared / "oracle" / "timed" / "reap-slab-n4c16.jsonl.gz"
    with gzip.open(path, "rt") as file:
        lines = [json.loads(line) for line in file]
    commands = [line["cmd"] for line in lines if "cmd" in line]
    # A command is shown cut; the numbers of a free are listed beside it.
    frees = [line for line in lines if line.get("op") == "free"]
    for line in frees:
        first, last = line["ids"][0], line["ids"][-1]
        text = f"f {line['cache']} {line['cpu']} {first}-{last}"
        commands[commands.index(line["cmd"])] = text
    return commands, distinct(line for line in lines if "brief" in line)


def distinct(lines):
    """States without their times, each run of equal ones once."""
    found = []
    for line in lines:
        nodes = [node[:5] + node[6:] for node in line["nodes"]]
        if not found or found[-1] != (line["cpus"], nodes):
            found.append((line["cpus"], nodes))
    return found


# The passes that the recorded kernel made, as its states tell: which CPU, and whether
# the node's part was due. Boot time and a held mutex decided when; a pass that changes
# nothing that is printed (it clears the shared array's mark) must be one of them.
RECORDED_PASSES = """\
reap 0 0 0
reap 0 1 1
reap 0 1 1
reap 0 1 1
reap 0 0 0
reap 0 1 1
reapnode 5 0
reap 0 5 0
reap 0 1 1
reap 0 1 1
reap 0 1 1
reap 0 1 1
""".splitlines()


def test_reaping_goes_through_the_states_of_a_recorded_kernel(shared):
    commands, recorded = recorded_states(shared)
    script = [*commands, "brief 0"]
    for line in RECORDED_PASSES:
        script += [line, "brief 0"]
    sixteen = slabq.Machine(cpus=16, nodes=4, distance=FOUR_NODES, node_bytes=64 * MIB)
    output = slabq.execute("\n".join(script), "slab", machine=sixteen, kernel="6.1")
    lines = [json.loads(line) for line in output.splitlines()]
    found = distinct(line for line in lines if "brief" in line)

    assert len(recorded) > 8
    assert found == recorded


def test_sleep_lets_the_scripts_reaper_run_and_brief_tells_the_time():
    script = "cache r 256 0 h\na 0 0 300\nf 0 0 0-299\nbrief 0\nsleep 20500\nbrief 0\n"
    output = slabq.execute(script, "slab", machine=machine(4, 1), kernel="6.1")
    lines = [json.loads(line) for line in output.splitlines()]
    briefs = [line for line in lines if "brief" in line]

    assert [line["jiffies"] for line in briefs] == [0, 2050]
    assert len(lines) == 5  # sleep prints nothing
    assert sum(cpu[0] for cpu in briefs[1]["cpus"]) < sum(
        cpu[0] for cpu in briefs[0]["cpus"]
    )
    assert 0 < briefs[1]["nodes"][0][5] <= 400  # the next look is within 4 s
