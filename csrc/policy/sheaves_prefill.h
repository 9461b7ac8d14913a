/*
 * Sheaves that callers hold: kmem_cache_prefill_sheaf, _refill_sheaf, _return_sheaf of
 * a cache with sheaves. The caller gets a sheaf out of the CPU's pair or the barn,
 * filled to the brim; larger ones, and those of caches without sheaves, are private
 * (slub_sheaf.h).
 */
#ifndef SHEAVES_PREFILL_H
#define SHEAVES_PREFILL_H

#include "policy/sheaves_replace.h"

/* Was it made for its caller, and ends when it is returned? */
static bool sheaves_is_private(const struct sheaves_cache *cache,
                               const struct sq_sheaf *sheaf)
{
    return sheaf->capacity != cache->capacity || cache->capacity == 0;
}

/* The pair's spare or a sheaf of the barn, or NULL. */
static struct sq_sheaf *sheaves_prefill_find(sq_cpu *cpu, struct sheaves_cache *cache)
{
    struct sheaves_cpu *local = sheaves_cpu_of(cpu, cache);
    struct sq_sheaf *sheaf;
    sq_irq_save(cpu);
    sheaf = local->spare;
    if (sheaf != NULL) {
        local->spare = NULL;
        sq_count(cpu, &cache->slub.base, SLUB_SHEAF_PREFILL_FAST);
    } else {
        sheaf = sheaves_barn_get_any(cpu, cache->barn[cpu->node]);
        sq_count(cpu, &cache->slub.base, SLUB_SHEAF_PREFILL_SLOW);
        sq_count(cpu, &cache->slub.base,
                 sheaf != NULL && sheaf->size > 0 ? SLUB_BARN_GET : SLUB_BARN_GET_FAIL);
    }
    sq_irq_restore(cpu);
    return sheaf;
}

static struct sq_sheaf *sheaves_prefill(sq_cpu *cpu, sq_cache *base, uint32_t flags,
                                        uint32_t count)
{
    struct sheaves_cache *cache = (struct sheaves_cache *)base;
    struct sq_sheaf *sheaf;
    if (count > cache->capacity || cache->capacity == 0)
        return slub_sheaf_prefill(cpu, base, flags, count);
    sheaf = sheaves_prefill_find(cpu, cache);
    if (sheaf == NULL)
        sheaf = sheaves_new(cpu, cache);
    if (sheaf == NULL)
        return NULL;
    if (sheaf->size < count && !sheaves_fill(cpu, cache, flags, sheaf)) {
        sheaves_end(cpu, cache, sheaf);
        return NULL;
    }
    slub_sheaf_hold(cpu, &cache->slub, sheaf);
    return sheaf;
}

static int sheaves_refill(sq_cpu *cpu, sq_cache *base, uint32_t flags,
                          struct sq_sheaf **held, uint32_t count)
{
    struct sheaves_cache *cache = (struct sheaves_cache *)base;
    struct sq_sheaf *sheaf = *held;
    if (sheaves_is_private(cache, sheaf) || count > sheaf->capacity)
        return slub_sheaf_refill(cpu, base, flags, held, count);
    if (sheaf->size >= count || sheaves_fill(cpu, cache, flags, sheaf))
        return SQ_OK;
    return SQ_E_MEMORY;
}

/* It becomes the pair's spare, as it is, if there is none; else it is filled for the
 * barn, if that wants one more; else it ends. */
static void sheaves_return(sq_cpu *cpu, sq_cache *base, uint32_t flags,
                           struct sq_sheaf *sheaf)
{
    struct sheaves_cache *cache = (struct sheaves_cache *)base;
    struct sheaves_cpu *local = sheaves_cpu_of(cpu, cache);
    struct sheaves_barn *barn = cache->barn[cpu->node];
    if (sheaves_is_private(cache, sheaf)) {
        slub_sheaf_return(cpu, base, flags, sheaf);
        return;
    }
    slub_sheaf_release(cpu, &cache->slub, sheaf);
    sq_irq_save(cpu);
    if (local->spare == NULL) {
        local->spare = sheaf;
        sheaf = NULL;
        sq_count(cpu, base, SLUB_SHEAF_RETURN_FAST);
    }
    sq_irq_restore(cpu);
    if (sheaf == NULL)
        return;
    sq_count(cpu, base, SLUB_SHEAF_RETURN_SLOW);
    if (!sheaves_barn_has_room(cpu, cache, barn) ||
        !sheaves_fill(cpu, cache, flags, sheaf)) {
        sheaves_end(cpu, cache, sheaf);
        return;
    }
    sq_irq_save(cpu);
    sheaves_barn_put_full(cpu, cache, barn, sheaf);
    sq_irq_restore(cpu);
}

#endif
