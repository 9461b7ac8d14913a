"""The campaign of random scripts: a quick one, and what it is made of."""

import subprocess
import sys
from pathlib import Path

import pytest
from model import Setup, Shape
from scripts import Script, draw_script, run_script, shorten

from slabq import _core

CAMPAIGN = Path(__file__).parent / "campaign.py"


def run_campaign(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(CAMPAIGN), "--jobs", "1", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=110)


def test_a_quick_campaign_finds_nothing_and_says_what_it_ran():
    campaign = run_campaign("--steps", "3000", "--seed", "1")

    assert campaign.returncode == 0, campaign.stdout + campaign.stderr
    words = campaign.stdout.split()
    steps, checks = int(words[0]), int(words[2])
    assert words[1] == "steps,"
    assert steps >= 3000
    assert checks >= steps  # after each step, and as each script ends
    assert "seeds 1 to " in campaign.stdout
    assert " 0 seeds failed" in campaign.stdout


def test_a_seed_always_gives_the_same_script():
    scripts = [draw_script(seed, _core.policies(), 100) for seed in (7, 7, 8)]

    assert scripts[0] == scripts[1]
    assert scripts[1] != scripts[2]
    assert Script.from_json(scripts[0].to_json()) == scripts[0]


@pytest.mark.parametrize("policy", _core.policies())
def test_scripts_draw_every_option_and_every_operation(policy):
    scripts = [draw_script(seed, [policy], 100) for seed in range(300)]
    drawn = {name for script in scripts for name, _ in script.setup.options}
    known = {name for owner, name, *_ in _core.options() if owner == policy}

    assert drawn == known
    assert {name for script in scripts for name, _ in script.steps} >= {
        *("alloc", "free", "alloc_bulk", "free_bulk", "kmalloc", "kfree", "shrink"),
        *("flush", "reap", "tune", "look", "wrong_pointer", "wrong_place"),
    }


def test_a_script_is_shortened_to_the_steps_that_matter():
    script = draw_script(3, ["slub"], 100)
    steps = (*script.steps, ("flush", (0, 5)), *script.steps, ("shrink", (0, 3)))

    def fails(candidate: Script) -> bool:
        names = [name for name, _ in candidate.steps]
        return "flush" in names and "shrink" in names[names.index("flush") :]

    shortest = shorten(script._replace(steps=steps), fails)

    assert shortest.steps == (("flush", (0, 0)), ("shrink", (0, 0)))
    assert shortest.setup.options == ()


def test_running_out_of_memory_leaves_everything_sound():
    steps = [("alloc", (0, cpu, -1, 800)) for cpu in range(4)]
    steps += [("kmalloc", (1, 8000, 0, 800)), ("free", (0, 2, 0, 700))]
    steps += [("look", (0, 0)), ("alloc", (0, 1, 0, 100))]
    for policy in _core.policies():
        setup = Setup(policy, 4, 1, 4 << 20, (), (Shape(9000),))

        outcome = run_script(Script(setup, tuple(steps)))

        assert outcome.failure is None, policy
        assert outcome.ran_out > 0, policy


@pytest.mark.parametrize(
    ("policy", "options", "size"),
    [
        ("slub+q", (("kmalloc_max_size", 2467),), 2103),
        ("slub+q", (("kmalloc_min_size", 16),), 6842),
        ("slub+q", (("kmalloc_max_size", 33554432),), 1 << 22),
        ("slab", (("kmalloc_max_size", 5000), ("kmalloc_min_size", 16)), 4097),
        ("slub", (("kmalloc_max_size", 5000), ("kmalloc_min_size", 16)), 4097),
    ],
)
def test_kmalloc_gives_what_was_asked_for_whatever_its_smallest_and_largest_cache(
    policy, options, size
):
    setup = Setup(policy, 2, 1, 64 << 20, options, (Shape(64),))
    steps = tuple(("kmalloc", (0, asked, -1, 3)) for asked in (1, 9, 97, 193, size))

    outcome = run_script(Script(setup, (*steps, ("look", (0, 0)))))

    assert (outcome.failure, outcome.refused) == (None, None)


def test_a_line_of_slab_that_is_no_power_of_two_is_refused():
    setup = Setup("slab", options=(("cache_line_size", 33),))

    refused = run_script(Script(setup, ())).refused

    assert refused is not None
    assert "cache_line_size of policy slab is 33: accepted are 32, 64" in refused


@pytest.mark.parametrize(
    "options",
    [
        (("slub_max_order", 10), ("slub_min_objects", 65535)),
        (("slub_max_order", 10), ("slub_min_objects", 824), ("kmalloc_few_order", 9)),
    ],
    ids=["slub_min_objects", "kmalloc_few_order"],
)
@pytest.mark.parametrize("policy", ["slub", "sheaves"])
def test_a_slab_holds_no_more_objects_than_it_can_count(policy, options):
    setup = Setup(policy, 1, 1, 64 << 20, options, (Shape(24),))
    steps = (("alloc", (0, 0, -1, 1)), ("kmalloc", (0, 0, -1, 1)))

    # In a process of its own, which an assertion may end.
    campaign = run_campaign("--script", Script(setup, steps).to_json())

    assert "failure=None" in campaign.stdout
