/*
 * policy.h -- what a policy is to the rest of slabq: one table of functions.
 *
 *   workload, Python --(one indirect call)--> policy --(inlined)--> machine
 *
 * A heap is one policy on one machine: its options, its kmalloc caches, its list of
 * caches. A cache is the kernel's kmem_cache. Each policy's own cache struct begins with
 * `sq_cache base` and is complete in the policy's file only; outsiders use the table.
 *
 * Concurrency: alloc, free, bulk and kmalloc calls may run on all CPUs at once, each
 * passing the CPU it is. Control-plane calls (cache_init, cache_release, shrink, reap,
 * tune) run on one CPU at a time, while others may allocate. Introspection (check, dump,
 * row, usage, describe) requires that no other CPU is inside a call on that cache.
 */
#ifndef SQ_POLICY_H
#define SQ_POLICY_H

#include <stddef.h>
#include <stdint.h>

#include "base/sq_error.h"
#include "base/sq_json.h"
#include "machine/machine_base.h"
#include "policy/options.h"
#include "policy/report.h"

typedef struct sq_cache sq_cache;
typedef struct sq_heap sq_heap;
typedef struct sq_policy_ops sq_policy_ops;

#define SQ_CACHE_NAME_MAX    64u
#define SQ_KMALLOC_CLASS_MAX 32u /* kmalloc caches of one heap, at most */

/* Flags of a cache: the kernel's SLAB_* of the same names. */
enum {
    SQ_CACHE_HWCACHE_ALIGN = 1u << 0,
    SQ_CACHE_RECLAIM_ACCOUNT = 1u << 1,
    SQ_CACHE_TYPESAFE_BY_RCU = 1u << 2,
    SQ_CACHE_KMALLOC = 1u << 3, /* one of the heap's size classes */
    SQ_CACHE_BOOT = 1u << 4,    /* made while the heap bootstraps */
    SQ_CACHE_RED_ZONE = 1u << 5,
    SQ_CACHE_POISON = 1u << 6,
    SQ_CACHE_STORE_USER = 1u << 7,
    SQ_CACHE_CONSISTENCY_CHECKS = 1u << 8,
    SQ_CACHE_NO_MERGE = 1u << 9, /* neither merged nor merged into */
    SQ_CACHE_TRACE = 1u << 10,
};

/* Flags of an allocation. */
enum {
    SQ_ALLOC_THISNODE = 1u << 0, /* the asked node or nothing */
    SQ_ALLOC_NOWAIT = 1u << 1,   /* GFP_NOWAIT: do not wait for memory */
};

/* What a cache is made from (the kernel's kmem_cache_create arguments). */
struct sq_cache_spec {
    const char *name;
    uint64_t size;  /* bytes */
    uint64_t align; /* bytes, a power of two; 0: the policy's minimum */
    uint32_t flags; /* SQ_CACHE_* */
    /* Called for each object when its slab is made. NULL: none, or a pattern is given. */
    void (*constructor)(const sq_cache *cache, void *object);
    const void *pattern; /* what a constructor is to write; NULL: none. Copied. */
    uint32_t pattern_bytes; /* repeated over the object */
    uint32_t sheaf_capacity; /* sheaves only; 0: none */
};

/* Base of every policy's cache. Constant after cache_init unless said otherwise. */
struct sq_cache {
    const sq_policy_ops *ops;
    sq_heap *heap;
    struct sq_list link; /* on heap->caches; under the heap's owner */
    char name[SQ_CACHE_NAME_MAX];
    uint32_t index; /* n-th cache of the heap */
    uint32_t flags;
    uint32_t object_size; /* as asked for; the largest of all names after a merge */
    uint32_t size;        /* slot: with metadata and padding */
    uint32_t align;
    uint32_t order;       /* of a slab, preferred */
    uint32_t slab_object_count; /* objects of such a slab */
    void (*constructor)(const sq_cache *cache, void *object);
    bool is_debug;     /* its slabs carry bytes that are checked; may be corrupted */
    bool checks_frees; /* a wrong free is reported by the policy, and refused */
    uint32_t report_count; /* reports made of it; changed relaxed */
    uint64_t slab_serial; /* slabs made so far; see sq_slab_note_new */
    /* Counters, one array of ops->counter_count a CPU, changed by that CPU only. */
    uint64_t *counters[SQ_CPU_MAX];
    char *pattern; /* the host's; what the constructor writes, or NULL */
    uint32_t pattern_bytes;
    /* -- control plane -- */
    uint32_t reference_count; /* names that are in use: its own and its aliases */
    struct sq_list aliases;   /* sq_alias.link, oldest first */
    uint64_t reap_jiffies[SQ_NODE_MAX]; /* when the reaper looks at a node's part */
};

/* Another name of a cache. */
struct sq_alias {
    struct sq_list link;
    char name[SQ_CACHE_NAME_MAX];
};

/*
 * Slab memory of a heap: changed by sq_slab_note_new/free with relaxed atomics (compiler
 * builtins, since base headers may be included without the machine).
 */
struct sq_heap {
    const sq_policy_ops *ops;
    sq_machine *machine;
    struct sq_options options;
    struct sq_list caches; /* sq_cache.link, oldest first */
    uint32_t cache_count;  /* made so far */
    bool merges;           /* caches are merged where the kernel would */
    bool kmalloc_merges;   /* kmalloc caches among them */
    /* -- control plane: CPUs that are offline (hotplug.c), time (reaper.c) -- */
    bool cpu_is_offline[SQ_CPU_MAX];
    uint32_t offline_count, offline_on_node[SQ_NODE_MAX];
    uint64_t clock_ms;
    uint64_t reap_jiffies[SQ_CPU_MAX]; /* of each CPU's next pass */
    /* -- kmalloc: ascending sizes; built by kmalloc-impl.h -- */
    uint32_t kmalloc_count;
    sq_cache *kmalloc_cache[SQ_KMALLOC_CLASS_MAX];
    uint8_t kmalloc_small_class[25];  /* (size - 1) / 8 -> class, sizes to 192 */
    uint8_t kmalloc_large_class[40];  /* fls(size - 1) -> class, sizes above 192 */
    uint64_t kmalloc_cached_size_max; /* above: pages straight from the machine */
    /* -- any CPU, relaxed -- */
    uint64_t slab_bytes, slab_bytes_peak;
    uint64_t large_bytes; /* kmalloc pass-through, live */
    /* Told of every slab, when not NULL (scripts); called with the policy's locks held. */
    void (*slab_event)(void *argument, sq_cpu *cpu, sq_cache *cache,
                       struct sq_page *page, bool is_new);
    void *slab_event_argument;
    /* -- debugging -- */
    char debug[128]; /* flags by name of cache, see sq_debug_flags */
    uint64_t call_site[SQ_CPU_MAX]; /* of each CPU's next call; that CPU only */
    struct sq_reports reports;
};

/* What a cache holds at a quiet moment; the base of /proc/slabinfo and of `memory`. */
struct sq_cache_usage {
    uint64_t slab_count, slab_bytes;
    uint64_t object_total;     /* slots of all slabs */
    uint64_t object_allocated; /* handed out to callers */
    uint64_t object_queued;    /* neither handed out nor in a slab: queues, arrays,
                                  sheaves, per-CPU free lists */
    uint64_t partial_slab_count;
    /* /proc/slabinfo 2.1, by the policy's own rules */
    uint64_t slabinfo_active_objects, slabinfo_active_slabs, slabinfo_shared_available;
    uint32_t slabinfo_limit, slabinfo_batchcount, slabinfo_shared;
};

/*
 * An array of objects of one cache (the kernel's slab_sheaf), as a caller holds one that
 * was filled for it: the objects are its own until it returns the sheaf. 32 bytes before
 * the objects, as in the kernel.
 */
struct sq_sheaf {
    struct sq_list link; /* the policy's */
    uint32_t size;       /* objects in it; the last is the next one handed out */
    uint32_t capacity;   /* objects that fit */
    uint32_t handle;     /* the holder's own number; dump() shows it */
    void *object[];
};
_Static_assert(sizeof(struct sq_sheaf) == 32, "half a line before the objects");

/* Where an object lies. */
struct sq_object_place {
    struct sq_page *page; /* head of its slab */
    uint32_t serial, index, node;
};

struct sq_counter_name {
    const char *name; /* the kernel's */
    const char *help;
};

/* Counter `id` of this CPU, plus `amount`. */
static inline void sq_count_by(sq_cpu *cpu, sq_cache *cache, uint32_t id, uint64_t amount)
{
    cache->counters[cpu->index][id] += amount;
}

static inline void sq_count(sq_cpu *cpu, sq_cache *cache, uint32_t id)
{
    sq_count_by(cpu, cache, id, 1);
}

/* Every policy calls these two when a slab's pages arrive and before they leave. */
static inline void sq_slab_note_new(sq_cpu *cpu, sq_cache *cache, struct sq_page *page)
{
    sq_heap *heap = cache->heap;
    uint64_t bytes = (uint64_t)SQ_PAGE_SIZE << page->order;
    uint64_t now = __atomic_add_fetch(&heap->slab_bytes, bytes, __ATOMIC_RELAXED);
    uint64_t peak = __atomic_load_n(&heap->slab_bytes_peak, __ATOMIC_RELAXED);
    while (now > peak &&
           !__atomic_compare_exchange_n(&heap->slab_bytes_peak, &peak, now, true,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    page->state = SQ_PAGE_SLAB;
    page->serial =
        (uint32_t)__atomic_fetch_add(&cache->slab_serial, 1, __ATOMIC_RELAXED);
    if (heap->slab_event != NULL)
        heap->slab_event(heap->slab_event_argument, cpu, cache, page, true);
}

static inline void sq_slab_note_free(sq_cpu *cpu, sq_cache *cache, struct sq_page *page)
{
    sq_heap *heap = cache->heap;
    (void)__atomic_sub_fetch(&heap->slab_bytes, (uint64_t)SQ_PAGE_SIZE << page->order,
                             __ATOMIC_RELAXED);
    page->state = SQ_PAGE_BLOCK;
    if (heap->slab_event != NULL)
        heap->slab_event(heap->slab_event_argument, cpu, cache, page, false);
}

/* Which kmalloc caches a heap has, by the policy's options. */
struct sq_kmalloc_shape {
    uint64_t size_min;        /* smallest class, a power of two */
    uint64_t size_max;        /* largest class, a power of two */
    uint64_t cached_size_max; /* larger requests go to the page allocator */
    bool has_96, has_192;     /* the classes between powers of two */
    uint32_t cache_flags;     /* SQ_CACHE_* of every class */
    const char *name_prefix;  /* of a class: "kmalloc" gives kmalloc-64 */
    bool has_units;           /* kmalloc-1k for kmalloc-1024 */
};

struct sq_policy_ops {
    const char *name;    /* "slab", "slub", "slub+q", "sheaves" */
    const char *machine; /* "native", "sim" */
    size_t cache_bytes;  /* of the policy's own cache struct */
    uint32_t counter_count;
    const struct sq_counter_name *counters;

    /* -- control plane -- */
    void (*kmalloc_shape)(const struct sq_options *options,
                          struct sq_kmalloc_shape *shape);
    /* Geometry of such a cache on this heap's machine and options, as members of an open
     * JSON object with the oracle's column names. Makes nothing. */
    int (*geometry)(const sq_heap *heap, const struct sq_cache_spec *spec,
                    struct sq_json *json, struct sq_error *error);
    /* `cache` is zeroed but for what sq_heap_create_cache fills in: ops, heap, name,
     * index, flags, object_size, constructor, counters. The policy sets the rest. On
     * failure it leaves nothing behind. */
    int (*cache_init)(sq_cpu *cpu, sq_cache *cache, const struct sq_cache_spec *spec,
                      struct sq_error *error);
    /* Give back all memory, slabs with live objects too. */
    void (*cache_release)(sq_cpu *cpu, sq_cache *cache);
    /* Empty this CPU's own part of the cache: what the handler of flush_all does. */
    void (*flush_cpu)(sq_cpu *cpu, sq_cache *cache);
    /* kmem_cache_shrink: flushes every CPU (sq_on_each_cpu with flush_cpu, where the
     * release does so), then the node part. Returns what the kernel's function returns.
     * Scripts call flush_cpu CPU after CPU first, so that the order is known. */
    int (*shrink)(sq_cpu *cpu, sq_cache *cache);
    /* One pass of the periodic reaper on this CPU; `with_node`: the node part too.
     * Returns the node whose alien array was reaped. NULL: the policy has no reaper. */
    int32_t (*reap)(sq_cpu *cpu, sq_cache *cache, bool with_node);
    /* This CPU is about to go offline, or came online: heap->cpu_is_offline says so
     * already. NULL: flush_cpu, and nothing. */
    void (*cpu_offline)(sq_cpu *cpu, sq_cache *cache);
    void (*cpu_online)(sq_cpu *cpu, sq_cache *cache);
    /* Alignment that objects of such a cache have. NULL: caches are never merged. */
    uint32_t (*alignment)(const sq_heap *heap, const struct sq_cache_spec *spec);
    bool shifts_slabs; /* objects of a slab may begin anywhere that its align allows */
    /* Change tunables of a live cache together: `count` names and values (cpu_partial,
     * min_partial, remote_node_defrag_ratio; limit, batchcount and shared; reap_node of
     * this CPU; cpu_queue_size, shared_queue_size, expire with a node). All or nothing. */
    int (*tune)(sq_cpu *cpu, sq_cache *cache, uint32_t count, const char *const *names,
                const int64_t *values, struct sq_error *error);

    /* -- data plane -- */
    void *(*alloc)(sq_cpu *cpu, sq_cache *cache, int32_t node, uint32_t flags);
    void (*free)(sq_cpu *cpu, sq_cache *cache, void *object);
    /* All or nothing: returns `count` or 0. */
    size_t (*alloc_bulk)(sq_cpu *cpu, sq_cache *cache, uint32_t flags, size_t count,
                         void **objects);
    void (*free_bulk)(sq_cpu *cpu, sq_cache *cache, size_t count, void **objects);
    /* As free, for an address that nobody vouches for but that lies in the machine's
     * memory: what may not be freed is reported and stays. `is_owned`: it was handed out
     * to somebody, by this cache or another. False: nothing was done, the policy sees
     * nothing wrong with an address that nobody has. NULL: the policy cannot. */
    bool (*free_checked)(sq_cpu *cpu, sq_cache *cache, void *object, bool is_owned);
    /* Prefilled sheaves, 6.18; NULL: the policy has none. A sheaf with at least `count`
     * objects (kmem_cache_prefill_sheaf), or NULL if there is no memory. */
    struct sq_sheaf *(*sheaf_prefill)(sq_cpu *cpu, sq_cache *cache, uint32_t flags,
                                      uint32_t count);
    /* One object of it, or NULL when it is empty. */
    void *(*sheaf_alloc)(sq_cpu *cpu, sq_cache *cache, struct sq_sheaf *sheaf);
    /* See to it that it holds `count` objects; it may become another sheaf. 0, or
     * SQ_E_MEMORY and the sheaf is as it was. */
    int (*sheaf_refill)(sq_cpu *cpu, sq_cache *cache, uint32_t flags,
                        struct sq_sheaf **sheaf, uint32_t count);
    void (*sheaf_return)(sq_cpu *cpu, sq_cache *cache, uint32_t flags,
                         struct sq_sheaf *sheaf);
    void *(*kmalloc)(sq_cpu *cpu, sq_heap *heap, size_t size, int32_t node,
                     uint32_t flags);
    void (*kfree)(sq_cpu *cpu, sq_heap *heap, void *memory); /* NULL does nothing */
    size_t (*ksize)(sq_heap *heap, const void *memory);
    /* The cache of a page in state SQ_PAGE_SLAB. */
    sq_cache *(*cache_of_page)(const struct sq_page *page);

    /* -- introspection -- */
    /* Walks every structure; always ends, whatever it finds. 0, or SQ_E_CORRUPTION with
     * a message that says where. Counts that must add up are added up. */
    int (*check)(sq_cpu *cpu, sq_cache *cache, struct sq_error *error);
    /* The kernel's validate: look at the bytes of every object of a debug cache; what is
     * wrong is reported and put right. */
    void (*validate)(sq_cpu *cpu, sq_cache *cache);
    uint32_t debug_flags; /* SQ_CACHE_* of debugging that its caches may have */
    /* Those of `flags` that the boot text gives such a cache. NULL: all. */
    uint32_t (*boot_debug_flags)(const struct sq_cache_spec *spec, uint32_t flags);
    /* May these bytes of a slab of a debug cache be overwritten, so that it is found?
     * What leads from slab to slab may not. NULL: all may. */
    bool (*may_corrupt)(sq_cache *cache, struct sq_page *page, const char *place,
                        size_t bytes);
    /* True and `place` filled if `object` is the start of an object of `cache`. */
    bool (*locate)(sq_cache *cache, const void *object, struct sq_object_place *place);
    void (*usage)(sq_cpu *cpu, sq_cache *cache, struct sq_cache_usage *usage);
    /* Members of an open JSON object: the fields of the oracle's "cache" line after
     * "cache", and those of its "state" line after "state" (counters included). */
    void (*describe)(sq_cache *cache, struct sq_json *json);
    /* Members of an open JSON object: tunables that `describe` does not show, by the name
     * that `tune` takes. NULL: it shows all of them. A script's command for a tunable that
     * is in neither prints nothing, as the recordings have it. */
    void (*tunables)(sq_cache *cache, struct sq_json *json);
    void (*dump)(sq_cpu *cpu, sq_cache *cache, struct sq_json *json);
    /* Members of an open JSON object: how many objects each queue and node has. NULL: the
     * recordings have no such line of this policy. */
    void (*brief)(sq_cpu *cpu, sq_cache *cache, struct sq_json *json);
    /* Elements of an open JSON array: the oracle's step columns that follow [slab, idx],
     * right after an operation on `place` by `cpu`. The slab may be gone: then
     * `slab_is_free` and place->page must not be read. */
    void (*row)(sq_cpu *cpu, sq_cache *cache, const struct sq_object_place *place,
                bool slab_is_free, struct sq_json *json);
    /* The step columns that tell of the CPU and its node alone, as elements of an open
     * JSON array: the oracle's `after`. NULL: the recordings have none. */
    void (*row_cpu)(sq_cpu *cpu, sq_cache *cache, struct sq_json *json);
    const char *const *row_columns; /* names, beginning with "slab", "idx"; NULL ends */
    /* The names for these options, where they depend on them; NULL: row_columns. */
    const char *const *(*row_columns_of)(const struct sq_options *options);
};

/* ---- the heap (experiment/heap.c) ---- */

/* Make a heap of `ops` with `options` and its kmalloc caches. `cpu` runs the making. */
/* With `debug` (or NULL): debug flags of its caches, as the boot parameter slub_debug=;
 * letters that the policy does not have are refused. */
int sq_heap_create_debug(sq_cpu *cpu, const sq_policy_ops *ops,
                         const struct sq_options *options, const char *debug,
                         sq_heap **heap, struct sq_error *error);
int sq_heap_create(sq_cpu *cpu, const sq_policy_ops *ops,
                   const struct sq_options *options, sq_heap **heap,
                   struct sq_error *error);
void sq_heap_destroy(sq_cpu *cpu, sq_heap *heap);
int sq_heap_create_cache(sq_cpu *cpu, sq_heap *heap, const struct sq_cache_spec *spec,
                         sq_cache **cache, struct sq_error *error);
/* End a cache whatever names it has. */
void sq_heap_destroy_cache(sq_cpu *cpu, sq_cache *cache);
/* Give up one name, its own or an alias; true if it was the last and the cache is no
 * more. */
bool sq_heap_put_cache(sq_cpu *cpu, sq_cache *cache, const char *name);
/* krealloc: NULL allocates, size 0 frees; memory that is too small moves, its bytes with
 * it. NULL: no memory, and the old one stays as it is. */
void *sq_heap_krealloc(sq_cpu *cpu, sq_heap *heap, void *memory, size_t size, int32_t node,
                       uint32_t flags);

/* ---- merging (experiment/alias.c) ---- */

/* An existing cache that serves for `spec` too, with `spec->name` as another name of it;
 * NULL: there is none. */
int sq_heap_find_alias(sq_heap *heap, const struct sq_cache_spec *spec, sq_cache **cache,
                       struct sq_error *error);
/* May other caches be merged into this one? */
bool sq_cache_is_mergeable(const sq_cache *cache);
/* The name of its directory in sysfs: `:0000064` or `:a-0000064` if it is mergeable. */
void sq_cache_sysfs_name(const sq_cache *cache, char name[SQ_CACHE_NAME_MAX]);
void sq_cache_drop_alias(sq_cache *cache, const char *name);
void sq_cache_drop_all_aliases(sq_cache *cache);

/* ---- CPUs that go and come (experiment/hotplug.c) ---- */

/* The calling CPU gives up what it holds of every cache and is offline. The last one that
 * is online is refused. */
int sq_heap_offline_cpu(sq_cpu *cpu, sq_heap *heap, struct sq_error *error);
void sq_heap_online_cpu(sq_cpu *cpu, sq_heap *heap);
uint32_t sq_heap_first_online_cpu(const sq_heap *heap);

/* ---- time (experiment/reaper.c) ---- */

#define SQ_HZ 100u /* jiffies a second */

void sq_heap_start_reaper(sq_heap *heap, uint32_t cpu_index);
/* The first passes over a cache that is being made. */
void sq_cache_start_reaping(sq_cache *cache);
/* Let time pass, and each CPU's reaper run when it is due. No thread of the caller may be
 * a CPU. Returns the passes that ran. */
uint64_t sq_heap_advance(sq_heap *heap, uint64_t milliseconds);

/* The policy of that name on that engine, or NULL with a message naming the known ones
 * (unit/registry.c). */
const sq_policy_ops *sq_policy_find(const char *name, const char *engine,
                                    struct sq_error *error);
/* The n-th policy of an engine, NULL past the last. */
const sq_policy_ops *sq_policy_at(const char *engine, uint32_t n);

static inline void *sq_cache_alloc(sq_cpu *cpu, sq_cache *cache)
{
    return cache->ops->alloc(cpu, cache, SQ_NODE_ANY, 0);
}

#define SQ_POLICY(policy) const sq_policy_ops SQ_ON_MACHINE(sq_##policy)

static inline void sq_cache_free(sq_cpu *cpu, sq_cache *cache, void *object)
{
    cache->ops->free(cpu, cache, object);
}

#endif
