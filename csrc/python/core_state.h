/*
 * The state of the extension module: exception classes and heap types. There is no other
 * mutable state, so the module can be loaded more than once in a process.
 */
#ifndef SQ_CORE_STATE_H
#define SQ_CORE_STATE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "base/sq_error.h"

struct core_state {
    /* -- classes of slabq.errors; strong references -- */
    PyObject *error, *parameter_error, *trace_format_error, *corruption_error,
        *out_of_memory;
    /* -- heap types of this module; strong references -- */
    PyObject *machine_type, *sim_machine_type, *allocator_type, *cache_type, *sheaf_type,
        *trace_type;
};

/* A function in a table of slots, whose members are data pointers by Python's design. */
#define CORE_SLOT(function) (__extension__(void *)(function))

struct core_state *core_state_of(PyObject *module);

/* Raise the exception that `error->code` names, with its message. Returns NULL. */
PyObject *core_raise(struct core_state *state, const struct sq_error *error);

/* Each adds its types and functions to the module; 0, or -1 with an exception set. */
int core_add_trace(PyObject *module, struct core_state *state);
int core_add_machine(PyObject *module, struct core_state *state);
int core_add_sim_machine(PyObject *module, struct core_state *state);
int core_add_allocator(PyObject *module, struct core_state *state);
int core_add_run(PyObject *module, struct core_state *state);
int core_add_functions(PyObject *module);
int core_add_calibrate(PyObject *module);

#endif
