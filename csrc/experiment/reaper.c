/*
 * Time, for the periodic reaper (facts: SLAB's cache_reap). Each CPU makes a pass over all
 * caches every two seconds; the first about a second after the heap is made. A pass looks
 * at the node's own part only when four seconds have gone by since one did, whichever of
 * the node's CPUs makes it. Passes of different CPUs are three jiffies apart, the later
 * CPUs first: times are rounded to whole seconds and then moved back by 3 * CPU.
 *
 * A node's first look at a cache is four seconds away and up to four more, in the kernel by
 * the cache's address; here by its number, so that runs are alike.
 */
#include "policy/policy.h"

#define MS_PER_JIFFY    (1000u / SQ_HZ)
#define CPU_PERIOD      (2u * SQ_HZ) /* kernel: REAPTIMEOUT_AC, once REAPTIMEOUT_CPUC */
#define NODE_PERIOD     (4u * SQ_HZ) /* kernel: REAPTIMEOUT_NODE, once REAPTIMEOUT_LIST3 */
#define CPU_SKEW        3u
#define CACHE_STEP      107u /* spreads caches over NODE_PERIOD; coprime to it */

static uint64_t heap_jiffies(const sq_heap *heap)
{
    return heap->clock_ms / MS_PER_JIFFY;
}

/* The whole second near `jiffies`, moved back by the CPU's skew (kernel: round_jiffies):
 * down in a second's first quarter, else up. */
static uint64_t round_to_second(uint64_t jiffies, uint32_t cpu_index)
{
    uint64_t skewed = jiffies + CPU_SKEW * cpu_index;
    uint64_t rest = skewed % SQ_HZ;
    return skewed - rest + (rest < SQ_HZ / 4 ? 0 : SQ_HZ) - CPU_SKEW * cpu_index;
}

void sq_heap_start_reaper(sq_heap *heap, uint32_t cpu_index)
{
    heap->reap_jiffies[cpu_index] =
        round_to_second(heap_jiffies(heap) + SQ_HZ, cpu_index);
}

void sq_cache_start_reaping(sq_cache *cache)
{
    uint64_t first = heap_jiffies(cache->heap) + NODE_PERIOD +
                     cache->index * CACHE_STEP % NODE_PERIOD;
    for (uint32_t node = 0; node < SQ_NODE_MAX; node++)
        cache->reap_jiffies[node] = first;
}

/* One CPU's pass over all caches. */
static void reaper_pass(sq_heap *heap, uint32_t cpu_index)
{
    sq_cpu *cpu = heap->machine->ops->cpu_enter(heap->machine, cpu_index);
    uint64_t now = heap_jiffies(heap);
    SQ_LIST_EACH(link, &heap->caches)
    {
        sq_cache *cache = SQ_LIST_ENTRY(link, sq_cache, link);
        bool with_node = cache->reap_jiffies[cpu->node] <= now;
        if (with_node)
            cache->reap_jiffies[cpu->node] = now + NODE_PERIOD;
        (void)heap->ops->reap(cpu, cache, with_node);
    }
    heap->machine->ops->cpu_leave(cpu);
    heap->reap_jiffies[cpu_index] = round_to_second(now + CPU_PERIOD, cpu_index);
}

/* The online CPU whose pass comes next, the first of those at the same time. */
static uint32_t reaper_next_cpu(const sq_heap *heap)
{
    uint32_t next = sq_heap_first_online_cpu(heap);
    for (uint32_t i = next + 1; i < heap->machine->topology.cpu_count; i++)
        if (!heap->cpu_is_offline[i] && heap->reap_jiffies[i] < heap->reap_jiffies[next])
            next = i;
    return next;
}

uint64_t sq_heap_advance(sq_heap *heap, uint64_t milliseconds)
{
    uint64_t end_ms = heap->clock_ms + milliseconds;
    uint64_t passes = 0;
    while (heap->ops->reap != NULL) {
        uint32_t cpu_index = reaper_next_cpu(heap);
        uint64_t due_ms = heap->reap_jiffies[cpu_index] * MS_PER_JIFFY;
        if (due_ms > end_ms)
            break;
        heap->clock_ms = sq_max_u64(heap->clock_ms, due_ms);
        reaper_pass(heap, cpu_index);
        passes++;
    }
    heap->clock_ms = end_ms;
    return passes;
}
