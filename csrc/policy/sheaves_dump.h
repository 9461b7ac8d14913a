/*
 * What sheaves say of themselves, beside what SLUB says: see slub_dump.h.
 */
#ifndef SHEAVES_DUMP_H
#define SHEAVES_DUMP_H

#include "policy/sheaves_control.h"
#include "policy/slub_dump.h"

static const char *const sheaves_row_columns[] = {
    SLUB_ROW_COLUMNS, SLUB_ROW_COLUMNS_OF_SHEAVES, NULL};

static void sheaves_describe(sq_cache *base, struct sq_json *json)
{
    const struct sheaves_cache *cache = (const struct sheaves_cache *)base;
    slub_print_cache(&cache->slub, cache->capacity, json);
}

/* ---- dump ---- */

static void sheaves_dump_cpu(sq_cpu *cpu, const struct sheaves_cache *cache,
                             uint32_t index, struct sq_json *json)
{
    const struct sheaves_cpu *local = sq_percpu_at(&cache->percpu, index);
    bool has_sheaves = local != NULL && (local->main->size > 0 || local->spare != NULL);
    if (!has_sheaves && !slub_cpu_has_slabs(&cache->slub, index))
        return;
    sq_json_open_object(json, NULL);
    slub_dump_cpu(cpu, &cache->slub, index, json);
    if (local != NULL) {
        slub_print_objects(&cache->slub, local->main->object, local->main->size,
                           "sheaf_main", json);
        if (local->spare == NULL)
            sq_json_null(json, "sheaf_spare");
        else
            slub_print_objects(&cache->slub, local->spare->object, local->spare->size,
                               "sheaf_spare", json);
    }
    sq_json_close(json);
}

static void sheaves_dump_barn(sq_cpu *cpu, const struct sheaves_cache *cache,
                              const struct sheaves_barn *barn, struct sq_json *json)
{
    sq_json_open_object(json, "barn");
    sq_json_unsigned(json, "nr_full", sq_load_relaxed(cpu, &barn->full_count));
    sq_json_unsigned(json, "nr_empty", sq_load_relaxed(cpu, &barn->empty_count));
    sq_json_open_array(json, "full");
    SQ_LIST_EACH (link, &barn->full) {
        const struct sq_sheaf *sheaf = sheaves_of_link(link);
        slub_print_objects(&cache->slub, sheaf->object, sheaf->size, NULL, json);
    }
    sq_json_close(json);
    sq_json_open_array(json, "empty");
    SQ_LIST_EACH (link, &barn->empty)
        sq_json_unsigned(json, NULL, sheaves_of_link(link)->size);
    sq_json_close(json);
    sq_json_close(json);
}

static void sheaves_dump_node(sq_cpu *cpu, const struct sheaves_cache *cache,
                              uint32_t index, struct sq_json *json)
{
    sq_json_open_object(json, NULL);
    slub_dump_node(cpu, &cache->slub, index, json);
    if (cache->barn[index] != NULL)
        sheaves_dump_barn(cpu, cache, cache->barn[index], json);
    sq_json_close(json);
}

static void sheaves_dump(sq_cpu *cpu, sq_cache *base, struct sq_json *json)
{
    const struct sheaves_cache *cache = (const struct sheaves_cache *)base;
    const struct sq_topology *topology = &cpu->machine->topology;
    sq_json_open_array(json, "cpus");
    for (uint32_t i = 0; i < topology->cpu_count; i++)
        sheaves_dump_cpu(cpu, cache, i, json);
    sq_json_close(json);
    sq_json_open_array(json, "nodes");
    for (uint32_t i = 0; i < topology->node_count; i++)
        sheaves_dump_node(cpu, cache, i, json);
    sq_json_close(json);
    slub_dump_held(&cache->slub, json);
    slub_dump_counters(base, topology->cpu_count, json);
}

/* ---- rows ---- */

static void sheaves_row_own(sq_cpu *cpu, const struct sheaves_cache *cache,
                            struct sq_json *json)
{
    const struct sheaves_cpu *local = sheaves_cpu_of(cpu, cache);
    const struct sheaves_barn *barn = cache->barn[cpu->node];
    if (local == NULL) {
        slub_row_no_sheaves(json);
        return;
    }
    sq_json_unsigned(json, NULL, local->main->size);
    sq_json_integer(json, NULL,
                    local->spare == NULL ? -1 : (int64_t)local->spare->size);
    sq_json_unsigned(json, NULL, sq_load_relaxed(cpu, &barn->full_count));
    sq_json_unsigned(json, NULL, sq_load_relaxed(cpu, &barn->empty_count));
}

static void sheaves_row_cpu(sq_cpu *cpu, sq_cache *base, struct sq_json *json)
{
    const struct sheaves_cache *cache = (const struct sheaves_cache *)base;
    slub_row_own(cpu, &cache->slub, json);
    sheaves_row_own(cpu, cache, json);
}

static void sheaves_row(sq_cpu *cpu, sq_cache *base,
                        const struct sq_object_place *place, bool slab_is_free,
                        struct sq_json *json)
{
    const struct sheaves_cache *cache = (const struct sheaves_cache *)base;
    slub_row_all(cpu, &cache->slub, place, slab_is_free, json);
    sheaves_row_own(cpu, cache, json);
}

/* ---- usage ---- */

static uint64_t sheaves_count_barn(const struct sheaves_barn *barn)
{
    uint64_t objects = 0;
    SQ_LIST_EACH (link, &barn->full)
        objects += sheaves_of_link(link)->size;
    return objects;
}

/* Objects in sheaves are handed out by their slabs, but to nobody yet. */
static void sheaves_usage(sq_cpu *cpu, sq_cache *base, struct sq_cache_usage *usage)
{
    const struct sheaves_cache *cache = (const struct sheaves_cache *)base;
    const struct sq_topology *topology = &cpu->machine->topology;
    uint64_t objects = 0;
    slub_usage(cpu, base, usage);
    if (cache->capacity == 0)
        return;
    for (uint32_t i = 0; i < topology->cpu_count; i++) {
        const struct sheaves_cpu *local = sq_percpu_at(&cache->percpu, i);
        objects += local->main->size;
        objects += local->spare == NULL ? 0 : local->spare->size;
    }
    for (uint32_t i = 0; i < topology->node_count; i++)
        objects += sheaves_count_barn(cache->barn[i]);
    usage->object_queued += objects;
    usage->object_allocated -= objects;
}

#endif
