"""SLUB+Q does what the postings of 2010 did, line by line, in their recordings."""

import gzip
import json

import oracle_suite
import pytest

from slabq import _core

FOLDERS = [folder for folder in oracle_suite.FOLDERS if folder.policy == "slub+q"]
GEOMETRY = [("sq2", 1), ("sq2", 2), ("sq3", 3), ("sq4", 4)]
FLAGS = {"-": 0, "h": 1}

pytestmark = pytest.mark.skipif(
    not oracle_suite.ORACLE.exists(), reason=oracle_suite.KEPT_ASIDE
)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_recorded_line_comes_out_equal(folder: oracle_suite.Folder) -> None:
    comparisons = oracle_suite.compare_folder(folder)
    assert comparisons, f"no recording in {folder.name}"
    different = [
        f"{comparison.name}: {comparison.first_difference}"
        for comparison in comparisons
        if not comparison.is_equal
    ]
    assert not different, "\n".join(different)


@pytest.mark.parametrize(("table", "version"), GEOMETRY)
def test_every_recorded_geometry_comes_out_equal(table: str, version: int) -> None:
    path = oracle_suite.ORACLE / "original" / "geometry" / f"{table}.tsv.gz"
    with gzip.open(path, "rt") as lines:
        header, *rows = (line.rstrip("\n").split("\t") for line in lines)
    machines: dict[tuple[int, int], _core.Machine] = {}
    for values in rows:
        row = dict(zip(header, values, strict=True))
        cpus, nodes = int(row["nr_cpus"]), int(row.get("nodes", "1"))
        if (cpus, nodes) not in machines:
            machines[cpus, nodes] = machine(cpus, nodes)
        made = _core.geometry(
            machines[cpus, nodes],
            "slub+q",
            [("version", version), ("slub_min_objects", int(row["slub_min_objects"]))],
            int(row["req_size"]),
            int(row["req_align"]),
            FLAGS[row["flags"]],
            0,
        )
        names = header[header.index("size") :]
        geometry = json.loads(made)
        assert [geometry[name] for name in names] == [int(row[n]) for n in names], row


def machine(cpus: int, nodes: int) -> _core.Machine:
    node_of_cpu = [cpu * nodes // cpus for cpu in range(cpus)]
    distance = [row[:nodes] for row in oracle_suite.FOUR_NODES[:nodes]]
    return _core.Machine(node_of_cpu, node_of_cpu, distance, 16 << 20, 0, 0, 1)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_columns_of_a_step_have_their_recorded_names(
    folder: oracle_suite.Folder,
) -> None:
    script, lines = next(iter(oracle_suite.recordings(folder)))
    wanted = step_columns(oracle_suite.recorded_lines(lines))
    assert step_columns(oracle_suite.run_script(folder, script.read_text())) == wanted


def step_columns(lines: list[str]) -> list[str]:
    rows = [json.loads(line) for line in lines if line.startswith('{"vars"')]
    columns: list[str] = rows[0]["vars"]["step_cols"]
    return columns
