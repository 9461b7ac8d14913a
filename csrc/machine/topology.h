/*
 * The shape of a machine: which CPU is on which node, which CPUs share a last-level
 * cache, how far the nodes are from each other.
 *
 * Distances are those of the ACPI SLIT: 10 on the diagonal, 11 to 255 elsewhere; they
 * need not be symmetric. `fallback` is, for each node, the order in which memory is
 * looked for: nearest first; of equally near nodes the one with the higher number than
 * the asking node before a lower one, then the one that fewer nodes have put in a leading
 * place (the rule of the kernel's node-ordered zone lists).
 */
#ifndef SQ_TOPOLOGY_H
#define SQ_TOPOLOGY_H

#include <stdint.h>

#include "base/sq_error.h"

#define SQ_CPU_MAX  256u
#define SQ_NODE_MAX 16u

struct sq_topology {
    uint32_t cpu_count;
    uint32_t node_count;
    uint16_t node_of_cpu[SQ_CPU_MAX];
    uint16_t llc_of_cpu[SQ_CPU_MAX]; /* last-level-cache group, counted from 0 */
    uint8_t distance[SQ_NODE_MAX][SQ_NODE_MAX];
    /* -- derived by sq_topology_finish -- */
    uint8_t fallback[SQ_NODE_MAX][SQ_NODE_MAX];
    uint16_t cpus_on_node[SQ_NODE_MAX];
    uint16_t llc_count;
};

/* Check every field and derive the rest. Returns 0 or SQ_E_PARAMETER with a message. */
int sq_topology_finish(struct sq_topology *topology, struct sq_error *error);

#endif
