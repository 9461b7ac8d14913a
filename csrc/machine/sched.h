/*
 * The scheduler: tasks, run queues, wait queues.
 *
 *   task --wake--> run queue of a CPU --pick--> runs as that CPU --sleep--> wait queue
 *                     ^         |
 *                     |         +--steal--> an idle CPU
 *                     +--yield, slice over--
 *
 * A task is a fiber. Each CPU of the machine is a host thread that picks tasks from its
 * run queue, first in first out, and is that CPU while it works; an idle one gives the
 * CPU up and sleeps. A run is cooperative: a task leaves its CPU only where it waits or
 * yields, so between such points it may keep its sq_cpu.
 *
 * Placement of a woken task: the CPU it ran on last; with `wake_affine` the waker's CPU
 * when fewer tasks wait there. A task that lands behind a running one is offered to an
 * idle CPU, nearest first (same last-level cache, then by number), which steals it.
 *
 * A task that sleeps until a time is on a list of the CPU it slept on, which wakes it
 * and puts it before all that wait there; a running task makes room at its next call
 * that may block.
 *
 * That is the native scheduler (sched.c), the host's threads being what they are. The
 * simulated one (sched_sim.c) does as the kernel's: run queues by virtual runtime, and
 * the rules of SQ_SCHED_RULES. What follows is common to both.
 *
 * A run ends where its tasks are, but for those that left their CPU inside a call of an
 * allocator (preempted, or waiting for a sleeping lock): they are continued until that
 * call is over, so that no structure is left half changed.
 *
 * Compiled once a machine (unit/sched_<machine>.c), since run queues are locks and
 * lines of the machine.
 */
#ifndef SQ_SCHED_H
#define SQ_SCHED_H

#include "machine/fiber.h"
#include "machine/machine.h"
#include "machine/sched_rules.h"

#define sq_sched_create        SQ_ON_MACHINE(sq_sched_create)
#define sq_sched_destroy       SQ_ON_MACHINE(sq_sched_destroy)
#define sq_sched_run           SQ_ON_MACHINE(sq_sched_run)
#define sq_sched_fail          SQ_ON_MACHINE(sq_sched_fail)
#define sq_sched_finish        SQ_ON_MACHINE(sq_sched_finish)
#define sq_sched_count         SQ_ON_MACHINE(sq_sched_count)
#define sq_task_create         SQ_ON_MACHINE(sq_task_create)
#define sq_task_block          SQ_ON_MACHINE(sq_task_block)
#define sq_task_yield          SQ_ON_MACHINE(sq_task_yield)
#define sq_task_abandon        SQ_ON_MACHINE(sq_task_abandon)
#define sq_task_next_slice     SQ_ON_MACHINE(sq_task_next_slice)
#define sq_task_sleep_until    SQ_ON_MACHINE(sq_task_sleep_until)
#define sq_task_set_priority   SQ_ON_MACHINE(sq_task_set_priority)
#define sq_task_look_at_timers SQ_ON_MACHINE(sq_task_look_at_timers)
#define sq_wait_sleep          SQ_ON_MACHINE(sq_wait_sleep)
#define sq_wait_wake           SQ_ON_MACHINE(sq_wait_wake)

typedef struct sq_sched sq_sched;
typedef struct sq_task sq_task;
typedef void sq_task_function(sq_task *task, void *argument);

#define SQ_TASK_ANY_CPU (-1)

struct sq_sched_config {
    uint32_t slice_calls; /* calls of sq_task_step after which a task yields if others
                             wait for its CPU; 0: never; native only */
    bool wake_affine;     /* native only */
    struct sq_sched_rules rules; /* simulated only */
};

#define SQ_TASK_PRIORITY_MAX       99u
#define SQ_TASK_PRIORITY_INTERRUPT 100u /* not a task but the work of interrupts */

struct sq_task {
    sq_cpu *cpu; /* it runs on, or ran on last; first, see sq_task_head */
    /* -- constant -- */
    sq_sched *sched;
    void *owner; /* the creator's */
    sq_task_function *function;
    void *argument;
    bool is_pinned;  /* never leaves its CPU */
    uint32_t number; /* counted from 0 in order of creation */
    /* -- the task while it runs, then the scheduler -- */
    struct sq_task_context context; /* while it does not run */
    uint32_t own_priority; /* SCHED_FIFO's 1 to 99; 0: normal; 100: an interrupt */
    uint32_t priority;     /* that, or one inherited; simulated only */
    uint32_t calls_left;   /* of the slice */
    bool slice_is_over;
    bool is_told_to_stop; /* the owner's */
    struct sq_fiber fiber;
    /* -- under the lock of the queue it is on -- */
    struct sq_list link;
    const void *waits_for;     /* the waker's, to tell tasks of one queue apart */
    uint64_t wake_ns;          /* the sleeping CPU's; sq_task_sleep_until */
    struct sq_list sched_link; /* all tasks; under the scheduler's own mutex */
    struct sq_task_engine engine;
};

_Static_assert(offsetof(struct sq_task, cpu) == 0, "a task begins as sq_task_head");

/* Tasks that wait for something, longest first. Its owner names the lock that guards
 * it: class WAIT, or WORKLOAD. */
struct sq_wait_queue {
    struct sq_list tasks;
    bool is_for_data; /* of a socket that is read; constant; simulated only */
};

/* What tells every task to leave for good; read at each step, with relaxed builtins: it
 * is the host's, and no cost of the machine. */
struct sq_sched_signal {
    uint32_t stop;
};

struct sq_sched {
    struct sq_sched_signal signal; /* first, where sq_task_step looks */
    /* With builtins, as they are no cost of the machine: tasks that sleep until a time,
     * and tasks that left their CPU inside a call that does not end there. */
    uint32_t timer_count;
    uint32_t inside_count;
};

/* Called about every 50 ms by the thread inside sq_sched_run; true: stop the run. */
typedef bool sq_sched_tick(void *argument);

/* NULL when the host has no memory. */
sq_sched *sq_sched_create(sq_machine *machine, const struct sq_sched_config *config);
/* Ends the tasks that are left, wherever they are. Requires that no run goes on. */
void sq_sched_destroy(sq_sched *sched);
/*
 * Run until every task has ended. Returns 0, SQ_E_STOPPED, SQ_E_DEADLOCK (all tasks
 * wait), SQ_E_SYSTEM (no thread), or what was given to sq_sched_fail. After a failure
 * the tasks that had not ended are left where they were.
 */
int sq_sched_run(sq_sched *sched, sq_sched_tick *tick, void *tick_argument,
                 struct sq_error *error);
/* End the run with this error; the first one counts. May be called from any thread. */
void sq_sched_fail(sq_sched *sched, const struct sq_error *error);
/* End the run where it is, as a success. */
void sq_sched_finish(sq_sched *sched);
/* Of all CPUs; exact when no run goes on. */
void sq_sched_count(const sq_sched *sched, uint64_t *switches, uint64_t *migrations);

/*
 * Make a task and queue it on CPU `index`, or pick one in turn (SQ_TASK_ANY_CPU).
 * `is_pinned`: the task stays there. `cpu` is the CPU of the caller. The task is its
 * own from then on: it may have ended already. 0, or an error code with a message.
 */
int sq_task_create(sq_cpu *cpu, sq_sched *sched, sq_task_function *function,
                   void *argument, void *owner, int32_t index, bool is_pinned,
                   struct sq_error *error);
/* Let the other tasks of this CPU run. The task may go on elsewhere. */
void sq_task_yield(sq_task *task);
/* Leave for good without ending: the run is over. Requires no lock held. */
_Noreturn void sq_task_abandon(sq_task *task);
void sq_task_next_slice(sq_task *task);
/* Sleep until the machine's clock shows `time_ns`. Requires no lock held. */
void sq_task_sleep_until(sq_task *task, uint64_t time_ns);
/* SCHED_FIFO of this priority, 1 to 99, or a normal task again (0), from now on: it
 * goes before all of lower priority, and between those of its own in the order they
 * came.
 *
 * SQ_TASK_PRIORITY_INTERRUPT: it stands for what the interrupts of its CPU do.
 * Simulated, it takes the CPU from every task as soon as that one has interrupts and
 * preemption on, under every kernel; it is no load that placement looks at, and no
 * context switch. */
void sq_task_set_priority(sq_task *task, uint32_t priority);
/* Let tasks of this CPU run whose time has come. */
void sq_task_look_at_timers(sq_task *task);

static inline void sq_wait_queue_init(struct sq_wait_queue *queue)
{
    sq_list_init(&queue->tasks);
    queue->is_for_data = false;
}

/*
 * Wait on `queue`. Requires `lock`, which guards the queue; returns without it. It is
 * let go only when the task can be continued, so a waker never meets a task that still
 * runs.
 */
void sq_wait_sleep(sq_task *task, struct sq_wait_queue *queue, sq_lock *lock);
/* For sleeping locks, native only: the task is on a list that `lock` guards; leave the
 * CPU, then let go of the lock. The task is continued even if the run ends meanwhile.
 */
void sq_task_block(sq_task *task, sq_lock *lock);
/* Make up to `limit_count` waiting tasks runnable. Requires the queue's lock. Returns
 * how many there were. */
uint32_t sq_wait_wake(sq_cpu *cpu, struct sq_wait_queue *queue, uint32_t limit_count);

static inline bool sq_sched_is_stopped(const sq_sched *sched)
{
    return __atomic_load_n(&sched->signal.stop, __ATOMIC_RELAXED) != 0;
}

/*
 * Every call of a workload begins here: the CPU the task is, at the price of one load
 * and one decrement. Does not return when the run is over. Requires no lock held.
 */
static inline sq_cpu *sq_task_step(sq_task *task)
{
    if (sq_sched_is_stopped(task->sched))
        sq_task_abandon(task);
    if (task->calls_left-- == 0)
        sq_task_next_slice(task);
    return task->cpu;
}

/* The same for a call that may block: the CPU is given away if the slice is over. */
static inline sq_cpu *sq_task_step_blocking(sq_task *task)
{
    (void)sq_task_step(task);
    if (task->slice_is_over || sq_slice_is_over(task->cpu)) {
        task->slice_is_over = false;
        sq_task_yield(task);
    } else if (__atomic_load_n(&task->sched->timer_count, __ATOMIC_RELAXED) != 0) {
        sq_task_look_at_timers(task);
    }
    return task->cpu;
}

#endif
