/*
 * The parameters of a simulated machine by name, its caches and interconnects, and what
 * an access costs that its core's L1 cannot serve. See sim_cost.h.
 */
#define SQ_MACHINE_SIM 1
#include "machine/sim_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/sq_json.h"

/* ---- parameters ---- */

struct parameter_row {
    const char *name;
    int64_t value, minimum, maximum;
    const char *help;
    size_t offset;
};

#define PARAMETER_ROW(name, value, minimum, maximum, help)                             \
    {#name, value, minimum, maximum, help, offsetof(struct sq_sim_costs, name)},
#define SCOPE_ROW(name, parameter, text, cycles, source)                               \
    {#parameter "_cycles",                                                             \
     cycles,                                                                           \
     0,                                                                                \
     1000000,                                                                          \
     "instructions of " text "; " source,                                              \
     offsetof(struct sq_sim_costs, scope_cycles) + sizeof(int64_t) * SQ_SCOPE_##name},

static const struct parameter_row rows[] = {SQ_SIM_PARAMETERS(PARAMETER_ROW)
                                                SQ_SCOPES(SCOPE_ROW)};

static int64_t *parameter_field(struct sq_sim_costs *costs,
                                const struct parameter_row *row)
{
    return (int64_t *)(void *)((char *)costs + row->offset);
}

bool sq_sim_parameter_at(size_t n, const char **name, int64_t *value, int64_t *minimum,
                         int64_t *maximum, const char **help)
{
    if (n >= SQ_ARRAY_COUNT(rows))
        return false;
    *name = rows[n].name;
    *value = rows[n].value;
    *minimum = rows[n].minimum;
    *maximum = rows[n].maximum;
    *help = rows[n].help;
    return true;
}

static int parameter_set(struct sq_sim_costs *costs,
                         const struct sq_sim_parameter *given, struct sq_error *error)
{
    for (size_t i = 0; i < SQ_ARRAY_COUNT(rows); i++) {
        if (strcmp(rows[i].name, given->name) != 0)
            continue;
        if (given->value < rows[i].minimum || given->value > rows[i].maximum)
            return sq_error_set(
                error, SQ_E_PARAMETER,
                "machine parameter %s is %lld: accepted are %lld to %lld", given->name,
                (long long)given->value, (long long)rows[i].minimum,
                (long long)rows[i].maximum);
        *parameter_field(costs, &rows[i]) = given->value;
        return SQ_OK;
    }
    return sq_error_set(error, SQ_E_PARAMETER,
                        "machine parameter %.60s is unknown: `slabq show machine NAME` "
                        "prints all that are accepted",
                        given->name);
}

int sq_sim_costs_set(struct sq_sim_costs *costs, const struct sq_sim_parameter *given,
                     size_t count, struct sq_error *error)
{
    for (size_t i = 0; i < SQ_ARRAY_COUNT(rows); i++)
        *parameter_field(costs, &rows[i]) = rows[i].value;
    for (size_t i = 0; i < count; i++) {
        int code = parameter_set(costs, &given[i], error);
        if (code != SQ_OK)
            return code;
    }
    for (size_t i = 0; i < SQ_ARRAY_COUNT(rows); i++) {
        if (*parameter_field(costs, &rows[i]) < 0)
            return sq_error_set(error, SQ_E_PARAMETER,
                                "machine parameter %s is missing (%s): accepted are "
                                "%lld to %lld",
                                rows[i].name, rows[i].help, (long long)rows[i].minimum,
                                (long long)rows[i].maximum);
    }
    return SQ_OK;
}

void sq_sim_costs_describe(const struct sq_sim_costs *costs, struct sq_json *json)
{
    for (size_t i = 0; i < SQ_ARRAY_COUNT(rows); i++)
        sq_json_integer(
            json, rows[i].name,
            *(const int64_t *)(const void *)((const char *)costs + rows[i].offset));
}

/* ---- the shape of the caches ---- */

static uint32_t core_of_cpu(const struct sim_machine *machine, uint32_t cpu)
{
    return cpu % machine->core_count;
}

/* Threads of a core share its domain and node; whatever the topology says must agree.
 */
static int caches_check(const struct sim_machine *machine, struct sq_error *error)
{
    const struct sq_topology *topology = &machine->base.topology;
    if (topology->cpu_count % (uint32_t)machine->costs.threads_per_core != 0)
        return sq_error_set(error, SQ_E_PARAMETER,
                            "machine parameter threads_per_core is %lld: accepted are "
                            "divisors of the %u CPUs",
                            (long long)machine->costs.threads_per_core,
                            topology->cpu_count);
    for (uint32_t i = machine->core_count; i < topology->cpu_count; i++) {
        uint32_t first = core_of_cpu(machine, i);
        if (topology->llc_of_cpu[i] != topology->llc_of_cpu[first] ||
            topology->node_of_cpu[i] != topology->node_of_cpu[first])
            return sq_error_set(
                error, SQ_E_PARAMETER,
                "CPUs %u and %u are threads of one core (machine "
                "parameter threads_per_core is %lld) but differ in node "
                "or last-level cache",
                first, i, (long long)machine->costs.threads_per_core);
    }
    return SQ_OK;
}

/* A cost given at distances 10, 20 and 30, in between and beyond on straight lines. */
static uint64_t by_distance(uint32_t distance, int64_t local, int64_t hop1,
                            int64_t hop2)
{
    int64_t from = distance <= 20 ? local : hop1;
    int64_t to = distance <= 20 ? hop1 : hop2;
    int64_t step = (int64_t)distance - (distance <= 20 ? 10 : 20);
    int64_t ps = from + (to - from) * step / 10;
    return ps > 0 ? (uint64_t)ps : 0;
}

static uint64_t transfer_between(const struct sim_machine *machine, uint32_t to,
                                 uint32_t from)
{
    const struct sq_sim_costs *costs = &machine->costs;
    const struct sim_domain *a = &machine->domains[to], *b = &machine->domains[from];
    if (to == from)
        return (uint64_t)costs->core_transfer_ps;
    if (a->socket == b->socket)
        return (uint64_t)costs->socket_transfer_ps;
    if (a->node == b->node)
        return (uint64_t)costs->hop1_transfer_ps;
    return by_distance(machine->base.topology.distance[a->node][b->node],
                       costs->socket_transfer_ps, costs->hop1_transfer_ps,
                       costs->hop2_transfer_ps);
}

static void caches_fill_tables(struct sim_machine *machine)
{
    const struct sq_topology *topology = &machine->base.topology;
    const struct sq_sim_costs *costs = &machine->costs;
    for (uint32_t i = 0; i < topology->cpu_count; i++) {
        struct sim_core *core = &machine->cores[core_of_cpu(machine, i)];
        struct sim_domain *domain = &machine->domains[topology->llc_of_cpu[i]];
        domain->node = core->node = topology->node_of_cpu[i];
        core->domain = topology->llc_of_cpu[i];
        domain->socket = core->socket =
            core->domain / (uint32_t)costs->domains_per_socket;
    }
    for (uint32_t to = 0; to < machine->domain_count; to++)
        for (uint32_t from = 0; from < machine->domain_count; from++)
            machine->transfer_ps[to * machine->domain_count + from] =
                transfer_between(machine, to, from);
    for (uint32_t from = 0; from < topology->node_count; from++)
        for (uint32_t to = 0; to < topology->node_count; to++)
            machine->memory_ps[from][to] =
                by_distance(topology->distance[from][to], costs->dram_local_ps,
                            costs->dram_hop1_ps, costs->dram_hop2_ps);
}

/* What a CPU needs for an access that hits its core's L1. */
static void caches_fill_cpu(struct sim_machine *machine, struct sq_sim_cpu *cpu)
{
    uint64_t core = core_of_cpu(machine, cpu->base.index);
    uint64_t written = SIM_MODIFIED | SIM_CONTENDED | SIM_MANY;
    cpu->core = &machine->cores[core];
    cpu->costs = &machine->costs;
    cpu->l1_hit_ps = (uint64_t)machine->costs.l1_hit_ps;
    cpu->l1_steps = (uint64_t)machine->costs.l1_lines >> SIM_CORE_STEP_SHIFT;
    cpu->hit_mask[SIM_READ] = SIM_CORE_MASK | SIM_VALID;
    cpu->hit_key[SIM_READ] = core | SIM_VALID;
    cpu->hit_mask[SIM_WRITE] = SIM_CORE_MASK | SIM_VALID | written;
    cpu->hit_key[SIM_WRITE] = core | SIM_VALID | SIM_MODIFIED;
    cpu->hit_mask[SIM_ATOMIC] = cpu->hit_mask[SIM_WRITE];
    cpu->hit_key[SIM_ATOMIC] = cpu->hit_key[SIM_WRITE];
    for (uint32_t i = 0; i < SQ_SCOPE_COUNT; i++)
        cpu->scope_cost_ps[i] =
            (uint64_t)(machine->costs.scope_cycles[i] * machine->costs.cycle_ps);
}

int sim_caches_make(struct sim_machine *machine, struct sq_error *error)
{
    const struct sq_topology *topology = &machine->base.topology;
    uint64_t llc_lines = (uint64_t)machine->costs.llc_lines;
    size_t domains;
    int code;
    machine->core_count =
        topology->cpu_count / (uint32_t)machine->costs.threads_per_core;
    machine->domain_count = topology->llc_count;
    domains = machine->domain_count;
    code = caches_check(machine, error);
    if (code != SQ_OK)
        return code;
    machine->socket_count =
        (uint32_t)sq_div_ceil(domains, (uint64_t)machine->costs.domains_per_socket);
    machine->cores = calloc(machine->core_count, sizeof(*machine->cores));
    machine->domains = calloc(domains, sizeof(*machine->domains));
    machine->bus = calloc(machine->socket_count, sizeof(*machine->bus));
    machine->transfer_ps = calloc(domains * domains, sizeof(*machine->transfer_ps));
    if (machine->cores == NULL || machine->domains == NULL || machine->bus == NULL ||
        machine->transfer_ps == NULL)
        return sq_error_set(error, SQ_E_MEMORY, "the host has no memory for %u CPUs",
                            topology->cpu_count);
    machine->llc_step_shift =
        llc_lines > SIM_LLC_STEPS ? sq_ilog2(llc_lines / SIM_LLC_STEPS) : 0;
    machine->llc_steps = llc_lines >> machine->llc_step_shift;
    machine->l2_steps = (uint64_t)machine->costs.l2_lines >> SIM_CORE_STEP_SHIFT;
    caches_fill_tables(machine);
    for (uint32_t i = 0; i < topology->cpu_count; i++)
        caches_fill_cpu(machine, &machine->cpus[i]);
    return SQ_OK;
}

void sim_caches_free(struct sim_machine *machine)
{
    free(machine->cores);
    free(machine->domains);
    free(machine->bus);
    free(machine->transfer_ps);
}

/* ---- interconnects ---- */

/*
 * Pass a line through: the time spent behind those that came before. CPUs come in not
 * quite in the order of their clocks, so what counts is the work that is left, never
 * the time at which another CPU's line will be through.
 */
static uint64_t resource_pass(struct sim_resource *resource, uint64_t now_ps,
                              int64_t line_ps)
{
    uint64_t wait_ps;
    if (line_ps == 0)
        return 0;
    if (now_ps > resource->last_ps) {
        uint64_t gone_ps = now_ps - resource->last_ps;
        resource->backlog_ps -= sq_min_u64(gone_ps, resource->backlog_ps);
        resource->last_ps = now_ps;
    }
    wait_ps = resource->backlog_ps;
    resource->backlog_ps += (uint64_t)line_ps;
    return wait_ps;
}

/* Every other socket is asked for the line, unless a filter knows better (cost 0). */
static uint64_t bus_pass(struct sim_machine *machine, const struct sq_sim_cpu *cpu)
{
    const struct sq_sim_costs *costs = &machine->costs;
    uint32_t own = cpu->core->socket;
    for (uint32_t i = 0; costs->bus_snoop_ps > 0 && i < machine->socket_count; i++)
        if (i != own)
            (void)resource_pass(&machine->bus[i], cpu->now_ps, costs->bus_snoop_ps);
    return resource_pass(&machine->bus[own], cpu->now_ps, costs->bus_line_ps);
}

void sim_spin_traffic(struct sim_machine *machine, uint64_t now_ps, uint32_t domain)
{
    (void)resource_pass(&machine->bus[machine->domains[domain].socket], now_ps,
                        machine->costs.bus_line_ps);
}

/* ---- an access beyond the L1 ---- */

/* The node whose memory a line is: frames count with the pages they describe, shared
 * lines are spread page by page. */
static uint32_t home_of_line(const struct sim_machine *machine, uint64_t line)
{
    uint64_t offset = line * SQ_LINE_SIZE;
    uint64_t arena = (uint64_t)(machine->base.arena - machine->base.region);
    if (offset >= arena)
        return (uint32_t)((offset - arena) >> machine->base.node_shift);
    if (offset >= machine->shared_bytes) {
        uint64_t frame = (offset - machine->shared_bytes) / sizeof(struct sq_page);
        uint64_t node = frame >> (machine->base.node_shift - SQ_PAGE_SHIFT);
        return (uint32_t)sq_min_u64(node, machine->base.topology.node_count - 1);
    }
    return (uint32_t)((offset >> SQ_PAGE_SHIFT) % machine->base.topology.node_count);
}

static uint64_t memory_cost(struct sim_machine *machine, const struct sq_sim_cpu *cpu,
                            uint64_t line, uint64_t *wait_ps)
{
    uint32_t node = cpu->core->node, home = home_of_line(machine, line);
    *wait_ps += bus_pass(machine, cpu);
    *wait_ps += resource_pass(&machine->memory[home], cpu->now_ps,
                              machine->costs.memory_line_ps);
    if (home != node)
        *wait_ps += resource_pass(&machine->link[home], cpu->now_ps,
                                  machine->costs.link_line_ps);
    return machine->memory_ps[node][home];
}

static uint64_t transfer_cost(struct sim_machine *machine, const struct sq_sim_cpu *cpu,
                              uint32_t from, uint64_t *wait_ps)
{
    uint32_t own = cpu->core->domain;
    *wait_ps += bus_pass(machine, cpu);
    if (machine->domains[from].node != cpu->core->node)
        *wait_ps += resource_pass(&machine->link[machine->domains[from].node],
                                  cpu->now_ps, machine->costs.link_line_ps);
    return machine->transfer_ps[own * machine->domain_count + from];
}

static bool is_in_core(const struct sim_machine *machine, uint64_t core, uint64_t entry,
                       uint64_t steps)
{
    uint64_t stamp = machine->cores[core].fill_count >> SIM_CORE_STEP_SHIFT;
    return ((stamp - (entry >> SIM_CORE_STAMP_SHIFT)) & SIM_CORE_STAMP_MASK) <= steps;
}

static uint64_t llc_stamp(const struct sim_machine *machine, uint32_t domain)
{
    return machine->domains[domain].fill_count >> machine->llc_step_shift &
           SIM_LLC_STAMP_MASK;
}

static bool is_in_llc(const struct sim_machine *machine, uint32_t domain,
                      uint64_t entry)
{
    uint64_t age = llc_stamp(machine, domain) - (entry >> SIM_LLC_STAMP_SHIFT);
    return (age & SIM_LLC_STAMP_MASK) <= machine->llc_steps;
}

/* Where the line was found. */
enum sim_found { FOUND_L1, FOUND_CORE, FOUND_DOMAIN, FOUND_BEYOND };

static uint64_t sharer_bit(uint32_t domain)
{
    return UINT64_C(1) << (SIM_SHARERS_SHIFT + domain % SIM_SHARER_COUNT);
}

/* The price of fetching a line for a read, where it is found, and the time spent behind
 * other lines on the way. */
static uint64_t fetch_cost(struct sim_machine *machine, const struct sq_sim_cpu *cpu,
                           uint64_t line, uint64_t entry, enum sim_found *found,
                           uint64_t *wait_ps)
{
    const struct sq_sim_costs *costs = &machine->costs;
    uint64_t core = entry & SIM_CORE_MASK;
    uint64_t own = (uint64_t)(cpu->core - machine->cores);
    uint32_t domain = cpu->core->domain;
    uint32_t last_domain = machine->cores[core].domain;
    *found = FOUND_BEYOND;
    if (!(entry & SIM_VALID))
        return memory_cost(machine, cpu, line, wait_ps);
    if (core == own && is_in_core(machine, core, entry, cpu->l1_steps)) {
        *found = FOUND_L1;
        return (uint64_t)costs->l1_hit_ps;
    }
    if (core == own && machine->l2_steps > 0 &&
        is_in_core(machine, core, entry, machine->l2_steps)) {
        *found = FOUND_CORE;
        return (uint64_t)costs->l2_hit_ps;
    }
    if (last_domain == domain) {
        if (!is_in_llc(machine, domain, entry))
            return memory_cost(machine, cpu, line, wait_ps);
        *found = FOUND_DOMAIN;
        if (core != own && (entry & SIM_MODIFIED) && !(entry & SIM_MANY) &&
            is_in_core(machine, core, entry, cpu->l1_steps))
            return (uint64_t)costs->core_transfer_ps;
        return (uint64_t)costs->llc_hit_ps;
    }
    if (entry & SIM_MODIFIED)
        return is_in_llc(machine, last_domain, entry)
                   ? transfer_cost(machine, cpu, last_domain, wait_ps)
                   : memory_cost(machine, cpu, line, wait_ps);
    if (entry & sharer_bit(domain)) {
        *found = FOUND_DOMAIN;
        return (uint64_t)costs->llc_hit_ps;
    }
    return memory_cost(machine, cpu, line, wait_ps);
}

/* A store of a lock's holder to the lock's line, which the waiting domains poll: it is
 * behind their reads of the line, as the next holder is at a hand-over. Then the line
 * is the holder's until the first of them has come for it. */
static uint64_t polled_line_wait(const struct sim_machine *machine,
                                 struct sq_sim_cpu *cpu, uint64_t line,
                                 enum sim_found found)
{
    uint64_t domains;
    bool is_own = found != FOUND_BEYOND && cpu->polled_line == line &&
                  cpu->now_ps < cpu->polled_until_ps;
    if (machine->costs.lock_line_is_polled == 0 || is_own)
        return 0;
    domains = sim_held_waiters(cpu, line);
    if (domains == 0)
        return 0;
    cpu->polled_line = line;
    cpu->polled_until_ps = cpu->now_ps + (uint64_t)machine->costs.hop1_transfer_ps;
    return domains * (uint64_t)machine->costs.lock_handover_per_waiter_ps;
}

/* What a store pays on top, for the copies that others hold. A line that comes from
 * beyond the domain is asked for with the right to change it, which is no extra. */
static uint64_t upgrade_cost(struct sim_machine *machine, struct sq_sim_cpu *cpu,
                             uint64_t line, uint64_t entry, enum sim_found found,
                             uint64_t *wait_ps)
{
    uint64_t others = entry & SIM_SHARERS_MASK & ~sharer_bit(cpu->core->domain);
    if (entry & SIM_CONTENDED)
        *wait_ps += polled_line_wait(machine, cpu, line, found);
    if (found == FOUND_BEYOND)
        return 0;
    if (others != 0 || (entry & SIM_CONTENDED)) {
        *wait_ps += bus_pass(machine, cpu);
        return (uint64_t)machine->costs.upgrade_ps;
    }
    return entry & SIM_MANY ? (uint64_t)machine->costs.upgrade_core_ps : 0;
}

/* The entry after the access. */
static uint64_t entry_after(struct sim_machine *machine, struct sq_sim_cpu *cpu,
                            uint64_t entry, enum sim_access access,
                            enum sim_found found)
{
    uint64_t own = (uint64_t)(cpu->core - machine->cores);
    uint32_t domain = cpu->core->domain;
    uint64_t next = own | SIM_VALID | (entry & SIM_CONTENDED) | sharer_bit(domain);
    if (found != FOUND_L1)
        cpu->core->fill_count++;
    if (found == FOUND_BEYOND)
        machine->domains[domain].fill_count++;
    if (access == SIM_READ) {
        uint32_t last_domain = machine->cores[entry & SIM_CORE_MASK].domain;
        bool same_domain = found != FOUND_BEYOND && last_domain == domain;
        /* Copies are taken to be gone together with the last one that was used. */
        if ((entry & SIM_VALID) && is_in_llc(machine, last_domain, entry))
            next |= entry & SIM_SHARERS_MASK;
        if (same_domain)
            next |= entry & (SIM_MODIFIED | SIM_MANY);
        if (same_domain && (entry & SIM_CORE_MASK) != own)
            next |= SIM_MANY;
    } else {
        next |= SIM_MODIFIED;
    }
    next |= (cpu->core->fill_count >> SIM_CORE_STEP_SHIFT & SIM_CORE_STAMP_MASK)
            << SIM_CORE_STAMP_SHIFT;
    /* A use in the L1 does not reach the LLC, whose own age goes on. */
    next |= (found == FOUND_L1 ? entry >> SIM_LLC_STAMP_SHIFT & SIM_LLC_STAMP_MASK
                               : llc_stamp(machine, domain))
            << SIM_LLC_STAMP_SHIFT;
    return next;
}

/* Does a store to a line at hand wait for others? As upgrade_cost decided. */
static bool line_is_upgraded(const struct sq_sim_cpu *cpu, uint64_t entry)
{
    uint64_t others = entry & SIM_SHARERS_MASK & ~sharer_bit(cpu->core->domain);
    return others != 0 || (entry & (SIM_CONTENDED | SIM_MANY)) != 0;
}

/* What kind of line this was; as fetch_cost decided. */
static enum sq_line_kind line_kind(const struct sim_machine *machine,
                                   const struct sq_sim_cpu *cpu, uint64_t line,
                                   uint64_t entry, enum sim_found found)
{
    uint64_t core = entry & SIM_CORE_MASK;
    const struct sim_core *last = &machine->cores[core], *own = cpu->core;
    bool is_changed = (entry & SIM_MODIFIED) && last != own;
    if (found == FOUND_DOMAIN && is_changed && !(entry & SIM_MANY) &&
        last->domain == own->domain && is_in_core(machine, core, entry, cpu->l1_steps))
        return SQ_LINE_CORE;
    if (found != FOUND_BEYOND)
        return SQ_LINE_CACHE;
    if ((entry & SIM_VALID) && is_changed && last->domain != own->domain &&
        is_in_llc(machine, last->domain, entry))
        return last->node == own->node ? SQ_LINE_OTHER_CACHE : SQ_LINE_OTHER_NODE;
    return home_of_line(machine, line) == own->node ? SQ_LINE_MEMORY
                                                    : SQ_LINE_REMOTE_MEMORY;
}

/* Book a line on the innermost scope, unless it was in the L1 and nobody else had it. A
 * line of the own caches that others had to give up counts as that. */
static void line_book(struct sim_machine *machine, const struct sq_sim_cpu *cpu,
                      uint64_t line, uint64_t entry, enum sim_access access,
                      enum sim_found found, uint64_t ps)
{
    uint32_t depth = cpu->scopes.depth;
    uint8_t scope = depth > 0 ? cpu->scopes.scope[depth - 1] : SQ_SCOPE_WORKLOAD;
    enum sq_line_kind kind = line_kind(machine, cpu, line, entry, found);
    bool is_upgraded = access != SIM_READ && line_is_upgraded(cpu, entry);
    if (found == FOUND_L1 && !is_upgraded)
        return;
    if (kind == SQ_LINE_CACHE && is_upgraded)
        kind = SQ_LINE_UPGRADE;
    machine->line_stats[scope][kind].count++;
    machine->line_stats[scope][kind].ps += ps;
}

void sq_sim_miss(struct sq_sim_cpu *cpu, uint64_t line, enum sim_access access,
                 bool is_further)
{
    struct sim_machine *machine = cpu->sim;
    uint64_t entry = cpu->lines[line];
    enum sim_found found;
    uint64_t wait_ps = 0;
    uint64_t ps = fetch_cost(machine, cpu, line, entry, &found, &wait_ps);
    if (access != SIM_READ)
        ps += upgrade_cost(machine, cpu, line, entry, found, &wait_ps);
    if (access == SIM_WRITE && ps > cpu->l1_hit_ps)
        ps = sq_max_u64(ps * (uint64_t)machine->costs.store_wait_percent / 100,
                        cpu->l1_hit_ps);
    if (found == FOUND_BEYOND) {
        if (is_further || line == cpu->last_miss + 1)
            ps = ps * (uint64_t)machine->costs.stream_percent / 100;
        cpu->last_miss = line;
    }
    line_book(machine, cpu, line, entry, access, found, ps + wait_ps);
    cpu->lines[line] = entry_after(machine, cpu, entry, access, found);
    cpu->now_ps += ps + wait_ps; /* what is in front of a line cannot be overlapped */
}

void sim_line_set_contended(struct sim_machine *machine, const void *address,
                            bool is_contended)
{
    uint64_t offset = (uintptr_t)address - (uintptr_t)machine->base.region;
    if (offset >= machine->base.region_bytes)
        return;
    if (is_contended)
        machine->lines[offset / SQ_LINE_SIZE] |= SIM_CONTENDED;
    else
        machine->lines[offset / SQ_LINE_SIZE] &= ~SIM_CONTENDED;
}
