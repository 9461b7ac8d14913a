"""The policy `slab` against recordings of the real one: every line, every table row."""

import csv
import gzip
import json

import oracle_suite as suite
import pytest

from slabq import _core

FLAGS = {"-": 0, "h": 1, "r": 2}
GEOMETRY = [
    ("geometry/slab.tsv.gz", "6.1"),
    ("geometry/slab.tsv.gz", "4.19"),
    ("original/geometry/slab35.tsv.gz", "2.6.35"),
    ("original/geometry/slab35.tsv.gz", "2.6.25"),
]
REQUEST = ("nr_cpus", "nodes", "req_size", "req_align", "flags", "slab_max_order")

pytestmark = pytest.mark.skipif(not suite.ORACLE.exists(), reason=suite.KEPT_ASIDE)

FOLDERS = [folder for folder in suite.FOLDERS if folder.policy == "slab"]
PAIRS = [
    pytest.param(folder, script, lines, id=f"{folder.name}/{script.stem}")
    for folder in FOLDERS
    for script, lines in suite.recordings(folder)
]


@pytest.mark.parametrize(("folder", "script", "lines"), PAIRS)
def test_a_script_prints_what_the_kernel_did(folder, script, lines):
    comparison = suite.compare_recording(folder, script, lines)

    assert comparison.total > 0
    assert comparison.is_equal, comparison.first_difference


def machine_of(row):
    cpus, nodes = int(row["nr_cpus"]), int(row["nodes"])
    node_of_cpu = [cpu * nodes // cpus for cpu in range(cpus)]
    distance = [line[:nodes] for line in suite.FOUR_NODES[:nodes]]
    return _core.Machine(node_of_cpu, node_of_cpu, distance, 4 << 20, 3, 0, 1)


@pytest.mark.parametrize(("table", "kernel"), GEOMETRY)
def test_a_cache_has_the_geometry_the_kernel_gave_it(table, kernel):
    with gzip.open(suite.ORACLE / table, "rt") as text:
        rows = list(csv.DictReader(text, delimiter="\t"))
    machines = {}
    wrong = []

    for row in rows:
        machine = machines.setdefault((row["nr_cpus"], row["nodes"]), machine_of(row))
        options = suite.profile("slab", kernel)
        if "slab_max_order" in row:
            options = {**options, "slab_max_order": int(row["slab_max_order"])}
        size, align = int(row["req_size"]), int(row["req_align"])
        flags = FLAGS[row["flags"]]
        text = _core.geometry(
            machine, "slab", list(options.items()), size, align, flags, 0
        )
        own = [(name, str(value)) for name, value in json.loads(text).items()]
        want = [(name, value) for name, value in row.items() if name not in REQUEST]
        if own != want:
            wrong.append((row, own))

    assert rows
    assert not wrong, f"{len(wrong)} of {len(rows)} rows, first: {wrong[0]}"


@pytest.mark.parametrize("node", range(4))
def test_exhaustion_takes_the_nodes_in_the_kernels_order(node):
    path = suite.ORACLE / "timed" / f"exhaust-slab-n4c16-node{node}.jsonl.gz"

    comparison = suite.compare_exhaustion(path)

    assert comparison.is_equal, comparison.first_difference
