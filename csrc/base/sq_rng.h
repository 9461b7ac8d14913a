/*
 * The random numbers of slabq: xoshiro256** (Blackman and Vigna, "Scrambled linear
 * pseudorandom number generators", ACM TOMS 2021), seeded through SplitMix64.
 * Fixed for ever: equal seeds give equal sequences on every host.
 */
#ifndef SQ_RNG_H
#define SQ_RNG_H

#include <stdint.h>

struct sq_rng {
    uint64_t state[4];
};

static inline uint64_t sq_splitmix64(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static inline void sq_rng_seed(struct sq_rng *rng, uint64_t seed)
{
    for (int i = 0; i < 4; i++)
        rng->state[i] = sq_splitmix64(&seed);
}

static inline uint64_t sq_rng_rotate(uint64_t value, int bits)
{
    return (value << bits) | (value >> (64 - bits));
}

static inline uint64_t sq_rng_next(struct sq_rng *rng)
{
    uint64_t *s = rng->state;
    uint64_t result = sq_rng_rotate(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = sq_rng_rotate(s[3], 45);
    return result;
}

/* Uniform in [0, limit). Requires 0 < limit <= 2^32. Multiply-shift on the upper half:
 * the bias is below limit / 2^32. */
static inline uint32_t sq_rng_below(struct sq_rng *rng, uint64_t limit)
{
    return (uint32_t)(((sq_rng_next(rng) >> 32) * limit) >> 32);
}

#endif
