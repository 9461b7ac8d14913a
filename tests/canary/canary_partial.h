/* What SLUB and sheaves share: slabs on a node's partial list. */
#include "canary.h"

/* One slab more than are on the list. */
static bool canary_miscount(sq_cpu *cpu, sq_cache *base)
{
    struct slub_node *node = ((struct slub_cache *)base)->node[cpu->node];
    sq_store_relaxed(cpu, &node->partial_count,
                     sq_load_relaxed(cpu, &node->partial_count) + 1);
    return true;
}

/* The first slab of any node's list goes to the next node's list, with its count. */
static bool canary_misplace(sq_cpu *cpu, sq_cache *base)
{
    struct slub_cache *cache = (struct slub_cache *)base;
    uint32_t node_count = cpu->machine->topology.node_count;
    for (uint32_t i = 0; i < node_count && node_count > 1; i++) {
        struct slub_node *from = cache->node[i];
        struct slub_node *to = cache->node[(i + 1) % node_count];
        if (sq_list_is_empty(&from->partial))
            continue;
        sq_list_move_head(from->partial.next, &to->partial);
        sq_store_relaxed(cpu, &from->partial_count,
                         sq_load_relaxed(cpu, &from->partial_count) - 1);
        sq_store_relaxed(cpu, &to->partial_count,
                         sq_load_relaxed(cpu, &to->partial_count) + 1);
        return true;
    }
    return false;
}
