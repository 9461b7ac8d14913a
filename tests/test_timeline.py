"""What a run was like over time, and the file that viewers of traces open."""

import itertools
import json

import pytest

import slabq
from slabq.cli import main
from slabq.errors import ParameterError
from slabq.policy import find_policy
from slabq.result import Result
from slabq.timeline import save_timeline, trace_events

SIM = {
    "policy": "slub",
    "machine": "penryn-2x4",
    "engine": "sim",
    "groups": 1,
    "loops": 50,
}


@pytest.fixture(scope="module")
def simulated():
    return slabq.run("hackbench", with_timeline=True, **SIM)


def totals(sample):
    return sum(sample["operations_by_cpu"])


def by_hand(*samples):
    sample = {"elapsed_s": 1.0, "rate_unit": "messages/s", "timeline": list(samples)}
    return Result(
        workload="hackbench",
        policy=find_policy("slub"),
        machine=slabq.Machine(cpus=2),
        engine="sim",
        seed=1,
        parameters={},
        samples=[sample],
    )


def test_a_timeline_changes_nothing_of_a_simulated_run(simulated):
    plain = slabq.run("hackbench", **SIM)

    assert simulated.sample["fingerprint"] == plain.sample["fingerprint"]
    assert simulated.row() == plain.row()


def test_totals_never_fall_and_end_below_those_of_the_run(simulated):
    samples = simulated.sample["timeline"]

    assert len(samples) > 10
    for before, after in itertools.pairwise(samples):
        assert before["at_ns"] < after["at_ns"]
        assert totals(before) <= totals(after)
        for name, count in before["counters"].items():
            assert count <= after["counters"][name]
    last = samples[-1]
    assert 0 < totals(last) <= simulated.operations
    for name, count in last["counters"].items():
        assert count <= simulated.counters[name]


def test_memory_over_time_stays_below_the_peak_of_the_run(simulated):
    most = max(sample["slab_bytes"] for sample in simulated.sample["timeline"])

    assert 0 < most <= simulated.memory["peak_bytes"]


def test_a_long_run_is_thinned_and_spans_the_whole_of_it():
    result = slabq.run("hackbench", with_timeline=True, **{**SIM, "loops": 400})
    samples = result.sample["timeline"]

    assert 200 <= len(samples) <= 512
    assert samples[-1]["at_ns"] > 0.9 * result.elapsed_s * 1e9
    gaps = [b["at_ns"] - a["at_ns"] for a, b in itertools.pairwise(samples)]
    assert min(gaps) > 10_000  # doubled at least once


def test_a_measured_run_has_memory_and_operations_only():
    result = slabq.run(
        "hackbench",
        policy="slub",
        machine=slabq.Machine(cpus=2),
        groups=2,
        loops=2000,
        with_timeline=True,
    )

    assert all("locks" not in sample for sample in result.sample["timeline"])


def test_values_between_two_samples_are_rates():
    first = {
        "at_ns": -500_000,
        "slab_bytes": 1 << 20,
        "operations_by_cpu": [0, 0],
        "locks": {},
        "counters": {"alloc_slab": 1},
    }
    second = {
        "at_ns": 1_500_000,
        "slab_bytes": 2 << 20,
        "operations_by_cpu": [10, 0],
        "locks": {"list_lock": {"wait_ns": 1_000_000}},
        "counters": {"alloc_slab": 5},
    }

    events = list(trace_events([by_hand(first, second)]))

    found = {(e["name"], e.get("ts")): e["args"] for e in events if e["ph"] == "C"}
    assert found["slab memory", 0.0] == {"MiB": 1.0}
    assert found["slab memory", 2000.0] == {"MiB": 2.0}
    assert found["CPU 0", 0.0] == {"messages/ms": 5.0}
    assert found["CPU 1", 0.0] == {"messages/ms": 0.0}
    assert found["CPUs that wait, by lock", 0.0] == {"list_lock": 0.5}
    assert found["alloc_slab", 0.0] == {"1/ms": 2.0}
    (start,) = [e for e in events if e["ph"] == "i"]
    assert start["ts"] == 500.0


def test_a_result_without_a_timeline_is_refused(tmp_path):
    result = slabq.run("hackbench", **SIM)

    with pytest.raises(ParameterError, match="accepted are results of"):
        save_timeline(result, tmp_path / "x.json")


def test_the_command_writes_one_process_a_policy(tmp_path, capsys):
    path = tmp_path / "x.json"
    words = ["run", "hackbench", "-g", "1", "-l", "10", "-p", "slab,slub"]

    assert main([*words, "-m", "penryn-2x4", "-e", "sim", "--timeline", str(path)]) == 0

    events = json.loads(path.read_text())["traceEvents"]
    names = [e["args"]["name"] for e in events if e["ph"] == "M"]
    assert [name.split()[1] for name in names] == ["slab", "slub"]
    assert all("(simulated)" in name for name in names)
    assert {e["ph"] for e in events} <= {"M", "C", "i"}


def test_a_replay_has_a_timeline_too(tmp_path):
    result = slabq.replay(
        slabq.bundled_trace_path(),
        policy="slub",
        machine="penryn-2x4",
        engine="sim",
        with_timeline=True,
    )

    assert len(result.sample["timeline"]) > 10


def test_a_file_that_could_not_be_written_is_refused_before_the_work(capsys):
    assert main(["run", "hackbench", "--timeline", "no/such/x.json"]) == 2
    assert "'no/such/x.json'" in capsys.readouterr().err
