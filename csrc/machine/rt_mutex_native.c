/*
 * Sleeping locks on host threads; see rt_mutex.h for what they promise.
 *
 * Who waits marks the lock as waited for under its `wait_lock`, and sleeps on the list
 * there; who lets a marked lock go looks at the list under the same lock. So a wake-up
 * is never lost. A woken task tries again like any other.
 *
 * A task here leaves its CPU only where it waits, so an owner nearly always runs:
 * whether it does is not asked, the spin is bounded instead. For the same reason no
 * priority needs to be lent; the list is by priority.
 */
#define SQ_MACHINE_NATIVE 1
#include "machine/sched.h"

#include <sched.h>

#define SPIN_COUNT 256u

/* Look for so long whether the lock is let go. */
static bool mutex_spin(sq_cpu *cpu, struct sq_rt_mutex *mutex)
{
    for (uint32_t i = 0; i < SPIN_COUNT; i++) {
        uint32_t expected = NATIVE_MUTEX_FREE;
        if (atomic_load_explicit(&mutex->state, memory_order_relaxed) == expected &&
            atomic_compare_exchange_strong_explicit(
                &mutex->state, &expected, NATIVE_MUTEX_HELD, memory_order_acquire,
                memory_order_relaxed))
            return true;
        sq_cpu_relax(cpu);
    }
    return false;
}

/* Put the task before the first waiter of lower priority. Requires the wait_lock. */
static void mutex_enqueue(struct sq_rt_mutex *mutex, sq_task *task)
{
    struct sq_list *place = mutex->waiters.next;
    while (place != &mutex->waiters &&
           SQ_LIST_ENTRY(place, sq_task, link)->own_priority >= task->own_priority)
        place = place->next;
    sq_list_link_tail(&task->link, place);
}

/* Off the CPU until the lock can be had, then its owner. Returns the CPU of the task.
 */
static sq_cpu *mutex_sleep(sq_task *task, struct sq_rt_mutex *mutex)
{
    for (;;) {
        sq_lock_acquire(task->cpu, &mutex->wait_lock);
        if (atomic_exchange_explicit(&mutex->state, NATIVE_MUTEX_WAITED,
                                     memory_order_acquire) == NATIVE_MUTEX_FREE) {
            sq_lock_release(task->cpu, &mutex->wait_lock);
            return task->cpu;
        }
        mutex_enqueue(mutex, task);
        sq_task_block(task, &mutex->wait_lock);
    }
}

/* The lock was not free. Returns the CPU that the caller is once it holds it. */
sq_cpu *sq_native_rt_mutex_wait(sq_cpu *cpu, struct sq_rt_mutex *mutex)
{
    sq_task *task = cpu->task;
    uint64_t start_ns = sq_native_now_ns();
    struct sq_lock_stats *stats;
    if (task == NULL) {
        while (!mutex_spin(cpu, mutex))
            (void)sched_yield(); /* the owner's thread may need the host's CPU */
    } else if (!mutex_spin(cpu, mutex)) {
        cpu = mutex_sleep(task, mutex);
    }
    stats = &cpu->lock_stats[mutex->lock_class];
    stats->contended++;
    stats->wait_ns += sq_native_now_ns() - start_ns;
    return cpu;
}

/* Wake the first of those that sleep, if any does. */
void sq_native_rt_mutex_wake(sq_cpu *cpu, struct sq_rt_mutex *mutex)
{
    struct sq_wait_queue first;
    sq_wait_queue_init(&first);
    sq_lock_acquire(cpu, &mutex->wait_lock);
    if (!sq_list_is_empty(&mutex->waiters))
        sq_list_move_tail(mutex->waiters.next, &first.tasks);
    (void)sq_wait_wake(cpu, &first, 1);
    sq_lock_release(cpu, &mutex->wait_lock);
}
