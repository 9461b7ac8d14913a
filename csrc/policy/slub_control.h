/*
 * The control plane of SLUB: what a cache is made of, its making and ending, flush,
 * shrink and the tunables. Included by slub.c after the paths.
 */
#ifndef SLUB_CONTROL_H
#define SLUB_CONTROL_H

#include "policy/slub_sheaf.h"

#include <string.h>

#define SLUB_DEBUG_FLAGS                                                               \
    (SQ_CACHE_RED_ZONE | SQ_CACHE_POISON | SQ_CACHE_STORE_USER |                       \
     SQ_CACHE_CONSISTENCY_CHECKS | SQ_CACHE_TRACE)
#define SLUB_MIN_PARTIAL_MAX 10u /* the kernel's MAX_PARTIAL */

static const struct sq_counter_name slub_counter_names[SLUB_COUNTER_COUNT] = {
#define SLUB_COUNTER_NAME(name, text, help) {text, help},
    SLUB_COUNTERS(SLUB_COUNTER_NAME)
#undef SLUB_COUNTER_NAME
};

/* ---- geometry ---- */

/* Everything about a cache that follows from its spec, the options and the machine. */
struct slub_shape {
    struct slub_layout layout;
    uint32_t order, objects, min_order, min_order_objects;
    uint32_t min_partial, cpu_partial, cpu_partial_slabs;
    bool is_debug, keeps_full_list, has_cpu_partial, falls_back_to_pages;
    bool keeps_orig_size;
    uint32_t debug_flags;
};

static struct slub_layout
slub_layout_of(const sq_heap *heap, const struct sq_cache_spec *spec, uint32_t flags,
               bool keeps_orig_size)
{
    const struct slub_layout_rule rule = {
        .align_rule = (enum slub_align_rule)SLUB_HEAP_OPTION(heap, hwcache_align_rule),
        .fp_in_middle = SLUB_HEAP_OPTION(heap, free_pointer_middle) != 0,
        .has_left_pad = SLUB_HEAP_OPTION(heap, red_left_pad) != 0,
        .track_bytes = (uint32_t)SLUB_HEAP_OPTION(heap, track_bytes) +
                       (keeps_orig_size ? (uint32_t)sizeof(uint32_t) : 0),
    };
    bool must_survive = spec->constructor != NULL ||
                        (flags & (SQ_CACHE_TYPESAFE_BY_RCU | SQ_CACHE_POISON)) != 0;
    return slub_lay_out(spec->size, spec->align, (flags & SQ_CACHE_HWCACHE_ALIGN) != 0,
                        must_survive, (flags & SQ_CACHE_RED_ZONE) != 0,
                        (flags & SQ_CACHE_STORE_USER) != 0, &rule);
}

/* ops->alignment */
static uint32_t slub_alignment_of(const sq_heap *heap, const struct sq_cache_spec *spec)
{
    return slub_layout_of(heap, spec, spec->flags, false).align;
}

/* min_partial of a new cache: the larger the objects, the more slabs are kept. */
static uint32_t slub_min_partial_of(const sq_heap *heap, uint32_t size)
{
    uint64_t smallest = (uint64_t)SLUB_HEAP_OPTION(heap, min_partial);
    uint32_t divisor = (uint32_t)SLUB_HEAP_OPTION(heap, min_partial_divisor);
    if (divisor == 0)
        return (uint32_t)smallest;
    return (uint32_t)sq_max_u64(
        smallest, sq_min_u64(sq_ilog2(size) / divisor, SLUB_MIN_PARTIAL_MAX));
}

/* Find the order; false if no block holds one object. */
static bool slub_shape_order(const sq_heap *heap, const struct sq_cache_spec *spec,
                             struct slub_shape *shape)
{
    uint32_t size = shape->layout.size;
    uint32_t few_order = (uint32_t)SLUB_HEAP_OPTION(heap, kmalloc_few_order);
    uint32_t max_order = (uint32_t)SLUB_HEAP_OPTION(heap, slub_max_order);
    uint32_t min_objects = (uint32_t)SLUB_HEAP_OPTION(heap, slub_min_objects);
    int32_t order;
    if (min_objects == 0)
        min_objects = slub_min_objects(heap->machine->topology.cpu_count);
    order = slub_order(size, min_objects,
                       (uint32_t)SLUB_HEAP_OPTION(heap, slub_min_order), max_order,
                       (enum slub_order_search)SLUB_HEAP_OPTION(heap, order_search),
                       (uint32_t)SLUB_HEAP_OPTION(heap, slab_objects_max));
    if (few_order != 0 && (spec->flags & SQ_CACHE_KMALLOC) != 0 &&
        slub_order_objects(0, size) < min_objects) {
        order = (int32_t)sq_max_u64(max_order, few_order);
        shape->falls_back_to_pages = true;
    }
    if (order < 0 || slub_order_objects((uint32_t)order, size) == 0)
        return false;
    /* A slab's word counts so many; only orders that a user asks for can reach them. */
    while (order > 0 && slub_order_objects((uint32_t)order, size) >
                            (uint32_t)SLUB_HEAP_OPTION(heap, slab_objects_max))
        order--;
    shape->order = (uint32_t)order;
    shape->objects = slub_order_objects(shape->order, size);
    shape->min_order = slub_min_order(size);
    shape->min_order_objects = slub_order_objects(shape->min_order, size);
    return true;
}

static int slub_shape_of(const sq_heap *heap, const struct sq_cache_spec *spec,
                         struct slub_shape *shape, struct sq_error *error)
{
    uint32_t unit = (uint32_t)SLUB_HEAP_OPTION(heap, cpu_partial_unit);
    uint32_t flags = spec->flags;
    *shape = (struct slub_shape){0};
    if (SLUB_HEAP_OPTION(heap, slub_debug) == 0)
        flags &= ~(uint32_t)SLUB_DEBUG_FLAGS;
    shape->is_debug = (flags & SLUB_DEBUG_FLAGS) != 0;
    shape->keeps_full_list = (flags & SQ_CACHE_STORE_USER) != 0;
    shape->debug_flags = flags & SLUB_DEBUG_FLAGS;
    shape->keeps_orig_size = shape->keeps_full_list &&
                             (flags & SQ_CACHE_KMALLOC) != 0 &&
                             SLUB_HEAP_OPTION(heap, kmalloc_orig_size) != 0;
    shape->layout = slub_layout_of(heap, spec, flags, shape->keeps_orig_size);
    if (!slub_shape_order(heap, spec, shape))
        return sq_error_set(error, SQ_E_PARAMETER,
                            "object of cache %.60s takes %u bytes with its padding: "
                            "accepted are up to %u",
                            spec->name, shape->layout.size,
                            SQ_PAGE_SIZE << SQ_PAGE_ORDER_MAX);
    shape->min_partial = slub_min_partial_of(heap, shape->layout.size);
    shape->has_cpu_partial = SLUB_HEAP_OPTION(heap, slub_cpu_partial) != 0 &&
                             unit != 0 && SLUB_HEAP_OPTION(heap, slab_cmpxchg) != 0 &&
                             !shape->is_debug;
    if (shape->has_cpu_partial) {
        shape->cpu_partial = slub_cpu_partial_objects(shape->layout.size,
                                                      unit == SLUB_CPU_PARTIAL_SLABS);
        shape->cpu_partial_slabs =
            slub_cpu_partial_slabs(shape->cpu_partial, shape->objects);
    }
    return SQ_OK;
}

/* Members that say what a release knows of CPU partial lists; -1: it was built without,
 * or does not count in slabs. */
static void slub_print_cpu_partial(const sq_heap *heap, uint32_t objects,
                                   uint32_t slabs, struct sq_json *json)
{
    uint32_t unit = (uint32_t)SLUB_HEAP_OPTION(heap, cpu_partial_unit);
    bool is_built = SLUB_HEAP_OPTION(heap, slub_cpu_partial) != 0 && unit != 0;
    sq_json_integer(json, "cpu_partial", is_built ? (int64_t)objects : -1);
    sq_json_integer(json, "cpu_partial_slabs",
                    is_built && unit == SLUB_CPU_PARTIAL_SLABS ? (int64_t)slabs : -1);
}

/* The members that geometry() prints of such a cache. */
static void slub_print_geometry(const sq_heap *heap, const struct sq_cache_spec *spec,
                                const struct slub_shape *shape, struct sq_json *json)
{
    sq_json_unsigned(json, "objsize", spec->size);
    sq_json_unsigned(json, "size", shape->layout.size);
    sq_json_unsigned(json, "align",
                     SLUB_HEAP_OPTION(heap, align_is_as_asked) != 0
                         ? spec->align
                         : shape->layout.align);
    sq_json_unsigned(json, "order", shape->order);
    sq_json_unsigned(json, "pages", UINT64_C(1) << shape->order);
    sq_json_unsigned(json, "num", shape->objects);
    if (SLUB_HEAP_OPTION(heap, order_fallback) != 0) {
        sq_json_unsigned(json, "min_order", shape->min_order);
        sq_json_unsigned(json, "min_num", shape->min_order_objects);
    }
    slub_print_cpu_partial(heap, shape->cpu_partial, shape->cpu_partial_slabs, json);
    sq_json_unsigned(json, "min_partial", shape->min_partial);
    sq_json_unsigned(json, "fp_offset", shape->layout.fp_offset);
    sq_json_unsigned(json, "inuse", shape->layout.inuse);
    sq_json_unsigned(json, "red_left_pad", shape->layout.red_left_pad);
    sq_json_integer(json, "defrag_ratio",
                    SLUB_HEAP_OPTION(heap, remote_node_defrag_ratio));
}

static void slub_kmalloc_shape(const struct sq_options *options,
                               struct sq_kmalloc_shape *shape)
{
    uint64_t size_min = (uint64_t)SLUB_OPTIONS_OF(options).kmalloc_min_size;
    uint64_t size_max =
        UINT64_C(1) << sq_ilog2((uint64_t)SLUB_OPTIONS_OF(options).kmalloc_max_size);
    uint64_t block_max = (uint64_t)SQ_PAGE_SIZE << SQ_PAGE_ORDER_MAX;
    *shape = (struct sq_kmalloc_shape){
        .size_min = size_min,
        .size_max = sq_min_u64(size_max, block_max),
        .cached_size_max = sq_min_u64(size_max, block_max),
        .has_96 = size_min <= 32,
        .has_192 = size_min <= 64,
        .name_prefix = "kmalloc",
        .has_units = SLUB_OPTIONS_OF(options).kmalloc_named_k != 0,
    };
}

/* ---- making and ending ---- */

/* What debugging and hardening need to know of the cache. */
static void slub_cache_set_debug(struct slub_cache *cache,
                                 const struct slub_shape *shape,
                                 const struct sq_cache_spec *spec)
{
    const sq_heap *heap = cache->base.heap;
    uint32_t track_bytes = (uint32_t)SLUB_HEAP_OPTION(heap, track_bytes) / 2;
    cache->base.is_debug = shape->is_debug;
    cache->debug_flags = shape->debug_flags;
    cache->base.checks_frees = shape->is_debug && slub_makes_checks(cache);
    cache->keeps_orig_size = shape->keeps_orig_size;
    cache->poisons_objects = slub_has(cache, SQ_CACHE_POISON) &&
                             spec->constructor == NULL &&
                             (spec->flags & SQ_CACHE_TYPESAFE_BY_RCU) == 0;
    cache->info_end = cache->fp_offset >= cache->inuse
                          ? cache->fp_offset + (uint32_t)sizeof(void *)
                          : cache->inuse;
    if (slub_has(cache, SQ_CACHE_STORE_USER) && track_bytes >= sizeof(struct slub_track))
        cache->track_bytes = track_bytes;
    cache->is_hardened = SLUB_HEAP_OPTION(heap, freelist_hardened) != 0;
    cache->swaps_key = SLUB_HEAP_OPTION(heap, freelist_hardened) == 1;
    if (cache->is_hardened && cache->fast_path == SLUB_FAST_CMPXCHG)
        cache->fast_path = SLUB_FAST_HARDENED;
}

/* CONFIG_SLAB_FREELIST_RANDOM: a random permutation of the objects of a slab, after
 * Fisher and Yates. False: no memory. */
static bool slub_make_random_order(sq_cpu *cpu, struct slub_cache *cache)
{
    uint32_t count = cache->base.slab_object_count;
    if (SLUB_OPTION(cache, freelist_random) == 0 || count < 2)
        return true;
    cache->random_order =
        sq_meta_alloc(cpu, count * sizeof(*cache->random_order), cpu->node);
    if (cache->random_order == NULL)
        return false;
    for (uint32_t i = 0; i < count; i++)
        cache->random_order[i] = i;
    for (uint32_t i = count - 1; i > 0; i--) {
        uint32_t other = (uint32_t)(sq_random(cpu) % (i + 1));
        uint32_t kept = cache->random_order[i];
        cache->random_order[i] = cache->random_order[other];
        cache->random_order[other] = kept;
    }
    return true;
}

static void slub_cache_set(struct slub_cache *cache, const struct slub_shape *shape,
                           const struct sq_cache_spec *spec)
{
    const sq_heap *heap = cache->base.heap;
    uint32_t cpu_count = heap->machine->topology.cpu_count;
    cache->base.size = shape->layout.size;
    cache->base.align = shape->layout.align;
    cache->base.order = shape->order;
    cache->base.slab_object_count = shape->objects;
    cache->fp_offset = shape->layout.fp_offset;
    cache->fast_path = (uint32_t)SLUB_HEAP_OPTION(heap, fast_path);
    cache->tid_step = UINT64_C(1) << sq_fls(cpu_count - 1);
    cache->reciprocal = sq_div_ceil(UINT64_C(1) << 32, shape->layout.size);
    cache->red_left_pad = shape->layout.red_left_pad;
    cache->inuse = shape->layout.inuse;
    cache->align_asked = (uint32_t)spec->align;
    cache->min_order = shape->min_order;
    cache->min_order_objects = shape->min_order_objects;
    cache->keeps_full_list = shape->keeps_full_list;
    cache->has_cpu_partial = shape->has_cpu_partial;
    cache->falls_back_to_pages = shape->falls_back_to_pages;
    cache->min_partial = shape->min_partial;
    cache->cpu_partial = shape->cpu_partial;
    cache->cpu_partial_slabs = shape->cpu_partial_slabs;
    cache->remote_node_defrag_ratio =
        (uint32_t)SLUB_HEAP_OPTION(heap, remote_node_defrag_ratio);
    slub_cache_set_debug(cache, shape, spec);
    sq_lock_init(&cache->held_lock, SQ_LOCK_BOOK);
    sq_list_init(&cache->held);
}

/* Each node's struct in its own memory. False if there is none; what was made stays. */
static bool slub_make_nodes(sq_cpu *cpu, struct slub_cache *cache)
{
    for (uint32_t i = 0; i < cpu->machine->topology.node_count; i++) {
        size_t bytes = cache->list_lock_sleeps ? sizeof(struct slub_node)
                                               : offsetof(struct slub_node, list_mutex);
        struct slub_node *node = sq_meta_alloc(cpu, bytes, i);
        if (node == NULL)
            return false;
        sq_lock_init(&node->list_lock, SQ_LOCK_LIST);
        node->list_lock_kind = cache->is_narrow ? SLUB_LIST_IRQ : SLUB_LIST_SPIN;
        if (cache->list_lock_sleeps) {
            node->list_lock_kind = SLUB_LIST_SLEEPS;
            sq_rt_mutex_init(&node->list_mutex, SQ_LOCK_LIST, &node->list_lock);
        }
        sq_lock_init(&node->all_lock, SQ_LOCK_BOOK);
        sq_list_init(&node->partial);
        sq_list_init(&node->full);
        cache->node[i] = node;
    }
    return true;
}

/* Ends the parts of a cache that has no slabs (any more). */
static void slub_free_parts(sq_cpu *cpu, struct slub_cache *cache)
{
    for (uint32_t i = 0; i < cpu->machine->topology.node_count; i++) {
        if (cache->node[i] != NULL)
            sq_meta_free(cpu, cache->node[i]);
        cache->node[i] = NULL;
    }
    if (cache->random_order != NULL)
        sq_meta_free(cpu, cache->random_order);
    cache->random_order = NULL;
    sq_percpu_free(cpu, &cache->percpu);
}

/* Each CPU's part in its node's memory. False if there is none. */
static bool slub_make_cpus(sq_cpu *cpu, struct slub_cache *cache)
{
    bool has_lock = cache->is_narrow && cache->fast_path == SLUB_FAST_LOCAL_LOCK;
    if (!sq_percpu_alloc(cpu, &cache->percpu,
                         has_lock ? sizeof(struct slub_cpu)
                                  : offsetof(struct slub_cpu, lock)))
        return false;
    for (uint32_t i = 0; i < cpu->machine->topology.cpu_count; i++) {
        struct slub_cpu *local = sq_percpu_at(&cache->percpu, i);
        local->free.second = i;
        if (has_lock)
            sq_rt_mutex_init(&local->lock, SQ_LOCK_LOCAL, &local->free);
    }
    return true;
}

/* Make a cache of that shape; on failure nothing is left behind. */
static int slub_cache_make(sq_cpu *cpu, struct slub_cache *cache,
                           const struct slub_shape *shape,
                           const struct sq_cache_spec *spec, struct sq_error *error)
{
    slub_cache_set(cache, shape, spec);
    if (!slub_make_cpus(cpu, cache))
        return sq_error_set(error, SQ_E_MEMORY,
                            "no memory on the machine for the CPUs of cache %.60s",
                            spec->name);
    if (cache->is_hardened)
        cache->hardened_key = sq_random(cpu);
    if (!slub_make_nodes(cpu, cache) || !slub_make_random_order(cpu, cache)) {
        slub_free_parts(cpu, cache);
        return sq_error_set(error, SQ_E_MEMORY,
                            "no memory on the machine for the nodes of cache %.60s",
                            spec->name);
    }
    return SQ_OK;
}

/* Wherever a slab is, the chain of all slabs has it; sheaves that callers still hold
 * end with the cache. */
static void slub_cache_release(sq_cpu *cpu, sq_cache *base)
{
    struct slub_cache *cache = (struct slub_cache *)base;
    for (uint32_t i = 0; i < cpu->machine->topology.node_count; i++) {
        struct slub_node *node = cache->node[i];
        while (node->all_first != 0)
            slub_slab_discard(cpu, cache, slub_frame(cpu->machine, node->all_first));
    }
    SQ_LIST_EACH_SAFE (link, following, &cache->held)
        sq_meta_free(cpu, SQ_LIST_ENTRY(link, struct sq_sheaf, link));
    slub_free_parts(cpu, cache);
}

/* ---- flush, shrink, tunables ---- */

static void slub_flush_cpu(sq_cpu *cpu, sq_cache *base)
{
    struct slub_cache *cache = (struct slub_cache *)base;
    if (cache->is_narrow)
        sq_migrate_disable(cpu);
    slub_slow_begin(cpu, cache);
    slub_cpu_flush(cpu, cache);
    slub_slow_end(cpu, cache);
    if (cache->is_narrow)
        sq_migrate_enable(cpu);
}

/* What every CPU is asked to do by shrink and by a change of cpu_partial: its cache's
 * policy says how a CPU is emptied. */
static void slub_flush_request(sq_cpu *target, void *argument)
{
    sq_cache *base = argument;
    base->ops->flush_cpu(target, base);
}

/* What a policy on top of SLUB does before the lists of a node are gone through. */
typedef void slub_shrink_hook(sq_cpu *cpu, struct slub_cache *cache, uint32_t node);

/* The node part of kmem_cache_shrink, after all CPUs were emptied. Returns whether
 * slabs are left (since 4.x; before that 0). `by_use`: see slub_node_shrink. */
static int slub_shrink_nodes(sq_cpu *cpu, struct slub_cache *cache,
                             slub_shrink_hook *before_node, struct sq_list *by_use)
{
    int are_slabs_left = 0;
    for (uint32_t i = 0; i < cpu->machine->topology.node_count; i++) {
        if (before_node != NULL)
            before_node(cpu, cache, i);
        slub_node_shrink(cpu, cache, cache->node[i], by_use);
        sq_lock_acquire(cpu, &cache->node[i]->all_lock);
        are_slabs_left |= by_use == NULL && cache->node[i]->slab_count != 0;
        sq_lock_release(cpu, &cache->node[i]->all_lock);
    }
    return are_slabs_left;
}

/* kmem_cache_shrink. */
static int slub_shrink_all(sq_cpu *cpu, struct slub_cache *cache,
                           slub_shrink_hook *before_node)
{
    struct sq_list *by_use = NULL;
    int are_slabs_left;
    if (SLUB_OPTION(cache, shrink_promote) == 0) {
        by_use = sq_meta_alloc(cpu, cache->base.slab_object_count * sizeof(*by_use),
                               cpu->node);
        if (by_use == NULL)
            return SQ_E_MEMORY;
    }
    sq_on_each_cpu(cpu, slub_flush_request, cache);
    are_slabs_left = slub_shrink_nodes(cpu, cache, before_node, by_use);
    if (by_use != NULL)
        sq_meta_free(cpu, by_use);
    return are_slabs_left;
}

static uint32_t *slub_tunable_named(struct slub_cache *cache, const char *name)
{
    if (strcmp(name, "cpu_partial") == 0)
        return &cache->cpu_partial;
    if (strcmp(name, "min_partial") == 0)
        return &cache->min_partial;
    if (strcmp(name, "remote_node_defrag_ratio") == 0)
        return &cache->remote_node_defrag_ratio;
    return NULL;
}

static int slub_tune_check(struct slub_cache *cache, const char *name, int64_t value,
                           struct sq_error *error)
{
    const uint32_t *tunable = slub_tunable_named(cache, name);
    int64_t largest = INT32_MAX;
    if (tunable == NULL)
        return sq_error_set(error, SQ_E_PARAMETER,
                            "tunable is %.40s: policy %s accepts cpu_partial, "
                            "min_partial, remote_node_defrag_ratio",
                            name, cache->base.ops->name);
    if (tunable == &cache->cpu_partial && !cache->has_cpu_partial)
        largest = 0;
    if (value < 0 || value > largest)
        return sq_error_set(error, SQ_E_PARAMETER,
                            "%s of cache %.60s is %lld: accepted are 0 to %lld", name,
                            cache->base.name, (long long)value, (long long)largest);
    return SQ_OK;
}

/* A new cpu_partial counts from empty lists, so every CPU is flushed, as in the kernel.
 */
static void slub_set_cpu_partial(sq_cpu *cpu, struct slub_cache *cache,
                                 uint32_t objects)
{
    __atomic_store_n(&cache->cpu_partial, objects, __ATOMIC_RELAXED);
    __atomic_store_n(&cache->cpu_partial_slabs,
                     slub_cpu_partial_slabs(objects, cache->base.slab_object_count),
                     __ATOMIC_RELAXED);
    sq_on_each_cpu(cpu, slub_flush_request, cache);
}

static int slub_tune(sq_cpu *cpu, sq_cache *base, uint32_t count,
                     const char *const *names, const int64_t *values,
                     struct sq_error *error)
{
    struct slub_cache *cache = (struct slub_cache *)base;
    for (uint32_t i = 0; i < count; i++) {
        int status = slub_tune_check(cache, names[i], values[i], error);
        if (status != SQ_OK)
            return status;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t *tunable = slub_tunable_named(cache, names[i]);
        if (tunable == &cache->cpu_partial)
            slub_set_cpu_partial(cpu, cache, (uint32_t)values[i]);
        else
            __atomic_store_n(tunable, (uint32_t)values[i], __ATOMIC_RELAXED);
    }
    return SQ_OK;
}

#endif
