/*
 * What is asked of debug caches from outside: validate, and frees of addresses that
 * nobody vouches for.
 */
#ifndef SLUB_VALIDATE_H
#define SLUB_VALIDATE_H

#include "policy/slub_check.h"

/* One bit for each free object of the slab. Requires a list that was just searched. */
static void slub_mark_free(const struct slub_subject *slab, struct slub_seen *seen)
{
    struct slub_word word = slub_load(slab->cpu, slab->page);
    uint32_t objects = slub_page_objects(slab->cache, slab->page);
    void *object = slub_head_object(slab->cpu, slab->cache, slab->page, &word);
    while (object != NULL) {
        uint32_t index = slub_index_checked(slab->cpu->machine, slab->cache, slab->page,
                                            objects, object);
        SQ_ASSERT(index < objects);
        seen->bits[index / 64] |= UINT64_C(1) << (index % 64);
        object = slub_peek_next(slab->cache, object);
    }
}

/* validate_slab: stops at the first object that is not as it should be. Requires the
 * list_lock. */
static void slub_validate_slab(sq_cpu *cpu, struct slub_cache *cache,
                               struct sq_page *page)
{
    struct slub_subject subject = {cpu, cache, page, NULL};
    struct slub_seen seen = {{0}};
    (void)slub_check_slab_pad(&subject);
    if (slub_search(&subject) == SLUB_FOUND_RUIN) {
        slub_debug_settle(cpu, cache, page);
        return;
    }
    slub_mark_free(&subject, &seen);
    for (uint32_t i = 0; i < slub_page_objects(cache, page); i++) {
        bool is_free = (seen.bits[i / 64] >> (i % 64) & 1) != 0;
        subject.object = slub_object_at(cpu->machine, cache, page, i);
        if (!slub_check_object(&subject, is_free ? SLUB_RED_INACTIVE : SLUB_RED_ACTIVE))
            break;
    }
    slub_debug_settle(cpu, cache, page);
}

/* ops->validate. The kernel looks at the slabs of its lists; here all are found. */
static void slub_validate(sq_cpu *cpu, sq_cache *base)
{
    struct slub_cache *cache = (struct slub_cache *)base;
    if (!base->is_debug)
        return;
    for (uint32_t i = 0; i < cpu->machine->topology.node_count; i++) {
        struct slub_node *node = cache->node[i];
        uint32_t number;
        slub_slow_begin(cpu, cache);
        cpu = slub_list_lock(cpu, node);
        for (number = node->all_first; number != 0;) {
            struct sq_page *page = slub_frame(cpu->machine, number);
            slub_validate_slab(cpu, cache, page);
            number = slub_slab_of(page)->all_next;
        }
        slub_list_unlock(cpu, node);
        slub_slow_end(cpu, cache);
    }
}

/* ---- frees that nobody vouches for ---- */

/* A report of an address that is no object of the cache. */
static void slub_report_address(struct slub_cache *cache, const char *what)
{
    struct sq_report where = {.slab = -1, .object = -1, .offset = -1};
    (void)snprintf(where.cache, sizeof(where.cache), "%s", cache->base.name);
    (void)snprintf(where.what, sizeof(where.what), "%s", what);
    (void)__atomic_add_fetch(&cache->base.report_count, 1, __ATOMIC_RELAXED);
    sq_report_begin(slub_reports(cache), &where);
    slub_print_bug(cache, what);
    sq_report_end(slub_reports(cache));
}

static void slub_refuse_address(struct slub_cache *cache, void *object, const char *what)
{
    slub_report_address(cache, what);
    sq_report_fix(slub_reports(cache), cache->base.name, "Object at 0x%016llx not freed",
                  slub_number(object));
    sq_report_refuse(slub_reports(cache), object);
}

/* An object of another cache: later releases say so and free it where it belongs, if
 * that cache can tell whether it may be freed. */
static void slub_free_foreign(sq_cpu *cpu, struct slub_cache *cache, sq_cache *owner,
                              void *object)
{
    char what[96];
    if (SLUB_OPTION(cache, checks_flag) == 0 || !owner->checks_frees) {
        slub_refuse_address(cache, object, "page slab pointer corrupt.");
        return;
    }
    (void)snprintf(what, sizeof(what),
                   "Wrong slab cache. %.24s but object is from %.24s", cache->base.name,
                   owner->name);
    slub_report_address(cache, what);
    owner->ops->free(cpu, owner, object);
}

/* CONFIG_SLAB_FREELIST_HARDENED: is the object the one that was freed last? Nothing is
 * freed. */
static void slub_note_double_free(sq_cpu *cpu, struct slub_cache *cache,
                                  const struct sq_page *page, void *object)
{
    const struct slub_cpu *local = slub_cpu_of(cpu, cache);
    struct slub_word word = slub_load(cpu, page);
    if (slub_cache_of_page(page) == &cache->base && cache->is_hardened &&
        (object == (local->slab == page
                        ? local->free.first
                        : slub_head_object(cpu, cache, page, &word))))
        slub_refuse_address(cache, object, "object == fp in set_freepointer");
}

/* ops->free_checked: whoever has the object, the bytes say whether it is free. */
static bool slub_free_checked(sq_cpu *cpu, sq_cache *base, void *object, bool is_owned)
{
    struct slub_cache *cache = (struct slub_cache *)base;
    struct sq_page *page = sq_page_of_address(cpu->machine, object);
    char what[96];
    (void)is_owned;
    if (!base->is_debug) {
        if (page->state == SQ_PAGE_SLAB)
            slub_note_double_free(cpu, cache, page, object);
    } else if (page->state != SQ_PAGE_SLAB) {
        (void)snprintf(what, sizeof(what),
                       "Attempt to free object(0x%016llx) outside of slab",
                       slub_number(object));
        slub_refuse_address(cache, object, what);
    } else if (slub_cache_of_page(page) != base) {
        slub_free_foreign(cpu, cache, slub_cache_of_page(page), object);
    } else {
        base->ops->free(cpu, base, object);
    }
    return base->is_debug;
}

#endif
