/*
 * Random choices of one task, the same under every policy: env->random is of a CPU, and
 * which CPU a task is on when it draws depends on how fast the policy was until then.
 * xorshift64* (Vigna 2016).
 */
#ifndef SQ_DRAW_H
#define SQ_DRAW_H

#include "slabq/workload.h"

struct draw {
    uint64_t state; /* never 0 */
};

/* Called in setup, by the first task, for one task after another. */
static inline void draw_seed(const struct sq_env *env, sq_task *task, struct draw *draw)
{
    draw->state = env->random(task) | 1;
}

/* A number below `limit`, which is not 0. */
static inline uint64_t draw_below(struct draw *draw, uint64_t limit)
{
    draw->state ^= draw->state >> 12;
    draw->state ^= draw->state << 25;
    draw->state ^= draw->state >> 27;
    return draw->state * UINT64_C(0x2545F4914F6CDD1D) % limit;
}

#endif
