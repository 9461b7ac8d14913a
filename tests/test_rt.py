"""PREEMPT_RT: sleeping locks, priorities, preemption, and SLUB's locks on them."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import sim_build

import slabq
from slabq.errors import ParameterError

# Times of a Haswell, but for round figures where a sum should show what it is made of.
COSTS = sim_build.preset("i7-4790") | {
    "l1_hit_ps": 1_000,
    "atomic_ps": 5_000,
    "preempt_ps": 2_000,
}
IRQ_PS = COSTS["irq_save_ps"] + COSTS["irq_restore_ps"]
# What is between a timer and its task, beside a few lines and locks of the run queue.
SWITCH_PS = (
    IRQ_PS + COSTS["wakeup_ps"] + COSTS["schedule_ps"] + COSTS["context_switch_ps"]
)
NEAR_US = 1.0


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sim_build.build_any(tmp_path_factory, "rt_driver.c")


def play(driver: Path, case: str, **values: int) -> dict[str, Any]:
    return sim_build.run(driver, case, **COSTS | values)


# ---- sleeping locks ------------------------------------------------------------------


def test_a_free_lock_costs_two_locked_instructions_on_its_line(driver):
    stamps = play(driver, "pairs", count=10)["stamps_us"]

    pair_ps = 2 * (1_000 + 5_000) + 2_000  # and staying on the CPU, off and on
    assert stamps[1] - stamps[0] == pytest.approx(10 * pair_ps / 1e6, abs=1e-6)


def test_the_only_waiter_spins_while_the_owner_runs(driver):
    found = play(driver, "one-waits")

    assert found["order"] == [0, 1]
    assert found["switches"] == 2  # each task comes to its CPU once
    let_go_us, got_us = found["stamps_us"][:2]
    assert 0 < got_us - let_go_us < NEAR_US
    assert let_go_us == pytest.approx(100, abs=NEAR_US)


def test_of_several_waiters_the_first_spins_and_the_others_sleep(driver):
    found = play(driver, "three-wait")

    assert found["order"] == [0, 1, 2, 3]
    assert found["switches"] == 4 + 2  # two waiters leave their CPUs and come back
    _, first_us, second_us, third_us = found["stamps_us"][:4]
    slept_us = (COSTS["idle_exit_ps"] + COSTS["wakeup_ps"]) / 1e6
    # Each works for 10 us; who slept is called from its idle CPU first.
    assert first_us == pytest.approx(100, abs=NEAR_US)
    assert second_us - first_us > 10 + slept_us
    assert third_us - second_us > 10 + slept_us


def test_a_waiter_gives_its_cpu_away_when_the_owner_is_preempted(driver):
    middle, waiter, other, owner = range(4)
    found = play(driver, "owner-preempted")

    stamps = found["stamps_us"]
    assert found["order"] == [owner, waiter]
    # At 50 us a task of priority takes the owner's CPU for 200 us. The waiter's CPU has
    # another task, which has waited since the start.
    assert stamps[middle] == pytest.approx(50, abs=NEAR_US)
    assert stamps[other] == pytest.approx(50, abs=NEAR_US)
    # The owner's other 50 us come after that.
    assert stamps[owner] == pytest.approx(300, abs=4)
    assert stamps[waiter] > stamps[owner]


def test_an_owner_inherits_the_priority_of_its_waiter(driver):
    middle, high, owner = range(3)
    found = play(driver, "inherits")

    stamps = found["stamps_us"]
    done = [stamps[part + 4] for part in (middle, high)]
    # The owner (normal) loses its CPU at 50 us to priority 50, which would have it for
    # 200 us; at 80 us priority 99 waits, and the owner does its other 50 us at once.
    assert stamps[middle] == pytest.approx(50, abs=NEAR_US)
    assert done[high] == pytest.approx(80 + 50, abs=8)
    assert done[middle] == pytest.approx(250 + 50, abs=8)
    assert found["order"] == [owner, high]


def test_the_waiter_of_the_highest_priority_is_next(driver):
    high, owner, first, second = range(4)
    found = play(driver, "comes-first")

    # The normal tasks asked at 62 and 63 us, the one of priority 99 at 80 us.
    assert found["order"] == [owner, high, first, second]


def test_who_wants_the_local_lock_of_a_preempted_owner_waits_for_it(driver):
    middle, owner, other = range(3)
    found = play(driver, "local")

    assert found["order"] == [owner, other]
    stamps = found["stamps_us"]
    assert stamps[middle] == pytest.approx(50, abs=NEAR_US)
    assert stamps[other] == pytest.approx(300, abs=8)


def test_outside_any_task_a_sleeping_lock_is_a_spin_lock(driver):
    found = play(driver, "outside", count=3)

    assert found == {"acquisitions": 3, "local": 3}


@pytest.mark.parametrize(
    ("misuse", "says"),
    [
        ("irq", "irq_depth == 0"),
        ("spin", "held_count == 0"),
        ("rank", "mutex_class[i] < mutex->lock_class"),
        ("unheld", "sq_rt_mutex_is_held_by"),
    ],
)
def test_what_may_not_sleep_is_told_so(driver, misuse, says):
    words = [f"{name}={value}" for name, value in COSTS.items()]
    done = subprocess.run(
        [driver, f"misuse-{misuse}", *words], capture_output=True, text=True
    )

    assert done.returncode < 0
    assert says in done.stderr


# ---- preemption ----------------------------------------------------------------------


@pytest.mark.parametrize("case", ["late-plain", "late-sleeping"])
def test_a_timer_takes_the_cpu_from_work_and_from_who_holds_a_sleeping_lock(
    driver, case
):
    woke_us = play(driver, case)["stamps_us"][0]

    assert SWITCH_PS <= (woke_us - 50) * 1e6 <= SWITCH_PS + 200_000


def test_with_interrupts_off_a_timer_waits_for_the_rest_of_the_section(driver):
    woke_us = play(driver, "late-raw")["stamps_us"][0]

    # From 0 to 100 us, the timer at 50.
    late_ps = (woke_us - 50) * 1e6
    assert 50_000_000 + SWITCH_PS <= late_ps <= 50_000_000 + SWITCH_PS + 300_000


def test_without_preemption_a_task_of_priority_waits_for_the_call_to_end(driver):
    woke_us = play(driver, "late-plain", preempt=0)["stamps_us"][0]

    assert woke_us >= 100


def test_an_interrupt_takes_the_cpu_from_work_without_preemption_too(driver):
    woke_us, ended_us = play(driver, "interrupt-plain", preempt=0)["stamps_us"][:2]

    # At 50 us. The work of 100 us ends 20 us later for it, and for waking and choosing.
    assert 0 <= (woke_us - 50) * 1e6 <= SWITCH_PS + 200_000
    assert 120 <= ended_us < 122


def test_with_interrupts_off_an_interrupt_waits(driver):
    woke_us = play(driver, "interrupt-raw", preempt=0)["stamps_us"][0]

    assert 100 <= woke_us < 101


def test_a_case_is_the_same_each_time_and_whatever_compiled_it(driver, tmp_path):
    cases = ["three-wait", "inherits", "owner-preempted", "comes-first", "local"]
    want = [play(driver, case) for case in cases]
    assert [play(driver, case) for case in cases] == want

    if shutil.which("clang") is None:
        pytest.skip("no clang")
    other = sim_build.build("clang", tmp_path, "-O2", driver="rt_driver.c")
    assert [play(other, case) for case in cases] == want


# ---- SLUB on them --------------------------------------------------------------------

LOCKS = {
    "local lock, sleeping list_lock": {},
    "local lock, raw list_lock": {"list_lock_raw": 1},
    "local lock, cpu partial lists": {"slub_cpu_partial": 1},
    "exchange, sleeping list_lock": {"fast_path": 1},
    "exchange, raw list_lock": {"fast_path": 1, "list_lock_raw": 1},
    "exchange, cpu partial lists": {"fast_path": 1, "slub_cpu_partial": 1},
    "small slabs": {"slub_max_order": 0},
}
# Small slabs, many tasks, timers that come often.
WORK = {
    "hackbench": {"groups": 2, "loops": 10},
    "cyclictest": {"groups": 2, "loops": 10, "interval_us": 50, "distance_us": 7},
    "churn": {},
}


@pytest.mark.threads
@pytest.mark.parametrize("engine", ["sim", "native"])
@pytest.mark.parametrize("workload", WORK)
@pytest.mark.parametrize("options", LOCKS.values(), ids=LOCKS.keys())
def test_every_object_comes_back_whatever_the_locks(engine, workload, options):
    # A run ends with check() of every cache, and fails if that finds anything.
    policy = slabq.Slub(kernel="5.14-rt", **options)
    machine = "i7-4790" if engine == "sim" else slabq.Machine(cpus=4)
    row = slabq.run(
        workload, policy=policy, machine=machine, engine=engine, **WORK[workload]
    ).row()

    assert row["live"] == 0
    assert row["allocations"] == row["frees"] > 0
    assert ("local_lock" in row["locks"]) == ("fast_path" not in options)


@pytest.mark.threads
@pytest.mark.parametrize("engine", ["sim", "native"])
@pytest.mark.parametrize("options", LOCKS.values(), ids=LOCKS.keys())
def test_a_run_that_is_cut_off_leaves_no_list_half_changed(engine, options):
    policy = slabq.Slub(kernel="5.14-rt", **options)
    row = slabq.run(
        "cyclictest",
        policy=policy,
        machine="i7-4790" if engine == "sim" else slabq.Machine(cpus=4),
        engine=engine,
        groups=2,
        loops=1000,
        interval_us=20,
        distance_us=3,
        warmup_operations=1000,
        measure_operations=3000,
    ).row()

    assert row["operations"] >= 3000


def test_equal_seeds_give_equal_runs_with_preemption():
    def fingerprint(seed: int) -> str:
        row = slabq.run(
            "cyclictest",
            policy="slub",
            kernel="5.14-rt",
            machine="i7-4790",
            engine="sim",
            groups=2,
            loops=10,
            interval_us=50,
            seed=seed,
        ).row()
        return str(row["fingerprint"])

    assert fingerprint(1) == fingerprint(1)
    assert fingerprint(1) != fingerprint(2)


def test_the_objects_are_those_of_the_same_kernel_without_rt():
    # By hand nothing waits: which lock guards a list cannot change what is on it.
    def slabs(**options: int) -> list[Any]:
        policy = slabq.Slub(kernel="5.14-rt", slub_cpu_partial=1, **options)
        machine = slabq.Machine(cpus=2)
        allocator = slabq.Allocator(policy, machine=machine)
        cache = allocator.create_cache("toy", 700)
        objects = [cache.alloc(cpu=i % 2) for i in range(200)]
        for i, item in enumerate(objects[::3]):
            cache.free(item, cpu=i % 2)
        cache.check()
        cache.shrink()
        cache.check()
        return [cache.snapshot()["nodes"], allocator.slabinfo()]

    exchange = {"fast_path": 1, "list_lock_raw": 1}
    assert slabs() == slabs(**exchange, irq_scope=0) == slabs(**exchange)


def test_a_bulk_call_gives_and_takes_the_same_under_a_local_lock():
    allocator = slabq.Allocator("slub", kernel="5.14-rt", machine=slabq.Machine(cpus=2))
    cache = allocator.create_cache("toy", 256)

    objects = cache.alloc_bulk(100, cpu=0)
    assert len(set(objects)) == 100
    cache.check()
    cache.free_bulk(objects, cpu=1)
    cache.check()


@pytest.mark.parametrize("value", [0, 1])
def test_a_kernel_without_rt_has_no_choice_of_list_lock(value):
    with pytest.raises(ParameterError) as caught:
        slabq.Slub(kernel="6.1", list_lock_raw=value)

    text = str(caught.value)
    assert f"list_lock_raw is {value} of policy slub, kernel 6.1" in text
    assert "preempt_rt 1" in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("kernel", "options", "says"),
    [
        (
            "6.1",
            {"fast_path": 2, "irq_scope": 1},
            "fast_path is 2 of policy slub with preempt_rt 0 and irq_scope 1",
        ),
        (
            "5.14-rt",
            {"irq_scope": 0},
            "list_lock_raw is 0 of policy slub with preempt_rt 1 and irq_scope 0",
        ),
        ("6.1", {"irq_scope": 1, "fast_path": 0}, "irq_scope of policy slub is 1"),
        (
            "5.14-rt",
            {"list_lock_raw": 1, "slub_cpu_partial": 1},
            "list_lock_raw of policy slub is 1 with slub_cpu_partial 1",
        ),
    ],
)
def test_locks_that_do_not_go_together_are_refused(kernel, options, says):
    policy = slabq.Slub(kernel=kernel, **options)

    with pytest.raises(ParameterError) as caught:
        slabq.Allocator(policy, machine=slabq.Machine(cpus=2))

    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


# ---- messages in pages ---------------------------------------------------------------


def test_a_message_of_a_page_takes_a_head_and_the_shared_info():
    # net/unix of 5.14: 4096 bytes do not fit a page with the shared info, so they lie
    # in one of their own; the sk_buff and 320 bytes are all that the allocator sees.
    row = slabq.run(
        "hackbench",
        policy="slub",
        kernel="5.14-rt",
        machine="i7-4790",
        groups=1,
        loops=2,
        message_bytes=4096,
        data_bytes=320,
        page_count=1,
        charge_bytes=4864,
    ).row()

    messages = 20 * 20 * 2
    assert row["operations"] == messages
    assert row["allocations"] == row["frees"] == 2 * messages
    assert row["live"] == 0


def test_a_message_longer_than_its_pages_is_named():
    with pytest.raises(
        ParameterError, match="message_bytes is 4000: accepted are 1 to"
    ):
        slabq.run(
            "hackbench", policy="slub", machine="i7-4790", message_bytes=4000, groups=1
        )


# ---- sockets -------------------------------------------------------------------------

STREAM = """
#include "slabq/workload.h"
struct numbered { struct sq_message link; int64_t number; };
static sq_channel *channel;
static sq_cache *cache;
static sq_barrier *sent;
static int64_t senders, loops;
static void sender(const struct sq_env *env, sq_task *task, void *unused)
{
    (void)unused;
    for (int64_t i = 0; i < loops; i++) {
        struct numbered *message;
        env->channel_reserve(task, channel, 768);
        message = env->alloc(task, cache);
        message->number = i;
        env->channel_send(task, channel, &message->link);
    }
    if (env->barrier_wait(task, sent))
        env->channel_close(task, channel);
}
static void receiver(const struct sq_env *env, sq_task *task, void *unused)
{
    struct numbered *message;
    int64_t expected = 0;
    (void)unused;
    while ((message = (struct numbered *)env->channel_receive(task, channel)) != NULL) {
        if (senders == 1 && message->number != expected++)
            env->fail(task, "out of order");
        env->free(task, cache, message);
        env->channel_release(task, channel, 768);
        env->progress(task, 1);
    }
}
static void *setup(const struct sq_env *env, sq_task *task, const int64_t *values)
{
    senders = values[0];
    loops = values[1];
    channel = env->channel_create(task, 10 * 768, 25);
    cache = env->cache_create(task, "message", 64, 0, 0);
    sent = env->barrier_create(task, (uint32_t)senders, false);
    for (int64_t i = 0; i < senders; i++)
        env->spawn(task, sender, NULL, SQ_ANY_CPU);
    env->spawn(task, receiver, NULL, SQ_ANY_CPU);
    return cache;
}
static const struct sq_workload_parameter parameters[] = {
    {"senders", 1, 1, 100, "how many"}, {"loops", 50, 0, 1000000, "of each"},
};
const struct sq_workload stream = {
    .abi = SQ_WORKLOAD_ABI, .name = "stream", .help = "of a test",
    .rate_unit = "messages/s", .parameters = parameters, .parameter_count = 2,
    .setup = setup,
};
"""


def hackbench_locks(**parameters: int) -> dict[str, Any]:
    """Of SLAB, whose own locks all spin."""
    row = slabq.run(
        "hackbench",
        policy="slab",
        machine="i7-4790",
        engine="sim",
        groups=1,
        loops=50,
        **parameters,
    ).row()
    locks: dict[str, Any] = row["locks"]
    return locks


def test_the_locks_of_a_socket_sleep_on_preempt_rt_and_spin_elsewhere():
    # Only a sleeping lock that is not free asks for its waiters' lock; the tasks of
    # hackbench meet at a barrier once, which has one too.
    spinning = hackbench_locks(sched_preempt_rt=0)
    sleeping = hackbench_locks(sched_preempt_rt=1)

    assert spinning["workload"]["contended"] > 0
    assert sleeping["workload"]["contended"] > 0
    barrier = spinning["wait_lock"]["acquisitions"]
    assert sleeping["wait_lock"]["acquisitions"] > barrier


@pytest.mark.threads
@pytest.mark.parametrize("senders", [1, 7])
@pytest.mark.parametrize("preempt", [0, 1])
def test_a_socket_whose_locks_sleep_loses_no_message_and_ends_its_receiver(
    tmp_path, senders, preempt
):
    # Room for ten messages: both ends sleep again and again. A wake-up that is lost
    # would be a deadlock, which ends a run with an error.
    path = tmp_path / "stream.c"
    path.write_text(STREAM)
    row = slabq.run(
        slabq.compile_workload(path),
        policy="slab",
        machine="i7-4790",
        engine="sim",
        senders=senders,
        loops=2000,
        sched_preempt_rt=preempt,
    ).row()

    assert row["operations"] == senders * 2000
    assert row["live"] == 0
