/*
 * A trace as a program to replay: for each CPU the allocations and frees it does, in
 * order, with numbers in place of addresses.
 *
 * One pass in the order of the trace pairs each free with the allocation whose address
 * it names. Each allocation gets the next object number, so a replay keeps one table of
 * `object_count` pointers (8 bytes an object) and needs no hash.
 *
 * Order between CPUs: an object is freed by the event list of any CPU, but always after
 * its allocation in the order of the trace. A CPU that comes to a free of an object
 * that is not there yet waits for it. That never deadlocks: every wait is for an event
 * that is earlier in the trace, and each CPU's list is in the order of the trace.
 *
 * Rules, the same under every policy:
 *   - a free of an address that is live frees that object         matched_frees
 *   - a free of nil is left out                                   nil_frees
 *   - any other free is left out                                  unmatched_frees
 *   - an allocation of an address that is live: its free was never traced (bulk frees
 *     leave no event). The old object is freed first, on the CPU of the new
 *     allocation (SQ_PROGRAM_FREE_REUSED)                         reused
 *   - an allocation that returned nil is left out                 failed_allocations
 *
 * Before 5.17 kmem_cache_free was traced after the free, so another CPU's allocation of
 * the address may stand before it. The same rules hold: the allocation frees the old
 * object as reused, the late event then frees the new object, and the new object's own
 * free is left out as unmatched. So such a pair shortens one life by the gap between
 * the two events, and the counts stay in balance:
 *
 *   allocations == matched_frees + reused + live        (always)
 *
 * Memory: 8 bytes an event and each implicit free, and nothing else that grows; with
 * the trace (40 an event) and the replay's table (8 an object) at most 64 an event.
 */
#ifndef SQ_TRACE_PROGRAM_H
#define SQ_TRACE_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sq_error.h"
#include "trace/trace.h"

enum sq_program_op {
    SQ_PROGRAM_ALLOC = 0,
    SQ_PROGRAM_FREE = 1,        /* a free of the trace */
    SQ_PROGRAM_FREE_REUSED = 2, /* a free that was never traced */
};

/* Bits of sq_program_event.code: op 2, node 10, target 20. */
#define SQ_PROGRAM_TARGET_MAX ((1u << 20) - 1)
#define SQ_PROGRAM_NODE_NONE  1023u

struct sq_program_event {
    uint32_t object; /* [0, object_count) */
    uint32_t code;   /* read it with the functions below */
};

static inline enum sq_program_op sq_program_op_of(struct sq_program_event event)
{
    return (enum sq_program_op)(event.code & 3u);
}

/* The node an allocation asked for, by its number on the traced machine, or -1. */
static inline int32_t sq_program_node_of(struct sq_program_event event)
{
    uint32_t node = event.code >> 2 & 1023u;
    return node == SQ_PROGRAM_NODE_NONE ? -1 : (int32_t)node;
}

/* The target of the object, in [0, target_count); the same at its alloc and free. */
static inline uint32_t sq_program_target_of(struct sq_program_event event)
{
    return event.code >> 12;
}

enum sq_program_target_kind {
    SQ_TARGET_CACHE,         /* kmem_cache_alloc with a cache name */
    SQ_TARGET_CACHE_UNNAMED, /* kmem_cache_alloc of an era without names: by slot_size
                              */
    SQ_TARGET_KMALLOC,       /* kmalloc of object_size bytes */
};

/* Where an object comes from. */
struct sq_program_target {
    uint32_t name;             /* in the trace's `caches`, or SQ_STRING_NONE */
    uint32_t object_size;      /* bytes asked for; of a cache the most seen */
    uint32_t slot_size;        /* bytes given; the most seen */
    uint32_t allocation_count; /* in the whole program */
    uint32_t kind;             /* enum sq_program_target_kind */
};

/* The events of one virtual CPU. */
struct sq_program_cpu {
    struct sq_program_event *events; /* [event_count] */
    size_t event_count, event_capacity;
};

/* Of the trace, so the same under every policy, machine and number of CPUs. */
#define SQ_PROGRAM_COUNTS(X)                                                           \
    X(allocations)                                                                     \
    X(matched_frees)                                                                   \
    X(unmatched_frees)                                                                 \
    X(nil_frees)                                                                       \
    X(reused)                                                                          \
    X(live)                                                                            \
    X(lost)                                                                            \
    X(failed_allocations)

struct sq_program_counts {
#define SQ_PROGRAM_COUNT_FIELD(name) uint64_t name;
    SQ_PROGRAM_COUNTS(SQ_PROGRAM_COUNT_FIELD)
};

struct sq_program {
    struct sq_program_cpu *cpus; /* [cpu_count] */
    uint32_t cpu_count;
    uint32_t trace_cpu_count; /* the number after the trace's largest CPU */
    bool cpus_folded;         /* CPU c of the trace is c % cpu_count: it has more */
    uint32_t object_count;    /* == counts.allocations */
    uint32_t target_count;
    struct sq_program_target *targets; /* [target_count], by first appearance */
    struct sq_program_counts counts;
};

/*
 * Build the program of a trace for `cpu_count` virtual CPUs. CPU c of the trace is
 * virtual CPU c where all fit, else c % cpu_count (`cpus_folded`).
 * SQ_E_PARAMETER for cpu_count 0, SQ_E_TRACE for more than 2^32 - 2 allocations or 2^20
 * targets, SQ_E_MEMORY; after an error the program is empty and needs no free.
 */
int sq_program_build(const struct sq_trace *trace, uint32_t cpu_count,
                     struct sq_program *program, struct sq_error *error);
void sq_program_free(struct sq_program *program);

/* "cache", "cache-by-size" or "kmalloc". */
const char *sq_program_target_kind_name(uint32_t kind);

#endif
