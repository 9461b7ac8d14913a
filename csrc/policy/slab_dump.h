/*
 * slab_dump.h -- a cache as seen from outside: where an object lies, how much is in
 * use, and the JSON forms that conformance tests compare. Included by slab.c.
 */
#ifndef SQ_SLAB_DUMP_H
#define SQ_SLAB_DUMP_H

#include "policy/slab_check.h"

/* ops->locate: an object, which is not a slot if there are red zones. */
static bool slab_locate(sq_cache *base, const void *object,
                        struct sq_object_place *place)
{
    struct slab_cache *cache = slab_cache_of(base);
    const void *slot =
        (const void *)((uintptr_t)object - cache->geometry.object_offset);
    struct sq_page *page = slab_page_of_object(cache, slot, &place->index);
    if (page == NULL)
        return false;
    place->page = page;
    place->serial = page->serial;
    place->node = page->node;
    return true;
}

/* ops->usage. Queued objects count as active, as in /proc/slabinfo. */
static void slab_usage(sq_cpu *cpu, sq_cache *base, struct sq_cache_usage *usage)
{
    struct slab_cache *cache = slab_cache_of(base);
    const struct sq_topology *topology = &cpu->machine->topology;
    uint64_t free_objects = 0, free_slabs = 0;
    memset(usage, 0, sizeof(*usage));
    for (uint32_t i = 0; i < topology->cpu_count; i++)
        usage->object_queued += slab_array_of(cache, i)->avail;
    for (uint32_t i = 0; i < topology->node_count; i++) {
        struct slab_node *node = cache->node[i];
        usage->slab_count += node->total_slabs;
        usage->partial_slab_count += sq_list_count(&node->partial, node->total_slabs);
        usage->slabinfo_shared_available += node->shared ? node->shared->avail : 0;
        free_slabs += node->free_slabs;
        free_objects += node_free_objects(cpu, node);
        for (uint32_t j = 0; j < topology->node_count; j++)
            usage->object_queued +=
                node->alien[j] ? alien_array(node->alien[j])->avail : 0;
    }
    usage->object_queued += usage->slabinfo_shared_available;
    usage->slab_bytes = usage->slab_count * ((uint64_t)SQ_PAGE_SIZE << base->order);
    usage->object_total = usage->slab_count * cache->geometry.object_count;
    usage->slabinfo_active_objects = usage->object_total - free_objects;
    usage->slabinfo_active_slabs = usage->slab_count - free_slabs;
    usage->object_allocated = usage->slabinfo_active_objects - usage->object_queued;
    usage->slabinfo_limit = cache->tunables.limit;
    usage->slabinfo_batchcount = cache->tunables.batchcount;
    usage->slabinfo_shared = cache->tunables.shared;
}

/* ---- geometry ---- */

/* Members from the size to the colour step, common to `cache` lines and tables. */
static void json_geometry(struct sq_json *json, uint64_t object_size, bool is_classic,
                          const struct slab_geometry *geometry,
                          const struct slab_tunables *tunables, bool with_pages)
{
    if (object_size > 0)
        sq_json_unsigned(json, "objsize", object_size);
    sq_json_unsigned(json, "size", geometry->size);
    if (!is_classic)
        sq_json_unsigned(json, "align", geometry->align);
    sq_json_unsigned(json, "order", geometry->order);
    if (with_pages)
        sq_json_unsigned(json, "pages", UINT64_C(1) << geometry->order);
    sq_json_unsigned(json, "num", geometry->object_count);
    sq_json_unsigned(json, "limit", tunables->limit);
    sq_json_unsigned(json, "batchcount", tunables->batchcount);
    sq_json_unsigned(json, "shared", tunables->shared);
    sq_json_unsigned(json, "colour", geometry->colour_count);
    sq_json_unsigned(json, "colour_off", geometry->colour_step);
    if (geometry->debug_flags != 0)
        sq_json_unsigned(json, "obj_offset", geometry->object_offset);
}

/* Members about the management data. */
static void json_management(struct sq_json *json, bool is_classic,
                            const struct slab_geometry *geometry)
{
    static const char *const places[] = {"on", "off", "obj"};
    const char *place = places[geometry->placement];
    sq_json_unsigned(json, is_classic ? "slab_size" : "freelist_size",
                     geometry->management_bytes);
    sq_json_string(json, is_classic ? "mgmt" : "freelist", place);
    if (is_classic)
        sq_json_unsigned(json, "mgmt_cache",
                         geometry->management_cache ? geometry->management_cache->size
                                                    : 0);
}

/* ops->geometry: the columns of the oracle's tables after the request. */
static int slab_geometry_describe(const sq_heap *heap, const struct sq_cache_spec *spec,
                                  struct sq_json *json, struct sq_error *error)
{
    bool is_classic = !heap->options.slab.freelist_index_stack;
    struct slab_geometry geometry;
    struct slab_tunables tunables;
    int status = slab_geometry_plan(heap, spec, &geometry, error);
    if (status != SQ_OK)
        return status;
    tunables = slab_tunables_for(heap, &geometry);
    json_geometry(json, is_classic ? 0 : spec->size, is_classic, &geometry, &tunables,
                  !is_classic);
    json_management(json, is_classic, &geometry);
    sq_json_unsigned(json, "free_limit_node0",
                     slab_free_limit(heap, 0, &tunables, &geometry));
    sq_json_integer(json, "shared_limit",
                    tunables.shared > 0 ? (int64_t)tunables.shared * tunables.batchcount
                                        : -1);
    sq_json_integer(json, "alien_limit",
                    slab_wants_aliens(heap)
                        ? (int64_t)slab_alien_limit(&heap->options, tunables.limit)
                        : -1);
    return SQ_OK;
}

/* ops->describe: the `cache` line. `nodes` is [node, free_limit, limit and batchcount
 * of the shared array, limit of the alien arrays], -1 for what there is not. */
static void slab_describe(sq_cache *base, struct sq_json *json)
{
    struct slab_cache *cache = slab_cache_of(base);
    json_geometry(json, base->object_size, cache->is_classic, &cache->geometry,
                  &cache->tunables, false);
    json_management(json, cache->is_classic, &cache->geometry);
    sq_json_open_array(json, "nodes");
    for (uint32_t i = 0; i < slab_machine(cache)->topology.node_count; i++) {
        const struct slab_node *node = cache->node[i];
        const struct array_cache *shared = node->shared;
        sq_json_open_array(json, NULL);
        sq_json_unsigned(json, NULL, i);
        sq_json_unsigned(json, NULL, node->free_limit);
        sq_json_integer(json, NULL, shared ? (int64_t)shared->limit : -1);
        sq_json_integer(json, NULL, shared ? (int32_t)shared->batchcount : -1);
        sq_json_integer(json, NULL,
                        cache->has_aliens ? (int64_t)cache->alien_limit : -1);
        sq_json_close(json);
    }
    sq_json_close(json);
}

/* ---- state ---- */

/* [serial, index] of each entry, oldest first. */
static void json_entries(struct sq_json *json, struct slab_cache *cache,
                         const struct array_cache *array)
{
    sq_json_open_array(json, "entries");
    for (uint32_t i = 0; i < array->avail; i++) {
        uint32_t index;
        struct sq_page *page = slab_page_of_object(cache, array->entry[i], &index);
        if (page == NULL)
            continue; /* check() names it */
        sq_json_open_array(json, NULL);
        sq_json_unsigned(json, NULL, page->serial);
        sq_json_unsigned(json, NULL, index);
        sq_json_close(json);
    }
    sq_json_close(json);
}

static void json_array_cache(struct sq_json *json, struct slab_cache *cache,
                             const struct array_cache *array)
{
    sq_json_unsigned(json, "avail", array->avail);
    sq_json_unsigned(json, "limit", array->limit);
    sq_json_unsigned(json, "batchcount", array->batchcount);
    sq_json_unsigned(json, "touched", array->touched);
    json_entries(json, cache, array);
}

/* Arrays that hold something or were used lately. */
static void json_cpu_arrays(struct sq_json *json, struct slab_cache *cache)
{
    sq_json_open_array(json, "cpu_arrays");
    for (uint32_t i = 0; i < slab_machine(cache)->topology.cpu_count; i++) {
        const struct array_cache *array = slab_array_of(cache, i);
        if (array->avail == 0 && !array->touched)
            continue;
        sq_json_open_object(json, NULL);
        sq_json_unsigned(json, "cpu", i);
        json_array_cache(json, cache, array);
        sq_json_close(json);
    }
    sq_json_close(json);
}

/* Alien arrays that hold something. */
static void json_aliens(struct sq_json *json, struct slab_cache *cache,
                        const struct slab_node *node)
{
    sq_json_open_array(json, "alien");
    for (uint32_t i = 0; i < SQ_NODE_MAX; i++) {
        struct alien_cache *alien = node->alien[i];
        if (alien == NULL || alien_array(alien)->avail == 0)
            continue;
        sq_json_open_object(json, NULL);
        sq_json_unsigned(json, "to", i);
        sq_json_unsigned(json, "avail", alien_array(alien)->avail);
        if (!cache->is_classic)
            sq_json_unsigned(json, "limit", alien_array(alien)->limit);
        json_entries(json, cache, alien_array(alien));
        sq_json_close(json);
    }
    sq_json_close(json);
}

/* Slabs of a list, head first: [serial, in use, offset of the first object, [free
 * objects in the order in which they will be handed out]]. */
static void json_slab_list(struct sq_json *json, const char *key,
                           struct slab_cache *cache, const struct slab_node *node,
                           const struct sq_list *list)
{
    uint64_t left = node->total_slabs;
    sq_json_open_array(json, key);
    for (struct sq_list *entry = list->next; entry != list && left > 0;
         entry = entry->next, left--) {
        struct slab *slab = SQ_LIST_ENTRY(entry, struct slab, list);
        struct sq_page *page = slab_page_of(cache, slab);
        uint32_t index = slab->free;
        sq_json_open_array(json, NULL);
        sq_json_unsigned(json, NULL, page->serial);
        sq_json_unsigned(json, NULL, slab->inuse);
        sq_json_integer(json, NULL,
                        slab->first_object -
                            sq_page_address(slab_machine(cache), page));
        sq_json_open_array(json, NULL);
        for (uint32_t i = slab->inuse; i < cache->geometry.object_count; i++) {
            if (!cache->is_classic)
                index = slab->index_stack[i];
            sq_json_unsigned(json, NULL, index);
            if (cache->is_classic && index < cache->geometry.object_count)
                index = slab_bufctl(slab)[index];
        }
        sq_json_close(json);
        sq_json_close(json);
    }
    sq_json_close(json);
}

static void json_node(sq_cpu *cpu, struct sq_json *json, struct slab_cache *cache,
                      const struct slab_node *node)
{
    sq_json_open_object(json, NULL);
    sq_json_unsigned(json, "node", node->index);
    sq_json_unsigned(json, "total_slabs", node->total_slabs);
    sq_json_unsigned(json, "free_slabs", node->free_slabs);
    sq_json_unsigned(json, "free_objects", node_free_objects(cpu, node));
    sq_json_unsigned(json, "free_limit", node->free_limit);
    sq_json_unsigned(json, "colour_next", sq_load_relaxed(cpu, &node->colour_next));
    sq_json_unsigned(json, "free_touched", node->free_touched);
    if (node->shared != NULL) {
        sq_json_open_object(json, "shared");
        json_array_cache(json, cache, node->shared);
        sq_json_close(json);
    }
    if (cache->is_classic || cache->has_aliens)
        json_aliens(json, cache, node);
    json_slab_list(json, "partial", cache, node, &node->partial);
    json_slab_list(json, "full", cache, node, &node->full);
    json_slab_list(json, "free", cache, node, &node->free);
    sq_json_close(json);
}

static uint64_t slab_counter_sum(const struct slab_cache *cache, enum slab_counter id)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < slab_machine(cache)->topology.cpu_count; i++)
        sum += cache->base.counters[i][id];
    return sum;
}

/* STATS in the kernel's order. */
static void json_counters(struct sq_json *json, const struct slab_cache *cache)
{
    sq_json_open_object(json, "counters");
    sq_json_unsigned(json, "num_active", cache->num_active);
    sq_json_unsigned(json, "num_allocations",
                     slab_counter_sum(cache, SLAB_NUM_ALLOCATIONS));
    sq_json_unsigned(json, "high_mark", cache->high_mark);
    sq_json_unsigned(json, "grown", slab_counter_sum(cache, SLAB_GROWN));
    sq_json_unsigned(json, "reaped", slab_counter_sum(cache, SLAB_REAPED));
    sq_json_unsigned(json, "max_freeable", cache->max_freeable);
    sq_json_unsigned(json, "node_allocs", slab_counter_sum(cache, SLAB_NODE_ALLOCS));
    sq_json_unsigned(json, "node_frees", slab_counter_sum(cache, SLAB_NODE_FREES));
    sq_json_unsigned(json, "node_overflow",
                     slab_counter_sum(cache, SLAB_NODE_OVERFLOW));
    sq_json_unsigned(json, "allochit", slab_counter_sum(cache, SLAB_ALLOCHIT));
    sq_json_unsigned(json, "allocmiss", slab_counter_sum(cache, SLAB_ALLOCMISS));
    sq_json_unsigned(json, "freehit", slab_counter_sum(cache, SLAB_FREEHIT));
    sq_json_unsigned(json, "freemiss", slab_counter_sum(cache, SLAB_FREEMISS));
    sq_json_close(json);
}

/* ops->dump */
static void slab_dump(sq_cpu *cpu, sq_cache *base, struct sq_json *json)
{
    struct slab_cache *cache = slab_cache_of(base);
    json_cpu_arrays(json, cache);
    sq_json_open_array(json, "nodes");
    for (uint32_t i = 0; i < cpu->machine->topology.node_count; i++)
        json_node(cpu, json, cache, cache->node[i]);
    sq_json_close(json);
    json_counters(json, cache);
}

/* ops->brief: [avail, touched] of each CPU; of each node slabs, free slabs, free objects,
 * objects in the shared and in all alien arrays, jiffies to the next look of the reaper,
 * and whether the free list was used. */
static void slab_brief(sq_cpu *cpu, sq_cache *base, struct sq_json *json)
{
    struct slab_cache *cache = slab_cache_of(base);
    const struct sq_topology *topology = &cpu->machine->topology;
    int64_t now = (int64_t)(base->heap->clock_ms * SQ_HZ / 1000);
    sq_json_open_array(json, "cpus");
    for (uint32_t i = 0; i < topology->cpu_count; i++) {
        sq_json_open_array(json, NULL);
        sq_json_unsigned(json, NULL, slab_array_of(cache, i)->avail);
        sq_json_unsigned(json, NULL, slab_array_of(cache, i)->touched);
        sq_json_close(json);
    }
    sq_json_close(json);
    sq_json_open_array(json, "nodes");
    for (uint32_t i = 0; i < topology->node_count; i++) {
        const struct slab_node *node = cache->node[i];
        uint64_t alien_objects = 0;
        for (uint32_t j = 0; j < topology->node_count; j++)
            alien_objects += node->alien[j] ? alien_array(node->alien[j])->avail : 0;
        sq_json_open_array(json, NULL);
        sq_json_unsigned(json, NULL, node->total_slabs);
        sq_json_unsigned(json, NULL, node->free_slabs);
        sq_json_unsigned(json, NULL, node_free_objects(cpu, node));
        sq_json_unsigned(json, NULL, node->shared ? node->shared->avail : 0);
        sq_json_unsigned(json, NULL, alien_objects);
        sq_json_integer(json, NULL, (int64_t)base->reap_jiffies[i] - now);
        sq_json_unsigned(json, NULL, node->free_touched);
        sq_json_close(json);
    }
    sq_json_close(json);
}

/* ---- steps ---- */

static const char *const slab_row_columns[] = {
    "slab",
    "idx",
    "cpu_avail",
    "shared_avail_cpunode",
    "free_objects_cpunode",
    "total_slabs_cpunode",
    "free_slabs_cpunode",
    "alien_avail_cpunode_to_objnode",
    "objnode",
    "shared_avail_objnode",
    "free_objects_objnode",
    NULL,
};

static void json_shared_avail(struct sq_json *json, const struct slab_node *node)
{
    sq_json_integer(json, NULL, node->shared ? (int64_t)node->shared->avail : -1);
}

/* ops->row */
static void slab_row(sq_cpu *cpu, sq_cache *base, const struct sq_object_place *place,
                     bool slab_is_free, struct sq_json *json)
{
    struct slab_cache *cache = slab_cache_of(base);
    const struct slab_node *here = cache->node[cpu->node];
    const struct slab_node *home = cache->node[place->node];
    struct alien_cache *alien = here->alien[place->node];
    (void)slab_is_free; /* all columns are about nodes */
    sq_json_unsigned(json, NULL, slab_array_of(cache, cpu->index)->avail);
    json_shared_avail(json, here);
    sq_json_unsigned(json, NULL, node_free_objects(cpu, here));
    sq_json_unsigned(json, NULL, here->total_slabs);
    sq_json_unsigned(json, NULL, here->free_slabs);
    sq_json_integer(json, NULL, alien ? (int64_t)alien_array(alien)->avail : -1);
    sq_json_unsigned(json, NULL, place->node);
    json_shared_avail(json, home);
    sq_json_unsigned(json, NULL, node_free_objects(cpu, home));
}

#endif
