"""/proc/slabinfo: rows of real kernels, and what is printed of no or little."""

import pytest
from oracle_suite import KEPT_ASIDE, ORACLE

import slabq
from slabq.slabinfo import format_slab_statistics, format_slabinfo

BOOT = ORACLE / "boot"

needs_recordings = pytest.mark.skipif(not BOOT.exists(), reason=KEPT_ASIDE)


def machine_of(topology):
    nodes, cpus = topology[1:].split("c")
    return slabq.Machine(cpus=int(cpus), nodes=int(nodes))


def rows_of(name):
    """Rows of a recorded slabinfo that hold a name, by name, as they stand."""
    lines = (BOOT / name).read_text().splitlines()[2:]
    return {line.split()[0]: line for line in lines}


def numbers(line):
    """active_objs num_objs objsize objperslab pagesperslab, tunables, slabdata."""
    return [int(word) for word in line.split()[1:] if word.isdecimal()]


def line_of(allocator, name, **options):
    lines = allocator.slabinfo(**options).splitlines()[2:]
    return next(line for line in lines if line.split()[0] == name)


def free_without_emptying(cache, objects, count, most):
    """Free `count` objects, of no slab more than `most`."""
    taken = {}
    for address in objects:
        slab = cache.locate(address).slab
        if count > 0 and taken.get(slab, 0) < most:
            taken[slab] = taken.get(slab, 0) + 1
            count -= 1
            cache.free(address)
    assert count == 0


# -- SLUB ------------------------------------------------------------------------------

SLUB_BOOTS = [
    *(("slub", topology) for topology in ("n1c1", "n1c2", "n1c8", "n1c16", "n4c16")),
    ("slubnocp", "n1c16"),  # without cpu partial lists
]


def make_slub_state(allocator, name, line):
    """Fill slabs up, then free into their nodes' lists what is not active."""
    active, total, size, slots = numbers(line)[:4]
    cache = allocator.create_cache(name, size)
    objects = cache.alloc_bulk(total)
    cpu_partial = cache.cpu_partial
    free_without_emptying(cache, objects, total - active, slots - 1)
    cache.cpu_partial = cpu_partial  # writing it empties the CPUs' lists


@needs_recordings
@pytest.mark.parametrize(("build", "topology"), SLUB_BOOTS)
def test_every_row_of_a_booted_slub_is_reached_column_for_column(build, topology):
    rows = rows_of(f"slabinfo-{build}-{topology}.txt")
    wrong = {}

    for name, line in rows.items():
        allocator = slabq.Allocator(
            "slub",
            kernel="6.1",
            machine=machine_of(topology),
            slub_cpu_partial=build == "slub",
        )
        make_slub_state(allocator, name, line)
        got = allocator.slabinfo().splitlines()[2]  # the newest
        if got != line:
            wrong[line] = got

    assert len(rows) == 99
    assert not wrong, f"{len(wrong)} rows, first: {next(iter(wrong.items()))}"


# -- SLAB ------------------------------------------------------------------------------


def make_slab_cache(allocator, name, line):
    """A cache whose calls reach the slabs, and the tunables it is to have in the end.

    Two slots do not tell what the cache was made with. One of 64 bytes 63 times in a
    page is that of a smaller object on a cache line: a free one has no room for the
    indexes of 64. And sockets' inodes are SLAB_RECLAIM_ACCOUNT: the order stays 0.
    """
    size, slots = numbers(line)[2:4]
    request = {
        (64, 63): {"size": 56, "hwcache_align": True},
        (704, 5): {"size": 704, "reclaim_account": True},
    }
    cache = allocator.create_cache(name, **request.get((size, slots), {"size": size}))
    limit, batchcount, shared = numbers(line)[5:8]
    cache.tune(shared=0, batchcount=1, limit=1)
    return cache, {"limit": limit, "batchcount": batchcount, "shared": shared}


def plain_rows(name):
    """Rows whose slabs all have active objects and whose shared arrays are empty."""
    return {
        name: line
        for name, line in rows_of(name).items()
        if numbers(line)[8] == numbers(line)[9] and numbers(line)[10] == 0
    }


@needs_recordings
@pytest.mark.parametrize("topology", ["n1c1", "n1c2", "n1c8", "n1c16", "n4c16"])
def test_rows_of_a_booted_slab_are_reached_column_for_column(topology):
    rows = plain_rows(f"slabinfo-slab-{topology}.txt")
    wrong = {}

    for name, line in rows.items():
        allocator = slabq.Allocator("slab", kernel="6.1", machine=machine_of(topology))
        active, total, _, slots = numbers(line)[:4]
        cache, tunables = make_slab_cache(allocator, name, line)
        objects = [cache.alloc() for _ in range(total)]
        free_without_emptying(cache, objects, total - active, max(slots - 1, 1))
        cache.tune(**tunables)  # which sends what arrays hold to the slabs
        got = allocator.slabinfo().splitlines()[2]
        want = line.partition(" : globalstat")[0]
        if got != want:
            wrong[want] = got

    assert len(rows) >= 10
    assert not wrong, f"{len(wrong)} rows, first: {next(iter(wrong.items()))}"


# Row -> frees on another node and refills of untouched CPUs. A full alien array (12)
# goes to the shared array of the objects' node; an untouched CPU takes 16 of it back.
SHARED_ROWS = {
    "vm_area_struct": (25, 0),  # 24
    "anon_vma_chain": (25, 0),
    "anon_vma": (25, 0),
    "radix_tree_node": (37, 2),  # 36 - 32
    "kmalloc-512": (37, 1),  # 36 - 16
}


@needs_recordings
@pytest.mark.parametrize("name", SHARED_ROWS)
def test_rows_with_a_filled_shared_array_are_reached(name):
    line = rows_of("slabinfo-slab-n4c16.txt")[name]
    remote_frees, refills = SHARED_ROWS[name]
    allocator = slabq.Allocator("slab", kernel="6.1", machine=machine_of("n4c16"))
    active, total, _, slots = numbers(line)[:4]
    cache, tunables = make_slab_cache(allocator, name, line)
    objects = [cache.alloc(cpu=0) for _ in range(total)]
    kept, spare = objects[: total - remote_frees], objects[total - remote_frees :]
    free_without_emptying(cache, kept, total - active, slots - 1)
    cache.tune(**tunables)

    for address in spare:
        cache.free(address, cpu=4)
    for cpu in range(1, 1 + refills):
        cache.alloc(cpu=cpu)

    assert line_of(allocator, name) == line.partition(" : globalstat")[0]


@needs_recordings
def test_a_row_with_free_slabs_is_reached():
    line = rows_of("slabinfo-slab-n4c16.txt")["kmalloc-8k"]  # 4 of 5 slabs active
    allocator = slabq.Allocator("slab", kernel="6.1", machine=machine_of("n4c16"))
    cache, tunables = make_slab_cache(allocator, "kmalloc-8k", line)
    objects = [cache.alloc() for _ in range(5)]
    cache.free(objects[2])
    cache.tune(**tunables)

    assert line_of(allocator, "kmalloc-8k") == line.partition(" : globalstat")[0]


@needs_recordings
@pytest.mark.parametrize("name", ["trace_event_file", "ftrace_event_field", "UNIX"])
def test_rows_of_early_boot_are_reached_with_all_statistics(name):
    # Made while CPU arrays had one entry: every allocation missed, none was freed.
    line = rows_of("slabinfo-slab-n4c16.txt")[name]
    allocator = slabq.Allocator("slab", kernel="6.1", machine=machine_of("n4c16"))
    cache, tunables = make_slab_cache(allocator, name, line)
    for _ in range(numbers(line)[0]):
        cache.alloc()
    cache.tune(**tunables)

    assert line_of(allocator, name, statistics=True) == line


# -- SLUB+Q, headings, little and nothing ----------------------------------------------


def test_slubq_prints_queue_and_batch_as_tunables():
    allocator = slabq.Allocator(
        "slub+q", machine=slabq.Machine(cpus=2), version=2, slab_nomerge=True
    )
    cache = allocator.create_cache("example", 256)
    cache.alloc()

    # 16 slots of 256 bytes fill a page, but 2 CPUs make for 12 objects at least:
    # order 0. The refill of 60 took four slabs, of which 4 objects are still free.
    assert line_of(allocator, "example") == (
        "example               60     64    256   16    1"
        " : tunables  120   60    0 : slabdata      4      4      0"
    )


def test_the_headings_are_those_of_version_2_1():
    allocator = slabq.Allocator("slab", machine=slabq.Machine(cpus=1))
    columns = (
        "# name            <active_objs> <num_objs> <objsize> <objperslab>"
        " <pagesperslab> : tunables <limit> <batchcount> <sharedfactor>"
        " : slabdata <active_slabs> <num_slabs> <sharedavail>"
    )
    statistics = (
        " : globalstat <listallocs> <maxobjs> <grown> <reaped> <error> <maxfreeable>"
        " <nodeallocs> <remotefrees> <alienoverflow>"
        " : cpustat <allochit> <allocmiss> <freehit> <freemiss>"
    )

    plain = allocator.slabinfo().splitlines()
    full = allocator.slabinfo(statistics=True).splitlines()

    assert plain[:2] == ["slabinfo - version: 2.1", columns]
    assert full[:2] == ["slabinfo - version: 2.1 (statistics)", columns + statistics]


def test_caches_are_listed_newest_first_and_the_destroyed_not_at_all():
    allocator = slabq.Allocator(
        "slub", machine=slabq.Machine(cpus=1), slab_nomerge=True
    )
    first = allocator.create_cache("first", 64)
    allocator.create_cache("second", 64)
    names = [line.split()[0] for line in allocator.slabinfo().splitlines()[2:]]
    first.destroy()
    left = [line.split()[0] for line in allocator.slabinfo().splitlines()[2:]]

    assert names[:2] == ["second", "first"]
    assert left == [name for name in names if name != "first"]


@pytest.mark.parametrize("policy", ["slab", "slub", "slub+q"])
def test_a_cache_without_slabs_has_a_row_of_zeros(policy):
    allocator = slabq.Allocator(
        policy, machine=slabq.Machine(cpus=2), slab_nomerge=True
    )
    allocator.create_cache("empty", 64)

    found = numbers(line_of(allocator, "empty"))

    assert found[:3] == [0, 0, 64]
    assert found[8:] == [0, 0, 0]


def test_statistics_are_slabs_alone():
    allocator = slabq.Allocator("slub", machine=slabq.Machine(cpus=1))

    with pytest.raises(
        slabq.ParameterError, match="accepted are caches of policy slab"
    ):
        allocator.slabinfo(statistics=True)


CACHE = {
    "name": "a_name_longer_than_its_column",
    "active_objs": 1234567,
    "objects_total": 7654321,
    "size": 64,
    "objects_per_slab": 64,
    "order": 3,
    "limit": 120,
    "batchcount": 60,
    "sharedfactor": 8,
    "active_slabs": 1,
    "slabs": 2,
    "sharedavail": 3,
    "counters": {
        "num_allocations": 1,
        "grown": 2,
        "reaped": 3,
        "node_allocs": 4,
        "node_frees": 5,
        "node_overflow": 6,
        "allochit": 7,
        "allocmiss": 8,
        "freehit": 9,
        "freemiss": 10,
    },
    "levels": {"high_mark": 11, "max_freeable": 12, "num_active": 13},
}


def test_wide_numbers_push_the_columns_and_statistics_follow():
    text = format_slabinfo([CACHE], statistics=True)

    assert text.splitlines()[2] == (
        "a_name_longer_than_its_column 1234567 7654321     64   64    8"
        " : tunables  120   60    8 : slabdata      1      2      3"
        " : globalstat       1     11     2    3    0   12    4    5    6"
        " : cpustat      7      8      9     10"
    )


def test_statistics_by_name_leave_out_what_was_never_used():
    unused = {
        **CACHE,
        "name": "unused",
        "counters": dict.fromkeys(CACHE["counters"], 0),
        "levels": dict.fromkeys(CACHE["levels"], 0),
    }

    lines = format_slab_statistics([unused, CACHE]).split("\n")

    assert lines[0] == CACHE["name"]
    assert [line.split() for line in lines[1:]] == [
        ["globalstat"],
        ["listallocs", "1"],
        ["maxobjs", "11"],
        ["grown", "2"],
        ["reaped", "3"],
        ["error", "0"],
        ["maxfreeable", "12"],
        ["nodeallocs", "4"],
        ["remotefrees", "5"],
        ["alienoverflow", "6"],
        ["cpustat"],
        ["allochit", "7"],
        ["allocmiss", "8"],
        ["freehit", "9"],
        ["freemiss", "10"],
        [],
    ]
