/*
 * SLUB: no queues. A CPU owns one slab and hands out that slab's own objects; what is
 * freed elsewhere goes back to the slab it came from.
 *
 *   CPU   free --> object --> object --> NULL      fast paths: pop and push here
 *         slab --> [ page frame: word = (first free object, inuse, objects, frozen) ]
 *         partial --> slab --> slab                filled by frees, emptied by refills
 *                                                  (3.2 on)
 *   node  list_lock, nr_partial
 *         partial <--> slab <--> slab              some objects free, no CPU owns them
 *   full slabs are on no list; the first free to one finds it by the object's address
 *
 *   alloc: CPU's free list; else what was freed to the CPU's slab meanwhile; else a slab
 *          of the CPU's partial list; else of the node's; else of another node's; else
 *          new pages
 *   free:  to the CPU's free list if the object is of its slab; else to the object's slab
 *
 * Lock order: slab_lock (to 3.0) -> list_lock -> page allocator; get_partial takes
 * slab_lock inside list_lock by trying. A node's all_lock is innermost and alone.
 *
 * Releases: 2.6.24 to 6.18, one source; every difference is an option of slub_options.h
 * asked at the place where it matters. Compared object by object with recordings of
 * 2.6.25, 2.6.35, 4.19, 5.15, 6.1 and 6.18.
 *
 * Departures: the chain of all slabs (slub_node.h) is ours. Slow paths keep interrupts
 * off from end to end, where 3.1 and later turn them on in between and for page
 * allocation. 6.1 and earlier lock list_lock only after they looked at nr_partial without
 * it; so does this file. Debug flags change sizes, lists and paths, but contents are not
 * checked. PREEMPT_RT's local lock costs what turning preemption off costs. 3.2 counts
 * cpu_partial_node and cpu_partial_drain, which its kernel does without counting.
 */
#include "policy/slub_node.h"

#include <stdio.h>
#include <string.h>

#define SLUB_DEBUG_FLAGS                                                               \
    (SQ_CACHE_RED_ZONE | SQ_CACHE_POISON | SQ_CACHE_STORE_USER |                       \
     SQ_CACHE_CONSISTENCY_CHECKS)
#define SLUB_MIN_PARTIAL_MAX 10u /* the kernel's MAX_PARTIAL */

/* ---- the CPU's own part ---- */

/* Replace the CPU's free list; its next transaction has another id. */
static inline void slub_cpu_set_free(const struct slub_cache *cache,
                                     struct slub_cpu *local, void *first)
{
    local->free.first = first;
    local->free.second += cache->tid_step;
}

/* Put a chain of slabs, all of them partial, on their nodes' lists, at the tail. Slabs
 * that are empty where there are enough of them are given back. */
static void slub_partials_put(sq_cpu *cpu, struct slub_cache *cache,
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
                sq_lock_release(cpu, &node->list_lock);
            node = slub_node_of(cache, page);
            sq_lock_acquire(cpu, &node->list_lock);
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
        sq_lock_release(cpu, &node->list_lock);
    while ((page = surplus) != NULL) {
        surplus = slub_chain_of(page)->next;
        sq_count(cpu, &cache->base, SLUB_DEACTIVATE_EMPTY);
        sq_count(cpu, &cache->base, SLUB_FREE_SLAB);
        slub_slab_discard(cpu, cache, page);
    }
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

/* put_cpu_partial: the slab becomes the first of this CPU's partial list. With `drain` a
 * full list goes to its nodes before; without, list_lock is held and it may overflow. */
static void slub_cpu_partial_put(sq_cpu *cpu, struct slub_cache *cache,
                                 struct sq_page *page, bool drain)
{
    struct slub_cpu *local = slub_cpu_of(cpu, cache);
    struct slub_chain *chain = slub_chain_of(page);
    struct slub_word word = slub_load(cpu, page);
    struct sq_page *drained = NULL;
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
    if (drained != NULL) {
        slub_partials_put(cpu, cache, drained);
        sq_count(cpu, &cache->base, SLUB_CPU_PARTIAL_DRAIN);
    }
    if (SLUB_OPTION(cache, cpu_partial_zero_drain) != 0 &&
        slub_tunable(&cache->cpu_partial) == 0) {
        drained = local->partial;
        local->partial = NULL;
        slub_partials_put(cpu, cache, drained);
    }
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
                                             struct sq_page *page, struct slub_word word,
                                             void *first, void *last, uint32_t count)
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

/*
 * deactivate_slab: a frozen slab and the CPU's list of its free objects (may be NULL) go
 * back together. While slabs of CPU partial lists are frozen, a slab that is not frozen
 * and not full must be on a list, so the list is locked before the word changes; since
 * 6.8 SLUB_PAGE_ON_LIST tells and the lock comes after.
 */
static void slub_deactivate(sq_cpu *cpu, struct slub_cache *cache, struct sq_page *page,
                            void *first)
{
    SQ_IN_SCOPE(cpu, SLUB_DEACTIVATE);
    struct slub_node *node = slub_node_of(cache, page);
    bool locks_before =
        SLUB_OPTION(cache, cpu_partial_frozen) != 0 || cache->keeps_full_list;
    bool is_locked = false, is_surplus, wants_list, at_head;
    struct slub_word old, word;
    void *last = NULL;
    uint32_t count;
    slub_slab_lock(cpu, cache, page);
    old = slub_load(cpu, page);
    at_head = slub_uses_slab_lock(cache) ? first != NULL : old.head == 0;
    if (old.head != 0)
        sq_count(cpu, &cache->base, SLUB_DEACTIVATE_REMOTE_FREES);
    if (first != NULL && SLUB_OPTION(cache, deactivate_splice) == 0)
        first = slub_give_back_singly(cpu, cache, page, first);
    count = slub_list_end(cpu, cache, first, &last);
    do {
        old = slub_load(cpu, page);
        word = slub_deactivate_word(cpu, cache, page, old, first, last, count);
        is_surplus = word.inuse == 0 && slub_has_surplus(cpu, cache, node);
        wants_list = !is_surplus && (word.head != 0 || cache->keeps_full_list);
        if (wants_list && locks_before && !is_locked) {
            sq_lock_acquire(cpu, &node->list_lock);
            is_locked = true;
        }
    } while (!slub_update(cpu, cache, page, &old, &word));
    if (wants_list && !is_locked) {
        sq_lock_acquire(cpu, &node->list_lock);
        is_locked = true;
    }
    if (wants_list)
        slub_deactivate_list(cpu, cache, node, page, &word, at_head);
    if (is_locked)
        sq_lock_release(cpu, &node->list_lock);
    slub_slab_unlock(cpu, cache, page);
    if (word.head == 0)
        sq_count(cpu, &cache->base, SLUB_DEACTIVATE_FULL);
    if (is_surplus) {
        sq_count(cpu, &cache->base, SLUB_DEACTIVATE_EMPTY);
        sq_count(cpu, &cache->base, SLUB_FREE_SLAB);
        slub_slab_discard(cpu, cache, page);
    }
}

/* Take the CPU's slab and free list away from it. Requires a slab. */
static void slub_cpu_deactivate(sq_cpu *cpu, struct slub_cache *cache,
                                struct slub_cpu *local)
{
    struct sq_page *page = local->slab;
    void *first = local->free.first;
    local->slab = NULL;
    slub_cpu_set_free(cache, local, NULL);
    slub_deactivate(cpu, cache, page, first);
}

/* flush_slab and unfreeze_partials: the CPU keeps nothing. Requires irqs off. */
static void slub_cpu_flush(sq_cpu *cpu, struct slub_cache *cache)
{
    struct slub_cpu *local = slub_cpu_of(cpu, cache);
    struct sq_page *partial = local->partial;
    if (local->slab != NULL) {
        sq_count(cpu, &cache->base, SLUB_CPUSLAB_FLUSH);
        slub_cpu_deactivate(cpu, cache, local);
    }
    local->partial = NULL;
    slub_partials_put(cpu, cache, partial);
}

/* ---- slabs from the lists ---- */

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
                              struct slub_node *node, struct sq_page *page, void **first)
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
    slub_cpu_partial_put(cpu, cache, page, false);
    sq_count(cpu, &cache->base, SLUB_CPU_PARTIAL_NODE);
}

/* A debug cache since 6.1: one object of the slab; a full slab leaves the list. */
static void *slub_partial_take_single(sq_cpu *cpu, struct slub_cache *cache,
                                      struct slub_node *node, struct sq_page *page)
{
    struct slub_word old, word;
    void *object;
    do {
        old = word = slub_load(cpu, page);
        object = slub_head_object(cpu, cache, page, &old);
        word.head = slub_head_of(cpu, cache, page, slub_next(cpu, cache, object));
        word.inuse++;
    } while (!slub_update(cpu, cache, page, &old, &word));
    if (word.inuse == word.objects) {
        slub_partial_remove(cpu, node, page);
        slub_full_add(cache, node, page);
    }
    return object;
}

/* Do allocations take single objects under list_lock? */
static inline bool slub_takes_single(const struct slub_cache *cache)
{
    return cache->is_debug && SLUB_OPTION(cache, debug_single) != 0 &&
           !slub_uses_slab_lock(cache);
}

/* get_partial_node: the first slab of the node's list that can be had, and with CPU
 * partial lists some more. Returns the slab, or NULL. `first`: see slub_partial_take. */
static struct sq_page *slub_partial_get_node(sq_cpu *cpu, struct slub_cache *cache,
                                             struct slub_node *node, void **first)
{
    SQ_IN_SCOPE(cpu, SLUB_PARTIAL);
    struct sq_page *found = NULL;
    uint32_t extra = 0, objects = 0;
    if (sq_load_relaxed(cpu, &node->partial_count) == 0)
        return NULL;
    sq_lock_acquire(cpu, &node->list_lock);
    SQ_LIST_EACH_SAFE(link, following, &node->partial) {
        struct sq_page *page = slub_page_of_link(link);
        struct slub_word word;
        if (slub_takes_single(cache)) {
            *first = slub_partial_take_single(cpu, cache, node, page);
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
    sq_lock_release(cpu, &node->list_lock);
    return found;
}

/* get_any_partial: other nodes' lists, nearest first, if chance allows and they hold more
 * than they want to keep. The kernel's chance is a cycle counter, ours the run's. */
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

/* ---- allocation, slow ---- */

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
    sq_lock_acquire(cpu, &node->list_lock);
    if (word.inuse == word.objects)
        slub_full_add(cache, node, page);
    else
        slub_partial_add(cpu, node, page, true);
    sq_lock_release(cpu, &node->list_lock);
}

/* A slab for the CPU from the lists or from new pages, with its free objects in `first`.
 * NULL if there is no memory. */
static struct sq_page *slub_obtain_from(sq_cpu *cpu, struct slub_cache *cache,
                                        int32_t node, uint32_t flags, void **first)
{
    struct sq_page *page = slub_partial_get(cpu, cache, node, flags, first);
    if (page == NULL) {
        page = slub_slab_new(cpu, cache, node, flags, first);
        if (page == NULL)
            return NULL;
        sq_count(cpu, &cache->base, SLUB_ALLOC_SLAB);
        if (slub_takes_single(cache))
            slub_new_keep_rest(cpu, cache, page, *first);
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

/* The CPU's slab is used up: what was freed to it meanwhile becomes the CPU's free list;
 * without any the slab is let go, full. */
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
        slub_partials_put(cpu, cache, page);
        return NULL;
    }
    local->slab = page;
    sq_count(cpu, &cache->base, SLUB_CPU_PARTIAL_ALLOC);
    return was_frozen ? NULL : slub_take_all(cpu, cache, page, false);
}

/* Give the CPU a new slab. A request of another CPU, or an interrupt, may have given it
 * one while pages were looked for; that one is flushed. */
static void *slub_cpu_slab_replace(sq_cpu *cpu, struct slub_cache *cache,
                                   struct slub_cpu *local, int32_t node, uint32_t flags)
{
    void *first = NULL;
    struct sq_page *page = slub_obtain(cpu, cache, node, flags, &first);
    if (page == NULL)
        return NULL;
    if (slub_takes_single(cache))
        return first;
    if (cache->is_debug) {
        slub_deactivate(cpu, cache, page, slub_next(cpu, cache, first));
        return first;
    }
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
    if (!cache->is_debug)
        slub_cpu_set_free(cache, local, slub_next(cpu, cache, object));
    if (counts_success)
        sq_count(cpu, &cache->base, SLUB_ALLOC_SLOWPATH);
    return object;
}

/* ---- free, slow ---- */

/* Must a free that makes this change lock the node's list? Requires that the slab was not
 * frozen and is now empty or was full before. */
static bool slub_free_locks_list(const struct slub_cache *cache,
                                 const struct slub_word *old,
                                 const struct slub_word *word)
{
    if (slub_uses_slab_lock(cache)) /* a full slab of one object is on no list */
        return old->head != 0 || word->inuse != 0;
    return true;
}

/* After such a free, under list_lock: is the slab to be given back? Otherwise it is on
 * the list it belongs to. */
static bool slub_free_relist(sq_cpu *cpu, struct slub_cache *cache,
                             struct slub_node *node, struct sq_page *page,
                             const struct slub_word *old, const struct slub_word *word)
{
    bool was_full = old->head == 0;
    if (!was_full && (page->policy_flags & SLUB_PAGE_ON_LIST) == 0)
        return false; /* on a CPU's partial list, not frozen (6.8 on) */
    if (was_full)
        slub_full_remove(cache, page);
    if (word->inuse == 0 &&
        (SLUB_OPTION(cache, discard_rule) == SLUB_DISCARD_AT_ONCE ||
         slub_has_surplus(cpu, cache, node))) {
        if (!was_full) {
            slub_partial_remove(cpu, node, page);
            sq_count(cpu, &cache->base, SLUB_FREE_REMOVE_PARTIAL);
        }
        return true;
    }
    if (was_full) {
        slub_partial_add(cpu, node, page, false);
        sq_count(cpu, &cache->base, SLUB_FREE_ADD_PARTIAL);
    }
    return false;
}

/*
 * __slab_free: put `count` objects, chained from `head` to `tail`, on their slab, which
 * is not this CPU's. Requires irqs off.
 */
static void slub_free_slow(sq_cpu *cpu, struct slub_cache *cache, struct sq_page *page,
                           void *head, void *tail, uint32_t count)
{
    SQ_IN_SCOPE(cpu, SLUB_FREE_SLOW);
    struct slub_node *node = slub_node_of(cache, page), *locked = NULL;
    bool to_cpu_partial, discard;
    struct slub_word old, word;
    sq_count(cpu, &cache->base, SLUB_FREE_SLOWPATH);
    slub_slab_lock(cpu, cache, page);
    do {
        if (locked != NULL)
            sq_lock_release(cpu, &locked->list_lock);
        locked = NULL;
        old = word = slub_load(cpu, page);
        SQ_ASSERT(old.inuse >= count); /* else an object was freed twice */
        slub_set_next(cpu, cache, tail, slub_head_object(cpu, cache, page, &old));
        word.head = slub_head_of(cpu, cache, page, head);
        word.inuse -= count;
        to_cpu_partial = cache->has_cpu_partial && old.head == 0 && !old.is_frozen;
        if (to_cpu_partial) {
            word.is_frozen = SLUB_OPTION(cache, cpu_partial_frozen) != 0;
        } else if (!old.is_frozen && (word.inuse == 0 || old.head == 0) &&
                   slub_free_locks_list(cache, &old, &word)) {
            locked = node;
            sq_lock_acquire(cpu, &locked->list_lock);
        }
    } while (!slub_update(cpu, cache, page, &old, &word));
    if (locked != NULL) {
        discard = slub_free_relist(cpu, cache, node, page, &old, &word);
        sq_lock_release(cpu, &locked->list_lock);
    } else {
        discard = !old.is_frozen && !to_cpu_partial && word.inuse == 0;
    }
    slub_slab_unlock(cpu, cache, page);
    if (old.is_frozen)
        sq_count(cpu, &cache->base, SLUB_FREE_FROZEN);
    if (to_cpu_partial) {
        slub_cpu_partial_put(cpu, cache, page, true);
        sq_count(cpu, &cache->base, SLUB_CPU_PARTIAL_FREE);
    }
    if (discard) {
        sq_count(cpu, &cache->base, SLUB_FREE_SLAB);
        slub_slab_discard(cpu, cache, page);
    }
}

/* ---- fast paths ---- */

static inline void slub_fast_enter(sq_cpu *cpu, const struct slub_cache *cache)
{
    if (cache->fast_path == SLUB_FAST_IRQ)
        sq_irq_save(cpu);
}

static inline void slub_fast_leave(sq_cpu *cpu, const struct slub_cache *cache)
{
    if (cache->fast_path == SLUB_FAST_IRQ)
        sq_irq_restore(cpu);
}

/* The slow part of an allocation, from the state the fast path left. */
static __attribute__((noinline)) void *slub_alloc_miss(sq_cpu *cpu,
                                                       struct slub_cache *cache,
                                                       int32_t node, uint32_t flags)
{
    void *object;
    if (cache->fast_path != SLUB_FAST_IRQ)
        sq_irq_save(cpu);
    object = slub_alloc_slow(cpu, cache, node, flags);
    sq_irq_restore(cpu);
    return object;
}

static inline void *slub_alloc_object(sq_cpu *cpu, struct slub_cache *cache, int32_t node,
                                      uint32_t flags)
{
    struct slub_cpu *local = slub_cpu_of(cpu, cache);
    slub_fast_enter(cpu, cache);
    for (;;) {
        uint64_t tid = local->free.second;
        void *object = local->free.first;
        if (object == NULL || !slub_node_matches(local->slab, node) ||
            cache->fast_path == SLUB_FAST_LOCAL_LOCK)
            return slub_alloc_miss(cpu, cache, node, flags);
        if (sq_local_cas_double(cpu, &local->free, object, tid,
                                slub_next(cpu, cache, object), tid + cache->tid_step)) {
            sq_count(cpu, &cache->base, SLUB_ALLOC_FASTPATH);
            slub_fast_leave(cpu, cache);
            return object;
        }
        sq_count(cpu, &cache->base, SLUB_CMPXCHG_DOUBLE_CPU_FAIL);
    }
}

static __attribute__((noinline)) void slub_free_miss(sq_cpu *cpu,
                                                     struct slub_cache *cache,
                                                     struct sq_page *page, void *head,
                                                     void *tail, uint32_t count)
{
    if (cache->fast_path != SLUB_FAST_IRQ)
        sq_irq_save(cpu);
    slub_free_slow(cpu, cache, page, head, tail, count);
    sq_irq_restore(cpu);
}

/* Free `count` objects of one slab, chained from `head` to `tail`. */
static inline void slub_free_objects(sq_cpu *cpu, struct slub_cache *cache,
                                     struct sq_page *page, void *head, void *tail,
                                     uint32_t count, uint32_t counted)
{
    struct slub_cpu *local = slub_cpu_of(cpu, cache);
    slub_fast_enter(cpu, cache);
    for (;;) {
        uint64_t tid = local->free.second;
        void *first = local->free.first;
        if (page != local->slab) {
            slub_free_miss(cpu, cache, page, head, tail, count);
            return;
        }
        slub_set_next(cpu, cache, tail, first);
        if (sq_local_cas_double(cpu, &local->free, first, tid, head,
                                tid + cache->tid_step)) {
            sq_count_by(cpu, &cache->base, SLUB_FREE_FASTPATH, counted);
            slub_fast_leave(cpu, cache);
            return;
        }
        sq_count(cpu, &cache->base, SLUB_CMPXCHG_DOUBLE_CPU_FAIL);
    }
}

static void *slub_alloc(sq_cpu *cpu, sq_cache *base, int32_t node, uint32_t flags)
{
    SQ_IN_SCOPE(cpu, SLUB_ALLOC);
    return slub_alloc_object(cpu, (struct slub_cache *)base, node, flags);
}

static void slub_free(sq_cpu *cpu, sq_cache *base, void *object)
{
    SQ_IN_SCOPE(cpu, SLUB_FREE);
    struct sq_page *page = sq_page_of_address(cpu->machine, object);
    sq_touch_read(cpu, page, sizeof(*page));
    SQ_ASSERT(page->state == SQ_PAGE_SLAB);
    slub_free_objects(cpu, (struct slub_cache *)base, page, object, object, 1, 1);
}

/* ---- bulk ---- */

#define SLUB_BULK_LOOKAHEAD 3u /* other slabs' objects looked past, as in the kernel */

static void slub_swap(void **a, void **b)
{
    void *kept = *a;
    *a = *b;
    *b = kept;
}

/*
 * Free the last of `count` objects and with it others of the same slab, as far as few
 * objects of other slabs lie between; those are kept, closed up. Returns how many are
 * left to free.
 */
static size_t slub_free_some(sq_cpu *cpu, struct slub_cache *cache, size_t count,
                             void **objects)
{
    void *tail = objects[count - 1], *head = tail;
    struct sq_page *page = sq_page_of_address(cpu->machine, tail);
    uint32_t taken = 1, lookahead = SLUB_BULK_LOOKAHEAD;
    size_t left = --count;
    slub_set_next(cpu, cache, tail, NULL);
    while (count > 0) {
        void *object = objects[--count];
        if (sq_page_of_address(cpu->machine, object) == page) {
            slub_set_next(cpu, cache, object, head);
            head = object;
            taken++;
            left--;
            if (count != left)
                slub_swap(&objects[count], &objects[left]);
        } else if (--lookahead == 0) {
            break;
        }
    }
    sq_touch_read(cpu, page, sizeof(*page));
    slub_free_objects(cpu, cache, page, head, tail, taken,
                      SLUB_OPTION(cache, bulk_statistics) != 0 ? taken : 1);
    return left;
}

static void slub_free_bulk(sq_cpu *cpu, sq_cache *base, size_t count, void **objects)
{
    while (count > 0)
        count = slub_free_some(cpu, (struct slub_cache *)base, count, objects);
}

/* One object of a bulk allocation. Requires irqs off. */
static void *slub_alloc_bulk_one(sq_cpu *cpu, struct slub_cache *cache, uint32_t flags)
{
    struct slub_cpu *local = slub_cpu_of(cpu, cache);
    void *object = local->free.first;
    if (object == NULL)
        return slub_alloc_slow(cpu, cache, SQ_NODE_ANY, flags);
    slub_cpu_set_free(cache, local, slub_next(cpu, cache, object));
    if (SLUB_OPTION(cache, bulk_statistics) != 0)
        sq_count(cpu, &cache->base, SLUB_ALLOC_FASTPATH);
    return object;
}

static size_t slub_alloc_bulk(sq_cpu *cpu, sq_cache *base, uint32_t flags, size_t count,
                              void **objects)
{
    size_t got = 0;
    sq_irq_save(cpu);
    while (got < count) {
        objects[got] = slub_alloc_bulk_one(cpu, (struct slub_cache *)base, flags);
        if (objects[got] == NULL)
            break;
        got++;
    }
    sq_irq_restore(cpu);
    if (got == count)
        return count;
    slub_free_bulk(cpu, base, got, objects);
    return 0;
}

/* ---- kmalloc ---- */

static sq_cache *slub_cache_of_page(const struct sq_page *page)
{
    return &slub_slab_of(page)->cache->base;
}

static void *kmalloc_large(sq_cpu *cpu, sq_heap *heap, size_t size, int32_t node,
                           uint32_t flags);

/* 2.6.25: a class whose slabs are larger than it would like falls back to plain pages. */
static inline void *slub_kmalloc_class(sq_cpu *cpu, sq_cache *base, int32_t node,
                                       uint32_t flags)
{
    SQ_IN_SCOPE(cpu, SLUB_ALLOC);
    struct slub_cache *cache = (struct slub_cache *)base;
    void *object = slub_alloc_object(cpu, cache, node, flags);
    if (object == NULL && cache->falls_back_to_pages)
        return kmalloc_large(cpu, base->heap, base->object_size, node, flags);
    return object;
}

#define SQ_KMALLOC_ALLOC(cpu, cache, node, flags) slub_kmalloc_class(cpu, cache, node, flags)
#define SQ_KMALLOC_FREE(cpu, cache, object)       slub_free(cpu, cache, object)
#define SQ_KMALLOC_CACHE_OF(page)                 slub_cache_of_page(page)
#include "policy/kmalloc-impl.h"

#include "policy/slub_control.h"
#include "policy/slub_dump.h"

SQ_POLICY(slub) = {
    .name = "slub",
    .machine = SQ_MACHINE_NAME,
    .cache_bytes = sizeof(struct slub_cache),
    .counter_count = SLUB_COUNTER_COUNT,
    .counters = slub_counter_names,
    .kmalloc_shape = slub_kmalloc_shape,
    .geometry = slub_geometry,
    .cache_init = slub_cache_init,
    .cache_release = slub_cache_release,
    .flush_cpu = slub_flush_cpu,
    .shrink = slub_shrink,
    .tune = slub_tune,
    .alloc = slub_alloc,
    .free = slub_free,
    .alloc_bulk = slub_alloc_bulk,
    .free_bulk = slub_free_bulk,
    .kmalloc = kmalloc_alloc,
    .kfree = kmalloc_free,
    .ksize = kmalloc_usable_size,
    .cache_of_page = kmalloc_cache_of_page,
    .check = slub_check,
    .locate = slub_locate,
    .usage = slub_usage,
    .describe = slub_describe,
    .dump = slub_dump,
    .row = slub_row,
    .row_columns = slub_row_columns,
};
