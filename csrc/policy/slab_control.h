/*
 * slab_control.h -- making, ending, shrinking and reaping a cache. Included by slab.c
 * after the data plane. One caller at a time; others may allocate meanwhile.
 */
#ifndef SQ_SLAB_CONTROL_H
#define SQ_SLAB_CONTROL_H

#include "policy/slab_cache.h"
#include "policy/slab_geometry.h"

/* ---- kmalloc classes ---- */

/* ops->kmalloc_shape */
static void slab_kmalloc_shape(const struct sq_options *options,
                               struct sq_kmalloc_shape *shape)
{
    shape->size_min = (uint64_t)options->slab.kmalloc_min_size;
    shape->size_max = UINT64_C(1) << sq_ilog2((uint64_t)options->slab.kmalloc_max_size);
    shape->cached_size_max = shape->size_max;
    shape->has_96 = options->slab.kmalloc_96 != 0;
    shape->has_192 = options->slab.cache_line_size < 128;
    shape->cache_flags = SQ_CACHE_HWCACHE_ALIGN;
    shape->name_prefix = options->slab.kmalloc_named_size ? "size" : "kmalloc";
    shape->has_units = options->slab.kmalloc_named_k != 0;
}

/* ops->alignment */
static uint32_t slab_alignment(const sq_heap *heap, const struct sq_cache_spec *spec)
{
    return slab_align(spec, (uint32_t)heap->options.slab.cache_line_size);
}

/* ---- making ---- */

static struct array_cache *
shared_make(sq_cpu *cpu, const struct slab_tunables *tunables, uint32_t node)
{
    uint32_t limit = tunables->shared * tunables->batchcount;
    struct array_cache *shared = sq_meta_alloc(cpu, array_bytes(limit), node);
    if (shared != NULL)
        array_init(shared, limit, ARRAY_BATCH_POISON);
    return shared;
}

static bool node_make_aliens(sq_cpu *cpu, struct slab_cache *cache,
                             struct slab_node *node)
{
    uint32_t limit = cache->alien_limit;
    size_t bytes = sizeof(struct alien_cache) + array_bytes(limit);
    for (uint32_t i = 0; i < cpu->machine->topology.node_count; i++) {
        struct alien_cache *alien;
        if (i == node->index)
            continue;
        alien = sq_meta_alloc(cpu, bytes, node->index);
        if (alien == NULL)
            return false;
        sq_lock_init(&alien->lock, SQ_LOCK_ALIEN);
        array_init(alien_array(alien), limit, ARRAY_BATCH_POISON);
        node->alien[i] = alien;
    }
    return true;
}

static bool node_make(sq_cpu *cpu, struct slab_cache *cache, uint32_t index)
{
    struct slab_node *node = sq_meta_alloc(cpu, sizeof(*node), index);
    cache->node[index] = node;
    if (node == NULL)
        return false;
    node->index = index;
    sq_lock_init(&node->list_lock, SQ_LOCK_LIST);
    sq_list_init(&node->partial);
    sq_list_init(&node->full);
    sq_list_init(&node->free);
    node->free_limit =
        slab_free_limit(cache->base.heap, index, &cache->tunables, &cache->geometry);
    if (cache->tunables.shared > 0) {
        node->shared = shared_make(cpu, &cache->tunables, index);
        if (node->shared == NULL)
            return false;
    }
    return !cache->has_aliens || node_make_aliens(cpu, cache, node);
}

static bool arrays_make(sq_cpu *cpu, struct sq_percpu *arrays,
                        const struct slab_tunables *tunables)
{
    if (!sq_percpu_alloc(cpu, arrays, array_bytes(tunables->limit)))
        return false;
    for (uint32_t i = 0; i < cpu->machine->topology.cpu_count; i++)
        array_init(sq_percpu_at(arrays, i), tunables->limit, tunables->batchcount);
    return true;
}

/* The rules of the release, from the heap's options. */
static void slab_set_rules(struct slab_cache *cache)
{
    const struct sq_options *options = &cache->base.heap->options;
    cache->is_classic = !options->slab.freelist_index_stack;
    cache->grows_filled = options->slab.cache_grow_begin != 0;
    cache->checks_lockless = options->slab.lockless_refill_check != 0;
    cache->marks_shared = options->slab.shared_touched != 0;
    cache->destroys_after_batch = options->slab.destroy_after_batch != 0;
    cache->sets_free_limit_first = options->slab.free_limit_first != 0;
    cache->batchrefill_limit = (uint32_t)options->slab.batchrefill_limit;
    cache->alien_limit = slab_alien_limit(options, cache->tunables.limit);
    cache->has_nodes = cache->base.heap->machine->topology.node_count > 1;
    cache->has_aliens = slab_wants_aliens(cache->base.heap);
    cache->frees_plainly = !cache->has_nodes && !cache->base.is_debug;
}

/* The reap node is a matter of the CPU in the kernel: a new cache joins the last one
 * made before it, and the first starts at the node after the CPU's own. */
static void slab_set_reap_nodes(struct slab_cache *cache)
{
    const struct sq_topology *topology = &slab_machine(cache)->topology;
    const struct sq_list *caches = &cache->base.heap->caches;
    const struct slab_cache *last = NULL;
    if (!sq_list_is_empty(caches))
        last = slab_cache_of(SQ_LIST_ENTRY(caches->prev, sq_cache, link));
    for (uint32_t i = 0; i < topology->cpu_count; i++)
        cache->reap_node[i] =
            last != NULL
                ? last->reap_node[i]
                : (uint8_t)((topology->node_of_cpu[i] + 1u) % topology->node_count);
}

static void slab_cache_release(sq_cpu *cpu, sq_cache *base);

/* A random permutation of the objects of a slab, after Fisher and Yates. False: no
 * memory. */
static bool slab_make_random_order(sq_cpu *cpu, struct slab_cache *cache)
{
    uint32_t count = cache->geometry.object_count;
    if (cache->base.heap->options.slab.freelist_random == 0 || cache->is_classic ||
        count < 2)
        return true;
    cache->random_order = sq_meta_alloc(cpu, count, cpu->node);
    if (cache->random_order == NULL)
        return false;
    for (uint32_t i = 0; i < count; i++)
        cache->random_order[i] = (uint8_t)i;
    for (uint32_t i = count - 1; i > 0; i--) {
        uint32_t other = (uint32_t)(sq_random(cpu) % (i + 1));
        uint8_t kept = cache->random_order[i];
        cache->random_order[i] = cache->random_order[other];
        cache->random_order[other] = kept;
    }
    return true;
}

/* What of the flags that were asked for the cache has; a double free shows in red words
 * only. */
static void slab_set_debugging(struct slab_cache *cache)
{
    sq_cache *base = &cache->base;
    sq_cache *lender = cache->geometry.management_cache;
    base->flags = (base->flags & ~(uint32_t)SLAB_DEBUG_FLAGS) | cache->geometry.debug_flags;
    base->is_debug = cache->geometry.debug_flags != 0;
    base->checks_frees = slab_has(cache, SQ_CACHE_RED_ZONE);
    if (lender != NULL)
        slab_cache_of(lender)->holds_management = true;
}

/* ops->cache_init */
static int slab_cache_init(sq_cpu *cpu, sq_cache *base,
                           const struct sq_cache_spec *spec, struct sq_error *error)
{
    struct slab_cache *cache = slab_cache_of(base);
    const struct sq_topology *topology = &cpu->machine->topology;
    int status = slab_geometry_plan(base->heap, spec, &cache->geometry, error);
    bool is_made;
    if (status != SQ_OK)
        return status;
    base->size = cache->geometry.size;
    base->align = cache->geometry.align;
    base->order = cache->geometry.order;
    base->slab_object_count = cache->geometry.object_count;
    slab_set_debugging(cache);
    cache->reciprocal = slab_reciprocal(base->size);
    cache->tunables = slab_tunables_for(base->heap, &cache->geometry);
    slab_set_rules(cache);
    slab_set_reap_nodes(cache);
    cache->check_bits =
        sq_meta_alloc(cpu, ((size_t)base->slab_object_count + 63) / 64 * 8, cpu->node);
    is_made =
        cache->check_bits != NULL && slab_make_random_order(cpu, cache) &&
        arrays_make(cpu, &cache->arrays, &cache->tunables);
    for (uint32_t i = 0; i < topology->node_count && is_made; i++)
        is_made = node_make(cpu, cache, i);
    if (is_made)
        return SQ_OK;
    slab_cache_release(cpu, base);
    return sq_error_set(error, SQ_E_MEMORY,
                        "no memory on the machine for the queues of cache %.60s",
                        base->name);
}

/* ---- ending ---- */

static void node_destroy_list(sq_cpu *cpu, struct slab_cache *cache,
                              struct sq_list *list)
{
    while (!sq_list_is_empty(list)) {
        struct slab *slab = SQ_LIST_ENTRY(list->next, struct slab, list);
        sq_list_unlink(&slab->list);
        slab_destroy(cpu, cache, slab);
    }
}

static void node_release(sq_cpu *cpu, struct slab_cache *cache, struct slab_node *node)
{
    node_destroy_list(cpu, cache, &node->full);
    node_destroy_list(cpu, cache, &node->partial);
    node_destroy_list(cpu, cache, &node->free);
    for (uint32_t i = 0; i < SQ_NODE_MAX; i++)
        if (node->alien[i] != NULL)
            sq_meta_free(cpu, node->alien[i]);
    if (node->shared != NULL)
        sq_meta_free(cpu, node->shared);
    sq_meta_free(cpu, node);
}

/* ops->cache_release; also ends a cache that was made in part. */
static void slab_cache_release(sq_cpu *cpu, sq_cache *base)
{
    struct slab_cache *cache = slab_cache_of(base);
    sq_irq_save(cpu);
    for (uint32_t i = 0; i < SQ_NODE_MAX; i++) {
        if (cache->node[i] != NULL)
            node_release(cpu, cache, cache->node[i]);
        cache->node[i] = NULL;
    }
    sq_irq_restore(cpu);
    sq_percpu_free(cpu, &cache->arrays);
    sq_meta_free(cpu, cache->random_order);
    sq_meta_free(cpu, cache->check_bits);
}

/* ---- shrinking ---- */

/* Give the `count` oldest objects of a queue of `node` back to slabs. Requires the list
 * lock and nobody else changing the queue. */
static void array_drain(sq_cpu *cpu, struct slab_cache *cache, struct slab_node *node,
                        struct array_cache *array, uint32_t count,
                        struct sq_list *doomed)
{
    sq_touch_read(cpu, array, array_bytes(count));
    free_block(cpu, cache, node, array->entry, count, doomed);
    array_drop_oldest(array, count);
}

/* ops->flush_cpu: empty this CPU's array. */
static void slab_flush_cpu(sq_cpu *cpu, sq_cache *base)
{
    struct slab_cache *cache = slab_cache_of(base);
    struct slab_node *node = cache->node[cpu->node];
    struct array_cache *array;
    struct sq_list doomed;
    sq_list_init(&doomed);
    sq_irq_save(cpu);
    array = slab_array_of(cache, cpu->index);
    sq_lock_acquire(cpu, &node->list_lock);
    array_drain(cpu, cache, node, array, array->avail, &doomed);
    sq_lock_release(cpu, &node->list_lock);
    slabs_destroy(cpu, cache, &doomed);
    sq_irq_restore(cpu);
}

/* Runs as each CPU (kernel: do_drain). */
static void flush_each_cpu(sq_cpu *target, void *argument)
{
    slab_flush_cpu(target, argument);
}

static void node_drain_aliens(sq_cpu *cpu, struct slab_cache *cache,
                              struct slab_node *node)
{
    for (uint32_t i = 0; i < cpu->machine->topology.node_count; i++) {
        struct alien_cache *alien = node->alien[i];
        struct sq_list doomed;
        if (alien == NULL)
            continue;
        sq_list_init(&doomed);
        sq_lock_acquire(cpu, &alien->lock);
        alien_drain(cpu, cache, alien, cache->node[i], &doomed);
        sq_lock_release(cpu, &alien->lock);
        slabs_destroy(cpu, cache, &doomed);
    }
}

static void node_drain_shared(sq_cpu *cpu, struct slab_cache *cache,
                              struct slab_node *node)
{
    struct sq_list doomed;
    sq_list_init(&doomed);
    sq_lock_acquire(cpu, &node->list_lock);
    if (node->shared != NULL && node->shared->avail > 0)
        array_drain(cpu, cache, node, node->shared, node->shared->avail, &doomed);
    sq_lock_release(cpu, &node->list_lock);
    slabs_destroy(cpu, cache, &doomed);
}

/* Destroy up to `count` free slabs, the last first, each outside the lock (kernel:
 * drain_freelist). Returns how many. */
static uint64_t node_destroy_free_slabs(sq_cpu *cpu, struct slab_cache *cache,
                                        struct slab_node *node, uint64_t count)
{
    uint64_t destroyed = 0;
    while (destroyed < count) {
        struct slab *slab = NULL;
        sq_lock_acquire(cpu, &node->list_lock);
        if (!sq_list_is_empty(&node->free)) {
            slab = SQ_LIST_ENTRY(node->free.prev, struct slab, list);
            sq_touch_write(cpu, slab, sizeof(*slab));
            sq_list_unlink(&slab->list);
            node->free_slabs--;
            node->total_slabs--;
            node_add_free_objects(cpu, node, -(int64_t)cache->geometry.object_count);
        }
        sq_lock_release(cpu, &node->list_lock);
        if (slab == NULL)
            break;
        slab_destroy(cpu, cache, slab);
        destroyed++;
    }
    return destroyed;
}

/* ops->shrink: 1 if slabs with objects in use remain. */
static int slab_shrink(sq_cpu *cpu, sq_cache *base)
{
    struct slab_cache *cache = slab_cache_of(base);
    uint32_t node_count = cpu->machine->topology.node_count;
    bool is_busy = false;
    sq_on_each_cpu(cpu, flush_each_cpu, base);
    sq_irq_save(cpu);
    for (uint32_t i = 0; i < node_count; i++)
        node_drain_aliens(cpu, cache, cache->node[i]);
    for (uint32_t i = 0; i < node_count; i++)
        node_drain_shared(cpu, cache, cache->node[i]);
    for (uint32_t i = 0; i < node_count; i++) {
        struct slab_node *node = cache->node[i];
        (void)node_destroy_free_slabs(cpu, cache, node, UINT64_MAX);
        sq_lock_acquire(cpu, &node->list_lock);
        is_busy |= !sq_list_is_empty(&node->full) || !sq_list_is_empty(&node->partial);
        sq_lock_release(cpu, &node->list_lock);
    }
    sq_irq_restore(cpu);
    return is_busy;
}

/* ---- CPUs that go and come ---- */

static void node_set_free_limit(sq_cpu *cpu, struct slab_cache *cache,
                                struct slab_node *node)
{
    sq_lock_acquire(cpu, &node->list_lock);
    node->free_limit =
        slab_free_limit(cache->base.heap, node->index, &cache->tunables, &cache->geometry);
    sq_lock_release(cpu, &node->list_lock);
}

/* The last CPU of a node is gone: objects that were queued for its CPUs go to slabs, those
 * of other nodes home, free slabs back; other nodes find no shared array here. */
static void node_close(sq_cpu *cpu, struct slab_cache *cache, struct slab_node *node)
{
    struct array_cache *shared;
    struct sq_list doomed;
    sq_list_init(&doomed);
    sq_lock_acquire(cpu, &node->list_lock);
    shared = node->shared;
    if (shared != NULL)
        array_drain(cpu, cache, node, shared, shared->avail, &doomed);
    __atomic_store_n(&node->shared, NULL, __ATOMIC_RELEASE);
    sq_lock_release(cpu, &node->list_lock);
    slabs_destroy(cpu, cache, &doomed);
    if (shared != NULL)
        sq_meta_free(cpu, shared);
    node_drain_aliens(cpu, cache, node);
    (void)node_destroy_free_slabs(cpu, cache, node, UINT64_MAX);
}

/* ops->cpu_offline (kernel: cpuup_canceled). Only CPUs of a node look at its shared array
 * without its lock, and this is the last. */
static void slab_cpu_offline(sq_cpu *cpu, sq_cache *base)
{
    struct slab_cache *cache = slab_cache_of(base);
    struct slab_node *node = cache->node[cpu->node];
    sq_irq_save(cpu);
    node_set_free_limit(cpu, cache, node);
    slab_flush_cpu(cpu, base);
    slab_array_of(cache, cpu->index)->touched = 0;
    if (base->heap->offline_on_node[cpu->node] ==
        cpu->machine->topology.cpus_on_node[cpu->node])
        node_close(cpu, cache, node);
    sq_irq_restore(cpu);
}

/* ops->cpu_online (kernel: cpuup_prepare). Without memory for it a node goes on without
 * a shared array, as caches of large objects do. */
static void slab_cpu_online(sq_cpu *cpu, sq_cache *base)
{
    struct slab_cache *cache = slab_cache_of(base);
    struct slab_node *node = cache->node[cpu->node];
    node_set_free_limit(cpu, cache, node);
    if (cache->tunables.shared > 0 && node->shared == NULL)
        __atomic_store_n(&node->shared, shared_make(cpu, &cache->tunables, cpu->node),
                         __ATOMIC_RELEASE);
}

/* ---- reaping ---- */

/* Age a queue: one that was used since the last pass is spared once, another loses a
 * fifth of its limit, or half of what it holds if that is less. */
static void array_age(sq_cpu *cpu, struct slab_cache *cache, struct slab_node *node,
                      struct array_cache *array)
{
    struct sq_list doomed;
    uint32_t count;
    if (array == NULL || array_peek_avail(cpu, array) == 0)
        return;
    if (__atomic_load_n(&array->touched, __ATOMIC_RELAXED)) {
        array_set_touched(array, 0);
        return;
    }
    sq_list_init(&doomed);
    sq_lock_acquire(cpu, &node->list_lock);
    count = (array->limit + 4) / 5;
    if (count > array->avail)
        count = (array->avail + 1) / 2;
    array_drain(cpu, cache, node, array, count, &doomed);
    sq_lock_release(cpu, &node->list_lock);
    slabs_destroy(cpu, cache, &doomed);
}

/* Bring home the objects this CPU's node holds for one other node, unless somebody is
 * busy with them; the next pass looks at the next node. Returns the node. */
static uint32_t reap_alien(sq_cpu *cpu, struct slab_cache *cache,
                           struct slab_node *node)
{
    uint32_t target = cache->reap_node[cpu->index];
    struct alien_cache *alien = node->alien[target];
    struct sq_list doomed;
    cache->reap_node[cpu->index] =
        (uint8_t)((target + 1) % cpu->machine->topology.node_count);
    if (alien == NULL || array_peek_avail(cpu, alien_array(alien)) == 0 ||
        !sq_lock_try(cpu, &alien->lock))
        return target;
    sq_list_init(&doomed);
    alien_drain(cpu, cache, alien, cache->node[target], &doomed);
    sq_lock_release(cpu, &alien->lock);
    slabs_destroy(cpu, cache, &doomed);
    return target;
}

/* ops->reap */
static int32_t slab_reap(sq_cpu *cpu, sq_cache *base, bool with_node)
{
    struct slab_cache *cache = slab_cache_of(base);
    struct slab_node *node = cache->node[cpu->node];
    uint64_t num = cache->geometry.object_count;
    uint32_t target;
    sq_irq_save(cpu);
    target = reap_alien(cpu, cache, node);
    array_age(cpu, cache, node, slab_array_of(cache, cpu->index));
    if (with_node) {
        array_age(cpu, cache, node, node->shared);
        if (__atomic_load_n(&node->free_touched, __ATOMIC_RELAXED))
            node_set_free_touched(node, 0);
        else
            sq_count_by(
                cpu, base, SLAB_REAPED,
                node_destroy_free_slabs(cpu, cache, node,
                                        (node->free_limit + 5 * num - 1) / (5 * num)));
    }
    sq_irq_restore(cpu);
    return (int32_t)target;
}

#endif
