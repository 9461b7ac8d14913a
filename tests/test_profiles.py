"""Kernel profiles: the worked tables of the facts, and the traps of each release.

The tables were worked out by hand from the rules (facts/policies.md), or are rows of
/proc/slabinfo of other people's machines; none was read off slabq.
"""

import csv
import re
from pathlib import Path

import oracle_suite as suite
import pytest
import test_slab_oracle
import test_slub_oracle
import test_slubq_oracle
from profile_geometry import (
    CLASSIC_KERNELS,
    PAGE_BYTES,
    SLAB_KERNELS,
    geometry,
    machine_of,
    order_and_objects,
)

import slabq

# ---- every profile -------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["slab", "slub", "slub+q"])
def test_every_profile_says_in_one_line_what_the_release_is(policy):
    for kernel, profile in slabq.kernel_profiles(policy).items():
        assert profile.about, kernel
        assert "\n" not in profile.about, kernel


def test_every_slub_option_that_tells_releases_apart_is_set_by_some_profile():
    set_by_users = {
        *("slub_min_order", "kmalloc_min_size", "slub_debug", "sheaf_columns"),
        *("freelist_random", "freelist_hardened"),  # kernel configuration
        "slab_nomerge",  # merging is SLUB's way in every release
    }
    profiles = slabq.kernel_profiles("slub").values()

    values = {
        name: {profile.values.get(name, option.default) for profile in profiles}
        for name, option in slabq.policy_options("slub").items()
    }

    alike = {name for name, found in values.items() if len(found) == 1}
    assert alike <= set_by_users


def test_every_option_is_asked_for_in_the_code_of_the_policies():
    csrc = Path(__file__).parent.parent / "csrc"
    files = [*(csrc / "policy").iterdir(), *(csrc / "experiment").iterdir()]
    files = [path for path in files if not path.stem.endswith("_options")]
    words = set(re.findall(r"\w+", "\n".join(path.read_text() for path in files)))

    options = {row[1] for row in slabq._core.options()}

    assert len(options) > 40
    assert not options - words


# ---- SLAB: geometry (facts 1.3) ------------------------------------------------------

# size, slot, order, objects, management bytes and place, bytes left, colours
CLASSIC = [
    (32, 32, 0, 112, 512, "on", 0, 0),
    (64, 64, 0, 59, 320, "on", 0, 0),
    (96, 128, 0, 30, 192, "on", 64, 1),
    (128, 128, 0, 30, 192, "on", 64, 1),
    (192, 192, 0, 20, 128, "on", 128, 2),
    (256, 256, 0, 15, 128, "on", 128, 2),
    (320, 320, 0, 12, 128, "on", 128, 2),
    (448, 448, 0, 8, 128, "on", 384, 6),
    (512, 512, 0, 8, 80, "off", 0, 0),
    (576, 576, 0, 7, 76, "off", 64, 1),
    (640, 640, 0, 6, 128, "on", 128, 2),
    (700, 704, 1, 11, 128, "on", 320, 5),
    (768, 768, 0, 5, 128, "on", 128, 2),
    (1024, 1024, 0, 4, 64, "off", 0, 0),
    (1600, 1600, 1, 5, 128, "on", 64, 1),
    (2048, 2048, 0, 2, 56, "off", 0, 0),
    (2112, 2112, 1, 3, 64, "on", 1792, 28),
    (4096, 4096, 0, 1, 52, "off", 0, 0),
    (8192, 8192, 1, 1, 52, "off", 0, 0),
    *((1 << k, 1 << k, k - 12, 1, 52, "off", 0, 0) for k in range(14, 23)),
]


@pytest.mark.parametrize("kernel", CLASSIC_KERNELS)
@pytest.mark.parametrize("row", CLASSIC, ids=lambda row: str(row[0]))
def test_a_classic_slab_has_the_worked_geometry(kernel, row):
    size, slot, order, objects, management, place, left, colours = row

    found = geometry("slab", kernel, size, hwcache_align=True)

    names = ("size", "order", "num", "slab_size", "mgmt", "colour")
    worked = (slot, order, objects, management, place, colours)
    assert tuple(found[name] for name in names) == worked
    used = objects * slot + (management if place == "on" else 0)
    assert (PAGE_BYTES << order) - used == left


@pytest.mark.parametrize(
    ("size", "order", "objects", "colours"),
    [
        *((40, 0, 92, None), (56, 0, 67, None), (72, 0, 53, None), (104, 0, 37, None)),
        *((200, 0, 19, 2), (232, 0, 17, None), (592, 1, 13, 6)),
    ],
)
def test_a_classic_slab_of_unaligned_objects_is_as_worked(
    size, order, objects, colours
):
    found = geometry("slab", "2.6.35", size)

    assert (found["order"], found["num"]) == (order, objects)
    assert colours in (None, found["colour"])


@pytest.mark.parametrize("kernel", ["4.19", "6.1"])
@pytest.mark.parametrize(
    ("size", "order", "objects", "place", "colours"),
    [
        *((16, 0, 240, "on", None), (32, 0, 124, "on", None)),
        *((64, 0, 64, None, None), (128, 0, 32, None, None), (192, 0, 21, None, 1)),
        *((256, 0, 16, None, None), (512, 0, 8, None, None), (1024, 0, 4, None, None)),
        *((2048, 0, 2, None, None), (4096, 0, 1, None, None), (8192, 1, 1, None, None)),
    ],
)
def test_a_slab_with_byte_indexes_is_as_worked(
    kernel, size, order, objects, place, colours
):
    found = geometry("slab", kernel, size, hwcache_align=True)

    assert (found["order"], found["num"]) == (order, objects)
    assert place in (None, found["freelist"])
    assert colours in (None, found["colour"])


def test_lines_of_128_bytes_widen_the_colours_and_skip_kmalloc_classes():
    options = {"cache_line_size": 128}
    policy = slabq.Slab(kernel="2.6.35", **options)

    found = geometry("slab", "2.6.35", 256, options=options, hwcache_align=True)
    caches = slabq.Allocator(policy, machine=machine_of(2)).caches()

    assert (found["colour_off"], found["colour"]) == (128, 1)
    names = {cache["name"] for cache in caches}
    assert {"size-32", "size-64", "size-128", "size-256"} <= names
    assert not {"size-96", "size-192"} & names


def test_kmalloc_of_slab_begins_at_32_and_caches_every_power_of_two():
    names = {
        kernel: {
            cache["object_size"]
            for cache in slabq.Allocator(
                "slab", machine=machine_of(2), kernel=kernel
            ).caches()
        }
        for kernel in ("2.6.35", "6.1")
    }

    powers = {1 << shift for shift in range(5, 23)}
    assert names["2.6.35"] == powers | {192}
    assert names["6.1"] == {size for size in powers if size <= 8192} | {96, 192}


# ---- SLAB: limits (facts 1.4) --------------------------------------------------------


@pytest.mark.parametrize("kernel", SLAB_KERNELS)
@pytest.mark.parametrize(
    ("size", "limit", "batchcount", "shared_limit"),
    [
        *((8, 120, 60, 480), (256, 120, 60, 480), (264, 54, 27, 216)),
        *((1024, 54, 27, 216), (1032, 24, 12, 96), (4096, 24, 12, 96)),
        *((4104, 8, 4, None), (131072, 8, 4, None), (131080, 1, 1, None)),
    ],
)
def test_array_limits_follow_the_size_in_every_release(
    kernel, size, limit, batchcount, shared_limit
):
    many = geometry("slab", kernel, size, cpus=16, nodes=4)
    single = geometry("slab", kernel, size, cpus=1)

    assert (many["limit"], many["batchcount"]) == (limit, batchcount)
    assert many["shared"] == (0 if shared_limit is None else 8)
    assert many["shared_limit"] == (-1 if shared_limit is None else shared_limit)
    assert many["alien_limit"] == (12 if limit > 1 else limit)
    assert many["free_limit_node0"] == (1 + 4) * batchcount + many["num"]
    assert (single["limit"], single["shared"]) == (limit, 0)
    assert single["alien_limit"] == -1


# ---- SLUB: orders (facts 2.2) --------------------------------------------------------


@pytest.mark.parametrize("kernel", ["2.6.27", "2.6.35", "3.2", "5.15", "6.1", "6.18"])
@pytest.mark.parametrize(
    ("cpus", "objects"),
    [
        *((1, 8), (2, 12), (4, 16), (8, 20), (16, 24), (32, 28), (64, 32)),
        *((128, 36), (256, 40)),
    ],
)
def test_the_number_of_cpus_says_how_many_objects_a_slab_should_hold(
    kernel, cpus, objects
):
    def orders(cpu_count, min_objects):
        options = {"slub_min_objects": min_objects, "slub_max_order": 10}
        return [
            geometry("slub", kernel, size, cpus=cpu_count, options=options)["order"]
            for size in range(8, 4097, 56)
        ]

    assert orders(cpus, 0) == orders(1, objects)
    assert orders(cpus, 0) != orders(1, objects - 4)
    assert orders(cpus, 0) != orders(1, objects + 4)


# size: to 2.6.25; 2.6.26 to 2.6.29 and 2.6.30 to 6.7 on 8, 16, 64 CPUs; since 6.8 on
# 8, 16, 64, 256 CPUs
ORDERS = {
    8: ["0/512", "0/512 0/512 0/512", "0/512 0/512 0/512 0/512"],
    16: ["0/256", "0/256 0/256 0/256", "0/256 0/256 0/256 0/256"],
    32: ["0/128", "0/128 0/128 0/128", "0/128 0/128 0/128 0/128"],
    64: ["0/64", "0/64 0/64 0/64", "0/64 0/64 0/64 0/64"],
    96: ["0/42", "0/42 0/42 0/42", "0/42 0/42 0/42 0/42"],
    128: ["0/32", "0/32 0/32 0/32", "0/32 0/32 0/32 1/64"],
    192: ["0/21", "0/21 1/42 1/42", "0/21 1/42 1/42 1/42"],
    256: ["0/16", "1/32 1/32 1/32", "1/32 1/32 1/32 2/64"],
    320: ["0/12", "1/25 1/25 2/51", "1/25 1/25 2/51 2/51"],
    448: ["0/9", "2/36 2/36 2/36", "2/36 2/36 2/36 3/73"],
    512: ["0/8", "2/32 2/32 2/32", "2/32 2/32 2/32 3/64"],
    576: ["0/7", "2/28 2/28 3/56", "2/28 2/28 3/56 3/56"],
    640: ["0/6", "2/25 2/25 3/51", "2/25 2/25 3/51 3/51"],
    700: ["1/11", "2/23 3/46 3/46", "2/23 3/46 3/46 3/46"],
    768: ["0/5", "2/21 3/42 3/42", "2/21 3/42 3/42 3/42"],
    1024: ["0/4", "3/32 3/32 3/32", "3/32 3/32 3/32 3/32"],
    1600: ["1/5", "3/20 3/20 3/20", "3/20 3/20 3/20 3/20"],
    2048: ["1/4", "3/16 3/16 3/16", "3/16 3/16 3/16 3/16"],
    2112: ["1/3", "3/15 3/15 3/15", "3/15 3/15 3/15 3/15"],
    4096: ["1/2", "3/8 3/8 3/8", "3/8 3/8 3/8 3/8"],
    8192: ["1/1", "3/4 3/4 3/4", "3/4 3/4 3/4 3/4"],
}
ERAS = [
    (["2.6.22", "2.6.24", "2.6.25"], 0, [16]),
    (["2.6.26", "2.6.27", "2.6.30", "2.6.35", "2.6.39"], 1, [8, 16, 64]),
    (["3.1", "3.2", "3.16", "4.19", "5.15", "5.16", "6.1"], 1, [8, 16, 64]),
    (["6.8", "6.18"], 2, [8, 16, 64, 256]),
]


@pytest.mark.parametrize(
    ("kernel", "column", "cpus"),
    [(kernel, column, cpus) for kernels, column, cpus in ERAS for kernel in kernels],
)
def test_a_slub_slab_has_the_worked_order(kernel, column, cpus):
    worked = {size: columns[column] for size, columns in ORDERS.items()}
    if kernel in ("2.6.26", "2.6.27"):
        del worked[8192]  # passed through; no such class

    found = {
        size: " ".join(order_and_objects(kernel, size, count) for count in cpus)
        for size in worked
    }

    assert found == worked


@pytest.mark.parametrize(
    ("kernel", "classes"),
    [
        ("2.6.22", {2048: 1, 4096: 1, 8192: 1, 16384: 2, 4194304: 10}),
        ("2.6.24", {2048: 1, 4096: None}),
        ("2.6.25", {1024: 0, 2048: 3, 4096: 3, 8192: None}),
        ("2.6.27", {2048: 3, 4096: 3, 8192: None}),
        ("2.6.30", {4096: 3, 8192: 3, 16384: None}),
        ("6.1", {4096: 3, 8192: 3, 16384: None}),
    ],
)
def test_kmalloc_classes_end_where_the_release_passed_through(kernel, classes):
    allocator = slabq.Allocator("slub", machine=machine_of(16), kernel=kernel)

    orders = {
        f"kmalloc-{cache['object_size']}": cache["order"]
        for cache in allocator.caches()
    }

    found = {size: orders.get(f"kmalloc-{size}") for size in classes}
    assert found == classes


@pytest.mark.parametrize("kernel", ["2.6.24", "2.6.35", "6.18"])
@pytest.mark.parametrize(
    ("size", "slot"),
    [
        *((1, 8), (8, 8), (9, 16), (33, 64), (64, 64), (65, 96), (96, 96), (97, 128)),
        *((128, 128), (129, 192), (192, 192), (193, 256), (256, 256), (257, 512)),
    ],
)
def test_kmalloc_has_classes_of_96_and_192_bytes(kernel, size, slot):
    allocator = slabq.Allocator("slub", machine=machine_of(2), kernel=kernel)

    assert allocator.ksize(allocator.kmalloc(size)) == slot


# ---- SLUB: limits (facts 2.5 to 2.7) -------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "kept"),
    [
        # of sizes 32, 64, 1024, 4096, 262144
        ("2.6.22", [2, 2, 2, 2, 2]),
        *((kernel, [5, 5, 5, 5, 5]) for kernel in ("2.6.24", "2.6.25", "2.6.26")),
        *((kernel, [5, 6, 10, 10, 10]) for kernel in ("2.6.27", "2.6.39", "3.1")),
        *((kernel, [5, 5, 5, 6, 9]) for kernel in ("3.2", "4.19", "6.1", "6.18")),
    ],
)
def test_min_partial_is_what_the_release_kept(kernel, kept):
    sizes = (32, 64, 1024, 4096, 262144)

    found = [geometry("slub", kernel, size)["min_partial"] for size in sizes]

    assert found == kept


@pytest.mark.parametrize("kernel", ["3.2", "4.19", "5.15"])
@pytest.mark.parametrize(
    ("size", "objects"),
    [(248, 30), (256, 13), (1016, 13), (1024, 6), (4088, 6), (4096, 2), (8192, 2)],
)
def test_cpu_partial_counted_in_objects_changes_at_the_size_itself(
    kernel, size, objects
):
    found = geometry("slub", kernel, size)

    assert (found["cpu_partial"], found["cpu_partial_slabs"]) == (objects, -1)


@pytest.mark.parametrize("kernel", ["5.16", "6.1", "6.8", "6.18"])
@pytest.mark.parametrize(
    ("size", "objects", "slabs"),
    [
        *((8, 120, 1), (16, 120, 1), (32, 120, 2), (64, 120, 4), (128, 120, 8)),
        *((192, 120, 6), (256, 52, 4), (512, 52, 4), (1024, 24, 2), (2048, 24, 3)),
        *((4096, 6, 2), (8192, 6, 3)),
    ],
)
def test_cpu_partial_counted_in_slabs_takes_each_for_half_full(
    kernel, size, objects, slabs
):
    found = geometry("slub", kernel, size)

    assert (found["cpu_partial"], found["cpu_partial_slabs"]) == (objects, slabs)


@pytest.mark.parametrize("kernel", ["2.6.22", "2.6.24", "2.6.35", "3.1", "5.14-rt"])
def test_releases_without_cpu_partial_lists_have_none(kernel):
    assert geometry("slub", kernel, 64)["cpu_partial"] == -1


@pytest.mark.parametrize(
    ("kernel", "aligns"),
    [
        # of slots for 8, 16, 24, 32, 40, 64, 72 bytes with SLAB_HWCACHE_ALIGN
        ("2.6.24", [8, 16, 24, 32, 64, 64, 128]),
        ("2.6.25", [8, 16, 32, 32, 64, 64, 128]),
        ("6.18", [8, 16, 32, 32, 64, 64, 128]),
    ],
)
def test_hwcache_align_took_whole_lines_before_2_6_25(kernel, aligns):
    sizes = (8, 16, 24, 32, 40, 64, 72)

    found = [
        geometry("slub", kernel, size, hwcache_align=True)["size"] for size in sizes
    ]

    assert found == aligns


# ---- all policies at once (facts 8) --------------------------------------------------

# SLAB limit/batch/shared, SLUB order, cpu_partial in objects and slabs, S+Q queue/batch
ALL_POLICIES = {
    64: ("120/60/480", "0/64", 30, 4, "120/60"),
    192: ("120/60/480", "1/42", 30, 6, "120/60"),
    256: ("120/60/480", "1/32", 13, 4, "120/60"),
    512: ("54/27/216", "2/32", 13, 4, "54/27"),
    1024: ("54/27/216", "3/32", 6, 2, "54/27"),
    2048: ("24/12/96", "3/16", 6, 3, "24/12"),
    4096: ("24/12/96", "3/8", 2, 2, "24/12"),
    8192: ("8/4/-1", "3/4", 2, 3, "8/4"),
}


@pytest.mark.parametrize("size", ALL_POLICIES)
def test_the_policies_side_by_side_are_as_worked(size):
    slab = geometry("slab", "2.6.35", size)
    slub = geometry("slub", "5.15", size)
    queued = geometry("slub+q", "2.6.35", size)

    found = (
        f"{slab['limit']}/{slab['batchcount']}/{slab['shared_limit']}",
        f"{slub['order']}/{slub['num']}",
        slub["cpu_partial"],
        geometry("slub", "6.1", size)["cpu_partial_slabs"],
        f"{queued['queue']}/{queued['batch']}",
    )

    assert found == ALL_POLICIES[size]


# ---- dumps of /proc/slabinfo ---------------------------------------------------------

# What a dump does not say of its caches, from what the kernel used them for: inodes and
# buffers that can be reclaimed. sk_buff pairs are smaller than the slot that the dump
# shows (2 sk_buff + 4 bytes, aligned to 64), and so have their management on the slab:
# what is asked for decides that, not the slot.
RECLAIMED = {
    *("dentry", "inode_cache", "proc_inode_cache", "sock_inode_cache", "buffer_head"),
    *("radix_tree_node", "bdev_cache"),
}
ASKED_FOR = {"skbuff_fclone_cache": 2 * 232 + 4}


def dump_rows(source):
    path = suite.ORACLE / "slabinfo-dumps.tsv"
    if not path.exists():
        pytest.skip(suite.KEPT_ASIDE)
    with open(path) as lines:
        rows = list(csv.DictReader(lines, delimiter="\t"))
    return [row for row in rows if row["src"] == source]


def test_a_machine_of_2008_shows_the_same_slab_geometry():
    # 2.6.27-rt. Not derived: its shared factor 0, which RT set, and active counts.
    rows = dump_rows("S5")

    wrong = []
    for row in rows:
        size = ASKED_FOR.get(row["name"], int(row["objsize"]))
        found = geometry(
            "slab",
            "2.6.25",
            size,
            cpus=8,
            hwcache_align=row["name"] in ASKED_FOR,
            reclaim_account=row["name"] in RECLAIMED,
        )
        own = (found["size"], found["num"], 1 << found["order"])
        own += (found["limit"], found["batchcount"])
        names = ("objsize", "objperslab", "pagesperslab", "limit", "batch")
        if own != tuple(int(row[name]) for name in names):
            wrong.append((row, own))

    assert len(rows) == 70
    assert not wrong


@pytest.mark.parametrize("kernel", ["2.6.27", "2.6.35", "6.1"])
def test_a_32_bit_machine_shows_the_same_slub_geometry(kernel):
    # Slots stand in the dump, padding included, so a word of 4 bytes changes nothing.
    # 12 objects a slab were wanted: 2 or 3 CPUs, whatever the machine had in sockets;
    # 16, for 4 CPUs, would give idr_layer_cache 30 objects in 8 pages and not 15 in 4.
    rows = dump_rows("S3")

    wrong = []
    for row in rows:
        found = geometry("slub", kernel, int(row["objsize"]), cpus=2)
        own = (found["num"], 1 << found["order"])
        if own != (int(row["objperslab"]), int(row["pagesperslab"])):
            wrong.append((row, own))

    assert len(rows) == 19
    assert not wrong


# ---- recorded geometry ---------------------------------------------------------------


@pytest.mark.skipif(not suite.ORACLE.exists(), reason=suite.KEPT_ASIDE)
def test_every_recorded_geometry_table_is_compared_by_some_test():
    found = {
        str(path.relative_to(suite.ORACLE))
        for path in suite.ORACLE.glob("**/geometry/*.tsv.gz")
    }

    slub = {table for table, *_ in test_slub_oracle.GEOMETRY}
    slab = {table for table, *_ in test_slab_oracle.GEOMETRY}
    queued = {f"original/geometry/{t}.tsv.gz" for t, _ in test_slubq_oracle.GEOMETRY}
    # 4.19's SLAB: no row differs from 6.1's, so the table of differences is empty and
    # 6.1's is compared under the profile 4.19 too.
    alike = {"linux-4.19.108/geometry/slab_diff.tsv.gz"}
    assert ("geometry/slab.tsv.gz", "4.19") in test_slab_oracle.GEOMETRY
    assert found == slub | slab | queued | alike


# ---- kmalloc names (facts 1.3, 2.3; oracle/boot for 6.1) -----------------------------


@pytest.mark.parametrize(
    ("policy", "kernel", "names"),
    [
        ("slab", "2.6.24", ("size-512", "size-1024", "size-131072", "size-4194304")),
        ("slab", "3.2", ("size-512", "size-1024", "size-131072", "size-4194304")),
        ("slab", "4.19", ("kmalloc-512", "kmalloc-1024", "kmalloc-4194304")),
        ("slab", "6.1", ("kmalloc-512", "kmalloc-1k", "kmalloc-8k")),
        ("slub", "2.6.22", ("kmalloc-512", "kmalloc-1024", "kmalloc-4194304")),
        ("slub", "4.19", ("kmalloc-512", "kmalloc-1024", "kmalloc-8192")),
        ("slub", "5.15", ("kmalloc-512", "kmalloc-1k", "kmalloc-8k")),
        ("slub", "6.18", ("kmalloc-512", "kmalloc-1k", "kmalloc-8k")),
        ("slub+q", "2.6.35", ("kmalloc-512", "kmalloc-1024", "kmalloc-8192")),
        ("sheaves", "6.18", ("kmalloc-512", "kmalloc-1k", "kmalloc-8k")),
    ],
)
def test_kmalloc_caches_have_the_names_of_the_release(policy, kernel, names):
    allocator = slabq.Allocator(policy, machine=machine_of(2), kernel=kernel)

    found = [line.split()[0] for line in allocator.slabinfo().splitlines()]

    assert [name for name in names if name not in found] == []


def test_the_largest_units_are_megabytes():
    value = slabq.Slab(kernel="6.1", kmalloc_max_size=4 << 20)
    allocator = slabq.Allocator(value, machine=machine_of(2))

    names = [cache["name"] for cache in allocator.caches()]

    assert names[-4:] == ["kmalloc-512k", "kmalloc-1M", "kmalloc-2M", "kmalloc-4M"]


@pytest.mark.parametrize("policy", ["slab", "slub", "slub+q", "sheaves"])
@pytest.mark.parametrize("size", [9, 24, 100, 255])
def test_a_smallest_kmalloc_cache_that_is_no_power_of_two_is_refused(policy, size):
    with pytest.raises(slabq.ParameterError, match="powers of two from 8 to 256"):
        slabq.policy.find_policy(policy, kmalloc_min_size=size)
    machine = machine_of(1).core(1, "native")
    with pytest.raises(slabq.ParameterError, match=f"of policy {re.escape(policy)} is"):
        slabq._core.Allocator(machine, policy, [("kmalloc_min_size", size)])
