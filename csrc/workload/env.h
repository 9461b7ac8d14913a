/*
 * One run from the inside: what the functions of the environment share. Private to the
 * three files that unit/workload_<machine>.c puts together: sync.c (waiting), channel.c
 * (sockets and pipes), env.c (objects, tasks, the table).
 */
#ifndef SQ_ENV_H
#define SQ_ENV_H

#include <pthread.h>

#include "machine/machine.h"
#include "machine/sched.h"
#include "policy/memory_policy.h"
#include "workload/runner.h"

#define ENV_WAIT_BUCKET_COUNT 64u

/* Tasks that sleep on a word, by the word's address. */
struct env_wait_bucket {
    _Alignas(SQ_LINE_SIZE) sq_lock lock; /* class WAIT */
    struct sq_wait_queue sleepers;
};

/* A block of env->memory; what the workload gets begins a line further on. */
struct env_block {
    struct env_block *next;
    size_t bytes;
};

struct env_run {
    /* -- constant -- */
    struct sq_runner *runner;
    sq_heap *heap;
    const sq_policy_ops *ops;
    struct sq_runner_cpu *cpus;
    sq_sched *sched;
    uint64_t clock_cost_ns; /* of one reading of the clock */
    uint64_t syscall_ns;
    uint64_t warmup_operations, measure_operations; /* 0: no window */
    bool locks_sleep; /* PREEMPT_RT, simulated: those of sockets do */
    struct sq_memory_policy memory_policy;
    bool is_special;   /* allocations follow a memory policy, or are noted in `live` */
    bool checks_frees; /* wrong_free.h */
    uint8_t *live;     /* a byte for each place where an object may begin, or NULL */
    /* -- who begins and ends the measuring -- */
    uint64_t switches_before, migrations_before;
    bool is_marked_end;
    /* -- any CPU -- */
    pthread_mutex_t mutex; /* `blocks`, making of caches; never held across a switch */
    struct env_block *blocks;
    struct sq_pipe *pipes;
    struct env_wait_bucket buckets[ENV_WAIT_BUCKET_COUNT];
    _Alignas(SQ_LINE_SIZE) sq_lock lock; /* class WAIT: the two below */
    uint64_t
        window_operations; /* so far; relaxed atomic, counted if there is a window */
    uint64_t child_count;  /* tasks but for the first */
    struct sq_wait_queue parent; /* the first task, waiting for the others */
};

static inline struct env_run *env_of(const sq_task *task)
{
    return task->owner;
}

static uint64_t env_now_ns(sq_task *task);
static void env_start_clock(sq_task *task);
/* What a system call takes beside what is simulated of it. */
static void env_charge_syscall(sq_task *task);
/* End the run with this error. Requires no lock held. */
static _Noreturn void env_fail(sq_task *task, const struct sq_error *error);
/* Zeroed, line-aligned memory of the host until the end of the run. */
static void *env_memory(sq_task *task, size_t bytes);
/* Put a pipe on the run's list, through its `next`. */
static void env_keep_pipe(sq_task *task, struct sq_pipe *pipe, struct sq_pipe **next);

#endif
