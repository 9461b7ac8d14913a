/*
 * get_partial: slabs from the nodes' lists for a CPU that has none. How a slab leaves
 * its list is what changed most between releases:
 *
 *   to 3.0     its lock is tried under list_lock; the objects are taken after it
 *   3.1 - 6.7  its objects are taken under list_lock, by exchange of the word
 *   6.8 on     it only leaves the list; its objects are taken after list_lock
 *   debug      one object under list_lock, and the slab stays (6.1 on)
 */
#ifndef SLUB_PARTIAL_H
#define SLUB_PARTIAL_H

#include "policy/slub_cpu.h"

/* Take all free objects of a slab that the CPU owns, or will own: with `freeze` it is
 * frozen whatever it holds, else a slab without free objects is let go. Requires
 * slab_lock where there is one. */
static void *slub_take_all(sq_cpu *cpu, struct slub_cache *cache, struct sq_page *page,
                           bool freeze)
{
    struct slub_word old, word;
    do {
        old = word = slub_load(cpu, page);
        word.head = 0;
        word.inuse = old.objects;
        word.is_frozen = freeze || old.head != 0;
    } while (!slub_update(cpu, cache, page, &old, &word));
    return slub_head_object(cpu, cache, page, &old);
}

/* Freeze a slab for the CPU's partial list; its free objects stay with it. */
static void slub_freeze(sq_cpu *cpu, struct slub_cache *cache, struct sq_page *page)
{
    struct slub_word old, word;
    do {
        old = word = slub_load(cpu, page);
        word.is_frozen = true;
    } while (!slub_update(cpu, cache, page, &old, &word));
}

/* Has the CPU taken enough of a node's list? `extra` slabs and `objects` went to its
 * partial list or beside it. */
static bool slub_partial_is_enough(const struct slub_cache *cache, uint32_t extra,
                                   uint32_t objects)
{
    uint32_t slabs = slub_tunable(&cache->cpu_partial_slabs);
    if (!cache->has_cpu_partial)
        return true;
    if (SLUB_OPTION(cache, cpu_partial_unit) == SLUB_CPU_PARTIAL_OBJECTS)
        return objects > slub_tunable(&cache->cpu_partial) / 2;
    return extra > slabs / 2 ||
           (slabs == 0 && SLUB_OPTION(cache, cpu_partial_zero_stop) != 0);
}

/* Take one slab off the node's list to be the CPU's slab: under slab_lock it stays
 * locked, while partial slabs are frozen its objects are taken too, since 6.8 later. */
static void slub_partial_take(sq_cpu *cpu, struct slub_cache *cache,
                              struct slub_node *node, struct sq_page *page,
                              void **first)
{
    if (!slub_uses_slab_lock(cache) && SLUB_OPTION(cache, cpu_partial_frozen) != 0)
        *first = slub_take_all(cpu, cache, page, true);
    slub_partial_remove(cpu, node, page);
    sq_count(cpu, &cache->base, SLUB_ALLOC_FROM_PARTIAL);
}

/* Take one more slab off the node's list for the CPU's partial list. */
static void slub_partial_take_more(sq_cpu *cpu, struct slub_cache *cache,
                                   struct slub_node *node, struct sq_page *page)
{
    if (SLUB_OPTION(cache, cpu_partial_frozen) != 0)
        slub_freeze(cpu, cache, page);
    slub_partial_remove(cpu, node, page);
    (void)slub_cpu_partial_put(cpu, cache, page, false);
    if (SLUB_OPTION(cache, count_cpu_partial_moves) != 0)
        sq_count(cpu, &cache->base, SLUB_CPU_PARTIAL_NODE);
}

/* A debug cache since 6.1: one object of the slab; a full slab leaves the list, and so
 * does one that is found corrupted, of which NULL is returned. */
static void *slub_partial_take_single(sq_cpu *cpu, struct slub_cache *cache,
                                      struct slub_node *node, struct sq_page *page)
{
    struct slub_word old = slub_load(cpu, page), word = old;
    void *object = slub_head_object(cpu, cache, page, &old);
    void *next = slub_next(cpu, cache, object);
    const struct slub_subject subject = {cpu, cache, page, object};
    bool is_good, is_sound = slub_is_valid_pointer(&subject, next);
    word.head = is_sound ? slub_head_of(cpu, cache, page, next) : 0;
    if (!is_sound || word.inuse < word.objects) /* what followed is lost */
        word.inuse = is_sound ? word.inuse + 1 : word.objects;
    (void)slub_update(cpu, cache, page, &old, &word);
    is_good = slub_debug_alloc(cpu, cache, page, object);
    if (is_good && !is_sound)
        (void)slub_debug_next(cpu, cache, page, object);
    if (!is_good || word.head == 0) {
        slub_partial_remove(cpu, node, page);
        slub_full_add(cache, node, page);
    }
    return is_good ? object : NULL;
}

/* Do allocations take single objects under list_lock? */
static inline bool slub_takes_single(const struct slub_cache *cache)
{
    return cache->base.is_debug && SLUB_OPTION(cache, debug_single) != 0 &&
           !slub_uses_slab_lock(cache);
}

/* get_partial_node: the first slab of the node's list that can be had, and with CPU
 * partial lists some more. Returns the slab, or NULL. `first`: see slub_partial_take.
 * Requires that the caller stays on its CPU.
 */
static struct sq_page *slub_partial_get_node(sq_cpu *cpu, struct slub_cache *cache,
                                             struct slub_node *node, void **first)
{
    SQ_IN_SCOPE(cpu, SLUB_PARTIAL);
    struct sq_page *found = NULL;
    uint32_t extra = 0, objects = 0;
    if (sq_load_relaxed(cpu, &node->partial_count) == 0)
        return NULL;
    (void)slub_list_lock(cpu, node);
    SQ_LIST_EACH_SAFE (link, following, &node->partial) {
        struct sq_page *page = slub_page_of_link(link);
        struct slub_word word;
        if (slub_takes_single(cache)) {
            *first = slub_partial_take_single(cpu, cache, node, page);
            if (*first == NULL)
                continue;
            found = page;
            break;
        }
        if (!slub_slab_try_lock(cpu, cache, page))
            continue;
        word = slub_load(cpu, page);
        objects += word.objects - word.inuse;
        if (found == NULL) {
            slub_partial_take(cpu, cache, node, page, first);
            found = page;
        } else {
            slub_partial_take_more(cpu, cache, node, page);
            extra++;
        }
        if (slub_partial_is_enough(cache, extra, objects))
            break;
    }
    slub_list_unlock(cpu, node);
    return found;
}

/* get_any_partial: other nodes' lists, nearest first, if chance allows and they hold
 * more than they want to keep. The kernel's chance is a cycle counter, ours the run's.
 */
static struct sq_page *slub_partial_get_any(sq_cpu *cpu, struct slub_cache *cache,
                                            void **first)
{
    const struct sq_topology *topology = &cpu->machine->topology;
    uint32_t ratio = slub_tunable(&cache->remote_node_defrag_ratio);
    if (ratio == 0 || sq_random(cpu) % 1024 > ratio)
        return NULL;
    for (uint32_t i = 0; i < topology->node_count; i++) {
        struct slub_node *node = cache->node[topology->fallback[cpu->node][i]];
        struct sq_page *page;
        if (sq_load_relaxed(cpu, &node->partial_count) <=
            slub_tunable(&cache->min_partial))
            continue;
        page = slub_partial_get_node(cpu, cache, node, first);
        if (page != NULL)
            return page;
    }
    return NULL;
}

static struct sq_page *slub_partial_get(sq_cpu *cpu, struct slub_cache *cache,
                                        int32_t node, uint32_t flags, void **first)
{
    uint32_t wanted = node == SQ_NODE_ANY ? cpu->node : (uint32_t)node;
    bool only_wanted =
        (flags & SQ_ALLOC_THISNODE) != 0 ||
        (node != SQ_NODE_ANY && SLUB_OPTION(cache, explicit_node_any_partial) == 0);
    struct sq_page *page =
        slub_partial_get_node(cpu, cache, cache->node[wanted], first);
    if (page != NULL || only_wanted)
        return page;
    return slub_partial_get_any(cpu, cache, first);
}

#endif
