/*
 * machine.h -- the contract every policy is written on.
 *
 * A policy is plain blocking C that calls what is listed here and nothing else; it cannot
 * ask which machine it runs on. The engine is chosen by the unit that includes the policy:
 * SQ_MACHINE_NATIVE runs it on real threads and real memory, at no cost beyond its own;
 * SQ_MACHINE_SIM runs it in virtual time, where each primitive costs what the machine's
 * parameters say.
 *
 * `sq_cpu *cpu` always comes first: the caller *is* that CPU while the call runs.
 *
 * Execution context
 *   sq_irq_save(cpu), sq_irq_restore(cpu)   nothing else runs on this CPU in between;
 *       requests of other CPUs (sq_on_each_cpu) are taken at the outermost restore.
 *   sq_preempt_disable(cpu), sq_preempt_enable(cpu)
 *       no other task runs on this CPU in between.
 *   sq_migrate_disable(cpu), sq_migrate_enable(cpu)
 *       the task stays on its CPU in between, even where it sleeps.
 *   sq_on_each_cpu(cpu, function, argument) run function(target, argument) as each CPU,
 *       ascending; returns when all have run. Requires irqs on and no lock held.
 *   sq_random(cpu)                          64 random bits, seeded by the run
 *
 * Locks (`sq_lock`, 8 bytes; the class gives name and rank)
 *   sq_lock_init(lock, class)
 *   sq_lock_acquire(cpu, lock)  sq_lock_try(cpu, lock)  sq_lock_release(cpu, lock)
 *   sq_lock_assert_held(cpu, lock)
 *
 * Sleeping locks (`sq_rt_mutex`), what spin locks are with PREEMPT_RT; see rt_mutex.h
 *   sq_rt_mutex_init(mutex, class, line)
 *   sq_rt_mutex_acquire(cpu, mutex) -> the CPU that the caller is from then on
 *   sq_rt_mutex_release(cpu, mutex)
 *   sq_rt_mutex_assert_held(cpu, mutex)
 *   sq_local_lock_acquire(cpu, mutex), sq_local_lock_release(cpu, mutex)
 *       the mutex of this CPU, taken with migration disabled
 *
 * Atomics (`sq_atomic`, 64 bits; the name carries the order)
 *   sq_load_relaxed  sq_load_acquire  sq_store_relaxed  sq_store_release
 *   sq_add_relaxed (returns the old value)  sq_cas_acq_rel(cpu, atomic, old, new) -> bool
 *   sq_cas_double(cpu, atomic, old, new) -> bool    the kernel's 16-byte compare and
 *       exchange of (freelist, counters), which slabq packs into one 64-bit word
 *
 * Per-CPU data, only ever changed by the thread that is the CPU
 *   sq_percpu_alloc(cpu, percpu, bytes) -> bool, each part on the CPU's own node, zeroed
 *   sq_percpu_at(percpu, index)   sq_percpu_free(cpu, percpu)
 *   sq_local_cas_double(cpu, pair, first, second, new_first, new_second) -> bool
 *       the kernel's this_cpu_cmpxchg_double; may fail for no reason
 *
 * Memory
 *   sq_pages_alloc(cpu, order, node, flags) -> head page or NULL; node SQ_NODE_ANY is the
 *       CPU's own; falls back by the node's list unless SQ_PAGES_THISNODE
 *   sq_pages_free(cpu, page)
 *   sq_meta_alloc(cpu, bytes, node) -> zeroed, line-aligned memory on that node, or NULL;
 *       for the policy's own structures, never for objects     sq_meta_free(cpu, memory)
 *   sq_page_of_address, sq_page_address, sq_node_of_address, sq_machine_owns
 *
 * Cost
 *   sq_touch_read(cpu, address, bytes), sq_touch_write(cpu, address, bytes)
 *       say which shared lines a path reads or writes (objects, page frames, slab
 *       management, queues of other CPUs or nodes). Lines reached through the lock,
 *       atomic and per-CPU primitives are known already. Free natively unless emulated
 *       distance is on.
 *   sq_scope_enter(cpu, SCOPE), sq_scope_leave(cpu, SCOPE)    names for the profile, and
 *       the path's own instructions (SQ_SCOPES in machine_base.h)
 *   SQ_IN_SCOPE(cpu, SCOPE);                the rest of the block is in the scope
 *   sq_touch_local(cpu, address, bytes)     a line of the CPU's own that a path changes:
 *       free natively in any case
 *
 * For the engines' own parts and the workloads, not for policies
 *   sq_now_ns(cpu)                          the machine's clock
 *   sq_cpu_poll(cpu), sq_cpu_relax(cpu)     take requests of other CPUs; the second also
 *       lets time pass, in a loop that waits for another CPU
 *   sq_charge_ns(cpu, ns)                   work that is not memory; free natively, where
 *       the real work is done
 *   sq_slice_is_over(cpu)                   the clock says that others should run
 *   sq_shared_alloc(machine, bytes), sq_shared_free(machine, memory, bytes)
 *       zeroed lines for what CPUs share outside the nodes' memory (locks of page lists,
 *       sockets, run queues), NULL when the host has none
 *   sq_place_of(machine, address)           a number for the address, the same in each run
 *       of a deterministic engine
 */
#ifndef SQ_MACHINE_H
#define SQ_MACHINE_H

#include "machine/machine_base.h"

#define SQ_CAT_(a, b)       a##b
#define SQ_CAT(a, b)        SQ_CAT_(a, b)
/* The name that `name` has on this machine: sq_pages_alloc -> sq_pages_alloc_native. */
#define SQ_ON_MACHINE(name) SQ_CAT(name##_, SQ_MACHINE_TAG)

#if defined(SQ_MACHINE_NATIVE)
#define SQ_MACHINE_TAG  native
#define SQ_MACHINE_NAME "native"
#elif defined(SQ_MACHINE_SIM)
#define SQ_MACHINE_TAG  sim
#define SQ_MACHINE_NAME "sim"
#else
#error "compiled through unit/<policy>_<machine>.c, which defines the machine"
#define SQ_MACHINE_TAG  native /* so that an editor can still index the file */
#define SQ_MACHINE_NAME "native"
#endif

/* ---- out-of-line primitives, one implementation a machine ---- */
#define sq_on_each_cpu  SQ_ON_MACHINE(sq_on_each_cpu)
#define sq_pages_alloc  SQ_ON_MACHINE(sq_pages_alloc)
#define sq_pages_free   SQ_ON_MACHINE(sq_pages_free)
#define sq_meta_alloc   SQ_ON_MACHINE(sq_meta_alloc)
#define sq_meta_free    SQ_ON_MACHINE(sq_meta_free)
#define sq_percpu_alloc SQ_ON_MACHINE(sq_percpu_alloc)
#define sq_percpu_free  SQ_ON_MACHINE(sq_percpu_free)
#define sq_shared_alloc SQ_ON_MACHINE(sq_shared_alloc)
#define sq_shared_free  SQ_ON_MACHINE(sq_shared_free)

typedef void sq_cpu_function(sq_cpu *target, void *argument);

struct sq_percpu {
    void *part[SQ_CPU_MAX];
};

void sq_on_each_cpu(sq_cpu *cpu, sq_cpu_function *function, void *argument);
struct sq_page *sq_pages_alloc(sq_cpu *cpu, uint32_t order, int32_t node,
                               uint32_t flags);
void sq_pages_free(sq_cpu *cpu, struct sq_page *page);
void *sq_meta_alloc(sq_cpu *cpu, size_t bytes, uint32_t node);
void sq_meta_free(sq_cpu *cpu, void *memory);
bool sq_percpu_alloc(sq_cpu *cpu, struct sq_percpu *percpu, size_t bytes);
void sq_percpu_free(sq_cpu *cpu, struct sq_percpu *percpu);
void *sq_shared_alloc(sq_machine *machine, size_t bytes);
void sq_shared_free(sq_machine *machine, void *memory, size_t bytes);

static inline void *sq_percpu_at(const struct sq_percpu *percpu, uint32_t index)
{
    return percpu->part[index];
}

#if defined(SQ_MACHINE_SIM)
#include "machine/sim.h"
#else
#include "machine/native.h"
#endif
#include "machine/rt_mutex.h"

#endif
