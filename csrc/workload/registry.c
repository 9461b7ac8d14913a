/* The built-in workloads, one line each, and the parameters of every run. */
#include <stdio.h>
#include <string.h>

#include "workload/runner.h"

#define WORKLOADS(X)                                                                   \
    X(sq_workload_hackbench)                                                           \
    X(sq_workload_tcp_rr)                                                              \
    X(sq_workload_tbench)                                                              \
    X(sq_workload_kmalloc)                                                             \
    X(sq_workload_producer_consumer)                                                   \
    X(sq_workload_churn)                                                               \
    X(sq_workload_cyclictest)

#define WORKLOAD_DECLARE(workload) extern const struct sq_workload workload;
WORKLOADS(WORKLOAD_DECLARE)

#define WORKLOAD_ROW(workload) &workload,
static const struct sq_workload *const workloads[] = {WORKLOADS(WORKLOAD_ROW)};

#define RUN_PARAMETER_ROW(name, value, minimum, maximum, help)                         \
    {#name, value, minimum, maximum, help},
const struct sq_workload_parameter sq_run_parameters[SQ_RUN_PARAMETER_COUNT] = {
    SQ_RUN_PARAMETERS(RUN_PARAMETER_ROW)};

const struct sq_workload *sq_workload_at(uint32_t n)
{
    return n < SQ_ARRAY_COUNT(workloads) ? workloads[n] : NULL;
}

const struct sq_workload *sq_workload_find(const char *name, struct sq_error *error)
{
    char known[256] = "";
    for (size_t i = 0; i < SQ_ARRAY_COUNT(workloads); i++) {
        size_t length = strlen(known);
        if (strcmp(workloads[i]->name, name) == 0)
            return workloads[i];
        (void)snprintf(known + length, sizeof(known) - length, "%s%s",
                       length > 0 ? ", " : "", workloads[i]->name);
    }
    (void)sq_error_set(error, SQ_E_PARAMETER, "workload is %.60s: accepted are %s",
                       name, known);
    return NULL;
}
