/*
 * Emptying: a CPU's queue into the slabs, and kmem_cache_shrink.
 */
#ifndef SLUBQ_SHRINK_H
#define SLUBQ_SHRINK_H

#include "policy/slubq_queue.h"

/* ---- flushing ---- */

/* Empty the queue of this CPU into the slabs. */
static void slubq_flush_queue(sq_cpu *cpu, struct slubq_cache *cache,
                              struct slubq_queue *queue)
{
    slubq_drain_queue(cpu, cache, queue, queue->objects);
    slubq_count(cpu, cache, SLUBQ_QUEUE_FLUSH);
}

/* Empty a shared or alien queue. One that is empty stays as it is, `touched` too. */
static void slubq_flush_locked(sq_cpu *cpu, struct slubq_cache *cache,
                               struct slubq_queue *queue)
{
    sq_lock_acquire(cpu, &queue->lock);
    sq_touch_write(cpu, queue, sizeof(*queue));
    if (queue->objects > 0)
        slubq_drain_queue(cpu, cache, queue, queue->objects);
    sq_lock_release(cpu, &queue->lock);
}

static void slubq_flush_aliens(sq_cpu *cpu, struct slubq_cache *cache,
                               struct slubq_group *group)
{
    for (uint32_t to = 0; to < SQ_NODE_MAX; to++)
        if (group->alien[to] != NULL)
            slubq_flush_locked(cpu, cache, group->alien[to]);
}

/* As posted, a CPU with an empty queue of its own leaves what it shares alone, and V3
 * leaves alien queues alone altogether. */
static void slubq_flush_each(sq_cpu *cpu, void *argument)
{
    struct slubq_cache *cache = argument;
    struct slubq_queue *queue = slubq_queue_of(cpu, cache);
    bool has_objects = queue->objects > 0;
    if (has_objects)
        slubq_flush_queue(cpu, cache, queue);
    if (queue->group == NULL || !(has_objects || cache->rule.flushes_all_levels))
        return;
    slubq_flush_locked(cpu, cache, queue->group->shared);
    if (cache->rule.version >= 4 || cache->rule.flushes_all_levels)
        slubq_flush_aliens(cpu, cache, queue->group);
}

static void slubq_flush_cpu(sq_cpu *cpu, sq_cache *base)
{
    sq_irq_save(cpu);
    slubq_flush_each(cpu, slubq_cache_of(base));
    sq_irq_restore(cpu);
}

/* ---- shrink ---- */

/* Free objects of a listed slab. One whose lock is taken is being changed: 0. Requires
 * list_lock, so that no slab that is free leaves the list meanwhile. */
static uint32_t slubq_free_count_idle(sq_cpu *cpu, struct slubq_cache *cache,
                                      struct sq_page *page)
{
    sq_lock *lock = &slubq_slab_of(page)->lock;
    uint32_t free;
    if (!cache->rule.has_slab_lock)
        return slubq_free_count(cache, page);
    if (!sq_lock_try(cpu, lock))
        return 0;
    free = slubq_free_count(cache, page);
    sq_lock_release(cpu, lock);
    return free;
}

/* Sort the partial list, fullest first, and collect the empty slabs. `bucket` has one
 * list for each count of objects in use. Requires list_lock. */
static void slubq_sort_partial(sq_cpu *cpu, struct slubq_cache *cache,
                               struct slubq_node *node, struct sq_list *bucket,
                               struct slubq_section *section)
{
    for (uint32_t i = 0; i <= cache->base.slab_object_count; i++)
        sq_list_init(&bucket[i]);
    SQ_LIST_EACH_SAFE(link, following, &node->partial)
    {
        struct sq_page *page = SQ_LIST_ENTRY(link, struct sq_page, lru);
        uint32_t free = slubq_free_count_idle(cpu, cache, page);
        uint32_t objects = slubq_slab_objects(cache, page);
        sq_touch_write(cpu, page, sizeof(*page));
        if (free == objects) {
            slubq_partial_remove(cpu, node, page);
            sq_list_link_tail(&page->lru, &section->emptied);
        } else {
            sq_list_move_head(&page->lru, &bucket[objects - free]);
        }
    }
    for (uint32_t i = cache->base.slab_object_count + 1; i-- > 0;)
        while (!sq_list_is_empty(&bucket[i]))
            sq_list_move_tail(bucket[i].next, &node->partial);
    node->touched = 0;
}

/* The node part of a shrink; bytes given back. Without memory for the sorting it does
 * nothing, as the kernel. */
static uint64_t slubq_shrink_node(sq_cpu *cpu, struct slubq_cache *cache, uint32_t n)
{
    struct slubq_node *node = cache->node[n];
    struct slubq_section section;
    struct sq_list *bucket;
    uint64_t bytes = 0;
    if (sq_load_relaxed(cpu, &node->nr_partial) == 0)
        return 0;
    bucket = sq_meta_alloc(cpu, (cache->base.slab_object_count + 1) * sizeof(*bucket),
                           cpu->node);
    if (bucket == NULL)
        return 0;
    slubq_section_init(&section);
    sq_irq_save(cpu);
    sq_lock_acquire(cpu, &node->list_lock);
    slubq_sort_partial(cpu, cache, node, bucket, &section);
    sq_lock_release(cpu, &node->list_lock);
    SQ_LIST_EACH(link, &section.emptied)
    bytes += (uint64_t)SQ_PAGE_SIZE << SQ_LIST_ENTRY(link, struct sq_page, lru)->order;
    slubq_section_discard(cpu, cache, &section);
    sq_irq_restore(cpu);
    sq_meta_free(cpu, bucket);
    return bytes;
}

/* kmem_cache_shrink. */
static int slubq_shrink(sq_cpu *cpu, sq_cache *base)
{
    struct slubq_cache *cache = slubq_cache_of(base);
    sq_on_each_cpu(cpu, slubq_flush_each, cache);
    for (uint32_t n = 0; n < slubq_topology(cache)->node_count; n++)
        (void)slubq_shrink_node(cpu, cache, n);
    return 0;
}

#endif
