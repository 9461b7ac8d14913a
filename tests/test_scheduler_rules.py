"""What the simulated scheduler of each kernel is like, and that a run has it."""

import tomllib
from importlib import resources
from typing import Any

import pytest

import slabq
from slabq.errors import ParameterError
from slabq.policy import kernel_profiles, policy_names
from slabq.scheduler import scheduler_release, scheduler_rules
from slabq.workload import Workload

# Latency, granularity and granularity of wake-ups [ms], as scaled by the kernel's
# 1 + log2 of the CPUs, counted up to 8 since 2.6.33.
TIMES_MS = [
    ("2.6.22", 8, 80, 16, 40),  # the scheduler before is not simulated
    ("2.6.24", 8, 80, 16, 40),
    ("2.6.25", 16, 100, 20, 50),
    ("2.6.25", 1, 20, 4, 10),
    ("2.6.25", 256, 180, 36, 90),
    ("2.6.30", 8, 80, 16, 20),
    ("2.6.35", 8, 24, 8, 4),
    ("2.6.35", 64, 24, 8, 4),
    ("2.6.39", 8, 24, 3, 4),
    ("6.18", 4, 18, 2.25, 3),
]


@pytest.mark.parametrize(
    ("kernel", "cpus", "latency", "granularity", "wakeup"), TIMES_MS
)
def test_slices_are_those_that_a_kernel_has_on_so_many_cpus(
    kernel, cpus, latency, granularity, wakeup
):
    rules = scheduler_rules(kernel, cpus)

    assert rules["sched_latency_us"] == 1000 * latency
    assert rules["sched_min_granularity_us"] == 1000 * granularity
    assert rules["sched_wakeup_granularity_us"] == 1000 * wakeup


def test_every_kernel_of_a_policy_has_a_scheduler_with_a_source():
    for policy in policy_names():
        for kernel in kernel_profiles(policy):
            entry = scheduler_release(kernel)
            assert entry["source"], kernel
            assert entry["confidence"] in ("high", "medium", "low"), kernel


def test_every_rule_of_the_data_is_a_parameter_of_a_run_and_left_open_there():
    file = resources.files("slabq.data").joinpath("schedulers.toml")
    data = tomllib.loads(file.read_text())
    named = {n for e in data["scheduler"] for n in e if n.startswith("sched_")}
    parameters = Workload("hackbench").parameters

    assert named
    assert {parameters[name] for name in named} == {-1}


@pytest.mark.parametrize("cpus", [0, 257, 1.5])
def test_a_number_of_cpus_that_no_machine_has_is_refused(cpus):
    with pytest.raises(ParameterError, match="cpus"):
        scheduler_rules("2.6.35", cpus)


def pairs(**parameters: Any) -> dict[str, Any]:
    """8 pairs of netperf on 8 CPUs, after the start-up."""
    return slabq.run(
        "tcp_rr",
        policy="slab",
        engine="sim",
        machine="penryn-2x4",
        threads=8,
        transactions=1_000_000,
        warmup_operations=40_000,
        measure_operations=40_000,
        **parameters,
    ).row()


def test_what_is_left_open_is_what_the_kernel_has():
    open_row = pairs(kernel="2.6.35")
    given_row = pairs(kernel="2.6.35", **scheduler_rules("2.6.35", 8))

    assert given_row["elapsed_s"] == open_row["elapsed_s"]
    assert given_row["counters"] == open_row["counters"]


def test_a_hint_that_the_waker_sleeps_draws_a_pair_to_one_cpu():
    # Without it each end stays where it is, and wakes an idle CPU each time.
    drawn = pairs(kernel="2.6.35")
    apart = pairs(kernel="2.6.35", sched_sync_readable=0)

    assert drawn["busy"] > 0.99
    assert apart["busy"] < 0.9


def test_idle_cpus_take_tasks_that_ran_lately_after_they_failed_twice():
    # Pairs have come together on some of the CPUs, and are always hot.
    taken = pairs(kernel="2.6.35")
    left = pairs(kernel="2.6.35", sched_force_after=0)

    assert taken["busy"] > 0.99
    assert left["busy"] < 0.9


@pytest.mark.parametrize(
    ("name", "value"),
    [("sched_tick_us", 9), ("sched_latency_us", 0), ("sched_balance_interval_us", 99)],
)
def test_a_time_that_is_too_short_to_mean_something_is_refused(name, value):
    with pytest.raises(ParameterError, match=f"{name} is {value}: accepted are -1 and"):
        slabq.run("hackbench", policy="slab", engine="sim", groups=1, **{name: value})
