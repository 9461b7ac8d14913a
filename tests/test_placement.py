"""Where a woken task is put by averages of load, and what a CPU that ran dry takes.

Four CPUs behind one cache: with two threads a core, CPUs 0 and 2 are one core, 1 and 3
the other. The waker is on CPU 0 and busy. No figure here is measured: each follows from
the rule that the test is named after.
"""

from pathlib import Path
from typing import Any

import pytest
import sim_build

COSTS = sim_build.preset("i7-4790")
LONG = 200_000  # us; the averages halve in 33 ms, so this is all there is


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sim_build.build_any(tmp_path_factory, "place_driver.c")


def play(driver: Path, case: str, *hogs: str, **values: int) -> dict[str, Any]:
    words = [f"hog={hog}" for hog in hogs]
    return sim_build.run(driver, case, *words, **COSTS | values)


def placed(driver: Path, *hogs: str, **values: int) -> int:
    """The CPU that the sleeper runs on when it is woken first."""
    found: int = play(driver, "wake", *hogs, **values)["ran_on"][0]
    return found


def busy(*cpus: int, until: int = LONG + 10_000) -> list[str]:
    return [f"{cpu}:2000:{until}" for cpu in cpus]


# ---- an idle CPU ---------------------------------------------------------------------


def test_the_last_cpu_is_taken_if_it_is_idle(driver):
    assert placed(driver, last=3, wake_us=3000) == 3


def test_an_idle_core_comes_before_an_idle_thread(driver):
    # The last CPU is the waker's sibling, and busy; the other core has nothing to do.
    assert placed(driver, *busy(2), last=2, wake_us=3000) == 1


def test_the_sibling_of_the_last_cpu_comes_before_other_idle_threads(driver):
    assert placed(driver, *busy(1), last=1, wake_us=3000) == 3


def test_a_cpu_that_was_used_not_long_ago_is_tried_before_the_search(driver):
    # On CPU 3 the sleeper woke another; it is found busy, and idle when next asked.
    # A core is one CPU, so the search would go by number.
    hogs = ["3:2000:4000", "1:4500:9000"]
    times = {"wake_us": 3000, "again_us": 5000}
    one = {"last": 3, "sleeper_flips": 1, "threads_per_core": 1}

    assert play(driver, "wake", *hogs, **times, **one)["ran_on"] == [1, 3]
    one |= {"sleeper_flips": 0}
    assert play(driver, "wake", *hogs, **times, **one)["ran_on"] == [1, 2]


@pytest.mark.parametrize(("naps", "cpu"), [(0, 0), (1, 3)])
def test_a_waker_that_was_never_idle_looks_at_three_cpus_only(driver, naps, cpu):
    # The fourth is the only idle one. A waker that has slept has the time to find it.
    assert placed(driver, *busy(1, 2), last=2, wake_us=LONG, naps=naps) == cpu


# ---- the waker's CPU or the last one, when all are busy ------------------------------


def test_a_waker_that_is_alone_and_about_to_sleep_draws_the_task(driver):
    assert placed(driver, *busy(1, 2, 3), last=2, wake_us=LONG) == 0


def test_the_cpu_with_less_load_gets_the_task_of_a_waker_that_goes_on(driver):
    asked = {"last": 2, "wake_us": LONG, "sync": 0}

    assert placed(driver, *busy(1, 2, 2, 3), **asked) == 0  # 1 task against 2
    assert placed(driver, *busy(0, 0, 1, 2, 3), **asked) == 2  # 3 against 1


@pytest.mark.parametrize(("average", "cpu"), [(1, 2), (0, 0)])
def test_load_that_has_just_ended_still_counts(driver, average, cpu):
    # The waker's CPU had four tasks until 20 ms ago, the last CPU has two: on average
    # 1 + 3 * 2 ** (-20 / 33) against 2.
    hogs = busy(0, 0, 0, until=LONG - 20_000) + busy(1, 2, 2, 3)
    asked = {"last": 2, "wake_us": LONG, "sync": 0, "average": average}

    assert placed(driver, *hogs, **asked) == cpu


@pytest.mark.parametrize(("waker_flips", "cpu"), [(24, 2), (12, 0)])
def test_partners_that_are_many_are_not_drawn_together(driver, waker_flips, cpu):
    # Of 4 CPUs: the one has woken another 5 times, and 4 times 5 is between 12 and 24.
    flips = {"waker_flips": waker_flips, "sleeper_flips": 5}

    assert placed(driver, *busy(1, 2, 3), last=2, wake_us=LONG, **flips) == cpu


# ---- a CPU that ran dry --------------------------------------------------------------


@pytest.mark.parametrize(("preempt", "moved"), [(1, 1), (0, 4)])
def test_a_preemptible_kernel_moves_one_task_to_a_cpu_that_ran_dry(
    driver, preempt, moved
):
    # Of 8 tasks one runs and 7 wait; a kernel that is not takes half of them.
    assert play(driver, "dry", preempt=preempt)["moved"] == moved
