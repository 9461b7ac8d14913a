/*
 * Expiry (V4): give back what has not been in use since the last call, from what
 * matters least to what matters most.
 *
 *   1 empty slabs of a node's partial list     3 a batch of each shared queue
 *   2 a batch of each alien queue              4 a batch of each CPU's queue
 *
 * A queue or list in use is left alone and marked as not in use, so the next call finds
 * it. As posted all four levels run, the sum is the last level's, the walk over the
 * alien queues begins one early, with the shared queue, and ends one early; and node
 * -1, which should mean all nodes, gets no further than the first level but for the
 * marks of the CPUs' queues. The option expire_mended does what was meant.
 */
#ifndef SLUBQ_EXPIRE_H
#define SLUBQ_EXPIRE_H

#include "policy/slubq_shrink.h"

/* Drain a batch of a queue that is not in use. Requires its lock or, for a CPU's, to be
 * that CPU. Returns bytes. */
static uint64_t slubq_expire_queue(sq_cpu *cpu, struct slubq_cache *cache,
                                   struct slubq_queue *queue)
{
    uint32_t before = queue->objects;
    if (!queue->touched && before > 0)
        slubq_drain_queue(cpu, cache, queue, queue->batch);
    queue->touched = 0;
    return (uint64_t)(before - queue->objects) * cache->base.size;
}

static uint64_t slubq_expire_locked(sq_cpu *cpu, struct slubq_cache *cache,
                                    struct slubq_queue *queue)
{
    uint64_t bytes;
    sq_irq_save(cpu);
    sq_lock_acquire(cpu, &queue->lock);
    sq_touch_write(cpu, queue, sizeof(*queue));
    bytes = slubq_expire_queue(cpu, cache, queue);
    sq_lock_release(cpu, &queue->lock);
    sq_irq_restore(cpu);
    return bytes;
}

static uint64_t slubq_expire_partial(sq_cpu *cpu, struct slubq_cache *cache, uint32_t n)
{
    struct slubq_node *node = cache->node[n];
    bool in_use;
    sq_irq_save(cpu);
    sq_lock_acquire(cpu, &node->list_lock);
    in_use = sq_list_is_empty(&node->partial) || node->touched;
    if (in_use)
        node->touched = 0;
    sq_lock_release(cpu, &node->list_lock);
    sq_irq_restore(cpu);
    return in_use ? 0 : slubq_shrink_node(cpu, cache, n);
}

/* The alien queue that the kernel numbers `number`, from 1, counting nodes but the
 * group's own; number 0 is the shared queue. */
static struct slubq_queue *slubq_numbered_queue(const struct slubq_group *group,
                                                uint32_t number)
{
    if (number == 0)
        return group->shared;
    return group->alien[number <= group->node ? number - 1 : number];
}

static uint64_t slubq_expire_aliens(sq_cpu *cpu, struct slubq_cache *cache, uint32_t n)
{
    uint32_t first = cache->rule.expire_is_mended ? 1 : 0;
    uint32_t count = slubq_topology(cache)->node_count - 1;
    uint64_t bytes = 0;
    for (uint32_t i = 0; cache->alien_max > 0 && i < cache->group_count; i++)
        for (uint32_t k = 0; cache->group[i]->node == n && k < count; k++)
            bytes += slubq_expire_locked(
                cpu, cache, slubq_numbered_queue(cache->group[i], first + k));
    return bytes;
}

static uint64_t slubq_expire_shared(sq_cpu *cpu, struct slubq_cache *cache, uint32_t n)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < cache->group_count; i++)
        if (cache->group[i]->node == n)
            bytes += slubq_expire_locked(cpu, cache, cache->group[i]->shared);
    return bytes;
}

struct slubq_expire_cpus {
    struct slubq_cache *cache;
    uint32_t node;
    uint64_t bytes;
};

/* As each CPU. Marks are taken from the queues of all nodes, as posted. */
static void slubq_expire_cpu(sq_cpu *cpu, void *argument)
{
    struct slubq_expire_cpus *expire = argument;
    struct slubq_queue *queue = slubq_queue_of(cpu, expire->cache);
    if (cpu->node == expire->node)
        expire->bytes += slubq_expire_queue(cpu, expire->cache, queue);
    else if (!expire->cache->rule.expire_is_mended)
        queue->touched = 0;
}

static uint64_t slubq_expire_cpus(sq_cpu *cpu, struct slubq_cache *cache, uint32_t n)
{
    struct slubq_expire_cpus expire = {.cache = cache, .node = n};
    sq_on_each_cpu(cpu, slubq_expire_cpu, &expire);
    return expire.bytes;
}

typedef uint64_t slubq_expire_level(sq_cpu *cpu, struct slubq_cache *cache, uint32_t n);

static slubq_expire_level *const slubq_expire_levels[] = {
    slubq_expire_partial, slubq_expire_aliens, slubq_expire_shared, slubq_expire_cpus};

/* What was meant: `first` to `last` node, until a level gives something. */
static uint64_t slubq_expire_mended(sq_cpu *cpu, struct slubq_cache *cache,
                                    uint32_t first, uint32_t last)
{
    uint64_t bytes = 0;
    for (size_t i = 0; bytes == 0 && i < SQ_ARRAY_COUNT(slubq_expire_levels); i++)
        for (uint32_t n = first; n <= last; n++)
            bytes += slubq_expire_levels[i](cpu, cache, n);
    return bytes;
}

/* What was posted, on one node. */
static uint64_t slubq_expire_posted(sq_cpu *cpu, struct slubq_cache *cache, uint32_t n)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < SQ_ARRAY_COUNT(slubq_expire_levels); i++)
        bytes = slubq_expire_levels[i](cpu, cache, n);
    return bytes;
}

/* What was posted, on "all nodes": afterwards the node is one that nobody is on. */
static uint64_t slubq_expire_posted_all(sq_cpu *cpu, struct slubq_cache *cache)
{
    uint32_t node_count = slubq_topology(cache)->node_count;
    for (uint32_t n = 0; n < node_count; n++)
        (void)slubq_expire_partial(cpu, cache, n);
    return slubq_expire_cpus(cpu, cache, node_count);
}

/* Expire a node, or all if it is -1. */
static int slubq_expire(sq_cpu *cpu, struct slubq_cache *cache, int64_t node,
                        struct sq_error *error)
{
    uint32_t last = slubq_topology(cache)->node_count - 1;
    if (node > (int64_t)last)
        return sq_error_set(error, SQ_E_PARAMETER,
                            "cache %s: expire %lld: no such node; accepted: -1 to %u",
                            cache->base.name, (long long)node, last);
    if (cache->rule.expire_is_mended)
        cache->expired_bytes =
            slubq_expire_mended(cpu, cache, node < 0 ? 0 : (uint32_t)node,
                                node < 0 ? last : (uint32_t)node);
    else if (node < 0)
        cache->expired_bytes = slubq_expire_posted_all(cpu, cache);
    else
        cache->expired_bytes = slubq_expire_posted(cpu, cache, (uint32_t)node);
    return 0;
}

#endif
