/* The canary of the policy `slab`, and the switches of all canaries. */
#define SQ_MACHINE_NATIVE 1
#include "policy/slab.c"

#include "canary.h"

#define CANARY_SWITCH __attribute__((visibility("default")))
CANARY_SWITCH int canary_defect, canary_period, canary_fired;
int canary_call_count;

/* One slab more than there are. */
static bool canary_miscount(sq_cpu *cpu, sq_cache *cache)
{
    slab_cache_of(cache)->node[cpu->node]->total_slabs++;
    return true;
}

/* The first partial slab of this CPU's node goes to the next node, with its counts. */
static bool canary_misplace(sq_cpu *cpu, sq_cache *base)
{
    struct slab_cache *cache = slab_cache_of(base);
    uint32_t node_count = cpu->machine->topology.node_count;
    struct slab_node *from = cache->node[cpu->node];
    struct slab_node *to = cache->node[(cpu->node + 1) % node_count];
    struct slab *slab;
    uint64_t free_count;
    if (node_count < 2 || sq_list_is_empty(&from->partial))
        return false;
    slab = SQ_LIST_ENTRY(from->partial.next, struct slab, list);
    free_count = cache->geometry.object_count - slab->inuse;
    sq_list_move_head(&slab->list, &to->partial);
    from->total_slabs--;
    to->total_slabs++;
    sq_store_relaxed(cpu, &from->free_objects,
                     node_free_objects(cpu, from) - free_count);
    sq_store_relaxed(cpu, &to->free_objects, node_free_objects(cpu, to) + free_count);
    return true;
}

CANARY(slab)
