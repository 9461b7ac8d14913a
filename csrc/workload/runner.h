/*
 * Running one workload on one heap: what goes in, what comes out. The same for every
 * engine; each has its own sq_runner_ops, compiled from env.c.
 */
#ifndef SQ_RUNNER_H
#define SQ_RUNNER_H

#include "machine/sched_rules.h"
#include "policy/policy.h"
#include "slabq/workload.h"
#include "workload/histogram.h"

/* The scheduler's parameters, accepted beside those of every workload. */
#define SQ_RUN_PARAMETERS(X)                                                           \
    X(slice_calls, 10000, 0, 1000000000,                                               \
      "calls after which a task lets others of its CPU run, at its next call that "    \
      "may "                                                                           \
      "block; 0: never")                                                               \
    X(wake_affine, 0, 0, 1,                                                            \
      "1: a woken task goes to the CPU of its waker if fewer tasks wait there; 0: "    \
      "always to the CPU it ran on last")                                              \
    X(latency_interval, 128, 0, 1000000,                                               \
      "one call in about so many is timed for latency_ns; 0: none")                    \
    X(warmup_operations, 0, 0, INT64_C(1000000000000),                                 \
      "operations before measuring begins; 0: it begins with the workload's clock")    \
    X(measure_operations, 0, 0, INT64_C(1000000000000),                                \
      "operations measured, after which the run ends; 0: until the workload's end")    \
    X(syscall_ns, -1, -1, 1000000,                                                     \
      "sim: what a send, receive, read or write takes beside memory, locks and "       \
      "waking;"                                                                        \
      " -1: the machine's own figure for the workload")                                \
    X(memory_policy, 0, 0, 3,                                                          \
      "node of calls that name none: 0 local, 1 preferred, 2 bind, 3 interleave (in "  \
      "turn on each CPU)")                                                             \
    X(memory_nodes, 0, 0, 65535,                                                       \
      "nodes of memory_policy: bit n is node n; 0: all of the machine")                \
    X(check_frees, 1, 0, 1,                                                            \
      "1: what a workload in C frees is looked at first, so that a wrong or second "   \
      "free ends the run with a message; 0: it may crash Python; slabq's own "         \
      "workloads always go without")                                                   \
    SQ_SCHED_RULES(X)

enum {
#define SQ_RUN_PARAMETER_ENUM(name, value, minimum, maximum, help) SQ_RUN_##name,
    SQ_RUN_PARAMETERS(SQ_RUN_PARAMETER_ENUM)
#undef SQ_RUN_PARAMETER_ENUM
        SQ_RUN_PARAMETER_COUNT
};

extern const struct sq_workload_parameter sq_run_parameters[SQ_RUN_PARAMETER_COUNT];

/* What one CPU counts for itself. */
struct sq_runner_cpu {
    _Alignas(SQ_LINE_SIZE) uint64_t allocations;
    uint64_t frees;      /* of memory that was not NULL */
    uint64_t operations; /* read by the ticking thread: relaxed atomic */
    uint32_t alloc_countdown, free_countdown; /* to the next call that is timed */
    uint32_t interleave_turn;                 /* memory_policy 3 */
    struct sq_rng rng;                        /* of the gaps between timed calls */
    /* -- of the timed allocations -- */
    uint64_t requested_bytes, slot_bytes;
    struct sq_histogram alloc_ns, free_ns;
    struct sq_histogram
        latency_ns[SQ_LATENCY_PATHS_MAX]; /* of the workload's own paths */
};

struct sq_runner {
    /* -- given -- */
    sq_machine *machine;
    sq_heap *heap;
    const struct sq_workload *workload;
    const int64_t *values; /* of the workload's parameters */
    int64_t run_values[SQ_RUN_PARAMETER_COUNT];
    uint64_t seed;
    bool panics; /* the first report of a debug cache ends the run */
    /* Called about every 50 ms with the share of the expected operations that is done,
     * 0 to 1; true: stop. */
    bool (*tick)(void *argument, double share);
    void *tick_argument;
    /* A simulated run: called by a task that tells its progress, when its clock has
     * passed `sample_at_ns`. NULL: never. */
    void (*sample)(struct sq_runner *runner, uint64_t now_ns);
    uint64_t sample_at_ns;
    /* -- found -- */
    /* Called where measuring begins and where it ends, by the task that gets there. */
    void (*mark)(struct sq_runner *runner, bool is_end);
    void *mark_argument;
    uint64_t start_ns, end_ns;    /* from the opening of the start barrier to the end of
                                     the last task */
    uint64_t operations_expected; /* 0: not told; relaxed atomic */
    bool clock_is_stopped;        /* end_ns is the workload's; relaxed atomic */
    uint32_t latency_path_count;
    const char *latency_path_name[SQ_LATENCY_PATHS_MAX];
    uint64_t context_switches, cpu_migrations;
    struct sq_runner_cpu *cpus; /* one a CPU of the machine, zeroed by the maker */
};

/* Has a run that must end at a report one? */
static inline bool sq_runner_has_panicked(const struct sq_runner *runner)
{
    struct sq_reports *reports = &runner->heap->reports;
    bool has_any;
    if (!runner->panics)
        return false;
    sq_reports_lock(reports);
    has_any = reports->total > 0;
    sq_reports_unlock(reports);
    return has_any;
}

struct sq_runner_ops {
    const char *engine;
    /* 0, or the error that ended the run early. */
    int (*run)(struct sq_runner *runner, struct sq_error *error);
};

extern const struct sq_runner_ops sq_runner_native, sq_runner_sim;

/* A workload that somebody compiled: is it one that can be run? 0, or SQ_E_PARAMETER
 * with a message. Only what can be seen without running it is checked, the abi before
 * all else. */
int sq_workload_check(const struct sq_workload *workload, struct sq_error *error);
/* The n-th built-in workload, NULL past the last. */
const struct sq_workload *sq_workload_at(uint32_t n);
/* By name, or NULL with a message that names the known ones. */
const struct sq_workload *sq_workload_find(const char *name, struct sq_error *error);

#endif
