"""What a kernel shows of its caches, compared with slabq's own answer."""

import json
import os
from pathlib import Path

import oracle_suite as suite
import pytest

import slabq
from slabq.cli import main
from slabq.host_caches import nearest_profile

RECORDED = suite.ORACLE.parent / "traces" / "host-6.18-sysfs-slab.tsv"
COLUMNS = ("name", "object_size", "slab_size", "align", "order", "objs_per_slab")
DENTRY = ("dentry", 192, 192, 8, 0, 21)
KERNEL = {"kernel": "6.18", "cpus": 2}


def table_file(folder, *rows, columns=COLUMNS, comment=""):
    path = folder / "caches.tsv"
    lines = ["\t".join(map(str, row)) for row in (columns, *rows)]
    path.write_text("\n".join([*([comment] if comment else []), *lines]) + "\n")
    return path


def sysfs_folder(folder, caches, aliases=()):
    for name, values in caches.items():
        (folder / name).mkdir()
        for key, value in values.items():
            (folder / name / key).write_text(f"{value}\n")
    for alias, name in aliases:
        (folder / alias).symlink_to(name)
    return folder


def values_of(row):
    return dict(zip(COLUMNS[1:], row[1:], strict=True))


# ---- the recorded kernel -------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded():
    if not RECORDED.exists():
        pytest.skip("no recorded caches beside the checkout (../shared/traces)")
    return slabq.compare_host(RECORDED)


def test_the_file_says_what_kernel_and_machine_it_is_of(recorded):
    assert (recorded.kernel, recorded.cpus) == ("6.18.44", 2)
    assert recorded.policy.kernel == "6.18"


def test_no_cache_of_a_real_kernel_differs(recorded):
    differing = [row for row in recorded if row.verdict in ("differs", "unknown")]

    assert len(recorded) == 235
    assert not differing


def test_every_value_of_a_real_kernel_is_compared(recorded):
    names = {"slab_size", "align", "order", "objs_per_slab"}
    names |= {"cpu_partial", "min_partial"}

    assert all(set(row.shown) == names == set(row.own) for row in recorded)


def test_what_is_assumed_of_a_real_kernel_is_what_its_caches_are_known_for(recorded):
    # Inode caches and btrfs's and the radix tree's nodes have a constructor;
    # vm_area_struct places its free pointer.
    assumed = {row.name for row in recorded if row.verdict == "assumed"}

    inodes = {name for name in assumed if "inode" in name}
    assert assumed - inodes == {"radix_tree_node", "vm_area_struct"}
    assert {"inode_cache", "ext4_inode_cache", "shmem_inode_cache"} <= inodes


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"slub_max_order": 1}, "differs"),
        ({"order_search": 2}, "same"),
        ({"cpu_partial_unit": 1}, "differs"),
        ({"min_partial": 6}, "differs"),
    ],
)
def test_another_rule_than_the_kernels_is_seen(recorded, change, verdict):
    rows = {row.name: row for row in slabq.compare_host(RECORDED, **change)}

    assert rows["kmalloc-1k"].verdict == verdict


def test_more_cpus_would_give_larger_slabs(recorded):
    counts = slabq.compare_host(RECORDED, cpus=16).counts()

    assert counts["differs"] > 50


# ---- what is not shown ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "extra", "verdict"),
    [
        ((), (), "assumed"),
        (("ctor",), ("init_once+0x0/0x10",), "same"),
        (("ctor",), ("",), "differs"),
        (("destroy_by_rcu",), (1,), "same"),
        (("poison",), (1,), "same"),
    ],
)
def test_a_word_behind_the_object_needs_a_reason(tmp_path, columns, extra, verdict):
    row = ("inode", 616, 624, 8, 1, 13, *extra)
    path = table_file(tmp_path, row, columns=(*COLUMNS, *columns))

    assert slabq.compare_host(path, **KERNEL)[0].verdict == verdict


@pytest.mark.parametrize(
    ("kernel", "verdict"), [("6.11", "differs"), ("6.12", "assumed")]
)
def test_a_free_pointer_can_be_placed_since_6_12(tmp_path, kernel, verdict):
    row = ("vma", 192, 192, 64, 0, 21, 1, 1)
    columns = (*COLUMNS, "destroy_by_rcu", "hwcache_align")
    path = table_file(tmp_path, row, columns=columns)

    assert slabq.compare_host(path, kernel=kernel, cpus=2)[0].verdict == verdict


def test_more_than_a_word_behind_the_object_differs(tmp_path):
    path = table_file(tmp_path, ("x", 616, 632, 8, 1, 12))

    row = slabq.compare_host(path, **KERNEL)[0]

    assert row.verdict == "differs"
    assert (row.shown["slab_size"], row.own["slab_size"]) == (632, 616)


def test_what_store_user_adds_cannot_be_derived(tmp_path):
    columns = (*COLUMNS, "store_user")
    path = table_file(tmp_path, ("x", 64, 200, 8, 0, 20, 1), columns=columns)

    row = slabq.compare_host(path, **KERNEL)[0]

    assert row.verdict == "unknown"
    assert "SLAB_STORE_USER" in row.why[0]


def test_a_tunable_that_differs_may_have_been_written(tmp_path):
    columns = (*COLUMNS, "min_partial")
    path = table_file(tmp_path, (*DENTRY, 9), columns=columns)

    row = slabq.compare_host(path, **KERNEL)[0]

    assert (row.verdict, row.differing) == ("differs", ("min_partial",))
    assert "tunable" in row.why[0]


@pytest.mark.parametrize(
    ("name", "align", "word"),
    [("kmalloc-64", 64, "kmalloc"), ("task", 64, "creator"), ("kmalloc-64", 8, "")],
)
def test_an_alignment_above_the_rule_is_explained(tmp_path, name, align, word):
    path = table_file(tmp_path, (name, 64, 64, align, 0, 64))

    row = slabq.compare_host(path, **KERNEL)[0]

    assert row.verdict == "same"
    assert word in " ".join(row.why)
    assert bool(row.why) == bool(word)


def test_an_alignment_below_the_rule_differs(tmp_path):
    columns = (*COLUMNS, "hwcache_align")
    path = table_file(tmp_path, ("x", 64, 64, 8, 0, 64, 1), columns=columns)

    assert slabq.compare_host(path, **KERNEL)[0].differing == ("align",)


def test_a_kernel_without_any_cpu_partial_was_built_without(tmp_path):
    columns = (*COLUMNS, "cpu_partial")
    path = table_file(tmp_path, (*DENTRY, 0), columns=columns)

    found = slabq.compare_host(path, **KERNEL)

    assert found.policy.given() == {"slub_cpu_partial": False}


# ---- sysfs ---------------------------------------------------------------------------


def test_a_folder_is_read_like_sysfs_with_aliases_by_symbolic_links(tmp_path):
    merged = (":0000192", *DENTRY[1:])
    caches = {
        ":0000192": values_of(merged),
        "inode": {**values_of(("", 616, 624, 8, 1, 13)), "ctor": "init_once+0x0/0x10"},
    }
    aliases = [("pid", ":0000192"), ("cred", ":0000192")]
    sysfs_folder(tmp_path, caches, aliases)

    rows = slabq.compare_host(tmp_path, **KERNEL)

    assert [row.name for row in rows] == [":0000192", "inode"]
    assert rows[0].aliases == ("cred", "pid")
    assert [row.verdict for row in rows] == ["same", "same"]
    assert "constructor" in rows[1].why[0]


@pytest.mark.skipif(
    not Path("/sys/kernel/slab").is_dir() or os.geteuid() != 0,
    reason="needs root and a kernel with SLUB",
)
def test_every_cache_of_the_running_kernel_gets_a_row():
    names = {path.name for path in Path("/sys/kernel/slab").iterdir()}

    found = slabq.compare_host()

    rows = {row.name for row in found} | {a for row in found for a in row.aliases}
    assert rows == names
    assert sum(found.counts().values()) == len(found)


# ---- the profile ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "profile"),
    [
        *(("2.6.18", "2.6.22"), ("2.6.32", "2.6.30"), ("2.6.38", "2.6.35")),
        *(("3.10.0-1160.el7", "3.2"), ("5.14.21-rt9", "4.19"), ("5.17", "5.16")),
        *(("6.6.1", "6.1"), ("6.12.3-generic", "6.8"), ("7.0.0-rc1", "6.18")),
    ],
)
def test_the_nearest_profile_is_the_newest_that_is_not_newer(kernel, profile):
    assert nearest_profile(kernel) == profile


# ---- bad input -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no line of column names: accepted are"),
        ("# only a comment\n", "has no line of column names"),
        ("name\torder\nx\t0\n", "cache x has no object_size: accepted is a number"),
        ("\t".join(COLUMNS) + "\n", "has no cache: accepted is at least one"),
        (f"{chr(9).join(COLUMNS)}\nx\t8\n", "line 2 has 2 columns: accepted are 6"),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path, text, message):
    path = tmp_path / "caches.tsv"
    path.write_text(text)

    with pytest.raises(slabq.ParameterError, match=message):
        slabq.compare_host(path, **KERNEL)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("order", "two", "order in caches.tsv, line 2 is 'two': accepted is a whole"),
        ("object_size", 0, "object_size of cache dentry is 0: accepted are 1 to"),
        ("slab_size", -8, "slab_size of cache dentry is -8: accepted are 1 to"),
        ("align", 12, "align of cache dentry is 12: accepted are powers of two"),
    ],
)
def test_a_value_out_of_range_is_refused_by_cache_and_name(
    tmp_path, column, value, message
):
    row = [
        value if name == column else v for name, v in zip(COLUMNS, DENTRY, strict=True)
    ]
    path = table_file(tmp_path, row)

    with pytest.raises(slabq.ParameterError, match=message):
        slabq.compare_host(path, **KERNEL)


def test_a_file_without_kernel_and_cpus_needs_them_told(tmp_path):
    plain = table_file(tmp_path, DENTRY)
    with pytest.raises(slabq.ParameterError, match="does not say the kernel release"):
        slabq.compare_host(plain)
    with pytest.raises(slabq.ParameterError, match="does not say the number of CPUs"):
        slabq.compare_host(plain, kernel="6.18")
    with pytest.raises(slabq.ParameterError, match="kernel is 'new': accepted is such"):
        slabq.compare_host(plain, kernel="new", cpus=2)

    told = table_file(tmp_path, DENTRY, comment="# 2-CPU machine, Linux 6.18.2-arch1")

    assert slabq.compare_host(told).kernel == "6.18.2-arch1"


# ---- the command ---------------------------------------------------------------------


@pytest.fixture
def geometry_command(capsys):
    """Run `slabq geometry` in this process; its status and standard output."""

    def call(*words):
        status = main(["geometry", *map(str, words)])
        return status, capsys.readouterr().out

    return call


def test_the_command_prints_a_table_the_counts_and_what_was_assumed(
    geometry_command, tmp_path
):
    path = table_file(tmp_path, DENTRY, ("inode", 616, 624, 8, 1, 13))

    status, output = geometry_command("--host", path, "-k", "6.18.2", "--cpus", 2)

    assert status == 0
    assert "against slub 6.18, the nearest profile" in output
    assert "2 caches: 1 same, 1 assumed, 0 unknown, 0 differs." in output
    assert "inode: assumed to have a constructor" in output
    assert max(map(len, output.splitlines())) <= 78


def test_the_command_ends_with_1_if_a_cache_differs(geometry_command, tmp_path):
    path = table_file(tmp_path, ("dentry", 192, 192, 8, 1, 42))

    status, output = geometry_command("--host", path, "-k", "6.18.2", "--cpus", 2)

    assert status == 1
    assert "1/0" in output
    assert "Where two numbers stand, the kernel's is the first." in output


def test_the_command_prints_one_json_object(geometry_command, tmp_path):
    path = table_file(tmp_path, DENTRY)

    status, output = geometry_command(
        "--host", path, "-k", "6.18.2", "--cpus", 2, "--json"
    )

    assert status == 0
    found = json.loads(output)
    assert (found["kernel"], found["profile"], found["cpus"]) == ("6.18.2", "6.18", 2)
    assert found["counts"]["same"] == 1
    row = found["caches"][0]
    assert (row["name"], row["shown"], row["verdict"]) == (
        "dentry",
        row["slabq"],
        "same",
    )


def test_the_command_takes_options_of_slub(geometry_command, tmp_path):
    path = table_file(tmp_path, ("x", 1024, 1024, 8, 1, 8))
    words = ("--host", path, "-k", "6.18", "--cpus", 2, "--set", "slub_max_order=1")

    assert geometry_command(*words)[0] == 0
    assert geometry_command(*words[:-2])[0] == 1
