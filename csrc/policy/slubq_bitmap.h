/*
 * Which objects of a slab are free: one bit each, 1 = free, and the objects themselves
 * untouched. Up to 64 objects the bitmap is a word of the page frame; above that it
 * lies behind the last object and the frame counts its set bits.
 *
 * Requires, for whatever changes bits, the lock that guards the slab's bitmap.
 */
#ifndef SLUBQ_BITMAP_H
#define SLUBQ_BITMAP_H

#include "policy/slubq_cache.h"

/* Objects that fit beside their bitmap: words of the slab, 64 objects and a word each.
 */
static inline uint32_t slubq_order_objects(uint32_t order, uint32_t size)
{
    uint64_t bytes = (uint64_t)SQ_PAGE_SIZE << order;
    uint64_t plain = bytes / size;
    uint64_t beside = bytes / 8 * 64 / ((uint64_t)size / 8 * 64 + 1);
    return (uint32_t)(plain <= SLUBQ_WORD_OBJECTS ? plain : beside);
}

/* Objects of this slab: of the preferred order, or of the smallest. */
static inline uint32_t slubq_slab_objects(const struct slubq_cache *cache,
                                          const struct sq_page *page)
{
    return page->order == cache->base.order ? cache->base.slab_object_count
                                            : cache->min_order_objects;
}

static inline bool slubq_map_is_word(uint32_t objects)
{
    return objects <= SLUBQ_WORD_OBJECTS;
}

/* Set bits of a word, by adding neighbours: no call where the CPU is not known to
 * count. */
static inline uint32_t slubq_popcount(uint64_t word)
{
    word -= word >> 1 & UINT64_C(0x5555555555555555);
    word = (word & UINT64_C(0x3333333333333333)) +
           (word >> 2 & UINT64_C(0x3333333333333333));
    word = (word + (word >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    return (uint32_t)(word * UINT64_C(0x0101010101010101) >> 56);
}

/* The bitmap's words. */
static inline uint64_t *slubq_map(const struct slubq_cache *cache, struct sq_page *page,
                                  uint32_t objects)
{
    char *base = sq_page_address(cache->base.heap->machine, page);
    if (slubq_map_is_word(objects))
        return &slubq_slab_of(page)->free;
    return (uint64_t *)(void *)(base + (uint64_t)objects * cache->base.size);
}

/* Free objects of a slab. */
static inline uint32_t slubq_free_count(const struct slubq_cache *cache,
                                        const struct sq_page *page)
{
    uint64_t free = slubq_slab_const(page)->free;
    return slubq_map_is_word(slubq_slab_objects(cache, page)) ? slubq_popcount(free)
                                                              : (uint32_t)free;
}

/* Is there any? Cheaper than counting. */
static inline bool slubq_has_free(const struct sq_page *page)
{
    return slubq_slab_const(page)->free != 0;
}

/* Index of an object whose slab this is. Exact for the start of an object: the error of
 * the inverse is below index * size / 2^32. */
static inline uint32_t slubq_index(const struct slubq_cache *cache,
                                   const struct sq_page *page, const void *object)
{
    uint64_t offset = (uint64_t)((const char *)object -
                                 sq_page_address(cache->base.heap->machine, page));
    return (uint32_t)((offset * cache->index_inverse) >> 32);
}

/* Set every bit of a new slab. */
static void slubq_map_fill(sq_cpu *cpu, struct slubq_cache *cache, struct sq_page *page)
{
    uint32_t objects = slubq_slab_objects(cache, page);
    uint64_t *map = slubq_map(cache, page, objects);
    uint32_t words = (uint32_t)sq_div_ceil(objects, 64);
    sq_touch_write(cpu, map, words * sizeof(*map));
    memset(map, 0xff, words * sizeof(*map));
    if (objects % 64 != 0)
        map[words - 1] = (UINT64_C(1) << (objects % 64)) - 1;
    if (!slubq_map_is_word(objects))
        slubq_slab_of(page)->free = objects;
}

/*
 * Take `count` objects, lowest first, and store them downwards from `end`, so that the
 * lowest is the one that leaves a queue first. Requires that so many are free.
 */
static void slubq_map_take(sq_cpu *cpu, struct slubq_cache *cache, struct sq_page *page,
                           uint32_t count, void **end)
{
    uint32_t objects = slubq_slab_objects(cache, page);
    uint64_t *map = slubq_map(cache, page, objects);
    char *base = sq_page_address(cache->base.heap->machine, page);
    uint64_t size = cache->base.size;
    SQ_ASSERT_INTERNAL(count <= slubq_free_count(cache, page));
    if (!slubq_map_is_word(objects))
        slubq_slab_of(page)->free -= count;
    for (uint32_t word = 0; count > 0; word++) {
        uint64_t free = map[word];
        if (free == 0)
            continue;
        sq_touch_write(cpu, &map[word], sizeof(*map));
        for (; free != 0 && count > 0; count--, free &= free - 1) {
            SQ_IN_SCOPE(cpu, SLUBQ_GET);
            uint32_t index = word * 64 + (uint32_t)__builtin_ctzll(free);
            *--end = base + index * size;
        }
        map[word] = free;
    }
}

/* Give back the objects at the start of `object` that are of this slab; how many. */
static uint32_t slubq_map_put(sq_cpu *cpu, struct slubq_cache *cache,
                              struct sq_page *page, void **object, uint32_t count)
{
    sq_machine *machine = cache->base.heap->machine;
    uint32_t objects = slubq_slab_objects(cache, page);
    uint64_t *map = slubq_map(cache, page, objects);
    uint32_t put = 0;
    do {
        SQ_IN_SCOPE(cpu, SLUBQ_PUT);
        uint32_t index = slubq_index(cache, page, object[put]);
        uint64_t bit = UINT64_C(1) << (index % 64);
        SQ_ASSERT(index < objects);
        SQ_ASSERT_INTERNAL((map[index / 64] & bit) == 0); /* freed twice */
        sq_touch_write(cpu, &map[index / 64], sizeof(*map));
        map[index / 64] |= bit;
        put++;
    } while (put < count && sq_page_of_address(machine, object[put]) == page);
    if (!slubq_map_is_word(objects))
        slubq_slab_of(page)->free += put;
    return put;
}

#endif
