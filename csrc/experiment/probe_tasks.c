/*
 * The probes of probe.h that need tasks: a lock that many want, and turns of two tasks.
 * Each runs a scheduler of its own on the machine.
 */
#define SQ_MACHINE_SIM 1
#include "experiment/probe.h"

#include "machine/machine.h"
#include "machine/sched.h"

#define ARRIVE_NS 1000u
#define HOLD_NS   UINT64_C(1000000) /* more than all CPUs take to arrive */
#define WORK_NS   UINT64_C(100000)  /* what was asked of a bus is through by then */
#define SLICE_US  INT64_C(1000000)  /* longer than all of it: nobody is preempted */
#define LINES     4u

static uint64_t probe_now_ps(const sq_cpu *cpu)
{
    return sq_sim_of(cpu)->now_ps;
}

/* What a probe makes its tasks from. */
struct cast {
    sq_task_function *function;
    void **argument; /* of each task */
    const uint32_t *cpu;
    uint32_t count;
};

/* A scheduler by the default rules, but for slices longer than any probe. */
static sq_sched *probe_sched(sq_machine *machine)
{
#define PROBE_RULE(name, value, minimum, maximum, help) .name = (value),
    struct sq_sched_config config = {.rules = {SQ_SCHED_RULES(PROBE_RULE)}};
#undef PROBE_RULE
    config.rules.sched_latency_us = SLICE_US;
    config.rules.sched_min_granularity_us = SLICE_US;
    return sq_sched_create(machine, &config);
}

/* Start the tasks, each on its CPU and nowhere else, and run them to their ends. */
static int cast_run(sq_machine *machine, const struct cast *cast,
                    struct sq_error *error)
{
    sq_sched *sched = probe_sched(machine);
    sq_cpu *cpu;
    int code = SQ_OK;
    if (sched == NULL)
        return sq_error_set(error, SQ_E_MEMORY, "the host has no memory for tasks");
    cpu = machine->ops->cpu_enter(machine, 0);
    for (uint32_t i = 0; code == SQ_OK && i < cast->count; i++)
        code = sq_task_create(cpu, sched, cast->function, cast->argument[i], NULL,
                              (int32_t)cast->cpu[i], true, error);
    machine->ops->cpu_leave(cpu);
    if (code == SQ_OK)
        code = sq_sched_run(sched, NULL, NULL, error);
    sq_sched_destroy(sched);
    return code;
}

/* A few lines of the machine for what the tasks share, or NULL with the error set. */
static char *lines_alloc(sq_machine *machine, struct sq_error *error)
{
    sq_cpu *cpu = machine->ops->cpu_enter(machine, 0);
    char *lines = machine->ops->meta_alloc(cpu, (size_t)LINES * SQ_LINE_SIZE, 0);
    machine->ops->cpu_leave(cpu);
    if (lines == NULL)
        (void)sq_error_set(error, SQ_E_MEMORY, "the machine has no memory for a lock");
    return lines;
}

static void lines_free(sq_machine *machine, char *lines)
{
    sq_cpu *cpu = machine->ops->cpu_enter(machine, 0);
    machine->ops->meta_free(cpu, lines);
    machine->ops->cpu_leave(cpu);
}

/* ---- a lock that many want ---- */

struct contest {
    sq_lock *lock;
    sq_atomic *word; /* in another line */
    struct sq_probe_holder *holders;
};

/*
 * Hold the lock until all have come. The atomic change under the lock is what lets
 * those that are behind in virtual time come by: without one, a lock that nobody has
 * waited for lately is let go ahead of them (sim.h), and they are not in line.
 */
static void contest_main(sq_task *task, void *argument)
{
    struct contest *contest = argument;
    sq_cpu *cpu = task->cpu;
    struct sq_probe_holder *holder = &contest->holders[cpu->index];
    sq_charge_ns(cpu, ARRIVE_NS * (cpu->index + 1));
    holder->asked_ps = probe_now_ps(cpu);
    sq_lock_acquire(cpu, contest->lock);
    holder->got_ps = probe_now_ps(cpu);
    sq_charge_ns(cpu, HOLD_NS);
    (void)sq_add_relaxed(cpu, contest->word, 1);
    sq_lock_release(cpu, contest->lock);
    holder->released_ps = probe_now_ps(cpu);
}

int sq_probe_waiters(sq_machine *machine, struct sq_probe_holder *holders,
                     uint32_t count, struct sq_error *error)
{
    struct contest contest = {.holders = holders};
    void *arguments[SQ_CPU_MAX];
    uint32_t cpus[SQ_CPU_MAX];
    struct cast cast = {contest_main, arguments, cpus, count};
    char *lines;
    int code;
    if (count < 2 || count > machine->topology.cpu_count)
        return sq_error_set(error, SQ_E_PARAMETER,
                            "%u CPUs want a lock: accepted are 2 to the machine's %u",
                            count, machine->topology.cpu_count);
    lines = lines_alloc(machine, error);
    if (lines == NULL)
        return SQ_E_MEMORY;
    contest.lock = (sq_lock *)(void *)lines;
    contest.word = (sq_atomic *)(void *)(lines + SQ_LINE_SIZE);
    sq_lock_init(contest.lock, SQ_LOCK_LIST);
    for (uint32_t i = 0; i < count; i++) {
        arguments[i] = &contest;
        cpus[i] = i;
    }
    code = cast_run(machine, &cast, error);
    lines_free(machine, lines);
    return code;
}

/* ---- turns of two tasks ---- */

/* `begun` turns have begun; the last of them is over when the other task goes on. */
struct turns {
    sq_lock *lock; /* guards the queues */
    struct sq_wait_queue queue[2];
    struct sq_probe_turn *turn;
    uint32_t count, begun;
    bool is_yield;
};

struct turns_task {
    struct turns *turns;
    uint32_t number;
};

/* The calling task goes on: the turn of the other one is over. */
static void turns_take(struct turns *turns, const sq_cpu *cpu)
{
    struct sq_probe_turn *last;
    if (turns->begun == 0)
        return;
    last = &turns->turn[turns->begun - 1];
    if (last->end_ps == 0) /* else the other one has ended since */
        last->end_ps = probe_now_ps(cpu);
}

/* Sleep until the other task wakes this one. Requires the lock; returns without it. */
static void turns_sleep(struct turns *turns, sq_task *task, uint32_t number)
{
    sq_wait_sleep(task, &turns->queue[number], turns->lock);
    turns_take(turns, task->cpu);
}

/* Wake the other task, with its queue's lock held until this one sleeps. */
static void turns_give(struct turns *turns, sq_task *task, uint32_t number)
{
    sq_lock_acquire(task->cpu, turns->lock);
    (void)sq_wait_wake(task->cpu, &turns->queue[1 - number], 1);
    turns_sleep(turns, task, number);
}

/* Task 0 is the first to sleep, task 1 has the first turn. */
static void turns_main(sq_task *task, void *argument)
{
    const struct turns_task *own = argument;
    struct turns *turns = own->turns;
    if (turns->is_yield) {
        turns_take(turns, task->cpu);
    } else if (own->number == 0) {
        sq_lock_acquire(task->cpu, turns->lock);
        turns_sleep(turns, task, own->number);
    }
    while (turns->begun < turns->count) {
        sq_charge_ns(task->cpu, WORK_NS);
        turns->turn[turns->begun++].start_ps = probe_now_ps(task->cpu);
        if (turns->is_yield) {
            sq_task_yield(task);
            turns_take(turns, task->cpu);
        } else {
            turns_give(turns, task, own->number);
        }
    }
    if (turns->is_yield)
        return;
    sq_lock_acquire(task->cpu, turns->lock);
    (void)sq_wait_wake(task->cpu, &turns->queue[1 - own->number], 1);
    sq_lock_release(task->cpu, turns->lock);
}

int sq_probe_turns(sq_machine *machine, struct sq_probe_turn *turn, uint32_t count,
                   uint32_t other, bool is_yield, struct sq_error *error)
{
    struct turns turns = {.turn = turn, .count = count, .is_yield = is_yield};
    struct turns_task own[2] = {{&turns, 0}, {&turns, 1}};
    void *arguments[2] = {&own[0], &own[1]};
    const uint32_t cpus[2] = {other, 0};
    const struct cast cast = {turns_main, arguments, cpus, 2};
    char *lines;
    int code;
    if (other >= machine->topology.cpu_count || (is_yield && other != 0))
        return sq_error_set(error, SQ_E_PARAMETER,
                            "the other task is on CPU %u: accepted are 0 to %u, and 0 "
                            "for tasks that yield",
                            other, machine->topology.cpu_count - 1);
    lines = lines_alloc(machine, error);
    if (lines == NULL)
        return SQ_E_MEMORY;
    /* Not in the first of the lines, which may follow a line that was just missed. */
    turns.lock = (sq_lock *)(void *)(lines + SQ_LINE_SIZE);
    sq_lock_init(turns.lock, SQ_LOCK_WAIT);
    sq_wait_queue_init(&turns.queue[0]);
    sq_wait_queue_init(&turns.queue[1]);
    for (uint32_t i = 0; i < count; i++)
        turn[i] = (struct sq_probe_turn){0};
    code = cast_run(machine, &cast, error);
    lines_free(machine, lines);
    return code;
}
