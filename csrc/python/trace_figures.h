/*
 * What is computed from a complete trace and handed to Python: the figures of stat, the
 * program of a replay, and the layout of the records. Methods of slabq._core.Trace and
 * functions of the module, for the tables in trace_type.c.
 */
#ifndef SQ_PYTHON_TRACE_FIGURES_H
#define SQ_PYTHON_TRACE_FIGURES_H

#include "base/sq_json.h"
#include "python/core_state.h"

/* The finished text of a JSON builder as a str; frees the builder. */
PyObject *core_json_to_python(struct sq_json *json);

/* stat(by_caller, keys, limit, raw_ip, node_of_cpu) -> (rows, totals, table, summary).
 * `rows` are struct sq_stat_row as bytes; `node_of_cpu` is a buffer of uint16. */
PyObject *core_trace_stat(PyObject *object, PyObject *args);

/* program(cpu_count) -> (JSON text, [events of each CPU as bytes]). For tests. */
PyObject *core_trace_program(PyObject *object, PyObject *args);

/* trace_layout(record) -> (size, [(field, offset, size), ...]) of a C record. */
PyObject *core_trace_layout(PyObject *module, PyObject *args);

#endif
