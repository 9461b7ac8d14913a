"""The files of /sys/kernel/slab: text, properties, what may be written, by release."""

import pytest

import slabq
from slabq.policy import Slub, SlubQ
from slabq.sysfs import attribute_names, format_counts

FOUR_NODES = slabq.Machine(cpus=16, nodes=4)


def make(policy="slub", machine=FOUR_NODES, **options):
    options.setdefault("kernel", "6.1" if policy in ("slab", "slub") else None)
    return slabq.Allocator(policy, machine=machine, **options)


@pytest.mark.parametrize(
    ("counts", "text"),
    [([0], "0"), ([5], "5 N0=5"), ([1, 0, 2], "3 N0=1 N2=2"), ([0, 0], "0")],
)
def test_counts_by_node_leave_out_nodes_that_have_none(counts, text):
    assert format_counts(counts) == text


# A slab of this cache is one page with 64 slots of 64 bytes. CPU 0 (node 0) fills two
# and begins a third, CPU 5 (node 1) begins one. Then one object of the first full slab
# is freed on CPU 0, and all but two of the second on CPU 1.
@pytest.fixture
def used():
    cache = make().create_cache("example", 60, align=32, hwcache_align=True)
    objects = [cache.alloc(cpu=0) for _ in range(130)]
    cache.alloc(cpu=5)
    cache.free(objects[0], cpu=0)
    for address in objects[64:126]:
        cache.free(address, cpu=1)
    return cache


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("object_size", "60"),
        ("slab_size", "64"),
        ("align", "64"),
        ("objs_per_slab", "64"),
        ("order", "0"),
        ("aliases", "0"),
        ("hwcache_align", "1"),
        ("reclaim_account", "0"),
        ("destroy_by_rcu", "0"),
        ("slabs", "4 N0=3 N1=1"),
        ("total_objects", "256 N0=192 N1=64"),
        ("objects", "256 N0=192 N1=64"),  # no slab is on a node's list
        ("objects_partial", "0"),
        ("partial", "0"),
        # slabs of CPUs 0 and 5, and one each on the lists of CPUs 0 and 1
        ("cpu_slabs", "4 N0=3 N1=1"),
        ("slabs_cpu_partial", "64(2) C0=32(1) C1=32(1)"),
        ("min_partial", "5"),
        ("cpu_partial", "120"),
        ("remote_node_defrag_ratio", "100"),
        ("alloc_fastpath", "127 C0=127"),
        ("alloc_slowpath", "4 C0=3 C5=1"),
        ("free_slowpath", "63 C0=1 C1=62"),
        ("cpu_partial_free", "2 C0=1 C1=1"),
        ("free_fastpath", "0"),
    ],
)
def test_a_file_reads_as_the_kernel_prints_it(used, name, text):
    assert used.sysfs(name) == text


def test_properties_are_numbers(used):
    assert (used.slabs, used.total_objects, used.objects) == (4, 256, 256)
    assert (used.partial, used.objects_partial, used.cpu_slabs) == (0, 0, 4)
    assert used.by_node("cpu_slabs") == {0: 3, 1: 1, 2: 0, 3: 0}
    assert used.slabs_cpu_partial == {0: (32, 1), 1: (32, 1)}
    assert (used.hwcache_align, used.reclaim_account) == (True, False)


def test_shrinking_moves_what_cpus_hold_to_the_nodes(used):
    used.shrink()

    # Four slabs with 63, 2, 2 and 1 objects.
    assert used.sysfs("partial") == "4 N0=3 N1=1"
    assert used.sysfs("objects") == used.sysfs("objects_partial") == "68 N0=67 N1=1"
    assert used.sysfs("cpu_slabs") == "0"
    assert used.sysfs("slabs_cpu_partial") == "0(0)"


def test_until_5_15_the_lists_count_objects():
    cache = make(kernel="5.15", machine=slabq.Machine(cpus=2)).create_cache("x", 64)
    objects = [cache.alloc(cpu=0) for _ in range(65)]
    cache.free(objects[0], cpu=0)
    cache.free(objects[1], cpu=0)

    # One object was free when the slab was put there.
    assert cache.sysfs("slabs_cpu_partial") == "1(1) C0=1(1)"


# -- releases --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "without", "with_it"),
    [
        ("min_partial", "2.6.24", "2.6.35"),
        ("objects_partial", "2.6.25", "2.6.35"),
        ("total_objects", "2.6.25", "2.6.35"),
        ("remote_node_defrag_ratio", "2.6.24", "2.6.25"),
        ("defrag_ratio", "2.6.25", "2.6.24"),
        ("alloc_fastpath", "2.6.24", "2.6.25"),
        ("order_fallback", "2.6.25", "2.6.35"),
        ("cpu_partial", "2.6.35", "3.2"),
        ("slabs_cpu_partial", "2.6.35", "3.2"),
        ("cmpxchg_double_fail", "2.6.35", "3.2"),
        ("cpu_partial_alloc", "2.6.35", "3.2"),
        ("cpu_partial_drain", "3.2", "4.19"),
        ("usersize", "6.1", "6.18"),
        ("sheaf_capacity", "6.1", "6.18"),
    ],
)
def test_a_release_has_the_files_of_its_time(name, without, with_it):
    assert name in attribute_names(Slub(kernel=with_it))
    assert name not in attribute_names(Slub(kernel=without))
    old = make(kernel=without).create_cache("old", 64)
    with pytest.raises(slabq.ParameterError, match=f"file of slub {without}"):
        old.sysfs(name)


@pytest.mark.parametrize("kernel", list(slabq.kernel_profiles("slub")))
def test_every_file_of_every_release_can_be_read(kernel):
    cache = make(kernel=kernel).create_cache("example", 64)
    cache.alloc()

    texts = {name: cache.sysfs(name) for name in attribute_names(Slub(kernel=kernel))}

    assert texts["slabs"] == "1 N0=1"
    assert all("\n" not in text and text for text in texts.values())


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_every_file_of_every_posting_can_be_read(version):
    cache = make("slub+q", version=version).create_cache("example", 64)
    cache.alloc()

    for name in attribute_names(SlubQ(version=version)):
        assert cache.sysfs(name)


def test_a_cache_with_sheaves_shows_their_capacity_and_counters():
    cache = make("sheaves").create_cache("example", 64, sheaf_capacity=32)
    cache.free(cache.alloc(cpu=3), cpu=3)

    assert cache.sheaf_capacity == 32
    assert cache.sysfs("sheaf_capacity") == "32"
    assert cache.sysfs("free_cpu_sheaf") == "1 C3=1"


def test_slab_has_no_files_but_the_properties_of_its_slabs():
    cache = make("slab").create_cache("example", 64)
    cache.alloc()

    assert (cache.slabs, cache.objects, cache.order) == (1, 16, 0)
    with pytest.raises(slabq.ParameterError, match="only slub, sheaves and slub\\+q"):
        cache.sysfs("slabs")
    for name in ("cpu_slabs", "slabs_cpu_partial", "cpu_queues", "min_partial"):
        with pytest.raises(slabq.ParameterError, match=f"has no {name}"):
            getattr(cache, name)


def test_a_destroyed_cache_has_no_files():
    cache = make().create_cache("gone", 64)
    cache.destroy()

    for read in (lambda: cache.slabs, lambda: cache.sysfs("slabs"), cache._view):
        with pytest.raises(slabq.ParameterError, match="cache gone is destroyed"):
            read()
    with pytest.raises(slabq.ParameterError, match="cache gone is destroyed"):
        cache.min_partial = 5


def test_a_kernel_without_cpu_partial_lists_shows_none():
    cache = make(slub_cpu_partial=False).create_cache("example", 64)
    cache.alloc()

    assert cache.cpu_partial == 0
    assert cache.sysfs("cpu_partial") == "0"
    assert cache.sysfs("slabs_cpu_partial") == "0(0)"


# -- SLUB+Q ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "texts"),
    [
        # 60 of 64 are taken from a slab, one of them is handed out
        (
            2,
            {
                "cpu_queues": "59 C5=59",
                "cpu_queue_size": "120",
                "cpu_batch_size": "60",
                "objects": "60 N1=60",
                "remote_node_defrag_ratio": "100",
            },
        ),
        # memory is whole lines, so 120 asked for are 125
        (
            3,
            {
                "per_cpu_caches": "59 C5=59/125",
                "queue_size": "120",
                "batch_size": "60",
                "cpu_queue_size": "125",
            },
        ),
    ],
)
def test_the_files_of_queues_are_those_of_the_posting(version, texts):
    cache = make("slub+q", version=version).create_cache("example", 64)
    cache.alloc(cpu=5)

    assert {name: cache.sysfs(name) for name in texts} == texts
    assert cache.cpu_queues == {cpu: 59 if cpu == 5 else 0 for cpu in range(16)}
    assert (cache.queue_size, cache.batch_size) == (120, 60)


def test_v4_marks_queues_that_were_not_touched():
    machine = slabq.Machine(cpus=4, nodes=2)
    cache = make("slub+q", machine=machine, version=4).create_cache("example", 64)
    room = cache.snapshot()["shared"][0]["max"]
    alien = cache.alien_queue_size
    objects = [cache.alloc(cpu=2) for _ in range(3)]
    cache.free(objects[0], cpu=0)  # an object of node 1

    assert cache.sysfs("per_cpu_caches") == "13 C0=0/125* C1=0/125* C2=13/125 C3=0/125*"
    # The refill looked into the shared queue of CPUs 2 and 3, which marks it in use.
    assert cache.sysfs("shared_caches") == f"0 C0,1=0/{room}* C2,3=0/{room}"
    assert cache.sysfs("alien_caches") == (
        f"1 C0,1=1[N1=1/{alien}] C2,3=0[N0=0/{alien}*]"
    )
    assert cache.sysfs("shared_queue_size") == f"{room} 600"  # ten batches asked for


# -- writing ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "options", "name", "values"),
    [
        ("slub", {}, "min_partial", (0, 7, 1000)),
        ("slub", {"kernel": "5.15"}, "min_partial", (5, 10)),
        ("slub", {}, "cpu_partial", (0, 30)),
        ("slub", {}, "remote_node_defrag_ratio", (0, 50, 100)),
        ("slub+q", {"version": 2}, "cpu_queue_size", (4, 200, 10000)),
        ("slub+q", {"version": 3}, "shared_queue_size", (4, 50)),
        ("slub+q", {"version": 2}, "min_partial", (5, 10)),
    ],
)
def test_what_the_kernel_lets_be_written_can_be_set(policy, options, name, values):
    cache = make(policy, **options).create_cache("example", 64)

    for value in values:
        setattr(cache, name, value)
        assert getattr(cache, name) == value
    cache.check()


def test_the_ratio_is_a_tenth_of_what_the_allocator_compares():
    cache = make().create_cache("example", 64)

    cache.remote_node_defrag_ratio = 37

    assert cache.geometry()["remote_node_defrag_ratio"] == 370


@pytest.mark.parametrize(
    ("policy", "options", "name", "value", "message"),
    [
        ("slub", {}, "min_partial", -1, "accepted are 0 to 2147483647"),
        ("slub", {"kernel": "5.15"}, "min_partial", 11, "accepted are 5 to 10"),
        ("slub", {}, "min_partial", "many", "min_partial of cache example is 'many'"),
        ("slub", {}, "remote_node_defrag_ratio", 101, "accepted are 0 to 100"),
        ("slub", {"kernel": "2.6.25"}, "remote_node_defrag_ratio", 100, "0 to 99"),
        ("slub", {"slub_cpu_partial": False}, "cpu_partial", 1, "accepted are 0 to 0"),
        ("slub", {}, "cpu_queue_size", 10, "accepted are none with policy slub"),
        ("slub+q", {}, "cpu_queue_size", 3, "accepted are 4 to 10000"),
        ("slub+q", {}, "cpu_partial", 3, "accepted are none with policy slub"),
        ("slab", {}, "min_partial", 3, "accepted are none with policy slab"),
    ],
)
def test_a_value_that_the_kernel_does_not_take_is_refused(
    policy, options, name, value, message
):
    cache = make(policy, **options).create_cache("example", 64)
    before = cache.geometry()

    with pytest.raises(slabq.ParameterError, match=message):
        setattr(cache, name, value)
    assert cache.geometry() == before


def test_what_is_read_only_says_what_may_be_set():
    cache = make().create_cache("example", 64)

    with pytest.raises(AttributeError, match="accepted are min_partial, cpu_partial"):
        cache.slabs = 3


def test_an_unknown_count_is_refused():
    cache = make().create_cache("example", 64)

    with pytest.raises(slabq.ParameterError, match="slabs"):
        cache.by_node("slab")
