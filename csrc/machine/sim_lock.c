/*
 * Locks of the simulated machine: a line with waiters.
 *
 * A CPU that finds a lock held is put in line and blocked; who lets the lock go makes one
 * of the waiters its holder, at the cost of the line's way to it. How a lock that is
 * free, or held, is laid out is told in sim.h.
 */
#define SQ_MACHINE_SIM 1
#include "machine/sim_internal.h"

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
        base->preempt_depth++;
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
        base->preempt_depth--;
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
    } else {
        lock->holder = 0;
        lock->count = (uint8_t)base->index;
        lock->word = (uint32_t)(cpu->now_ps >> 8);
    }
    sq_sim_preempt_point(cpu);
}
