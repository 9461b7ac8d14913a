"""Tasks: waiting, waking, moving between CPUs, and the ends a run can come to."""

import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from slabq import _core
from slabq.errors import CorruptionError, Error, OutOfMemory, ParameterError
from slabq.machine import Machine

sys.path.insert(0, str(Path(__file__).resolve().parent))
from workloads import CompiledWorkload

pytestmark = pytest.mark.threads

POLICY = _core.policies()[0]
WORKLOADS: dict[str, str] = {}


@cache
def compiled(name: str) -> CompiledWorkload:
    return CompiledWorkload(WORKLOADS[name])


def run(
    name: str,
    cpus: int = 2,
    progress: Callable[[float], object] | None = None,
    **parameters: int,
) -> dict[str, Any]:
    machine = Machine(cpus=cpus).core(1)
    address = compiled(name).address
    text = _core.run(
        machine, POLICY, [], address, list(parameters.items()), 1, progress
    )
    row: dict[str, Any] = json.loads(text)
    return row


def stop_at(ticks: int) -> Callable[[float], None]:
    seen = []

    def tick(share: float) -> None:
        seen.append(share)
        if len(seen) == ticks:
            raise TimeoutError

    return tick


# ---- pairs of alloc and free: the example of the header, nearly ----
WORKLOADS["pairs"] = """
static void worker(const struct sq_env *env, sq_task *task, void *cache)
{
    for (int64_t i = 0; i < loops; i++) {
        void *object = env->alloc(task, cache), *memory = env->kmalloc(task, 33);
        env->touch_write(task, object, 64);
        env->kfree(task, memory);
        env->free(task, cache, object);
        env->progress(task, 1);
    }
}
static void *prepare(const struct sq_env *env, sq_task *task)
{
    sq_cache *made = env->cache_create(task, "toy", 64, 0, 0);
    for (int64_t i = 0; i < tasks; i++)
        env->spawn(task, worker, made, SQ_ANY_CPU);
    return made;
}
"""


@pytest.mark.parametrize("cpus", [1, 2, 16])
@pytest.mark.parametrize("slice_calls", [0, 1, 7])
def test_a_compiled_workload_does_all_its_operations(cpus, slice_calls):
    row = run("pairs", cpus, tasks=40, loops=100, slice_calls=slice_calls)

    assert row["operations"] == 4000
    assert (row["allocations"], row["frees"], row["live"]) == (8000, 8000, 0)
    assert row["workload"] == "test"


# ---- everyone waits for a message that nobody sends ----
WORKLOADS["silence"] = """
static void worker(const struct sq_env *env, sq_task *task, void *channel)
{
    (void)env->channel_receive(task, channel);
}
static void *prepare(const struct sq_env *env, sq_task *task)
{
    sq_channel *channel = env->channel_create(task, 1, 0);
    for (int64_t i = 0; i < tasks; i++)
        env->spawn(task, worker, channel, SQ_ANY_CPU);
    return NULL;
}
"""


@pytest.mark.parametrize("cpus", [1, 2, 16])
def test_when_every_task_waits_the_run_ends_as_a_deadlock(cpus):
    # The first task waits for the five others.
    with pytest.raises(Error, match="deadlock: all 6 tasks that have not ended wait"):
        run("silence", cpus, tasks=5)


# ---- one task never calls anything that blocks, the other ends it ----
WORKLOADS["selfish"] = """
static uint64_t flag;
static void selfish(const struct sq_env *env, sq_task *task, void *unused)
{
    while (__atomic_load_n(&flag, __ATOMIC_ACQUIRE) == 0)
        env->progress(task, 1);
    (void)unused;
}
static void other(const struct sq_env *env, sq_task *task, void *unused)
{
    __atomic_store_n(&flag, 1, __ATOMIC_RELEASE);
    (void)unused; (void)env; (void)task;
}
static void *prepare(const struct sq_env *env, sq_task *task)
{
    flag = 0;
    env->spawn(task, selfish, NULL, 0);
    env->spawn(task, other, NULL, 0);
    return NULL;
}
"""


def test_a_task_whose_slice_is_over_lets_the_others_of_its_cpu_run():
    assert run("selfish", 1, slice_calls=100)["operations"] > 0


def test_without_slices_a_task_keeps_its_cpu_until_the_run_is_stopped():
    with pytest.raises(TimeoutError):
        run("selfish", 1, stop_at(4), slice_calls=0)


# ---- long loops of all kinds can be stopped ----
WORKLOADS["endless"] = """
static void worker(const struct sq_env *env, sq_task *task, void *cache)
{
    for (;;) {
        switch (extra) {
        case 0: env->free(task, cache, env->alloc(task, cache)); break;
        case 1: env->think(task, UINT64_MAX); break;
        case 2: (void)env->random(task); break;
        case 3: env->yield(task); break;
        case 4: while (!env->should_stop(task)) {} break;
        case 5: env->kfree(task, NULL); (void)env->now_ns(task); break;
        default: env->kfree(task, env->kmalloc(task, 100000)); break;
        }
    }
}
static void *prepare(const struct sq_env *env, sq_task *task)
{
    sq_cache *made = env->cache_create(task, "toy", 64, 0, 0);
    for (int64_t i = 0; i < tasks; i++)
        env->spawn(task, worker, made, SQ_ANY_CPU);
    return made;
}
"""


@pytest.mark.parametrize("kind", range(7))
def test_a_stop_reaches_every_kind_of_busy_loop(kind):
    with pytest.raises(TimeoutError):
        run("endless", 3, stop_at(2), tasks=8, extra=kind)


# ---- a task that is driven from CPU to CPU ----
WORKLOADS["driven"] = """
/* Each of two CPUs has a hog that stays there. It sleeps until the traveller is on its
 * CPU, then keeps the CPU until the traveller is gone: the other, idle CPU takes it. */
static uint64_t calls[2], place, done;
static sq_barrier *start;
static void hog(const struct sq_env *env, sq_task *task, void *number)
{
    uint64_t self = (uintptr_t)number, seen = 0;
    (void)env->barrier_wait(task, start);
    while (__atomic_load_n(&done, __ATOMIC_ACQUIRE) == 0) {
        env->wait(task, &calls[self], seen++);
        while (__atomic_load_n(&place, __ATOMIC_ACQUIRE) == self &&
               __atomic_load_n(&done, __ATOMIC_ACQUIRE) == 0)
            (void)env->random(task);
    }
}
static void call_hog(const struct sq_env *env, sq_task *task, uint64_t cpu)
{
    __atomic_fetch_add(&calls[cpu], 1, __ATOMIC_RELEASE);
    env->wake(task, &calls[cpu]);
}
static void traveller(const struct sq_env *env, sq_task *task, void *unused)
{
    char stack[512];
    double sum = 0.25;
    (void)unused;
    memset(stack, 7, sizeof(stack));
    (void)env->barrier_wait(task, start);
    for (int64_t i = 0; i < loops; i++) {
        uint32_t cpu = env->cpu_index(task);
        __atomic_store_n(&place, cpu, __ATOMIC_RELEASE);
        call_hog(env, task, cpu);
        while (env->cpu_index(task) == cpu)
            env->yield(task);
        __atomic_store_n(&place, env->cpu_index(task), __ATOMIC_RELEASE);
        sum += 1.0;
        env->progress(task, 1);
    }
    for (size_t i = 0; i < sizeof(stack); i++)
        if (stack[i] != 7 || sum != (double)loops + 0.25)
            env->fail(task, "the stack changed on the way");
    __atomic_store_n(&done, 1, __ATOMIC_RELEASE);
    call_hog(env, task, 0);
    call_hog(env, task, 1);
}
static void *prepare(const struct sq_env *env, sq_task *task)
{
    calls[0] = calls[1] = done = 0;
    place = 99;
    start = env->barrier_create(task, 3, true);
    env->spawn(task, hog, (void *)(uintptr_t)0, 0);
    env->spawn(task, hog, (void *)(uintptr_t)1, 1);
    env->spawn(task, traveller, NULL, SQ_ANY_CPU);
    return NULL;
}
"""


def test_an_idle_cpu_takes_a_waiting_task_and_its_stack_goes_along():
    row = run("driven", 2, loops=200, slice_calls=0)

    assert row["operations"] == 200
    assert row["cpu_migrations"] >= 200


# ---- tasks that are told where to be ----
WORKLOADS["pinned"] = """
static void worker(const struct sq_env *env, sq_task *task, void *where)
{
    uint32_t cpu = (uint32_t)(uintptr_t)where;
    for (int64_t i = 0; i < loops; i++) {
        if (env->cpu_index(task) != cpu)
            env->fail(task, "not where it was put");
        env->yield(task);
        env->progress(task, 1);
    }
}
static void *prepare(const struct sq_env *env, sq_task *task)
{
    for (int64_t i = 0; i < tasks; i++) {
        int32_t cpu = (int32_t)(extra < 0 ? i % env->cpu_count(task) : extra);
        env->spawn(task, worker, (void *)(uintptr_t)cpu, cpu);
    }
    return NULL;
}
"""


@pytest.mark.parametrize("extra", [-1, 0, 3])
def test_a_task_that_is_given_a_cpu_stays_there(extra):
    row = run("pinned", 4, tasks=12, loops=200, extra=extra)

    assert row["operations"] == 12 * 200


def test_a_cpu_that_the_machine_does_not_have_is_named():
    with pytest.raises(ParameterError, match="on CPU 9: accepted are 0 to 3"):
        run("pinned", 4, tasks=1, extra=9)


# ---- the floating-point environment is the task's own ----
WORKLOADS["rounding"] = """
#include <fenv.h>
static void worker(const struct sq_env *env, sq_task *task, void *number)
{
    static const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    int mode = modes[(uintptr_t)number % 4];
    fesetround(mode);
    for (int64_t i = 0; i < loops; i++) {
        env->yield(task);
        if (fegetround() != mode)
            env->fail(task, "another task's rounding mode");
        env->progress(task, 1);
    }
}
static void *prepare(const struct sq_env *env, sq_task *task)
{
    for (int64_t i = 0; i < tasks; i++)
        env->spawn(task, worker, (void *)(uintptr_t)i, SQ_ANY_CPU);
    return NULL;
}
"""


def test_a_task_keeps_its_own_rounding_mode():
    assert run("rounding", 2, tasks=16, loops=200)["operations"] == 3200


# ---- barriers ----
WORKLOADS["rounds"] = """
static uint64_t arrived, last;
static sq_barrier *barrier;
static void worker(const struct sq_env *env, sq_task *task, void *unused)
{
    (void)unused;
    for (int64_t i = 1; i <= loops; i++) {
        __atomic_fetch_add(&arrived, 1, __ATOMIC_RELAXED);
        if (env->barrier_wait(task, barrier))
            __atomic_fetch_add(&last, 1, __ATOMIC_RELAXED);
        if (__atomic_load_n(&arrived, __ATOMIC_RELAXED) < (uint64_t)(i * tasks))
            env->fail(task, "through the barrier too early");
        if (i == 1)
            result[2] += env->now_ns(task) > 0 && tasks == 1;
    }
    result[0] = (int64_t)arrived;
    result[1] = (int64_t)last;
}
static void *prepare(const struct sq_env *env, sq_task *task)
{
    arrived = last = 0;
    barrier = env->barrier_create(task, (uint32_t)tasks, true);
    for (int64_t i = 0; i < tasks; i++)
        env->spawn(task, worker, NULL, SQ_ANY_CPU);
    return NULL;
}
"""


@pytest.mark.parametrize("cpus", [1, 4])
def test_a_barrier_opens_for_all_at_once_and_tells_one_that_it_was_last(cpus):
    run("rounds", cpus, tasks=30, loops=50)

    assert compiled("rounds").result[:2] == [30 * 50, 50]


# ---- channels ----
WORKLOADS["stream"] = """
struct numbered { struct sq_message link; int64_t number; };
static sq_channel *channel;
static sq_cache *cache;
static void sender(const struct sq_env *env, sq_task *task, void *unused)
{
    (void)unused;
    for (int64_t i = 0; i < loops; i++) {
        struct numbered *message;
        env->channel_reserve(task, channel, 768);
        result[0] = i + 1;
        message = env->alloc(task, cache);
        message->number = i;
        env->channel_send(task, channel, &message->link);
    }
    env->channel_close(task, channel);
}
static void receiver(const struct sq_env *env, sq_task *task, void *unused)
{
    struct numbered *message;
    int64_t expected = 0;
    (void)unused;
    while ((message = (struct numbered *)env->channel_receive(task, channel)) != NULL) {
        if (message->number != expected++)
            env->fail(task, "out of order");
        env->free(task, cache, message);
        env->channel_release(task, channel, 768);
        if (extra > 0 && expected <= extra) {
            env->yield(task); /* one CPU: the sender runs now, if it was woken */
            result[expected] = result[0];
        }
        env->progress(task, 1);
    }
}
static void *prepare(const struct sq_env *env, sq_task *task)
{
    memset(result, 0, sizeof(result));
    channel = env->channel_create(task, 212992, 25);
    cache = env->cache_create(task, "message", 64, 0, 0);
    env->spawn(task, sender, NULL, SQ_ANY_CPU);
    if (extra >= 0)
        env->spawn(task, receiver, NULL, SQ_ANY_CPU);
    return NULL;
}
"""


@pytest.mark.parametrize("cpus", [1, 2])
def test_messages_arrive_in_order_and_a_closed_channel_ends_its_receiver(cpus):
    row = run("stream", cpus, loops=5000, extra=0)

    assert row["operations"] == 5000
    assert row["live"] == 0


def test_a_socket_of_the_default_size_holds_278_messages():
    # 277 times 768 bytes are below the limit of 212992, so one more is let in.
    with pytest.raises(Error, match="deadlock"):
        run("stream", 1, loops=1000, extra=-1)

    assert compiled("stream").result[0] == 278


def test_a_writer_sleeps_until_a_quarter_of_the_socket_is_left():
    # Of 278 messages 69 are at most 25 %: 209 must be read before the writer goes on.
    run("stream", 1, loops=1000, extra=7, slice_calls=0)

    assert compiled("stream").result[1:] == [278] * 7


# ---- sleeping on a word ----
WORKLOADS["relay"] = """
static uint64_t *words;
static void runner(const struct sq_env *env, sq_task *task, void *number)
{
    uint64_t self = (uintptr_t)number, next = (self + 1) % (uint64_t)tasks;
    for (int64_t i = 0; i < loops; i++) {
        env->wait(task, &words[self], (uint64_t)i);
        uint64_t round = (uint64_t)i + (next > self || tasks == 1 ? 1 : 2);
        __atomic_store_n(&words[next], round, __ATOMIC_RELEASE);
        env->wake(task, &words[next]);
        env->progress(task, 1);
    }
}
static void *prepare(const struct sq_env *env, sq_task *task)
{
    words = env->memory(task, (size_t)tasks * sizeof(*words));
    words[0] = 1;
    for (int64_t i = 0; i < tasks; i++)
        env->spawn(task, runner, (void *)(uintptr_t)i, SQ_ANY_CPU);
    return NULL;
}
"""


@pytest.mark.parametrize("cpus", [1, 2, 8])
@pytest.mark.parametrize("wake_affine", [0, 1])
def test_a_baton_goes_round_through_words(cpus, wake_affine):
    row = run("relay", cpus, tasks=150, loops=20, wake_affine=wake_affine)

    assert row["operations"] == 150 * 20


# ---- ways a workload can end its run ----
WORKLOADS["mistakes"] = """
static void worker(const struct sq_env *env, sq_task *task, void *unused)
{
    (void)unused;
    switch (extra) {
    case 0: env->fail(task, "as it wished"); break;
    case 1: (void)env->kmalloc(task, (size_t)1 << 40); break;
    case 2: (void)env->kmalloc_node(task, 100, 7); break;
    case 3: (void)env->cache_create(task, "huge", (size_t)1 << 40, 0, 0); break;
    case 4: (void)env->memory(task, SIZE_MAX); break;
    case 5: env->pipe_write(task, env->pipe_create(task, 1), "", 5000); break;
    }
    env->fail(task, "not reached");
}
static void *prepare(const struct sq_env *env, sq_task *task)
{
    env->spawn(task, worker, NULL, SQ_ANY_CPU);
    return NULL;
}
"""


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        (0, Error, "workload test: as it wished"),
        (1, OutOfMemory, "no memory for 1099511627776 bytes of kmalloc"),
        (2, ParameterError, "node is 7: accepted are 0 to 0"),
        (3, ParameterError, "size of cache huge is 1099511627776"),
        (4, OutOfMemory, "the host has no 18446744073709551615 bytes"),
        (5, ParameterError, "5000 bytes: accepted are 1 to 4096"),
    ],
)
def test_what_cannot_be_done_ends_the_run_with_its_reason(kind, error, message):
    with pytest.raises(error, match=message):
        run("mistakes", extra=kind)


# ---- a workload that breaks its heap ----
WORKLOADS["careless"] = """
static void *prepare(const struct sq_env *env, sq_task *task)
{
    sq_cache *made = env->cache_create(task, "toy", 64, 0, 0);
    char *objects[3];
    for (int i = 0; i < 3; i++)
        objects[i] = env->alloc(task, made);
    for (int i = 0; i < 3; i++)
        if (extra != 3 || i > 0)
            env->free(task, made, objects[i]);
    if (extra == 1)
        env->free(task, made, objects[0]);
    if (extra == 2)
        env->free(task, made, objects[1] + 8);
    return made;
}
"""


@pytest.mark.parametrize("policy", _core.policies())
@pytest.mark.parametrize("extra", [1, 2])
def test_an_object_freed_twice_or_beside_its_start_is_found(policy, extra):
    machine = Machine(cpus=2).core(1)
    address = compiled("careless").address

    with pytest.raises(CorruptionError, match="cache toy"):
        _core.run(machine, policy, [], address, [("extra", extra)], 1, None)

    assert json.loads(machine.describe())["bytes_in_use"] == [0]


@pytest.mark.parametrize(("extra", "live"), [(0, 0), (3, 1)])
def test_what_was_not_freed_is_told(extra, live):
    row = run("careless", extra=extra)

    assert (row["allocations"], row["live"], row["operations"]) == (3, live, 0)


def test_a_workload_of_another_abi_is_refused():
    other = CompiledWorkload(WORKLOADS["pairs"], abi="99u")

    with pytest.raises(ParameterError, match="abi is 99: accepted is 1"):
        _core.run(Machine(cpus=1).core(1), POLICY, [], other.address, [], 1, None)


OVERFLOW = """
static int64_t deep(int64_t n)
{
    volatile char block[1024];
    memset((char *)block, 1, sizeof(block));
    return n == 0 ? 0 : deep(n - 1) + block[n % 1024];
}
static void worker(const struct sq_env *env, sq_task *task, void *unused)
{
    (void)unused;
    result[0] = deep(extra);
    env->progress(task, 1);
}
static void *prepare(const struct sq_env *env, sq_task *task)
{
    env->spawn(task, worker, NULL, SQ_ANY_CPU);
    return NULL;
}
"""
OVERFLOW_SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
import test_scheduler
test_scheduler.WORKLOADS["deep"] = test_scheduler.OVERFLOW
print(test_scheduler.run("deep", extra=int(sys.argv[2]))["operations"], flush=True)
"""


@pytest.mark.parametrize(("depth", "ends_well"), [(10, True), (4000, False)])
def test_a_stack_that_overflows_is_a_fault_and_never_goes_unnoticed(depth, ends_well):
    if _core.build_info()["sanitizer"] != "none":
        pytest.skip("a sanitizer takes the fault and reports it its own way")
    command = [
        sys.executable,
        "-P",
        "-c",
        OVERFLOW_SCRIPT,
        str(Path(__file__).parent),
        str(depth),
    ]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.returncode == 0, done.stdout.strip()) == (ends_well, "1" * ends_well)
    if not ends_well:
        assert done.returncode < 0
