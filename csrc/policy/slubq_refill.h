/*
 * Where a CPU's queue gets its objects when it is empty: partial slabs and new ones,
 * and how an object of another node is found.
 */
#ifndef SLUBQ_REFILL_H
#define SLUBQ_REFILL_H

#include "policy/slubq_queue.h"

/* ---- up to V3: slab by slab ---- */

/* Unlink the first partial slab of a node whose lock can be had, locked; or NULL. */
static struct sq_page *slubq_partial_get(sq_cpu *cpu, struct slubq_node *node)
{
    SQ_IN_SCOPE(cpu, SLUBQ_PARTIAL);
    struct sq_page *found = NULL;
    if (sq_load_relaxed(cpu, &node->nr_partial) == 0)
        return NULL;
    sq_lock_acquire(cpu, &node->list_lock);
    SQ_LIST_EACH (link, &node->partial) {
        struct sq_page *page = SQ_LIST_ENTRY(link, struct sq_page, lru);
        sq_touch_read(cpu, page, sizeof(*page));
        if (!sq_lock_try(cpu, &slubq_slab_of(page)->lock))
            continue;
        slubq_partial_remove(cpu, node, page);
        found = page;
        break;
    }
    sq_lock_release(cpu, &node->list_lock);
    return found;
}

/* The dice of remote_node_defrag_ratio: 0 never, from 1024 on always. */
static bool slubq_may_defrag(sq_cpu *cpu, const struct slubq_cache *cache)
{
    uint32_t ratio = slubq_tunable(&cache->remote_node_defrag_ratio);
    return ratio != 0 && (ratio >= 1024 || sq_random(cpu) % 1024 <= ratio);
}

/* A partial slab of any node that has more than min_partial, nearest first; locked. */
static struct sq_page *slubq_partial_get_any(sq_cpu *cpu, struct slubq_cache *cache)
{
    const struct sq_topology *topology = slubq_topology(cache);
    if (!slubq_may_defrag(cpu, cache))
        return NULL;
    for (uint32_t i = 0; i < topology->node_count; i++) {
        struct slubq_node *node = cache->node[topology->fallback[cpu->node][i]];
        struct sq_page *page;
        if (sq_load_relaxed(cpu, &node->nr_partial) <=
            slubq_tunable(&cache->min_partial))
            continue;
        page = slubq_partial_get(cpu, node);
        if (page != NULL)
            return page;
    }
    return NULL;
}

/* A slab with free objects, locked and on no list: partial, or new. Or NULL. */
static struct sq_page *slubq_slab_get(sq_cpu *cpu, struct slubq_cache *cache,
                                      int32_t node, uint32_t flags)
{
    uint32_t search = node == SQ_NODE_ANY ? cpu->node : (uint32_t)node;
    struct sq_page *page = slubq_partial_get(cpu, cache->node[search]);
    if (page == NULL && !(flags & SQ_ALLOC_THISNODE))
        page = slubq_partial_get_any(cpu, cache);
    if (page != NULL) {
        slubq_count(cpu, cache, SLUBQ_ALLOC_FROM_PARTIAL);
        return page;
    }
    page = slubq_slab_new(cpu, cache, node, slubq_pages_flags(flags));
    if (page == NULL)
        return NULL;
    slubq_count(cpu, cache, SLUBQ_ALLOC_SLAB);
    sq_lock_acquire(cpu, &slubq_slab_of(page)->lock);
    return page;
}

/* Fill the queue to its batch; what a slab has left goes back to the list's tail. */
static void slubq_refill_by_slab(sq_cpu *cpu, struct slubq_cache *cache, int32_t node,
                                 uint32_t flags)
{
    struct slubq_queue *queue = slubq_queue_of(cpu, cache);
    while (queue->objects < queue->batch) {
        struct sq_page *page = slubq_slab_get(cpu, cache, node, flags);
        uint32_t count, free;
        if (page == NULL)
            return;
        queue = slubq_queue_of(cpu, cache);
        free = slubq_free_count(cache, page);
        /* An interrupt may have filled the queue while pages were sought. */
        count = queue->objects < queue->batch ? queue->batch - queue->objects : 0;
        count = count < free ? count : free;
        slubq_map_take(cpu, cache, page, count, &queue->object[queue->objects + count]);
        slubq_debug_move(cache, &queue->object[queue->objects], count, true);
        queue->objects += count;
        if (slubq_has_free(page)) {
            struct slubq_node *home = slubq_list_enter(cpu, cache, page);
            slubq_partial_add(cpu, home, page, true);
            slubq_list_leave(cpu, cache, home);
        }
        sq_lock_release(cpu, &slubq_slab_of(page)->lock);
    }
}

/* ---- V4: under one list_lock ---- */

/* How far the queue is filled: little, if it was not in use. */
static uint32_t slubq_refill_want(const struct slubq_cache *cache,
                                  const struct slubq_queue *queue)
{
    return cache->rule.has_touched && !queue->touched &&
                   queue->batch > SLUBQ_REFILL_UNUSED
               ? SLUBQ_REFILL_UNUSED
               : queue->batch;
}

/* Take from the first partial slabs of a node where they lie. */
static void slubq_refill_in_place(sq_cpu *cpu, struct slubq_cache *cache,
                                  struct slubq_node *node, struct slubq_queue *queue,
                                  uint32_t want)
{
    if (sq_load_relaxed(cpu, &node->nr_partial) == 0)
        return;
    sq_lock_acquire(cpu, &node->list_lock);
    while (queue->objects < want && !sq_list_is_empty(&node->partial)) {
        struct sq_page *page = SQ_LIST_ENTRY(node->partial.next, struct sq_page, lru);
        uint32_t free = slubq_free_count(cache, page);
        uint32_t count = want - queue->objects;
        sq_touch_write(cpu, page, sizeof(*page));
        count = count < free ? count : free;
        slubq_map_take(cpu, cache, page, count, &queue->object[queue->objects + count]);
        slubq_debug_move(cache, &queue->object[queue->objects], count, true);
        queue->objects += count;
        if (!slubq_has_free(page))
            slubq_partial_remove(cpu, node, page);
    }
    sq_lock_release(cpu, &node->list_lock);
}

/* Fill the queue from partial slabs; if there are none, from new ones. */
static void slubq_refill_by_node(sq_cpu *cpu, struct slubq_cache *cache, int32_t node,
                                 uint32_t want, uint32_t flags)
{
    struct slubq_queue *queue = slubq_queue_of(cpu, cache);
    uint32_t search = node == SQ_NODE_ANY ? cpu->node : (uint32_t)node;
    slubq_refill_in_place(cpu, cache, cache->node[search], queue, want);
    if (queue->objects > 0) {
        slubq_count(cpu, cache, SLUBQ_ALLOC_FROM_PARTIAL);
        return;
    }
    while (queue->objects < want) {
        struct sq_page *page =
            slubq_slab_new(cpu, cache, node, slubq_pages_flags(flags));
        uint32_t room;
        if (page == NULL)
            return;
        slubq_count(cpu, cache, SLUBQ_ALLOC_SLAB);
        queue = slubq_queue_of(cpu, cache);
        room = queue->max - queue->objects;
        queue->objects += slubq_take_new(cpu, cache, page, want < room ? want : room,
                                         &queue->object[queue->objects]);
    }
}

/* ---- objects of another node ---- */

/* A new slab of another node. V3 did not count it. */
static struct sq_page *slubq_slab_new_foreign(sq_cpu *cpu, struct slubq_cache *cache,
                                              uint32_t node, uint32_t pages_flags)
{
    struct sq_page *page = slubq_slab_new(cpu, cache, (int32_t)node, pages_flags);
    if (page != NULL && cache->rule.version >= 4)
        slubq_count(cpu, cache, SLUBQ_ALLOC_SLAB);
    return page;
}

/* One object of `node`, past all queues: of a partial slab, or of a new one. */
static void *slubq_alloc_direct(sq_cpu *cpu, struct slubq_cache *cache, uint32_t node,
                                uint32_t pages_flags)
{
    void *object = NULL;
    struct sq_page *page;
    if (slubq_take_partial(cpu, cache, node, 1, &object) > 0)
        return object;
    page = slubq_slab_new_foreign(cpu, cache, node, pages_flags);
    if (page != NULL)
        (void)slubq_take_new(cpu, cache, page, 1, &object);
    return object;
}

/* A new slab for an alien queue. The group may be gone when the pages arrive, and
 * others may have filled its queue: then one object is taken and the slab listed. */
static void *slubq_alloc_alien_new(sq_cpu *cpu, struct slubq_cache *cache,
                                   uint32_t node, uint32_t pages_flags)
{
    struct sq_page *page =
        slubq_slab_new_foreign(cpu, cache, node, pages_flags | SQ_PAGES_THISNODE);
    struct slubq_group *group = slubq_queue_of(cpu, cache)->group;
    struct slubq_queue *alien = group == NULL ? NULL : group->alien[node];
    uint32_t want;
    void *object = NULL;
    if (page == NULL)
        return NULL;
    if (alien == NULL) {
        (void)slubq_take_new(cpu, cache, page, 1, &object);
        return object;
    }
    sq_lock_acquire(cpu, &alien->lock);
    want = (uint32_t)sq_min_u64(group->alien_want, alien->max - alien->objects);
    alien->objects +=
        slubq_take_new(cpu, cache, page, want, &alien->object[alien->objects]);
    alien->touched = 1;
    object = alien->object[--alien->objects];
    sq_lock_release(cpu, &alien->lock);
    return object;
}

/* One object of another node, by way of the alien queue to it. */
static void *slubq_alloc_alien(sq_cpu *cpu, struct slubq_cache *cache,
                               struct slubq_group *group, uint32_t node,
                               uint32_t pages_flags)
{
    struct slubq_queue *alien = group->alien[node];
    bool is_slow;
    void *object = NULL;
    sq_lock_acquire(cpu, &alien->lock);
    sq_touch_write(cpu, alien, sizeof(*alien));
    is_slow = alien->objects == 0;
    if (is_slow)
        alien->objects =
            slubq_take_partial(cpu, cache, node, group->alien_want, alien->object);
    if (alien->objects > 0) {
        alien->touched = 1;
        object = alien->object[--alien->objects];
        sq_touch_read(cpu, &alien->object[alien->objects], sizeof(object));
    }
    sq_lock_release(cpu, &alien->lock);
    if (object == NULL)
        object = slubq_alloc_alien_new(cpu, cache, node, pages_flags);
    if (is_slow && object != NULL && cache->rule.version >= 4)
        slubq_count(cpu, cache, SLUBQ_ALLOC_ALIEN_SLOW);
    return object;
}

/* One object of another node, or NULL if that node has none and no memory. */
static void *slubq_alloc_foreign(sq_cpu *cpu, struct slubq_cache *cache, uint32_t node,
                                 uint32_t flags)
{
    struct slubq_queue *queue = slubq_queue_of(cpu, cache);
    struct slubq_queue *alien = queue->group == NULL ? NULL : queue->group->alien[node];
    uint32_t pages_flags = slubq_pages_flags(flags);
    void *object = alien != NULL
                       ? slubq_alloc_alien(cpu, cache, queue->group, node, pages_flags)
                       : slubq_alloc_direct(cpu, cache, node, pages_flags);
    if (object != NULL && alien == NULL && cache->rule.version >= 4)
        slubq_count(cpu, cache, SLUBQ_ALLOC_ALIEN_SLOW);
    if (object != NULL)
        slubq_count(cpu, cache,
                    cache->rule.version < 4 ? SLUBQ_ALLOC_REMOTE
                    : alien != NULL         ? SLUBQ_ALLOC_ALIEN
                                            : SLUBQ_ALLOC_DIRECT);
    return object;
}

#endif
