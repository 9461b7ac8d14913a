/*
 * Which CPU a task runs on: where a woken one is put, and which ones a CPU with less to
 * do pulls. Part of sched_sim.c.
 */
#ifndef SQ_SCHED_PLACE_H
#define SQ_SCHED_PLACE_H

#include "machine/sched_queue.h"

/* ---- waking ---- */

/* Is nothing there to run, and nothing on its way? What interrupts do is no task, so
 * the CPU may be idle below them. */
static bool queue_is_idle(const struct run_queue *queue)
{
    if (queue->count > queue->interrupt_count &&
        queue->sched->rules.sched_idle_if_queued == 0)
        return false;
    if (queue->current != NULL)
        return task_is_interrupt(queue->current) && !queue_runs_softirqd(queue);
    return queue->is_idle;
}

#include "machine/sched_place_pelt.h"

/* A task of higher priority than the running one waits. Where everything can be
 * preempted that is at once, else at the next call that may block. */
static void queue_notify_priority(struct sq_sim_cpu *waker, struct run_queue *queue)
{
    if (!queue->sched->is_preemptible && queue->interrupt_count == 0) {
        queue->cpu->slice_end_ps = 0;
        return;
    }
    if (queue->cpu != waker)
        sq_sim_charge(waker, waker->costs->ipi_ps);
    queue->cpu->preempt_at_ps = 0;
    sim_kick_spinner(queue->cpu, waker->now_ps);
}

/* The CPU has work: an idle one is called, a running one that is far enough ahead is
 * told to give way. */
static void queue_notify(struct sq_sim_cpu *waker, struct run_queue *queue,
                         const sq_task *task)
{
    const struct sq_sched_rules *rules = &queue->sched->rules;
    uint64_t granularity_ps = (uint64_t)rules->sched_wakeup_granularity_us * US_PS;
    if (queue->cpu->is_idle && rules->sched_idle_poll != 0) {
        sim_unblock(queue->cpu, waker->now_ps);
        return;
    }
    if (queue->cpu->is_idle) {
        sq_sim_charge(waker, waker->costs->ipi_ps);
        sim_unblock(queue->cpu, waker->now_ps + (uint64_t)waker->costs->idle_exit_ps);
        return;
    }
    if (queue->current == NULL || task->priority < queue->current->priority)
        return;
    if (task->priority > queue->current->priority)
        queue_notify_priority(waker, queue);
    else if (queue->current->engine.vruntime_ps >
             task->engine.vruntime_ps + granularity_ps)
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
    if (is_woken && queue_of(task) != queue) {
        task_rebase(task, queue_of(task), queue);
        load_move(queue_of(task), queue, task, waker->now_ps);
        queue->migration_count++;
    }
    if (is_woken)
        task_place_woken(queue, task);
    if (is_woken && task_is_interrupt(task))
        queue->interrupt_since_ps = waker->now_ps;
    task->cpu = &queue->cpu->base;
    load_begin(queue, task, waker->now_ps);
    queue_add(queue, task);
    queue_notify(waker, queue, task);
    sq_lock_release(cpu, &queue->lines->lock);
}

/* Would the waker's CPU be no more loaded with the task than the one it ran on? */
static bool wake_is_affine(const struct run_queue *waker, const struct run_queue *last,
                           bool sync)
{
    uint32_t here = queue_load(waker) + 1;
    uint32_t there = queue_load(last);
    if (sync && waker->current != NULL)
        here--;
    if (here <= 1 && waker->sched->rules.sched_wake_low_load != 0)
        return true;
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

/* Where a woken task goes. `sync`: its waker is about to sleep. */
static struct run_queue *wake_place(sq_cpu *waker, sq_task *task, bool sync)
{
    struct sim_sched *sched = sched_of(task);
    struct run_queue *last = queue_of(task), *target = last, *idle = NULL;
    struct run_queue *here = &sched->queues[waker->index];
    if (!task_is_movable(task) || sched->is_finished)
        return last;
    if (sched->rules.sched_load_average != 0)
        return wake_place_by_load(waker, task, sync);
    if (sched->rules.sched_wake_affine != 0 && here != last &&
        wake_is_affine(here, last, sync))
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

/* Make a task that sleeps runnable. */
static void wake_task(sq_cpu *cpu, sq_task *task, bool sync)
{
    sq_scope_enter(cpu, WAKE);
    sq_sim_charge(sq_sim_of(cpu), sq_sim_of(cpu)->costs->wakeup_ps);
    sq_sim_event(sq_sim_of(cpu), SIM_EVENT_WAKE);
    queue_enqueue(cpu, wake_place(cpu, task, sync), task, true);
    sq_scope_leave(cpu, WAKE);
}

uint32_t sq_wait_wake(sq_cpu *cpu, struct sq_wait_queue *queue, uint32_t limit_count)
{
    uint32_t count = 0;
    while (count < limit_count && !sq_list_is_empty(&queue->tasks)) {
        sq_task *task = SQ_LIST_ENTRY(queue->tasks.next, sq_task, link);
        sq_list_unlink(&task->link);
        wake_task(cpu, task, sched_of(task)->rules.sched_sync_wakeups != 0);
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
        if (i > from->count || !task_is_movable(from->heap[i - 1]) ||
            task_is_hot(sched, from->heap[i - 1], to->cpu->now_ps))
            continue;
        task = queue_take(from, i - 1);
        task_rebase(task, from, to);
        load_move(from, to, task, to->cpu->now_ps);
        task->cpu = cpu;
        queue_add(to, task);
        to->migration_count++;
        moved++;
    }
    sq_lock_release(cpu, &from->lines->lock);
    return moved;
}

/* A preemptible kernel moves one task to a CPU that ran dry, to be done soon. */
static uint32_t balance_new_idle_limit(const struct run_queue *from)
{
    if (from->sched->is_preemptible)
        return 1;
    return (uint32_t)sq_min_u64((from->count + 1) / 2, PULL_MAX);
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
            (void)balance_pull(queue, from, balance_new_idle_limit(from));
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
            (uint32_t)sq_min_u64((queue_load(from) - own + 1) / 2,
                                 sched->is_preemptible ? PULL_MAX_RT : PULL_MAX));
    }
}

#endif
