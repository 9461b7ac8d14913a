/*
 * The heap type Allocator: one policy on one machine, driven call by call.
 *
 * Any Python thread may call; each call names the CPU it acts for and becomes it
 * (cpu_enter), so two threads that name the same CPU take turns. The ledger is changed
 * with the GIL held; calls that may take long give the GIL up around the policy's work,
 * and those that need all at rest wait for them (gate.h).
 */
#include "python/allocator_type.h"

#include <stdlib.h>
#include <string.h>

#include "experiment/cache_print.h"

static struct core_state *state_of(PyObject *object)
{
    return PyType_GetModuleState(Py_TYPE(object));
}

/* ---- arguments ---- */

/* 0, or -1 with ParameterError if the machine has no such CPU. */
int core_check_cpu(struct core_state *state, const sq_machine *machine, long cpu)
{
    if (cpu >= 0 && cpu < (long)machine->topology.cpu_count)
        return 0;
    PyErr_Format(state->parameter_error, "cpu is %ld: accepted are 0 to %u", cpu,
                 machine->topology.cpu_count - 1);
    return -1;
}

sq_cpu *core_enter_cpu(struct core_state *state, allocator_object *allocator, long cpu)
{
    sq_machine *machine = allocator->machine;
    if (core_check_cpu(state, machine, cpu) < 0)
        return NULL;
    if (allocator->heap->cpu_is_offline[cpu]) {
        PyErr_Format(state->parameter_error,
                     "cpu is %ld, which is offline: accepted are CPUs that are online",
                     cpu);
        return NULL;
    }
    return core_wait_for_cpu(machine, (uint32_t)cpu);
}

sq_cpu *core_enter_any_cpu(allocator_object *allocator)
{
    return allocator->machine->ops->cpu_enter(allocator->machine,
                                              sq_heap_first_online_cpu(allocator->heap));
}

void core_leave_cpu(sq_cpu *cpu)
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

/* 0, or -1 with ParameterError: a mode that there is, and nodes of the machine. */
int core_make_memory_policy(struct core_state *state, const sq_machine *machine,
                              long mode, unsigned long nodes,
                              struct sq_memory_policy *policy)
{
    unsigned long all = (1ul << machine->topology.node_count) - 1;
    if (mode < 0 || mode >= SQ_MEMORY_MODE_COUNT ||
        (mode != SQ_MEMORY_LOCAL && (nodes == 0 || nodes > all))) {
        PyErr_Format(state->parameter_error,
                     "memory policy is %ld of nodes 0x%lx: accepted are 0 to %d and some "
                     "of the nodes 0x%lx",
                     mode, nodes, SQ_MEMORY_MODE_COUNT - 1, all);
        return -1;
    }
    policy->mode = (enum sq_memory_mode)mode;
    policy->nodes = (uint32_t)nodes;
    return 0;
}

int core_make_request(struct core_state *state, const allocator_object *allocator,
                      long cpu, long node, long mode, unsigned long nodes,
                      struct core_request *request)
{
    request->cpu = cpu;
    request->node = node;
    request->policy = allocator->memory_policy;
    if (check_node(state, allocator->machine, node) < 0)
        return -1;
    return mode < 0 ? 0
                    : core_make_memory_policy(state, allocator->machine, mode, nodes,
                                         &request->policy);
}

void *core_allocate(allocator_object *allocator, sq_cpu *cpu, sq_cache *cache,
                    size_t bytes, const struct core_request *request)
{
    if (request->node != SQ_NODE_ANY)
        return sq_alloc_on_node(cpu, allocator->heap, cache, bytes,
                                (int32_t)request->node, 0);
    return sq_alloc_by_policy(cpu, allocator->heap, cache, bytes, &request->policy,
                              &allocator->interleave_turn);
}

PyObject *core_raise_out_of_memory(struct core_state *state, const char *what, long node)
{
    if (node >= 0)
        PyErr_Format(state->out_of_memory,
                     "no memory for %s: node %ld and its fallback nodes are full", what,
                     node);
    else
        PyErr_Format(state->out_of_memory,
                     "no memory for %s: every node that may be used is full", what);
    return NULL;
}

/* Refuse an address that `owner` did not hand out or that is free already, naming what it
 * is. `cache` is NULL for kmalloc. */
int core_check_address(struct core_state *state, allocator_object *allocator,
                       sq_cache *cache, unsigned long long address)
{
    void *memory = (void *)(uintptr_t)address;
    const void *owner = sq_ledger_owner(&allocator->ledger, memory);
    const void *wanted = cache == NULL ? (const void *)allocator->heap : cache;
    const char *from = cache == NULL ? "kmalloc" : cache->name;
    struct sq_object_place place;
    struct sq_error error;
    if (owner == wanted)
        return 0;
    if (owner == (const void *)allocator->heap)
        (void)sq_error_set(&error, SQ_E_CORRUPTION,
                           "0x%llx was given out by kmalloc, not by cache %s", address,
                           from);
    else if (owner != NULL)
        (void)sq_error_set(&error, SQ_E_CORRUPTION,
                           "0x%llx is an object of cache %s, not of %s", address,
                           ((const sq_cache *)owner)->name, from);
    else if (cache != NULL && allocator->gate.call_count == 0 && /* slabs are at rest */
             sq_machine_owns(allocator->machine, (void *)(uintptr_t)address) &&
             cache->ops->locate(cache, (void *)(uintptr_t)address, &place))
        (void)sq_error_set(&error, SQ_E_CORRUPTION,
                           "object %u of slab %u of cache %s (0x%llx) is free already: "
                           "double free, or never handed out",
                           place.index, place.serial, from, address);
    else
        (void)sq_error_set(&error, SQ_E_CORRUPTION,
                           "0x%llx is no live object of %s: a foreign or misaligned "
                           "pointer, or free already",
                           address, from);
    (void)core_raise(state, &error);
    return -1;
}

/* ---- Allocator ---- */

static PyObject *allocator_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"machine", "policy", "options", "debug", "panic", NULL};
    struct core_state *state = PyType_GetModuleState(type);
    PyObject *machine_object, *pairs;
    const char *policy, *debug = NULL;
    int panics = 0;
    const sq_policy_ops *ops;
    struct sq_options options;
    struct sq_error error;
    allocator_object *self;
    sq_machine *machine;
    sq_cpu *cpu;
    int status;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OsO|zp:Allocator", names,
                                     &machine_object, &policy, &pairs, &debug, &panics))
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
    self->panics = panics;
    self->reports_told = 0;
    memset(&self->ledger, 0, sizeof(self->ledger));
    self->memory_policy = (struct sq_memory_policy){SQ_MEMORY_LOCAL, 0};
    self->interleave_turn = 0;
    self->gate = (struct core_gate){0};
    self->machine_object = Py_NewRef(machine_object);
    self->machine = machine;
    cpu = machine->ops->cpu_enter(machine, 0);
    status = sq_heap_create_debug(cpu, ops, &options, debug, &self->heap, &error);
    core_leave_cpu(cpu);
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
        sq_cpu *cpu = core_enter_any_cpu(self);
        sq_heap_destroy(cpu, self->heap);
        core_leave_cpu(cpu);
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
    Py_ssize_t pattern_bytes = 0;
    if (!PyArg_ParseTuple(args, "sKKII|z#:create_cache", &spec.name, &size, &align,
                          &spec.flags, &spec.sheaf_capacity, &spec.pattern,
                          &pattern_bytes))
        return NULL;
    /* More than an object can have is refused by the heap, whatever the number is. */
    spec.pattern_bytes =
        pattern_bytes > INT32_MAX ? INT32_MAX : (uint32_t)pattern_bytes;
    spec.size = size;
    spec.align = align;
    cache = PyObject_GC_New(cache_object, type);
    if (cache == NULL)
        return NULL;
    cache->allocator = NULL;
    cache->cache = NULL;
    cache->name = PyUnicode_FromString(spec.name);
    cpu = core_enter_any_cpu(self);
    status = sq_heap_create_cache(cpu, self->heap, &spec, &cache->cache, &error);
    core_leave_cpu(cpu);
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
    unsigned long nodes = 0;
    long cpu_index, node, mode = -1;
    struct core_request request;
    sq_cpu *cpu;
    void *memory;
    if (!PyArg_ParseTuple(args, "lKl|lk:kmalloc", &cpu_index, &size, &node, &mode,
                          &nodes) ||
        core_make_request(state, self, cpu_index, node, mode, nodes, &request) < 0)
        return NULL;
    if (!sq_ledger_reserve(&self->ledger, 1))
        return PyErr_NoMemory();
    cpu = core_enter_cpu(state, self, cpu_index);
    if (cpu == NULL)
        return NULL;
    memory = core_allocate(self, cpu, NULL, size, &request);
    core_leave_cpu(cpu);
    if (memory == NULL)
        return core_raise_out_of_memory(state, "kmalloc", node);
    core_hold(self, memory, self->heap);
    if (core_panic(state, self) < 0)
        return NULL;
    return PyLong_FromUnsignedLongLong((uintptr_t)memory);
}

/* nil allocates, size 0 frees. A block that moves is allocated and freed by this CPU. */
static PyObject *allocator_krealloc(PyObject *object, PyObject *args)
{
    allocator_object *self = (allocator_object *)object;
    struct core_state *state = state_of(object);
    unsigned long long address, size;
    long cpu_index, node;
    sq_cpu *cpu;
    void *old, *memory;
    if (!PyArg_ParseTuple(args, "lKKl:krealloc", &cpu_index, &address, &size, &node) ||
        check_node(state, self->machine, node) < 0)
        return NULL;
    if (address != 0 && core_check_address(state, self, NULL, address) < 0)
        return NULL;
    if (!sq_ledger_reserve(&self->ledger, 1))
        return PyErr_NoMemory();
    cpu = core_enter_cpu(state, self, cpu_index);
    if (cpu == NULL)
        return NULL;
    old = (void *)(uintptr_t)address;
    memory = sq_heap_krealloc(cpu, self->heap, old, size, (int32_t)node, 0);
    core_leave_cpu(cpu);
    if (memory == NULL && (size != 0 || old == NULL))
        return core_raise_out_of_memory(state, "krealloc", node);
    if (memory != old && old != NULL)
        sq_ledger_remove(&self->ledger, old);
    if (memory != old && memory != NULL)
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
    int judged;
    if (!PyArg_ParseTuple(args, "lK:kfree", &cpu_index, &address))
        return NULL;
    if (address == 0)
        Py_RETURN_NONE;
    judged = core_free_judged(state, self, NULL, cpu_index, address);
    if (judged < 0)
        return NULL;
    if (judged > 0)
        Py_RETURN_NONE;
    if (core_check_address(state, self, NULL, address) < 0)
        return NULL;
    cpu = core_enter_cpu(state, self, cpu_index);
    if (cpu == NULL)
        return NULL;
    sq_ledger_remove(&self->ledger, (void *)(uintptr_t)address);
    self->heap->ops->kfree(cpu, self->heap, (void *)(uintptr_t)address);
    core_leave_cpu(cpu);
    Py_RETURN_NONE;
}

static PyObject *allocator_ksize(PyObject *object, PyObject *argument)
{
    allocator_object *self = (allocator_object *)object;
    unsigned long long address = PyLong_AsUnsignedLongLong(argument);
    if (PyErr_Occurred() || core_check_address(state_of(object), self, NULL, address) < 0)
        return NULL;
    return PyLong_FromSize_t(
        self->heap->ops->ksize(self->heap, (void *)(uintptr_t)address));
}

static PyObject *allocator_caches(PyObject *object, PyObject *args)
{
    allocator_object *self = (allocator_object *)object;
    struct sq_json json;
    int with_state = 0;
    sq_cpu *cpu;
    if (!PyArg_ParseTuple(args, "|p:caches", &with_state))
        return NULL;
    core_gate_wait(&self->gate);
    cpu = core_enter_any_cpu(self);
    sq_json_init(&json);
    sq_json_open_array(&json, NULL);
    SQ_LIST_EACH(link, &self->heap->caches)
        sq_cache_print(cpu, SQ_LIST_ENTRY(link, sq_cache, link), with_state != 0, &json);
    sq_json_close(&json);
    core_leave_cpu(cpu);
    return core_json_to_text(&json);
}

/* What the policy says is handed out must be what the ledger holds; kmalloc classes are
 * checked by their own structures only, since the ledger does not split them. */
int core_check_cache(allocator_object *self, sq_cpu *cpu, sq_cache *cache,
                     struct sq_error *error)
{
    struct sq_cache_usage usage = {0};
    size_t held;
    int status = cache->ops->check(cpu, cache, error);
    if (status != SQ_OK || (cache->flags & SQ_CACHE_KMALLOC) || cache->report_count != 0)
        return status; /* objects of slabs that were given up count as handed out */
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
    sq_cpu *cpu;
    (void)unused;
    core_gate_wait(&self->gate);
    cpu = core_enter_any_cpu(self);
    SQ_LIST_EACH(link, &self->heap->caches)
    {
        status = core_check_cache(self, cpu, SQ_LIST_ENTRY(link, sq_cache, link), &error);
        if (status != SQ_OK)
            break;
    }
    core_leave_cpu(cpu);
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

static PyObject *allocator_peek(PyObject *object, PyObject *args)
{
    return core_peek(state_of(object), (allocator_object *)object, args);
}

static PyObject *allocator_poke(PyObject *object, PyObject *args)
{
    return core_poke(state_of(object), (allocator_object *)object, args);
}

static PyObject *allocator_reports(PyObject *object, PyObject *unused)
{
    (void)unused;
    return core_reports((allocator_object *)object);
}

static PyObject *allocator_clear_reports(PyObject *object, PyObject *unused)
{
    allocator_object *self = (allocator_object *)object;
    (void)unused;
    sq_reports_clear(&self->heap->reports);
    self->reports_told = 0;
    Py_RETURN_NONE;
}

/* Who calls from now on, by CPU, for the tracks of SLAB_STORE_USER. */
static PyObject *allocator_set_call_site(PyObject *object, PyObject *args)
{
    allocator_object *self = (allocator_object *)object;
    unsigned long long site;
    long cpu_index;
    sq_cpu *cpu;
    if (!PyArg_ParseTuple(args, "lK:set_call_site", &cpu_index, &site))
        return NULL;
    cpu = core_enter_cpu(state_of(object), self, cpu_index);
    if (cpu == NULL)
        return NULL;
    self->heap->call_site[cpu->index] = site;
    core_leave_cpu(cpu);
    Py_RETURN_NONE;
}

static PyMethodDef allocator_methods[] = {
    {"peek", allocator_peek, METH_VARARGS, "(address, offset, count) -> bytes of a slab"},
    {"poke", allocator_poke, METH_VARARGS, "(address, offset, bytes) into a slab"},
    {"reports", allocator_reports, METH_NOARGS, "(JSON, text, trace, total)"},
    {"clear_reports", allocator_clear_reports, METH_NOARGS, "Forget all reports."},
    {"set_call_site", allocator_set_call_site, METH_VARARGS, "(cpu, site)"},
    {"create_cache", allocator_create_cache, METH_VARARGS,
     "(name, size, align, flags, sheaf_capacity, pattern=None) -> Cache"},
    {"kmalloc", allocator_kmalloc, METH_VARARGS,
     "(cpu, size, node, mode=-1, nodes=0) -> address"},
    {"krealloc", allocator_krealloc, METH_VARARGS, "(cpu, address, size, node) -> address"},
    {"set_memory_policy", core_set_memory_policy, METH_VARARGS, "(mode, nodes)"},
    {"offline_cpu", core_offline_cpu, METH_O, "(cpu)"},
    {"online_cpu", core_online_cpu, METH_O, "(cpu)"},
    {"online_cpus", core_online_cpus, METH_NOARGS, "-> [cpu]"},
    {"advance", core_advance, METH_O, "(milliseconds) -> passes of the reaper"},
    {"clock_ms", core_clock_ms, METH_NOARGS, "-> milliseconds advanced so far"},
    {"kfree", allocator_kfree, METH_VARARGS, "(cpu, address)"},
    {"ksize", allocator_ksize, METH_O, "(address) -> usable bytes"},
    {"caches", allocator_caches, METH_VARARGS, "(with_state=False) -> JSON of all caches"},
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

int core_add_allocator(PyObject *module, struct core_state *state)
{
    state->allocator_type = PyType_FromModuleAndSpec(module, &allocator_spec, NULL);
    if (state->allocator_type == NULL ||
        PyModule_AddType(module, (PyTypeObject *)state->allocator_type) < 0)
        return -1;
    return core_add_sheaf(module, state) < 0 ? -1 : core_add_cache(module, state);
}
