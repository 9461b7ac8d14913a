/*
 * The simulated machine's primitives: virtual CPUs with virtual clocks, all on one host
 * thread. Included by machine.h only; the contract is documented there.
 *
 * A primitive adds its cost to the clock of its CPU. Where the order of CPUs matters -
 * a lock, an atomic change, a request to other CPUs - it first lets every CPU run that
 * is behind in time; anywhere else a CPU may run ahead. `strict` mode orders every
 * access. Outside a run (an allocator driven by hand, a script) the calling thread is
 * the one CPU that runs, so nothing is ever switched.
 */
#ifndef SQ_SIM_H
#define SQ_SIM_H

/* A touch of a workload is one of lines; the host's memory is left alone. */
#define SQ_TOUCH_IS_REAL 0

#include "base/sq_assert.h"
#include "machine/sim_cost.h"

struct sim_machine;
struct sq_fiber;

/*
 * 8 bytes, like the machine's real ones.
 *   held   holder is its CPU + 1, count how many wait, word the first and last of them
 *   free   count is the CPU that let it go, word when, in units of 256 ps modulo 2^32
 * Letting go of a lock that nobody waited for lately does not wait for the CPUs behind:
 * one of them that comes by earlier in virtual time still finds the lock held until
 * then. `heat` says that somebody did wait lately; then a release is in order too, so
 * that all who wait are known when the lock is handed over.
 */
typedef struct {
    uint16_t holder;
    uint8_t lock_class : 4; /* enum sq_lock_class */
    uint8_t heat : 4;       /* set by a wait, one less with each free lock taken */
    uint8_t count;
    uint32_t word;
} sq_lock;
_Static_assert(sizeof(sq_lock) == 8 && SQ_LOCK_CLASS_COUNT <= 16, "a lock is 8 bytes");

#define SIM_LOCK_HEAT_MAX 15u

typedef struct {
    uint64_t value;
} sq_atomic;

/* A pointer and a counter that change together (the kernel's freelist and tid). */
struct sq_local_pair {
    void *first;
    uint64_t second;
};

/*
 * A sleeping lock. What changes it changes it between two events, so that only its cost
 * needs the lock of the waiters. `owner` is NULL and `outside` is not while a caller that
 * is no task holds it.
 */
struct sq_rt_mutex {
    sq_lock wait_lock; /* class WAIT */
    uint8_t lock_class;
    uint16_t outside;  /* CPU + 1 */
    struct sq_task *owner;
    struct sq_list waiters;       /* sim_waiter.link, the next to get it first */
    struct sq_rt_mutex *next_held; /* of the owner's */
    uint64_t free_ps;             /* when it was let go */
    const void *line;             /* what its instructions touch */
};

#define SIM_SCOPE_DEPTH_MAX 15u

/* The scopes that are open, outermost first; they belong to the task. */
struct sq_scope_stack {
    uint8_t depth;
    uint8_t scope[SIM_SCOPE_DEPTH_MAX];
};

/* How many tasks were runnable, on average: of a CPU, or of the task itself; see
 * sched_place_pelt.h. */
struct sim_load {
    uint64_t level, updated_ps;
    uint32_t runnable_count; /* now */
};

/* What a task keeps for this engine. */
struct sq_task_engine {
    uint64_t vruntime_ps;
    uint64_t started_ps;   /* on its CPU, or booked until then */
    uint64_t ran_until_ps; /* when it last left a CPU */
    bool is_preempted;     /* somewhere in a call: it goes on where it was */
    bool is_queued;        /* on the run queue of its CPU */
    struct sq_rt_mutex *first_held;
    struct sim_waiter *waiter; /* for a sleeping lock; NULL: for none */
    struct sq_scope_stack scopes;
    struct sim_load load;
    uint32_t recent_cpu;       /* used not long ago, to be tried when it wakes */
    uint32_t last_wakee;       /* number + 1 of the task it last woke */
    uint32_t flip_count;       /* how often that became another one, lately */
    uint64_t flips_decayed_ps;
};

/* preempt_at_ps of a CPU that can be preempted, but has no timer. */
#define SIM_NO_TIMER_PS (UINT64_MAX - 1)

struct sq_sim_cpu {
    sq_cpu base; /* must be first */
    uint64_t now_ps;
    uint64_t horizon_ps; /* the clock of the next CPU in time */
    uint64_t strict_ps;  /* the same in strict mode, else the end of time */
    uint64_t slice_end_ps;
    uint64_t preempt_at_ps; /* a timer, or 0: a task of higher priority waits */
    uint64_t access_count;
    uint64_t last_miss; /* the line; the next one up is on its way already */
    uint64_t polled_line, polled_until_ps; /* a line that waiters poll, its own so long */
    /* -- constant: the fast path of an access -- */
    char *region;
    uint64_t region_bytes;
    uint64_t *lines;
    const struct sq_sim_costs *costs;
    struct sim_core *core;
    uint64_t l1_hit_ps, l1_steps;
    uint64_t hit_mask[3], hit_key[3]; /* by enum sim_access */
    struct sim_machine *sim;
    /* -- profile -- */
    struct sq_scope_stack scopes;
    uint64_t scope_since_ps;
    uint64_t scope_ps[SQ_SCOPE_COUNT];
    uint64_t scope_cost_ps[SQ_SCOPE_COUNT]; /* constant */
    /* -- who runs -- */
    struct sq_fiber *running; /* the fiber that is this CPU */
    bool is_active;           /* part of a run, and not done with it */
    bool is_blocked;          /* waits for a lock, or idle */
    bool is_idle;             /* has no task; a request wakes it */
    bool is_spinning;         /* its task waits for the owner of a sleeping lock */
    uint64_t sleeps_until_ps; /* 0: without limit */
    uint16_t next_waiter;     /* for the same lock: CPU + 1 */
    const sq_lock *held[12];
    /* -- request of another CPU -- */
    sq_cpu_function *request_function; /* NULL: none */
    void *request_argument;
};

/* What kind of event the fingerprint folds in. */
enum sim_event {
    SIM_EVENT_LOCK = 1,
    SIM_EVENT_TRY,
    SIM_EVENT_RELEASE, /* of a lock that others wait for, or in strict mode */
    SIM_EVENT_ATOMIC,
    SIM_EVENT_REQUEST,
    SIM_EVENT_RELAX,
    SIM_EVENT_SWITCH,
    SIM_EVENT_WAKE,
    SIM_EVENT_IDLE,
};

void sq_sim_order(struct sq_sim_cpu *cpu);
void sq_sim_event(struct sq_sim_cpu *cpu, enum sim_event event);
void sq_sim_miss(struct sq_sim_cpu *cpu, uint64_t line, enum sim_access access,
                 bool is_further);
void sq_sim_take_request(struct sq_sim_cpu *cpu);
void sq_sim_preempt(struct sq_sim_cpu *cpu);
void sq_sim_charge_preemptibly(struct sq_sim_cpu *cpu, uint64_t ps);
sq_cpu *sq_sim_rt_mutex_acquire(sq_cpu *cpu, struct sq_rt_mutex *mutex);
void sq_sim_rt_mutex_release(sq_cpu *cpu, struct sq_rt_mutex *mutex);
void sq_sim_lock_acquire(sq_cpu *cpu, sq_lock *lock);
bool sq_sim_lock_try(sq_cpu *cpu, sq_lock *lock);
void sq_sim_lock_release(sq_cpu *cpu, sq_lock *lock);
bool sq_sim_fault(sq_cpu *cpu, int64_t ppm);

static inline struct sq_sim_cpu *sq_sim_of(const sq_cpu *cpu)
{
    return (struct sq_sim_cpu *)(uintptr_t)cpu;
}

static inline void sq_sim_charge(struct sq_sim_cpu *cpu, int64_t ps)
{
    cpu->now_ps += (uint64_t)ps;
}

/* A place where another task may take the CPU, if nothing forbids it there. */
static inline void sq_sim_preempt_point(struct sq_sim_cpu *cpu)
{
    if (__builtin_expect(cpu->now_ps >= cpu->preempt_at_ps, 0))
        sq_sim_preempt(cpu);
}

/* One line. Memory outside the machine (stacks of tasks) is always near. */
static inline void sq_sim_access(struct sq_sim_cpu *cpu, uint64_t offset,
                                 enum sim_access access, bool is_further)
{
    uint64_t *line, entry, stamp;
    cpu->access_count++;
    if (offset >= cpu->region_bytes) {
        cpu->now_ps += cpu->l1_hit_ps;
        return;
    }
    line = &cpu->lines[offset / SQ_LINE_SIZE];
    entry = *line;
    stamp = (cpu->core->fill_count >> SIM_CORE_STEP_SHIFT) & SIM_CORE_STAMP_MASK;
    if ((entry & cpu->hit_mask[access]) == cpu->hit_key[access] &&
        ((stamp - (entry >> SIM_CORE_STAMP_SHIFT)) & SIM_CORE_STAMP_MASK) <=
            cpu->l1_steps) {
        *line = (entry & ~(SIM_CORE_STAMP_MASK << SIM_CORE_STAMP_SHIFT)) |
                stamp << SIM_CORE_STAMP_SHIFT;
        cpu->now_ps += cpu->l1_hit_ps;
        return;
    }
    sq_sim_miss(cpu, offset / SQ_LINE_SIZE, access, is_further);
}

/* Every line of `bytes` at `address`, in order. */
static inline void sq_sim_touch(sq_cpu *base, const void *address, size_t bytes,
                                enum sim_access access)
{
    struct sq_sim_cpu *cpu = sq_sim_of(base);
    uint64_t offset = (uint64_t)((uintptr_t)address - (uintptr_t)cpu->region);
    uint64_t first_gap = offset < cpu->region_bytes ? offset % SQ_LINE_SIZE : 0;
    uint64_t end = first_gap + (bytes > 0 ? bytes : 1);
    if (cpu->now_ps > cpu->strict_ps)
        sq_sim_order(cpu);
    sq_sim_access(cpu, offset, access, false);
    for (uint64_t done = SQ_LINE_SIZE; done < end; done += SQ_LINE_SIZE)
        sq_sim_access(cpu, offset - first_gap + done, access, true);
    sq_sim_preempt_point(cpu);
}

/* ---- execution context ---- */

static inline void sq_irq_save(sq_cpu *cpu)
{
    cpu->irq_depth++;
    sq_sim_charge(sq_sim_of(cpu), sq_sim_of(cpu)->costs->irq_save_ps);
}

static inline void sq_cpu_poll(sq_cpu *cpu)
{
    if (sq_sim_of(cpu)->request_function != NULL)
        sq_sim_take_request(sq_sim_of(cpu));
}

static inline void sq_irq_restore(sq_cpu *cpu)
{
    sq_sim_charge(sq_sim_of(cpu), sq_sim_of(cpu)->costs->irq_restore_ps);
    SQ_ASSERT(cpu->irq_depth > 0);
    if (--cpu->irq_depth == 0) {
        sq_cpu_poll(cpu);
        sq_sim_preempt_point(sq_sim_of(cpu));
    }
}

/* Time of a loop that waits for another CPU. */
static inline void sq_cpu_relax(sq_cpu *cpu)
{
    sq_cpu_poll(cpu);
    sq_sim_charge(sq_sim_of(cpu), 100000);
    sq_sim_event(sq_sim_of(cpu), SIM_EVENT_RELAX);
}

static inline void sq_preempt_disable(sq_cpu *cpu)
{
    cpu->preempt_depth++;
    sq_sim_charge(sq_sim_of(cpu), sq_sim_of(cpu)->costs->preempt_ps);
}

static inline void sq_preempt_enable(sq_cpu *cpu)
{
    SQ_ASSERT(cpu->preempt_depth > 0);
    cpu->preempt_depth--; /* charged where it was disabled */
    sq_sim_preempt_point(sq_sim_of(cpu));
}

/* Taken for as many instructions as preemption off and on again. */
static inline void sq_migrate_disable(sq_cpu *cpu)
{
    cpu->context.migrate_depth++;
    sq_sim_charge(sq_sim_of(cpu), sq_sim_of(cpu)->costs->preempt_ps);
}

static inline void sq_migrate_enable(sq_cpu *cpu)
{
    SQ_ASSERT(cpu->context.migrate_depth > 0);
    cpu->context.migrate_depth--;
}

static inline uint64_t sq_random(sq_cpu *cpu)
{
    return sq_rng_next(&cpu->rng);
}

static inline uint64_t sq_now_ns(const sq_cpu *cpu)
{
    return sq_sim_of(cpu)->now_ps / 1000;
}

static inline void sq_charge_ns(sq_cpu *cpu, uint64_t ns)
{
    struct sq_sim_cpu *sim = sq_sim_of(cpu);
    if (sim->preempt_at_ps != UINT64_MAX)
        sq_sim_charge_preemptibly(sim, ns * 1000);
    else
        sim->now_ps += ns * 1000;
}

static inline bool sq_slice_is_over(const sq_cpu *cpu)
{
    return sq_sim_of(cpu)->now_ps >= sq_sim_of(cpu)->slice_end_ps;
}

/* Offset in the machine's memory; all other addresses are one place. */
static inline uint64_t sq_place_of(const sq_machine *machine, const void *address)
{
    uint64_t first = (uintptr_t)machine->region;
    uint64_t offset = (uintptr_t)address - first;
    return offset < machine->region_bytes ? offset : 0;
}

static inline bool sq_fault_pages(sq_cpu *cpu)
{
    int64_t ppm = sq_sim_of(cpu)->costs->fault_pages_ppm;
    return ppm > 0 && sq_sim_fault(cpu, ppm);
}

/* ---- locks ---- */

static inline void sq_lock_init(sq_lock *lock, enum sq_lock_class lock_class)
{
    lock->holder = 0;
    lock->lock_class = (uint8_t)lock_class & 15u;
    lock->heat = 0;
    lock->count = 0;
    lock->word = 0;
}

static inline void sq_lock_acquire(sq_cpu *cpu, sq_lock *lock)
{
    sq_sim_lock_acquire(cpu, lock);
}

static inline bool sq_lock_try(sq_cpu *cpu, sq_lock *lock)
{
    return sq_sim_lock_try(cpu, lock);
}

static inline void sq_lock_release(sq_cpu *cpu, sq_lock *lock)
{
    sq_sim_lock_release(cpu, lock);
}

static inline bool sq_lock_is_held_by(const sq_cpu *cpu, const sq_lock *lock)
{
    return lock->holder == cpu->index + 1;
}

/* A macro, so that a failure names the caller's line. */
#define sq_lock_assert_held(cpu, lock) SQ_ASSERT(sq_lock_is_held_by(cpu, lock))

static inline void sq_rt_mutex_init(struct sq_rt_mutex *mutex,
                                    enum sq_lock_class lock_class, const void *line)
{
    sq_lock_init(&mutex->wait_lock, SQ_LOCK_WAIT);
    mutex->lock_class = (uint8_t)lock_class;
    mutex->outside = 0;
    mutex->owner = NULL;
    sq_list_init(&mutex->waiters);
    mutex->next_held = NULL;
    mutex->free_ps = 0;
    mutex->line = line;
}

static inline sq_cpu *sq_rt_mutex_acquire(sq_cpu *cpu, struct sq_rt_mutex *mutex)
{
    return sq_sim_rt_mutex_acquire(cpu, mutex);
}

static inline void sq_rt_mutex_release(sq_cpu *cpu, struct sq_rt_mutex *mutex)
{
    sq_sim_rt_mutex_release(cpu, mutex);
}

static inline bool sq_rt_mutex_is_held_by(const sq_cpu *cpu,
                                          const struct sq_rt_mutex *mutex)
{
    return cpu->task != NULL ? mutex->owner == cpu->task
                             : mutex->outside == cpu->index + 1;
}

#define sq_rt_mutex_assert_held(cpu, mutex) SQ_ASSERT(sq_rt_mutex_is_held_by(cpu, mutex))

/* ---- atomics ---- */

static inline uint64_t sq_load_relaxed(sq_cpu *cpu, const sq_atomic *atomic)
{
    sq_sim_touch(cpu, atomic, sizeof(*atomic), SIM_READ);
    return atomic->value;
}

static inline uint64_t sq_load_acquire(sq_cpu *cpu, const sq_atomic *atomic)
{
    return sq_load_relaxed(cpu, atomic);
}

static inline void sq_store_relaxed(sq_cpu *cpu, sq_atomic *atomic, uint64_t value)
{
    sq_sim_touch(cpu, atomic, sizeof(*atomic), SIM_WRITE);
    atomic->value = value;
}

static inline void sq_store_release(sq_cpu *cpu, sq_atomic *atomic, uint64_t value)
{
    sq_store_relaxed(cpu, atomic, value);
}

/* The line, for an instruction that changes it at one moment. */
static inline void sq_sim_atomic(sq_cpu *cpu, const sq_atomic *atomic, int64_t ps)
{
    sq_sim_event(sq_sim_of(cpu), SIM_EVENT_ATOMIC);
    sq_sim_touch(cpu, atomic, sizeof(*atomic), SIM_ATOMIC);
    sq_sim_charge(sq_sim_of(cpu), ps);
}

static inline uint64_t sq_add_relaxed(sq_cpu *cpu, sq_atomic *atomic, uint64_t value)
{
    uint64_t old;
    sq_sim_atomic(cpu, atomic, sq_sim_of(cpu)->costs->atomic_ps);
    old = atomic->value;
    atomic->value = old + value;
    return old;
}

static inline bool sq_sim_cas(sq_atomic *atomic, uint64_t expected, uint64_t desired)
{
    if (atomic->value != expected)
        return false;
    atomic->value = desired;
    return true;
}

static inline bool sq_cas_acq_rel(sq_cpu *cpu, sq_atomic *atomic, uint64_t expected,
                                  uint64_t desired)
{
    sq_sim_atomic(cpu, atomic, sq_sim_of(cpu)->costs->atomic_ps);
    return sq_sim_cas(atomic, expected, desired);
}

static inline bool sq_cas_double(sq_cpu *cpu, sq_atomic *atomic, uint64_t expected,
                                 uint64_t desired)
{
    sq_sim_atomic(cpu, atomic, sq_sim_of(cpu)->costs->cas_double_ps);
    return sq_sim_cas(atomic, expected, desired);
}

static inline bool sq_local_cas_double(sq_cpu *cpu, struct sq_local_pair *pair,
                                       void *first, uint64_t second, void *new_first,
                                       uint64_t new_second)
{
    int64_t ppm = sq_sim_of(cpu)->costs->fault_local_cas_ppm;
    sq_sim_touch(cpu, pair, sizeof(*pair), SIM_WRITE);
    sq_sim_charge(sq_sim_of(cpu), sq_sim_of(cpu)->costs->local_cas_ps);
    if (pair->first != first || pair->second != second ||
        (ppm > 0 && sq_sim_fault(cpu, ppm)))
        return false;
    pair->first = new_first;
    pair->second = new_second;
    return true;
}

/* ---- cost ---- */

static inline void sq_touch_read(sq_cpu *cpu, const void *address, size_t bytes)
{
    sq_sim_touch(cpu, address, bytes, SIM_READ);
}

static inline void sq_touch_write(sq_cpu *cpu, const void *address, size_t bytes)
{
    sq_sim_touch(cpu, address, bytes, SIM_WRITE);
}

static inline void sq_touch_local(sq_cpu *cpu, const void *address, size_t bytes)
{
    sq_sim_touch(cpu, address, bytes, SIM_WRITE);
}

/* Book the time since the last change of scope on the innermost one. */
static inline void sq_sim_book(struct sq_sim_cpu *cpu)
{
    uint32_t depth = cpu->scopes.depth;
    uint8_t scope = depth > 0 ? cpu->scopes.scope[depth - 1] : SQ_SCOPE_WORKLOAD;
    cpu->scope_ps[scope] += cpu->now_ps - cpu->scope_since_ps;
    cpu->scope_since_ps = cpu->now_ps;
}

static inline void sq_sim_scope_enter(sq_cpu *base, enum sq_scope scope)
{
    struct sq_sim_cpu *cpu = sq_sim_of(base);
    sq_sim_book(cpu);
    SQ_ASSERT(cpu->scopes.depth < SIM_SCOPE_DEPTH_MAX);
    cpu->scopes.scope[cpu->scopes.depth++] = (uint8_t)scope;
    cpu->now_ps += cpu->scope_cost_ps[scope];
}

static inline void sq_sim_scope_leave(sq_cpu *base, enum sq_scope scope)
{
    struct sq_sim_cpu *cpu = sq_sim_of(base);
    SQ_ASSERT(cpu->scopes.depth > 0 &&
              cpu->scopes.scope[cpu->scopes.depth - 1] == scope);
    sq_sim_book(cpu);
    cpu->scopes.depth--;
}

#define sq_scope_enter(cpu, scope) sq_sim_scope_enter(cpu, SQ_SCOPE_##scope)
#define sq_scope_leave(cpu, scope) sq_sim_scope_leave(cpu, SQ_SCOPE_##scope)

/* A scope that ends with the block it is in, however that is left. */
struct sq_sim_in_scope {
    sq_cpu *cpu;
    const struct sq_task *task; /* if any, tells the CPU at the end of the block */
    enum sq_scope scope;
};

static inline struct sq_sim_in_scope sq_sim_scope_begin(sq_cpu *cpu,
                                                        enum sq_scope scope)
{
    sq_sim_scope_enter(cpu, scope);
    return (struct sq_sim_in_scope){cpu, cpu->task, scope};
}

static inline void sq_sim_scope_end(const struct sq_sim_in_scope *in)
{
    sq_sim_scope_leave(in->task != NULL ? sq_cpu_of_task(in->task) : in->cpu, in->scope);
}

#define SQ_IN_SCOPE(cpu, scope)                                                        \
    const struct sq_sim_in_scope SQ_CAT(sq_in_scope_, __LINE__)                        \
        __attribute__((unused, cleanup(sq_sim_scope_end))) =                           \
            sq_sim_scope_begin(cpu, SQ_SCOPE_##scope)

#endif
