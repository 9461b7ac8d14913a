/*
 * One line of a kmem trace, in any of the text forms:
 *
 *   perf script   COMM TID [CPU] SECONDS.FRACTION:  kmem:kmalloc: FIELDS
 *   ftrace trace  COMM-TID (TGID) [CPU] FLAGS SECONDS.FRACTION: kmalloc: FIELDS
 *   trace-cmd     COMM-TID [CPU] FLAGS SECONDS.FRACTION: kmalloc:    FIELDS
 *
 * with TGID and FLAGS optional, and the time a plain number where the clock counts no
 * time. FIELDS are key=value in any order. Nothing here knows a kernel version.
 *
 * The head is read backwards from the time, since the command name may hold spaces,
 * brackets and colons. It has 15 bytes at most, too few to spell `c 0 [0] 0: kfree:`
 * itself, so the first place that reads as a head with a task and an event is the one.
 * A head without a task (the name may be empty) is taken where there is no other.
 */
#ifndef SQ_TRACE_LINE_H
#define SQ_TRACE_LINE_H

#include <stddef.h>
#include <stdint.h>

struct sq_line_text {
    const char *begin;
    size_t length; /* 0 for a field that is not there */
};

/* What one event line says. The texts point into the line. */
struct sq_line_event {
    int64_t time_ns;
    uint64_t pointer, bytes_req, bytes_alloc;
    struct sq_line_text comm, tid, call_site, name, gfp;
    int32_t node;
    uint32_t cpu;
    uint8_t kind, flags;
};

enum sq_line_verdict {
    SQ_LINE_EVENT,  /* a kmem event: filled in */
    SQ_LINE_OTHER,  /* no kmem event */
    SQ_LINE_HIDDEN, /* a kmem event whose pointer is printed as (____ptrval____) */
    SQ_LINE_BROKEN, /* names a kmem event but does not read as one */
};

/*
 * Read the line [line, end). Requires *end == '\n': the scanners stop there.
 * For SQ_LINE_BROKEN, `problem` says what is wrong, as the end of a sentence that
 * begins with the event's name.
 */
enum sq_line_verdict sq_line_read(const char *line, const char *end,
                                  struct sq_line_event *event, const char **problem);

/*
 * How many events a line that is no kmem event says were lost; 0 for one that says
 * nothing of it, 1 where it gives no number.
 */
uint64_t sq_line_lost_count(const char *line, const char *end);

#endif
