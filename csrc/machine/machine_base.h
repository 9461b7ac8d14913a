/*
 * What every machine has, whichever engine runs it: CPUs, nodes, pages, lock classes.
 *
 * `struct sq_machine` and `sq_cpu` begin each engine's own, larger structs. Everything
 * here is set up when the machine is made and constant afterwards, unless a comment says
 * who may change it. Policies see these names through machine.h.
 */
#ifndef SQ_MACHINE_BASE_H
#define SQ_MACHINE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sq_bits.h"
#include "base/sq_error.h"
#include "base/sq_list.h"
#include "base/sq_rng.h"
#include "machine/topology.h"

#define SQ_PAGE_SHIFT    12u
#define SQ_PAGE_SIZE     (1u << SQ_PAGE_SHIFT)
#define SQ_PAGE_ORDER_MAX 10u /* the largest block of the page allocator is 4 MiB */
#define SQ_LINE_SIZE     64u
#define SQ_NODE_ANY      (-1) /* "no node asked for" */

/*
 * A lock class is what kind of lock it is: its name in results, and its rank. A CPU takes
 * locks in the order of this list (try-lock is free of it); checked from assertion level
 * 2 on.
 */
#define SQ_LOCK_CLASSES(X)                                                             \
    X(MUTEX, "slab_mutex")     /* the list of caches, resizing */                      \
    X(WORKLOAD, "workload")    /* locks of the emulated subsystems: sockets, pipes */  \
    X(ALIEN, "alien_lock")     /* SLAB and SLUB+Q V3, V4: alien queues */              \
    X(SHARED, "shared_lock")   /* SLUB+Q V3, V4: shared queues */                      \
    X(BARN, "barn_lock")       /* sheaves */                                           \
    X(SLAB, "slab_lock")       /* one slab */                                          \
    X(LIST, "list_lock")       /* one node's slab lists */                             \
    X(LIST_NESTED, "list_lock_nested") /* a list_lock taken under another cache's */   \
    X(LOCAL, "local_lock")     /* a CPU's part of a cache, with PREEMPT_RT */          \
    X(BOOK, "book_lock")       /* slabq's own records, which no kernel keeps: free */   \
    X(META, "meta_lock")       /* memory for the allocator's own structures */         \
    X(PCP, "pcp_lock")         /* per-CPU page lists */                                \
    X(ZONE, "zone_lock")       /* one node's free pages */                             \
    X(WAIT, "wait_lock")       /* wait queues of the scheduler */                      \
    X(RUN, "runqueue_lock")    /* run queues of the scheduler */

enum sq_lock_class {
#define SQ_LOCK_CLASS_ENUM(name, text) SQ_LOCK_##name,
    SQ_LOCK_CLASSES(SQ_LOCK_CLASS_ENUM)
#undef SQ_LOCK_CLASS_ENUM
        SQ_LOCK_CLASS_COUNT
};

extern const char *const sq_lock_class_name[SQ_LOCK_CLASS_COUNT];

/*
 * A scope is a path: its name in a profile (the kernel's function where there is one), the
 * cycles of its own instructions, beside the lines, locks, atomics and interrupt switches
 * that the primitives charge, and where that figure is from. The cycles are defaults of
 * the simulated machine's parameters <name>_cycles.
 *
 * "A1" is Lameter's table of 28 Oct 2007: cycles of kmalloc and kfree, one thread, two
 * E5345; "pair" its test of kmalloc and kfree in turn, "columns" those of 10000 objects.
 * What was fitted on it reproduces it; nothing was fitted on a table of contention.
 */
#define SQ_SCOPES(X)                                                                   \
    X(WORKLOAD, workload, "workload", 0, "what no other scope covers")                 \
    X(LOCK_WAIT, lock_wait, "lock_wait", 0, "waiting only")                            \
    X(IRQ_WAIT, irq_wait, "smp_call_function", 0, "waiting only")                      \
    X(SYSCALL, syscall, "system_call", 0, "parameter syscall_ns of a run")             \
    X(COPY, copy, "copy_user", 0, "lines only")                                        \
    X(SCHEDULE, schedule, "schedule", 0, "parameter schedule_ps")                      \
    X(WAKE, wake, "try_to_wake_up", 0, "parameter wakeup_ps")                          \
    X(PAGE_ALLOC, page_alloc, "get_page_from_freelist", 150,                           \
      "fitted on A1, SLUB at 4096: 342")                                               \
    X(PAGE_FREE, page_free, "free_hot_cold_page", 250,                                 \
      "fitted on A1, SLUB at 4096: 342")                                               \
    X(SLAB_ALLOC, slab_alloc, "kmem_cache_alloc", 18, "fitted on A1, pair: 140")       \
    X(SLAB_REFILL, slab_refill, "cache_alloc_refill", 60, "estimate")                  \
    X(SLAB_GET, slab_get, "slab_get_obj", 12, "estimate; A1, columns agree")           \
    X(SLAB_GROW, slab_grow, "cache_grow", 600, "fitted on A1, columns of 256 to 2048") \
    X(SLAB_FREE, slab_free, "kmem_cache_free", 21, "fitted on A1, pair: 140")          \
    X(SLAB_FLUSH, slab_flush, "cache_flusharray", 60, "estimate")                      \
    X(SLAB_PUT, slab_put, "free_block", 25, "estimate; A1, columns agree")             \
    X(SLAB_DESTROY, slab_destroy, "slab_destroy", 400,                                 \
      "fitted on A1, columns of 256 to 2048")                                          \
    X(SLAB_ALIEN, slab_alien, "cache_free_alien", 20, "estimate")                      \
    X(SLUB_ALLOC, slub_alloc, "kmem_cache_alloc", 15, "fitted on A1, pair: 151")       \
    X(SLUB_ALLOC_SLOW, slub_alloc_slow, "__slab_alloc", 60, "estimate")                \
    X(SLUB_PARTIAL, slub_partial, "get_partial_node", 30, "estimate")                  \
    X(SLUB_NEW, slub_new, "new_slab", 400, "fitted on A1, columns of 256 to 1024")     \
    X(SLUB_FREE, slub_free, "kmem_cache_free", 16, "fitted on A1, pair: 151")          \
    X(SLUB_FREE_SLOW, slub_free_slow, "__slab_free", 40,                               \
      "estimate; A1, columns agree")                                                   \
    X(SLUB_DEACTIVATE, slub_deactivate, "deactivate_slab", 40, "estimate")             \
    X(SLUB_UNFREEZE, slub_unfreeze, "unfreeze_partials", 40, "estimate")               \
    X(SLUB_DISCARD, slub_discard, "discard_slab", 250,                                 \
      "fitted on A1, columns of 256 to 1024")                                          \
    X(SLUBQ_ALLOC, slubq_alloc, "slab_alloc", 18, "estimate: as SLAB's")               \
    X(SLUBQ_REFILL, slubq_refill, "refill_queue", 60, "estimate: as SLAB's")           \
    X(SLUBQ_GET, slubq_get, "retrieve_objects", 10,                                    \
      "estimate: a bit found, an address")                                             \
    X(SLUBQ_PARTIAL, slubq_partial, "get_partial_node", 30, "estimate: as SLUB's")     \
    X(SLUBQ_NEW, slubq_new, "new_slab", 400, "estimate: as SLUB's")                    \
    X(SLUBQ_FREE, slubq_free, "slab_free", 21, "estimate: as SLAB's")                  \
    X(SLUBQ_DRAIN, slubq_drain, "drain_queue", 60, "estimate: as SLAB's")              \
    X(SLUBQ_PUT, slubq_put, "drain_objects", 20, "estimate: a division, a bit set")    \
    X(SLUBQ_DISCARD, slubq_discard, "discard_slab", 250, "estimate: as SLUB's")        \
    X(SHEAF_ALLOC, sheaf_alloc, "alloc_from_pcs", 0, "in kmem_cache_alloc's")          \
    X(SHEAF_ALLOC_BULK, sheaf_alloc_bulk, "alloc_from_pcs_bulk", 0, "not estimated")   \
    X(SHEAF_REPLACE_EMPTY, sheaf_replace_empty, "__pcs_replace_empty_main", 0,         \
      "not estimated")                                                                 \
    X(SHEAF_REFILL, sheaf_refill, "refill_sheaf", 0, "not estimated")                  \
    X(SHEAF_FREE, sheaf_free, "free_to_pcs", 0, "in kmem_cache_free's")                \
    X(SHEAF_FREE_BULK, sheaf_free_bulk, "free_to_pcs_bulk", 0, "not estimated")        \
    X(SHEAF_REPLACE_FULL, sheaf_replace_full, "__pcs_replace_full_main", 0,            \
      "not estimated")                                                                 \
    X(SHEAF_FLUSH, sheaf_flush, "sheaf_flush_unused", 0, "not estimated")              \
    X(SHEAF_FLUSH_MAIN, sheaf_flush_main, "sheaf_flush_main", 0, "not estimated")      \
    X(BARN_GET_EMPTY, barn_get_empty, "barn_get_empty_sheaf", 0, "not estimated")      \
    X(BARN_PUT_EMPTY, barn_put_empty, "barn_put_empty_sheaf", 0, "not estimated")      \
    X(BARN_PUT_FULL, barn_put_full, "barn_put_full_sheaf", 0, "not estimated")         \
    X(BARN_REPLACE_EMPTY, barn_replace_empty, "barn_replace_empty_sheaf", 0,           \
      "not estimated")                                                                 \
    X(BARN_REPLACE_FULL, barn_replace_full, "barn_replace_full_sheaf", 0,              \
      "not estimated")

enum sq_scope {
#define SQ_SCOPE_ENUM(name, parameter, text, cycles, source) SQ_SCOPE_##name,
    SQ_SCOPES(SQ_SCOPE_ENUM)
#undef SQ_SCOPE_ENUM
        SQ_SCOPE_COUNT
};

extern const char *const sq_scope_name[SQ_SCOPE_COUNT];

/* Counted by each CPU for itself; a sum over CPUs is a figure of the run. */
struct sq_lock_stats {
    uint64_t acquisitions; /* successful, try-lock included */
    uint64_t contended;    /* acquisitions that had to wait */
    uint64_t wait_ns;
};

/*
 * Where a line was that a core's first-level cache did not have, X(name, text). The last
 * is of lines in the core's own caches: a store waited for others to give up copies.
 */
#define SQ_LINE_KINDS(X)                                                               \
    X(CACHE, "cache")                 /* the core's second level or its last level */  \
    X(CORE, "core")                   /* changed by a core behind the same cache */    \
    X(OTHER_CACHE, "other_cache")     /* changed behind another cache of the node */   \
    X(OTHER_NODE, "other_node")       /* changed behind a cache of another node */     \
    X(MEMORY, "memory")               /* the memory of the CPU's node */               \
    X(REMOTE_MEMORY, "remote_memory") /* the memory of another node */                 \
    X(UPGRADE, "upgrade")

enum sq_line_kind {
#define SQ_LINE_KIND_ENUM(name, text) SQ_LINE_##name,
    SQ_LINE_KINDS(SQ_LINE_KIND_ENUM)
#undef SQ_LINE_KIND_ENUM
        SQ_LINE_KIND_COUNT
};

/* What one scope fetched of one kind; the time includes waiting behind other lines. */
struct sq_line_stats {
    uint64_t count, ps;
};

/*
 * A page frame: one cache line, as the kernel's struct page. Only the head of a block of
 * 2^order pages is used; `head_offset` leads there from any page of the block.
 *
 *   free block   on its zone's list through `lru`
 *   allocated    `lru` and `word` belong to the owner, cleared when it gets the block
 */
enum sq_page_state {
    SQ_PAGE_FREE = 0, /* in a zone (or never touched) */
    SQ_PAGE_PCP,      /* on a per-CPU page list */
    SQ_PAGE_BLOCK,    /* allocated: owner is not a slab cache (kmalloc pass-through) */
    SQ_PAGE_SLAB,     /* allocated: `word` is a policy's; set by the policy */
    SQ_PAGE_META,     /* allocated: slabq's own structures */
    SQ_PAGE_TAIL,     /* not the first page of its block */
};

struct sq_page {
    uint8_t state; /* enum sq_page_state */
    uint8_t order;
    uint8_t node;
    uint8_t policy_flags; /* the owner's */
    uint32_t head_offset; /* pages back to the head; 0 in the head */
    struct sq_list lru;
    uint64_t word[4];  /* the owner's: 32 bytes */
    uint32_t serial;   /* n-th slab of its cache; the cache layer's */
    uint32_t buddy;    /* the zone's: k + 1 in the head of a free block of order k */
};
_Static_assert(sizeof(struct sq_page) == SQ_LINE_SIZE, "one page frame, one line");

/* Flags of sq_pages_alloc. */
enum {
    SQ_PAGES_THISNODE = 1u << 0, /* no fallback to other nodes */
    SQ_PAGES_NOWAIT = 1u << 1,   /* do not collect other CPUs' page lists first */
};

typedef struct sq_machine sq_machine;
typedef struct sq_cpu sq_cpu;
struct sq_task;

/* How a task begins, for those who need no more of it: the CPU that it is. */
struct sq_task_head {
    sq_cpu *cpu;
};

static inline sq_cpu *sq_cpu_of_task(const struct sq_task *task)
{
    return ((const struct sq_task_head *)(const void *)task)->cpu;
}

#define SQ_MUTEX_HELD_MAX 7u

/* What a task keeps when it leaves its CPU in the middle of a call. */
struct sq_task_context {
    uint32_t migrate_depth; /* sq_migrate_disable without its enable */
    uint8_t mutex_count;    /* sleeping locks held, by class in the order taken */
    uint8_t mutex_class[SQ_MUTEX_HELD_MAX];
};

struct sq_cpu {
    /* -- constant -- */
    sq_machine *machine;
    uint32_t index;
    uint32_t node;
    const uint32_t *remote_delay_loops; /* by node; NULL: distance costs no time */
    /* -- only the thread that is this CPU -- */
    struct sq_task *task; /* running now, or NULL */
    uint32_t irq_depth;   /* sq_irq_save without its restore */
    uint32_t held_count;  /* locks held; kept from assertion level 2 on */
    uint8_t held_class[12];
    uint32_t preempt_depth; /* sq_preempt_disable without its enable; simulated only */
    uint32_t mutex_count;   /* sleeping locks that tasks of this CPU hold */
    struct sq_task_context context; /* of `task` */
    struct sq_rng rng;
    struct sq_lock_stats lock_stats[SQ_LOCK_CLASS_COUNT];
};

struct sq_pages; /* pages.h */

/* The control plane of an engine, for code that is compiled once for all engines. */
struct sq_machine_ops {
    /* Become CPU `index`: waits while another thread is it. Every call into a policy is
     * made by a thread that is a CPU. */
    sq_cpu *(*cpu_enter)(sq_machine *machine, uint32_t index);
    void (*cpu_leave)(sq_cpu *cpu);
    /* The CPU's struct without becoming it: for reading counters at a quiet moment. */
    sq_cpu *(*cpu_at)(sq_machine *machine, uint32_t index);
    struct sq_page *(*pages_alloc)(sq_cpu *cpu, uint32_t order, int32_t node,
                                   uint32_t flags);
    void (*pages_free)(sq_cpu *cpu, struct sq_page *page);
    void *(*meta_alloc)(sq_cpu *cpu, size_t bytes, uint32_t node);
    void (*meta_free)(sq_cpu *cpu, void *memory);
    /* Time of the run by scope, of all CPUs, in picoseconds, since the last call with
     * `restart`; false: the engine keeps none. */
    bool (*profile)(sq_machine *machine, uint64_t *scope_ps, bool restart);
    /* Lines by scope and kind, of all CPUs, since the machine was made; NULL: the engine
     * keeps none. `stats` has SQ_SCOPE_COUNT rows. */
    void (*lines)(const sq_machine *machine,
                  struct sq_line_stats (*stats)[SQ_LINE_KIND_COUNT]);
    /* A hash of the order of events so far; 0: the engine has no fixed order. */
    uint64_t (*fingerprint)(const sq_machine *machine);
    /* Pages of a node that are in use by somebody; page lists count as free. */
    uint64_t (*pages_in_use)(sq_machine *machine, uint32_t node);
    void (*destroy)(sq_machine *machine);
};

struct sq_machine {
    /* -- constant -- */
    const struct sq_machine_ops *ops;
    struct sq_topology topology;
    const char *engine; /* "native" or "sim" */
    char *arena;        /* node n owns [arena + (n << node_shift), ...) */
    uint32_t node_shift;
    uint64_t node_bytes;
    struct sq_page *page_frames; /* frame of arena page i is page_frames[i] */
    struct sq_pages *pages;
    char *region; /* an engine with an order: all its memory, frames and shared lines too */
    uint64_t region_bytes;
    bool nodes_are_bound; /* the host has nodes and each arena sits on one */
};

/* How a machine is made. */
struct sq_machine_config {
    struct sq_topology topology;
    uint64_t node_bytes;         /* memory of each node; a multiple of 4 MiB */
    uint32_t pcp_order_max;      /* largest order kept in per-CPU page lists */
    uint32_t remote_delay_ns_at_20; /* 0: off; else delay of a line at distance 20,
                                       others in proportion to distance - 10 */
    uint64_t seed;
};

/* ---- where an address lies; constant time, no lock ---- */

static inline bool sq_machine_owns(const sq_machine *machine, const void *address)
{
    uint64_t offset = (uint64_t)((uintptr_t)address - (uintptr_t)machine->arena);
    return offset >> machine->node_shift < machine->topology.node_count &&
           (offset & ((UINT64_C(1) << machine->node_shift) - 1)) < machine->node_bytes;
}

static inline uint32_t sq_node_of_address(const sq_machine *machine, const void *address)
{
    return (uint32_t)(((uintptr_t)address - (uintptr_t)machine->arena) >>
                      machine->node_shift);
}

/* The head frame of the block that `address` lies in. Requires an address of the arena. */
static inline struct sq_page *sq_page_of_address(const sq_machine *machine,
                                                 const void *address)
{
    uint64_t index =
        ((uintptr_t)address - (uintptr_t)machine->arena) >> SQ_PAGE_SHIFT;
    struct sq_page *page = &machine->page_frames[index];
    return page - page->head_offset;
}

static inline char *sq_page_address(const sq_machine *machine, const struct sq_page *page)
{
    return machine->arena + ((uint64_t)(page - machine->page_frames) << SQ_PAGE_SHIFT);
}

#endif
