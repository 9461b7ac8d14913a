/* hackbench as a part of another workload. */
#ifndef SQ_HACKBENCH_H
#define SQ_HACKBENCH_H

#include "slabq/workload.h"

extern const struct sq_workload sq_workload_hackbench;

/* Tasks of the hackbench that `state`, what its setup returned, stands for which have not
 * ended. */
uint64_t sq_hackbench_running_count(const void *state);

#endif
