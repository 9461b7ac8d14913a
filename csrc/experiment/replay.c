/*
 * Replay as a workload: one task a CPU of the machine, which stays there and does that
 * CPU's events in the order of the trace (trace/program.h says how they are paired).
 *
 * `objects` has one word an object: 0 before its allocation, REPLAY_AWAITED when a free
 * on another CPU came first and sleeps, then the address. Only that order is kept
 * between CPUs, not the times between events: a replay runs as fast as the policy lets
 * it.
 *
 * A kmem_cache event goes to a cache of the trace's name and sizes, HWCACHE_ALIGN if
 * the recorded slots can only be explained by it; a kmalloc event to the policy's own
 * kmalloc with the bytes that were asked for. A node beyond the machine's is taken
 * modulo their number, as CPUs are.
 */
#include "experiment/replay.h"

#include <stdio.h>

#include "trace/program.h"

#define REPLAY_AWAITED    UINT64_C(1)
#define REPLAY_EVENT_STEP 64u /* events between two reports of progress */

struct replay {
    struct sq_workload workload;
    const struct sq_trace *trace;
    struct sq_program program;
    uint32_t node_count;
    /* -- made by setup -- */
    uint64_t *objects; /* [object_count] */
    sq_cache **caches; /* [target_count]; NULL: kmalloc */
    sq_barrier *start;
};

struct replay_cpu {
    struct replay *replay;
    const struct sq_program_cpu *program;
};

static void replay_alloc(const struct sq_env *env, sq_task *task,
                         const struct replay *replay, struct sq_program_event event)
{
    uint32_t target = sq_program_target_of(event);
    uint64_t *object = &replay->objects[event.object];
    sq_cache *cache = replay->caches[target];
    int32_t node = sq_program_node_of(event);
    void *memory;
    if (node >= 0)
        node %= (int32_t)replay->node_count;
    if (cache != NULL)
        memory = env->alloc_node(task, cache, node);
    else
        memory =
            env->kmalloc_node(task, replay->program.targets[target].object_size, node);
    if (__atomic_exchange_n(object, (uintptr_t)memory, __ATOMIC_ACQ_REL) ==
        REPLAY_AWAITED)
        env->wake(task, object);
}

/* Sleep until the allocation, which another CPU does, is done. Returns its address. */
static uint64_t replay_await(const struct sq_env *env, sq_task *task, uint64_t *object)
{
    uint64_t address = 0;
    if (__atomic_compare_exchange_n(object, &address, REPLAY_AWAITED, false,
                                    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        env->wait(task, object, REPLAY_AWAITED);
        address = __atomic_load_n(object, __ATOMIC_ACQUIRE);
    }
    return address;
}

static void replay_free(const struct sq_env *env, sq_task *task,
                        const struct replay *replay, struct sq_program_event event)
{
    sq_cache *cache = replay->caches[sq_program_target_of(event)];
    uint64_t *object = &replay->objects[event.object];
    uint64_t address = __atomic_load_n(object, __ATOMIC_ACQUIRE);
    if (address == 0)
        address = replay_await(env, task, object);
    if (cache != NULL)
        env->free(task, cache, (void *)(uintptr_t)address);
    else
        env->kfree(task, (void *)(uintptr_t)address);
}

static void replay_main(const struct sq_env *env, sq_task *task, void *argument)
{
    const struct replay_cpu *self = argument;
    const struct replay *replay = self->replay;
    size_t count = self->program->event_count, done = 0;
    (void)env->barrier_wait(task, replay->start);
    while (done < count) {
        size_t first = done;
        for (; done < count && done - first < REPLAY_EVENT_STEP; done++) {
            struct sq_program_event event = self->program->events[done];
            if (sq_program_op_of(event) == SQ_PROGRAM_ALLOC)
                replay_alloc(env, task, replay, event);
            else
                replay_free(env, task, replay, event);
        }
        env->progress(task, done - first);
    }
}

/* Does the recorded slot show that objects begin on cache lines? */
static bool replay_is_line_aligned(const struct sq_program_target *target)
{
    return target->slot_size % SQ_LINE_SIZE == 0 &&
           target->slot_size > sq_align_up(target->object_size, sizeof(void *)) &&
           target->slot_size == sq_align_up(target->object_size, SQ_LINE_SIZE);
}

static sq_cache *replay_make_cache(const struct sq_env *env, sq_task *task,
                                   const struct replay *replay,
                                   const struct sq_program_target *target)
{
    char name[SQ_CACHE_NAME_MAX];
    uint32_t flags = replay_is_line_aligned(target) ? SQ_WORKLOAD_HWCACHE_ALIGN : 0;
    if (target->kind == SQ_TARGET_CACHE) {
        size_t length;
        const char *text =
            sq_strings_get(&replay->trace->caches, target->name, &length);
        (void)snprintf(name, sizeof(name), "%.*s", (int)length, text);
    } else {
        (void)snprintf(name, sizeof(name), "cache-%u", target->slot_size);
    }
    return env->cache_create(task, name, target->object_size, 0, flags);
}

static void *replay_setup(const struct sq_env *env, sq_task *task,
                          const int64_t *values)
{
    struct replay *replay = env->argument(task);
    const struct sq_program *program = &replay->program;
    struct replay_cpu *cpus =
        env->memory(task, program->cpu_count * sizeof(struct replay_cpu));
    uint64_t event_count = 0;
    (void)values;
    replay->objects =
        env->memory(task, ((size_t)program->object_count + 1) * sizeof(uint64_t));
    replay->caches =
        env->memory(task, ((size_t)program->target_count + 1) * sizeof(sq_cache *));
    for (uint32_t i = 0; i < program->target_count; i++)
        if (program->targets[i].kind != SQ_TARGET_KMALLOC)
            replay->caches[i] =
                replay_make_cache(env, task, replay, &program->targets[i]);
    replay->start = env->barrier_create(task, program->cpu_count, true);
    for (uint32_t i = 0; i < program->cpu_count; i++) {
        cpus[i].replay = replay;
        cpus[i].program = &program->cpus[i];
        event_count += program->cpus[i].event_count;
        env->spawn(task, replay_main, &cpus[i], (int32_t)i);
    }
    env->expect(task, event_count);
    return replay;
}

static void replay_describe(void *argument, struct sq_json *json)
{
    const struct sq_program_counts *counts =
        &((struct replay *)argument)->program.counts;
    sq_json_open_object(json, "trace");
#define REPLAY_COUNT(name) sq_json_unsigned(json, #name, counts->name);
    SQ_PROGRAM_COUNTS(REPLAY_COUNT)
#undef REPLAY_COUNT
    sq_json_close(json);
}

int sq_replay(const struct sq_run_request *request, const struct sq_trace *trace,
              struct sq_json *json, struct sq_error *error)
{
    const struct sq_topology *topology = &request->machine->topology;
    struct sq_run_request filled = *request;
    struct replay replay = {
        .workload = {.abi = SQ_WORKLOAD_ABI,
                     .name = "replay",
                     .help = "the allocations and frees of a recorded kernel",
                     .rate_unit = "events/s",
                     .setup = replay_setup,
                     .argument = &replay},
        .trace = trace,
        .node_count = topology->node_count,
    };
    int code = sq_program_build(trace, topology->cpu_count, &replay.program, error);
    if (code != SQ_OK)
        return code;
    filled.workload = &replay.workload;
    filled.describe = replay_describe;
    filled.describe_argument = &replay;
    code = sq_run(&filled, json, error);
    sq_program_free(&replay.program);
    return code;
}
