/*
 * The in-kernel microbenchmarks of the slab allocators (Christoph Lameter's slab_test,
 * Jesper Dangaard Brouer's slab_bulk_test), one size a run.
 *
 *   alloc-free   a CPU makes `count` kmallocs, then frees them all, first to last
 *   pairs        a CPU makes a kmalloc and frees it at once, `count` times
 *   concurrent   alloc-free on all CPUs at once
 *   remote-free  as concurrent, but each CPU frees what the CPU before it allocated
 *   bulk         a CPU allocates `bulk` objects of a cache in one call and frees them in
 *                one, until `count` objects are done
 *
 * An operation is a pair, one object allocated and freed. Where allocations and frees are
 * apart, the mean time of each on each CPU is a latency too, of the paths "kmalloc" and
 * "kfree": a value a CPU and loop.
 */
#include "slabq/workload.h"

#include <stdio.h>
#include <string.h>

#define PARAMETERS(X)                                                                  \
    X(test, 0, 0, 4,                                                                   \
      "alloc-free (0), pairs (1), concurrent (2), remote-free (3) or bulk (4)")        \
    X(size, 64, 1, 1048576, "bytes asked for")                                         \
    X(count, 10000, 1, 10000000, "objects of a CPU and loop")                          \
    X(loops, 1, 1, 1000000, "how often the test is made")                              \
    X(bulk, 16, 1, 250, "objects of a bulk call")                                      \
    X(at_once, 0, 0, 256, "CPUs at once; 0: all for concurrent, remote-free, else one")

enum {
#define PARAMETER_ENUM(name, value, minimum, maximum, help) PARAMETER_##name,
    PARAMETERS(PARAMETER_ENUM) PARAMETER_COUNT
};

#define PARAMETER_ROW(name, value, minimum, maximum, help)                             \
    {#name, value, minimum, maximum, help},
static const struct sq_workload_parameter parameters[PARAMETER_COUNT] = {
    PARAMETERS(PARAMETER_ROW)};

enum kmalloc_test { TEST_ALLOC_FREE, TEST_PAIRS, TEST_CONCURRENT, TEST_REMOTE_FREE, TEST_BULK };

#define BULK_MAX       250
#define PROGRESS_EVERY 1024u

struct kmalloc_bench {
    int64_t values[PARAMETER_COUNT];
    uint32_t cpu_count; /* that take part */
    uint32_t alloc_path, free_path;
    sq_barrier *start;
    sq_barrier *turn;  /* between allocations and frees */
    sq_cache *cache;   /* of bulk */
    void ***objects;   /* of each CPU */
};

struct kmalloc_cpu {
    struct kmalloc_bench *bench;
    uint32_t index;
};

static void kmalloc_fill(const struct sq_env *env, sq_task *task,
                         const struct kmalloc_bench *bench, void **objects)
{
    uint64_t count = (uint64_t)bench->values[PARAMETER_count];
    size_t size = (size_t)bench->values[PARAMETER_size];
    uint64_t start_ns = env->now_ns(task);
    for (uint64_t i = 0; i < count; i++)
        objects[i] = env->kmalloc(task, size);
    env->latency(task, bench->alloc_path, (env->now_ns(task) - start_ns) / count);
}

static void kmalloc_empty(const struct sq_env *env, sq_task *task,
                          const struct kmalloc_bench *bench, void **objects)
{
    uint64_t count = (uint64_t)bench->values[PARAMETER_count];
    uint64_t start_ns = env->now_ns(task);
    for (uint64_t i = 0; i < count; i++)
        env->kfree(task, objects[i]);
    env->latency(task, bench->free_path, (env->now_ns(task) - start_ns) / count);
}

/* The CPUs wait for each other between the halves if what one allocates another frees, or
 * if all are to do the same at once. */
static void kmalloc_halves(const struct sq_env *env, sq_task *task,
                           const struct kmalloc_cpu *self, uint32_t from)
{
    const struct kmalloc_bench *bench = self->bench;
    kmalloc_fill(env, task, bench, bench->objects[self->index]);
    (void)env->barrier_wait(task, bench->turn);
    kmalloc_empty(env, task, bench, bench->objects[from]);
    (void)env->barrier_wait(task, bench->turn);
    env->progress(task, (uint64_t)bench->values[PARAMETER_count]);
}

static void kmalloc_pairs(const struct sq_env *env, sq_task *task,
                          const struct kmalloc_bench *bench)
{
    uint64_t left = (uint64_t)bench->values[PARAMETER_count];
    size_t size = (size_t)bench->values[PARAMETER_size];
    while (left > 0) {
        uint64_t part = left < PROGRESS_EVERY ? left : PROGRESS_EVERY;
        for (uint64_t i = 0; i < part; i++)
            env->kfree(task, env->kmalloc(task, size));
        env->progress(task, part);
        left -= part;
    }
}

static void kmalloc_bulk(const struct sq_env *env, sq_task *task,
                         const struct kmalloc_bench *bench)
{
    uint64_t left = (uint64_t)bench->values[PARAMETER_count];
    uint64_t bulk = (uint64_t)bench->values[PARAMETER_bulk];
    void *objects[BULK_MAX];
    while (left > 0) {
        size_t part = (size_t)(left < bulk ? left : bulk);
        env->alloc_bulk(task, bench->cache, part, objects);
        env->free_bulk(task, bench->cache, part, objects);
        env->progress(task, part);
        left -= part;
    }
}

static void kmalloc_main(const struct sq_env *env, sq_task *task, void *argument)
{
    const struct kmalloc_cpu *self = argument;
    const struct kmalloc_bench *bench = self->bench;
    uint32_t count = bench->cpu_count;
    (void)env->barrier_wait(task, bench->start);
    for (int64_t loop = 0; loop < bench->values[PARAMETER_loops]; loop++) {
        switch ((enum kmalloc_test)bench->values[PARAMETER_test]) {
        case TEST_ALLOC_FREE:
        case TEST_CONCURRENT:
            kmalloc_halves(env, task, self, self->index);
            break;
        case TEST_REMOTE_FREE:
            kmalloc_halves(env, task, self, (self->index + count - 1) % count);
            break;
        case TEST_PAIRS:
            kmalloc_pairs(env, task, bench);
            break;
        case TEST_BULK:
            kmalloc_bulk(env, task, bench);
            break;
        }
    }
}

/* How many CPUs take part; ends the run if the test cannot be made on so many. */
static uint32_t kmalloc_cpu_count(const struct sq_env *env, sq_task *task,
                                  const int64_t *values)
{
    char text[120];
    uint32_t least = values[PARAMETER_test] == TEST_REMOTE_FREE ? 2 : 1;
    uint32_t all = env->cpu_count(task);
    bool takes_all = values[PARAMETER_test] == TEST_CONCURRENT ||
                     values[PARAMETER_test] == TEST_REMOTE_FREE;
    int64_t count = values[PARAMETER_at_once];
    if (count == 0)
        count = takes_all ? all : 1;
    if (count < least || count > (int64_t)all) {
        (void)snprintf(text, sizeof(text), "at_once is %lld: accepted are %u to %u%s",
                       (long long)count, least, all,
                       all < least ? ", and the machine has too few" : "");
        env->fail(task, text);
    }
    return (uint32_t)count;
}

static void *kmalloc_setup(const struct sq_env *env, sq_task *task,
                           const int64_t *values)
{
    struct kmalloc_bench *bench = env->memory(task, sizeof(*bench));
    uint32_t count = kmalloc_cpu_count(env, task, values);
    struct kmalloc_cpu *cpus = env->memory(task, count * sizeof(*cpus));
    size_t array_bytes = (size_t)values[PARAMETER_count] * sizeof(void *);
    memcpy(bench->values, values, sizeof(bench->values));
    bench->cpu_count = count;
    bench->alloc_path = env->latency_path(task, "kmalloc");
    bench->free_path = env->latency_path(task, "kfree");
    bench->start = env->barrier_create(task, count, true);
    bench->turn = env->barrier_create(task, count, false);
    bench->objects = env->memory(task, count * sizeof(void **));
    if (values[PARAMETER_test] == TEST_BULK)
        bench->cache = env->cache_create(task, "bulk_test", (size_t)values[PARAMETER_size],
                                         0, SQ_WORKLOAD_HWCACHE_ALIGN);
    env->expect(task, count * (uint64_t)(values[PARAMETER_count] * values[PARAMETER_loops]));
    for (uint32_t i = 0; i < count; i++) {
        cpus[i].bench = bench;
        cpus[i].index = i;
        if (bench->cache == NULL && values[PARAMETER_test] != TEST_PAIRS)
            bench->objects[i] = env->memory(task, array_bytes);
    }
    for (uint32_t i = 0; i < count; i++)
        env->spawn(task, kmalloc_main, &cpus[i], (int32_t)i);
    return bench;
}

extern const struct sq_workload sq_workload_kmalloc;
const struct sq_workload sq_workload_kmalloc = {
    .abi = SQ_WORKLOAD_ABI,
    .name = "kmalloc",
    .help = "the kernel's microbenchmarks of kmalloc, kfree and bulk calls, by size",
    .rate_unit = "pairs/s",
    .parameters = parameters,
    .parameter_count = PARAMETER_COUNT,
    .setup = kmalloc_setup,
};
