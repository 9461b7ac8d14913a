/*
 * Shared and alien queues (V3, V4): what CPUs of one last-level cache and node share.
 *
 * Lock order: alien_lock or shared_lock, then slab_lock, then list_lock. No slab is
 * made while one of them is held, since interrupts are on while pages are sought.
 */
#ifndef SLUBQ_QUEUE_H
#define SLUBQ_QUEUE_H

#include "policy/slubq_slab.h"

/* ---- sizes: what the kernel's memory blocks come to ---- */

#define SLUBQ_CPU_QUEUE_HEAD 24u /* bytes before the pointers in kmem_cache_cpu */
#define SLUBQ_QUEUE_HEAD     16u /* ... in a shared or alien queue */

/* What a CPU's queue holds if `wanted` objects are asked for: memory comes in lines. */
static uint32_t slubq_cpu_queue_max(uint32_t wanted)
{
    uint64_t bytes =
        sq_align_up(SLUBQ_CPU_QUEUE_HEAD + 8 * (uint64_t)wanted, SQ_LINE_SIZE);
    return (uint32_t)((bytes - SLUBQ_CPU_QUEUE_HEAD) / 8);
}

static uint64_t slubq_shared_bytes(uint32_t wanted)
{
    return SLUBQ_QUEUE_HEAD + 8 * (uint64_t)wanted;
}

/* log2 of the bytes of an alien queue; 0 on one node. Many nodes get little each. */
static uint32_t slubq_alien_shift(uint32_t queue_size, uint32_t node_count)
{
    uint64_t line_bytes = sq_align_up(slubq_shared_bytes(queue_size), SQ_LINE_SIZE);
    if (node_count == 1)
        return 0;
    if (node_count > 32)
        return sq_ilog2(SQ_LINE_SIZE);
    if (node_count > 4)
        return sq_ilog2(4 * SQ_LINE_SIZE);
    return (uint32_t)sq_min_u64(SQ_PAGE_SHIFT - 1, sq_fls(line_bytes - 1));
}

/* What kmalloc really gives for so many bytes: a size class, or whole pages. */
static uint64_t slubq_kmalloc_bytes(uint64_t bytes)
{
    if (bytes >= SQ_PAGE_SIZE / 2)
        return (uint64_t)SQ_PAGE_SIZE << sq_order_of(bytes, SQ_PAGE_SHIFT);
    if (bytes > 64 && bytes <= 96)
        return 96;
    if (bytes > 128 && bytes <= 192)
        return 192;
    return UINT64_C(1) << sq_fls(sq_max_u64(bytes, 8) - 1);
}

/* Set the sizes that follow from queue_size, batch and shared_size. */
static void slubq_set_sizes(struct slubq_cache *cache)
{
    uint32_t node_count = slubq_topology(cache)->node_count;
    bool has_lines = cache->rule.version >= 3;
    uint64_t aliens, bytes;
    cache->queue_max =
        has_lines ? slubq_cpu_queue_max(cache->queue_size) : cache->queue_size;
    cache->alien_shift = cache->rule.foreign_is_apart
                             ? slubq_alien_shift(cache->queue_size, node_count)
                             : 0;
    cache->shared_max = 0;
    cache->alien_max = 0;
    if (cache->shared_size == 0)
        return;
    aliens =
        cache->alien_shift == 0 ? 0 : (uint64_t)(node_count - 1) << cache->alien_shift;
    bytes = slubq_kmalloc_bytes(slubq_shared_bytes(cache->shared_size) + aliens);
    cache->shared_max = (uint32_t)((bytes - aliens - SLUBQ_QUEUE_HEAD) / 8);
    if (aliens > 0)
        cache->alien_max =
            (uint32_t)(((UINT64_C(1) << cache->alien_shift) - SLUBQ_QUEUE_HEAD) / 8);
}

/* ---- groups ---- */

static size_t slubq_queue_bytes(uint32_t max)
{
    return (size_t)sq_align_up(sizeof(struct slubq_queue) + max * sizeof(void *),
                               SQ_LINE_SIZE);
}

static void slubq_queue_init(struct slubq_queue *queue, uint32_t max, uint32_t batch,
                             uint32_t node, enum sq_lock_class lock_class)
{
    queue->max = max;
    queue->batch = batch;
    queue->node = (int16_t)node;
    sq_lock_init(&queue->lock, lock_class);
}

/* One block on the group's node: its head, the shared queue, the alien queues. */
static struct slubq_group *slubq_group_make(sq_cpu *cpu, struct slubq_cache *cache,
                                            uint32_t first_cpu)
{
    const struct sq_topology *topology = slubq_topology(cache);
    uint32_t node = topology->node_of_cpu[first_cpu];
    size_t head = (size_t)sq_align_up(sizeof(struct slubq_group), SQ_LINE_SIZE);
    size_t shared = slubq_queue_bytes(cache->shared_max);
    size_t alien = cache->alien_max > 0 ? slubq_queue_bytes(cache->alien_max) : 0;
    char *block =
        sq_meta_alloc(cpu, head + shared + (topology->node_count - 1) * alien, node);
    struct slubq_group *group = (struct slubq_group *)(void *)block;
    if (group == NULL)
        return NULL;
    group->node = node;
    group->first_cpu = first_cpu;
    group->alien_want = (uint32_t)sq_min_u64(
        cache->alien_max, cache->rule.version >= 4 ? cache->queue_size : cache->batch);
    group->shared = (struct slubq_queue *)(void *)(block += head);
    slubq_queue_init(group->shared, cache->shared_max, cache->batch, node,
                     SQ_LOCK_SHARED);
    block += shared;
    for (uint32_t to = 0; alien > 0 && to < topology->node_count; to++) {
        if (to == node)
            continue;
        group->alien[to] = (struct slubq_queue *)(void *)block;
        slubq_queue_init(group->alien[to], cache->alien_max, cache->batch, to,
                         SQ_LOCK_ALIEN);
        block += alien;
    }
    return group;
}

/* Is this CPU the only one of its node under its last-level cache? */
static bool slubq_is_alone(const struct sq_topology *topology, uint32_t index)
{
    for (uint32_t i = 0; i < topology->cpu_count; i++)
        if (i != index && topology->llc_of_cpu[i] == topology->llc_of_cpu[index] &&
            topology->node_of_cpu[i] == topology->node_of_cpu[index])
            return false;
    return true;
}

/* Does this CPU share a queue with the group of `first`? CPUs that are alone under
 * their last-level cache share one, here one a node. */
static bool slubq_is_of_group(const struct sq_topology *topology, uint32_t first,
                              uint32_t index, bool is_alone)
{
    return topology->node_of_cpu[first] == topology->node_of_cpu[index] &&
           (is_alone ? slubq_is_alone(topology, first)
                     : topology->llc_of_cpu[first] == topology->llc_of_cpu[index]);
}

/* The group a CPU belongs to, or NULL. */
static struct slubq_group *slubq_group_of_cpu(const struct slubq_cache *cache,
                                              uint32_t index)
{
    return cache->group_count == 0 ? NULL : cache->group[cache->group_of_cpu[index]];
}

static void slubq_groups_free(sq_cpu *cpu, struct slubq_cache *cache)
{
    while (cache->group_count > 0)
        sq_meta_free(cpu, cache->group[--cache->group_count]);
}

/* Make the groups; the CPUs' queues do not know them yet. All or none. */
static bool slubq_groups_make(sq_cpu *cpu, struct slubq_cache *cache)
{
    const struct sq_topology *topology = slubq_topology(cache);
    for (uint32_t i = 0; cache->shared_size > 0 && i < topology->cpu_count; i++) {
        bool is_alone = slubq_is_alone(topology, i);
        uint32_t g = 0;
        while (g < cache->group_count &&
               !slubq_is_of_group(topology, cache->group[g]->first_cpu, i, is_alone))
            g++;
        cache->group_of_cpu[i] = (uint16_t)g;
        if (g < cache->group_count)
            continue;
        cache->group[g] = slubq_group_make(cpu, cache, i);
        if (cache->group[g] == NULL) {
            slubq_groups_free(cpu, cache);
            return false;
        }
        cache->group_count++;
    }
    return true;
}

/* ---- shared queues ---- */

/* Move up to `want` of the hottest objects into a CPU's queue, in order; how many. */
static uint32_t slubq_shared_take(sq_cpu *cpu, struct slubq_queue *queue, uint32_t want)
{
    struct slubq_queue *shared = queue->group->shared;
    uint32_t count;
    sq_lock_acquire(cpu, &shared->lock);
    sq_touch_write(cpu, shared, sizeof(*shared));
    count = want < shared->objects ? want : shared->objects;
    shared->objects -= count;
    shared->touched = 1;
    sq_touch_read(cpu, &shared->object[shared->objects], count * sizeof(void *));
    memcpy(&queue->object[queue->objects], &shared->object[shared->objects],
           count * sizeof(void *));
    queue->objects += count;
    sq_lock_release(cpu, &shared->lock);
    return count;
}

/* Move a batch of a CPU's oldest objects to its shared queue, as far as it has room. */
static uint32_t slubq_shared_give(sq_cpu *cpu, struct slubq_queue *queue)
{
    struct slubq_queue *shared = queue->group->shared;
    uint32_t count;
    sq_lock_acquire(cpu, &shared->lock);
    sq_touch_write(cpu, shared, sizeof(*shared));
    count = shared->max - shared->objects;
    if (count > queue->batch)
        count = queue->batch;
    if (count > queue->objects)
        count = queue->objects;
    sq_touch_write(cpu, &shared->object[shared->objects], count * sizeof(void *));
    memcpy(&shared->object[shared->objects], queue->object, count * sizeof(void *));
    shared->objects += count;
    shared->touched = 1;
    sq_lock_release(cpu, &shared->lock);
    queue->objects -= count;
    memmove(queue->object, queue->object + count, queue->objects * sizeof(void *));
    if (count > 0)
        queue->touched = 0;
    return count;
}

/* ---- objects of other nodes ---- */

/* Push an object of another node on the alien queue to it. */
static void slubq_alien_push(sq_cpu *cpu, struct slubq_cache *cache,
                             struct slubq_queue *alien, void *object)
{
    bool is_slow;
    sq_lock_acquire(cpu, &alien->lock);
    sq_touch_write(cpu, alien, sizeof(*alien));
    is_slow = alien->objects >= alien->max;
    while (alien->objects >= alien->max)
        slubq_drain_queue(cpu, cache, alien, alien->batch);
    sq_touch_write(cpu, &alien->object[alien->objects], sizeof(void *));
    alien->object[alien->objects++] = object;
    alien->touched = 1;
    sq_lock_release(cpu, &alien->lock);
    slubq_count(cpu, cache,
                is_slow && cache->rule.version >= 4 ? SLUBQ_FREE_ALIEN_SLOW
                                                    : SLUBQ_FREE_ALIEN);
}

/* Free an object that lies on another node than this CPU. */
static void slubq_free_foreign(sq_cpu *cpu, struct slubq_cache *cache,
                               struct slubq_queue *queue, uint32_t node, void *object)
{
    struct slubq_queue *alien = queue->group == NULL ? NULL : queue->group->alien[node];
    if (alien != NULL) {
        slubq_alien_push(cpu, cache, alien, object);
        return;
    }
    slubq_drain(cpu, cache, &object, 1);
    slubq_count(cpu, cache,
                cache->rule.version >= 4 ? SLUBQ_FREE_DIRECT : SLUBQ_FREE_ALIEN);
}

/* The partial slab that another node's CPU takes from: V3 the first whose lock can be
 * had, then held; V4 the last. Requires list_lock. */
static struct sq_page *slubq_partial_for_foreign(sq_cpu *cpu, struct slubq_cache *cache,
                                                 struct slubq_node *node)
{
    if (!cache->rule.has_slab_lock)
        return sq_list_is_empty(&node->partial)
                   ? NULL
                   : SQ_LIST_ENTRY(node->partial.prev, struct sq_page, lru);
    SQ_LIST_EACH(link, &node->partial)
    {
        struct sq_page *page = SQ_LIST_ENTRY(link, struct sq_page, lru);
        sq_touch_read(cpu, page, sizeof(*page));
        if (sq_lock_try(cpu, &slubq_slab_of(page)->lock))
            return page;
    }
    return NULL;
}

/* Take up to `want` objects of one partial slab of a node; how many. */
static uint32_t slubq_take_partial(sq_cpu *cpu, struct slubq_cache *cache, uint32_t n,
                                   uint32_t want, void **room)
{
    struct slubq_node *node = cache->node[n];
    struct sq_page *page;
    uint32_t count = 0;
    if (sq_load_relaxed(cpu, &node->nr_partial) == 0)
        return 0;
    sq_lock_acquire(cpu, &node->list_lock);
    page = slubq_partial_for_foreign(cpu, cache, node);
    if (page != NULL) {
        count = slubq_free_count(cache, page);
        count = count < want ? count : want;
        slubq_map_take(cpu, cache, page, count, room + count);
        slubq_debug_move(cache, room, count, true);
        if (!slubq_has_free(page))
            slubq_partial_remove(cpu, node, page);
        if (cache->rule.has_slab_lock)
            sq_lock_release(cpu, &slubq_slab_of(page)->lock);
        else
            slubq_count(cpu, cache, SLUBQ_ALLOC_FROM_PARTIAL);
    }
    sq_lock_release(cpu, &node->list_lock);
    return count;
}

/* Take up to `want` objects of a slab nobody knows yet and list what it has left. */
static uint32_t slubq_take_new(sq_cpu *cpu, struct slubq_cache *cache,
                               struct sq_page *page, uint32_t want, void **room)
{
    struct slubq_section section;
    uint32_t count = slubq_slab_objects(cache, page);
    count = count < want ? count : want;
    slubq_map_take(cpu, cache, page, count, room + count);
    slubq_debug_move(cache, room, count, true);
    if (!slubq_has_free(page))
        return count;
    slubq_section_init(&section);
    slubq_section_enter(cpu, cache, &section, page);
    slubq_partial_add(cpu, slubq_list_enter(cpu, cache, page), page,
                      cache->rule.has_slab_lock);
    slubq_list_leave(cpu, cache, cache->node[page->node]);
    slubq_section_leave(cpu, cache, &section, page);
    slubq_section_end(cpu, cache, &section);
    return count;
}

#endif
