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
#include "machine/sim_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "machine/pages.h"
#include "machine/sim_machine.h"

#define BLOCK_BYTES  (UINT64_C(1) << (SQ_PAGE_ORDER_MAX + SQ_PAGE_SHIFT))
#define SHARED_BYTES (UINT64_C(8) << 30) /* address space; touched on use */
/* Without another CPU in sight, a CPU still looks up after so much of its time. */
#define LOOKAHEAD_PS UINT64_C(100000000)
#define TICK_NS      UINT64_C(20000000) /* of the host's clock */

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

/* Every so many switches, look at the host's clock; go back to its thread for a tick.
 */
static void sim_maybe_tick(struct sim_machine *machine, struct sq_sim_cpu *cpu)
{
    if (++machine->order_count % 4096 != 0 || host_now_ns() < machine->tick_at_ns)
        return;
    queue_push(machine, sim_key(cpu));
    machine->current = NULL;
    sq_fiber_switch(cpu->running, machine->main_fiber);
}

/* The clock has passed the next CPU's: let it run. */
void sq_sim_order(struct sq_sim_cpu *cpu)
{
    struct sim_machine *machine = cpu->sim;
    if (!machine->is_running)
        return;
    sim_maybe_tick(machine, cpu);
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
    struct sq_sim_cpu *next;
    if (machine->queued_count == 0)
        return false;
    machine->tick_at_ns = host_now_ns() + TICK_NS;
    next = queue_pop(machine);
    sim_become(machine, next);
    sq_fiber_switch(machine->main_fiber, next->running);
    return machine->queued_count > 0;
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
        cpu->slice_end_ps = UINT64_MAX;
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
    if (machine->costs.jitter_ps > 0)
        cpu->now_ps +=
            sq_rng_below(&machine->rng, (uint64_t)machine->costs.jitter_ps + 1);
    if (cpu->now_ps > cpu->horizon_ps)
        sq_sim_order(cpu);
    mix = cpu->now_ps ^ (uint64_t)cpu->base.index << 56 ^ (uint64_t)event << 48;
    machine->fingerprint =
        sq_rng_rotate(machine->fingerprint ^ mix, 29) * UINT64_C(0x9E3779B97F4A7C15);
}

void sim_spend(struct sq_sim_cpu *cpu, enum sq_scope scope, int64_t ps)
{
    sq_sim_scope_enter(&cpu->base, scope);
    cpu->now_ps += (uint64_t)ps;
    sq_sim_scope_leave(&cpu->base, scope);
}

/* ---- locks ---- */

/* Rank and depth: a lock is taken inside locks of lower classes only. */
static void lock_note(struct sq_sim_cpu *cpu, const sq_lock *lock, bool is_ranked)
{
    sq_cpu *base = &cpu->base;
    base->lock_stats[lock->lock_class].acquisitions++;
    for (uint32_t i = 0; is_ranked && i < base->held_count; i++)
        SQ_ASSERT(base->held_class[i] < lock->lock_class);
    SQ_ASSERT(base->held_count < SQ_ARRAY_COUNT(cpu->held));
    cpu->held[base->held_count] = lock;
    base->held_class[base->held_count++] = lock->lock_class;
}

static void lock_forget(struct sq_sim_cpu *cpu, const sq_lock *lock)
{
    sq_cpu *base = &cpu->base;
    uint32_t i = base->held_count;
    while (i > 0 && cpu->held[i - 1] != lock)
        i--;
    SQ_ASSERT(i > 0); /* released by a CPU that does not hold it */
    for (; i < base->held_count; i++) {
        cpu->held[i - 1] = cpu->held[i];
        base->held_class[i - 1] = base->held_class[i];
    }
    base->held_count--;
}

/* When a free lock was let go, if that lies ahead of this CPU's clock; else 0. */
static uint64_t lock_free_at(const struct sq_sim_cpu *cpu, const sq_lock *lock)
{
    const struct sq_sim_cpu *last;
    uint64_t last_units, age, free_ps;
    if (!cpu->sim->is_running)
        return 0;
    last = &cpu->sim->cpus[lock->count];
    if (last->now_ps <= cpu->now_ps)
        return 0;
    last_units = last->now_ps >> 8;
    age = (last_units - lock->word) & UINT32_MAX;
    free_ps = age <= last_units ? (last_units - age) << 8 : 0;
    return free_ps > cpu->now_ps ? free_ps : 0;
}

static void lock_append_waiter(struct sq_sim_cpu *cpu, sq_lock *lock)
{
    uint32_t number = cpu->base.index + 1, last = lock->word >> 16;
    cpu->next_waiter = 0;
    if (lock->count == 0)
        lock->word = number | number << 16;
    else {
        cpu->sim->cpus[last - 1].next_waiter = (uint16_t)number;
        lock->word = (lock->word & 0xFFFF) | number << 16;
    }
    lock->count++;
}

/* Take the n-th waiter off the list. Requires that there are so many. */
static struct sq_sim_cpu *lock_take_waiter(struct sim_machine *machine, sq_lock *lock,
                                           uint32_t n)
{
    uint32_t before = 0, number = lock->word & 0xFFFF;
    struct sq_sim_cpu *waiter;
    for (; n > 0; n--) {
        before = number;
        number = machine->cpus[number - 1].next_waiter;
    }
    waiter = &machine->cpus[number - 1];
    if (before == 0)
        lock->word = (lock->word & 0xFFFF0000) | waiter->next_waiter;
    else
        machine->cpus[before - 1].next_waiter = waiter->next_waiter;
    if (lock->word >> 16 == number)
        lock->word = (lock->word & 0xFFFF) | before << 16;
    lock->count--;
    return waiter;
}

/* Domains that wait for the lock, the new holder's not counted. Their buses carry the
 * line to each of them. */
static uint32_t lock_waiting_domains(struct sim_machine *machine, const sq_lock *lock,
                                     const struct sq_sim_cpu *holder)
{
    uint64_t seen[SQ_CPU_MAX / 64] = {0};
    uint32_t domains = 0, number = lock->word & 0xFFFF;
    for (uint32_t i = 0; i < lock->count; i++) {
        const struct sq_sim_cpu *waiter = &machine->cpus[number - 1];
        uint32_t domain = waiter->core->domain;
        number = waiter->next_waiter;
        if (domain == holder->core->domain || (seen[domain / 64] >> domain % 64 & 1))
            continue;
        seen[domain / 64] |= UINT64_C(1) << domain % 64;
        sim_spin_traffic(machine, holder->now_ps, domain);
        domains++;
    }
    return domains;
}

/* See sim_internal.h. A CPU holds few locks, and seldom one that others wait for. */
uint64_t sim_held_waiters(const struct sq_sim_cpu *cpu, uint64_t line)
{
    for (uint32_t i = 0; i < cpu->base.held_count; i++) {
        const sq_lock *lock = cpu->held[i];
        uint64_t offset = (uint64_t)((uintptr_t)lock - (uintptr_t)cpu->region);
        if (offset / SQ_LINE_SIZE == line && lock->count > 0)
            return lock_waiting_domains(cpu->sim, lock, cpu);
    }
    return 0;
}

/* The lock's line; nobody comes in between, whatever the mode. */
static void lock_touch(struct sq_sim_cpu *cpu, const sq_lock *lock,
                       enum sim_access access)
{
    uint64_t offset = (uint64_t)((uintptr_t)lock - (uintptr_t)cpu->region);
    sq_sim_access(cpu, offset, access, false);
}

/* Wait in line; the CPU that lets the lock go makes us its holder. */
static void lock_wait(struct sq_sim_cpu *cpu, sq_lock *lock)
{
    struct sq_lock_stats *stats = &cpu->base.lock_stats[lock->lock_class];
    uint64_t start_ps = cpu->now_ps;
    SQ_ASSERT(!sq_lock_is_held_by(&cpu->base, lock)); /* it would wait for itself */
    SQ_ASSERT(cpu->sim->is_running);                  /* nobody could let it go */
    sq_sim_scope_enter(&cpu->base, SQ_SCOPE_LOCK_WAIT);
    lock->heat = SIM_LOCK_HEAT_MAX;
    lock_touch(cpu, lock, SIM_ATOMIC);
    sim_line_set_contended(cpu->sim, lock, true);
    lock_append_waiter(cpu, lock);
    sim_block(cpu);
    sq_sim_scope_leave(&cpu->base, SQ_SCOPE_LOCK_WAIT);
    stats->contended++;
    stats->wait_ns += (cpu->now_ps - start_ps) / 1000;
}

/* Take a free lock, which another CPU may let go only later in virtual time. */
static void lock_take(struct sq_sim_cpu *cpu, sq_lock *lock)
{
    struct sq_lock_stats *stats = &cpu->base.lock_stats[lock->lock_class];
    uint64_t free_ps = lock_free_at(cpu, lock), start_ps = cpu->now_ps;
    lock->holder = (uint16_t)(cpu->base.index + 1);
    lock->count = 0;
    lock->word = 0;
    if (free_ps == 0) {
        if (lock->heat > 0)
            lock->heat--;
        lock_touch(cpu, lock, SIM_ATOMIC);
        sq_sim_charge(cpu, cpu->costs->lock_acquire_ps);
        return;
    }
    sq_sim_scope_enter(&cpu->base, SQ_SCOPE_LOCK_WAIT);
    cpu->now_ps = free_ps;
    lock->heat = SIM_LOCK_HEAT_MAX;
    lock_touch(cpu, lock, SIM_ATOMIC);
    sq_sim_charge(cpu, cpu->costs->lock_handover_ps);
    sq_sim_scope_leave(&cpu->base, SQ_SCOPE_LOCK_WAIT);
    stats->contended++;
    stats->wait_ns += (cpu->now_ps - start_ps) / 1000;
}

void sq_sim_lock_acquire(sq_cpu *base, sq_lock *lock)
{
    struct sq_sim_cpu *cpu = sq_sim_of(base);
    if (lock->lock_class == SQ_LOCK_BOOK) { /* held between no two events */
        SQ_ASSERT(lock->holder == 0);
        lock->holder = (uint16_t)(base->index + 1);
        cpu->strict_ps = UINT64_MAX; /* until it is let go */
        return;
    }
    sq_sim_event(cpu, SIM_EVENT_LOCK);
    if (lock->holder != 0)
        lock_wait(cpu, lock);
    else
        lock_take(cpu, lock);
    lock_note(cpu, lock, true);
}

bool sq_sim_lock_try(sq_cpu *base, sq_lock *lock)
{
    struct sq_sim_cpu *cpu = sq_sim_of(base);
    sq_sim_event(cpu, SIM_EVENT_TRY);
    if (lock->holder != 0 || lock_free_at(cpu, lock) != 0) {
        lock_touch(cpu, lock, SIM_READ);
        return false;
    }
    lock_take(cpu, lock);
    lock_note(cpu, lock, false);
    return true;
}

/* Give a lock that others wait for to one of them. */
static void lock_hand_over(struct sq_sim_cpu *cpu, sq_lock *lock)
{
    struct sim_machine *machine = cpu->sim;
    const struct sq_sim_costs *costs = &machine->costs;
    uint32_t n = costs->lock_is_unfair ? sq_rng_below(&machine->rng, lock->count) : 0;
    struct sq_sim_cpu *next = lock_take_waiter(machine, lock, n);
    uint64_t waiting;
    lock->holder = (uint16_t)(next->base.index + 1);
    if (lock->count == 0)
        sim_line_set_contended(machine, lock, false);
    next->now_ps = sq_max_u64(next->now_ps, cpu->now_ps);
    lock_touch(next, lock, SIM_ATOMIC);
    next->now_ps += (uint64_t)costs->lock_handover_ps;
    waiting = lock_waiting_domains(machine, lock, next);
    if (!costs->lock_is_unfair) /* else it is who read the line first */
        next->now_ps += (uint64_t)costs->lock_handover_per_waiter_ps * waiting;
    sim_unblock(next, next->now_ps);
}

void sq_sim_lock_release(sq_cpu *base, sq_lock *lock)
{
    struct sq_sim_cpu *cpu = sq_sim_of(base);
    SQ_ASSERT(sq_lock_is_held_by(base, lock)); /* released by a CPU that has it not */
    if (lock->lock_class == SQ_LOCK_BOOK) {
        lock->holder = 0;
        if (cpu->costs->strict)
            cpu->strict_ps = cpu->horizon_ps;
        return;
    }
    if (cpu->costs->strict || lock->heat > 0)
        sq_sim_event(cpu, SIM_EVENT_RELEASE);
    lock_forget(cpu, lock);
    lock_touch(cpu, lock, SIM_WRITE);
    sq_sim_charge(cpu, cpu->costs->lock_release_ps);
    if (lock->count > 0) {
        lock_hand_over(cpu, lock);
        return;
    }
    lock->holder = 0;
    lock->count = (uint8_t)base->index;
    lock->word = (uint32_t)(cpu->now_ps >> 8);
}

/* ---- requests between CPUs ---- */

void sq_sim_take_request(struct sq_sim_cpu *cpu)
{
    sq_cpu_function *function = cpu->request_function;
    cpu->request_function = NULL;
    function(&cpu->base, cpu->request_argument);
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
    target->request_argument = argument;
    target->request_function = function;
    if (target->is_idle)
        sim_unblock(target, cpu->now_ps + (uint64_t)cpu->costs->idle_exit_ps);
    while (target->request_function != NULL)
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

/* ---- shared memory outside the nodes ---- */

static uint32_t shared_class(size_t bytes)
{
    return sq_fls(sq_max_u64(bytes, SQ_LINE_SIZE) - 1);
}

void *sq_shared_alloc(sq_machine *base, size_t bytes)
{
    struct sim_machine *machine = sim_of(base);
    uint32_t class_index = shared_class(bytes);
    uint64_t size;
    void *memory;
    if (bytes > machine->shared_bytes)
        return NULL;
    /* Small pieces are reused by size class; large ones take what they need. */
    size = sq_align_up(sq_max_u64(bytes, 1), SQ_LINE_SIZE);
    memory = machine->shared_free[class_index];
    if (memory != NULL) {
        machine->shared_free[class_index] = *(void **)memory;
        return memset(memory, 0, size);
    }
    size = UINT64_C(1) << class_index;
    if (size > machine->shared_bytes - machine->shared_used)
        return NULL;
    memory = base->region + machine->shared_used;
    machine->shared_used += size;
    return memory; /* fresh pages are zero */
}

void sq_shared_free(sq_machine *base, void *memory, size_t bytes)
{
    struct sim_machine *machine = sim_of(base);
    uint32_t class_index = shared_class(bytes);
    if (memory == NULL)
        return;
    *(void **)memory = machine->shared_free[class_index];
    machine->shared_free[class_index] = memory;
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

static void *sim_reserve(uint64_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* Accesses are all over the place: with large pages of the host a third of them is
 * cheaper. A host that has none costs speed only. */
static void sim_advise(void *memory, uint64_t bytes)
{
    if (memory != NULL)
        (void)madvise(memory, bytes, MADV_HUGEPAGE);
}

/* A reservation at a multiple of the largest block; the parts around it go back. */
static char *sim_reserve_region(uint64_t bytes)
{
    char *memory = sim_reserve(bytes + BLOCK_BYTES), *start;
    if (memory == NULL)
        return NULL;
    start = (char *)sq_align_up((uintptr_t)memory, BLOCK_BYTES);
    if (start > memory)
        (void)munmap(memory, (size_t)(start - memory));
    (void)munmap(start + bytes, (size_t)(memory + BLOCK_BYTES - start));
    return start;
}

static int sim_check_memory(const struct sq_machine_config *config,
                            struct sq_error *error)
{
    uint64_t max = UINT64_C(1) << 40;
    if (config->node_bytes < BLOCK_BYTES || config->node_bytes > max ||
        config->node_bytes % BLOCK_BYTES != 0)
        return sq_error_set(error, SQ_E_PARAMETER,
                            "node_bytes is %llu: accepted are multiples of 4 MiB "
                            "(%llu) up to 1 TiB",
                            (unsigned long long)config->node_bytes,
                            (unsigned long long)BLOCK_BYTES);
    return SQ_OK;
}

static int sim_reserve_memory(struct sim_machine *machine, struct sq_error *error)
{
    sq_machine *base = &machine->base;
    uint64_t arena_bytes;
    base->node_shift = sq_fls(base->node_bytes - 1);
    arena_bytes = (uint64_t)base->topology.node_count << base->node_shift;
    machine->shared_bytes = SHARED_BYTES;
    machine->frames_bytes = sq_align_up(
        (arena_bytes >> SQ_PAGE_SHIFT) * sizeof(struct sq_page), BLOCK_BYTES);
    base->region_bytes = machine->shared_bytes + machine->frames_bytes + arena_bytes;
    base->region = sim_reserve_region(base->region_bytes);
    machine->lines = sim_reserve(base->region_bytes / SQ_LINE_SIZE * 8);
    sim_advise(base->region, base->region_bytes);
    sim_advise(machine->lines, base->region_bytes / SQ_LINE_SIZE * 8);
    if (base->region == NULL || machine->lines == NULL)
        return sq_error_set(
            error, SQ_E_MEMORY,
            "node_bytes is %llu on %u nodes: the host refuses to reserve "
            "that much address space (%s)",
            (unsigned long long)base->node_bytes, base->topology.node_count,
            strerror(errno));
    base->page_frames =
        (struct sq_page *)(void *)(base->region + machine->shared_bytes);
    base->arena = base->region + machine->shared_bytes + machine->frames_bytes;
    return SQ_OK;
}

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
        code = sim_check_memory(config, error);
    if (code == SQ_OK)
        code = sq_sim_costs_set(&machine->costs, parameters, parameter_count, error);
    if (code == SQ_OK)
        code = sim_reserve_memory(machine, error);
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
