/*
 * The native machine.
 *
 *   arena   |-- node 0 --|-- node 1 --| ...   one reservation; node n starts at
 *           ^ 4 MiB aligned                   arena + (n << node_shift), so the node of
 *                                             an address is a shift away
 *   frames  one 64-byte line a page, reserved beside it and touched on first use
 *   cpus    one struct a virtual CPU; `occupied` says that a thread is it
 *
 * Requests between CPUs (sq_on_each_cpu) stand for inter-processor interrupts. The asking
 * thread publishes the request and waits; the thread that is the target runs it at its
 * next sq_irq_restore or scheduling point, and if no thread is the target the asking
 * thread becomes it for a moment and runs it itself.
 */
#define SQ_MACHINE_NATIVE 1
#include "machine/machine.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "machine/address_space.h"
#include "machine/native_machine.h"
#include "machine/pages.h"

#define SPIN_COUNT  64u         /* polls of a lock before the host CPU is given away */

const char *const sq_lock_class_name[SQ_LOCK_CLASS_COUNT] = {
#define SQ_LOCK_CLASS_TEXT(name, text) text,
    SQ_LOCK_CLASSES(SQ_LOCK_CLASS_TEXT)
#undef SQ_LOCK_CLASS_TEXT
};

struct native_machine {
    sq_machine base; /* must be first */
    uint64_t arena_bytes, frames_bytes;
    _Atomic uint32_t request_busy; /* one request of the machine at a time */
    double loops_per_ns;           /* of delay_loop; 0 when distance costs nothing */
    uint32_t delay_loops[SQ_NODE_MAX][SQ_NODE_MAX];
    uint32_t remote_delay_ns_at_20;
    struct sq_native_cpu *cpus;
};

const char *const sq_scope_name[SQ_SCOPE_COUNT] = {
#define SQ_SCOPE_TEXT(name, parameter, text, cycles, source) text,
    SQ_SCOPES(SQ_SCOPE_TEXT)
#undef SQ_SCOPE_TEXT
};

/* Nanoseconds of the monotonic clock. */
uint64_t sq_native_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline void spin_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

void sq_native_relax(void)
{
    spin_pause();
}

/* ---- memory outside the nodes ---- */

void *sq_shared_alloc(sq_machine *machine, size_t bytes)
{
    size_t total = sq_align_up(bytes, SQ_LINE_SIZE);
    void *memory = total < bytes ? NULL : aligned_alloc(SQ_LINE_SIZE, total);
    (void)machine;
    return memory == NULL ? NULL : memset(memory, 0, total);
}

void sq_shared_free(sq_machine *machine, void *memory, size_t bytes)
{
    (void)machine;
    (void)bytes;
    free(memory);
}

/* ---- locks ---- */

void sq_native_lock_wait(sq_cpu *cpu, sq_lock *lock)
{
    struct sq_lock_stats *stats = &cpu->lock_stats[lock->lock_class];
    uint64_t start_ns = sq_native_now_ns();
    uint32_t spins = 0;
    do {
        while (atomic_load_explicit(&lock->held, memory_order_relaxed) != 0) {
            if (++spins % SPIN_COUNT == 0)
                (void)sched_yield();
            else
                spin_pause();
        }
    } while (atomic_exchange_explicit(&lock->held, 1, memory_order_acquire) != 0);
    stats->contended++;
    stats->wait_ns += sq_native_now_ns() - start_ns;
}

/* ---- CPUs ---- */

static struct native_machine *native_of(sq_machine *machine)
{
    return (struct native_machine *)machine;
}

static sq_cpu *native_cpu_at(sq_machine *machine, uint32_t index)
{
    SQ_ASSERT(index < machine->topology.cpu_count);
    return &native_of(machine)->cpus[index].base;
}

static bool native_cpu_try_enter(struct sq_native_cpu *cpu)
{
    return atomic_load_explicit(&cpu->occupied, memory_order_relaxed) == 0 &&
           atomic_exchange_explicit(&cpu->occupied, 1, memory_order_acquire) == 0;
}

static sq_cpu *native_cpu_enter(sq_machine *machine, uint32_t index)
{
    struct sq_native_cpu *cpu = &native_of(machine)->cpus[index];
    uint32_t spins = 0;
    SQ_ASSERT(index < machine->topology.cpu_count);
    while (!native_cpu_try_enter(cpu)) {
        if (++spins % SPIN_COUNT == 0)
            (void)sched_yield();
        else
            spin_pause();
    }
    return &cpu->base;
}

static void native_cpu_leave(sq_cpu *cpu)
{
    struct sq_native_cpu *native = (struct sq_native_cpu *)cpu;
    SQ_ASSERT_INTERNAL(cpu->irq_depth == 0 && cpu->held_count == 0);
    sq_cpu_poll(cpu);
    atomic_store_explicit(&native->occupied, 0, memory_order_release);
}

/* Run the pending request as this CPU. Requires: the calling thread is this CPU. */
void sq_native_take_request(sq_cpu *cpu)
{
    struct sq_native_cpu *native = (struct sq_native_cpu *)cpu;
    if (atomic_load_explicit(&native->request_pending, memory_order_acquire) == 0 ||
        cpu->mutex_count > 0)
        return; /* taken when the last sleeping lock is let go */
    atomic_store_explicit(&native->request_pending, 0, memory_order_relaxed);
    native->request_function(cpu, native->request_argument);
    atomic_store_explicit(&native->request_done, 1, memory_order_release);
}

/* Have `function` run as `target`, by whoever is or becomes that CPU. */
static void native_request(sq_cpu *cpu, struct sq_native_cpu *target,
                           sq_cpu_function *function, void *argument)
{
    uint32_t spins = 0;
    target->request_function = function;
    target->request_argument = argument;
    atomic_store_explicit(&target->request_done, 0, memory_order_relaxed);
    atomic_store_explicit(&target->request_pending, 1, memory_order_release);
    while (atomic_load_explicit(&target->request_done, memory_order_acquire) == 0) {
        if (native_cpu_try_enter(target)) {
            native_cpu_leave(&target->base); /* takes the request on its way out */
            continue;
        }
        sq_cpu_poll(cpu);
        if (++spins % SPIN_COUNT == 0)
            (void)sched_yield();
        else
            spin_pause();
    }
}

void sq_on_each_cpu(sq_cpu *cpu, sq_cpu_function *function, void *argument)
{
    struct native_machine *machine = native_of(cpu->machine);
    SQ_ASSERT_INTERNAL(cpu->irq_depth == 0 && cpu->held_count == 0);
    while (atomic_exchange_explicit(&machine->request_busy, 1, memory_order_acquire)) {
        sq_cpu_poll(cpu);
        (void)sched_yield();
    }
    for (uint32_t i = 0; i < machine->base.topology.cpu_count; i++) {
        if (i == cpu->index)
            function(cpu, argument);
        else
            native_request(cpu, &machine->cpus[i], function, argument);
    }
    atomic_store_explicit(&machine->request_busy, 0, memory_order_release);
}

/* ---- distance that costs time ---- */

static void delay_loop(uint32_t loops)
{
    for (uint32_t i = 0; i < loops; i++)
        __asm__ __volatile__("" ::: "memory");
}

/* Loops of delay_loop a nanosecond: the best of several timings, since anything else that
 * runs on the host only makes a timing longer. */
static double delay_calibrate(void)
{
    const uint32_t loops = 400000;
    uint64_t best_ns = UINT64_MAX;
    for (int i = 0; i < 8; i++) {
        uint64_t start_ns = sq_native_now_ns();
        delay_loop(loops);
        best_ns = sq_min_u64(best_ns, sq_native_now_ns() - start_ns);
    }
    return (double)loops / (double)sq_max_u64(best_ns, 1);
}

void sq_native_remote_delay(sq_cpu *cpu, const void *address, size_t bytes)
{
    uintptr_t first = (uintptr_t)address / SQ_LINE_SIZE;
    uintptr_t last = ((uintptr_t)address + (bytes > 0 ? bytes - 1 : 0)) / SQ_LINE_SIZE;
    const sq_machine *machine = cpu->machine;
    uint32_t node;
    if (sq_machine_owns(machine, address)) {
        node = sq_node_of_address(machine, address);
    } else {
        /* Page frames count as memory of the node whose pages they describe. */
        uint64_t frame = ((uintptr_t)address - (uintptr_t)machine->page_frames) /
                         sizeof(struct sq_page);
        node = (uint32_t)(frame >> (machine->node_shift - SQ_PAGE_SHIFT));
        if (node >= machine->topology.node_count)
            return;
    }
    delay_loop(cpu->remote_delay_loops[node] * (uint32_t)(last - first + 1));
}

static double native_delay_ns(const struct native_machine *machine, uint32_t from,
                              uint32_t to)
{
    uint32_t distance = machine->base.topology.distance[from][to];
    return (double)machine->remote_delay_ns_at_20 * ((double)distance - 10.0) / 10.0;
}

static void native_init_delays(struct native_machine *machine)
{
    uint32_t node_count = machine->base.topology.node_count;
    machine->loops_per_ns = delay_calibrate();
    for (uint32_t from = 0; from < node_count; from++)
        for (uint32_t to = 0; to < node_count; to++)
            machine->delay_loops[from][to] =
                (uint32_t)(native_delay_ns(machine, from, to) * machine->loops_per_ns);
}

/* ---- making and ending ---- */

/* Host nodes that have a directory in sysfs; 1 when there is none. */
static uint32_t native_host_node_count(void)
{
    uint32_t count = 0;
    char path[64];
    do {
        (void)snprintf(path, sizeof(path), "/sys/devices/system/node/node%u", count);
    } while (access(path, F_OK) == 0 && ++count < 64);
    return count > 0 ? count : 1;
}

/*
 * On a host with real nodes, put arena n on host node n modulo their number, as a
 * preference: a full node of the host then costs distance and not the run.
 */
static void native_bind_nodes(struct native_machine *machine)
{
    uint32_t host_nodes = native_host_node_count();
    uint64_t span = UINT64_C(1) << machine->base.node_shift;
    bool bound = host_nodes > 1;
    for (uint32_t n = 0; host_nodes > 1 && n < machine->base.topology.node_count; n++) {
        unsigned long mask = 1ul << (n % host_nodes);
        const long mpol_preferred = 1;
        if (syscall(SYS_mbind, machine->base.arena + n * span, machine->base.node_bytes,
                    mpol_preferred, &mask, sizeof(mask) * 8 + 1, 0) != 0)
            bound = false;
    }
    machine->base.nodes_are_bound = bound;
}

static void native_destroy(sq_machine *base)
{
    struct native_machine *machine = native_of(base);
    sq_pages_destroy(base, base->pages);
    if (base->page_frames != NULL)
        (void)munmap(base->page_frames, machine->frames_bytes);
    if (base->arena != NULL)
        (void)munmap(base->arena, machine->arena_bytes);
    free(machine->cpus);
    free(machine);
}

static const struct sq_machine_ops native_ops = {
    .cpu_enter = native_cpu_enter,
    .cpu_leave = native_cpu_leave,
    .cpu_at = native_cpu_at,
    .pages_alloc = sq_pages_alloc,
    .pages_free = sq_pages_free,
    .meta_alloc = sq_meta_alloc,
    .meta_free = sq_meta_free,
    .pages_in_use = sq_pages_in_use,
    .destroy = native_destroy,
};

static int native_reserve_memory(struct native_machine *machine, struct sq_error *error)
{
    sq_machine *base = &machine->base;
    base->node_shift = sq_fls(base->node_bytes - 1);
    machine->arena_bytes = (uint64_t)base->topology.node_count << base->node_shift;
    machine->frames_bytes =
        (machine->arena_bytes >> SQ_PAGE_SHIFT) * sizeof(struct sq_page);
    base->arena = sq_address_space_reserve_aligned(machine->arena_bytes);
    base->page_frames = sq_address_space_reserve(machine->frames_bytes);
    if (base->arena == NULL || base->page_frames == NULL)
        return sq_address_space_refused(base, error);
    return SQ_OK;
}

static int native_make_cpus(struct native_machine *machine, uint64_t seed)
{
    sq_machine *base = &machine->base;
    size_t bytes = sizeof(struct sq_native_cpu) * base->topology.cpu_count;
    machine->cpus = aligned_alloc(SQ_LINE_SIZE, bytes);
    if (machine->cpus == NULL)
        return SQ_E_MEMORY;
    memset(machine->cpus, 0, bytes);
    for (uint32_t i = 0; i < base->topology.cpu_count; i++) {
        sq_cpu *cpu = &machine->cpus[i].base;
        cpu->machine = base;
        cpu->index = i;
        cpu->node = base->topology.node_of_cpu[i];
        if (machine->remote_delay_ns_at_20 > 0)
            cpu->remote_delay_loops = machine->delay_loops[cpu->node];
        sq_rng_seed(&cpu->rng, seed * UINT64_C(0x9E3779B97F4A7C15) + i);
    }
    return SQ_OK;
}

int sq_native_machine_create(const struct sq_machine_config *config,
                             sq_machine **machine, struct sq_error *error)
{
    struct native_machine *native = calloc(1, sizeof(*native));
    int status = native == NULL ? SQ_E_MEMORY : SQ_OK;
    if (status == SQ_OK) {
        native->base.ops = &native_ops;
        native->base.engine = "native";
        native->base.topology = config->topology;
        native->base.node_bytes = config->node_bytes;
        native->remote_delay_ns_at_20 = config->remote_delay_ns_at_20;
        status = sq_topology_finish(&native->base.topology, error);
    }
    if (status == SQ_OK)
        status = sq_node_bytes_check(config->node_bytes, error);
    if (status == SQ_OK)
        status = native_reserve_memory(native, error);
    if (status == SQ_OK) {
        native_bind_nodes(native);
        if (native->remote_delay_ns_at_20 > 0)
            native_init_delays(native);
        native->base.pages = sq_pages_create(&native->base, config->pcp_order_max);
        status = native->base.pages == NULL ? SQ_E_MEMORY
                                            : native_make_cpus(native, config->seed);
        if (status != SQ_OK)
            (void)sq_error_set(error, status, "the host has no memory for %u CPUs",
                               config->topology.cpu_count);
    }
    if (status != SQ_OK) {
        if (native != NULL)
            native_destroy(&native->base);
        return status;
    }
    *machine = &native->base;
    return SQ_OK;
}

static void describe_matrix(const struct native_machine *machine, struct sq_json *json,
                            const char *key, bool cost)
{
    const struct sq_topology *topology = &machine->base.topology;
    sq_json_open_array(json, key);
    for (uint32_t from = 0; from < topology->node_count; from++) {
        sq_json_open_array(json, NULL);
        for (uint32_t to = 0; to < topology->node_count; to++) {
            if (cost)
                sq_json_real(json, NULL, native_delay_ns(machine, from, to));
            else
                sq_json_unsigned(json, NULL, topology->distance[from][to]);
        }
        sq_json_close(json);
    }
    sq_json_close(json);
}

void sq_native_machine_describe(sq_machine *base, struct sq_json *json)
{
    const struct native_machine *machine = native_of(base);
    const struct sq_topology *topology = &base->topology;
    sq_json_open_object(json, NULL);
    sq_json_string(json, "engine", base->engine);
    sq_json_unsigned(json, "cpus", topology->cpu_count);
    sq_json_unsigned(json, "nodes", topology->node_count);
    sq_json_unsigned(json, "node_bytes", base->node_bytes);
    sq_json_boolean(json, "nodes_are_bound", base->nodes_are_bound);
    sq_json_open_array(json, "node_of_cpu");
    for (uint32_t i = 0; i < topology->cpu_count; i++)
        sq_json_unsigned(json, NULL, topology->node_of_cpu[i]);
    sq_json_close(json);
    describe_matrix(machine, json, "distance", false);
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
        sq_json_unsigned(json, NULL, sq_pages_in_use(base, node) * SQ_PAGE_SIZE);
    sq_json_close(json);
    describe_matrix(machine, json, "added_ns_per_remote_line", true);
    sq_json_close(json);
}
