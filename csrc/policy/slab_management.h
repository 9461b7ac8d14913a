/*
 * slab_management.h -- one slab: its pages, its free objects in either form, its end.
 *
 *   classic   free -> bufctl[free] -> ... -> BUFCTL_END, a chain through the entries
 *   later     index[0 .. inuse) is stale, index[inuse .. n) are the free objects; the
 *             next to go is index[inuse], and a freed one goes to index[--inuse]
 *
 * Both hand out the object that came back last; a new slab hands out 0, 1, 2, ...
 */
#ifndef SQ_SLAB_MANAGEMENT_H
#define SQ_SLAB_MANAGEMENT_H

#include "policy/slab_debug.h"
#include "policy/slab_object.h"

/* slab.c: allocation and freeing of slots with irqs off, for management that lies in
 * objects. */
static void *slab_alloc_one(sq_cpu *cpu, struct slab_cache *cache, int32_t node,
                            uint32_t flags);
static void slab_free_one(sq_cpu *cpu, struct slab_cache *cache, void *slot);

/* ---- taking and putting back; both under the list lock or before the slab is known
 * ---- */

/* Requires a free object. */
static inline void *slab_take(sq_cpu *cpu, const struct slab_cache *cache,
                              struct slab *slab)
{
    uint32_t index;
    sq_scope_enter(cpu, SLAB_GET);
    SQ_ASSERT_INTERNAL(slab->inuse < cache->geometry.object_count);
    if (cache->is_classic) {
        index = slab->free;
        sq_touch_read(cpu, &slab_bufctl(slab)[index], BUFCTL_BYTES);
        slab->free = slab_bufctl(slab)[index];
    } else {
        sq_touch_read(cpu, &slab->index_stack[slab->inuse], 1);
        index = slab->index_stack[slab->inuse];
    }
    SQ_ASSERT_INTERNAL(index < cache->geometry.object_count);
    slab->inuse++;
    sq_scope_leave(cpu, SLAB_GET);
    return slab_object_at(cache, slab, index);
}

static inline void slab_put(sq_cpu *cpu, const struct slab_cache *cache,
                            struct slab *slab, void *object)
{
    uint32_t index = slab_index_of(cache, slab, object);
    SQ_ASSERT_INTERNAL(slab->inuse > 0 && index < cache->geometry.object_count);
    SQ_ASSERT_INTERNAL(slab_object_at(cache, slab, index) == object);
    slab->inuse--;
    if (cache->is_classic) {
        sq_touch_write(cpu, &slab_bufctl(slab)[index], BUFCTL_BYTES);
        slab_bufctl(slab)[index] = slab->free;
        slab->free = index;
        return;
    }
    if (slab->index_stack ==
        NULL) /* SLAB_OBJ: the first to come back holds the stack */
        slab->index_stack = (uint8_t *)slab_user_of(cache, object);
    sq_touch_write(cpu, &slab->index_stack[slab->inuse], 1);
    slab->index_stack[slab->inuse] = (uint8_t)index;
}

/* ---- a slab's beginning ---- */

static struct sq_page *slab_pages_get(sq_cpu *cpu, struct slab_cache *cache,
                                      int32_t node, uint32_t flags)
{
    uint32_t page_flags = ((flags & SQ_ALLOC_THISNODE) ? SQ_PAGES_THISNODE : 0) |
                          ((flags & SQ_ALLOC_NOWAIT) ? SQ_PAGES_NOWAIT : 0);
    struct sq_page *page = sq_pages_alloc(cpu, cache->geometry.order, node, page_flags);
    if (page == NULL)
        return NULL;
    page->word[3] = (uint64_t)(uintptr_t)cache;
    sq_slab_note_new(cpu, &cache->base, page);
    return page;
}

static void slab_pages_put(sq_cpu *cpu, struct slab_cache *cache, struct sq_page *page)
{
    sq_slab_note_free(cpu, &cache->base, page);
    sq_pages_free(cpu, page);
}

/* Memory for management outside the slab, on the slab's node if it has some. */
static void *slab_management_get(sq_cpu *cpu, const struct slab_cache *cache,
                                 uint32_t node, uint32_t flags)
{
    struct slab_cache *lender = slab_cache_of(cache->geometry.management_cache);
    void *slot = slab_alloc_one(cpu, lender, (int32_t)node, flags & SQ_ALLOC_NOWAIT);
    return slot == NULL ? NULL : slab_hand_out(cpu, lender, slot);
}

static void slab_management_put(sq_cpu *cpu, const struct slab_cache *cache,
                                void *memory)
{
    struct slab_cache *lender = slab_cache_of(cache->geometry.management_cache);
    void *slot = slab_take_back(cpu, lender, memory);
    if (slot != NULL)
        slab_free_one(cpu, lender, slot);
}

/* Decide where descriptor, indexes and objects of the new slab lie. NULL: no memory. */
static struct slab *slab_place(sq_cpu *cpu, struct slab_cache *cache,
                               struct sq_page *page, uint64_t offset, uint32_t flags)
{
    const struct slab_geometry *geometry = &cache->geometry;
    char *base = sq_page_address(cpu->machine, page), *first = base + offset;
    void *memory = NULL;
    struct slab *slab;
    if (geometry->placement == SLAB_OFF) {
        memory = slab_management_get(cpu, cache, page->node, flags);
        if (memory == NULL)
            return NULL;
    } else if (cache->is_classic) {
        memory = first;
        first += geometry->management_bytes;
    } else if (geometry->placement == SLAB_ON) {
        memory = base + ((size_t)SQ_PAGE_SIZE << geometry->order) -
                 geometry->management_bytes;
    } else {
        memory = first + (size_t)(geometry->object_count - 1) * geometry->size +
                 geometry->object_offset;
    }
    if (cache->is_classic)
        page->word[0] = (uint64_t)(uintptr_t)memory;
    slab = slab_of_page(cache, page);
    slab->first_object = first;
    slab->index_stack = cache->is_classic ? NULL : memory;
    return slab;
}

/* CONFIG_SLAB_FREELIST_RANDOM: the cache's random order, begun at a random place. Indexes
 * that lie in an object lie in the one that is handed out last. */
static void slab_fill_shuffled(sq_cpu *cpu, const struct slab_cache *cache,
                               struct slab *slab)
{
    uint32_t count = cache->geometry.object_count;
    uint32_t place = (uint32_t)(sq_random(cpu) % count);
    uint32_t last = cache->random_order[(place + count - 1) % count];
    if (cache->geometry.placement == SLAB_OBJ)
        slab->index_stack =
            (uint8_t *)slab_user_of(cache, slab_object_at(cache, slab, last));
    sq_touch_write(cpu, slab->index_stack, count);
    for (uint32_t i = 0; i < count; i++)
        slab->index_stack[i] = cache->random_order[(place + i) % count];
}

/* All objects free, in ascending order unless they are shuffled. */
static void slab_fill_management(sq_cpu *cpu, const struct slab_cache *cache,
                                 struct slab *slab)
{
    uint32_t count = cache->geometry.object_count;
    sq_touch_write(cpu, slab, sizeof(*slab));
    sq_list_init(&slab->list);
    slab->inuse = 0;
    slab->free = 0;
    if (cache->is_classic) {
        slab->node = slab_page_of(cache, slab)->node;
        sq_touch_write(cpu, slab_bufctl(slab), (size_t)count * BUFCTL_BYTES);
        for (uint32_t i = 0; i < count; i++)
            slab_bufctl(slab)[i] = i + 1 < count ? i + 1 : BUFCTL_END;
        return;
    }
    if (cache->random_order != NULL) {
        slab_fill_shuffled(cpu, cache, slab);
        return;
    }
    sq_touch_write(cpu, slab->index_stack, count);
    for (uint32_t i = 0; i < count; i++)
        slab->index_stack[i] = (uint8_t)i;
}

static void slab_construct_objects(const struct slab_cache *cache,
                                   const struct slab *slab)
{
    if (cache->base.constructor == NULL)
        return;
    for (uint32_t i = 0; i < cache->geometry.object_count; i++)
        cache->base.constructor(&cache->base, slab_object_at(cache, slab, i));
}

/* Offset of the next slab's colour on this node. Early releases use colour_next under
 * the list lock and then advance it, later ones advance it first and take no lock. */
static uint64_t slab_next_colour(sq_cpu *cpu, struct slab_cache *cache,
                                 struct slab_node *node)
{
    uint64_t colour, next;
    if (!cache->grows_filled)
        sq_lock_acquire(cpu, &node->list_lock);
    colour = sq_load_relaxed(cpu, &node->colour_next);
    next = colour + 1 < cache->geometry.colour_count ? colour + 1 : 0;
    sq_store_relaxed(cpu, &node->colour_next, next);
    if (!cache->grows_filled)
        sq_lock_release(cpu, &node->list_lock);
    return (cache->grows_filled ? next : colour) * cache->geometry.colour_step;
}

/* Make the pages a slab that no list knows yet; gives them back when there is no memory
 * for its management. */
static struct slab *slab_make(sq_cpu *cpu, struct slab_cache *cache,
                              struct sq_page *page, uint64_t offset, uint32_t flags)
{
    struct slab *slab = slab_place(cpu, cache, page, offset, flags);
    if (slab == NULL) {
        slab_pages_put(cpu, cache, page);
        return NULL;
    }
    if (cache->base.is_debug)
        slab_debug_new_slab(cpu, cache, slab); /* indexes may lie in an object */
    slab_fill_management(cpu, cache, slab);
    if (!cache->base.is_debug)
        slab_construct_objects(cache, slab);
    return slab;
}

/* ---- a slab's end ---- */

/* The memory outside the slab that describes it, or NULL. */
static void *slab_outside_memory(const struct slab_cache *cache, struct slab *slab)
{
    if (cache->geometry.placement != SLAB_OFF)
        return NULL;
    return cache->is_classic ? (void *)slab : (void *)slab->index_stack;
}

/* Give back a slab that is on no list. Requires irqs off and, if its management lies
 * outside, that no lock is held. */
static void slab_destroy(sq_cpu *cpu, struct slab_cache *cache, struct slab *slab)
{
    SQ_IN_SCOPE(cpu, SLAB_DESTROY);
    void *memory = slab_outside_memory(cache, slab);
    slab_debug_end_slab(cpu, cache, slab);
    slab_pages_put(cpu, cache, slab_page_of(cache, slab));
    if (memory != NULL)
        slab_management_put(cpu, cache, memory);
}

/* The same under the list lock (2.6): the pages go now; management outside would need
 * locks of another cache, so it waits on `doomed`, linked through itself. */
static void slab_destroy_locked(sq_cpu *cpu, struct slab_cache *cache,
                                struct slab *slab, struct sq_list *doomed)
{
    SQ_IN_SCOPE(cpu, SLAB_DESTROY);
    struct sq_list *memory = slab_outside_memory(cache, slab);
    slab_debug_end_slab(cpu, cache, slab);
    slab_pages_put(cpu, cache, slab_page_of(cache, slab));
    if (memory != NULL)
        sq_list_link_tail(memory, doomed);
}

/* Finish what free_block left on `doomed`: whole slabs, or the management of slabs
 * whose pages are gone already. Requires irqs off and no lock held. */
static void slabs_destroy(sq_cpu *cpu, struct slab_cache *cache, struct sq_list *doomed)
{
    while (!sq_list_is_empty(doomed)) {
        struct sq_list *first = doomed->next;
        sq_list_unlink(first);
        if (cache->destroys_after_batch)
            slab_destroy(cpu, cache, SQ_LIST_ENTRY(first, struct slab, list));
        else
            slab_management_put(cpu, cache, first);
    }
}

#endif
