/*
 * Reads the text of a kmem trace, fed in blocks of any size, into a struct sq_trace.
 *
 *   sq_reader_init(reader, "trace.txt", trace);
 *   while (blocks) sq_reader_feed(reader, block, size, &error);
 *   sq_reader_finish(reader, false, &error);
 *
 * Lines that are no kmem event are counted and skipped. A line that names a kmem event
 * and does not read as one is an error that names the line: half of such a file is
 * garbage, and figures from the other half would be wrong without a word. After an
 * error the reader takes no more; the trace keeps what was read and is only fit to be
 * freed.
 */
#ifndef SQ_TRACE_READER_H
#define SQ_TRACE_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sq_error.h"
#include "trace/trace.h"

#define SQ_READER_NAME_MAX 120

struct sq_reader {
    struct sq_trace *trace;
    char name[SQ_READER_NAME_MAX]; /* of the file, for messages; long ones lose the
                                      front */
    char *carry;                   /* the begin of a line whose end is not fed yet */
    size_t carry_length, carry_capacity;
    int64_t time_last_ns;
    uint64_t bytes_fed;
    uint32_t task_last; /* most lines have the task of the line before */
    bool failed;
};

/* Requires an initialised, empty trace, which stays the caller's. Cannot fail. */
void sq_reader_init(struct sq_reader *reader, const char *name, struct sq_trace *trace);
void sq_reader_free(struct sq_reader *reader);

/* Take the next `size` bytes of the file. 0, SQ_E_TRACE or SQ_E_MEMORY. */
int sq_reader_feed(struct sq_reader *reader, const char *bytes, size_t size,
                   struct sq_error *error);

/*
 * The file ends here. An empty file, one without a kmem event, and one whose last line
 * has no line feed are errors; with `allow_truncated` such a last line is left out and
 * counted instead.
 */
int sq_reader_finish(struct sq_reader *reader, bool allow_truncated,
                     struct sq_error *error);

#endif
