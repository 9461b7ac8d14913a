/*
 * The part of check() that looks at objects outside of slabs: those in sheaves. For its
 * slab such an object is in use. Every one must be an object of the cache, must be in
 * one sheaf only, and must not be free in its slab besides. All are gathered in memory
 * of the host, sorted by address, and each free object of each slab is looked for among
 * them.
 */
#ifndef SLUB_OUTSIDE_H
#define SLUB_OUTSIDE_H

#include "policy/slub_check.h"

#include <stdlib.h>

struct slub_outside {
    const struct slub_checker *checker;
    uintptr_t *object;
    size_t count, capacity;
};

static int slub_outside_fail(const struct slub_outside *outside, const char *what)
{
    return sq_error_set(outside->checker->error, SQ_E_CORRUPTION, "cache %.60s: %s",
                        outside->checker->cache->base.name, what);
}

/* May `sheaf` be read as one, all of its capacity? It is a piece of meta memory. */
static bool slub_outside_is_sheaf(const struct slub_outside *outside,
                                  const struct sq_sheaf *sheaf)
{
    const sq_machine *machine = outside->checker->cpu->machine;
    const void *end;
    if ((uintptr_t)sheaf % SQ_LINE_SIZE != 0 || !sq_machine_owns(machine, sheaf) ||
        sq_page_of_address(machine, sheaf)->state != SQ_PAGE_META ||
        sheaf->capacity > SLUB_SHEAF_CAPACITY_MAX || sheaf->size > sheaf->capacity)
        return false;
    end = (const char *)&sheaf->object[sheaf->capacity] - 1;
    return sq_machine_owns(machine, end) &&
           sq_node_of_address(machine, end) == sq_node_of_address(machine, sheaf);
}

/* Note the objects of one sheaf. */
static int slub_outside_add(struct slub_outside *outside, const struct sq_sheaf *sheaf)
{
    if (!slub_outside_is_sheaf(outside, sheaf))
        return slub_outside_fail(outside, "a sheaf is none");
    if (outside->count + sheaf->size > outside->capacity) {
        size_t capacity = 2 * outside->capacity + sheaf->size;
        uintptr_t *larger = calloc(capacity, sizeof(*larger));
        if (larger == NULL)
            return sq_error_set(outside->checker->error, SQ_E_MEMORY,
                                "the host has no memory to check cache %.60s",
                                outside->checker->cache->base.name);
        if (outside->count > 0)
            memcpy(larger, outside->object, outside->count * sizeof(*larger));
        free(outside->object);
        outside->object = larger;
        outside->capacity = capacity;
    }
    for (uint32_t i = 0; i < sheaf->size; i++)
        outside->object[outside->count++] = (uintptr_t)sheaf->object[i];
    return SQ_OK;
}

/* Note the objects of a list of sheaves; `count` is how many they are. Back links are
 * looked at, so that the walk ends. */
static int slub_outside_add_list(struct slub_outside *outside,
                                 const struct sq_list *list, uint64_t *count)
{
    const struct sq_list *previous = list;
    *count = 0;
    for (const struct sq_list *link = list->next; link != list; link = link->next) {
        const struct sq_sheaf *sheaf = SQ_LIST_ENTRY(link, struct sq_sheaf, link);
        int status;
        if (!slub_outside_is_sheaf(outside, sheaf) || link->prev != previous)
            return slub_outside_fail(outside, "a list of sheaves leads astray");
        status = slub_outside_add(outside, sheaf);
        if (status != SQ_OK)
            return status;
        previous = link;
        ++*count;
    }
    return SQ_OK;
}

static int slub_outside_compare(const void *a, const void *b)
{
    uintptr_t first = *(const uintptr_t *)a, second = *(const uintptr_t *)b;
    return (first > second) - (first < second);
}

/* Is the object among those outside, which are sorted? */
static bool slub_outside_has(const struct slub_outside *outside, const void *object)
{
    size_t first = 0, end = outside->count;
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (outside->object[middle] < (uintptr_t)object)
            first = middle + 1;
        else
            end = middle;
    }
    return first < outside->count && outside->object[first] == (uintptr_t)object;
}

/* Each is an object of the cache, and there once. */
static int slub_outside_check_objects(struct slub_outside *outside)
{
    sq_cache *base = &outside->checker->cache->base;
    struct sq_object_place place;
    if (outside->count > 0)
        qsort(outside->object, outside->count, sizeof(uintptr_t), slub_outside_compare);
    for (size_t i = 0; i < outside->count; i++) {
        if (!slub_locate(base, (const void *)outside->object[i], &place))
            return slub_outside_fail(outside, "a sheaf holds what is no object of it");
        if (i > 0 && outside->object[i] == outside->object[i - 1])
            return slub_check_fail(outside->checker, place.page,
                                   "an object is in sheaves twice");
    }
    return SQ_OK;
}

/* None of the free objects from `first` on is outside. Requires a sound list. */
static int slub_outside_check_list(const struct slub_outside *outside,
                                   const struct sq_page *page, void *first)
{
    for (; first != NULL; first = slub_peek_next(outside->checker->cache, first))
        if (slub_outside_has(outside, first))
            return slub_check_fail(outside->checker, page,
                                   "an object is in a sheaf and free");
    return SQ_OK;
}

/* The free objects of all slabs, and of the CPUs that own some, are not outside. */
static int slub_outside_check_slabs(const struct slub_outside *outside)
{
    sq_cpu *cpu = outside->checker->cpu;
    const struct slub_cache *cache = outside->checker->cache;
    int status = SQ_OK;
    for (uint32_t i = 0; i < cpu->machine->topology.node_count; i++) {
        uint32_t number = cache->node[i]->all_first;
        while (number != 0 && status == SQ_OK) {
            const struct sq_page *page = slub_frame(cpu->machine, number);
            struct slub_word word = slub_load(cpu, page);
            status = slub_outside_check_list(outside, page,
                                             slub_head_object(cpu, cache, page, &word));
            number = slub_slab_of(page)->all_next;
        }
    }
    for (uint32_t i = 0; i < cpu->machine->topology.cpu_count; i++) {
        const struct slub_cpu *local = sq_percpu_at(&cache->percpu, i);
        if (local->slab != NULL && status == SQ_OK)
            status = slub_outside_check_list(outside, local->slab, local->free.first);
    }
    return status;
}

/* With all sheaves noted but those that callers hold, which are noted here. Requires
 * that SLUB's own check found nothing. */
static int slub_outside_check(struct slub_outside *outside)
{
    uint64_t held;
    int status = slub_outside_add_list(outside, &outside->checker->cache->held, &held);
    if (status == SQ_OK)
        status = slub_outside_check_objects(outside);
    if (status == SQ_OK && outside->count > 0)
        status = slub_outside_check_slabs(outside);
    return status;
}

#endif
