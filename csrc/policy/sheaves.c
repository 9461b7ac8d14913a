/*
 * Sheaves: arrays of objects in front of SLUB (6.18, percpu sheaves and barns). A CPU
 * allocates from its main sheaf and frees to it, whatever slabs the objects are of;
 * only an empty or a full main sheaf leads further, and then mostly a whole sheaf
 * changes hands.
 *
 *   CPU     main  [ a b c . . ]   alloc takes the last, free adds one
 *           spare [ full | empty ]    changes places with main when that is used up
 *             |
 *   node    barn  full [..]-[..]   empty [ ]-[ ]    sheaves the node's CPUs leave for
 *             |                                     each other, under barn_lock
 *   SLUB    CPU slabs, partial lists, pages         filled and flushed in bulk
 *
 *   alloc: main; spare; a full sheaf of the barn for the empty one; a sheaf filled from
 *          slabs; without waiting, or for another node, straight from slabs
 *   free:  main; spare; an empty sheaf of the barn for the full main one; with enough
 *          full sheaves there, the spare goes to slabs; else a new sheaf. Objects of
 * other nodes go straight to their slabs, never into a sheaf
 *
 * The barn helps where SLUB locks for every object: a CPU that only allocates and one
 * that only frees pass each other sheaves.
 *
 * Lock order: the CPU's pair (irqs off) -> barn_lock; slabs are filled from and flushed
 * to with neither held. SLUB's own order is beneath. held_lock is innermost and alone.
 *
 * Files: sheaves_cache.h (structures), sheaves_barn.h, sheaves_replace.h (an empty or
 * full main sheaf), sheaves_prefill.h (sheaves for callers), sheaves_control.h,
 * sheaves_dump.h, sheaves_check.h; here the paths. SLUB beneath is slub_*.h, unchanged.
 *
 * Release: 6.18, where a cache asks for sheaves (sheaf_capacity) and all others are
 * SLUB's. Compared object by object with recordings of it. sheaf_all_caches gives them
 * to every cache, as the series of October 2025 does, by its formula of capacities; the
 * rest of that series is not followed.
 *
 * Departures: the kernel's local lock keeps preemption off, ours interrupts, since
 * requests of other CPUs stand for its work items; nothing can find it held, so the
 * ways around a held lock are not here. Sheaves are cut from the machine's memory for
 * allocators' own structures, not from kmalloc caches. A bulk free whose 32nd object of
 * another node was the last one looked at lost the others in 6.18.2; here it does not.
 * kfree_rcu and memory reserves (pfmemalloc) do not exist. The chain of sheaves that
 * callers hold is ours.
 */
#include "policy/sheaves_check.h"
#include "policy/slub_validate.h"

/* ---- one object ---- */

/* The last object of the main sheaf, which has one. The object is not looked at. */
static inline void *sheaves_pop(sq_cpu *cpu, struct sheaves_cache *cache,
                                struct sq_sheaf *sheaf)
{
    SQ_IN_SCOPE(cpu, SHEAF_ALLOC);
    uint32_t last = --sheaf->size;
    void *object = sheaf->object[last];
    sq_count(cpu, &cache->slub.base, SLUB_ALLOC_PCS);
    sq_touch_local(cpu, sheaf, sizeof(*sheaf));
    sq_touch_local(cpu, &sheaf->object[last], sizeof(void *));
    return object;
}

/* Into the main sheaf, which has room. */
static inline void sheaves_push(sq_cpu *cpu, struct sheaves_cache *cache,
                                struct sq_sheaf *sheaf, void *object)
{
    SQ_IN_SCOPE(cpu, SHEAF_FREE);
    uint32_t last = sheaf->size++;
    sheaf->object[last] = object;
    sq_count(cpu, &cache->slub.base, SLUB_FREE_PCS);
    sq_touch_local(cpu, sheaf, sizeof(*sheaf));
    sq_touch_local(cpu, &sheaf->object[last], sizeof(void *));
}

/* For no node, of a main sheaf that has objects: NULL in all other cases. */
static inline void *sheaves_alloc_fast(sq_cpu *cpu, struct sheaves_cache *cache,
                                       int32_t node)
{
    struct sheaves_cpu *local = sheaves_cpu_of(cpu, cache);
    if (SLUB_LIKELY(local != NULL && node == SQ_NODE_ANY && local->main->size > 0))
        return sheaves_pop(cpu, cache, local->main);
    return NULL;
}

/* From a sheaf, if the main one can be made to have objects. The last object may be of
 * another node than the one asked for, which is this one. */
static void *sheaves_alloc_refilled(sq_cpu *cpu, struct sheaves_cache *cache,
                                    struct sheaves_cpu *local, int32_t node,
                                    uint32_t flags)
{
    void *object = NULL;
    sq_irq_save(cpu);
    if (local->main->size > 0 || sheaves_replace_empty_main(cpu, cache, local, flags)) {
        struct sq_sheaf *sheaf = local->main;
        if (node == SQ_NODE_ANY ||
            sq_node_of_address(cpu->machine, sheaf->object[sheaf->size - 1]) ==
                cpu->node)
            object = sheaves_pop(cpu, cache, sheaf);
    }
    sq_irq_restore(cpu);
    return object;
}

/* All but the above. A cache without sheaves comes here at once. */
static SLUB_OUT_OF_LINE void *sheaves_alloc_slow(sq_cpu *cpu,
                                                 struct sheaves_cache *cache,
                                                 int32_t node, uint32_t flags)
{
    struct sheaves_cpu *local = sheaves_cpu_of(cpu, cache);
    if (local != NULL && (node == SQ_NODE_ANY || (uint32_t)node == cpu->node)) {
        void *object = sheaves_alloc_refilled(cpu, cache, local, node, flags);
        if (object != NULL)
            return object;
    }
    return slub_alloc_object(cpu, &cache->slub, node, flags);
}

/* An object of another node, or of a cache without sheaves, or for a full main sheaf.
 */
static SLUB_OUT_OF_LINE void sheaves_free_slow(sq_cpu *cpu, struct sheaves_cache *cache,
                                               struct sq_page *page, void *object)
{
    struct sheaves_cpu *local = sheaves_cpu_of(cpu, cache);
    if (local == NULL || page->node != cpu->node) {
        slub_free_objects(cpu, &cache->slub, page, object, object, 1, 1);
        return;
    }
    sq_touch_read(cpu, page, sizeof(*page));
    sq_irq_save(cpu);
    if (local->main->size == cache->capacity)
        sheaves_replace_full_main(cpu, cache, local);
    sheaves_push(cpu, cache, local->main, object);
    sq_irq_restore(cpu);
}

static void *sheaves_alloc(sq_cpu *cpu, sq_cache *base, int32_t node, uint32_t flags)
{
    SQ_IN_SCOPE(cpu, SLUB_ALLOC);
    struct sheaves_cache *cache = (struct sheaves_cache *)base;
    void *object = sheaves_alloc_fast(cpu, cache, node);
    return SLUB_LIKELY(object != NULL) ? object
                                       : sheaves_alloc_slow(cpu, cache, node, flags);
}

static void sheaves_free(sq_cpu *cpu, sq_cache *base, void *object)
{
    SQ_IN_SCOPE(cpu, SLUB_FREE);
    struct sheaves_cache *cache = (struct sheaves_cache *)base;
    struct sheaves_cpu *local = sheaves_cpu_of(cpu, cache);
    struct sq_page *page = sq_page_of_address(cpu->machine, object);
    SQ_ASSERT(page->state == SQ_PAGE_SLAB);
    if (SLUB_LIKELY(local != NULL && page->node == cpu->node &&
                    local->main->size < local->main->capacity)) {
        sheaves_push(cpu, cache, local->main, object);
        sq_touch_read(cpu, page, sizeof(*page));
    } else {
        sheaves_free_slow(cpu, cache, page, object);
    }
}

/* ---- bulk ---- */

/* Objects from sheaves that are full already; how many there were. Which of a sheaf:
 * the last ones, in the order they lie there. */
static size_t sheaves_take_bulk(sq_cpu *cpu, struct sheaves_cache *cache, size_t count,
                                void **objects)
{
    SQ_IN_SCOPE(cpu, SHEAF_ALLOC_BULK);
    struct sheaves_cpu *local = sheaves_cpu_of(cpu, cache);
    size_t taken = 0;
    while (local != NULL && taken < count) {
        uint32_t batch = 0;
        sq_irq_save(cpu);
        if (sheaves_bulk_objects(cpu, cache, local)) {
            struct sq_sheaf *sheaf = local->main;
            batch = (uint32_t)sq_min_u64(count - taken, sheaf->size);
            sheaf->size -= batch;
            sq_touch_read(cpu, &sheaf->object[sheaf->size], batch * sizeof(*objects));
            memcpy(objects + taken, &sheaf->object[sheaf->size],
                   batch * sizeof(*objects));
        }
        sq_irq_restore(cpu);
        if (batch == 0)
            break;
        sq_count_by(cpu, &cache->slub.base, SLUB_ALLOC_PCS, batch);
        taken += batch;
    }
    return taken;
}

static size_t sheaves_alloc_bulk(sq_cpu *cpu, sq_cache *base, uint32_t flags,
                                 size_t count, void **objects)
{
    struct sheaves_cache *cache = (struct sheaves_cache *)base;
    size_t taken = sheaves_take_bulk(cpu, cache, count, objects);
    size_t missing = count - taken;
    if (missing == 0 ||
        slub_alloc_bulk(cpu, base, flags, missing, objects + taken) == missing)
        return count;
    slub_put_bulk(cpu, &cache->slub, taken, objects);
    return 0;
}

/* Objects of this node: into sheaves as long as the barn has empty ones, the rest to
 * their slabs. */
static void sheaves_put_bulk(sq_cpu *cpu, struct sheaves_cache *cache, size_t count,
                             void **objects)
{
    SQ_IN_SCOPE(cpu, SHEAF_FREE_BULK);
    struct sheaves_cpu *local = sheaves_cpu_of(cpu, cache);
    while (count > 0) {
        uint32_t batch = 0;
        sq_irq_save(cpu);
        if (sheaves_bulk_room(cpu, cache, local)) {
            struct sq_sheaf *sheaf = local->main;
            batch = (uint32_t)sq_min_u64(count, cache->capacity - sheaf->size);
            sq_touch_write(cpu, &sheaf->object[sheaf->size], batch * sizeof(*objects));
            memcpy(&sheaf->object[sheaf->size], objects, batch * sizeof(*objects));
            sheaf->size += batch;
        }
        sq_irq_restore(cpu);
        if (batch == 0)
            break;
        sq_count_by(cpu, &cache->slub.base, SLUB_FREE_PCS, batch);
        objects += batch;
        count -= batch;
    }
    slub_put_bulk(cpu, &cache->slub, count, objects);
}

/* Objects of other nodes are picked out, the last ones taking their places, and go to
 * their slabs a batch at a time; the last of them after the objects of this node. */
static void sheaves_free_bulk(sq_cpu *cpu, sq_cache *base, size_t count, void **objects)
{
    struct sheaves_cache *cache = (struct sheaves_cache *)base;
    void *remote[SHEAVES_BATCH_MAX];
    uint32_t remote_count = 0;
    size_t local_count = 0;
    if (cache->capacity == 0) {
        slub_free_bulk(cpu, base, count, objects);
        return;
    }
    while (local_count < count) {
        void *object = objects[local_count];
        if (sq_node_of_address(cpu->machine, object) == cpu->node) {
            local_count++;
            continue;
        }
        remote[remote_count++] = object;
        objects[local_count] = objects[--count];
        if (remote_count == SHEAVES_BATCH_MAX) {
            slub_put_bulk(cpu, &cache->slub, remote_count, remote);
            remote_count = 0;
        }
    }
    sheaves_put_bulk(cpu, cache, local_count, objects);
    slub_put_bulk(cpu, &cache->slub, remote_count, remote);
}

/* ---- kmalloc ---- */

static void *kmalloc_large(sq_cpu *cpu, sq_heap *heap, size_t size, int32_t node,
                           uint32_t flags);

/* As in slub.c: a class may be allowed to fall back to plain pages. */
static SLUB_OUT_OF_LINE void *sheaves_kmalloc_slow(sq_cpu *cpu, sq_cache *base,
                                                   int32_t node, uint32_t flags)
{
    struct sheaves_cache *cache = (struct sheaves_cache *)base;
    void *object = sheaves_alloc_slow(cpu, cache, node, flags);
    if (object == NULL && cache->slub.falls_back_to_pages)
        return kmalloc_large(cpu, base->heap, base->object_size, node, flags);
    return object;
}

static inline void *sheaves_kmalloc_class(sq_cpu *cpu, sq_cache *base, int32_t node,
                                          uint32_t flags)
{
    SQ_IN_SCOPE(cpu, SLUB_ALLOC);
    void *object = sheaves_alloc_fast(cpu, (struct sheaves_cache *)base, node);
    return SLUB_LIKELY(object != NULL) ? object
                                       : sheaves_kmalloc_slow(cpu, base, node, flags);
}

#define SQ_KMALLOC_ALLOC(cpu, cache, node, flags)                                      \
    sheaves_kmalloc_class(cpu, cache, node, flags)
#define SQ_KMALLOC_FREE(cpu, cache, object) sheaves_free(cpu, cache, object)
#define SQ_KMALLOC_CACHE_OF(page)           slub_cache_of_page(page)
#define SQ_KMALLOC_NOTE(cpu, cache, object, size) slub_kmalloc_note(cpu, cache, object, size)
#include "policy/kmalloc-impl.h"

SQ_POLICY(sheaves) = {
    .name = "sheaves",
    .machine = SQ_MACHINE_NAME,
    .cache_bytes = sizeof(struct sheaves_cache),
    .counter_count = SLUB_COUNTER_COUNT,
    .counters = slub_counter_names,
    .kmalloc_shape = slub_kmalloc_shape,
    .geometry = sheaves_geometry,
    .cache_init = sheaves_cache_init,
    .cache_release = sheaves_cache_release,
    .flush_cpu = sheaves_flush_cpu,
    .shrink = sheaves_shrink,
    .alignment = slub_alignment_of,
    .tune = slub_tune,
    .alloc = sheaves_alloc,
    .free = sheaves_free,
    .alloc_bulk = sheaves_alloc_bulk,
    .free_bulk = sheaves_free_bulk,
    .free_checked = slub_free_checked,
    .sheaf_prefill = sheaves_prefill,
    .sheaf_alloc = slub_sheaf_alloc,
    .sheaf_refill = sheaves_refill,
    .sheaf_return = sheaves_return,
    .kmalloc = kmalloc_alloc,
    .kfree = kmalloc_free,
    .ksize = kmalloc_usable_size,
    .cache_of_page = kmalloc_cache_of_page,
    .check = sheaves_check,
    .validate = slub_validate,
    .debug_flags = SLUB_DEBUG_FLAGS,
    .locate = slub_locate,
    .usage = sheaves_usage,
    .describe = sheaves_describe,
    .dump = sheaves_dump,
    .row = sheaves_row,
    .row_cpu = sheaves_row_cpu,
    .row_columns = sheaves_row_columns,
};
