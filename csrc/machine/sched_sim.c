/*
 * The scheduler of the simulated machine. See sched.h for what it promises.
 *
 *   wake --place--> run queue of a CPU, by virtual runtime --pick--> the CPU's task
 *                     ^                      |
 *                     +--slice over, yield---+--pulled by a CPU with less to do
 *
 * The rules are those of the kernel's fair scheduler, as far as they decide where and
 * when a task of equal priority runs; SQ_SCHED_RULES lists them with what each is.
 * Everything is on one host thread, so what the rules read of other CPUs needs no lock;
 * run queues have theirs because they cost what they cost.
 *
 * Each CPU has a fiber of its own, the loop, which picks tasks and is idle; a task that
 * leaves its CPU goes to the loop, so a task that is on a queue never runs.
 *
 * With PREEMPT_RT (rule sched_preempt_rt) a task of higher priority takes a CPU
 * wherever its task has interrupts and preemption on and holds no spin lock; timers are
 * looked at in the same places. Equal tasks change at calls that may block there too,
 * as with the lazy preemption of the RT patches.
 *
 * Work of interrupts (SQ_TASK_PRIORITY_INTERRUPT) is a task here that takes a CPU under
 * every kernel wherever its task has interrupts and preemption on. It is charged for
 * being chosen, not for a switch, and it is no load until it has gone on so long that
 * the kernel would have handed it to ksoftirqd.
 *
 * Departures: no group scheduling; a slice is fixed when it begins; preemption between
 * equals takes effect at a task's next call that may block (a kernel without
 * preemption, at the return from a system call); a task that is preempted inside a call
 * goes on on its CPU; load is the number of runnable tasks, now and
 * (sched_wake_history) at the last tick, without averages but where tasks wake with
 * sched_load_average; the time of interrupts is on no task's account; ksoftirqd does not
 * share its CPU.
 */
#define SQ_MACHINE_SIM 1
#include "machine/sched.h"

#include <stdlib.h>
#include <string.h>

#include "machine/sim_internal.h"

#include "machine/sched_place.h"

#define SCHED_HOST_CALLS 4096u /* of a task between two looks at the host's clock */

/* Is the run over, and every task out of the call it was in? */
static bool sched_is_over(const struct sim_sched *sched)
{
    return sched->is_finished && sched->base.inside_count == 0;
}

/* ---- tasks that sleep until a time ---- */

/* When the first of them wakes, or the end of time. */
static uint64_t timers_next_ps(const struct run_queue *queue)
{
    if (sq_list_is_empty(&queue->timers))
        return UINT64_MAX;
    return SQ_LIST_ENTRY(queue->timers.next, sq_task, link)->wake_ns * 1000;
}

static void timers_add(struct run_queue *queue, sq_task *task)
{
    struct sq_list *place = queue->timers.next;
    while (place != &queue->timers &&
           SQ_LIST_ENTRY(place, sq_task, link)->wake_ns <= task->wake_ns)
        place = place->next;
    sq_list_link_tail(&task->link, place);
    queue->sched->base.timer_count++;
}

/* Queue those whose time has come before all others of this CPU, in the order of their
 * times. Returns how many there were. */
static uint32_t timers_run(struct run_queue *queue)
{
    uint32_t count = 0;
    while (timers_next_ps(queue) <= queue->cpu->now_ps) {
        sq_task *task = SQ_LIST_ENTRY(queue->timers.next, sq_task, link);
        sq_list_unlink(&task->link);
        queue->sched->base.timer_count--;
        task->engine.vruntime_ps = count++; /* the least there is */
        if (task_is_interrupt(task))
            queue->interrupt_since_ps = queue->cpu->now_ps;
        queue_enqueue(&queue->cpu->base, queue, task, false);
    }
    return count;
}

/* When the first interrupt is due, or the end of time. */
static uint64_t timers_next_interrupt_ps(const struct run_queue *queue)
{
    SQ_LIST_EACH_SAFE (link, next, &queue->timers) {
        const sq_task *task = SQ_LIST_ENTRY(link, sq_task, link);
        if (task_is_interrupt(task))
            return task->wake_ns * 1000;
    }
    return UINT64_MAX;
}

/* ---- leaving a CPU ---- */

static void sched_stop(struct sim_sched *sched)
{
    sched->base.signal.stop = 1;
    sched->is_finished = true;
}

void sq_sched_fail(sq_sched *base, const struct sq_error *error)
{
    struct sim_sched *sched = (struct sim_sched *)base;
    if (sched->error.code == SQ_OK && !sched->is_finished)
        sched->error = *error;
    sched_stop(sched);
}

void sq_sched_finish(sq_sched *base)
{
    sched_stop((struct sim_sched *)base);
}

/* Give the CPU to its loop, which does what `after` says. */
static void task_leave_cpu(sq_task *task, enum sched_after after)
{
    struct run_queue *queue = queue_of(task);
    queue->after = after;
    queue->cpu->running = &queue->loop;
    sq_fiber_switch(&task->fiber, &queue->loop);
}

static void task_main(void *argument)
{
    sq_task *task = argument;
    struct run_queue *queue;
    task->function(task, task->argument);
    queue = queue_of(task);
    queue->after = SCHED_ENDED;
    queue->cpu->running = &queue->loop;
    sq_fiber_exit(&task->fiber, &queue->loop);
}

/* Where the task waits, or could be anywhere in a call: it is continued there, whatever
 * happens to the run. */
static void task_leave_inside(sq_task *task, enum sched_after after)
{
    struct sim_sched *sched = sched_of(task);
    sched->base.inside_count++;
    task_leave_cpu(task, after);
    sched->base.inside_count--;
}

/* Does a task wait that takes the CPU from the running one, wherever that is? */
static bool queue_is_overtaken(const struct run_queue *queue)
{
    return queue->count > 0 && queue->heap[0]->priority > queue->current->priority &&
           (queue->sched->is_preemptible || task_is_interrupt(queue->heap[0]));
}

/* When this CPU's task is to be looked at again. */
static void queue_arm(struct run_queue *queue)
{
    uint64_t *at_ps = &queue->cpu->preempt_at_ps;
    bool is_preemptible = queue->sched->is_preemptible || queue->has_interrupts;
    if (!is_preemptible)
        *at_ps = UINT64_MAX;
    else if (queue_is_overtaken(queue))
        *at_ps = 0; /* queued while the other was chosen */
    else if (!queue->sched->is_preemptible)
        *at_ps = sq_min_u64(timers_next_interrupt_ps(queue), SIM_NO_TIMER_PS);
    else
        *at_ps = sq_min_u64(timers_next_ps(queue), SIM_NO_TIMER_PS);
}

/* The interrupt of a timer, in the middle of a task. */
static void timers_interrupt(struct run_queue *queue)
{
    struct sq_sim_cpu *cpu = queue->cpu;
    cpu->base.preempt_depth++;
    sq_scope_enter(&cpu->base, WAKE);
    sq_sim_charge(cpu, cpu->costs->irq_save_ps + cpu->costs->irq_restore_ps +
                           cpu->costs->wakeup_ps);
    (void)timers_run(queue);
    sq_scope_leave(&cpu->base, WAKE);
    cpu->base.preempt_depth--;
}

/* The clock has come to a timer, or a task of higher priority was queued. Nothing
 * happens while the task may not be preempted: then the next such place is tried. */
void sq_sim_preempt(struct sq_sim_cpu *cpu)
{
    sq_cpu *base = &cpu->base;
    sq_task *task = base->task;
    struct run_queue *queue;
    if (task == NULL || base->irq_depth > 0 || base->held_count > 0 ||
        base->preempt_depth > 0 || cpu->sim->current != cpu)
        return;
    queue = queue_of(task);
    if (timers_next_ps(queue) <= cpu->now_ps)
        timers_interrupt(queue);
    if (queue_is_overtaken(queue)) {
        task->engine.is_preempted = true;
        task_leave_inside(task, SCHED_PREEMPTED);
        task->engine.is_preempted = false;
    } else {
        queue_arm(queue);
    }
}

/* With nobody waiting, the task goes on with a new slice. */
void sq_task_yield(sq_task *task)
{
    struct run_queue *queue = queue_of(task);
    struct sq_sim_cpu *cpu = queue->cpu;
    sq_cpu_poll(&cpu->base);
    balance_periodic(queue,
                     (uint64_t)queue->sched->rules.sched_balance_interval_us * US_PS);
    cpu->slice_end_ps = cpu->now_ps + queue_slice_ps(queue);
    if (queue->count > 0 && queue->heap[0]->priority >= task->priority)
        task_leave_cpu(task, SCHED_YIELDS);
}

_Noreturn void sq_task_abandon(sq_task *task)
{
    SQ_ASSERT(task->engine.first_held == NULL);
    task_leave_cpu(task, SCHED_ABANDONED);
    abort(); /* an abandoned task was continued */
}

/* Slices are by the clock here. Calls are counted for the host: a task whose calls take
 * little or no simulated time may never come to another place where it can be stopped.
 */
void sq_task_next_slice(sq_task *task)
{
    task->calls_left = SCHED_HOST_CALLS;
    sim_look_at_host(sq_sim_of(task->cpu));
}

void sq_task_sleep_until(sq_task *task, uint64_t time_ns)
{
    task->wake_ns = time_ns;
    task_leave_cpu(task, SCHED_NAPS);
}

void sq_task_set_priority(sq_task *task, uint32_t priority)
{
    struct run_queue *queue = queue_of(task);
    SQ_ASSERT(priority <= SQ_TASK_PRIORITY_INTERRUPT &&
              task->engine.first_held == NULL);
    task->own_priority = task->priority = priority;
    if (task_is_interrupt(task)) {
        queue->has_interrupts = true;
        queue->interrupt_since_ps = queue->cpu->now_ps;
    }
}

void sq_task_look_at_timers(sq_task *task)
{
    struct run_queue *queue = queue_of(task);
    if (timers_next_ps(queue) <= queue->cpu->now_ps && timers_run(queue) > 0)
        task_leave_cpu(task, SCHED_YIELDS);
}

void sq_wait_sleep(sq_task *task, struct sq_wait_queue *queue, sq_lock *lock)
{
    sq_lock_assert_held(task->cpu, lock);
    sq_list_link_tail(&task->link, &queue->tasks);
    queue_of(task)->release = lock;
    task_leave_cpu(task, SCHED_SLEEPS);
}

#include "machine/rt_mutex_sim.h"

/* ---- a CPU ---- */

static void task_free(struct sim_sched *sched, sq_task *task)
{
    sq_list_unlink(&task->sched_link);
    if (--sched->task_count == 0)
        sched->is_finished = true;
    sq_fiber_destroy(&sched->stacks, &task->fiber);
    free(task);
}

/* The task went back to the queue: because a woken one takes its place? With fewer than
 * three tasks (sched_nr_latency) there is nothing to prefer it to. */
static void loop_note_buddy(struct run_queue *queue, sq_task *task)
{
    const struct sq_sched_rules *rules = &queue->sched->rules;
    int64_t least = rules->sched_latency_us /
                    sq_max_u64((uint64_t)rules->sched_min_granularity_us, 1);
    if (rules->sched_last_buddy != 0 && queue->is_overtaken &&
        queue_load(queue) >= (uint64_t)least)
        queue->buddy = task;
}

/* Let `task` run until it leaves the CPU. */
static void loop_run_task(struct run_queue *queue, sq_task *task)
{
    struct sq_sim_cpu *cpu = queue->cpu;
    queue->current = task;
    queue->sched->running_count++;
    queue->is_overtaken = false;
    task->engine.started_ps = cpu->now_ps;
    cpu->base.task = task;
    cpu->base.context = task->context;
    cpu->scopes = task->engine.scopes;
    queue_arm(queue);
    cpu->slice_end_ps = cpu->now_ps + queue_slice_ps(queue);
    cpu->running = &task->fiber;
    sq_fiber_switch(&queue->loop, &task->fiber);
    sq_sim_book(cpu);
    task->engine.scopes = cpu->scopes;
    cpu->scopes.depth = 0;
    task->context = cpu->base.context;
    cpu->base.context = (struct sq_task_context){0};
    cpu->base.task = NULL;
    cpu->preempt_at_ps = UINT64_MAX;
    queue_update(queue, cpu->now_ps);
    queue_note_load(queue, cpu->now_ps);
    task->engine.ran_until_ps = cpu->now_ps;
    queue->current = NULL;
    if (queue->after != SCHED_YIELDS && queue->after != SCHED_PREEMPTED)
        load_end(queue, task, cpu->now_ps);
    queue->sched->running_count--;
    mutex_owner_leaves(cpu, task);
    switch (queue->after) {
    case SCHED_SLEEPS:
        sq_lock_release(&cpu->base, queue->release); /* now a waker may run it */
        break;
    case SCHED_BLOCKS:
        break;
    case SCHED_YIELDS:
    case SCHED_PREEMPTED:
        queue_enqueue(&cpu->base, queue, task, false);
        loop_note_buddy(queue, task);
        break;
    case SCHED_NAPS:
        timers_add(queue, task);
        break;
    case SCHED_ENDED:
        queue->last = NULL;
        task_free(queue->sched, task);
        break;
    case SCHED_ABANDONED:
        break;
    }
}

/* The next task, with the time that choosing and switching take. */
static sq_task *loop_pick(struct run_queue *queue)
{
    struct sq_sim_cpu *cpu = queue->cpu;
    sq_task *task = NULL;
    sq_scope_enter(&cpu->base, SCHEDULE);
    sq_sim_charge(cpu, cpu->costs->schedule_ps);
    if (queue->count == 0)
        balance_new_idle(queue);
    if (queue->count > 0) {
        sq_lock_acquire(&cpu->base, &queue->lines->lock);
        sq_touch_write(&cpu->base, &queue->lines->load, sizeof(uint64_t));
        if (queue->count > 0)
            task = queue_take(queue, queue_next(queue));
        sq_lock_release(&cpu->base, &queue->lines->lock);
    }
    if (task != NULL && !task_is_interrupt(task)) {
        /* As perf counts: a task left the CPU, be it for none. */
        queue->switch_count += task != queue->last || queue->was_idle;
        queue->was_idle = false;
    }
    if (task != NULL && task != queue->last && !task_is_interrupt(task)) {
        sq_sim_charge(cpu, cpu->costs->context_switch_ps);
        queue->last = task;
    }
    sq_scope_leave(&cpu->base, SCHEDULE);
    return task;
}

/* Wait until called, until the first timer, and no longer than a tick, unless nothing
 * is left that could become work. */
static void idle_wait(struct run_queue *queue)
{
    const struct sim_sched *sched = queue->sched;
    struct sq_sim_cpu *cpu = queue->cpu;
    uint64_t until_ps = timers_next_ps(queue);
    cpu->is_idle = true;
    if (sched->waiting_count + sched->running_count + sched->base.timer_count > 0)
        until_ps = sq_min_u64(
            until_ps, cpu->now_ps + (uint64_t)sched->rules.sched_tick_us * US_PS);
    if (until_ps == UINT64_MAX)
        sim_block(cpu);
    else
        sim_sleep(cpu, sq_max_u64(until_ps, cpu->now_ps));
    if (timers_next_ps(queue) > cpu->now_ps)
        return;
    if (sched->rules.sched_idle_poll == 0) /* the timer's interrupt */
        sq_sim_charge(cpu, cpu->costs->idle_exit_ps);
    else
        sq_sim_charge(cpu, cpu->costs->irq_save_ps + cpu->costs->irq_restore_ps +
                               cpu->costs->wakeup_ps);
}

/* Has another CPU asked for something that can be done now? */
static bool queue_has_request(const struct run_queue *queue)
{
    return queue->cpu->request_function != NULL && queue->cpu->base.mutex_count == 0;
}

/* Wait for a task. */
static void loop_idle(struct run_queue *queue)
{
    struct sim_sched *sched = queue->sched;
    struct sq_sim_cpu *cpu = queue->cpu;
    uint64_t idle_ps;
    sq_sim_book(cpu);
    queue->idle_since_ps = cpu->now_ps;
    queue->is_idle = true;
    queue->was_idle = true;
    sq_sim_event(cpu, SIM_EVENT_IDLE);
    while (queue->count == 0 && !sched_is_over(sched) && !queue_has_request(queue)) {
        idle_wait(queue);
        if (timers_run(queue) == 0 && queue->count == 0 && sched->waiting_count > 0)
            balance_periodic(queue, (uint64_t)sched->rules.sched_tick_us * US_PS);
    }
    queue->is_idle = false;
    idle_ps = cpu->now_ps - queue->idle_since_ps;
    /* A running average over about eight idle times, no single one counting too much.
     */
    idle_ps =
        sq_min_u64(idle_ps, 2 * (uint64_t)sched->rules.sched_migration_cost_us * US_PS);
    queue->average_idle_ps += idle_ps / 8;
    queue->average_idle_ps -= queue->average_idle_ps / 8;
    wake_note_idle(queue);
    cpu->scope_since_ps = cpu->now_ps;
}

static void loop_main(void *argument)
{
    struct run_queue *queue = argument;
    struct sim_sched *sched = queue->sched;
    while (!sched_is_over(sched)) {
        sq_task *task;
        sq_cpu_poll(&queue->cpu->base);
        (void)timers_run(queue);
        task = loop_pick(queue);
        if (task != NULL)
            loop_run_task(queue, task);
        else
            loop_idle(queue);
    }
    sq_cpu_poll(&queue->cpu->base);
    queue->cpu->is_active = false;
    sim_block(queue->cpu);
    abort(); /* a CPU that had ended was continued */
}

/* ---- tasks ---- */

int sq_task_create(sq_cpu *cpu, sq_sched *base, sq_task_function *function,
                   void *argument, void *owner, int32_t index, bool is_pinned,
                   struct sq_error *error)
{
    struct sim_sched *sched = (struct sim_sched *)base;
    sq_task *task = calloc(1, sizeof(*task));
    struct run_queue *queue;
    int code;
    SQ_ASSERT(index < (int32_t)sched->cpu_count);
    if (index < 0)
        index = (int32_t)(sched->next_cpu++ % sched->cpu_count);
    queue = &sched->queues[index];
    if (task == NULL || !heaps_reserve(sched, sched->task_count + 1)) {
        free(task);
        return sq_error_set(error, SQ_E_MEMORY, "the host has no memory for a task");
    }
    task->sched = base;
    task->owner = owner;
    task->function = function;
    task->argument = argument;
    task->is_pinned = is_pinned;
    task->calls_left = SCHED_HOST_CALLS;
    sq_list_init(&task->link);
    code = sq_fiber_create(&sched->stacks, &task->fiber, task_main, task, error);
    if (code != SQ_OK) {
        free(task);
        return code;
    }
    task->cpu = &queue->cpu->base;
    task->number = sched->task_number++;
    task->engine.vruntime_ps = queue->min_vruntime_ps;
    sched->task_count++;
    sq_list_link_tail(&task->sched_link, &sched->tasks);
    queue_enqueue(cpu, queue, task, false);
    return SQ_OK;
}

/* ---- a run ---- */

sq_sched *sq_sched_create(sq_machine *base, const struct sq_sched_config *config)
{
    struct sim_machine *machine = sim_of(base);
    uint32_t cpu_count = base->topology.cpu_count;
    struct sim_sched *sched = calloc(1, sizeof(*sched));
    struct run_queue *queues = calloc(cpu_count, sizeof(*queues));
    struct queue_lines *lines = sq_shared_alloc(base, sizeof(*lines) * cpu_count);
    if (sched == NULL || queues == NULL || lines == NULL) {
        sq_shared_free(base, lines, sizeof(*lines) * cpu_count);
        free(queues);
        free(sched);
        return NULL;
    }
    sched->machine = machine;
    sched->rules = config->rules;
    sq_sched_rules_fill(&sched->rules);
    sched->is_preemptible = sched->rules.sched_preempt_rt > 0;
    sched->cpu_count = cpu_count;
    sched->queues = queues;
    sched->lines = lines;
    sq_fiber_pool_init(&sched->stacks, SQ_FIBER_STACK_BYTES);
    sq_list_init(&sched->tasks);
    for (uint32_t i = 0; i < cpu_count; i++) {
        queues[i].sched = sched;
        queues[i].cpu = &machine->cpus[i];
        queues[i].lines = &lines[i];
        queues[i].average_idle_ps =
            2 * (uint64_t)sched->rules.sched_migration_cost_us * US_PS;
        sq_list_init(&queues[i].timers);
        sq_lock_init(&lines[i].lock, SQ_LOCK_RUN);
    }
    return &sched->base;
}

void sq_sched_destroy(sq_sched *base)
{
    struct sim_sched *sched = (struct sim_sched *)base;
    SQ_LIST_EACH_SAFE (link, next, &sched->tasks) {
        sq_task *task = SQ_LIST_ENTRY(link, sq_task, sched_link);
        sq_fiber_destroy(&sched->stacks, &task->fiber);
        free(task);
    }
    for (uint32_t i = 0; i < sched->cpu_count; i++)
        free(sched->queues[i].heap);
    sq_fiber_pool_destroy(&sched->stacks);
    sq_shared_free(&sched->machine->base, sched->lines,
                   sizeof(*sched->lines) * sched->cpu_count);
    free(sched->queues);
    free(sched);
}

/* A fiber for each CPU's loop. Returns how many there are. */
static uint32_t sched_make_loops(struct sim_sched *sched)
{
    uint32_t count = 0;
    for (; count < sched->cpu_count; count++) {
        struct run_queue *queue = &sched->queues[count];
        if (sq_fiber_create(&sched->stacks, &queue->loop, loop_main, queue,
                            &sched->error) != SQ_OK)
            break;
        queue->cpu->running = &queue->loop;
    }
    return count;
}

static void sched_run_all(struct sim_sched *sched, sq_sched_tick *tick, void *argument)
{
    struct sq_error error;
    while (sim_run_continue(sched->machine)) {
        if (tick == NULL || !tick(argument))
            continue;
        (void)sq_error_set(&error, SQ_E_STOPPED, "the run was stopped");
        sq_sched_fail(&sched->base, &error);
    }
    if (sched->task_count == 0 || sched->is_finished)
        return;
    (void)sq_error_set(
        &error, SQ_E_DEADLOCK,
        "deadlock: all %u tasks that have not ended wait, and none is left "
        "that could wake them",
        sched->task_count);
    sq_sched_fail(&sched->base, &error);
}

int sq_sched_run(sq_sched *base, sq_sched_tick *tick, void *tick_argument,
                 struct sq_error *error)
{
    struct sim_sched *sched = (struct sim_sched *)base;
    uint32_t made = 0;
    if (sched->task_count > 0)
        made = sched_make_loops(sched);
    if (made == sched->cpu_count) {
        sq_fiber_adopt_thread(&sched->main_fiber);
        sim_run_begin(sched->machine, &sched->main_fiber);
        sched_run_all(sched, tick, tick_argument);
        sim_run_end(sched->machine);
    }
    while (made > 0)
        sq_fiber_destroy(&sched->stacks, &sched->queues[--made].loop);
    if (sched->error.code != SQ_OK && error != NULL)
        *error = sched->error;
    return sched->error.code;
}

void sq_sched_count(const sq_sched *base, uint64_t *switches, uint64_t *migrations)
{
    const struct sim_sched *sched = (const struct sim_sched *)base;
    *switches = 0;
    *migrations = 0;
    for (uint32_t i = 0; i < sched->cpu_count; i++) {
        *switches += sched->queues[i].switch_count;
        *migrations += sched->queues[i].migration_count;
    }
}
