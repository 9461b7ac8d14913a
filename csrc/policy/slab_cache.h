/*
 * slab_cache.h -- the structures of the policy `slab`: a cache, its node part, a slab.
 * Included by slab.c, which draws them and says how they are used.
 */
#ifndef SQ_SLAB_CACHE_H
#define SQ_SLAB_CACHE_H

#include "machine/machine.h"
#include "policy/array_cache.h"
#include "policy/policy.h"

#define SLAB_SLOW        __attribute__((noinline)) static /* keeps the hits small */
#define BUFCTL_END       0xffffffffu
#define BUFCTL_BYTES     4u
#define DESCRIPTOR_BYTES 48u
#define SLAB_DEBUG_FLAGS (SQ_CACHE_RED_ZONE | SQ_CACHE_POISON | SQ_CACHE_STORE_USER)
#define SLAB_DEBUG_LIMIT 32u /* objects of a CPU's array of a debug cache */

/* Counted by each CPU; the kernel's STATS of the same names. */
#define SLAB_COUNTERS(X)                                                               \
    X(NUM_ALLOCATIONS, "num_allocations", "objects moved from slabs to CPU arrays")    \
    X(GROWN, "grown", "slabs added")                                                   \
    X(REAPED, "reaped", "slabs given back by the periodic reaper")                     \
    X(NODE_ALLOCS, "node_allocs", "objects taken from a node without a CPU array")     \
    X(NODE_FREES, "node_frees", "frees of another node's objects")                     \
    X(NODE_OVERFLOW, "node_overflow", "times an alien array was full")                 \
    X(ALLOCHIT, "allochit", "allocations served by the CPU array")                     \
    X(ALLOCMISS, "allocmiss", "allocations that had to refill it")                     \
    X(FREEHIT, "freehit", "frees that found room in the CPU array")                    \
    X(FREEMISS, "freemiss", "frees that had to flush it")

enum slab_counter {
#define SLAB_COUNTER_ENUM(id, name, help) SLAB_##id,
    SLAB_COUNTERS(SLAB_COUNTER_ENUM)
#undef SLAB_COUNTER_ENUM
        SLAB_COUNTER_COUNT
};

/*
 * What describes one slab. Classic management keeps it in memory of its own, in front
 * of the first object or in a kmalloc object, followed by the bufctl entries. Later it
 * *is* the part of the page frame that is the owner's, whose last word is the cache.
 */
struct slab {
    struct sq_list list;  /* full, partial or free list of its node */
    char *first_object;   /* constant (kernel: s_mem) */
    uint8_t *index_stack; /* later: the free indexes; NULL while no object is free */
    uint32_t inuse;       /* objects not free (kernel, later: active) */
    uint32_t free;        /* classic: index of the first free object, or BUFCTL_END */
    uint64_t node;        /* classic: constant; later: the page's cache pointer */
};
_Static_assert(sizeof(struct slab) == DESCRIPTOR_BYTES, "as large as the kernel's");
_Static_assert(offsetof(struct sq_page, word[3]) - offsetof(struct sq_page, lru) ==
                   offsetof(struct slab, node),
               "the descriptor in the frame ends where the cache pointer stands");

/* Where the management data of a slab lies. */
enum slab_placement {
    SLAB_ON,  /* in the slab's own pages */
    SLAB_OFF, /* in an object of `management_cache` */
    SLAB_OBJ, /* later: in the slab's last free object */
};

struct slab_geometry {
    uint32_t size, align, order;
    uint32_t object_count;
    uint32_t colour_count, colour_step;
    uint32_t
        management_bytes; /* of one slab (kernel: slab_size, later freelist_size) */
    enum slab_placement placement;
    sq_cache *management_cache; /* SLAB_OFF only */
    uint32_t debug_flags;       /* SLAB_DEBUG_FLAGS that such a cache has */
    uint32_t object_offset;     /* of the object in its slot, see slab_object.h */
};

/* What /proc/slabinfo can change. */
struct slab_tunables {
    uint32_t limit, batchcount, shared;
};

/* The node part of a cache (kernel: kmem_list3, later kmem_cache_node), on that node.
 */
struct slab_node {
    uint32_t index; /* constant */
    /* -- list_lock -- */
    sq_lock list_lock;
    struct sq_list partial, full, free;
    uint64_t total_slabs, free_slabs;
    uint64_t free_limit;        /* free objects allowed to stay */
    struct array_cache *shared; /* NULL without one */
    /* -- changed under list_lock, also read without it -- */
    uint32_t free_touched;  /* the free list was looked at since the reaper came */
    sq_atomic free_objects; /* in the free chains of all slabs */
    sq_atomic colour_next;  /* later: changed without the lock too */
    /* -- each has its own lock -- */
    struct alien_cache *alien[SQ_NODE_MAX]; /* constant; NULL: none for that node */
};

struct slab_cache {
    sq_cache base; /* must be first */
    /* -- constant -- */
    struct slab_geometry geometry;
    uint32_t reciprocal; /* of the size, see slab_index_of */
    bool has_nodes;      /* more than one node: a free asks whose object it is */
    bool frees_plainly;  /* neither that nor debugging: a free asks nothing */
    bool has_aliens;
    /* rules of the release, see slab_options.h */
    bool is_classic;   /* not freelist_index_stack */
    bool grows_filled; /* cache_grow_begin */
    bool checks_lockless, marks_shared, destroys_after_batch, sets_free_limit_first;
    uint32_t batchrefill_limit, alien_limit;
    struct slab_node *node[SQ_NODE_MAX];
    /* -- each part only the CPU itself; replaced while running as that CPU -- */
    struct sq_percpu arrays;       /* struct array_cache */
    uint8_t reap_node[SQ_CPU_MAX]; /* whose alien array the CPU's next pass drains */
    /* -- control plane -- */
    struct slab_tunables tunables;
    uint8_t *random_order; /* constant: of a new slab's objects; NULL: ascending */
    uint64_t *check_bits; /* one an object of a slab, for slab_check */
    bool holds_management; /* objects of it describe slabs of other caches */
    /* -- statistics of all CPUs, relaxed -- */
    uint64_t num_active, high_mark, max_freeable;
};

static inline struct slab_cache *slab_cache_of(sq_cache *base)
{
    return (struct slab_cache *)base;
}

static inline const sq_machine *slab_machine(const struct slab_cache *cache)
{
    return cache->base.heap->machine;
}

static inline struct array_cache *slab_array_of(const struct slab_cache *cache,
                                                uint32_t cpu_index)
{
    return sq_percpu_at(&cache->arrays, cpu_index);
}

static inline uint64_t node_free_objects(sq_cpu *cpu, const struct slab_node *node)
{
    return sq_load_relaxed(cpu, &node->free_objects);
}

/* Requires the list lock. `change` may be negative. */
static inline void node_add_free_objects(sq_cpu *cpu, struct slab_node *node,
                                         int64_t change)
{
    sq_lock_assert_held(cpu, &node->list_lock);
    sq_store_relaxed(cpu, &node->free_objects,
                     node_free_objects(cpu, node) + (uint64_t)change);
}

static inline void node_set_free_touched(struct slab_node *node, uint32_t touched)
{
    __atomic_store_n(&node->free_touched, touched, __ATOMIC_RELAXED);
}

/*
 * num_active and its high-water mark after `count` objects left the free chains one by
 * one. Both are unsigned in the kernel, and some objects are counted only when they
 * come back, so num_active may pass below 0 and the mark then stands at the largest
 * number.
 */
static inline void stat_add_active(struct slab_cache *cache, uint64_t count)
{
    uint64_t now, high, mark;
    if (count == 0)
        return;
    now = __atomic_add_fetch(&cache->num_active, count, __ATOMIC_RELAXED);
    high = now < count - 1 ? UINT64_MAX : now;
    mark = __atomic_load_n(&cache->high_mark, __ATOMIC_RELAXED);
    while (high > mark &&
           !__atomic_compare_exchange_n(&cache->high_mark, &mark, high, true,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

static inline void stat_sub_active(struct slab_cache *cache, uint64_t count)
{
    (void)__atomic_sub_fetch(&cache->num_active, count, __ATOMIC_RELAXED);
}

/* The largest number of free slabs any flush has seen. */
static inline void stat_set_freeable(struct slab_cache *cache, uint64_t free_slabs)
{
    uint64_t seen = __atomic_load_n(&cache->max_freeable, __ATOMIC_RELAXED);
    while (free_slabs > seen &&
           !__atomic_compare_exchange_n(&cache->max_freeable, &seen, free_slabs, true,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

#endif
