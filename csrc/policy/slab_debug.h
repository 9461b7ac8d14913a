/*
 * slab_debug.h -- SLAB's debugging (CONFIG_DEBUG_SLAB): the bytes in and around objects
 * of debug caches, and the checks made of them when an object is handed out, taken
 * back, or goes with its slab.
 *
 *              red words             object
 *   free       0x09f911029d74e35b    0x6b ... 0x6b 0xa5
 *   in use     0xd84156c5635688c0    0x5a ... 0x5a 0xa5, then the owner's
 *
 * A fault is told and the run goes on (slab_report.h): a free object that was written
 * to is handed out all the same, with its bytes put right, and one whose red words were
 * overwritten is taken back. A double free, which shows in the red words, is refused
 * here; the kernel would queue the object twice and stop at the BUG when its slab takes
 * it back.
 *
 * A constructor runs when a slab is made, or, since poison would undo that, with poison
 * at every allocation. An index stack that lies in a free object takes the place of its
 * poison; the poison comes back when the slab has no free object left, or ends.
 *
 * Nothing here takes a lock. Requires that nobody else uses the object.
 */
#ifndef SQ_SLAB_DEBUG_H
#define SQ_SLAB_DEBUG_H

#include "policy/slab_report.h"

#define SLAB_RED_INACTIVE UINT64_C(0x09f911029d74e35b)
#define SLAB_RED_ACTIVE   UINT64_C(0xd84156c5635688c0)

/* poison_obj */
static void slab_poison(const struct slab_cache *cache, const void *slot, uint8_t value)
{
    char *object = slab_user_of(cache, slot);
    if (!slab_has(cache, SQ_CACHE_POISON))
        return;
    memset(object, value, cache->base.object_size - 1);
    object[cache->base.object_size - 1] = (char)SLAB_POISON_END;
}

static void slab_construct(const struct slab_cache *cache, const void *slot)
{
    if (cache->base.constructor != NULL)
        cache->base.constructor(&cache->base, slab_user_of(cache, slot));
}

static uint64_t slab_caller(const sq_cpu *cpu, const struct slab_cache *cache)
{
    return cache->base.heap->call_site[cpu->index];
}

/* ---- a slab as a whole ---- */

/* What a constructor does around its object is told at once. */
static void slab_debug_check_constructor(const struct slab_subject *subject)
{
    static const char *const whats[] = {"constructor overwrote the start of an object",
                                        "constructor overwrote the end of an object"};
    struct slab_cache *cache = subject->cache;
    if (!slab_has(cache, SQ_CACHE_RED_ZONE))
        return;
    for (uint32_t side = 0; side < 2; side++)
        if (slab_red_get(cache, subject->slot, side) != SLAB_RED_INACTIVE)
            slab_report_error(subject, "cache_init_objs", whats[side],
                              SLAB_RED_INACTIVE, false);
    slab_red_set(cache, subject->slot, SLAB_RED_INACTIVE);
}

/* The objects of a slab that has a place but no indexes yet. */
static void slab_debug_new_slab(sq_cpu *cpu, struct slab_cache *cache,
                                struct slab *slab)
{
    uint32_t count = cache->geometry.object_count;
    sq_touch_write(cpu, slab->first_object, (size_t)count * cache->base.size);
    for (uint32_t i = 0; i < count; i++) {
        struct slab_subject subject = {cache, slab, slab_object_at(cache, slab, i)};
        slab_site_set(cache, subject.slot, 0);
        slab_red_set(cache, subject.slot, SLAB_RED_INACTIVE);
        if (!slab_has(cache, SQ_CACHE_POISON)) {
            slab_construct(cache, subject.slot);
            slab_debug_check_constructor(&subject);
        }
        slab_poison(cache, subject.slot, SLAB_POISON_FREE);
    }
}

/* The object that held the slab's indexes holds them no longer. */
static void slab_debug_end_indexes(const struct slab_cache *cache,
                                   const struct slab *slab)
{
    if (cache->base.is_debug && slab->index_stack != NULL)
        slab_poison(cache, (char *)slab->index_stack - cache->geometry.object_offset,
                    SLAB_POISON_FREE);
}

/* Do the indexes of the slab lie in this slot? */
static bool slab_holds_indexes(const struct slab_subject *subject)
{
    return subject->cache->geometry.placement == SLAB_OBJ &&
           (char *)subject->slab->index_stack ==
               slab_user_of(subject->cache, subject->slot);
}

/* Look at a free object and put it right. */
static void slab_debug_check_free(const struct slab_subject *subject)
{
    static const char *const whats[] = {"start of a freed object was overwritten",
                                        "end of a freed object was overwritten"};
    struct slab_cache *cache = subject->cache;
    if (slab_has(cache, SQ_CACHE_POISON) && !slab_holds_indexes(subject)) {
        uint32_t wrong = slab_wrong_poison_byte(subject, 0);
        if (wrong < cache->base.object_size)
            slab_report_poison(subject, wrong);
        slab_poison(cache, subject->slot, SLAB_POISON_FREE);
    }
    if (!slab_has(cache, SQ_CACHE_RED_ZONE))
        return;
    for (uint32_t side = 0; side < 2; side++)
        if (slab_red_get(cache, subject->slot, side) != SLAB_RED_INACTIVE)
            slab_report_error(subject, "slab_destroy_debugcheck", whats[side],
                              SLAB_RED_INACTIVE, false);
    slab_red_set(cache, subject->slot, SLAB_RED_INACTIVE);
}

/* slab_destroy_debugcheck: a free slab's pages are about to go. */
static void slab_debug_end_slab(sq_cpu *cpu, struct slab_cache *cache,
                                struct slab *slab)
{
    if (!cache->base.is_debug || slab->inuse > 0)
        return;
    sq_touch_read(cpu, slab->first_object,
                  (size_t)cache->geometry.object_count * cache->base.size);
    for (uint32_t i = 0; i < cache->geometry.object_count; i++) {
        struct slab_subject subject = {cache, slab, slab_object_at(cache, slab, i)};
        slab_debug_check_free(&subject);
    }
}

/* ---- an object is handed out ---- */

/* cache_alloc_debugcheck_after */
SLAB_SLOW void *slab_debug_hand_out(sq_cpu *cpu, struct slab_cache *cache, void *slot)
{
    struct slab *slab = slab_of_object(cpu, cache, slot);
    struct slab_subject subject = {cache, slab, slot};
    sq_touch_write(cpu, slot, cache->base.size);
    if (slab_has(cache, SQ_CACHE_POISON)) {
        uint32_t wrong = slab_wrong_poison_byte(&subject, 0);
        if (wrong < cache->base.object_size)
            slab_report_poison(&subject, wrong);
        slab_poison(cache, slot, SLAB_POISON_INUSE);
    }
    slab_site_set(cache, slot, slab_caller(cpu, cache));
    if (slab_has(cache, SQ_CACHE_RED_ZONE)) {
        if (slab_wrong_red_byte(&subject, SLAB_RED_INACTIVE) != NULL)
            slab_report_error(&subject, "cache_alloc_debugcheck_after",
                              "double free, or memory outside object was overwritten",
                              SLAB_RED_INACTIVE, true);
        slab_red_set(cache, slot, SLAB_RED_ACTIVE);
    }
    if (slab_has(cache, SQ_CACHE_POISON))
        slab_construct(cache, slot);
    return slab_user_of(cache, slot);
}

/* What the caller gets of a slot that was taken from the queues. */
static inline void *slab_hand_out(sq_cpu *cpu, struct slab_cache *cache, void *slot)
{
    return __builtin_expect(cache->base.is_debug, 0)
               ? slab_debug_hand_out(cpu, cache, slot)
               : slot;
}

/* ---- an object is taken back ---- */

/* verify_redzone_free: false if the object is free already. */
static bool slab_debug_verify_red(const struct slab_subject *subject)
{
    struct slab_cache *cache = subject->cache;
    bool is_free = slab_red_get(cache, subject->slot, 0) == SLAB_RED_INACTIVE &&
                   slab_red_get(cache, subject->slot, 1) == SLAB_RED_INACTIVE;
    if (slab_wrong_red_byte(subject, SLAB_RED_ACTIVE) == NULL)
        return true;
    slab_report_error(subject, "verify_redzone_free",
                      is_free ? "double free detected"
                              : "memory outside object was overwritten",
                      SLAB_RED_ACTIVE, true);
    return !is_free;
}

/* cache_free_debugcheck. Requires an address at which an object of the cache begins. */
SLAB_SLOW void *slab_debug_take_back(sq_cpu *cpu, struct slab_cache *cache,
                                     void *object)
{
    char *slot = (char *)object - cache->geometry.object_offset;
    struct slab_subject subject = {cache, slab_of_object(cpu, cache, slot), slot};
    sq_touch_write(cpu, slot, cache->base.size);
    if (slab_has(cache, SQ_CACHE_RED_ZONE)) {
        if (!slab_debug_verify_red(&subject)) {
            sq_report_refuse(slab_reports(cache), object);
            return NULL;
        }
        slab_red_set(cache, slot, SLAB_RED_INACTIVE);
    }
    slab_site_set(cache, slot, slab_caller(cpu, cache));
    slab_poison(cache, slot, SLAB_POISON_FREE);
    return slot;
}

/* The slot of an object that comes back, or NULL if it may not. */
static inline void *slab_take_back(sq_cpu *cpu, struct slab_cache *cache, void *object)
{
    return __builtin_expect(cache->base.is_debug, 0)
               ? slab_debug_take_back(cpu, cache, object)
               : object;
}

#endif
