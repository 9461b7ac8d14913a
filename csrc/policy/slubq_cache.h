/*
 * What SLUB+Q keeps: a cache, its queues, its slabs, and the rules its options chose.
 * The picture that goes with it opens slubq.c.
 */
#ifndef SLUBQ_CACHE_H
#define SLUBQ_CACHE_H

#include <string.h>

#include "machine/machine.h"
#include "policy/policy.h"
#include "policy/slub_geometry.h"

#define SLUBQ_WORD_OBJECTS  64u /* up to so many objects the bitmap is one word */
#define SLUBQ_REFILL_UNUSED 16u /* refill of a queue that was not in use lately */
#define SLUBQ_QUEUE_MIN     4   /* what sysfs accepts for cpu_queue_size */
#define SLUBQ_QUEUE_MAX     10000
#define SLUBQ_NODE_HERE     UINT32_MAX /* "no node but this CPU's" */

#define SLUBQ_UNLIKELY(condition) __builtin_expect(!!(condition), 0)

/*
 * The rows of the counters are in V4's order; older postings print theirs in their own
 * (slubq_dump.h). Names are the kernel's.
 */
#define SLUBQ_COUNTERS(X)                                                              \
    X(ALLOC_FASTPATH, "alloc_fastpath", "allocations from the CPU's queue")            \
    X(ALLOC_SHARED, "alloc_shared", "refills from the shared queue")                   \
    X(ALLOC_ALIEN, "alloc_alien", "allocations from an alien queue")                   \
    X(ALLOC_ALIEN_SLOW, "alloc_alien_slow", "of these, after a refill from slabs")     \
    X(ALLOC_DIRECT, "alloc_direct",                                                    \
      "allocations for another node, straight from "                                   \
      "a slab")                                                                        \
    X(ALLOC_SLOWPATH, "alloc_slowpath", "allocations that refilled the queue")         \
    X(FREE_FASTPATH, "free_fastpath", "frees into the CPU's queue")                    \
    X(FREE_SHARED, "free_shared", "frees that moved objects to the shared queue")      \
    X(FREE_ALIEN, "free_alien", "frees of another node's object into its queue")       \
    X(FREE_ALIEN_SLOW, "free_alien_slow", "frees that drained an alien queue")         \
    X(FREE_DIRECT, "free_direct", "frees of another node's object into its slab")      \
    X(FREE_SLOWPATH, "free_slowpath", "frees that drained the queue")                  \
    X(FREE_ADD_PARTIAL, "free_add_partial", "slabs put on a partial list by frees")    \
    X(FREE_REMOVE_PARTIAL, "free_remove_partial", "slabs taken off, being empty")      \
    X(ALLOC_FROM_PARTIAL, "alloc_from_partial", "refills from a partial list")         \
    X(ALLOC_SLAB, "alloc_slab", "slabs made")                                          \
    X(ALLOC_REMOTE, "alloc_remote", "allocations for another node (V3)")               \
    X(FREE_SLAB, "free_slab", "slabs given back")                                      \
    X(QUEUE_FLUSH, "queue_flush", "CPU queues emptied (V1: cpuslab_flush)")            \
    X(ORDER_FALLBACK, "order_fallback", "slabs of the smaller order")

enum slubq_counter {
#define SLUBQ_COUNTER_ENUM(name, text, help) SLUBQ_##name,
    SLUBQ_COUNTERS(SLUBQ_COUNTER_ENUM)
#undef SLUBQ_COUNTER_ENUM
        SLUBQ_COUNTER_COUNT
};

/*
 * A queue of objects, oldest first. A CPU's is changed by that CPU with irqs off;
 * shared and alien queues have a lock. `object` holds `max` pointers.
 */
struct slubq_queue {
    uint32_t objects; /* entries now */
    uint32_t max;     /* full at so many */
    uint32_t batch;   /* entries moved at a time */
    uint16_t touched; /* in use since the last drain or expiry (V4) */
    int16_t node; /* a CPU's: its memory node, in V1 and V2 that of the last explicit
                     request; an alien queue's: the node its objects are of */
    sq_lock lock; /* shared and alien queues */
    struct slubq_group *group; /* a CPU's queue: its shared queue, or NULL */
    void *object[];
};

/*
 * CPUs that share a last-level cache and a node, with what they share: one queue, and
 * one alien queue for each other node. One block of memory, lines apart.
 */
struct slubq_group {
    uint32_t node;
    uint32_t first_cpu;
    uint32_t alien_want; /* objects that an empty alien queue is given at once */
    struct slubq_queue *shared;
    struct slubq_queue *alien[SQ_NODE_MAX]; /* by node; NULL for its own, or if none */
};

/* A node's slabs. `list_lock` guards the list and, without slab locks, the bitmaps. */
struct slubq_node {
    sq_lock list_lock;
    uint32_t touched;       /* under list_lock (V4) */
    struct sq_list partial; /* page->lru of slabs with a free bit; under list_lock */
    sq_atomic nr_partial;   /* changed under list_lock, read without */
    /* -- every slab of the node, for release and introspection; ours -- */
    sq_lock chain_lock;
    uint32_t chain_first; /* page number + 1, or 0; under chain_lock, as are these: */
    uint32_t slab_count;
    uint64_t object_total;
};

/* The owner's words of a page frame. */
struct slubq_slab {
    sq_cache *cache;
    sq_lock lock;  /* slab_lock, where the version has one */
    uint64_t free; /* up to 64 objects the bitmap itself, bit 1 = free; above, how
                      many bits of the bitmap behind the objects are set */
    uint32_t chain_next, chain_prev; /* page number + 1, or 0 */
};
_Static_assert(sizeof(struct slubq_slab) <= sizeof(((struct sq_page *)0)->word),
               "the owner's words of a page frame");

/* The differences between postings, as the options chose them. Constant. */
struct slubq_rules {
    uint8_t version;
    bool foreign_is_apart; /* a foreign object never enters a CPU's queue */
    bool node_is_ignored;  /* an explicit node is not looked at */
    bool has_slab_lock;
    bool discards_at_once;
    bool has_touched;
    bool counts_free_slab, counts_partial_mended;
    bool flushes_all_levels, resize_keeps_aliens, resize_clears_counters;
    bool expire_is_mended;
};

struct slubq_cache {
    sq_cache base; /* must be first */
    /* -- constant but for a resize -- */
    struct sq_percpu queue; /* struct slubq_queue of each CPU */
    struct slubq_rules rule;
    uint32_t queue_size;  /* s->queue: what was asked for */
    uint32_t batch;       /* s->batch */
    uint32_t shared_size; /* s->shared_queue_sysfs */
    uint32_t queue_max;   /* what a CPU's queue really holds */
    uint32_t shared_max, alien_shift, alien_max;
    uint32_t group_count;
    struct slubq_group *group[SQ_CPU_MAX];
    uint16_t group_of_cpu[SQ_CPU_MAX]; /* index into `group`, once there are groups */
    /* -- constant -- */
    uint32_t min_order, min_order_objects;
    uint32_t inuse;         /* bytes of a slot that the object takes, its red zone too */
    uint32_t debug_flags;   /* SLUBQ_DEBUG_FLAGS that it has */
    bool poisons_objects;   /* and not the padding alone */
    uint32_t index_inverse; /* 2^32 / size, rounded up: offset to index */
    struct slubq_node *node[SQ_NODE_MAX];
    /* -- tunables: see slubq_tunable -- */
    uint32_t min_partial;
    uint32_t remote_node_defrag_ratio;
    uint64_t lost_objects;  /* in no place any more: alien objects, after a resize */
    uint64_t expired_bytes; /* by the last expiry (V4) */
};

static inline struct slubq_cache *slubq_cache_of(sq_cache *cache)
{
    return (struct slubq_cache *)(void *)cache;
}

/* A tunable may change while others look at it: read and write it whole. */
static inline uint32_t slubq_tunable(const uint32_t *value)
{
    return __atomic_load_n(value, __ATOMIC_RELAXED);
}

static inline void slubq_tunable_set(uint32_t *value, int64_t new_value)
{
    __atomic_store_n(value, (uint32_t)new_value, __ATOMIC_RELAXED);
}

static inline struct slubq_slab *slubq_slab_of(struct sq_page *page)
{
    return (struct slubq_slab *)(void *)page->word;
}

static inline const struct slubq_slab *slubq_slab_const(const struct sq_page *page)
{
    return (const struct slubq_slab *)(const void *)page->word;
}

static inline struct slubq_queue *slubq_queue_at(const struct slubq_cache *cache,
                                                 uint32_t cpu_index)
{
    return sq_percpu_at(&cache->queue, cpu_index);
}

static inline struct slubq_queue *slubq_queue_of(const sq_cpu *cpu,
                                                 const struct slubq_cache *cache)
{
    return slubq_queue_at(cache, cpu->index);
}

static inline const struct sq_topology *slubq_topology(const struct slubq_cache *cache)
{
    return &cache->base.heap->machine->topology;
}

static inline void slubq_count(sq_cpu *cpu, struct slubq_cache *cache,
                               enum slubq_counter id)
{
    sq_count(cpu, &cache->base, id);
}

static inline uint32_t slubq_pages_flags(uint32_t flags)
{
    return ((flags & SQ_ALLOC_THISNODE) ? SQ_PAGES_THISNODE : 0) |
           ((flags & SQ_ALLOC_NOWAIT) ? SQ_PAGES_NOWAIT : 0);
}

#endif
