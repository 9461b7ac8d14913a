/* Single primitives of a simulated machine (experiment/probe.h), without the GIL. */
#include "experiment/probe.h"

#include <stdlib.h>
#include <string.h>

#include "python/machine_type.h"

#define STEPS_MAX 100000
#define TURNS_MAX 1000

/* The machine of a SimMachine, or NULL with an exception. */
static sq_machine *probe_machine(PyObject *object, struct core_state *state)
{
    if (!PyObject_TypeCheck(object, (PyTypeObject *)state->sim_machine_type)) {
        PyErr_SetString(PyExc_TypeError, "a slabq._core.SimMachine is needed");
        return NULL;
    }
    return core_machine_of(object, state);
}

/* The kind of that name; SQ_PROBE_KIND_COUNT: there is none. */
static enum sq_probe_kind probe_kind(const char *name)
{
    uint32_t kind = 0;
    while (kind < SQ_PROBE_KIND_COUNT && strcmp(sq_probe_kind_name[kind], name) != 0)
        kind++;
    return (enum sq_probe_kind)kind;
}

/* (kind, cpu, node, line, count) into a step. 0, or -1 with an exception. */
static int probe_parse(struct core_state *state, PyObject *tuple,
                       struct sq_probe_step *step)
{
    const char *name;
    unsigned int cpu, node;
    unsigned long long line, count;
    if (tuple == NULL ||
        !PyArg_ParseTuple(tuple, "sIIKK:step", &name, &cpu, &node, &line, &count))
        return -1;
    *step = (struct sq_probe_step){probe_kind(name), cpu, node, line, count, 0};
    if (step->kind != SQ_PROBE_KIND_COUNT)
        return 0;
    (void)PyErr_Format(state->parameter_error,
                       "step is %s: accepted are the names of experiment/probe.h",
                       name);
    return -1;
}

/* Run the parsed steps; the list of their times. */
static PyObject *probe_run(struct core_state *state, sq_machine *machine,
                           struct sq_probe_step *steps, Py_ssize_t count)
{
    struct sq_error error;
    PyObject *times;
    int code;
    Py_BEGIN_ALLOW_THREADS;
    code = sq_probe_run(machine, steps, (size_t)count, &error);
    Py_END_ALLOW_THREADS;
    if (code != SQ_OK)
        return core_raise(state, &error);
    times = PyList_New(count);
    for (Py_ssize_t i = 0; times != NULL && i < count; i++) {
        PyObject *time = PyLong_FromUnsignedLongLong(steps[i].ps);
        if (time == NULL || PyList_SetItem(times, i, time) < 0)
            Py_CLEAR(times);
    }
    return times;
}

static PyObject *core_probe(PyObject *module, PyObject *arguments)
{
    struct core_state *state = core_state_of(module);
    PyObject *object, *list, *times = NULL;
    struct sq_probe_step *steps;
    sq_machine *machine;
    Py_ssize_t count;
    bool is_parsed = true;
    if (!PyArg_ParseTuple(arguments, "OO:probe", &object, &list) ||
        (machine = probe_machine(object, state)) == NULL ||
        (count = PyList_Size(list)) < 0)
        return NULL;
    if (count > STEPS_MAX)
        return PyErr_Format(state->parameter_error,
                            "%zd steps: accepted are at most %d", count, STEPS_MAX);
    steps = calloc((size_t)count + 1, sizeof(*steps));
    if (steps == NULL)
        return PyErr_NoMemory();
    for (Py_ssize_t i = 0; is_parsed && i < count; i++)
        is_parsed = probe_parse(state, PyList_GetItem(list, i), &steps[i]) == 0;
    if (is_parsed)
        times = probe_run(state, machine, steps, count);
    free(steps);
    return times;
}

static PyObject *core_probe_waiters(PyObject *module, PyObject *arguments)
{
    struct core_state *state = core_state_of(module);
    struct sq_probe_holder holders[SQ_CPU_MAX];
    struct sq_error error;
    PyObject *object, *rows;
    sq_machine *machine;
    unsigned int count;
    int code;
    if (!PyArg_ParseTuple(arguments, "OI:probe_waiters", &object, &count) ||
        (machine = probe_machine(object, state)) == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    code = sq_probe_waiters(machine, holders, count, &error);
    Py_END_ALLOW_THREADS;
    if (code != SQ_OK)
        return core_raise(state, &error);
    rows = PyList_New((Py_ssize_t)count);
    for (Py_ssize_t i = 0; rows != NULL && i < (Py_ssize_t)count; i++) {
        PyObject *row = Py_BuildValue("KKK", (unsigned long long)holders[i].asked_ps,
                                      (unsigned long long)holders[i].got_ps,
                                      (unsigned long long)holders[i].released_ps);
        if (row == NULL || PyList_SetItem(rows, i, row) < 0)
            Py_CLEAR(rows);
    }
    return rows;
}

/* The times of the turns, as a list. */
static PyObject *turns_list(const struct sq_probe_turn *turn, unsigned int count)
{
    PyObject *times = PyList_New((Py_ssize_t)count);
    for (Py_ssize_t i = 0; times != NULL && i < (Py_ssize_t)count; i++) {
        PyObject *time = PyLong_FromUnsignedLongLong(turn[i].end_ps - turn[i].start_ps);
        if (time == NULL || PyList_SetItem(times, i, time) < 0)
            Py_CLEAR(times);
    }
    return times;
}

static PyObject *core_probe_turns(PyObject *module, PyObject *arguments)
{
    struct core_state *state = core_state_of(module);
    struct sq_probe_turn turn[TURNS_MAX];
    struct sq_error error;
    PyObject *object;
    sq_machine *machine;
    unsigned int count, other;
    int code, is_yield;
    if (!PyArg_ParseTuple(arguments, "OIIp:probe_turns", &object, &count, &other,
                          &is_yield) ||
        (machine = probe_machine(object, state)) == NULL)
        return NULL;
    if (count == 0 || count > TURNS_MAX)
        return PyErr_Format(state->parameter_error, "%u turns: accepted are 1 to %d",
                            count, TURNS_MAX);
    Py_BEGIN_ALLOW_THREADS;
    code = sq_probe_turns(machine, turn, count, other, is_yield != 0, &error);
    Py_END_ALLOW_THREADS;
    if (code != SQ_OK)
        return core_raise(state, &error);
    return turns_list(turn, count);
}

static PyMethodDef probe_functions[] = {
    {"probe", core_probe, METH_VARARGS,
     "(SimMachine, [(kind, cpu, node, line, count)]) -> [ps]"},
    {"probe_waiters", core_probe_waiters, METH_VARARGS,
     "(SimMachine, CPUs) -> [(asked_ps, got_ps, released_ps)] by CPU"},
    {"probe_turns", core_probe_turns, METH_VARARGS,
     "(SimMachine, turns, other CPU, whether they yield) -> [ps]"},
    {NULL, NULL, 0, NULL},
};

int core_add_probe(PyObject *module)
{
    return PyModule_AddFunctions(module, probe_functions);
}
