/*
 * The check of every structure of a cache. Each object must be in exactly one place:
 * free in its slab's bitmap, in one queue, or handed out. Every walk has a bound that
 * the machine's memory gives, so the check ends whatever it finds.
 *
 * To see an object twice, the check sets its bit while it walks the queues and clears
 * it again afterwards.
 */
#ifndef SLUBQ_CHECK_H
#define SLUBQ_CHECK_H

#include "policy/slubq_dump.h"

/* More slabs than this a node cannot have. */
static uint64_t slubq_slab_limit(const struct slubq_cache *cache)
{
    return cache->base.heap->machine->node_bytes >> SQ_PAGE_SHIFT;
}

static int slubq_bad(const struct slubq_cache *cache, struct sq_error *error,
                     const char *what, uint32_t node, uint64_t value)
{
    return sq_error_set(error, SQ_E_CORRUPTION, "cache %s, node %u: %s (%llu)",
                        cache->base.name, node, what, (unsigned long long)value);
}

/* Is this a frame of a slab of this cache and node? */
static bool slubq_is_slab(const struct slubq_cache *cache, const struct sq_page *page,
                          uint32_t n)
{
    const sq_machine *machine = cache->base.heap->machine;
    uint64_t pages_per_node = (UINT64_C(1) << machine->node_shift) >> SQ_PAGE_SHIFT;
    uint64_t offset = (uint64_t)((uintptr_t)page - (uintptr_t)machine->page_frames);
    return offset % sizeof(*page) == 0 &&
           offset / sizeof(*page) / pages_per_node == n &&
           page->state == SQ_PAGE_SLAB && page->node == n &&
           slubq_slab_const(page)->cache == &cache->base &&
           (page->order == cache->base.order || page->order == cache->min_order);
}

/* Bits that are set, or a number above any if a bit lies past the last object. */
static uint32_t slubq_count_bits(const struct slubq_cache *cache, struct sq_page *page)
{
    uint32_t objects = slubq_slab_objects(cache, page);
    const uint64_t *map = slubq_map(cache, page, objects);
    uint32_t words = (uint32_t)sq_div_ceil(objects, 64), bits = 0;
    for (uint32_t i = 0; i < words; i++)
        bits += slubq_popcount(map[i]);
    if (objects % 64 != 0 && map[words - 1] >> (objects % 64) != 0)
        return UINT32_MAX;
    return bits;
}

/* Every slab of a node: its frame, its bitmap, whether it is listed as it should be. */
static int slubq_check_slabs(const struct slubq_cache *cache, uint32_t n,
                             uint64_t *listed_count, struct sq_error *error)
{
    const struct slubq_node *node = cache->node[n];
    uint64_t slabs = 0, objects = 0;
    uint32_t number = node->chain_first, previous = 0;
    while (number != 0) {
        struct sq_page *page = slubq_chain_page(cache, number);
        bool is_listed;
        if (++slabs > slubq_slab_limit(cache) || !slubq_is_slab(cache, page, n) ||
            slubq_slab_of(page)->chain_prev != previous)
            return slubq_bad(cache, error, "the chain of slabs leads astray", n,
                             number);
        if (slubq_count_bits(cache, page) != slubq_free_count(cache, page))
            return slubq_bad(cache, error, "bitmap and count of free objects differ", n,
                             page->serial);
        is_listed = page->lru.next != &page->lru;
        if (is_listed != slubq_has_free(page))
            return slubq_bad(cache, error,
                             is_listed ? "on partial list but no object available"
                                       : "objects available but not on partial list",
                             n, page->serial);
        *listed_count += is_listed;
        objects += slubq_slab_objects(cache, page);
        previous = number;
        number = slubq_slab_of(page)->chain_next;
    }
    if (slabs != node->slab_count || objects != node->object_total)
        return slubq_bad(cache, error, "slabs do not add up", n, slabs);
    return 0;
}

static int slubq_check_partial(sq_cpu *cpu, const struct slubq_cache *cache, uint32_t n,
                               uint64_t listed_count, struct sq_error *error)
{
    const struct slubq_node *node = cache->node[n];
    const struct sq_list *previous = &node->partial;
    uint64_t count = 0;
    for (const struct sq_list *link = node->partial.next; link != &node->partial;
         previous = link, link = link->next) {
        const struct sq_page *page =
            SQ_LIST_ENTRY((uintptr_t)link, struct sq_page, lru);
        if (++count > slubq_slab_limit(cache) || !slubq_is_slab(cache, page, n) ||
            link->prev != previous)
            return slubq_bad(cache, error, "the partial list leads astray", n, count);
    }
    if (count != listed_count || count != sq_load_relaxed(cpu, &node->nr_partial))
        return slubq_bad(cache, error, "the partial list does not add up", n, count);
    return 0;
}

/* What the walk over the queues knows. */
struct slubq_queue_check {
    struct sq_error *error;
    uint64_t marked; /* objects whose bit was set by this check */
    uint64_t total;  /* ... to be visited when the marks are taken away */
    int code;
};

static int slubq_bad_queue(const struct slubq_cache *cache, struct sq_error *error,
                           const char *kind, const struct slubq_queue *queue,
                           uint32_t i, const char *what)
{
    return sq_error_set(error, SQ_E_CORRUPTION,
                        "cache %s: %s queue of node %d, entry %u of %u: %s",
                        cache->base.name, kind, queue->node, i, queue->objects, what);
}

/* Mark the objects of a queue; stop at one that cannot be there. */
static bool slubq_mark_queue(struct slubq_cache *cache, struct slubq_queue *queue,
                             const char *kind, void *argument)
{
    struct slubq_queue_check *check = argument;
    if (queue->objects > queue->max) {
        check->code = slubq_bad_queue(cache, check->error, kind, queue, queue->max,
                                      "more entries than it holds");
        return false;
    }
    for (uint32_t i = 0; i < queue->objects; i++) {
        struct sq_object_place place;
        uint64_t *word, bit;
        const char *what = NULL;
        if (!slubq_locate(&cache->base, queue->object[i], &place)) {
            what = "no object of this cache";
        } else {
            word = &slubq_map(cache, place.page,
                              slubq_slab_objects(cache, place.page))[place.index / 64];
            bit = UINT64_C(1) << (place.index % 64);
            if (*word & bit)
                what = "free in its slab or queued twice";
            *word |= bit;
        }
        if (what != NULL) {
            check->code = slubq_bad_queue(cache, check->error, kind, queue, i, what);
            return false;
        }
        check->marked++;
    }
    return true;
}

/* Take the marks away again, as many as were made. */
static bool slubq_unmark_queue(struct slubq_cache *cache, struct slubq_queue *queue,
                               const char *kind, void *argument)
{
    struct slubq_queue_check *check = argument;
    (void)kind;
    for (uint32_t i = 0; i < queue->objects && check->marked > 0; i++) {
        struct sq_page *page =
            sq_page_of_address(cache->base.heap->machine, queue->object[i]);
        uint32_t index = slubq_index(cache, page, queue->object[i]);
        slubq_map(cache, page, slubq_slab_objects(cache, page))[index / 64] &=
            ~(UINT64_C(1) << (index % 64));
        check->marked--;
    }
    return check->marked > 0;
}

static int slubq_check(sq_cpu *cpu, sq_cache *base, struct sq_error *error)
{
    struct slubq_cache *cache = slubq_cache_of(base);
    struct slubq_queue_check check = {.error = error};
    for (uint32_t n = 0; n < slubq_topology(cache)->node_count; n++) {
        uint64_t listed_count = 0;
        int code = slubq_check_slabs(cache, n, &listed_count, error);
        if (code == 0)
            code = slubq_check_partial(cpu, cache, n, listed_count, error);
        if (code != 0)
            return code;
    }
    (void)slubq_each_queue(cache, slubq_mark_queue, &check);
    if (check.marked > 0)
        (void)slubq_each_queue(cache, slubq_unmark_queue, &check);
    return check.code;
}

#endif
