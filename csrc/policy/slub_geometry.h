/*
 * How large a SLUB slab is: the search for an order, the number of objects it should
 * hold, the alignment of an object, the size of the per-CPU partial lists. Pure
 * functions of plain numbers, shared by SLUB and SLUB+Q; nothing here knows a cache.
 *
 *      size, alignment         slub_alignment -> slot size
 *      number of CPUs          slub_min_objects
 *      both                    slub_order -> order of a slab, preferred
 *      slot size               slub_min_order -> order of a slab, when memory is short
 *
 * Every rule that changed between releases takes the rule as an argument.
 */
#ifndef SLUB_GEOMETRY_H
#define SLUB_GEOMETRY_H

#include "machine/machine_base.h"

/* Which search for an order: the option `order_search`. */
enum slub_order_search {
    SLUB_ORDER_HALVE_EIGHTH = 0, /* 2.6.22 to 2.6.25: waste 1/8, 1/4; halve objects */
    SLUB_ORDER_HALVE_SIXTEENTH = 1, /* 2.6.26 to 2.6.29: waste from 1/16; halve */
    SLUB_ORDER_STEP = 2,            /* 2.6.30 to 6.7: clamp, then one object fewer */
    SLUB_ORDER_FIXED_MIN = 3,       /* 6.8 on: the smallest order stays as it is */
};

/* How SLAB_HWCACHE_ALIGN is understood: the option `hwcache_align_rule`. */
enum slub_align_rule {
    SLUB_ALIGN_FULL_LINE = 0, /* to 2.6.24: a line if the object is over half a line */
    SLUB_ALIGN_HALVED_LINE =
        1, /* 2.6.25 on: the largest fraction of a line that fits */
};

/* Objects a slab can count: 16 bits in 2.6.26 to 3.0, 15 bits since. */
#define SLUB_OBJECTS_MAX_2_6_26 65535u
#define SLUB_OBJECTS_MAX_3_1    32767u

/* Objects a slab should hold on a machine of `cpu_count` CPUs (2.6.26 on). */
static inline uint32_t slub_min_objects(uint32_t cpu_count)
{
    return 4 * (sq_fls(cpu_count) + 1);
}

/* Objects of `size` bytes in a block of `order`. Requires size > 0. */
static inline uint32_t slub_order_objects(uint32_t order, uint64_t size)
{
    return (uint32_t)(((uint64_t)SQ_PAGE_SIZE << order) / size);
}

/* Smallest order that holds one object: where a slab goes when memory is short. */
static inline uint32_t slub_min_order(uint64_t size)
{
    return sq_order_of(size, SQ_PAGE_SHIFT);
}

/*
 * First order from `floor_order` to `last` whose slab holds `min_objects` and wastes no
 * more than 1/`fraction` of itself; last + 1 if there is none. If a slab of
 * `floor_order` would hold more than `objects_max`, it is made smaller, whatever it
 * wastes.
 */
static inline uint32_t slub_order_try(uint64_t size, uint64_t min_objects,
                                      uint32_t floor_order, uint32_t last,
                                      uint32_t fraction, uint32_t objects_max)
{
    uint32_t order = slub_min_order(min_objects * size);
    if (slub_order_objects(floor_order, size) > objects_max)
        return slub_min_order(size * objects_max) - 1;
    for (order = order > floor_order ? order : floor_order; order <= last; order++) {
        uint64_t bytes = (uint64_t)SQ_PAGE_SIZE << order;
        if (bytes % size <= bytes / fraction)
            return order;
    }
    return last + 1;
}

/* One object a slab, as small as can be; what every search up to 6.7 ends with. */
static inline int32_t slub_order_single(uint64_t size, uint32_t min_order,
                                        uint32_t max_order, uint32_t objects_max)
{
    uint32_t order = slub_order_try(size, 1, min_order, max_order, 1, objects_max);
    if (order > max_order)
        order = slub_order_try(size, 1, min_order, SQ_PAGE_ORDER_MAX, 1, objects_max);
    return order <= SQ_PAGE_ORDER_MAX ? (int32_t)order : -1;
}

/* The search up to 6.7: give up waste first, then objects. */
static inline int32_t slub_order_shrinking(uint64_t size, uint32_t min_objects,
                                           uint32_t min_order, uint32_t max_order,
                                           enum slub_order_search search,
                                           uint32_t objects_max)
{
    uint32_t finest = search == SLUB_ORDER_HALVE_EIGHTH ? 8 : 16;
    while (min_objects > 1) {
        for (uint32_t fraction = finest; fraction >= 4; fraction /= 2) {
            uint32_t order = slub_order_try(size, min_objects, min_order, max_order,
                                            fraction, objects_max);
            if (order <= max_order)
                return (int32_t)order;
        }
        min_objects = search == SLUB_ORDER_STEP ? min_objects - 1 : min_objects / 2;
    }
    return slub_order_single(size, min_order, max_order, objects_max);
}

/* The search since 6.8: the number of objects decides the smallest order once. */
static inline int32_t slub_order_fixed_min(uint64_t size, uint32_t min_objects,
                                           uint32_t min_order, uint32_t max_order,
                                           uint32_t objects_max)
{
    uint32_t floor_order = slub_min_order((uint64_t)min_objects * size);
    uint32_t single = slub_min_order(size);
    if (floor_order < min_order)
        floor_order = min_order;
    for (uint32_t fraction = 16; fraction > 1; fraction /= 2) {
        uint32_t order =
            slub_order_try(size, 1, floor_order, max_order, fraction, objects_max);
        if (order <= max_order)
            return (int32_t)order;
    }
    return single <= SQ_PAGE_ORDER_MAX ? (int32_t)single : -1;
}

/*
 * Order of a slab of objects of `size` bytes (the slot, padding included), or -1 if
 * none can hold one. `min_objects` is what the slab should hold, `min_order` and
 * `max_order` are the boot parameters slub_min_order and slub_max_order.
 */
static inline int32_t slub_order(uint64_t size, uint32_t min_objects,
                                 uint32_t min_order, uint32_t max_order,
                                 enum slub_order_search search, uint32_t objects_max)
{
    SQ_ASSERT(size > 0);
    if (search >= SLUB_ORDER_STEP) {
        uint32_t most = slub_order_objects(max_order, size);
        if (search == SLUB_ORDER_FIXED_MIN && most == 0)
            most = 1;
        if (min_objects > most)
            min_objects = most;
    }
    if (search == SLUB_ORDER_FIXED_MIN)
        return slub_order_fixed_min(size, min_objects, min_order, max_order,
                                    objects_max);
    return slub_order_shrinking(size, min_objects, min_order, max_order, search,
                                objects_max);
}

/* Alignment of an object of `object_size` bytes for which `align` was asked (0: none).
 */
static inline uint32_t slub_alignment(uint64_t object_size, uint64_t align,
                                      bool hwcache_align, enum slub_align_rule rule)
{
    uint64_t line = SQ_LINE_SIZE;
    SQ_ASSERT(object_size > 0);
    if (hwcache_align && rule == SLUB_ALIGN_HALVED_LINE) {
        while (object_size <= line / 2)
            line /= 2;
        align = sq_max_u64(align, line);
    } else if (hwcache_align && object_size > line / 2) {
        align = sq_max_u64(align, line);
    }
    return (uint32_t)sq_align_up(sq_max_u64(align, sizeof(void *)), sizeof(void *));
}

/* What one slot holds, from its first byte: left red zone, object, free pointer (inside
 * the object or after it), tracks, right red zone, padding. */
struct slub_layout {
    uint32_t red_left_pad; /* bytes before the object */
    uint32_t inuse;        /* the object rounded up, with its right red zone */
    uint32_t fp_offset;    /* of the free pointer, from the start of the object */
    uint32_t align, size;  /* of the slot */
};

struct slub_layout_rule {
    enum slub_align_rule align_rule;
    bool fp_in_middle;    /* since 5.7 the free pointer lies in the object's middle */
    bool has_left_pad;    /* since 4.6 a red zone lies before the object too */
    uint32_t track_bytes; /* what SLAB_STORE_USER adds */
};

/* Is the free pointer kept out of the object, since its bytes must survive a free, or
 * since it would reach into the red zone? Early releases let it, and then every look at a
 * free object found its red zone overwritten: such caches could not be used. */
static inline bool slub_fp_is_outside(uint64_t object_size, bool must_survive,
                                      bool has_red_zone)
{
    return must_survive || (has_red_zone && object_size < sizeof(void *));
}

/* Lay out a slot. `must_survive`: the object keeps its bytes while it is free
 * (poisoned, looked at by RCU readers, made by a constructor). */
static inline struct slub_layout slub_lay_out(uint64_t object_size, uint64_t align,
                                              bool hwcache_align, bool must_survive,
                                              bool has_red_zone, bool has_tracks,
                                              const struct slub_layout_rule *rule)
{
    struct slub_layout layout = {0};
    uint64_t word = sizeof(void *);
    uint64_t size = sq_align_up(object_size, word);
    layout.align = slub_alignment(object_size, align, hwcache_align, rule->align_rule);
    if (has_red_zone && size == object_size)
        size += word;
    layout.inuse = (uint32_t)size;
    if (slub_fp_is_outside(object_size, must_survive, has_red_zone)) {
        layout.fp_offset = (uint32_t)size;
        size += word;
    } else if (rule->fp_in_middle) {
        layout.fp_offset = (uint32_t)sq_align_down(object_size / 2, word);
    }
    if (has_tracks)
        size += rule->track_bytes;
    if (has_red_zone) {
        size += word;
        if (rule->has_left_pad)
            layout.red_left_pad = (uint32_t)sq_align_up(word, layout.align);
        size += layout.red_left_pad;
    }
    layout.size = (uint32_t)sq_align_up(size, layout.align);
    return layout;
}

/* Free objects a CPU keeps on its partial list, by slot size: 3.2 to 5.15, 5.16 on. */
static inline uint32_t slub_cpu_partial_objects(uint64_t size, bool counted_in_slabs)
{
    if (size >= SQ_PAGE_SIZE)
        return counted_in_slabs ? 6 : 2;
    if (size >= 1024)
        return counted_in_slabs ? 24 : 6;
    if (size >= 256)
        return counted_in_slabs ? 52 : 13;
    return counted_in_slabs ? 120 : 30;
}

/* 5.16 on: slabs that stand for `objects` free objects, each slab being half full. */
static inline uint32_t slub_cpu_partial_slabs(uint32_t objects, uint32_t slab_objects)
{
    return (uint32_t)sq_div_ceil(2 * (uint64_t)objects, slab_objects);
}

#endif
