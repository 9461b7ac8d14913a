/*
 * A histogram of times with logarithmic buckets: sixteen a power of two, so a
 * percentile is right to 1/16, and exact below 16.
 */
#ifndef SQ_HISTOGRAM_H
#define SQ_HISTOGRAM_H

#include <stdint.h>

#include "base/sq_bits.h"

#define SQ_HISTOGRAM_SUB_BITS 4u
#define SQ_HISTOGRAM_BUCKET_COUNT                                                      \
    ((64u - SQ_HISTOGRAM_SUB_BITS + 1) << SQ_HISTOGRAM_SUB_BITS)

struct sq_histogram {
    uint64_t count, max, sum;
    uint64_t bucket[SQ_HISTOGRAM_BUCKET_COUNT];
};

static inline uint32_t sq_histogram_bucket_of(uint64_t value)
{
    uint32_t octave;
    if (value < 1u << SQ_HISTOGRAM_SUB_BITS)
        return (uint32_t)value;
    octave = sq_ilog2(value) - SQ_HISTOGRAM_SUB_BITS;
    return ((octave + 1) << SQ_HISTOGRAM_SUB_BITS) +
           (uint32_t)((value >> octave) & ((1u << SQ_HISTOGRAM_SUB_BITS) - 1));
}

/* The smallest value of a bucket. */
static inline uint64_t sq_histogram_floor(uint32_t bucket)
{
    uint32_t octave = bucket >> SQ_HISTOGRAM_SUB_BITS;
    uint64_t sub = bucket & ((1u << SQ_HISTOGRAM_SUB_BITS) - 1);
    if (octave == 0)
        return sub;
    return (sub + (1u << SQ_HISTOGRAM_SUB_BITS)) << (octave - 1);
}

static inline void sq_histogram_add(struct sq_histogram *histogram, uint64_t value)
{
    histogram->bucket[sq_histogram_bucket_of(value)]++;
    histogram->count++;
    histogram->sum += value;
    histogram->max = sq_max_u64(histogram->max, value);
}

static inline void sq_histogram_merge(struct sq_histogram *into,
                                      const struct sq_histogram *from)
{
    for (uint32_t i = 0; i < SQ_HISTOGRAM_BUCKET_COUNT; i++)
        into->bucket[i] += from->bucket[i];
    into->count += from->count;
    into->sum += from->sum;
    into->max = sq_max_u64(into->max, from->max);
}

/* The smallest value that `percent` of all values do not exceed, rounded down to its
 * bucket. Requires count > 0. */
static inline uint64_t sq_histogram_percentile(const struct sq_histogram *histogram,
                                               uint32_t percent)
{
    uint64_t rank = sq_div_ceil(histogram->count * percent, 100);
    uint64_t seen = 0;
    uint32_t i = 0;
    SQ_ASSERT(histogram->count > 0 && percent <= 100);
    for (; i < SQ_HISTOGRAM_BUCKET_COUNT - 1; i++) {
        seen += histogram->bucket[i];
        if (seen >= rank && seen > 0)
            break;
    }
    return sq_histogram_floor(i);
}

#endif
