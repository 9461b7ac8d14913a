/*
 * The simulated machine.
 *
 *   region  |-- shared --|-- frames --|-- node 0 --|-- node 1 --| ...   one reservation
 *   lines   one 8-byte entry for each 64 bytes of it, touched on first use
 *
 * All that decides anything is an offset in the region, a clock, or a number of a CPU,
 * so a run is the same wherever the host puts the region.
 *
 * Who runs: every CPU of a run is a fiber chain (its scheduler's loop and its tasks),
 * of which `running` is the one that goes on. `queue` holds the runnable CPUs but for
 * the current one. A CPU that must wait leaves the queue until somebody calls
 * sim_unblock.
 */
#define SQ_MACHINE_SIM 1
#include "machine/address_space.h"
#include "machine/sim_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "machine/pages.h"
#include "machine/sim_machine.h"

/* Without another CPU in sight, a CPU still looks up after so much of its time. */
#define LOOKAHEAD_PS UINT64_C(100000000)
#define TICK_NS      UINT64_C(20000000) /* of the host's clock */
/* How far a CPU that can be preempted runs ahead of the others while it works. */
#define PREEMPT_STEP_PS UINT64_C(100000)

/* ---- the queue of CPUs: a binary heap of clock << 8 | CPU ---- */

static uint64_t sim_key(const struct sq_sim_cpu *cpu)
{
    return cpu->now_ps << 8 | cpu->base.index;
}

/* Let the entry at `i` sink to its place. */
static void queue_sink(struct sim_machine *machine, uint32_t i)
{
    uint64_t *queue = machine->queue, key = queue[i];
    uint32_t count = machine->queued_count;
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= count)
            break;
        if (child + 1 < count && queue[child + 1] < queue[child])
            child++;
        if (queue[child] >= key)
            break;
        queue[i] = queue[child];
        i = child;
    }
    queue[i] = key;
}

static void queue_push(struct sim_machine *machine, uint64_t key)
{
    uint32_t i = machine->queued_count++;
    uint64_t *queue = machine->queue;
    while (i > 0 && queue[(i - 1) / 2] > key) {
        queue[i] = queue[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    queue[i] = key;
}

static struct sq_sim_cpu *queue_pop(struct sim_machine *machine)
{
    uint64_t key = machine->queue[0];
    machine->queue[0] = machine->queue[--machine->queued_count];
    if (machine->queued_count > 0)
        queue_sink(machine, 0);
    return &machine->cpus[key & 0xFF];
}

/* ---- switching between CPUs ---- */

/* How far this CPU may go before it looks up: to the clock of the next one; of equal
 * clocks the lower number is first. */
static void sim_set_horizon(struct sim_machine *machine, struct sq_sim_cpu *cpu)
{
    uint64_t horizon_ps = cpu->now_ps + LOOKAHEAD_PS;
    if (machine->queued_count > 0) {
        uint64_t next_ps = machine->queue[0] >> 8;
        bool is_later = (machine->queue[0] & 0xFF) < cpu->base.index;
        if (next_ps - is_later < horizon_ps)
            horizon_ps = next_ps - is_later;
    }
    cpu->horizon_ps = horizon_ps;
    cpu->strict_ps = machine->costs.strict ? horizon_ps : UINT64_MAX;
}

/* A sleeper whose time has come is awake. */
static void sim_become(struct sim_machine *machine, struct sq_sim_cpu *to)
{
    if (to->sleeps_until_ps != 0) {
        to->now_ps = sq_max_u64(to->now_ps, to->sleeps_until_ps);
        to->sleeps_until_ps = 0;
        to->is_blocked = to->is_idle = false;
    }
    machine->current = to;
    sim_set_horizon(machine, to);
}

static void sim_switch(struct sim_machine *machine, struct sq_sim_cpu *from,
                       struct sq_sim_cpu *to)
{
    sim_become(machine, to);
    if (from != to)
        sq_fiber_switch(from->running, to->running);
}

static uint64_t host_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* If it is time by the host's clock, go back to its thread for a tick. This CPU goes on
 * afterwards whatever the clocks of others are, so a tick changes nothing of the run. */
void sim_look_at_host(struct sq_sim_cpu *cpu)
{
    struct sim_machine *machine = cpu->sim;
    if (host_now_ns() < machine->tick_at_ns)
        return;
    machine->ticking = cpu;
    sq_fiber_switch(cpu->running, machine->main_fiber);
}

/* The clock has passed the next CPU's: let it run. */
void sq_sim_order(struct sq_sim_cpu *cpu)
{
    struct sim_machine *machine = cpu->sim;
    if (!machine->is_running)
        return;
    if (++machine->order_count % 4096 == 0)
        sim_look_at_host(cpu);
    if (machine->queued_count > 0 && machine->queue[0] < sim_key(cpu)) {
        struct sq_sim_cpu *next = &machine->cpus[machine->queue[0] & 0xFF];
        machine->queue[0] = sim_key(cpu);
        queue_sink(machine, 0);
        sim_switch(machine, cpu, next);
    } else {
        sim_set_horizon(machine, cpu);
    }
}

void sim_block(struct sq_sim_cpu *cpu)
{
    struct sim_machine *machine = cpu->sim;
    cpu->is_blocked = true;
    if (machine->queued_count > 0) {
        sim_switch(machine, cpu, queue_pop(machine));
    } else {
        machine->current = NULL;
        sq_fiber_switch(cpu->running, machine->main_fiber);
    }
}

/* Waiting with a time limit is being in the queue at the limit; its clock stays behind.
 */
void sim_sleep(struct sq_sim_cpu *cpu, uint64_t until_ps)
{
    struct sim_machine *machine = cpu->sim;
    cpu->is_blocked = true;
    cpu->sleeps_until_ps = until_ps;
    queue_push(machine, until_ps << 8 | cpu->base.index);
    sim_switch(machine, cpu, queue_pop(machine));
}

/* Take a sleeper that is woken before its time out of the queue. */
static void queue_remove(struct sim_machine *machine, uint64_t key)
{
    uint32_t count = machine->queued_count, i = 0;
    while (i < count && machine->queue[i] != key)
        i++;
    SQ_ASSERT(i < count);
    machine->queued_count = 0;
    for (uint32_t k = 0; k < count; k++)
        if (k != i)
            queue_push(machine, machine->queue[k]);
}

void sim_unblock(struct sq_sim_cpu *cpu, uint64_t at_ps)
{
    struct sim_machine *machine = cpu->sim;
    SQ_ASSERT(cpu->is_blocked);
    if (cpu->sleeps_until_ps != 0)
        queue_remove(machine, cpu->sleeps_until_ps << 8 | cpu->base.index);
    cpu->sleeps_until_ps = 0;
    cpu->is_blocked = cpu->is_idle = false;
    cpu->now_ps = sq_max_u64(cpu->now_ps, at_ps);
    queue_push(machine, sim_key(cpu));
    if (machine->current != NULL)
        sim_set_horizon(machine, machine->current);
}

void sim_kick_spinner(struct sq_sim_cpu *cpu, uint64_t at_ps)
{
    if (cpu->is_spinning && cpu->is_blocked)
        sim_unblock(cpu, at_ps);
}

void sim_run_begin(struct sim_machine *machine, struct sq_fiber *main_fiber)
{
    uint64_t start_ps;
    uint32_t cpu_count = machine->base.topology.cpu_count;
    (void)pthread_mutex_lock(&machine->mutex);
    start_ps = machine->latest_ps;
    for (uint32_t i = 0; i < cpu_count; i++)
        start_ps = sq_max_u64(start_ps, machine->cpus[i].now_ps);
    machine->is_running = true;
    machine->main_fiber = main_fiber;
    machine->queued_count = 0;
    for (uint32_t i = 0; i < cpu_count; i++) {
        struct sq_sim_cpu *cpu = &machine->cpus[i];
        cpu->now_ps = cpu->scope_since_ps = start_ps;
        cpu->is_active = true;
        cpu->is_blocked = cpu->is_idle = false;
        queue_push(machine, sim_key(cpu));
    }
}

bool sim_run_continue(struct sim_machine *machine)
{
    struct sq_sim_cpu *next = machine->ticking;
    if (next == NULL && machine->queued_count == 0)
        return false;
    machine->tick_at_ns = host_now_ns() + TICK_NS;
    if (next == NULL) {
        next = queue_pop(machine);
        sim_become(machine, next);
    }
    machine->ticking = NULL;
    sq_fiber_switch(machine->main_fiber, next->running);
    return machine->ticking != NULL || machine->queued_count > 0;
}

void sim_run_end(struct sim_machine *machine)
{
    machine->is_running = false;
    machine->current = NULL;
    machine->main_fiber = NULL;
    machine->queued_count = 0;
    for (uint32_t i = 0; i < machine->base.topology.cpu_count; i++) {
        struct sq_sim_cpu *cpu = &machine->cpus[i];
        sq_sim_book(cpu);
        machine->latest_ps = sq_max_u64(machine->latest_ps, cpu->now_ps);
        cpu->horizon_ps = cpu->strict_ps = UINT64_MAX;
        cpu->slice_end_ps = cpu->preempt_at_ps = UINT64_MAX;
        cpu->running = NULL;
        cpu->is_active = cpu->is_blocked = cpu->is_idle = false;
        cpu->scopes.depth = 0;
    }
    (void)pthread_mutex_unlock(&machine->mutex);
}

/* ---- events ---- */

bool sq_sim_fault(sq_cpu *cpu, int64_t ppm)
{
    return (int64_t)sq_rng_below(&sq_sim_of(cpu)->sim->rng, 1000000) < ppm;
}

/* A point where the order of CPUs matters: those behind come first. */
void sq_sim_event(struct sq_sim_cpu *cpu, enum sim_event event)
{
    struct sim_machine *machine = cpu->sim;
    uint64_t mix;
    sq_sim_preempt_point(cpu);
    if (machine->costs.jitter_ps > 0)
        cpu->now_ps +=
            sq_rng_below(&machine->rng, (uint64_t)machine->costs.jitter_ps + 1);
    if (cpu->now_ps > cpu->horizon_ps)
        sq_sim_order(cpu);
    mix = cpu->now_ps ^ (uint64_t)cpu->base.index << 56 ^ (uint64_t)event << 48;
    machine->fingerprint =
        sq_rng_rotate(machine->fingerprint ^ mix, 29) * UINT64_C(0x9E3779B97F4A7C15);
}

/* Time passes up to the next moment at which a task of higher priority may come, by a
 * timer or from another CPU; then that one has the CPU first. */
void sq_sim_charge_preemptibly(struct sq_sim_cpu *cpu, uint64_t ps)
{
    while (ps > 0) {
        uint64_t step_ps = ps;
        if (cpu->now_ps > cpu->horizon_ps)
            sq_sim_order(cpu);
        sq_sim_preempt_point(cpu);
        if (cpu->now_ps < cpu->preempt_at_ps)
            step_ps = sq_min_u64(step_ps, cpu->preempt_at_ps - cpu->now_ps);
        step_ps = sq_min_u64(step_ps, PREEMPT_STEP_PS);
        cpu->now_ps += step_ps;
        ps -= step_ps;
    }
    sq_sim_preempt_point(cpu);
}

void sim_spend(struct sq_sim_cpu *cpu, enum sq_scope scope, int64_t ps)
{
    sq_sim_scope_enter(&cpu->base, scope);
    cpu->now_ps += (uint64_t)ps;
    sq_sim_scope_leave(&cpu->base, scope);
}

/* ---- requests between CPUs ---- */

void sq_sim_take_request(struct sq_sim_cpu *cpu)
{
    sq_cpu_function *function = cpu->request_function;
    if (cpu->base.mutex_count > 0)
        return; /* taken when the last of them is let go */
    cpu->request_function = NULL;
    function(&cpu->base, cpu->request_argument);
    cpu->sim->request_is_done = true;
}

/* Run `function` as a CPU that takes no part in a run (any more), on its clock. The
 * calling fiber is that CPU meanwhile, so it may wait for a lock. */
static void sim_run_as(struct sq_sim_cpu *cpu, struct sq_sim_cpu *target,
                       sq_cpu_function *function, void *argument)
{
    struct sim_machine *machine = cpu->sim;
    struct sq_fiber *running = target->running;
    target->running = cpu->running;
    target->now_ps = sq_max_u64(target->now_ps, cpu->now_ps);
    target->scope_since_ps = target->now_ps;
    if (machine->is_running)
        machine->current = target;
    function(&target->base, argument);
    sq_sim_book(target);
    cpu->now_ps = sq_max_u64(cpu->now_ps, target->now_ps);
    target->running = running;
    if (machine->is_running) {
        machine->current = cpu;
        sim_set_horizon(machine, cpu);
    }
}

/* Have `function` run as `target`, which does so at its next safe point. */
static void sim_request(struct sq_sim_cpu *cpu, struct sq_sim_cpu *target,
                        sq_cpu_function *function, void *argument)
{
    sq_sim_charge(cpu, cpu->costs->ipi_ps);
    sq_sim_event(cpu, SIM_EVENT_REQUEST);
    if (!target->is_active) {
        sim_run_as(cpu, target, function, argument);
        return;
    }
    cpu->sim->request_is_done = false;
    target->request_argument = argument;
    target->request_function = function;
    if (target->is_idle)
        sim_unblock(target, cpu->now_ps + (uint64_t)cpu->costs->idle_exit_ps);
    sim_kick_spinner(target, cpu->now_ps);
    while (!cpu->sim->request_is_done)
        sq_cpu_relax(&cpu->base);
}

void sq_on_each_cpu(sq_cpu *base, sq_cpu_function *function, void *argument)
{
    struct sq_sim_cpu *cpu = sq_sim_of(base);
    struct sim_machine *machine = cpu->sim;
    SQ_ASSERT(base->irq_depth == 0 && base->held_count == 0);
    sq_scope_enter(base, IRQ_WAIT);
    while (machine->request_busy)
        sq_cpu_relax(base);
    machine->request_busy = true;
    for (uint32_t i = 0; i < machine->base.topology.cpu_count; i++) {
        if (i == base->index)
            function(base, argument);
        else
            sim_request(cpu, &machine->cpus[i], function, argument);
    }
    machine->request_busy = false;
    sq_scope_leave(base, IRQ_WAIT);
}

/* ---- the control plane ---- */

static sq_cpu *sim_cpu_at(sq_machine *machine, uint32_t index)
{
    SQ_ASSERT(index < machine->topology.cpu_count);
    return &sim_of(machine)->cpus[index].base;
}

/* Outside a run: what this CPU does comes after what the last one did. One host thread
 * at a time, which is no other CPU meanwhile. */
static sq_cpu *sim_cpu_enter(sq_machine *base, uint32_t index)
{
    struct sim_machine *machine = sim_of(base);
    struct sq_sim_cpu *cpu = sq_sim_of(sim_cpu_at(base, index));
    (void)pthread_mutex_lock(&machine->mutex);
    cpu->now_ps = sq_max_u64(cpu->now_ps, machine->latest_ps);
    cpu->scope_since_ps = cpu->now_ps;
    return &cpu->base;
}

static void sim_cpu_leave(sq_cpu *base)
{
    struct sq_sim_cpu *cpu = sq_sim_of(base);
    SQ_ASSERT(base->irq_depth == 0 && base->held_count == 0);
    cpu->sim->latest_ps = sq_max_u64(cpu->sim->latest_ps, cpu->now_ps);
    (void)pthread_mutex_unlock(&cpu->sim->mutex);
}

static bool sim_profile(sq_machine *base, uint64_t *scope_ps, bool restart)
{
    struct sim_machine *machine = sim_of(base);
    memset(scope_ps, 0, sizeof(*scope_ps) * SQ_SCOPE_COUNT);
    for (uint32_t i = 0; i < base->topology.cpu_count; i++) {
        struct sq_sim_cpu *cpu = &machine->cpus[i];
        for (uint32_t k = 0; k < SQ_SCOPE_COUNT; k++) {
            scope_ps[k] += cpu->scope_ps[k];
            if (restart)
                cpu->scope_ps[k] = 0;
        }
    }
    return true;
}

static void sim_lines(const sq_machine *base,
                      struct sq_line_stats (*stats)[SQ_LINE_KIND_COUNT])
{
    const struct sim_machine *machine = sim_of(base);
    memcpy(stats, machine->line_stats, sizeof(machine->line_stats));
}

static uint64_t sim_fingerprint(const sq_machine *machine)
{
    return sim_of(machine)->fingerprint;
}

static void sim_destroy(sq_machine *base)
{
    struct sim_machine *machine = sim_of(base);
    if (base->region != NULL)
        (void)munmap(base->region, base->region_bytes);
    if (machine->lines != NULL)
        (void)munmap(machine->lines, base->region_bytes / SQ_LINE_SIZE * 8);
    sim_caches_free(machine);
    (void)pthread_mutex_destroy(&machine->mutex);
    free(machine->cpus);
    free(machine);
}

static const struct sq_machine_ops sim_ops = {
    .cpu_enter = sim_cpu_enter,
    .cpu_leave = sim_cpu_leave,
    .cpu_at = sim_cpu_at,
    .pages_alloc = sq_pages_alloc,
    .pages_free = sq_pages_free,
    .meta_alloc = sq_meta_alloc,
    .meta_free = sq_meta_free,
    .pages_in_use = sq_pages_in_use,
    .profile = sim_profile,
    .lines = sim_lines,
    .fingerprint = sim_fingerprint,
    .destroy = sim_destroy,
};

/* ---- making ---- */

static int sim_make_cpus(struct sim_machine *machine, uint64_t seed,
                         struct sq_error *error)
{
    sq_machine *base = &machine->base;
    machine->cpus = calloc(base->topology.cpu_count, sizeof(*machine->cpus));
    if (machine->cpus == NULL)
        return sq_error_set(error, SQ_E_MEMORY, "the host has no memory for %u CPUs",
                            base->topology.cpu_count);
    sq_rng_seed(&machine->rng, seed ^ UINT64_C(0x51B0C0DE));
    for (uint32_t i = 0; i < base->topology.cpu_count; i++) {
        struct sq_sim_cpu *cpu = &machine->cpus[i];
        cpu->base.machine = base;
        cpu->base.index = i;
        cpu->base.node = base->topology.node_of_cpu[i];
        sq_rng_seed(&cpu->base.rng, seed * UINT64_C(0x9E3779B97F4A7C15) + i);
        cpu->sim = machine;
        cpu->region = base->region;
        cpu->region_bytes = base->region_bytes;
        cpu->lines = machine->lines;
        cpu->horizon_ps = cpu->strict_ps = cpu->slice_end_ps = UINT64_MAX;
        cpu->preempt_at_ps = UINT64_MAX;
    }
    return SQ_OK;
}

int sq_sim_machine_create(const struct sq_machine_config *config,
                          const struct sq_sim_parameter *parameters,
                          size_t parameter_count, sq_machine **result,
                          struct sq_error *error)
{
    struct sim_machine *machine = calloc(1, sizeof(*machine));
    int code;
    if (machine == NULL)
        return sq_error_set(error, SQ_E_MEMORY, "the host has no memory for a machine");
    (void)pthread_mutex_init(&machine->mutex, NULL);
    machine->base.ops = &sim_ops;
    machine->base.engine = "sim";
    machine->base.topology = config->topology;
    machine->base.node_bytes = config->node_bytes;
    code = sq_topology_finish(&machine->base.topology, error);
    if (code == SQ_OK)
        code = sq_node_bytes_check(config->node_bytes, error);
    if (code == SQ_OK)
        code = sq_sim_costs_set(&machine->costs, parameters, parameter_count, error);
    if (code == SQ_OK)
        code = sim_memory_reserve(machine, error);
    if (code == SQ_OK)
        code = sim_make_cpus(machine, config->seed, error);
    if (code == SQ_OK)
        code = sim_caches_make(machine, error);
    if (code == SQ_OK) {
        machine->base.pages = sq_pages_create(&machine->base, config->pcp_order_max);
        if (machine->base.pages == NULL)
            code = sq_error_set(error, SQ_E_MEMORY,
                                "the host has no memory for the page lists of %u CPUs",
                                config->topology.cpu_count);
    }
    if (code != SQ_OK) {
        sim_destroy(&machine->base);
        return code;
    }
    *result = &machine->base;
    return SQ_OK;
}

/* ---- describing ---- */

static void describe_tables(const struct sim_machine *machine, struct sq_json *json)
{
    uint32_t domains = machine->domain_count;
    uint32_t nodes = machine->base.topology.node_count;
    sq_json_open_array(json, "transfer_ps"); /* [taking domain][giving domain] */
    for (uint32_t to = 0; to < domains; to++) {
        sq_json_open_array(json, NULL);
        for (uint32_t from = 0; from < domains; from++)
            sq_json_unsigned(json, NULL, machine->transfer_ps[to * domains + from]);
        sq_json_close(json);
    }
    sq_json_close(json);
    sq_json_open_array(json, "memory_ps"); /* [asking node][home node] */
    for (uint32_t from = 0; from < nodes; from++) {
        sq_json_open_array(json, NULL);
        for (uint32_t to = 0; to < nodes; to++)
            sq_json_unsigned(json, NULL, machine->memory_ps[from][to]);
        sq_json_close(json);
    }
    sq_json_close(json);
}

void sq_sim_machine_describe(const sq_machine *base, struct sq_json *json)
{
    const struct sim_machine *machine = sim_of(base);
    const struct sq_topology *topology = &base->topology;
    sq_json_open_object(json, NULL);
    sq_json_string(json, "engine", base->engine);
    sq_json_unsigned(json, "cpus", topology->cpu_count);
    sq_json_unsigned(json, "nodes", topology->node_count);
    sq_json_unsigned(json, "node_bytes", base->node_bytes);
    sq_json_open_array(json, "fallback");
    for (uint32_t node = 0; node < topology->node_count; node++) {
        sq_json_open_array(json, NULL);
        for (uint32_t i = 0; i < topology->node_count; i++)
            sq_json_unsigned(json, NULL, topology->fallback[node][i]);
        sq_json_close(json);
    }
    sq_json_close(json);
    sq_json_open_array(json, "bytes_in_use");
    for (uint32_t node = 0; node < topology->node_count; node++)
        sq_json_unsigned(json, NULL,
                         sq_pages_in_use((sq_machine *)(uintptr_t)base, node) *
                             SQ_PAGE_SIZE);
    sq_json_close(json);
    sq_json_open_object(json, "parameters");
    sq_sim_costs_describe(&machine->costs, json);
    sq_json_close(json);
    describe_tables(machine, json);
    sq_json_close(json);
}

uint64_t sq_sim_machine_now_ps(const sq_machine *base)
{
    return sim_of(base)->latest_ps;
}

uint64_t sq_sim_machine_accesses(const sq_machine *base)
{
    const struct sim_machine *machine = sim_of(base);
    uint64_t count = 0;
    for (uint32_t i = 0; i < base->topology.cpu_count; i++)
        count += machine->cpus[i].access_count;
    return count;
}
