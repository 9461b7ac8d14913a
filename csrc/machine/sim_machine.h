/*
 * Making a simulated machine. Policies do not include this; they see machine.h.
 */
#ifndef SQ_SIM_MACHINE_H
#define SQ_SIM_MACHINE_H

#include "base/sq_json.h"
#include "machine/machine_base.h"
#include "machine/sim_cost.h"

/*
 * Make a machine of `config` (its topology need not be finished) with these parameters.
 * 0, or an error code with a message that names what is not accepted; *machine is then
 * untouched.
 */
int sq_sim_machine_create(const struct sq_machine_config *config,
                          const struct sq_sim_parameter *parameters,
                          size_t parameter_count, sq_machine **machine,
                          struct sq_error *error);

/* One JSON object: topology, parameters, the cost of a line from each domain and node.
 */
void sq_sim_machine_describe(const sq_machine *machine, struct sq_json *json);

/* Virtual time at which the last CPU was left, or the last run ended. */
uint64_t sq_sim_machine_now_ps(const sq_machine *machine);

/* Accesses to lines that the machine has simulated. */
uint64_t sq_sim_machine_accesses(const sq_machine *machine);

#endif
