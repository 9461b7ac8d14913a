/*
 * churn: a table of live objects of many sizes; a random one is freed and another
 * allocated in its place, again and again. How an allocator does when nothing is in any
 * order, and what its memory comes to (Larson and Krishnan 1998 is the shared form).
 *
 * Each task has a table of its own, or all share one (`shared`): then an object is mostly
 * freed by another CPU than allocated it.
 */
#include "workload/draw.h"

#include <stdio.h>
#include <string.h>

#define PARAMETERS(X)                                                                  \
    X(tasks, 0, 0, 10000, "how many replace objects; 0: one a CPU")                    \
    X(replacements, 100000, 1, 1000000000, "of each task")                             \
    X(slots, 10000, 1, 10000000, "live objects of a table")                            \
    X(size_min, 8, 1, 65536, "bytes of the smallest object")                           \
    X(size_max, 1024, 1, 65536, "bytes of the largest; sizes between are as likely")   \
    X(shared, 0, 0, 1, "1: all tasks share one table")                                 \
    X(touch, 1, 0, 1, "1: a new object is written")

enum {
#define PARAMETER_ENUM(name, value, minimum, maximum, help) PARAMETER_##name,
    PARAMETERS(PARAMETER_ENUM) PARAMETER_COUNT
};

#define PARAMETER_ROW(name, value, minimum, maximum, help)                             \
    {#name, value, minimum, maximum, help},
static const struct sq_workload_parameter parameters[PARAMETER_COUNT] = {
    PARAMETERS(PARAMETER_ROW)};

struct churn {
    int64_t values[PARAMETER_COUNT];
    uint64_t task_count;
    sq_barrier *start, *end;
};

struct churn_task {
    const struct churn *bench;
    uint64_t index;
    uintptr_t *slots; /* atomic: a table may be shared */
    struct draw draw;
};

static void *churn_make(const struct sq_env *env, sq_task *task, struct churn_task *self)
{
    const struct churn *bench = self->bench;
    uint64_t least = (uint64_t)bench->values[PARAMETER_size_min];
    uint64_t range = (uint64_t)bench->values[PARAMETER_size_max] - least + 1;
    size_t bytes = (size_t)(least + draw_below(&self->draw, range));
    void *memory = env->kmalloc(task, bytes);
    if (bench->values[PARAMETER_touch] != 0)
        env->touch_write(task, memory, bytes);
    return memory;
}

static void churn_replace(const struct sq_env *env, sq_task *task,
                          const struct churn_task *self, void *memory, uint64_t slot)
{
    uintptr_t old =
        __atomic_exchange_n(&self->slots[slot], (uintptr_t)memory, __ATOMIC_ACQ_REL);
    env->kfree(task, (void *)old);
}

/* Every `stride`-th slot from `first` on: filled, or emptied. */
static void churn_walk(const struct sq_env *env, sq_task *task,
                       struct churn_task *self, bool fills)
{
    uint64_t count = (uint64_t)self->bench->values[PARAMETER_slots];
    bool is_shared = self->bench->values[PARAMETER_shared] != 0;
    uint64_t first = is_shared ? self->index : 0;
    uint64_t stride = is_shared ? self->bench->task_count : 1;
    for (uint64_t slot = first; slot < count; slot += stride)
        churn_replace(env, task, self,
                      fills ? churn_make(env, task, self) : NULL, slot);
}

static void churn_main(const struct sq_env *env, sq_task *task, void *argument)
{
    struct churn_task *self = argument;
    const struct churn *bench = self->bench;
    uint64_t count = (uint64_t)bench->values[PARAMETER_slots];
    churn_walk(env, task, self, true);
    (void)env->barrier_wait(task, bench->start);
    for (int64_t i = 0; i < bench->values[PARAMETER_replacements]; i++) {
        uint64_t slot = draw_below(&self->draw, count);
        churn_replace(env, task, self, NULL, slot);
        churn_replace(env, task, self, churn_make(env, task, self), slot);
        env->progress(task, 1);
    }
    if (env->barrier_wait(task, bench->end))
        env->stop_clock(task);
    churn_walk(env, task, self, false);
}

static void *churn_setup(const struct sq_env *env, sq_task *task, const int64_t *values)
{
    struct churn *bench = env->memory(task, sizeof(*bench));
    size_t table_bytes = (size_t)values[PARAMETER_slots] * sizeof(uintptr_t);
    struct churn_task *tasks;
    uintptr_t *shared = NULL;
    if (values[PARAMETER_size_max] < values[PARAMETER_size_min]) {
        char text[100];
        (void)snprintf(text, sizeof(text), "size_max is %lld: accepted are %lld to 65536",
                       (long long)values[PARAMETER_size_max],
                       (long long)values[PARAMETER_size_min]);
        env->fail(task, text);
    }
    memcpy(bench->values, values, sizeof(bench->values));
    bench->task_count = (uint64_t)values[PARAMETER_tasks];
    if (bench->task_count == 0)
        bench->task_count = env->cpu_count(task);
    tasks = env->memory(task, bench->task_count * sizeof(*tasks));
    bench->start = env->barrier_create(task, (uint32_t)bench->task_count, true);
    bench->end = env->barrier_create(task, (uint32_t)bench->task_count, false);
    env->expect(task, bench->task_count * (uint64_t)values[PARAMETER_replacements]);
    if (values[PARAMETER_shared] != 0)
        shared = env->memory(task, table_bytes);
    for (uint64_t i = 0; i < bench->task_count; i++) {
        tasks[i].bench = bench;
        tasks[i].index = i;
        draw_seed(env, task, &tasks[i].draw);
        tasks[i].slots = shared != NULL ? shared : env->memory(task, table_bytes);
    }
    for (uint64_t i = 0; i < bench->task_count; i++)
        env->spawn(task, churn_main, &tasks[i], SQ_ANY_CPU);
    return bench;
}

extern const struct sq_workload sq_workload_churn;
const struct sq_workload sq_workload_churn = {
    .abi = SQ_WORKLOAD_ABI,
    .name = "churn",
    .help = "random objects of a table of live ones replaced by others of random size",
    .rate_unit = "replacements/s",
    .parameters = parameters,
    .parameter_count = PARAMETER_COUNT,
    .setup = churn_setup,
};
