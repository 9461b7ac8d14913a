/*
 * Small integer arithmetic with names: alignment, logarithms, division.
 * Every function states its precondition and asserts it.
 */
#ifndef SQ_BITS_H
#define SQ_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sq_assert.h"

#define SQ_ARRAY_COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define SQ_CONTAINER_OF(pointer, type, member)                                         \
    ((type *)(void *)((char *)(pointer) - offsetof(type, member)))

static inline bool sq_is_power_of_two(uint64_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

/* Round `value` up to a multiple of `alignment`, a power of two. */
static inline uint64_t sq_align_up(uint64_t value, uint64_t alignment)
{
    SQ_ASSERT(sq_is_power_of_two(alignment));
    return (value + alignment - 1) & ~(alignment - 1);
}

static inline uint64_t sq_align_down(uint64_t value, uint64_t alignment)
{
    SQ_ASSERT(sq_is_power_of_two(alignment));
    return value & ~(alignment - 1);
}

static inline uint64_t sq_div_ceil(uint64_t value, uint64_t divisor)
{
    SQ_ASSERT(divisor != 0);
    return (value + divisor - 1) / divisor;
}

/* Index of the last set bit counted from 1; 0 for 0 (the kernel's fls). */
static inline uint32_t sq_fls(uint64_t value)
{
    return value == 0 ? 0 : 64 - (uint32_t)__builtin_clzll(value);
}

/* Floor of log2. Requires value > 0. */
static inline uint32_t sq_ilog2(uint64_t value)
{
    SQ_ASSERT(value > 0);
    return sq_fls(value) - 1;
}

/* Smallest order with (page_size << order) >= size (the kernel's get_order). */
static inline uint32_t sq_order_of(uint64_t size, uint32_t page_shift)
{
    return size <= 1 ? 0 : sq_fls((size - 1) >> page_shift);
}

static inline uint64_t sq_min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t sq_max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline uint64_t sq_clamp_u64(uint64_t value, uint64_t low, uint64_t high)
{
    SQ_ASSERT(low <= high);
    return sq_min_u64(sq_max_u64(value, low), high);
}

#endif
