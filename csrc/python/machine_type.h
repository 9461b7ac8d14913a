/* The heap types Machine and SimMachine: machines of the two engines. */
#ifndef SQ_MACHINE_TYPE_H
#define SQ_MACHINE_TYPE_H

#include "machine/machine_base.h"
#include "policy/options.h"
#include "python/core_state.h"

struct core_machine {
    PyObject_HEAD sq_machine *machine;
};

/* The machine inside a Machine or SimMachine object; NULL with TypeError for any other
 * object. The caller keeps the object alive. */
sq_machine *core_machine_of(PyObject *object, struct core_state *state);

/* Become a CPU. While a run of a simulated machine goes on, which needs the GIL now and
 * then, it is waited for without the GIL. */
sq_cpu *core_wait_for_cpu(sq_machine *machine, uint32_t index);

/* Fill `topology`, not yet finished, from the arguments of a machine. 0, or -1 with an
 * exception set. */
int core_parse_topology(PyObject *node_of_cpu, PyObject *llc_of_cpu, PyObject *distance,
                        struct sq_topology *topology);

void core_machine_dealloc(PyObject *object);

/* Fill `options` from a sequence of (name, value) for `policy`. 0, or -1 with an
 * exception set. */
int core_parse_options(struct core_state *state, const char *policy, PyObject *pairs,
                       struct sq_options *options);

/* A Python string of the builder's text; frees the builder. */
struct sq_json;
PyObject *core_json_to_text(struct sq_json *json);

#endif
