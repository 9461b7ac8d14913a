/*
 * Sleeping locks on the simulated machine; see rt_mutex.h for what they promise. Part
 * of sched_sim.c.
 *
 * Everything is on one host thread, and a lock, its waiters and the priorities of tasks
 * change between two events only. The lock of the waiters is there for what it costs:
 * taken with interrupts off around each look at them, as in the kernel. What is not
 * charged is the walk along the owners that inherit a priority.
 */
#ifndef SQ_RT_MUTEX_SIM_H
#define SQ_RT_MUTEX_SIM_H

#include "machine/sched_place.h"

/* One wait of one task, on its stack. */
struct sim_waiter {
    struct sq_list link; /* sq_rt_mutex.waiters */
    sq_task *task;
    struct sq_rt_mutex *mutex;
    uint32_t priority;           /* the task's, where it stands in the list */
    bool is_woken;               /* since it last looked */
    bool is_asleep;              /* off its CPU until it is woken */
    struct sq_sim_cpu *spins_on; /* NULL: it does not */
};

static struct sim_waiter *mutex_top(const struct sq_rt_mutex *mutex)
{
    if (sq_list_is_empty(&mutex->waiters))
        return NULL;
    return SQ_LIST_ENTRY(mutex->waiters.next, struct sim_waiter, link);
}

static bool mutex_is_held(const struct sq_rt_mutex *mutex)
{
    return mutex->owner != NULL || mutex->outside != 0;
}

/* One instruction on the lock's word. */
static void mutex_touch(struct sq_sim_cpu *cpu, const struct sq_rt_mutex *mutex,
                        enum sim_access access)
{
    uint64_t offset = (uint64_t)((uintptr_t)mutex->line - (uintptr_t)cpu->region);
    sq_sim_access(cpu, offset, access, false);
    if (access == SIM_ATOMIC)
        sq_sim_charge(cpu, cpu->costs->atomic_ps);
}

/* ---- waiters by priority ---- */

/* Before the first of lower priority. Who spins as the first looks whether it still is.
 */
static void mutex_enqueue(struct sq_sim_cpu *cpu, struct sq_rt_mutex *mutex,
                          struct sim_waiter *waiter)
{
    struct sim_waiter *first = mutex_top(mutex);
    struct sq_list *place = mutex->waiters.next;
    while (place != &mutex->waiters &&
           SQ_LIST_ENTRY(place, struct sim_waiter, link)->priority >= waiter->priority)
        place = place->next;
    sq_list_link_tail(&waiter->link, place);
    if (first != NULL && mutex_top(mutex) == waiter && first->spins_on != NULL)
        sim_kick_spinner(first->spins_on, cpu->now_ps);
}

/* Lend `priority` to the owner, and to whom that one waits for in turn. */
static void mutex_boost(struct sq_sim_cpu *cpu, struct sq_rt_mutex *mutex,
                        uint32_t priority)
{
    while (mutex != NULL && mutex->owner != NULL && mutex->owner->priority < priority) {
        sq_task *owner = mutex->owner;
        struct sim_waiter *waiter = owner->engine.waiter;
        owner->priority = priority;
        if (owner->engine.is_queued) {
            queue_replace(queue_of(owner), owner);
            queue_notify(cpu, queue_of(owner), owner);
        }
        mutex = NULL;
        if (waiter != NULL) {
            mutex = waiter->mutex;
            sq_list_unlink(&waiter->link);
            waiter->priority = priority;
            mutex_enqueue(cpu, mutex, waiter);
        }
    }
}

/* What is left of what was lent: the task's own, or what waits for locks that it holds.
 */
static void mutex_deboost(sq_task *task)
{
    uint32_t priority = task->own_priority;
    for (struct sq_rt_mutex *mutex = task->engine.first_held; mutex != NULL;
         mutex = mutex->next_held)
        if (mutex_top(mutex) != NULL && mutex_top(mutex)->priority > priority)
            priority = mutex_top(mutex)->priority;
    task->priority = priority;
}

/* ---- taking and letting go ---- */

/* The books of a lock that the CPU's task, or its caller, now holds. */
static void mutex_note(sq_cpu *cpu, struct sq_rt_mutex *mutex)
{
    struct sq_task_context *context = &cpu->context;
    if (cpu->task == NULL) {
        mutex->outside = (uint16_t)(cpu->index + 1);
    } else {
        mutex->owner = cpu->task;
        mutex->next_held = cpu->task->engine.first_held;
        cpu->task->engine.first_held = mutex;
    }
    SQ_ASSERT(context->mutex_count < SQ_MUTEX_HELD_MAX);
    context->mutex_class[context->mutex_count++] = mutex->lock_class;
    context->migrate_depth++;
    cpu->mutex_count++;
    cpu->lock_stats[mutex->lock_class].acquisitions++;
}

static void mutex_forget(sq_cpu *cpu, struct sq_rt_mutex *mutex)
{
    struct sq_task_context *context = &cpu->context;
    SQ_ASSERT(sq_rt_mutex_is_held_by(cpu, mutex));
    if (cpu->task != NULL) {
        struct sq_rt_mutex **place = &cpu->task->engine.first_held;
        while (*place != mutex)
            place = &(*place)->next_held;
        *place = mutex->next_held;
    }
    SQ_ASSERT(context->mutex_count > 0 && /* let go in the order opposite to taking */
              context->mutex_class[context->mutex_count - 1] == mutex->lock_class);
    context->mutex_count--;
    context->migrate_depth--;
    cpu->mutex_count--;
    mutex->owner = NULL;
    mutex->outside = 0;
    mutex->free_ps = sq_sim_of(cpu)->now_ps;
}

/* May a task of this priority take a free lock? The first waiter may; others if they
 * come before it, and normal tasks from each other. */
static bool mutex_may_take(const struct sq_rt_mutex *mutex,
                           const struct sim_waiter *waiter, uint32_t priority)
{
    const struct sim_waiter *top = mutex_top(mutex);
    if (mutex_is_held(mutex))
        return false;
    return top == NULL || top == waiter || priority > top->priority ||
           (priority == 0 && top->priority == 0);
}

/* Take the lock if it can be had; the waiter (may be NULL) is none any more. */
static bool mutex_try_take(sq_cpu *cpu, struct sq_rt_mutex *mutex,
                           struct sim_waiter *waiter)
{
    struct sq_sim_cpu *sim = sq_sim_of(cpu);
    if (!mutex_may_take(mutex, waiter, cpu->task->priority))
        return false;
    if (waiter != NULL) {
        sq_list_unlink(&waiter->link);
        cpu->task->engine.waiter = NULL;
    }
    sim->now_ps = sq_max_u64(sim->now_ps, mutex->free_ps);
    mutex_touch(sim, mutex, SIM_ATOMIC);
    mutex_note(cpu, mutex);
    return true;
}

/* ---- waiting ---- */

/* As the first waiter, spin while `owner` runs. False: it must sleep, since the owner
 * has left its CPU, or another waiter or another task of this CPU comes first. */
static bool mutex_spin(struct sq_sim_cpu *cpu, const struct sq_rt_mutex *mutex,
                       struct sim_waiter *waiter, const sq_task *owner)
{
    while (mutex->owner == owner) {
        if (queue_of(owner)->current != owner || mutex_top(mutex) != waiter ||
            cpu->now_ps >= cpu->preempt_at_ps)
            return false;
        waiter->spins_on = cpu;
        cpu->is_spinning = true;
        if (cpu->preempt_at_ps >= SIM_NO_TIMER_PS)
            sim_block(cpu);
        else
            sim_sleep(cpu, cpu->preempt_at_ps);
        cpu->is_spinning = false;
        waiter->spins_on = NULL;
        sq_cpu_poll(&cpu->base);
    }
    mutex_touch(cpu, mutex, SIM_READ);
    return true;
}

/* Between two tries: without the waiters' lock, on the CPU or off it. Returns the CPU
 * that the task is then, which has the waiters' lock again. */
static sq_cpu *mutex_wait(sq_cpu *cpu, struct sq_rt_mutex *mutex,
                          struct sim_waiter *waiter)
{
    sq_task *task = waiter->task;
    const sq_task *owner = mutex_top(mutex) == waiter ? mutex->owner : NULL;
    waiter->is_woken = false;
    sq_lock_release(cpu, &mutex->wait_lock);
    sq_irq_restore(cpu);
    if ((owner == NULL || !mutex_spin(sq_sim_of(cpu), mutex, waiter, owner)) &&
        !waiter->is_woken) {
        waiter->is_asleep = true;
        task_leave_inside(task, SCHED_BLOCKS);
    }
    cpu = task->cpu;
    sq_irq_save(cpu);
    sq_lock_acquire(cpu, &mutex->wait_lock);
    return cpu;
}

static sq_cpu *mutex_acquire_slow(sq_cpu *cpu, struct sq_rt_mutex *mutex)
{
    sq_task *task = cpu->task;
    struct sim_waiter waiter = {
        .task = task, .mutex = mutex, .priority = task->priority};
    sq_irq_save(cpu);
    sq_lock_acquire(cpu, &mutex->wait_lock);
    if (!mutex_try_take(cpu, mutex, NULL)) {
        task->engine.waiter = &waiter;
        mutex_enqueue(sq_sim_of(cpu), mutex, &waiter);
        mutex_boost(sq_sim_of(cpu), mutex, waiter.priority);
        do
            cpu = mutex_wait(cpu, mutex, &waiter);
        while (!mutex_try_take(cpu, mutex, &waiter));
    }
    sq_lock_release(cpu, &mutex->wait_lock);
    sq_irq_restore(cpu);
    return cpu;
}

/* A caller that is no task waits as for a spin lock. */
static void mutex_acquire_outside(sq_cpu *cpu, struct sq_rt_mutex *mutex)
{
    struct sq_sim_cpu *sim = sq_sim_of(cpu);
    while (mutex_is_held(mutex)) {
        SQ_ASSERT(sim->sim->is_running); /* else nobody could let it go */
        sq_sim_charge(sim, sim->costs->core_transfer_ps);
        sq_sim_event(sim, SIM_EVENT_RELAX);
    }
    mutex_touch(sim, mutex, SIM_ATOMIC);
    mutex_note(cpu, mutex);
}

sq_cpu *sq_sim_rt_mutex_acquire(sq_cpu *cpu, struct sq_rt_mutex *mutex)
{
    struct sq_sim_cpu *sim = sq_sim_of(cpu);
    uint64_t start_ps;
    bool waits;
    SQ_ASSERT(cpu->irq_depth == 0 && cpu->held_count == 0 && cpu->preempt_depth == 0);
    for (uint32_t i = 0; i < cpu->context.mutex_count; i++)
        SQ_ASSERT(cpu->context.mutex_class[i] < mutex->lock_class);
    sq_sim_event(sim, SIM_EVENT_LOCK);
    start_ps = sim->now_ps;
    waits = mutex_is_held(mutex) || mutex->free_ps > sim->now_ps ||
            mutex_top(mutex) != NULL;
    if (waits)
        sq_scope_enter(cpu, LOCK_WAIT);
    if (cpu->task != NULL)
        mutex_touch(sim, mutex, SIM_ATOMIC);
    if (cpu->task == NULL)
        mutex_acquire_outside(cpu, mutex);
    else if (waits)
        cpu = mutex_acquire_slow(cpu, mutex);
    else
        mutex_note(cpu, mutex);
    sq_sim_charge(sq_sim_of(cpu), sq_sim_of(cpu)->costs->preempt_ps);
    if (waits) {
        struct sq_lock_stats *stats = &cpu->lock_stats[mutex->lock_class];
        sq_scope_leave(cpu, LOCK_WAIT);
        stats->contended++;
        stats->wait_ns += (sq_sim_of(cpu)->now_ps - start_ps) / 1000;
    }
    return cpu;
}

/* Call the first waiter. Returns the task if it has to be woken, else NULL. Requires
 * the waiters' lock: without it a waiter may be gone. */
static sq_task *mutex_call(struct sq_sim_cpu *cpu, const struct sq_rt_mutex *mutex)
{
    struct sim_waiter *top = mutex_top(mutex);
    if (top == NULL)
        return NULL;
    top->is_woken = true;
    if (top->spins_on != NULL)
        sim_kick_spinner(top->spins_on, cpu->now_ps);
    if (!top->is_asleep)
        return NULL;
    top->is_asleep = false;
    return top->task;
}

static void mutex_release_slow(sq_cpu *cpu, struct sq_rt_mutex *mutex)
{
    sq_task *called;
    sq_irq_save(cpu);
    sq_lock_acquire(cpu, &mutex->wait_lock);
    mutex_touch(sq_sim_of(cpu), mutex, SIM_WRITE);
    mutex_forget(cpu, mutex);
    if (cpu->task != NULL)
        mutex_deboost(cpu->task);
    called = mutex_call(sq_sim_of(cpu), mutex);
    cpu->preempt_depth++; /* so that who was called is called, whatever comes */
    sq_lock_release(cpu, &mutex->wait_lock);
    sq_irq_restore(cpu);
    if (called != NULL)
        wake_task(cpu, called, false);
    cpu->preempt_depth--;
}

void sq_sim_rt_mutex_release(sq_cpu *cpu, struct sq_rt_mutex *mutex)
{
    struct sq_sim_cpu *sim = sq_sim_of(cpu);
    sq_sim_event(sim, SIM_EVENT_RELEASE);
    if (mutex_top(mutex) != NULL) {
        mutex_release_slow(cpu, mutex);
    } else {
        mutex_touch(sim, mutex, SIM_ATOMIC);
        mutex_forget(cpu, mutex);
    }
    sq_cpu_poll(cpu);
    sq_sim_preempt_point(sim);
}

/* A task has left its CPU: who spins for a lock of its looks again. */
static void mutex_owner_leaves(struct sq_sim_cpu *cpu, const sq_task *task)
{
    for (struct sq_rt_mutex *mutex = task->engine.first_held; mutex != NULL;
         mutex = mutex->next_held) {
        const struct sim_waiter *top = mutex_top(mutex);
        if (top != NULL && top->spins_on != NULL)
            sim_kick_spinner(top->spins_on, cpu->now_ps);
    }
}

#endif
