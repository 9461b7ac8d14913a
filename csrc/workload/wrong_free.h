/*
 * What a workload that somebody else wrote gives back is looked at before a policy sees
 * it: an address that is no live object would lead the policy into foreign memory, or
 * the same object to two owners. Part of unit/workload_<machine>.c.
 *
 * `live` has a byte for each place where an object may begin, which says what is handed
 * out there. It is the host's memory and costs the simulated machine nothing. On a real
 * machine it is a line more for a call, and a free changes it by an exchange, so that
 * of two CPUs that free the same object one is told. slabq's own workloads go without,
 * and so does a run with check_frees=0.
 */
#ifndef SQ_WRONG_FREE_H
#define SQ_WRONG_FREE_H

#include <sys/mman.h>

#include "machine/address_space.h"
#include "workload/env.h"

#define LIVE_GRAIN 8u /* no two objects begin in one */

/* What the map says of a place. */
enum live_mark { LIVE_NOTHING, LIVE_OBJECT, LIVE_PAGES };

/* Is the workload none of slabq's own? */
static bool wrong_free_is_foreign(const struct sq_workload *workload)
{
    const struct sq_workload *own;
    for (uint32_t n = 0; (own = sq_workload_at(n)) != NULL; n++)
        if (own->setup == workload->setup)
            return false;
    return true;
}

static uint64_t wrong_free_map_bytes(const sq_machine *machine)
{
    return ((uint64_t)machine->topology.node_count << machine->node_shift) / LIVE_GRAIN;
}

/* Without address space for the map, second frees are not looked for. */
static void wrong_free_init(struct env_run *run)
{
    run->checks_frees = run->runner->run_values[SQ_RUN_check_frees] != 0 &&
                        wrong_free_is_foreign(run->runner->workload);
    if (run->checks_frees)
        run->live =
            sq_address_space_reserve(wrong_free_map_bytes(run->runner->machine));
}

static void wrong_free_destroy(struct env_run *run)
{
    if (run->live != NULL)
        (void)munmap(run->live, wrong_free_map_bytes(run->runner->machine));
}

/* The object's byte in the map. Requires that the address is the machine's. */
static inline uint8_t *wrong_free_byte(const struct env_run *run, const void *object)
{
    const sq_machine *machine = run->runner->machine;
    return &run->live[((uintptr_t)object - (uintptr_t)machine->arena) / LIVE_GRAIN];
}

/* `object` was handed out. Its owner is alone with it, so a store will do. */
static inline void wrong_free_note(struct env_run *run, const void *object,
                                   enum live_mark mark)
{
    if (__builtin_expect(run->live != NULL, 0))
        __atomic_store_n(wrong_free_byte(run, object), mark, __ATOMIC_RELAXED);
}

/* Take a mark off that was there a moment ago. false: another CPU came first. */
static inline bool wrong_free_unmark(const struct env_run *run, const void *memory)
{
    return __atomic_exchange_n(wrong_free_byte(run, memory), LIVE_NOTHING,
                               __ATOMIC_RELAXED) != LIVE_NOTHING;
}

/* Is this the address of what has such a mark? */
static inline bool wrong_free_has(const struct env_run *run, const void *memory,
                                  enum live_mark mark)
{
    return (uintptr_t)memory % LIVE_GRAIN == 0 &&
           sq_machine_owns(run->runner->machine, memory) &&
           __atomic_load_n(wrong_free_byte(run, memory), __ATOMIC_RELAXED) == mark;
}

/* Is the address one at which a live object begins, of `cache` (NULL: of any)? Nobody
 * else may free it, so neither can its page change. */
static inline bool wrong_free_is_live(const struct env_run *run, const sq_cache *cache,
                                      const void *memory)
{
    const struct sq_page *page;
    if (!wrong_free_has(run, memory, LIVE_OBJECT))
        return false;
    page = sq_page_of_address(run->runner->machine, memory);
    return cache == NULL ||
           (page->state == SQ_PAGE_SLAB && run->ops->cache_of_page(page) == cache);
}

/* Is it a cache of the run, and no remains of one in a page that is on its way out? */
static bool wrong_free_is_cache(sq_task *task, const sq_cache *cache)
{
    bool is_found = false;
    env_lock(task);
    SQ_LIST_EACH (link, &env_of(task)->heap->caches)
        is_found = is_found || SQ_LIST_ENTRY(link, sq_cache, link) == cache;
    env_unlock(task);
    return is_found;
}

/* Does `memory` begin an object of `cache` (NULL: of any, or large kmalloc)? A cache
 * that reports wrong frees itself is left to do so. */
static bool wrong_free_is_object(sq_task *task, sq_cache *cache, const void *memory)
{
    const struct env_run *run = env_of(task);
    const sq_machine *machine = run->runner->machine;
    const struct sq_page *page;
    struct sq_object_place place;
    if (!sq_machine_owns(machine, memory))
        return false;
    page = sq_page_of_address(machine, memory);
    if (cache == NULL && page->state != SQ_PAGE_SLAB)
        return page->state == SQ_PAGE_BLOCK && page->word[0] == (uintptr_t)run->heap &&
               memory == sq_page_address(machine, page);
    if (cache == NULL) {
        cache = run->ops->cache_of_page(page);
        if (run->live != NULL && !wrong_free_is_cache(task, cache))
            return false;
    }
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
    const struct env_run *run = env_of(task);
    if (run->live != NULL && wrong_free_is_live(run, cache, memory) &&
        wrong_free_unmark(run, memory))
        return;
    if (!wrong_free_is_object(task, cache, memory))
        wrong_free_fail(task, cache, memory,
                        cache != NULL ? "no object of it"
                                      : "nothing that kmalloc gave");
    if (run->live != NULL && (cache == NULL || !cache->checks_frees))
        wrong_free_fail(task, cache, memory, "free already");
}

/* The same for a block of pages. */
static void wrong_free_check_pages(sq_task *task, const void *pages)
{
    const struct env_run *run = env_of(task);
    const sq_machine *machine = task->cpu->machine;
    const struct sq_page *page;
    struct sq_error error;
    if (run->live != NULL && wrong_free_has(run, pages, LIVE_PAGES) &&
        wrong_free_unmark(run, pages))
        return;
    if (run->live == NULL && sq_machine_owns(machine, pages)) {
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
