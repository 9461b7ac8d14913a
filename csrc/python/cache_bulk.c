/*
 * Cache.alloc_bulk and Cache.free_bulk: many objects a call, with the GIL given up
 * while the policy works.
 */
#include <stdlib.h>

#include "python/allocator_type.h"

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

/* Allocate `count` objects into `objects` and the ledger. 0, or -1 with an exception. */
static int take_objects(struct core_state *state, allocator_object *allocator,
                        sq_cache *cache, const struct core_request *request,
                        size_t count, void **objects)
{
    size_t got = 0;
    sq_cpu *cpu = core_enter_cpu(state, allocator, request->cpu);
    if (cpu == NULL)
        return -1;
    Py_BEGIN_ALLOW_THREADS
    if (count > 0)
        got = sq_alloc_bulk_by_policy(cpu, allocator->heap, cache, count,
                                      &request->policy, &allocator->interleave_turn,
                                      objects);
    core_leave_cpu(cpu);
    Py_END_ALLOW_THREADS
    if (got != count) {
        (void)core_raise_out_of_memory(state, cache->name, -1);
        return -1;
    }
    if (!sq_ledger_reserve(&allocator->ledger, count)) {
        (void)PyErr_NoMemory(); /* another thread used the reserve meanwhile */
        return -1;
    }
    for (size_t i = 0; i < count; i++)
        core_hold(allocator, objects[i], cache);
    return 0;
}

PyObject *core_alloc_bulk(PyObject *object, PyObject *args)
{
    allocator_object *allocator = ((cache_object *)object)->allocator;
    struct core_state *state = PyType_GetModuleState(Py_TYPE(object));
    PyObject *list = NULL;
    Py_ssize_t count;
    long cpu_index, mode = -1;
    unsigned long nodes = 0;
    struct core_request request;
    void **objects;
    sq_cache *cache;
    int status = -1;
    if (!PyArg_ParseTuple(args, "ln|lk:alloc_bulk", &cpu_index, &count, &mode, &nodes) ||
        core_make_request(state, allocator, cpu_index, SQ_NODE_ANY, mode, nodes,
                          &request) < 0)
        return NULL;
    if (count < 0 || count > (1 << 24))
        return PyErr_Format(state->parameter_error,
                            "count is %zd: accepted are 0 to %d", count, 1 << 24);
    objects = calloc((size_t)count + 1, sizeof(*objects));
    if (objects == NULL || !sq_ledger_reserve(&allocator->ledger, (size_t)count)) {
        free(objects);
        return PyErr_NoMemory();
    }
    cache = core_begin_call(object);
    if (cache != NULL) {
        status =
            take_objects(state, allocator, cache, &request, (size_t)count, objects);
        core_gate_leave(&allocator->gate);
    }
    if (status == 0)
        list = list_of_addresses(objects, count);
    free(objects);
    if (list != NULL && core_panic(state, allocator) < 0)
        Py_CLEAR(list);
    return list;
}

/* The addresses of a sequence, to be freed by the caller, and their count; NULL with an
 * exception. Runs whatever code the sequence brings, so nothing may be begun yet. */
static void **read_addresses(PyObject *sequence, Py_ssize_t *count)
{
    void **objects;
    *count = PySequence_Size(sequence);
    if (*count < 0)
        return NULL;
    objects = calloc((size_t)*count + 1, sizeof(*objects));
    if (objects == NULL)
        return (void **)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < *count; i++) {
        PyObject *item = PySequence_GetItem(sequence, i);
        unsigned long long address = item == NULL ? 0 : PyLong_AsUnsignedLongLong(item);
        Py_XDECREF(item);
        if (PyErr_Occurred()) {
            free(objects);
            return NULL;
        }
        objects[i] = (void *)(uintptr_t)address;
    }
    return objects;
}

/* The slab of a live object of a debug cache may be gone, if its counts were corrupted.
 */
static bool is_still_there(sq_cache *cache, void *object)
{
    struct sq_object_place place;
    return !cache->is_debug || cache->ops->locate(cache, object, &place);
}

/* Put the first `count` addresses back into the ledger. */
static void put_back(allocator_object *allocator, sq_cache *cache, Py_ssize_t count,
                     void **objects)
{
    for (Py_ssize_t i = 0; i < count; i++)
        sq_ledger_add(&allocator->ledger, objects[i], cache);
}

/* Take all addresses out of the ledger; on the first that is not held nothing is
 * changed. 0, or -1 with CorruptionError. */
static int release_addresses(struct core_state *state, allocator_object *allocator,
                             sq_cache *cache, Py_ssize_t count, void **objects)
{
    Py_ssize_t taken = 0;
    unsigned long long address;
    struct sq_error error;
    while (taken < count &&
           sq_ledger_owner(&allocator->ledger, objects[taken]) == cache &&
           is_still_there(cache, objects[taken]))
        sq_ledger_remove(&allocator->ledger, objects[taken++]);
    if (taken == count)
        return 0;
    put_back(allocator, cache, taken, objects);
    address = (uintptr_t)objects[taken];
    if (core_check_address(state, allocator, cache, address) < 0)
        return -1;
    if (!is_still_there(cache, objects[taken]))
        (void)sq_error_set(&error, SQ_E_CORRUPTION,
                           "the slab of 0x%llx of cache %s is gone", address,
                           cache->name);
    else
        (void)sq_error_set(
            &error, SQ_E_CORRUPTION,
            "0x%llx of cache %s is in the list more than once: double free", address,
            cache->name);
    (void)core_raise(state, &error);
    return -1;
}

/* Free addresses that the ledger may hold. 0, or -1 with an exception. */
static int free_objects(struct core_state *state, allocator_object *allocator,
                        sq_cache *cache, long cpu_index, Py_ssize_t count,
                        void **objects)
{
    sq_cpu *cpu;
    if (release_addresses(state, allocator, cache, count, objects) < 0)
        return -1;
    cpu = core_enter_cpu(state, allocator, cpu_index);
    if (cpu == NULL) {
        put_back(allocator, cache, count, objects);
        return -1;
    }
    Py_BEGIN_ALLOW_THREADS
    if (count > 0)
        cache->ops->free_bulk(cpu, cache, (size_t)count, objects);
    core_leave_cpu(cpu);
    Py_END_ALLOW_THREADS
    core_take_all_refused(allocator, cache, objects, (size_t)count);
    return 0;
}

PyObject *core_free_bulk(PyObject *object, PyObject *args)
{
    allocator_object *allocator = ((cache_object *)object)->allocator;
    struct core_state *state = PyType_GetModuleState(Py_TYPE(object));
    PyObject *sequence;
    Py_ssize_t count;
    long cpu_index;
    void **objects;
    sq_cache *cache;
    int status = -1;
    if (!PyArg_ParseTuple(args, "lO:free_bulk", &cpu_index, &sequence))
        return NULL;
    objects = read_addresses(sequence, &count);
    if (objects == NULL)
        return NULL;
    cache = core_begin_call(object);
    if (cache != NULL) {
        status = free_objects(state, allocator, cache, cpu_index, count, objects);
        core_gate_leave(&allocator->gate);
    }
    free(objects);
    if (status < 0 || core_panic(state, allocator) < 0)
        return NULL;
    Py_RETURN_NONE;
}
