/*
 * slabq._core: the extension module. Multi-phase initialisation, all state in the
 * module, the limited API of Python 3.11. Each kind of thing adds itself from its own
 * file through core_add_*().
 */
#include "python/core_state.h"

static int core_load_errors(struct core_state *state)
{
    PyObject *errors = PyImport_ImportModule("slabq.errors");
    if (errors == NULL)
        return -1;
    state->error = PyObject_GetAttrString(errors, "Error");
    state->parameter_error = PyObject_GetAttrString(errors, "ParameterError");
    state->trace_format_error = PyObject_GetAttrString(errors, "TraceFormatError");
    state->corruption_error = PyObject_GetAttrString(errors, "CorruptionError");
    state->out_of_memory = PyObject_GetAttrString(errors, "OutOfMemory");
    Py_DECREF(errors);
    return PyErr_Occurred() ? -1 : 0;
}

static int core_exec(PyObject *module)
{
    struct core_state *state = core_state_of(module);
    if (core_load_errors(state) < 0 || core_add_functions(module) < 0 ||
        core_add_calibrate(module) < 0 ||
        core_add_machine(module, state) < 0 ||
        core_add_sim_machine(module, state) < 0 || core_add_allocator(module, state) < 0 ||
        core_add_run(module, state) < 0 || core_add_trace(module, state) < 0)
        return -1;
    return 0;
}

#define CORE_STATE_OBJECTS(X)                                                          \
    X(error) X(parameter_error) X(trace_format_error) X(corruption_error)              \
    X(out_of_memory) X(machine_type) X(sim_machine_type) X(allocator_type)             \
    X(cache_type) X(sheaf_type) X(trace_type)

static int core_traverse(PyObject *module, visitproc visit, void *arg)
{
    struct core_state *state = core_state_of(module);
#define CORE_VISIT(name) Py_VISIT(state->name);
    CORE_STATE_OBJECTS(CORE_VISIT)
    return 0;
}

static int core_clear(PyObject *module)
{
    struct core_state *state = core_state_of(module);
#define CORE_CLEAR(name) Py_CLEAR(state->name);
    CORE_STATE_OBJECTS(CORE_CLEAR)
    return 0;
}

static void core_free(void *module)
{
    (void)core_clear((PyObject *)module);
}

static PyModuleDef_Slot core_slots[] = {
    {Py_mod_exec, CORE_SLOT(core_exec)},
    {0, NULL},
};

static struct PyModuleDef core_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "slabq._core",
    .m_doc = "The C core of slabq. Use the names of the package slabq instead.",
    .m_size = sizeof(struct core_state),
    .m_slots = core_slots,
    .m_traverse = core_traverse,
    .m_clear = core_clear,
    .m_free = core_free,
};

struct core_state *core_state_of(PyObject *module)
{
    return PyModule_GetState(module);
}

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&core_module);
}
