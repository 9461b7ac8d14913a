/*
 * The heap type Sheaf: objects that a caller had filled for it (kmem_cache_prefill_sheaf
 * of 6.18). It is its holder's until it is given back; a dropped Python object gives
 * nothing back, since nobody could say as which CPU. Threads and the GIL are as told in
 * allocator_type.c.
 */
#include "python/allocator_type.h"

typedef struct {
    PyObject_HEAD
    cache_object *cache;    /* strong reference */
    struct sq_sheaf *sheaf; /* NULL once given back */
} sheaf_object;

static struct core_state *state_of(PyObject *object)
{
    return PyType_GetModuleState(Py_TYPE(object));
}

/* What a call on a sheaf works with between begin_call and end_call. */
struct sheaf_call {
    sq_cpu *cpu;
    sq_cache *cache;
};

/* Become CPU `cpu_index` for work on a cache that may be given sheaves by. The GIL may
 * be given up until this returns and is held from then on. 0, or -1 with an exception. */
static int begin_call(struct core_state *state, cache_object *cache, long cpu_index,
                      struct sheaf_call *call)
{
    call->cache = core_begin_call((PyObject *)cache);
    if (call->cache == NULL)
        return -1;
    if (call->cache->ops->sheaf_prefill == NULL)
        PyErr_Format(state->parameter_error,
                     "policy %s has no sheaves: slub and sheaves have",
                     call->cache->ops->name);
    else
        call->cpu = core_enter_cpu(state, cache->allocator, cpu_index);
    if (PyErr_Occurred() == NULL)
        return 0;
    core_gate_leave(&cache->allocator->gate);
    return -1;
}

static void end_call(cache_object *cache, const struct sheaf_call *call)
{
    core_leave_cpu(call->cpu);
    core_gate_leave(&cache->allocator->gate);
}

/* begin_call for a sheaf that is still held. 0, or -1 with an exception. */
static int begin_held_call(sheaf_object *self, long cpu_index, struct sheaf_call *call)
{
    struct core_state *state = state_of((PyObject *)self);
    if (begin_call(state, self->cache, cpu_index, call) < 0)
        return -1;
    if (self->sheaf != NULL)
        return 0;
    end_call(self->cache, call);
    PyErr_Format(state->parameter_error, "sheaf of cache %U was given back",
                 self->cache->name);
    return -1;
}

/* The number of objects that a call asks for. 0, or -1 with an exception. */
static int check_count(struct core_state *state, long count)
{
    if (count >= 1 && count <= CORE_SHEAF_COUNT_MAX)
        return 0;
    PyErr_Format(state->parameter_error, "count is %ld: accepted are 1 to %d", count,
                 CORE_SHEAF_COUNT_MAX);
    return -1;
}

PyObject *core_prefill_sheaf(PyObject *object, PyObject *args)
{
    cache_object *cache = (cache_object *)object;
    struct core_state *state = state_of(object);
    PyTypeObject *type = (PyTypeObject *)state->sheaf_type;
    struct sheaf_call call = {0};
    long cpu_index, count;
    sheaf_object *self;
    if (!PyArg_ParseTuple(args, "ll:prefill_sheaf", &cpu_index, &count) ||
        check_count(state, count) < 0 ||
        begin_call(state, cache, cpu_index, &call) < 0)
        return NULL;
    self = PyObject_GC_New(sheaf_object, type);
    if (self != NULL) {
        self->cache = (cache_object *)Py_NewRef(object);
        self->sheaf =
            call.cache->ops->sheaf_prefill(call.cpu, call.cache, 0, (uint32_t)count);
        PyObject_GC_Track((PyObject *)self);
    }
    end_call(cache, &call);
    if (self == NULL || self->sheaf != NULL)
        return (PyObject *)self;
    Py_DECREF((PyObject *)self);
    return core_raise_out_of_memory(state, call.cache->name, -1);
}

/* The address of one object, or None when the sheaf is empty. */
static PyObject *sheaf_alloc(PyObject *object, PyObject *argument)
{
    sheaf_object *self = (sheaf_object *)object;
    allocator_object *allocator = self->cache->allocator;
    struct sheaf_call call;
    long cpu_index = PyLong_AsLong(argument);
    void *result;
    if (PyErr_Occurred())
        return NULL;
    if (begin_held_call(self, cpu_index, &call) < 0)
        return NULL;
    if (!sq_ledger_reserve(&allocator->ledger, 1)) {
        end_call(self->cache, &call);
        return PyErr_NoMemory();
    }
    result = call.cache->ops->sheaf_alloc(call.cpu, call.cache, self->sheaf);
    if (result != NULL)
        core_hold(allocator, result, call.cache);
    end_call(self->cache, &call);
    if (result == NULL)
        Py_RETURN_NONE;
    return PyLong_FromUnsignedLongLong((uintptr_t)result);
}

static PyObject *sheaf_refill(PyObject *object, PyObject *args)
{
    sheaf_object *self = (sheaf_object *)object;
    struct core_state *state = state_of(object);
    struct sheaf_call call;
    long cpu_index, count;
    int status;
    if (!PyArg_ParseTuple(args, "ll:refill", &cpu_index, &count) ||
        check_count(state, count) < 0 || begin_held_call(self, cpu_index, &call) < 0)
        return NULL;
    status = call.cache->ops->sheaf_refill(call.cpu, call.cache, 0, &self->sheaf,
                                           (uint32_t)count);
    end_call(self->cache, &call);
    if (status != SQ_OK)
        return core_raise_out_of_memory(state, call.cache->name, -1);
    Py_RETURN_NONE;
}

static PyObject *sheaf_give_back(PyObject *object, PyObject *argument)
{
    sheaf_object *self = (sheaf_object *)object;
    struct sheaf_call call;
    long cpu_index = PyLong_AsLong(argument);
    struct sq_sheaf *sheaf;
    if (PyErr_Occurred() || begin_held_call(self, cpu_index, &call) < 0)
        return NULL;
    sheaf = self->sheaf;
    self->sheaf = NULL;
    call.cache->ops->sheaf_return(call.cpu, call.cache, 0, sheaf);
    end_call(self->cache, &call);
    Py_RETURN_NONE;
}

/* (objects, objects that fit), or None once it was given back. */
static PyObject *sheaf_usage(PyObject *object, PyObject *unused)
{
    sheaf_object *self = (sheaf_object *)object;
    (void)unused;
    if (self->sheaf == NULL || self->cache->cache == NULL)
        Py_RETURN_NONE;
    return Py_BuildValue("II", self->sheaf->size, self->sheaf->capacity);
}

static int sheaf_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((sheaf_object *)object)->cache);
    return 0;
}

static void sheaf_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_XDECREF((PyObject *)((sheaf_object *)object)->cache);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static PyMethodDef sheaf_methods[] = {
    {"alloc", sheaf_alloc, METH_O, "(cpu) -> address, or None when it is empty"},
    {"refill", sheaf_refill, METH_VARARGS, "(cpu, count)"},
    {"give_back", sheaf_give_back, METH_O, "(cpu)"},
    {"usage", sheaf_usage, METH_NOARGS, "-> (objects, objects that fit), or None"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot sheaf_slots[] = {
    {Py_tp_dealloc, CORE_SLOT(sheaf_dealloc)},
    {Py_tp_traverse, CORE_SLOT(sheaf_traverse)},
    {Py_tp_methods, sheaf_methods},
    {Py_tp_doc, "Prefilled objects; made by Cache.prefill_sheaf."},
    {0, NULL},
};

static PyType_Spec sheaf_spec = {
    .name = "slabq._core.Sheaf",
    .basicsize = sizeof(sheaf_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = sheaf_slots,
};

int core_add_sheaf(PyObject *module, struct core_state *state)
{
    state->sheaf_type = PyType_FromModuleAndSpec(module, &sheaf_spec, NULL);
    if (state->sheaf_type == NULL)
        return -1;
    return PyModule_AddType(module, (PyTypeObject *)state->sheaf_type);
}
