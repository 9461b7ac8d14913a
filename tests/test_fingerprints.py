"""Equal seeds give equal runs, and other seeds other ones wherever there are lots."""

import json
from pathlib import Path

import fingerprints
import pytest

from slabq.cli import main
from slabq.machine import find_machine

# Work that draws lots of its own; all other work is the same whatever the seed, unless
# the machine delays its events.
DRAWS_LOTS = {"churn", "tbench"}
WORDS = {
    "hackbench": ["-g", "2", "-l", "10"],
    "tcp_rr": ["--threads", "4", "--transactions", "100"],
    "tbench": ["--clients", "4", "--operations", "200"],
    "kmalloc": ["--test", "concurrent", "--count", "1000"],
    "producer-consumer": ["--pairs", "2", "--objects", "2000"],
    "churn": ["--replacements", "1000"],
}


def rows(capsys, *words: str) -> list[dict]:
    assert main(["run", *words, "-e", "sim", "--json"]) == 0
    return json.loads(capsys.readouterr().out)["results"]


@pytest.mark.parametrize("work", WORDS)
def test_the_same_command_twice_prints_the_same(capsys, work):
    words = [work, *WORDS[work], "-m", "penryn-2x4", "--seed", "7"]
    words += ["-p", "slab,slub,slub+q,sheaves", "--set", "sheaf_all_caches=true"]

    first, second = rows(capsys, *words), rows(capsys, *words)

    assert first == second
    assert len({row["fingerprint"] for row in first}) == len(first)  # one a policy


@pytest.mark.parametrize("work", WORDS)
def test_another_seed_is_another_run_where_there_are_lots(capsys, work):
    words = [work, *WORDS[work], "-m", "penryn-2x4", "-p", "slab"]

    (one,), (other,) = (rows(capsys, *words, "--seed", seed) for seed in ("1", "2"))

    same = one["fingerprint"] == other["fingerprint"]
    assert same is (work not in DRAWS_LOTS)


@pytest.mark.parametrize("work", WORDS)
def test_with_jitter_every_seed_is_a_run_of_its_own(work):
    run = ("slub", "opteron-4x4", 5000)

    found = [fingerprints.fingerprint(work, *run, seed=seed) for seed in (1, 1, 2, 3)]

    assert found[0] == found[1]
    assert len(set(found)) == 3


def test_repeats_of_one_run_have_the_seeds_that_follow(capsys):
    words = ["churn", "--replacements", "500", "-m", "penryn-2x4", "-p", "slub"]

    (alone,) = rows(capsys, *words, "--seed", "5")
    repeated = rows(capsys, *words, "--seed", "4", "--repeat", "2")

    assert alone["fingerprint"] in json.dumps(repeated)


def test_a_machine_file_of_equal_values_gives_equal_fingerprints(capsys, tmp_path):
    """The name of a machine is no part of a run; its values are."""
    costs = dict(find_machine("penryn-2x4").costs)
    text = "cpus = 8\nllc_of_cpu = [0, 0, 1, 1, 2, 2, 3, 3]\n[syscall_ns]\n"
    text += f"hackbench = {dict(find_machine('penryn-2x4').syscall_ns)['hackbench']}\n"
    prints = []
    for change in (0, 1):
        values = {**costs, "l1_hit_ps": costs["l1_hit_ps"] + change}
        path = Path(tmp_path / f"twin{change}.toml")
        lines = "".join(f"{name} = {value}\n" for name, value in values.items())
        path.write_text(f"{text}[costs]\n{lines}")
        words = ["hackbench", "-g", "1", "-l", "5", "-p", "slub"]
        prints.append(rows(capsys, *words, "-m", str(path))[0]["fingerprint"])
    own = rows(capsys, *words, "-m", "penryn-2x4")[0]["fingerprint"]

    assert prints[0] == own
    assert prints[1] != own


def test_the_comparison_of_builds_tells_a_run_that_differs(
    tmp_path, monkeypatch, capsys
):
    runs = list(fingerprints.runs())
    monkeypatch.setattr(fingerprints, "runs", lambda: iter(runs[:2]))
    found = fingerprints.lines()
    same, other = tmp_path / "same", tmp_path / "other"
    same.write_text("\n".join(found))
    other.write_text("\n".join([found[0], found[1][:-1] + "x"]))

    for path, status in ((same, 0), (other, 1)):
        monkeypatch.setattr("sys.argv", ["fingerprints.py", str(path)])
        assert fingerprints.main() == status
    assert "2 fingerprints are the same" in capsys.readouterr().out
