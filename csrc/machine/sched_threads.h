/*
 * The CPUs of the scheduler on host threads: their run queues, the timers of their
 * tasks, and how an idle one sleeps and is woken. Part of sched.c, which says in what
 * order locks are taken and why no wake-up is lost.
 */
#ifndef SQ_SCHED_THREADS_H
#define SQ_SCHED_THREADS_H

#include <errno.h>
#include <time.h>

#include "machine/native_machine.h"
#include "machine/sched.h"

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
    sq_lock *release;      /* SCHED_SLEEPS */
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
static bool sched_wait_kick(struct sched *sched, struct sched_cpu *self,
                            uint64_t time_ns)
{
    struct timespec deadline = {.tv_sec = (time_t)(time_ns / 1000000000),
                                .tv_nsec = (long)(time_ns % 1000000000)};
    if (time_ns == UINT64_MAX)
        return pthread_cond_wait(&self->wake_up, &sched->mutex) == 0;
    return pthread_cond_timedwait(&self->wake_up, &sched->mutex, &deadline) !=
           ETIMEDOUT;
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
static void sched_link_by_priority(struct sched_cpu *target, sq_task *task,
                                   bool is_first)
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
static void sched_link(sq_cpu *cpu, struct sched_cpu *target, sq_task *task,
                       bool is_first)
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

/* Queue the tasks whose time has come before all others of this CPU, the earliest
 * first. Returns how many there were. */
static uint32_t sched_run_timers(struct sched *sched, struct sched_cpu *self)
{
    uint64_t now_ns = sq_native_now_ns();
    uint32_t count = 0;
    struct sq_list due;
    sq_list_init(&due);
    while (sched_next_timer_ns(self) <= now_ns)
        sq_list_move_head(self->timers.next, &due); /* the latest comes first here */
    SQ_LIST_EACH_SAFE (link, next, &due) {
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

#endif
