"""Machine files: what is refused, what a screen shows of one, what fits the host."""

import json
from pathlib import Path

import pytest

import slabq
from slabq import host_memory
from slabq.cli import main
from slabq.costs import check_costs, costs_with_sources
from slabq.machine import Machine, find_machine, machine_costs_table, machine_presets

PRESETS = list(machine_presets())

# What a file says -> words of the one line: the field, its value, what is accepted.
REFUSED = {
    "no cpus": ("nodes = 1", ["no cpus", "required"]),
    "cpus as text": ('cpus = "8"', ["cpus is '8'", "whole number"]),
    "unknown field": ("cpus = 4\ncores = 2", ["'cores'", "known are"]),
    "negative cost": ("[costs]\nl1_hit_ps = -5", ["l1_hit_ps is -5", "0 to"]),
    "cost beyond a millisecond": (
        "[costs]\nl1_hit_ps = 1000000001",
        ["l1_hit_ps is 1000000001", "0 to 1000000000"],
    ),
    "half a cost": ("[costs]\nl1_hit_ps = 1.5", ["l1_hit_ps is 1.5", "whole number"]),
    "cost that is a switch": ("[costs]\nl1_hit_ps = true", ["l1_hit_ps is True"]),
    "cost without a value": ('[costs]\nl1_hit_ps = {unit = "ps"}', ["l1_hit_ps is {"]),
    "cost without a unit": (
        "[costs]\nl1_hit_ps = {value = 5}",
        ["l1_hit_ps has no unit", "'ps'"],
    ),
    "cost of another unit": (
        '[costs]\nl1_hit_ps = {value = 5, unit = "ns"}',
        ["unit of l1_hit_ps is 'ns'", "'ps'"],
    ),
    "cost whose name has no unit": ("[costs]\nl1_hit = 5", ["'l1_hit'", "l1_hit_ps"]),
    "costs that are a number": ("costs = 5", ["costs is 5", "table"]),
    "costs that are text": ('costs = "x"', ["costs is 'x'", "table"]),
    "costs that are a list": ("costs = [1]", ["costs is [1]", "table"]),
    "system calls that are text": ('syscall_ns = "x"', ["syscall_ns is 'x'"]),
    "negative system call": (
        "[syscall_ns]\nhackbench = -4",
        ["syscall_ns of hackbench is -4", "0 to"],
    ),
    "system call in ps": (
        '[syscall_ns]\nhackbench = {value = 4, unit = "ps"}',
        ["unit of hackbench is 'ps'", "'ns'"],
    ),
    "distances of fewer nodes": (
        "nodes = 2\ndistance = [[10]]",
        ["distance is 1 by 1 with 2 nodes", "2 by 2"],
    ),
    "distances of more nodes": (
        "distance = [[10, 20], [20, 10]]",
        ["distance is 2 by 2 with 1 nodes"],
    ),
    "distance of a node from itself": (
        "nodes = 2\ndistance = [[10, 20], [20, 20]]",
        ["distance[1][1] is 20", "accepted is 10"],
    ),
    "caches of too few CPUs": ("llc_of_cpu = [0, 0]", ["llc_of_cpu has 2 values"]),
    "no first level": ("[costs]\nl1_lines = 0", ["l1_lines is 0", "1 to"]),
    "first level beyond the second": (
        "[costs]\nl1_lines = 1024\nl2_lines = 512",
        ["l2_lines is 512 with l1_lines 1024"],
    ),
    "first level beyond the last": (
        "[costs]\nl1_lines = 1024\nl2_lines = 0\nllc_lines = 1000",
        ["llc_lines is 1000 with l1_lines 1024"],
    ),
}


def written(folder: Path, text: str) -> Path:
    path = folder / "box.toml"
    is_whole = "cpus = " in text or text == "nodes = 1"
    path.write_text(text if is_whole else f"cpus = 4\n{text}")
    return path


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_machine_file_is_refused_in_one_line_that_names_the_field(
    name, tmp_path, capsys
):
    text, words = REFUSED[name]
    path = written(tmp_path, text)

    assert main(["run", "hackbench", "-e", "sim", "-m", str(path)]) == 2

    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "box.toml" in err
    for word in words:
        assert word in err


# Refused when it is simulated: natively there is nothing wrong with it.
REFUSED_BY_SIM = {
    "a cache of two nodes": (
        "nodes = 2\nllc_of_cpu = [0, 0, 0, 0]",
        ["llc_of_cpu is 0", "CPU 0 of node 0", "CPU 2 of node 1"],
    ),
    "threads that CPUs are no multiple of": (
        "[costs]\nthreads_per_core = 3",
        ["threads_per_core is 3", "divisors of the 4 CPUs"],
    ),
    "threads of two caches": (
        "llc_of_cpu = [0, 0, 1, 1]\n[costs]\nthreads_per_core = 2",
        ["threads_per_core is 2", "CPUs 0 and 2"],
    ),
}


@pytest.mark.parametrize("name", REFUSED_BY_SIM)
def test_a_machine_that_cannot_be_simulated_is_refused_by_sim_alone(
    name, tmp_path, capsys
):
    text, words = REFUSED_BY_SIM[name]
    path = str(written(tmp_path, text))
    command = ["run", "hackbench", "-g", "1", "-l", "2", "-p", "slub", "-m", path]

    assert main([*command, "-e", "sim"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    for word in words:
        assert word in err
    assert main(command) == 0


def test_a_plain_number_has_the_unit_of_its_name(tmp_path):
    machine = find_machine(written(tmp_path, "[costs]\nl1_hit_ps = 1500"))

    assert dict(machine.costs)["l1_hit_ps"] == 1500


# ---- what does not fit the host ------------------------------------------------------


@pytest.mark.parametrize("engine", ["native", "sim"])
def test_a_machine_beyond_the_hosts_memory_is_refused_with_the_estimate(
    engine, monkeypatch, capsys
):
    monkeypatch.setattr(host_memory, "available_bytes", lambda: 2 << 30)
    words = ["--cpus", "32", "--nodes", "16", "--node-bytes", "1T", "-e", engine]

    assert main(["run", "hackbench", "-g", "1", "-l", "1", *words]) == 2

    err = capsys.readouterr().err
    assert err.count("\n") == 1
    # A page for each 4 MiB of 16 TiB, or a large page for each 128 MiB of it.
    huge = engine == "sim" and host_memory.has_huge_pages()
    assert f"{256.0 if huge else 16.0} GiB" in err
    assert "2.0 GiB are left" in err
    assert "node_bytes is 1099511627776 on 16 nodes" in err


@pytest.mark.parametrize(
    ("words", "gib"),
    [
        ("kmalloc --test concurrent --count 1000000 --size 4096", 15.3),
        ("kmalloc --test alloc-free --count 1000000 --size 8192", 7.6),
        ("churn --slots 1000000 --size-min 4096 --size-max 4096", 15.3),
        ("churn --slots 1000000 --size-min 8192 --size-max 8192 --shared", 7.6),
    ],
)
def test_live_objects_beyond_the_hosts_memory_are_refused_with_the_estimate(
    words, gib, monkeypatch, capsys
):
    """A million objects on each of 4 CPUs, on a machine that has room for them."""
    monkeypatch.setattr(host_memory, "available_bytes", lambda: 1 << 30)
    machine = ["--cpus", "4", "--node-bytes", "64G", "-p", "slub"]

    assert main(["run", *words.split(), *machine]) == 2

    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert f"needs about {gib} GiB" in err
    assert "1.0 GiB are left" in err


def test_a_machine_that_fits_is_made(monkeypatch):
    monkeypatch.setattr(host_memory, "available_bytes", lambda: 64 << 20)

    Machine(cpus=2, nodes=2).core(1, "sim")
    with pytest.raises(slabq.OutOfMemory, match="needs about"):
        Machine(cpus=2, nodes=2, node_bytes=1 << 40).core(1, "sim")


def test_a_control_group_may_leave_less_than_the_host_has(monkeypatch, tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:   4096 kB\n")
    (tmp_path / "max").write_text("3000000\n")
    (tmp_path / "current").write_text("1000000\n")
    monkeypatch.setattr(host_memory, "MEMINFO", tmp_path / "meminfo")

    monkeypatch.setattr(host_memory, "CGROUPS", ())
    assert host_memory.available_bytes() == 4096 * 1024
    group = (tmp_path / "max", tmp_path / "current")
    monkeypatch.setattr(host_memory, "CGROUPS", (group,))
    assert host_memory.available_bytes() == 2_000_000
    (tmp_path / "max").write_text("max\n")
    assert host_memory.available_bytes() == 4096 * 1024
    monkeypatch.setattr(host_memory, "MEMINFO", tmp_path / "no such file")
    assert host_memory.available_bytes() is None


# ---- the screen ----------------------------------------------------------------------


def shown(capsys, *words: str) -> str:
    assert main(["show", "machine", *words]) == 0
    return capsys.readouterr().out


MACHINES = {
    **{name: [name] for name in PRESETS},
    "host": ["host"],
    "large": ["--cpus", "256", "--nodes", "16"],
    "one": ["--cpus", "1"],
}


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_fits_78_columns_and_names_every_parameter(name, capsys):
    out = shown(capsys, *MACHINES[name])

    assert max(map(len, out.splitlines())) <= 78
    for parameter, *_ in slabq._core.SimMachine.parameters():
        assert f"\n{parameter} " in out


def test_the_cost_table_has_every_place_a_line_can_be(capsys):
    """Figures worked out by hand from opteron-4x4.toml, in ns."""
    rows = {
        line[:46].strip(): line[46:].split()
        for line in shown(capsys, "opteron-4x4").splitlines()
    }

    assert rows["in its L1"] == ["1.4", "1.4", "10.2"]
    assert rows["in its own L2"] == ["7.1", "3.2", "15.9"]
    assert rows["in its last-level cache"] == ["22.0", "9.9", "30.9"]
    assert rows["changed in the L1 of CPU 1-3, same cache"] == ["65.0", "29.2", "73.9"]
    far = rows["changed in a cache of CPU 12-15, distance 30"]
    assert far == ["150.0", "67.5", "158.9"]
    assert rows["memory of node 0, its own"] == ["130.0", "58.5", "138.9"]
    assert rows["memory of node 3, distance 30"] == ["220.0", "99.0", "228.9"]
    # The line, and the round that takes the others' copies away.
    assert rows["read by CPUs of other caches, too"] == ["22.0", "45.9", "110.9"]


def test_a_parameter_is_shown_with_value_unit_confidence_and_source(capsys):
    lines = shown(capsys, "penryn-2x4").splitlines()

    at = next(n for n, line in enumerate(lines) if line.startswith("l1_hit_ps"))
    assert lines[at].split() == ["l1_hit_ps", "1071", "ps", "high"]
    assert "line in the core's L1. From: 3 cycles, InstLatx64" in lines[at + 1]


def test_json_has_the_same_for_programs(capsys):
    document = json.loads(shown(capsys, "penryn-2x4", "--json"))

    cost = document["parameters"]["l1_hit_ps"]
    assert (cost["value"], cost["unit"], cost["confidence"]) == (1071, "ps", "high")
    assert document["transfer_ps"][0] == [50_000, 130_000, 145_000, 145_000]
    assert document["memory_ps"] == [[111_000]]


def test_a_value_that_the_file_lacks_says_whose_it_is(tmp_path):
    path = written(tmp_path, "[costs]\nl1_hit_ps = 1500")
    machine = find_machine(path)

    found = {
        cost.name: cost
        for cost in costs_with_sources(
            check_costs(machine.costs), machine_costs_table(path)
        )
    }
    assert found["l1_hit_ps"].source == "the file does not say"
    assert found["cycle_ps"].source.startswith("as opteron-4x4: 2.2 GHz")
    assert found["page_alloc_cycles"].confidence == "fitted"
    changed = costs_with_sources(check_costs({"cycle_ps": 400}), {})
    assert changed[0].source.startswith("given; else 455, as opteron-4x4")
