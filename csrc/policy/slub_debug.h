/*
 * SLUB's debugging: the bytes around and in the objects of debug caches, and the checks
 * made of them when an object is taken, given back or looked at.
 *
 *   red zones   0xbb free, 0xcc in use     poison   0x6b free, the last byte 0xa5
 *   padding     0x5a always                tracks   who allocated and who freed last
 *
 * A fault is reported (slub_report.h), the bytes are put right, and the run goes on: an
 * object that fails on its way out takes its slab out of use, one that fails on its way
 * back stays allocated. Every free pointer of a debug cache is looked at before it is
 * followed, with or without checks.
 *
 * Requires that nobody else uses the object; where free lists are walked, the list_lock
 * of the slab's node.
 */
#ifndef SLUB_DEBUG_H
#define SLUB_DEBUG_H

#include "policy/slub_report.h"

enum {
    SLUB_RED_INACTIVE = 0xbb,
    SLUB_RED_ACTIVE = 0xcc,
    SLUB_POISON_INUSE = 0x5a,
    SLUB_POISON_FREE = 0x6b,
    SLUB_POISON_END = 0xa5,
};

/* Objects that the slab has, by its size. */
static inline uint32_t slub_page_objects(const struct slub_cache *cache,
                                         const struct sq_page *page)
{
    return page->order == cache->base.order ? cache->base.slab_object_count
                                            : cache->min_order_objects;
}

static inline bool slub_is_valid_pointer(const struct slub_subject *subject,
                                         const void *pointer)
{
    uint32_t objects = slub_page_objects(subject->cache, subject->page);
    return pointer == NULL || slub_index_checked(subject->cpu->machine, subject->cache,
                                                 subject->page, objects,
                                                 pointer) < objects;
}

/* ---- bytes ---- */

/* Bytes of a kmalloc object that were asked for; what was overwritten counts as all. */
static uint32_t slub_orig_size(const struct slub_cache *cache, const char *object)
{
    uint32_t bytes;
    memcpy(&bytes, object + slub_pad_offset(cache) - sizeof(bytes), sizeof(bytes));
    return bytes < 1 || bytes > cache->base.object_size ? cache->base.object_size
                                                        : bytes;
}

static void slub_set_orig_size(const struct slub_cache *cache, char *object,
                               uint32_t bytes)
{
    memcpy(object + slub_pad_offset(cache) - sizeof(bytes), &bytes, sizeof(bytes));
}

/* init_object: red zones say `red`; the object is poisoned, in use or not. */
static void slub_init_object(sq_cpu *cpu, const struct slub_cache *cache, char *object,
                             uint8_t red)
{
    uint32_t bytes = cache->base.object_size;
    if (red == SLUB_RED_ACTIVE && cache->keeps_orig_size)
        bytes = slub_orig_size(cache, object);
    sq_touch_write(cpu, object, cache->inuse);
    if (slub_has(cache, SQ_CACHE_RED_ZONE))
        memset(object - cache->red_left_pad, red, cache->red_left_pad);
    if (cache->poisons_objects) {
        memset(object, SLUB_POISON_FREE, bytes - 1);
        object[bytes - 1] = (char)SLUB_POISON_END;
    }
    if (slub_has(cache, SQ_CACHE_RED_ZONE))
        memset(object + bytes, red, cache->inuse - bytes);
}

static void slub_record(sq_cpu *cpu, const struct slub_cache *cache, char *object,
                        bool is_free)
{
    const struct slub_track track = {
        .site = cache->base.heap->call_site[cpu->index],
        .cpu = cpu->index + 1,
        .when_ms = sq_now_ns(cpu) / 1000000,
    };
    if (cache->track_bytes != 0)
        slub_track_set(cache, object, is_free, &track);
}

/* What a new slab's bytes are before its first use. */
static void slub_debug_new_slab(sq_cpu *cpu, const struct slub_cache *cache,
                                struct sq_page *page)
{
    size_t bytes = (size_t)SQ_PAGE_SIZE << page->order;
    char *start = sq_page_address(cpu->machine, page);
    sq_touch_write(cpu, start, bytes);
    if (slub_has(cache, SQ_CACHE_POISON))
        memset(start, SLUB_POISON_INUSE, bytes);
}

static void slub_debug_new_object(sq_cpu *cpu, const struct slub_cache *cache,
                                  char *object)
{
    const struct slub_track nobody = {0};
    slub_init_object(cpu, cache, object, SLUB_RED_INACTIVE);
    if (cache->track_bytes != 0) {
        slub_track_set(cache, object, false, &nobody);
        slub_track_set(cache, object, true, &nobody);
    }
    if (cache->keeps_orig_size)
        slub_set_orig_size(cache, object, cache->base.object_size);
}

/* kmalloc of fewer bytes than the class has: the rest is red zone. */
static void slub_note_orig_size(sq_cpu *cpu, const struct slub_cache *cache,
                                char *object, size_t bytes)
{
    slub_set_orig_size(cache, object, (uint32_t)bytes);
    slub_init_object(cpu, cache, object, SLUB_RED_ACTIVE);
}

/* ---- looking at one object ---- */

/* restore_bytes; 2.6 does not say of which part. */
static void slub_restore(const struct slub_subject *subject, const char *part,
                         char *from, char *end, uint8_t value)
{
    const struct slub_cache *cache = subject->cache;
    bool is_old = slub_form(cache) == SQ_REPORT_2_6;
    sq_report_fix(slub_reports(cache), cache->base.name,
                  "Restoring %s%s0x%016llx-0x%016llx=0x%x", is_old ? "" : part,
                  is_old ? "" : " ", slub_number(from), slub_number(end - 1), value);
    memset(from, value, (size_t)(end - from));
}

/* Are these bytes all `value`? If not, say so and put them right. */
static bool slub_check_bytes(const struct slub_subject *subject, const char *part,
                             char *start, uint32_t bytes, uint8_t value,
                             bool with_object)
{
    char *fault = start, *end = start + bytes;
    while (fault < end && *(uint8_t *)fault == value)
        fault++;
    if (fault == end)
        return true;
    while (*(uint8_t *)(end - 1) == value)
        end--;
    slub_report_bytes(subject, part, fault, end, value, with_object);
    slub_restore(subject, part, fault, end, value);
    return false;
}

/* The red zones of an object, or where it has none the bytes up to its alignment. */
static bool slub_check_red_zones(const struct slub_subject *subject, uint8_t red)
{
    const struct slub_cache *cache = subject->cache;
    bool is_old = slub_form(cache) == SQ_REPORT_2_6, is_good = true;
    uint32_t size = cache->base.object_size;
    char *object = subject->object;
    if (!slub_has(cache, SQ_CACHE_RED_ZONE)) {
        if (!slub_has(cache, SQ_CACHE_POISON) || size == cache->inuse)
            return true;
        is_good = slub_check_bytes(subject, "Alignment padding", object + size,
                                   cache->inuse - size, SLUB_POISON_INUSE, true);
        return is_good || is_old;
    }
    is_good = slub_check_bytes(subject, is_old ? "Redzone" : "Left Redzone",
                               object - cache->red_left_pad, cache->red_left_pad, red,
                               true);
    if (is_old && !is_good)
        return false;
    if (!slub_check_bytes(subject, is_old ? "Redzone" : "Right Redzone", object + size,
                          cache->inuse - size, red, is_good))
        is_good = false;
    if (cache->keeps_orig_size && red == SLUB_RED_ACTIVE) {
        uint32_t asked = slub_orig_size(cache, object);
        if (!slub_check_bytes(subject, "kmalloc Redzone", object + asked, size - asked,
                              red, is_good))
            is_good = false;
    }
    return is_good;
}

/* The poison of an object, and the padding behind its metadata. */
static bool slub_check_poison(const struct slub_subject *subject, uint8_t red,
                              bool is_good)
{
    const struct slub_cache *cache = subject->cache;
    bool is_old = slub_form(cache) == SQ_REPORT_2_6;
    uint32_t last = cache->base.object_size - 1, pad = slub_pad_offset(cache);
    char *object = subject->object;
    if (!slub_has(cache, SQ_CACHE_POISON))
        return is_good;
    if (red == SLUB_RED_INACTIVE && cache->poisons_objects) {
        if (!slub_check_bytes(subject, "Poison", object, last, SLUB_POISON_FREE,
                              is_good))
            is_good = false;
        if (is_old && !is_good)
            return false;
        if (!slub_check_bytes(subject, is_old ? "Poison" : "End Poison", object + last,
                              1, SLUB_POISON_END, is_good))
            is_good = false;
        if (is_old && !is_good)
            return false;
    }
    if (pad < slub_size_from_object(cache) &&
        !slub_check_bytes(subject, "Object padding", object + pad,
                          slub_size_from_object(cache) - pad, SLUB_POISON_INUSE,
                          is_good) &&
        !is_old)
        is_good = false;
    return is_good;
}

/* check_object: all bytes of a slot that say something. 2.6 stops at the first fault. */
static bool slub_check_object(const struct slub_subject *subject, uint8_t red)
{
    struct slub_cache *cache = subject->cache;
    bool is_old = slub_form(cache) == SQ_REPORT_2_6, is_good;
    sq_touch_read(subject->cpu, subject->object, slub_size_from_object(cache));
    is_good = slub_check_red_zones(subject, red);
    if (is_old && !is_good)
        return false;
    is_good = slub_check_poison(subject, red, is_good);
    if (is_old && !is_good)
        return false;
    if (cache->fp_offset < cache->inuse && red == SLUB_RED_ACTIVE)
        return is_good; /* the object's own bytes lie there */
    if (!slub_is_valid_pointer(subject, slub_peek_next(cache, subject->object))) {
        slub_report_object(subject, "Freepointer corrupt");
        slub_poke_next(cache, subject->object, NULL);
        is_good = false;
    }
    return is_good;
}

/* ---- looking at a slab ---- */

/* slab_pad_check: what the last object leaves over. */
static bool slub_check_slab_pad(const struct slub_subject *subject)
{
    const struct slub_cache *cache = subject->cache;
    struct slub_subject slab = *subject;
    uint32_t bytes = SQ_PAGE_SIZE << subject->page->order;
    char *start = sq_page_address(subject->cpu->machine, subject->page);
    char *end = start + bytes, *pad = end - bytes % cache->base.size, *fault = pad;
    char what[96];
    if (!slub_has(cache, SQ_CACHE_POISON))
        return true;
    while (fault < end && *(uint8_t *)fault == SLUB_POISON_INUSE)
        fault++;
    if (fault == end)
        return true;
    while (*(uint8_t *)(end - 1) == SLUB_POISON_INUSE)
        end--;
    slab.object = NULL;
    (void)snprintf(what, sizeof(what), "Padding overwritten. 0x%016llx-0x%016llx",
                   slub_number(fault), slub_number(end - 1));
    slub_report_slab(&slab, what, fault, (size_t)(end - fault));
    slub_restore(subject, "slab padding", fault, end, SLUB_POISON_INUSE);
    return true;
}

/* Replace the word of a slab whose counts were wrong. */
static void slub_force_word(const struct slub_subject *subject,
                            const struct slub_word *word)
{
    sq_store_release(subject->cpu, &slub_slab_of(subject->page)->word, slub_pack(word));
}

static void slub_fix(const struct slub_subject *subject, const char *what)
{
    sq_report_fix(slub_reports(subject->cache), subject->cache->base.name, "%s", what);
}

/* The slab cannot be trusted: whatever is in it counts as in use for ever. */
static void slub_use_up(const struct slub_subject *subject, const char *fix)
{
    struct slub_word word = slub_load(subject->cpu, subject->page);
    word.head = 0;
    word.inuse = word.objects;
    slub_force_word(subject, &word);
    slub_fix(subject, fix);
}

enum slub_found {
    SLUB_FOUND_NOT,  /* the free list is sound and has no such object */
    SLUB_FOUND,      /* the object is free */
    SLUB_FOUND_RUIN, /* there is no free list any more */
};

/* A pointer of the list leads to no object: end it before, or, if it is the first, give
 * it up. Returns what the search found then. */
static enum slub_found slub_cut_list(const struct slub_subject *subject, char *previous)
{
    struct slub_subject broken = *subject;
    broken.object = previous;
    if (previous == NULL) {
        slub_report_slab(&broken, "Freepointer corrupt", NULL, 0);
        slub_use_up(&broken, "Freelist cleared");
        return SLUB_FOUND_RUIN;
    }
    slub_report_object(&broken, "Freechain corrupt");
    slub_poke_next(subject->cache, previous, NULL);
    return SLUB_FOUND_NOT;
}

/* The counter of a slab must be what its free list says. */
static void slub_check_count(const struct slub_subject *subject, uint32_t free_count)
{
    struct slub_word word = slub_load(subject->cpu, subject->page);
    uint32_t inuse = word.objects - free_count;
    struct slub_subject slab = *subject;
    char what[96];
    if (word.is_frozen || word.inuse == inuse)
        return; /* a CPU has more of the free objects than the list */
    slab.object = NULL;
    (void)snprintf(what, sizeof(what),
                   "Wrong object count. Counter is %u but counted were %u", word.inuse,
                   inuse);
    slub_report_slab(&slab, what, NULL, 0);
    word.inuse = inuse;
    slub_force_word(&slab, &word);
    slub_fix(&slab, slub_form(subject->cache) == SQ_REPORT_2_6 ? "Object count adjusted."
                                                               : "Object count adjusted");
}

/* on_freelist: walk the slab's free list, look for the subject's object in it. */
static enum slub_found slub_search(const struct slub_subject *subject)
{
    struct slub_word word = slub_load(subject->cpu, subject->page);
    void *object =
        slub_head_object(subject->cpu, subject->cache, subject->page, &word);
    char *previous = NULL;
    uint32_t count = 0;
    while (object != NULL && count <= word.objects) {
        if (object == subject->object)
            return SLUB_FOUND;
        if (!slub_is_valid_pointer(subject, object)) {
            if (slub_cut_list(subject, previous) == SLUB_FOUND_RUIN)
                return SLUB_FOUND_RUIN;
            break;
        }
        previous = object;
        object = slub_next(subject->cpu, subject->cache, object);
        count++;
    }
    if (count > word.objects) {
        struct slub_subject slab = *subject;
        slab.object = NULL;
        slub_report_slab(&slab, "Freelist cycle detected", NULL, 0);
        slub_use_up(&slab, "Freelist cleared");
        return SLUB_FOUND_RUIN;
    }
    slub_check_count(subject, count);
    return SLUB_FOUND_NOT;
}

/* ---- an object is taken ---- */

static inline bool slub_makes_checks(const struct slub_cache *cache)
{
    return SLUB_OPTION(cache, checks_flag) == 0 ||
           slub_has(cache, SQ_CACHE_CONSISTENCY_CHECKS);
}

static void slub_trace(const struct slub_subject *subject, const char *what)
{
    struct slub_word word = slub_load(subject->cpu, subject->page);
    if (slub_has(subject->cache, SQ_CACHE_TRACE))
        sq_report_trace(slub_reports(subject->cache),
                        "TRACE %s %s 0x%016llx inuse=%u fp=0x%016llx\n",
                        subject->cache->base.name, what, slub_number(subject->object),
                        word.inuse,
                        slub_number(slub_head_object(subject->cpu, subject->cache,
                                                     subject->page, &word)));
}

/*
 * alloc_debug_processing of an object that was just taken off a free list of the slab.
 * False: it or its slab is not to be used; all of the slab counts as in use then, and the
 * caller leaves the slab alone.
 */
static bool slub_debug_alloc(sq_cpu *cpu, struct slub_cache *cache, struct sq_page *page,
                             char *object)
{
    const struct slub_subject subject = {cpu, cache, page, object};
    if (slub_makes_checks(cache)) {
        bool is_good = slub_check_slab_pad(&subject);
        if (!slub_check_object(&subject, SLUB_RED_INACTIVE))
            is_good = false;
        if (!is_good) {
            slub_use_up(&subject, "Marking all objects used");
            return false;
        }
    }
    slub_record(cpu, cache, object, false);
    slub_trace(&subject, "alloc");
    if (cache->keeps_orig_size)
        slub_set_orig_size(cache, object, cache->base.object_size);
    slub_init_object(cpu, cache, object, SLUB_RED_ACTIVE);
    return true;
}

/* The free object after `object` in a chain that is nobody else's. If the pointer leads
 * to no object, the chain ends here and what followed is lost. */
static void *slub_debug_next(sq_cpu *cpu, struct slub_cache *cache, struct sq_page *page,
                             void *object)
{
    const struct slub_subject subject = {cpu, cache, page, object};
    void *next = slub_next(cpu, cache, object);
    if (slub_is_valid_pointer(&subject, next))
        return next;
    slub_report_object(&subject, "Freechain corrupt");
    slub_poke_next(cache, object, NULL);
    slub_fix(&subject, "Isolate corrupted freechain");
    return NULL;
}

/* Make a chain safe to follow to its end. */
static void slub_debug_sound_chain(sq_cpu *cpu, struct slub_cache *cache,
                                   struct sq_page *page, void *object)
{
    uint32_t left = slub_page_objects(cache, page);
    while (object != NULL && left-- > 1)
        object = slub_debug_next(cpu, cache, page, object);
    if (object != NULL && slub_next(cpu, cache, object) != NULL) {
        const struct slub_subject subject = {cpu, cache, page, object};
        slub_report_object(&subject, "Freelist cycle detected");
        slub_poke_next(cache, object, NULL);
        slub_fix(&subject, "Isolate corrupted freechain");
    }
}

/* ---- an object is given back ---- */

/* May this object of the slab be freed? */
static bool slub_debug_may_free(const struct slub_subject *subject)
{
    struct slub_subject slab = *subject;
    char what[96];
    (void)slub_check_slab_pad(subject);
    slab.object = NULL;
    if (!slub_is_valid_pointer(subject, subject->object)) {
        (void)snprintf(what, sizeof(what), "Invalid object pointer 0x%016llx",
                       slub_number(subject->object));
        slub_report_slab(&slab, what, NULL, 0);
        return false;
    }
    if (slub_search(subject) == SLUB_FOUND) {
        slub_report_object(subject, "Object already free");
        return false;
    }
    return slub_check_object(subject, SLUB_RED_ACTIVE);
}

/* The free of all objects from `head` to `tail` is refused: they stay allocated. */
static void slub_debug_refuse(const struct slub_subject *subject, void *head, void *tail)
{
    sq_report_fix(slub_reports(subject->cache), subject->cache->base.name,
                  "Object at 0x%016llx not freed", slub_number(subject->object));
    for (void *object = head;; object = slub_peek_next(subject->cache, object)) {
        sq_report_refuse(slub_reports(subject->cache), object);
        if (object == tail)
            break;
    }
}

/*
 * free_debug_processing of the chain from `head` to `tail`. False: none of it is to be
 * freed. Requires the list_lock.
 */
static bool slub_debug_free(sq_cpu *cpu, struct slub_cache *cache, struct sq_page *page,
                            void *head, void *tail)
{
    struct slub_subject subject = {cpu, cache, page, head};
    while (slub_makes_checks(cache)) {
        if (!slub_debug_may_free(&subject)) {
            slub_debug_refuse(&subject, head, tail);
            return false;
        }
        if (subject.object == tail)
            break;
        subject.object = slub_next(cpu, cache, subject.object);
    }
    for (char *object = head;;) {
        char *next = object == tail ? NULL : slub_next(cpu, cache, object);
        subject.object = object;
        slub_record(cpu, cache, object, true);
        slub_trace(&subject, "free");
        slub_init_object(cpu, cache, object, SLUB_RED_INACTIVE);
        if (next == NULL)
            return true;
        object = next;
    }
}

#endif
