/*
 * A run queue of the simulated scheduler: the waiting tasks of a CPU as a heap by
 * virtual runtime, and how virtual runtime goes on. Part of sched_sim.c.
 */
#ifndef SQ_SCHED_QUEUE_H
#define SQ_SCHED_QUEUE_H

#include <stdlib.h>

#include "machine/sched.h"
#include "machine/sim_internal.h"

#define US_PS             UINT64_C(1000000)
#define PULL_MAX          32u  /* tasks moved at a time */
#define PULL_MAX_RT       8u   /* the same with PREEMPT_RT */
#define IMBALANCE_PERCENT 125u /* a queue must be so much longer to be pulled from */

enum sched_after {
    SCHED_SLEEPS,    /* it is on a wait queue: let go of the lock */
    SCHED_BLOCKS,    /* it waits for a sleeping lock, whose owner knows it */
    SCHED_YIELDS,    /* queue it again */
    SCHED_PREEMPTED, /* the same, in the middle of a call */
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
    uint32_t interrupt_count; /* of them, work of interrupts */
    struct sim_load load;
    uint64_t wake_idle_ps, idle_tick; /* see sched_place_pelt.h */
    /* -- tasks that sleep until a time, the first to wake first -- */
    struct sq_list timers; /* sq_task.link */
    /* -- */
    sq_task *current, *last;
    sq_task *buddy;     /* waits here; a woken task took the CPU from it */
    bool is_overtaken;  /* the current task gives way to a woken one */
    uint32_t tick_load; /* at the last tick before load_since_ps */
    uint64_t load_since_ps;
    uint64_t min_vruntime_ps;
    bool is_idle;
    bool was_idle; /* since it had a task */
    bool has_interrupts;
    uint64_t interrupt_since_ps; /* the work of interrupts goes on */
    uint64_t idle_since_ps, average_idle_ps, balance_at_ps;
    uint32_t balance_failed_count[2]; /* in a row; within the cache, anywhere */
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
    uint32_t task_count, task_number, next_cpu, waiting_count, running_count;
    bool is_finished;
    bool is_preemptible;   /* by tasks of higher priority, nearly everywhere */
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

/* Is it no task, but stands for what interrupts do? */
static bool task_is_interrupt(const sq_task *task)
{
    return task->own_priority == SQ_TASK_PRIORITY_INTERRUPT;
}

static bool task_is_before(const sq_task *a, const sq_task *b)
{
    if (a->priority != b->priority)
        return a->priority > b->priority;
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

/* May another CPU take it? Does not change while it is queued. */
static bool task_is_movable(const sq_task *task)
{
    return !task->is_pinned && !task->engine.is_preempted &&
           task->context.migrate_depth == 0;
}

static void queue_add(struct run_queue *queue, sq_task *task)
{
    SQ_ASSERT(queue->count < queue->capacity);
    task->engine.is_queued = true;
    queue->heap[queue->count++] = task;
    heap_rise(queue->heap, queue->count - 1);
    queue->sched->waiting_count++;
    queue->interrupt_count += task_is_interrupt(task);
    if (task_is_movable(task))
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
    queue->interrupt_count -= task_is_interrupt(task);
    task->engine.is_queued = false;
    if (queue->buddy == task)
        queue->buddy = NULL;
    if (task_is_movable(task))
        queue->movable_count--;
    return task;
}

/* The priority of a waiting task has changed: move it to its place. */
static void queue_replace(struct run_queue *queue, const sq_task *task)
{
    uint32_t i = 0;
    while (queue->heap[i] != task)
        i++;
    heap_sink(queue->heap, queue->count, i);
    heap_rise(queue->heap, i);
}

/* ---- virtual runtime ---- */

/* Is the work of interrupts done in a task's stead by now, and is that a task as
 * others? A softirq is handed to ksoftirqd when it has not come to an end after ten
 * rounds. */
static bool queue_runs_softirqd(const struct run_queue *queue)
{
    uint64_t limit_ps = (uint64_t)queue->sched->rules.sched_softirq_us * US_PS;
    return queue->current != NULL && task_is_interrupt(queue->current) &&
           queue->cpu->now_ps >= queue->interrupt_since_ps + limit_ps;
}

static uint32_t queue_load(const struct run_queue *queue)
{
    uint32_t waiting = queue->count - queue->interrupt_count;
    if (queue->current == NULL)
        return waiting;
    return waiting + (!task_is_interrupt(queue->current) || queue_runs_softirqd(queue));
}

/* Has there been a tick since the load changed last? */
static bool queue_has_ticked(const struct run_queue *queue, uint64_t now_ps)
{
    uint64_t tick_us = sq_max_u64((uint64_t)queue->sched->rules.sched_tick_us, 1);
    return now_ps / (tick_us * US_PS) > queue->load_since_ps / (tick_us * US_PS);
}

/* Called before the load changes: what was it at the last tick? */
static void queue_note_load(struct run_queue *queue, uint64_t now_ps)
{
    if (queue_has_ticked(queue, now_ps))
        queue->tick_load = queue_load(queue);
    queue->load_since_ps = sq_max_u64(now_ps, queue->load_since_ps);
}

/* Book what the running task has run until now on it. The work of interrupts has no
 * virtual runtime. */
static void queue_update(struct run_queue *queue, uint64_t now_ps)
{
    sq_task *task = queue->current;
    uint64_t least_ps;
    if (task != NULL && task_is_interrupt(task))
        return;
    if (task != NULL && now_ps > task->engine.started_ps) {
        task->engine.vruntime_ps += now_ps - task->engine.started_ps;
        task->engine.started_ps = now_ps;
    }
    if ((task == NULL && queue->count == 0) || queue->interrupt_count > 0)
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

/* The waiting task that goes on next, as a place in the heap: the least virtual
 * runtime, but for one that a woken task took the CPU from and that is due nearly as
 * soon. */
static uint32_t queue_next(const struct run_queue *queue)
{
    const struct sq_sched_rules *rules = &queue->sched->rules;
    uint64_t granularity_ps = (uint64_t)rules->sched_wakeup_granularity_us * US_PS;
    const sq_task *first = queue->heap[0];
    uint32_t i = 0;
    if (queue->buddy == NULL || first->priority > queue->buddy->priority ||
        queue->buddy->engine.vruntime_ps > first->engine.vruntime_ps + granularity_ps)
        return 0;
    while (queue->heap[i] != queue->buddy)
        i++;
    return i;
}

static uint64_t queue_slice_ps(const struct run_queue *queue)
{
    const struct sq_sched_rules *rules = &queue->sched->rules;
    uint64_t share_ps =
        (uint64_t)rules->sched_latency_us * US_PS / sq_max_u64(queue_load(queue), 1);
    return sq_max_u64(share_ps, (uint64_t)rules->sched_min_granularity_us * US_PS);
}

#endif
