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
             task->engine.vruntime_ps + granularity_ps) {
        queue->cpu->slice_end_ps = 0;
        queue->is_overtaken = true;
    }
}

/* Put a runnable task on a queue. `cpu` does it. */
static void queue_enqueue(sq_cpu *cpu, struct run_queue *queue, sq_task *task,
                          bool is_woken)
{
    struct sq_sim_cpu *waker = sq_sim_of(cpu);
    sq_lock_acquire(cpu, &queue->lines->lock);
    sq_touch_write(cpu, &queue->lines->load, sizeof(uint64_t));
    queue_update(queue, waker->now_ps);
    queue_note_load(queue, waker->now_ps);
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

/* What the load of a CPU is taken for: the larger (or the smaller) of now and the last
 * tick, where the kernel keeps a history. */
static uint32_t wake_load(const struct run_queue *queue, uint64_t now_ps, bool larger)
{
    uint32_t load = queue_load(queue);
    uint32_t before = queue->tick_load;
    if (queue->sched->rules.sched_wake_history == 0 || queue_has_ticked(queue, now_ps))
        return load;
    return (before > load) == larger ? before : load;
}

/* Has the task run so lately that its lines are still where it was? */
static bool task_is_hot(const struct sim_sched *sched, const sq_task *task,
                        uint64_t now_ps)
{
    uint64_t cost_ps = (uint64_t)sched->rules.sched_migration_cost_us * US_PS;
    return now_ps < task->engine.ran_until_ps + cost_ps;
}

/* Is a woken task drawn to its waker's CPU? Half of the imbalance that is put up with
 * between CPUs counts. */
static bool wake_is_affine(const struct run_queue *waker, const sq_task *task,
                           bool sync)
{
    const struct sq_sched_rules *rules = &waker->sched->rules;
    uint64_t now_ps = waker->cpu->now_ps;
    int64_t here = wake_load(waker, now_ps, true);
    int64_t there = wake_load(queue_of(task), now_ps, false);
    if (sync && rules->sched_wake_cold != 0 && !task_is_hot(waker->sched, task, now_ps))
        return true;
    /* An interrupt wakes in the name of the task below, be it the idle one, which is no
     * load: then there is less than none, and the task is drawn. */
    if (sync && waker->current != NULL)
        here--;
    if (here == 0 && rules->sched_wake_low_load != 0)
        return true;
    return 100 * (here + 1) <= (100 + ((int64_t)IMBALANCE_PERCENT - 100) / 2) * there;
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
        wake_is_affine(here, task, sync))
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
        const struct sq_sched_rules *rules = &sched_of(task)->rules;
        sq_list_unlink(&task->link);
        wake_task(cpu, task,
                  rules->sched_sync_wakeups != 0 &&
                      (!queue->is_for_data || rules->sched_sync_readable != 0));
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

/* Move up to `limit` waiting tasks, hot ones only if it is forced. Returns how many. */
static uint32_t balance_pull(struct run_queue *to, struct run_queue *from,
                             uint32_t limit, bool is_forced)
{
    struct sim_sched *sched = to->sched;
    sq_cpu *cpu = &to->cpu->base;
    uint32_t moved = 0;
    sq_lock_acquire(cpu, &from->lines->lock);
    sq_touch_write(cpu, &from->lines->load, sizeof(uint64_t));
    queue_note_load(from, to->cpu->now_ps);
    queue_note_load(to, to->cpu->now_ps);
    for (uint32_t i = from->count; i > 0 && moved < limit; i--) {
        sq_task *task;
        if (i > from->count || !task_is_movable(from->heap[i - 1]) ||
            (!is_forced && task_is_hot(sched, from->heap[i - 1], to->cpu->now_ps)))
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

/* How many tasks may move at once. A preemptible kernel moves one to a CPU that ran dry,
 * to be done soon. */
static uint32_t balance_limit(const struct sim_sched *sched, bool is_new_idle)
{
    if (!sched->is_preemptible)
        return PULL_MAX;
    return is_new_idle ? 1 : PULL_MAX_RT;
}

/* Look for a longer queue, of the same cache (level 0) or anywhere (level 1), and move
 * up to half of what it has more. A CPU that found one several times in a row and
 * nothing to move but hot tasks takes those. Returns how many came. */
static uint32_t balance_level(struct run_queue *to, uint32_t level, bool is_new_idle)
{
    const struct sq_sched_rules *rules = &to->sched->rules;
    struct run_queue *from = balance_find(to->sched, to, level == 0);
    uint32_t *failed_count = &to->balance_failed_count[level];
    uint32_t own = queue_load(to), limit, moved;
    if (from == NULL ||
        100 * queue_load(from) <= IMBALANCE_PERCENT * sq_max_u64(own, 1)) {
        *failed_count = 0;
        return 0;
    }
    limit = (uint32_t)sq_min_u64((queue_load(from) - own + 1) / 2,
                                 balance_limit(to->sched, is_new_idle));
    moved = balance_pull(to, from, limit,
                         rules->sched_force_after != 0 &&
                             *failed_count >= (uint64_t)rules->sched_force_after);
    if (moved > 0)
        *failed_count = 0;
    else if (!is_new_idle || rules->sched_newidle_fails != 0)
        ++*failed_count;
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
    for (uint32_t level = 0; level < 2 && queue->count == 0; level++)
        (void)balance_level(queue, level, true);
}

/* Now and then, level out with a queue that is clearly longer. */
static void balance_periodic(struct run_queue *queue, uint64_t interval_ps)
{
    if (queue->cpu->now_ps < queue->balance_at_ps)
        return;
    queue->balance_at_ps = queue->cpu->now_ps + interval_ps;
    for (uint32_t level = 0; level < 2; level++)
        (void)balance_level(queue, level, false);
}

#endif
