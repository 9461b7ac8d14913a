#include "trace/trace.h"

#include <stdlib.h>
#include <string.h>

#include "base/sq_assert.h"

#define TRACE_CAPACITY_FIRST 1024

void sq_trace_init(struct sq_trace *trace)
{
    memset(trace, 0, sizeof(*trace));
}

void sq_trace_free(struct sq_trace *trace)
{
    free(trace->events);
#define TRACE_TABLE_FREE(name) sq_strings_free(&trace->name);
    SQ_TRACE_TABLES(TRACE_TABLE_FREE)
    sq_trace_init(trace);
}

struct sq_trace_event *sq_trace_reserve(struct sq_trace *trace)
{
    if (trace->event_count == trace->event_capacity) {
        size_t capacity = trace->event_capacity + trace->event_capacity / 2;
        if (capacity < TRACE_CAPACITY_FIRST)
            capacity = TRACE_CAPACITY_FIRST;
        if (capacity > SIZE_MAX / sizeof(*trace->events))
            return NULL;
        void *events = realloc(trace->events, capacity * sizeof(*trace->events));
        if (events == NULL)
            return NULL;
        trace->events = events;
        trace->event_capacity = capacity;
    }
    return &trace->events[trace->event_count];
}

void sq_trace_trim(struct sq_trace *trace)
{
    if (trace->event_count == 0 || trace->event_count == trace->event_capacity)
        return;
    void *events = realloc(trace->events, trace->event_count * sizeof(*trace->events));
    if (events != NULL) { /* else the larger block stays, which harms nothing */
        trace->events = events;
        trace->event_capacity = trace->event_count;
    }
}

const char *sq_trace_kind_name(uint32_t kind)
{
    static const char *const names[] = {
#define TRACE_KIND_NAME(name, text) text,
        SQ_TRACE_KINDS(TRACE_KIND_NAME)};
    SQ_ASSERT(kind < SQ_TRACE_KIND_COUNT);
    return names[kind];
}

uint32_t sq_trace_cpu_count(const struct sq_trace *trace)
{
    uint32_t count = 0;
    for (size_t i = 0; i < trace->event_count; i++) {
        if (trace->events[i].cpu >= count)
            count = trace->events[i].cpu + 1u;
    }
    return count;
}

/* The span is from the earliest to the latest event, whatever their order. */
static void trace_summary_time(const struct sq_trace *trace, struct sq_json *json)
{
    int64_t first = 0, last = 0;
    for (size_t i = 0; i < trace->event_count; i++) {
        int64_t time_ns = trace->events[i].time_ns;
        if (i == 0 || time_ns < first)
            first = time_ns;
        if (i == 0 || time_ns > last)
            last = time_ns;
    }
    sq_json_integer(json, "first_time_ns", first);
    sq_json_integer(json, "last_time_ns", last);
}

void sq_trace_summary(const struct sq_trace *trace, struct sq_json *json)
{
    uint64_t kinds[SQ_TRACE_KIND_COUNT] = {0};
    for (size_t i = 0; i < trace->event_count; i++)
        kinds[trace->events[i].kind]++;
    sq_json_open_object(json, NULL);
    sq_json_unsigned(json, "events", trace->event_count);
    sq_json_open_object(json, "kinds");
    for (uint32_t kind = 0; kind < SQ_TRACE_KIND_COUNT; kind++)
        sq_json_unsigned(json, sq_trace_kind_name(kind), kinds[kind]);
    sq_json_close(json);
#define TRACE_COUNT_PRINT(name, text) sq_json_unsigned(json, #name, trace->counts.name);
    SQ_TRACE_COUNTS(TRACE_COUNT_PRINT)
    sq_json_unsigned(json, "cpus", sq_trace_cpu_count(trace));
#define TRACE_TABLE_PRINT(name) sq_json_unsigned(json, #name, trace->name.count);
    SQ_TRACE_TABLES(TRACE_TABLE_PRINT)
    trace_summary_time(trace, json);
    sq_json_close(json);
}
