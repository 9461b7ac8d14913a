/*
 * check() of SLUB. Every slab is walked once through its node's chain of all slabs,
 * then every list; a slab must be exactly where its word says. Each pointer is looked
 * at before it is followed and each walk is bounded, so that a check of corrupted
 * structures ends with a message.
 *
 *   owned by a CPU          frozen
 *   on a CPU partial list   frozen to 6.7, not since; free objects
 *   on a node's list        not frozen, free objects, SLUB_PAGE_ON_LIST
 *   on none of them         not frozen, full
 */
#ifndef SLUB_CHECK_H
#define SLUB_CHECK_H

#include "policy/slub_dump.h"

struct slub_checker {
    sq_cpu *cpu;
    struct slub_cache *cache;
    struct sq_error *error;
};

/* Free objects of one slab seen so far: one bit an object. */
struct slub_seen {
    uint64_t bits[(SLUB_OBJECTS_MAX_2_6_26 + 1) / 64];
};

static int slub_check_fail(const struct slub_checker *checker,
                           const struct sq_page *page, const char *what)
{
    return sq_error_set(checker->error, SQ_E_CORRUPTION,
                        "cache %.60s, slab %u on node %u: %s",
                        checker->cache->base.name, page->serial, page->node, what);
}

static int slub_check_fail_node(const struct slub_checker *checker, uint32_t index,
                                const char *what)
{
    return sq_error_set(checker->error, SQ_E_CORRUPTION, "cache %.60s, node %u: %s",
                        checker->cache->base.name, index, what);
}

/* Is `page` a frame of this machine that is a slab of this cache? */
static bool slub_check_is_slab(const struct slub_checker *checker,
                               const struct sq_page *page)
{
    const sq_machine *machine = checker->cpu->machine;
    uint64_t frames = (uint64_t)machine->topology.node_count
                      << (machine->node_shift - SQ_PAGE_SHIFT);
    uint64_t offset =
        (uint64_t)(uintptr_t)page - (uint64_t)(uintptr_t)machine->page_frames;
    return offset / sizeof(*page) < frames && offset % sizeof(*page) == 0 &&
           page->state == SQ_PAGE_SLAB && slub_slab_of(page)->cache == checker->cache;
}

/* Walk one free list of a slab; every object is the slab's and was not seen before. */
static int slub_check_list(const struct slub_checker *checker,
                           const struct sq_page *page, uint32_t objects, void *first,
                           struct slub_seen *seen, uint32_t *length)
{
    *length = 0;
    while (first != NULL) {
        uint32_t index = slub_index_checked(checker->cpu->machine, checker->cache, page,
                                            objects, first);
        if (index == objects)
            return slub_check_fail(
                checker, page, "a free list leads to what is no object of the slab");
        if ((seen->bits[index / 64] >> (index % 64) & 1) != 0)
            return slub_check_fail(checker, page, "an object is free twice");
        seen->bits[index / 64] |= UINT64_C(1) << (index % 64);
        ++*length;
        first = slub_peek_next(checker->cache, first);
    }
    return SQ_OK;
}

/* The CPU whose slab this is, or NULL; an error if there are two. */
static int slub_check_owner(const struct slub_checker *checker,
                            const struct sq_page *page, const struct slub_cpu **owner)
{
    *owner = NULL;
    for (uint32_t i = 0; i < checker->cpu->machine->topology.cpu_count; i++) {
        const struct slub_cpu *local = sq_percpu_at(&checker->cache->percpu, i);
        if (local->slab != page)
            continue;
        if (*owner != NULL)
            return slub_check_fail(checker, page, "two CPUs own it");
        *owner = local;
    }
    return SQ_OK;
}

/* A slab by itself: its word, its free lists, its owner. */
static int slub_check_slab(const struct slub_checker *checker, struct sq_page *page,
                           uint32_t node_index)
{
    struct slub_word word = slub_load(checker->cpu, page);
    uint32_t objects = page->order == checker->cache->base.order
                           ? checker->cache->base.slab_object_count
                           : checker->cache->min_order_objects;
    uint32_t free_count, queued = 0;
    const struct slub_cpu *owner;
    struct slub_seen seen = {{0}};
    int status = slub_check_owner(checker, page, &owner);
    if (status != SQ_OK)
        return status;
    if (page->node != node_index)
        return slub_check_fail(checker, page, "it is on another node's chain");
    if (word.objects != objects || word.inuse > objects || word.head > objects)
        return slub_check_fail(checker, page, "its counts cannot be");
    status =
        slub_check_list(checker, page, objects,
                        slub_head_object(checker->cpu, checker->cache, page, &word),
                        &seen, &free_count);
    if (status == SQ_OK && owner != NULL)
        status =
            slub_check_list(checker, page, objects, owner->free.first, &seen, &queued);
    if (status != SQ_OK)
        return status;
    if (free_count + word.inuse != objects || queued > word.inuse)
        return slub_check_fail(checker, page, "free objects and inuse do not add up");
    if (owner != NULL && !word.is_frozen)
        return slub_check_fail(checker, page, "a CPU owns it but it is not frozen");
    page->policy_flags &= (uint8_t)~SLUB_PAGE_SEEN;
    if (owner != NULL)
        page->policy_flags |= SLUB_PAGE_SEEN;
    return SQ_OK;
}

/* All slabs of a node by themselves, and the node's sums. */
static int slub_check_all(const struct slub_checker *checker, uint32_t index)
{
    const sq_machine *machine = checker->cpu->machine;
    const struct slub_node *node = checker->cache->node[index];
    uint64_t slabs = 0, objects = 0;
    uint32_t number = node->all_first;
    while (number != 0) {
        struct sq_page *page = slub_frame(machine, number);
        int status;
        if (!slub_check_is_slab(checker, page) || ++slabs > node->slab_count)
            return slub_check_fail_node(checker, index,
                                        "the chain of all slabs leads astray");
        status = slub_check_slab(checker, page, index);
        if (status != SQ_OK)
            return status;
        objects += slub_load(checker->cpu, page).objects;
        number = slub_slab_of(page)->all_next;
    }
    if (slabs != node->slab_count || objects != node->object_total)
        return slub_check_fail_node(checker, index,
                                    "slabs or objects are not as many as counted");
    return SQ_OK;
}

/* A slab found on a list: found once, and as its word says. */
static int slub_check_listed(const struct slub_checker *checker, struct sq_page *page,
                             bool is_frozen, bool on_node_list, bool is_full)
{
    struct slub_word word = slub_load(checker->cpu, page);
    if ((page->policy_flags & SLUB_PAGE_SEEN) != 0)
        return slub_check_fail(checker, page, "it is in two places");
    page->policy_flags |= SLUB_PAGE_SEEN;
    if (word.is_frozen != is_frozen)
        return slub_check_fail(checker, page, "frozen is wrong for the list it is on");
    if (((page->policy_flags & SLUB_PAGE_ON_LIST) != 0) != on_node_list)
        return slub_check_fail(checker, page,
                               "its flag is wrong for the list it is on");
    if ((word.head == 0) != is_full)
        return slub_check_fail(checker, page, "it is on a list of the other kind");
    return SQ_OK;
}

static int slub_check_node_list(const struct slub_checker *checker, uint32_t index,
                                const struct sq_list *list, bool is_full,
                                uint64_t *count)
{
    const struct slub_node *node = checker->cache->node[index];
    const struct sq_list *previous = list;
    *count = 0;
    for (const struct sq_list *link = list->next; link != list; link = link->next) {
        struct sq_page *page = slub_page_of_link(link);
        int status;
        if (!slub_check_is_slab(checker, page) || link->prev != previous ||
            page->node != index || ++*count > node->slab_count)
            return slub_check_fail_node(checker, index, "a list of slabs leads astray");
        status = slub_check_listed(checker, page, false, !is_full, is_full);
        if (status != SQ_OK)
            return status;
        previous = link;
    }
    return SQ_OK;
}

static int slub_check_node_lists(const struct slub_checker *checker, uint32_t index)
{
    const struct slub_node *node = checker->cache->node[index];
    uint64_t partial = 0, full = 0;
    int status = slub_check_node_list(checker, index, &node->partial, false, &partial);
    if (status == SQ_OK)
        status = slub_check_node_list(checker, index, &node->full, true, &full);
    if (status == SQ_OK &&
        partial != sq_load_relaxed(checker->cpu, &node->partial_count))
        return slub_check_fail_node(checker, index,
                                    "nr_partial is not the length of the list");
    return status;
}

/* A CPU's partial list; `slab_count` of each slab counts those from it to the end. */
static int slub_check_cpu(const struct slub_checker *checker, uint32_t index)
{
    const struct slub_cache *cache = checker->cache;
    const struct slub_cpu *local = sq_percpu_at(&cache->percpu, index);
    uint32_t left = 0;
    if ((local->slab != NULL && !slub_check_is_slab(checker, local->slab)) ||
        (local->slab == NULL && local->free.first != NULL))
        return sq_error_set(checker->error, SQ_E_CORRUPTION,
                            "cache %.60s, CPU %u: its slab is none", cache->base.name,
                            index);
    for (struct sq_page *page = local->partial; page != NULL;
         page = slub_chain_of(page)->next) {
        const struct slub_chain *chain = slub_chain_of(page);
        bool is_slab = slub_check_is_slab(checker, page);
        int status;
        if (is_slab && page == local->partial)
            left = chain->slab_count;
        if (!is_slab || left == 0 || chain->slab_count != left--)
            return sq_error_set(checker->error, SQ_E_CORRUPTION,
                                "cache %.60s, CPU %u: its partial list leads astray",
                                cache->base.name, index);
        status = slub_check_listed(
            checker, page, SLUB_OPTION(cache, cpu_partial_frozen) != 0, false, false);
        if (status != SQ_OK)
            return status;
    }
    if (left != 0)
        return sq_error_set(checker->error, SQ_E_CORRUPTION,
                            "cache %.60s, CPU %u: its partial list ends early",
                            cache->base.name, index);
    return SQ_OK;
}

/* Slabs that no list and no CPU has are full, and nobody owns them. */
static int slub_check_unlisted(const struct slub_checker *checker, uint32_t index)
{
    uint32_t number = checker->cache->node[index]->all_first;
    while (number != 0) {
        const struct sq_page *page = slub_frame(checker->cpu->machine, number);
        struct slub_word word = slub_load(checker->cpu, page);
        if ((page->policy_flags & SLUB_PAGE_SEEN) == 0 &&
            (word.head != 0 || word.is_frozen ||
             (page->policy_flags & SLUB_PAGE_ON_LIST) != 0))
            return slub_check_fail(checker, page, "it is not full but on no list");
        number = slub_slab_of(page)->all_next;
    }
    return SQ_OK;
}

/* All slabs and all lists of slabs. */
static int slub_check_slabs(const struct slub_checker *checker)
{
    const struct sq_topology *topology = &checker->cpu->machine->topology;
    int status = SQ_OK;
    for (uint32_t i = 0; i < topology->node_count && status == SQ_OK; i++)
        status = slub_check_all(checker, i);
    for (uint32_t i = 0; i < topology->cpu_count && status == SQ_OK; i++)
        status = slub_check_cpu(checker, i);
    for (uint32_t i = 0; i < topology->node_count && status == SQ_OK; i++)
        status = slub_check_node_lists(checker, i);
    for (uint32_t i = 0; i < topology->node_count && status == SQ_OK; i++)
        status = slub_check_unlisted(checker, i);
    return status;
}

#endif
