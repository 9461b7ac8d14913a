/*
 * The heap types Allocator and Cache: one policy on one machine, driven call by call.
 *
 * Any Python thread may call; each call names the CPU it acts for and becomes it
 * (cpu_enter), so two threads that name the same CPU take turns. The ledger is changed
 * with the GIL held; calls that may take long give the GIL up around the policy's work.
 */
#include "experiment/ledger.h"
#include "experiment/script.h"
#include "policy/policy.h"
#include "python/machine_type.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    PyObject_HEAD
    PyObject *machine_object; /* keeps the machine alive */
    sq_machine *machine;
    sq_heap *heap;
    struct sq_ledger ledger; /* owner: the sq_cache, or the heap for kmalloc */
} allocator_object;

typedef struct {
    PyObject_HEAD
    allocator_object *allocator; /* strong reference */
    sq_cache *cache;             /* NULL once destroyed */
    PyObject *name;
} cache_object;

static struct core_state *state_of(PyObject *object)
{
    return PyType_GetModuleState(Py_TYPE(object));
}

/* ---- arguments ---- */

/* Become the CPU that a call names; NULL with ParameterError if there is none. */
static sq_cpu *enter_cpu(struct core_state *state, sq_machine *machine, long cpu)
{
    if (cpu < 0 || cpu >= (long)machine->topology.cpu_count) {
        PyErr_Format(state->parameter_error, "cpu is %ld: accepted are 0 to %u", cpu,
                     machine->topology.cpu_count - 1);
        return NULL;
    }
    return machine->ops->cpu_enter(machine, (uint32_t)cpu);
}

static void leave_cpu(sq_cpu *cpu)
{
    cpu->machine->ops->cpu_leave(cpu);
}

static int check_node(struct core_state *state, const sq_machine *machine, long node)
{
    if (node >= -1 && node < (long)machine->topology.node_count)
        return 0;
    PyErr_Format(state->parameter_error,
                 "node is %ld: accepted are 0 to %u, or -1 for any", node,
                 machine->topology.node_count - 1);
    return -1;
}

static PyObject *raise_out_of_memory(struct core_state *state, const char *what, long node)
{
    if (node >= 0)
        PyErr_Format(state->out_of_memory,
                     "no memory for %s: node %ld and its fallback nodes are full", what,
                     node);
    else
        PyErr_Format(state->out_of_memory, "no memory for %s: every node is full", what);
    return NULL;
}

/* Refuse an address that `owner` did not hand out or that is free already, naming what it
 * is. `cache` is NULL for kmalloc. */
static int check_address(struct core_state *state, allocator_object *allocator,
                         sq_cache *cache, unsigned long long address)
{
    void *memory = (void *)(uintptr_t)address;
    const void *owner = sq_ledger_owner(&allocator->ledger, memory);
    const void *wanted = cache == NULL ? (const void *)allocator->heap : cache;
    const char *from = cache == NULL ? "kmalloc" : cache->name;
    struct sq_object_place place;
    if (owner == wanted)
        return 0;
    if (owner == (const void *)allocator->heap)
        PyErr_Format(state->corruption_error,
                     "%p was given out by kmalloc, not by cache %s", memory, from);
    else if (owner != NULL)
        PyErr_Format(state->corruption_error, "%p is an object of cache %s, not of %s",
                     memory, ((const sq_cache *)owner)->name, from);
    else if (cache != NULL && sq_machine_owns(allocator->machine, memory) &&
             cache->ops->locate(cache, memory, &place))
        PyErr_Format(state->corruption_error,
                     "object %u of slab %u of cache %s (%p) is free already: double free, "
                     "or never handed out",
                     place.index, place.serial, from, memory);
    else
        PyErr_Format(state->corruption_error,
                     "%p is no live object of %s: a foreign or misaligned pointer, or "
                     "free already",
                     memory, from);
    return -1;
}

/* ---- Allocator ---- */

static PyObject *allocator_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"machine", "policy", "options", NULL};
    struct core_state *state = PyType_GetModuleState(type);
    PyObject *machine_object, *pairs;
    const char *policy;
    const sq_policy_ops *ops;
    struct sq_options options;
    struct sq_error error;
    allocator_object *self;
    sq_machine *machine;
    sq_cpu *cpu;
    int status;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OsO:Allocator", names,
                                     &machine_object, &policy, &pairs))
        return NULL;
    machine = core_machine_of(machine_object, state);
    if (machine == NULL)
        return NULL;
    ops = sq_policy_find(policy, machine->engine, &error);
    if (ops == NULL)
        return core_raise(state, &error);
    if (core_parse_options(state, policy, pairs, &options) < 0)
        return NULL;
    self = PyObject_GC_New(allocator_object, type);
    if (self == NULL)
        return NULL;
    self->heap = NULL;
    memset(&self->ledger, 0, sizeof(self->ledger));
    self->machine_object = Py_NewRef(machine_object);
    self->machine = machine;
    cpu = enter_cpu(state, machine, 0);
    status = sq_heap_create(cpu, ops, &options, &self->heap, &error);
    leave_cpu(cpu);
    PyObject_GC_Track((PyObject *)self);
    if (status != SQ_OK) {
        Py_DECREF(self);
        return core_raise(state, &error);
    }
    return (PyObject *)self;
}

static int allocator_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((allocator_object *)object)->machine_object);
    return 0;
}

static void allocator_dealloc(PyObject *object)
{
    allocator_object *self = (allocator_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    if (self->heap != NULL) {
        sq_cpu *cpu = self->machine->ops->cpu_enter(self->machine, 0);
        sq_heap_destroy(cpu, self->heap);
        leave_cpu(cpu);
    }
    sq_ledger_free(&self->ledger);
    Py_XDECREF(self->machine_object);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static PyObject *allocator_create_cache(PyObject *object, PyObject *args)
{
    allocator_object *self = (allocator_object *)object;
    struct core_state *state = state_of(object);
    PyTypeObject *type = (PyTypeObject *)state->cache_type;
    struct sq_cache_spec spec = {0};
    struct sq_error error;
    unsigned long long size, align;
    cache_object *cache;
    sq_cpu *cpu;
    int status;
    if (!PyArg_ParseTuple(args, "sKKII:create_cache", &spec.name, &size, &align,
                          &spec.flags, &spec.sheaf_capacity))
        return NULL;
    spec.size = size;
    spec.align = align;
    cache = PyObject_GC_New(cache_object, type);
    if (cache == NULL)
        return NULL;
    cache->allocator = NULL;
    cache->cache = NULL;
    cache->name = PyUnicode_FromString(spec.name);
    cpu = enter_cpu(state, self->machine, 0);
    status = sq_heap_create_cache(cpu, self->heap, &spec, &cache->cache, &error);
    leave_cpu(cpu);
    if (status == SQ_OK)
        cache->allocator = (allocator_object *)Py_NewRef(object);
    PyObject_GC_Track((PyObject *)cache);
    if (status != SQ_OK || cache->name == NULL) {
        Py_DECREF(cache);
        return status != SQ_OK ? core_raise(state, &error) : NULL;
    }
    return (PyObject *)cache;
}

static PyObject *allocator_kmalloc(PyObject *object, PyObject *args)
{
    allocator_object *self = (allocator_object *)object;
    struct core_state *state = state_of(object);
    unsigned long long size;
    long cpu_index, node;
    sq_cpu *cpu;
    void *memory;
    if (!PyArg_ParseTuple(args, "lKl:kmalloc", &cpu_index, &size, &node) ||
        check_node(state, self->machine, node) < 0)
        return NULL;
    if (!sq_ledger_reserve(&self->ledger, 1))
        return PyErr_NoMemory();
    cpu = enter_cpu(state, self->machine, cpu_index);
    if (cpu == NULL)
        return NULL;
    memory = self->heap->ops->kmalloc(cpu, self->heap, size, (int32_t)node, 0);
    leave_cpu(cpu);
    if (memory == NULL)
        return raise_out_of_memory(state, "kmalloc", node);
    sq_ledger_add(&self->ledger, memory, self->heap);
    return PyLong_FromUnsignedLongLong((uintptr_t)memory);
}

static PyObject *allocator_kfree(PyObject *object, PyObject *args)
{
    allocator_object *self = (allocator_object *)object;
    struct core_state *state = state_of(object);
    unsigned long long address;
    long cpu_index;
    sq_cpu *cpu;
    if (!PyArg_ParseTuple(args, "lK:kfree", &cpu_index, &address))
        return NULL;
    if (address == 0)
        Py_RETURN_NONE;
    if (check_address(state, self, NULL, address) < 0)
        return NULL;
    cpu = enter_cpu(state, self->machine, cpu_index);
    if (cpu == NULL)
        return NULL;
    sq_ledger_remove(&self->ledger, (void *)(uintptr_t)address);
    self->heap->ops->kfree(cpu, self->heap, (void *)(uintptr_t)address);
    leave_cpu(cpu);
    Py_RETURN_NONE;
}

static PyObject *allocator_ksize(PyObject *object, PyObject *argument)
{
    allocator_object *self = (allocator_object *)object;
    unsigned long long address = PyLong_AsUnsignedLongLong(argument);
    if (PyErr_Occurred() || check_address(state_of(object), self, NULL, address) < 0)
        return NULL;
    return PyLong_FromSize_t(
        self->heap->ops->ksize(self->heap, (void *)(uintptr_t)address));
}

static void print_usage(struct sq_json *json, const struct sq_cache_usage *usage)
{
    sq_json_unsigned(json, "slabs", usage->slab_count);
    sq_json_unsigned(json, "slab_bytes", usage->slab_bytes);
    sq_json_unsigned(json, "objects_total", usage->object_total);
    sq_json_unsigned(json, "objects_allocated", usage->object_allocated);
    sq_json_unsigned(json, "objects_queued", usage->object_queued);
    sq_json_unsigned(json, "partial_slabs", usage->partial_slab_count);
    sq_json_unsigned(json, "active_objs", usage->slabinfo_active_objects);
    sq_json_unsigned(json, "active_slabs", usage->slabinfo_active_slabs);
    sq_json_unsigned(json, "sharedavail", usage->slabinfo_shared_available);
    sq_json_unsigned(json, "limit", usage->slabinfo_limit);
    sq_json_unsigned(json, "batchcount", usage->slabinfo_batchcount);
    sq_json_unsigned(json, "sharedfactor", usage->slabinfo_shared);
}

static void print_cache(struct sq_json *json, sq_cpu *cpu, sq_cache *cache)
{
    struct sq_cache_usage usage = {0};
    cache->ops->usage(cpu, cache, &usage);
    sq_json_open_object(json, NULL);
    sq_json_string(json, "name", cache->name);
    sq_json_unsigned(json, "object_size", cache->object_size);
    sq_json_unsigned(json, "size", cache->size);
    sq_json_unsigned(json, "align", cache->align);
    sq_json_unsigned(json, "order", cache->order);
    sq_json_unsigned(json, "objects_per_slab", cache->slab_object_count);
    print_usage(json, &usage);
    sq_json_open_object(json, "counters");
    for (uint32_t id = 0; id < cache->ops->counter_count; id++) {
        uint64_t sum = 0;
        for (uint32_t i = 0; i < cpu->machine->topology.cpu_count; i++)
            sum += cache->counters[i][id];
        sq_json_unsigned(json, cache->ops->counters[id].name, sum);
    }
    sq_json_close(json);
    sq_json_close(json);
}

static PyObject *allocator_caches(PyObject *object, PyObject *unused)
{
    allocator_object *self = (allocator_object *)object;
    struct sq_json json;
    sq_cpu *cpu = enter_cpu(state_of(object), self->machine, 0);
    (void)unused;
    sq_json_init(&json);
    sq_json_open_array(&json, NULL);
    SQ_LIST_EACH(link, &self->heap->caches)
        print_cache(&json, cpu, SQ_LIST_ENTRY(link, sq_cache, link));
    sq_json_close(&json);
    leave_cpu(cpu);
    return core_json_to_text(&json);
}

/* What the policy says is handed out must be what the ledger holds; kmalloc classes are
 * checked by their own structures only, since the ledger does not split them. */
static int check_one(allocator_object *self, sq_cpu *cpu, sq_cache *cache,
                     struct sq_error *error)
{
    struct sq_cache_usage usage = {0};
    size_t held;
    int status = cache->ops->check(cpu, cache, error);
    if (status != SQ_OK || (cache->flags & SQ_CACHE_KMALLOC))
        return status;
    cache->ops->usage(cpu, cache, &usage);
    held = sq_ledger_count_of(&self->ledger, cache);
    if (usage.object_allocated != held)
        return sq_error_set(error, SQ_E_CORRUPTION,
                            "cache %s: the policy counts %llu objects as handed out, %zu "
                            "are held",
                            cache->name, (unsigned long long)usage.object_allocated, held);
    return SQ_OK;
}

static PyObject *allocator_check(PyObject *object, PyObject *unused)
{
    allocator_object *self = (allocator_object *)object;
    struct core_state *state = state_of(object);
    struct sq_error error;
    int status = SQ_OK;
    sq_cpu *cpu = enter_cpu(state, self->machine, 0);
    (void)unused;
    SQ_LIST_EACH(link, &self->heap->caches)
    {
        status = check_one(self, cpu, SQ_LIST_ENTRY(link, sq_cache, link), &error);
        if (status != SQ_OK)
            break;
    }
    leave_cpu(cpu);
    if (status != SQ_OK)
        return core_raise(state, &error);
    Py_RETURN_NONE;
}

static PyObject *allocator_live_count(PyObject *object, PyObject *unused)
{
    (void)unused;
    return PyLong_FromSize_t(((allocator_object *)object)->ledger.count);
}

static int check_live(struct core_state *state, allocator_object *self,
                      unsigned long long address)
{
    if (sq_ledger_owner(&self->ledger, (void *)(uintptr_t)address) != NULL)
        return 0;
    PyErr_Format(state->corruption_error, "%p is no live object of this allocator",
                 (void *)(uintptr_t)address);
    return -1;
}

static PyObject *allocator_node_of(PyObject *object, PyObject *argument)
{
    allocator_object *self = (allocator_object *)object;
    unsigned long long address = PyLong_AsUnsignedLongLong(argument);
    if (PyErr_Occurred() || check_live(state_of(object), self, address) < 0)
        return NULL;
    return PyLong_FromUnsignedLong(
        sq_node_of_address(self->machine, (void *)(uintptr_t)address));
}

/* Usable bytes of a live object. */
static size_t live_bytes(allocator_object *self, unsigned long long address)
{
    const void *memory = (void *)(uintptr_t)address;
    const void *owner = sq_ledger_owner(&self->ledger, memory);
    if (owner == (const void *)self->heap)
        return self->heap->ops->ksize(self->heap, memory);
    return ((const sq_cache *)owner)->object_size;
}

static PyObject *allocator_read(PyObject *object, PyObject *args)
{
    allocator_object *self = (allocator_object *)object;
    struct core_state *state = state_of(object);
    unsigned long long address;
    Py_ssize_t count;
    if (!PyArg_ParseTuple(args, "Kn:read", &address, &count) ||
        check_live(state, self, address) < 0)
        return NULL;
    if (count < 0 || (size_t)count > live_bytes(self, address))
        return PyErr_Format(state->parameter_error, "bytes is %zd: accepted are 0 to %zu",
                            count, live_bytes(self, address));
    return PyBytes_FromStringAndSize((const char *)(uintptr_t)address, count);
}

static PyObject *allocator_write(PyObject *object, PyObject *args)
{
    allocator_object *self = (allocator_object *)object;
    struct core_state *state = state_of(object);
    unsigned long long address;
    const char *bytes;
    Py_ssize_t count;
    if (!PyArg_ParseTuple(args, "Ky#:write", &address, &bytes, &count) ||
        check_live(state, self, address) < 0)
        return NULL;
    if ((size_t)count > live_bytes(self, address))
        return PyErr_Format(state->parameter_error,
                            "%zd bytes to write: the object holds %zu", count,
                            live_bytes(self, address));
    for (Py_ssize_t i = 0; i < count; i++)
        ((char *)(uintptr_t)address)[i] = bytes[i];
    Py_RETURN_NONE;
}

static PyMethodDef allocator_methods[] = {
    {"create_cache", allocator_create_cache, METH_VARARGS,
     "(name, size, align, flags, sheaf_capacity) -> Cache"},
    {"kmalloc", allocator_kmalloc, METH_VARARGS, "(cpu, size, node) -> address"},
    {"kfree", allocator_kfree, METH_VARARGS, "(cpu, address)"},
    {"ksize", allocator_ksize, METH_O, "(address) -> usable bytes"},
    {"caches", allocator_caches, METH_NOARGS, "JSON list of all caches."},
    {"check", allocator_check, METH_NOARGS, "Check every cache against itself and us."},
    {"live_count", allocator_live_count, METH_NOARGS, "Objects held by the caller."},
    {"node_of", allocator_node_of, METH_O, "(address) -> node of a live object"},
    {"read", allocator_read, METH_VARARGS, "(address, count) -> bytes of an object"},
    {"write", allocator_write, METH_VARARGS, "(address, bytes) into an object"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot allocator_slots[] = {
    {Py_tp_new, CORE_SLOT(allocator_new)},
    {Py_tp_dealloc, CORE_SLOT(allocator_dealloc)},
    {Py_tp_traverse, CORE_SLOT(allocator_traverse)},
    {Py_tp_methods, allocator_methods},
    {Py_tp_doc, "One policy on one machine."},
    {0, NULL},
};

static PyType_Spec allocator_spec = {
    .name = "slabq._core.Allocator",
    .basicsize = sizeof(allocator_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = allocator_slots,
};

/* ---- Cache ---- */

/* The cache of an object that is not destroyed; NULL with an exception otherwise. */
static sq_cache *cache_of(PyObject *object)
{
    cache_object *self = (cache_object *)object;
    if (self->cache == NULL)
        PyErr_Format(state_of(object)->parameter_error, "cache %U is destroyed",
                     self->name);
    return self->cache;
}

static int cache_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((cache_object *)object)->allocator);
    return 0;
}

/* The cache lives on with its allocator: a dropped Python object destroys nothing. */
static void cache_dealloc(PyObject *object)
{
    cache_object *self = (cache_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_XDECREF((PyObject *)self->allocator);
    Py_XDECREF(self->name);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static PyObject *cache_alloc(PyObject *object, PyObject *args)
{
    sq_cache *cache = cache_of(object);
    allocator_object *allocator = ((cache_object *)object)->allocator;
    struct core_state *state = state_of(object);
    long cpu_index, node;
    sq_cpu *cpu;
    void *result;
    if (cache == NULL || !PyArg_ParseTuple(args, "ll:alloc", &cpu_index, &node) ||
        check_node(state, allocator->machine, node) < 0)
        return NULL;
    if (!sq_ledger_reserve(&allocator->ledger, 1))
        return PyErr_NoMemory();
    cpu = enter_cpu(state, allocator->machine, cpu_index);
    if (cpu == NULL)
        return NULL;
    result = cache->ops->alloc(cpu, cache, (int32_t)node, 0);
    leave_cpu(cpu);
    if (result == NULL)
        return raise_out_of_memory(state, cache->name, node);
    sq_ledger_add(&allocator->ledger, result, cache);
    return PyLong_FromUnsignedLongLong((uintptr_t)result);
}

static PyObject *cache_free(PyObject *object, PyObject *args)
{
    sq_cache *cache = cache_of(object);
    allocator_object *allocator = ((cache_object *)object)->allocator;
    struct core_state *state = state_of(object);
    unsigned long long address;
    long cpu_index;
    sq_cpu *cpu;
    if (cache == NULL || !PyArg_ParseTuple(args, "lK:free", &cpu_index, &address) ||
        check_address(state, allocator, cache, address) < 0)
        return NULL;
    cpu = enter_cpu(state, allocator->machine, cpu_index);
    if (cpu == NULL)
        return NULL;
    sq_ledger_remove(&allocator->ledger, (void *)(uintptr_t)address);
    cache->ops->free(cpu, cache, (void *)(uintptr_t)address);
    leave_cpu(cpu);
    Py_RETURN_NONE;
}

/* `count` addresses as a Python list; NULL with an exception. */
static PyObject *list_of_addresses(void **objects, Py_ssize_t count)
{
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; list != NULL && i < count; i++) {
        PyObject *item = PyLong_FromUnsignedLongLong((uintptr_t)objects[i]);
        if (item == NULL || PyList_SetItem(list, i, item) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *cache_alloc_bulk(PyObject *object, PyObject *args)
{
    sq_cache *cache = cache_of(object);
    allocator_object *allocator = ((cache_object *)object)->allocator;
    struct core_state *state = state_of(object);
    PyObject *list = NULL;
    Py_ssize_t count;
    long cpu_index;
    void **objects;
    size_t got;
    if (cache == NULL || !PyArg_ParseTuple(args, "ln:alloc_bulk", &cpu_index, &count))
        return NULL;
    if (count < 0 || count > (1 << 24) || cpu_index < 0 ||
        cpu_index >= (long)allocator->machine->topology.cpu_count)
        return PyErr_Format(state->parameter_error,
                            "cpu is %ld and count is %zd: accepted are 0 to %u and 0 to "
                            "%d",
                            cpu_index, count, allocator->machine->topology.cpu_count - 1,
                            1 << 24);
    objects = calloc((size_t)count + 1, sizeof(*objects));
    if (objects == NULL || !sq_ledger_reserve(&allocator->ledger, (size_t)count)) {
        free(objects);
        return PyErr_NoMemory();
    }
    Py_BEGIN_ALLOW_THREADS
    sq_cpu *cpu = allocator->machine->ops->cpu_enter(allocator->machine,
                                                     (uint32_t)cpu_index);
    got = count == 0 ? 0
                     : cache->ops->alloc_bulk(cpu, cache, 0, (size_t)count, objects);
    leave_cpu(cpu);
    Py_END_ALLOW_THREADS
    if (got != (size_t)count) {
        (void)raise_out_of_memory(state, cache->name, -1);
    } else if (!sq_ledger_reserve(&allocator->ledger, (size_t)count)) {
        (void)PyErr_NoMemory(); /* another thread used the reserve meanwhile */
    } else {
        for (Py_ssize_t i = 0; i < count; i++)
            sq_ledger_add(&allocator->ledger, objects[i], cache);
        list = list_of_addresses(objects, count);
    }
    free(objects);
    return list;
}

/* Take every address of `sequence` out of the ledger and put it into `objects`; on the
 * first that is not held nothing is changed. */
static int take_addresses(struct core_state *state, allocator_object *allocator,
                          sq_cache *cache, PyObject *sequence, Py_ssize_t count,
                          void **objects)
{
    Py_ssize_t taken = 0;
    for (; taken < count; taken++) {
        PyObject *item = PySequence_GetItem(sequence, taken);
        unsigned long long address =
            item == NULL ? 0 : PyLong_AsUnsignedLongLong(item);
        Py_XDECREF(item);
        if (PyErr_Occurred() || check_address(state, allocator, cache, address) < 0)
            break;
        objects[taken] = (void *)(uintptr_t)address;
        sq_ledger_remove(&allocator->ledger, objects[taken]);
    }
    if (taken == count)
        return 0;
    while (taken-- > 0)
        sq_ledger_add(&allocator->ledger, objects[taken], cache);
    return -1;
}

static PyObject *cache_free_bulk(PyObject *object, PyObject *args)
{
    sq_cache *cache = cache_of(object);
    allocator_object *allocator = ((cache_object *)object)->allocator;
    struct core_state *state = state_of(object);
    PyObject *sequence;
    Py_ssize_t count;
    long cpu_index;
    void **objects;
    if (cache == NULL || !PyArg_ParseTuple(args, "lO:free_bulk", &cpu_index, &sequence))
        return NULL;
    count = PySequence_Size(sequence);
    if (count < 0)
        return NULL;
    if (cpu_index < 0 || cpu_index >= (long)allocator->machine->topology.cpu_count)
        return PyErr_Format(state->parameter_error, "cpu is %ld: accepted are 0 to %u",
                            cpu_index, allocator->machine->topology.cpu_count - 1);
    objects = calloc((size_t)count + 1, sizeof(*objects));
    if (objects == NULL)
        return PyErr_NoMemory();
    if (take_addresses(state, allocator, cache, sequence, count, objects) < 0) {
        free(objects);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    sq_cpu *cpu = allocator->machine->ops->cpu_enter(allocator->machine,
                                                     (uint32_t)cpu_index);
    if (count > 0)
        cache->ops->free_bulk(cpu, cache, (size_t)count, objects);
    leave_cpu(cpu);
    Py_END_ALLOW_THREADS
    free(objects);
    Py_RETURN_NONE;
}

static PyObject *cache_shrink(PyObject *object, PyObject *argument)
{
    sq_cache *cache = cache_of(object);
    long cpu_index = cache == NULL ? -1 : PyLong_AsLong(argument);
    sq_cpu *cpu;
    int result;
    if (PyErr_Occurred())
        return NULL;
    cpu = enter_cpu(state_of(object), ((cache_object *)object)->allocator->machine,
                    cpu_index);
    if (cpu == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    result = cache->ops->shrink(cpu, cache);
    leave_cpu(cpu);
    Py_END_ALLOW_THREADS
    return PyLong_FromLong(result);
}

static PyObject *cache_reap(PyObject *object, PyObject *args)
{
    sq_cache *cache = cache_of(object);
    struct core_state *state = state_of(object);
    long cpu_index;
    int with_node;
    sq_cpu *cpu;
    if (cache == NULL || !PyArg_ParseTuple(args, "lp:reap", &cpu_index, &with_node))
        return NULL;
    if (cache->ops->reap == NULL)
        return PyErr_Format(state->parameter_error,
                            "policy %s has no periodic reaper: slab has", cache->ops->name);
    cpu = enter_cpu(state, ((cache_object *)object)->allocator->machine, cpu_index);
    if (cpu == NULL)
        return NULL;
    (void)cache->ops->reap(cpu, cache, with_node != 0);
    leave_cpu(cpu);
    Py_RETURN_NONE;
}

static PyObject *cache_tune(PyObject *object, PyObject *args)
{
    sq_cache *cache = cache_of(object);
    struct core_state *state = state_of(object);
    struct sq_error error;
    const char *name;
    long long value;
    int64_t wanted;
    sq_cpu *cpu;
    int status;
    if (cache == NULL || !PyArg_ParseTuple(args, "sL:tune", &name, &value))
        return NULL;
    wanted = value;
    cpu = enter_cpu(state, ((cache_object *)object)->allocator->machine, 0);
    status = cache->ops->tune(cpu, cache, 1, &name, &wanted, &error);
    leave_cpu(cpu);
    if (status != SQ_OK)
        return core_raise(state, &error);
    Py_RETURN_NONE;
}

static PyObject *cache_check(PyObject *object, PyObject *unused)
{
    sq_cache *cache = cache_of(object);
    allocator_object *allocator = ((cache_object *)object)->allocator;
    struct core_state *state = state_of(object);
    struct sq_error error;
    sq_cpu *cpu;
    int status;
    (void)unused;
    if (cache == NULL)
        return NULL;
    cpu = enter_cpu(state, allocator->machine, 0);
    status = check_one(allocator, cpu, cache, &error);
    leave_cpu(cpu);
    if (status != SQ_OK)
        return core_raise(state, &error);
    Py_RETURN_NONE;
}

static PyObject *cache_describe(PyObject *object, PyObject *unused)
{
    sq_cache *cache = cache_of(object);
    struct sq_json json;
    (void)unused;
    if (cache == NULL)
        return NULL;
    sq_json_init(&json);
    sq_json_open_object(&json, NULL);
    cache->ops->describe(cache, &json);
    sq_json_close(&json);
    return core_json_to_text(&json);
}

static PyObject *cache_snapshot(PyObject *object, PyObject *unused)
{
    sq_cache *cache = cache_of(object);
    struct sq_json json;
    sq_cpu *cpu;
    (void)unused;
    if (cache == NULL)
        return NULL;
    cpu = enter_cpu(state_of(object), ((cache_object *)object)->allocator->machine, 0);
    sq_json_init(&json);
    sq_json_open_object(&json, NULL);
    cache->ops->dump(cpu, cache, &json);
    sq_json_close(&json);
    leave_cpu(cpu);
    return core_json_to_text(&json);
}

static PyObject *cache_usage(PyObject *object, PyObject *unused)
{
    sq_cache *cache = cache_of(object);
    struct sq_json json;
    sq_cpu *cpu;
    (void)unused;
    if (cache == NULL)
        return NULL;
    cpu = enter_cpu(state_of(object), ((cache_object *)object)->allocator->machine, 0);
    sq_json_init(&json);
    print_cache(&json, cpu, cache);
    leave_cpu(cpu);
    return core_json_to_text(&json);
}

/* [(name, [value of CPU 0, ...]), ...] */
static PyObject *cache_counters(PyObject *object, PyObject *unused)
{
    sq_cache *cache = cache_of(object);
    PyObject *list;
    uint32_t cpu_count;
    (void)unused;
    if (cache == NULL)
        return NULL;
    cpu_count = cache->heap->machine->topology.cpu_count;
    list = PyList_New(0);
    for (uint32_t id = 0; list != NULL && id < cache->ops->counter_count; id++) {
        PyObject *values = PyList_New(cpu_count), *pair = NULL;
        for (uint32_t i = 0; values != NULL && i < cpu_count; i++) {
            PyObject *value = PyLong_FromUnsignedLongLong(cache->counters[i][id]);
            if (value == NULL || PyList_SetItem(values, i, value) < 0)
                Py_CLEAR(values);
        }
        if (values != NULL)
            pair = Py_BuildValue("sN", cache->ops->counters[id].name, values);
        if (pair == NULL || PyList_Append(list, pair) < 0)
            Py_CLEAR(list);
        Py_XDECREF(pair);
    }
    return list;
}

static PyObject *cache_locate(PyObject *object, PyObject *argument)
{
    sq_cache *cache = cache_of(object);
    allocator_object *allocator = ((cache_object *)object)->allocator;
    struct sq_object_place place;
    unsigned long long address = cache == NULL ? 0 : PyLong_AsUnsignedLongLong(argument);
    if (PyErr_Occurred() ||
        check_address(state_of(object), allocator, cache, address) < 0)
        return NULL;
    if (!cache->ops->locate(cache, (void *)(uintptr_t)address, &place))
        return PyErr_Format(state_of(object)->corruption_error,
                            "%p is held but is no object of cache %s",
                            (void *)(uintptr_t)address, cache->name);
    return Py_BuildValue("III", place.serial, place.index, place.node);
}

/* Forget the objects that were still held, and give back all memory. */
static PyObject *cache_destroy(PyObject *object, PyObject *unused)
{
    cache_object *self = (cache_object *)object;
    sq_cache *cache = cache_of(object);
    struct sq_ledger *ledger;
    size_t held;
    sq_cpu *cpu;
    (void)unused;
    if (cache == NULL)
        return NULL;
    ledger = &self->allocator->ledger;
    held = sq_ledger_remove_owner(ledger, cache);
    cpu = enter_cpu(state_of(object), self->allocator->machine, 0);
    sq_heap_destroy_cache(cpu, cache);
    leave_cpu(cpu);
    self->cache = NULL;
    return PyLong_FromSize_t(held);
}

static PyMethodDef cache_methods[] = {
    {"alloc", cache_alloc, METH_VARARGS, "(cpu, node) -> address"},
    {"free", cache_free, METH_VARARGS, "(cpu, address)"},
    {"alloc_bulk", cache_alloc_bulk, METH_VARARGS, "(cpu, count) -> [address]"},
    {"free_bulk", cache_free_bulk, METH_VARARGS, "(cpu, [address])"},
    {"shrink", cache_shrink, METH_O, "(cpu) -> what kmem_cache_shrink returns"},
    {"reap", cache_reap, METH_VARARGS, "(cpu, with_node)"},
    {"tune", cache_tune, METH_VARARGS, "(name, value)"},
    {"check", cache_check, METH_NOARGS, "Check every structure of this cache."},
    {"describe", cache_describe, METH_NOARGS, "JSON of the geometry and the tunables."},
    {"snapshot", cache_snapshot, METH_NOARGS, "JSON of every list and queue."},
    {"usage", cache_usage, METH_NOARGS, "JSON of counts and counters."},
    {"counters", cache_counters, METH_NOARGS, "[(name, [value of CPU 0, ...])]"},
    {"locate", cache_locate, METH_O, "(address) -> (slab, index, node)"},
    {"destroy", cache_destroy, METH_NOARGS, "-> objects that were still live"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot cache_slots[] = {
    {Py_tp_dealloc, CORE_SLOT(cache_dealloc)},
    {Py_tp_traverse, CORE_SLOT(cache_traverse)},
    {Py_tp_methods, cache_methods},
    {Py_tp_doc, "A kmem_cache; made by Allocator.create_cache."},
    {0, NULL},
};

static PyType_Spec cache_spec = {
    .name = "slabq._core.Cache",
    .basicsize = sizeof(cache_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = cache_slots,
};

int core_add_allocator(PyObject *module, struct core_state *state)
{
    state->allocator_type = PyType_FromModuleAndSpec(module, &allocator_spec, NULL);
    if (state->allocator_type == NULL ||
        PyModule_AddType(module, (PyTypeObject *)state->allocator_type) < 0)
        return -1;
    state->cache_type = PyType_FromModuleAndSpec(module, &cache_spec, NULL);
    if (state->cache_type == NULL)
        return -1;
    return PyModule_AddType(module, (PyTypeObject *)state->cache_type);
}
