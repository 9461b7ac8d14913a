/* The functions of the module that need no object of their own: tables, geometry,
 * operation scripts. */
#include "experiment/script.h"
#include "policy/policy.h"
#include "python/machine_type.h"

static const char engine_native[] = "native";

/* Append a new reference (or fail with NULL) to `list`; consumes both on failure. */
static PyObject *list_append(PyObject *list, PyObject *item)
{
    if (item == NULL || PyList_Append(list, item) < 0)
        Py_CLEAR(list);
    Py_XDECREF(item);
    return list;
}

static PyObject *core_policies(PyObject *module, PyObject *unused)
{
    PyObject *list = PyList_New(0);
    const sq_policy_ops *ops;
    (void)module;
    (void)unused;
    for (uint32_t n = 0; list != NULL && (ops = sq_policy_at(engine_native, n)); n++)
        list = list_append(list, PyUnicode_FromString(ops->name));
    return list;
}

static PyObject *core_options(PyObject *module, PyObject *unused)
{
    uint32_t count;
    const struct sq_option *table = sq_options_table(&count);
    PyObject *list = PyList_New(0);
    (void)module;
    (void)unused;
    for (uint32_t i = 0; list != NULL && i < count; i++)
        list = list_append(
            list, Py_BuildValue("ssLLLs", table[i].policy, table[i].name,
                                (long long)table[i].value_default,
                                (long long)table[i].value_min,
                                (long long)table[i].value_max, table[i].help));
    return list;
}

static PyObject *core_counters(PyObject *module, PyObject *argument)
{
    struct sq_error error;
    PyObject *list;
    const sq_policy_ops *ops;
    const char *policy = PyUnicode_AsUTF8AndSize(argument, NULL);
    if (policy == NULL)
        return NULL;
    ops = sq_policy_find(policy, engine_native, &error);
    if (ops == NULL)
        return core_raise(core_state_of(module), &error);
    list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < ops->counter_count; i++)
        list = list_append(list, Py_BuildValue("ss", ops->counters[i].name,
                                               ops->counters[i].help));
    return list;
}

static PyObject *core_build_info(PyObject *module, PyObject *unused)
{
#if defined(__SANITIZE_ADDRESS__)
    const char *sanitizer = "address";
#elif defined(__SANITIZE_THREAD__)
    const char *sanitizer = "thread";
#else
    const char *sanitizer = "none";
#endif
    (void)module;
    (void)unused;
    return Py_BuildValue("{ss,ss,ss}", "compiler",
#if defined(__clang__)
                         "clang " __clang_version__,
#else
                         "gcc " __VERSION__,
#endif
                         "assert_level", SQ_ASSERT_LEVEL == 0   ? "0"
                                         : SQ_ASSERT_LEVEL == 1 ? "1"
                                         : SQ_ASSERT_LEVEL == 2 ? "2"
                                                                : "3",
                         "sanitizer", sanitizer);
}

/* The common beginning of geometry() and execute(): machine, policy, options. */
static const sq_policy_ops *parse_policy(PyObject *module, PyObject *machine_object,
                                         const char *policy, PyObject *pairs,
                                         sq_machine **machine, struct sq_options *options)
{
    struct core_state *state = core_state_of(module);
    const sq_policy_ops *ops;
    struct sq_error error;
    *machine = core_machine_of(machine_object, state);
    if (*machine == NULL)
        return NULL;
    ops = sq_policy_find(policy, (*machine)->engine, &error);
    if (ops == NULL) {
        (void)core_raise(state, &error);
        return NULL;
    }
    return core_parse_options(state, policy, pairs, options) < 0 ? NULL : ops;
}

static PyObject *core_geometry(PyObject *module, PyObject *args)
{
    PyObject *machine_object, *pairs;
    struct sq_cache_spec spec = {.name = "geometry"};
    struct sq_options options;
    struct sq_error error;
    struct sq_json json;
    const sq_policy_ops *ops;
    const char *policy;
    unsigned long long size, align;
    sq_machine *machine;
    sq_heap *heap;
    sq_cpu *cpu;
    int status;
    if (!PyArg_ParseTuple(args, "OsOKKII:geometry", &machine_object, &policy, &pairs,
                          &size, &align, &spec.flags, &spec.sheaf_capacity))
        return NULL;
    ops = parse_policy(module, machine_object, policy, pairs, &machine, &options);
    if (ops == NULL)
        return NULL;
    spec.size = size;
    spec.align = align;
    sq_json_init(&json);
    sq_json_open_object(&json, NULL);
    cpu = core_wait_for_cpu(machine, 0);
    status = sq_heap_create(cpu, ops, &options, &heap, &error);
    if (status == SQ_OK) {
        status = ops->geometry(heap, &spec, &json, &error);
        sq_heap_destroy(cpu, heap);
    }
    machine->ops->cpu_leave(cpu);
    if (status != SQ_OK) {
        sq_json_free(&json);
        return core_raise(core_state_of(module), &error);
    }
    sq_json_close(&json);
    return core_json_to_text(&json);
}

static PyObject *core_execute(PyObject *module, PyObject *args)
{
    PyObject *machine_object, *pairs;
    struct sq_options options;
    struct sq_error error;
    struct sq_json json;
    const sq_policy_ops *ops;
    const char *policy, *script;
    sq_machine *machine;
    int status, original = 0;
    if (!PyArg_ParseTuple(args, "OsOs|p:execute", &machine_object, &policy, &pairs,
                          &script, &original))
        return NULL;
    ops = parse_policy(module, machine_object, policy, pairs, &machine, &options);
    if (ops == NULL)
        return NULL;
    sq_json_init(&json);
    Py_BEGIN_ALLOW_THREADS
    status = sq_script_run(machine, ops, &options,
                           original ? SQ_SCRIPT_ORIGINAL : SQ_SCRIPT_KERNEL, script,
                           &json, &error);
    Py_END_ALLOW_THREADS
    if (status != SQ_OK) {
        sq_json_free(&json);
        return core_raise(core_state_of(module), &error);
    }
    return core_json_to_text(&json);
}

static PyMethodDef core_functions[] = {
    {"policies", core_policies, METH_NOARGS, "Names of the policies."},
    {"options", core_options, METH_NOARGS,
     "[(policy, name, default, minimum, maximum, help)]"},
    {"counters", core_counters, METH_O, "(policy) -> [(name, help)]"},
    {"build_info", core_build_info, METH_NOARGS, "How the core was built."},
    {"geometry", core_geometry, METH_VARARGS,
     "(machine, policy, options, size, align, flags, sheaf_capacity) -> JSON"},
    {"execute", core_execute, METH_VARARGS,
     "(machine, policy, options, script, original=False) -> JSON lines"},
    {NULL, NULL, 0, NULL},
};

int core_add_functions(PyObject *module)
{
    return PyModule_AddFunctions(module, core_functions);
}
