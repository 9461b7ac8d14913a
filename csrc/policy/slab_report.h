/*
 * slab_report.h -- what SLAB's debugging says, in the layout of 2.6 or of 4.19 on, as
 * public reports of such kernels show it. Left out is what there is none of here: stack
 * dumps and the names of functions, of which a user word has the number of a call site.
 *
 *   slab error in FUNCTION(): cache `NAME': FAULT
 *   SLOT: redzone 1:0xWORD, redzone 2:0xWORD
 *
 *   Slab corruption (Not tainted): NAME start=OBJECT, len=BYTES
 *   Redzone: 0xWORD/0xWORD
 *   Last user: [<SITE>](site_NUMBER)
 *   000: 6b 6b ...   kk...     each line of the object that is not poison
 *   Prev obj: start=... and Next obj: start=..., each with words and two lines
 *
 * A report is written in one go, and nothing of the machine is called meanwhile
 * (report.h). SLAB mends nothing that it would have to tell: there are no FIX lines.
 */
#ifndef SQ_SLAB_REPORT_H
#define SQ_SLAB_REPORT_H

#include <stdio.h>

#include "policy/slab_object.h"

enum {
    SLAB_POISON_INUSE = 0x5a,
    SLAB_POISON_FREE = 0x6b,
    SLAB_POISON_END = 0xa5,
    SLAB_LINE_BYTES = 16,
    SLAB_LINES_MAX = 6, /* of a corrupted object */
};

/* What a report is about. */
struct slab_subject {
    struct slab_cache *cache;
    struct slab *slab;
    char *slot;
};

static inline struct sq_reports *slab_reports(const struct slab_cache *cache)
{
    return &cache->base.heap->reports;
}

static inline bool slab_form_is_old(const struct slab_cache *cache)
{
    return cache->base.heap->options.slab.report_form == SQ_REPORT_2_6;
}

static unsigned long long slab_number(const void *address)
{
    return (unsigned long long)(uintptr_t)address;
}

/* Begin a report of `what`; `at` is the first wrong byte or NULL. */
static void slab_report_begin(const struct slab_subject *subject, const char *what,
                              const char *at)
{
    struct slab_cache *cache = subject->cache;
    struct sq_report where = {.slab = -1, .object = -1, .offset = -1};
    (void)snprintf(where.cache, sizeof(where.cache), "%s", cache->base.name);
    (void)snprintf(where.what, sizeof(where.what), "%s", what);
    if (subject->slab != NULL) {
        struct sq_page *page = slab_page_of(cache, subject->slab);
        where.slab = page->serial;
        where.object = slab_index_of(cache, subject->slab, subject->slot);
        if (at != NULL)
            where.offset = at - sq_page_address(slab_machine(cache), page);
    }
    (void)__atomic_add_fetch(&cache->base.report_count, 1, __ATOMIC_RELAXED);
    sq_report_begin(slab_reports(cache), &where);
}

/* ---- red words ---- */

/* The first byte of the red words that is not as in `word`, or NULL. */
static const char *slab_wrong_red_byte(const struct slab_subject *subject,
                                       uint64_t word)
{
    char expected[sizeof(word)];
    memcpy(expected, &word, sizeof(word));
    for (uint32_t side = 0; side < 2; side++) {
        const char *found = slab_red_at(subject->cache, subject->slot, side);
        for (uint32_t i = 0; i < sizeof(word); i++)
            if (found[i] != expected[i])
                return found + i;
    }
    return NULL;
}

/* __slab_error: `function` is the kernel's that finds such a fault; with red words
 * those are shown. `word` is what they should be. */
static void slab_report_error(const struct slab_subject *subject, const char *function,
                              const char *what, uint64_t word, bool shows_words)
{
    const struct slab_cache *cache = subject->cache;
    slab_report_begin(subject, what, slab_wrong_red_byte(subject, word));
    sq_report_line(slab_reports(cache), "slab error in %s(): cache `%s': %s\n",
                   function, cache->base.name, what);
    if (shows_words)
        sq_report_line(slab_reports(cache),
                       "%016llx: redzone 1:0x%llx, redzone 2:0x%llx\n",
                       slab_number(subject->slot),
                       (unsigned long long)slab_red_get(cache, subject->slot, 0),
                       (unsigned long long)slab_red_get(cache, subject->slot, 1));
    sq_report_end(slab_reports(cache));
}

/* The kernel ends the task here, with no words of its own: `what` says why. */
static void slab_report_bug(const struct slab_subject *subject, const char *what)
{
    slab_report_begin(subject, what, NULL);
    sq_report_line(slab_reports(subject->cache), "kernel BUG at mm/slab.c: %s\n", what);
    sq_report_end(slab_reports(subject->cache));
}

/* ---- poison ---- */

static uint8_t slab_poison_at(const struct slab_cache *cache, uint32_t offset)
{
    return offset + 1 == cache->base.object_size ? SLAB_POISON_END : SLAB_POISON_FREE;
}

/* The first byte from `offset` on that is not the poison of a free object; the size of
 * the object if there is none. */
static uint32_t slab_wrong_poison_byte(const struct slab_subject *subject,
                                       uint32_t offset)
{
    const struct slab_cache *cache = subject->cache;
    const char *object = slab_user_of(cache, subject->slot);
    while (offset < cache->base.object_size &&
           (uint8_t)object[offset] == slab_poison_at(cache, offset))
        offset++;
    return offset;
}

/* One byte of the line that differs from the poison by one bit alone: so does bad RAM.
 */
static bool slab_is_single_bit(const uint8_t *line, uint32_t count)
{
    uint32_t wrong = 0;
    uint8_t bits = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (line[i] == SLAB_POISON_FREE)
            continue;
        wrong++;
        bits = line[i] ^ SLAB_POISON_FREE;
    }
    return wrong == 1 && sq_is_power_of_two(bits);
}

/* The line of an object that begins at `offset`; the old form shows no letters. */
static void slab_print_line(const struct slab_cache *cache, char *slot, uint32_t offset)
{
    const uint8_t *line = (const uint8_t *)slab_user_of(cache, slot) + offset;
    uint32_t rest = cache->base.object_size - offset;
    uint32_t count = rest < SLAB_LINE_BYTES ? rest : SLAB_LINE_BYTES;
    struct sq_reports *reports = slab_reports(cache);
    char letters[SLAB_LINE_BYTES + 1] = "";
    sq_report_line(reports, "%03x:", offset);
    for (uint32_t i = 0; i < count; i++) {
        sq_report_line(reports, " %02x", line[i]);
        letters[i] = (char)(line[i] >= ' ' && line[i] <= '~' ? line[i] : '.');
    }
    if (slab_form_is_old(cache))
        sq_report_line(reports, "\n");
    else
        sq_report_line(reports, "%*s  %s\n", (int)(3 * (SLAB_LINE_BYTES - count)), "",
                       letters);
    if (slab_is_single_bit(line, count))
        sq_report_line(reports, "Single bit error detected. Probably bad RAM.\n"
                                "Run memtest86+ or a similar memory test tool.\n");
}

/* Red words, user word and the first lines of an object. */
static void slab_print_object(const struct slab_cache *cache, char *slot,
                              uint32_t lines)
{
    struct sq_reports *reports = slab_reports(cache);
    if (slab_has(cache, SQ_CACHE_RED_ZONE))
        sq_report_line(reports, "Redzone: 0x%llx/0x%llx\n",
                       (unsigned long long)slab_red_get(cache, slot, 0),
                       (unsigned long long)slab_red_get(cache, slot, 1));
    if (slab_has(cache, SQ_CACHE_STORE_USER)) {
        unsigned long long site = slab_site_get(cache, slot);
        sq_report_line(reports, "Last user: [<%016llx>](", site);
        sq_report_line(reports, site == 0 ? "0x%llx)\n" : "site_%llu)\n", site);
    }
    for (uint32_t i = 0; i < lines && i * SLAB_LINE_BYTES < cache->base.object_size;
         i++)
        slab_print_line(cache, slot, i * SLAB_LINE_BYTES);
}

static void slab_print_neighbour(const struct slab_subject *subject, const char *which,
                                 uint32_t index)
{
    const struct slab_cache *cache = subject->cache;
    char *slot = slab_object_at(cache, subject->slab, index);
    sq_report_line(slab_reports(cache), "%s obj: start=%016llx, len=%u\n", which,
                   slab_number(slab_user_of(cache, slot)), cache->base.object_size);
    slab_print_object(cache, slot, 2);
}

/* check_poison_obj: a free object was written to, at `wrong` first. */
static void slab_report_poison(const struct slab_subject *subject, uint32_t wrong)
{
    const struct slab_cache *cache = subject->cache;
    const char *object = slab_user_of(cache, subject->slot);
    uint32_t index = slab_index_of(cache, subject->slab, subject->slot);
    slab_report_begin(subject, "Slab corruption", object + wrong);
    sq_report_line(slab_reports(cache), "Slab corruption%s: %s start=%016llx, len=%u\n",
                   slab_form_is_old(cache) ? "" : " (Not tainted)", cache->base.name,
                   slab_number(object), cache->base.object_size);
    slab_print_object(cache, subject->slot, 0);
    for (uint32_t n = 0; n < SLAB_LINES_MAX && wrong < cache->base.object_size; n++) {
        uint32_t line = wrong - wrong % SLAB_LINE_BYTES;
        slab_print_line(cache, subject->slot, line);
        wrong = slab_wrong_poison_byte(subject, line + SLAB_LINE_BYTES);
    }
    if (index > 0)
        slab_print_neighbour(subject, "Prev", index - 1);
    if (index + 1 < cache->geometry.object_count)
        slab_print_neighbour(subject, "Next", index + 1);
    sq_report_end(slab_reports(cache));
}

#endif
