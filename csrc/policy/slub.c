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
 * Lock order: slab_lock (to 3.0) -> list_lock -> page allocator; get_partial takes
 * slab_lock inside list_lock by trying. A node's all_lock is innermost and alone.
 *
 * Releases: 2.6.24 to 6.18, one source; every difference is an option of slub_options.h
 * asked at the place where it matters. Compared object by object with recordings of
 * 2.6.25, 2.6.35, 4.19, 5.15, 6.1 and 6.18.
 *
 * Departures: the chain of all slabs (slub_node.h) is ours. Slow paths keep interrupts
 * off from end to end, where 3.1 and later turn them on in between and for page
 * allocation. Debug flags change sizes, lists and paths, but contents are not checked,
 * and caches under slab_lock take the paths of 4.19. PREEMPT_RT's local lock costs what
 * turning interrupts off costs. The chance of taking another node's slab is
 * drawn from the run's random numbers, where the kernel reads its cycle counter.
 */
#include "policy/slub_partial.h"

#include <stdio.h>
#include <string.h>

#define SLUB_DEBUG_FLAGS                                                               \
    (SQ_CACHE_RED_ZONE | SQ_CACHE_POISON | SQ_CACHE_STORE_USER |                       \
     SQ_CACHE_CONSISTENCY_CHECKS)
#define SLUB_MIN_PARTIAL_MAX 10u /* the kernel's MAX_PARTIAL */

/* ---- allocation, slow ---- */

/* A debug cache since 6.1: the new slab keeps all objects but the first and goes to the
 * head of the list at once. */
static void slub_new_keep_rest(sq_cpu *cpu, struct slub_cache *cache,
                               struct sq_page *page, void *first)
{
    struct slub_node *node = slub_node_of(cache, page);
    struct slub_word old = slub_load(cpu, page), word = old;
    word.head = slub_head_of(cpu, cache, page, slub_next(cpu, cache, first));
    word.inuse = 1;
    word.is_frozen = false;
    (void)slub_update(cpu, cache, page, &old, &word);
    sq_lock_acquire(cpu, &node->list_lock);
    if (word.inuse == word.objects)
        slub_full_add(cache, node, page);
    else
        slub_partial_add(cpu, node, page, true);
    sq_lock_release(cpu, &node->list_lock);
}

/* A slab for the CPU from the lists or from new pages, with its free objects in
 * `first`. NULL if there is no memory. */
static struct sq_page *slub_obtain_from(sq_cpu *cpu, struct slub_cache *cache,
                                        int32_t node, uint32_t flags, void **first)
{
    struct sq_page *page = slub_partial_get(cpu, cache, node, flags, first);
    if (page == NULL) {
        page = slub_slab_new(cpu, cache, node, flags, first);
        if (page == NULL)
            return NULL;
        sq_count(cpu, &cache->base, SLUB_ALLOC_SLAB);
        if (slub_takes_single(cache))
            slub_new_keep_rest(cpu, cache, page, *first);
        return page;
    }
    if (*first == NULL) {
        *first = slub_take_all(cpu, cache, page, true);
        slub_slab_unlock(cpu, cache, page);
    }
    return page;
}

/* Since 6.18 a node that was named is asked for new pages too before other nodes are
 * asked for anything. */
static struct sq_page *slub_obtain(sq_cpu *cpu, struct slub_cache *cache, int32_t node,
                                   uint32_t flags, void **first)
{
    struct sq_page *page = NULL;
    if (node != SQ_NODE_ANY && (flags & SQ_ALLOC_THISNODE) == 0 &&
        SLUB_OPTION(cache, explicit_node_new_first) != 0)
        page = slub_obtain_from(cpu, cache, node,
                                flags | SQ_ALLOC_THISNODE | SQ_ALLOC_NOWAIT, first);
    if (page == NULL)
        page = slub_obtain_from(cpu, cache, node, flags, first);
    return page;
}

/* The CPU's slab is used up: what was freed to it meanwhile becomes the CPU's free
 * list; without any the slab is let go, full. */
static void *slub_cpu_refill(sq_cpu *cpu, struct slub_cache *cache,
                             struct slub_cpu *local)
{
    struct sq_page *page = local->slab;
    bool was_slab_lock = slub_uses_slab_lock(cache);
    void *first;
    slub_slab_lock(cpu, cache, page);
    first = slub_take_all(cpu, cache, page, false);
    slub_slab_unlock(cpu, cache, page);
    if (was_slab_lock || first != NULL)
        sq_count(cpu, &cache->base, SLUB_ALLOC_REFILL);
    if (first != NULL)
        return first;
    local->slab = NULL;
    slub_cpu_set_free(cache, local, NULL);
    sq_count(cpu, &cache->base,
             was_slab_lock ? SLUB_DEACTIVATE_FULL : SLUB_DEACTIVATE_BYPASS);
    return NULL;
}

static inline bool slub_node_matches(const struct sq_page *page, int32_t node)
{
    return node == SQ_NODE_ANY || page->node == (uint32_t)node;
}

/* Objects from the CPU's slab; NULL, and no slab any more, if it has none or is on
 * another node than the one asked for. */
static void *slub_cpu_slab_take(sq_cpu *cpu, struct slub_cache *cache,
                                struct slub_cpu *local, int32_t node)
{
    if (!slub_node_matches(local->slab, node)) {
        if (!slub_uses_slab_lock(cache)) /* counted since 3.1 */
            sq_count(cpu, &cache->base, SLUB_ALLOC_NODE_MISMATCH);
        slub_cpu_deactivate(cpu, cache, local);
        return NULL;
    }
    if (local->free.first != NULL)
        return local->free.first;
    return slub_cpu_refill(cpu, cache, local);
}

/* Make the first slab of the CPU's partial list its slab. While those are frozen it is
 * looked at like any CPU slab afterwards; since 6.8 its objects are taken here, and a
 * slab of another node goes to that node's list. */
static void *slub_cpu_partial_take(sq_cpu *cpu, struct slub_cache *cache,
                                   struct slub_cpu *local, int32_t node)
{
    struct sq_page *page = local->partial;
    bool was_frozen = SLUB_OPTION(cache, cpu_partial_frozen) != 0;
    local->partial = slub_chain_of(page)->next;
    if (!was_frozen && !slub_node_matches(page, node)) {
        slub_chain_of(page)->next = NULL;
        slub_partials_put(cpu, cache, page);
        return NULL;
    }
    local->slab = page;
    sq_count(cpu, &cache->base, SLUB_CPU_PARTIAL_ALLOC);
    return was_frozen ? NULL : slub_take_all(cpu, cache, page, false);
}

/* Give the CPU a new slab. A request of another CPU, or an interrupt, may have given it
 * one while pages were looked for; that one is flushed. */
static void *slub_cpu_slab_replace(sq_cpu *cpu, struct slub_cache *cache,
                                   struct slub_cpu *local, int32_t node, uint32_t flags)
{
    void *first = NULL;
    struct sq_page *page = slub_obtain(cpu, cache, node, flags, &first);
    if (page == NULL)
        return NULL;
    if (slub_takes_single(cache))
        return first;
    if (cache->is_debug) {
        slub_deactivate(cpu, cache, page, slub_next(cpu, cache, first));
        return first;
    }
    if (local->slab != NULL) {
        sq_count(cpu, &cache->base, SLUB_CPUSLAB_FLUSH);
        slub_cpu_deactivate(cpu, cache, local);
    }
    local->slab = page;
    return first;
}

/* ___slab_alloc. Requires irqs off. */
static void *slub_alloc_slow(sq_cpu *cpu, struct slub_cache *cache, int32_t node,
                             uint32_t flags)
{
    struct slub_cpu *local = slub_cpu_of(cpu, cache);
    bool counts_success = slub_uses_slab_lock(cache);
    void *object = NULL;
    if (!counts_success)
        sq_count(cpu, &cache->base, SLUB_ALLOC_SLOWPATH);
    while (object == NULL) {
        if (local->slab != NULL) {
            object = slub_cpu_slab_take(cpu, cache, local, node);
        } else if (local->partial != NULL) {
            object = slub_cpu_partial_take(cpu, cache, local, node);
        } else {
            object = slub_cpu_slab_replace(cpu, cache, local, node, flags);
            if (object == NULL)
                return NULL;
        }
    }
    if (!cache->is_debug)
        slub_cpu_set_free(cache, local, slub_next(cpu, cache, object));
    if (counts_success)
        sq_count(cpu, &cache->base, SLUB_ALLOC_SLOWPATH);
    return object;
}

/* ---- free, slow ---- */

/* Must a free that makes this change lock the node's list? If the slab is nobody's and
 * is now empty or was full before. */
static bool slub_free_locks_list(const struct slub_cache *cache,
                                 const struct slub_word *old,
                                 const struct slub_word *word)
{
    if (old->is_frozen || (word->inuse != 0 && old->head != 0))
        return false;
    if (slub_uses_slab_lock(cache)) /* a full slab is on no list and may just go */
        return old->head != 0 || word->inuse != 0 || cache->keeps_full_list;
    return true;
}

/* After such a free, under list_lock: is the slab to be given back? Otherwise it is on
 * the list it belongs to. */
static bool slub_free_relist(sq_cpu *cpu, struct slub_cache *cache,
                             struct slub_node *node, struct sq_page *page,
                             const struct slub_word *old, const struct slub_word *word)
{
    bool was_full = old->head == 0;
    if (!was_full && (page->policy_flags & SLUB_PAGE_ON_LIST) == 0)
        return false; /* on a CPU's partial list, not frozen (6.8 on) */
    if (was_full)
        slub_full_remove(cache, page);
    if (word->inuse == 0 && (SLUB_OPTION(cache, discard_rule) == SLUB_DISCARD_AT_ONCE ||
                             slub_has_surplus(cpu, cache, node))) {
        if (!was_full) {
            slub_partial_remove(cpu, node, page);
            sq_count(cpu, &cache->base, SLUB_FREE_REMOVE_PARTIAL);
        }
        return true;
    }
    if (was_full) {
        slub_partial_add(cpu, node, page, SLUB_OPTION(cache, free_add_tail) == 0);
        sq_count(cpu, &cache->base, SLUB_FREE_ADD_PARTIAL);
    }
    return false;
}

/* After a slow free, without list_lock: count it, and take the slab to where it
 * belongs. */
static void slub_free_finish(sq_cpu *cpu, struct slub_cache *cache,
                             struct sq_page *page, bool was_frozen, bool to_cpu_partial,
                             bool discard)
{
    if (was_frozen)
        sq_count(cpu, &cache->base, SLUB_FREE_FROZEN);
    if (to_cpu_partial) {
        slub_cpu_partial_put(cpu, cache, page, true);
        sq_count(cpu, &cache->base, SLUB_CPU_PARTIAL_FREE);
    }
    if (discard) {
        sq_count(cpu, &cache->base, SLUB_FREE_SLAB);
        slub_slab_discard(cpu, cache, page);
    }
}

/*
 * __slab_free: put `count` objects, chained from `head` to `tail`, on their slab, which
 * is not this CPU's. Requires irqs off. A full slab that nobody owns becomes this CPU's
 * partial slab; one that enters or leaves its node's list does so under list_lock,
 * which is taken before the word changes.
 */
static void slub_free_slow(sq_cpu *cpu, struct slub_cache *cache, struct sq_page *page,
                           void *head, void *tail, uint32_t count)
{
    struct slub_node *node = slub_node_of(cache, page), *locked = NULL;
    bool to_cpu_partial, discard;
    struct slub_word old, word;
    sq_count(cpu, &cache->base, SLUB_FREE_SLOWPATH);
    slub_slab_lock(cpu, cache, page);
    do {
        if (locked != NULL)
            sq_lock_release(cpu, &locked->list_lock);
        locked = NULL;
        old = word = slub_load(cpu, page);
        SQ_ASSERT(old.inuse >= count); /* else an object was freed twice */
        slub_set_next(cpu, cache, tail, slub_head_object(cpu, cache, page, &old));
        word.head = slub_head_of(cpu, cache, page, head);
        word.inuse -= count;
        to_cpu_partial = cache->has_cpu_partial && old.head == 0 && !old.is_frozen;
        if (to_cpu_partial)
            word.is_frozen = SLUB_OPTION(cache, cpu_partial_frozen) != 0;
        else if (slub_free_locks_list(cache, &old, &word))
            locked = node;
        if (locked != NULL)
            sq_lock_acquire(cpu, &locked->list_lock);
    } while (!slub_update(cpu, cache, page, &old, &word));
    if (locked != NULL) {
        discard = slub_free_relist(cpu, cache, node, page, &old, &word);
        sq_lock_release(cpu, &locked->list_lock);
    } else {
        discard = !old.is_frozen && !to_cpu_partial && word.inuse == 0;
    }
    slub_slab_unlock(cpu, cache, page);
    slub_free_finish(cpu, cache, page, old.is_frozen, to_cpu_partial, discard);
}

/* ---- fast paths ---- */

/*
 * The fast paths are a handful of instructions and no calls: pop and push, and one test
 * of how the release guards them. Everything else is out of line, so that nothing has
 * to be saved on the way.
 */
#define SLUB_OUT_OF_LINE  __attribute__((noinline))
#define SLUB_LIKELY(test) __builtin_expect(!!(test), 1)

/* Outcomes of one try at a CPU's free list. */
enum slub_try {
    SLUB_TRY_DONE,
    SLUB_TRY_AGAIN, /* the transaction failed */
    SLUB_TRY_MISS,  /* the CPU's slab will not do */
};

/* Take the first object of the CPU's free list. */
static inline enum slub_try slub_pop(sq_cpu *cpu, struct slub_cache *cache,
                                     int32_t node, void **object)
{
    struct slub_cpu *local = slub_cpu_of(cpu, cache);
    uint64_t tid = local->free.second;
    void *first = local->free.first;
    *object = first;
    if (SLUB_LIKELY(first != NULL && slub_node_matches(local->slab, node))) {
        if (SLUB_LIKELY(sq_local_cas_double(cpu, &local->free, first, tid,
                                            *slub_free_pointer(cache, first),
                                            tid + cache->tid_step))) {
            sq_count(cpu, &cache->base, SLUB_ALLOC_FASTPATH);
            return SLUB_TRY_DONE;
        }
        return SLUB_TRY_AGAIN;
    }
    return SLUB_TRY_MISS;
}

/* Put the chain from `head` to `tail` before the CPU's free list. */
static inline enum slub_try slub_push(sq_cpu *cpu, struct slub_cache *cache,
                                      const struct sq_page *page, void *head,
                                      void *tail, uint32_t counted)
{
    struct slub_cpu *local = slub_cpu_of(cpu, cache);
    uint64_t tid = local->free.second;
    void *first = local->free.first;
    if (SLUB_LIKELY(page == local->slab)) {
        *slub_free_pointer(cache, tail) = first;
        if (SLUB_LIKELY(sq_local_cas_double(cpu, &local->free, first, tid, head,
                                            tid + cache->tid_step))) {
            sq_count_by(cpu, &cache->base, SLUB_FREE_FASTPATH, counted);
            return SLUB_TRY_DONE;
        }
        return SLUB_TRY_AGAIN;
    }
    return SLUB_TRY_MISS;
}

/* The slow part of an allocation, and all of it where releases guard the fast path by
 * other means than the exchange: interrupts off, or RT's local lock and no fast path.
 */
static SLUB_OUT_OF_LINE void *slub_alloc_guarded(sq_cpu *cpu, struct slub_cache *cache,
                                                 int32_t node, uint32_t flags)
{
    enum slub_try outcome = SLUB_TRY_MISS;
    void *object;
    sq_irq_save(cpu);
    if (cache->fast_path == SLUB_FAST_IRQ)
        outcome = slub_pop(cpu, cache, node, &object);
    if (outcome == SLUB_TRY_MISS)
        object = slub_alloc_slow(cpu, cache, node, flags);
    sq_irq_restore(cpu);
    if (outcome == SLUB_TRY_DONE)
        sq_touch_read(cpu, object, sizeof(void *));
    return object;
}

static inline void *slub_alloc_object(sq_cpu *cpu, struct slub_cache *cache,
                                      int32_t node, uint32_t flags)
{
    enum slub_try outcome;
    void *object;
    if (cache->fast_path != SLUB_FAST_CMPXCHG)
        return slub_alloc_guarded(cpu, cache, node, flags);
    while ((outcome = slub_pop(cpu, cache, node, &object)) == SLUB_TRY_AGAIN)
        sq_count(cpu, &cache->base, SLUB_CMPXCHG_DOUBLE_CPU_FAIL);
    if (outcome == SLUB_TRY_MISS)
        return slub_alloc_guarded(cpu, cache, node, flags);
    sq_touch_read(cpu, object, sizeof(void *));
    return object;
}

/* As slub_alloc_guarded. On RT the free path has a fast part under the local lock. */
static SLUB_OUT_OF_LINE void slub_free_guarded(sq_cpu *cpu, struct slub_cache *cache,
                                               struct sq_page *page, void *head,
                                               void *tail, uint32_t count,
                                               uint32_t counted)
{
    enum slub_try outcome = SLUB_TRY_MISS;
    sq_irq_save(cpu);
    if (cache->fast_path != SLUB_FAST_CMPXCHG)
        outcome = slub_push(cpu, cache, page, head, tail, counted);
    if (outcome == SLUB_TRY_MISS)
        slub_free_slow(cpu, cache, page, head, tail, count);
    sq_irq_restore(cpu);
    sq_touch_read(cpu, page, sizeof(*page));
    if (outcome == SLUB_TRY_DONE)
        sq_touch_write(cpu, tail, sizeof(void *));
}

/* Free `count` objects of one slab, chained from `head` to `tail`; `counted` is what
 * the release adds to its counter for them. */
static inline void slub_free_objects(sq_cpu *cpu, struct slub_cache *cache,
                                     struct sq_page *page, void *head, void *tail,
                                     uint32_t count, uint32_t counted)
{
    enum slub_try outcome = SLUB_TRY_MISS;
    if (SLUB_LIKELY(cache->fast_path == SLUB_FAST_CMPXCHG)) {
        while ((outcome = slub_push(cpu, cache, page, head, tail, counted)) ==
               SLUB_TRY_AGAIN)
            sq_count(cpu, &cache->base, SLUB_CMPXCHG_DOUBLE_CPU_FAIL);
    }
    if (outcome == SLUB_TRY_MISS) {
        slub_free_guarded(cpu, cache, page, head, tail, count, counted);
    } else {
        sq_touch_read(cpu, page, sizeof(*page));
        sq_touch_write(cpu, tail, sizeof(void *));
    }
}

static void *slub_alloc(sq_cpu *cpu, sq_cache *base, int32_t node, uint32_t flags)
{
    return slub_alloc_object(cpu, (struct slub_cache *)base, node, flags);
}

static void slub_free(sq_cpu *cpu, sq_cache *base, void *object)
{
    struct sq_page *page = sq_page_of_address(cpu->machine, object);
    SQ_ASSERT(page->state == SQ_PAGE_SLAB);
    slub_free_objects(cpu, (struct slub_cache *)base, page, object, object, 1, 1);
}

/* ---- bulk ---- */

/* Objects of other slabs that a bulk free looks past, as in the kernel. */
#define SLUB_BULK_LOOKAHEAD 3u

static void slub_swap(void **a, void **b)
{
    void *kept = *a;
    *a = *b;
    *b = kept;
}

/*
 * Free the last of `count` objects and with it others of the same slab, as far as few
 * objects of other slabs lie between; those are kept, closed up. Returns how many are
 * left to free.
 */
static size_t slub_free_some(sq_cpu *cpu, struct slub_cache *cache, size_t count,
                             void **objects)
{
    void *tail = objects[count - 1], *head = tail;
    struct sq_page *page = sq_page_of_address(cpu->machine, tail);
    uint32_t taken = 1, lookahead = SLUB_BULK_LOOKAHEAD;
    size_t left = --count;
    slub_set_next(cpu, cache, tail, NULL);
    while (count > 0) {
        void *object = objects[--count];
        if (sq_page_of_address(cpu->machine, object) == page) {
            slub_set_next(cpu, cache, object, head);
            head = object;
            taken++;
            left--;
            if (count != left)
                slub_swap(&objects[count], &objects[left]);
        } else if (--lookahead == 0) {
            break;
        }
    }
    slub_free_objects(cpu, cache, page, head, tail, taken,
                      SLUB_OPTION(cache, bulk_statistics) != 0 ? taken : 1);
    return left;
}

static void slub_free_bulk(sq_cpu *cpu, sq_cache *base, size_t count, void **objects)
{
    while (count > 0)
        count = slub_free_some(cpu, (struct slub_cache *)base, count, objects);
}

/* One object of a bulk allocation. Requires irqs off. */
static void *slub_alloc_bulk_one(sq_cpu *cpu, struct slub_cache *cache, uint32_t flags)
{
    struct slub_cpu *local = slub_cpu_of(cpu, cache);
    void *object = local->free.first;
    if (object == NULL)
        return slub_alloc_slow(cpu, cache, SQ_NODE_ANY, flags);
    slub_cpu_set_free(cache, local, slub_next(cpu, cache, object));
    if (SLUB_OPTION(cache, bulk_statistics) != 0)
        sq_count(cpu, &cache->base, SLUB_ALLOC_FASTPATH);
    return object;
}

static size_t slub_alloc_bulk(sq_cpu *cpu, sq_cache *base, uint32_t flags, size_t count,
                              void **objects)
{
    size_t got = 0;
    sq_irq_save(cpu);
    while (got < count) {
        objects[got] = slub_alloc_bulk_one(cpu, (struct slub_cache *)base, flags);
        if (objects[got] == NULL)
            break;
        got++;
    }
    sq_irq_restore(cpu);
    if (got == count)
        return count;
    slub_free_bulk(cpu, base, got, objects);
    return 0;
}

/* ---- kmalloc ---- */

static sq_cache *slub_cache_of_page(const struct sq_page *page)
{
    return &slub_slab_of(page)->cache->base;
}

static void *kmalloc_large(sq_cpu *cpu, sq_heap *heap, size_t size, int32_t node,
                           uint32_t flags);

/* 2.6.25: a class whose slabs are larger than it would like falls back to plain pages.
 */
static inline void *slub_kmalloc_class(sq_cpu *cpu, sq_cache *base, int32_t node,
                                       uint32_t flags)
{
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
#include "policy/kmalloc-impl.h"

#include "policy/slub_control.h"
#include "policy/slub_dump.h"

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
    .kmalloc = kmalloc_alloc,
    .kfree = kmalloc_free,
    .ksize = kmalloc_usable_size,
    .cache_of_page = kmalloc_cache_of_page,
    .check = slub_check,
    .locate = slub_locate,
    .usage = slub_usage,
    .describe = slub_describe,
    .dump = slub_dump,
    .row = slub_row,
    .row_columns = slub_row_columns,
};
