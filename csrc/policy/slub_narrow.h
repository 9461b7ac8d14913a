/*
 * Slow paths that have interrupts on (irq_scope 1: 5.15, and RT's 5.14): the CPU's part
 * is guarded for a few stores at a time, list_lock and the page allocator are entered
 * without that guard. So anything may have changed when the guard is taken again.
 *
 *   guard: the CPU's free list, what was freed to its slab, its partial list
 * --object--> done | a slab of another node was taken away: it goes back without the
 * guard | nothing is there: a slab of the nodes' lists, or new pages, without the guard
 *   guard: the CPU's slab, if it still has none; else that one goes back first
 */
#ifndef SLUB_NARROW_H
#define SLUB_NARROW_H

#include "policy/slub_refill.h"

/* One look at what the CPU has. Its slab goes to `detached` if it is of another node
 * than the one asked for. */
static void *slub_narrow_take(sq_cpu *cpu, struct slub_cache *cache, int32_t node,
                              struct slub_detached *detached)
{
    struct slub_cpu *local;
    void *object = NULL;
    slub_cpu_lock(cpu, cache);
    local = slub_cpu_of(cpu, cache);
    if (local->slab != NULL && !slub_node_matches(local->slab, node)) {
        sq_count(cpu, &cache->base, SLUB_ALLOC_NODE_MISMATCH);
        *detached = slub_cpu_detach(cache, local);
    } else if (local->slab != NULL) {
        object = local->free.first;
        if (object == NULL)
            object = slub_cpu_refill(cpu, cache, local);
    } else if (local->partial != NULL) {
        object = slub_cpu_partial_take(cpu, cache, local, node);
    }
    if (object != NULL)
        slub_cpu_set_free(cache, local, slub_next(cpu, cache, object));
    slub_cpu_unlock(cpu, cache);
    return object;
}

/* Give the CPU a new slab and return its first object. One that the CPU got meanwhile
 * goes back before. */
static void *slub_narrow_replace(sq_cpu *cpu, struct slub_cache *cache, int32_t node,
                                 uint32_t flags)
{
    struct slub_cpu *local = slub_cpu_of(cpu, cache);
    void *first = NULL;
    struct sq_page *page = slub_obtain(cpu, cache, node, flags, &first);
    if (page == NULL)
        return NULL;
    slub_cpu_lock(cpu, cache);
    while (local->slab != NULL) {
        struct slub_detached detached = slub_cpu_detach(cache, local);
        slub_cpu_unlock(cpu, cache);
        sq_count(cpu, &cache->base, SLUB_CPUSLAB_FLUSH);
        slub_deactivate(cpu, cache, detached.slab, detached.first);
        slub_cpu_lock(cpu, cache);
    }
    local->slab = page;
    slub_cpu_set_free(cache, local, slub_next(cpu, cache, first));
    slub_cpu_unlock(cpu, cache);
    return first;
}

/* ___slab_alloc. The task stays on its CPU from here to the end. */
static void *slub_alloc_narrow(sq_cpu *cpu, struct slub_cache *cache, int32_t node,
                               uint32_t flags)
{
    SQ_IN_SCOPE(cpu, SLUB_ALLOC_SLOW);
    const struct slub_cpu *local = slub_cpu_of(cpu, cache);
    void *object;
    sq_migrate_disable(cpu);
    sq_count(cpu, &cache->base, SLUB_ALLOC_SLOWPATH);
    for (;;) {
        struct slub_detached detached = {NULL, NULL};
        object = slub_narrow_take(cpu, cache, node, &detached);
        if (object != NULL)
            break;
        if (detached.slab != NULL) {
            slub_deactivate(cpu, cache, detached.slab, detached.first);
        } else if (local->slab == NULL && local->partial == NULL) {
            object = cache->base.is_debug
                         ? slub_obtain_single(cpu, cache, node, flags)
                         : slub_narrow_replace(cpu, cache, node, flags);
            break;
        }
    }
    sq_migrate_enable(cpu);
    return object;
}

/* PREEMPT_RT: put the chain from `head` to `tail` before the CPU's free list, by hand
 * under the local lock. False: the slab is not the CPU's. */
static bool slub_free_to_cpu(sq_cpu *cpu, struct slub_cache *cache,
                             const struct sq_page *page, void *head, void *tail)
{
    struct slub_cpu *local = slub_cpu_of(cpu, cache);
    bool is_own;
    sq_touch_read(cpu, page, sizeof(*page));
    if (local->slab != page)
        return false;
    slub_cpu_lock(cpu, cache);
    is_own = local->slab == page;
    if (is_own) {
        slub_set_next(cpu, cache, tail, local->free.first);
        slub_cpu_set_free(cache, local, head);
    }
    slub_cpu_unlock(cpu, cache);
    return is_own;
}

#endif
