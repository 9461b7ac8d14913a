/*
 * Memory policies: which node an allocation that names none goes to. A layer before the
 * allocator, as in SLAB, where a task's mempolicy picks a node and the call goes on as
 * kmem_cache_alloc_node of it, which for the local node is the local path. SLUB leaves the
 * choice to the page allocator, and obeys for each object only with strict_numa (6.18);
 * here all policies are asked the same way, so that they can be compared.
 *
 *   LOCAL       no node: the allocator's own way
 *   PREFERRED   one node, and its fallback list when it is full
 *   BIND        the nodes of the set, nearest to the CPU first, and no others
 *   INTERLEAVE  the nodes of the set in turn, each with its fallback list
 */
#ifndef SQ_MEMORY_POLICY_H
#define SQ_MEMORY_POLICY_H

#include "policy/policy.h"

enum sq_memory_mode {
    SQ_MEMORY_LOCAL = 0,
    SQ_MEMORY_PREFERRED,
    SQ_MEMORY_BIND,
    SQ_MEMORY_INTERLEAVE,
    SQ_MEMORY_MODE_COUNT
};

struct sq_memory_policy {
    enum sq_memory_mode mode;
    uint32_t nodes; /* bit n: node n; not 0 unless LOCAL */
};

/* One object of `cache`; if that is NULL, `bytes` by kmalloc. */
static inline void *sq_alloc_on_node(sq_cpu *cpu, sq_heap *heap, sq_cache *cache,
                                     size_t bytes, int32_t node, uint32_t flags)
{
    return cache != NULL ? heap->ops->alloc(cpu, cache, node, flags)
                         : heap->ops->kmalloc(cpu, heap, bytes, node, flags);
}

/* The first node of the set from `turn` on, around its end. `turn` moves behind it. */
static inline uint32_t sq_memory_next_node(uint32_t nodes, uint32_t *turn)
{
    uint32_t node = *turn % SQ_NODE_MAX;
    while ((nodes >> node & 1) == 0)
        node = (node + 1) % SQ_NODE_MAX;
    *turn = node + 1;
    return node;
}

static inline void *sq_alloc_bound(sq_cpu *cpu, sq_heap *heap, sq_cache *cache,
                                   size_t bytes, uint32_t nodes)
{
    const struct sq_topology *topology = &cpu->machine->topology;
    void *memory = NULL;
    for (uint32_t i = 0; i < topology->node_count && memory == NULL; i++) {
        uint32_t node = topology->fallback[cpu->node][i];
        if (nodes >> node & 1)
            memory = sq_alloc_on_node(cpu, heap, cache, bytes, (int32_t)node,
                                      SQ_ALLOC_THISNODE);
    }
    return memory;
}

/* Allocate as the policy says; `turn` is the interleaving caller's own. Requires nodes of
 * this machine. */
static inline void *sq_alloc_by_policy(sq_cpu *cpu, sq_heap *heap, sq_cache *cache,
                                       size_t bytes,
                                       const struct sq_memory_policy *policy,
                                       uint32_t *turn)
{
    uint32_t first = 0, node;
    if (policy->mode == SQ_MEMORY_BIND)
        return sq_alloc_bound(cpu, heap, cache, bytes, policy->nodes);
    if (policy->mode == SQ_MEMORY_LOCAL)
        return sq_alloc_on_node(cpu, heap, cache, bytes, SQ_NODE_ANY, 0);
    node = sq_memory_next_node(
        policy->nodes, policy->mode == SQ_MEMORY_INTERLEAVE ? turn : &first);
    return sq_alloc_on_node(cpu, heap, cache, bytes, (int32_t)node, 0);
}

/* As many as `count` in one call, all or none; a policy that picks nodes picks one for each
 * object, as the kernel's bulk calls do not. Returns `count` or 0. */
static inline size_t sq_alloc_bulk_by_policy(sq_cpu *cpu, sq_heap *heap, sq_cache *cache,
                                             size_t count,
                                             const struct sq_memory_policy *policy,
                                             uint32_t *turn, void **objects)
{
    size_t got = 0;
    if (policy->mode == SQ_MEMORY_LOCAL)
        return heap->ops->alloc_bulk(cpu, cache, 0, count, objects);
    while (got < count && (objects[got] = sq_alloc_by_policy(cpu, heap, cache, 0, policy,
                                                             turn)) != NULL)
        got++;
    if (got == count)
        return count;
    heap->ops->free_bulk(cpu, cache, got, objects);
    return 0;
}

#endif
