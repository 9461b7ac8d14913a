/*
 * slab_node.h -- the node part of a cache: its three slab lists, how a slab comes into
 * them, how objects go back to their slabs, and when a slab is given up. Included by
 * slab.c, which explains the whole.
 *
 *   slab_grow -> (serves somebody) -> slab_link_new -> partial, full or free
 *   node_first_slab -> slab_take ... -> slab_relink -> partial or full
 *   free_block -> slab_put -> partial, free or doomed -> slabs_destroy
 */
#ifndef SQ_SLAB_NODE_H
#define SQ_SLAB_NODE_H

#include "policy/slab_cache.h"
#include "policy/slab_management.h"

/* ---- slab lists; all under the list lock ---- */

/* Put a slab where it belongs after objects were taken from it: first among the full or
 * the partial ones. A full slab has no use for indexes that lie in its own objects. */
static void slab_relink(sq_cpu *cpu, struct slab_cache *cache, struct slab_node *node,
                        struct slab *slab)
{
    bool is_full = slab->inuse == cache->geometry.object_count;
    sq_lock_assert_held(cpu, &node->list_lock);
    sq_touch_write(cpu, slab->list.prev, sizeof(struct sq_list));
    sq_touch_write(cpu, slab->list.next, sizeof(struct sq_list));
    sq_list_move_head(&slab->list, is_full ? &node->full : &node->partial);
    sq_touch_write(cpu, slab->list.next, sizeof(struct sq_list));
    if (is_full && cache->geometry.placement == SLAB_OBJ) {
        slab_debug_end_indexes(cache, slab);
        slab->index_stack = NULL;
    }
}

/* The slab to take objects from: the first partial one, else the first free one, which
 * then no longer counts as free. NULL: neither. */
static struct slab *node_first_slab(sq_cpu *cpu, struct slab_node *node)
{
    struct slab *slab;
    if (!sq_list_is_empty(&node->partial)) {
        slab = SQ_LIST_ENTRY(node->partial.next, struct slab, list);
    } else {
        node_set_free_touched(node, 1);
        if (sq_list_is_empty(&node->free))
            return NULL;
        slab = SQ_LIST_ENTRY(node->free.next, struct slab, list);
        node->free_slabs--;
    }
    sq_touch_write(cpu, slab, sizeof(*slab));
    return slab;
}

/* A slab comes into being for the node it lies on: free ones go last, slabs that have
 * served somebody already are relinked as after any taking (kernel: cache_grow_end). */
static void slab_link_new(sq_cpu *cpu, struct slab_cache *cache, struct slab *slab)
{
    struct slab_node *node = cache->node[slab_page_of(cache, slab)->node];
    sq_lock_acquire(cpu, &node->list_lock);
    node->total_slabs++;
    if (slab->inuse == 0) {
        sq_touch_write(cpu, node->free.prev, sizeof(struct sq_list));
        sq_list_link_tail(&slab->list, &node->free);
        node->free_slabs++;
    } else {
        slab_relink(cpu, cache, node, slab);
    }
    sq_count(cpu, &cache->base, SLAB_GROWN);
    node_add_free_objects(cpu, node,
                          (int64_t)cache->geometry.object_count - slab->inuse);
    sq_lock_release(cpu, &node->list_lock);
}

/* ---- growing ---- */

/* Pages for a new slab; irqs are on meanwhile if the caller may wait, so the CPU's
 * array may be another one, or filled or emptied, afterwards. */
static struct sq_page *slab_wait_for_pages(sq_cpu *cpu, struct slab_cache *cache,
                                           int32_t node, uint32_t flags)
{
    struct sq_page *page;
    if ((flags & SQ_ALLOC_NOWAIT) == 0)
        sq_irq_restore(cpu);
    page = slab_pages_get(cpu, cache, node, flags);
    if ((flags & SQ_ALLOC_NOWAIT) == 0)
        sq_irq_save(cpu);
    return page;
}

/* A new slab on exactly this node, on no list yet; NULL if the node has no memory. */
static struct slab *slab_grow(sq_cpu *cpu, struct slab_cache *cache,
                              uint32_t node_index, uint32_t flags)
{
    struct slab_node *node = cache->node[node_index];
    struct slab *slab = NULL;
    struct sq_page *page;
    uint64_t offset = 0;
    sq_scope_enter(cpu, SLAB_GROW);
    if (!cache->grows_filled)
        offset = slab_next_colour(cpu, cache, node);
    page =
        slab_wait_for_pages(cpu, cache, (int32_t)node_index, flags | SQ_ALLOC_THISNODE);
    if (page != NULL && cache->grows_filled)
        offset = slab_next_colour(cpu, cache, node);
    if (page != NULL)
        slab = slab_make(cpu, cache, page, offset, flags);
    sq_scope_leave(cpu, SLAB_GROW);
    return slab;
}

/* The same wherever there is memory, nearest first. */
static struct slab *slab_grow_anywhere(sq_cpu *cpu, struct slab_cache *cache,
                                       uint32_t flags)
{
    struct slab *slab = NULL;
    struct sq_page *page;
    sq_scope_enter(cpu, SLAB_GROW);
    page = slab_wait_for_pages(cpu, cache, (int32_t)cpu->node, flags);
    if (page != NULL)
        slab = slab_make(cpu, cache, page,
                         slab_next_colour(cpu, cache, cache->node[page->node]), flags);
    sq_scope_leave(cpu, SLAB_GROW);
    return slab;
}

/* ---- giving objects back to slabs ---- */

/* Over the limit, later releases let the last free slabs go after the whole batch. */
static void node_trim_free_slabs(sq_cpu *cpu, struct slab_cache *cache,
                                 struct slab_node *node, struct sq_list *doomed)
{
    while (node_free_objects(cpu, node) > node->free_limit &&
           !sq_list_is_empty(&node->free)) {
        struct slab *slab = SQ_LIST_ENTRY(node->free.prev, struct slab, list);
        sq_touch_write(cpu, slab, sizeof(*slab));
        sq_list_move_head(&slab->list, doomed);
        node_add_free_objects(cpu, node, -(int64_t)cache->geometry.object_count);
        node->free_slabs--;
        node->total_slabs--;
    }
}

/* A slab became empty and is on no list: early releases decide at once whether it
 * stays. */
static void node_keep_or_destroy(sq_cpu *cpu, struct slab_cache *cache,
                                 struct slab_node *node, struct slab *slab,
                                 struct sq_list *doomed)
{
    if (!cache->destroys_after_batch &&
        node_free_objects(cpu, node) > node->free_limit) {
        node_add_free_objects(cpu, node, -(int64_t)cache->geometry.object_count);
        node->total_slabs--;
        slab_destroy_locked(cpu, cache, slab, doomed);
        return;
    }
    sq_list_link_head(&slab->list, &node->free);
    node->free_slabs++;
}

/* Give objects back to their slabs, which all lie on `node`. A slab moves to the end of
 * the partial list with every object it gets back. Requires the list lock; the caller
 * passes `doomed` to slabs_destroy when it has no lock any more. */
static void free_block(sq_cpu *cpu, struct slab_cache *cache, struct slab_node *node,
                       void *const *objects, uint32_t count, struct sq_list *doomed)
{
    sq_lock_assert_held(cpu, &node->list_lock);
    for (uint32_t i = 0; i < count; i++) {
        struct slab *slab;
        sq_scope_enter(cpu, SLAB_PUT);
        slab = slab_of_object(cpu, cache, objects[i]);
        sq_touch_write(cpu, slab, sizeof(*slab));
        sq_touch_write(cpu, slab->list.prev, sizeof(struct sq_list));
        sq_touch_write(cpu, slab->list.next, sizeof(struct sq_list));
        sq_list_unlink(&slab->list);
        slab_put(cpu, cache, slab, objects[i]);
        node_add_free_objects(cpu, node, 1);
        if (slab->inuse > 0)
            sq_list_link_tail(&slab->list, &node->partial);
        else
            node_keep_or_destroy(cpu, cache, node, slab, doomed);
        sq_scope_leave(cpu, SLAB_PUT);
    }
    stat_sub_active(cache, count);
    if (cache->destroys_after_batch)
        node_trim_free_slabs(cpu, cache, node, doomed);
}

#endif
