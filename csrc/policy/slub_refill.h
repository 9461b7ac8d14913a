/*
 * Allocation when the CPU's free list is empty (___slab_alloc): what was freed to the
 * CPU's slab meanwhile, a slab of its partial list, one of the nodes' lists, new pages.
 */
#ifndef SLUB_REFILL_H
#define SLUB_REFILL_H

#include "policy/slub_partial.h"

/* A debug cache since 6.1: the new slab keeps all objects but the first and goes to the
 * head of the list at once. */
static void slub_new_keep_rest(sq_cpu *cpu, struct slub_cache *cache,
                               struct sq_page *page, void *first)
{
    struct slub_node *node = slub_node_of(cache, page);
    struct slub_word old = slub_load(cpu, page), word = old;
    word.head = slub_head_of(cpu, cache, page, slub_next(cpu, cache, first));
    word.inuse = 1;
    word.is_frozen = false;
    (void)slub_update(cpu, cache, page, &old, &word);
    (void)slub_list_lock(cpu, node);
    if (word.inuse == word.objects)
        slub_full_add(cache, node, page);
    else
        slub_partial_add(cpu, node, page, true);
    slub_list_unlock(cpu, node);
}

/* A slab for the CPU from the lists or from new pages, with its free objects in
 * `first`. NULL if there is no memory. */
static struct sq_page *slub_obtain_from(sq_cpu *cpu, struct slub_cache *cache,
                                        int32_t node, uint32_t flags, void **first)
{
    struct sq_page *page = slub_partial_get(cpu, cache, node, flags, first);
    if (page == NULL) {
        page = slub_slab_new(cpu, cache, node, flags, first);
        if (page == NULL)
            return NULL;
        sq_count(cpu, &cache->base, SLUB_ALLOC_SLAB);
        if (slub_takes_single(cache)) {
            slub_new_keep_rest(cpu, cache, page, *first);
            (void)slub_debug_alloc(cpu, cache, page, *first); /* it is as it was made */
        }
        return page;
    }
    if (*first == NULL) {
        *first = slub_take_all(cpu, cache, page, true);
        slub_slab_unlock(cpu, cache, page);
    }
    return page;
}

/* Since 6.18 a node that was named is asked for new pages too before other nodes are
 * asked for anything. */
static struct sq_page *slub_obtain(sq_cpu *cpu, struct slub_cache *cache, int32_t node,
                                   uint32_t flags, void **first)
{
    struct sq_page *page = NULL;
    if (node != SQ_NODE_ANY && (flags & SQ_ALLOC_THISNODE) == 0 &&
        SLUB_OPTION(cache, explicit_node_new_first) != 0)
        page = slub_obtain_from(cpu, cache, node,
                                flags | SQ_ALLOC_THISNODE | SQ_ALLOC_NOWAIT, first);
    if (page == NULL)
        page = slub_obtain_from(cpu, cache, node, flags, first);
    return page;
}

/* The CPU's slab is used up: what was freed to it meanwhile becomes the CPU's free
 * list; without any the slab is let go, full. */
static void *slub_cpu_refill(sq_cpu *cpu, struct slub_cache *cache,
                             struct slub_cpu *local)
{
    struct sq_page *page = local->slab;
    bool was_slab_lock = slub_uses_slab_lock(cache);
    void *first;
    slub_slab_lock(cpu, cache, page);
    first = slub_take_all(cpu, cache, page, false);
    slub_slab_unlock(cpu, cache, page);
    if (was_slab_lock || first != NULL)
        sq_count(cpu, &cache->base, SLUB_ALLOC_REFILL);
    if (first != NULL)
        return first;
    local->slab = NULL;
    slub_cpu_set_free(cache, local, NULL);
    sq_count(cpu, &cache->base,
             was_slab_lock ? SLUB_DEACTIVATE_FULL : SLUB_DEACTIVATE_BYPASS);
    return NULL;
}

static inline bool slub_node_matches(const struct sq_page *page, int32_t node)
{
    return node == SQ_NODE_ANY || page->node == (uint32_t)node;
}

/* Objects from the CPU's slab; NULL, and no slab any more, if it has none or is on
 * another node than the one asked for. */
static void *slub_cpu_slab_take(sq_cpu *cpu, struct slub_cache *cache,
                                struct slub_cpu *local, int32_t node)
{
    if (!slub_node_matches(local->slab, node)) {
        if (!slub_uses_slab_lock(cache)) /* counted since 3.1 */
            sq_count(cpu, &cache->base, SLUB_ALLOC_NODE_MISMATCH);
        slub_cpu_deactivate(cpu, cache, local);
        return NULL;
    }
    if (local->free.first != NULL)
        return local->free.first;
    return slub_cpu_refill(cpu, cache, local);
}

/* Make the first slab of the CPU's partial list its slab. While those are frozen it is
 * looked at like any CPU slab afterwards; since 6.8 its objects are taken here, and a
 * slab of another node goes to that node's list. */
static void *slub_cpu_partial_take(sq_cpu *cpu, struct slub_cache *cache,
                                   struct slub_cpu *local, int32_t node)
{
    struct sq_page *page = local->partial;
    bool was_frozen = SLUB_OPTION(cache, cpu_partial_frozen) != 0;
    local->partial = slub_chain_of(page)->next;
    if (!was_frozen && !slub_node_matches(page, node)) {
        slub_chain_of(page)->next = NULL;
        (void)slub_partials_put(cpu, cache, page);
        return NULL;
    }
    local->slab = page;
    sq_count(cpu, &cache->base, SLUB_CPU_PARTIAL_ALLOC);
    return was_frozen ? NULL : slub_take_all(cpu, cache, page, false);
}

/* A debug cache to 6.0: of the slab's objects the first is handed out, the others go
 * back at once. False: the slab is corrupted and is left to itself, all used. */
static bool slub_debug_split(sq_cpu *cpu, struct slub_cache *cache,
                             struct sq_page *page, void *first)
{
    if (slub_debug_alloc(cpu, cache, page, first)) {
        slub_debug_sound_chain(cpu, cache, page, first);
        slub_deactivate(cpu, cache, page, slub_next(cpu, cache, first));
        return true;
    }
    slub_deactivate(cpu, cache, page, NULL);
    return false;
}

/* A debug cache hands out one object of each slab, and no CPU owns one. */
static void *slub_obtain_single(sq_cpu *cpu, struct slub_cache *cache, int32_t node,
                                uint32_t flags)
{
    struct sq_page *page;
    void *first;
    do {
        first = NULL;
        page = slub_obtain(cpu, cache, node, flags, &first);
    } while (page != NULL && !slub_takes_single(cache) &&
             !slub_debug_split(cpu, cache, page, first));
    return page != NULL ? first : NULL;
}

/* Give the CPU a new slab. A request of another CPU, or an interrupt, may have given it
 * one while pages were looked for; that one is flushed. */
static void *slub_cpu_slab_replace(sq_cpu *cpu, struct slub_cache *cache,
                                   struct slub_cpu *local, int32_t node, uint32_t flags)
{
    void *first = NULL;
    struct sq_page *page;
    if (cache->base.is_debug)
        return slub_obtain_single(cpu, cache, node, flags);
    page = slub_obtain(cpu, cache, node, flags, &first);
    if (page == NULL)
        return NULL;
    if (local->slab != NULL) {
        sq_count(cpu, &cache->base, SLUB_CPUSLAB_FLUSH);
        slub_cpu_deactivate(cpu, cache, local);
    }
    local->slab = page;
    return first;
}

/* ___slab_alloc. Requires irqs off. */
static void *slub_alloc_slow(sq_cpu *cpu, struct slub_cache *cache, int32_t node,
                             uint32_t flags)
{
    SQ_IN_SCOPE(cpu, SLUB_ALLOC_SLOW);
    struct slub_cpu *local = slub_cpu_of(cpu, cache);
    bool counts_success = slub_uses_slab_lock(cache);
    void *object = NULL;
    if (!counts_success)
        sq_count(cpu, &cache->base, SLUB_ALLOC_SLOWPATH);
    while (object == NULL) {
        if (local->slab != NULL) {
            object = slub_cpu_slab_take(cpu, cache, local, node);
        } else if (local->partial != NULL) {
            object = slub_cpu_partial_take(cpu, cache, local, node);
        } else {
            object = slub_cpu_slab_replace(cpu, cache, local, node, flags);
            if (object == NULL)
                return NULL;
        }
    }
    if (!cache->base.is_debug)
        slub_cpu_set_free(cache, local, slub_next(cpu, cache, object));
    if (counts_success)
        sq_count(cpu, &cache->base, SLUB_ALLOC_SLOWPATH);
    return object;
}

#endif
