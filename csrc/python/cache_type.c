/*
 * The heap type Cache: a kmem_cache of an Allocator. Threads and the GIL are as told in
 * allocator_type.c.
 */
#include "base/sq_json.h"
#include "experiment/cache_print.h"
#include "python/allocator_type.h"

#include <stdlib.h>

static struct core_state *state_of(PyObject *object)
{
    return PyType_GetModuleState(Py_TYPE(object));
}

/* The cache of an object that is not destroyed; NULL with an exception otherwise. */
static sq_cache *cache_of(PyObject *object)
{
    cache_object *self = (cache_object *)object;
    if (self->cache == NULL)
        PyErr_Format(state_of(object)->parameter_error, "cache %U is destroyed",
                     self->name);
    return self->cache;
}

sq_cache *core_begin_call(PyObject *object)
{
    struct core_gate *gate = &((cache_object *)object)->allocator->gate;
    sq_cache *cache;
    core_gate_enter(gate);
    cache = cache_of(object);
    if (cache == NULL)
        core_gate_leave(gate);
    return cache;
}

/* The cache of `object`, with no call of another thread on its way in any cache of the
 * allocator until the GIL is given up; NULL with an exception if it is destroyed. */
static sq_cache *cache_at_rest(PyObject *object)
{
    core_gate_wait(&((cache_object *)object)->allocator->gate);
    return cache_of(object);
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
    long cpu_index, node, mode = -1;
    unsigned long nodes = 0;
    struct core_request request;
    sq_cpu *cpu;
    void *result;
    if (cache == NULL ||
        !PyArg_ParseTuple(args, "ll|lk:alloc", &cpu_index, &node, &mode, &nodes) ||
        core_make_request(state, allocator, cpu_index, node, mode, nodes, &request) < 0)
        return NULL;
    if (!sq_ledger_reserve(&allocator->ledger, 1))
        return PyErr_NoMemory();
    cpu = core_enter_cpu(state, allocator, cpu_index);
    if (cpu == NULL)
        return NULL;
    result = core_allocate(allocator, cpu, cache, cache->object_size, &request);
    core_leave_cpu(cpu);
    if (result == NULL)
        return core_raise_out_of_memory(state, cache->name, node);
    core_hold(allocator, result, cache);
    if (core_panic(state, allocator) < 0)
        return NULL;
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
    int judged;
    if (cache == NULL || !PyArg_ParseTuple(args, "lK:free", &cpu_index, &address))
        return NULL;
    judged = core_free_judged(state, allocator, cache, cpu_index, address);
    if (judged < 0)
        return NULL;
    if (judged > 0)
        Py_RETURN_NONE;
    if (core_check_address(state, allocator, cache, address) < 0)
        return NULL;
    cpu = core_enter_cpu(state, allocator, cpu_index);
    if (cpu == NULL)
        return NULL;
    sq_ledger_remove(&allocator->ledger, (void *)(uintptr_t)address);
    cache->ops->free(cpu, cache, (void *)(uintptr_t)address);
    core_leave_cpu(cpu);
    Py_RETURN_NONE;
}

/* Do `work` as a CPU, with the GIL given up. 0, or -1 with an exception. */
static int work_as_cpu(PyObject *object, PyObject *cpu_number,
                       int (*work)(sq_cpu *cpu, sq_cache *cache), int *result)
{
    allocator_object *allocator = ((cache_object *)object)->allocator;
    long cpu_index = PyLong_AsLong(cpu_number);
    sq_cache *cache = PyErr_Occurred() ? NULL : core_begin_call(object);
    sq_cpu *cpu;
    if (cache == NULL)
        return -1;
    cpu = core_enter_cpu(state_of(object), allocator, cpu_index);
    if (cpu != NULL) {
        Py_BEGIN_ALLOW_THREADS
        *result = work(cpu, cache);
        core_leave_cpu(cpu);
        Py_END_ALLOW_THREADS
    }
    core_gate_leave(&allocator->gate);
    return cpu == NULL ? -1 : 0;
}

static int work_shrink(sq_cpu *cpu, sq_cache *cache)
{
    return cache->ops->shrink(cpu, cache);
}

static int work_flush(sq_cpu *cpu, sq_cache *cache)
{
    cache->ops->flush_cpu(cpu, cache);
    return 0;
}

static PyObject *cache_shrink(PyObject *object, PyObject *argument)
{
    int result;
    if (work_as_cpu(object, argument, work_shrink, &result) < 0)
        return NULL;
    return PyLong_FromLong(result);
}

/* Empty one CPU's own part of the cache, as that CPU. */
static PyObject *cache_flush(PyObject *object, PyObject *argument)
{
    int result;
    if (work_as_cpu(object, argument, work_flush, &result) < 0)
        return NULL;
    Py_RETURN_NONE;
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
    cpu = core_enter_cpu(state, ((cache_object *)object)->allocator, cpu_index);
    if (cpu == NULL)
        return NULL;
    (void)cache->ops->reap(cpu, cache, with_node != 0);
    core_leave_cpu(cpu);
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
    cpu = core_enter_any_cpu(((cache_object *)object)->allocator);
    status = cache->ops->tune(cpu, cache, 1, &name, &wanted, &error);
    core_leave_cpu(cpu);
    if (status != SQ_OK)
        return core_raise(state, &error);
    Py_RETURN_NONE;
}

static PyObject *cache_check(PyObject *object, PyObject *unused)
{
    sq_cache *cache = cache_at_rest(object);
    allocator_object *allocator = ((cache_object *)object)->allocator;
    struct core_state *state = state_of(object);
    struct sq_error error;
    sq_cpu *cpu;
    int status;
    (void)unused;
    if (cache == NULL)
        return NULL;
    cpu = core_enter_any_cpu(allocator);
    status = core_check_cache(allocator, cpu, cache, &error);
    core_leave_cpu(cpu);
    if (status != SQ_OK)
        return core_raise(state, &error);
    Py_RETURN_NONE;
}

static PyObject *cache_validate(PyObject *object, PyObject *unused)
{
    sq_cache *cache = cache_at_rest(object);
    allocator_object *allocator = ((cache_object *)object)->allocator;
    sq_cpu *cpu;
    (void)unused;
    if (cache == NULL)
        return NULL;
    if (cache->ops->validate != NULL) {
        cpu = core_wait_for_cpu(allocator->machine, 0);
        cache->ops->validate(cpu, cache);
        core_leave_cpu(cpu);
    }
    if (core_panic(state_of(object), allocator) < 0)
        return NULL;
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
    sq_cache *cache = cache_at_rest(object);
    struct sq_json json;
    sq_cpu *cpu;
    (void)unused;
    if (cache == NULL)
        return NULL;
    cpu = core_enter_any_cpu(((cache_object *)object)->allocator);
    sq_json_init(&json);
    sq_json_open_object(&json, NULL);
    cache->ops->dump(cpu, cache, &json);
    sq_json_close(&json);
    core_leave_cpu(cpu);
    return core_json_to_text(&json);
}

static PyObject *cache_usage(PyObject *object, PyObject *args)
{
    sq_cache *cache = cache_at_rest(object);
    struct sq_json json;
    int with_state = 0;
    sq_cpu *cpu;
    if (cache == NULL || !PyArg_ParseTuple(args, "|p:usage", &with_state))
        return NULL;
    cpu = core_enter_any_cpu(((cache_object *)object)->allocator);
    sq_json_init(&json);
    sq_cache_print(cpu, cache, with_state != 0, &json);
    core_leave_cpu(cpu);
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
        core_check_address(state_of(object), allocator, cache, address) < 0)
        return NULL;
    if (!cache->ops->locate(cache, (void *)(uintptr_t)address, &place))
        return PyErr_Format(state_of(object)->corruption_error,
                            "%p is held but is no object of cache %s",
                            (void *)(uintptr_t)address, cache->name);
    return Py_BuildValue("III", place.serial, place.index, place.node);
}

/* ---- the names of a cache, its end ---- */

/* (name of the directory in sysfs, [alias]) */
static PyObject *cache_names(PyObject *object, PyObject *unused)
{
    sq_cache *cache = cache_of(object);
    char name[SQ_CACHE_NAME_MAX];
    PyObject *list;
    (void)unused;
    if (cache == NULL)
        return NULL;
    sq_cache_sysfs_name(cache, name);
    list = PyList_New(0);
    SQ_LIST_EACH(link, &cache->aliases)
    {
        PyObject *alias =
            PyUnicode_FromString(SQ_LIST_ENTRY(link, struct sq_alias, link)->name);
        if (list == NULL || alias == NULL || PyList_Append(list, alias) < 0)
            Py_CLEAR(list);
        Py_XDECREF(alias);
    }
    return list == NULL ? NULL : Py_BuildValue("sN", name, list);
}

#define LEAKS_SHOWN 10u

static bool place_is_before(const struct sq_object_place *a,
                            const struct sq_object_place *b)
{
    return a->serial != b->serial ? a->serial < b->serial : a->index < b->index;
}

/* The first places, by slab and index, of objects that are held; returns how many. */
static uint32_t find_leaks(const struct sq_ledger *ledger, sq_cache *cache,
                           struct sq_object_place *leaks)
{
    uint32_t count = 0;
    for (size_t i = 0; i < ledger->capacity; i++) {
        struct sq_object_place place;
        uint32_t at;
        if (ledger->address[i] == 0 || ledger->owner[i] != cache ||
            !cache->ops->locate(cache, (const void *)ledger->address[i], &place))
            continue;
        if (count == LEAKS_SHOWN && !place_is_before(&place, &leaks[count - 1]))
            continue;
        at = count < LEAKS_SHOWN ? count++ : count - 1;
        for (; at > 0 && place_is_before(&place, &leaks[at - 1]); at--)
            leaks[at] = leaks[at - 1];
        leaks[at] = place;
    }
    return count;
}

static PyObject *list_of_places(const struct sq_object_place *places, uint32_t count)
{
    PyObject *list = PyList_New(count);
    for (uint32_t i = 0; list != NULL && i < count; i++) {
        PyObject *item =
            Py_BuildValue("III", places[i].serial, places[i].index, places[i].node);
        if (item == NULL || PyList_SetItem(list, i, item) < 0)
            Py_CLEAR(list);
    }
    return list;
}

/* [(slab, index, node)] of the first objects that destroying would forget. */
static PyObject *cache_leaks(PyObject *object, PyObject *unused)
{
    sq_cache *cache = cache_of(object);
    struct sq_object_place leaks[LEAKS_SHOWN];
    uint32_t count = 0;
    (void)unused;
    if (cache == NULL)
        return NULL;
    if (cache->reference_count == 1)
        count = find_leaks(&((cache_object *)object)->allocator->ledger, cache, leaks);
    return list_of_places(leaks, count);
}

/* Give up this name. With the last one the objects that are still held are forgotten, and
 * all memory goes back. */
static PyObject *cache_destroy(PyObject *object, PyObject *unused)
{
    cache_object *self = (cache_object *)object;
    sq_cache *cache = cache_at_rest(object);
    size_t held = 0;
    const char *name;
    sq_cpu *cpu;
    (void)unused;
    if (cache == NULL)
        return NULL;
    name = PyUnicode_AsUTF8AndSize(self->name, NULL);
    if (name == NULL)
        return NULL;
    if (cache->reference_count == 1)
        held = sq_ledger_remove_owner(&self->allocator->ledger, cache);
    cpu = core_enter_any_cpu(self->allocator);
    (void)sq_heap_put_cache(cpu, cache, name);
    core_leave_cpu(cpu);
    self->cache = NULL;
    return PyLong_FromSize_t(held);
}

static PyMethodDef cache_methods[] = {
    {"alloc", cache_alloc, METH_VARARGS,
     "(cpu, node, mode=-1, nodes=0) -> address"},
    {"free", cache_free, METH_VARARGS, "(cpu, address)"},
    {"alloc_bulk", core_alloc_bulk, METH_VARARGS, "(cpu, count) -> [address]"},
    {"free_bulk", core_free_bulk, METH_VARARGS, "(cpu, [address])"},
    {"prefill_sheaf", core_prefill_sheaf, METH_VARARGS, "(cpu, count) -> Sheaf"},
    {"shrink", cache_shrink, METH_O, "(cpu) -> what kmem_cache_shrink returns"},
    {"flush", cache_flush, METH_O, "(cpu): empty this CPU's own part of the cache"},
    {"reap", cache_reap, METH_VARARGS, "(cpu, with_node)"},
    {"tune", cache_tune, METH_VARARGS, "(name, value)"},
    {"check", cache_check, METH_NOARGS, "Check every structure of this cache."},
    {"validate", cache_validate, METH_NOARGS, "Look at the bytes of every object."},
    {"describe", cache_describe, METH_NOARGS, "JSON of the geometry and the tunables."},
    {"snapshot", cache_snapshot, METH_NOARGS, "JSON of every list and queue."},
    {"usage", cache_usage, METH_VARARGS,
     "(with_state=False) -> JSON of counts and counters"},
    {"counters", cache_counters, METH_NOARGS, "[(name, [value of CPU 0, ...])]"},
    {"locate", cache_locate, METH_O, "(address) -> (slab, index, node)"},
    {"names", cache_names, METH_NOARGS, "-> (name in sysfs, [alias])"},
    {"leaks", cache_leaks, METH_NOARGS, "-> [(slab, index, node)] of the first ones"},
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

int core_add_cache(PyObject *module, struct core_state *state)
{
    state->cache_type = PyType_FromModuleAndSpec(module, &cache_spec, NULL);
    if (state->cache_type == NULL)
        return -1;
    return PyModule_AddType(module, (PyTypeObject *)state->cache_type);
}
