/*
 * Slabs and their lists: making one, giving it back, finding one with free objects, and
 * draining objects into theirs.
 *
 * What guards a bitmap differs: up to V3 the slab's own lock, with the node's list_lock
 * inside it when the slab changes lists; in V4 the list_lock alone. `struct
 * slubq_section` is that difference; everything else is written once.
 */
#ifndef SLUBQ_SLAB_H
#define SLUBQ_SLAB_H

#include "policy/slubq_debug.h"

/* ---- the chain of all slabs of a node: release and introspection; ours ---- */

static struct sq_page *slubq_chain_page(const struct slubq_cache *cache,
                                        uint32_t number)
{
    return number == 0 ? NULL : &cache->base.heap->machine->page_frames[number - 1];
}

static uint32_t slubq_chain_number(const struct slubq_cache *cache,
                                   const struct sq_page *page)
{
    return (uint32_t)(page - cache->base.heap->machine->page_frames) + 1;
}

static void slubq_chain_link(sq_cpu *cpu, struct slubq_cache *cache,
                             struct sq_page *page)
{
    struct slubq_node *node = cache->node[page->node];
    struct slubq_slab *slab = slubq_slab_of(page);
    sq_lock_acquire(cpu, &node->chain_lock);
    slab->chain_prev = 0;
    slab->chain_next = node->chain_first;
    if (slab->chain_next != 0)
        slubq_slab_of(slubq_chain_page(cache, slab->chain_next))->chain_prev =
            slubq_chain_number(cache, page);
    node->chain_first = slubq_chain_number(cache, page);
    node->slab_count++;
    node->object_total += slubq_slab_objects(cache, page);
    sq_lock_release(cpu, &node->chain_lock);
}

static void slubq_chain_unlink(sq_cpu *cpu, struct slubq_cache *cache,
                               struct sq_page *page)
{
    struct slubq_node *node = cache->node[page->node];
    struct slubq_slab *slab = slubq_slab_of(page);
    sq_lock_acquire(cpu, &node->chain_lock);
    if (slab->chain_next != 0)
        slubq_slab_of(slubq_chain_page(cache, slab->chain_next))->chain_prev =
            slab->chain_prev;
    if (slab->chain_prev != 0)
        slubq_slab_of(slubq_chain_page(cache, slab->chain_prev))->chain_next =
            slab->chain_next;
    else
        node->chain_first = slab->chain_next;
    node->slab_count--;
    node->object_total -= slubq_slab_objects(cache, page);
    sq_lock_release(cpu, &node->chain_lock);
}

/* ---- making and giving back ---- */

/* Pages for a slab: of the preferred order, else of the smallest that holds an object.
 */
static struct sq_page *slubq_slab_pages(sq_cpu *cpu, struct slubq_cache *cache,
                                        int32_t node, uint32_t pages_flags)
{
    struct sq_page *page = sq_pages_alloc(cpu, cache->base.order, node, pages_flags);
    if (page != NULL || cache->min_order == cache->base.order)
        return page;
    page = sq_pages_alloc(cpu, cache->min_order, node, pages_flags);
    if (page != NULL)
        slubq_count(cpu, cache, SLUBQ_ORDER_FALLBACK);
    return page;
}

/*
 * A new slab, all free and on no list, or NULL. Interrupts are on while pages are
 * sought, so the caller's view of its own queue is stale afterwards.
 */
static struct sq_page *slubq_slab_new(sq_cpu *cpu, struct slubq_cache *cache,
                                      int32_t node, uint32_t pages_flags)
{
    SQ_IN_SCOPE(cpu, SLUBQ_NEW);
    struct sq_page *page;
    struct slubq_slab *slab;
    sq_irq_restore(cpu);
    page = slubq_slab_pages(cpu, cache, node, pages_flags);
    sq_irq_save(cpu);
    if (page == NULL)
        return NULL;
    slab = slubq_slab_of(page);
    sq_touch_write(cpu, page, sizeof(*page));
    slab->cache = &cache->base;
    sq_lock_init(&slab->lock, SQ_LOCK_SLAB);
    sq_list_init(&page->lru);
    slubq_map_fill(cpu, cache, page);
    if (cache->base.is_debug)
        slubq_debug_new_slab(cpu, cache, page);
    if (cache->base.constructor != NULL) {
        char *object = sq_page_address(cpu->machine, page);
        uint32_t objects = slubq_slab_objects(cache, page);
        sq_touch_write(cpu, object, (size_t)objects * cache->base.size);
        for (uint32_t i = 0; i < objects; i++, object += cache->base.size)
            cache->base.constructor(&cache->base, object);
    }
    sq_slab_note_new(cpu, &cache->base, page);
    slubq_chain_link(cpu, cache, page);
    return page;
}

/* Give the pages back. Requires that the slab is on no list and nobody can find it. */
static void slubq_slab_discard(sq_cpu *cpu, struct slubq_cache *cache,
                               struct sq_page *page)
{
    SQ_IN_SCOPE(cpu, SLUBQ_DISCARD);
    SQ_ASSERT_INTERNAL(!sq_list_is_linked(&page->lru));
    slubq_chain_unlink(cpu, cache, page);
    sq_slab_note_free(cpu, &cache->base, page);
    if (cache->rule.counts_free_slab)
        slubq_count(cpu, cache, SLUBQ_FREE_SLAB);
    sq_pages_free(cpu, page);
}

/* ---- partial lists; list_lock held ---- */

static void slubq_partial_add(sq_cpu *cpu, struct slubq_node *node,
                              struct sq_page *page, bool to_tail)
{
    sq_lock_assert_held(cpu, &node->list_lock);
    sq_touch_write(cpu, page, sizeof(*page));
    if (to_tail)
        sq_list_link_tail(&page->lru, &node->partial);
    else
        sq_list_link_head(&page->lru, &node->partial);
    sq_touch_write(cpu, to_tail ? page->lru.prev : page->lru.next,
                   sizeof(struct sq_list));
    node->touched = 1;
    sq_store_relaxed(cpu, &node->nr_partial,
                     sq_load_relaxed(cpu, &node->nr_partial) + 1);
}

static void slubq_partial_remove(sq_cpu *cpu, struct slubq_node *node,
                                 struct sq_page *page)
{
    sq_lock_assert_held(cpu, &node->list_lock);
    sq_touch_write(cpu, page, sizeof(*page));
    sq_touch_write(cpu, page->lru.prev, sizeof(struct sq_list));
    sq_touch_write(cpu, page->lru.next, sizeof(struct sq_list));
    sq_list_unlink(&page->lru);
    node->touched = 1;
    sq_store_relaxed(cpu, &node->nr_partial,
                     sq_load_relaxed(cpu, &node->nr_partial) - 1);
}

/* ---- sections: the lock that guards a bitmap ---- */

struct slubq_section {
    struct slubq_node *node; /* V4: whose list_lock is held, or NULL */
    struct sq_list emptied;  /* slabs to give back when it is let go */
};

static void slubq_section_init(struct slubq_section *section)
{
    section->node = NULL;
    sq_list_init(&section->emptied);
}

static void slubq_section_discard(sq_cpu *cpu, struct slubq_cache *cache,
                                  struct slubq_section *section)
{
    while (!sq_list_is_empty(&section->emptied)) {
        struct sq_list *first = section->emptied.next;
        sq_list_unlink(first);
        slubq_slab_discard(cpu, cache, SQ_LIST_ENTRY(first, struct sq_page, lru));
    }
}

/* Let go of what V4 keeps held from slab to slab. */
static void slubq_section_end(sq_cpu *cpu, struct slubq_cache *cache,
                              struct slubq_section *section)
{
    if (section->node != NULL)
        sq_lock_release(cpu, &section->node->list_lock);
    section->node = NULL;
    slubq_section_discard(cpu, cache, section);
}

/* Before the bitmap of `page` is used. V4 keeps the lock while slabs are of one node.
 */
static void slubq_section_enter(sq_cpu *cpu, struct slubq_cache *cache,
                                struct slubq_section *section, struct sq_page *page)
{
    struct slubq_node *node = cache->node[page->node];
    if (cache->rule.has_slab_lock) {
        sq_lock_acquire(cpu, &slubq_slab_of(page)->lock);
        return;
    }
    if (section->node == node)
        return;
    slubq_section_end(cpu, cache, section);
    sq_lock_acquire(cpu, &node->list_lock);
    section->node = node;
}

static void slubq_section_leave(sq_cpu *cpu, struct slubq_cache *cache,
                                struct slubq_section *section, struct sq_page *page)
{
    if (!cache->rule.has_slab_lock)
        return;
    sq_lock_release(cpu, &slubq_slab_of(page)->lock);
    slubq_section_discard(cpu, cache, section);
}

/* Around a change of the node's list, inside a section. */
static struct slubq_node *slubq_list_enter(sq_cpu *cpu, struct slubq_cache *cache,
                                           struct sq_page *page)
{
    struct slubq_node *node = cache->node[page->node];
    if (cache->rule.has_slab_lock)
        sq_lock_acquire(cpu, &node->list_lock);
    return node;
}

static void slubq_list_leave(sq_cpu *cpu, struct slubq_cache *cache,
                             struct slubq_node *node)
{
    if (cache->rule.has_slab_lock)
        sq_lock_release(cpu, &node->list_lock);
}

/* ---- draining ---- */

/* V1's slip: additions were counted as removals, removals not at all. */
static void slubq_count_list_change(sq_cpu *cpu, struct slubq_cache *cache, bool added)
{
    if (cache->rule.counts_partial_mended)
        slubq_count(cpu, cache,
                    added ? SLUBQ_FREE_ADD_PARTIAL : SLUBQ_FREE_REMOVE_PARTIAL);
    else if (added)
        slubq_count(cpu, cache, SLUBQ_FREE_REMOVE_PARTIAL);
}

/* May an emptied slab go? V4 keeps min_partial slabs, counting itself if it is listed.
 */
static bool slubq_may_discard(sq_cpu *cpu, const struct slubq_cache *cache,
                              const struct slubq_node *node)
{
    return cache->rule.discards_at_once ||
           sq_load_relaxed(cpu, &node->nr_partial) > slubq_tunable(&cache->min_partial);
}

/*
 * A slab has got objects back: put it where it belongs now. `was_listed`: it had free
 * objects before. Requires the section of the slab.
 */
static void slubq_settle(sq_cpu *cpu, struct slubq_cache *cache, struct sq_page *page,
                         bool was_listed, struct slubq_section *section)
{
    struct slubq_node *node = cache->node[page->node];
    bool is_empty = slubq_free_count(cache, page) == slubq_slab_objects(cache, page);
    bool goes = is_empty && slubq_may_discard(cpu, cache, node);
    if (goes ? was_listed : !was_listed) {
        (void)slubq_list_enter(cpu, cache, page);
        if (goes)
            slubq_partial_remove(cpu, node, page);
        else
            slubq_partial_add(cpu, node, page, cache->rule.has_slab_lock);
        slubq_list_leave(cpu, cache, node);
        slubq_count_list_change(cpu, cache, !goes);
    }
    if (goes)
        sq_list_link_tail(&page->lru, &section->emptied);
}

/* Put objects back into their slabs, runs of one slab together, in order. */
static void slubq_drain(sq_cpu *cpu, struct slubq_cache *cache, void **object,
                        uint32_t count)
{
    SQ_IN_SCOPE(cpu, SLUBQ_DRAIN);
    struct slubq_section section;
    slubq_section_init(&section);
    while (count > 0) {
        struct sq_page *page = sq_page_of_address(cpu->machine, *object);
        bool was_listed;
        uint32_t put;
        sq_touch_read(cpu, page, sizeof(*page));
        slubq_section_enter(cpu, cache, &section, page);
        was_listed = slubq_has_free(page);
        put = slubq_map_put(cpu, cache, page, object, count);
        slubq_debug_move(cache, object, put, false);
        slubq_settle(cpu, cache, page, was_listed, &section);
        slubq_section_leave(cpu, cache, &section, page);
        object += put;
        count -= put;
    }
    slubq_section_end(cpu, cache, &section);
}

/* Give the oldest `count` objects of a queue back to their slabs. */
static void slubq_drain_queue(sq_cpu *cpu, struct slubq_cache *cache,
                              struct slubq_queue *queue, uint32_t count)
{
    if (count > queue->objects)
        count = queue->objects;
    slubq_drain(cpu, cache, queue->object, count);
    queue->objects -= count;
    memmove(queue->object, queue->object + count, queue->objects * sizeof(void *));
    queue->touched = 0;
}

#endif
