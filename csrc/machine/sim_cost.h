/*
 * What things cost on a simulated machine: its parameters, its caches, its lines.
 *
 *   CPU --L1, private L2--> core --last-level cache--> domain --bus, links--> memory
 *
 * A core is one or more CPUs (threads) with an L1 and maybe an L2 of their own. A
 * domain is the cores behind one last-level cache: two cores and their L2 on a Penryn,
 * four cores and their L3 on an Opteron. Lines move within a domain, between domains of
 * a socket, between sockets or nodes.
 *
 * Each line of the machine's memory has one 8-byte entry: which core touched it last
 * and whether it is modified there, which domains share it, and two stamps. A stamp is
 * the number of lines that the core (or the domain) had fetched when the line was last
 * fetched or used; a line is taken to be in a cache until as many further lines have
 * come in as the cache holds. So a cache has capacity without tags, sets or victims to
 * look up, and an access reads and writes one word of the host's memory.
 *
 * What this leaves out: associativity (no conflict misses); the presence of a line in
 * the caches of a domain that shares it but did not touch it last (it counts as
 * present); more than 16 domains share the 16 bits of the sharers (each bit stands for
 * a few domains); prefetching beyond the share that later lines of one touch, and a
 * line right after the last miss, cost.
 */
#ifndef SQ_SIM_COST_H
#define SQ_SIM_COST_H

#include "machine/machine_base.h"

#define SIM_PS_MAX INT64_C(1000000000) /* 1 ms: no single event costs more */

/*
 * X(name, default, minimum, maximum, help); default -1: it must be given. Times are in
 * picoseconds. Names, values and sources for each preset are in slabq/data/machines.
 */
#define SQ_SIM_PARAMETERS(X)                                                           \
    X(cycle_ps, -1, 50, 100000, "one cycle of a core")                                 \
    X(threads_per_core, 1, 1, 8,                                                       \
      "CPUs of one core; CPU c is on core c % (CPUs / threads)")                       \
    X(domains_per_socket, 1, 1, 256, "last-level caches of one package")               \
    X(l1_lines, -1, 1, 1 << 20, "lines of a core's first-level data cache")            \
    X(l2_lines, -1, 0, 1 << 24, "lines of a core's own second level; 0: it has none")  \
    X(llc_lines, -1, 1, 1 << 26, "lines of a last-level cache")                        \
    X(l1_hit_ps, -1, 0, SIM_PS_MAX, "line in the core's L1")                           \
    X(l2_hit_ps, -1, 0, SIM_PS_MAX, "line in the core's own L2")                       \
    X(llc_hit_ps, -1, 0, SIM_PS_MAX, "line in the domain's last-level cache")          \
    X(core_transfer_ps, -1, 0, SIM_PS_MAX,                                             \
      "line modified in another core's L1 of the "                                     \
      "domain")                                                                        \
    X(socket_transfer_ps, -1, 0, SIM_PS_MAX,                                           \
      "line modified in another domain of the "                                        \
      "socket")                                                                        \
    X(hop1_transfer_ps, -1, 0, SIM_PS_MAX,                                             \
      "line modified in another socket or a node "                                     \
      "one hop away")                                                                  \
    X(hop2_transfer_ps, -1, 0, SIM_PS_MAX, "line modified two hops away")              \
    X(dram_local_ps, -1, 0, SIM_PS_MAX, "line of the own node's memory")               \
    X(dram_hop1_ps, -1, 0, SIM_PS_MAX, "line of memory one hop away")                  \
    X(dram_hop2_ps, -1, 0, SIM_PS_MAX, "line of memory two hops away")                 \
    X(upgrade_core_ps, -1, 0, SIM_PS_MAX,                                              \
      "store to a line that other cores of the "                                       \
      "domain share")                                                                  \
    X(upgrade_ps, -1, 0, SIM_PS_MAX, "store to a line that other domains share")       \
    X(store_wait_percent, -1, 0, 100,                                                  \
      "share of a plain store's miss that the core "                                   \
      "waits for")                                                                     \
    X(stream_percent, -1, 0, 100,                                                      \
      "share of a miss that each further line of one "                                 \
      "touch costs, and a line right after the last miss")                             \
    X(atomic_ps, -1, 0, SIM_PS_MAX, "locked instruction, beside its line")             \
    X(cas_double_ps, -1, 0, SIM_PS_MAX,                                                \
      "locked 16-byte compare and exchange, beside "                                   \
      "its line")                                                                      \
    X(local_cas_ps, -1, 0, SIM_PS_MAX, "compare and exchange without lock prefix")     \
    X(lock_acquire_ps, -1, 0, SIM_PS_MAX, "taking a free lock, beside its line")       \
    X(lock_release_ps, -1, 0, SIM_PS_MAX, "letting a lock go, beside its line")        \
    X(irq_save_ps, -1, 0, SIM_PS_MAX, "turning interrupts off, old state kept")        \
    X(irq_restore_ps, -1, 0, SIM_PS_MAX, "turning interrupts on again")                \
    X(preempt_ps, -1, 0, SIM_PS_MAX, "preemption off and on again, together")          \
    X(bus_line_ps, -1, 0, SIM_PS_MAX, "time a line occupies the socket's bus")         \
    X(bus_snoop_ps, -1, 0, SIM_PS_MAX, "time a miss occupies each other socket's bus") \
    X(memory_line_ps, -1, 0, SIM_PS_MAX, "time a line occupies its memory controller") \
    X(link_line_ps, -1, 0, SIM_PS_MAX, "time a line occupies a node's links")          \
    X(lock_handover_ps, -1, 0, SIM_PS_MAX,                                             \
      "giving a lock to a waiter, beside its line")                                    \
    X(lock_handover_per_waiter_ps, -1, 0, SIM_PS_MAX,                                  \
      "further, for each domain that "                                                 \
      "waits")                                                                         \
    X(lock_line_is_polled, 1, 0, 1,                                                    \
      "1: a holder's store to the line of its lock waits as a hand-over does")         \
    X(lock_is_unfair, 0, 0, 1,                                                         \
      "1: any waiter may get a lock, the first to read its line (test and set, as "    \
      "under kernels before 2.6.25 always); 0: the one that came first (ticket)")      \
    X(ipi_ps, -1, 0, SIM_PS_MAX, "sending an inter-processor interrupt")               \
    X(idle_exit_ps, -1, 0, SIM_PS_MAX, "an idle CPU, from the interrupt to the task")  \
    X(context_switch_ps, -1, 0, SIM_PS_MAX,                                            \
      "from one task to another, address space "                                       \
      "included")                                                                      \
    X(wakeup_ps, -1, 0, SIM_PS_MAX, "instructions of waking a task")                   \
    X(schedule_ps, -1, 0, SIM_PS_MAX, "instructions of choosing the next task")        \
    X(strict, 0, 0, 1, "1: every access in the order of virtual time, to validate")    \
    X(fault_pages_ppm, 0, 0, 1000000, "page allocations that fail, a million")         \
    X(fault_local_cas_ppm, 0, 0, 1000000,                                              \
      "local compare and exchanges that fail for "                                     \
      "no reason, a million")                                                          \
    X(jitter_ps, 0, 0, SIM_PS_MAX, "each event is delayed by up to so much")

#define SIM_FIELD(name, value, minimum, maximum, help) int64_t name;

struct sq_sim_costs {
    SQ_SIM_PARAMETERS(SIM_FIELD)
    int64_t scope_cycles[SQ_SCOPE_COUNT]; /* parameters <scope>_cycles */
};

/* One (name, value), as given. */
struct sq_sim_parameter {
    const char *name;
    int64_t value;
};

/* Defaults, then what is given. 0, or SQ_E_PARAMETER with a message that names the one
 * that is missing, unknown, or out of range. */
int sq_sim_costs_set(struct sq_sim_costs *costs, const struct sq_sim_parameter *given,
                     size_t count, struct sq_error *error);
/* The n-th parameter; false past the last. `value` is -1 if it must be given. */
bool sq_sim_parameter_at(size_t n, const char **name, int64_t *value, int64_t *minimum,
                         int64_t *maximum, const char **help);
/* Members of an open JSON object, by name. */
struct sq_json;
void sq_sim_costs_describe(const struct sq_sim_costs *costs, struct sq_json *json);

/* ---- lines ----
 *
 *   63        44 43       28 27       12  11    10    9         8        7    0
 *   llc stamp    core stamp  sharers     many  valid contended modified  core
 */
#define SIM_CORE_MASK        UINT64_C(0xFF)
#define SIM_MODIFIED         (UINT64_C(1) << 8)
#define SIM_CONTENDED        (UINT64_C(1) << 9)  /* a lock in it has waiters */
#define SIM_VALID            (UINT64_C(1) << 10) /* touched before */
#define SIM_MANY             (UINT64_C(1) << 11) /* several cores of the last domain */
#define SIM_SHARERS_SHIFT    12u
#define SIM_SHARER_COUNT     16u
#define SIM_SHARERS_MASK     (UINT64_C(0xFFFF) << SIM_SHARERS_SHIFT)
#define SIM_CORE_STAMP_SHIFT 28u
#define SIM_CORE_STAMP_MASK  UINT64_C(0xFFFF)
#define SIM_LLC_STAMP_SHIFT  44u
#define SIM_LLC_STAMP_MASK   UINT64_C(0xFFFFF)

/* Lines that came in for one step of a stamp: an eighth of a thousandth of an LLC would
 * be lost in its wrap, so a step is a 512th of it; a core's is 8 lines. */
#define SIM_CORE_STEP_SHIFT 3u
#define SIM_LLC_STEPS       512u

/* One queue in front of something that takes its time for each line. */
struct sim_resource {
    uint64_t last_ps;    /* the latest arrival */
    uint64_t backlog_ps; /* work that was still to be done then */
};

struct sim_core {
    uint64_t fill_count; /* lines that came into its L1 */
    uint32_t domain, socket, node;
};

struct sim_domain {
    uint64_t fill_count; /* lines that came into its LLC */
    uint32_t socket, node;
};

/* Kinds of access. */
enum sim_access {
    SIM_READ,
    SIM_WRITE,  /* may wait in a store buffer */
    SIM_ATOMIC, /* a write that is waited for */
};

#endif
