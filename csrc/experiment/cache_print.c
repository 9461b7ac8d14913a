/*
 * What a cache looks like to those who report on it. The words are slabq's own where
 * the kernel has none, else those of /proc/slabinfo.
 */
#include "experiment/cache_print.h"

static void print_usage(struct sq_json *json, const struct sq_cache_usage *usage)
{
    sq_json_unsigned(json, "slabs", usage->slab_count);
    sq_json_unsigned(json, "slab_bytes", usage->slab_bytes);
    sq_json_unsigned(json, "objects_total", usage->object_total);
    sq_json_unsigned(json, "objects_allocated", usage->object_allocated);
    sq_json_unsigned(json, "objects_queued", usage->object_queued);
    sq_json_unsigned(json, "partial_slabs", usage->partial_slab_count);
    sq_json_unsigned(json, "active_objs", usage->slabinfo_active_objects);
    sq_json_unsigned(json, "active_slabs", usage->slabinfo_active_slabs);
    sq_json_unsigned(json, "sharedavail", usage->slabinfo_shared_available);
    sq_json_unsigned(json, "limit", usage->slabinfo_limit);
    sq_json_unsigned(json, "batchcount", usage->slabinfo_batchcount);
    sq_json_unsigned(json, "sharedfactor", usage->slabinfo_shared);
}

/* What sysfs calls it, and the other names that were merged into it. */
static void print_names(struct sq_json *json, const sq_cache *cache)
{
    char name[SQ_CACHE_NAME_MAX];
    sq_cache_sysfs_name(cache, name);
    sq_json_string(json, "sysfs_name", name);
    sq_json_unsigned(json, "references", cache->reference_count);
    sq_json_open_array(json, "aliases");
    SQ_LIST_EACH(link, &cache->aliases)
        sq_json_string(json, NULL, SQ_LIST_ENTRY(link, struct sq_alias, link)->name);
    sq_json_close(json);
}

static uint64_t counter_sum(const sq_cache *cache, uint32_t cpu_count, uint32_t id)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < cpu_count; i++)
        sum += cache->counters[i][id];
    return sum;
}

static void print_counters(struct sq_json *json, const sq_cache *cache,
                           uint32_t cpu_count)
{
    sq_json_open_object(json, "counters");
    for (uint32_t id = 0; id < cache->ops->counter_count; id++)
        sq_json_unsigned(json, cache->ops->counters[id].name,
                         counter_sum(cache, cpu_count, id));
    sq_json_close(json);
}

/* {name: [value of CPU 0, ...]} of the counters that are not zero everywhere. */
static void print_counters_by_cpu(struct sq_json *json, const sq_cache *cache,
                                  uint32_t cpu_count)
{
    sq_json_open_object(json, "counters_by_cpu");
    for (uint32_t id = 0; id < cache->ops->counter_count; id++) {
        if (counter_sum(cache, cpu_count, id) == 0)
            continue;
        sq_json_open_array(json, cache->ops->counters[id].name);
        for (uint32_t i = 0; i < cpu_count; i++)
            sq_json_unsigned(json, NULL, cache->counters[i][id]);
        sq_json_close(json);
    }
    sq_json_close(json);
}

static void print_state(struct sq_json *json, sq_cpu *cpu, sq_cache *cache)
{
    sq_json_unsigned(json, "flags", cache->flags);
    sq_json_open_object(json, "geometry");
    cache->ops->describe(cache, json);
    if (cache->ops->tunables != NULL)
        cache->ops->tunables(cache, json);
    sq_json_close(json);
    sq_json_open_object(json, "state");
    cache->ops->dump(cpu, cache, json);
    sq_json_close(json);
    print_counters_by_cpu(json, cache, cpu->machine->topology.cpu_count);
}

void sq_cache_print(sq_cpu *cpu, sq_cache *cache, bool with_state, struct sq_json *json)
{
    struct sq_cache_usage usage = {0};
    cache->ops->usage(cpu, cache, &usage);
    sq_json_open_object(json, NULL);
    sq_json_string(json, "name", cache->name);
    sq_json_unsigned(json, "object_size", cache->object_size);
    sq_json_unsigned(json, "size", cache->size);
    sq_json_unsigned(json, "align", cache->align);
    sq_json_unsigned(json, "order", cache->order);
    sq_json_unsigned(json, "objects_per_slab", cache->slab_object_count);
    print_names(json, cache);
    print_usage(json, &usage);
    print_counters(json, cache, cpu->machine->topology.cpu_count);
    if (with_state)
        print_state(json, cpu, cache);
    sq_json_close(json);
}

void sq_heap_print_caches(sq_cpu *cpu, sq_heap *heap, struct sq_json *json)
{
    sq_json_open_array(json, "caches");
    SQ_LIST_EACH(link, &heap->caches)
        sq_cache_print(cpu, SQ_LIST_ENTRY(link, sq_cache, link), true, json);
    sq_json_close(json);
}
