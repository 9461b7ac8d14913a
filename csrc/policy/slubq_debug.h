/*
 * SLUB+Q's debugging: the bytes around and in the objects of debug caches, looked at
 * when an object leaves the queues and when it comes back to them.
 *
 *   | object | red zone to a word, or one | allocated by | freed by | padding | align |
 *
 *   red zones   0xbb free, 0xcc in use, 0xdd in a queue (V4)   poison   0x6b, then 0xa5
 *
 * There is no free pointer to look after; what is left of SLUB's checks is told in the
 * lines of 2.6.34. An object that fails on its way out is put right and left alone for
 * ever, as if somebody had it; one that fails on its way back is not freed. A double
 * free shows in the bitmap, or while the object is in a queue in its red zone.
 *
 * The bytes are written with nobody else at the object; V4's also under its slab's
 * lock, when the object moves between slab and queue. What a slab leaves over is not
 * looked at.
 */
#ifndef SLUBQ_DEBUG_H
#define SLUBQ_DEBUG_H

#include <stdio.h>

#include "policy/slubq_bitmap.h"

#define SLUBQ_TRACK_BYTES 24u
#define SLUBQ_DEBUG_FLAGS                                                              \
    (SQ_CACHE_RED_ZONE | SQ_CACHE_POISON | SQ_CACHE_STORE_USER |                       \
     SQ_CACHE_CONSISTENCY_CHECKS | SQ_CACHE_TRACE)

enum {
    SLUBQ_RED_INACTIVE = 0xbb,
    SLUBQ_RED_ACTIVE = 0xcc,
    SLUBQ_RED_QUEUE = 0xdd,
    SLUBQ_POISON_INUSE = 0x5a,
    SLUBQ_POISON_FREE = 0x6b,
    SLUBQ_POISON_END = 0xa5,
};

/* What a report is about. */
struct slubq_subject {
    struct slubq_cache *cache;
    struct sq_page *page;
    char *object; /* NULL: no object */
    uint64_t now_ms;
};

/* Who allocated or freed an object last. */
struct slubq_track {
    uint64_t site;
    uint32_t cpu; /* + 1; 0: nobody yet */
    uint32_t pid;
    uint64_t when_ms;
};
_Static_assert(sizeof(struct slubq_track) == SLUBQ_TRACK_BYTES, "as in 2.6.34");

static inline bool slubq_has(const struct slubq_cache *cache, uint32_t debug_flag)
{
    return (cache->debug_flags & debug_flag) != 0;
}

static inline struct sq_reports *slubq_reports(const struct slubq_cache *cache)
{
    return &cache->base.heap->reports;
}

static unsigned long long slubq_number(const void *address)
{
    return (unsigned long long)(uintptr_t)address;
}

static struct slubq_subject slubq_subject_of(sq_cpu *cpu, struct slubq_cache *cache,
                                             void *object)
{
    return (struct slubq_subject){cache, sq_page_of_address(cpu->machine, object),
                                  object, sq_now_ns(cpu) / 1000000};
}

/* What the red zone of an object in a queue holds. */
static inline uint8_t slubq_red_idle(const struct slubq_cache *cache)
{
    return cache->rule.version >= 4 ? SLUBQ_RED_QUEUE : SLUBQ_RED_INACTIVE;
}

/* Where the padding behind everything else begins. */
static inline uint32_t slubq_pad_offset(const struct slubq_cache *cache)
{
    return cache->inuse +
           (slubq_has(cache, SQ_CACHE_STORE_USER) ? 2 * SLUBQ_TRACK_BYTES : 0);
}

/* ---- bytes ---- */

static void slubq_set_red(const struct slubq_cache *cache, char *object, uint8_t red)
{
    uint32_t size = cache->base.object_size;
    if (slubq_has(cache, SQ_CACHE_RED_ZONE))
        memset(object + size, red, cache->inuse - size);
}

static void slubq_poison(const struct slubq_cache *cache, char *object)
{
    if (!cache->poisons_objects)
        return;
    memset(object, SLUBQ_POISON_FREE, cache->base.object_size - 1);
    object[cache->base.object_size - 1] = (char)SLUBQ_POISON_END;
}

static void slubq_record(sq_cpu *cpu, const struct slubq_cache *cache, char *object,
                         bool is_free)
{
    const struct slubq_track track = {.site = cache->base.heap->call_site[cpu->index],
                                      .cpu = cpu->index + 1,
                                      .when_ms = sq_now_ns(cpu) / 1000000};
    if (slubq_has(cache, SQ_CACHE_STORE_USER))
        memcpy(object + cache->inuse + (is_free ? SLUBQ_TRACK_BYTES : 0), &track,
               sizeof(track));
}

/* The objects of a new slab. */
static void slubq_debug_new_slab(sq_cpu *cpu, struct slubq_cache *cache,
                                 struct sq_page *page)
{
    char *object = sq_page_address(cpu->machine, page);
    uint32_t objects = slubq_slab_objects(cache, page);
    sq_touch_write(cpu, object, (size_t)objects * cache->base.size);
    if (slubq_has(cache, SQ_CACHE_POISON))
        memset(object, SLUBQ_POISON_INUSE, (size_t)objects * cache->base.size);
    for (uint32_t i = 0; i < objects; i++, object += cache->base.size) {
        if (slubq_has(cache, SQ_CACHE_STORE_USER))
            memset(object + cache->inuse, 0, 2 * SLUBQ_TRACK_BYTES);
        slubq_set_red(cache, object, SLUBQ_RED_INACTIVE);
        slubq_poison(cache, object);
    }
}

/* Objects move between slab and queues; V4 notes where they are. Bytes that are wrong
 * stay so, for the next look at the object to find. */
static void slubq_debug_move(const struct slubq_cache *cache, void *const *object,
                             uint32_t count, bool to_queue)
{
    uint8_t idle = slubq_red_idle(cache);
    uint8_t from = to_queue ? SLUBQ_RED_INACTIVE : idle;
    uint8_t to = to_queue ? idle : SLUBQ_RED_INACTIVE;
    if (!slubq_has(cache, SQ_CACHE_RED_ZONE) || from == to)
        return;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t at = cache->base.object_size; at < cache->inuse; at++)
            if (((uint8_t *)object[i])[at] == from)
                ((uint8_t *)object[i])[at] = to;
}

/* ---- reports ---- */

static void slubq_report_begin(const struct slubq_subject *subject, const char *what,
                               const char *at)
{
    struct slubq_cache *cache = subject->cache;
    struct sq_report where = {.slab = -1, .object = -1, .offset = -1};
    char rule[78];
    (void)snprintf(where.cache, sizeof(where.cache), "%s", cache->base.name);
    (void)snprintf(where.what, sizeof(where.what), "%s", what);
    if (subject->page != NULL)
        where.slab = subject->page->serial;
    if (subject->object != NULL)
        where.object = slubq_index(cache, subject->page, subject->object);
    if (at != NULL)
        where.offset = at - sq_page_address(cache->base.heap->machine, subject->page);
    (void)__atomic_add_fetch(&cache->base.report_count, 1, __ATOMIC_RELAXED);
    sq_report_begin(slubq_reports(cache), &where);
    memset(rule, '=', sizeof(rule) - 1);
    rule[sizeof(rule) - 1] = '\0';
    sq_report_line(slubq_reports(cache), "%s\nBUG %s: %s\n", rule, cache->base.name,
                   what);
    memset(rule, '-', sizeof(rule) - 1);
    sq_report_line(slubq_reports(cache), "%s\n\n", rule);
}

static void slubq_print_track(const struct slubq_subject *subject, bool is_free)
{
    struct slubq_track track;
    memcpy(&track,
           subject->object + subject->cache->inuse + (is_free ? SLUBQ_TRACK_BYTES : 0),
           sizeof(track));
    if (track.cpu != 0)
        sq_report_line(slubq_reports(subject->cache),
                       "INFO: %s in site_%llu age=%llu cpu=%u pid=%u\n",
                       is_free ? "Freed" : "Allocated", (unsigned long long)track.site,
                       (unsigned long long)(subject->now_ms - track.when_ms),
                       track.cpu - 1, track.pid);
}

/* Everything about slab and object that follows the lines that name the fault. */
static void slubq_report_end(const struct slubq_subject *subject)
{
    const struct slubq_cache *cache = subject->cache;
    struct sq_reports *reports = slubq_reports(cache);
    uint32_t size = cache->base.object_size, pad = slubq_pad_offset(cache);
    char *object = subject->object;
    if (object != NULL && slubq_has(cache, SQ_CACHE_STORE_USER)) {
        slubq_print_track(subject, false);
        slubq_print_track(subject, true);
    }
    if (subject->page != NULL)
        sq_report_line(reports, "INFO: Slab 0x%016llx objects=%u used=%u\n",
                       slubq_number(subject->page),
                       slubq_slab_objects(cache, subject->page),
                       slubq_slab_objects(cache, subject->page) -
                           slubq_free_count(cache, subject->page));
    if (object != NULL) {
        sq_report_line(reports, "INFO: Object 0x%016llx @offset=%lld\n\n",
                       slubq_number(object),
                       (long long)(object - sq_page_address(cache->base.heap->machine,
                                                            subject->page)));
        sq_report_bytes(reports, SQ_REPORT_2_6, "Object", object,
                        size < 128 ? size : 128);
        if (slubq_has(cache, SQ_CACHE_RED_ZONE))
            sq_report_bytes(reports, SQ_REPORT_2_6, "Redzone", object + size,
                            cache->inuse - size);
        if (pad < cache->base.size)
            sq_report_bytes(reports, SQ_REPORT_2_6, "Padding", object + pad,
                            cache->base.size - pad);
    }
    sq_report_end(reports);
}

static void slubq_report(const struct slubq_subject *subject, const char *what)
{
    slubq_report_begin(subject, what, NULL);
    slubq_report_end(subject);
}

/* ---- looking at one object ---- */

/* Are these bytes all `value`? If not, say so and put them right. */
static bool slubq_check_bytes(const struct slubq_subject *subject, const char *what,
                              uint32_t offset, uint32_t bytes, uint8_t value)
{
    char *fault = subject->object + offset, *end = fault + bytes;
    while (fault < end && *(uint8_t *)fault == value)
        fault++;
    if (fault == end)
        return true;
    while (*(uint8_t *)(end - 1) == value)
        end--;
    slubq_report_begin(subject, what, fault);
    sq_report_line(slubq_reports(subject->cache),
                   "INFO: 0x%016llx-0x%016llx. First byte 0x%x instead of 0x%x\n",
                   slubq_number(fault), slubq_number(end - 1), *(uint8_t *)fault,
                   value);
    slubq_report_end(subject);
    sq_report_fix(slubq_reports(subject->cache), subject->cache->base.name,
                  "Restoring 0x%016llx-0x%016llx=0x%x", slubq_number(fault),
                  slubq_number(end - 1), value);
    memset(fault, value, (size_t)(end - fault));
    return false;
}

/* check_object: stops at the first fault. */
static bool slubq_check_object(const struct slubq_subject *subject, uint8_t red)
{
    const struct slubq_cache *cache = subject->cache;
    uint32_t size = cache->base.object_size, pad = slubq_pad_offset(cache);
    if (slubq_has(cache, SQ_CACHE_RED_ZONE)) {
        if (!slubq_check_bytes(subject, "Redzone overwritten", size,
                               cache->inuse - size, red))
            return false;
    } else if (slubq_has(cache, SQ_CACHE_POISON)) {
        (void)slubq_check_bytes(subject, "Alignment padding overwritten", size,
                                cache->inuse - size, SLUBQ_POISON_INUSE);
    }
    if (!slubq_has(cache, SQ_CACHE_POISON))
        return true;
    if (red != SLUBQ_RED_ACTIVE && cache->poisons_objects &&
        (!slubq_check_bytes(subject, "Poison overwritten", 0, size - 1,
                            SLUBQ_POISON_FREE) ||
         !slubq_check_bytes(subject, "Poison overwritten", size - 1, 1,
                            SLUBQ_POISON_END)))
        return false;
    (void)slubq_check_bytes(subject, "Object padding overwritten", pad,
                            cache->base.size - pad, SLUBQ_POISON_INUSE);
    return true;
}

/* Is the red zone that of an object that nobody has? */
static bool slubq_looks_idle(const struct slubq_cache *cache, const char *object)
{
    uint8_t red;
    if (!slubq_has(cache, SQ_CACHE_RED_ZONE))
        return false; /* what follows may be no memory */
    red = (uint8_t)object[cache->base.object_size];
    return red == SLUBQ_RED_INACTIVE || red == slubq_red_idle(cache);
}

static void slubq_trace(const struct slubq_subject *subject, const char *what)
{
    if (slubq_has(subject->cache, SQ_CACHE_TRACE))
        sq_report_trace(slubq_reports(subject->cache),
                        "TRACE %s %s 0x%016llx inuse=%u\n", subject->cache->base.name,
                        what, slubq_number(subject->object),
                        slubq_slab_objects(subject->cache, subject->page) -
                            slubq_free_count(subject->cache, subject->page));
}

/* ---- on its way out and back ---- */

/* False: the object was not as it should be, and is left alone. */
static bool slubq_debug_take(sq_cpu *cpu, struct slubq_cache *cache, void *object)
{
    const struct slubq_subject subject = slubq_subject_of(cpu, cache, object);
    sq_touch_write(cpu, object, cache->base.size);
    if (!slubq_check_object(&subject, slubq_red_idle(cache)))
        return false;
    slubq_record(cpu, cache, object, false);
    slubq_trace(&subject, "alloc");
    slubq_set_red(cache, object, SLUBQ_RED_ACTIVE);
    return true;
}

static void slubq_debug_refuse(struct slubq_cache *cache, void *object)
{
    sq_report_fix(slubq_reports(cache), cache->base.name,
                  "Object at 0x%016llx not freed", slubq_number(object));
    sq_report_refuse(slubq_reports(cache), object);
}

/* False: it may not come back. Requires the address of an object of the cache. */
static bool slubq_debug_give(sq_cpu *cpu, struct slubq_cache *cache, void *object)
{
    const struct slubq_subject subject = slubq_subject_of(cpu, cache, object);
    bool is_good;
    sq_touch_write(cpu, object, cache->base.size);
    if (slubq_looks_idle(cache, object)) {
        slubq_report(&subject, "Object already free");
        is_good = false;
    } else {
        is_good = slubq_check_object(&subject, SLUBQ_RED_ACTIVE);
    }
    if (!is_good) {
        slubq_debug_refuse(cache, object);
        return false;
    }
    slubq_record(cpu, cache, object, true);
    slubq_trace(&subject, "free");
    slubq_set_red(cache, object, slubq_red_idle(cache));
    slubq_poison(cache, object);
    return true;
}

#endif
