/* Workloads as Python hands them over: built-in ones, with data, and compiled ones. */
#ifndef SQ_PYTHON_WORKLOAD_H
#define SQ_PYTHON_WORKLOAD_H

#include "python/core_state.h"
#include "slabq/workload.h"

/* A workload to run and what was copied for it. */
struct core_workload {
    const struct sq_workload *workload; /* what is run */
    struct sq_workload copy;            /* of one that was given data */
    void *data;
};

/*
 * Read what `object` means: the name of a built-in workload, the pair (name, bytes) of one
 * that takes data (tbench: pairs of 32-bit request and response sizes), or the address of
 * a compiled one as an int. 0, or -1 with an exception; free with core_workload_free.
 */
int core_workload_parse(PyObject *object, struct core_state *state,
                        struct core_workload *result);
void core_workload_free(struct core_workload *workload);

/* Add the functions that describe workloads. 0, or -1 with an exception. */
int core_add_workloads(PyObject *module);

#endif
