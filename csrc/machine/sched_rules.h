/* The rules of the simulated scheduler, as parameters of a run. */
#ifndef SQ_SCHED_RULES_H
#define SQ_SCHED_RULES_H

#include <stdint.h>

/*
 * The simulated machine's scheduler, X(name, default, minimum, maximum, help). Defaults
 * are those of Linux 2.6.32 to 2.6.35 on 8 CPUs (the kernel multiplies its own by 1 +
 * log2 of the CPUs, here 4); recalled, not looked up, so of low confidence. Other
 * kernels are other values: before 2.6.33 sched_idle_sibling is 0 and
 * sched_wake_idle 1. sched_wake_low_load and sched_idle_if_queued are 1 in those
 * kernels and 0 here, see docs/mechanisms.md.
 */
#define SQ_SCHED_RULES(X)                                                              \
    X(sched_latency_us, 20000, 1, 10000000,                                            \
      "sim: in so long every waiting task of a CPU should run once")                   \
    X(sched_min_granularity_us, 4000, 1, 10000000, "sim: shortest slice of a task")    \
    X(sched_wakeup_granularity_us, 4000, 0, 10000000,                                  \
      "sim: a woken task takes the CPU from one that is ahead of it by so much")       \
    X(sched_gentle_sleepers, 1, 0, 1,                                                  \
      "sim: 1: a sleeper gets half a latency of credit; 0: a whole one")               \
    X(sched_wake_affine, 1, 0, 1,                                                      \
      "sim: 1: a woken task may be drawn to the CPU of its waker")                     \
    X(sched_sync_wakeups, 1, 0, 1,                                                     \
      "sim: 1: the waker is taken to sleep soon, so it does not count as load")        \
    X(sched_wake_low_load, 0, 0, 1,                                                    \
      "sim: 1: a waker that is alone and about to sleep draws the task (from 2.6.32)") \
    X(sched_idle_if_queued, 0, 0, 1,                                                   \
      "sim: 1: a CPU is taken for idle until the task that is queued there runs "      \
      "(before 3.2)")                                                                  \
    X(sched_wake_idle, 0, 0, 1,                                                        \
      "sim: 1: a woken task goes to an idle CPU of the socket (before 2.6.32)")        \
    X(sched_idle_sibling, 1, 0, 1,                                                     \
      "sim: 1: a woken task goes to an idle CPU of the last-level cache")              \
    X(sched_load_average, 0, 0, 1,                                                     \
      "sim: 1: a woken task is placed by averages of load, as in 5.14")                \
    X(sched_newidle_balance, 1, 0, 1, "sim: 1: a CPU that runs dry pulls tasks")       \
    X(sched_migration_cost_us, 500, 0, 10000000,                                       \
      "sim: a task that ran so recently is not pulled")                                \
    X(sched_balance_interval_us, 64000, 100, 100000000,                                \
      "sim: a busy CPU looks for a longer queue so often")                             \
    X(sched_tick_us, 1000, 10, 1000000,                                                \
      "sim: an idle CPU looks so often while tasks "                                   \
      "wait elsewhere")                                                                \
    X(sched_softirq_us, 10000, 0, 10000000,                                            \
      "sim: the work of interrupts that has gone on for so long is ksoftirqd's, a "    \
      "task "                                                                          \
      "like others where a woken one is put")                                          \
    X(sched_idle_poll, 0, 0, 1,                                                        \
      "sim: 1: an idle CPU polls, so that nothing has to be waited for when it has "   \
      "work, as with a target of 0 in /dev/cpu_dma_latency; 0: parameter "             \
      "idle_exit_ps")                                                                  \
    X(sched_preempt_rt, -1, -1, 1,                                                     \
      "sim: 1: PREEMPT_RT: a task of higher priority takes the CPU wherever "          \
      "interrupts and preemption are on; 0: at the running task's next call that may " \
      "block; -1: as the policy's kernel profile is")

struct sq_sched_rules {
#define SQ_SCHED_RULE_FIELD(name, value, minimum, maximum, help) int64_t name;
    SQ_SCHED_RULES(SQ_SCHED_RULE_FIELD)
#undef SQ_SCHED_RULE_FIELD
};

#endif
