/*
 * The control plane of sheaves: which caches have them and how large, their making and
 * ending, flush and shrink. What is SLUB's is in slub_control.h.
 */
#ifndef SHEAVES_CONTROL_H
#define SHEAVES_CONTROL_H

#include "policy/sheaves_prefill.h"
#include "policy/slub_control.h"

/* ---- capacity ---- */

/* Bytes of the kmalloc cache that such a sheaf comes from. */
static uint64_t sheaves_bucket_bytes(uint64_t bytes)
{
    if (bytes > 64 && bytes <= 96)
        return 96;
    if (bytes > 128 && bytes <= 192)
        return 192;
    return UINT64_C(1) << sq_fls(bytes - 1);
}

/* Objects of a sheaf by object size where all caches have sheaves: as many pointers as
 * fill what kmalloc gives for the number wanted. */
static uint32_t sheaves_capacity_of_size(uint64_t size)
{
    uint64_t wanted = 60, bytes;
    if (size >= SQ_PAGE_SIZE)
        wanted = 4;
    else if (size >= 1024)
        wanted = 12;
    else if (size >= 256)
        wanted = 26;
    bytes = sheaves_bucket_bytes(sizeof(struct sq_sheaf) + wanted * sizeof(void *));
    return (uint32_t)((bytes - sizeof(struct sq_sheaf)) / sizeof(void *));
}

/* Capacity of the sheaves of such a cache, 0 for none. */
static uint32_t sheaves_capacity(const sq_heap *heap, const struct sq_cache_spec *spec,
                                 const struct slub_shape *shape)
{
    uint32_t capacity = spec->sheaf_capacity;
    if (shape->is_debug)
        return 0;
    if (heap->options.sheaves.sheaf_all_caches != 0)
        capacity = (uint32_t)sq_max_u64(capacity,
                                        sheaves_capacity_of_size(shape->layout.size));
    if (capacity != 0 && heap->options.sheaves.sheaf_capacity != 0)
        capacity = (uint32_t)heap->options.sheaves.sheaf_capacity;
    return capacity;
}

/* SLUB's shape of such a cache: without CPU slabs there are no partial lists of CPUs.
 */
static int sheaves_shape_of(const sq_heap *heap, const struct sq_cache_spec *spec,
                            struct slub_shape *shape, uint32_t *capacity,
                            struct sq_error *error)
{
    int status = slub_shape_of(heap, spec, shape, error);
    if (status != SQ_OK)
        return status;
    *capacity = sheaves_capacity(heap, spec, shape);
    if (*capacity > SLUB_SHEAF_CAPACITY_MAX)
        return sq_error_set(error, SQ_E_PARAMETER,
                            "sheaf_capacity of cache %.60s is %u: accepted are 0 to %u",
                            spec->name, *capacity, SLUB_SHEAF_CAPACITY_MAX);
    if (*capacity != 0 && heap->options.sheaves.sheaf_cpu_slab == 0) {
        shape->has_cpu_partial = false;
        shape->cpu_partial = 0;
        shape->cpu_partial_slabs = 0;
    }
    return SQ_OK;
}

static int sheaves_geometry(const sq_heap *heap, const struct sq_cache_spec *spec,
                            struct sq_json *json, struct sq_error *error)
{
    struct slub_shape shape;
    uint32_t capacity;
    int status = sheaves_shape_of(heap, spec, &shape, &capacity, error);
    if (status != SQ_OK)
        return status;
    slub_print_geometry(heap, spec, &shape, json);
    sq_json_unsigned(json, "sheaf_capacity", capacity);
    return SQ_OK;
}

/* ---- making and ending ---- */

/* A main sheaf for each CPU. They are made by the CPU that makes the cache, on its node
 * and its account, as in the kernel. False if there is no memory; what was made stays.
 */
static bool sheaves_make_pairs(sq_cpu *cpu, struct sheaves_cache *cache)
{
    if (!sq_percpu_alloc(cpu, &cache->percpu, sizeof(struct sheaves_cpu)))
        return false;
    for (uint32_t i = 0; i < cpu->machine->topology.cpu_count; i++) {
        struct sheaves_cpu *local = sq_percpu_at(&cache->percpu, i);
        local->main = sheaves_new(cpu, cache);
        if (local->main == NULL)
            return false;
    }
    return true;
}

/* Each node's barn in its own memory. False if there is none; what was made stays. */
static bool sheaves_make_barns(sq_cpu *cpu, struct sheaves_cache *cache)
{
    for (uint32_t i = 0; i < cpu->machine->topology.node_count; i++) {
        struct sheaves_barn *barn = sq_meta_alloc(cpu, sizeof(*barn), i);
        if (barn == NULL)
            return false;
        sq_lock_init(&barn->lock, SQ_LOCK_BARN);
        sq_list_init(&barn->full);
        sq_list_init(&barn->empty);
        cache->barn[i] = barn;
    }
    return true;
}

static void sheaves_free_list(sq_cpu *cpu, struct sq_list *list)
{
    SQ_LIST_EACH_SAFE (link, following, list)
        sq_meta_free(cpu, sheaves_of_link(link));
}

/* Ends pairs and barns, complete or not. The objects in them go with their slabs. */
static void sheaves_free_parts(sq_cpu *cpu, struct sheaves_cache *cache)
{
    for (uint32_t i = 0; i < cpu->machine->topology.cpu_count; i++) {
        struct sheaves_cpu *local = sq_percpu_at(&cache->percpu, i);
        if (local != NULL && local->main != NULL)
            sq_meta_free(cpu, local->main);
        if (local != NULL && local->spare != NULL)
            sq_meta_free(cpu, local->spare);
    }
    for (uint32_t i = 0; i < cpu->machine->topology.node_count; i++) {
        struct sheaves_barn *barn = cache->barn[i];
        if (barn == NULL)
            continue;
        sheaves_free_list(cpu, &barn->full);
        sheaves_free_list(cpu, &barn->empty);
        sq_meta_free(cpu, barn);
        cache->barn[i] = NULL;
    }
    sq_percpu_free(cpu, &cache->percpu);
}

static void sheaves_cache_release(sq_cpu *cpu, sq_cache *base)
{
    sheaves_free_parts(cpu, (struct sheaves_cache *)base);
    slub_cache_release(cpu, base);
}

static int sheaves_cache_init(sq_cpu *cpu, sq_cache *base,
                              const struct sq_cache_spec *spec, struct sq_error *error)
{
    struct sheaves_cache *cache = (struct sheaves_cache *)base;
    struct slub_shape shape;
    int status = sheaves_shape_of(base->heap, spec, &shape, &cache->capacity, error);
    if (status == SQ_OK)
        status = slub_cache_make(cpu, &cache->slub, &shape, spec, error);
    if (status != SQ_OK || cache->capacity == 0)
        return status;
    cache->slub.drops_cpu_slab = base->heap->options.sheaves.sheaf_cpu_slab == 0;
    if (sheaves_make_pairs(cpu, cache) && sheaves_make_barns(cpu, cache))
        return SQ_OK;
    sheaves_cache_release(cpu, base);
    return sq_error_set(error, SQ_E_MEMORY,
                        "no memory on the machine for the sheaves of cache %.60s",
                        spec->name);
}

/* ---- flush, shrink ---- */

/* pcs_flush_all, then what SLUB has of the CPU. */
static void sheaves_flush_cpu(sq_cpu *cpu, sq_cache *base)
{
    struct sheaves_cache *cache = (struct sheaves_cache *)base;
    struct sheaves_cpu *local = sheaves_cpu_of(cpu, cache);
    struct sq_sheaf *spare;
    if (local != NULL) {
        sq_irq_save(cpu);
        spare = local->spare;
        local->spare = NULL;
        sq_irq_restore(cpu);
        if (spare != NULL)
            sheaves_end(cpu, cache, spare);
        sheaves_flush_main(cpu, cache);
    }
    slub_flush_cpu(cpu, base);
}

/* Before the lists of a node are gone through, its barn is emptied. */
static void sheaves_shrink_node(sq_cpu *cpu, struct slub_cache *slub, uint32_t node)
{
    struct sheaves_cache *cache = (struct sheaves_cache *)slub;
    if (cache->barn[node] != NULL)
        sheaves_barn_shrink(cpu, cache, cache->barn[node]);
}

static int sheaves_shrink(sq_cpu *cpu, sq_cache *base)
{
    return slub_shrink_all(cpu, (struct slub_cache *)base, sheaves_shrink_node);
}

#endif
