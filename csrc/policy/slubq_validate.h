/*
 * What is asked of SLUB+Q's debug caches from outside: validate, frees of addresses
 * that nobody vouches for, and which bytes may be overwritten.
 */
#ifndef SLUBQ_VALIDATE_H
#define SLUBQ_VALIDATE_H

#include "policy/slubq_check.h"

/* Every object of a slab. One that is not in the bitmap is in a queue or in use, which
 * its red zone says; without one there is nothing that both have. */
static void slubq_validate_slab(sq_cpu *cpu, struct slubq_cache *cache,
                                struct sq_page *page)
{
    uint32_t objects = slubq_slab_objects(cache, page);
    const uint64_t *map = slubq_map(cache, page, objects);
    char *object = sq_page_address(cpu->machine, page);
    for (uint32_t i = 0; i < objects; i++, object += cache->base.size) {
        const struct slubq_subject subject = slubq_subject_of(cpu, cache, object);
        if ((map[i / 64] >> (i % 64) & 1) != 0)
            (void)slubq_check_object(&subject, SLUBQ_RED_INACTIVE);
        else if (slubq_looks_idle(cache, object))
            (void)slubq_check_object(&subject, slubq_red_idle(cache));
        else
            (void)slubq_check_object(&subject, SLUBQ_RED_ACTIVE);
    }
}

/* ops->validate */
static void slubq_validate(sq_cpu *cpu, sq_cache *base)
{
    struct slubq_cache *cache = slubq_cache_of(base);
    for (uint32_t n = 0; base->is_debug && n < slubq_topology(cache)->node_count; n++) {
        uint32_t number = cache->node[n]->chain_first;
        while (number != 0) {
            struct sq_page *page = slubq_chain_page(cache, number);
            slubq_validate_slab(cpu, cache, page);
            number = slubq_slab_of(page)->chain_next;
        }
    }
}

/* A free of an object that nobody has: false if its red zone does not say so. */
static bool slubq_report_unowned(sq_cpu *cpu, struct slubq_cache *cache, void *object)
{
    const struct slubq_subject subject = slubq_subject_of(cpu, cache, object);
    if (!slubq_looks_idle(cache, object))
        return false;
    slubq_report(&subject, "Object already free");
    slubq_debug_refuse(cache, object);
    return true;
}

/* What is wrong with the address of an object of the cache; false: nothing. */
static bool slubq_find_fault(struct slubq_cache *cache, void *object, char *what,
                             size_t bytes)
{
    struct sq_page *page = sq_page_of_address(cache->base.heap->machine, object);
    struct sq_object_place place;
    if (page->state != SQ_PAGE_SLAB)
        (void)snprintf(what, bytes, "Attempt to free object(0x%016llx) outside of slab",
                       slubq_number(object));
    else if (slubq_slab_of(page)->cache != &cache->base)
        (void)snprintf(what, bytes, "page slab pointer corrupt.");
    else if (!slubq_locate(&cache->base, object, &place))
        (void)snprintf(what, bytes, "Invalid object pointer 0x%016llx",
                       slubq_number(object));
    else
        return false;
    return true;
}

/* ops->free_checked */
static bool slubq_free_checked(sq_cpu *cpu, sq_cache *base, void *object, bool is_owned)
{
    struct slubq_cache *cache = slubq_cache_of(base);
    const struct slubq_subject nothing = {.cache = cache};
    char what[96];
    if (!base->is_debug)
        return false;
    if (slubq_find_fault(cache, object, what, sizeof(what))) {
        slubq_report(&nothing, what);
        slubq_debug_refuse(cache, object);
        return true;
    }
    if (!is_owned)
        return slubq_report_unowned(cpu, cache, object);
    base->ops->free(cpu, base, object);
    return true;
}

/* ops->may_corrupt: objects, but not the bitmap behind them. */
static bool slubq_may_corrupt(sq_cache *base, struct sq_page *page, const char *place,
                              size_t bytes)
{
    const char *start = sq_page_address(base->heap->machine, page);
    uint32_t objects = slubq_slab_objects(slubq_cache_of(base), page);
    return (uint64_t)(place - start) + bytes <= (uint64_t)objects * base->size;
}

#endif
