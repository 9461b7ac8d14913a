/* The heap type Machine: a machine of the native engine. */
#ifndef SQ_MACHINE_TYPE_H
#define SQ_MACHINE_TYPE_H

#include "machine/machine_base.h"
#include "policy/options.h"
#include "python/core_state.h"

/* The machine inside a Machine object; NULL with TypeError for any other object. The
 * caller keeps the object alive. */
sq_machine *core_machine_of(PyObject *object, struct core_state *state);

/* Fill `options` from a sequence of (name, value) for `policy`. 0, or -1 with an
 * exception set. */
int core_parse_options(struct core_state *state, const char *policy, PyObject *pairs,
                       struct sq_options *options);

/* A Python string of the builder's text; frees the builder. */
struct sq_json;
PyObject *core_json_to_text(struct sq_json *json);

#endif
