/*
 * The paths of SLUB from outside in: objects freed to slabs that are not the CPU's, the
 * fast paths, bulk calls. What the policies `slub` and `sheaves` are made of.
 */
#ifndef SLUB_PATHS_H
#define SLUB_PATHS_H

#include "policy/slub_narrow.h"

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
 * belongs. Returns the CPU. */
static sq_cpu *slub_free_finish(sq_cpu *cpu, struct slub_cache *cache,
                                struct sq_page *page, bool was_frozen,
                                bool to_cpu_partial, bool discard)
{
    if (was_frozen)
        sq_count(cpu, &cache->base, SLUB_FREE_FROZEN);
    if (to_cpu_partial) {
        cpu = slub_cpu_partial_put(cpu, cache, page, true);
        sq_count(cpu, &cache->base, SLUB_CPU_PARTIAL_FREE);
    }
    if (discard) {
        sq_count(cpu, &cache->base, SLUB_FREE_SLAB);
        slub_slab_discard(cpu, cache, page);
    }
    return cpu;
}

/*
 * The same of a debug cache: everything under list_lock, and first the checks. Where a
 * slab is changed by exchange its owner may change it meanwhile, so the change is tried
 * again. Requires irqs off to 5.14. Returns the CPU.
 */
static sq_cpu *slub_free_debug(sq_cpu *cpu, struct slub_cache *cache,
                               struct sq_page *page, void *head, void *tail,
                               uint32_t count)
{
    struct slub_node *node = slub_node_of(cache, page);
    struct slub_word old = {0}, word = {0};
    bool is_freed, discard = false;
    slub_slab_lock(cpu, cache, page);
    cpu = slub_list_lock(cpu, node);
    is_freed = slub_debug_free(cpu, cache, page, head, tail);
    slub_debug_settle(cpu, cache, page);
    if (is_freed) {
        do {
            old = word = slub_load(cpu, page);
            slub_set_next(cpu, cache, tail, slub_head_object(cpu, cache, page, &old));
            word.head = slub_head_of(cpu, cache, page, head);
            word.inuse = old.inuse >= count ? old.inuse - count : 0;
        } while (!slub_update(cpu, cache, page, &old, &word));
        if (slub_free_locks_list(cache, &old, &word))
            discard = slub_free_relist(cpu, cache, node, page, &old, &word);
        else
            discard = !old.is_frozen && word.inuse == 0;
    }
    slub_list_unlock(cpu, node);
    slub_slab_unlock(cpu, cache, page);
    if (is_freed)
        cpu = slub_free_finish(cpu, cache, page, old.is_frozen, false, discard);
    return cpu;
}

/*
 * __slab_free: put `count` objects, chained from `head` to `tail`, on their slab, which
 * is not this CPU's. Requires irqs off to 5.14. A full slab that nobody owns becomes this
 * CPU's partial slab; one that enters or leaves its node's list does so under list_lock,
 * which is taken before the word changes. Returns the CPU.
 */
static sq_cpu *slub_free_slow(sq_cpu *cpu, struct slub_cache *cache,
                              struct sq_page *page, void *head, void *tail,
                              uint32_t count)
{
    SQ_IN_SCOPE(cpu, SLUB_FREE_SLOW);
    struct slub_node *node = slub_node_of(cache, page), *locked = NULL;
    bool to_cpu_partial, discard;
    struct slub_word old, word;
    sq_count(cpu, &cache->base, SLUB_FREE_SLOWPATH);
    if (cache->base.is_debug)
        return slub_free_debug(cpu, cache, page, head, tail, count);
    slub_slab_lock(cpu, cache, page);
    do {
        if (locked != NULL)
            slub_list_unlock(cpu, locked);
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
            cpu = slub_list_lock(cpu, locked);
    } while (!slub_update(cpu, cache, page, &old, &word));
    if (locked != NULL) {
        discard = slub_free_relist(cpu, cache, node, page, &old, &word);
        slub_list_unlock(cpu, locked);
    } else {
        discard = !old.is_frozen && !to_cpu_partial && word.inuse == 0;
    }
    slub_slab_unlock(cpu, cache, page);
    return slub_free_finish(cpu, cache, page, old.is_frozen, to_cpu_partial, discard);
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
                                     int32_t node, bool is_hardened, void **object)
{
    struct slub_cpu *local = slub_cpu_of(cpu, cache);
    uint64_t tid = local->free.second;
    void *first = local->free.first;
    *object = first;
    if (SLUB_LIKELY(first != NULL && slub_node_matches(local->slab, node))) {
        if (SLUB_LIKELY(sq_local_cas_double(cpu, &local->free, first, tid,
                                            is_hardened
                                                ? slub_peek_next(cache, first)
                                                : *slub_free_pointer(cache, first),
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
                                      void *tail, uint32_t counted, bool is_hardened)
{
    struct slub_cpu *local = slub_cpu_of(cpu, cache);
    uint64_t tid = local->free.second;
    void *first = local->free.first;
    if (SLUB_LIKELY(page == local->slab)) {
        if (is_hardened)
            slub_poke_next(cache, tail, first);
        else
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
 * other means than the exchange: interrupts off, or RT's local lock and no fast path at
 * all. */
static SLUB_OUT_OF_LINE void *slub_alloc_guarded(sq_cpu *cpu, struct slub_cache *cache,
                                                 int32_t node, uint32_t flags)
{
    enum slub_try outcome = SLUB_TRY_MISS;
    void *object;
    if (cache->fast_path == SLUB_FAST_HARDENED) {
        while ((outcome = slub_pop(cpu, cache, node, true, &object)) == SLUB_TRY_AGAIN)
            sq_count(cpu, &cache->base, SLUB_CMPXCHG_DOUBLE_CPU_FAIL);
        if (outcome == SLUB_TRY_DONE) {
            sq_touch_read(cpu, object, sizeof(void *));
            return object;
        }
    }
    if (cache->is_narrow)
        return slub_alloc_narrow(cpu, cache, node, flags);
    sq_irq_save(cpu);
    if (cache->fast_path == SLUB_FAST_IRQ)
        outcome = slub_pop(cpu, cache, node, true, &object);
    if (outcome == SLUB_TRY_MISS)
        object = slub_alloc_slow(cpu, cache, node, flags);
    if (cache->drops_cpu_slab)
        slub_cpu_drop(cpu, cache);
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
    while ((outcome = slub_pop(cpu, cache, node, false, &object)) == SLUB_TRY_AGAIN)
        sq_count(cpu, &cache->base, SLUB_CMPXCHG_DOUBLE_CPU_FAIL);
    if (outcome == SLUB_TRY_MISS)
        return slub_alloc_guarded(cpu, cache, node, flags);
    sq_touch_read(cpu, object, sizeof(void *));
    return object;
}

/* A free whose slow part has interrupts on; on RT it has a fast part under the local
 * lock, which changes the free list by hand. */
static sq_cpu *slub_free_narrow(sq_cpu *cpu, struct slub_cache *cache,
                                struct sq_page *page, void *head, void *tail,
                                uint32_t count, uint32_t counted)
{
    if (cache->fast_path == SLUB_FAST_LOCAL_LOCK &&
        slub_free_to_cpu(cpu, cache, page, head, tail)) {
        sq_count_by(cpu, &cache->base, SLUB_FREE_FASTPATH, counted);
        return cpu;
    }
    cpu = slub_free_slow(cpu, cache, page, head, tail, count);
    sq_touch_read(cpu, page, sizeof(*page));
    return cpu;
}

/* As slub_alloc_guarded. */
static SLUB_OUT_OF_LINE sq_cpu *slub_free_guarded(sq_cpu *cpu,
                                                  struct slub_cache *cache,
                                                  struct sq_page *page, void *head,
                                                  void *tail, uint32_t count,
                                                  uint32_t counted)
{
    enum slub_try outcome = SLUB_TRY_MISS;
    if (cache->fast_path == SLUB_FAST_HARDENED) {
        while ((outcome = slub_push(cpu, cache, page, head, tail, counted, true)) ==
               SLUB_TRY_AGAIN)
            sq_count(cpu, &cache->base, SLUB_CMPXCHG_DOUBLE_CPU_FAIL);
        if (outcome == SLUB_TRY_DONE) {
            sq_touch_read(cpu, page, sizeof(*page));
            sq_touch_write(cpu, tail, sizeof(void *));
            return cpu;
        }
    }
    if (cache->is_narrow)
        return slub_free_narrow(cpu, cache, page, head, tail, count, counted);
    sq_irq_save(cpu);
    if (cache->fast_path != SLUB_FAST_CMPXCHG && cache->fast_path != SLUB_FAST_HARDENED)
        outcome = slub_push(cpu, cache, page, head, tail, counted, true);
    if (outcome == SLUB_TRY_MISS)
        (void)slub_free_slow(cpu, cache, page, head, tail, count);
    sq_irq_restore(cpu);
    sq_touch_read(cpu, page, sizeof(*page));
    if (outcome == SLUB_TRY_DONE)
        sq_touch_write(cpu, tail, sizeof(void *));
    return cpu;
}

/* Free `count` objects of one slab, chained from `head` to `tail`; `counted` is what
 * the release adds to its counter for them. Returns the CPU. */
static inline sq_cpu *slub_free_objects(sq_cpu *cpu, struct slub_cache *cache,
                                        struct sq_page *page, void *head, void *tail,
                                        uint32_t count, uint32_t counted)
{
    enum slub_try outcome = SLUB_TRY_MISS;
    if (SLUB_LIKELY(cache->fast_path == SLUB_FAST_CMPXCHG)) {
        while ((outcome = slub_push(cpu, cache, page, head, tail, counted, false)) ==
               SLUB_TRY_AGAIN)
            sq_count(cpu, &cache->base, SLUB_CMPXCHG_DOUBLE_CPU_FAIL);
    }
    if (outcome == SLUB_TRY_MISS)
        return slub_free_guarded(cpu, cache, page, head, tail, count, counted);
    sq_touch_read(cpu, page, sizeof(*page));
    sq_touch_write(cpu, tail, sizeof(void *));
    return cpu;
}

/* kmalloc's debug caches keep the size asked for. */
static inline void slub_kmalloc_note(sq_cpu *cpu, const sq_cache *base, void *object,
                                     size_t size)
{
    const struct slub_cache *cache = (const struct slub_cache *)base;
    if (cache->keeps_orig_size && object != NULL &&
        sq_page_of_address(cpu->machine, object)->state == SQ_PAGE_SLAB)
        slub_note_orig_size(cpu, cache, object, size);
}

/* ---- bulk ---- */

#define SLUB_BULK_LOOKAHEAD                                                            \
    3u /* other slabs' objects looked past, as in the kernel                           \
        */

static void slub_swap(void **a, void **b)
{
    void *kept = *a;
    *a = *b;
    *b = kept;
}

/*
 * Free the last of `count` objects and with it others of the same slab, as far as few
 * objects of other slabs lie between; those are kept, closed up. They are chained from
 * the first to the last, or the other way round. Returns how many are left to free;
 * `*caller` is the CPU.
 */
static size_t slub_free_some(sq_cpu **caller, struct slub_cache *cache, bool last_first,
                             size_t count, void **objects)
{
    sq_cpu *cpu = *caller;
    void *tail = objects[count - 1], *head = tail;
    struct sq_page *page = sq_page_of_address(cpu->machine, tail);
    uint32_t taken = 1, lookahead = SLUB_BULK_LOOKAHEAD;
    size_t left = --count;
    while (count > 0) {
        void *object = objects[--count];
        if (sq_page_of_address(cpu->machine, object) == page) {
            slub_set_next(cpu, cache, last_first ? tail : object,
                          last_first ? object : head);
            *(last_first ? &tail : &head) = object;
            taken++;
            left--;
            if (count != left)
                slub_swap(&objects[count], &objects[left]);
        } else if (--lookahead == 0) {
            break;
        }
    }
    *caller = slub_free_objects(cpu, cache, page, head, tail, taken,
                                SLUB_OPTION(cache, bulk_statistics) != 0 ? taken : 1);
    return left;
}

/* __kmem_cache_free_bulk: what the allocator itself frees in bulk. */
static void slub_put_bulk(sq_cpu *cpu, struct slub_cache *cache, size_t count,
                          void **objects)
{
    while (count > 0)
        count = slub_free_some(&cpu, cache, false, count, objects);
}

/* kmem_cache_free_bulk: releases whose free hook walks each chain hand it on reversed.
 */
static void slub_free_bulk(sq_cpu *cpu, sq_cache *base, size_t count, void **objects)
{
    struct slub_cache *cache = (struct slub_cache *)base;
    bool last_first = SLUB_OPTION(cache, bulk_free_reversed) != 0;
    while (count > 0)
        count = slub_free_some(&cpu, cache, last_first, count, objects);
}

/* One object of a bulk allocation. Requires the guard of the CPU's part, which is let go
 * while a slab is looked for. */
static void *slub_alloc_bulk_one(sq_cpu *cpu, struct slub_cache *cache, uint32_t flags)
{
    struct slub_cpu *local = slub_cpu_of(cpu, cache);
    void *object = local->free.first;
    if (object == NULL && cache->is_narrow) {
        slub_cpu_unlock(cpu, cache);
        object = slub_alloc_narrow(cpu, cache, SQ_NODE_ANY, flags);
        slub_cpu_lock(cpu, cache);
        return object;
    }
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
    struct slub_cache *cache = (struct slub_cache *)base;
    size_t got = 0;
    slub_slow_begin(cpu, cache);
    slub_cpu_lock(cpu, cache);
    while (got < count) {
        objects[got] = slub_alloc_bulk_one(cpu, cache, flags);
        if (objects[got] == NULL)
            break;
        got++;
    }
    if (cache->drops_cpu_slab)
        slub_cpu_drop(cpu, cache);
    slub_cpu_unlock(cpu, cache);
    slub_slow_end(cpu, cache);
    if (got == count)
        return count;
    slub_put_bulk(cpu, cache, got, objects);
    return 0;
}

#endif
