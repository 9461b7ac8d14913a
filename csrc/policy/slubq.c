/*
 * SLUB+Q, "SLUB with queueing": SLUB's slabs without a list inside them, and in front
 * of them SLAB's queues (Christoph Lameter, 2010).
 *
 * A slab says which of its objects are free in a bitmap, so the allocator never touches
 * an object. Each CPU has a queue of pointers to free objects: alloc takes the newest,
 * free adds one, and only an empty or a full queue goes further, a batch at a time.
 *
 *   CPU queue          shared queue (V3, V4)        slabs of a node
 *   oldest ... newest  one a last-level cache       partial: [0110..]-[1000..]-...
 *   [ a b c ... x y ]  and node          <------>   full slabs are on no list
 *         |       ^    [ a b c ... ]                new ones from the page allocator
 *   drain |       | alloc, free
 *   batch v       v    alien queue (V3, V4): objects of one other node, one queue a
 *        slabs         (shared queue, other node)
 *
 * Files: slubq_cache.h (structures), slubq_bitmap.h, slubq_slab.h (slabs, partial
 * lists, draining), slubq_queue.h (shared and alien queues), slubq_refill.h,
 * slubq_shrink.h, slubq_expire.h, slubq_tune.h, slubq_dump.h, slubq_check.h; here the
 * two hot paths and the making of a cache.
 *
 * Locks: the CPU's queue by irqs off; then alien_lock or shared_lock, slab_lock (up to
 * V3), list_lock. Taking a partial slab inverts the last two by trying.
 *
 * Postings followed, chosen by `version`:
 *   V1  25 Jun 2010 [S+Q 12,13/16]     one queue a CPU, resizable; foreign objects too
 *   V2  9 Jul 2010  [S+Q2 15,18/19]    the same, counters mended
 *   V3  3 Aug 2010  [S+Q3 14-21/23]    shared and alien queues, queues rounded to lines
 *   V4  5 Oct 2010  [UnifiedV4 3-12,14,16/16]  no slab_lock, `touched`, expiry
 *
 * Departures:
 *   - All slabs of a node are chained through their page frames, under a lock of their
 *     own, when they are made and given back: for release and introspection only.
 *   - Above 64 objects the frame counts the set bits, so none need be searched to know
 *     whether a slab is full or empty.
 *   - V3's size of a shared queue's block is V4's: as posted it was 12 bytes long where
 *     a page was meant, and the kernel's memory would have been overwritten.
 *   - An allocation for another node that has no memory left takes a local object,
 * unless SQ_ALLOC_THISNODE is given.
 *   - Slabs emptied under V4's list_lock are given back when it is let go.
 *   - CPUs that are alone under their last-level cache share one queue a node; as
 * posted one of the whole machine, which mixed nodes.
 *   - The kmalloc caches have shared queues like all others.
 *   - Debugging is that of slubq_debug.h; validate tells faults and not the line of
 *     sums that V4 [15/16] has: what is in it is known (objects in all, available,
 *     checked, unchecked, in queues, errors, and how many slabs have so many in use),
 *     how it is written is not.
 */
#include "policy/slubq_check.h"
#include "policy/slubq_refill.h"
#include "policy/slubq_tune.h"
#include "policy/slubq_validate.h"

/* ---- allocating ---- */

/* V1, V2: the queue is for one node, the last that was asked for; another empties it.
 */
static void slubq_change_node(sq_cpu *cpu, struct slubq_cache *cache,
                              struct slubq_queue *queue, int32_t node)
{
    if (node == SQ_NODE_ANY || node == queue->node)
        return;
    slubq_flush_queue(cpu, cache, queue);
    queue->node = (int16_t)node;
}

/* The queue is empty or another node's: refill it and take one. NULL without memory. */
static void *slubq_refill(sq_cpu *cpu, struct slubq_cache *cache, int32_t node,
                          uint32_t flags)
{
    SQ_IN_SCOPE(cpu, SLUBQ_REFILL);
    struct slubq_queue *queue = slubq_queue_of(cpu, cache);
    uint32_t want = slubq_refill_want(cache, queue);
    bool from_shared;
    if (!cache->rule.foreign_is_apart)
        slubq_change_node(cpu, cache, queue, node);
    queue->touched = 1;
    from_shared = queue->group != NULL && slubq_shared_take(cpu, queue, want) > 0;
    if (from_shared)
        slubq_count(cpu, cache, SLUBQ_ALLOC_SHARED);
    else if (cache->rule.has_slab_lock)
        slubq_refill_by_slab(cpu, cache, node, flags);
    else
        slubq_refill_by_node(cpu, cache, node, want, flags);
    queue = slubq_queue_of(cpu, cache);
    if (queue->objects == 0)
        return NULL;
    if (!from_shared || cache->rule.version < 4)
        slubq_count(cpu, cache, SLUBQ_ALLOC_SLOWPATH);
    return queue->object[--queue->objects];
}

/* What alloc does when its queue does not serve: the rest of the section with irqs off.
 * Out of line, as slubq_free_slow, so that the hit saves no registers. */
static __attribute__((noinline)) void *
slubq_alloc_slow(sq_cpu *cpu, struct slubq_cache *cache, int32_t node, uint32_t flags)
{
    bool is_foreign = cache->rule.foreign_is_apart && node != SQ_NODE_ANY &&
                      node != slubq_queue_of(cpu, cache)->node;
    void *object = NULL;
    if (is_foreign)
        object = slubq_alloc_foreign(cpu, cache, (uint32_t)node, flags);
    if (!is_foreign)
        object = slubq_refill(cpu, cache, node, flags);
    else if (object == NULL && !(flags & SQ_ALLOC_THISNODE))
        object = slubq_refill(cpu, cache, SQ_NODE_ANY, flags);
    sq_irq_restore(cpu);
    return object;
}

static inline void *slubq_alloc_any(sq_cpu *cpu, sq_cache *base, int32_t node,
                                    uint32_t flags)
{
    SQ_IN_SCOPE(cpu, SLUBQ_ALLOC);
    struct slubq_cache *cache = slubq_cache_of(base);
    struct slubq_queue *queue;
    void *object;
    sq_irq_save(cpu);
    queue = slubq_queue_of(cpu, cache);
    if (cache->rule.node_is_ignored)
        node = SQ_NODE_ANY;
    if (SLUBQ_UNLIKELY(queue->objects == 0 ||
                       (node != SQ_NODE_ANY && node != queue->node)))
        return slubq_alloc_slow(cpu, cache, node, flags);
    object = queue->object[--queue->objects];
    queue->touched = 1;
    sq_touch_local(cpu, queue, sizeof(*queue));
    sq_touch_local(cpu, &queue->object[queue->objects], sizeof(void *));
    slubq_count(cpu, cache, SLUBQ_ALLOC_FASTPATH);
    sq_irq_restore(cpu);
    return object;
}

/* Objects of a debug cache that are not as they should be are passed over. */
static __attribute__((noinline)) void *slubq_alloc_debug(sq_cpu *cpu, sq_cache *base,
                                                         int32_t node, uint32_t flags)
{
    void *object;
    do
        object = slubq_alloc_any(cpu, base, node, flags);
    while (object != NULL && !slubq_debug_take(cpu, slubq_cache_of(base), object));
    return object;
}

/* ops->alloc */
static inline void *slubq_alloc(sq_cpu *cpu, sq_cache *base, int32_t node,
                                uint32_t flags)
{
    if (SLUBQ_UNLIKELY(base->is_debug))
        return slubq_alloc_debug(cpu, base, node, flags);
    return slubq_alloc_any(cpu, base, node, flags);
}

/* ---- freeing ---- */

/* Make room in a full queue: to the shared queue as far as it goes, else to the slabs.
 */
static void slubq_make_room(sq_cpu *cpu, struct slubq_cache *cache,
                            struct slubq_queue *queue)
{
    bool to_shared = queue->group != NULL && slubq_shared_give(cpu, queue) > 0;
    if (to_shared)
        slubq_count(cpu, cache, SLUBQ_FREE_SHARED);
    else
        slubq_drain_queue(cpu, cache, queue, queue->batch);
    if (!to_shared || cache->rule.version < 4)
        slubq_count(cpu, cache, SLUBQ_FREE_SLOWPATH);
}

static __attribute__((noinline)) void
slubq_free_slow(sq_cpu *cpu, struct slubq_cache *cache, void *object, uint32_t node)
{
    struct slubq_queue *queue = slubq_queue_of(cpu, cache);
    if (node != SLUBQ_NODE_HERE) {
        slubq_free_foreign(cpu, cache, queue, node, object);
    } else {
        slubq_make_room(cpu, cache, queue);
        queue->object[queue->objects++] = object;
    }
    sq_irq_restore(cpu);
}

/* The node of an object if that is not the queue's and matters, else SLUBQ_NODE_HERE.
 */
static inline uint32_t slubq_foreign_node(sq_cpu *cpu, const struct slubq_cache *cache,
                                          const struct slubq_queue *queue,
                                          const void *object)
{
    const struct sq_page *page;
    if (!cache->rule.foreign_is_apart)
        return SLUBQ_NODE_HERE;
    page = sq_page_of_address(cpu->machine, object);
    sq_touch_read(cpu, page, sizeof(*page));
    return page->node == queue->node ? SLUBQ_NODE_HERE : page->node;
}

static inline void slubq_free_any(sq_cpu *cpu, sq_cache *base, void *object)
{
    SQ_IN_SCOPE(cpu, SLUBQ_FREE);
    struct slubq_cache *cache = slubq_cache_of(base);
    struct slubq_queue *queue;
    uint32_t node;
    sq_irq_save(cpu);
    queue = slubq_queue_of(cpu, cache);
    node = slubq_foreign_node(cpu, cache, queue, object);
    if (SLUBQ_UNLIKELY(node != SLUBQ_NODE_HERE || queue->objects >= queue->max)) {
        slubq_free_slow(cpu, cache, object, node);
        return;
    }
    sq_touch_local(cpu, queue, sizeof(*queue));
    sq_touch_local(cpu, &queue->object[queue->objects], sizeof(void *));
    queue->object[queue->objects++] = object;
    queue->touched = 1;
    slubq_count(cpu, cache, SLUBQ_FREE_FASTPATH);
    sq_irq_restore(cpu);
}

/* ops->free */
static inline void slubq_free(sq_cpu *cpu, sq_cache *base, void *object)
{
    if (SLUBQ_UNLIKELY(base->is_debug) &&
        !slubq_debug_give(cpu, slubq_cache_of(base), object))
        return;
    slubq_free_any(cpu, base, object);
}

/* ---- the same, many at a time: in 2010 one by one ---- */

static void slubq_free_bulk(sq_cpu *cpu, sq_cache *cache, size_t count, void **objects)
{
    for (size_t i = 0; i < count; i++)
        slubq_free(cpu, cache, objects[i]);
}

static size_t slubq_alloc_bulk(sq_cpu *cpu, sq_cache *cache, uint32_t flags,
                               size_t count, void **objects)
{
    for (size_t i = 0; i < count; i++) {
        objects[i] = slubq_alloc(cpu, cache, SQ_NODE_ANY, flags);
        if (objects[i] == NULL) {
            slubq_free_bulk(cpu, cache, i, objects);
            return 0;
        }
    }
    return count;
}

/* ---- kmalloc ---- */

#define SQ_KMALLOC_ALLOC(cpu, cache, node, flags) slubq_alloc(cpu, cache, node, flags)
#define SQ_KMALLOC_FREE(cpu, cache, object)       slubq_free(cpu, cache, object)
#define SQ_KMALLOC_CACHE_OF(page)                 (slubq_slab_const(page)->cache)
#include "policy/kmalloc-impl.h"

/* 2.6.35's classes: with 96 and 192; above two pages there is no cache. */
static void slubq_kmalloc_shape(const struct sq_options *options,
                                struct sq_kmalloc_shape *shape)
{
    uint64_t block_max = (uint64_t)SQ_PAGE_SIZE << SQ_PAGE_ORDER_MAX;
    shape->size_min = (uint64_t)options->slubq.kmalloc_min_size;
    shape->size_max = sq_min_u64(
        block_max, UINT64_C(1) << sq_ilog2((uint64_t)options->slubq.kmalloc_max_size));
    shape->cached_size_max = shape->size_max;
    shape->has_96 = shape->size_min <= 32;
    shape->has_192 = shape->size_min <= 64;
    shape->cache_flags = 0;
    shape->name_prefix = "kmalloc";
}

/* ---- making and unmaking a cache ---- */

/* `value` as given, or what the version has if it is -1. */
static bool slubq_option(int64_t value, bool of_version)
{
    return value < 0 ? of_version : value != 0;
}

static void slubq_set_rules(struct slubq_cache *cache, const struct sq_options *options)
{
    struct slubq_rules *rule = &cache->rule;
    int64_t version = options->slubq.version;
    rule->version = (uint8_t)version;
    rule->foreign_is_apart = slubq_option(options->slubq.alien_queues, version >= 3) &&
                             slubq_topology(cache)->node_count > 1;
    rule->node_is_ignored = version >= 4 && options->slubq.honour_node == 0;
    rule->has_slab_lock = slubq_option(options->slubq.slab_lock, version < 4);
    rule->discards_at_once = slubq_option(options->slubq.discard_at_once, version < 4);
    rule->has_touched = slubq_option(options->slubq.touched, version >= 4);
    rule->counts_free_slab = slubq_option(options->slubq.count_free_slab, version >= 4);
    rule->counts_partial_mended =
        slubq_option(options->slubq.count_partial_mended, version >= 2);
    rule->flushes_all_levels = options->slubq.flush_all_levels != 0;
    rule->resize_keeps_aliens = options->slubq.resize_keeps_aliens != 0;
    rule->resize_clears_counters =
        slubq_option(options->slubq.resize_clears_counters, version < 3);
    rule->expire_is_mended = options->slubq.expire_mended != 0;
}

/* Queue sizes by object size, as SLAB has them. */
static uint32_t slubq_queue_size_of(uint32_t size)
{
    return size > SQ_PAGE_SIZE ? 8 : size > 1024 ? 24 : size > 256 ? 54 : 120;
}

static uint32_t slubq_shared_size_of(const struct slubq_cache *cache,
                                     const struct sq_options *options)
{
    if (options->slubq.shared_queue_size >= 0)
        return (uint32_t)options->slubq.shared_queue_size;
    if (cache->rule.version < 3)
        return 0;
    if (cache->rule.version == 3)
        return cache->queue_size;
    return slubq_topology(cache)->cpu_count > 1 && cache->base.size < SQ_PAGE_SIZE
               ? 10 * cache->batch
               : 0;
}

/* Debugging that the cache gets; red zones alone show every double free. */
static void slubq_set_debugging(struct slubq_cache *cache, const struct sq_cache_spec *spec)
{
    cache->debug_flags = spec->flags & SLUBQ_DEBUG_FLAGS;
    cache->base.is_debug = cache->debug_flags != 0;
    cache->base.checks_frees = slubq_has(cache, SQ_CACHE_RED_ZONE);
    cache->poisons_objects = slubq_has(cache, SQ_CACHE_POISON) &&
                             (spec->flags & SQ_CACHE_TYPESAFE_BY_RCU) == 0 &&
                             spec->constructor == NULL;
}

/* The object rounded up; a red zone has at least a byte. */
static uint32_t slubq_inuse_of(const struct slubq_cache *cache, uint64_t size)
{
    uint64_t rounded = sq_align_up(size, sizeof(void *));
    if (slubq_has(cache, SQ_CACHE_RED_ZONE) && rounded == size)
        rounded += sizeof(void *);
    return (uint32_t)rounded;
}

/* Behind it the tracks, and with red zones a word of padding. */
static uint32_t slubq_metadata_end(const struct slubq_cache *cache)
{
    return slubq_pad_offset(cache) +
           (slubq_has(cache, SQ_CACHE_RED_ZONE) ? (uint32_t)sizeof(void *) : 0);
}

/* The slot, the order of a slab and what fits in it. */
static int slubq_set_geometry(struct slubq_cache *cache,
                              const struct sq_cache_spec *spec,
                              const struct sq_options *options, struct sq_error *error)
{
    sq_cache *base = &cache->base;
    uint32_t min_objects = options->slubq.slub_min_objects > 0
                               ? (uint32_t)options->slubq.slub_min_objects
                               : slub_min_objects(slubq_topology(cache)->cpu_count);
    uint64_t limit = (uint64_t)SQ_PAGE_SIZE << SQ_PAGE_ORDER_MAX;
    int32_t order = -1;
    if (spec->size > 0 && spec->size <= limit && spec->align <= limit) {
        cache->inuse = slubq_inuse_of(cache, spec->size);
        base->align = slub_alignment(spec->size, spec->align,
                                     (spec->flags & SQ_CACHE_HWCACHE_ALIGN) != 0,
                                     SLUB_ALIGN_HALVED_LINE);
        base->size = (uint32_t)sq_align_up(slubq_metadata_end(cache), base->align);
        order = slub_order(base->size, (uint32_t)sq_min_u64(min_objects, 64),
                           (uint32_t)options->slubq.slub_min_order,
                           (uint32_t)options->slubq.slub_max_order, SLUB_ORDER_STEP,
                           SLUB_OBJECTS_MAX_2_6_26);
    }
    if (order < 0)
        return sq_error_set(error, SQ_E_PARAMETER,
                            "cache %s: size %llu, align %llu fit in no slab; accepted: "
                            "1 to %llu",
                            spec->name, (unsigned long long)spec->size,
                            (unsigned long long)spec->align, (unsigned long long)limit);
    base->order = (uint32_t)order;
    base->slab_object_count = slubq_order_objects(base->order, base->size);
    cache->min_order = slub_min_order(base->size);
    cache->min_order_objects = slubq_order_objects(cache->min_order, base->size);
    cache->index_inverse = (uint32_t)((UINT64_C(1) << 32) / base->size + 1);
    return 0;
}

/* Everything that options and spec decide; no memory yet. */
static int slubq_set_up(struct slubq_cache *cache, const struct sq_cache_spec *spec,
                        struct sq_error *error)
{
    const struct sq_options *options = &cache->base.heap->options;
    int code;
    slubq_set_rules(cache, options);
    slubq_set_debugging(cache, spec);
    code = slubq_set_geometry(cache, spec, options, error);
    if (code != 0)
        return code;
    cache->queue_size = options->slubq.cpu_queue_size > 0
                            ? (uint32_t)options->slubq.cpu_queue_size
                            : slubq_queue_size_of(cache->base.size);
    cache->batch = (cache->queue_size + 1) / 2;
    cache->shared_size = slubq_shared_size_of(cache, options);
    cache->min_partial = (uint32_t)sq_clamp_u64(sq_ilog2(cache->base.size), 5, 10);
    cache->remote_node_defrag_ratio = (uint32_t)options->slubq.remote_node_defrag_ratio;
    slubq_set_sizes(cache);
    return 0;
}

/* Free what a cache has besides its slabs; parts that were never made are NULL. */
static void slubq_free_structures(sq_cpu *cpu, struct slubq_cache *cache)
{
    slubq_groups_free(cpu, cache);
    if (cache->queue.part[0] != NULL)
        sq_percpu_free(cpu, &cache->queue);
    for (uint32_t n = 0; n < SQ_NODE_MAX; n++)
        if (cache->node[n] != NULL)
            sq_meta_free(cpu, cache->node[n]);
}

static bool slubq_nodes_make(sq_cpu *cpu, struct slubq_cache *cache)
{
    for (uint32_t n = 0; n < slubq_topology(cache)->node_count; n++) {
        struct slubq_node *node = sq_meta_alloc(cpu, sizeof(*node), n);
        cache->node[n] = node;
        if (node == NULL)
            return false;
        sq_lock_init(&node->list_lock, SQ_LOCK_LIST);
        sq_lock_init(&node->chain_lock, SQ_LOCK_BOOK);
        sq_list_init(&node->partial);
    }
    return true;
}

static int slubq_cache_init(sq_cpu *cpu, sq_cache *base,
                            const struct sq_cache_spec *spec, struct sq_error *error)
{
    struct slubq_cache *cache = slubq_cache_of(base);
    int code = slubq_set_up(cache, spec, error);
    if (code != 0)
        return code;
    if (!slubq_nodes_make(cpu, cache) ||
        !slubq_queues_make(cpu, cache, &cache->queue) ||
        !slubq_groups_make(cpu, cache)) {
        slubq_free_structures(cpu, cache);
        return sq_error_set(error, SQ_E_MEMORY, "cache %s: no memory for its queues",
                            spec->name);
    }
    for (uint32_t i = 0; i < slubq_topology(cache)->cpu_count; i++)
        slubq_queue_at(cache, i)->group = slubq_group_of_cpu(cache, i);
    return 0;
}

/* Give everything back, slabs with live objects too. */
static void slubq_cache_release(sq_cpu *cpu, sq_cache *base)
{
    struct slubq_cache *cache = slubq_cache_of(base);
    for (uint32_t n = 0; n < slubq_topology(cache)->node_count; n++) {
        while (cache->node[n]->chain_first != 0) {
            struct sq_page *page = slubq_chain_page(cache, cache->node[n]->chain_first);
            sq_list_init(&page->lru);
            slubq_slab_discard(cpu, cache, page);
        }
    }
    slubq_free_structures(cpu, cache);
}

static int slubq_geometry(const sq_heap *heap, const struct sq_cache_spec *spec,
                          struct sq_json *json, struct sq_error *error)
{
    struct slubq_cache cache = {.base = {.heap = NULL}};
    sq_heap view = *heap;
    int code;
    cache.base.heap = &view;
    code = slubq_set_up(&cache, spec, error);
    if (code != 0)
        return code;
    slubq_describe_geometry(&cache, json);
    if (cache.rule.version >= 3) {
        sq_json_unsigned(json, "nodes", heap->machine->topology.node_count);
        slubq_describe_queues(&cache, json, false);
    }
    return 0;
}

static uint32_t slubq_alignment(const sq_heap *heap, const struct sq_cache_spec *spec)
{
    (void)heap;
    return slub_alignment(spec->size, spec->align,
                          (spec->flags & SQ_CACHE_HWCACHE_ALIGN) != 0,
                          SLUB_ALIGN_HALVED_LINE);
}

SQ_POLICY(slubq) = {
    .name = "slub+q",
    .machine = SQ_MACHINE_NAME,
    .cache_bytes = sizeof(struct slubq_cache),
    .counter_count = SLUBQ_COUNTER_COUNT,
    .counters = slubq_counter_names,
    .kmalloc_shape = slubq_kmalloc_shape,
    .geometry = slubq_geometry,
    .cache_init = slubq_cache_init,
    .cache_release = slubq_cache_release,
    .flush_cpu = slubq_flush_cpu,
    .shrink = slubq_shrink,
    .alignment = slubq_alignment,
    .tune = slubq_tune,
    .alloc = slubq_alloc,
    .free = slubq_free,
    .alloc_bulk = slubq_alloc_bulk,
    .free_bulk = slubq_free_bulk,
    .free_checked = slubq_free_checked,
    .kmalloc = kmalloc_alloc,
    .kfree = kmalloc_free,
    .ksize = kmalloc_usable_size,
    .cache_of_page = kmalloc_cache_of_page,
    .check = slubq_check,
    .validate = slubq_validate,
    .debug_flags = SLUBQ_DEBUG_FLAGS,
    .may_corrupt = slubq_may_corrupt,
    .locate = slubq_locate,
    .usage = slubq_usage,
    .describe = slubq_describe,
    .tunables = slubq_show_tunables,
    .dump = slubq_dump,
    .row = slubq_row,
    .row_columns = slubq_row_columns,
    .row_columns_of = slubq_row_columns_of,
};
