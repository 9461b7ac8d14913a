/*
 * What a heap's debugging has found: the kernel's reports as text, and where each fault
 * lies. Kept on the heap until somebody takes them; a run goes on.
 *
 * One report is begun by the line that names the fault and goes on to the next; FIX lines
 * belong to the report before them. Writers on all CPUs take turns (`is_busy`); a writer
 * calls nothing of the machine between begin and end, so that it cannot be kept waiting.
 */
#ifndef SQ_REPORT_H
#define SQ_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SQ_REPORT_COUNT_MAX 4096u /* kept; what comes later is counted only */

/* Which texts: the option `report_form` of a policy. */
enum sq_report_form {
    SQ_REPORT_2_6 = 0,  /* 2.6.24 on: lines that begin with INFO */
    SQ_REPORT_6_18 = 1, /* as in 6.18 */
};

struct sq_report {
    char cache[64];
    char what[96];         /* the fault, in the kernel's words */
    int64_t slab, object;  /* serial and index; -1: the report is of no such thing */
    int64_t offset;        /* of the first wrong byte in the slab; -1: of no byte */
    uint32_t fix_count;    /* FIX lines */
    size_t text_start;     /* in sq_reports.text; it ends where the next begins */
};

/* Zero is empty. */
struct sq_reports {
    bool is_busy;
    bool is_open; /* the report being written is kept */
    char *text, *trace;
    size_t text_length, text_capacity, trace_length, trace_capacity;
    struct sq_report *list;
    uint32_t count, capacity;
    uint64_t total; /* with those not kept */
    /* Objects whose free was refused, for the caller to take back. */
    void **refused;
    uint32_t refused_count, refused_capacity;
};

void sq_reports_free(struct sq_reports *reports);
/* Whoever reads them keeps writers away meanwhile. */
void sq_reports_lock(struct sq_reports *reports);
void sq_reports_unlock(struct sq_reports *reports);
/* Forget all reports and trace lines. */
void sq_reports_clear(struct sq_reports *reports);

/* Begin a report; `where` has everything but the text. Lines and bytes follow, then
 * end. */
void sq_report_begin(struct sq_reports *reports, const struct sq_report *where);
void sq_report_line(struct sq_reports *reports, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* `bytes` bytes in hexadecimal, 16 a line, each line begun by `title` and the address. */
void sq_report_bytes(struct sq_reports *reports, enum sq_report_form form,
                     const char *title, const void *start, size_t bytes);
void sq_report_end(struct sq_reports *reports);
/* A whole FIX line, to the last report. */
void sq_report_fix(struct sq_reports *reports, const char *cache, const char *format,
                   ...) __attribute__((format(printf, 3, 4)));
/* A line of SLAB_TRACE. */
void sq_report_trace(struct sq_reports *reports, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A free of `object` was refused. */
void sq_report_refuse(struct sq_reports *reports, void *object);

/*
 * The flags of a cache named `name` by a boot text as slub_debug= takes it: letters of
 * F Z P U T, or none for FZPU, or - for none; then a comma and names, a final * standing
 * for any rest; parts are separated by semicolons. -1: it is not such a text.
 */
int64_t sq_debug_flags(const char *boot, const char *name);
/* The flags of all letters of such a text. */
int64_t sq_debug_letters(const char *boot);

#endif
