/*
 * The environment of a workload: objects, tasks, time, and the run around them. Part of
 * unit/workload_<machine>.c.
 *
 * A call costs one load (is the run over?), one decrement (is the slice?), one
 * decrement (is this one timed?) and one count beside what it is for. About one call in
 * `latency_interval` is timed, at random gaps so that no rhythm of the workload is
 * followed; the cost of reading the clock is taken off.
 */
#include <sched.h>
#include <string.h>

#include "workload/env.h"

/* Ten hours; the clock of the simulated machine is good for twenty. */
#define ENV_TIME_NS_MAX UINT64_C(36000000000000)
#define ENV_INLINE      inline __attribute__((always_inline))

_Static_assert(SQ_WORKLOAD_HWCACHE_ALIGN == SQ_CACHE_HWCACHE_ALIGN, "one set of flags");
_Static_assert(SQ_ANY_NODE == SQ_NODE_ANY && SQ_ANY_CPU == SQ_TASK_ANY_CPU,
               "the public header says the same");

static const struct sq_env env_table;

/* ---- time, failures, memory of the host ---- */

static uint64_t env_now_ns(sq_task *task)
{
    return sq_now_ns(task->cpu);
}

/* Switches and migrations since measuring began. */
static void env_count_switches(const struct env_run *run)
{
    struct sq_runner *runner = run->runner;
    sq_sched_count(run->sched, &runner->context_switches, &runner->cpu_migrations);
    runner->context_switches -= run->switches_before;
    runner->cpu_migrations -= run->migrations_before;
}

static void env_mark(sq_task *task, bool is_end)
{
    struct env_run *run = env_of(task);
    struct sq_runner *runner = run->runner;
    if (runner->mark != NULL)
        runner->mark(runner, is_end);
    if (is_end)
        runner->end_ns = env_now_ns(task);
    else
        runner->start_ns = env_now_ns(task);
    if (SQ_TOUCH_IS_REAL) /* other CPUs are counting: what counts is the whole run */
        return;
    if (is_end)
        env_count_switches(run);
    else
        sq_sched_count(run->sched, &run->switches_before, &run->migrations_before);
    run->is_marked_end = is_end;
}

static void env_start_clock(sq_task *task)
{
    struct sq_runner *runner = env_of(task)->runner;
    if (env_of(task)->warmup_operations == 0)
        env_mark(task, false);
    __atomic_store_n(&runner->clock_is_stopped, false, __ATOMIC_RELAXED);
}

static void env_charge_syscall(sq_task *task)
{
    sq_scope_enter(task->cpu, SYSCALL);
    sq_charge_ns(task->cpu, env_of(task)->syscall_ns);
    sq_scope_leave(task->cpu, SYSCALL);
}

static _Noreturn void env_fail(sq_task *task, const struct sq_error *error)
{
    sq_sched_fail(task->sched, error);
    sq_task_abandon(task);
}

static void env_fail_message(sq_task *task, const char *message)
{
    struct sq_error error;
    if (message == NULL)
        message = "fail was called without a message";
    (void)sq_error_set(&error, task->number == 0 ? SQ_E_PARAMETER : SQ_E_SYSTEM,
                       "workload %.60s: %.300s", env_of(task)->runner->workload->name,
                       message);
    env_fail(task, &error);
}

/* Take the run's mutex without ever keeping another CPU's request waiting. */
static void env_lock(sq_task *task)
{
    struct env_run *run = env_of(task);
    while (pthread_mutex_trylock(&run->mutex) != 0) {
        sq_cpu_relax(task->cpu);
        (void)sched_yield();
    }
}

static void env_unlock(sq_task *task)
{
    (void)pthread_mutex_unlock(&env_of(task)->mutex);
}

static void *env_memory(sq_task *task, size_t bytes)
{
    struct env_run *run = env_of(task);
    size_t total = sq_align_up(bytes, SQ_LINE_SIZE) + SQ_LINE_SIZE;
    struct env_block *block =
        bytes > SIZE_MAX / 2 ? NULL : sq_shared_alloc(run->runner->machine, total);
    if (block == NULL) {
        struct sq_error error;
        (void)sq_error_set(&error, SQ_E_MEMORY,
                           "the host has no %zu bytes for the workload", bytes);
        env_fail(task, &error);
    }
    block->bytes = total;
    env_lock(task);
    block->next = run->blocks;
    run->blocks = block;
    env_unlock(task);
    return (char *)block + SQ_LINE_SIZE;
}

static void env_keep_pipe(sq_task *task, struct sq_pipe *pipe, struct sq_pipe **next)
{
    struct env_run *run = env_of(task);
    env_lock(task);
    *next = run->pipes;
    run->pipes = pipe;
    env_unlock(task);
}

static void *env_public_memory(sq_task *task, size_t bytes)
{
    (void)sq_task_step(task);
    return env_memory(task, bytes);
}

#include "workload/env_objects.h"

/* ---- the task and its CPU ---- */

static uint64_t env_random(sq_task *task)
{
    return sq_random(sq_task_step(task));
}

static uint64_t env_public_now_ns(sq_task *task)
{
    (void)sq_task_step(task);
    return env_now_ns(task);
}

static uint32_t env_cpu_index(sq_task *task)
{
    return sq_task_step(task)->index;
}

static uint32_t env_cpu_count(sq_task *task)
{
    return sq_task_step(task)->machine->topology.cpu_count;
}

/* A task is told once; if it asks again it did not listen, and leaves. */
static bool env_should_stop(sq_task *task)
{
    if (task->is_told_to_stop)
        sq_task_abandon(task);
    sq_cpu_relax(task->cpu);
    task->is_told_to_stop = sq_sched_is_stopped(task->sched);
    return task->is_told_to_stop;
}

static void *env_argument(sq_task *task)
{
    (void)sq_task_step(task);
    return env_of(task)->runner->workload->argument;
}

static void env_yield(sq_task *task)
{
    (void)sq_task_step(task);
    sq_task_yield(task);
}

static void env_set_priority(sq_task *task, uint32_t priority)
{
    struct sq_error error;
    (void)sq_task_step(task);
    if (priority > SQ_TASK_PRIORITY_INTERRUPT) {
        (void)sq_error_set(&error, SQ_E_PARAMETER,
                           "a priority is %u: accepted are 0 (none) to %u and, for the "
                           "work of interrupts, %u",
                           priority, SQ_TASK_PRIORITY_MAX, SQ_TASK_PRIORITY_INTERRUPT);
        env_fail(task, &error);
    }
    sq_task_set_priority(task, priority);
}

/* The simulated clock has an end, which no run comes near that is not mistaken. */
static void env_check_time(sq_task *task, const char *call, uint64_t time_ns)
{
    struct sq_error error;
    if (SQ_TOUCH_IS_REAL || time_ns <= ENV_TIME_NS_MAX)
        return;
    (void)sq_error_set(
        &error, SQ_E_PARAMETER,
        "%s goes on until %llu ns of the simulated clock: accepted are 0 to "
        "%llu",
        call, (unsigned long long)time_ns, (unsigned long long)ENV_TIME_NS_MAX);
    env_fail(task, &error);
}

static void env_sleep_until(sq_task *task, uint64_t time_ns)
{
    (void)sq_task_step_blocking(task);
    env_check_time(task, "sleep_until", time_ns);
    sq_task_sleep_until(task, time_ns);
}

/* Requires the lock: `end_ns` is written by whoever comes. */
static void env_end_clock(sq_task *task)
{
    struct sq_runner *runner = env_of(task)->runner;
    if (!__atomic_load_n(&runner->clock_is_stopped, __ATOMIC_RELAXED) &&
        !sq_sched_is_stopped(task->sched))
        runner->end_ns = env_now_ns(task);
}

static void env_stop_clock(sq_task *task)
{
    sq_cpu *cpu = sq_task_step(task);
    struct env_run *run = env_of(task);
    sq_lock_acquire(cpu, &run->lock);
    env_mark(task, true);
    __atomic_store_n(&run->runner->clock_is_stopped, true, __ATOMIC_RELAXED);
    sq_lock_release(cpu, &run->lock);
}

static uint32_t env_latency_path(sq_task *task, const char *name)
{
    struct sq_runner *runner = env_of(task)->runner;
    uint32_t path = 0;
    (void)sq_task_step(task);
    env_lock(task);
    while (path < runner->latency_path_count &&
           strcmp(runner->latency_path_name[path], name) != 0)
        path++;
    if (path < SQ_LATENCY_PATHS_MAX) {
        runner->latency_path_name[path] = name;
        if (path == runner->latency_path_count)
            runner->latency_path_count++;
    }
    env_unlock(task);
    if (path == SQ_LATENCY_PATHS_MAX)
        env_fail_message(task, "more paths than SQ_LATENCY_PATHS_MAX are named");
    return path;
}

static void env_latency(sq_task *task, uint32_t path, uint64_t ns)
{
    sq_cpu *cpu = sq_task_step(task);
    if (path >= SQ_LATENCY_PATHS_MAX)
        env_fail_message(task, "a latency is given to a path without a name");
    sq_histogram_add(&env_of(task)->cpus[cpu->index].latency_ns[path], ns);
}

/* On a real machine the time passes by itself; on a simulated one it is charged. */
static void env_think(sq_task *task, uint64_t ns)
{
    uint64_t start_ns = env_now_ns(task);
    env_check_time(task, "think", ns > ENV_TIME_NS_MAX ? ns : start_ns + ns);
    sq_charge_ns(sq_task_step(task), ns);
    do
        sq_cpu_poll(sq_task_step_blocking(task));
    while (env_now_ns(task) - start_ns < ns);
}

/* Begin or end measuring where `operations` more pass the edge of the window. Only one
 * task passes an edge. */
static void env_watch_window(sq_task *task, uint64_t operations)
{
    struct env_run *run = env_of(task);
    uint64_t before =
        __atomic_fetch_add(&run->window_operations, operations, __ATOMIC_RELAXED);
    uint64_t after = before + operations, begin = run->warmup_operations;
    uint64_t end = begin + run->measure_operations;
    if (begin > 0 && before < begin && after >= begin)
        env_mark(task, false);
    if (run->measure_operations > 0 && before < end && after >= end) {
        env_mark(task, true);
        sq_sched_finish(run->sched);
    }
}

/* A simulated run is looked at where its clock has come to the next point. */
static void env_sample(sq_task *task)
{
    struct sq_runner *runner = env_of(task)->runner;
    uint64_t now_ns = env_now_ns(task);
    if (now_ns >= runner->sample_at_ns)
        runner->sample(runner, now_ns);
}

/* Debug caches of a run that is to end at their first report: is there one? */
static __attribute__((noinline)) void env_end_at_report(sq_task *task)
{
    struct sq_error error;
    if (!sq_runner_has_panicked(env_of(task)->runner))
        return;
    (void)sq_error_set(&error, SQ_E_CORRUPTION, "a debug cache reported");
    env_fail(task, &error);
}

static void env_progress(sq_task *task, uint64_t operations)
{
    sq_cpu *cpu = sq_task_step_blocking(task);
    uint64_t *done = &env_of(task)->cpus[cpu->index].operations;
    __atomic_store_n(done, *done + operations, __ATOMIC_RELAXED);
    if (env_of(task)->runner->sample != NULL)
        env_sample(task);
    if (env_of(task)->warmup_operations + env_of(task)->measure_operations > 0)
        env_watch_window(task, operations);
    if (__builtin_expect(env_of(task)->runner->panics, 0))
        env_end_at_report(task);
}

static void env_expect(sq_task *task, uint64_t operations)
{
    (void)sq_task_step(task);
    __atomic_store_n(&env_of(task)->runner->operations_expected, operations,
                     __ATOMIC_RELAXED);
}

/* ---- tasks ---- */

struct env_child {
    sq_workload_main *main;
    void *argument;
};

/* One task less. The time of the last one to end is the end of the run. */
static void env_child_ended(sq_task *task)
{
    struct env_run *run = env_of(task);
    sq_lock_acquire(task->cpu, &run->lock);
    env_end_clock(task);
    if (--run->child_count == 0)
        (void)sq_wait_wake(task->cpu, &run->parent, 1);
    sq_lock_release(task->cpu, &run->lock);
}

static void env_child_main(sq_task *task, void *argument)
{
    const struct env_child *child = argument;
    child->main(&env_table, task, child->argument);
    env_child_ended(task);
}

static void env_spawn(sq_task *task, sq_workload_main *main, void *argument,
                      int32_t cpu)
{
    struct env_run *run = env_of(task);
    sq_cpu *own = sq_task_step(task);
    struct env_child *child = env_memory(task, sizeof(*child));
    uint32_t cpu_count = own->machine->topology.cpu_count;
    struct sq_error error;
    if (main == NULL)
        env_fail_message(task, "a task is spawned without a function");
    child->main = main;
    child->argument = argument;
    if (cpu < SQ_ANY_CPU || cpu >= (int32_t)cpu_count) {
        (void)sq_error_set(&error, SQ_E_PARAMETER,
                           "a task is spawned on CPU %d: accepted are 0 to %u and "
                           "SQ_ANY_CPU",
                           cpu, cpu_count - 1);
        env_fail(task, &error);
    }
    sq_lock_acquire(own, &run->lock);
    run->child_count++;
    sq_lock_release(own, &run->lock);
    if (sq_task_create(own, run->sched, env_child_main, child, run, cpu,
                       cpu != SQ_ANY_CPU, &error) != SQ_OK)
        env_fail(task, &error);
}

/* The first task: make everything, wait for the others, clear up. */
static void env_first_main(sq_task *task, void *argument)
{
    struct env_run *run = argument;
    struct sq_runner *runner = run->runner;
    void *state;
    env_start_clock(task);
    state = runner->workload->setup(&env_table, task, runner->values);
    sq_lock_acquire(task->cpu, &run->lock);
    if (run->child_count > 0) {
        sq_wait_sleep(task, &run->parent, &run->lock);
    } else {
        if (runner->end_ns == 0)
            runner->end_ns = env_now_ns(task);
        sq_lock_release(task->cpu, &run->lock);
    }
    if (runner->workload->teardown != NULL)
        runner->workload->teardown(&env_table, task, state);
}

static const struct sq_env env_table = {
    .abi = SQ_WORKLOAD_ABI,
    .struct_bytes = sizeof(struct sq_env),
    .alloc = env_alloc,
    .alloc_node = env_alloc_node,
    .free = env_free,
    .kmalloc = env_kmalloc,
    .kmalloc_node = env_kmalloc_node,
    .kfree = env_kfree,
    .touch_read = env_touch_read,
    .touch_write = env_touch_write,
    .random = env_random,
    .now_ns = env_public_now_ns,
    .cpu_index = env_cpu_index,
    .cpu_count = env_cpu_count,
    .should_stop = env_should_stop,
    .fail = env_fail_message,
    .argument = env_argument,
    .cache_create = env_cache_create,
    .memory = env_public_memory,
    .spawn = env_spawn,
    .channel_create = channel_create,
    .pipe_create = pipe_create,
    .barrier_create = sync_barrier_create,
    .expect = env_expect,
    .yield = env_yield,
    .think = env_think,
    .progress = env_progress,
    .barrier_wait = sync_barrier_wait,
    .channel_reserve = channel_reserve,
    .channel_send = channel_send,
    .channel_receive = channel_receive,
    .channel_release = channel_release,
    .channel_close = channel_close,
    .pipe_write = pipe_write,
    .pipe_read = pipe_read,
    .wait = sync_wait,
    .wake = sync_wake,
    .alloc_bulk = env_alloc_bulk,
    .free_bulk = env_free_bulk,
    .latency_path = env_latency_path,
    .latency = env_latency,
    .stop_clock = env_stop_clock,
    .sleep_until = env_sleep_until,
    .set_priority = env_set_priority,
    .pages_alloc = env_pages_alloc,
    .pages_free = env_pages_free,
    .channel_deliver = channel_deliver,
};

/* ---- the run ---- */

static bool env_tick(void *argument)
{
    struct env_run *run = argument;
    struct sq_runner *runner = run->runner;
    uint64_t expected = __atomic_load_n(&runner->operations_expected, __ATOMIC_RELAXED);
    uint64_t done = 0;
    if (runner->tick == NULL)
        return false;
    for (uint32_t i = 0; i < runner->machine->topology.cpu_count; i++)
        done += __atomic_load_n(&run->cpus[i].operations, __ATOMIC_RELAXED);
    return runner->tick(
        runner->tick_argument,
        expected > 0 ? (double)sq_min_u64(done, expected) / (double)expected : 0.0);
}

/* The cheapest of many readings of the clock. */
static uint64_t env_measure_clock(const sq_cpu *cpu)
{
    uint64_t best_ns = UINT64_MAX;
    for (int i = 0; i < 256; i++) {
        uint64_t start_ns = sq_now_ns(cpu);
        best_ns = sq_min_u64(best_ns, sq_now_ns(cpu) - start_ns);
    }
    return best_ns;
}

#define ENV_RULE(name, value, minimum, maximum, help) runner->run_values[SQ_RUN_##name],
/* The memory policy of the run's parameters; no nodes are all nodes. */
static int env_set_memory_policy(struct env_run *run, struct sq_error *error)
{
    const struct sq_runner *runner = run->runner;
    uint32_t node_count = runner->machine->topology.node_count;
    uint32_t all = (1u << node_count) - 1;
    int64_t nodes = runner->run_values[SQ_RUN_memory_nodes];
    if (nodes > (int64_t)all)
        return sq_error_set(
            error, SQ_E_PARAMETER,
            "memory_nodes is %lld: accepted are 0 to %u, a bit for each "
            "of the machine's %u nodes",
            (long long)nodes, all, node_count);
    run->memory_policy.mode =
        (enum sq_memory_mode)runner->run_values[SQ_RUN_memory_policy];
    run->memory_policy.nodes = nodes == 0 ? all : (uint32_t)nodes;
    return SQ_OK;
}

static struct env_run *env_create(struct sq_runner *runner)
{
    struct env_run *run = sq_shared_alloc(runner->machine, sizeof(*run));
    struct sq_sched_config config = {
        .slice_calls = (uint32_t)runner->run_values[SQ_RUN_slice_calls],
        .wake_affine = runner->run_values[SQ_RUN_wake_affine] != 0,
        .rules = {SQ_SCHED_RULES(ENV_RULE)},
    };
    if (run == NULL)
        return NULL;
    run->runner = runner;
    run->heap = runner->heap;
    run->ops = runner->heap->ops;
    if (config.rules.sched_preempt_rt < 0)
        config.rules.sched_preempt_rt =
            sq_options_get(&run->heap->options, run->ops->name, "preempt_rt", 0);
    run->locks_sleep = !SQ_TOUCH_IS_REAL && config.rules.sched_preempt_rt > 0;
    run->cpus = runner->cpus;
    if (runner->run_values[SQ_RUN_syscall_ns] > 0)
        run->syscall_ns = (uint64_t)runner->run_values[SQ_RUN_syscall_ns];
    run->warmup_operations = (uint64_t)runner->run_values[SQ_RUN_warmup_operations];
    run->measure_operations = (uint64_t)runner->run_values[SQ_RUN_measure_operations];
    run->clock_cost_ns =
        env_measure_clock(runner->machine->ops->cpu_at(runner->machine, 0));
    (void)pthread_mutex_init(&run->mutex, NULL);
    sq_lock_init(&run->lock, SQ_LOCK_WAIT);
    sq_wait_queue_init(&run->parent);
    for (uint32_t i = 0; i < ENV_WAIT_BUCKET_COUNT; i++) {
        sq_lock_init(&run->buckets[i].lock, SQ_LOCK_WAIT);
        sq_wait_queue_init(&run->buckets[i].sleepers);
    }
    wrong_free_init(run);
    run->sched = sq_sched_create(runner->machine, &config);
    if (run->sched == NULL) {
        wrong_free_destroy(run);
        sq_shared_free(runner->machine, run, sizeof(*run));
        return NULL;
    }
    return run;
}

/* Requires that no task runs any more. `cpu` takes the pages that pipes hold. */
static void env_destroy(sq_cpu *cpu, struct env_run *run)
{
    for (struct sq_pipe *pipe = run->pipes; pipe != NULL; pipe = pipe->next)
        pipe_destroy(cpu, pipe);
    sq_sched_destroy(run->sched);
    while (run->blocks != NULL) {
        struct env_block *block = run->blocks;
        run->blocks = block->next;
        sq_shared_free(cpu->machine, block, block->bytes);
    }
    wrong_free_destroy(run);
    (void)pthread_mutex_destroy(&run->mutex);
    sq_shared_free(cpu->machine, run, sizeof(*run));
}

static void env_seed(struct env_run *run)
{
    struct sq_runner *runner = run->runner;
    uint64_t seed = runner->seed;
    for (uint32_t i = 0; i < runner->machine->topology.cpu_count; i++) {
        sq_cpu *cpu = runner->machine->ops->cpu_enter(runner->machine, i);
        sq_rng_seed(&cpu->rng, sq_splitmix64(&seed));
        sq_rng_seed(&run->cpus[i].rng, sq_splitmix64(&seed));
        run->cpus[i].alloc_countdown = env_gap(run, &run->cpus[i]);
        run->cpus[i].free_countdown = env_gap(run, &run->cpus[i]);
        runner->machine->ops->cpu_leave(cpu);
    }
}

/* Rules that may be open (-1), but not as small as their neighbours. */
static int env_check_rules(const struct sq_runner *runner, struct sq_error *error)
{
#define ENV_CHECK_RULE(name, standard, least)                                          \
    if (runner->run_values[SQ_RUN_##name] >= 0 &&                                      \
        runner->run_values[SQ_RUN_##name] < (least))                                   \
        return sq_error_set(error, SQ_E_PARAMETER,                                     \
                            #name " is %lld: accepted are -1 and %d or more",          \
                            (long long)runner->run_values[SQ_RUN_##name], (least));
    SQ_SCHED_STANDARD(ENV_CHECK_RULE)
#undef ENV_CHECK_RULE
    return SQ_OK;
}

static int env_run_workload(struct sq_runner *runner, struct sq_error *error)
{
    const struct sq_machine_ops *ops = runner->machine->ops;
    struct env_run *run;
    sq_cpu *cpu;
    int code = env_check_rules(runner, error);
    if (code != SQ_OK)
        return code;
    run = env_create(runner);
    if (run == NULL)
        return sq_error_set(error, SQ_E_MEMORY, "the host has no memory for a run");
    env_seed(run);
    code = env_set_memory_policy(run, error);
    run->is_special = run->memory_policy.mode != SQ_MEMORY_LOCAL || run->live != NULL;
    cpu = ops->cpu_enter(runner->machine, 0);
    if (code == SQ_OK)
        code =
            sq_task_create(cpu, run->sched, env_first_main, run, run, 0, false, error);
    ops->cpu_leave(cpu);
    if (code == SQ_OK)
        code = sq_sched_run(run->sched, env_tick, run, error);
    if (!run->is_marked_end)
        env_count_switches(run);
    cpu = ops->cpu_enter(runner->machine, 0);
    env_destroy(cpu, run);
    ops->cpu_leave(cpu);
    return code;
}

const struct sq_runner_ops SQ_ON_MACHINE(sq_runner) = {
    .engine = SQ_MACHINE_NAME,
    .run = env_run_workload,
};
