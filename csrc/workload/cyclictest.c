/*
 * cyclictest (Thomas Gleixner) beside hackbench: a task on each CPU that sleeps until a
 * time, again and again, and notes how late it was woken. What holds a CPU, a lock or a
 * long walk of the allocator, shows as latency.
 *
 * `cyclictest -Smqp99` with `hackbench -s4096 -l500` is the published pair: CPU n wakes
 * every interval_us + n * distance_us. Operations are hackbench's messages, and measuring
 * ends with its last task; the times are in latency_ns under "wakeup".
 *
 * The tasks are SCHED_FIFO's of `priority`. With PREEMPT_RT (a kernel profile that has it,
 * or sched_preempt_rt) they take the CPU wherever interrupts and preemption are on, so a
 * latency is how long these were off, and the switch; else the running task makes room at
 * its next call that may block.
 */
#include "workload/hackbench.h"

#include <string.h>

#define PARAMETERS(X)                                                                  \
    X(interval_us, 1000, 10, 10000000, "time between wake-ups of CPU 0")               \
    X(distance_us, 500, 0, 1000000, "added to it for each further CPU")                \
    X(groups, 10, 1, 10000, "of hackbench")                                            \
    X(loops, 100, 1, 1000000000, "of hackbench")                                       \
    X(fds, 20, 1, 1000, "of hackbench")                                                \
    X(message_bytes, 100, 1, 4096, "of hackbench")                                     \
    X(data_bytes, 0, 0, 65536, "of hackbench; 0: what message_bytes ask for")          \
    X(page_count, 0, 0, 16, "of hackbench")                                            \
    X(head_bytes, 232, 16, 4096, "of hackbench")                                       \
    X(charge_bytes, 0, 0, 1048576, "of hackbench; 0: the slots of head and data")      \
    X(sndbuf_bytes, 212992, 1, 1073741824, "of hackbench")                             \
    X(priority, 99, 0, 99, "SCHED_FIFO priority of the tasks that sleep; 0: normal")

enum {
#define PARAMETER_ENUM(name, value, minimum, maximum, help) PARAMETER_##name,
    PARAMETERS(PARAMETER_ENUM) PARAMETER_COUNT
};

#define PARAMETER_ROW(name, value, minimum, maximum, help)                             \
    {#name, value, minimum, maximum, help},
static const struct sq_workload_parameter parameters[PARAMETER_COUNT] = {
    PARAMETERS(PARAMETER_ROW)};

#define SHARED_INFO_BYTES 320 /* of 3.2 and later */
#define LINE_BYTES        64
#define HEAD_SLOT_BYTES   256
#define PAGE_BYTES        4096

struct cyclictest {
    const void *hackbench;
    uint32_t path, priority;
};

struct cyclictest_cpu {
    const struct cyclictest *test;
    uint64_t interval_ns;
};

static void cyclictest_main(const struct sq_env *env, sq_task *task, void *argument)
{
    const struct cyclictest_cpu *self = argument;
    uint64_t wake_ns = env->now_ns(task);
    env->set_priority(task, self->test->priority);
    do {
        uint64_t now_ns;
        wake_ns += self->interval_ns;
        env->sleep_until(task, wake_ns);
        now_ns = env->now_ns(task);
        env->latency(task, self->test->path, now_ns - wake_ns);
        while (wake_ns + self->interval_ns <= now_ns) /* missed: not measured */
            wake_ns += self->interval_ns;
    } while (sq_hackbench_running_count(self->test->hackbench) > 0);
}

/* The value of a hackbench parameter: ours if we have one of that name, else the default.
 * Of 0 for the data of a message, what its bytes ask for, as one kmalloc; of 0 for the
 * charge, the power of two above that and the head's slot. */
static int64_t cyclictest_value(const struct sq_workload_parameter *wanted,
                                const int64_t *values)
{
    int64_t data_bytes = values[PARAMETER_data_bytes], slot_bytes = 512;
    if (data_bytes == 0)
        data_bytes = (values[PARAMETER_message_bytes] + LINE_BYTES - 1) / LINE_BYTES *
                         LINE_BYTES +
                     SHARED_INFO_BYTES;
    while (slot_bytes < data_bytes)
        slot_bytes *= 2;
    if (strcmp(wanted->name, "data_bytes") == 0)
        return data_bytes;
    if (strcmp(wanted->name, "charge_bytes") == 0 && values[PARAMETER_charge_bytes] == 0)
        return slot_bytes + HEAD_SLOT_BYTES +
               values[PARAMETER_page_count] * PAGE_BYTES;
    for (uint32_t i = 0; i < PARAMETER_COUNT; i++)
        if (strcmp(parameters[i].name, wanted->name) == 0)
            return values[i];
    return wanted->value_default;
}

static const void *cyclictest_start_hackbench(const struct sq_env *env, sq_task *task,
                                              const int64_t *values)
{
    const struct sq_workload *hackbench = &sq_workload_hackbench;
    int64_t *own = env->memory(task, hackbench->parameter_count * sizeof(*own));
    for (uint32_t i = 0; i < hackbench->parameter_count; i++)
        own[i] = cyclictest_value(&hackbench->parameters[i], values);
    return hackbench->setup(env, task, own);
}

static void *cyclictest_setup(const struct sq_env *env, sq_task *task,
                              const int64_t *values)
{
    struct cyclictest *test = env->memory(task, sizeof(*test));
    uint32_t count = env->cpu_count(task);
    struct cyclictest_cpu *cpus = env->memory(task, count * sizeof(*cpus));
    test->path = env->latency_path(task, "wakeup");
    test->priority = (uint32_t)values[PARAMETER_priority];
    test->hackbench = cyclictest_start_hackbench(env, task, values);
    for (uint32_t i = 0; i < count; i++) {
        cpus[i].test = test;
        cpus[i].interval_ns = 1000u * (uint64_t)(values[PARAMETER_interval_us] +
                                                 i * values[PARAMETER_distance_us]);
        env->spawn(task, cyclictest_main, &cpus[i], (int32_t)i);
    }
    return test;
}

extern const struct sq_workload sq_workload_cyclictest;
const struct sq_workload sq_workload_cyclictest = {
    .abi = SQ_WORKLOAD_ABI,
    .name = "cyclictest",
    .help = "how late tasks are woken on each CPU while hackbench runs beside them",
    .rate_unit = "messages/s",
    .parameters = parameters,
    .parameter_count = PARAMETER_COUNT,
    .setup = cyclictest_setup,
};
