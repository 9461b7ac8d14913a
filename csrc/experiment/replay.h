/*
 * Replay of a kmem trace: the allocations and frees of a recorded kernel, each CPU's in
 * its own order, on a heap of any policy.
 */
#ifndef SQ_REPLAY_H
#define SQ_REPLAY_H

#include "experiment/run.h"
#include "trace/trace.h"

/*
 * As sq_run, with the trace as the workload: request->workload and ->describe are set
 * here. The row has a member "trace" with the trace's own counts.
 */
int sq_replay(const struct sq_run_request *request, const struct sq_trace *trace,
              struct sq_json *json, struct sq_error *error);

#endif
