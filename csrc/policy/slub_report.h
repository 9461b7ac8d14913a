/*
 * Reports of SLUB's debugging, in the kernel's layout of 2.6.34 or 6.18. Left out is what
 * there is none of here: stack dumps, page flags and the taint.
 *
 * A report is written in one go, of values that were read before, since nothing of the
 * machine may be called while it is written (report.h).
 */
#ifndef SLUB_REPORT_H
#define SLUB_REPORT_H

#include "policy/slub_slab.h"

#include <stdio.h>
#include <string.h>

#define SLUB_RULE_MARKS 77u /* length of a report's lines of = and - */

/* What a report is about. */
struct slub_subject {
    sq_cpu *cpu;
    struct slub_cache *cache;
    struct sq_page *page;
    char *object; /* NULL: the slab as a whole */
};

/* A record of who allocated or freed an object last, as it lies in the slot: the call
 * site first, the rest last, whatever the kernel has between. */
struct slub_track {
    uint64_t site;
    uint32_t cpu; /* + 1; 0: there was nobody yet */
    uint32_t pid;
    uint64_t when_ms;
};

static inline struct sq_reports *slub_reports(const struct slub_cache *cache)
{
    return &cache->base.heap->reports;
}

static inline enum sq_report_form slub_form(const struct slub_cache *cache)
{
    return (enum sq_report_form)SLUB_OPTION(cache, report_form);
}

static inline bool slub_has(const struct slub_cache *cache, uint32_t debug_flag)
{
    return (cache->debug_flags & debug_flag) != 0;
}

/* Bytes of the slot from the object on. */
static inline uint32_t slub_size_from_object(const struct slub_cache *cache)
{
    return cache->base.size - cache->red_left_pad;
}

/* Where tracks and what belongs to them end: padding follows. */
static inline uint32_t slub_pad_offset(const struct slub_cache *cache)
{
    uint32_t offset = cache->info_end;
    if (slub_has(cache, SQ_CACHE_STORE_USER))
        offset += (uint32_t)SLUB_OPTION(cache, track_bytes);
    return offset + (cache->keeps_orig_size ? (uint32_t)sizeof(uint32_t) : 0);
}

static unsigned long long slub_number(const void *address)
{
    return (unsigned long long)(uintptr_t)address;
}

/* ---- tracks ---- */

static char *slub_track_at(const struct slub_cache *cache, char *object, bool is_free)
{
    return object + cache->info_end + (is_free ? cache->track_bytes : 0);
}

static void slub_track_set(const struct slub_cache *cache, char *object, bool is_free,
                           const struct slub_track *track)
{
    char *place = slub_track_at(cache, object, is_free);
    size_t rest = sizeof(*track) - sizeof(track->site);
    memcpy(place, &track->site, sizeof(track->site));
    memcpy(place + cache->track_bytes - rest, &track->cpu, rest);
}

static struct slub_track slub_track_get(const struct slub_cache *cache, char *object,
                                        bool is_free)
{
    struct slub_track track = {0};
    size_t rest = sizeof(track) - sizeof(track.site);
    char *place = slub_track_at(cache, object, is_free);
    memcpy(&track.site, place, sizeof(track.site));
    memcpy(&track.cpu, place + cache->track_bytes - rest, rest);
    return track;
}

static void slub_print_track(const struct slub_subject *subject, uint64_t now_ms,
                             bool is_free)
{
    struct slub_track track =
        slub_track_get(subject->cache, subject->object, is_free);
    if (track.cpu == 0)
        return;
    sq_report_line(slub_reports(subject->cache),
                   "%s%s in site_%llu age=%llu cpu=%u pid=%u\n",
                   slub_form(subject->cache) == SQ_REPORT_2_6 ? "INFO: " : "",
                   is_free ? "Freed" : "Allocated", (unsigned long long)track.site,
                   (unsigned long long)(now_ms - track.when_ms), track.cpu - 1,
                   track.pid);
}

/* ---- the parts of a report ---- */

/* Values that a report needs and that may not be read while it is written. */
struct slub_report_state {
    struct slub_word word;
    uint64_t now_ms;
};

static struct slub_report_state slub_report_state_of(const struct slub_subject *subject)
{
    struct slub_report_state state = {.now_ms = sq_now_ns(subject->cpu) / 1000000};
    state.word = slub_load(subject->cpu, subject->page);
    return state;
}

static void slub_print_rule(const struct slub_cache *cache, char mark)
{
    char rule[SLUB_RULE_MARKS + 1];
    memset(rule, mark, SLUB_RULE_MARKS);
    rule[SLUB_RULE_MARKS] = '\0';
    sq_report_line(slub_reports(cache), "%s\n%s", rule, mark == '-' ? "\n" : "");
}

static void slub_print_bug(const struct slub_cache *cache, const char *what)
{
    slub_print_rule(cache, '=');
    sq_report_line(slub_reports(cache), "BUG %s%s: %s\n", cache->base.name,
                   slub_form(cache) == SQ_REPORT_2_6 ? "" : " (Not tainted)", what);
    slub_print_rule(cache, '-');
}

static void slub_print_slab(const struct slub_subject *subject,
                            const struct slub_report_state *state)
{
    const struct slub_word *word = &state->word;
    const sq_machine *machine = subject->cpu->machine;
    const void *first =
        word->head == 0
            ? NULL
            : slub_object_at(machine, subject->cache, subject->page, word->head - 1);
    sq_report_line(slub_reports(subject->cache),
                   "%sSlab 0x%016llx objects=%u used=%u fp=0x%016llx flags=0x%04x\n",
                   slub_form(subject->cache) == SQ_REPORT_2_6 ? "INFO: " : "",
                   slub_number(subject->page), word->objects, word->inuse,
                   slub_number(first), word->is_frozen ? 1u : 0u);
}

/* The bytes of a slot, part by part. */
static void slub_print_sections(const struct slub_subject *subject)
{
    const struct slub_cache *cache = subject->cache;
    struct sq_reports *reports = slub_reports(cache);
    enum sq_report_form form = slub_form(cache);
    char *object = subject->object;
    char *start = sq_page_address(subject->cpu->machine, subject->page);
    uint32_t size = cache->base.object_size;
    uint32_t shown = form == SQ_REPORT_2_6 ? 128 : SQ_PAGE_SIZE;
    uint32_t pad = slub_pad_offset(cache), end = slub_size_from_object(cache);
    if (cache->red_left_pad != 0)
        sq_report_bytes(reports, form, "Redzone", object - cache->red_left_pad,
                        cache->red_left_pad);
    else if (object > start + 16)
        sq_report_bytes(reports, form, "Bytes b4", object - 16, 16);
    sq_report_bytes(reports, form, "Object", object, size < shown ? size : shown);
    if (slub_has(cache, SQ_CACHE_RED_ZONE))
        sq_report_bytes(reports, form, "Redzone", object + size, cache->inuse - size);
    if (pad < end)
        sq_report_bytes(reports, form, "Padding", object + pad, end - pad);
}

/* Everything about slab and object that follows the line that names the fault. */
static void slub_print_trailer(const struct slub_subject *subject,
                               const struct slub_report_state *state)
{
    const struct slub_cache *cache = subject->cache;
    char *start = sq_page_address(subject->cpu->machine, subject->page);
    if (cache->track_bytes != 0) {
        slub_print_track(subject, state->now_ms, false);
        slub_print_track(subject, state->now_ms, true);
    }
    slub_print_slab(subject, state);
    sq_report_line(slub_reports(cache), "%sObject 0x%016llx @offset=%lld fp=0x%016llx\n\n",
                   slub_form(cache) == SQ_REPORT_2_6 ? "INFO: " : "",
                   slub_number(subject->object), (long long)(subject->object - start),
                   slub_number(slub_peek_next(cache, subject->object)));
    slub_print_sections(subject);
}

/* ---- whole reports ---- */

/* Begin a report of `what`; `at` is the first wrong byte or NULL. */
static void slub_report_begin(const struct slub_subject *subject, const char *what,
                              const char *at)
{
    const sq_machine *machine = subject->cpu->machine;
    struct slub_cache *cache = subject->cache;
    struct sq_report where = {.slab = subject->page->serial, .object = -1};
    uint32_t objects = cache->base.slab_object_count;
    (void)snprintf(where.cache, sizeof(where.cache), "%s", cache->base.name);
    (void)snprintf(where.what, sizeof(where.what), "%s", what);
    where.offset = at == NULL ? -1 : at - sq_page_address(machine, subject->page);
    if (subject->object != NULL) {
        uint32_t index =
            slub_index_checked(machine, cache, subject->page, objects, subject->object);
        where.object = index == objects ? -1 : (int64_t)index;
    }
    (void)__atomic_add_fetch(&cache->base.report_count, 1, __ATOMIC_RELAXED);
    sq_report_begin(slub_reports(cache), &where);
}

/* object_err */
static void slub_report_object(const struct slub_subject *subject, const char *what)
{
    struct slub_report_state state = slub_report_state_of(subject);
    slub_report_begin(subject, what, NULL);
    slub_print_bug(subject->cache, what);
    slub_print_trailer(subject, &state);
    sq_report_end(slub_reports(subject->cache));
}

/* slab_err; `at` .. `at + bytes` are shown as padding if there are any. */
static void slub_report_slab(const struct slub_subject *subject, const char *what,
                             const char *at, size_t bytes)
{
    struct slub_report_state state = slub_report_state_of(subject);
    slub_report_begin(subject, what, at);
    slub_print_bug(subject->cache, what);
    slub_print_slab(subject, &state);
    sq_report_bytes(slub_reports(subject->cache), slub_form(subject->cache), "Padding",
                    at, bytes);
    sq_report_end(slub_reports(subject->cache));
}

/* Bytes from `fault` to before `end` are not `value`. 6.18 shows the object with the
 * first fault of it only (`with_object`). */
static void slub_report_bytes(const struct slub_subject *subject, const char *part,
                              const char *fault, const char *end, uint8_t value,
                              bool with_object)
{
    struct slub_report_state state = slub_report_state_of(subject);
    struct sq_reports *reports = slub_reports(subject->cache);
    bool is_old = slub_form(subject->cache) == SQ_REPORT_2_6;
    char *start = sq_page_address(subject->cpu->machine, subject->page);
    char what[96];
    (void)snprintf(what, sizeof(what), "%s overwritten", part);
    slub_report_begin(subject, what, fault);
    if (is_old) {
        slub_print_bug(subject->cache, what);
        sq_report_line(reports,
                       "INFO: 0x%016llx-0x%016llx. First byte 0x%x instead of 0x%x\n",
                       slub_number(fault), slub_number(end - 1), *(const uint8_t *)fault,
                       value);
    } else {
        sq_report_line(reports,
                       "[%s] 0x%016llx-0x%016llx @offset=%lld. First byte 0x%x instead "
                       "of 0x%x\n",
                       what, slub_number(fault), slub_number(end - 1),
                       (long long)(fault - start), *(const uint8_t *)fault, value);
        if (with_object)
            slub_print_bug(subject->cache, "Object corrupt");
    }
    if (is_old || with_object)
        slub_print_trailer(subject, &state);
    sq_report_end(reports);
}

#endif
