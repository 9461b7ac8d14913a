/* The heap type SimMachine: a machine in virtual time. */
#include <stdlib.h>

#include "base/sq_json.h"
#include "machine/sim_machine.h"
#include "python/machine_type.h"

/* (name, value) pairs into a new array whose names live as long as `list`. NULL with an
 * exception. */
static struct sq_sim_parameter *parse_parameters(PyObject *list, size_t *count)
{
    struct sq_sim_parameter *parameters;
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

/* Make the machine inside `self`. 0, or -1 with an exception set. */
static int sim_machine_make(struct core_state *state, struct core_machine *self,
                            const struct sq_machine_config *config, PyObject *pairs)
{
    PyObject *list = PySequence_List(pairs);
    struct sq_sim_parameter *parameters;
    struct sq_error error;
    size_t count;
    int code;
    if (list == NULL)
        return -1;
    parameters = parse_parameters(list, &count);
    if (parameters == NULL) {
        Py_DECREF(list);
        return -1;
    }
    code = sq_sim_machine_create(config, parameters, count, &self->machine, &error);
    free(parameters);
    Py_DECREF(list);
    if (code != SQ_OK)
        (void)core_raise(state, &error);
    return code == SQ_OK ? 0 : -1;
}

static PyObject *sim_machine_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"node_of_cpu", "llc_of_cpu", "distance",      "node_bytes",
                            "seed",        "parameters", "pcp_order_max", NULL};
    struct core_state *state = PyType_GetModuleState(type);
    struct sq_machine_config config = {.pcp_order_max = 0};
    PyObject *node_of_cpu, *llc_of_cpu, *distance, *pairs;
    unsigned long long node_bytes, seed;
    struct core_machine *self;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OOOKKO|I:SimMachine", names,
                                     &node_of_cpu, &llc_of_cpu, &distance, &node_bytes,
                                     &seed, &pairs, &config.pcp_order_max))
        return NULL;
    if (core_parse_topology(node_of_cpu, llc_of_cpu, distance, &config.topology) < 0)
        return NULL;
    config.node_bytes = node_bytes;
    config.seed = seed;
    self = PyObject_New(struct core_machine, type);
    if (self == NULL)
        return NULL;
    self->machine = NULL;
    if (sim_machine_make(state, self, &config, pairs) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyObject *sim_machine_describe(PyObject *object, PyObject *unused)
{
    struct sq_json json;
    (void)unused;
    sq_json_init(&json);
    sq_sim_machine_describe(((struct core_machine *)object)->machine, &json);
    return core_json_to_text(&json);
}

static PyObject *sim_machine_accesses(PyObject *object, PyObject *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(
        sq_sim_machine_accesses(((struct core_machine *)object)->machine));
}

static PyObject *sim_machine_now_ps(PyObject *object, PyObject *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(
        sq_sim_machine_now_ps(((struct core_machine *)object)->machine));
}

static PyObject *sim_machine_parameters(PyObject *type, PyObject *unused)
{
    PyObject *list = PyList_New(0);
    const char *name, *help;
    int64_t value, minimum, maximum;
    (void)type;
    (void)unused;
    for (size_t n = 0; list != NULL &&
                       sq_sim_parameter_at(n, &name, &value, &minimum, &maximum, &help);
         n++) {
        PyObject *row = Py_BuildValue("sLLLs", name, (long long)value,
                                      (long long)minimum, (long long)maximum, help);
        if (row == NULL || PyList_Append(list, row) < 0)
            Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

static PyMethodDef sim_machine_methods[] = {
    {"describe", sim_machine_describe, METH_NOARGS,
     "JSON: topology, fallback order, memory by node, parameters, costs of a line."},
    {"accesses", sim_machine_accesses, METH_NOARGS,
     "How many accesses to lines have been simulated."},
    {"now_ps", sim_machine_now_ps, METH_NOARGS,
     "Virtual time, in picoseconds, at which the last operation or run ended."},
    {"parameters", sim_machine_parameters, METH_NOARGS | METH_STATIC,
     "[(name, default, minimum, maximum, help)]; default -1: it must be given."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot sim_machine_slots[] = {
    {Py_tp_new, CORE_SLOT(sim_machine_new)},
    {Py_tp_dealloc, CORE_SLOT(core_machine_dealloc)},
    {Py_tp_methods, sim_machine_methods},
    {Py_tp_doc,
     "A machine of the sim engine: virtual CPUs, lines, locks, virtual time."},
    {0, NULL},
};

static PyType_Spec sim_machine_spec = {
    .name = "slabq._core.SimMachine",
    .basicsize = sizeof(struct core_machine),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = sim_machine_slots,
};

int core_add_sim_machine(PyObject *module, struct core_state *state)
{
    state->sim_machine_type = PyType_FromModuleAndSpec(module, &sim_machine_spec, NULL);
    if (state->sim_machine_type == NULL)
        return -1;
    return PyModule_AddType(module, (PyTypeObject *)state->sim_machine_type);
}
