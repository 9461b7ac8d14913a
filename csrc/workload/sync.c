/*
 * Waiting: barriers, and sleeping on a word. Part of unit/workload_<machine>.c.
 *
 * A word has no memory of its own for its sleepers: they are in one of a fixed number
 * of buckets, by the word's address, and each task says in its sleep what it waits for.
 */
#include "workload/env.h"

struct sq_barrier {
    sq_lock lock; /* class WAIT: all below */
    uint32_t count;
    bool starts_clock;
    uint32_t arrived_count;
    struct sq_wait_queue waiting;
};

static sq_barrier *sync_barrier_create(sq_task *task, uint32_t count, bool starts_clock)
{
    sq_barrier *barrier = env_memory(task, sizeof(*barrier));
    sq_lock_init(&barrier->lock, SQ_LOCK_WAIT);
    sq_wait_queue_init(&barrier->waiting);
    barrier->count = count;
    barrier->starts_clock = starts_clock;
    return barrier;
}

static bool sync_barrier_wait(sq_task *task, sq_barrier *barrier)
{
    sq_cpu *cpu = sq_task_step_blocking(task);
    sq_lock_acquire(cpu, &barrier->lock);
    if (++barrier->arrived_count < barrier->count) {
        sq_wait_sleep(task, &barrier->waiting, &barrier->lock);
        return false;
    }
    barrier->arrived_count = 0;
    if (barrier->starts_clock)
        env_start_clock(task);
    (void)sq_wait_wake(cpu, &barrier->waiting, UINT32_MAX);
    sq_lock_release(cpu, &barrier->lock);
    return true;
}

static struct env_wait_bucket *sync_bucket_of(struct env_run *run, const uint64_t *word)
{
    uint64_t place = sq_place_of(run->runner->machine, word);
    uint64_t hash = (place >> 3) * UINT64_C(0x9E3779B97F4A7C15);
    return &run->buckets[(hash >> 32) % ENV_WAIT_BUCKET_COUNT];
}

static void sync_wait(sq_task *task, const uint64_t *word, uint64_t value)
{
    struct env_wait_bucket *bucket = sync_bucket_of(env_of(task), word);
    for (;;) {
        sq_cpu *cpu = sq_task_step_blocking(task);
        sq_lock_acquire(cpu, &bucket->lock);
        if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != value) {
            sq_lock_release(cpu, &bucket->lock);
            return;
        }
        task->waits_for = word;
        sq_wait_sleep(task, &bucket->sleepers, &bucket->lock);
    }
}

static void sync_wake(sq_task *task, const uint64_t *word)
{
    struct env_wait_bucket *bucket = sync_bucket_of(env_of(task), word);
    sq_cpu *cpu = sq_task_step_blocking(task);
    struct sq_wait_queue woken;
    sq_wait_queue_init(&woken);
    sq_lock_acquire(cpu, &bucket->lock);
    SQ_LIST_EACH_SAFE (link, next, &bucket->sleepers.tasks) {
        if (SQ_LIST_ENTRY(link, sq_task, link)->waits_for == word)
            sq_list_move_tail(link, &woken.tasks);
    }
    (void)sq_wait_wake(cpu, &woken, UINT32_MAX);
    sq_lock_release(cpu, &bucket->lock);
}
