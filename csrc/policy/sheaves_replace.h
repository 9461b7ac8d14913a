/*
 * What happens when a CPU's main sheaf is empty or full: the spare, the barn, and only
 * then slabs. Each function is called with irqs off and returns with irqs off. Where
 * objects go from or to slabs, and where sheaves are made, irqs are on, and other CPUs'
 * requests may have emptied the pair meanwhile; it is looked at anew afterwards.
 */
#ifndef SHEAVES_REPLACE_H
#define SHEAVES_REPLACE_H

#include "policy/sheaves_barn.h"

#include <string.h>

#define SHEAVES_BATCH_MAX 32u /* the kernel's PCS_BATCH_MAX */

/* ---- an empty main sheaf ---- */

/* A full sheaf made of `empty`, or of a new one if that is NULL; NULL if there is no
 * memory. Requires irqs on. */
static struct sq_sheaf *sheaves_make_full(sq_cpu *cpu, struct sheaves_cache *cache,
                                          struct sq_sheaf *sheaf, uint32_t flags)
{
    if (sheaf == NULL)
        sheaf = sheaves_new(cpu, cache);
    if (sheaf == NULL || sheaves_fill(cpu, cache, flags, sheaf))
        return sheaf;
    sheaves_free_empty(cpu, cache, sheaf);
    return NULL;
}

/* Give the pair a full sheaf. The main one was empty before and mostly is. */
static void sheaves_install_full(sq_cpu *cpu, struct sheaves_cache *cache,
                                 struct sheaves_cpu *local, struct sq_sheaf *full)
{
    struct sheaves_barn *barn = cache->barn[cpu->node];
    if (local->main->size == 0) {
        sheaves_barn_put_empty(cpu, cache, barn, local->main);
        local->main = full;
    } else if (local->spare == NULL) {
        local->spare = full;
    } else if (local->spare->size == 0) {
        sheaves_barn_put_empty(cpu, cache, barn, local->spare);
        local->spare = full;
    } else {
        sheaves_barn_put_full(cpu, cache, barn, full);
    }
}

/* __pcs_replace_empty_main: see to it that the main sheaf has objects; false if it must
 * do without. */
static bool sheaves_replace_empty_main(sq_cpu *cpu, struct sheaves_cache *cache,
                                       struct sheaves_cpu *local, uint32_t flags)
{
    SQ_IN_SCOPE(cpu, SHEAF_REPLACE_EMPTY);
    struct sheaves_barn *barn = cache->barn[cpu->node];
    struct sq_sheaf *full, *empty;
    if (local->spare != NULL && local->spare->size > 0) {
        sheaves_swap(local);
        return true;
    }
    full = sheaves_barn_replace_empty(cpu, cache, barn, local->main);
    if (full != NULL) {
        local->main = full;
        return true;
    }
    if ((flags & SQ_ALLOC_NOWAIT) != 0)
        return false;
    empty = local->spare;
    local->spare = NULL;
    if (empty == NULL)
        empty = sheaves_barn_get_empty(cpu, barn);
    sq_irq_restore(cpu);
    full = sheaves_make_full(cpu, cache, empty, flags);
    sq_irq_save(cpu);
    if (full == NULL)
        return false;
    sheaves_install_full(cpu, cache, local, full);
    return local->main->size > 0;
}

/* ---- a full main sheaf ---- */

/* sheaf_flush_main: objects of the main sheaf go to their slabs, a batch at a time,
 * until it is empty. Requires irqs on. */
static void sheaves_flush_main(sq_cpu *cpu, struct sheaves_cache *cache)
{
    SQ_IN_SCOPE(cpu, SHEAF_FLUSH_MAIN);
    void *objects[SHEAVES_BATCH_MAX];
    uint32_t batch, left;
    do {
        struct sq_sheaf *sheaf;
        sq_irq_save(cpu);
        sheaf = sheaves_cpu_of(cpu, cache)->main;
        batch = (uint32_t)sq_min_u64(SHEAVES_BATCH_MAX, sheaf->size);
        sheaf->size -= batch;
        left = sheaf->size;
        memcpy(objects, &sheaf->object[left], batch * sizeof(*objects));
        sq_irq_restore(cpu);
        slub_put_bulk(cpu, &cache->slub, batch, objects);
        sq_count_by(cpu, &cache->slub.base, SLUB_SHEAF_FLUSH, batch);
    } while (left > 0);
}

/* Give the pair an empty sheaf. The main one was full before and mostly is. */
static void sheaves_install_empty(sq_cpu *cpu, struct sheaves_cache *cache,
                                  struct sheaves_cpu *local, struct sq_sheaf *empty)
{
    struct sheaves_barn *barn = cache->barn[cpu->node];
    if (local->spare == NULL) {
        local->spare = local->main;
        local->main = empty;
    } else if (local->main->size < cache->capacity) {
        sheaves_barn_put_empty(cpu, cache, barn, empty);
    } else if (local->spare->size < cache->capacity) {
        sheaves_swap(local);
        sheaves_barn_put_empty(cpu, cache, barn, empty);
    } else {
        sheaves_barn_put_full(cpu, cache, barn, local->main);
        local->main = empty;
    }
}

/*
 * The barn has full sheaves enough: the spare, which is full too, goes to slabs and
 * comes back as the main sheaf. With sheaf_flush_percent below 100 only its oldest
 * objects go; should the pair have a spare again by then, the others follow.
 */
static void sheaves_flush_spare(sq_cpu *cpu, struct sheaves_cache *cache,
                                struct sheaves_cpu *local)
{
    struct sq_sheaf *sheaf = local->spare;
    uint32_t part = (uint32_t)sq_div_ceil(
        (uint64_t)sheaf->size * SHEAVES_OPTION(cache, sheaf_flush_percent), 100);
    uint32_t left = sheaf->size - part;
    local->spare = NULL;
    sq_irq_restore(cpu);
    sheaf->size = part;
    sheaves_flush(cpu, cache, sheaf);
    memmove(sheaf->object, &sheaf->object[part], left * sizeof(sheaf->object[0]));
    sheaf->size = left;
    sq_irq_save(cpu);
    if (left > 0 && local->spare != NULL) {
        sq_irq_restore(cpu);
        sheaves_flush(cpu, cache, sheaf);
        sq_irq_save(cpu);
    }
    sheaves_install_empty(cpu, cache, local, sheaf);
}

/* A new empty sheaf for the pair, or, without memory for one, an empty main sheaf.
 * `put_failed`: a full one would have gone to the barn. */
static void sheaves_make_empty(sq_cpu *cpu, struct sheaves_cache *cache,
                               struct sheaves_cpu *local, bool put_failed)
{
    struct sq_sheaf *empty;
    sq_irq_restore(cpu);
    empty = sheaves_new(cpu, cache);
    if (empty == NULL) {
        if (put_failed)
            sq_count(cpu, &cache->slub.base, SLUB_BARN_PUT_FAIL);
        sheaves_flush_main(cpu, cache);
    }
    sq_irq_save(cpu);
    if (empty != NULL)
        sheaves_install_empty(cpu, cache, local, empty);
}

/* A barn's empty sheaf, the full main one becoming the spare or going to the barn. The
 * spare, if there is one, is full. False if the barn has none. */
static bool sheaves_take_empty(sq_cpu *cpu, struct sheaves_cache *cache,
                               struct sheaves_cpu *local)
{
    struct sheaves_barn *barn = cache->barn[cpu->node];
    struct sq_sheaf *empty;
    if (local->spare != NULL) {
        empty = sheaves_barn_replace_full(cpu, cache, barn, local->main);
    } else {
        empty = sheaves_barn_get_empty(cpu, barn);
        if (empty != NULL)
            local->spare = local->main;
    }
    if (empty != NULL)
        local->main = empty;
    return empty != NULL;
}

/* __pcs_replace_full_main: make room in the main sheaf. */
static void sheaves_replace_full_main(sq_cpu *cpu, struct sheaves_cache *cache,
                                      struct sheaves_cpu *local)
{
    SQ_IN_SCOPE(cpu, SHEAF_REPLACE_FULL);
    do {
        if (local->spare != NULL && local->spare->size < cache->capacity) {
            sheaves_swap(local);
        } else if (local->spare != NULL &&
                   !sheaves_barn_has_room(cpu, cache, cache->barn[cpu->node])) {
            sq_count(cpu, &cache->slub.base, SLUB_BARN_PUT_FAIL);
            sheaves_flush_spare(cpu, cache, local);
        } else if (!sheaves_take_empty(cpu, cache, local)) {
            sheaves_make_empty(cpu, cache, local, local->spare != NULL);
        }
    } while (local->main->size == cache->capacity);
}

/* ---- the same for bulk calls, which go to slabs rather than make sheaves ---- */

/* A main sheaf with objects, from the spare or the barn. */
static bool sheaves_bulk_objects(sq_cpu *cpu, struct sheaves_cache *cache,
                                 struct sheaves_cpu *local)
{
    struct sq_sheaf *full;
    if (local->main->size > 0)
        return true;
    if (local->spare != NULL && local->spare->size > 0) {
        sheaves_swap(local);
        return true;
    }
    full = sheaves_barn_replace_empty(cpu, cache, cache->barn[cpu->node], local->main);
    if (full == NULL)
        return false;
    local->main = full;
    return true;
}

/* A main sheaf with room, from the spare or the barn. */
static bool sheaves_bulk_room(sq_cpu *cpu, struct sheaves_cache *cache,
                              struct sheaves_cpu *local)
{
    if (local->main->size < cache->capacity)
        return true;
    if (local->spare != NULL && local->spare->size < cache->capacity) {
        sheaves_swap(local);
        return true;
    }
    if (local->spare == NULL)
        return sheaves_take_empty(cpu, cache, local);
    if (sheaves_barn_has_room(cpu, cache, cache->barn[cpu->node]) &&
        sheaves_take_empty(cpu, cache, local))
        return true;
    sq_count(cpu, &cache->slub.base, SLUB_BARN_PUT_FAIL);
    return false;
}

#endif
