/*
 * The locks of a cache by kernel: what guards a node's lists and what guards a CPU's
 * part.
 *
 *   irq_scope 0    slow paths have interrupts off from end to end (to 5.14): list_lock
 * is a spin lock, the CPU's part needs no more irq_scope 1    interrupts are on but
 * where they must not be (5.15 on): list_lock    a spin lock taken with interrupts off;
 * with PREEMPT_RT (list_lock_raw 0) a sleeping lock, interrupts stay on CPU's part
 * interrupts off; with PREEMPT_RT (fast_path 2) a local lock
 *
 * Sleeping locks, outermost first: list_lock, local lock. A task that waits for
 * list_lock may go on as another CPU: functions that take it outside a section without
 * migration return the CPU, and their callers go on with that.
 */
#ifndef SLUB_LOCK_H
#define SLUB_LOCK_H

#include "policy/slub_slab.h"

/* ---- whole slow paths ---- */

/* Releases whose slow paths have interrupts off from end to end turn them off here. */
static inline void slub_slow_begin(sq_cpu *cpu, const struct slub_cache *cache)
{
    if (!cache->is_narrow)
        sq_irq_save(cpu);
}

static inline void slub_slow_end(sq_cpu *cpu, const struct slub_cache *cache)
{
    if (!cache->is_narrow)
        sq_irq_restore(cpu);
}

/* ---- list_lock ---- */

static inline sq_cpu *slub_list_lock(sq_cpu *cpu, struct slub_node *node)
{
    switch (node->list_lock_kind) {
    case SLUB_LIST_SLEEPS:
        return sq_rt_mutex_acquire(cpu, &node->list_mutex);
    case SLUB_LIST_IRQ:
        sq_irq_save(cpu);
        break;
    default:
        break;
    }
    sq_lock_acquire(cpu, &node->list_lock);
    return cpu;
}

static inline void slub_list_unlock(sq_cpu *cpu, struct slub_node *node)
{
    if (node->list_lock_kind == SLUB_LIST_SLEEPS) {
        sq_rt_mutex_release(cpu, &node->list_mutex);
        return;
    }
    sq_lock_release(cpu, &node->list_lock);
    if (node->list_lock_kind == SLUB_LIST_IRQ)
        sq_irq_restore(cpu);
}

static inline void slub_list_assert_locked(sq_cpu *cpu, struct slub_node *node)
{
    if (node->list_lock_kind == SLUB_LIST_SLEEPS)
        sq_rt_mutex_assert_held(cpu, &node->list_mutex);
    else
        sq_lock_assert_held(cpu, &node->list_lock);
}

/* ---- the CPU's part; nothing where the whole path has interrupts off ---- */

static inline void slub_cpu_lock(sq_cpu *cpu, const struct slub_cache *cache)
{
    if (!cache->is_narrow)
        return;
    if (cache->fast_path == SLUB_FAST_LOCAL_LOCK)
        sq_local_lock_acquire(cpu, &slub_cpu_of(cpu, cache)->lock);
    else
        sq_irq_save(cpu);
}

static inline void slub_cpu_unlock(sq_cpu *cpu, const struct slub_cache *cache)
{
    if (!cache->is_narrow)
        return;
    if (cache->fast_path == SLUB_FAST_LOCAL_LOCK)
        sq_local_lock_release(cpu, &slub_cpu_of(cpu, cache)->lock);
    else
        sq_irq_restore(cpu);
}

#endif
