/*
 * What the drivers in C share: the machine, and the words of the command line that are
 * its parameters. A driver includes it once, after machine/machine.h.
 */
#ifndef SLABQ_TESTS_DRIVER_H
#define SLABQ_TESTS_DRIVER_H

#include <stdio.h>
#include <stdlib.h>

#include "machine/sim_machine.h"

enum { DRIVER_PARAMETER_MAX = 128 };

static struct sq_sim_parameter parameters[DRIVER_PARAMETER_MAX];
static size_t parameter_count;
static sq_machine *machine;

/* End the program with the message. */
static void fail(const struct sq_error *error)
{
    (void)fprintf(stderr, "%s\n", error->message);
    exit(2);
}

/* A word that is no value of the driver's own. `name` must last. */
static void add_parameter(const char *name, const char *text)
{
    if (parameter_count == DRIVER_PARAMETER_MAX)
        exit(3);
    parameters[parameter_count++] =
        (struct sq_sim_parameter){name, strtoll(text, NULL, 10)};
}

static void create_machine(const struct sq_machine_config *config)
{
    struct sq_error error;
    if (sq_sim_machine_create(config, parameters, parameter_count, &machine, &error) !=
        SQ_OK)
        fail(&error);
}

/* So many CPUs behind one cache, on one node. */
static inline void create_flat_machine(uint32_t cpu_count)
{
    struct sq_machine_config config = {
        .node_bytes = 64u << 20, .pcp_order_max = 3, .seed = 1};
    config.topology.cpu_count = cpu_count;
    config.topology.node_count = 1;
    config.topology.distance[0][0] = 10;
    create_machine(&config);
}

#endif
