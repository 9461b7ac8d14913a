/*
 * A kmem trace in memory: one record of 40 bytes for each event, in the order of the
 * file, and tables of the texts the events name.
 *
 * The record is the same for all eras and text forms. A field that an era does not have
 * is SQ_TRACE_NO_* or 0. Records, not one array a column: every reader (stat, replay,
 * numpy) walks whole events in order, and one buffer is one view. The file form
 * (compact.h) is by column, since that is what compresses.
 */
#ifndef SQ_TRACE_H
#define SQ_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sq_error.h"
#include "base/sq_json.h"
#include "trace/strings.h"

/* The kmem events, as the kernel names them. */
#define SQ_TRACE_KINDS(X)                                                              \
    X(KMALLOC, "kmalloc")                                                              \
    X(KMALLOC_NODE, "kmalloc_node")                                                    \
    X(CACHE_ALLOC, "kmem_cache_alloc")                                                 \
    X(CACHE_ALLOC_NODE, "kmem_cache_alloc_node")                                       \
    X(KFREE, "kfree")                                                                  \
    X(CACHE_FREE, "kmem_cache_free")

enum sq_trace_kind {
#define SQ_TRACE_KIND_ENUM(name, text) SQ_TRACE_##name,
    SQ_TRACE_KINDS(SQ_TRACE_KIND_ENUM) SQ_TRACE_KIND_COUNT
};

#define SQ_TRACE_NO_CACHE UINT16_MAX
#define SQ_TRACE_NO_GFP   UINT16_MAX
#define SQ_TRACE_NO_TASK  UINT16_MAX
#define SQ_TRACE_NO_NODE  (-1)

enum sq_trace_flag {
    SQ_TRACE_ACCOUNTED = 1, /* accounted=true */
    SQ_TRACE_HASHED = 2,    /* the pointer is the kernel's hash of it */
};

struct sq_trace_event {
    int64_t time_ns;      /* of the trace's clock; ticks if the clock counts no time */
    uint64_t pointer;     /* 0 for nil */
    uint32_t bytes_req;   /* 0 for frees */
    uint32_t bytes_alloc; /* 0 for frees */
    uint32_t call_site;   /* in `call_sites` */
    uint16_t cache;       /* in `caches`, or SQ_TRACE_NO_CACHE */
    uint16_t gfp;         /* in `gfps`, or SQ_TRACE_NO_GFP */
    uint16_t task;        /* in `tasks`, or SQ_TRACE_NO_TASK */
    uint16_t cpu;
    int16_t node;  /* requested, or SQ_TRACE_NO_NODE */
    uint8_t kind;  /* enum sq_trace_kind */
    uint8_t flags; /* enum sq_trace_flag */
};

_Static_assert(sizeof(struct sq_trace_event) == 40, "the budget of an event");

/* The columns of an event, in the order of the file form. */
#define SQ_TRACE_COLUMNS(X)                                                            \
    X(time_ns)                                                                         \
    X(pointer)                                                                         \
    X(bytes_req)                                                                       \
    X(bytes_alloc)                                                                     \
    X(call_site)                                                                       \
    X(cache)                                                                           \
    X(gfp)                                                                             \
    X(task)                                                                            \
    X(cpu)                                                                             \
    X(node)                                                                            \
    X(kind)                                                                            \
    X(flags)

/* What was counted while reading. The order is part of the file form. */
#define SQ_TRACE_COUNTS(X)                                                             \
    X(lines, "lines of text read")                                                     \
    X(other_lines, "lines that are no kmem event: headers, frames, other events")      \
    X(lost, "events the kernel or the recorder says were lost or overwritten")         \
    X(lost_records, "lines that say so, each without a number counted as one event")   \
    X(nil_frees, "frees of nil")                                                       \
    X(failed_allocations, "allocations that returned nil")                             \
    X(hashed_pointers, "events whose pointer is the kernel's hash of it")              \
    X(hidden_pointers, "events left out: the pointer is printed as (____ptrval____)")  \
    X(time_backwards, "events earlier than the event before them")                     \
    X(clamped_sizes, "sizes above 2^32 - 1, stored as that")                           \
    X(unnamed, "events whose cache, flags or task found no room in a table")           \
    X(truncated_lines, "last lines without a line feed, left out")

struct sq_trace_counts {
#define SQ_TRACE_COUNT_FIELD(name, text) uint64_t name;
    SQ_TRACE_COUNTS(SQ_TRACE_COUNT_FIELD)
};

/* The string tables, in the order of the file form. An alias is the text of two names
 * with a tab between: the alias and the cache it is merged into. */
#define SQ_TRACE_TABLES(X) X(call_sites) X(caches) X(gfps) X(tasks) X(aliases)

struct sq_trace {
    struct sq_trace_event *events; /* [event_count] */
    size_t event_count, event_capacity;
    struct sq_trace_counts counts;
#define SQ_TRACE_TABLE_FIELD(name) struct sq_strings name;
    SQ_TRACE_TABLES(SQ_TRACE_TABLE_FIELD)
};

void sq_trace_init(struct sq_trace *trace);
void sq_trace_free(struct sq_trace *trace);

/* Room for one more event, at events[event_count]; the caller fills it in and counts
 * it. NULL without memory. */
struct sq_trace_event *sq_trace_reserve(struct sq_trace *trace);
/* Give back the room that was reserved and not used. */
void sq_trace_trim(struct sq_trace *trace);

const char *sq_trace_kind_name(uint32_t kind);

static inline bool sq_trace_is_alloc(uint32_t kind)
{
    return kind < SQ_TRACE_KFREE;
}

/* Write the counts, events by kind, the number of CPUs and the time span as one JSON
 * object. */
void sq_trace_summary(const struct sq_trace *trace, struct sq_json *json);

/* The number after the largest CPU of the trace; 0 without events. */
uint32_t sq_trace_cpu_count(const struct sq_trace *trace);

#endif
