/* The Python type of a kmem trace, for the other files of this folder. */
#ifndef SQ_PYTHON_TRACE_TYPE_H
#define SQ_PYTHON_TRACE_TYPE_H

#include <stdbool.h>

#include "python/core_state.h"
#include "trace/trace.h"

/*
 * The trace of a `slabq._core.Trace`, or NULL with an exception set: for another type
 * (TypeError) or one that is not read to its end (Error). The trace does not change as
 * long as it is held: take it, use it with or without the GIL, and release it with the
 * GIL held. Keep a reference to `object` meanwhile.
 */
struct sq_trace *core_trace_of(PyObject *object, struct core_state *state);
void core_trace_release(PyObject *object);

#endif
