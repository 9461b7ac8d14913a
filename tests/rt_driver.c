/*
 * Small cases of sleeping locks, priorities and preemption on the simulated machine,
 * whose times can be worked out by hand. test_rt.py compiles it:
 *
 *   rt_driver CASE [name=value ...]      values: machine parameters, or count=,
 * work_us=
 *
 * Prints one JSON object. Four CPUs behind one cache.
 */
#define SQ_MACHINE_SIM 1
#include "machine/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine/sched.h"
#include "machine/sim_machine.h"

#include "driver.h"

enum { CPU_COUNT = 4, TASK_MAX = 8, US_NS = 1000 };

static uint64_t count = 1, work_us = 100, preempt = 1;

/* What the tasks of a case share. */
static struct sq_rt_mutex *mutex, *second;
static sq_lock *raw;
static uint64_t begin_ns, stamps_ps[TASK_MAX], got_order[TASK_MAX], got_count;

static void parse(int argc, char **argv)
{
    for (int i = 0; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        if (equals == NULL)
            exit(3);
        *equals = '\0';
        if (strcmp(argv[i], "count") == 0)
            count = strtoull(equals + 1, NULL, 10);
        else if (strcmp(argv[i], "work_us") == 0)
            work_us = strtoull(equals + 1, NULL, 10);
        else if (strcmp(argv[i], "preempt") == 0)
            preempt = strtoull(equals + 1, NULL, 10);
        else
            add_parameter(argv[i], equals + 1);
    }
}

static uint64_t now_ps(const sq_task *task)
{
    return ((const struct sq_sim_cpu *)task->cpu)->now_ps;
}

static void make_machine(void)
{
    sq_cpu *cpu;
    create_flat_machine(CPU_COUNT);
    cpu = machine->ops->cpu_enter(machine, 0);
    mutex = machine->ops->meta_alloc(cpu, sizeof(*mutex), 0);
    second = machine->ops->meta_alloc(cpu, sizeof(*second), 0);
    raw = machine->ops->meta_alloc(cpu, sizeof(*raw), 0);
    sq_rt_mutex_init(mutex, SQ_LOCK_LIST, mutex);
    sq_rt_mutex_init(second, SQ_LOCK_LOCAL, second);
    sq_lock_init(raw, SQ_LOCK_LIST);
    machine->ops->cpu_leave(cpu);
}

/* One task: what it does, on which CPU. */
struct part {
    sq_task_function *function;
    int32_t cpu;
};

/* Run the parts, begun at one time; prints stamps, order of owners, switches. */
static void play(const struct part *parts, uint32_t part_count)
{
    struct sq_sched_config config = {.rules = {.sched_latency_us = 20000,
                                               .sched_min_granularity_us = 20000,
                                               .sched_wakeup_granularity_us = 20000,
                                               .sched_tick_us = 1000,
                                               .sched_preempt_rt = (int64_t)preempt}};
    struct sq_error error;
    sq_sched *sched = sq_sched_create(machine, &config);
    sq_cpu *cpu = machine->ops->cpu_enter(machine, 0);
    uint64_t switches, migrations;
    begin_ns = sq_now_ns(cpu) + 1000 * US_NS;
    for (uint32_t i = 0; i < part_count; i++)
        if (sq_task_create(cpu, sched, parts[i].function, (void *)(uintptr_t)i, NULL,
                           parts[i].cpu, true, &error) != SQ_OK)
            fail(&error);
    machine->ops->cpu_leave(cpu);
    if (sq_sched_run(sched, NULL, NULL, &error) != SQ_OK)
        fail(&error);
    sq_sched_count(sched, &switches, &migrations);
    sq_sched_destroy(sched);
    (void)printf("{\"switches\": %llu, \"stamps_us\": [", (unsigned long long)switches);
    for (uint32_t i = 0; i < TASK_MAX; i++)
        (void)printf("%s%.6f", i > 0 ? ", " : "",
                     stamps_ps[i] == 0
                         ? -1.0
                         : ((double)stamps_ps[i] - (double)begin_ns * 1e3) / 1e6);
    (void)printf("], \"order\": [");
    for (uint32_t i = 0; i < got_count; i++)
        (void)printf("%s%llu", i > 0 ? ", " : "", (unsigned long long)got_order[i]);
    (void)printf("], \"fingerprint\": %llu}\n",
                 (unsigned long long)machine->ops->fingerprint(machine));
}

/* Wait, on the CPU, until `us` after the beginning of the case. */
static void work_until(sq_task *task, uint64_t us)
{
    uint64_t until_ns = begin_ns + us * US_NS, now = sq_now_ns(task->cpu);
    if (now < until_ns)
        sq_charge_ns(task->cpu, until_ns - now);
}

static void work(sq_task *task, uint64_t us)
{
    sq_charge_ns(task->cpu, us * US_NS);
}

static void stamp(const sq_task *task, uint64_t slot)
{
    stamps_ps[slot] = now_ps(task);
}

static sq_cpu *take(sq_task *task, uint64_t number)
{
    sq_cpu *cpu = sq_rt_mutex_acquire(task->cpu, mutex);
    got_order[got_count++] = number;
    return cpu;
}

/* ---- the cost of a free lock ---- */

static void pairs_main(sq_task *task, void *argument)
{
    (void)argument;
    sq_rt_mutex_release(task->cpu, second); /* its line is near now */
    stamps_ps[0] = now_ps(task);
    for (uint64_t i = 0; i < count; i++) {
        (void)sq_rt_mutex_acquire(task->cpu, second);
        sq_rt_mutex_release(task->cpu, second);
    }
    stamps_ps[1] = now_ps(task);
}

static void pairs_first(sq_task *task, void *argument)
{
    (void)sq_rt_mutex_acquire(task->cpu, second);
    pairs_main(task, argument);
}

/* ---- one owner, others wait ---- */

/* The owner of the first work_us. */
static void owner_main(sq_task *task, void *argument)
{
    work_until(task, 0);
    (void)take(task, (uintptr_t)argument);
    work(task, work_us);
    sq_rt_mutex_release(task->cpu, mutex);
    stamp(task, (uintptr_t)argument);
}

/* Asks 10 us after the one of the number before, works 10 us with it. */
static void waiter_main(sq_task *task, void *argument)
{
    uint64_t number = (uintptr_t)argument;
    work_until(task, 10 * number);
    (void)take(task, number);
    stamp(task, number);
    work(task, 10);
    sq_rt_mutex_release(task->cpu, mutex);
}

/* A task that only wants a CPU. */
static void other_main(sq_task *task, void *argument)
{
    work_until(task, 0);
    stamp(task, (uintptr_t)argument);
    work(task, 5);
}

/* ---- tasks of priority ---- */

static void fifo_main(sq_task *task, uint64_t number, uint32_t priority, uint64_t at_us,
                      uint64_t for_us)
{
    sq_task_set_priority(task, priority);
    sq_task_sleep_until(task, begin_ns + at_us * US_NS);
    stamp(task, number);
    work(task, for_us);
}

/* Sleeps until 50 us, works 200 us. */
static void middle_main(sq_task *task, void *argument)
{
    fifo_main(task, (uintptr_t)argument, 50, 50, 200);
    stamp(task, (uintptr_t)argument + 4);
}

/* Sleeps until 80 us, then wants the lock. */
static void high_main(sq_task *task, void *argument)
{
    fifo_main(task, (uintptr_t)argument, 99, 80, 0);
    (void)take(task, (uintptr_t)argument);
    stamp(task, (uintptr_t)argument + 4);
    sq_rt_mutex_release(task->cpu, mutex);
}

/* Wants the lock soon after 60 us, as a normal task. */
static void late_main(sq_task *task, void *argument)
{
    work_until(task, 60 + (uintptr_t)argument);
    (void)take(task, (uintptr_t)argument);
    sq_rt_mutex_release(task->cpu, mutex);
}

/* What an interrupt does at 50 us, which takes 20 us. */
static void interrupt_main(sq_task *task, void *argument)
{
    fifo_main(task, (uintptr_t)argument, SQ_TASK_PRIORITY_INTERRUPT, 50, 20);
}

/* ---- how late a timer is ---- */

static void sleeping_section_main(sq_task *task, void *argument)
{
    owner_main(task, argument);
}

static void raw_section_main(sq_task *task, void *argument)
{
    work_until(task, 0);
    sq_irq_save(task->cpu);
    sq_lock_acquire(task->cpu, raw);
    work(task, work_us);
    sq_lock_release(task->cpu, raw);
    sq_irq_restore(task->cpu);
    stamp(task, (uintptr_t)argument);
}

static void plain_main(sq_task *task, void *argument)
{
    work_until(task, 0);
    work(task, work_us);
    stamp(task, (uintptr_t)argument);
}

/* ---- who waits longest on the CPU of the owner: a local lock ---- */

static void local_main(sq_task *task, void *argument)
{
    uint64_t number = (uintptr_t)argument;
    work_until(task, 0);
    sq_local_lock_acquire(task->cpu, second);
    got_order[got_count++] = number;
    stamp(task, number);
    work(task, 100);
    sq_local_lock_release(task->cpu, second);
}

/* ---- misuse ---- */

static void misuse_irq_main(sq_task *task, void *argument)
{
    (void)argument;
    sq_irq_save(task->cpu);
    (void)sq_rt_mutex_acquire(task->cpu, mutex);
}

static void misuse_spin_main(sq_task *task, void *argument)
{
    (void)argument;
    sq_lock_acquire(task->cpu, raw);
    (void)sq_rt_mutex_acquire(task->cpu, mutex);
}

static void misuse_rank_main(sq_task *task, void *argument)
{
    (void)argument;
    (void)sq_rt_mutex_acquire(task->cpu, second);
    (void)sq_rt_mutex_acquire(task->cpu, mutex);
}

static void misuse_unheld_main(sq_task *task, void *argument)
{
    (void)argument;
    sq_rt_mutex_release(task->cpu, mutex);
}

/* A caller that is no task. */
static void case_outside(void)
{
    sq_cpu *cpu = machine->ops->cpu_enter(machine, 0);
    for (uint64_t i = 0; i < count; i++) {
        (void)sq_rt_mutex_acquire(cpu, mutex);
        sq_local_lock_acquire(cpu, second);
        sq_local_lock_release(cpu, second);
        sq_rt_mutex_release(cpu, mutex);
    }
    (void)printf("{\"acquisitions\": %llu, \"local\": %llu}\n",
                 (unsigned long long)cpu->lock_stats[SQ_LOCK_LIST].acquisitions,
                 (unsigned long long)cpu->lock_stats[SQ_LOCK_LOCAL].acquisitions);
    machine->ops->cpu_leave(cpu);
}

static const struct {
    const char *name;
    uint32_t part_count;
    struct part parts[5];
} cases[] = {
    {"pairs", 1, {{pairs_first, 0}}},
    {"one-waits", 2, {{owner_main, 0}, {waiter_main, 1}}},
    {"three-wait",
     4,
     {{owner_main, 0}, {waiter_main, 1}, {waiter_main, 2}, {waiter_main, 3}}},
    {"owner-preempted",
     4,
     {{middle_main, 0}, {waiter_main, 1}, {other_main, 1}, {owner_main, 0}}},
    {"inherits", 3, {{middle_main, 0}, {high_main, 1}, {owner_main, 0}}},
    {"comes-first",
     4,
     {{high_main, 3}, {owner_main, 0}, {late_main, 1}, {late_main, 2}}},
    {"late-plain", 2, {{middle_main, 0}, {plain_main, 0}}},
    {"late-sleeping", 2, {{middle_main, 0}, {sleeping_section_main, 0}}},
    {"late-raw", 2, {{middle_main, 0}, {raw_section_main, 0}}},
    {"interrupt-plain", 2, {{interrupt_main, 0}, {plain_main, 0}}},
    {"interrupt-raw", 2, {{interrupt_main, 0}, {raw_section_main, 0}}},
    {"local", 3, {{middle_main, 0}, {local_main, 0}, {local_main, 0}}},
    {"misuse-irq", 1, {{misuse_irq_main, 0}}},
    {"misuse-spin", 1, {{misuse_spin_main, 0}}},
    {"misuse-rank", 1, {{misuse_rank_main, 0}}},
    {"misuse-unheld", 1, {{misuse_unheld_main, 0}}},
};

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    if (argc < 2)
        return 3;
    parse(argc - 2, argv + 2);
    make_machine();
    if (strcmp(name, "outside") == 0) {
        case_outside();
        machine->ops->destroy(machine);
        return 0;
    }
    for (size_t i = 0; i < SQ_ARRAY_COUNT(cases); i++) {
        if (strcmp(cases[i].name, name) == 0) {
            play(cases[i].parts, cases[i].part_count);
            machine->ops->destroy(machine);
            return 0;
        }
    }
    return 3;
}
