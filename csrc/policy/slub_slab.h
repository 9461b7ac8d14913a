/*
 * The slab of SLUB and what is kept of it: the word that changes as one, the list of
 * free objects, the page frame seen as a slab, and the structs of CPU, node and cache.
 *
 *   bits of the word    0..15 head: index of the first free object + 1, 0 for none
 *                      16..31 inuse: objects handed out or on a CPU's free list
 *                      32..47 objects the slab has          48 frozen: a CPU owns it
 *
 * The kernel changes (freelist pointer, counters) with a 16-byte exchange; here the
 * pointer is an index, so that the pair fits in 8 bytes. The pointers from one free
 * object to the next are real and lie inside the objects, where the release has them.
 */
#ifndef SLUB_SLAB_H
#define SLUB_SLAB_H

#include "machine/machine.h"
#include "policy/policy.h"
#include "policy/slub_counters.h"
#include "policy/slub_geometry.h"

/* How list_lock is taken; see slub_lock.h. */
enum slub_list_lock_kind {
    SLUB_LIST_SPIN = 0, /* interrupts are off already */
    SLUB_LIST_IRQ,      /* and turned off with it */
    SLUB_LIST_SLEEPS,   /* list_mutex in its place */
};

/* One node's part of a cache, in that node's memory. */
struct slub_node {
    sq_lock list_lock;
    sq_atomic partial_count; /* of `partial`; changed under list_lock, read without */
    struct sq_list partial;  /* sq_page.lru; under list_lock */
    struct sq_list full;     /* caches with SLAB_STORE_USER only; under list_lock */
    /* -- ours: every slab of the node can be found -- */
    sq_lock all_lock;
    uint32_t all_first; /* frame number + 1 of the newest slab, 0 for none */
    uint32_t list_lock_kind; /* constant */
    uint64_t slab_count, object_total;
    /* -- SLUB_LIST_SLEEPS only: else there is no memory for it -- */
    struct sq_rt_mutex list_mutex;
};

/* One CPU's part, in its node's memory; only ever changed by the CPU itself. */
struct slub_cpu {
    struct sq_local_pair free; /* first object of its free list, transaction id */
    struct sq_page *slab;      /* the objects of `free` are this slab's */
    struct sq_page *partial;   /* first of its partial slabs; see slub_chain */
    struct sq_rt_mutex lock;   /* SLUB_FAST_LOCAL_LOCK only: else it has no memory */
};

struct slub_cache {
    sq_cache base; /* must be first */
    /* -- constant: fast paths -- */
    uint32_t fp_offset; /* of the free pointer in an object */
    uint32_t fast_path; /* enum slub_fast_path */
    uint64_t tid_step;  /* ids of different CPUs never meet */
    struct sq_percpu percpu;
    /* -- constant: slow paths -- */
    struct slub_node *node[SQ_NODE_MAX];
    uint64_t reciprocal; /* of the slot size; see slub_index_of */
    uint32_t red_left_pad, inuse;
    uint32_t align_asked;
    uint32_t min_order, min_order_objects;
    bool keeps_full_list; /* SLAB_STORE_USER */
    bool has_cpu_partial;
    bool falls_back_to_pages;
    bool drops_cpu_slab; /* a CPU's slab goes back when the call ends: sheaves only */
    bool is_narrow;      /* the option irq_scope */
    bool list_lock_sleeps;
    /* -- constant: debugging, see slub_debug.h -- */
    bool is_hardened;       /* free pointers are stored disguised */
    bool swaps_key;         /* by the byte-swapped address */
    bool poisons_objects;   /* the object itself, not the padding alone */
    bool keeps_orig_size;   /* kmalloc: bytes asked for, after the tracks */
    uint32_t debug_flags;   /* SQ_CACHE_*, those that count */
    uint32_t track_bytes;   /* of one of the two tracks, 0 for none */
    uint32_t info_end;      /* of object, red zone and free pointer: tracks follow */
    uint64_t hardened_key;
    uint32_t *random_order; /* of the objects of a new slab; NULL: ascending */
    /* -- tunables: see slub_tunable -- */
    uint32_t min_partial, cpu_partial, cpu_partial_slabs, remote_node_defrag_ratio;
    /* -- ours: sheaves that callers hold can be found -- */
    sq_lock held_lock;
    struct sq_list held; /* sq_sheaf.link, oldest first */
};

/* Which options these are: a policy on top of SLUB has them among its own. */
#ifndef SLUB_OPTIONS_OF
#define SLUB_OPTIONS_OF(options) ((options)->slub)
#endif
#define SLUB_HEAP_OPTION(heap, name) (SLUB_OPTIONS_OF(&(heap)->options).name)
#define SLUB_OPTION(cache, name)     SLUB_HEAP_OPTION((cache)->base.heap, name)

/* The 32 bytes of a page frame that are its owner's. */
struct slub_slab {
    sq_atomic word;
    struct slub_cache *cache;
    uint32_t all_next, all_prev; /* frame numbers + 1; under the node's all_lock */
    sq_lock lock;                /* releases without exchange of the word only */
};
_Static_assert(sizeof(struct slub_slab) <= sizeof(((struct sq_page *)0)->word),
               "a slab fits in the words of its page frame");

/* sq_page.lru while the slab is on a CPU's partial list (the kernel's slab->next). */
struct slub_chain {
    struct sq_page *next;
    uint32_t slab_count;   /* from here to the end of the list */
    uint32_t object_count; /* free objects of them when they were put there */
};
_Static_assert(sizeof(struct slub_chain) <= sizeof(struct sq_list), "they share lru");

/* sq_page.policy_flags; under the list_lock of the slab's node. */
enum {
    SLUB_PAGE_ON_LIST = 1u << 0, /* on the node's partial list */
    SLUB_PAGE_SEEN = 1u << 1,    /* mark of check() */
};

/* The word, taken apart. */
struct slub_word {
    uint32_t head, inuse, objects;
    bool is_frozen;
};

static inline uint64_t slub_pack(const struct slub_word *word)
{
    return (uint64_t)word->head | (uint64_t)word->inuse << 16 |
           (uint64_t)word->objects << 32 | (uint64_t)word->is_frozen << 48;
}

static inline struct slub_word slub_unpack(uint64_t packed)
{
    struct slub_word word = {
        .head = (uint32_t)(packed & 0xffff),
        .inuse = (uint32_t)(packed >> 16 & 0xffff),
        .objects = (uint32_t)(packed >> 32 & 0xffff),
        .is_frozen = (packed >> 48 & 1) != 0,
    };
    return word;
}

static inline struct slub_slab *slub_slab_of(const struct sq_page *page)
{
    return (struct slub_slab *)(void *)page->word;
}

static inline struct slub_chain *slub_chain_of(const struct sq_page *page)
{
    return (struct slub_chain *)(void *)&page->lru;
}

static inline struct sq_page *slub_page_of_link(const struct sq_list *link)
{
    return SQ_LIST_ENTRY(link, struct sq_page, lru);
}

static inline struct slub_cpu *slub_cpu_of(const sq_cpu *cpu,
                                           const struct slub_cache *cache)
{
    return sq_percpu_at(&cache->percpu, cpu->index);
}

static inline sq_cache *slub_cache_of_page(const struct sq_page *page)
{
    return &slub_slab_of(page)->cache->base;
}

/* Tunables change while other CPUs allocate; nothing depends on when they notice. */
static inline uint32_t slub_tunable(const uint32_t *tunable)
{
    return __atomic_load_n(tunable, __ATOMIC_RELAXED);
}

static inline struct slub_word slub_load(sq_cpu *cpu, const struct sq_page *page)
{
    return slub_unpack(sq_load_acquire(cpu, &slub_slab_of(page)->word));
}

/* ---- slab_lock, for releases that have no exchange of the word ---- */

static inline bool slub_uses_slab_lock(const struct slub_cache *cache)
{
    return SLUB_OPTION(cache, slab_cmpxchg) == 0;
}

static inline void slub_slab_lock(sq_cpu *cpu, struct slub_cache *cache,
                                  struct sq_page *page)
{
    if (slub_uses_slab_lock(cache))
        sq_lock_acquire(cpu, &slub_slab_of(page)->lock);
}

static inline bool slub_slab_try_lock(sq_cpu *cpu, struct slub_cache *cache,
                                      struct sq_page *page)
{
    return !slub_uses_slab_lock(cache) || sq_lock_try(cpu, &slub_slab_of(page)->lock);
}

static inline void slub_slab_unlock(sq_cpu *cpu, struct slub_cache *cache,
                                    struct sq_page *page)
{
    if (slub_uses_slab_lock(cache))
        sq_lock_release(cpu, &slub_slab_of(page)->lock);
}

/*
 * Change the word from `before` to `after`; false if it is not `before` any more. Under
 * slab_lock nobody else changes it and a store does.
 */
static inline bool slub_update(sq_cpu *cpu, struct slub_cache *cache,
                               struct sq_page *page, const struct slub_word *before,
                               const struct slub_word *after)
{
    struct slub_slab *slab = slub_slab_of(page);
    SQ_ASSERT_INTERNAL(after->inuse <= after->objects && after->head <= after->objects);
    if (slub_uses_slab_lock(cache)) {
        sq_lock_assert_held(cpu, &slab->lock);
        sq_store_release(cpu, &slab->word, slub_pack(after));
        return true;
    }
    if (sq_cas_double(cpu, &slab->word, slub_pack(before), slub_pack(after)))
        return true;
    sq_count(cpu, &cache->base, SLUB_CMPXCHG_DOUBLE_FAIL);
    return false;
}

/* ---- objects and the free pointers between them ---- */

static inline void *slub_object_at(const sq_machine *machine,
                                   const struct slub_cache *cache,
                                   const struct sq_page *page, uint32_t index)
{
    return sq_page_address(machine, page) + cache->red_left_pad +
           (uint64_t)index * cache->base.size;
}

/* Index of an object of this slab. Exact for the start of an object, since slabs are at
 * most 2^22 bytes and `reciprocal` is 2^32 / size rounded up. */
static inline uint32_t slub_index_of(const sq_machine *machine,
                                     const struct slub_cache *cache,
                                     const struct sq_page *page, const void *object)
{
    uint64_t offset =
        (uint64_t)((const char *)object - sq_page_address(machine, page)) -
        cache->red_left_pad;
    return (uint32_t)(offset * cache->reciprocal >> 32);
}

static inline void **slub_free_pointer(const struct slub_cache *cache, void *object)
{
    return (void **)(void *)((char *)object + cache->fp_offset);
}

/* CONFIG_SLAB_FREELIST_HARDENED: a free pointer as it is stored, from what it is, and the
 * other way round, which is the same. */
static inline void *slub_disguise(const struct slub_cache *cache, void *const *slot,
                                  void *pointer)
{
    uint64_t key = (uint64_t)(uintptr_t)slot;
    if (cache->swaps_key)
        key = __builtin_bswap64(key);
    return (void *)(uintptr_t)((uint64_t)(uintptr_t)pointer ^ cache->hardened_key ^ key);
}

/* The free pointer of a free object; charges nothing. */
static inline void *slub_peek_next(const struct slub_cache *cache, void *object)
{
    void **slot = slub_free_pointer(cache, object);
    return cache->is_hardened ? slub_disguise(cache, slot, *slot) : *slot;
}

static inline void slub_poke_next(const struct slub_cache *cache, void *object,
                                  void *next)
{
    void **slot = slub_free_pointer(cache, object);
    *slot = cache->is_hardened ? slub_disguise(cache, slot, next) : next;
}

static inline void *slub_next(sq_cpu *cpu, const struct slub_cache *cache, void *object)
{
    sq_touch_read(cpu, object, sizeof(void *));
    return slub_peek_next(cache, object);
}

static inline void slub_set_next(sq_cpu *cpu, const struct slub_cache *cache,
                                 void *object, void *next)
{
    sq_touch_write(cpu, object, sizeof(void *));
    slub_poke_next(cache, object, next);
}

/* Index of `object` in the slab, or `objects` if it is not the start of a slot. */
static uint32_t slub_index_checked(const sq_machine *machine,
                                   const struct slub_cache *cache,
                                   const struct sq_page *page, uint32_t objects,
                                   const void *object)
{
    uint64_t first = (uint64_t)(uintptr_t)slub_object_at(machine, cache, page, 0);
    uint64_t offset = (uint64_t)(uintptr_t)object - first;
    if (offset >= (uint64_t)objects * cache->base.size ||
        offset % cache->base.size != 0)
        return objects;
    return (uint32_t)(offset / cache->base.size);
}

/* First free object of a slab whose word is `word`, or NULL. */
static inline void *slub_head_object(sq_cpu *cpu, const struct slub_cache *cache,
                                     const struct sq_page *page,
                                     const struct slub_word *word)
{
    return word->head == 0 ? NULL
                           : slub_object_at(cpu->machine, cache, page, word->head - 1);
}

static inline uint32_t slub_head_of(sq_cpu *cpu, const struct slub_cache *cache,
                                    const struct sq_page *page, const void *object)
{
    return object == NULL ? 0 : slub_index_of(cpu->machine, cache, page, object) + 1;
}

#endif
