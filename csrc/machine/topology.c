#include "machine/topology.h"

#include <stdbool.h>
#include <string.h>

static int topology_check_counts(const struct sq_topology *topology,
                                 struct sq_error *error)
{
    if (topology->cpu_count < 1 || topology->cpu_count > SQ_CPU_MAX)
        return sq_error_set(error, SQ_E_PARAMETER, "cpus is %u: accepted are 1 to %u",
                            topology->cpu_count, SQ_CPU_MAX);
    if (topology->node_count < 1 || topology->node_count > SQ_NODE_MAX)
        return sq_error_set(error, SQ_E_PARAMETER, "nodes is %u: accepted are 1 to %u",
                            topology->node_count, SQ_NODE_MAX);
    if (topology->node_count > topology->cpu_count)
        return sq_error_set(error, SQ_E_PARAMETER,
                            "nodes is %u with %u cpus: accepted are at most as many "
                            "nodes as cpus",
                            topology->node_count, topology->cpu_count);
    return SQ_OK;
}

static int topology_check_distances(const struct sq_topology *topology,
                                    struct sq_error *error)
{
    for (uint32_t from = 0; from < topology->node_count; from++) {
        for (uint32_t to = 0; to < topology->node_count; to++) {
            uint32_t distance = topology->distance[from][to];
            if (from == to && distance != 10)
                return sq_error_set(error, SQ_E_PARAMETER,
                                    "distance[%u][%u] is %u: a node is at distance 10 "
                                    "from itself",
                                    from, to, distance);
            if (from != to && distance < 11)
                return sq_error_set(error, SQ_E_PARAMETER,
                                    "distance[%u][%u] is %u: accepted between "
                                    "different nodes are 11 to 255",
                                    from, to, distance);
        }
    }
    return SQ_OK;
}

static int topology_count_cpus(struct sq_topology *topology, struct sq_error *error)
{
    memset(topology->cpus_on_node, 0, sizeof(topology->cpus_on_node));
    topology->llc_count = 0;
    for (uint32_t cpu = 0; cpu < topology->cpu_count; cpu++) {
        if (topology->node_of_cpu[cpu] >= topology->node_count)
            return sq_error_set(error, SQ_E_PARAMETER,
                                "node of cpu %u is %u: accepted are 0 to %u", cpu,
                                topology->node_of_cpu[cpu], topology->node_count - 1);
        if (topology->llc_of_cpu[cpu] >= topology->cpu_count)
            return sq_error_set(error, SQ_E_PARAMETER,
                                "last-level cache of cpu %u is %u: accepted are 0 to %u",
                                cpu, topology->llc_of_cpu[cpu],
                                topology->cpu_count - 1);
        topology->cpus_on_node[topology->node_of_cpu[cpu]]++;
        if (topology->llc_of_cpu[cpu] >= topology->llc_count)
            topology->llc_count = (uint16_t)(topology->llc_of_cpu[cpu] + 1);
    }
    return SQ_OK;
}

/*
 * The next node of `local`'s list. Compared are, in this order: distance, with one added
 * for nodes numbered below `local`; then how heavily the node is in use already as an
 * early fallback of others (`load`); then the node number.
 */
static uint32_t topology_next_node(const struct sq_topology *topology, uint32_t local,
                                   const bool *used, const uint32_t *load)
{
    uint32_t best = SQ_NODE_MAX;
    uint32_t best_rank = 0;
    for (uint32_t node = 0; node < topology->node_count; node++) {
        uint32_t rank = topology->distance[local][node] + (node < local ? 1u : 0u);
        if (used[node])
            continue;
        if (best == SQ_NODE_MAX || rank < best_rank ||
            (rank == best_rank && load[node] < load[best])) {
            best = node;
            best_rank = rank;
        }
    }
    return best;
}

static void topology_build_fallback(struct sq_topology *topology)
{
    uint32_t load[SQ_NODE_MAX] = {0};
    for (uint32_t local = 0; local < topology->node_count; local++) {
        bool used[SQ_NODE_MAX] = {false};
        uint32_t previous = local;
        for (uint32_t place = 0; place < topology->node_count; place++) {
            uint32_t node =
                place == 0 ? local : topology_next_node(topology, local, used, load);
            used[node] = true;
            topology->fallback[local][place] = (uint8_t)node;
            /* The first of each group of equally distant nodes gets the load. */
            if (topology->distance[local][node] != topology->distance[local][previous])
                load[node] += topology->node_count - place;
            previous = node;
        }
    }
}

int sq_topology_finish(struct sq_topology *topology, struct sq_error *error)
{
    int status = topology_check_counts(topology, error);
    if (status == SQ_OK)
        status = topology_check_distances(topology, error);
    if (status == SQ_OK)
        status = topology_count_cpus(topology, error);
    if (status == SQ_OK)
        topology_build_fallback(topology);
    return status;
}
