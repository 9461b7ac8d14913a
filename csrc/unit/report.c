/* Reports of debugging: memory of the host, kept by the heap. See policy/report.h. */
#include "policy/report.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/policy.h"

#define BYTES_PER_LINE 16u

void sq_reports_lock(struct sq_reports *reports)
{
    while (__atomic_test_and_set(&reports->is_busy, __ATOMIC_ACQUIRE)) {
    }
}

void sq_reports_unlock(struct sq_reports *reports)
{
    __atomic_clear(&reports->is_busy, __ATOMIC_RELEASE);
}

void sq_reports_free(struct sq_reports *reports)
{
    free(reports->text);
    free(reports->trace);
    free(reports->list);
    free(reports->refused);
    *reports = (struct sq_reports){0};
}

void sq_reports_clear(struct sq_reports *reports)
{
    sq_reports_lock(reports);
    reports->text_length = reports->trace_length = 0;
    reports->count = reports->refused_count = 0;
    reports->total = 0;
    sq_reports_unlock(reports);
}

/* Room for `more` entries of `size` bytes behind `used`; false if the host has none. */
static bool reserve(void **memory, size_t *capacity, size_t used, size_t more,
                    size_t size)
{
    size_t wanted = used + more;
    void *larger;
    if (wanted <= *capacity)
        return true;
    wanted = wanted < 64 ? 64 : 2 * wanted;
    larger = realloc(*memory, wanted * size);
    if (larger == NULL)
        return false;
    *memory = larger;
    *capacity = wanted;
    return true;
}

/* Append to a text; what the host has no memory for is left out. */
static void append_text(char **text, size_t *length, size_t *capacity,
                        const char *format, va_list arguments)
{
    char line[512];
    int printed = vsnprintf(line, sizeof(line), format, arguments);
    size_t bytes = printed < 0 ? 0 : (size_t)printed;
    void *memory = *text;
    if (bytes >= sizeof(line))
        bytes = sizeof(line) - 1;
    if (!reserve(&memory, capacity, *length, bytes + 1, 1))
        return;
    *text = memory;
    memcpy(*text + *length, line, bytes);
    *length += bytes;
    (*text)[*length] = '\0';
}

void sq_report_begin(struct sq_reports *reports, const struct sq_report *where)
{
    size_t capacity;
    void *list;
    sq_reports_lock(reports);
    reports->total++;
    capacity = reports->capacity;
    list = reports->list;
    reports->is_open =
        reports->count < SQ_REPORT_COUNT_MAX &&
        reserve(&list, &capacity, reports->count, 1, sizeof(*reports->list));
    reports->list = list;
    reports->capacity = (uint32_t)capacity;
    if (!reports->is_open)
        return;
    reports->list[reports->count] = *where;
    reports->list[reports->count].fix_count = 0;
    reports->list[reports->count++].text_start = reports->text_length;
}

void sq_report_line(struct sq_reports *reports, const char *format, ...)
{
    va_list arguments;
    if (!reports->is_open)
        return;
    va_start(arguments, format);
    append_text(&reports->text, &reports->text_length, &reports->text_capacity, format,
                arguments);
    va_end(arguments);
}

/* One line of bytes: 2.6 pads the title to the left and has one blank before the
 * letters; later the title stands as it is given and two blanks are there. */
static void report_row(struct sq_reports *reports, enum sq_report_form form,
                       const char *title, const unsigned char *start, size_t bytes)
{
    char letters[BYTES_PER_LINE + 1] = "";
    bool is_old = form == SQ_REPORT_2_6;
    sq_report_line(reports, is_old ? "%8s 0x%016llx: " : "%-9s%016llx:", title,
                   (unsigned long long)(uintptr_t)start);
    for (size_t i = 0; i < BYTES_PER_LINE; i++) {
        if (i < bytes)
            sq_report_line(reports, " %02x", start[i]);
        else
            sq_report_line(reports, "   ");
        letters[i] = (char)(i >= bytes ? '\0' : isgraph(start[i]) ? start[i] : '.');
    }
    sq_report_line(reports, is_old ? " %-16s\n" : "  %s\n", letters);
}

void sq_report_bytes(struct sq_reports *reports, enum sq_report_form form,
                     const char *title, const void *start, size_t bytes)
{
    const unsigned char *byte = start;
    for (; bytes > 0 && reports->is_open;) {
        size_t part = bytes < BYTES_PER_LINE ? bytes : BYTES_PER_LINE;
        report_row(reports, form, title, byte, part);
        byte += part;
        bytes -= part;
    }
}

void sq_report_end(struct sq_reports *reports)
{
    reports->is_open = false;
    sq_reports_unlock(reports);
}

void sq_report_fix(struct sq_reports *reports, const char *cache, const char *format,
                   ...)
{
    char what[256];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(what, sizeof(what), format, arguments);
    va_end(arguments);
    sq_reports_lock(reports);
    reports->is_open = reports->count > 0 && reports->total == reports->count;
    if (reports->is_open)
        reports->list[reports->count - 1].fix_count++;
    sq_report_line(reports, "FIX %s: %s\n", cache, what);
    sq_report_end(reports);
}

void sq_report_trace(struct sq_reports *reports, const char *format, ...)
{
    va_list arguments;
    sq_reports_lock(reports);
    va_start(arguments, format);
    append_text(&reports->trace, &reports->trace_length, &reports->trace_capacity,
                format, arguments);
    va_end(arguments);
    sq_reports_unlock(reports);
}

void sq_report_refuse(struct sq_reports *reports, void *object)
{
    size_t capacity;
    void *memory;
    sq_reports_lock(reports);
    capacity = reports->refused_capacity;
    memory = reports->refused;
    if (reserve(&memory, &capacity, reports->refused_count, 1, sizeof(void *))) {
        reports->refused = memory;
        reports->refused_capacity = (uint32_t)capacity;
        reports->refused[reports->refused_count++] = object;
    }
    sq_reports_unlock(reports);
}

/* ---- slub_debug= ---- */

/* Flags of the letters before the first comma; -1: a letter that is none. */
static int64_t flags_of_letters(const char *letters, size_t count)
{
    static const char known[] = "fzput";
    static const uint32_t flag[] = {SQ_CACHE_CONSISTENCY_CHECKS, SQ_CACHE_RED_ZONE,
                                    SQ_CACHE_POISON, SQ_CACHE_STORE_USER,
                                    SQ_CACHE_TRACE};
    int64_t flags = 0;
    if (count == 0)
        return flag[0] | flag[1] | flag[2] | flag[3];
    if (count == 1 && letters[0] == '-')
        return 0;
    for (size_t i = 0; i < count; i++) {
        const char *found = strchr(known, tolower((unsigned char)letters[i]));
        if (letters[i] == '\0' || found == NULL)
            return -1;
        flags |= flag[found - known];
    }
    return flags;
}

/* Is `name` among the names from `list` to `end`, separated by commas? */
static bool is_named(const char *list, const char *end, const char *name)
{
    while (list < end) {
        const char *stop = memchr(list, ',', (size_t)(end - list));
        size_t count;
        if (stop == NULL)
            stop = end;
        count = (size_t)(stop - list);
        if (count > 0 && list[count - 1] == '*') {
            if (strncmp(list, name, count - 1) == 0)
                return true;
        } else if (count > 0 && strlen(name) == count &&
                   strncmp(list, name, count) == 0) {
            return true;
        }
        list = stop + 1;
    }
    return false;
}

int64_t sq_debug_letters(const char *boot)
{
    int64_t flags = 0;
    while (*boot != '\0') {
        size_t letters = strcspn(boot, ",;");
        int64_t these = letters == 0 ? 0 : flags_of_letters(boot, letters);
        if (these < 0)
            return -1;
        flags |= these;
        boot += strcspn(boot, ";");
        boot += *boot == ';';
    }
    return flags;
}

int64_t sq_debug_flags(const char *boot, const char *name)
{
    int64_t flags = 0;
    const char *part = boot;
    bool is_named_somewhere = false;
    while (part != NULL && *part != '\0') {
        size_t length = strcspn(part, ";"), letters = strcspn(part, ",;");
        int64_t these = flags_of_letters(part, letters);
        if (these < 0)
            return -1;
        if (letters == length && !is_named_somewhere) {
            flags = these;
        } else if (letters < length &&
                   is_named(part + letters + 1, part + length, name)) {
            flags = these;
            is_named_somewhere = true;
        }
        part += length;
        part += *part == ';';
    }
    return flags;
}
