/*
 * The barn: where the CPUs of a node leave full and empty sheaves for each other. Whole
 * sheaves change hands, so its lock is held for a few pointers whatever the sheaves
 * hold. Counts are read without the lock first, as in the kernel, and may be wrong by
 * then; the limits are soft for the same reason.
 */
#ifndef SHEAVES_BARN_H
#define SHEAVES_BARN_H

#include "policy/sheaves_cache.h"

/* ---- under the lock ---- */

static void sheaves_barn_add(sq_cpu *cpu, struct sheaves_barn *barn, bool is_full,
                             struct sq_sheaf *sheaf)
{
    sq_atomic *count = is_full ? &barn->full_count : &barn->empty_count;
    sq_lock_assert_held(cpu, &barn->lock);
    sq_touch_write(cpu, sheaf, sizeof(*sheaf));
    sq_list_link_head(&sheaf->link, is_full ? &barn->full : &barn->empty);
    sq_store_relaxed(cpu, count, sq_load_relaxed(cpu, count) + 1);
}

/* The sheaf put there last, or NULL. */
static struct sq_sheaf *sheaves_barn_take(sq_cpu *cpu, struct sheaves_barn *barn,
                                          bool is_full)
{
    sq_atomic *count = is_full ? &barn->full_count : &barn->empty_count;
    struct sq_list *list = is_full ? &barn->full : &barn->empty;
    struct sq_sheaf *sheaf;
    sq_lock_assert_held(cpu, &barn->lock);
    if (sq_list_is_empty(list))
        return NULL;
    sheaf = sheaves_of_link(list->next);
    sq_touch_write(cpu, sheaf, sizeof(*sheaf));
    sq_list_unlink(&sheaf->link);
    sq_store_relaxed(cpu, count, sq_load_relaxed(cpu, count) - 1);
    return sheaf;
}

/* ---- one sheaf in, or out, or both; all require irqs off ---- */

/* barn_get_empty_sheaf, or NULL. */
static struct sq_sheaf *sheaves_barn_get_empty(sq_cpu *cpu, struct sheaves_barn *barn)
{
    SQ_IN_SCOPE(cpu, BARN_GET_EMPTY);
    struct sq_sheaf *sheaf;
    if (sq_load_relaxed(cpu, &barn->empty_count) == 0)
        return NULL;
    sq_lock_acquire(cpu, &barn->lock);
    sheaf = sheaves_barn_take(cpu, barn, false);
    sq_lock_release(cpu, &barn->lock);
    return sheaf;
}

/* barn_get_full_or_empty_sheaf: full if there is one; or NULL. */
static struct sq_sheaf *sheaves_barn_get_any(sq_cpu *cpu, struct sheaves_barn *barn)
{
    struct sq_sheaf *sheaf;
    if (sq_load_relaxed(cpu, &barn->full_count) == 0 &&
        sq_load_relaxed(cpu, &barn->empty_count) == 0)
        return NULL;
    sq_lock_acquire(cpu, &barn->lock);
    sheaf = sheaves_barn_take(cpu, barn, true);
    if (sheaf == NULL)
        sheaf = sheaves_barn_take(cpu, barn, false);
    sq_lock_release(cpu, &barn->lock);
    return sheaf;
}

/* With a limit on empty sheaves: the one that is too many is given back. 6.18 has no
 * limit here. */
static void sheaves_barn_trim(sq_cpu *cpu, struct sheaves_cache *cache,
                              struct sheaves_barn *barn)
{
    uint32_t limit = SHEAVES_OPTION(cache, barn_empty_max);
    struct sq_sheaf *sheaf;
    if (limit == 0 || sq_load_relaxed(cpu, &barn->empty_count) <= limit)
        return;
    sheaf = sheaves_barn_get_empty(cpu, barn);
    if (sheaf != NULL)
        sheaves_free_empty(cpu, cache, sheaf);
}

/* barn_put_empty_sheaf. */
static void sheaves_barn_put_empty(sq_cpu *cpu, struct sheaves_cache *cache,
                                   struct sheaves_barn *barn, struct sq_sheaf *sheaf)
{
    SQ_IN_SCOPE(cpu, BARN_PUT_EMPTY);
    SQ_ASSERT_INTERNAL(sheaf->size == 0);
    sq_lock_acquire(cpu, &barn->lock);
    sheaves_barn_add(cpu, barn, false, sheaf);
    sq_lock_release(cpu, &barn->lock);
    sheaves_barn_trim(cpu, cache, barn);
}

/* barn_put_full_sheaf, whatever is there already. */
static void sheaves_barn_put_full(sq_cpu *cpu, struct sheaves_cache *cache,
                                  struct sheaves_barn *barn, struct sq_sheaf *sheaf)
{
    SQ_IN_SCOPE(cpu, BARN_PUT_FULL);
    sq_lock_acquire(cpu, &barn->lock);
    sheaves_barn_add(cpu, barn, true, sheaf);
    sq_lock_release(cpu, &barn->lock);
    sq_count(cpu, &cache->slub.base, SLUB_BARN_PUT);
}

/* barn_replace_empty_sheaf: a full sheaf for an empty one, or NULL and it stays. */
static struct sq_sheaf *sheaves_barn_replace_empty(sq_cpu *cpu,
                                                   struct sheaves_cache *cache,
                                                   struct sheaves_barn *barn,
                                                   struct sq_sheaf *empty)
{
    SQ_IN_SCOPE(cpu, BARN_REPLACE_EMPTY);
    struct sq_sheaf *full = NULL;
    if (sq_load_relaxed(cpu, &barn->full_count) != 0) {
        sq_lock_acquire(cpu, &barn->lock);
        full = sheaves_barn_take(cpu, barn, true);
        if (full != NULL)
            sheaves_barn_add(cpu, barn, false, empty);
        sq_lock_release(cpu, &barn->lock);
    }
    if (full == NULL) {
        sq_count(cpu, &cache->slub.base, SLUB_BARN_GET_FAIL);
        return NULL;
    }
    sq_count(cpu, &cache->slub.base, SLUB_BARN_GET);
    sheaves_barn_trim(cpu, cache, barn);
    return full;
}

/* May the barn take one more full sheaf? */
static bool sheaves_barn_has_room(sq_cpu *cpu, const struct sheaves_cache *cache,
                                  const struct sheaves_barn *barn)
{
    return sq_load_relaxed(cpu, &barn->full_count) <
           SHEAVES_OPTION(cache, barn_full_max);
}

/* barn_replace_full_sheaf, for a barn that has room: an empty sheaf for a full one, or
 * NULL and it stays. */
static struct sq_sheaf *sheaves_barn_replace_full(sq_cpu *cpu,
                                                  struct sheaves_cache *cache,
                                                  struct sheaves_barn *barn,
                                                  struct sq_sheaf *full)
{
    SQ_IN_SCOPE(cpu, BARN_REPLACE_FULL);
    struct sq_sheaf *empty = NULL;
    if (sq_load_relaxed(cpu, &barn->empty_count) == 0)
        return NULL;
    sq_lock_acquire(cpu, &barn->lock);
    empty = sheaves_barn_take(cpu, barn, false);
    if (empty != NULL)
        sheaves_barn_add(cpu, barn, true, full);
    sq_lock_release(cpu, &barn->lock);
    if (empty != NULL)
        sq_count(cpu, &cache->slub.base, SLUB_BARN_PUT);
    return empty;
}

/* barn_shrink: all sheaves end, the objects of the full ones go to their slabs. */
static void sheaves_barn_shrink(sq_cpu *cpu, struct sheaves_cache *cache,
                                struct sheaves_barn *barn)
{
    struct sq_list full, empty;
    sq_list_init(&full);
    sq_list_init(&empty);
    sq_irq_save(cpu);
    sq_lock_acquire(cpu, &barn->lock);
    slub_list_splice(&barn->full, &full);
    slub_list_splice(&barn->empty, &empty);
    sq_store_relaxed(cpu, &barn->full_count, 0);
    sq_store_relaxed(cpu, &barn->empty_count, 0);
    sq_lock_release(cpu, &barn->lock);
    sq_irq_restore(cpu);
    SQ_LIST_EACH_SAFE (link, following, &full)
        sheaves_end(cpu, cache, sheaves_of_link(link));
    SQ_LIST_EACH_SAFE (link, following, &empty)
        sheaves_free_empty(cpu, cache, sheaves_of_link(link));
}

#endif
