/*
 * The CPU part of SLUB: its free list, its list of partial slabs, and deactivation, by
 * which a slab goes from the CPU that owned it back to its node.
 *
 *   deactivate   free list -> slab, slab -> node list: head or tail by what it holds
 *   drain        partial list -> node lists, at the tail, lock by lock
 */
#ifndef SLUB_CPU_H
#define SLUB_CPU_H

#include "policy/slub_node.h"

/* ---- the CPU's own part ---- */

/* Replace the CPU's free list; its next transaction has another id. */
static inline void slub_cpu_set_free(const struct slub_cache *cache,
                                     struct slub_cpu *local, void *first)
{
    local->free.first = first;
    local->free.second += cache->tid_step;
}

/* Put a chain of slabs, all of them partial, on their nodes' lists, at the tail. Slabs
 * that are empty where there are enough of them are given back. Returns the CPU. */
static sq_cpu *slub_partials_put(sq_cpu *cpu, struct slub_cache *cache,
                                 struct sq_page *first)
{
    SQ_IN_SCOPE(cpu, SLUB_UNFREEZE);
    struct slub_node *node = NULL;
    struct sq_page *surplus = NULL, *page;
    while ((page = first) != NULL) {
        struct slub_word old, word;
        first = slub_chain_of(page)->next;
        if (node != slub_node_of(cache, page)) {
            if (node != NULL)
                slub_list_unlock(cpu, node);
            node = slub_node_of(cache, page);
            cpu = slub_list_lock(cpu, node);
        }
        do {
            old = word = slub_load(cpu, page);
            word.is_frozen = false;
        } while (old.is_frozen && !slub_update(cpu, cache, page, &old, &word));
        if (word.inuse == 0 && slub_has_surplus(cpu, cache, node)) {
            slub_chain_of(page)->next = surplus;
            surplus = page;
        } else {
            slub_partial_add(cpu, node, page, false);
            sq_count(cpu, &cache->base, SLUB_FREE_ADD_PARTIAL);
        }
    }
    if (node != NULL)
        slub_list_unlock(cpu, node);
    while ((page = surplus) != NULL) {
        surplus = slub_chain_of(page)->next;
        sq_count(cpu, &cache->base, SLUB_DEACTIVATE_EMPTY);
        sq_count(cpu, &cache->base, SLUB_FREE_SLAB);
        slub_slab_discard(cpu, cache, page);
    }
    return cpu;
}

/* Does the list that begins with `first` hold as much as it may? */
static bool slub_cpu_partial_is_full(const struct slub_cache *cache,
                                     const struct sq_page *first)
{
    const struct slub_chain *chain = slub_chain_of(first);
    if (SLUB_OPTION(cache, cpu_partial_unit) == SLUB_CPU_PARTIAL_OBJECTS)
        return chain->object_count > slub_tunable(&cache->cpu_partial);
    return chain->slab_count >= slub_tunable(&cache->cpu_partial_slabs);
}

/* put_cpu_partial: the slab becomes the first of this CPU's partial list. With `drain`
 * a full list goes to its nodes before; without, list_lock is held and it may overflow.
 * Returns the CPU.
 */
static sq_cpu *slub_cpu_partial_put(sq_cpu *cpu, struct slub_cache *cache,
                                    struct sq_page *page, bool drain)
{
    struct slub_chain *chain = slub_chain_of(page);
    struct slub_word word = slub_load(cpu, page);
    struct sq_page *drained = NULL;
    struct slub_cpu *local;
    slub_cpu_lock(cpu, cache);
    local = slub_cpu_of(cpu, cache);
    if (drain && local->partial != NULL &&
        slub_cpu_partial_is_full(cache, local->partial)) {
        drained = local->partial;
        local->partial = NULL;
    }
    *chain = (struct slub_chain){local->partial, 1, word.objects - word.inuse};
    if (local->partial != NULL) {
        chain->slab_count += slub_chain_of(local->partial)->slab_count;
        chain->object_count += slub_chain_of(local->partial)->object_count;
    }
    local->partial = page;
    slub_cpu_unlock(cpu, cache);
    if (drained != NULL) {
        cpu = slub_partials_put(cpu, cache, drained);
        if (SLUB_OPTION(cache, count_cpu_partial_moves) != 0)
            sq_count(cpu, &cache->base, SLUB_CPU_PARTIAL_DRAIN);
    }
    if (drain && SLUB_OPTION(cache, cpu_partial_zero_drain) != 0 &&
        slub_tunable(&cache->cpu_partial) == 0) {
        drained = local->partial;
        local->partial = NULL;
        cpu = slub_partials_put(cpu, cache, drained);
    }
    return cpu;
}

/* ---- deactivation: a CPU gives up its slab ---- */

/* Before 5.15: put all objects but the last back one by one, which turns their order
 * round; returns the last. */
static void *slub_give_back_singly(sq_cpu *cpu, struct slub_cache *cache,
                                   struct sq_page *page, void *first)
{
    void *next;
    while ((next = slub_next(cpu, cache, first)) != NULL) {
        struct slub_word old, word;
        do {
            old = word = slub_load(cpu, page);
            slub_set_next(cpu, cache, first, slub_head_object(cpu, cache, page, &old));
            word.head = slub_head_of(cpu, cache, page, first);
            word.inuse--;
        } while (!slub_update(cpu, cache, page, &old, &word));
        first = next;
    }
    return first;
}

/* Length and last object of a free list that is the CPU's alone. */
static uint32_t slub_list_end(sq_cpu *cpu, const struct slub_cache *cache, void *first,
                              void **last)
{
    uint32_t count = 0;
    for (; first != NULL; first = slub_next(cpu, cache, first), count++)
        *last = first;
    return count;
}

/* What deactivation does to the word: the CPU's list, `count` objects from `first` to
 * `last`, goes before the free objects that the slab has; nobody owns it any more. */
static struct slub_word slub_deactivate_word(sq_cpu *cpu, struct slub_cache *cache,
                                             struct sq_page *page,
                                             struct slub_word word, void *first,
                                             void *last, uint32_t count)
{
    if (last != NULL) {
        slub_set_next(cpu, cache, last, slub_head_object(cpu, cache, page, &word));
        word.head = slub_head_of(cpu, cache, page, first);
        word.inuse -= count;
    }
    word.is_frozen = false;
    return word;
}

/* After the word changed, under list_lock: put the slab on the list it belongs to. */
static void slub_deactivate_list(sq_cpu *cpu, struct slub_cache *cache,
                                 struct slub_node *node, struct sq_page *page,
                                 const struct slub_word *word, bool at_head)
{
    if (word->head == 0) {
        slub_full_add(cache, node, page);
    } else if (word->inuse == 0 && slub_uses_slab_lock(cache)) {
        /* kept though empty: counted as empty then, as partial since */
        slub_partial_add(cpu, node, page, false);
        sq_count(cpu, &cache->base, SLUB_DEACTIVATE_EMPTY);
    } else {
        slub_partial_add(cpu, node, page, at_head);
        sq_count(cpu, &cache->base,
                 at_head ? SLUB_DEACTIVATE_TO_HEAD : SLUB_DEACTIVATE_TO_TAIL);
    }
}

/* The outcome of a deactivation, decided before the word changes. */
struct slub_deactivation {
    struct slub_word word;
    bool is_surplus; /* empty, and the node has enough */
    bool wants_list; /* partial, or full where full slabs are listed */
    bool is_locked;  /* the node's list_lock is held */
};

/*
 * Change the word. While slabs of CPU partial lists are frozen, a slab that is not
 * frozen and not full must be on a list, so the list is locked before; since 6.8
 * SLUB_PAGE_ON_LIST tells and the lock comes after.
 */
static struct slub_deactivation slub_deactivate_update(sq_cpu *cpu,
                                                       struct slub_cache *cache,
                                                       struct sq_page *page,
                                                       void *first)
{
    struct slub_node *node = slub_node_of(cache, page);
    struct slub_deactivation done = {.is_locked = false};
    bool locks_before =
        SLUB_OPTION(cache, cpu_partial_frozen) != 0 || cache->keeps_full_list;
    struct slub_word old;
    void *last = NULL;
    uint32_t count = slub_list_end(cpu, cache, first, &last);
    do {
        old = slub_load(cpu, page);
        done.word = slub_deactivate_word(cpu, cache, page, old, first, last, count);
        done.is_surplus = done.word.inuse == 0 && slub_has_surplus(cpu, cache, node);
        done.wants_list =
            !done.is_surplus && (done.word.head != 0 || cache->keeps_full_list);
        if (done.wants_list && locks_before && !done.is_locked) {
            (void)slub_list_lock(cpu, node);
            done.is_locked = true;
        }
    } while (!slub_update(cpu, cache, page, &old, &done.word));
    if (done.wants_list && !done.is_locked) {
        (void)slub_list_lock(cpu, node);
        done.is_locked = true;
    }
    return done;
}

/* deactivate_slab: a frozen slab and the CPU's list of its free objects (may be NULL)
 * go back together. Requires that the caller stays on its CPU. */
static void slub_deactivate(sq_cpu *cpu, struct slub_cache *cache, struct sq_page *page,
                            void *first)
{
    SQ_IN_SCOPE(cpu, SLUB_DEACTIVATE);
    struct slub_node *node = slub_node_of(cache, page);
    struct slub_deactivation done;
    bool had_remote_frees, at_head;
    slub_slab_lock(cpu, cache, page);
    had_remote_frees = slub_load(cpu, page).head != 0;
    at_head =
        SLUB_OPTION(cache, deactivate_head) == 0 ? first != NULL : !had_remote_frees;
    if (had_remote_frees)
        sq_count(cpu, &cache->base, SLUB_DEACTIVATE_REMOTE_FREES);
    if (first != NULL && SLUB_OPTION(cache, deactivate_splice) == 0)
        first = slub_give_back_singly(cpu, cache, page, first);
    done = slub_deactivate_update(cpu, cache, page, first);
    if (done.wants_list)
        slub_deactivate_list(cpu, cache, node, page, &done.word, at_head);
    if (done.is_locked)
        slub_list_unlock(cpu, node);
    slub_slab_unlock(cpu, cache, page);
    if (done.word.head == 0)
        sq_count(cpu, &cache->base, SLUB_DEACTIVATE_FULL);
    if (done.is_surplus) {
        sq_count(cpu, &cache->base, SLUB_DEACTIVATE_EMPTY);
        sq_count(cpu, &cache->base, SLUB_FREE_SLAB);
        slub_slab_discard(cpu, cache, page);
    }
}

/* A slab that was a CPU's, and the free list it had of it; no slab: `slab` is NULL. */
struct slub_detached {
    struct sq_page *slab;
    void *first;
};

/* Take the CPU's slab and free list away from it. Requires the guard of the CPU's part. */
static struct slub_detached slub_cpu_detach(const struct slub_cache *cache,
                                            struct slub_cpu *local)
{
    struct slub_detached detached = {local->slab, local->free.first};
    local->slab = NULL;
    slub_cpu_set_free(cache, local, NULL);
    return detached;
}

/* The same, and give the slab back. Requires a slab. */
static void slub_cpu_deactivate(sq_cpu *cpu, struct slub_cache *cache,
                                struct slub_cpu *local)
{
    struct slub_detached detached = slub_cpu_detach(cache, local);
    slub_deactivate(cpu, cache, detached.slab, detached.first);
}

/* The CPU keeps no slab beyond the call that needed one. Requires irqs off. */
static void slub_cpu_drop(sq_cpu *cpu, struct slub_cache *cache)
{
    struct slub_cpu *local = slub_cpu_of(cpu, cache);
    if (local->slab != NULL)
        slub_cpu_deactivate(cpu, cache, local);
}

/* flush_slab and unfreeze_partials: the CPU keeps nothing. Requires that the caller stays
 * on its CPU. */
static void slub_cpu_flush(sq_cpu *cpu, struct slub_cache *cache)
{
    struct slub_cpu *local = slub_cpu_of(cpu, cache);
    struct slub_detached detached = {NULL, NULL};
    struct sq_page *partial;
    slub_cpu_lock(cpu, cache);
    partial = local->partial;
    local->partial = NULL;
    if (local->slab != NULL)
        detached = slub_cpu_detach(cache, local);
    slub_cpu_unlock(cpu, cache);
    if (detached.slab != NULL) {
        sq_count(cpu, &cache->base, SLUB_CPUSLAB_FLUSH);
        slub_deactivate(cpu, cache, detached.slab, detached.first);
    }
    (void)slub_partials_put(cpu, cache, partial);
}

#endif
