#include "python/machine_type.h"

#include "base/sq_json.h"
#include "machine/native_machine.h"

sq_machine *core_machine_of(PyObject *object, struct core_state *state)
{
    if (!PyObject_TypeCheck(object, (PyTypeObject *)state->machine_type) &&
        !PyObject_TypeCheck(object, (PyTypeObject *)state->sim_machine_type)) {
        PyErr_SetString(PyExc_TypeError,
                        "a slabq._core.Machine or SimMachine is needed");
        return NULL;
    }
    return ((struct core_machine *)object)->machine;
}

sq_cpu *core_wait_for_cpu(sq_machine *machine, uint32_t index)
{
    sq_cpu *cpu;
    if (machine->ops->fingerprint == NULL)
        return machine->ops->cpu_enter(machine, index);
    Py_BEGIN_ALLOW_THREADS cpu = machine->ops->cpu_enter(machine, index);
    Py_END_ALLOW_THREADS return cpu;
}

PyObject *core_json_to_text(struct sq_json *json)
{
    const char *text = sq_json_text(json);
    PyObject *result =
        text == NULL ? PyErr_NoMemory()
                     : PyUnicode_FromStringAndSize(text, (Py_ssize_t)json->length);
    sq_json_free(json);
    return result;
}

int core_parse_options(struct core_state *state, const char *policy, PyObject *pairs,
                       struct sq_options *options)
{
    Py_ssize_t count = PySequence_Size(pairs);
    sq_options_init(options);
    for (Py_ssize_t i = 0; i < count; i++) {
        struct sq_error error;
        const char *name;
        long long value;
        PyObject *pair = PySequence_GetItem(pairs, i);
        int status = SQ_OK;
        if (pair == NULL)
            return -1;
        if (!PyArg_ParseTuple(pair, "sL:option", &name, &value)) {
            Py_DECREF(pair);
            return -1;
        }
        status = sq_options_set(options, policy, name, value, &error);
        Py_DECREF(pair);
        if (status != SQ_OK) {
            (void)core_raise(state, &error);
            return -1;
        }
    }
    return count < 0 ? -1 : 0;
}

/* A sequence of integers, each from 0 to `max`, into `values`. The count, or -1. */
static Py_ssize_t parse_integers(PyObject *sequence, const char *name, long max,
                                 Py_ssize_t count_max, uint16_t *values)
{
    Py_ssize_t count = PySequence_Size(sequence);
    if (count > count_max) {
        PyErr_Format(PyExc_ValueError, "%s has %zd items: accepted are at most %zd",
                     name, count, count_max);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PySequence_GetItem(sequence, i);
        long value = item == NULL ? -1 : PyLong_AsLong(item);
        Py_XDECREF(item);
        if (PyErr_Occurred())
            return -1;
        if (value < 0 || value > max) {
            PyErr_Format(PyExc_ValueError, "%s[%zd] is %ld: accepted are 0 to %ld",
                         name, i, value, max);
            return -1;
        }
        values[i] = (uint16_t)value;
    }
    return count;
}

static int parse_distances(PyObject *rows, struct sq_topology *topology)
{
    Py_ssize_t row_count = PySequence_Size(rows);
    if (row_count < 1 || row_count > (Py_ssize_t)SQ_NODE_MAX) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_ValueError,
                         "distance has %zd rows: accepted are 1 to %u", row_count,
                         SQ_NODE_MAX);
        return -1;
    }
    for (Py_ssize_t from = 0; from < row_count; from++) {
        uint16_t values[SQ_NODE_MAX];
        PyObject *row = PySequence_GetItem(rows, from);
        Py_ssize_t count =
            row == NULL ? -1
                        : parse_integers(row, "distance", 255, SQ_NODE_MAX, values);
        Py_XDECREF(row);
        if (count < 0)
            return -1;
        if (count != row_count) {
            PyErr_Format(
                PyExc_ValueError,
                "distance row %zd has %zd values: accepted are %zd, one a node", from,
                count, row_count);
            return -1;
        }
        for (Py_ssize_t to = 0; to < count; to++)
            topology->distance[from][to] = (uint8_t)values[to];
    }
    topology->node_count = (uint32_t)row_count;
    return 0;
}

int core_parse_topology(PyObject *node_of_cpu, PyObject *llc_of_cpu, PyObject *distance,
                        struct sq_topology *topology)
{
    Py_ssize_t cpus, llcs;
    if (parse_distances(distance, topology) < 0)
        return -1;
    cpus = parse_integers(node_of_cpu, "node_of_cpu", SQ_NODE_MAX - 1, SQ_CPU_MAX,
                          topology->node_of_cpu);
    if (cpus < 0)
        return -1;
    llcs = parse_integers(llc_of_cpu, "llc_of_cpu", SQ_CPU_MAX - 1, SQ_CPU_MAX,
                          topology->llc_of_cpu);
    if (llcs < 0)
        return -1;
    if (llcs != cpus) {
        PyErr_Format(PyExc_ValueError, "llc_of_cpu has %zd items for %zd CPUs", llcs,
                     cpus);
        return -1;
    }
    topology->cpu_count = (uint32_t)cpus;
    return 0;
}

static PyObject *machine_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {
        "node_of_cpu",   "llc_of_cpu",      "distance", "node_bytes",
        "pcp_order_max", "remote_delay_ns", "seed",     NULL};
    struct core_state *state = PyType_GetModuleState(type);
    struct sq_machine_config config = {0};
    struct sq_error error;
    PyObject *node_of_cpu, *llc_of_cpu, *distance;
    unsigned long long node_bytes, seed;
    struct core_machine *self;
    int status;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OOOKIIK:Machine", names,
                                     &node_of_cpu, &llc_of_cpu, &distance, &node_bytes,
                                     &config.pcp_order_max,
                                     &config.remote_delay_ns_at_20, &seed))
        return NULL;
    if (core_parse_topology(node_of_cpu, llc_of_cpu, distance, &config.topology) < 0)
        return NULL;
    config.node_bytes = node_bytes;
    config.seed = seed;
    self = PyObject_New(struct core_machine, type);
    if (self == NULL)
        return NULL;
    self->machine = NULL;
    Py_BEGIN_ALLOW_THREADS status =
        sq_native_machine_create(&config, &self->machine, &error);
    Py_END_ALLOW_THREADS if (status != SQ_OK)
    {
        Py_DECREF(self);
        return core_raise(state, &error);
    }
    return (PyObject *)self;
}

void core_machine_dealloc(PyObject *object)
{
    struct core_machine *self = (struct core_machine *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->machine != NULL)
        self->machine->ops->destroy(self->machine);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyObject *machine_describe(PyObject *object, PyObject *unused)
{
    struct sq_json json;
    (void)unused;
    sq_json_init(&json);
    sq_native_machine_describe(((struct core_machine *)object)->machine, &json);
    return core_json_to_text(&json);
}

static PyMethodDef machine_methods[] = {
    {"describe", machine_describe, METH_NOARGS,
     "JSON: topology, fallback order, memory by node, the effective cost table."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot machine_slots[] = {
    {Py_tp_new, CORE_SLOT(machine_new)},
    {Py_tp_dealloc, CORE_SLOT(core_machine_dealloc)},
    {Py_tp_methods, machine_methods},
    {Py_tp_doc, "A machine of the native engine: CPUs, nodes with memory, pages."},
    {0, NULL},
};

static PyType_Spec machine_spec = {
    .name = "slabq._core.Machine",
    .basicsize = sizeof(struct core_machine),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = machine_slots,
};

int core_add_machine(PyObject *module, struct core_state *state)
{
    state->machine_type = PyType_FromModuleAndSpec(module, &machine_spec, NULL);
    if (state->machine_type == NULL)
        return -1;
    return PyModule_AddType(module, (PyTypeObject *)state->machine_type);
}
