/*
 * The structures of sheaves: a CPU's pair, a node's barn, and the cache, which begins
 * with SLUB's. A cache without sheaves has no pairs and no barns and is SLUB's alone.
 */
#ifndef SHEAVES_CACHE_H
#define SHEAVES_CACHE_H

/* SLUB's functions read SLUB's options among those of this policy. */
#define SLUB_OPTIONS_OF(options) ((options)->sheaves)

#include "policy/slub_sheaf.h"

/* One CPU's part, in its node's memory; only ever changed by the CPU itself, with
 * requests of other CPUs held off while it is between two states. */
struct sheaves_cpu {
    struct sq_sheaf *main; /* never NULL; objects come from it and go to it */
    struct sq_sheaf
        *spare; /* empty or full, unless it was returned in between; or NULL */
};

/* One node's part, in that node's memory. */
struct sheaves_barn {
    sq_lock lock;
    sq_atomic full_count, empty_count; /* changed under the lock, read without */
    /* -- under the lock; heads are taken first, as they were put there last -- */
    struct sq_list full, empty; /* sq_sheaf.link */
};

struct sheaves_cache {
    struct slub_cache slub; /* must be first */
    /* -- constant -- */
    struct sq_percpu percpu; /* parts are NULL in a cache without sheaves */
    struct sheaves_barn *barn[SQ_NODE_MAX];
    uint32_t capacity; /* of a sheaf; 0: the cache has none */
};

#define SHEAVES_OPTION(cache, name)                                                    \
    ((uint32_t)(cache)->slub.base.heap->options.sheaves.name)

/* The CPU's pair, or NULL. */
static inline struct sheaves_cpu *sheaves_cpu_of(const sq_cpu *cpu,
                                                 const struct sheaves_cache *cache)
{
    return sq_percpu_at(&cache->percpu, cpu->index);
}

static inline struct sq_sheaf *sheaves_of_link(const struct sq_list *link)
{
    return SQ_LIST_ENTRY(link, struct sq_sheaf, link);
}

static inline void sheaves_swap(struct sheaves_cpu *local)
{
    struct sq_sheaf *main = local->main;
    local->main = local->spare;
    local->spare = main;
}

/* ---- sheaves come and go ---- */

/* alloc_empty_sheaf, or NULL. */
static struct sq_sheaf *sheaves_new(sq_cpu *cpu, struct sheaves_cache *cache)
{
    struct sq_sheaf *sheaf = slub_sheaf_new(cpu, cache->capacity);
    if (sheaf != NULL)
        sq_count(cpu, &cache->slub.base, SLUB_SHEAF_ALLOC);
    return sheaf;
}

/* free_empty_sheaf. Requires that it is on no list and empty. */
static void sheaves_free_empty(sq_cpu *cpu, struct sheaves_cache *cache,
                               struct sq_sheaf *sheaf)
{
    SQ_ASSERT_INTERNAL(sheaf->size == 0);
    sq_count(cpu, &cache->slub.base, SLUB_SHEAF_FREE);
    sq_meta_free(cpu, sheaf);
}

/* sheaf_flush_unused: its objects go to their slabs. */
static void sheaves_flush(sq_cpu *cpu, struct sheaves_cache *cache,
                          struct sq_sheaf *sheaf)
{
    SQ_IN_SCOPE(cpu, SHEAF_FLUSH);
    slub_sheaf_flush(cpu, &cache->slub, sheaf);
}

/* The same, and it ends. */
static void sheaves_end(sq_cpu *cpu, struct sheaves_cache *cache,
                        struct sq_sheaf *sheaf)
{
    sheaves_flush(cpu, cache, sheaf);
    sheaves_free_empty(cpu, cache, sheaf);
}

/* refill_sheaf: fill it from the slabs, all of it or nothing. */
static bool sheaves_fill(sq_cpu *cpu, struct sheaves_cache *cache, uint32_t flags,
                         struct sq_sheaf *sheaf)
{
    SQ_IN_SCOPE(cpu, SHEAF_REFILL);
    uint32_t missing = sheaf->capacity - sheaf->size;
    if (!slub_sheaf_fill(cpu, &cache->slub, flags, sheaf))
        return false;
    sq_count_by(cpu, &cache->slub.base, SLUB_SHEAF_REFILL, missing);
    return true;
}

#endif
