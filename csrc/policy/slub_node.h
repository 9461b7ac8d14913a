/*
 * The node part of SLUB: lists of partial and full slabs, slabs made and given back,
 * and the chain of all slabs.
 *
 * The chain of all slabs is ours. A kernel without debugging finds a full slab only
 * through its objects; check() and the release of a cache need every slab, so each node
 * chains its slabs through frame numbers in the page frames. The chain changes only
 * when pages come or go, under a lock of its own, and no path that is compared reads
 * it.
 */
#ifndef SLUB_NODE_H
#define SLUB_NODE_H

#include "policy/slub_debug.h"
#include "policy/slub_lock.h"

/* ---- the chain of all slabs ---- */

static struct sq_page *slub_frame(const sq_machine *machine, uint32_t number)
{
    return number == 0 ? NULL : &machine->page_frames[number - 1];
}

static void slub_all_link(sq_cpu *cpu, struct slub_node *node, struct sq_page *page)
{
    uint32_t number = (uint32_t)(page - cpu->machine->page_frames) + 1;
    struct slub_slab *slab = slub_slab_of(page);
    sq_lock_acquire(cpu, &node->all_lock);
    slab->all_prev = 0;
    slab->all_next = node->all_first;
    if (node->all_first != 0)
        slub_slab_of(slub_frame(cpu->machine, node->all_first))->all_prev = number;
    node->all_first = number;
    node->slab_count++;
    node->object_total += slub_load(cpu, page).objects;
    sq_lock_release(cpu, &node->all_lock);
}

static void slub_all_unlink(sq_cpu *cpu, struct slub_node *node, struct sq_page *page)
{
    struct slub_slab *slab = slub_slab_of(page);
    sq_lock_acquire(cpu, &node->all_lock);
    if (slab->all_prev != 0)
        slub_slab_of(slub_frame(cpu->machine, slab->all_prev))->all_next =
            slab->all_next;
    else
        node->all_first = slab->all_next;
    if (slab->all_next != 0)
        slub_slab_of(slub_frame(cpu->machine, slab->all_next))->all_prev =
            slab->all_prev;
    node->slab_count--;
    node->object_total -= slub_load(cpu, page).objects;
    sq_lock_release(cpu, &node->all_lock);
}

/* ---- the lists; all under list_lock ---- */

static inline struct slub_node *slub_node_of(const struct slub_cache *cache,
                                             const struct sq_page *page)
{
    return cache->node[page->node];
}

static void slub_partial_add(sq_cpu *cpu, struct slub_node *node, struct sq_page *page,
                             bool at_head)
{
    uint64_t count = sq_load_relaxed(cpu, &node->partial_count);
    slub_list_assert_locked(cpu, node);
    SQ_ASSERT_INTERNAL((page->policy_flags & SLUB_PAGE_ON_LIST) == 0);
    sq_touch_write(cpu, page, sizeof(*page));
    if (at_head)
        sq_list_link_head(&page->lru, &node->partial);
    else
        sq_list_link_tail(&page->lru, &node->partial);
    sq_touch_write(cpu, at_head ? page->lru.next : page->lru.prev,
                   sizeof(struct sq_list));
    page->policy_flags |= SLUB_PAGE_ON_LIST;
    sq_store_relaxed(cpu, &node->partial_count, count + 1);
}

static void slub_partial_remove(sq_cpu *cpu, struct slub_node *node,
                                struct sq_page *page)
{
    uint64_t count = sq_load_relaxed(cpu, &node->partial_count);
    slub_list_assert_locked(cpu, node);
    SQ_ASSERT_INTERNAL((page->policy_flags & SLUB_PAGE_ON_LIST) != 0 && count > 0);
    sq_touch_write(cpu, page->lru.prev, sizeof(struct sq_list));
    sq_touch_write(cpu, page->lru.next, sizeof(struct sq_list));
    sq_list_unlink(&page->lru);
    page->policy_flags &= (uint8_t)~SLUB_PAGE_ON_LIST;
    sq_store_relaxed(cpu, &node->partial_count, count - 1);
}

/* Full slabs are on a list in caches with SLAB_STORE_USER only. */
static void slub_full_add(const struct slub_cache *cache, struct slub_node *node,
                          struct sq_page *page)
{
    if (cache->keeps_full_list)
        sq_list_link_head(&page->lru, &node->full);
}

static void slub_full_remove(const struct slub_cache *cache, struct sq_page *page)
{
    if (cache->keeps_full_list)
        sq_list_unlink(&page->lru);
}

/* After checks, which may have cleared a free list: a slab without one is no partial
 * slab. Requires the list_lock. */
static void slub_debug_settle(sq_cpu *cpu, struct slub_cache *cache,
                              struct sq_page *page)
{
    struct slub_node *node = slub_node_of(cache, page);
    if ((page->policy_flags & SLUB_PAGE_ON_LIST) == 0 ||
        slub_load(cpu, page).head != 0)
        return;
    slub_partial_remove(cpu, node, page);
    slub_full_add(cache, node, page);
}

/* Does the node hold enough partial slabs that an empty one need not be kept? Read
 * without the lock by some callers, as in the kernel. */
static bool slub_has_surplus(sq_cpu *cpu, const struct slub_cache *cache,
                             const struct slub_node *node)
{
    uint64_t count = sq_load_relaxed(cpu, &node->partial_count);
    uint64_t kept = slub_tunable(&cache->min_partial);
    return SLUB_OPTION(cache, discard_rule) == SLUB_DISCARD_ABOVE ? count > kept
                                                                  : count >= kept;
}

/* ---- slabs come and go ---- */

/*
 * Pages for a slab: the preferred order, and when that cannot be had the order of one
 * object. The first try does not wait for memory, since a second one follows.
 */
static struct sq_page *slub_slab_pages(sq_cpu *cpu, struct slub_cache *cache,
                                       int32_t node, uint32_t flags)
{
    uint32_t page_flags = ((flags & SQ_ALLOC_THISNODE) ? SQ_PAGES_THISNODE : 0) |
                          ((flags & SQ_ALLOC_NOWAIT) ? SQ_PAGES_NOWAIT : 0);
    bool has_fallback =
        SLUB_OPTION(cache, order_fallback) != 0 && cache->base.order > cache->min_order;
    struct sq_page *page =
        sq_pages_alloc(cpu, cache->base.order, node,
                       page_flags | (has_fallback ? SQ_PAGES_NOWAIT : 0));
    if (page == NULL && has_fallback) {
        page = sq_pages_alloc(cpu, cache->min_order, node, page_flags);
        if (page != NULL)
            sq_count(cpu, &cache->base, SLUB_ORDER_FALLBACK);
    }
    return page;
}

/* setup_object. */
static void slub_setup_object(sq_cpu *cpu, const struct slub_cache *cache, void *object)
{
    if (cache->base.is_debug)
        slub_debug_new_object(cpu, cache, object);
    if (cache->base.constructor != NULL)
        cache->base.constructor(&cache->base, object);
}

/* CONFIG_SLAB_FREELIST_RANDOM: chain all objects in the cache's random order, begun at
 * a random place; returns the first. A smaller slab leaves out what it has not. */
static void *slub_slab_shuffle(sq_cpu *cpu, struct slub_cache *cache,
                               struct sq_page *page, uint32_t objects)
{
    uint32_t count = cache->base.slab_object_count;
    uint32_t place = (uint32_t)(sq_random(cpu) % count);
    void *first = NULL, *previous = NULL;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t index = cache->random_order[(place + i) % count];
        void *object;
        if (index >= objects)
            continue;
        object = slub_object_at(cpu->machine, cache, page, index);
        slub_setup_object(cpu, cache, object);
        if (previous == NULL)
            first = object;
        else
            slub_set_next(cpu, cache, previous, object);
        previous = object;
    }
    slub_set_next(cpu, cache, previous, NULL);
    return first;
}

/* Chain all objects of a new slab in ascending order; returns the first. */
static void *slub_slab_thread(sq_cpu *cpu, struct slub_cache *cache,
                              struct sq_page *page, uint32_t objects)
{
    char *first = slub_object_at(cpu->machine, cache, page, 0);
    char *object = first;
    if (cache->base.is_debug)
        slub_debug_new_slab(cpu, cache, page);
    if (cache->random_order != NULL && objects >= 2)
        return slub_slab_shuffle(cpu, cache, page, objects);
    for (uint32_t i = 0; i < objects; i++, object += cache->base.size) {
        slub_setup_object(cpu, cache, object);
        slub_set_next(cpu, cache, object,
                      i + 1 < objects ? object + cache->base.size : NULL);
    }
    return first;
}

/*
 * A new slab, frozen, all its objects counted as in use and returned through `first` as
 * one free list. NULL if there is no memory.
 */
static struct sq_page *slub_slab_new(sq_cpu *cpu, struct slub_cache *cache,
                                     int32_t node, uint32_t flags, void **first)
{
    SQ_IN_SCOPE(cpu, SLUB_NEW);
    struct sq_page *page = slub_slab_pages(cpu, cache, node, flags);
    struct slub_word word = {.is_frozen = true};
    struct slub_slab *slab;
    if (page == NULL)
        return NULL;
    word.objects = page->order == cache->base.order ? cache->base.slab_object_count
                                                    : cache->min_order_objects;
    word.inuse = word.objects;
    slab = slub_slab_of(page);
    slab->cache = cache;
    sq_lock_init(&slab->lock, SQ_LOCK_SLAB);
    page->policy_flags = 0;
    *first = slub_slab_thread(cpu, cache, page, word.objects);
    sq_store_release(cpu, &slab->word, slub_pack(&word));
    slub_all_link(cpu, slub_node_of(cache, page), page);
    sq_slab_note_new(cpu, &cache->base, page);
    return page;
}

/* Give the pages of a slab back. Requires that it is on no list and nobody knows it. */
static void slub_slab_discard(sq_cpu *cpu, struct slub_cache *cache,
                              struct sq_page *page)
{
    SQ_IN_SCOPE(cpu, SLUB_DISCARD);
    slub_all_unlink(cpu, slub_node_of(cache, page), page);
    sq_slab_note_free(cpu, &cache->base, page);
    sq_pages_free(cpu, page);
}

/* ---- shrink ---- */

#define SLUB_SHRINK_PROMOTE_MAX 32u /* the kernel's SHRINK_PROMOTE_MAX */

/* Move all of `from` to the front of `list`, in order. */
static void slub_list_splice(struct sq_list *from, struct sq_list *list)
{
    if (sq_list_is_empty(from))
        return;
    from->prev->next = list->next;
    list->next->prev = from->prev;
    list->next = from->next;
    from->next->prev = list;
    sq_list_init(from);
}

/*
 * Since 3.x: slabs with 1 to 32 free objects move to the front, fewest free first; the
 * others stay where they are; empty ones go to `empty`, the last one first.
 */
static void slub_shrink_promote(sq_cpu *cpu, struct slub_node *node,
                                struct sq_list *empty)
{
    struct sq_list promoted[SLUB_SHRINK_PROMOTE_MAX];
    for (uint32_t i = 0; i < SLUB_SHRINK_PROMOTE_MAX; i++)
        sq_list_init(&promoted[i]);
    SQ_LIST_EACH_SAFE (link, following, &node->partial) {
        struct sq_page *page = slub_page_of_link(link);
        struct slub_word word = slub_load(cpu, page);
        uint32_t free_count = word.objects - word.inuse;
        if (word.inuse == 0) {
            slub_partial_remove(cpu, node, page);
            sq_list_link_head(&page->lru, empty);
        } else if (free_count >= 1 && free_count <= SLUB_SHRINK_PROMOTE_MAX) {
            sq_list_move_head(&page->lru, &promoted[free_count - 1]);
        }
    }
    for (uint32_t i = SLUB_SHRINK_PROMOTE_MAX; i-- > 0;)
        slub_list_splice(&promoted[i], &node->partial);
}

/*
 * Before that: the whole list sorted by use, fullest first, of equals the later first.
 * `by_use` has a list for each number of objects in use. Empty slabs go to `empty` in
 * the order of the list, but for those whose lock somebody holds.
 */
static void slub_shrink_sort(sq_cpu *cpu, struct slub_cache *cache,
                             struct slub_node *node, struct sq_list *by_use,
                             struct sq_list *empty)
{
    uint32_t count = cache->base.slab_object_count;
    for (uint32_t i = 0; i < count; i++)
        sq_list_init(&by_use[i]);
    SQ_LIST_EACH_SAFE (link, following, &node->partial) {
        struct sq_page *page = slub_page_of_link(link);
        uint32_t inuse = slub_load(cpu, page).inuse;
        if (inuse == 0 && slub_slab_try_lock(cpu, cache, page)) {
            slub_partial_remove(cpu, node, page);
            slub_slab_unlock(cpu, cache, page);
            sq_list_link_tail(&page->lru, empty);
        } else {
            /* corrupted debug slabs may count as full */
            sq_list_move_head(&page->lru, &by_use[inuse < count ? inuse : count - 1]);
        }
    }
    for (uint32_t i = 0; i < count; i++)
        slub_list_splice(&by_use[i], &node->partial);
}

/* The node part of shrink. `by_use` is NULL for releases that promote. */
static void slub_node_shrink(sq_cpu *cpu, struct slub_cache *cache,
                             struct slub_node *node, struct sq_list *by_use)
{
    struct sq_list empty;
    sq_list_init(&empty);
    slub_slow_begin(cpu, cache);
    cpu = slub_list_lock(cpu, node);
    if (by_use == NULL)
        slub_shrink_promote(cpu, node, &empty);
    else
        slub_shrink_sort(cpu, cache, node, by_use, &empty);
    slub_list_unlock(cpu, node);
    slub_slow_end(cpu, cache);
    SQ_LIST_EACH_SAFE (link, following, &empty) {
        sq_list_unlink(link);
        slub_slab_discard(cpu, cache, slub_page_of_link(link));
    }
}

#endif
