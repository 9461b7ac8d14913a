/*
 * Making a native machine: nodes as arenas of real memory, virtual CPUs that threads
 * become. Policies do not include this; they see machine.h.
 */
#ifndef SQ_NATIVE_MACHINE_H
#define SQ_NATIVE_MACHINE_H

#include "base/sq_json.h"
#include "machine/machine_base.h"

/* Make a machine of `config` (its topology need not be finished). 0, or an error code
 * with a message; *machine is then untouched. */
int sq_native_machine_create(const struct sq_machine_config *config,
                             sq_machine **machine, struct sq_error *error);

/* One JSON object: topology, fallback order, memory by node, and the time that each line
 * costs from each node to each node beyond the host's own (the effective cost table). */
void sq_native_machine_describe(sq_machine *machine, struct sq_json *json);

#endif
