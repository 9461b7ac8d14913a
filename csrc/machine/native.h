/*
 * The native machine's inline primitives: C11 atomics, real memory, a thread that is the
 * CPU. Included by machine.h only; the contract is documented there.
 *
 * One thread at a time is a CPU (sq_cpu_enter in native_cpu.h), so per-CPU data needs
 * neither lock nor atomic instruction, and turning interrupts off is a matter of when
 * requests of other CPUs are taken.
 */
#ifndef SQ_NATIVE_H
#define SQ_NATIVE_H

/* A touch of a workload is a touch of memory. */
#define SQ_TOUCH_IS_REAL 1

#include <stdatomic.h>

/* Spins briefly, then yields the host CPU: virtual CPUs may outnumber real ones. */
typedef struct {
    _Atomic uint32_t held;
    uint8_t lock_class; /* enum sq_lock_class */
} sq_lock;

typedef struct {
    _Atomic uint64_t value;
} sq_atomic;

/* A sleeping lock. `state` is changed by whoever takes or lets go, the list under
 * `wait_lock`. */
struct sq_rt_mutex {
    _Atomic uint32_t state; /* enum native_mutex_state */
    uint8_t lock_class;
    sq_lock wait_lock; /* class WAIT */
    struct sq_list waiters;
};

enum native_mutex_state {
    NATIVE_MUTEX_FREE,
    NATIVE_MUTEX_HELD,
    NATIVE_MUTEX_WAITED, /* held, and somebody may sleep on it */
};

/* A pointer and a counter that change together (the kernel's freelist and tid). */
struct sq_local_pair {
    void *first;
    uint64_t second;
};

/* What a task keeps for this engine: nothing. */
struct sq_task_engine {
    char unused;
};

struct sq_native_cpu {
    _Alignas(SQ_LINE_SIZE) sq_cpu base; /* must be first */
    /* -- any thread -- */
    _Alignas(SQ_LINE_SIZE) _Atomic uint32_t occupied; /* a thread is this CPU */
    _Atomic uint32_t request_pending; /* another CPU wants a function run here */
    sq_cpu_function *request_function; /* published by request_pending */
    void *request_argument;
    _Atomic uint32_t request_done;
};

void sq_native_lock_wait(sq_cpu *cpu, sq_lock *lock);
void sq_native_take_request(sq_cpu *cpu);
sq_cpu *sq_native_rt_mutex_wait(sq_cpu *cpu, struct sq_rt_mutex *mutex);
void sq_native_rt_mutex_wake(sq_cpu *cpu, struct sq_rt_mutex *mutex);
void sq_native_remote_delay(sq_cpu *cpu, const void *address, size_t bytes);
void sq_native_relax(void);
uint64_t sq_native_now_ns(void);

/* ---- execution context ---- */

static inline void sq_irq_save(sq_cpu *cpu)
{
    cpu->irq_depth++;
}

/* Take a request of another CPU, if there is one and irqs are on. */
static inline void sq_cpu_poll(sq_cpu *cpu)
{
    struct sq_native_cpu *native = (struct sq_native_cpu *)cpu;
    if (atomic_load_explicit(&native->request_pending, memory_order_relaxed) != 0)
        sq_native_take_request(cpu);
}

static inline void sq_cpu_relax(sq_cpu *cpu)
{
    sq_cpu_poll(cpu);
    sq_native_relax();
}

static inline uint64_t sq_now_ns(const sq_cpu *cpu)
{
    (void)cpu;
    return sq_native_now_ns();
}

static inline void sq_charge_ns(sq_cpu *cpu, uint64_t ns)
{
    (void)cpu;
    (void)ns;
}

static inline bool sq_slice_is_over(const sq_cpu *cpu)
{
    (void)cpu;
    return false;
}

static inline bool sq_fault_pages(sq_cpu *cpu)
{
    (void)cpu;
    return false;
}

static inline uint64_t sq_place_of(const sq_machine *machine, const void *address)
{
    (void)machine;
    return (uintptr_t)address;
}

static inline void sq_irq_restore(sq_cpu *cpu)
{
    SQ_ASSERT_INTERNAL(cpu->irq_depth > 0);
    if (--cpu->irq_depth == 0)
        sq_cpu_poll(cpu);
}

static inline void sq_preempt_disable(sq_cpu *cpu)
{
    (void)cpu;
}

static inline void sq_preempt_enable(sq_cpu *cpu)
{
    (void)cpu;
}

static inline void sq_migrate_disable(sq_cpu *cpu)
{
    cpu->context.migrate_depth++;
}

static inline void sq_migrate_enable(sq_cpu *cpu)
{
    SQ_ASSERT_INTERNAL(cpu->context.migrate_depth > 0);
    cpu->context.migrate_depth--;
}

static inline uint64_t sq_random(sq_cpu *cpu)
{
    return sq_rng_next(&cpu->rng);
}

/* ---- locks ---- */

static inline void sq_lock_init(sq_lock *lock, enum sq_lock_class lock_class)
{
    atomic_init(&lock->held, 0);
    lock->lock_class = (uint8_t)lock_class;
}

static inline void sq_lock_note(sq_cpu *cpu, const sq_lock *lock, bool ranked)
{
    cpu->lock_stats[lock->lock_class].acquisitions++;
    if (SQ_ASSERT_LEVEL >= 2) {
        for (uint32_t i = 0; ranked && i < cpu->held_count; i++)
            SQ_ASSERT(cpu->held_class[i] < lock->lock_class);
        SQ_ASSERT(cpu->held_count < sizeof(cpu->held_class));
        cpu->held_class[cpu->held_count++] = lock->lock_class;
    }
}

static inline bool sq_lock_try(sq_cpu *cpu, sq_lock *lock)
{
    if (atomic_load_explicit(&lock->held, memory_order_relaxed) != 0 ||
        atomic_exchange_explicit(&lock->held, 1, memory_order_acquire) != 0)
        return false;
    sq_lock_note(cpu, lock, false);
    return true;
}

static inline void sq_lock_acquire(sq_cpu *cpu, sq_lock *lock)
{
    if (atomic_exchange_explicit(&lock->held, 1, memory_order_acquire) != 0)
        sq_native_lock_wait(cpu, lock);
    sq_lock_note(cpu, lock, true);
}

static inline void sq_lock_release(sq_cpu *cpu, sq_lock *lock)
{
    if (SQ_ASSERT_LEVEL >= 2) {
        uint32_t i = cpu->held_count;
        while (i > 0 && cpu->held_class[i - 1] != lock->lock_class)
            i--;
        SQ_ASSERT(i > 0); /* released by a CPU that does not hold it */
        for (; i < cpu->held_count; i++)
            cpu->held_class[i - 1] = cpu->held_class[i];
        cpu->held_count--;
    }
    atomic_store_explicit(&lock->held, 0, memory_order_release);
}

static inline bool sq_lock_is_held(sq_lock *lock)
{
    return atomic_load_explicit(&lock->held, memory_order_relaxed) != 0;
}

/* A macro, so that a failure names the caller's line. */
#define sq_lock_assert_held(cpu, lock) SQ_ASSERT_INTERNAL(((void)(cpu), sq_lock_is_held(lock)))

static inline void sq_rt_mutex_init(struct sq_rt_mutex *mutex,
                                    enum sq_lock_class lock_class, const void *line)
{
    (void)line; /* the lock lies where it lies */
    atomic_init(&mutex->state, NATIVE_MUTEX_FREE);
    mutex->lock_class = (uint8_t)lock_class;
    sq_lock_init(&mutex->wait_lock, SQ_LOCK_WAIT);
    sq_list_init(&mutex->waiters);
}

static inline sq_cpu *sq_rt_mutex_acquire(sq_cpu *cpu, struct sq_rt_mutex *mutex)
{
    uint32_t expected = NATIVE_MUTEX_FREE;
    struct sq_task_context *context;
    SQ_ASSERT_INTERNAL(cpu->irq_depth == 0 && cpu->held_count == 0);
    if (!atomic_compare_exchange_strong_explicit(&mutex->state, &expected,
                                                 NATIVE_MUTEX_HELD, memory_order_acquire,
                                                 memory_order_relaxed))
        cpu = sq_native_rt_mutex_wait(cpu, mutex);
    context = &cpu->context;
    for (uint32_t i = 0; SQ_ASSERT_LEVEL >= 2 && i < context->mutex_count; i++)
        SQ_ASSERT(context->mutex_class[i] < mutex->lock_class);
    SQ_ASSERT(context->mutex_count < SQ_MUTEX_HELD_MAX);
    context->mutex_class[context->mutex_count++] = mutex->lock_class;
    context->migrate_depth++;
    cpu->mutex_count++;
    cpu->lock_stats[mutex->lock_class].acquisitions++;
    return cpu;
}

static inline void sq_rt_mutex_release(sq_cpu *cpu, struct sq_rt_mutex *mutex)
{
    struct sq_task_context *context = &cpu->context;
    SQ_ASSERT(context->mutex_count > 0 && /* let go in the order opposite to taking */
              context->mutex_class[context->mutex_count - 1] == mutex->lock_class);
    context->mutex_count--;
    context->migrate_depth--;
    cpu->mutex_count--;
    if (atomic_exchange_explicit(&mutex->state, NATIVE_MUTEX_FREE,
                                 memory_order_release) == NATIVE_MUTEX_WAITED)
        sq_native_rt_mutex_wake(cpu, mutex);
    sq_cpu_poll(cpu);
}

/* Natively it is known that somebody holds it, not who. */
#define sq_rt_mutex_assert_held(cpu, mutex)                                            \
    SQ_ASSERT_INTERNAL(((void)(cpu), atomic_load_explicit(&(mutex)->state,             \
                                                          memory_order_relaxed) !=     \
                                         NATIVE_MUTEX_FREE))

/* ---- atomics ---- */

static inline uint64_t sq_load_relaxed(sq_cpu *cpu, const sq_atomic *atomic)
{
    (void)cpu;
    return atomic_load_explicit(&atomic->value, memory_order_relaxed);
}

static inline uint64_t sq_load_acquire(sq_cpu *cpu, const sq_atomic *atomic)
{
    (void)cpu;
    return atomic_load_explicit(&atomic->value, memory_order_acquire);
}

static inline void sq_store_relaxed(sq_cpu *cpu, sq_atomic *atomic, uint64_t value)
{
    (void)cpu;
    atomic_store_explicit(&atomic->value, value, memory_order_relaxed);
}

static inline void sq_store_release(sq_cpu *cpu, sq_atomic *atomic, uint64_t value)
{
    (void)cpu;
    atomic_store_explicit(&atomic->value, value, memory_order_release);
}

static inline uint64_t sq_add_relaxed(sq_cpu *cpu, sq_atomic *atomic, uint64_t value)
{
    (void)cpu;
    return atomic_fetch_add_explicit(&atomic->value, value, memory_order_relaxed);
}

static inline bool sq_cas_acq_rel(sq_cpu *cpu, sq_atomic *atomic, uint64_t expected,
                                  uint64_t desired)
{
    (void)cpu;
    return atomic_compare_exchange_strong_explicit(&atomic->value, &expected, desired,
                                                   memory_order_acq_rel,
                                                   memory_order_acquire);
}

static inline bool sq_cas_double(sq_cpu *cpu, sq_atomic *atomic, uint64_t expected,
                                 uint64_t desired)
{
    return sq_cas_acq_rel(cpu, atomic, expected, desired);
}

/* The thread is the CPU and nothing interrupts it here: a compare and two stores. */
static inline bool sq_local_cas_double(sq_cpu *cpu, struct sq_local_pair *pair,
                                       void *first, uint64_t second, void *new_first,
                                       uint64_t new_second)
{
    (void)cpu;
    if (pair->first != first || pair->second != second)
        return false;
    pair->first = new_first;
    pair->second = new_second;
    return true;
}

/* ---- cost ---- */

static inline void sq_touch_read(sq_cpu *cpu, const void *address, size_t bytes)
{
    if (cpu->remote_delay_loops != NULL)
        sq_native_remote_delay(cpu, address, bytes);
}

static inline void sq_touch_write(sq_cpu *cpu, const void *address, size_t bytes)
{
    sq_touch_read(cpu, address, bytes);
}

static inline void sq_touch_local(sq_cpu *cpu, const void *address, size_t bytes)
{
    (void)cpu;
    (void)address;
    (void)bytes;
}

#define sq_scope_enter(cpu, scope) ((void)(cpu))
#define sq_scope_leave(cpu, scope) ((void)(cpu))
#define SQ_IN_SCOPE(cpu, scope)    ((void)(cpu))

#endif
