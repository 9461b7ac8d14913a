/*
 * What SLUB says of itself: the lines of operation scripts, usage, where an object
 * lies, read with care. check() is in slub_check.h.
 */
#ifndef SLUB_DUMP_H
#define SLUB_DUMP_H

#include "policy/slub_control.h"

#include <stdio.h>

/* The step columns that SLUB fills in, after ["slab", "idx"]. */
#define SLUB_ROW_COLUMNS_OF_CPU "slab", "idx", "cpu_slab", "cpu_freelist_len"
#define SLUB_ROW_COLUMNS_OF_NODE                                                       \
    "nr_partial_cpunode", "nr_slabs_cpunode", "objslab_inuse", "objslab_frozen",       \
        "objslab_freelist_len", "objnode", "nr_partial_objnode", "nr_slabs_objnode"
#define SLUB_ROW_COLUMNS                                                               \
    SLUB_ROW_COLUMNS_OF_CPU, "cpu_partial_slabs", SLUB_ROW_COLUMNS_OF_NODE
#define SLUB_ROW_COLUMNS_OF_SHEAVES                                                    \
    "sheaf_main", "sheaf_spare", "barn_full_cpunode", "barn_empty_cpunode"

/* ---- free lists, read with care ---- */

/* Length of a free list of the slab; stops at `objects` and at anything foreign. */
static uint32_t slub_list_length(const sq_machine *machine,
                                 const struct slub_cache *cache,
                                 const struct sq_page *page, uint32_t objects,
                                 void *first)
{
    uint32_t length = 0;
    while (length < objects &&
           slub_index_checked(machine, cache, page, objects, first) < objects) {
        first = slub_peek_next(cache, first);
        length++;
    }
    return length;
}

/* The indexes of a free list, as an array. */
static void slub_print_list(sq_cpu *cpu, const struct slub_cache *cache,
                            const struct sq_page *page, void *first, const char *key,
                            struct sq_json *json)
{
    uint32_t objects = slub_load(cpu, page).objects;
    uint32_t length = slub_list_length(cpu->machine, cache, page, objects, first);
    sq_json_open_array(json, key);
    for (; length > 0; length--) {
        sq_json_unsigned(json, NULL, slub_index_of(cpu->machine, cache, page, first));
        first = slub_peek_next(cache, first);
    }
    sq_json_close(json);
}

static void slub_print_slab_list(sq_cpu *cpu, const struct slub_cache *cache,
                                 const struct sq_page *page, const char *key,
                                 struct sq_json *json)
{
    struct slub_word word = slub_load(cpu, page);
    slub_print_list(cpu, cache, page, slub_head_object(cpu, cache, page, &word), key,
                    json);
}

/* ---- describe, dump, row ---- */

/* What is said of a cache when it is made; `sheaf_capacity` is -1 for releases that
 * know none. */
static void slub_print_cache(const struct slub_cache *cache, int64_t sheaf_capacity,
                             struct sq_json *json)
{
    const sq_cache *base = &cache->base;
    sq_json_unsigned(json, "objsize", base->object_size);
    sq_json_unsigned(json, "size", base->size);
    sq_json_unsigned(json, "align",
                     SLUB_OPTION(cache, align_is_as_asked) != 0 ? cache->align_asked
                                                                : base->align);
    sq_json_unsigned(json, "order", base->order);
    sq_json_unsigned(json, "num", base->slab_object_count);
    if (SLUB_OPTION(cache, order_fallback) != 0) {
        sq_json_unsigned(json, "min_order", cache->min_order);
        sq_json_unsigned(json, "min_num", cache->min_order_objects);
    }
    if (SLUB_OPTION(cache, cpu_partial_unit) != SLUB_CPU_PARTIAL_NONE)
        slub_print_cpu_partial(base->heap, slub_tunable(&cache->cpu_partial),
                               slub_tunable(&cache->cpu_partial_slabs), json);
    sq_json_unsigned(json, "min_partial", slub_tunable(&cache->min_partial));
    sq_json_unsigned(json, "fp_offset", cache->fp_offset);
    sq_json_unsigned(json, "inuse",
                     sq_max_u64(cache->inuse, sq_align_up(base->object_size, 8)));
    sq_json_unsigned(json, "remote_node_defrag_ratio",
                     slub_tunable(&cache->remote_node_defrag_ratio));
    if (sheaf_capacity >= 0)
        sq_json_integer(json, "sheaf_capacity", sheaf_capacity);
    if (cache->red_left_pad != 0)
        sq_json_unsigned(json, "red_left_pad", cache->red_left_pad);
}

static void slub_dump_cpu_partial(sq_cpu *cpu, const struct slub_cache *cache,
                                  const struct slub_cpu *local, struct sq_json *json)
{
    sq_json_open_array(json, "cpu_partial");
    for (const struct sq_page *page = local->partial; page != NULL;
         page = slub_chain_of(page)->next) {
        struct slub_word word = slub_load(cpu, page);
        sq_json_open_array(json, NULL);
        sq_json_unsigned(json, NULL, page->serial);
        sq_json_unsigned(json, NULL, word.inuse);
        sq_json_unsigned(json, NULL, word.is_frozen);
        sq_json_unsigned(json, NULL, slub_chain_of(page)->slab_count);
        sq_json_unsigned(json, NULL, page->node);
        slub_print_slab_list(cpu, cache, page, NULL, json);
        if (SLUB_OPTION(cache, cpu_partial_unit) == SLUB_CPU_PARTIAL_OBJECTS)
            sq_json_unsigned(json, NULL, slub_chain_of(page)->object_count);
        sq_json_close(json);
    }
    sq_json_close(json);
}

/* Has the CPU anything of SLUB's? */
static bool slub_cpu_has_slabs(const struct slub_cache *cache, uint32_t index)
{
    const struct slub_cpu *local = sq_percpu_at(&cache->percpu, index);
    return local->slab != NULL || local->partial != NULL;
}

/* Members of the object of one CPU. */
static void slub_dump_cpu(sq_cpu *cpu, const struct slub_cache *cache, uint32_t index,
                          struct sq_json *json)
{
    const struct slub_cpu *local = sq_percpu_at(&cache->percpu, index);
    sq_json_unsigned(json, "cpu", index);
    if (local->slab == NULL) {
        sq_json_integer(json, "slab", -1);
    } else {
        struct slub_word word = slub_load(cpu, local->slab);
        sq_json_unsigned(json, "slab", local->slab->serial);
        sq_json_unsigned(json, "inuse", word.inuse);
        sq_json_unsigned(json, "objects", word.objects);
        sq_json_unsigned(json, "frozen", word.is_frozen);
        sq_json_unsigned(json, "node", local->slab->node);
        slub_print_list(cpu, cache, local->slab, local->free.first, "cpu_freelist",
                        json);
        slub_print_slab_list(cpu, cache, local->slab, "page_freelist", json);
    }
    if (SLUB_OPTION(cache, cpu_partial_unit) != SLUB_CPU_PARTIAL_NONE &&
        SLUB_OPTION(cache, slub_cpu_partial) != 0)
        slub_dump_cpu_partial(cpu, cache, local, json);
}

/* Members of the object of one node. */
static void slub_dump_node(sq_cpu *cpu, const struct slub_cache *cache, uint32_t index,
                           struct sq_json *json)
{
    const struct slub_node *node = cache->node[index];
    sq_json_unsigned(json, "node", index);
    sq_json_unsigned(json, "nr_partial", sq_load_relaxed(cpu, &node->partial_count));
    sq_json_unsigned(json, "nr_slabs", node->slab_count);
    sq_json_unsigned(json, "total_objects", node->object_total);
    sq_json_open_array(json, "partial");
    SQ_LIST_EACH (link, &node->partial) {
        const struct sq_page *page = slub_page_of_link(link);
        struct slub_word word = slub_load(cpu, page);
        sq_json_open_array(json, NULL);
        sq_json_unsigned(json, NULL, page->serial);
        sq_json_unsigned(json, NULL, word.inuse);
        sq_json_unsigned(json, NULL, word.is_frozen);
        slub_print_slab_list(cpu, cache, page, NULL, json);
        sq_json_close(json);
    }
    sq_json_close(json);
    if (!sq_list_is_empty(&node->full)) {
        sq_json_open_array(json, "full");
        SQ_LIST_EACH (link, &node->full)
            sq_json_unsigned(json, NULL, slub_page_of_link(link)->serial);
        sq_json_close(json);
    }
}

/* An array of objects as [slab, index], the first first. */
static void slub_print_objects(const struct slub_cache *cache, void *const *objects,
                               uint32_t count, const char *key, struct sq_json *json)
{
    sq_json_open_array(json, key);
    for (uint32_t i = 0; i < count; i++) {
        const sq_machine *machine = cache->base.heap->machine;
        const struct sq_page *page = sq_page_of_address(machine, objects[i]);
        sq_json_open_array(json, NULL);
        sq_json_unsigned(json, NULL, page->serial);
        sq_json_unsigned(json, NULL, slub_index_of(machine, cache, page, objects[i]));
        sq_json_close(json);
    }
    sq_json_close(json);
}

/* The sheaves that callers hold, if there are any. */
static void slub_dump_held(const struct slub_cache *cache, struct sq_json *json)
{
    if (sq_list_is_empty(&cache->held))
        return;
    sq_json_open_array(json, "handles");
    SQ_LIST_EACH (link, &cache->held) {
        const struct sq_sheaf *sheaf = SQ_LIST_ENTRY(link, struct sq_sheaf, link);
        sq_json_open_array(json, NULL);
        sq_json_unsigned(json, NULL, sheaf->handle);
        sq_json_unsigned(json, NULL, sheaf->capacity);
        slub_print_objects(cache, sheaf->object, sheaf->size, NULL, json);
        sq_json_close(json);
    }
    sq_json_close(json);
}

static uint64_t slub_counter_total(const sq_cache *base, uint32_t cpu_count,
                                   uint32_t id)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < cpu_count; i++)
        total += base->counters[i][id];
    return total;
}

/* Counters that are not zero: sums, then by CPU. */
static void slub_dump_counters(const sq_cache *base, uint32_t cpu_count,
                               struct sq_json *json)
{
    sq_json_open_object(json, "counters");
    for (uint32_t id = 0; id < SLUB_COUNTER_COUNT; id++) {
        uint64_t total = slub_counter_total(base, cpu_count, id);
        if (total != 0)
            sq_json_unsigned(json, slub_counter_names[id].name, total);
    }
    sq_json_close(json);
    sq_json_open_object(json, "counters_cpu");
    for (uint32_t id = 0; id < SLUB_COUNTER_COUNT; id++) {
        if (slub_counter_total(base, cpu_count, id) == 0)
            continue;
        sq_json_open_object(json, slub_counter_names[id].name);
        for (uint32_t i = 0; i < cpu_count; i++) {
            char key[12];
            (void)snprintf(key, sizeof(key), "%u", i);
            if (base->counters[i][id] != 0)
                sq_json_unsigned(json, key, base->counters[i][id]);
        }
        sq_json_close(json);
    }
    sq_json_close(json);
}

static void slub_row_node(sq_cpu *cpu, const struct slub_node *node,
                          struct sq_json *json)
{
    sq_json_unsigned(json, NULL, sq_load_relaxed(cpu, &node->partial_count));
    sq_json_unsigned(json, NULL, node->slab_count);
}

/* inuse, frozen and length of the slab's own free list; -1 for a slab that is gone. */
static void slub_row_slab(sq_cpu *cpu, const struct sq_page *page, bool slab_is_free,
                          struct sq_json *json)
{
    struct slub_word word = {0};
    if (!slab_is_free)
        word = slub_load(cpu, page);
    sq_json_integer(json, NULL, slab_is_free ? -1 : (int64_t)word.inuse);
    sq_json_integer(json, NULL, slab_is_free ? -1 : (int64_t)word.is_frozen);
    sq_json_integer(json, NULL,
                    slab_is_free ? -1 : (int64_t)word.objects - (int64_t)word.inuse);
}

/* The columns of a CPU and its node. */
static void slub_row_own(sq_cpu *cpu, const struct slub_cache *cache,
                         struct sq_json *json)
{
    const struct slub_cpu *local = slub_cpu_of(cpu, cache);
    const struct slub_chain *chain =
        local->partial == NULL ? NULL : slub_chain_of(local->partial);
    sq_json_integer(json, NULL,
                    local->slab == NULL ? -1 : (int64_t)local->slab->serial);
    sq_json_unsigned(json, NULL,
                     local->slab == NULL
                         ? 0
                         : slub_list_length(cpu->machine, cache, local->slab,
                                            slub_load(cpu, local->slab).objects,
                                            local->free.first));
    if (SLUB_OPTION(cache, cpu_partial_unit) != SLUB_CPU_PARTIAL_NONE)
        sq_json_unsigned(json, NULL, chain == NULL ? 0 : chain->slab_count);
    slub_row_node(cpu, cache->node[cpu->node], json);
}

/* The columns of SLUB: SLUB_ROW_COLUMNS, and the objects of cpu partial lists that
 * count them. */
static void slub_row_all(sq_cpu *cpu, const struct slub_cache *cache,
                         const struct sq_object_place *place, bool slab_is_free,
                         struct sq_json *json)
{
    const struct sq_page *partial = slub_cpu_of(cpu, cache)->partial;
    slub_row_own(cpu, cache, json);
    slub_row_slab(cpu, place->page, slab_is_free, json);
    sq_json_unsigned(json, NULL, place->node);
    slub_row_node(cpu, cache->node[place->node], json);
    if (SLUB_OPTION(cache, cpu_partial_unit) == SLUB_CPU_PARTIAL_OBJECTS)
        sq_json_unsigned(json, NULL,
                         partial == NULL ? 0 : slub_chain_of(partial)->object_count);
}

/* The columns of sheaves for a cache that has none. */
static void slub_row_no_sheaves(struct sq_json *json)
{
    for (uint32_t i = 0; i < 4; i++)
        sq_json_integer(json, NULL, -1);
}

/* ---- locate, usage ---- */

static bool slub_locate(sq_cache *base, const void *object,
                        struct sq_object_place *place)
{
    const sq_machine *machine = base->heap->machine;
    const struct slub_cache *cache = (const struct slub_cache *)base;
    struct sq_page *page;
    uint32_t objects, index;
    if (!sq_machine_owns(machine, object))
        return false;
    page = sq_page_of_address(machine, object);
    if (page->state != SQ_PAGE_SLAB || slub_slab_of(page)->cache != cache)
        return false;
    objects =
        page->order == base->order ? base->slab_object_count : cache->min_order_objects;
    index = slub_index_checked(machine, cache, page, objects, object);
    if (index == objects)
        return false;
    *place = (struct sq_object_place){page, page->serial, index, page->node};
    return true;
}

static void slub_usage_node(sq_cpu *cpu, const struct slub_cache *cache,
                            const struct slub_node *node, struct sq_cache_usage *usage)
{
    uint64_t free_partial = 0;
    for (uint32_t number = node->all_first; number != 0;) {
        const struct sq_page *page = slub_frame(cpu->machine, number);
        usage->slab_bytes += (uint64_t)SQ_PAGE_SIZE << page->order;
        usage->object_allocated += slub_load(cpu, page).inuse;
        number = slub_slab_of(page)->all_next;
    }
    SQ_LIST_EACH (link, &node->partial) {
        struct slub_word word = slub_load(cpu, slub_page_of_link(link));
        free_partial += word.objects - word.inuse;
    }
    usage->slab_count += node->slab_count;
    usage->object_total += node->object_total;
    usage->partial_slab_count += sq_load_relaxed(cpu, &node->partial_count);
    usage->slabinfo_active_objects += node->object_total - free_partial;
    usage->slabinfo_active_slabs += node->slab_count;
    (void)cache;
}

static void slub_usage(sq_cpu *cpu, sq_cache *base, struct sq_cache_usage *usage)
{
    const struct slub_cache *cache = (const struct slub_cache *)base;
    const struct sq_topology *topology = &cpu->machine->topology;
    *usage = (struct sq_cache_usage){0};
    for (uint32_t i = 0; i < topology->node_count; i++)
        slub_usage_node(cpu, cache, cache->node[i], usage);
    for (uint32_t i = 0; i < topology->cpu_count; i++) {
        const struct slub_cpu *local = sq_percpu_at(&cache->percpu, i);
        if (local->slab != NULL)
            usage->object_queued += slub_list_length(
                cpu->machine, cache, local->slab, slub_load(cpu, local->slab).objects,
                local->free.first);
    }
    SQ_LIST_EACH (link, &cache->held)
        usage->object_queued += SQ_LIST_ENTRY(link, struct sq_sheaf, link)->size;
    usage->object_allocated -= usage->object_queued;
}

#endif
