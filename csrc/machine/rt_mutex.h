/*
 * Sleeping locks: the kernel's rt_mutex as PREEMPT_RT makes spin locks of it. Included
 * by machine.h only.
 *
 *   free      one locked instruction to take it, one to let it go
 *   held      the first of those that wait spins while the owner runs on a CPU; all
 * others, and the first when the owner is off its CPU or it has to make room itself,
 *             leave their CPU to other tasks (adaptive spinning)
 *   let go    the first waiter is called, the one of the highest priority, of equals
 * who came first; until it is there a task of higher priority may take the lock, and of
 * normal tasks any (the kernel's lateral steal)
 *
 * An owner runs at the priority of its first waiter if that is higher (priority
 * inheritance, along chains of owners that wait themselves). It stays on its CPU and
 * may be preempted there; who holds such a lock may wait for another of a higher class.
 *
 * Requires interrupts and preemption on, and no spin lock held: where that does not
 * hold nothing may sleep. A task that waits may go on as another CPU, unless its
 * migration is disabled; the CPU it is then is what acquire returns.
 *
 * A caller that is no task, like an allocator driven by hand, cannot sleep: for it the
 * lock is a plain spin lock.
 *
 * Requests of other CPUs stand for work that is queued there: they are not taken while
 * a task of the CPU holds such a lock.
 */
#ifndef SQ_RT_MUTEX_H
#define SQ_RT_MUTEX_H

/* A lock of a CPU's own data, held by a task that stays there: with PREEMPT_RT what
 * turning interrupts off is without. */
static inline void sq_local_lock_acquire(sq_cpu *cpu, struct sq_rt_mutex *mutex)
{
    sq_migrate_disable(cpu);
    (void)sq_rt_mutex_acquire(cpu, mutex);
}

static inline void sq_local_lock_release(sq_cpu *cpu, struct sq_rt_mutex *mutex)
{
    sq_rt_mutex_release(cpu, mutex);
    sq_migrate_enable(cpu);
}

#endif
