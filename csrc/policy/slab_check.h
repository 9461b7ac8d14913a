/*
 * slab_check.h -- does everything hold together? Included by slab.c.
 *
 * Three passes, each of which ends on any memory contents: every slab list, slab and
 * free chain; every queue; then, slab by slab, each queued object against the free
 * chain and the other queues. Pointers are looked at before they are followed: they
 * must lie in the machine, and a list may not be longer than its node counts. Nothing
 * is allocated, since the machine may have no memory left.
 */
#ifndef SQ_SLAB_CHECK_H
#define SQ_SLAB_CHECK_H

#include "policy/slab_cache.h"
#include "policy/slab_management.h"

/* One check under way; the cache's `check_bits` has one bit an object of a slab. */
struct slab_checker {
    sq_cpu *cpu;
    struct slab_cache *cache;
    struct sq_error *error;
    struct slab *slab; /* third pass: the one that is looked at */
    uint64_t queued_count, marked_count;
};

#define CHECK_FAIL(checker, ...)                                                       \
    sq_error_set((checker)->error, SQ_E_CORRUPTION, __VA_ARGS__)

/* Can a slab's descriptor lie here? In a page frame later, in the arena before. */
static bool slab_may_lie_at(const struct slab_cache *cache, const struct slab *slab)
{
    const sq_machine *machine = slab_machine(cache);
    uintptr_t frames = (uintptr_t)machine->page_frames, at = (uintptr_t)slab;
    uint64_t frames_end = frames + ((uint64_t)machine->topology.node_count
                                    << (machine->node_shift - SQ_PAGE_SHIFT)) *
                                       sizeof(struct sq_page);
    if (at % sizeof(void *) != 0)
        return false;
    if (cache->is_classic)
        return sq_machine_owns(machine, slab) &&
               sq_machine_owns(machine, (const char *)slab + sizeof(*slab) - 1);
    return at >= frames && at < frames_end &&
           (at - frames) % sizeof(struct sq_page) == offsetof(struct sq_page, lru);
}

/* The page of an object of this cache, or NULL if `object` is not one. */
static struct sq_page *slab_page_of_object(struct slab_cache *cache, const void *object,
                                           uint32_t *index)
{
    const sq_machine *machine = slab_machine(cache);
    struct sq_page *page;
    struct slab *slab;
    uint64_t offset;
    if (!sq_machine_owns(machine, object))
        return NULL;
    page = sq_page_of_address(machine, object);
    if (page->state != SQ_PAGE_SLAB || slab_cache_of_page(page) != &cache->base)
        return NULL;
    slab = slab_of_page(cache, page);
    if (!slab_may_lie_at(cache, slab))
        return NULL;
    offset = (uint64_t)((uintptr_t)object - (uintptr_t)slab->first_object);
    if ((const char *)object < slab->first_object || offset % cache->base.size != 0 ||
        offset / cache->base.size >= cache->geometry.object_count)
        return NULL;
    *index = (uint32_t)(offset / cache->base.size);
    return page;
}

/* ---- pass 1: lists, slabs, free chains ---- */

static bool bit_test_and_set(uint64_t *bits, uint32_t index)
{
    uint64_t bit = UINT64_C(1) << (index % 64);
    bool was_set = (bits[index / 64] & bit) != 0;
    bits[index / 64] |= bit;
    return was_set;
}

/* Do indexes of the whole slab lie in memory? */
static bool slab_owns_indexes(const struct slab_cache *cache, struct slab *slab)
{
    const sq_machine *machine = slab_machine(cache);
    uint32_t count = cache->geometry.object_count;
    const char *first = cache->is_classic ? (const char *)slab_bufctl(slab)
                                          : (const char *)slab->index_stack;
    size_t bytes = cache->is_classic ? (size_t)count * BUFCTL_BYTES : count;
    return sq_machine_owns(machine, first) &&
           sq_machine_owns(machine, first + bytes - 1);
}

/* Walk the free objects of a slab and mark each in `check_bits`. */
static int check_free_chain(struct slab_checker *checker, struct slab *slab,
                            uint32_t serial)
{
    struct slab_cache *cache = checker->cache;
    uint32_t count = cache->geometry.object_count, free_count = count - slab->inuse;
    uint32_t index = slab->free;
    memset(cache->check_bits, 0, ((size_t)count + 63) / 64 * sizeof(uint64_t));
    if (free_count > 0 && !slab_owns_indexes(cache, slab))
        return CHECK_FAIL(checker, "cache %.60s: slab %u has no memory for its indexes",
                          cache->base.name, serial);
    for (uint32_t i = 0; i < free_count; i++) {
        if (!cache->is_classic)
            index = slab->index_stack[slab->inuse + i];
        if (index >= count || bit_test_and_set(cache->check_bits, index))
            return CHECK_FAIL(
                checker, "cache %.60s: slab %u: free entry %u is object %u, which %s",
                cache->base.name, serial, i, index,
                index >= count ? "does not exist" : "was free already");
        if (cache->is_classic)
            index = slab_bufctl(slab)[index];
    }
    if (cache->is_classic && index != BUFCTL_END)
        return CHECK_FAIL(
            checker, "cache %.60s: slab %u counts %u free objects, its chain has more",
            cache->base.name, serial, free_count);
    return SQ_OK;
}

/* Check one slab of the list for slabs with `inuse_min` to `inuse_max` objects in use.
 */
static int check_slab(struct slab_checker *checker, const struct slab_node *node,
                      struct slab *slab, uint32_t inuse_min, uint32_t inuse_max)
{
    struct slab_cache *cache = checker->cache;
    struct sq_page *page;
    char *base;
    if (!sq_machine_owns(slab_machine(cache), slab->first_object))
        return CHECK_FAIL(checker, "cache %.60s: node %u: a slab's objects start at %p",
                          cache->base.name, node->index, (void *)slab->first_object);
    page = slab_page_of(cache, slab);
    base = sq_page_address(slab_machine(cache), page);
    if (page->state != SQ_PAGE_SLAB || slab_cache_of_page(page) != &cache->base ||
        slab_of_page(cache, page) != slab || page->order != cache->geometry.order)
        return CHECK_FAIL(
            checker,
            "cache %.60s: node %u: the page frame at %p does not lead back "
            "to its slab",
            cache->base.name, node->index, (void *)base);
    if (page->node != node->index || (cache->is_classic && slab->node != node->index))
        return CHECK_FAIL(checker,
                          "cache %.60s: slab %u of node %u is listed on node %u",
                          cache->base.name, page->serial, page->node, node->index);
    if (slab->first_object + (size_t)cache->geometry.object_count * cache->base.size >
        base + ((size_t)SQ_PAGE_SIZE << page->order))
        return CHECK_FAIL(checker, "cache %.60s: slab %u: its objects pass its end",
                          cache->base.name, page->serial);
    if (slab->inuse < inuse_min || slab->inuse > inuse_max)
        return CHECK_FAIL(
            checker,
            "cache %.60s: slab %u has %u objects in use: its list takes %u "
            "to %u",
            cache->base.name, page->serial, slab->inuse, inuse_min, inuse_max);
    return check_free_chain(checker, slab, page->serial);
}

/* What a walk over lists finds in them. */
struct slab_sums {
    uint64_t slabs, free_objects;
};

/* A function that looks at one slab, whose free objects are marked. */
typedef int slab_visitor(struct slab_checker *checker, struct slab *slab);

static int check_list(struct slab_checker *checker, struct slab_node *node,
                      struct sq_list *list, uint32_t inuse_min, uint32_t inuse_max,
                      slab_visitor *visit, struct slab_sums *sums)
{
    struct sq_list *before = list;
    for (struct sq_list *entry = list->next; entry != list; entry = entry->next) {
        struct slab *slab = SQ_LIST_ENTRY(entry, struct slab, list);
        int status;
        if (++sums->slabs > node->total_slabs)
            return CHECK_FAIL(
                checker, "cache %.60s: node %u counts %llu slabs, its lists have more",
                checker->cache->base.name, node->index,
                (unsigned long long)node->total_slabs);
        if (!slab_may_lie_at(checker->cache, slab) || entry->prev != before)
            return CHECK_FAIL(checker,
                              "cache %.60s: node %u: a slab list is broken at %p",
                              checker->cache->base.name, node->index, (void *)entry);
        status = check_slab(checker, node, slab, inuse_min, inuse_max);
        if (status == SQ_OK && visit != NULL)
            status = visit(checker, slab);
        if (status != SQ_OK)
            return status;
        sums->free_objects += checker->cache->geometry.object_count - slab->inuse;
        before = entry;
    }
    if (list->prev != before)
        return CHECK_FAIL(checker, "cache %.60s: node %u: a slab list does not close",
                          checker->cache->base.name, node->index);
    return SQ_OK;
}

/* All three lists of a node, and what they add up to. */
static int check_node_lists(struct slab_checker *checker, struct slab_node *node,
                            slab_visitor *visit)
{
    struct slab_sums sums = {0, 0};
    uint32_t count = checker->cache->geometry.object_count;
    uint64_t free_slabs, free_objects = node_free_objects(checker->cpu, node);
    int status = check_list(checker, node, &node->full, count, count, visit, &sums);
    if (status == SQ_OK)
        status = check_list(checker, node, &node->partial, 1, count - 1, visit, &sums);
    free_slabs = sums.slabs;
    if (status == SQ_OK)
        status = check_list(checker, node, &node->free, 0, 0, visit, &sums);
    if (status != SQ_OK)
        return status;
    free_slabs = sums.slabs - free_slabs;
    if (sums.slabs != node->total_slabs || free_slabs != node->free_slabs ||
        sums.free_objects != free_objects)
        return CHECK_FAIL(
            checker,
            "cache %.60s: node %u counts %llu slabs, %llu free ones, %llu "
            "free objects: there are %llu, %llu, %llu",
            checker->cache->base.name, node->index,
            (unsigned long long)node->total_slabs, (unsigned long long)node->free_slabs,
            (unsigned long long)free_objects, (unsigned long long)sums.slabs,
            (unsigned long long)free_slabs, (unsigned long long)sums.free_objects);
    return SQ_OK;
}

/* ---- the queues ---- */

/* A function that looks at one queue: `what` of `owner`, for objects of `node`. */
typedef int array_visitor(struct slab_checker *checker, const struct array_cache *array,
                          const char *what, uint32_t owner, uint32_t node);

static int check_each_array(struct slab_checker *checker, array_visitor *visit)
{
    struct slab_cache *cache = checker->cache;
    const struct sq_topology *topology = &slab_machine(cache)->topology;
    int status = SQ_OK;
    for (uint32_t i = 0; i < topology->cpu_count && status == SQ_OK; i++)
        status =
            visit(checker, slab_array_of(cache, i), "cpu", i, topology->node_of_cpu[i]);
    for (uint32_t i = 0; i < topology->node_count && status == SQ_OK; i++) {
        struct slab_node *node = cache->node[i];
        if (node->shared != NULL)
            status = visit(checker, node->shared, "shared node", i, i);
        for (uint32_t j = 0; j < topology->node_count && status == SQ_OK; j++)
            if (node->alien[j] != NULL)
                status =
                    visit(checker, alien_array(node->alien[j]), "alien node", i, j);
    }
    return status;
}

/* Pass 2: no array holds more than it may, every entry is an object of the right node.
 */
static int array_check(struct slab_checker *checker, const struct array_cache *array,
                       const char *what, uint32_t owner, uint32_t node)
{
    struct slab_cache *cache = checker->cache;
    if (array->avail > array->limit)
        return CHECK_FAIL(checker, "cache %.60s: array of %s %u holds %u of %u objects",
                          cache->base.name, what, owner, array->avail, array->limit);
    for (uint32_t i = 0; i < array->avail; i++) {
        uint32_t index;
        struct sq_page *page = slab_page_of_object(cache, array->entry[i], &index);
        if (page == NULL || page->node != node)
            return CHECK_FAIL(checker,
                              "cache %.60s: array of %s %u: entry %u, %p, is no object "
                              "of this cache on node %u",
                              cache->base.name, what, owner, i, array->entry[i], node);
    }
    checker->queued_count += array->avail;
    return SQ_OK;
}

/* ---- pass 3: each object once ---- */

/* Mark the queued objects of one slab; one that is marked is free as well, or queued
 * twice. */
static int array_mark(struct slab_checker *checker, const struct array_cache *array,
                      const char *what, uint32_t owner, uint32_t node)
{
    struct slab_cache *cache = checker->cache;
    struct slab *slab = checker->slab;
    uint64_t bytes = (uint64_t)cache->geometry.object_count * cache->base.size;
    struct sq_page *page = slab_page_of(cache, slab);
    if (page->node != node)
        return SQ_OK;
    for (uint32_t i = 0; i < array->avail; i++) {
        uint32_t index;
        if ((uintptr_t)array->entry[i] - (uintptr_t)slab->first_object >= bytes)
            continue;
        index = slab_index_of(cache, slab, array->entry[i]);
        if (bit_test_and_set(cache->check_bits, index))
            return CHECK_FAIL(
                checker,
                "cache %.60s: array of %s %u: object %u of slab %u is also "
                "queued elsewhere or free in its slab",
                cache->base.name, what, owner, index, page->serial);
        checker->marked_count++;
    }
    return SQ_OK;
}

static int check_queued_of_slab(struct slab_checker *checker, struct slab *slab)
{
    checker->slab = slab;
    return check_each_array(checker, array_mark);
}

/* ---- all of it ---- */

static int check_all_lists(struct slab_checker *checker, slab_visitor *visit)
{
    int status = SQ_OK;
    for (uint32_t i = 0; i < slab_machine(checker->cache)->topology.node_count; i++) {
        status = check_node_lists(checker, checker->cache->node[i], visit);
        if (status != SQ_OK)
            break;
    }
    return status;
}

/* ops->check */
static int slab_check(sq_cpu *cpu, sq_cache *base, struct sq_error *error)
{
    struct slab_cache *cache = slab_cache_of(base);
    struct slab_checker checker = {.cpu = cpu, .cache = cache, .error = error};
    int status = check_all_lists(&checker, NULL);
    if (status == SQ_OK)
        status = check_each_array(&checker, array_check);
    if (status == SQ_OK)
        status = check_all_lists(&checker, check_queued_of_slab);
    if (status == SQ_OK && checker.marked_count != checker.queued_count)
        return CHECK_FAIL(&checker,
                          "cache %.60s: %llu objects are queued, %llu of them in slabs "
                          "that are on a list",
                          base->name, (unsigned long long)checker.queued_count,
                          (unsigned long long)checker.marked_count);
    return status;
}

#endif
