/*
 * slabq._core.Trace: a kmem trace that is fed text, or decoded from slabq's own file
 * form, and then read as one buffer of events.
 *
 * A trace is first written (feed, finish) and from then on only read, so its events can
 * be exported as a buffer. Long work runs without the GIL; `writing` and
 * `reader_count`, changed with the GIL held only, refuse a second thread that would get
 * in its way.
 */
#define PY_SSIZE_T_CLEAN
#include "python/trace_type.h"

#include "python/trace_figures.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trace/compact.h"
#include "trace/reader.h"

#define FILE_BLOCK_SIZE ((size_t)1 << 20)

enum core_trace_stage { TRACE_FEEDING, TRACE_COMPLETE, TRACE_FAILED };

struct core_trace {
    PyObject_HEAD struct sq_trace trace;
    struct sq_reader reader;
    enum core_trace_stage stage;
    bool writing;
    uint32_t reader_count;
};

static struct core_trace *trace_cast(PyObject *object)
{
    return (struct core_trace *)(void *)object;
}

static struct core_state *trace_state(PyObject *object)
{
    return PyType_GetModuleState(Py_TYPE(object));
}

static PyObject *trace_refuse(PyObject *object, const char *reason)
{
    PyErr_SetString(trace_state(object)->error, reason);
    return NULL;
}

/* Begin to write. 0, or -1 with an exception: the trace is complete, has failed, or is
 * in use by another thread. */
static int trace_write_begin(PyObject *object)
{
    struct core_trace *self = trace_cast(object);
    const char *reason = NULL;
    if (self->writing || self->reader_count > 0)
        reason = "the trace is in use by another thread";
    else if (self->stage == TRACE_COMPLETE)
        reason = "the trace is complete; make a new one to read another file";
    else if (self->stage == TRACE_FAILED)
        reason = "the trace failed to read; make a new one";
    if (reason != NULL) {
        (void)trace_refuse(object, reason);
        return -1;
    }
    self->writing = true;
    return 0;
}

/* Begin to read. 0, or -1 with an exception: the trace is not complete. */
static int trace_read_begin(PyObject *object)
{
    struct core_trace *self = trace_cast(object);
    if (self->stage != TRACE_COMPLETE || self->writing) {
        (void)trace_refuse(object, "the trace is not read to its end yet");
        return -1;
    }
    self->reader_count++;
    return 0;
}

struct sq_trace *core_trace_of(PyObject *object, struct core_state *state)
{
    if (!PyObject_TypeCheck(object, (PyTypeObject *)state->trace_type)) {
        PyErr_SetString(PyExc_TypeError, "a slabq._core.Trace was expected");
        return NULL;
    }
    return trace_read_begin(object) < 0 ? NULL : &trace_cast(object)->trace;
}

void core_trace_release(PyObject *object)
{
    trace_cast(object)->reader_count--;
}

/* -- making one -- */

static PyObject *trace_make(PyTypeObject *type, const char *name)
{
    PyObject *object = PyType_GenericAlloc(type, 0);
    if (object == NULL)
        return NULL;
    struct core_trace *self = trace_cast(object);
    sq_trace_init(&self->trace);
    sq_reader_init(&self->reader, name, &self->trace);
    self->stage = TRACE_FEEDING;
    return object;
}

static PyObject *trace_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    const char *name = "<memory>";
    if (keywords != NULL && PyDict_Size(keywords) > 0) {
        PyErr_SetString(PyExc_TypeError, "Trace() takes its name by position");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "|s:Trace", &name))
        return NULL;
    return trace_make(type, name);
}

static void trace_dealloc(PyObject *object)
{
    struct core_trace *self = trace_cast(object);
    PyTypeObject *type = Py_TYPE(object);
    sq_reader_free(&self->reader);
    sq_trace_free(&self->trace);
    PyObject_Free(object);
    Py_DECREF(type);
}

/* -- writing -- */

/*
 * Feed a block whose bytes another thread could change meanwhile, such as a bytearray:
 * copied piece by piece, since the reader relies on the line feeds it has found.
 */
static int trace_feed_copy(struct sq_reader *reader, const char *bytes, size_t size,
                           struct sq_error *error)
{
    char *piece = malloc(FILE_BLOCK_SIZE);
    int result = 0;
    if (piece == NULL)
        return sq_error_set(error, SQ_E_MEMORY, "no memory for a block of the trace");
    for (size_t at = 0; at < size && result == 0; at += FILE_BLOCK_SIZE) {
        size_t piece_size = size - at < FILE_BLOCK_SIZE ? size - at : FILE_BLOCK_SIZE;
        memcpy(piece, bytes + at, piece_size);
        result = sq_reader_feed(reader, piece, piece_size, error);
    }
    free(piece);
    return result;
}

static PyObject *trace_feed(PyObject *object, PyObject *args)
{
    struct core_trace *self = trace_cast(object);
    struct sq_error error;
    Py_buffer block;
    int result;
    if (!PyArg_ParseTuple(args, "y*:feed", &block))
        return NULL;
    if (trace_write_begin(object) < 0) {
        PyBuffer_Release(&block);
        return NULL;
    }
    bool constant = block.obj != NULL && PyBytes_Check(block.obj);
    Py_BEGIN_ALLOW_THREADS result = (constant ? sq_reader_feed : trace_feed_copy)(
        &self->reader, block.buf, (size_t)block.len, &error);
    Py_END_ALLOW_THREADS self->writing = false;
    PyBuffer_Release(&block);
    if (result < 0) {
        self->stage = TRACE_FAILED;
        return core_raise(trace_state(object), &error);
    }
    Py_RETURN_NONE;
}

static PyObject *trace_finish(PyObject *object, PyObject *args)
{
    struct core_trace *self = trace_cast(object);
    struct sq_error error;
    int allow_truncated = 0, result;
    if (!PyArg_ParseTuple(args, "|p:finish", &allow_truncated) ||
        trace_write_begin(object) < 0)
        return NULL;
    result = sq_reader_finish(&self->reader, allow_truncated != 0, &error);
    sq_reader_free(&self->reader);
    self->writing = false;
    self->stage = result < 0 ? TRACE_FAILED : TRACE_COMPLETE;
    if (result < 0)
        return core_raise(trace_state(object), &error);
    Py_RETURN_NONE;
}

/* Call `progress` with the fraction read and look for signals. 0, or -1 with an
 * exception. */
static int file_progress(PyObject *progress, uint64_t done, uint64_t total)
{
    if (PyErr_CheckSignals() < 0)
        return -1;
    if (progress == Py_None)
        return 0;
    double fraction = total == 0 ? 0.0 : (double)done / (double)total;
    PyObject *result =
        PyObject_CallFunction(progress, "d", fraction > 1.0 ? 1.0 : fraction);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* Feed an open file to its end, block by block. 0, or -1 with an exception. */
static int trace_feed_file(PyObject *object, int file, char *block, PyObject *path,
                           PyObject *progress)
{
    struct core_trace *self = trace_cast(object);
    struct sq_error error;
    struct stat status;
    uint64_t total = fstat(file, &status) == 0 ? (uint64_t)status.st_size : 0, done = 0;
    for (;;) {
        ssize_t size;
        int result = 0, saved_errno;
        Py_BEGIN_ALLOW_THREADS size = read(file, block, FILE_BLOCK_SIZE);
        saved_errno = errno;
        if (size > 0)
            result = sq_reader_feed(&self->reader, block, (size_t)size, &error);
        Py_END_ALLOW_THREADS if (size == 0) return 0;
        if (size < 0 && saved_errno != EINTR) {
            errno = saved_errno;
            (void)PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path);
            return -1;
        }
        if (result < 0) {
            (void)core_raise(trace_state(object), &error);
            return -1;
        }
        done += size > 0 ? (uint64_t)size : 0;
        if (file_progress(progress, done, total) < 0)
            return -1;
    }
}

/* Open the file and feed it. 0, or -1 with an exception. */
static int trace_read_file(PyObject *object, PyObject *path, const char *path_bytes,
                           PyObject *progress)
{
    int file = open(path_bytes, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        (void)PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path);
        return -1;
    }
    char *block = malloc(FILE_BLOCK_SIZE);
    int result = -1;
    if (block == NULL)
        (void)PyErr_NoMemory();
    else
        result = trace_feed_file(object, file, block, path, progress);
    free(block);
    (void)close(file);
    return result;
}

/* from_file(path, allow_truncated=False, progress=None): plain text, read in C. */
static PyObject *trace_from_file(PyObject *type, PyObject *args)
{
    PyObject *path, *encoded = NULL, *progress = Py_None;
    int allow_truncated = 0;
    if (!PyArg_ParseTuple(args, "O|pO:from_file", &path, &allow_truncated, &progress) ||
        !PyUnicode_FSConverter(path, (void *)&encoded))
        return NULL;
    const char *path_bytes = PyBytes_AsString(encoded);
    PyObject *object = trace_make((PyTypeObject *)(void *)type, path_bytes);
    if (object != NULL) {
        struct core_trace *self = trace_cast(object);
        struct sq_error error;
        self->writing = true; /* `progress` may run any code, but cannot see `object` */
        int result = trace_read_file(object, path, path_bytes, progress);
        if (result == 0) {
            result = sq_reader_finish(&self->reader, allow_truncated != 0, &error);
            if (result < 0)
                (void)core_raise(trace_state(object), &error);
        }
        sq_reader_free(&self->reader);
        self->writing = false;
        self->stage = result < 0 ? TRACE_FAILED : TRACE_COMPLETE;
        if (result < 0)
            Py_CLEAR(object);
    }
    Py_DECREF(encoded);
    return object;
}

/* decode(buffer, name="<memory>"): slabq's own file form. */
static PyObject *trace_decode(PyObject *type, PyObject *args)
{
    const char *name = "<memory>";
    struct sq_error error;
    Py_buffer bytes;
    int result;
    if (!PyArg_ParseTuple(args, "y*|s:decode", &bytes, &name))
        return NULL;
    PyObject *object = trace_make((PyTypeObject *)(void *)type, name);
    if (object != NULL) {
        struct core_trace *self = trace_cast(object);
        Py_BEGIN_ALLOW_THREADS result =
            sq_compact_decode(bytes.buf, (size_t)bytes.len, name, &self->trace, &error);
        Py_END_ALLOW_THREADS self->stage = result < 0 ? TRACE_FAILED : TRACE_COMPLETE;
        if (result < 0) {
            (void)core_raise(trace_state(object), &error);
            Py_CLEAR(object);
        }
    }
    PyBuffer_Release(&bytes);
    return object;
}

/* -- reading -- */

static int trace_getbuffer(PyObject *object, Py_buffer *view, int flags)
{
    struct core_trace *self = trace_cast(object);
    if (self->stage != TRACE_COMPLETE) {
        view->obj = NULL;
        PyErr_SetString(PyExc_BufferError, "the trace is not read to its end yet");
        return -1;
    }
    return PyBuffer_FillInfo(
        view, object, self->trace.events,
        (Py_ssize_t)(self->trace.event_count * sizeof(*self->trace.events)), 1, flags);
}

static PyObject *trace_encode(PyObject *object, PyObject *unused)
{
    unsigned char *bytes = NULL;
    size_t size = 0;
    struct sq_error error;
    int result;
    (void)unused;
    if (trace_read_begin(object) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS result =
        sq_compact_encode(&trace_cast(object)->trace, &bytes, &size, &error);
    Py_END_ALLOW_THREADS core_trace_release(object);
    if (result < 0)
        return core_raise(trace_state(object), &error);
    PyObject *encoded =
        PyBytes_FromStringAndSize((const char *)bytes, (Py_ssize_t)size);
    free(bytes);
    return encoded;
}

static PyObject *trace_summary(PyObject *object, PyObject *unused)
{
    struct sq_json json;
    (void)unused;
    if (trace_read_begin(object) < 0)
        return NULL;
    sq_json_init(&json);
    sq_trace_summary(&trace_cast(object)->trace, &json);
    core_trace_release(object);
    return core_json_to_python(&json);
}

static struct sq_strings *trace_table(struct sq_trace *trace, const char *name)
{
#define TRACE_TABLE_MATCH(field)                                                       \
    if (strcmp(name, #field) == 0)                                                     \
        return &trace->field;
    SQ_TRACE_TABLES(TRACE_TABLE_MATCH)
    return NULL;
}

/* strings(table): the texts by id, as a list. */
static PyObject *trace_strings(PyObject *object, PyObject *args)
{
    const char *name;
    if (!PyArg_ParseTuple(args, "s:strings", &name))
        return NULL;
    struct sq_strings *strings = trace_table(&trace_cast(object)->trace, name);
    if (strings == NULL) {
        PyErr_Format(trace_state(object)->parameter_error,
                     "table '%.40s' is none; call_sites, caches, gfps, tasks and "
                     "aliases are accepted",
                     name);
        return NULL;
    }
    if (trace_read_begin(object) < 0)
        return NULL;
    PyObject *list = PyList_New(0);
    for (uint32_t id = 0; list != NULL && id < strings->count; id++) {
        size_t length;
        const char *text = sq_strings_get(strings, id, &length);
        PyObject *item =
            PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, "backslashreplace");
        if (item == NULL || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    core_trace_release(object);
    return list;
}

/* add_alias(alias, cache): note under which other name a cache's objects are traced. */
static PyObject *trace_add_alias(PyObject *object, PyObject *args)
{
    struct core_trace *self = trace_cast(object);
    const char *alias, *cache;
    uint32_t id;
    if (!PyArg_ParseTuple(args, "ss:add_alias", &alias, &cache))
        return NULL;
    if (strchr(alias, '\t') != NULL || strchr(cache, '\t') != NULL) {
        PyErr_SetString(trace_state(object)->parameter_error,
                        "a cache name with a tab; names without are accepted");
        return NULL;
    }
    if (self->writing || self->reader_count > 0)
        return trace_refuse(object, "the trace is in use by another thread");
    PyObject *text = PyBytes_FromFormat("%s\t%s", alias, cache);
    if (text == NULL)
        return NULL;
    int result = sq_strings_intern(&self->trace.aliases, PyBytes_AsString(text),
                                   (size_t)PyBytes_Size(text), &id);
    Py_DECREF(text);
    if (result < 0)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static Py_ssize_t trace_length(PyObject *object)
{
    struct core_trace *self = trace_cast(object);
    return self->stage == TRACE_COMPLETE ? (Py_ssize_t)self->trace.event_count : 0;
}

/* -- the type -- */

static PyMethodDef trace_methods[] = {
    {"feed", trace_feed, METH_VARARGS, "feed(block): take the next bytes of the text."},
    {"finish", trace_finish, METH_VARARGS,
     "finish(allow_truncated=False): the text ends here."},
    {"from_file", trace_from_file, METH_VARARGS | METH_CLASS,
     "from_file(path, allow_truncated=False, progress=None): read a plain text file."},
    {"decode", trace_decode, METH_VARARGS | METH_CLASS,
     "decode(buffer, name='<memory>'): read slabq's own file form."},
    {"encode", trace_encode, METH_NOARGS, "encode(): slabq's own file form, as bytes."},
    {"summary", trace_summary, METH_NOARGS,
     "summary(): what was counted, as JSON text."},
    {"strings", trace_strings, METH_VARARGS, "strings(table): the texts, by id."},
    {"add_alias", trace_add_alias, METH_VARARGS,
     "add_alias(alias, cache): note a cache's other name."},
    {"stat", core_trace_stat, METH_VARARGS,
     "stat(by_caller, keys, limit, raw_ip, node_of_cpu): (rows, totals, table, "
     "summary)."},
    {"program", core_trace_program, METH_VARARGS,
     "program(cpu_count): (JSON text, events of each CPU); for tests."},
    {NULL, NULL, 0, NULL},
};

/* A slot holds functions as object pointers, which POSIX allows and ISO C does not. */
#define TRACE_SLOT(function) __extension__(void *)(function)

static PyType_Slot trace_slots[] = {
    {Py_tp_doc, (void *)"A kmem trace: feed(), then finish(), then read as a buffer."},
    {Py_tp_new, TRACE_SLOT(trace_new)},
    {Py_tp_dealloc, TRACE_SLOT(trace_dealloc)},
    {Py_tp_methods, (void *)trace_methods},
    {Py_bf_getbuffer, TRACE_SLOT(trace_getbuffer)},
    {Py_sq_length, TRACE_SLOT(trace_length)},
    {0, NULL},
};

static PyType_Spec trace_spec = {
    .name = "slabq._core.Trace",
    .basicsize = sizeof(struct core_trace),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = trace_slots,
};

static PyMethodDef trace_functions[] = {
    {"trace_layout", core_trace_layout, METH_VARARGS,
     "trace_layout(record): (size, [(field, offset, size), ...]) of a C record."},
    {NULL, NULL, 0, NULL},
};

int core_add_trace(PyObject *module, struct core_state *state)
{
    state->trace_type = PyType_FromModuleAndSpec(module, &trace_spec, NULL);
    if (state->trace_type == NULL ||
        PyModule_AddType(module, (PyTypeObject *)(void *)state->trace_type) < 0)
        return -1;
    return PyModule_AddFunctions(module, trace_functions);
}
