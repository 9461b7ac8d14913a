#define PY_SSIZE_T_CLEAN
#include "python/trace_figures.h"

#include <stdlib.h>
#include <string.h>

#include "python/trace_type.h"
#include "trace/program.h"
#include "trace/stat.h"

PyObject *core_json_to_python(struct sq_json *json)
{
    const char *text = sq_json_text(json);
    PyObject *result = text == NULL ? PyErr_NoMemory() : PyUnicode_FromString(text);
    sq_json_free(json);
    return result;
}

/* What stat() computes without the GIL. */
struct stat_run {
    const char *keys;
    int by_caller, raw_ip;
    long long limit;
    struct sq_stat stat;
    struct sq_stat_rows *rows;
    char *table, *summary;
};

static int stat_run_all(struct stat_run *run, const struct sq_trace *trace,
                        const Py_buffer *nodes, struct sq_error *error)
{
    int result = sq_stat_build(trace, nodes->buf, (size_t)nodes->len / sizeof(uint16_t),
                               &run->stat, error);
    if (result < 0)
        return result;
    run->rows = run->by_caller ? &run->stat.callers : &run->stat.pointers;
    result = sq_stat_sort(&run->stat, run->rows, run->keys, error);
    if (result < 0)
        return result;
    run->table = sq_stat_table(&run->stat, run->rows, run->by_caller, run->limit,
                               run->raw_ip != 0);
    run->summary = sq_stat_summary(&run->stat);
    if (run->table == NULL || run->summary == NULL)
        return sq_error_set(error, SQ_E_MEMORY, "no memory for the table of figures");
    return 0;
}

/* The totals, as the names of sq_stat have them. */
static PyObject *stat_totals(const struct sq_stat *stat)
{
    return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K}", "bytes_requested",
                         (unsigned long long)stat->bytes_requested, "bytes_allocated",
                         (unsigned long long)stat->bytes_allocated, "bytes_freed",
                         (unsigned long long)stat->bytes_freed, "allocations",
                         (unsigned long long)stat->allocation_count,
                         "cross_cpu_allocations",
                         (unsigned long long)stat->cross_count);
}

static PyObject *stat_run_answer(const struct stat_run *run)
{
    PyObject *totals = stat_totals(&run->stat);
    if (totals == NULL)
        return NULL;
    return Py_BuildValue("y#Nyy",
                         run->rows->count > 0 ? (const char *)run->rows->rows : "",
                         (Py_ssize_t)(run->rows->count * sizeof(*run->rows->rows)),
                         totals, run->table, run->summary);
}

PyObject *core_trace_stat(PyObject *object, PyObject *args)
{
    struct core_state *state = PyType_GetModuleState(Py_TYPE(object));
    struct stat_run run = {0};
    struct sq_error error;
    Py_buffer nodes;
    PyObject *answer = NULL;
    int result;
    if (!PyArg_ParseTuple(args, "psLpy*:stat", &run.by_caller, &run.keys, &run.limit,
                          &run.raw_ip, &nodes))
        return NULL;
    const struct sq_trace *trace = core_trace_of(object, state);
    if (trace != NULL) {
        Py_BEGIN_ALLOW_THREADS result = stat_run_all(&run, trace, &nodes, &error);
        Py_END_ALLOW_THREADS core_trace_release(object);
        answer = result < 0 ? core_raise(state, &error) : stat_run_answer(&run);
        free(run.table);
        free(run.summary);
        sq_stat_free(&run.stat);
    }
    PyBuffer_Release(&nodes);
    return answer;
}

static void target_describe(const struct sq_trace *trace,
                            const struct sq_program_target *target,
                            struct sq_json *json)
{
    sq_json_open_object(json, NULL);
    sq_json_string(json, "kind", sq_program_target_kind_name(target->kind));
    if (target->name == SQ_STRING_NONE) {
        sq_json_null(json, "name");
    } else {
        size_t length;
        const char *name = sq_strings_get(&trace->caches, target->name, &length);
        sq_json_string_length(json, "name", name, length);
    }
    sq_json_unsigned(json, "object_size", target->object_size);
    sq_json_unsigned(json, "slot_size", target->slot_size);
    sq_json_unsigned(json, "allocations", target->allocation_count);
    sq_json_close(json);
}

static void program_describe(const struct sq_trace *trace,
                             const struct sq_program *program, struct sq_json *json)
{
    sq_json_open_object(json, NULL);
#define PROGRAM_COUNT_PRINT(name) sq_json_unsigned(json, #name, program->counts.name);
    SQ_PROGRAM_COUNTS(PROGRAM_COUNT_PRINT)
    sq_json_unsigned(json, "trace_cpus", program->trace_cpu_count);
    sq_json_boolean(json, "cpus_folded", program->cpus_folded);
    sq_json_unsigned(json, "objects", program->object_count);
    sq_json_open_array(json, "targets");
    for (uint32_t i = 0; i < program->target_count; i++)
        target_describe(trace, &program->targets[i], json);
    sq_json_close(json);
    sq_json_close(json);
}

/* The events of each virtual CPU as a list of bytes. */
static PyObject *program_lists(const struct sq_program *program)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < program->cpu_count; i++) {
        const struct sq_program_cpu *cpu = &program->cpus[i];
        PyObject *bytes = PyBytes_FromStringAndSize(
            (const char *)cpu->events,
            (Py_ssize_t)(cpu->event_count * sizeof(*cpu->events)));
        if (bytes == NULL || PyList_Append(list, bytes) < 0)
            Py_CLEAR(list);
        Py_XDECREF(bytes);
    }
    return list;
}

static PyObject *program_answer(const struct sq_trace *trace,
                                const struct sq_program *program)
{
    struct sq_json json;
    sq_json_init(&json);
    program_describe(trace, program, &json);
    PyObject *text = core_json_to_python(&json);
    PyObject *lists = text == NULL ? NULL : program_lists(program);
    if (lists == NULL) {
        Py_XDECREF(text);
        return NULL;
    }
    return Py_BuildValue("NN", text, lists);
}

PyObject *core_trace_program(PyObject *object, PyObject *args)
{
    struct core_state *state = PyType_GetModuleState(Py_TYPE(object));
    struct sq_program program;
    struct sq_error error;
    unsigned int cpu_count;
    int result;
    if (!PyArg_ParseTuple(args, "I:program", &cpu_count))
        return NULL;
    if (cpu_count > UINT16_MAX + 1u)
        return PyErr_Format(state->parameter_error,
                            "cpu_count is %u; 1 to 65536 is accepted", cpu_count);
    const struct sq_trace *trace = core_trace_of(object, state);
    if (trace == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS result =
        sq_program_build(trace, cpu_count, &program, &error);
    Py_END_ALLOW_THREADS PyObject *answer = NULL;
    if (result < 0) {
        (void)core_raise(state, &error);
    } else {
        answer = program_answer(trace, &program);
        sq_program_free(&program);
    }
    core_trace_release(object);
    return answer;
}

/* One record's layout: (size, ((field, offset, size), ...)). */
struct layout_field {
    const char *name;
    size_t offset, size;
};

#define LAYOUT_FIELD(type, field)                                                      \
    {                                                                                  \
#field, offsetof(struct type, field), sizeof(((struct type *)NULL)->field)     \
    }

static const struct layout_field event_layout[] = {
#define EVENT_LAYOUT(field) LAYOUT_FIELD(sq_trace_event, field),
    SQ_TRACE_COLUMNS(EVENT_LAYOUT){NULL, 0, sizeof(struct sq_trace_event)}};

static const struct layout_field stat_row_layout[] = {
    LAYOUT_FIELD(sq_stat_row, pointer),   LAYOUT_FIELD(sq_stat_row, hit),
    LAYOUT_FIELD(sq_stat_row, bytes_req), LAYOUT_FIELD(sq_stat_row, bytes_alloc),
    LAYOUT_FIELD(sq_stat_row, pingpong),  LAYOUT_FIELD(sq_stat_row, last_alloc),
    LAYOUT_FIELD(sq_stat_row, call_site), LAYOUT_FIELD(sq_stat_row, alloc_cpu),
    {NULL, 0, sizeof(struct sq_stat_row)}};

static const struct layout_field program_event_layout[] = {
    LAYOUT_FIELD(sq_program_event, object),
    LAYOUT_FIELD(sq_program_event, code),
    {NULL, 0, sizeof(struct sq_program_event)}};

static PyObject *layout_of(const struct layout_field *field)
{
    PyObject *list = PyList_New(0);
    for (; list != NULL && field->name != NULL; field++) {
        PyObject *item = Py_BuildValue("(snn)", field->name, (Py_ssize_t)field->offset,
                                       (Py_ssize_t)field->size);
        if (item == NULL || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list == NULL ? NULL : Py_BuildValue("(nN)", (Py_ssize_t)field->size, list);
}

PyObject *core_trace_layout(PyObject *module, PyObject *args)
{
    const char *name;
    (void)module;
    if (!PyArg_ParseTuple(args, "s:trace_layout", &name))
        return NULL;
    if (strcmp(name, "event") == 0)
        return layout_of(event_layout);
    if (strcmp(name, "stat_row") == 0)
        return layout_of(stat_row_layout);
    if (strcmp(name, "program_event") == 0)
        return layout_of(program_event_layout);
    PyErr_SetString(PyExc_ValueError, "event, stat_row or program_event is accepted");
    return NULL;
}
