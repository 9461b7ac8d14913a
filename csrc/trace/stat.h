/*
 * What `perf kmem --slab stat` says of a trace: bytes, hits, ping-pong and
 * fragmentation by call site and by pointer. It follows perf 6.1 and later:
 *
 *   - an allocation adds to its pointer and to its call site, and the pointer remembers
 *     the CPU, the call site and the bytes of its last allocation;
 *   - a free of a pointer that was ever allocated adds those bytes to the bytes freed;
 *     on another CPU than the remembered one it is a ping-pong of both; then the
 *     remembered CPU is none, so that a second free counts again;
 *   - an allocation that asks for a node other than its CPU's is a cross-CPU one.
 *
 * perf tells call sites apart by address; a trace in text may only have `symbol+0x1f`,
 * which is what tells them apart here.
 */
#ifndef SQ_TRACE_STAT_H
#define SQ_TRACE_STAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sq_error.h"
#include "trace/trace.h"

struct sq_stat_row {
    uint64_t pointer; /* 0 in a row of a call site */
    uint64_t hit, bytes_req, bytes_alloc, pingpong;
    uint64_t last_alloc; /* of a pointer: bytes_alloc of its last allocation */
    uint32_t call_site;  /* of a pointer: of its last allocation */
    int32_t alloc_cpu;   /* of a pointer: of its last allocation, -1 once freed */
};

struct sq_stat_rows {
    struct sq_stat_row *rows; /* [count] */
    size_t count, capacity;
};

struct sq_stat {
    const struct sq_trace *trace; /* for the names; the caller keeps it */
    struct sq_stat_rows callers, pointers;
    uint64_t bytes_requested, bytes_allocated, bytes_freed;
    uint64_t allocation_count, cross_count;
};

/* `node_of_cpu` has `cpu_count` nodes; CPUs beyond are on node 0. 0 or SQ_E_MEMORY;
 * after an error the stat is empty and needs no free. */
int sq_stat_build(const struct sq_trace *trace, const uint16_t *node_of_cpu,
                  size_t cpu_count, struct sq_stat *stat, struct sq_error *error);
void sq_stat_free(struct sq_stat *stat);

/*
 * Sort rows by keys, largest first: a list with commas of ptr, callsite, bytes, hit,
 * pingpong, frag. Rows equal in all keys stand by address; call sites known by symbol
 * only, in order of their first event. SQ_E_PARAMETER for a key that is none.
 */
int sq_stat_sort(const struct sq_stat *stat, struct sq_stat_rows *rows,
                 const char *keys, struct sq_error *error);

/* 100 - 100 x requested / allocated, in percent. 0 if nothing was allocated. */
double sq_stat_fragmentation(uint64_t bytes_req, uint64_t bytes_alloc);

/*
 * perf's table of one kind of rows as a new text, which the caller frees. `limit` is
 * the most rows printed, negative for all. With `raw_ip` call sites stand as the trace
 * has them. NULL without memory.
 */
char *sq_stat_table(const struct sq_stat *stat, const struct sq_stat_rows *rows,
                    bool by_caller, int64_t limit, bool raw_ip);
/* perf's lines below the tables, likewise. */
char *sq_stat_summary(const struct sq_stat *stat);

#endif
