/* The canary of the policy `slub+q`. */
#define SQ_MACHINE_NATIVE 1
#include "policy/slubq.c"

#include "canary.h"

static void canary_add(sq_cpu *cpu, struct slubq_node *node, uint64_t change)
{
    sq_store_relaxed(cpu, &node->nr_partial,
                     sq_load_relaxed(cpu, &node->nr_partial) + change);
}

/* One slab more than are on the partial list. */
static bool canary_miscount(sq_cpu *cpu, sq_cache *base)
{
    canary_add(cpu, slubq_cache_of(base)->node[cpu->node], 1);
    return true;
}

/* The first slab of any node's list goes to the next node's list, with its count. */
static bool canary_misplace(sq_cpu *cpu, sq_cache *base)
{
    struct slubq_cache *cache = slubq_cache_of(base);
    uint32_t node_count = cpu->machine->topology.node_count;
    for (uint32_t i = 0; i < node_count && node_count > 1; i++) {
        struct slubq_node *from = cache->node[i];
        struct slubq_node *to = cache->node[(i + 1) % node_count];
        if (sq_list_is_empty(&from->partial))
            continue;
        sq_list_move_head(from->partial.next, &to->partial);
        canary_add(cpu, from, UINT64_MAX);
        canary_add(cpu, to, 1);
        return true;
    }
    return false;
}

CANARY(slubq)
