/*
 * What a workload that somebody else wrote gives back is looked at before a policy sees
 * it: an address that was never handed out would lead the policy into foreign memory.
 * Part of unit/workload_<machine>.c.
 *
 * Looked at is where the address lies, which costs the host a few loads and the
 * simulated machine nothing. That it is live, and so no second free, is known under
 * simulation alone: a map of all objects would be one more shared line of every call of
 * a real machine.
 */
#ifndef SQ_WRONG_FREE_H
#define SQ_WRONG_FREE_H

#include <stdlib.h>

#include "workload/env.h"

#define LIVE_GRAIN 8u /* no two objects begin in one */

/* Is the workload none of slabq's own? */
static bool wrong_free_is_foreign(const struct sq_workload *workload)
{
    const struct sq_workload *own;
    for (uint32_t n = 0; (own = sq_workload_at(n)) != NULL; n++)
        if (own->setup == workload->setup)
            return false;
    return true;
}

/* Without memory of the host for the map, second frees are not looked for. */
static void wrong_free_init(struct env_run *run)
{
    const sq_machine *machine = run->runner->machine;
    uint64_t bytes = (uint64_t)machine->topology.node_count << machine->node_shift;
    run->checks_frees = wrong_free_is_foreign(run->runner->workload);
    if (run->checks_frees && !SQ_TOUCH_IS_REAL)
        run->live = calloc(bytes / LIVE_GRAIN / 8 + 1, 1);
}

static void wrong_free_destroy(struct env_run *run)
{
    free(run->live);
}

/* The object's bit in the map, and the byte that it is in. */
static uint8_t *wrong_free_byte(const struct env_run *run, const void *object,
                                uint8_t *bit)
{
    const sq_machine *machine = run->runner->machine;
    uint64_t grain = ((uintptr_t)object - (uintptr_t)machine->arena) / LIVE_GRAIN;
    *bit = (uint8_t)(1u << (grain % 8));
    return &run->live[grain / 8];
}

/* `object` was handed out. */
static inline void wrong_free_note(struct env_run *run, const void *object)
{
    uint8_t bit;
    if (run->live != NULL)
        *wrong_free_byte(run, object, &bit) |= bit;
}

/* Does `memory` begin an object of `cache` (NULL: of any, or large kmalloc)? A cache
 * that reports wrong frees itself is left to do so. */
static bool wrong_free_is_object(const struct env_run *run, sq_cache *cache,
                                 const void *memory)
{
    const sq_machine *machine = run->runner->machine;
    const struct sq_page *page;
    struct sq_object_place place;
    if (!sq_machine_owns(machine, memory))
        return false;
    page = sq_page_of_address(machine, memory);
    if (cache == NULL && page->state != SQ_PAGE_SLAB)
        return page->state == SQ_PAGE_BLOCK && page->word[0] == (uintptr_t)run->heap &&
               memory == sq_page_address(machine, page);
    if (cache == NULL)
        cache = run->ops->cache_of_page(page);
    return (cache->checks_frees && page->state == SQ_PAGE_SLAB) ||
           run->ops->locate(cache, memory, &place);
}

static _Noreturn void wrong_free_fail(sq_task *task, const sq_cache *cache,
                                      const void *memory, const char *what)
{
    struct sq_error error;
    (void)sq_error_set(&error, SQ_E_CORRUPTION,
                       "workload %.60s: %s%.60s of %p, which is %s",
                       env_of(task)->runner->workload->name,
                       cache != NULL ? "free to cache " : "kfree",
                       cache != NULL ? cache->name : "", memory, what);
    env_fail(task, &error);
}

/* End the run if `memory` may not be given back to `cache`, or by kfree (NULL). */
static __attribute__((noinline)) void wrong_free_check(sq_task *task, sq_cache *cache,
                                                       const void *memory)
{
    struct env_run *run = env_of(task);
    uint8_t bit, *byte;
    if (!wrong_free_is_object(run, cache, memory))
        wrong_free_fail(task, cache, memory,
                        cache != NULL ? "no object of it"
                                      : "nothing that kmalloc gave");
    if (run->live == NULL)
        return;
    byte = wrong_free_byte(run, memory, &bit);
    if ((*byte & bit) == 0 && (cache == NULL || !cache->checks_frees))
        wrong_free_fail(task, cache, memory, "free already");
    *byte &= (uint8_t)~bit;
}

/* The same for a block of pages. */
static void wrong_free_check_pages(sq_task *task, const void *pages)
{
    const sq_machine *machine = task->cpu->machine;
    const struct sq_page *page;
    struct sq_error error;
    if (sq_machine_owns(machine, pages)) {
        page = sq_page_of_address(machine, pages);
        if (page->state == SQ_PAGE_BLOCK && pages == sq_page_address(machine, page))
            return;
    }
    (void)sq_error_set(&error, SQ_E_CORRUPTION,
                       "workload %.60s: pages_free of %p, which is no block of pages",
                       env_of(task)->runner->workload->name, pages);
    env_fail(task, &error);
}

#endif
