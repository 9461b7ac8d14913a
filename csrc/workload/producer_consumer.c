/*
 * producer-consumer: everything is allocated by one task and freed by another. What a
 * queue between threads does to an allocator, and nothing else: the worst case of those
 * that keep free objects by CPU.
 */
#include "slabq/workload.h"

#include <string.h>

#define PARAMETERS(X)                                                                  \
    X(pairs, 1, 1, 10000, "producers, each with a consumer of its own")                \
    X(objects, 100000, 1, 1000000000, "of each producer")                              \
    X(size, 256, 16, 65536, "bytes of an object")                                      \
    X(queue, 256, 1, 1000000, "objects under way at most; the producer then waits")    \
    X(pin_step, 1, -1, 255,                                                            \
      "-1: tasks run where the scheduler likes; k: producer i on CPU i, its consumer " \
      "on CPU i + k")                                                                  \
    X(touch, 1, 0, 1, "1: the producer writes an object, the consumer reads it")

enum {
#define PARAMETER_ENUM(name, value, minimum, maximum, help) PARAMETER_##name,
    PARAMETERS(PARAMETER_ENUM) PARAMETER_COUNT
};

#define PARAMETER_ROW(name, value, minimum, maximum, help)                             \
    {#name, value, minimum, maximum, help},
static const struct sq_workload_parameter parameters[PARAMETER_COUNT] = {
    PARAMETERS(PARAMETER_ROW)};

/* A waiting producer goes on when half of its queue is empty. */
#define WAKE_PERCENT 50

struct handoff {
    int64_t values[PARAMETER_COUNT];
    sq_cache *cache;
    sq_barrier *start;
};

struct handoff_pair {
    const struct handoff *bench;
    sq_channel *channel; /* charged 1 an object */
};

static void handoff_producer(const struct sq_env *env, sq_task *task, void *argument)
{
    const struct handoff_pair *self = argument;
    const struct handoff *bench = self->bench;
    (void)env->barrier_wait(task, bench->start);
    for (int64_t i = 0; i < bench->values[PARAMETER_objects]; i++) {
        struct sq_message *object;
        env->channel_reserve(task, self->channel, 1);
        object = env->alloc(task, bench->cache);
        if (bench->values[PARAMETER_touch] != 0)
            env->touch_write(task, object, (size_t)bench->values[PARAMETER_size]);
        env->channel_send(task, self->channel, object);
    }
    env->channel_close(task, self->channel);
}

static void handoff_consumer(const struct sq_env *env, sq_task *task, void *argument)
{
    const struct handoff_pair *self = argument;
    const struct handoff *bench = self->bench;
    struct sq_message *object;
    (void)env->barrier_wait(task, bench->start);
    while ((object = env->channel_receive(task, self->channel)) != NULL) {
        if (bench->values[PARAMETER_touch] != 0)
            env->touch_read(task, object, (size_t)bench->values[PARAMETER_size]);
        env->channel_release(task, self->channel, 1);
        env->free(task, bench->cache, object);
        env->progress(task, 1);
    }
}

static int32_t handoff_cpu_of(const struct sq_env *env, sq_task *task, int64_t step,
                              uint64_t index, bool is_consumer)
{
    if (step < 0)
        return SQ_ANY_CPU;
    return (int32_t)((index + (is_consumer ? (uint64_t)step : 0)) % env->cpu_count(task));
}

static void *handoff_setup(const struct sq_env *env, sq_task *task, const int64_t *values)
{
    struct handoff *bench = env->memory(task, sizeof(*bench));
    uint64_t count = (uint64_t)values[PARAMETER_pairs];
    int64_t step = values[PARAMETER_pin_step];
    struct handoff_pair *pairs = env->memory(task, count * sizeof(*pairs));
    memcpy(bench->values, values, sizeof(bench->values));
    bench->cache = env->cache_create(task, "handoff", (size_t)values[PARAMETER_size], 0, 0);
    bench->start = env->barrier_create(task, (uint32_t)(2 * count), true);
    env->expect(task, count * (uint64_t)values[PARAMETER_objects]);
    for (uint64_t i = 0; i < count; i++) {
        pairs[i].bench = bench;
        pairs[i].channel = env->channel_create(task, (uint64_t)values[PARAMETER_queue],
                                               WAKE_PERCENT);
        env->spawn(task, handoff_consumer, &pairs[i],
                   handoff_cpu_of(env, task, step, i, true));
        env->spawn(task, handoff_producer, &pairs[i],
                   handoff_cpu_of(env, task, step, i, false));
    }
    return bench;
}

extern const struct sq_workload sq_workload_producer_consumer;
const struct sq_workload sq_workload_producer_consumer = {
    .abi = SQ_WORKLOAD_ABI,
    .name = "producer-consumer",
    .help = "objects allocated by one task and freed by another",
    .rate_unit = "objects/s",
    .parameters = parameters,
    .parameter_count = PARAMETER_COUNT,
    .setup = handoff_setup,
};
