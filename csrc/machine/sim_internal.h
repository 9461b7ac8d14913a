/*
 * The simulated machine from the inside: what its parts (sim.c, sim_lock.c,
 * sim_memory.c, sim_cost.c, sched_sim.c) share. Policies and workloads see machine.h only.
 */
#ifndef SQ_SIM_INTERNAL_H
#define SQ_SIM_INTERNAL_H

#include "machine/fiber.h"
#include "machine/machine.h"

#define SIM_SHARED_CLASS_COUNT 40u

struct sim_machine {
    sq_machine base; /* must be first */
    struct sq_sim_costs costs;
    /* -- memory: one reservation [shared | frames | arena], and its lines -- */
    uint64_t shared_bytes, frames_bytes;
    uint64_t *lines;
    uint64_t shared_used;
    void *shared_free[SIM_SHARED_CLASS_COUNT]; /* by log2 of the bytes */
    /* -- caches and interconnect -- */
    uint32_t core_count, domain_count, socket_count;
    struct sim_core *cores;
    struct sim_domain *domains;
    uint64_t llc_step_shift, llc_steps, l2_steps;
    uint64_t *transfer_ps; /* [domain of the taker * domain_count + of the giver] */
    uint64_t memory_ps[SQ_NODE_MAX][SQ_NODE_MAX];
    struct sim_resource *bus; /* one a socket */
    struct sim_resource memory[SQ_NODE_MAX], link[SQ_NODE_MAX];
    struct sq_line_stats line_stats[SQ_SCOPE_COUNT][SQ_LINE_KIND_COUNT];
    /* -- CPUs -- */
    pthread_mutex_t mutex; /* held by the host thread that is a CPU, or runs a run */
    struct sq_sim_cpu *cpus;
    uint64_t latest_ps; /* of a CPU that was left, outside a run */
    struct sq_rng rng;  /* faults, and who gets an unfair lock */
    uint64_t fingerprint;
    /* -- the run: runnable CPUs but for the current one, earliest first -- */
    bool is_running;
    struct sq_sim_cpu *current;
    struct sq_fiber *main_fiber; /* of the host thread inside sq_sched_run */
    uint64_t queue[SQ_CPU_MAX];  /* heap of clock << 8 | CPU */
    uint32_t queued_count;
    bool request_busy; /* one request of the machine at a time */
    bool request_is_done;
    uint32_t order_count;
    uint64_t tick_at_ns; /* of the host's clock */
    struct sq_sim_cpu *ticking; /* goes on after the tick that is due; or NULL */
};

static inline struct sim_machine *sim_of(const sq_machine *machine)
{
    return (struct sim_machine *)(uintptr_t)machine;
}

/* ---- the order of CPUs (sim.c) ---- */

/* The current CPU waits until sim_unblock; others run. Returns with it current again.
 */
void sim_block(struct sq_sim_cpu *cpu);
/* The same, but no longer than until `until_ps` of its clock. */
void sim_sleep(struct sq_sim_cpu *cpu, uint64_t until_ps);
/* A CPU that waits may go on, no earlier than `at_ps`. */
void sim_unblock(struct sq_sim_cpu *cpu, uint64_t at_ps);
/* If the CPU's task spins for a sleeping lock, let it look again. */
void sim_kick_spinner(struct sq_sim_cpu *cpu, uint64_t at_ps);
/* Begin a run: every CPU has its first fiber in `running` and all clocks are made
 * equal. */
void sim_run_begin(struct sim_machine *machine, struct sq_fiber *main_fiber);
/* Continue the earliest CPU. Returns when a tick is due (true), or no CPU can run. */
bool sim_run_continue(struct sim_machine *machine);
void sim_look_at_host(struct sq_sim_cpu *cpu);
void sim_run_end(struct sim_machine *machine);
/* Domains that wait for a lock in this line that the CPU holds. */
uint64_t sim_held_waiters(const struct sq_sim_cpu *cpu, uint64_t line);
/* Book `ps` of this CPU's time on one scope. */
void sim_spend(struct sq_sim_cpu *cpu, enum sq_scope scope, int64_t ps);

/* ---- memory (sim_memory.c) ---- */

/* Reserve the region and its lines. 0 or SQ_E_MEMORY; the machine's end unmaps them. */
int sim_memory_reserve(struct sim_machine *machine, struct sq_error *error);

/* ---- caches (sim_cost.c) ---- */

/* Sets up cores, domains, tables, keys. 0 or SQ_E_MEMORY. */
int sim_caches_make(struct sim_machine *machine, struct sq_error *error);
void sim_caches_free(struct sim_machine *machine);
/* The lock in this line has waiters now, or no longer. */
void sim_line_set_contended(struct sim_machine *machine, const void *address,
                            bool is_contended);
/* Waiting domains read the line again after a change: their buses are busy with it. */
void sim_spin_traffic(struct sim_machine *machine, uint64_t now_ps, uint32_t domain);

#endif
