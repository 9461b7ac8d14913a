/*
 * slab_object.h -- where things of the policy `slab` lie: from a page frame to its slab
 * and back, from an object to its index, and the parts of a slot.
 *
 *   | red word 8 | object ... up to a word | red word 8 | user word 8 | up to align |
 *
 * Slabs and queues know slots only; callers know objects. They are the same but for
 * caches with red zones, whose objects begin a word later (kernel: obj_offset). Red
 * words and user word are counted from the end of the slot, so what is rounded up lies
 * before them.
 */
#ifndef SQ_SLAB_OBJECT_H
#define SQ_SLAB_OBJECT_H

#include "policy/slab_cache.h"

/* ---- from page to slab and back ---- */

static inline sq_cache *slab_cache_of_page(const struct sq_page *page)
{
    return (sq_cache *)(uintptr_t)page->word[3];
}

/* Classic: two dependent loads lead from an object to its slab, later one. */
static inline struct slab *slab_of_page(const struct slab_cache *cache,
                                        struct sq_page *page)
{
    return cache->is_classic ? (struct slab *)(uintptr_t)page->word[0]
                             : (struct slab *)(void *)&page->lru;
}

static inline struct sq_page *slab_page_of(const struct slab_cache *cache,
                                           const struct slab *slab)
{
    return sq_page_of_address(slab_machine(cache), slab->first_object);
}

/* The slab of an object of this cache, with what the search touches. */
static inline struct slab *slab_of_object(sq_cpu *cpu, const struct slab_cache *cache,
                                          const void *object)
{
    struct sq_page *page = sq_page_of_address(cpu->machine, object);
    sq_touch_read(cpu, page, sizeof(*page));
    return slab_of_page(cache, page);
}

/* ---- objects ---- */

static inline void *slab_object_at(const struct slab_cache *cache,
                                   const struct slab *slab, uint32_t index)
{
    return slab->first_object + (size_t)index * cache->base.size;
}

/* ceil(2^32 / size): offset * this >> 32 is offset / size for every multiple of size up
 * to 4 MiB, since the error of the quotient is below 2^22 / 2^32. */
static inline uint32_t slab_reciprocal(uint32_t size)
{
    return (uint32_t)((UINT64_C(0x100000000) + size - 1) / size);
}

static inline uint32_t slab_index_of(const struct slab_cache *cache,
                                     const struct slab *slab, const void *object)
{
    uint64_t offset = (uint64_t)((const char *)object - slab->first_object);
    return (uint32_t)((offset * cache->reciprocal) >> 32);
}

static inline uint32_t *slab_bufctl(struct slab *slab)
{
    return (uint32_t *)(void *)(slab + 1);
}

/* ---- the parts of a slot of a debug cache ---- */

static inline char *slab_user_of(const struct slab_cache *cache, const void *slot)
{
    return (char *)(uintptr_t)slot + cache->geometry.object_offset;
}

static inline bool slab_has(const struct slab_cache *cache, uint32_t debug_flag)
{
    return (cache->geometry.debug_flags & debug_flag) != 0;
}

/* The red word before (0) or after (1) the object. Requires red zones. */
static inline char *slab_red_at(const struct slab_cache *cache, char *slot,
                                uint32_t side)
{
    uint32_t end = cache->base.size - (slab_has(cache, SQ_CACHE_STORE_USER) ? 8u : 0u);
    return side == 0 ? slot + cache->geometry.object_offset - 8 : slot + end - 8;
}

static inline uint64_t slab_red_get(const struct slab_cache *cache, char *slot,
                                    uint32_t side)
{
    uint64_t word;
    memcpy(&word, slab_red_at(cache, slot, side), sizeof(word));
    return word;
}

static inline void slab_red_set(const struct slab_cache *cache, char *slot,
                                uint64_t word)
{
    if (!slab_has(cache, SQ_CACHE_RED_ZONE))
        return;
    memcpy(slab_red_at(cache, slot, 0), &word, sizeof(word));
    memcpy(slab_red_at(cache, slot, 1), &word, sizeof(word));
}

static inline uint64_t slab_site_get(const struct slab_cache *cache, const char *slot)
{
    uint64_t site;
    memcpy(&site, slot + cache->base.size - sizeof(site), sizeof(site));
    return site;
}

/* Who called last: the number of the call site, or 0. */
static inline void slab_site_set(const struct slab_cache *cache, char *slot,
                                 uint64_t site)
{
    if (slab_has(cache, SQ_CACHE_STORE_USER))
        memcpy(slot + cache->base.size - sizeof(site), &site, sizeof(site));
}

#endif
