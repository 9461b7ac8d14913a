/*
 * Whole runs: the GIL is released, and taken again every 50 ms to look for signals and
 * to tell how far the run is.
 */
#include "experiment/replay.h"

#include <stdlib.h>
#include <string.h>

#include "python/machine_type.h"
#include "python/trace_type.h"
#include "python/workload.h"

/* What the thread that waits for the run keeps at hand. */
struct core_wait {
    PyThreadState *thread;
    PyObject *progress; /* borrowed; NULL: none */
    bool has_raised;
};

/* Called without the GIL. True: an exception is set and the run must end. */
static bool core_tick(void *argument, double share)
{
    struct core_wait *wait = argument;
    if (wait->has_raised)
        return true;
    PyEval_RestoreThread(wait->thread);
    if (PyErr_CheckSignals() < 0) {
        wait->has_raised = true;
    } else if (wait->progress != NULL) {
        PyObject *answer = PyObject_CallFunction(wait->progress, "d", share);
        wait->has_raised = answer == NULL;
        Py_XDECREF(answer);
    }
    wait->thread = PyEval_SaveThread();
    return wait->has_raised;
}

/* (name, value) pairs into a new array whose names live as long as `list`. NULL with an
 * exception. */
static struct sq_run_parameter *core_parse_parameters(PyObject *list, size_t *count)
{
    struct sq_run_parameter *parameters;
    *count = (size_t)PyList_Size(list);
    parameters = calloc(*count + 1, sizeof(*parameters));
    if (parameters == NULL) {
        (void)PyErr_NoMemory();
        return NULL;
    }
    for (size_t i = 0; i < *count; i++) {
        long long value;
        if (!PyArg_ParseTuple(PyList_GetItem(list, (Py_ssize_t)i), "sL:parameter",
                              &parameters[i].name, &value)) {
            free(parameters);
            return NULL;
        }
        parameters[i].value = value;
    }
    return parameters;
}

/*
 * Run `request`, or replay `trace` if it is not NULL. Fills in the request's machine,
 * policy, options and tick. The caller keeps `machine` and `trace` alive. Returns the
 * row as text.
 */
static PyObject *core_run_request(struct core_state *state, sq_machine *machine,
                                  const char *policy, PyObject *options_object,
                                  PyObject *progress, struct sq_run_request *request,
                                  const struct sq_trace *trace)
{
    struct core_wait wait = {.progress = progress == Py_None ? NULL : progress};
    struct sq_options options;
    struct sq_error error;
    struct sq_json json;
    int code;
    request->machine = machine;
    request->policy = sq_policy_find(policy, machine->engine, &error);
    if (request->policy == NULL)
        return core_raise(state, &error);
    if (core_parse_options(state, policy, options_object, &options) < 0)
        return NULL;
    request->options = &options;
    request->tick = core_tick;
    request->tick_argument = &wait;
    sq_json_init(&json);
    wait.thread = PyEval_SaveThread();
    code = trace != NULL ? sq_replay(request, trace, &json, &error)
                         : sq_run(request, &json, &error);
    PyEval_RestoreThread(wait.thread);
    if (code != SQ_OK || wait.has_raised) {
        sq_json_free(&json);
        return wait.has_raised ? NULL : core_raise(state, &error);
    }
    return core_json_to_text(&json);
}

static PyObject *core_run(PyObject *module, PyObject *args)
{
    struct core_state *state = core_state_of(module);
    PyObject *machine_object, *options, *workload, *pairs, *list, *progress = Py_None;
    PyObject *row = NULL;
    struct sq_run_request request = {0};
    struct sq_run_parameter *parameters;
    struct core_workload meant;
    const char *policy;
    unsigned long long seed;
    int with_caches = 0, with_timeline = 0, panics = 0;
    sq_machine *machine;
    if (!PyArg_ParseTuple(args, "OsOOOK|Oppzp:run", &machine_object, &policy, &options,
                          &workload, &pairs, &seed, &progress, &with_caches,
                          &with_timeline, &request.debug, &panics))
        return NULL;
    machine = core_machine_of(machine_object, state);
    request.seed = seed;
    request.with_caches = with_caches != 0;
    request.with_timeline = with_timeline != 0;
    request.panics = panics != 0;
    if (machine == NULL || (list = PySequence_List(pairs)) == NULL)
        return NULL;
    parameters = core_parse_parameters(list, &request.parameter_count);
    if (parameters != NULL && core_workload_parse(workload, state, &meant) == 0) {
        request.parameters = parameters;
        request.workload = meant.workload;
        row =
            core_run_request(state, machine, policy, options, progress, &request, NULL);
        core_workload_free(&meant);
    }
    free(parameters);
    Py_DECREF(list);
    return row;
}

static PyObject *core_replay(PyObject *module, PyObject *args)
{
    struct core_state *state = core_state_of(module);
    PyObject *machine_object, *options, *trace_object, *progress = Py_None, *row = NULL;
    struct sq_run_request request = {0};
    struct sq_trace *trace;
    const char *policy;
    unsigned long long seed;
    int with_caches = 0, with_timeline = 0, panics = 0;
    sq_machine *machine;
    if (!PyArg_ParseTuple(args, "OsOOK|Oppzp:replay", &machine_object, &policy, &options,
                          &trace_object, &seed, &progress, &with_caches,
                          &with_timeline, &request.debug, &panics))
        return NULL;
    request.seed = seed;
    request.with_caches = with_caches != 0;
    request.with_timeline = with_timeline != 0;
    request.panics = panics != 0;
    machine = core_machine_of(machine_object, state);
    trace = machine == NULL ? NULL : core_trace_of(trace_object, state);
    if (trace == NULL)
        return NULL;
    row = core_run_request(state, machine, policy, options, progress, &request, trace);
    core_trace_release(trace_object);
    return row;
}

static PyMethodDef run_functions[] = {
    {"run", core_run, METH_VARARGS,
     "(machine, policy, options, workload, parameters, seed, progress=None, "
     "with_caches=False, with_timeline=False, debug=None, panic=False) -> JSON"},
    {"replay", core_replay, METH_VARARGS,
     "(machine, policy, options, trace, seed, progress=None, with_caches=False, "
     "with_timeline=False, debug=None, panic=False) -> JSON"},
    {NULL, NULL, 0, NULL},
};

int core_add_run(PyObject *module, struct core_state *state)
{
    (void)state;
    if (core_add_workloads(module) < 0)
        return -1;
    return PyModule_AddFunctions(module, run_functions);
}
