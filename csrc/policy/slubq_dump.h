/*
 * What a cache of SLUB+Q looks like from outside: description, state, the columns that
 * follow an operation, totals, and the check of every structure.
 *
 * Requires that no other CPU is inside a call on the cache.
 */
#ifndef SLUBQ_DUMP_H
#define SLUBQ_DUMP_H

#include <stdio.h>

#include "policy/slubq_queue.h"

static const struct sq_counter_name slubq_counter_names[] = {
#define SLUBQ_COUNTER_NAME(name, text, help) {text, help},
    SLUBQ_COUNTERS(SLUBQ_COUNTER_NAME)
#undef SLUBQ_COUNTER_NAME
};

static const char *const slubq_row_columns[] = {
    "slab",
    "idx",
    "cpu_objects",
    "cpu_node",
    "nr_partial_cpunode",
    "nr_slabs_cpunode",
    "objslab_inuse",
    "objslab_avail",
    "objnode",
    "nr_partial_objnode",
    "nr_slabs_objnode",
    NULL,
};

/* V3, V4: what lies in the queues beyond the CPU's own. */
static const char *const slubq_row_columns_v3[] = {
    "slab",
    "idx",
    "cpu_objects",
    "cpu_touched",
    "shared_objects",
    "alien_objects_to_objnode",
    "nr_partial_cpunode",
    "nr_slabs_cpunode",
    "objslab_inuse",
    "objslab_avail",
    "objslab_on_partial",
    "objnode",
    "nr_partial_objnode",
    "nr_slabs_objnode",
    NULL,
};

static const char *const *slubq_row_columns_of(const struct sq_options *options)
{
    return options->slubq.version < 3 ? slubq_row_columns : slubq_row_columns_v3;
}

/* Before V4 the counters of shared and remote objects came after the older ones. */
static const uint8_t slubq_counter_order_v3[SLUBQ_COUNTER_COUNT] = {
    SLUBQ_ALLOC_FASTPATH,     SLUBQ_ALLOC_SLOWPATH,   SLUBQ_FREE_FASTPATH,
    SLUBQ_FREE_SLOWPATH,      SLUBQ_FREE_ADD_PARTIAL, SLUBQ_FREE_REMOVE_PARTIAL,
    SLUBQ_ALLOC_FROM_PARTIAL, SLUBQ_ALLOC_SLAB,       SLUBQ_ALLOC_REMOTE,
    SLUBQ_ALLOC_SHARED,       SLUBQ_ALLOC_ALIEN,      SLUBQ_ALLOC_ALIEN_SLOW,
    SLUBQ_ALLOC_DIRECT,       SLUBQ_FREE_SHARED,      SLUBQ_FREE_ALIEN,
    SLUBQ_FREE_ALIEN_SLOW,    SLUBQ_FREE_DIRECT,      SLUBQ_FREE_SLAB,
    SLUBQ_QUEUE_FLUSH,        SLUBQ_ORDER_FALLBACK,
};

/* ---- description ---- */

static void slubq_describe_geometry(const struct slubq_cache *cache,
                                    struct sq_json *json)
{
    sq_json_unsigned(json, "size", cache->base.size);
    sq_json_unsigned(json, "align", cache->base.align);
    sq_json_unsigned(json, "order", cache->base.order);
    sq_json_unsigned(json, "num", cache->base.slab_object_count);
    sq_json_unsigned(json, "min_order", cache->min_order);
    sq_json_unsigned(json, "min_num", cache->min_order_objects);
    sq_json_unsigned(json, "min_partial", slubq_tunable(&cache->min_partial));
    sq_json_unsigned(
        json, "inuse",
        sq_max_u64(cache->inuse, sq_align_up(cache->base.object_size, sizeof(void *))));
    sq_json_unsigned(json, "queue", cache->queue_size);
    sq_json_unsigned(json, "batch", cache->batch);
}

static void slubq_describe_queues(const struct slubq_cache *cache, struct sq_json *json,
                                  bool with_groups)
{
    sq_json_unsigned(json, "cpu_max", cache->queue_max);
    sq_json_unsigned(json, "shared_wanted", cache->shared_size);
    sq_json_unsigned(json, "shared_max", cache->shared_max);
    if (with_groups)
        sq_json_unsigned(json, "nr_shared", cache->group_count);
    sq_json_unsigned(json, "alien_shift", cache->alien_shift);
    sq_json_unsigned(json, "alien_max", cache->alien_max);
}

static void slubq_describe(sq_cache *base, struct sq_json *json)
{
    const struct slubq_cache *cache = slubq_cache_of(base);
    sq_json_unsigned(json, "objsize", base->object_size);
    slubq_describe_geometry(cache, json);
    if (cache->rule.version < 3)
        sq_json_unsigned(json, "remote_node_defrag_ratio",
                         slubq_tunable(&cache->remote_node_defrag_ratio));
    else
        slubq_describe_queues(cache, json, true);
}

/* V3 has the ratio but does not show it; V4 shows what the last expiry gave. */
static void slubq_show_tunables(sq_cache *base, struct sq_json *json)
{
    const struct slubq_cache *cache = slubq_cache_of(base);
    if (cache->rule.version == 3)
        sq_json_unsigned(json, "remote_node_defrag_ratio",
                         slubq_tunable(&cache->remote_node_defrag_ratio));
    if (cache->rule.version >= 4)
        sq_json_unsigned(json, "expire", cache->expired_bytes);
}

/* ---- state ---- */

static void slubq_dump_objects(const struct slubq_cache *cache,
                               const struct slubq_queue *queue, struct sq_json *json)
{
    sq_json_open_array(json, "queue");
    for (uint32_t i = 0; i < queue->objects; i++) {
        const struct sq_page *page =
            sq_page_of_address(cache->base.heap->machine, queue->object[i]);
        sq_json_open_array(json, NULL);
        sq_json_unsigned(json, NULL, page->serial);
        sq_json_unsigned(json, NULL, slubq_index(cache, page, queue->object[i]));
        sq_json_close(json);
    }
    sq_json_close(json);
}

static uint32_t slubq_touched(const struct slubq_cache *cache, uint32_t touched)
{
    return cache->rule.has_touched ? touched : 0;
}

/* Members of a queue; `max` and `touched` came with V3. */
static void slubq_dump_queue(const struct slubq_cache *cache,
                             const struct slubq_queue *queue, struct sq_json *json)
{
    sq_json_unsigned(json, "objects", queue->objects);
    sq_json_unsigned(json, "max", queue->max);
    sq_json_unsigned(json, "touched", slubq_touched(cache, queue->touched));
    slubq_dump_objects(cache, queue, json);
}

static void slubq_dump_cpus(const struct slubq_cache *cache, struct sq_json *json)
{
    bool has_node = cache->rule.version < 3;
    sq_json_open_array(json, "cpus");
    for (uint32_t i = 0; i < slubq_topology(cache)->cpu_count; i++) {
        const struct slubq_queue *queue = slubq_queue_at(cache, i);
        if (queue->objects == 0 &&
            !(has_node ? queue->node != 0 : slubq_touched(cache, queue->touched) != 0))
            continue;
        sq_json_open_object(json, NULL);
        sq_json_unsigned(json, "cpu", i);
        if (has_node) {
            sq_json_unsigned(json, "objects", queue->objects);
            sq_json_integer(json, "node", queue->node);
            slubq_dump_objects(cache, queue, json);
        } else {
            slubq_dump_queue(cache, queue, json);
        }
        sq_json_close(json);
    }
    sq_json_close(json);
}

static void slubq_dump_group(const struct slubq_cache *cache,
                             const struct slubq_group *group, struct sq_json *json)
{
    const struct sq_topology *topology = slubq_topology(cache);
    sq_json_open_object(json, NULL);
    sq_json_open_array(json, "cpus");
    for (uint32_t i = group->first_cpu; i < topology->cpu_count; i++)
        if (slubq_group_of_cpu(cache, i) == group)
            sq_json_unsigned(json, NULL, i);
    sq_json_close(json);
    sq_json_unsigned(json, "node", group->node);
    slubq_dump_queue(cache, group->shared, json);
    sq_json_open_array(json, "aliens");
    for (uint32_t to = 0; to < topology->node_count; to++) {
        const struct slubq_queue *alien = group->alien[to];
        if (alien == NULL ||
            (alien->objects == 0 && slubq_touched(cache, alien->touched) == 0))
            continue;
        sq_json_open_object(json, NULL);
        sq_json_unsigned(json, "to", to);
        slubq_dump_queue(cache, alien, json);
        sq_json_close(json);
    }
    sq_json_close(json);
    sq_json_close(json);
}

/* [serial, objects in use, [free indexes, ascending]] */
static void slubq_dump_slab(const struct slubq_cache *cache, struct sq_page *page,
                            struct sq_json *json)
{
    uint32_t objects = slubq_slab_objects(cache, page);
    const uint64_t *map = slubq_map(cache, page, objects);
    sq_json_open_array(json, NULL);
    sq_json_unsigned(json, NULL, page->serial);
    sq_json_unsigned(json, NULL, objects - slubq_free_count(cache, page));
    sq_json_open_array(json, NULL);
    for (uint32_t i = 0; i < objects; i++)
        if (map[i / 64] >> (i % 64) & 1)
            sq_json_unsigned(json, NULL, i);
    sq_json_close(json);
    sq_json_close(json);
}

static void slubq_dump_node(sq_cpu *cpu, const struct slubq_cache *cache, uint32_t n,
                            struct sq_json *json)
{
    const struct slubq_node *node = cache->node[n];
    sq_json_open_object(json, NULL);
    sq_json_unsigned(json, "node", n);
    if (cache->rule.version >= 3)
        sq_json_unsigned(json, "touched", slubq_touched(cache, node->touched));
    sq_json_unsigned(json, "nr_partial", sq_load_relaxed(cpu, &node->nr_partial));
    sq_json_unsigned(json, "nr_slabs", node->slab_count);
    sq_json_unsigned(json, "total_objects", node->object_total);
    sq_json_open_array(json, "partial");
    SQ_LIST_EACH(link, &node->partial)
    slubq_dump_slab(cache, SQ_LIST_ENTRY(link, struct sq_page, lru), json);
    sq_json_close(json);
    sq_json_close(json);
}

static const char *slubq_counter_text(const struct slubq_cache *cache, uint32_t id)
{
    if (id == SLUBQ_QUEUE_FLUSH && cache->rule.version == 1)
        return "cpuslab_flush";
    return slubq_counter_names[id].name;
}

static uint64_t slubq_counter_sum(const struct slubq_cache *cache, uint32_t id)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < slubq_topology(cache)->cpu_count; i++)
        sum += cache->base.counters[i][id];
    return sum;
}

/* Counters that counted something: sums, then by CPU. */
static void slubq_dump_counters(const struct slubq_cache *cache, struct sq_json *json,
                                bool by_cpu)
{
    sq_json_open_object(json, by_cpu ? "counters_cpu" : "counters");
    for (uint32_t i = 0; i < SLUBQ_COUNTER_COUNT; i++) {
        uint32_t id = cache->rule.version >= 4 ? i : slubq_counter_order_v3[i];
        uint64_t sum = slubq_counter_sum(cache, id);
        if (sum == 0)
            continue;
        if (!by_cpu) {
            sq_json_unsigned(json, slubq_counter_text(cache, id), sum);
            continue;
        }
        sq_json_open_object(json, slubq_counter_text(cache, id));
        for (uint32_t c = 0; c < slubq_topology(cache)->cpu_count; c++) {
            char index[16];
            (void)snprintf(index, sizeof(index), "%u", c);
            if (cache->base.counters[c][id] != 0)
                sq_json_unsigned(json, index, cache->base.counters[c][id]);
        }
        sq_json_close(json);
    }
    sq_json_close(json);
}

static void slubq_dump(sq_cpu *cpu, sq_cache *base, struct sq_json *json)
{
    const struct slubq_cache *cache = slubq_cache_of(base);
    slubq_dump_cpus(cache, json);
    if (cache->rule.version >= 3) {
        sq_json_open_array(json, "shared");
        for (uint32_t i = 0; i < cache->group_count; i++)
            slubq_dump_group(cache, cache->group[i], json);
        sq_json_close(json);
    }
    sq_json_open_array(json, "nodes");
    for (uint32_t n = 0; n < slubq_topology(cache)->node_count; n++)
        slubq_dump_node(cpu, cache, n, json);
    sq_json_close(json);
    slubq_dump_counters(cache, json, false);
    slubq_dump_counters(cache, json, true);
}

/* ---- the columns of a step ---- */

static void slubq_row_node(sq_cpu *cpu, const struct slubq_cache *cache, uint32_t n,
                           struct sq_json *json)
{
    sq_json_unsigned(json, NULL, sq_load_relaxed(cpu, &cache->node[n]->nr_partial));
    sq_json_unsigned(json, NULL, cache->node[n]->slab_count);
}

/* V1, V2: the queue and whose it is. V3, V4: what lies in the queues beyond it. */
static void slubq_row_queues(const struct slubq_cache *cache,
                             const struct slubq_queue *queue, uint32_t object_node,
                             struct sq_json *json)
{
    const struct slubq_group *group = queue->group;
    const struct slubq_queue *alien = group == NULL ? NULL : group->alien[object_node];
    sq_json_unsigned(json, NULL, queue->objects);
    if (cache->rule.version < 3) {
        sq_json_integer(json, NULL, queue->node);
        return;
    }
    sq_json_unsigned(json, NULL, slubq_touched(cache, queue->touched));
    sq_json_integer(json, NULL, group == NULL ? -1 : (int64_t)group->shared->objects);
    sq_json_integer(json, NULL, alien == NULL ? -1 : (int64_t)alien->objects);
}

static void slubq_row(sq_cpu *cpu, sq_cache *base, const struct sq_object_place *place,
                      bool slab_is_free, struct sq_json *json)
{
    const struct slubq_cache *cache = slubq_cache_of(base);
    int64_t inuse = -1, available = -1, is_listed = -1;
    if (!slab_is_free) {
        available = slubq_free_count(cache, place->page);
        inuse = slubq_slab_objects(cache, place->page) - available;
        is_listed = sq_list_is_linked(&place->page->lru);
    }
    slubq_row_queues(cache, slubq_queue_of(cpu, cache), place->node, json);
    slubq_row_node(cpu, cache, cpu->node, json);
    sq_json_integer(json, NULL, inuse);
    sq_json_integer(json, NULL, available);
    if (cache->rule.version >= 3)
        sq_json_integer(json, NULL, is_listed);
    sq_json_unsigned(json, NULL, place->node);
    slubq_row_node(cpu, cache, place->node, json);
}

/* ---- totals and places ---- */

static bool slubq_locate(sq_cache *base, const void *object,
                         struct sq_object_place *place)
{
    struct slubq_cache *cache = slubq_cache_of(base);
    sq_machine *machine = base->heap->machine;
    struct sq_page *page;
    uint64_t offset;
    if (!sq_machine_owns(machine, object))
        return false;
    page = sq_page_of_address(machine, object);
    if (page->state != SQ_PAGE_SLAB || slubq_slab_of(page)->cache != base)
        return false;
    offset = (uint64_t)((const char *)object - sq_page_address(machine, page));
    if (offset % base->size != 0 ||
        offset / base->size >= slubq_slab_objects(cache, page))
        return false;
    place->page = page;
    place->serial = page->serial;
    place->index = (uint32_t)(offset / base->size);
    place->node = page->node;
    return true;
}

/* Call `visit` on every queue; stops when it returns false. */
typedef bool slubq_visitor(struct slubq_cache *cache, struct slubq_queue *queue,
                           const char *kind, void *argument);

static bool slubq_each_queue(struct slubq_cache *cache, slubq_visitor *visit,
                             void *argument)
{
    for (uint32_t i = 0; i < slubq_topology(cache)->cpu_count; i++)
        if (!visit(cache, slubq_queue_at(cache, i), "cpu", argument))
            return false;
    for (uint32_t i = 0; i < cache->group_count; i++) {
        struct slubq_group *group = cache->group[i];
        if (!visit(cache, group->shared, "shared", argument))
            return false;
        for (uint32_t to = 0; to < SQ_NODE_MAX; to++)
            if (group->alien[to] != NULL &&
                !visit(cache, group->alien[to], "alien", argument))
                return false;
    }
    return true;
}

static bool slubq_add_objects(struct slubq_cache *cache, struct slubq_queue *queue,
                              const char *kind, void *argument)
{
    (void)cache, (void)kind;
    *(uint64_t *)argument += queue->objects;
    return true;
}

/* /proc/slabinfo is SLUB's, active is whatever is not free in a slab; its tunables are
 * the queue and the batch. */
static void slubq_usage(sq_cpu *cpu, sq_cache *base, struct sq_cache_usage *usage)
{
    struct slubq_cache *cache = slubq_cache_of(base);
    uint64_t free = 0;
    memset(usage, 0, sizeof(*usage));
    for (uint32_t n = 0; n < slubq_topology(cache)->node_count; n++) {
        const struct slubq_node *node = cache->node[n];
        usage->slab_count += node->slab_count;
        usage->object_total += node->object_total;
        usage->partial_slab_count += sq_load_relaxed(cpu, &node->nr_partial);
        for (struct sq_page *page = slubq_chain_page(cache, node->chain_first);
             page != NULL;
             page = slubq_chain_page(cache, slubq_slab_of(page)->chain_next)) {
            free += slubq_free_count(cache, page);
            usage->slab_bytes += (uint64_t)SQ_PAGE_SIZE << page->order;
        }
    }
    usage->object_queued = cache->lost_objects;
    (void)slubq_each_queue(cache, slubq_add_objects, &usage->object_queued);
    usage->object_allocated = usage->object_total - free - usage->object_queued;
    usage->slabinfo_active_objects = usage->object_total - free;
    usage->slabinfo_active_slabs = usage->slab_count;
    usage->slabinfo_limit = cache->queue_size;
    usage->slabinfo_batchcount = cache->batch;
}

#endif
