/*
 * What workloads there are, and which one is meant. A compiled workload comes as the
 * address of its sq_workload: whoever compiled it keeps it loaded, and what can be checked
 * of it is checked before it is run (sq_workload_check).
 */
#include "python/workload.h"

#include <stdlib.h>
#include <string.h>

#include "workload/runner.h"
#include "workload/tbench.h"

/* The workload at an address, checked, or NULL with an exception. */
static const struct sq_workload *core_workload_at(PyObject *address,
                                                  struct core_state *state)
{
    struct sq_error error;
    const struct sq_workload *workload = PyLong_AsVoidPtr(address);
    if (PyErr_Occurred())
        return NULL;
    if (workload == NULL || (uintptr_t)workload % _Alignof(struct sq_workload) != 0)
        (void)sq_error_set(&error, SQ_E_PARAMETER,
                           "the address of the workload is %p: accepted is that of a "
                           "struct sq_workload",
                           (const void *)workload);
    else if (sq_workload_check(workload, &error) == SQ_OK)
        return workload;
    (void)core_raise(state, &error);
    return NULL;
}

static const struct sq_workload *core_workload_named(PyObject *object,
                                                     struct core_state *state)
{
    struct sq_error error;
    const char *name = PyUnicode_AsUTF8AndSize(object, NULL);
    const struct sq_workload *workload =
        name == NULL ? NULL : sq_workload_find(name, &error);
    if (name != NULL && workload == NULL)
        (void)core_raise(state, &error);
    return workload;
}

/* Copy the bytes as what tbench takes. 0, or -1 with an exception. */
static int core_workload_take_data(PyObject *object, struct core_workload *result)
{
    char *bytes;
    Py_ssize_t length;
    struct tbench_script *script;
    if (PyBytes_AsStringAndSize(object, &bytes, &length) < 0)
        return -1;
    if ((size_t)length % sizeof(script->step[0]) != 0) {
        PyErr_SetString(PyExc_ValueError, "data of a workload: accepted are whole steps");
        return -1;
    }
    script = malloc(sizeof(*script) + (size_t)length);
    if (script == NULL) {
        (void)PyErr_NoMemory();
        return -1;
    }
    script->count = (size_t)length / sizeof(script->step[0]);
    memcpy(script->step, bytes, (size_t)length);
    result->data = script;
    return 0;
}

static int core_workload_parse_pair(PyObject *pair, struct core_state *state,
                                    struct core_workload *result)
{
    PyObject *name, *data;
    if (!PyArg_ParseTuple(pair, "OO:workload", &name, &data) ||
        (result->workload = core_workload_named(name, state)) == NULL ||
        core_workload_take_data(data, result) < 0)
        return -1;
    result->copy = *result->workload;
    result->copy.argument = result->data;
    result->workload = &result->copy;
    return 0;
}

int core_workload_parse(PyObject *object, struct core_state *state,
                        struct core_workload *result)
{
    memset(result, 0, sizeof(*result));
    if (PyTuple_Check(object))
        return core_workload_parse_pair(object, state, result);
    result->workload = PyLong_Check(object) ? core_workload_at(object, state)
                                            : core_workload_named(object, state);
    return result->workload == NULL ? -1 : 0;
}

void core_workload_free(struct core_workload *workload)
{
    free(workload->data);
}

/* ---- descriptions ---- */

/* Text that somebody else wrote: NULL and foreign bytes do no harm. */
static PyObject *core_text(const char *text)
{
    return text == NULL ? PyUnicode_FromString("")
                        : PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

/* Append the rows of a table to a list. 0, or -1 with an exception. */
static int core_list_parameters(PyObject *list, const struct sq_workload_parameter *table,
                                uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        PyObject *help = core_text(table[i].help);
        PyObject *row = help == NULL
                            ? NULL
                            : Py_BuildValue("sLLLN", table[i].name,
                                            (long long)table[i].value_default,
                                            (long long)table[i].value_min,
                                            (long long)table[i].value_max, help);
        int status = row == NULL ? -1 : PyList_Append(list, row);
        Py_XDECREF(row);
        if (status < 0)
            return -1;
    }
    return 0;
}

static PyObject *core_describe(const struct sq_workload *workload)
{
    PyObject *list = PyList_New(0);
    PyObject *help = list == NULL ? NULL : core_text(workload->help);
    if (help == NULL ||
        core_list_parameters(list, workload->parameters, workload->parameter_count) < 0 ||
        core_list_parameters(list, sq_run_parameters, SQ_RUN_PARAMETER_COUNT) < 0) {
        Py_XDECREF(help);
        Py_XDECREF(list);
        return NULL;
    }
    return Py_BuildValue("sNN", workload->name, help, list);
}

static PyObject *core_describe_workload(PyObject *module, PyObject *address)
{
    const struct sq_workload *workload;
    if (!PyLong_Check(address)) {
        PyErr_SetString(PyExc_TypeError, "address of a workload: accepted is an int");
        return NULL;
    }
    workload = core_workload_at(address, core_state_of(module));
    return workload == NULL ? NULL : core_describe(workload);
}

static PyObject *core_workloads(PyObject *module, PyObject *unused)
{
    PyObject *list = PyList_New(0);
    const struct sq_workload *workload;
    (void)module;
    (void)unused;
    for (uint32_t n = 0; list != NULL && (workload = sq_workload_at(n)) != NULL; n++) {
        PyObject *item = core_describe(workload);
        if (item == NULL || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static PyMethodDef workload_functions[] = {
    {"workloads", core_workloads, METH_NOARGS,
     "[(name, help, [(parameter, default, minimum, maximum, help)])]"},
    {"describe_workload", core_describe_workload, METH_O,
     "(address of a struct sq_workload) -> (name, help, parameters)"},
    {NULL, NULL, 0, NULL},
};

int core_add_workloads(PyObject *module)
{
    return PyModule_AddFunctions(module, workload_functions);
}
