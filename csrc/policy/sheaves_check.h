/*
 * check() of sheaves: SLUB's own first, then pairs and barns, then every object that is
 * in a sheaf (slub_outside.h). Nothing is followed before it was looked at.
 *
 *   main     of the cache's capacity
 *   spare    the same; empty or full but for one that was returned in between
 *   barn     as many sheaves as counted, full ones full, empty ones empty
 */
#ifndef SHEAVES_CHECK_H
#define SHEAVES_CHECK_H

#include "policy/sheaves_dump.h"
#include "policy/slub_outside.h"

/* Note a sheaf that must have the cache's capacity. */
static int sheaves_check_sheaf(struct slub_outside *outside,
                               const struct sheaves_cache *cache,
                               const struct sq_sheaf *sheaf)
{
    if (!slub_outside_is_sheaf(outside, sheaf) || sheaf->capacity != cache->capacity)
        return slub_outside_fail(outside, "a CPU's sheaf is none of the cache");
    return slub_outside_add(outside, sheaf);
}

static int sheaves_check_pairs(struct slub_outside *outside,
                               const struct sheaves_cache *cache)
{
    int status = SQ_OK;
    for (uint32_t i = 0; i < outside->checker->cpu->machine->topology.cpu_count; i++) {
        const struct sheaves_cpu *local = sq_percpu_at(&cache->percpu, i);
        if (status == SQ_OK)
            status = sheaves_check_sheaf(outside, cache, local->main);
        if (status == SQ_OK && local->spare == local->main)
            status = slub_outside_fail(outside, "a CPU's main sheaf is its spare too");
        if (status == SQ_OK && local->spare != NULL)
            status = sheaves_check_sheaf(outside, cache, local->spare);
    }
    return status;
}

/* One list of a barn: as long as counted, and every sheaf holds `size` objects. */
static int sheaves_check_barn_list(struct slub_outside *outside,
                                   const struct sheaves_cache *cache,
                                   const struct sq_list *list, const sq_atomic *counted,
                                   uint32_t size)
{
    uint64_t count;
    int status = slub_outside_add_list(outside, list, &count);
    if (status != SQ_OK)
        return status;
    if (count != sq_load_relaxed(outside->checker->cpu, counted))
        return slub_outside_fail(outside, "a barn has not the sheaves it counts");
    SQ_LIST_EACH (link, list) {
        const struct sq_sheaf *sheaf = sheaves_of_link(link);
        if (sheaf->capacity != cache->capacity || sheaf->size != size)
            return slub_outside_fail(
                outside, "a sheaf of a barn is neither full nor empty, as its list is");
    }
    return SQ_OK;
}

static int sheaves_check_barns(struct slub_outside *outside,
                               const struct sheaves_cache *cache)
{
    int status = SQ_OK;
    for (uint32_t i = 0; i < outside->checker->cpu->machine->topology.node_count; i++) {
        const struct sheaves_barn *barn = cache->barn[i];
        if (status == SQ_OK)
            status = sheaves_check_barn_list(outside, cache, &barn->full,
                                             &barn->full_count, cache->capacity);
        if (status == SQ_OK)
            status = sheaves_check_barn_list(outside, cache, &barn->empty,
                                             &barn->empty_count, 0);
    }
    return status;
}

static int sheaves_check(sq_cpu *cpu, sq_cache *base, struct sq_error *error)
{
    const struct sheaves_cache *cache = (const struct sheaves_cache *)base;
    const struct slub_checker checker = {cpu, (struct slub_cache *)base, error};
    struct slub_outside outside = {.checker = &checker};
    int status = slub_check_slabs(&checker);
    if (status == SQ_OK && cache->capacity != 0) {
        status = sheaves_check_pairs(&outside, cache);
        if (status == SQ_OK)
            status = sheaves_check_barns(&outside, cache);
    }
    if (status == SQ_OK)
        status = slub_outside_check(&outside);
    free(outside.object);
    return status;
}

#endif
