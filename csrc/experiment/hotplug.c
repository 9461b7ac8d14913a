/*
 * CPUs that go offline and come back. What a CPU holds of each cache goes to the node, as
 * the policy says; it must not be entered while it is offline, which is the caller's to
 * see to. Requests to all CPUs still run as it, and find nothing there. The page lists of
 * the machine stay: their pages count as free, and CPUs short of memory collect them.
 */
#include "policy/policy.h"

int sq_heap_offline_cpu(sq_cpu *cpu, sq_heap *heap, struct sq_error *error)
{
    if (heap->offline_count + 1 == heap->machine->topology.cpu_count)
        return sq_error_set(error, SQ_E_PARAMETER,
                            "cpu %u is the last one online: accepted to go offline is "
                            "any but the last",
                            cpu->index);
    heap->cpu_is_offline[cpu->index] = true;
    heap->offline_count++;
    heap->offline_on_node[cpu->node]++;
    SQ_LIST_EACH(link, &heap->caches)
    {
        sq_cache *cache = SQ_LIST_ENTRY(link, sq_cache, link);
        if (heap->ops->cpu_offline != NULL)
            heap->ops->cpu_offline(cpu, cache);
        else
            heap->ops->flush_cpu(cpu, cache);
    }
    return SQ_OK;
}

void sq_heap_online_cpu(sq_cpu *cpu, sq_heap *heap)
{
    heap->cpu_is_offline[cpu->index] = false;
    heap->offline_count--;
    heap->offline_on_node[cpu->node]--;
    sq_heap_start_reaper(heap, cpu->index);
    SQ_LIST_EACH(link, &heap->caches)
    {
        if (heap->ops->cpu_online != NULL)
            heap->ops->cpu_online(cpu, SQ_LIST_ENTRY(link, sq_cache, link));
    }
}

uint32_t sq_heap_first_online_cpu(const sq_heap *heap)
{
    uint32_t index = 0;
    while (heap->cpu_is_offline[index])
        index++;
    return index;
}
