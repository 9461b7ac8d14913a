/*
 * slab_validate.h -- what is asked of debug caches from outside: a look at all objects,
 * frees of addresses that nobody vouches for, and which bytes may be overwritten to see
 * what comes of it. Included by slab.c.
 */
#ifndef SQ_SLAB_VALIDATE_H
#define SQ_SLAB_VALIDATE_H

#include "policy/slab_check.h"

/* ---- all objects ---- */

/* An object in use has no bytes to look at but its red words. */
static void slab_validate_live(const struct slab_subject *subject)
{
    if (!slab_has(subject->cache, SQ_CACHE_RED_ZONE) ||
        slab_wrong_red_byte(subject, SLAB_RED_ACTIVE) == NULL)
        return;
    slab_report_error(subject, "verify_redzone_free",
                      "memory outside object was overwritten", SLAB_RED_ACTIVE, true);
    slab_red_set(subject->cache, subject->slot, SLAB_RED_ACTIVE);
}

/* A slab whose free objects are marked: mark the queued ones too, then look at each. */
static int slab_validate_slab(struct slab_checker *checker, struct slab *slab)
{
    struct slab_cache *cache = checker->cache;
    int status = check_queued_of_slab(checker, slab);
    for (uint32_t i = 0; status == SQ_OK && i < cache->geometry.object_count; i++) {
        struct slab_subject subject = {cache, slab, slab_object_at(cache, slab, i)};
        if ((cache->check_bits[i / 64] >> (i % 64) & 1) != 0)
            slab_debug_check_free(&subject);
        else
            slab_validate_live(&subject);
    }
    return status;
}

/* ops->validate. SLAB has no such call: what it would find when objects come and go is
 * found in all of them now. Ends at a slab that check() refuses. */
static void slab_validate(sq_cpu *cpu, sq_cache *base)
{
    struct sq_error error;
    struct slab_checker checker = {
        .cpu = cpu, .cache = slab_cache_of(base), .error = &error};
    if (base->is_debug)
        (void)check_all_lists(&checker, slab_validate_slab);
}

/* ---- frees that nobody vouches for ---- */

/* What is wrong with the address of an object of a cache; false: nothing. */
static bool slab_find_bug(struct slab_cache *cache, const void *object, char *what,
                          size_t what_bytes)
{
    const sq_machine *machine = slab_machine(cache);
    const struct sq_page *page = sq_page_of_address(machine, object);
    struct sq_object_place place;
    if (page->state != SQ_PAGE_SLAB)
        (void)snprintf(what, what_bytes, "0x%016llx is in no slab",
                       slab_number(object));
    else if (slab_cache_of_page(page) != &cache->base)
        (void)snprintf(what, what_bytes, "0x%016llx is an object of %.40s",
                       slab_number(object), slab_cache_of_page(page)->name);
    else if (!slab_locate(&cache->base, object, &place))
        (void)snprintf(what, what_bytes, "no object begins at 0x%016llx",
                       slab_number(object));
    else
        return false;
    return true;
}

/* A free of an object that nobody has: the red words say so unless the policy itself
 * has it, or it has no red words. */
static bool slab_report_unowned(sq_cpu *cpu, struct slab_cache *cache, void *object)
{
    char *slot = (char *)object - cache->geometry.object_offset;
    struct slab_subject subject = {cache, slab_of_object(cpu, cache, slot), slot};
    if (!slab_has(cache, SQ_CACHE_RED_ZONE) ||
        slab_wrong_red_byte(&subject, SLAB_RED_ACTIVE) == NULL)
        return false;
    (void)slab_debug_verify_red(&subject);
    return true;
}

/* ops->free_checked */
static bool slab_free_checked(sq_cpu *cpu, sq_cache *base, void *object, bool is_owned)
{
    struct slab_cache *cache = slab_cache_of(base);
    struct slab_subject nothing = {.cache = cache};
    char what[96];
    if (!base->is_debug)
        return false;
    if (slab_find_bug(cache, object, what, sizeof(what))) {
        slab_report_bug(&nothing, what);
        sq_report_refuse(slab_reports(cache), object);
        return true;
    }
    if (!is_owned)
        return slab_report_unowned(cpu, cache, object);
    base->ops->free(cpu, base, object);
    return true;
}

/* ---- bytes that may be overwritten ---- */

/* ops->may_corrupt: objects and what guards them, but nothing that leads anywhere. The
 * kernel does not guard its management either. */
static bool slab_may_corrupt(sq_cache *base, struct sq_page *page, const char *place,
                             size_t bytes)
{
    struct slab_cache *cache = slab_cache_of(base);
    struct slab *slab = slab_of_page(cache, page);
    const char *first = slab->first_object, *end = place + bytes;
    const char *indexes = (const char *)slab->index_stack;
    if (!base->is_debug || cache->holds_management || place < first ||
        end > first + (size_t)cache->geometry.object_count * base->size)
        return false;
    return cache->geometry.placement != SLAB_OBJ || indexes == NULL || end <= indexes ||
           place >= indexes + cache->geometry.management_bytes;
}

#endif
