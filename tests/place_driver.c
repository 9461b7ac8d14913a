/*
 * Where the simulated scheduler puts a task, in cases small enough to be worked out by
 * hand. test_placement.py compiles it:
 *
 *   place_driver wake [name=value ...]   a waker on CPU 0 wakes a sleeper; prints where
 *                                        that ran, each time
 *   place_driver dry  [name=value ...]   CPU 1 runs dry while tasks wait for CPU 0;
 *                                        prints how many it took at once
 *
 * hog=CPU:FROM:UNTIL, in us and as often as wanted, keeps a CPU busy. Values that are
 * not known here are parameters of the machine. Four CPUs behind one cache.
 */
#define SQ_MACHINE_SIM 1
#include "machine/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine/sched.h"
#include "machine/sim_machine.h"

#include "driver.h"

enum { CPU_COUNT = 4, HOG_MAX = 16, DRY_COUNT = 8, US_NS = 1000 };

struct hog {
    unsigned cpu, from_us, until_us;
};

static struct {
    const char *name;
    uint64_t value;
} values[] = {
    {"average", 1}, /* rule sched_load_average */
    {"sync", 1},          {"preempt", 0},
    {"last", 0},        /* CPU that the sleeper comes from */
    {"wake_us", 0},     /* when it is woken */
    {"again_us", 0},    /* and again; 0: never */
    {"naps", 0},        /* 1: the waker sleeps until then, else it works */
    {"waker_flips", 0}, /* how often either has woken another task before */
    {"sleeper_flips", 0},
};
static struct hog hogs[HOG_MAX];
static uint32_t hog_count;
static sq_sched *sched;
static uint64_t begin_ns;

/* What the tasks of a case share. */
struct gate {
    sq_lock lock;
    struct sq_wait_queue sleepers;
};
static struct gate *gate, *flip_gates;
static bool flips_are_over;
static int ran_on[2] = {-1, -1};
static uint64_t moved_count;

static uint64_t value_of(const char *name)
{
    for (size_t i = 0; i < SQ_ARRAY_COUNT(values); i++)
        if (strcmp(values[i].name, name) == 0)
            return values[i].value;
    exit(3);
}

static void parse_one(char *name, const char *text)
{
    struct hog *hog = &hogs[hog_count];
    if (strcmp(name, "hog") == 0) {
        if (hog_count == HOG_MAX ||
            sscanf(text, "%u:%u:%u", &hog->cpu, &hog->from_us, &hog->until_us) != 3)
            exit(3);
        hog_count++;
        return;
    }
    for (size_t i = 0; i < SQ_ARRAY_COUNT(values); i++) {
        if (strcmp(values[i].name, name) == 0) {
            values[i].value = strtoull(text, NULL, 10);
            return;
        }
    }
    add_parameter(name, text);
}

static void make_machine(void)
{
    sq_cpu *cpu;
    create_flat_machine(CPU_COUNT);
    cpu = machine->ops->cpu_enter(machine, 0);
    gate = machine->ops->meta_alloc(cpu, 3 * sizeof(*gate), 0);
    flip_gates = gate + 1;
    for (uint32_t i = 0; i < 3; i++) {
        sq_lock_init(&gate[i].lock, SQ_LOCK_WAIT);
        sq_wait_queue_init(&gate[i].sleepers);
    }
    machine->ops->cpu_leave(cpu);
}

/* ---- what tasks do ---- */

/* Work in small pieces until `us` after the beginning, never far ahead of other CPUs.
 */
static void work_until(sq_task *task, uint64_t us)
{
    while (sq_now_ns(task->cpu) < begin_ns + us * US_NS) {
        sq_charge_ns(sq_task_step_blocking(task), 10 * US_NS);
        sq_cpu_relax(task->cpu);
    }
}

static void nap_until(sq_task *task, uint64_t us)
{
    if (sq_now_ns(task->cpu) < begin_ns + us * US_NS)
        sq_task_sleep_until(task, begin_ns + us * US_NS);
}

static void gate_sleep(sq_task *task, struct gate *at)
{
    sq_lock_acquire(task->cpu, &at->lock);
    sq_wait_sleep(task, &at->sleepers, &at->lock);
}

static void gate_wake(sq_task *task, struct gate *at)
{
    sq_lock_acquire(task->cpu, &at->lock);
    (void)sq_wait_wake(task->cpu, &at->sleepers, 1);
    sq_lock_release(task->cpu, &at->lock);
}

/* Wake one and the other in turn, which sleep again in between. */
static void flip(sq_task *task, uint64_t count, uint64_t from_us)
{
    for (uint64_t i = 0; i < count; i++) {
        nap_until(task, from_us + 20 * i);
        gate_wake(task, &flip_gates[i % 2]);
    }
}

static void flipped_main(sq_task *task, void *argument)
{
    while (!flips_are_over)
        gate_sleep(task, argument);
}

static void sleeper_main(sq_task *task, void *argument)
{
    (void)argument;
    flip(task, value_of("sleeper_flips"), 100);
    gate_sleep(task, gate);
    ran_on[0] = (int)task->cpu->index;
    if (value_of("again_us") == 0)
        return;
    gate_sleep(task, gate);
    ran_on[1] = (int)task->cpu->index;
}

static void waker_main(sq_task *task, void *argument)
{
    (void)argument;
    flip(task, value_of("waker_flips"), 500);
    nap_until(task, 1200);
    flips_are_over = true;
    gate_wake(task, &flip_gates[0]);
    gate_wake(task, &flip_gates[1]);
    if (value_of("naps") != 0)
        nap_until(task, value_of("wake_us"));
    work_until(task, value_of("wake_us"));
    gate_wake(task, gate);
    work_until(task, value_of("wake_us") + 200);
    if (value_of("again_us") == 0)
        return;
    work_until(task, value_of("again_us"));
    gate_wake(task, gate);
    work_until(task, value_of("again_us") + 200);
}

static void hog_main(sq_task *task, void *argument)
{
    const struct hog *hog = argument;
    if (hog->from_us > 0)
        nap_until(task, hog->from_us);
    work_until(task, hog->until_us);
}

static void short_main(sq_task *task, void *argument)
{
    (void)argument;
    sq_charge_ns(task->cpu, 1000 * US_NS);
    sq_cpu_relax(task->cpu);
}

static void watch_main(sq_task *task, void *argument)
{
    uint64_t switches;
    (void)argument;
    work_until(task, 500);
    sq_sched_count(sched, &switches, &moved_count);
}

/* ---- cases ---- */

static void add(sq_cpu *cpu, sq_task_function *function, void *argument, uint64_t index,
                bool is_pinned)
{
    struct sq_error error;
    if (sq_task_create(cpu, sched, function, argument, NULL, (int32_t)index, is_pinned,
                       &error) != SQ_OK)
        fail(&error);
}

static void add_wake(sq_cpu *cpu)
{
    add(cpu, sleeper_main, NULL, value_of("last"), false);
    add(cpu, waker_main, NULL, 0, true);
    add(cpu, flipped_main, &flip_gates[0], 1, false);
    add(cpu, flipped_main, &flip_gates[1], 1, false);
    for (uint32_t i = 0; i < hog_count; i++)
        add(cpu, hog_main, &hogs[i], hogs[i].cpu, true);
}

static void add_dry(sq_cpu *cpu)
{
    static struct hog dry = {1, 0, 100}, busy = {3, 0, 1000};
    for (uint32_t i = 0; i < DRY_COUNT; i++)
        add(cpu, short_main, NULL, 0, false);
    add(cpu, hog_main, &dry, 1, true);
    add(cpu, watch_main, NULL, 2, true);
    add(cpu, hog_main, &busy, 3, true);
}

static void play(bool is_dry)
{
    struct sq_sched_config config = {
        .rules = {.sched_latency_us = 20000,
                  .sched_min_granularity_us = 4000,
                  .sched_wakeup_granularity_us = 4000,
                  .sched_tick_us = 1000,
                  .sched_balance_interval_us = 10000000,
                  .sched_wake_affine = 1,
                  .sched_idle_sibling = 1,
                  .sched_newidle_balance = is_dry,
                  .sched_migration_cost_us = is_dry ? 0 : 500,
                  .sched_sync_wakeups = (int64_t)value_of("sync"),
                  .sched_load_average = (int64_t)value_of("average"),
                  .sched_preempt_rt = (int64_t)value_of("preempt")}};
    struct sq_error error;
    sq_cpu *cpu = machine->ops->cpu_enter(machine, 0);
    sched = sq_sched_create(machine, &config);
    begin_ns = sq_now_ns(cpu) + 100 * US_NS;
    if (is_dry)
        add_dry(cpu);
    else
        add_wake(cpu);
    machine->ops->cpu_leave(cpu);
    if (sq_sched_run(sched, NULL, NULL, &error) != SQ_OK)
        fail(&error);
    sq_sched_destroy(sched);
    (void)printf("{\"ran_on\": [%d, %d], \"moved\": %llu}\n", ran_on[0], ran_on[1],
                 (unsigned long long)moved_count);
}

int main(int argc, char **argv)
{
    bool is_dry = argc > 1 && strcmp(argv[1], "dry") == 0;
    if (argc < 2 || (!is_dry && strcmp(argv[1], "wake") != 0))
        return 3;
    for (int i = 2; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        if (equals == NULL)
            return 3;
        *equals = '\0';
        parse_one(argv[i], equals + 1);
    }
    make_machine();
    play(is_dry);
    machine->ops->destroy(machine);
    return 0;
}
