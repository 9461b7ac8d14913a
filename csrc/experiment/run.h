/*
 * One run: a fresh heap of a policy on a machine, a workload on it, and what was
 * measured as the members of one result row.
 */
#ifndef SQ_RUN_H
#define SQ_RUN_H

#include "base/sq_json.h"
#include "policy/policy.h"
#include "slabq/workload.h"

struct sq_run_parameter {
    const char *name;
    int64_t value;
};

struct sq_run_request {
    sq_machine *machine;
    const sq_policy_ops *policy;
    const struct sq_options *options;
    const struct sq_workload *workload;
    /* Of the workload or of the run (SQ_RUN_PARAMETERS); the rest take their defaults.
     */
    const struct sq_run_parameter *parameters;
    size_t parameter_count;
    uint64_t seed;
    /* Called about every 50 ms by the calling thread; true: stop the run. `share` of
     * the operations is done, 0 to 1. May be NULL. */
    bool (*tick)(void *argument, double share);
    void *tick_argument;
    /* Write further members of the row; may be NULL. */
    void (*describe)(void *argument, struct sq_json *json);
    void *describe_argument;
    /* Debug flags of caches, see sq_heap_create_debug; NULL: none. The row has what they
     * found as the member "reports". */
    const char *debug;
    bool panics;        /* the first report ends the run with SQ_E_CORRUPTION */
    bool with_timeline; /* write what it was like over time, as "timeline" */
    bool with_caches; /* write the state of every cache too, as the member "caches" */
};

/*
 * Run it, check every cache afterwards, give all memory back to the machine, and write
 * one JSON object. Blocks. Returns 0 or an error code with a message; nothing is kept
 * of a run that failed. The machine may have other users, whose lock times then count
 * too; one run at a time gives figures worth reading.
 */
int sq_run(const struct sq_run_request *request, struct sq_json *json,
           struct sq_error *error);

#endif
