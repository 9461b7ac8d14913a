/*
 * slab.c -- the policy `slab`: Linux SLAB from 2.6.22 to 6.1, after Bonwick, "The Slab
 * Allocator: An Object-Caching Kernel Memory Allocator" (1994), made for nodes.
 *
 * The idea: objects in use are nobody's concern, free ones are queued. Each CPU has an
 * array of free objects that it uses without a lock and without touching the objects;
 * arrays are filled and emptied in batches, under the lock of one node. Objects of
 * another node are never queued among one's own: they wait in an alien array and go
 * home a dozen at a time.
 *
 *     cpu 0      cpu 1                       cpu 4      cpu 5
 *   [array]    [array]        node 0       [array]    [array]        node 1
 *       \        /  \____ alien[0->1] ___      \        /
 *   refill,    /                         \      \      /
 *    flush \  /                           `---> [shared]
 *        [shared]                                  |   list_lock
 *            |      list_lock                 full, partial, free
 *   full --> slab, slab, ...
 *   partial --> slab, ...      each: inuse objects, a chain of the free ones,
 *   free --> slab, ...         a colour (offset) that spreads objects over lines
 *
 * A page frame leads to its cache and its slab: `word[3]` is the cache; classic
 * management has the descriptor in `word[0]`, later the descriptor is `lru` and `word`
 * themselves.
 *
 * Lock order: alien lock, list_lock of the alien array's target, page allocator. Two
 * list locks are never held at once. Per-CPU arrays are protected by being that CPU
 * with irqs off. A node's shared array and slabs are under its list_lock;
 * `free_objects` and `shared->avail` are also read without it to see whether a refill
 * is worth the lock.
 *
 * Releases: oracles of 2.6.25, 2.6.35 and 6.1; what lies between is chosen by options
 * (slab_options.h), each read by one small function. Departures:
 *   - Caches have the debugging that they ask for (slab_debug.h); CONFIG_DEBUG_SLAB gives
 *     it to all of them, and bounds every CPU's array. STATS are on; they cost no lock.
 *   - No cpusets or reserves for memory pressure; memory policies are applied before a
 *     call comes here (policy/memory_policy.h).
 *   - 2.6 frees management outside the slab while it holds the list_lock. Here it is
 *     freed right after unlocking: the pages still go under the lock, and nothing that
 *     can be seen in between depends on the few bytes of management.
 *   - 2.6.24 with noaliencache puts objects into slab lists of the wrong node; here
 *     they go to their own, as from 2.6.25 on.
 *   - Free slabs are counted as they come and go; 2.6 counts the list for STATS.
 */
#include "machine/machine.h"
#include "policy/policy.h"

#include "policy/slab_cache.h"
#include "policy/slab_geometry.h"
#include "policy/slab_management.h"
#include "policy/slab_node.h"

/* ---- refilling a CPU's array ---- */

/* How many objects a refill asks for: an array nobody used lately starts small. */
static uint32_t refill_batch(const struct slab_cache *cache,
                             const struct array_cache *array)
{
    if (!array->touched && array->batchcount > cache->batchrefill_limit)
        return cache->batchrefill_limit;
    return array->batchcount;
}

/* Move up to `batch` free objects of one slab into the array; returns how many. */
static uint32_t array_fill_from_slab(sq_cpu *cpu, struct slab_cache *cache,
                                     struct array_cache *array, struct slab *slab,
                                     uint32_t batch)
{
    uint32_t count = cache->geometry.object_count - slab->inuse;
    uint32_t room = array->limit - array->avail;
    count = count < batch ? count : batch;
    count = count < room ? count : room;
    for (uint32_t i = 0; i < count; i++)
        array->entry[array->avail++] = slab_take(cpu, cache, slab);
    sq_count_by(cpu, &cache->base, SLAB_NUM_ALLOCATIONS, count);
    stat_add_active(cache, count);
    return count;
}

/* The mark that keeps the reaper away from a shared array in use. Before 2.6.34 the
 * receiving array got it, whichever that was. */
static void mark_transfer(const struct slab_cache *cache, struct array_cache *receiver,
                          struct array_cache *shared)
{
    if (!cache->marks_shared)
        array_set_touched(receiver, 1);
    else if (receiver != shared)
        array_set_touched(shared, 1);
}

/* Is there nothing to get from this node? Asked without its lock. */
static bool node_looks_empty(sq_cpu *cpu, struct slab_node *node)
{
    struct array_cache *shared;
    if (node_free_objects(cpu, node) > 0)
        return false;
    shared = __atomic_load_n(&node->shared, __ATOMIC_ACQUIRE);
    return shared == NULL || array_peek_avail(cpu, shared) == 0;
}

/* One batch from the node's shared array, or, if that is empty, from its slabs. */
static void refill_from_node(sq_cpu *cpu, struct slab_cache *cache,
                             struct slab_node *node, struct array_cache *array,
                             uint32_t batch)
{
    uint32_t taken = 0;
    struct slab *slab;
    sq_lock_acquire(cpu, &node->list_lock);
    if (node->shared != NULL && array_transfer(cpu, array, node->shared, batch) > 0) {
        mark_transfer(cache, array, node->shared);
        sq_lock_release(cpu, &node->list_lock);
        return;
    }
    while (taken < batch && (slab = node_first_slab(cpu, node)) != NULL) {
        taken += array_fill_from_slab(cpu, cache, array, slab, batch - taken);
        slab_relink(cpu, cache, node, slab);
    }
    node_add_free_objects(cpu, node, -(int64_t)taken);
    sq_lock_release(cpu, &node->list_lock);
}

/* The array is empty: fill it and return one object, or NULL when this node has neither
 * objects nor memory. Later releases fill the array from a new slab before they link
 * it; earlier ones link it and start again. */
SLAB_SLOW void *slab_refill(sq_cpu *cpu, struct slab_cache *cache, uint32_t flags)
{
    struct slab_node *node = cache->node[cpu->node];
    struct array_cache *array = slab_array_of(cache, cpu->index);
    sq_count(cpu, &cache->base, SLAB_ALLOCMISS);
    for (;;) {
        uint32_t batch = refill_batch(cache, array);
        struct slab *slab;
        if (!cache->checks_lockless || !node_looks_empty(cpu, node))
            refill_from_node(cpu, cache, node, array, batch);
        if (array->avail > 0)
            break;
        slab = slab_grow(cpu, cache, cpu->node, flags);
        array = slab_array_of(cache, cpu->index);
        if (slab != NULL && cache->grows_filled && array->avail == 0)
            (void)array_fill_from_slab(cpu, cache, array, slab, batch);
        if (slab != NULL)
            slab_link_new(cpu, cache, slab);
        if (array->avail > 0)
            break;
        if (slab == NULL)
            return NULL;
    }
    array->touched = 1;
    return array->entry[--array->avail];
}

/* ---- allocation from a given node ---- */

static void *slab_alloc_from_node(sq_cpu *cpu, struct slab_cache *cache,
                                  uint32_t node_index, uint32_t flags);

/* The local node has nothing (kernel: fallback_alloc): the first node, in the order of
 * this CPU's node, that has free objects; else a new slab wherever there is memory. */
static void *slab_alloc_fallback(sq_cpu *cpu, struct slab_cache *cache, uint32_t flags)
{
    const struct sq_topology *topology = &cpu->machine->topology;
    if (flags & SQ_ALLOC_THISNODE)
        return NULL;
    for (;;) {
        struct slab *slab;
        void *object = NULL;
        for (uint32_t i = 0; i < topology->node_count && object == NULL; i++) {
            uint32_t index = topology->fallback[cpu->node][i];
            if (node_free_objects(cpu, cache->node[index]) > 0)
                object =
                    slab_alloc_from_node(cpu, cache, index, flags | SQ_ALLOC_THISNODE);
        }
        if (object != NULL)
            return object;
        slab = slab_grow_anywhere(cpu, cache, flags);
        if (slab == NULL)
            return NULL;
        slab_link_new(cpu, cache, slab);
        object = slab_alloc_from_node(cpu, cache, slab_page_of(cache, slab)->node,
                                      flags | SQ_ALLOC_THISNODE);
        if (object != NULL)
            return object;
    }
}

/* One object straight from the node's slabs, or NULL. */
static void *node_take_object(sq_cpu *cpu, struct slab_cache *cache,
                              struct slab_node *node)
{
    void *object = NULL;
    struct slab *slab;
    sq_lock_acquire(cpu, &node->list_lock);
    slab = node_first_slab(cpu, node);
    if (slab != NULL) {
        object = slab_take(cpu, cache, slab);
        slab_relink(cpu, cache, node, slab);
        node_add_free_objects(cpu, node, -1);
        sq_count(cpu, &cache->base, SLAB_NODE_ALLOCS);
        stat_add_active(cache, 1);
    }
    sq_lock_release(cpu, &node->list_lock);
    return object;
}

/* Objects of a given node bypass all arrays (kernel: ____cache_alloc_node). In later
 * releases the first object of a new slab goes uncounted. */
static void *slab_alloc_from_node(sq_cpu *cpu, struct slab_cache *cache,
                                  uint32_t node_index, uint32_t flags)
{
    for (;;) {
        void *object = node_take_object(cpu, cache, cache->node[node_index]);
        struct slab *slab;
        if (object != NULL)
            return object;
        slab = slab_grow(cpu, cache, node_index, flags);
        if (slab == NULL)
            return slab_alloc_fallback(cpu, cache, flags);
        if (cache->grows_filled)
            object = slab_take(cpu, cache, slab);
        slab_link_new(cpu, cache, slab);
        if (object != NULL)
            return object;
    }
}

/* The CPU's array is of no help: it is empty, or another node was asked for. */
SLAB_SLOW void *slab_alloc_slow(sq_cpu *cpu, struct slab_cache *cache, int32_t node,
                                uint32_t flags)
{
    uint32_t index = node == SQ_NODE_ANY ? cpu->node : (uint32_t)node;
    void *object = NULL;
    if (index == cpu->node) {
        sq_scope_enter(cpu, SLAB_REFILL);
        object = slab_refill(cpu, cache, flags);
        sq_scope_leave(cpu, SLAB_REFILL);
    }
    if (object == NULL)
        object = slab_alloc_from_node(cpu, cache, index, flags);
    return object;
}

/* The newest object of the CPU's array: a compare, a decrement and a load, the object
 * is not touched. NULL: the array is empty or another node is asked for. Requires irqs
 * off. */
static inline void *slab_alloc_hit(sq_cpu *cpu, struct slab_cache *cache, int32_t node)
{
    struct array_cache *array = slab_array_of(cache, cpu->index);
    uint32_t avail = array->avail;
    if (avail == 0 || (node != SQ_NODE_ANY && (uint32_t)node != cpu->node))
        return NULL;
    array->avail = avail - 1;
    array->touched = 1;
    sq_touch_local(cpu, array, sizeof(*array));
    sq_touch_local(cpu, &array->entry[avail - 1], sizeof(void *));
    sq_count(cpu, &cache->base, SLAB_ALLOCHIT);
    return array->entry[avail - 1];
}

/* Requires irqs off; they may be on for a while when a slab has to be made. */
static void *slab_alloc_one(sq_cpu *cpu, struct slab_cache *cache, int32_t node,
                            uint32_t flags)
{
    void *object;
    sq_scope_enter(cpu, SLAB_ALLOC);
    object = slab_alloc_hit(cpu, cache, node);
    if (object == NULL)
        object = slab_alloc_slow(cpu, cache, node, flags);
    sq_scope_leave(cpu, SLAB_ALLOC);
    return object;
}

/* The rest of slab_alloc, apart so that a hit needs no stack. */
SLAB_SLOW void *slab_alloc_miss(sq_cpu *cpu, struct slab_cache *cache, int32_t node,
                                uint32_t flags)
{
    void *slot = slab_alloc_slow(cpu, cache, node, flags);
    sq_scope_leave(cpu, SLAB_ALLOC);
    sq_irq_restore(cpu);
    return slot == NULL ? NULL : slab_hand_out(cpu, cache, slot);
}

/* ops->alloc */
static void *slab_alloc(sq_cpu *cpu, sq_cache *base, int32_t node, uint32_t flags)
{
    void *slot;
    sq_irq_save(cpu);
    sq_scope_enter(cpu, SLAB_ALLOC);
    slot = slab_alloc_hit(cpu, slab_cache_of(base), node);
    if (slot == NULL)
        return slab_alloc_miss(cpu, slab_cache_of(base), node, flags);
    sq_scope_leave(cpu, SLAB_ALLOC);
    sq_irq_restore(cpu);
    return slab_hand_out(cpu, slab_cache_of(base), slot);
}

/* ---- freeing ---- */

/* The CPU's array is full: its oldest batch goes to the shared array as far as that has
 * room, and only if it has none at all to the slabs. */
SLAB_SLOW void slab_flush(sq_cpu *cpu, struct slab_cache *cache,
                          struct array_cache *array)
{
    struct slab_node *node = cache->node[cpu->node];
    struct array_cache *shared;
    struct sq_list doomed;
    uint32_t batch = array->batchcount, room;
    sq_list_init(&doomed);
    sq_count(cpu, &cache->base, SLAB_FREEMISS);
    sq_lock_acquire(cpu, &node->list_lock);
    shared = node->shared;
    room = shared == NULL ? 0 : shared->limit - shared->avail;
    if (room > 0) {
        batch = batch < room ? batch : room;
        array_append(cpu, shared, array->entry, batch);
    } else {
        free_block(cpu, cache, node, array->entry, batch, &doomed);
    }
    stat_set_freeable(cache, node->free_slabs);
    sq_lock_release(cpu, &node->list_lock);
    array_drop_oldest(array, batch);
    slabs_destroy(cpu, cache, &doomed);
}

/* ---- objects of other nodes ---- */

/* Bring everything in an alien array home: first into the home node's shared array, the
 * rest into slabs. Requires the alien lock. */
static void alien_drain(sq_cpu *cpu, struct slab_cache *cache,
                        struct alien_cache *alien, struct slab_node *home,
                        struct sq_list *doomed)
{
    struct array_cache *array = alien_array(alien);
    if (array->avail == 0)
        return;
    sq_lock_acquire(cpu, &home->list_lock);
    if (home->shared != NULL &&
        array_transfer(cpu, home->shared, array, array->limit) > 0)
        mark_transfer(cache, home->shared, home->shared);
    free_block(cpu, cache, home, array->entry, array->avail, doomed);
    array_set_avail(array, 0);
    sq_lock_release(cpu, &home->list_lock);
}

/* An object of node `target`: into this node's alien array for it, or, without one,
 * straight to its slab. */
SLAB_SLOW void slab_free_alien(sq_cpu *cpu, struct slab_cache *cache, void *object,
                               uint32_t target)
{
    struct alien_cache *alien = cache->node[cpu->node]->alien[target];
    struct slab_node *home = cache->node[target];
    struct sq_list doomed;
    sq_list_init(&doomed);
    sq_count(cpu, &cache->base, SLAB_NODE_FREES);
    if (alien != NULL) {
        sq_lock_acquire(cpu, &alien->lock);
        if (alien_array(alien)->avail == alien_array(alien)->limit) {
            sq_count(cpu, &cache->base, SLAB_NODE_OVERFLOW);
            alien_drain(cpu, cache, alien, home, &doomed);
        }
        array_append(cpu, alien_array(alien), &object, 1);
        sq_lock_release(cpu, &alien->lock);
    } else {
        sq_lock_acquire(cpu, &home->list_lock);
        free_block(cpu, cache, home, &object, 1, &doomed);
        sq_lock_release(cpu, &home->list_lock);
    }
    slabs_destroy(cpu, cache, &doomed);
}

/* The node of an object: classic asks the descriptor, later the page frame says it. */
static inline uint32_t slab_node_of_object(sq_cpu *cpu, const struct slab_cache *cache,
                                           const void *object)
{
    struct sq_page *page = sq_page_of_address(cpu->machine, object);
    struct slab *slab;
    sq_touch_read(cpu, page, sizeof(*page));
    if (!cache->is_classic)
        return page->node;
    slab = slab_of_page(cache, page);
    sq_touch_read(cpu, slab, sizeof(*slab));
    return (uint32_t)slab->node;
}

/* Keep a local object in the CPU's array if that has room. Requires irqs off. */
static inline bool slab_free_hit(sq_cpu *cpu, struct slab_cache *cache, void *object)
{
    struct array_cache *array = slab_array_of(cache, cpu->index);
    uint32_t avail = array->avail;
    if (avail >= array->limit)
        return false;
    array->entry[avail] = object;
    array->avail = avail + 1;
    sq_touch_local(cpu, array, sizeof(*array));
    sq_touch_local(cpu, &array->entry[avail], sizeof(void *));
    sq_count(cpu, &cache->base, SLAB_FREEHIT);
    return true;
}

/* Requires irqs off. */
static void slab_free_any(sq_cpu *cpu, struct slab_cache *cache, void *object)
{
    struct array_cache *array = slab_array_of(cache, cpu->index);
    if (cache->has_nodes) {
        uint32_t target = slab_node_of_object(cpu, cache, object);
        if (target != cpu->node) {
            sq_scope_enter(cpu, SLAB_ALIEN);
            slab_free_alien(cpu, cache, object, target);
            sq_scope_leave(cpu, SLAB_ALIEN);
            return;
        }
    }
    if (slab_free_hit(cpu, cache, object))
        return;
    sq_scope_enter(cpu, SLAB_FLUSH);
    slab_flush(cpu, cache, array);
    sq_scope_leave(cpu, SLAB_FLUSH);
    array->entry[array->avail++] = object;
}

/* The same as a call of its own. */
static void slab_free_one(sq_cpu *cpu, struct slab_cache *cache, void *object)
{
    sq_scope_enter(cpu, SLAB_FREE);
    slab_free_any(cpu, cache, object);
    sq_scope_leave(cpu, SLAB_FREE);
}

/* The rest of slab_free, apart so that a hit on one node needs no stack. */
SLAB_SLOW void slab_free_rest(sq_cpu *cpu, struct slab_cache *cache, void *object)
{
    void *slot = slab_take_back(cpu, cache, object);
    if (slot != NULL)
        slab_free_any(cpu, cache, slot);
    sq_scope_leave(cpu, SLAB_FREE);
    sq_irq_restore(cpu);
}

/* ops->free */
static void slab_free(sq_cpu *cpu, sq_cache *base, void *object)
{
    struct slab_cache *cache = slab_cache_of(base);
    sq_irq_save(cpu);
    sq_scope_enter(cpu, SLAB_FREE);
    if (!cache->frees_plainly || !slab_free_hit(cpu, cache, object)) {
        slab_free_rest(cpu, cache, object);
        return;
    }
    sq_scope_leave(cpu, SLAB_FREE);
    sq_irq_restore(cpu);
}

/* ---- many at once: the same paths, irqs off once ---- */

/* ops->free_bulk */
static void slab_free_bulk(sq_cpu *cpu, sq_cache *base, size_t count, void **objects)
{
    struct slab_cache *cache = slab_cache_of(base);
    sq_irq_save(cpu);
    for (size_t i = 0; i < count; i++) {
        void *slot = slab_take_back(cpu, cache, objects[i]);
        if (slot != NULL)
            slab_free_one(cpu, cache, slot);
    }
    sq_irq_restore(cpu);
}

/* ops->alloc_bulk */
static size_t slab_alloc_bulk(sq_cpu *cpu, sq_cache *base, uint32_t flags, size_t count,
                              void **objects)
{
    struct slab_cache *cache = slab_cache_of(base);
    size_t got = 0;
    sq_irq_save(cpu);
    while (got < count &&
           (objects[got] = slab_alloc_one(cpu, cache, SQ_NODE_ANY, flags)) != NULL)
        got++;
    for (size_t i = 0; got < count && i < got; i++)
        slab_free_one(cpu, cache, objects[i]);
    for (size_t i = 0; got == count && i < count; i++)
        objects[i] = slab_hand_out(cpu, cache, objects[i]);
    sq_irq_restore(cpu);
    return got < count ? 0 : count;
}

#define SQ_KMALLOC_ALLOC(cpu, cache, node, flags) slab_alloc(cpu, cache, node, flags)
#define SQ_KMALLOC_FREE(cpu, cache, object)       slab_free(cpu, cache, object)
#define SQ_KMALLOC_CACHE_OF(page)                 slab_cache_of_page(page)
#include "policy/kmalloc-impl.h"

#include "policy/slab_control.h"
#include "policy/slab_tune.h"
#include "policy/slab_check.h"
#include "policy/slab_dump.h"
#include "policy/slab_validate.h"

static const struct sq_counter_name slab_counter_names[SLAB_COUNTER_COUNT] = {
#define SLAB_COUNTER_NAME(id, name, help) {name, help},
    SLAB_COUNTERS(SLAB_COUNTER_NAME)
#undef SLAB_COUNTER_NAME
};

const sq_policy_ops SQ_ON_MACHINE(sq_slab) = {
    .name = "slab",
    .machine = SQ_MACHINE_NAME,
    .cache_bytes = sizeof(struct slab_cache),
    .counter_count = SLAB_COUNTER_COUNT,
    .counters = slab_counter_names,
    .kmalloc_shape = slab_kmalloc_shape,
    .geometry = slab_geometry_describe,
    .cache_init = slab_cache_init,
    .cache_release = slab_cache_release,
    .flush_cpu = slab_flush_cpu,
    .shrink = slab_shrink,
    .reap = slab_reap,
    .cpu_offline = slab_cpu_offline,
    .cpu_online = slab_cpu_online,
    .alignment = slab_alignment,
    .shifts_slabs = true,
    .tune = slab_tune,
    .alloc = slab_alloc,
    .free = slab_free,
    .alloc_bulk = slab_alloc_bulk,
    .free_bulk = slab_free_bulk,
    .free_checked = slab_free_checked,
    .kmalloc = kmalloc_alloc,
    .kfree = kmalloc_free,
    .ksize = kmalloc_usable_size,
    .cache_of_page = kmalloc_cache_of_page,
    .check = slab_check,
    .validate = slab_validate,
    .debug_flags = SLAB_DEBUG_FLAGS,
    .boot_debug_flags = slab_boot_debug_flags,
    .may_corrupt = slab_may_corrupt,
    .locate = slab_locate,
    .usage = slab_usage,
    .describe = slab_describe,
    .dump = slab_dump,
    .brief = slab_brief,
    .row = slab_row,
    .row_columns = slab_row_columns,
};
