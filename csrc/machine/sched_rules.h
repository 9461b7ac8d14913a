/* The rules of the simulated scheduler, as parameters of a run. */
#ifndef SQ_SCHED_RULES_H
#define SQ_SCHED_RULES_H

#include <stdint.h>

/*
 * The simulated machine's scheduler, X(name, default, minimum, maximum, help). The
 * default of each is -1, as in the kernel that the policy is of:
 * slabq/data/schedulers.toml has values and sources for those. What is still open in C
 * is the standard, Linux 2.6.35 on 8 CPUs.
 */
#define SQ_SCHED_RULES(X)                                                              \
    X(sched_latency_us, -1, -1, 10000000,                                              \
      "sim: in so long every waiting task of a CPU should run once")                   \
    X(sched_min_granularity_us, -1, -1, 10000000, "sim: shortest slice of a task")     \
    X(sched_wakeup_granularity_us, -1, -1, 10000000,                                   \
      "sim: a woken task takes the CPU from one that is ahead of it by so much")       \
    X(sched_gentle_sleepers, -1, -1, 1,                                                \
      "sim: 1: a sleeper gets half a latency of credit; 0: a whole one")               \
    X(sched_last_buddy, -1, -1, 1,                                                     \
      "sim: 1: a task that a woken one took the CPU from goes on next, if it "         \
      "is due within sched_wakeup_granularity_us")                                     \
    X(sched_wake_affine, -1, -1, 1,                                                    \
      "sim: 1: a woken task may be drawn to the CPU of its waker")                     \
    X(sched_sync_wakeups, -1, -1, 1,                                                   \
      "sim: 1: the waker is taken to sleep soon, so it does not count as load")        \
    X(sched_sync_readable, -1, -1, 1,                                                  \
      "sim: 1: so is one who brings data to a socket, not only one who makes "         \
      "room")                                                                          \
    X(sched_wake_cold, -1, -1, 1,                                                      \
      "sim: 1: a waker that is about to sleep draws a task that has not run "          \
      "for sched_migration_cost_us, whatever the loads")                               \
    X(sched_wake_low_load, -1, -1, 1,                                                  \
      "sim: 1: a waker that is alone and about to sleep draws the task")               \
    X(sched_wake_history, -1, -1, 1,                                                   \
      "sim: 1: load is also that of the last tick: for a waker's CPU the "             \
      "larger of both, for the other the smaller")                                     \
    X(sched_idle_if_queued, -1, -1, 1,                                                 \
      "sim: 1: a CPU is taken for idle until the task that is queued there runs")      \
    X(sched_wake_idle, -1, -1, 1,                                                      \
      "sim: 1: a woken task goes to an idle CPU of the socket")                        \
    X(sched_idle_sibling, -1, -1, 1,                                                   \
      "sim: 1: a woken task goes to an idle CPU of the last-level cache")              \
    X(sched_load_average, -1, -1, 1,                                                   \
      "sim: 1: a woken task is placed by averages of load, as in 5.14")                \
    X(sched_newidle_balance, -1, -1, 1, "sim: 1: a CPU that runs dry pulls tasks")     \
    X(sched_newidle_fails, -1, -1, 1,                                                  \
      "sim: 1: a CPU that ran dry and found nothing to pull but hot tasks counts "     \
      "that "                                                                          \
      "as a failure, too")                                                             \
    X(sched_force_after, -1, -1, 1000,                                                 \
      "sim: after so many failures in a row hot tasks are pulled, too; 0: never")      \
    X(sched_migration_cost_us, -1, -1, 10000000,                                       \
      "sim: a task that ran so recently is not pulled")                                \
    X(sched_balance_interval_us, -1, -1, 100000000,                                    \
      "sim: a busy CPU looks for a longer queue so often")                             \
    X(sched_tick_us, -1, -1, 1000000,                                                  \
      "sim: an idle CPU looks so often while tasks wait elsewhere")                    \
    X(sched_softirq_us, -1, -1, 10000000,                                              \
      "sim: the work of interrupts that has gone on for so long is "                   \
      "ksoftirqd's, a task like others where a woken one is put")                      \
    X(sched_idle_poll, -1, -1, 1,                                                      \
      "sim: 1: an idle CPU polls, so that nothing has to be waited for when it "       \
      "has work, as with a target of 0 in /dev/cpu_dma_latency; 0: parameter "         \
      "idle_exit_ps")                                                                  \
    X(sched_preempt_rt, -1, -1, 1,                                                     \
      "sim: 1: PREEMPT_RT: a task of higher priority takes the CPU wherever "          \
      "interrupts and preemption are on; 0: at the running task's next call "          \
      "that may block")

/* X(name, standard, least): the least value but for -1. */
#define SQ_SCHED_STANDARD(X)                                                           \
    X(sched_latency_us, 24000, 1)                                                      \
    X(sched_min_granularity_us, 8000, 1)                                               \
    X(sched_wakeup_granularity_us, 4000, 0)                                            \
    X(sched_gentle_sleepers, 1, 0)                                                     \
    X(sched_last_buddy, 1, 0)                                                          \
    X(sched_wake_affine, 1, 0)                                                         \
    X(sched_sync_wakeups, 1, 0)                                                        \
    X(sched_sync_readable, 1, 0)                                                       \
    X(sched_wake_cold, 0, 0)                                                           \
    X(sched_wake_low_load, 1, 0)                                                       \
    X(sched_wake_history, 0, 0)                                                        \
    X(sched_idle_if_queued, 1, 0)                                                      \
    X(sched_wake_idle, 0, 0)                                                           \
    X(sched_idle_sibling, 1, 0)                                                        \
    X(sched_load_average, 0, 0)                                                        \
    X(sched_newidle_balance, 1, 0)                                                     \
    X(sched_newidle_fails, 1, 0)                                                       \
    X(sched_force_after, 2, 0)                                                         \
    X(sched_migration_cost_us, 500, 0)                                                 \
    X(sched_balance_interval_us, 64000, 100)                                           \
    X(sched_tick_us, 1000, 10)                                                         \
    X(sched_softirq_us, 10000, 0)                                                      \
    X(sched_idle_poll, 0, 0)                                                           \
    X(sched_preempt_rt, 0, 0)

struct sq_sched_rules {
#define SQ_SCHED_RULE_FIELD(name, value, minimum, maximum, help) int64_t name;
    SQ_SCHED_RULES(SQ_SCHED_RULE_FIELD)
#undef SQ_SCHED_RULE_FIELD
};

/* Put the standard where a rule is left open, or less than makes sense. */
static inline void sq_sched_rules_fill(struct sq_sched_rules *rules)
{
#define SQ_SCHED_RULE_FILL(name, standard, least)                                      \
    if (rules->name < (least))                                                         \
        rules->name = (standard);
    SQ_SCHED_STANDARD(SQ_SCHED_RULE_FILL)
#undef SQ_SCHED_RULE_FILL
}

#endif
