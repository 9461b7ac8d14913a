/* From an error code of the core to a Python exception, in one place. */
#include "python/core_state.h"

#include <string.h>

PyObject *core_raise(struct core_state *state, const struct sq_error *error)
{
    PyObject *type = state->error;
    switch (error->code) {
    case SQ_E_PARAMETER:
        type = state->parameter_error;
        break;
    case SQ_E_MEMORY:
        type = state->out_of_memory;
        break;
    case SQ_E_TRACE:
        type = state->trace_format_error;
        break;
    case SQ_E_CORRUPTION:
        type = state->corruption_error;
        break;
    case SQ_E_STOPPED:
        type = PyExc_KeyboardInterrupt;
        break;
    default:
        break;
    }
    if (PyErr_Occurred()) /* a signal handler may have raised already */
        return NULL;
    /* A message may quote a file's name, in any encoding, and be cut inside a letter.
     */
    PyObject *message = PyUnicode_DecodeUTF8(
        error->message, (Py_ssize_t)strlen(error->message), "backslashreplace");
    if (message != NULL)
        PyErr_SetObject(type, message);
    Py_XDECREF(message);
    return NULL;
}
