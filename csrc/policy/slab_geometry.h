/*
 * slab_geometry.h -- how objects, management data and colours share a slab.
 *
 *   classic, on    | colour | struct slab, bufctl[n] | object 0 | ... | object n-1 |
 * left | classic, off   | colour | object 0 | ............ | object n-1 | left | later,
 * on      | colour | object 0 | ... | object n-1 | left | index[n] | later, obj     |
 * colour | object 0 | ... | object n-1 | left |   (index in an object) later, off the
 * same, index[n] in a kmalloc object
 *
 * `left` is what the last object leaves over; the colours are steps into it, so colour
 * and left together are constant. The rules are those of the facts, section 1.3
 * and 1.11.
 */
#ifndef SQ_SLAB_GEOMETRY_H
#define SQ_SLAB_GEOMETRY_H

#include "policy/slab_cache.h"

#define WORD_BYTES        8u
#define OFF_SLAB_SIZE_MIN (SQ_PAGE_SIZE / 8) /* classic: below, always on the slab */
#define INDEX_OBJECT_MAX  255u               /* a one-byte index */
#define INDEX_SIZE_MIN    (SQ_PAGE_SIZE >> 8)

/* A geometry in the making, and what it is made from. */
struct slab_plan {
    const sq_heap *heap;
    const struct sq_cache_spec *spec;
    struct slab_geometry geometry;
    uint64_t left_over;
};

/* Alignment: a line for HWCACHE_ALIGN, halved while two objects fit into the half. */
static uint32_t slab_align(const struct sq_cache_spec *spec, uint32_t line)
{
    uint64_t align = WORD_BYTES;
    if (spec->flags & SQ_CACHE_HWCACHE_ALIGN) {
        align = line;
        while (spec->size <= align / 2)
            align /= 2;
    }
    align = sq_max_u64(align, spec->align);
    return (uint32_t)sq_max_u64(align, WORD_BYTES);
}

/*
 * Debugging that a cache gets, and the alignment that it leaves. An object aligned to more
 * than a word has no room for a red word before it: red zones and user words are dropped.
 * Early releases let these take the place of HWCACHE_ALIGN, later ones do not. Objects
 * under RCU may be read when they are free and are not poisoned, which the kernel does not
 * even let be asked for.
 */
static uint32_t slab_debug_align(const struct slab_plan *plan, uint32_t align,
                                 uint32_t *debug_flags)
{
    const uint32_t zones = SQ_CACHE_RED_ZONE | SQ_CACHE_STORE_USER;
    uint32_t flags = plan->spec->flags & SLAB_DEBUG_FLAGS;
    if (plan->spec->flags & SQ_CACHE_TYPESAFE_BY_RCU)
        flags &= ~(uint32_t)SQ_CACHE_POISON;
    if ((flags & zones) != 0 && !plan->heap->options.slab.debug_keeps_align)
        align = (uint32_t)sq_max_u64(plan->spec->align, WORD_BYTES);
    if (align > WORD_BYTES)
        flags &= ~zones;
    *debug_flags = flags;
    return align;
}

/* ops->boot_debug_flags: CONFIG_DEBUG_SLAB gives no words to a page or more if they would
 * take the object past a power of two. */
static uint32_t slab_boot_debug_flags(const struct sq_cache_spec *spec, uint32_t flags)
{
    if (spec->size >= SQ_PAGE_SIZE &&
        sq_fls(spec->size - 1) != sq_fls(spec->size - 1 + 3 * WORD_BYTES))
        flags &= ~(uint32_t)(SQ_CACHE_RED_ZONE | SQ_CACHE_STORE_USER);
    return flags;
}

/* Bytes that the red words and the user word add to an object. */
static uint32_t slab_debug_bytes(uint32_t debug_flags)
{
    return ((debug_flags & SQ_CACHE_RED_ZONE) ? 2 * WORD_BYTES : 0) +
           ((debug_flags & SQ_CACHE_STORE_USER) ? WORD_BYTES : 0);
}

/* The smallest kmalloc cache made so far that holds `bytes`, or NULL. */
static sq_cache *kmalloc_cache_for(const sq_heap *heap, uint64_t bytes)
{
    for (uint32_t i = 0; i < heap->kmalloc_count; i++)
        if (heap->kmalloc_cache[i] != NULL &&
            heap->kmalloc_cache[i]->object_size >= bytes)
            return heap->kmalloc_cache[i];
    return NULL;
}

/* Is this order good enough to stop at? The first that wastes at most an eighth, or the
 * largest allowed; reclaimable caches stay small. */
static bool slab_order_is_final(const struct slab_plan *plan, uint32_t order)
{
    uint64_t bytes = (uint64_t)SQ_PAGE_SIZE << order;
    return (plan->spec->flags & SQ_CACHE_RECLAIM_ACCOUNT) != 0 ||
           order >= (uint64_t)plan->heap->options.slab.slab_max_order ||
           plan->left_over * 8 <= bytes;
}

static void slab_plan_keep(struct slab_plan *plan, uint32_t order, uint64_t count,
                           uint64_t left_over)
{
    plan->geometry.order = order;
    plan->geometry.object_count = (uint32_t)count;
    plan->left_over = left_over;
}

/* ---- classic: struct slab and bufctl chain ---- */

static uint64_t classic_management_bytes(uint64_t count, uint32_t align)
{
    return sq_align_up(DESCRIPTOR_BYTES + BUFCTL_BYTES * count, align);
}

/* Objects that fit into `bytes` together with their management. */
static uint64_t classic_count_on_slab(uint64_t bytes, uint32_t size, uint32_t align)
{
    uint64_t count = (bytes - DESCRIPTOR_BYTES) / (size + BUFCTL_BYTES);
    if (count > 0 && classic_management_bytes(count, align) + count * size > bytes)
        count--;
    return count;
}

/* Choose the order. With the management off the slab it may not be larger than an
 * object. */
static void classic_choose_order(struct slab_plan *plan, bool is_off)
{
    struct slab_geometry *geometry = &plan->geometry;
    uint32_t size = geometry->size, align = geometry->align;
    geometry->object_count = 0;
    for (uint32_t order = 0; order <= SQ_PAGE_ORDER_MAX; order++) {
        uint64_t bytes = (uint64_t)SQ_PAGE_SIZE << order;
        uint64_t count =
            is_off ? bytes / size : classic_count_on_slab(bytes, size, align);
        uint64_t management = is_off ? 0 : classic_management_bytes(count, align);
        if (count == 0)
            continue;
        if (is_off && count > (size - DESCRIPTOR_BYTES) / BUFCTL_BYTES)
            break;
        slab_plan_keep(plan, order, count, bytes - count * size - management);
        if (slab_order_is_final(plan, order))
            break;
    }
}

/* Off the slab for large objects, unless the management fits into what is left over.
 * While the heap bootstraps there may be no kmalloc cache yet to hold it. */
static void classic_plan(struct slab_plan *plan)
{
    struct slab_geometry *geometry = &plan->geometry;
    bool is_off = sq_align_up(plan->spec->size, WORD_BYTES) +
                      slab_debug_bytes(geometry->debug_flags) >=
                  OFF_SLAB_SIZE_MIN;
    uint64_t management;
    classic_choose_order(plan, is_off);
    if (is_off) {
        management = DESCRIPTOR_BYTES + BUFCTL_BYTES * (uint64_t)geometry->object_count;
        geometry->management_bytes = (uint32_t)management;
        geometry->management_cache = kmalloc_cache_for(plan->heap, management);
        management = classic_management_bytes(geometry->object_count, geometry->align);
        if (geometry->management_cache != NULL && plan->left_over < management) {
            geometry->placement = SLAB_OFF;
            return;
        }
        geometry->management_cache = NULL;
        if (plan->left_over >= management)
            plan->left_over -= management;
        else
            classic_choose_order(plan, false);
    }
    management = classic_management_bytes(geometry->object_count, geometry->align);
    geometry->management_bytes = (uint32_t)management;
    geometry->placement = SLAB_ON;
}

/* ---- later: a stack of one-byte indexes ---- */

/* A kmalloc cache for the indexes of `count` objects that is worth it: at most half an
 * object, and not off-slab itself. */
static sq_cache *later_management_cache(const struct slab_plan *plan, uint64_t count)
{
    sq_cache *cache = kmalloc_cache_for(plan->heap, count);
    if (cache == NULL || slab_cache_of(cache)->geometry.placement == SLAB_OFF ||
        cache->size > plan->spec->size / 2)
        return NULL;
    return cache;
}

static void later_choose_order(struct slab_plan *plan, enum slab_placement placement)
{
    struct slab_geometry *geometry = &plan->geometry;
    uint64_t slot = geometry->size + (placement == SLAB_ON ? 1u : 0u);
    geometry->object_count = 0;
    geometry->placement = placement;
    for (uint32_t order = 0; order <= SQ_PAGE_ORDER_MAX; order++) {
        uint64_t bytes = (uint64_t)SQ_PAGE_SIZE << order, count = bytes / slot;
        sq_cache *management = NULL;
        if (count == 0)
            continue;
        if (count > INDEX_OBJECT_MAX)
            break;
        if (placement == SLAB_OFF) {
            management = later_management_cache(plan, count);
            if (management == NULL)
                continue;
        }
        geometry->management_cache = management;
        slab_plan_keep(plan, order, count, bytes - count * slot);
        if (slab_order_is_final(plan, order))
            break;
    }
}

/* In the last free object if that is large enough and nobody looks into free objects;
 * else off the slab if the rest of the slab is too small for it; else at the slab's
 * end. */
static void later_plan(struct slab_plan *plan)
{
    struct slab_geometry *geometry = &plan->geometry;
    const struct sq_cache_spec *spec = plan->spec;
    bool is_found = false;
    if (plan->heap->options.slab.objfreelist && spec->constructor == NULL &&
        (spec->flags & SQ_CACHE_TYPESAFE_BY_RCU) == 0) {
        later_choose_order(plan, SLAB_OBJ);
        is_found = geometry->object_count > 0 && geometry->object_count <= spec->size;
    }
    if (!is_found) {
        later_choose_order(plan, SLAB_OFF);
        is_found =
            geometry->object_count > 0 && plan->left_over < geometry->object_count;
    }
    if (!is_found) {
        geometry->management_cache = NULL;
        later_choose_order(plan, SLAB_ON);
    }
    geometry->management_bytes = geometry->object_count;
}

/* ---- both ---- */

/* Plan the slabs of such a cache. On success `geometry` is complete. */
static int slab_geometry_plan(const sq_heap *heap, const struct sq_cache_spec *spec,
                              struct slab_geometry *geometry, struct sq_error *error)
{
    struct slab_plan plan = {.heap = heap, .spec = spec};
    uint32_t line = (uint32_t)heap->options.slab.cache_line_size, align;
    bool is_classic = !heap->options.slab.freelist_index_stack;
    uint64_t size;
    if (!sq_is_power_of_two(line))
        return sq_error_set(error, SQ_E_PARAMETER,
                            "cache_line_size of policy slab is %u: accepted are 32, 64 "
                            "and 128",
                            line);
    align = slab_debug_align(&plan, slab_align(spec, line), &plan.geometry.debug_flags);
    size = sq_align_up(spec->size, WORD_BYTES) +
           slab_debug_bytes(plan.geometry.debug_flags);
    size = sq_align_up(size, align);
    if (plan.geometry.debug_flags & SQ_CACHE_RED_ZONE)
        plan.geometry.object_offset = WORD_BYTES;
    if (!is_classic && size < INDEX_SIZE_MIN)
        size = sq_align_up(INDEX_SIZE_MIN, align);
    plan.geometry.size = (uint32_t)size;
    plan.geometry.align = align;
    if (is_classic)
        classic_plan(&plan);
    else
        later_plan(&plan);
    if (plan.geometry.object_count == 0)
        return sq_error_set(
            error, SQ_E_PARAMETER,
            "size of cache %.60s is %llu: no slab of up to %u bytes holds "
            "one such object with its management",
            spec->name, (unsigned long long)spec->size,
            SQ_PAGE_SIZE << SQ_PAGE_ORDER_MAX);
    plan.geometry.colour_step = (uint32_t)sq_max_u64(line, align);
    plan.geometry.colour_count = (uint32_t)(plan.left_over / plan.geometry.colour_step);
    *geometry = plan.geometry;
    return SQ_OK;
}

/* Array sizes by object size, as enable_cpucache; options may override each. Debugging
 * looks at every object of a batch, so that arrays are short then. */
static struct slab_tunables slab_tunables_for(const sq_heap *heap,
                                              const struct slab_geometry *geometry)
{
    static const struct {
        uint32_t above, limit;
    } limits[] = {{131072, 1}, {SQ_PAGE_SIZE, 8}, {1024, 24}, {256, 54}, {0, 120}};
    struct slab_tunables tunables = {0};
    uint32_t i = 0, size = geometry->size;
    while (size <= limits[i].above)
        i++;
    tunables.limit = heap->options.slab.limit > 0 ? (uint32_t)heap->options.slab.limit
                                                  : limits[i].limit;
    if (geometry->debug_flags != 0 && heap->options.slab.limit == 0)
        tunables.limit = (uint32_t)sq_min_u64(tunables.limit, SLAB_DEBUG_LIMIT);
    tunables.batchcount = (tunables.limit + 1) / 2;
    if (heap->options.slab.batchcount > 0)
        tunables.batchcount = (uint32_t)sq_min_u64(
            (uint64_t)heap->options.slab.batchcount, tunables.limit);
    if (size <= SQ_PAGE_SIZE && heap->machine->topology.cpu_count > 1)
        tunables.shared = (uint32_t)heap->options.slab.shared;
    return tunables;
}

/* Free objects that a node may keep: a batch for each CPU that is online and one more,
 * and a slab. */
static uint64_t slab_free_limit(const sq_heap *heap, uint32_t node,
                                const struct slab_tunables *tunables,
                                const struct slab_geometry *geometry)
{
    uint64_t cpu_count =
        heap->machine->topology.cpus_on_node[node] - heap->offline_on_node[node];
    return (1 + cpu_count) * tunables->batchcount + geometry->object_count;
}

/* An alien array is small, and one entry when everything else is. */
static uint32_t slab_alien_limit(const struct sq_options *options, uint32_t limit)
{
    return limit > 1 ? (uint32_t)options->slab.alien_limit : limit;
}

static bool slab_wants_aliens(const sq_heap *heap)
{
    return heap->machine->topology.node_count > 1 && !heap->options.slab.noaliencache;
}

#endif
