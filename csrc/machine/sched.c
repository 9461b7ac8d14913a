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

#include "machine/native_machine.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SCHED_TICK_NS 50000000

/* What the CPU does for a task that has just left it. */
enum sched_after {
    SCHED_SLEEPS,    /* it is on a wait queue: let go of the lock */
    SCHED_YIELDS,    /* queue it again */
    SCHED_NAPS,      /* it sleeps until a time: put it on the CPU's list */
    SCHED_ENDED,     /* its function returned */
    SCHED_ABANDONED, /* the run is over */
};

struct sched_cpu {
    /* -- under `lock` -- */
    _Alignas(SQ_LINE_SIZE) sq_lock lock;
    struct sq_list queue;           /* sq_task.link */
    _Atomic uint32_t queued_count;  /* written under `lock`, read by all */
    _Atomic uint32_t movable_count; /* of those, not pinned */
    _Atomic bool is_idle;           /* written under the scheduler's mutex */
    _Atomic bool is_busy;           /* runs a task; a hint for thieves */
    /* -- the thread that is this CPU -- */
    _Alignas(SQ_LINE_SIZE) sq_cpu *cpu;
    struct sq_fiber loop;
    enum sched_after after;
    sq_lock *release; /* SCHED_SLEEPS */
    struct sq_list timers; /* sq_task.link, the first to wake first */
    sq_task *last;
    uint64_t switch_count, migration_count;
    /* -- the scheduler's owner -- */
    struct sched *sched;
    uint32_t index;
    pthread_t thread;
    /* -- under the scheduler's mutex -- */
    pthread_cond_t wake_up;
};

struct sched {
    sq_sched base; /* must be first */
    sq_machine *machine;
    struct sq_sched_config config;
    uint32_t cpu_count; /* of the machine */
    struct sched_cpu *cpus;
    _Atomic bool is_finished;
    /* -- any CPU; apart from what every call of a workload reads -- */
    _Alignas(SQ_LINE_SIZE) _Atomic uint32_t idle_count;
    _Atomic uint32_t next_cpu; /* for tasks that start anywhere */
    struct sq_fiber_pool stacks;
    pthread_mutex_t mutex;
    /* -- under mutex -- */
    pthread_cond_t thread_ended;
    uint32_t running_thread_count;
    struct sq_list tasks; /* sq_task.sched_link */
    uint32_t task_count, task_number;
    struct sq_error error; /* code 0: none */
};

static struct sched *sched_of(const sq_task *task)
{
    return (struct sched *)task->sched;
}

static struct sched_cpu *sched_cpu_of(const sq_task *task)
{
    return &sched_of(task)->cpus[task->cpu->index];
}

/* ---- ending a run ---- */

/* Wake every idle thread so that it sees that the run is over. Requires the mutex. */
static void sched_wake_all(struct sched *sched)
{
    for (uint32_t i = 0; i < sched->cpu_count; i++)
        (void)pthread_cond_signal(&sched->cpus[i].wake_up);
}

/* Requires the mutex. */
static void sched_stop_locked(struct sched *sched)
{
    __atomic_store_n(&sched->base.signal.stop, 1, __ATOMIC_RELAXED);
    atomic_store(&sched->is_finished, true);
    sched_wake_all(sched);
}

/* Requires the mutex. */
static void sched_fail_locked(struct sched *sched, const struct sq_error *error)
{
    if (sched->error.code == SQ_OK && !sq_sched_is_stopped(&sched->base))
        sched->error = *error;
    sched_stop_locked(sched);
}

void sq_sched_finish(sq_sched *base)
{
    struct sched *sched = (struct sched *)base;
    (void)pthread_mutex_lock(&sched->mutex);
    sched_stop_locked(sched);
    (void)pthread_mutex_unlock(&sched->mutex);
}

void sq_sched_fail(sq_sched *base, const struct sq_error *error)
{
    struct sched *sched = (struct sched *)base;
    (void)pthread_mutex_lock(&sched->mutex);
    sched_fail_locked(sched, error);
    (void)pthread_mutex_unlock(&sched->mutex);
}

/* ---- idle CPUs ---- */

/* Does this CPU's thread sleep? Then take it out of the idle ones and wake it. */
static bool sched_kick(struct sched *sched, struct sched_cpu *target)
{
    bool kicked;
    if (!atomic_load(&target->is_idle))
        return false;
    (void)pthread_mutex_lock(&sched->mutex);
    kicked = atomic_load(&target->is_idle);
    if (kicked) {
        atomic_store(&target->is_idle, false);
        (void)atomic_fetch_sub(&sched->idle_count, 1);
        (void)pthread_cond_signal(&target->wake_up);
    }
    (void)pthread_mutex_unlock(&sched->mutex);
    return kicked;
}

/* The n-th nearest other CPU, n from 1: those of the same last-level cache come first,
 * as two passes over the CPUs that follow this one. NULL: the pass has none at n. */
static struct sched_cpu *sched_neighbour(struct sched *sched, uint32_t from, uint32_t n)
{
    const uint16_t *llc = sched->machine->topology.llc_of_cpu;
    uint32_t others = sched->cpu_count - 1;
    bool near_pass = n <= others;
    uint32_t index = (from + 1 + (n - 1) % others) % sched->cpu_count;
    return (llc[index] == llc[from]) == near_pass ? &sched->cpus[index] : NULL;
}

/* A task waits behind another on CPU `from`: offer it to an idle CPU, if there is one.
 */
static void sched_offer(struct sched *sched, uint32_t from)
{
    if (atomic_load(&sched->idle_count) == 0)
        return;
    for (uint32_t n = 1; n <= 2 * (sched->cpu_count - 1); n++) {
        struct sched_cpu *target = sched_neighbour(sched, from, n);
        if (target != NULL && sched_kick(sched, target))
            return;
    }
}

static bool sched_is_work_for(struct sched *sched, const struct sched_cpu *self)
{
    if (atomic_load(&self->queued_count) > 0)
        return true;
    for (uint32_t i = 0; i < sched->cpu_count; i++)
        if (atomic_load(&sched->cpus[i].movable_count) > 0 &&
            atomic_load(&sched->cpus[i].is_busy))
            return true;
    return false;
}

static bool sched_is_work(struct sched *sched)
{
    if (__atomic_load_n(&sched->base.timer_count, __ATOMIC_SEQ_CST) > 0)
        return true;
    for (uint32_t i = 0; i < sched->cpu_count; i++)
        if (atomic_load(&sched->cpus[i].queued_count) > 0)
            return true;
    return false;
}

static void sched_report_deadlock(struct sched *sched)
{
    struct sq_error error;
    (void)sq_error_set(
        &error, SQ_E_DEADLOCK,
        "deadlock: all %u tasks that have not ended wait, and none is left "
        "that could wake them",
        sched->task_count);
    sched_fail_locked(sched, &error);
}

/* The earliest time that a task of this CPU sleeps until, or UINT64_MAX. */
static uint64_t sched_next_timer_ns(const struct sched_cpu *self)
{
    if (sq_list_is_empty(&self->timers))
        return UINT64_MAX;
    return SQ_LIST_ENTRY(self->timers.next, sq_task, link)->wake_ns;
}

/* Wait to be kicked, until `time_ns` at most. Requires the mutex. False: it is time. */
static bool sched_wait_kick(struct sched *sched, struct sched_cpu *self, uint64_t time_ns)
{
    struct timespec deadline = {.tv_sec = (time_t)(time_ns / 1000000000),
                                .tv_nsec = (long)(time_ns % 1000000000)};
    if (time_ns == UINT64_MAX)
        return pthread_cond_wait(&self->wake_up, &sched->mutex) == 0;
    return pthread_cond_timedwait(&self->wake_up, &sched->mutex, &deadline) != ETIMEDOUT;
}

/* Sleep until there may be work. The thread is no CPU meanwhile, so others can be. */
static void sched_idle(struct sched *sched, struct sched_cpu *self)
{
    const struct sq_machine_ops *ops = sched->machine->ops;
    uint64_t time_ns = sched_next_timer_ns(self);
    ops->cpu_leave(self->cpu);
    (void)pthread_mutex_lock(&sched->mutex);
    atomic_store(&self->is_idle, true);
    if (atomic_fetch_add(&sched->idle_count, 1) + 1 == sched->cpu_count &&
        !sched_is_work(sched) && !atomic_load(&sched->is_finished))
        sched_report_deadlock(sched);
    while (atomic_load(&self->is_idle) && !atomic_load(&sched->is_finished)) {
        if (sched_is_work_for(sched, self) || !sched_wait_kick(sched, self, time_ns))
            break;
    }
    if (atomic_load(&self->is_idle)) { /* not kicked */
        atomic_store(&self->is_idle, false);
        (void)atomic_fetch_sub(&sched->idle_count, 1);
    }
    (void)pthread_mutex_unlock(&sched->mutex);
    self->cpu = ops->cpu_enter(sched->machine, self->index);
}

/* ---- run queues ---- */

/* May another CPU take it? Does not change while it is queued. */
static bool sched_may_move(const sq_task *task)
{
    return !task->is_pinned && task->context.migrate_depth == 0;
}

/* Before the first waiting task of lower priority, or of the same with `is_first`.
 * Requires the queue's lock. */
static void sched_link_by_priority(struct sched_cpu *target, sq_task *task, bool is_first)
{
    struct sq_list *place = target->queue.prev;
    while (place != &target->queue) {
        const sq_task *other = SQ_LIST_ENTRY(place, sq_task, link);
        if (other->own_priority > task->own_priority ||
            (other->own_priority == task->own_priority && !is_first))
            break;
        place = place->prev;
    }
    sq_list_link_head(&task->link, place);
}

/* Link a runnable task into the queue of `target`. */
static void sched_link(sq_cpu *cpu, struct sched_cpu *target, sq_task *task, bool is_first)
{
    sq_lock_acquire(cpu, &target->lock);
    sched_link_by_priority(target, task, is_first);
    if (sched_may_move(task))
        (void)atomic_fetch_add(&target->movable_count, 1);
    (void)atomic_fetch_add(&target->queued_count, 1);
    sq_lock_release(cpu, &target->lock);
}

/* Put a runnable task on the queue of `target` and see that a thread will look. The
 * task may run, and end, before this returns. */
static void sched_enqueue(sq_cpu *cpu, struct sched_cpu *target, sq_task *task)
{
    struct sched *sched = target->sched;
    bool is_movable = sched_may_move(task);
    sched_link(cpu, target, task, false);
    if (!sched_kick(sched, target) && is_movable && atomic_load(&target->is_busy))
        sched_offer(sched, target->index);
}

/* Take the first task of a queue, the first that may move if `movable`. */
static sq_task *sched_dequeue(sq_cpu *cpu, struct sched_cpu *from, bool movable)
{
    sq_task *found = NULL;
    sq_lock_acquire(cpu, &from->lock);
    SQ_LIST_EACH (link, &from->queue) {
        sq_task *task = SQ_LIST_ENTRY(link, sq_task, link);
        if (movable && !sched_may_move(task))
            continue;
        found = task;
        sq_list_unlink(link);
        if (sched_may_move(task))
            (void)atomic_fetch_sub(&from->movable_count, 1);
        (void)atomic_fetch_sub(&from->queued_count, 1);
        break;
    }
    sq_lock_release(cpu, &from->lock);
    return found;
}

/* Take a task from a CPU that is busy with another, nearest CPU first. */
static sq_task *sched_steal(struct sched *sched, struct sched_cpu *self)
{
    sq_task *task = NULL;
    for (uint32_t n = 1; task == NULL && n <= 2 * (sched->cpu_count - 1); n++) {
        struct sched_cpu *victim = sched_neighbour(sched, self->index, n);
        if (victim != NULL && atomic_load(&victim->movable_count) > 0 &&
            atomic_load(&victim->is_busy))
            task = sched_dequeue(self->cpu, victim, true);
    }
    return task;
}

static sq_task *sched_pick(struct sched *sched, struct sched_cpu *self)
{
    sq_task *task = NULL;
    atomic_store(&self->is_busy, true);
    if (atomic_load_explicit(&self->queued_count, memory_order_relaxed) > 0)
        task = sched_dequeue(self->cpu, self, false);
    if (task == NULL)
        task = sched_steal(sched, self);
    if (task == NULL)
        atomic_store(&self->is_busy, false);
    else if (atomic_load(&self->movable_count) > 0)
        sched_offer(sched, self->index);
    return task;
}

/* Put a task that sleeps until a time on the CPU's own list. */
static void sched_add_timer(struct sched *sched, struct sched_cpu *self, sq_task *task)
{
    struct sq_list *place = self->timers.next;
    while (place != &self->timers &&
           SQ_LIST_ENTRY(place, sq_task, link)->wake_ns <= task->wake_ns)
        place = place->next;
    sq_list_link_tail(&task->link, place);
    (void)__atomic_fetch_add(&sched->base.timer_count, 1, __ATOMIC_SEQ_CST);
}

/* Queue the tasks whose time has come before all others of this CPU, the earliest first.
 * Returns how many there were. */
static uint32_t sched_run_timers(struct sched *sched, struct sched_cpu *self)
{
    uint64_t now_ns = sq_native_now_ns();
    uint32_t count = 0;
    struct sq_list due;
    sq_list_init(&due);
    while (sched_next_timer_ns(self) <= now_ns)
        sq_list_move_head(self->timers.next, &due); /* the latest comes first here */
    SQ_LIST_EACH_SAFE(link, next, &due) {
        sq_list_unlink(link);
        sched_link(self->cpu, self, SQ_LIST_ENTRY(link, sq_task, link), true);
        count++;
    }
    if (count > 0)
        (void)__atomic_fetch_sub(&sched->base.timer_count, count, __ATOMIC_SEQ_CST);
    return count;
}

/* Where a woken task goes; see sched.h. */
static struct sched_cpu *sched_place(sq_cpu *waker, const sq_task *task)
{
    struct sched *sched = sched_of(task);
    struct sched_cpu *last = sched_cpu_of(task);
    struct sched_cpu *near = &sched->cpus[waker->index];
    if (sched->config.wake_affine && sched_may_move(task) && last != near &&
        atomic_load(&near->queued_count) < atomic_load(&last->queued_count))
        return near;
    return last;
}

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
    SQ_ASSERT(priority <= SQ_TASK_PRIORITY_INTERRUPT);
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
