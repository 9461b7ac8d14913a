"""The slabinfo tool's reports, from hand-made caches; all figures computed by hand."""

import csv

import pytest
from oracle_suite import KEPT_ASIDE, ORACLE

import slabq
from slabq.cache_record import CacheRecord, summarize_cache
from slabq.slabinfo_tool import (
    format_activity,
    format_counter,
    format_extended,
    format_listing,
    format_report,
    format_size,
    format_totals,
    run_slabinfo,
    sort_records,
)

COUNTERS = {
    "alloc_fastpath": 900,
    "alloc_slowpath": 100,
    "free_fastpath": 300,
    "free_slowpath": 100,
    "free_frozen": 21,
    "free_add_partial": 50,
    "free_remove_partial": 2,
    "alloc_from_partial": 40,
    "alloc_slab": 20,
    "alloc_refill": 9,
    "alloc_node_mismatch": 2,
    "cpuslab_flush": 6,
    "deactivate_full": 5,
    "deactivate_empty": 1,
    "deactivate_to_head": 3,
    "deactivate_to_tail": 7,
    "deactivate_remote_frees": 5,
    "deactivate_bypass": 84,
    "order_fallback": 1,
    "cmpxchg_double_cpu_fail": 4,
    "cmpxchg_double_fail": 3,
    "cpu_partial_alloc": 30,
    "cpu_partial_free": 60,
}


def record(name="a", **changes):
    """20 slabs of two pages for 78 slots of 104 bytes; 1000 objects of 100 bytes."""
    values = {
        "object_size": 100,
        "slab_size": 104,
        "objs_per_slab": 78,
        "order": 1,
        "align": 8,
        "objects": 1000,
        "objects_partial": 150,
        "total_objects": 1560,
        "slabs": 20,
        "partial": 5,
        "cpu_slabs": 4,
        "nodes": {"slabs": [12, 0, 8], "partial": [5, 0, 0]},
        "counters": COUNTERS,
    }
    return CacheRecord(name=name, **{**values, **changes})


FULL = record(
    "b",
    object_size=64,
    slab_size=64,
    objs_per_slab=64,
    order=0,
    objects=640,
    objects_partial=0,
    total_objects=640,
    slabs=10,
    partial=0,
    cpu_slabs=0,
    nodes={},
    counters={},
)
EMPTY = record(
    "c", objects=0, objects_partial=0, slabs=0, partial=0, cpu_slabs=0, counters={}
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1000"),  # a unit is for more than one of it
        (1001, "1.0K"),
        (65536, "65.5K"),
        (999999, "999.9K"),
        (1000000, "1000.0K"),
        (1000001, "1.0M"),
        (2570000, "2.5M"),
        (1000000001, "1.0G"),
        (12345678901, "12.3G"),
    ],
)
def test_sizes_have_one_decimal_and_are_cut_off(value, text):
    assert format_size(value) == text
    assert format_size(value, in_bytes=True) == str(value)


# -- listing ---------------------------------------------------------------------------

WIDE = (
    "Name                   Objects Objsize           Space Slabs/Part/Cpu  O/S O"
    " %Fr %Ef Flg\n"
)
NARROW = (
    "Name                   Objects Objsize    Space Slabs/Part/Cpu  O/S O"
    " %Fr %Ef Flg\n"
)


@pytest.mark.parametrize(
    ("kernel", "head", "row"),
    [
        # 163840 bytes of slabs, 5 of 20 slabs partial, 100000 of 163840 bytes used
        (
            "6.18",
            WIDE,
            "a                         1000     100          163.8K         16/5/4"
            "   78 1  25  61 \n",
        ),
        (
            "3.2",
            NARROW,
            "a                         1000     100   163.8K         16/5/4"
            "   78 1  25  61 \n",
        ),
    ],
)
def test_the_listing_has_the_columns_of_the_release(kernel, head, row):
    assert format_listing([record()], kernel=kernel) == head + row


def test_the_listing_shows_loss_and_bytes_when_told():
    text = format_listing([record()], by_loss=True, in_bytes=True)

    assert text.splitlines()[0].split()[3] == "Loss"
    assert text.splitlines()[1].split()[3] == "63840"


def test_the_listing_counts_a_cache_without_slabs_as_full_and_partial():
    assert format_listing([EMPTY]).splitlines()[1] == (
        "c                            0     100               0          0/0/0"
        "   78 1 100 100 "
    )


@pytest.mark.parametrize(
    ("flag", "letter"),
    [
        ("aliases", "*"),
        ("cache_dma", "d"),
        ("hwcache_align", "A"),
        ("poison", "P"),
        ("reclaim_account", "a"),
        ("red_zone", "Z"),
        ("sanity_checks", "F"),
        ("store_user", "U"),
        ("trace", "T"),
    ],
)
def test_every_flag_has_its_letter(flag, letter):
    assert format_listing([record(**{flag: True})]).rstrip("\n").endswith(f" {letter}")


def test_flags_stand_in_the_tools_order():
    flags = ["trace", "aliases", "poison", "hwcache_align", "reclaim_account"]

    text = format_listing([record(**dict.fromkeys(flags, True))])

    assert text.split()[-1] == "*APaT"


def test_nothing_is_printed_of_no_cache():
    assert format_listing([]) == format_activity([]) == run_slabinfo([]) == ""


# -- activity --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        (
            "6.18",
            "Name                   Objects      Alloc       Free   %Fast Fallb O"
            " CmpX   UL\n"
            "a                         1000       1000        400  90  75     1 1"
            "    3    4\n",
        ),
        (
            "2.6.35",
            "Name                   Objects      Alloc       Free   %Fast Fallb O\n"
            "a                         1000       1000        400  90  75     1 1\n",
        ),
    ],
)
def test_activity_has_the_columns_of_the_release(kernel, text):
    assert format_activity([record()], kernel=kernel) == text


@pytest.mark.parametrize(
    ("name", "objects", "allocs", "frees", "shares"),
    [  # the sample of the change that brought the report, tbench on 2.6.24
        ("skbuff_fclone_cache", 33, 111953835, 111953835, (99, 99)),
        (":0000192", 2666, 5283688, 5281047, (99, 99)),
        (":0001024", 849, 5247230, 5246389, (83, 83)),
    ],
)
def test_the_published_sample_of_activity_is_printed(
    name, objects, allocs, frees, shares
):
    calls = allocs, frees
    fast = [
        count * share // 100 + 1 for count, share in zip(calls, shares, strict=True)
    ]
    counters = {
        "alloc_fastpath": fast[0],
        "alloc_slowpath": allocs - fast[0],
        "free_fastpath": fast[1],
        "free_slowpath": frees - fast[1],
    }
    cache = record(name, objects=objects, counters=counters, order=0)

    row = format_activity([cache], kernel="2.6.25").splitlines()[1]

    assert row == (
        f"{name:21} {objects:8} {allocs:10} {frees:10} {shares[0]:3} {shares[1]:3}"
        "     0 0"
    )


def test_a_cache_that_was_never_used_has_no_fast_share():
    assert format_activity([EMPTY]).splitlines()[1].split() == [
        *("c", "0", "0", "0", "0", "0", "0", "1", "0", "0")
    ]


def test_slabs_calls_are_told_by_its_arrays():
    counters = {
        "allochit": 30,
        "allocmiss": 8,
        "node_allocs": 2,
        "freehit": 9,
        "freemiss": 1,
        "node_frees": 10,
    }
    row = format_activity([record(counters=counters)]).splitlines()[1].split()

    assert row[2:6] == ["40", "20", "75", "45"]


# -- report of one cache ---------------------------------------------------------------

SIZES = """
Sizes (bytes)     Slabs              Debug                Memory
------------------------------------------------------------------------
Object :     100  Total  :      20   Sanity Checks : Off  Total:  163840
SlabObj:     104  Full   :      11   Redzoning     : On   Used :  100000
SlabSiz:    8192  Partial:       5   Poisoning     : Off  Loss :   63840
Loss   :       4  CpuSlab:       4   Tracking      : On   Lalig:    4000
Align  :       8  Objects:      78   Tracing       : Off  Lpadd:    1600
"""
NODES = """
NUMA nodes           :    0    1    2
-------------------------------------
All slabs                12    0    8
Partial slabs             5    0    0
"""
PATHS = """
Slab Perf Counter       Alloc     Free %Al %Fr
--------------------------------------------------
Fastpath                  900      300  90  75
Slowpath                  100      100  10  25
Page Alloc                 20        0   2   0
Add partial                10       50   1  12
Remove partial             40        2   4   0
"""
REST = """\
RemoteObj/SlabFrozen        5       21   0   5
Total                    1000      400

Flushes        6
"""
DEACTIVATION = """
Slab Deactivation             Occurrences %
-------------------------------------------------
Slab full                           5    5%
Slab empty                          1    1%
Moved to head of partial list       3    3%
Moved to tail of partial list       7    7%
Deactivation bypass                84   84%
Refilled from foreign frees         9    9%
Node mismatch                       2    2%

Cmpxchg_double Looping
------------------------
Locked Cmpxchg Double redos   3
Unlocked Cmpxchg Double redos 4
"""


@pytest.mark.parametrize(
    ("kernel", "counters"),
    [
        (
            "6.18",
            PATHS + "Cpu partial list           30       60   3  15\n" + REST
            + DEACTIVATION,
        ),
        ("3.1", PATHS + REST + DEACTIVATION),
        (
            "2.6.35",  # of 16 deactivations, the bypass is later
            PATHS + REST + "Refill        9\n"
            "Deactivate Full=5(31%) Empty=1(6%) ToHead=3(18%) ToTail=7(43%)\n",
        ),
    ],
)  # fmt: skip
def test_the_report_has_sizes_slabs_memory_and_counters(kernel, counters):
    cache = record(red_zone=True, store_user=True)

    text = format_report(cache, kernel=kernel)

    assert SIZES in text
    assert text.endswith(NODES + counters)


@pytest.mark.parametrize(
    ("kernel", "line"),
    [
        ("6.18", "Slabcache: a                Aliases:  2 Order :  1 Objects: 1000"),
        (
            "2.6.35",
            "Slabcache: a                     Aliases:  2 Order :  1 Objects: 1000",
        ),
    ],
)
def test_the_report_begins_with_the_name(kernel, line):
    assert format_report(record(aliases=2), kernel=kernel).splitlines()[:2] == [
        "",
        line,
    ]


@pytest.mark.parametrize(
    ("flag", "line"),
    [
        ("hwcache_align", "** Hardware cacheline aligned"),
        ("cache_dma", "** Memory is allocated in a special DMA zone"),
        ("destroy_by_rcu", "** Slabs are destroyed via RCU"),
        ("reclaim_account", "** Reclaim accounting active"),
    ],
)
def test_the_report_names_what_is_special(flag, line):
    assert format_report(record(**{flag: True})).splitlines()[2] == line
    assert line not in format_report(record())


def test_the_report_of_a_cache_without_slabs_ends_before_the_counters():
    text = format_report(EMPTY)

    assert "Object :     100  Total  :       0" in text
    assert "No NUMA information available." in format_report(record(nodes={}))
    assert "Perf Counter" not in text


def test_a_report_without_frees_divides_by_nothing():
    counters = {"alloc_slab": 1, "alloc_slowpath": 1}

    text = format_report(record(counters=counters))

    assert "Slowpath                    1        0 100   0\n" in text


# -- totals ----------------------------------------------------------------------------

# a: 163840 bytes, 100000 used; b: 40960, all used. Averages are over the two.
TOTALS = """\
Slabcache Totals
----------------
Slabcaches :               3   Aliases  :           0->0    Active:      2
Memory used:          204.8K   # Loss   :           63.8K   MRatio:    45%
# Objects  :            1.6K   # PartObj:             150   ORatio:     9%

Per Cache         Average              Min              Max            Total
----------------------------------------------------------------------------
#Objects              820              640             1000             1.6K
#Slabs                 15               10               20               30
#PartSlab               2                0                5                5
%PartSlab             12%               0%              25%              16%
PartObjs                9                0              150              150
% PartObj              7%               0%              15%               9%
Memory             102.4K            40.9K           163.8K           204.8K
Used                70.4K            40.9K           100.0K           140.9K
Loss                31.9K                0            63.8K            63.8K

Per Object        Average              Min              Max
-----------------------------------------------------------
Memory                 88               64              104
User                   85               64              100
Loss                    2                0                4
"""
TOTALS_NARROW = """\
Slabcache Totals
----------------
Slabcaches :   3      Aliases  :   0->0   Active:   2
Memory used: 204.8K   # Loss   :  63.8K   MRatio:    45%
# Objects  :   1.6K   # PartObj:    150   ORatio:     9%

Per Cache    Average         Min         Max       Total
---------------------------------------------------------
#Objects         820         640        1000        1.6K
#Slabs            15          10          20          30
#PartSlab          2           0           5           5
%PartSlab        12%          0%         25%         16%
PartObjs           9           0         150         150
% PartObj         7%          0%         15%          9%
Memory        102.4K       40.9K      163.8K      204.8K
Used           70.4K       40.9K      100.0K      140.9K
Loss           31.9K           0       63.8K       63.8K

Per Object   Average         Min         Max
---------------------------------------------
Memory            88          64         104
User              85          64         100
Loss               2           0           4
"""


@pytest.mark.parametrize(
    ("kernel", "text"), [("6.18", TOTALS), ("2.6.35", TOTALS_NARROW)]
)
def test_totals_are_sums_averages_and_ranges(kernel, text):
    assert format_totals([record(), FULL, EMPTY], kernel=kernel) == text


@pytest.mark.parametrize("caches", [[], [EMPTY], [record(objects=0)]])
def test_totals_of_an_empty_heap_are_one_line(caches):
    assert format_totals(caches) == "No objects\n"


def test_a_share_of_partial_slabs_is_at_most_the_whole():
    text = format_totals([record(partial=25, objects_partial=1200)])

    assert "%PartSlab            100%             100%             100%" in text


def test_extended_totals_list_the_first_of_three_orders_in_bytes():
    text = format_extended([record(partial=0), FULL, EMPTY], lines=1)
    titles = [
        "Slabs sorted by size",
        "Slabs sorted by loss",
        "Slabs sorted by number of partial slabs",
    ]
    lines = text.splitlines()

    for title in titles:
        place = lines.index(title)
        assert lines[place + 1] == "-" * len(title)
        assert lines[place + 3].split()[:3] == ["a", "1000", "100"]  # b is smaller
    assert "Memory used:          204800" in text


# -- order and options -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ("", "a Bee c"),  # letters alike whatever their case
        ("-i", "c Bee a"),
        ("-S", "a Bee c"),  # 163840, 40960, 8192 bytes
        ("-A", "c a Bee"),  # 5000, 1400, 0 calls
        ("-L", "a c Bee"),  # 63840, 7192, 0 bytes
        ("-P", "a c Bee"),  # 5, 1, 0
        ("-S -N 2", "a Bee"),
        ("-SN2", "a Bee"),
        ("--Size --lines=1", "a"),
        ("-z", "a Bee c zero"),
        ("-e", "zero"),
        ("-U", "a Bee"),
        ("^[ab]", "a Bee"),
    ],
)
def test_options_of_the_tool_sort_and_choose(options, names):
    # 8192 bytes, of which 1000 are objects
    small = record(
        "c", objects=10, slabs=1, partial=1, reclaim_account=True,
        counters={"alloc_fastpath": 5000},
    )  # fmt: skip
    bee = record("Bee", **{
        key: getattr(FULL, key)
        for key in ("object_size", "slab_size", "order", "objects", "slabs", "partial")
    }, counters={})  # fmt: skip
    zero = record("zero", slabs=0, objects=0, partial=0, cpu_slabs=0, counters={})

    text = run_slabinfo([small, record(), zero, bee], options)

    shown = [line.split()[0] for line in text.splitlines()[1:]]
    assert shown == names.split()


def test_a_pattern_of_one_cache_reports_it():
    caches = [record(), FULL]

    assert run_slabinfo(caches, "^A$") == format_report(record())
    assert run_slabinfo(caches, "-r") == format_report(record()) + format_report(FULL)
    assert run_slabinfo(caches, "-T") == format_totals(caches)
    assert run_slabinfo(caches, "-XN2") == format_extended(caches, lines=2)
    assert run_slabinfo(caches, "-D") == format_activity(caches)


@pytest.mark.parametrize("options", ["-Q", "-N 0", "-N x", "-N", "a b", "(", "'"])
def test_options_that_the_tool_has_not_are_refused(options):
    with pytest.raises(slabq.ParameterError, match="options of slabinfo are"):
        run_slabinfo([], options)


def test_an_unknown_order_is_refused():
    with pytest.raises(slabq.ParameterError, match="accepted are name, size"):
        sort_records([], "weight")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([0, 0], "0"),
        ([2, 0, 0, 1], "3 C0=2 C3=1"),
        ([2**32 + 5], "5 C0=5"),  # the kernel's counters have 32 bits
    ],
)
def test_a_counter_reads_as_its_file(values, text):
    assert format_counter(values) == text


# -- records of real caches ------------------------------------------------------------


@pytest.mark.parametrize("policy", ["slab", "slub", "slub+q"])
def test_records_of_an_empty_heap_hold_nothing(policy):
    allocator = slabq.Allocator(policy, machine=slabq.Machine(cpus=2))

    assert sum(r.slabs + r.objects for r in allocator.records()) == 0
    assert allocator.report() == ""
    assert allocator.report("-T") == "No objects\n"


def test_a_destroyed_cache_is_in_no_report():
    allocator = slabq.Allocator("slub", machine=slabq.Machine(cpus=1))
    cache = allocator.create_cache("gone", 64)
    cache.alloc()
    before = allocator.report("-z")
    cache.destroy()

    assert "gone" in before
    assert "gone" not in allocator.report("-z")


def test_records_count_what_the_lists_hold():
    # 64 slots a slab. CPU 0 fills two slabs and begins a third; CPU 1 takes one.
    allocator = slabq.Allocator(
        "slub", kernel="6.1", machine=slabq.Machine(cpus=2, nodes=2)
    )
    cache = allocator.create_cache("example", 64)
    objects = [cache.alloc(cpu=0) for _ in range(130)]
    cache.alloc(cpu=1)
    cache.free(objects[0], cpu=0)  # the first slab goes to CPU 0's partial list

    found = next(r for r in allocator.records() if r.name == "example")

    assert (found.slabs, found.partial, found.cpu_slabs) == (4, 0, 3)
    assert found.nodes["cpu_slabs"] == [2, 1]
    assert found.nodes["total_objects"] == [192, 64]
    assert found.objects == found.total_objects == 256  # none on a node's list


def test_the_objects_of_slab_are_those_outside_the_slabs_free_chains():
    allocator = slabq.Allocator("slab", kernel="6.1", machine=slabq.Machine(cpus=1))
    cache = allocator.create_cache("example", 64)
    cache.alloc()  # a first refill takes 16 of 64

    found = next(r for r in allocator.records() if r.name == "example")

    assert (found.objects, found.total_objects) == (16, 64)
    assert (found.slabs, found.partial, found.objects_partial) == (1, 1, 16)


def test_a_summary_has_slabs_levels_and_no_lists():
    printed = {
        "objects_per_slab": 4,
        "counters": {"grown": 1},
        "state": {
            "cpu_arrays": [],
            "nodes": [
                {
                    "node": 0,
                    "total_slabs": 3,
                    "free_objects": 5,
                    "partial": [[0, 3, 0, [2]]],
                }
            ],
            "counters": {"grown": 1, "high_mark": 9},
        },
    }

    summary = summarize_cache(printed)

    assert "state" not in summary
    assert summary["levels"] == {"high_mark": 9}
    assert summary["nodes"] == {
        "objects": [7],
        "objects_partial": [3],
        "total_objects": [12],
        "slabs": [3],
        "partial": [1],
        "cpu_slabs": [0],
    }


@pytest.mark.skipif(not ORACLE.exists(), reason=KEPT_ASIDE)
@pytest.mark.parametrize("run", ["unix-proc", "unix-thread", "pipe-proc"])
def test_reports_take_the_statistics_of_a_real_kernel(run):
    path = ORACLE / "hackbench" / "slub-n4c16" / f"slubstats-{run}.tsv"
    with path.open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    counts = ("objects", "slabs", "partial", "cpu_slabs")
    caches = []
    for row in rows:
        numbers = {key: int(row[key]) for key in row if key != "cache"}
        figures = {key: numbers.pop(key) for key in counts}
        caches.append(record(row["cache"], **figures, counters=numbers))

    listing = run_slabinfo(caches, "-DA", kernel="6.1").splitlines()[1:]
    calls = [int(line.split()[2]) + int(line.split()[3]) for line in listing]

    assert len(listing) == sum(cache.slabs > 0 for cache in caches)
    assert calls == sorted(calls, reverse=True)
    for cache in caches:  # a CPU's lists hold slabs of the cache, no others
        assert cache.slabs >= cache.partial + cache.cpu_slabs
