/*
 * The scheduler on host threads. See sched.h for what it promises.
 *
 * Locks, outermost first: the lock of a wait queue, then one run queue's (class RUN),
 * never two of those. `mutex` is the host's and comes last; it guards sleep and wake-up
 * of threads, never a task's path unless a CPU is idle.
 *
 * Sleep without a lost wake-up: who queues a task adds to the queue's count, then looks
 * at `idle_count`; who goes idle adds to `idle_count`, then looks at all counts. Both
 * are sequentially consistent, so at least one of the two sees the other.
 *
 * All tasks wait <=> every CPU is idle, every queue empty and no task sleeps until a
 * time, as only a running task or the clock can wake one. The last CPU to go idle sees it.
 *
 * A CPU's list of tasks that sleep until a time is its own: it alone adds to it and takes
 * from it, between tasks. An idle CPU sleeps until the first of them.
 */
#include "machine/sched.h"

#include "machine/sched_threads.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SCHED_TICK_NS 50000000

/* ---- tasks ---- */

/* Give the CPU back to its loop, which does what `after` says. */
static void sched_leave_cpu(sq_task *task, enum sched_after after)
{
    struct sched_cpu *self = sched_cpu_of(task);
    self->after = after;
    sq_fiber_switch(&task->fiber, &self->loop);
}

static void sched_task_main(void *argument)
{
    sq_task *task = argument;
    struct sched_cpu *self;
    task->function(task, task->argument);
    self = sched_cpu_of(task);
    self->after = SCHED_ENDED;
    sq_fiber_exit(&task->fiber, &self->loop);
}

static void sched_task_free(struct sched *sched, sq_task *task)
{
    (void)pthread_mutex_lock(&sched->mutex);
    sq_list_unlink(&task->sched_link);
    if (--sched->task_count == 0) {
        atomic_store(&sched->is_finished, true);
        sched_wake_all(sched);
    }
    (void)pthread_mutex_unlock(&sched->mutex);
    sq_fiber_destroy(&sched->stacks, &task->fiber);
    free(task);
}

int sq_task_create(sq_cpu *cpu, sq_sched *base, sq_task_function *function,
                   void *argument, void *owner, int32_t index, bool is_pinned,
                   struct sq_error *error)
{
    struct sched *sched = (struct sched *)base;
    sq_task *task =
        aligned_alloc(SQ_LINE_SIZE, sq_align_up(sizeof(*task), SQ_LINE_SIZE));
    int code;
    SQ_ASSERT(index < (int32_t)sched->cpu_count);
    if (task == NULL)
        return sq_error_set(error, SQ_E_MEMORY, "the host has no memory for a task");
    memset(task, 0, sizeof(*task));
    task->sched = base;
    task->owner = owner;
    task->function = function;
    task->argument = argument;
    task->is_pinned = is_pinned;
    task->calls_left = sched->config.slice_calls;
    sq_list_init(&task->link);
    code = sq_fiber_create(&sched->stacks, &task->fiber, sched_task_main, task, error);
    if (code != SQ_OK) {
        free(task);
        return code;
    }
    if (index < 0)
        index = (int32_t)(atomic_fetch_add(&sched->next_cpu, 1) % sched->cpu_count);
    task->cpu = sched->machine->ops->cpu_at(sched->machine, (uint32_t)index);
    (void)pthread_mutex_lock(&sched->mutex);
    task->number = sched->task_number++;
    sched->task_count++;
    sq_list_link_tail(&task->sched_link, &sched->tasks);
    (void)pthread_mutex_unlock(&sched->mutex);
    sched_enqueue(cpu, &sched->cpus[index], task);
    return SQ_OK;
}

void sq_task_yield(sq_task *task)
{
    struct sched_cpu *self = sched_cpu_of(task);
    sq_cpu_poll(task->cpu);
    if (atomic_load_explicit(&self->queued_count, memory_order_relaxed) > 0)
        sched_leave_cpu(task, SCHED_YIELDS);
}

void sq_task_sleep_until(sq_task *task, uint64_t time_ns)
{
    task->wake_ns = time_ns;
    sched_leave_cpu(task, SCHED_NAPS);
}

void sq_task_look_at_timers(sq_task *task)
{
    struct sched_cpu *self = sched_cpu_of(task);
    if (!sq_list_is_empty(&self->timers) && sched_run_timers(sched_of(task), self) > 0)
        sched_leave_cpu(task, SCHED_YIELDS);
}

_Noreturn void sq_task_abandon(sq_task *task)
{
    sched_leave_cpu(task, SCHED_ABANDONED);
    abort(); /* an abandoned task was continued */
}

/* Start a new slice. The task leaves its CPU at its next call that may block. */
void sq_task_next_slice(sq_task *task)
{
    uint32_t calls = sched_of(task)->config.slice_calls;
    task->calls_left = calls > 0 ? calls - 1 : UINT32_MAX;
    task->slice_is_over = calls > 0;
    sq_cpu_poll(task->cpu);
}

void sq_task_set_priority(sq_task *task, uint32_t priority)
{
    SQ_ASSERT(priority <= SQ_TASK_PRIORITY_MAX);
    task->own_priority = task->priority = priority;
}

void sq_task_block(sq_task *task, sq_lock *lock)
{
    uint32_t *inside_count = &task->sched->inside_count;
    (void)__atomic_fetch_add(inside_count, 1, __ATOMIC_SEQ_CST);
    sched_cpu_of(task)->release = lock;
    sched_leave_cpu(task, SCHED_SLEEPS);
    (void)__atomic_fetch_sub(inside_count, 1, __ATOMIC_SEQ_CST);
}

void sq_wait_sleep(sq_task *task, struct sq_wait_queue *queue, sq_lock *lock)
{
    sq_lock_assert_held(task->cpu, lock);
    sq_list_link_tail(&task->link, &queue->tasks);
    sched_cpu_of(task)->release = lock;
    sched_leave_cpu(task, SCHED_SLEEPS);
}

uint32_t sq_wait_wake(sq_cpu *cpu, struct sq_wait_queue *queue, uint32_t limit_count)
{
    uint32_t count = 0;
    while (count < limit_count && !sq_list_is_empty(&queue->tasks)) {
        sq_task *task = SQ_LIST_ENTRY(queue->tasks.next, sq_task, link);
        sq_list_unlink(&task->link);
        sched_enqueue(cpu, sched_place(cpu, task), task);
        count++;
    }
    return count;
}

/* ---- a CPU ---- */

static void sched_run_task(struct sched *sched, struct sched_cpu *self, sq_task *task)
{
    if (task->cpu != self->cpu)
        self->migration_count++;
    if (task != self->last)
        self->switch_count++;
    self->last = task;
    task->cpu = self->cpu;
    self->cpu->task = task;
    self->cpu->context = task->context;
    sq_fiber_switch(&self->loop, &task->fiber);
    task->context = self->cpu->context;
    self->cpu->context = (struct sq_task_context){0};
    self->cpu->task = NULL;
    switch (self->after) {
    case SCHED_SLEEPS:
        sq_lock_release(self->cpu, self->release); /* now a waker may run it */
        break;
    case SCHED_YIELDS:
        sched_enqueue(self->cpu, self, task);
        break;
    case SCHED_NAPS:
        sched_add_timer(sched, self, task);
        break;
    case SCHED_ENDED:
        self->last = NULL;
        sched_task_free(sched, task);
        break;
    case SCHED_ABANDONED:
        break;
    }
}

/* Onto one host CPU, so that what the virtual CPU finds in its caches is its own. A
 * host that refuses costs precision and not the run. */
static void sched_pin(uint32_t index)
{
    cpu_set_t allowed, one;
    uint32_t skip;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0 ||
        CPU_COUNT(&allowed) == 0)
        return;
    skip = index % (uint32_t)CPU_COUNT(&allowed);
    for (int host = 0; host < CPU_SETSIZE; host++) {
        if (!CPU_ISSET(host, &allowed) || skip-- > 0)
            continue;
        CPU_ZERO(&one);
        CPU_SET(host, &one);
        (void)sched_setaffinity(0, sizeof(one), &one);
        return;
    }
}

static void *sched_thread_main(void *argument)
{
    struct sched_cpu *self = argument;
    struct sched *sched = self->sched;
    sched_pin(self->index);
    sq_fiber_adopt_thread(&self->loop);
    self->cpu = sched->machine->ops->cpu_enter(sched->machine, self->index);
    while (!atomic_load(&sched->is_finished) ||
           __atomic_load_n(&sched->base.inside_count, __ATOMIC_SEQ_CST) > 0) {
        sq_task *task;
        sq_cpu_poll(self->cpu);
        if (!sq_list_is_empty(&self->timers))
            (void)sched_run_timers(sched, self);
        task = sched_pick(sched, self);
        if (task == NULL)
            sched_idle(sched, self);
        else
            sched_run_task(sched, self, task);
    }
    sched->machine->ops->cpu_leave(self->cpu);
    (void)pthread_mutex_lock(&sched->mutex);
    sched->running_thread_count--;
    (void)pthread_cond_signal(&sched->thread_ended);
    (void)pthread_mutex_unlock(&sched->mutex);
    return NULL;
}

/* ---- a run ---- */

sq_sched *sq_sched_create(sq_machine *machine, const struct sq_sched_config *config)
{
    uint32_t cpu_count = machine->topology.cpu_count;
    struct sched *sched = aligned_alloc(SQ_LINE_SIZE, sizeof(*sched));
    struct sched_cpu *cpus =
        aligned_alloc(SQ_LINE_SIZE, sizeof(struct sched_cpu) * cpu_count);
    pthread_condattr_t by_the_clock; /* of sq_native_now_ns */
    if (sched == NULL || cpus == NULL) {
        free(sched);
        free(cpus);
        return NULL;
    }
    memset(sched, 0, sizeof(*sched));
    memset(cpus, 0, sizeof(struct sched_cpu) * cpu_count);
    (void)pthread_condattr_init(&by_the_clock);
    (void)pthread_condattr_setclock(&by_the_clock, CLOCK_MONOTONIC);
    sched->machine = machine;
    sched->config = *config;
    sched->cpu_count = cpu_count;
    sched->cpus = cpus;
    sq_fiber_pool_init(&sched->stacks, SQ_FIBER_STACK_BYTES);
    (void)pthread_mutex_init(&sched->mutex, NULL);
    (void)pthread_cond_init(&sched->thread_ended, NULL);
    sq_list_init(&sched->tasks);
    for (uint32_t i = 0; i < cpu_count; i++) {
        cpus[i].sched = sched;
        cpus[i].index = i;
        sq_lock_init(&cpus[i].lock, SQ_LOCK_RUN);
        sq_list_init(&cpus[i].queue);
        sq_list_init(&cpus[i].timers);
        (void)pthread_cond_init(&cpus[i].wake_up, &by_the_clock);
    }
    (void)pthread_condattr_destroy(&by_the_clock);
    return &sched->base;
}

void sq_sched_destroy(sq_sched *base)
{
    struct sched *sched = (struct sched *)base;
    SQ_LIST_EACH_SAFE (link, next, &sched->tasks) {
        sq_task *task = SQ_LIST_ENTRY(link, sq_task, sched_link);
        sq_fiber_destroy(&sched->stacks, &task->fiber);
        free(task);
    }
    for (uint32_t i = 0; i < sched->cpu_count; i++)
        (void)pthread_cond_destroy(&sched->cpus[i].wake_up);
    (void)pthread_cond_destroy(&sched->thread_ended);
    (void)pthread_mutex_destroy(&sched->mutex);
    sq_fiber_pool_destroy(&sched->stacks);
    free(sched->cpus);
    free(sched);
}

/* Start one thread a CPU, signals blocked: they are for the host program's own threads.
 * Returns how many started. */
static uint32_t sched_start_threads(struct sched *sched)
{
    sigset_t all, before;
    uint32_t count = 0;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    for (; count < sched->cpu_count; count++) {
        struct sched_cpu *cpu = &sched->cpus[count];
        int failure;
        (void)pthread_mutex_lock(&sched->mutex);
        sched->running_thread_count++;
        (void)pthread_mutex_unlock(&sched->mutex);
        failure = pthread_create(&cpu->thread, NULL, sched_thread_main, cpu);
        if (failure != 0) {
            struct sq_error error;
            (void)sq_error_set(&error, SQ_E_SYSTEM, "no thread for CPU %u: %s", count,
                               strerror(failure));
            (void)pthread_mutex_lock(&sched->mutex);
            sched->running_thread_count--;
            sched_fail_locked(sched, &error);
            (void)pthread_mutex_unlock(&sched->mutex);
            break;
        }
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return count;
}

static void sched_tick_deadline(struct timespec *deadline)
{
    (void)clock_gettime(CLOCK_REALTIME, deadline);
    deadline->tv_nsec += SCHED_TICK_NS;
    if (deadline->tv_nsec >= 1000000000) {
        deadline->tv_nsec -= 1000000000;
        deadline->tv_sec++;
    }
}

/* Wait for the threads, calling `tick` now and then without the mutex. */
static void sched_wait_threads(struct sched *sched, sq_sched_tick *tick, void *argument)
{
    struct sq_error stopped;
    (void)sq_error_set(&stopped, SQ_E_STOPPED, "the run was stopped");
    (void)pthread_mutex_lock(&sched->mutex);
    while (sched->running_thread_count > 0) {
        struct timespec deadline;
        sched_tick_deadline(&deadline);
        if (pthread_cond_timedwait(&sched->thread_ended, &sched->mutex, &deadline) !=
            ETIMEDOUT)
            continue;
        (void)pthread_mutex_unlock(&sched->mutex);
        bool stop = tick != NULL && tick(argument);
        (void)pthread_mutex_lock(&sched->mutex);
        if (stop)
            sched_fail_locked(sched, &stopped);
    }
    (void)pthread_mutex_unlock(&sched->mutex);
}

int sq_sched_run(sq_sched *base, sq_sched_tick *tick, void *tick_argument,
                 struct sq_error *error)
{
    struct sched *sched = (struct sched *)base;
    uint32_t started = sched->task_count > 0 ? sched_start_threads(sched) : 0;
    sched_wait_threads(sched, tick, tick_argument);
    for (uint32_t i = 0; i < started; i++)
        (void)pthread_join(sched->cpus[i].thread, NULL);
    if (sched->error.code != SQ_OK && error != NULL)
        *error = sched->error;
    return sched->error.code;
}

void sq_sched_count(const sq_sched *base, uint64_t *switches, uint64_t *migrations)
{
    const struct sched *sched = (const struct sched *)base;
    *switches = 0;
    *migrations = 0;
    for (uint32_t i = 0; i < sched->cpu_count; i++) {
        *switches += sched->cpus[i].switch_count;
        *migrations += sched->cpus[i].migration_count;
    }
}
