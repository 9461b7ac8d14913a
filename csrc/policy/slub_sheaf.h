/*
 * Sheaves of SLUB's own: arrays of objects that a caller had filled for it. 6.18 gives
 * one to callers of any cache (kmem_cache_prefill_sheaf). A cache that has no sheaves,
 * or smaller ones, makes one of the size asked for, which ends when it is returned;
 * such a sheaf is called private here. All that callers hold are chained in their
 * cache, so that check() and the release of a cache find them; the chain is ours.
 */
#ifndef SLUB_SHEAF_H
#define SLUB_SHEAF_H

#include "policy/slub_paths.h"

#define SLUB_SHEAF_CAPACITY_MAX (1u << 18) /* pointers in a block of half the largest  \
                                            */

/* An empty sheaf of `capacity` objects on the CPU's node, or NULL. */
static struct sq_sheaf *slub_sheaf_new(sq_cpu *cpu, uint32_t capacity)
{
    struct sq_sheaf *sheaf = NULL;
    if (capacity <= SLUB_SHEAF_CAPACITY_MAX)
        sheaf =
            sq_meta_alloc(cpu, sizeof(*sheaf) + sizeof(void *) * capacity, cpu->node);
    if (sheaf == NULL)
        return NULL;
    sq_list_init(&sheaf->link);
    sheaf->capacity = capacity;
    return sheaf;
}

/* The caller has it from now on. */
static void slub_sheaf_hold(sq_cpu *cpu, struct slub_cache *cache,
                            struct sq_sheaf *sheaf)
{
    sq_lock_acquire(cpu, &cache->held_lock);
    sq_list_link_tail(&sheaf->link, &cache->held);
    sq_lock_release(cpu, &cache->held_lock);
}

/* The caller has it no longer. */
static void slub_sheaf_release(sq_cpu *cpu, struct slub_cache *cache,
                               struct sq_sheaf *sheaf)
{
    sq_lock_acquire(cpu, &cache->held_lock);
    sq_list_unlink(&sheaf->link);
    sq_lock_release(cpu, &cache->held_lock);
}

/* `sheaf` takes the place of `old` among those that callers hold. */
static void slub_sheaf_take_place(sq_cpu *cpu, struct slub_cache *cache,
                                  struct sq_sheaf *old, struct sq_sheaf *sheaf)
{
    sheaf->handle = old->handle;
    sq_lock_acquire(cpu, &cache->held_lock);
    sq_list_move_head(&sheaf->link, &old->link);
    sq_lock_release(cpu, &cache->held_lock);
}

/* Fill it from the slabs, all of it or nothing. */
static bool slub_sheaf_fill(sq_cpu *cpu, struct slub_cache *cache, uint32_t flags,
                            struct sq_sheaf *sheaf)
{
    uint32_t missing = sheaf->capacity - sheaf->size;
    if (slub_alloc_bulk(cpu, &cache->base, flags, missing,
                        &sheaf->object[sheaf->size]) != missing)
        return false;
    sq_touch_write(cpu, &sheaf->object[sheaf->size], missing * sizeof(void *));
    sheaf->size = sheaf->capacity;
    return true;
}

/* sheaf_flush_unused: its objects go to their slabs. */
static void slub_sheaf_flush(sq_cpu *cpu, struct slub_cache *cache,
                             struct sq_sheaf *sheaf)
{
    if (sheaf->size == 0)
        return;
    sq_count_by(cpu, &cache->base, SLUB_SHEAF_FLUSH, sheaf->size);
    sq_touch_read(cpu, sheaf->object, sheaf->size * sizeof(void *));
    slub_put_bulk(cpu, cache, sheaf->size, sheaf->object);
    sheaf->size = 0;
}

/* ---- what a caller does with one ---- */

static struct sq_sheaf *slub_sheaf_prefill(sq_cpu *cpu, sq_cache *base, uint32_t flags,
                                           uint32_t count)
{
    struct slub_cache *cache = (struct slub_cache *)base;
    struct sq_sheaf *sheaf = slub_sheaf_new(cpu, count);
    if (sheaf == NULL)
        return NULL;
    sq_count(cpu, base, SLUB_SHEAF_PREFILL_OVERSIZE);
    if (!slub_sheaf_fill(cpu, cache, flags, sheaf)) {
        sq_meta_free(cpu, sheaf);
        return NULL;
    }
    slub_sheaf_hold(cpu, cache, sheaf);
    return sheaf;
}

static void *slub_sheaf_alloc(sq_cpu *cpu, sq_cache *base, struct sq_sheaf *sheaf)
{
    (void)base;
    if (sheaf->size == 0)
        return NULL;
    sq_touch_write(cpu, sheaf, sizeof(*sheaf));
    sq_touch_read(cpu, &sheaf->object[sheaf->size - 1], sizeof(void *));
    return sheaf->object[--sheaf->size];
}

/* As far as the sheaf is large enough it is filled; else the policy prefills another
 * and takes this one back. */
static int slub_sheaf_refill(sq_cpu *cpu, sq_cache *base, uint32_t flags,
                             struct sq_sheaf **held, uint32_t count)
{
    struct slub_cache *cache = (struct slub_cache *)base;
    struct sq_sheaf *old = *held, *sheaf;
    if (old->size >= count)
        return SQ_OK;
    if (old->capacity >= count)
        return slub_sheaf_fill(cpu, cache, flags, old) ? SQ_OK : SQ_E_MEMORY;
    sheaf = base->ops->sheaf_prefill(cpu, base, flags, count);
    if (sheaf == NULL)
        return SQ_E_MEMORY;
    slub_sheaf_take_place(cpu, cache, old, sheaf);
    base->ops->sheaf_return(cpu, base, flags, old);
    *held = sheaf;
    return SQ_OK;
}

static void slub_sheaf_return(sq_cpu *cpu, sq_cache *base, uint32_t flags,
                              struct sq_sheaf *sheaf)
{
    struct slub_cache *cache = (struct slub_cache *)base;
    (void)flags;
    slub_sheaf_release(cpu, cache, sheaf);
    slub_sheaf_flush(cpu, cache, sheaf);
    sq_meta_free(cpu, sheaf);
}

#endif
