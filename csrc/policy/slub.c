/*
 * SLUB: no queues. A CPU owns one slab and hands out that slab's own objects; what is
 * freed elsewhere goes back to the slab it came from.
 *
 *   CPU   free --> object --> object --> NULL      fast paths: pop and push here
 *         slab --> [ page frame: word = (first free object, inuse, objects, frozen) ]
 *         partial --> slab --> slab                filled by frees, emptied by refills
 *                                                  (3.2 on)
 *   node  list_lock, nr_partial
 *         partial <--> slab <--> slab              some objects free, no CPU owns them
 *   full slabs are on no list; the first free to one finds it by the object's address
 *
 *   alloc: the CPU's free list; else what was freed to the CPU's slab meanwhile; else
 *          a slab of the CPU's partial list; else one of its node's list; else one of
 *          another node's; else new pages
 *   free:  the CPU's free list if the object is of its slab; else the object's slab
 *
 * Lock order: slab_lock (to 3.0) -> list_lock -> local lock (RT) -> page allocator;
 * get_partial takes slab_lock inside list_lock by trying. A node's all_lock is
 * innermost and alone.
 *
 * Files: slub_geometry.h, slub_slab.h (structures), slub_lock.h, slub_node.h, slub_cpu.h,
 * slub_partial.h, slub_refill.h, slub_narrow.h, slub_paths.h (the paths, from inside out),
 * slub_sheaf.h (sheaves that callers hold), slub_control.h, slub_dump.h, slub_check.h,
 * slub_outside.h; here what is this policy's alone. `sheaves` is made of the same.
 *
 * Releases: 2.6.24 to 6.18, one source; every difference is an option of slub_options.h
 * asked at the place where it matters. Compared object by object with recordings of
 * 2.6.25, 2.6.35, 4.19, 5.15, 6.1 and 6.18.
 *
 * Departures: the chain of all slabs (slub_node.h) is ours. But for PREEMPT_RT
 * (option irq_scope) slow paths keep interrupts off from end to end, where 3.1 and
 * later turn them on in between and for page allocation. Debug caches under
 * slab_lock take the paths of 4.19; validate goes over all slabs; a slab that failed
 * is kept with the full ones; reports have no stack dump. Caches made at boot are
 * shuffled (freelist_random) from the start, not from its end on. With PREEMPT_RT
 * the page allocator's locks do not sleep. The chance of taking another node's slab
 * is drawn from the run's random numbers, where the kernel reads its cycle counter.
 */
#include "policy/slub_outside.h"
#include "policy/slub_validate.h"

/* ---- one object ---- */

static void *slub_alloc(sq_cpu *cpu, sq_cache *base, int32_t node, uint32_t flags)
{
    SQ_IN_SCOPE(cpu, SLUB_ALLOC);
    return slub_alloc_object(cpu, (struct slub_cache *)base, node, flags);
}

static void slub_free(sq_cpu *cpu, sq_cache *base, void *object)
{
    SQ_IN_SCOPE(cpu, SLUB_FREE);
    struct sq_page *page = sq_page_of_address(cpu->machine, object);
    SQ_ASSERT(page->state == SQ_PAGE_SLAB);
    (void)slub_free_objects(cpu, (struct slub_cache *)base, page, object, object, 1, 1);
}

/* ---- kmalloc ---- */

static void *kmalloc_large(sq_cpu *cpu, sq_heap *heap, size_t size, int32_t node,
                           uint32_t flags);

/* 2.6.25: a class whose slabs are larger than it would like falls back to plain pages.
 */
static inline void *slub_kmalloc_class(sq_cpu *cpu, sq_cache *base, int32_t node,
                                       uint32_t flags)
{
    SQ_IN_SCOPE(cpu, SLUB_ALLOC);
    struct slub_cache *cache = (struct slub_cache *)base;
    void *object = slub_alloc_object(cpu, cache, node, flags);
    if (object == NULL && cache->falls_back_to_pages)
        return kmalloc_large(cpu, base->heap, base->object_size, node, flags);
    return object;
}

#define SQ_KMALLOC_ALLOC(cpu, cache, node, flags)                                      \
    slub_kmalloc_class(cpu, cache, node, flags)
#define SQ_KMALLOC_FREE(cpu, cache, object) slub_free(cpu, cache, object)
#define SQ_KMALLOC_CACHE_OF(page)           slub_cache_of_page(page)
#define SQ_KMALLOC_NOTE(cpu, cache, object, size) slub_kmalloc_note(cpu, cache, object, size)
#include "policy/kmalloc-impl.h"

/* ---- control plane, introspection ---- */

static int slub_geometry(const sq_heap *heap, const struct sq_cache_spec *spec,
                         struct sq_json *json, struct sq_error *error)
{
    struct slub_shape shape;
    int status = slub_shape_of(heap, spec, &shape, error);
    if (status == SQ_OK)
        slub_print_geometry(heap, spec, &shape, json);
    return status;
}

/* Options of locks that do not go together: without PREEMPT_RT nothing sleeps, and what
 * sleeps needs the paths that have interrupts on. A local lock is no lock of its own where
 * interrupts are off anyhow. */
static int slub_check_locks(const sq_heap *heap, struct sq_error *error)
{
    bool is_rt = heap->options.slub.preempt_rt != 0;
    bool is_narrow = heap->options.slub.irq_scope != 0;
    bool is_local = heap->options.slub.fast_path == SLUB_FAST_LOCAL_LOCK;
    bool is_raw = heap->options.slub.list_lock_raw != 0;
    if (((is_local && is_narrow) || !is_raw) && !(is_rt && is_narrow))
        return sq_error_set(error, SQ_E_PARAMETER,
                            "%s of policy slub with preempt_rt %d and irq_scope %d: a "
                            "sleeping lock is accepted with 1 and 1 only, as in the "
                            "kernel profile 5.14-rt",
                            is_raw ? "fast_path is 2" : "list_lock_raw is 0", is_rt,
                            is_narrow);
    if (is_narrow && (heap->options.slub.fast_path == SLUB_FAST_IRQ ||
                      heap->options.slub.slab_cmpxchg == 0 ||
                      heap->options.slub.cpu_partial_frozen == 0 ||
                      heap->options.slub.cpu_partial_zero_drain != 0))
        return sq_error_set(error, SQ_E_PARAMETER,
                            "irq_scope of policy slub is 1: accepted with fast_path 1 or "
                            "2, slab_cmpxchg 1, cpu_partial_frozen 1 and "
                            "cpu_partial_zero_drain 0");
    if (is_narrow && is_local && is_raw && heap->options.slub.slub_cpu_partial != 0 &&
        heap->options.slub.cpu_partial_unit != SLUB_CPU_PARTIAL_NONE)
        return sq_error_set(error, SQ_E_PARAMETER,
                            "list_lock_raw of policy slub is 1 with slub_cpu_partial 1 "
                            "and fast_path 2: accepted is 0, since the local lock of "
                            "cpu partial lists would sleep under it");
    return SQ_OK;
}

static int slub_cache_init(sq_cpu *cpu, sq_cache *base,
                           const struct sq_cache_spec *spec, struct sq_error *error)
{
    struct slub_cache *cache = (struct slub_cache *)base;
    struct slub_shape shape;
    int status = slub_check_locks(base->heap, error);
    cache->is_narrow = base->heap->options.slub.irq_scope != 0;
    cache->list_lock_sleeps = base->heap->options.slub.list_lock_raw == 0;
    if (status == SQ_OK)
        status = slub_shape_of(base->heap, spec, &shape, error);
    if (status == SQ_OK)
        status = slub_cache_make(cpu, (struct slub_cache *)base, &shape, spec, error);
    return status;
}

static int slub_shrink(sq_cpu *cpu, sq_cache *base)
{
    return slub_shrink_all(cpu, (struct slub_cache *)base, NULL);
}

static void slub_describe(sq_cache *base, struct sq_json *json)
{
    const struct slub_cache *cache = (const struct slub_cache *)base;
    slub_print_cache(cache, SLUB_OPTION(cache, sheaf_columns) != 0 ? 0 : -1, json);
}

static void slub_dump(sq_cpu *cpu, sq_cache *base, struct sq_json *json)
{
    const struct slub_cache *cache = (const struct slub_cache *)base;
    const struct sq_topology *topology = &cpu->machine->topology;
    sq_json_open_array(json, "cpus");
    for (uint32_t i = 0; i < topology->cpu_count; i++) {
        if (!slub_cpu_has_slabs(cache, i))
            continue;
        sq_json_open_object(json, NULL);
        slub_dump_cpu(cpu, cache, i, json);
        sq_json_close(json);
    }
    sq_json_close(json);
    sq_json_open_array(json, "nodes");
    for (uint32_t i = 0; i < topology->node_count; i++) {
        sq_json_open_object(json, NULL);
        slub_dump_node(cpu, cache, i, json);
        sq_json_close(json);
    }
    sq_json_close(json);
    slub_dump_held(cache, json);
    slub_dump_counters(base, topology->cpu_count, json);
}

static void slub_row_cpu(sq_cpu *cpu, sq_cache *base, struct sq_json *json)
{
    const struct slub_cache *cache = (const struct slub_cache *)base;
    slub_row_own(cpu, cache, json);
    if (SLUB_OPTION(cache, sheaf_columns) != 0)
        slub_row_no_sheaves(json);
}

static void slub_row(sq_cpu *cpu, sq_cache *base, const struct sq_object_place *place,
                     bool slab_is_free, struct sq_json *json)
{
    const struct slub_cache *cache = (const struct slub_cache *)base;
    slub_row_all(cpu, cache, place, slab_is_free, json);
    if (SLUB_OPTION(cache, sheaf_columns) != 0)
        slub_row_no_sheaves(json);
}

static int slub_check(sq_cpu *cpu, sq_cache *base, struct sq_error *error)
{
    const struct slub_checker checker = {cpu, (struct slub_cache *)base, error};
    struct slub_outside outside = {.checker = &checker};
    int status = slub_check_slabs(&checker);
    if (status == SQ_OK)
        status = slub_outside_check(&outside);
    free(outside.object);
    return status;
}

static const char *const slub_row_columns[] = {SLUB_ROW_COLUMNS, NULL};

/* ops->row_columns_of: by what the cpu partial lists count, with those of sheaves or
 * not. */
static const char *const *slub_row_columns_of(const struct sq_options *options)
{
    static const char *const columns[3][2][20] = {
        {{SLUB_ROW_COLUMNS_OF_CPU, SLUB_ROW_COLUMNS_OF_NODE},
         {SLUB_ROW_COLUMNS_OF_CPU, SLUB_ROW_COLUMNS_OF_NODE, SLUB_ROW_COLUMNS_OF_SHEAVES}},
        {{SLUB_ROW_COLUMNS, "cpu_partial_pobjects"},
         {SLUB_ROW_COLUMNS, "cpu_partial_pobjects", SLUB_ROW_COLUMNS_OF_SHEAVES}},
        {{SLUB_ROW_COLUMNS}, {SLUB_ROW_COLUMNS, SLUB_ROW_COLUMNS_OF_SHEAVES}}};
    return columns[options->slub.cpu_partial_unit][options->slub.sheaf_columns];
}

SQ_POLICY(slub) = {
    .name = "slub",
    .machine = SQ_MACHINE_NAME,
    .cache_bytes = sizeof(struct slub_cache),
    .counter_count = SLUB_COUNTER_COUNT,
    .counters = slub_counter_names,
    .kmalloc_shape = slub_kmalloc_shape,
    .geometry = slub_geometry,
    .cache_init = slub_cache_init,
    .cache_release = slub_cache_release,
    .flush_cpu = slub_flush_cpu,
    .shrink = slub_shrink,
    .alignment = slub_alignment_of,
    .tune = slub_tune,
    .alloc = slub_alloc,
    .free = slub_free,
    .alloc_bulk = slub_alloc_bulk,
    .free_bulk = slub_free_bulk,
    .free_checked = slub_free_checked,
    .sheaf_prefill = slub_sheaf_prefill,
    .sheaf_alloc = slub_sheaf_alloc,
    .sheaf_refill = slub_sheaf_refill,
    .sheaf_return = slub_sheaf_return,
    .kmalloc = kmalloc_alloc,
    .kfree = kmalloc_free,
    .ksize = kmalloc_usable_size,
    .cache_of_page = kmalloc_cache_of_page,
    .check = slub_check,
    .validate = slub_validate,
    .debug_flags = SLUB_DEBUG_FLAGS,
    .locate = slub_locate,
    .usage = slub_usage,
    .describe = slub_describe,
    .dump = slub_dump,
    .row = slub_row,
    .row_cpu = slub_row_cpu,
    .row_columns = slub_row_columns,
    .row_columns_of = slub_row_columns_of,
};
