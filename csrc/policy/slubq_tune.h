/*
 * The control plane of a live cache: changes of queue sizes and other tunables.
 *
 * Whatever changes a CPU's queue runs as that CPU, one after the other.
 */
#ifndef SLUBQ_TUNE_H
#define SLUBQ_TUNE_H

#include <stdio.h>

#include "policy/slubq_expire.h"

/* ---- resizing ---- */

/* Queues of a new size for all CPUs, empty and not yet in use. */
static bool slubq_queues_make(sq_cpu *cpu, struct slubq_cache *cache,
                              struct sq_percpu *queue)
{
    const struct sq_topology *topology = slubq_topology(cache);
    if (!sq_percpu_alloc(cpu, queue, slubq_queue_bytes(cache->queue_max)))
        return false;
    for (uint32_t i = 0; i < topology->cpu_count; i++) {
        uint32_t node = cache->rule.version >= 3 ? topology->node_of_cpu[i] : 0;
        slubq_queue_init(queue->part[i], cache->queue_max, cache->batch, node,
                         SQ_LOCK_SHARED);
    }
    return true;
}

struct slubq_resize {
    struct slubq_cache *cache;
    struct sq_percpu queue; /* new ones; afterwards the old ones */
};

/* As each CPU: take up the new queue, then empty the old one. */
static void slubq_resize_cpu(sq_cpu *cpu, void *argument)
{
    struct slubq_resize *resize = argument;
    struct slubq_cache *cache = resize->cache;
    struct slubq_queue *old = slubq_queue_of(cpu, cache);
    struct slubq_queue *queue = resize->queue.part[cpu->index];
    queue->group = old->group;
    cache->queue.part[cpu->index] = queue;
    resize->queue.part[cpu->index] = old;
    if (cache->rule.resize_clears_counters)
        memset(cache->base.counters[cpu->index], 0,
               SLUBQ_COUNTER_COUNT * sizeof(uint64_t));
    if (old->objects > 0)
        slubq_flush_queue(cpu, cache, old);
}

/* As each CPU: forget the shared queue; the first CPU of a group empties it. */
static void slubq_leave_group(sq_cpu *cpu, void *argument)
{
    struct slubq_cache *cache = argument;
    struct slubq_queue *queue = slubq_queue_of(cpu, cache);
    struct slubq_group *group = queue->group;
    queue->group = NULL;
    if (group == NULL)
        return;
    slubq_flush_locked(cpu, cache, group->shared);
    if (cache->rule.resize_keeps_aliens)
        slubq_flush_aliens(cpu, cache, group);
}

static void slubq_join_group(sq_cpu *cpu, void *argument)
{
    struct slubq_cache *cache = argument;
    slubq_queue_of(cpu, cache)->group = slubq_group_of_cpu(cache, cpu->index);
}

/*
 * Take the shared and alien queues away. As posted, the objects of alien queues are
 * lost by this: nobody has them, and nobody will find them.
 */
static void slubq_groups_remove(sq_cpu *cpu, struct slubq_cache *cache)
{
    if (cache->group_count == 0)
        return;
    sq_on_each_cpu(cpu, slubq_leave_group, cache);
    for (uint32_t i = 0; i < cache->group_count; i++)
        for (uint32_t to = 0; to < SQ_NODE_MAX; to++)
            if (cache->group[i]->alien[to] != NULL)
                cache->lost_objects += cache->group[i]->alien[to]->objects;
    slubq_groups_free(cpu, cache);
}

static int slubq_groups_add(sq_cpu *cpu, struct slubq_cache *cache,
                            struct sq_error *error)
{
    if (!slubq_groups_make(cpu, cache))
        return sq_error_set(error, SQ_E_MEMORY,
                            "cache %s: no memory for shared queues of %u objects",
                            cache->base.name, cache->shared_size);
    if (cache->group_count > 0)
        sq_on_each_cpu(cpu, slubq_join_group, cache);
    return 0;
}

/* Give the CPUs queues of another size while the cache is in use. */
static int slubq_resize_queues(sq_cpu *cpu, struct slubq_cache *cache, int64_t size,
                               struct sq_error *error)
{
    struct slubq_resize resize = {.cache = cache};
    uint32_t old_size = cache->queue_size, old_batch = cache->batch;
    slubq_groups_remove(cpu, cache);
    cache->queue_size = (uint32_t)size;
    cache->batch = (uint32_t)(size + 1) / 2;
    slubq_set_sizes(cache);
    if (!slubq_queues_make(cpu, cache, &resize.queue)) {
        cache->queue_size = old_size;
        cache->batch = old_batch;
        slubq_set_sizes(cache);
        (void)slubq_groups_add(cpu, cache, NULL);
        return sq_error_set(error, SQ_E_MEMORY,
                            "cache %s: no memory for queues of %lld objects",
                            cache->base.name, (long long)size);
    }
    sq_on_each_cpu(cpu, slubq_resize_cpu, &resize);
    sq_percpu_free(cpu, &resize.queue);
    return slubq_groups_add(cpu, cache, error);
}

static int slubq_resize_shared(sq_cpu *cpu, struct slubq_cache *cache, int64_t size,
                               struct sq_error *error)
{
    slubq_groups_remove(cpu, cache);
    cache->shared_size = (uint32_t)size;
    slubq_set_sizes(cache);
    return slubq_groups_add(cpu, cache, error);
}

/* ---- tunables ---- */

static int slubq_tune_min_partial(sq_cpu *cpu, struct slubq_cache *cache, int64_t value,
                                  struct sq_error *error)
{
    (void)cpu, (void)error;
    slubq_tunable_set(&cache->min_partial, value);
    return 0;
}

static int slubq_tune_defrag(sq_cpu *cpu, struct slubq_cache *cache, int64_t value,
                             struct sq_error *error)
{
    (void)cpu, (void)error;
    slubq_tunable_set(&cache->remote_node_defrag_ratio, value);
    return 0;
}

/* The kernel's sysfs names; `expire` takes a node. */
struct slubq_tunable {
    const char *name;
    int64_t low, high;
    uint8_t first_version, last_version;
    int (*apply)(sq_cpu *cpu, struct slubq_cache *cache, int64_t value,
                 struct sq_error *error);
};

static const struct slubq_tunable slubq_tunables[] = {
    {"cpu_queue_size", SLUBQ_QUEUE_MIN, SLUBQ_QUEUE_MAX, 1, 4, slubq_resize_queues},
    {"shared_queue_size", 0, SLUBQ_QUEUE_MAX, 3, 4, slubq_resize_shared},
    {"min_partial", 0, UINT32_MAX, 1, 4, slubq_tune_min_partial},
    {"remote_node_defrag_ratio", 0, UINT32_MAX, 1, 3, slubq_tune_defrag},
    {"expire", -1, SQ_NODE_MAX - 1, 4, 4, slubq_expire},
};

/* The row of a name whose value is in range, or NULL with a message. */
static const struct slubq_tunable *slubq_tunable_find(const struct slubq_cache *cache,
                                                      const char *name, int64_t value,
                                                      struct sq_error *error)
{
    char known[160] = "";
    size_t length = 0;
    for (size_t i = 0; i < SQ_ARRAY_COUNT(slubq_tunables); i++) {
        const struct slubq_tunable *row = &slubq_tunables[i];
        if (row->first_version > cache->rule.version ||
            row->last_version < cache->rule.version)
            continue;
        length += (size_t)snprintf(known + length, sizeof(known) - length, "%s%s",
                                   length > 0 ? ", " : "", row->name);
        if (strcmp(row->name, name) != 0)
            continue;
        if (value >= row->low && value <= row->high)
            return row;
        (void)sq_error_set(error, SQ_E_PARAMETER,
                           "cache %s: %s %lld is out of range; accepted: %lld to %lld",
                           cache->base.name, name, (long long)value,
                           (long long)row->low, (long long)row->high);
        return NULL;
    }
    (void)sq_error_set(error, SQ_E_PARAMETER,
                       "cache %s: slub+q V%u has no tunable %.40s; known: %s",
                       cache->base.name, cache->rule.version, name, known);
    return NULL;
}

/* Every name and value is looked at before the first is applied. */
static int slubq_tune(sq_cpu *cpu, sq_cache *base, uint32_t count,
                      const char *const *names, const int64_t *values,
                      struct sq_error *error)
{
    struct slubq_cache *cache = slubq_cache_of(base);
    int code = 0;
    for (uint32_t i = 0; i < count; i++)
        if (slubq_tunable_find(cache, names[i], values[i], error) == NULL)
            return SQ_E_PARAMETER;
    for (uint32_t i = 0; i < count && code == 0; i++)
        code = slubq_tunable_find(cache, names[i], values[i], error)
                   ->apply(cpu, cache, values[i], error);
    return code;
}

#endif
