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
 * Departures: no group scheduling; a slice is fixed when it begins; preemption takes
 * effect at a task's next call that may block (a kernel without preemption, at the
 * return from a system call); load is the number of runnable tasks at that moment,
 * without history.
 */
#define SQ_MACHINE_SIM 1
#include "machine/sched.h"

#include <stdlib.h>
#include <string.h>

#include "machine/sim_internal.h"

#define US_PS             UINT64_C(1000000)
#define PULL_MAX          32u  /* tasks moved at a time */
#define IMBALANCE_PERCENT 125u /* a queue must be so much longer to be pulled from */

enum sched_after {
    SCHED_SLEEPS,    /* it is on a wait queue: let go of the lock */
    SCHED_YIELDS,    /* queue it again */
    SCHED_NAPS,      /* it sleeps until a time: put it on the CPU's list */
    SCHED_ENDED,     /* its function returned */
    SCHED_ABANDONED, /* the run is over */
};

/* The lines of a run queue that other CPUs touch when they wake a task there. */
struct queue_lines {
    _Alignas(SQ_LINE_SIZE) sq_lock lock; /* class RUN */
    _Alignas(SQ_LINE_SIZE) uint64_t load;
};

struct run_queue {
    struct sim_sched *sched;
    struct sq_sim_cpu *cpu;
    struct queue_lines *lines;
    /* -- waiting tasks, a heap by virtual runtime -- */
    sq_task **heap;
    uint32_t count, capacity, movable_count;
    /* -- tasks that sleep until a time, the first to wake first -- */
    struct sq_list timers; /* sq_task.link */
    /* -- */
    sq_task *current, *last;
    uint64_t min_vruntime_ps;
    bool is_idle;
    uint64_t idle_since_ps, average_idle_ps, balance_at_ps;
    uint64_t switch_count, migration_count;
    struct sq_fiber loop;
    enum sched_after after;
    sq_lock *release; /* SCHED_SLEEPS */
};

struct sim_sched {
    sq_sched base; /* must be first */
    struct sim_machine *machine;
    struct sq_sched_rules rules;
    uint32_t cpu_count;
    struct run_queue *queues;
    struct queue_lines *lines; /* one a CPU */
    struct sq_fiber_pool stacks;
    struct sq_fiber main_fiber;
    struct sq_list tasks; /* sq_task.sched_link */
    uint32_t task_count, task_number, next_cpu, waiting_count;
    bool is_finished;
    struct sq_error error; /* code 0: none */
};

static struct sim_sched *sched_of(const sq_task *task)
{
    return (struct sim_sched *)task->sched;
}

static struct run_queue *queue_of(const sq_task *task)
{
    return &sched_of(task)->queues[task->cpu->index];
}

/* ---- the heap of a queue ---- */

static bool task_is_before(const sq_task *a, const sq_task *b)
{
    if (a->engine.vruntime_ps != b->engine.vruntime_ps)
        return a->engine.vruntime_ps < b->engine.vruntime_ps;
    return a->number < b->number;
}

static void heap_rise(sq_task **heap, uint32_t i)
{
    sq_task *task = heap[i];
    while (i > 0 && task_is_before(task, heap[(i - 1) / 2])) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = task;
}

static void heap_sink(sq_task **heap, uint32_t count, uint32_t i)
{
    sq_task *task = heap[i];
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= count)
            break;
        if (child + 1 < count && task_is_before(heap[child + 1], heap[child]))
            child++;
        if (!task_is_before(heap[child], task))
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = task;
}

/* Room for every task on each queue, so that waking never fails. false: the host has no
 * memory. */
static bool heaps_reserve(struct sim_sched *sched, uint32_t task_count)
{
    for (uint32_t i = 0; i < sched->cpu_count; i++) {
        struct run_queue *queue = &sched->queues[i];
        uint32_t capacity = queue->capacity > 0 ? 2 * queue->capacity : 64;
        sq_task **heap;
        if (task_count <= queue->capacity)
            continue;
        heap = realloc(queue->heap, sizeof(*heap) * capacity);
        if (heap == NULL)
            return false;
        queue->heap = heap;
        queue->capacity = capacity;
    }
    return true;
}

static void queue_add(struct run_queue *queue, sq_task *task)
{
    SQ_ASSERT(queue->count < queue->capacity);
    queue->heap[queue->count++] = task;
    heap_rise(queue->heap, queue->count - 1);
    queue->sched->waiting_count++;
    if (!task->is_pinned)
        queue->movable_count++;
}

static sq_task *queue_take(struct run_queue *queue, uint32_t i)
{
    sq_task *task = queue->heap[i];
    queue->heap[i] = queue->heap[--queue->count];
    if (i < queue->count) {
        heap_sink(queue->heap, queue->count, i);
        heap_rise(queue->heap, i);
    }
    queue->sched->waiting_count--;
    if (!task->is_pinned)
        queue->movable_count--;
    return task;
}

/* ---- virtual runtime ---- */

static uint32_t queue_load(const struct run_queue *queue)
{
    return queue->count + (queue->current != NULL);
}

/* Book what the running task has run until now on it. */
static void queue_update(struct run_queue *queue, uint64_t now_ps)
{
    sq_task *task = queue->current;
    uint64_t least_ps;
    if (task != NULL && now_ps > task->engine.started_ps) {
        task->engine.vruntime_ps += now_ps - task->engine.started_ps;
        task->engine.started_ps = now_ps;
    }
    if (task == NULL && queue->count == 0)
        return;
    least_ps = task != NULL ? task->engine.vruntime_ps : UINT64_MAX;
    if (queue->count > 0)
        least_ps = sq_min_u64(least_ps, queue->heap[0]->engine.vruntime_ps);
    queue->min_vruntime_ps = sq_max_u64(queue->min_vruntime_ps, least_ps);
}

/* Keep a task's lead or lag when it changes queues. */
static void task_rebase(sq_task *task, const struct run_queue *from,
                        const struct run_queue *to)
{
    uint64_t lag_ps = from->min_vruntime_ps - task->engine.vruntime_ps;
    uint64_t vruntime_ps = to->min_vruntime_ps - lag_ps;
    if ((int64_t)vruntime_ps < 0)
        vruntime_ps = 0;
    task->engine.vruntime_ps = vruntime_ps;
}

/* A sleeper comes back a little ahead of the others, never more. */
static void task_place_woken(const struct run_queue *queue, sq_task *task)
{
    const struct sq_sched_rules *rules = &queue->sched->rules;
    uint64_t credit_ps = (uint64_t)rules->sched_latency_us * US_PS;
    uint64_t floor_ps;
    if (rules->sched_gentle_sleepers != 0)
        credit_ps /= 2;
    floor_ps = queue->min_vruntime_ps - sq_min_u64(credit_ps, queue->min_vruntime_ps);
    task->engine.vruntime_ps = sq_max_u64(task->engine.vruntime_ps, floor_ps);
}

static uint64_t queue_slice_ps(const struct run_queue *queue)
{
    const struct sq_sched_rules *rules = &queue->sched->rules;
    uint64_t share_ps =
        (uint64_t)rules->sched_latency_us * US_PS / sq_max_u64(queue_load(queue), 1);
    return sq_max_u64(share_ps, (uint64_t)rules->sched_min_granularity_us * US_PS);
}

/* ---- waking ---- */

/* The CPU has work: an idle one is called, a running one that is far enough ahead is
 * told to give way. */
static void queue_notify(struct sq_sim_cpu *waker, struct run_queue *queue,
                         const sq_task *task)
{
    const struct sq_sched_rules *rules = &queue->sched->rules;
    uint64_t granularity_ps = (uint64_t)rules->sched_wakeup_granularity_us * US_PS;
    if (queue->cpu->is_idle) {
        sq_sim_charge(waker, waker->costs->ipi_ps);
        sim_unblock(queue->cpu, waker->now_ps + (uint64_t)waker->costs->idle_exit_ps);
        return;
    }
    if (queue->current != NULL &&
        queue->current->engine.vruntime_ps > task->engine.vruntime_ps + granularity_ps)
        queue->cpu->slice_end_ps = 0;
}

/* Put a runnable task on a queue. `cpu` does it. */
static void queue_enqueue(sq_cpu *cpu, struct run_queue *queue, sq_task *task,
                          bool is_woken)
{
    struct sq_sim_cpu *waker = sq_sim_of(cpu);
    sq_lock_acquire(cpu, &queue->lines->lock);
    sq_touch_write(cpu, &queue->lines->load, sizeof(uint64_t));
    queue_update(queue, waker->now_ps);
    if (is_woken && queue_of(task) != queue)
        task_rebase(task, queue_of(task), queue);
    if (is_woken)
        task_place_woken(queue, task);
    task->cpu = &queue->cpu->base;
    queue_add(queue, task);
    queue_notify(waker, queue, task);
    sq_lock_release(cpu, &queue->lines->lock);
}

/* Is nothing there to run, and nothing on its way? */
static bool queue_is_idle(const struct run_queue *queue)
{
    return queue->is_idle && queue->count == 0;
}

/* Would the waker's CPU be no more loaded with the task than the one it ran on? */
static bool wake_is_affine(const struct run_queue *waker, const struct run_queue *last)
{
    bool sync = waker->sched->rules.sched_sync_wakeups != 0;
    uint32_t here = queue_load(waker) + 1;
    uint32_t there = queue_load(last);
    if (sync && waker->current != NULL)
        here--;
    /* Half of the imbalance counts, as in the kernel. */
    return 100 * here <= (100 + (IMBALANCE_PERCENT - 100) / 2) * there;
}

/* An idle CPU of the same last-level cache (or socket), else NULL. */
static struct run_queue *wake_find_idle(struct sim_sched *sched,
                                        const struct run_queue *near, bool whole_socket)
{
    for (uint32_t i = 0; i < sched->cpu_count; i++) {
        struct run_queue *queue = &sched->queues[i];
        const struct sim_core *core = queue->cpu->core;
        bool is_near = whole_socket ? core->socket == near->cpu->core->socket
                                    : core->domain == near->cpu->core->domain;
        if (is_near && queue_is_idle(queue))
            return queue;
    }
    return NULL;
}

/* Where a woken task goes. */
static struct run_queue *wake_place(sq_cpu *waker, const sq_task *task)
{
    struct sim_sched *sched = sched_of(task);
    struct run_queue *last = queue_of(task), *target = last, *idle = NULL;
    struct run_queue *here = &sched->queues[waker->index];
    if (task->is_pinned)
        return last;
    if (sched->rules.sched_wake_affine != 0 && here != last &&
        wake_is_affine(here, last))
        target = here;
    if (queue_is_idle(target))
        return target;
    if (sched->rules.sched_idle_sibling != 0) {
        if (queue_is_idle(last) && last->cpu->core->domain == target->cpu->core->domain)
            return last;
        idle = wake_find_idle(sched, target, false);
    } else if (sched->rules.sched_wake_idle != 0) {
        idle = wake_find_idle(sched, target, true);
    }
    return idle != NULL ? idle : target;
}

uint32_t sq_wait_wake(sq_cpu *cpu, struct sq_wait_queue *queue, uint32_t limit_count)
{
    uint32_t count = 0;
    while (count < limit_count && !sq_list_is_empty(&queue->tasks)) {
        sq_task *task = SQ_LIST_ENTRY(queue->tasks.next, sq_task, link);
        sq_list_unlink(&task->link);
        sq_scope_enter(cpu, WAKE);
        sq_sim_charge(sq_sim_of(cpu), sq_sim_of(cpu)->costs->wakeup_ps);
        sq_sim_event(sq_sim_of(cpu), SIM_EVENT_WAKE);
        queue_enqueue(cpu, wake_place(cpu, task), task, true);
        sq_scope_leave(cpu, WAKE);
        count++;
    }
    return count;
}

/* ---- balancing ---- */

/* The longest queue: of those of the same cache first, else of all. NULL: none has a
 * waiting task that may move. */
static struct run_queue *balance_find(struct sim_sched *sched,
                                      const struct run_queue *to, bool near)
{
    struct run_queue *busiest = NULL;
    for (uint32_t i = 0; i < sched->cpu_count; i++) {
        struct run_queue *queue = &sched->queues[i];
        bool is_near = queue->cpu->core->domain == to->cpu->core->domain;
        if (queue == to || queue->movable_count == 0 || queue->current == NULL ||
            (near && !is_near))
            continue;
        if (busiest == NULL || queue->count > busiest->count)
            busiest = queue;
    }
    return busiest;
}

/* Has the task run so lately that its lines are still where it was? */
static bool task_is_hot(const struct sim_sched *sched, const sq_task *task,
                        uint64_t now_ps)
{
    uint64_t cost_ps = (uint64_t)sched->rules.sched_migration_cost_us * US_PS;
    return now_ps < task->engine.ran_until_ps + cost_ps;
}

/* Move up to `limit` waiting tasks. Returns how many. */
static uint32_t balance_pull(struct run_queue *to, struct run_queue *from,
                             uint32_t limit)
{
    struct sim_sched *sched = to->sched;
    sq_cpu *cpu = &to->cpu->base;
    uint32_t moved = 0;
    sq_lock_acquire(cpu, &from->lines->lock);
    sq_touch_write(cpu, &from->lines->load, sizeof(uint64_t));
    for (uint32_t i = from->count; i > 0 && moved < limit; i--) {
        sq_task *task;
        if (i > from->count || from->heap[i - 1]->is_pinned ||
            task_is_hot(sched, from->heap[i - 1], to->cpu->now_ps))
            continue;
        task = queue_take(from, i - 1);
        task_rebase(task, from, to);
        task->cpu = cpu;
        queue_add(to, task);
        to->migration_count++;
        moved++;
    }
    sq_lock_release(cpu, &from->lines->lock);
    return moved;
}

/* A queue ran dry. A CPU that is called back soon does not look at others' queues. */
static void balance_new_idle(struct run_queue *queue)
{
    struct sim_sched *sched = queue->sched;
    uint64_t cost_ps = (uint64_t)sched->rules.sched_migration_cost_us * US_PS;
    if (sched->rules.sched_newidle_balance == 0 || sched->waiting_count == 0 ||
        queue->average_idle_ps < cost_ps)
        return;
    for (int pass = 0; pass < 2 && queue->count == 0; pass++) {
        struct run_queue *from = balance_find(sched, queue, pass == 0);
        if (from != NULL)
            (void)balance_pull(queue, from,
                               (uint32_t)sq_min_u64((from->count + 1) / 2, PULL_MAX));
    }
}

/* Now and then, level out with a queue that is clearly longer. */
static void balance_periodic(struct run_queue *queue, uint64_t interval_ps)
{
    struct sim_sched *sched = queue->sched;
    if (queue->cpu->now_ps < queue->balance_at_ps)
        return;
    queue->balance_at_ps = queue->cpu->now_ps + interval_ps;
    for (int pass = 0; pass < 2; pass++) {
        struct run_queue *from = balance_find(sched, queue, pass == 0);
        uint32_t own = queue_load(queue);
        if (from == NULL ||
            100 * queue_load(from) <= IMBALANCE_PERCENT * sq_max_u64(own, 1))
            continue;
        (void)balance_pull(
            queue, from,
            (uint32_t)sq_min_u64((queue_load(from) - own + 1) / 2, PULL_MAX));
    }
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
        queue_enqueue(&queue->cpu->base, queue, task, false);
    }
    return count;
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

/* With nobody waiting, the task goes on with a new slice. */
void sq_task_yield(sq_task *task)
{
    struct run_queue *queue = queue_of(task);
    struct sq_sim_cpu *cpu = queue->cpu;
    sq_cpu_poll(&cpu->base);
    balance_periodic(queue,
                     (uint64_t)queue->sched->rules.sched_balance_interval_us * US_PS);
    cpu->slice_end_ps = cpu->now_ps + queue_slice_ps(queue);
    if (queue->count > 0)
        task_leave_cpu(task, SCHED_YIELDS);
}

_Noreturn void sq_task_abandon(sq_task *task)
{
    task_leave_cpu(task, SCHED_ABANDONED);
    abort(); /* an abandoned task was continued */
}

/* Slices are by the clock here. */
void sq_task_next_slice(sq_task *task)
{
    task->calls_left = UINT32_MAX;
    sq_cpu_poll(task->cpu);
}

void sq_task_sleep_until(sq_task *task, uint64_t time_ns)
{
    task->wake_ns = time_ns;
    task_leave_cpu(task, SCHED_NAPS);
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

/* ---- a CPU ---- */

static void task_free(struct sim_sched *sched, sq_task *task)
{
    sq_list_unlink(&task->sched_link);
    if (--sched->task_count == 0)
        sched->is_finished = true;
    sq_fiber_destroy(&sched->stacks, &task->fiber);
    free(task);
}

/* Let `task` run until it leaves the CPU. */
static void loop_run_task(struct run_queue *queue, sq_task *task)
{
    struct sq_sim_cpu *cpu = queue->cpu;
    queue->current = task;
    task->engine.started_ps = cpu->now_ps;
    cpu->base.task = task;
    cpu->scopes = task->engine.scopes;
    cpu->slice_end_ps = cpu->now_ps + queue_slice_ps(queue);
    cpu->running = &task->fiber;
    sq_fiber_switch(&queue->loop, &task->fiber);
    sq_sim_book(cpu);
    task->engine.scopes = cpu->scopes;
    cpu->scopes.depth = 0;
    cpu->base.task = NULL;
    queue_update(queue, cpu->now_ps);
    task->engine.ran_until_ps = cpu->now_ps;
    queue->current = NULL;
    switch (queue->after) {
    case SCHED_SLEEPS:
        sq_lock_release(&cpu->base, queue->release); /* now a waker may run it */
        break;
    case SCHED_YIELDS:
        queue_enqueue(&cpu->base, queue, task, false);
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
            task = queue_take(queue, 0);
        sq_lock_release(&cpu->base, &queue->lines->lock);
    }
    if (task != NULL && task != queue->last) {
        sq_sim_charge(cpu, cpu->costs->context_switch_ps);
        queue->switch_count++;
        queue->last = task;
    }
    sq_scope_leave(&cpu->base, SCHEDULE);
    return task;
}

/* Wait until called, until the first timer, and while tasks wait elsewhere no longer
 * than a tick. */
static void idle_wait(struct run_queue *queue)
{
    const struct sim_sched *sched = queue->sched;
    struct sq_sim_cpu *cpu = queue->cpu;
    uint64_t until_ps = timers_next_ps(queue);
    cpu->is_idle = true;
    if (sched->waiting_count > 0)
        until_ps = sq_min_u64(
            until_ps, cpu->now_ps + (uint64_t)sched->rules.sched_tick_us * US_PS);
    if (until_ps == UINT64_MAX)
        sim_block(cpu);
    else
        sim_sleep(cpu, sq_max_u64(until_ps, cpu->now_ps));
    if (timers_next_ps(queue) <= cpu->now_ps)
        sq_sim_charge(cpu, cpu->costs->idle_exit_ps); /* the timer's interrupt */
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
    sq_sim_event(cpu, SIM_EVENT_IDLE);
    while (queue->count == 0 && !sched->is_finished && cpu->request_function == NULL) {
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
    cpu->scope_since_ps = cpu->now_ps;
}

static void loop_main(void *argument)
{
    struct run_queue *queue = argument;
    struct sim_sched *sched = queue->sched;
    while (!sched->is_finished) {
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
    task->calls_left = UINT32_MAX;
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
