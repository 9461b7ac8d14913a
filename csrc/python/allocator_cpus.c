/*
 * Methods of Allocator for what it is subject to: the memory policy of its caller, CPUs
 * that go and come, and the time by which caches are reaped.
 */
#include "python/allocator_type.h"

PyObject *core_set_memory_policy(PyObject *object, PyObject *args)
{
    allocator_object *self = (allocator_object *)object;
    unsigned long nodes;
    long mode;
    if (!PyArg_ParseTuple(args, "lk:set_memory_policy", &mode, &nodes) ||
        core_make_memory_policy(PyType_GetModuleState(Py_TYPE(object)), self->machine,
                                mode, nodes, &self->memory_policy) < 0)
        return NULL;
    self->interleave_turn = 0;
    Py_RETURN_NONE;
}

PyObject *core_offline_cpu(PyObject *object, PyObject *argument)
{
    allocator_object *self = (allocator_object *)object;
    struct core_state *state = PyType_GetModuleState(Py_TYPE(object));
    long cpu_index = PyLong_AsLong(argument);
    struct sq_error error;
    sq_cpu *cpu;
    int status;
    if (PyErr_Occurred())
        return NULL;
    cpu = core_enter_cpu(state, self, cpu_index);
    if (cpu == NULL)
        return NULL;
    status = sq_heap_offline_cpu(cpu, self->heap, &error);
    core_leave_cpu(cpu);
    if (status != SQ_OK)
        return core_raise(state, &error);
    Py_RETURN_NONE;
}

PyObject *core_online_cpu(PyObject *object, PyObject *argument)
{
    allocator_object *self = (allocator_object *)object;
    struct core_state *state = PyType_GetModuleState(Py_TYPE(object));
    long cpu_index = PyLong_AsLong(argument);
    sq_cpu *cpu;
    if (PyErr_Occurred() || core_check_cpu(state, self->machine, cpu_index) < 0)
        return NULL;
    if (!self->heap->cpu_is_offline[cpu_index])
        return PyErr_Format(state->parameter_error,
                            "cpu is %ld, which is online: accepted are CPUs that are "
                            "offline",
                            cpu_index);
    cpu = self->machine->ops->cpu_enter(self->machine, (uint32_t)cpu_index);
    sq_heap_online_cpu(cpu, self->heap);
    core_leave_cpu(cpu);
    Py_RETURN_NONE;
}

PyObject *core_online_cpus(PyObject *object, PyObject *unused)
{
    allocator_object *self = (allocator_object *)object;
    PyObject *list = PyList_New(0);
    (void)unused;
    for (uint32_t i = 0; list != NULL && i < self->machine->topology.cpu_count; i++) {
        PyObject *number;
        if (self->heap->cpu_is_offline[i])
            continue;
        number = PyLong_FromUnsignedLong(i);
        if (number == NULL || PyList_Append(list, number) < 0)
            Py_CLEAR(list);
        Py_XDECREF(number);
    }
    return list;
}

PyObject *core_advance(PyObject *object, PyObject *argument)
{
    allocator_object *self = (allocator_object *)object;
    unsigned long long milliseconds = PyLong_AsUnsignedLongLong(argument);
    if (PyErr_Occurred())
        return NULL;
    return PyLong_FromUnsignedLongLong(sq_heap_advance(self->heap, milliseconds));
}

PyObject *core_clock_ms(PyObject *object, PyObject *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(((allocator_object *)object)->heap->clock_ms);
}
