/*
 * slab_tune.h -- a cache's limits are changed: new arrays for every CPU and node, while
 * others allocate. Included by slab.c after slab_control.h. One caller at a time.
 */
#ifndef SQ_SLAB_TUNE_H
#define SQ_SLAB_TUNE_H

#include "policy/slab_control.h"

/* New arrays on their way in, old ones on their way out. */
struct slab_swap {
    struct slab_cache *cache;
    struct sq_percpu arrays;
};

/* Runs as each CPU: exchange its array. */
static void swap_cpu_array(sq_cpu *target, void *argument)
{
    struct slab_swap *swap = argument;
    void *old = swap->cache->arrays.part[target->index];
    swap->cache->arrays.part[target->index] = swap->arrays.part[target->index];
    swap->arrays.part[target->index] = old;
}

/* Runs as each CPU: afterwards nobody is left who looked at a shared array before. */
static void pass_quietly(sq_cpu *target, void *argument)
{
    (void)target;
    (void)argument;
}

/* Give a node its new shared array (NULL: none any more) and free limit; returns the
 * old array, emptied. */
static struct array_cache *node_retune(sq_cpu *cpu, struct slab_cache *cache,
                                       struct slab_node *node,
                                       struct array_cache *shared)
{
    uint64_t free_limit = slab_free_limit(cache->base.heap, node->index,
                                          &cache->tunables, &cache->geometry);
    struct array_cache *old;
    struct sq_list doomed;
    sq_list_init(&doomed);
    sq_lock_acquire(cpu, &node->list_lock);
    if (cache->sets_free_limit_first)
        node->free_limit = free_limit;
    old = node->shared;
    if (old != NULL)
        array_drain(cpu, cache, node, old, old->avail, &doomed);
    __atomic_store_n(&node->shared, shared, __ATOMIC_RELEASE);
    node->free_limit = free_limit;
    sq_lock_release(cpu, &node->list_lock);
    slabs_destroy(cpu, cache, &doomed);
    return old;
}

/* The objects of arrays that no CPU uses any more go to slabs, CPU after CPU. */
static void drain_old_arrays(sq_cpu *cpu, struct slab_cache *cache,
                             struct sq_percpu *arrays)
{
    for (uint32_t i = 0; i < cpu->machine->topology.cpu_count; i++) {
        struct array_cache *array = sq_percpu_at(arrays, i);
        struct slab_node *node = cache->node[cpu->machine->topology.node_of_cpu[i]];
        struct sq_list doomed;
        sq_list_init(&doomed);
        sq_lock_acquire(cpu, &node->list_lock);
        array_drain(cpu, cache, node, array, array->avail, &doomed);
        sq_lock_release(cpu, &node->list_lock);
        slabs_destroy(cpu, cache, &doomed);
    }
}

/* New shared arrays for every node, all or none. */
static bool shared_make_all(sq_cpu *cpu, const struct slab_tunables *tunables,
                            struct array_cache **shared)
{
    for (uint32_t i = 0; i < cpu->machine->topology.node_count; i++) {
        shared[i] = tunables->shared > 0 ? shared_make(cpu, tunables, i) : NULL;
        if (tunables->shared > 0 && shared[i] == NULL) {
            while (i-- > 0)
                sq_meta_free(cpu, shared[i]);
            return false;
        }
    }
    return true;
}

/* Put new tunables in force (kernel: do_tune_cpucache). All memory is had before
 * anything changes. Alien arrays keep their size. */
static int slab_retune(sq_cpu *cpu, struct slab_cache *cache,
                       const struct slab_tunables *wanted, struct sq_error *error)
{
    struct array_cache *shared[SQ_NODE_MAX] = {NULL};
    struct slab_swap swap = {.cache = cache};
    if (!shared_make_all(cpu, wanted, shared))
        return sq_error_set(error, SQ_E_MEMORY,
                            "no memory on the machine to retune cache %.60s",
                            cache->base.name);
    if (!arrays_make(cpu, &swap.arrays, wanted)) {
        for (uint32_t i = 0; i < SQ_NODE_MAX; i++)
            if (shared[i] != NULL)
                sq_meta_free(cpu, shared[i]);
        return sq_error_set(error, SQ_E_MEMORY,
                            "no memory on the machine to retune cache %.60s",
                            cache->base.name);
    }
    sq_on_each_cpu(cpu, swap_cpu_array, &swap);
    sq_irq_save(cpu);
    cache->tunables = *wanted;
    drain_old_arrays(cpu, cache, &swap.arrays);
    for (uint32_t i = 0; i < cpu->machine->topology.node_count; i++)
        shared[i] = node_retune(cpu, cache, cache->node[i], shared[i]);
    sq_irq_restore(cpu);
    sq_on_each_cpu(cpu, pass_quietly, NULL);
    for (uint32_t i = 0; i < SQ_NODE_MAX; i++)
        if (shared[i] != NULL)
            sq_meta_free(cpu, shared[i]);
    sq_percpu_free(cpu, &swap.arrays);
    return SQ_OK;
}

/* The field of a tunable, or NULL for a name that is not one of /proc/slabinfo. */
static uint32_t *tunable_field(struct slab_tunables *tunables, const char *name)
{
    if (strcmp(name, "limit") == 0)
        return &tunables->limit;
    if (strcmp(name, "batchcount") == 0)
        return &tunables->batchcount;
    return strcmp(name, "shared") == 0 ? &tunables->shared : NULL;
}

/* Check one name and value, and note it in `wanted` or `reap_node`. */
static int slab_tune_note(sq_cpu *cpu, sq_cache *base, const char *name, int64_t value,
                          struct slab_tunables *wanted, int64_t *reap_node,
                          struct sq_error *error)
{
    uint32_t *field = tunable_field(wanted, name);
    bool is_reap_node = strcmp(name, "reap_node") == 0;
    int64_t value_min = field == NULL || field == &wanted->shared ? 0 : 1;
    int64_t value_max = field == &wanted->shared ? 64 : 4096;
    if (field == NULL && !is_reap_node)
        return sq_error_set(error, SQ_E_PARAMETER,
                            "policy slab has no tunable %.40s: accepted are limit, "
                            "batchcount, shared, reap_node",
                            name);
    if (is_reap_node)
        value_max = (int64_t)cpu->machine->topology.node_count - 1;
    if (value < value_min || value > value_max)
        return sq_error_set(error, SQ_E_PARAMETER,
                            "%s of cache %.60s is %lld: accepted are %lld to %lld",
                            name, base->name, (long long)value, (long long)value_min,
                            (long long)value_max);
    if (is_reap_node)
        *reap_node = value;
    else
        *field = (uint32_t)value;
    return SQ_OK;
}

/*
 * ops->tune. `limit`, `batchcount` and `shared` are one write of /proc/slabinfo, which
 * exchanges the arrays even if it changes no value; the kernel silently ignores a
 * batchcount above the limit, here it is refused. `reap_node` is the node whose alien
 * array the calling CPU's next reaper pass drains.
 */
static int slab_tune(sq_cpu *cpu, sq_cache *base, uint32_t count,
                     const char *const *names, const int64_t *values,
                     struct sq_error *error)
{
    struct slab_cache *cache = slab_cache_of(base);
    struct slab_tunables wanted = cache->tunables;
    int64_t reap_node = -1;
    bool is_retuned = false;
    for (uint32_t i = 0; i < count; i++) {
        int status =
            slab_tune_note(cpu, base, names[i], values[i], &wanted, &reap_node, error);
        if (status != SQ_OK)
            return status;
        is_retuned |= strcmp(names[i], "reap_node") != 0;
    }
    if (wanted.batchcount > wanted.limit)
        return sq_error_set(
            error, SQ_E_PARAMETER,
            "batchcount of cache %.60s is %u: accepted are 1 to the limit, "
            "which is %u",
            base->name, wanted.batchcount, wanted.limit);
    if (is_retuned) {
        int status = slab_retune(cpu, cache, &wanted, error);
        if (status != SQ_OK)
            return status;
    }
    if (reap_node >= 0)
        cache->reap_node[cpu->index] = (uint8_t)reap_node;
    return SQ_OK;
}

#endif
