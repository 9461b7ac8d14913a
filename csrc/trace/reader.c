#include "trace/reader.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sq_assert.h"
#include "trace/line.h"

#define LINE_SIZE_MAX ((size_t)1 << 20) /* longer: not a text of lines */
#define QUOTE_MAX     60                /* bytes of a bad line shown in a message */
#define TASK_SIZE_MAX 64

void sq_reader_init(struct sq_reader *reader, const char *name, struct sq_trace *trace)
{
    size_t length = strlen(name);
    memset(reader, 0, sizeof(*reader));
    reader->trace = trace;
    reader->time_last_ns = INT64_MIN;
    if (length < SQ_READER_NAME_MAX)
        memcpy(reader->name, name, length + 1);
    else
        (void)snprintf(reader->name, SQ_READER_NAME_MAX, "...%s",
                       name + length - (SQ_READER_NAME_MAX - 4));
}

void sq_reader_free(struct sq_reader *reader)
{
    free(reader->carry);
    reader->carry = NULL;
    reader->carry_length = reader->carry_capacity = 0;
}

static int reader_fail_memory(struct sq_reader *reader, struct sq_error *error)
{
    reader->failed = true;
    return sq_error_set(error, SQ_E_MEMORY,
                        "%s: no memory for event %zu of the trace, at line %" PRIu64,
                        reader->name, reader->trace->event_count + 1,
                        reader->trace->counts.lines);
}

/* Say what is wrong with the current line, and show how it begins. */
static int reader_fail_line(struct sq_reader *reader, const char *line, const char *end,
                            const char *what, const char *problem,
                            struct sq_error *error)
{
    char quote[QUOTE_MAX + 1];
    size_t length = (size_t)(end - line);
    while (length > 0 && (*line == ' ' || *line == '\t')) {
        line++;
        length--;
    }
    if (length > QUOTE_MAX)
        length = QUOTE_MAX;
    for (size_t i = 0; i < length; i++)
        quote[i] = line[i] >= ' ' && line[i] < 127 ? line[i] : '?';
    quote[length] = '\0';
    reader->failed = true;
    return sq_error_set(error, SQ_E_TRACE, "%s:%" PRIu64 ": %s %s: '%s%s'",
                        reader->name, reader->trace->counts.lines, what, problem, quote,
                        length == QUOTE_MAX ? "..." : "");
}

/*
 * The id of a text in a table that events name by 16 bits. A full table is no reason to
 * refuse a trace whose figures do not need the name: the event stays unnamed, counted.
 */
static int reader_intern_short(struct sq_reader *reader, struct sq_strings *strings,
                               const char *text, size_t length, uint16_t *id)
{
    uint32_t wide;
    *id = UINT16_MAX;
    if (length == 0)
        return 0;
    if (sq_strings_intern(strings, text, length, &wide) < 0)
        return SQ_E_MEMORY;
    if (wide < UINT16_MAX)
        *id = (uint16_t)wide;
    else
        reader->trace->counts.unnamed++;
    return 0;
}

/* Tasks are named COMM-TID in every form. */
static int reader_intern_task(struct sq_reader *reader,
                              const struct sq_line_event *line, uint16_t *id)
{
    char text[TASK_SIZE_MAX];
    size_t comm = line->comm.length, tid = line->tid.length;
    struct sq_strings *tasks = &reader->trace->tasks;
    if (comm + tid + 1 > sizeof(text)) /* not the kernel's: comm has 15 bytes */
        comm = 0;
    if (comm + tid + 1 > sizeof(text) || comm + tid == 0)
        return reader_intern_short(reader, tasks, text, 0, id);
    memcpy(text, line->comm.begin, comm);
    text[comm] = '-';
    memcpy(text + comm + 1, line->tid.begin, tid);
    size_t length = comm + 1 + tid;
    if (reader->task_last < tasks->count && reader->task_last < UINT16_MAX) {
        size_t last_length;
        const char *last = sq_strings_get(tasks, reader->task_last, &last_length);
        if (last_length == length && memcmp(last, text, length) == 0) {
            *id = (uint16_t)reader->task_last;
            return 0;
        }
    }
    int result = reader_intern_short(reader, tasks, text, length, id);
    reader->task_last = *id;
    return result;
}

static uint32_t reader_size(struct sq_reader *reader, uint64_t size)
{
    if (size <= UINT32_MAX)
        return (uint32_t)size;
    reader->trace->counts.clamped_sizes++;
    return UINT32_MAX;
}

/* Count what is remarkable about an event that was just stored. */
static void reader_count(struct sq_reader *reader, const struct sq_trace_event *event)
{
    struct sq_trace_counts *counts = &reader->trace->counts;
    if (event->pointer == 0) {
        if (sq_trace_is_alloc(event->kind))
            counts->failed_allocations++;
        else
            counts->nil_frees++;
    }
    if (event->flags & SQ_TRACE_HASHED)
        counts->hashed_pointers++;
    if (event->time_ns < reader->time_last_ns)
        counts->time_backwards++;
    reader->time_last_ns = event->time_ns;
}

/* Store one event. 0 or SQ_E_MEMORY. */
static int reader_store(struct sq_reader *reader, const struct sq_line_event *line)
{
    struct sq_trace *trace = reader->trace;
    struct sq_trace_event *event = sq_trace_reserve(trace);
    if (event == NULL)
        return SQ_E_MEMORY;
    event->time_ns = line->time_ns;
    event->pointer = line->pointer;
    event->bytes_req = reader_size(reader, line->bytes_req);
    event->bytes_alloc = reader_size(reader, line->bytes_alloc);
    event->cpu = (uint16_t)line->cpu;
    event->node = (int16_t)line->node;
    event->kind = line->kind;
    event->flags = line->flags;
    if (sq_strings_intern(&trace->call_sites, line->call_site.begin,
                          line->call_site.length, &event->call_site) < 0 ||
        reader_intern_short(reader, &trace->caches, line->name.begin, line->name.length,
                            &event->cache) < 0 ||
        reader_intern_short(reader, &trace->gfps, line->gfp.begin, line->gfp.length,
                            &event->gfp) < 0 ||
        reader_intern_task(reader, line, &event->task) < 0)
        return SQ_E_MEMORY;
    trace->event_count++;
    reader_count(reader, event);
    return 0;
}

/* A line that is no kmem event. */
static int reader_other(struct sq_reader *reader, const char *line, const char *end,
                        struct sq_error *error)
{
    struct sq_trace_counts *counts = &reader->trace->counts;
    if (memchr(line, '\0', (size_t)(end - line)) != NULL)
        return reader_fail_line(reader, line, end, "a line", "that is not text", error);
    uint64_t lost = sq_line_lost_count(line, end);
    counts->lost += lost;
    counts->lost_records += lost > 0;
    counts->other_lines++;
    return 0;
}

/* Take one line. Requires *end == '\n'. */
static int reader_line(struct sq_reader *reader, const char *line, const char *end,
                       struct sq_error *error)
{
    struct sq_line_event event;
    const char *problem;
    reader->trace->counts.lines++;
    switch (sq_line_read(line, end, &event, &problem)) {
    case SQ_LINE_EVENT:
        return reader_store(reader, &event) < 0 ? reader_fail_memory(reader, error) : 0;
    case SQ_LINE_HIDDEN:
        reader->trace->counts.hidden_pointers++;
        return 0;
    case SQ_LINE_OTHER:
        return reader_other(reader, line, end, error);
    case SQ_LINE_BROKEN:
        break;
    }
    return reader_fail_line(reader, line, end, "a kmem event", problem, error);
}

/* Keep [bytes, bytes + size) behind what is carried already. */
static int reader_carry(struct sq_reader *reader, const char *bytes, size_t size,
                        struct sq_error *error)
{
    size_t needed = reader->carry_length + size;
    if (size == 0)
        return 0;
    if (needed > LINE_SIZE_MAX) {
        reader->failed = true;
        return sq_error_set(error, SQ_E_TRACE,
                            "%s:%" PRIu64 ": a line of more than %zu bytes: this is no "
                            "text of kmem events",
                            reader->name, reader->trace->counts.lines + 1,
                            LINE_SIZE_MAX);
    }
    if (needed > reader->carry_capacity) {
        size_t capacity = needed + needed / 2 + 256;
        char *carry = realloc(reader->carry, capacity);
        if (carry == NULL)
            return reader_fail_memory(reader, error);
        reader->carry = carry;
        reader->carry_capacity = capacity;
    }
    memcpy(reader->carry + reader->carry_length, bytes, size);
    reader->carry_length = needed;
    return 0;
}

int sq_reader_feed(struct sq_reader *reader, const char *bytes, size_t size,
                   struct sq_error *error)
{
    const char *at = bytes, *end = bytes + size;
    SQ_ASSERT(!reader->failed);
    reader->bytes_fed += size;
    if (reader->carry_length > 0 && size > 0) { /* first end the carried line */
        const char *feed = memchr(at, '\n', size);
        const char *stop = feed == NULL ? end : feed + 1;
        int result = reader_carry(reader, at, (size_t)(stop - at), error);
        if (result < 0 || feed == NULL)
            return result;
        at = stop;
        result = reader_line(reader, reader->carry,
                             reader->carry + reader->carry_length - 1, error);
        reader->carry_length = 0;
        if (result < 0)
            return result;
    }
    while (at < end) {
        const char *feed = memchr(at, '\n', (size_t)(end - at));
        if (feed == NULL)
            return reader_carry(reader, at, (size_t)(end - at), error);
        int result = reader_line(reader, at, feed, error);
        if (result < 0)
            return result;
        at = feed + 1;
    }
    return 0;
}

int sq_reader_finish(struct sq_reader *reader, bool allow_truncated,
                     struct sq_error *error)
{
    struct sq_trace *trace = reader->trace;
    SQ_ASSERT(!reader->failed);
    if (reader->bytes_fed == 0) {
        reader->failed = true;
        return sq_error_set(error, SQ_E_TRACE,
                            "%s is empty; text of kmem events was expected",
                            reader->name);
    }
    if (reader->carry_length > 0) {
        const char *end = reader->carry + reader->carry_length;
        trace->counts.lines++;
        if (memchr(reader->carry, '\0', reader->carry_length) != NULL)
            return reader_fail_line(reader, reader->carry, end, "a line",
                                    "that is not text", error);
        if (!allow_truncated)
            return reader_fail_line(reader, reader->carry, end, "the last line",
                                    "is cut off (no line feed ends it)", error);
        trace->counts.truncated_lines++;
        reader->carry_length = 0;
    }
    if (trace->event_count == 0) {
        reader->failed = true;
        return sq_error_set(error, SQ_E_TRACE,
                            "%s has no kmem event in %" PRIu64
                            " lines; perf script, trace-cmd report or ftrace text "
                            "with kmem:kmalloc, kfree, ... was expected",
                            reader->name, trace->counts.lines);
    }
    sq_trace_trim(trace);
    return 0;
}
