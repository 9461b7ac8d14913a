/* What this host takes: the measurements of experiment/calibrate.h, without the GIL. */
#include "experiment/calibrate.h"

#include "python/core_state.h"

static PyObject *calibrate_chase(PyObject *module, PyObject *arguments)
{
    struct sq_error error;
    unsigned long long bytes;
    unsigned int cpu, home;
    int is_in_order, code;
    double ns = 0;
    if (!PyArg_ParseTuple(arguments, "KpII:calibrate_chase", &bytes, &is_in_order, &cpu,
                          &home))
        return NULL;
    if (bytes < SQ_CALIBRATE_BYTES_MIN || bytes > SQ_CALIBRATE_BYTES_MAX)
        return PyErr_Format(core_state_of(module)->parameter_error,
                            "bytes of a chase are %llu: accepted are 4096 to 2^33",
                            bytes);
    Py_BEGIN_ALLOW_THREADS;
    code = sq_calibrate_chase(bytes, is_in_order != 0, cpu, home, &ns, &error);
    Py_END_ALLOW_THREADS;
    return code == SQ_OK ? PyFloat_FromDouble(ns)
                         : core_raise(core_state_of(module), &error);
}

/* Put a figure under its name. False with an exception. */
static int calibrate_put(PyObject *figures, const char *name, double value)
{
    PyObject *number = PyFloat_FromDouble(value);
    int code = number == NULL ? -1 : PyDict_SetItemString(figures, name, number);
    Py_XDECREF(number);
    return code;
}

static PyObject *calibrate_one(PyObject *module, PyObject *arguments)
{
    struct sq_calibrate_single single = {0};
    struct sq_error error;
    unsigned int cpu;
    PyObject *figures;
    int code;
    if (!PyArg_ParseTuple(arguments, "I:calibrate_one", &cpu))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    code = sq_calibrate_one(cpu, &single, &error);
    Py_END_ALLOW_THREADS;
    if (code != SQ_OK)
        return core_raise(core_state_of(module), &error);
    figures = PyDict_New();
#define CALIBRATE_PUT(name)                                                            \
    if (figures != NULL && calibrate_put(figures, #name, single.name) < 0)             \
        Py_CLEAR(figures);
    SQ_CALIBRATE_SINGLE(CALIBRATE_PUT)
#undef CALIBRATE_PUT
    return figures;
}

static PyObject *calibrate_two(PyObject *module, PyObject *arguments)
{
    struct sq_calibrate_pair pair = {0};
    struct sq_error error;
    unsigned int cpu, other;
    PyObject *figures;
    int code;
    if (!PyArg_ParseTuple(arguments, "II:calibrate_two", &cpu, &other))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    code = sq_calibrate_two(cpu, other, &pair, &error);
    Py_END_ALLOW_THREADS;
    if (code != SQ_OK)
        return core_raise(core_state_of(module), &error);
    figures = PyDict_New();
#define CALIBRATE_PUT(name)                                                            \
    if (figures != NULL && calibrate_put(figures, #name, pair.name) < 0)               \
        Py_CLEAR(figures);
    SQ_CALIBRATE_PAIR(CALIBRATE_PUT)
#undef CALIBRATE_PUT
    return figures;
}

static PyObject *calibrate_lock(PyObject *module, PyObject *list)
{
    uint32_t cpus[SQ_CALIBRATE_LOCKERS_MAX];
    struct sq_error error;
    Py_ssize_t count;
    double ns = 0;
    int code;
    if (!PyList_Check(list))
        return PyErr_Format(PyExc_TypeError, "CPUs: accepted is a list");
    count = PyList_Size(list);
    if (count < 2 || count > (Py_ssize_t)SQ_CALIBRATE_LOCKERS_MAX)
        return PyErr_Format(core_state_of(module)->parameter_error,
                            "%zd CPUs want a lock: accepted are 2 to %d", count,
                            (int)SQ_CALIBRATE_LOCKERS_MAX);
    for (Py_ssize_t i = 0; i < count; i++) {
        unsigned long cpu = PyLong_AsUnsignedLong(PyList_GetItem(list, i));
        if (PyErr_Occurred())
            return NULL;
        cpus[i] = cpu > UINT32_MAX ? UINT32_MAX : (uint32_t)cpu;
    }
    Py_BEGIN_ALLOW_THREADS;
    code = sq_calibrate_lock(cpus, (size_t)count, &ns, &error);
    Py_END_ALLOW_THREADS;
    return code == SQ_OK ? PyFloat_FromDouble(ns)
                         : core_raise(core_state_of(module), &error);
}

static PyMethodDef calibrate_functions[] = {
    {"calibrate_chase", calibrate_chase, METH_VARARGS, NULL},
    {"calibrate_one", calibrate_one, METH_VARARGS, NULL},
    {"calibrate_two", calibrate_two, METH_VARARGS, NULL},
    {"calibrate_lock", calibrate_lock, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

int core_add_calibrate(PyObject *module)
{
    return PyModule_AddFunctions(module, calibrate_functions);
}
