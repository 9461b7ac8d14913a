/*
 * canary.h -- a policy broken on purpose, to test the tests: a copy of a real policy's
 * table whose alloc and free do something wrong once in `canary_period` calls. Included
 * after the policy's own source, whose structures the last two defects falsify:
 *
 *   LOST        a freed object is given back to nobody
 *   DOUBLE      an object is handed out and is free as well
 *   MISCOUNTED  a list is longer than its count says, by one
 *   MISPLACED   a slab is on the list of a node that it does not lie on
 *   ELSEWHERE   an object comes from another node than was asked for
 *
 * The policy's file says how the third and the fourth are done: canary_miscount and
 * canary_misplace return false where that cannot be done yet.
 */
#ifndef CANARY_H
#define CANARY_H

#include "policy/policy.h"

enum canary_kind {
    CANARY_NONE,
    CANARY_LOST,
    CANARY_DOUBLE,
    CANARY_MISCOUNTED,
    CANARY_MISPLACED,
    CANARY_ELSEWHERE,
};

/* Set from Python by name; in canary_slab.c. One thread at a time. */
extern int canary_defect, canary_period, canary_fired;
extern int canary_call_count;

static bool canary_miscount(sq_cpu *cpu, sq_cache *cache);
static bool canary_misplace(sq_cpu *cpu, sq_cache *cache);
static const sq_policy_ops *canary_product;

/* Is it time for this defect? Then it stays time until canary_note. */
static bool canary_is_due(enum canary_kind kind)
{
    return canary_defect == (int)kind && ++canary_call_count >= canary_period;
}

static void canary_note(void)
{
    canary_call_count = 0;
    canary_fired++;
}

static void *canary_alloc(sq_cpu *cpu, sq_cache *cache, int32_t node, uint32_t flags)
{
    uint32_t node_count = cpu->machine->topology.node_count;
    void *object;
    if (node >= 0 && node_count > 1 && canary_is_due(CANARY_ELSEWHERE)) {
        node = (int32_t)(((uint32_t)node + 1) % node_count);
        canary_note();
    }
    object = canary_product->alloc(cpu, cache, node, flags);
    if (object != NULL && canary_is_due(CANARY_DOUBLE)) {
        canary_product->free(cpu, cache, object);
        canary_note();
    }
    return object;
}

static void canary_free(sq_cpu *cpu, sq_cache *cache, void *object)
{
    if (canary_is_due(CANARY_LOST)) {
        canary_note();
        return;
    }
    canary_product->free(cpu, cache, object);
    if (canary_is_due(CANARY_MISCOUNTED) && canary_miscount(cpu, cache))
        canary_note();
    if (canary_is_due(CANARY_MISPLACED) && canary_misplace(cpu, cache))
        canary_note();
}

/* Make the table `canary_<policy>` when the library is loaded. */
#define CANARY(policy)                                                                 \
    extern sq_policy_ops canary_##policy;                                              \
    sq_policy_ops canary_##policy;                                                     \
    __attribute__((constructor)) static void canary_set_up(void)                       \
    {                                                                                  \
        canary_product = &SQ_ON_MACHINE(sq_##policy);                                  \
        canary_##policy = *canary_product;                                             \
        canary_##policy.alloc = canary_alloc;                                          \
        canary_##policy.free = canary_free;                                            \
    }

#endif
