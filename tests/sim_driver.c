/*
 * Small cases on the simulated machine whose times can be worked out by hand, lock
 * misuse that must be caught, and whole runs without Python. test_sim.py compiles it:
 *
 *   sim_driver CASE [name=value ...]      values: machine parameters, or count=, seed=,
 *                                         nodes=, policy is in the case's name
 *
 * Prints one JSON object. Eight CPUs, two to a last-level cache.
 */
#define SQ_MACHINE_SIM 1
#include "machine/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiment/run.h"
#include "machine/sched.h"
#include "machine/sim_machine.h"

#include "driver.h"

enum { CPU_COUNT = 8 };

static uint64_t count = 1, seed = 1, nodes = 1, loops = 20, groups = 2;

static void parse(int argc, char **argv)
{
    struct {
        const char *name;
        uint64_t *value;
    } own[] = {{"count", &count},
               {"seed", &seed},
               {"nodes", &nodes},
               {"loops", &loops},
               {"groups", &groups}};
    for (int i = 0; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        bool is_own = false;
        if (equals == NULL)
            exit(3);
        *equals = '\0';
        for (size_t k = 0; k < SQ_ARRAY_COUNT(own); k++) {
            if (strcmp(own[k].name, argv[i]) != 0)
                continue;
            *own[k].value = strtoull(equals + 1, NULL, 10);
            is_own = true;
        }
        if (!is_own)
            add_parameter(argv[i], equals + 1);
    }
}

static void make_machine(void)
{
    struct sq_machine_config config = {
        .node_bytes = 256u << 20, .pcp_order_max = 3, .seed = seed};
    config.topology.cpu_count = CPU_COUNT;
    config.topology.node_count = (uint32_t)nodes;
    for (uint32_t i = 0; i < CPU_COUNT; i++) {
        config.topology.node_of_cpu[i] = (uint16_t)(i * nodes / CPU_COUNT);
        config.topology.llc_of_cpu[i] = (uint16_t)(i / 2);
    }
    for (uint32_t a = 0; a < nodes; a++)
        for (uint32_t b = 0; b < nodes; b++)
            config.topology.distance[a][b] = a == b ? 10 : 20;
    create_machine(&config);
}

static uint64_t now_ps(const sq_cpu *cpu)
{
    return ((const struct sq_sim_cpu *)cpu)->now_ps;
}

/* ---- one host thread, one CPU at a time ---- */

static sq_cpu *enter(uint32_t index)
{
    return machine->ops->cpu_enter(machine, index);
}

static void leave(sq_cpu *cpu)
{
    machine->ops->cpu_leave(cpu);
}

/* CPUs 0 and `other` take turns adding to one word. */
static void case_ping_pong(uint32_t other)
{
    sq_cpu *cpu = enter(0);
    sq_atomic *word = machine->ops->meta_alloc(cpu, sizeof(*word), 0);
    uint64_t start_ps;
    (void)sq_add_relaxed(cpu, word, 1);
    leave(cpu);
    cpu = enter(other);
    (void)sq_add_relaxed(cpu, word, 1);
    start_ps = now_ps(cpu);
    leave(cpu);
    for (uint64_t i = 0; i < count; i++) {
        cpu = enter(i % 2 == 0 ? 0 : other);
        (void)sq_add_relaxed(cpu, word, 1);
        leave(cpu);
    }
    (void)printf("{\"ps\": %llu, \"value\": %llu}\n",
                 (unsigned long long)(now_ps(cpu) - start_ps),
                 (unsigned long long)word->value);
}

/* Read `count` lines of a fresh block of node `node` in one touch, as CPU 0. */
static void case_stream(int32_t node)
{
    sq_cpu *cpu = enter(0);
    struct sq_page *page = machine->ops->pages_alloc(cpu, 9, node, 0);
    uint64_t start_ps;
    sq_charge_ns(cpu, 10000000); /* what that has asked of the memory is done */
    start_ps = now_ps(cpu);
    sq_touch_read(cpu, sq_page_address(machine, page), count * SQ_LINE_SIZE);
    (void)printf("{\"ps\": %llu}\n", (unsigned long long)(now_ps(cpu) - start_ps));
    leave(cpu);
}

/* Read every other line, `count` in all, twice; the second time is told. No line comes
 * right after the one before, so none is fetched ahead. */
static void case_again(void)
{
    sq_cpu *cpu = enter(0);
    struct sq_page *page = machine->ops->pages_alloc(cpu, 10, 0, 0);
    char *memory = sq_page_address(machine, page);
    uint64_t start_ps = 0;
    for (int round = 0; round < 2; round++) {
        start_ps = now_ps(cpu);
        for (uint64_t i = 0; i < count; i++)
            sq_touch_read(cpu, memory + 2 * i * SQ_LINE_SIZE, 8);
    }
    (void)printf("{\"ps\": %llu}\n", (unsigned long long)(now_ps(cpu) - start_ps));
    leave(cpu);
}

/* Read `count` neighbouring lines of fresh memory, each in a touch of its own. */
static void case_row(void)
{
    sq_cpu *cpu = enter(0);
    struct sq_page *page = machine->ops->pages_alloc(cpu, 0, 0, 0);
    char *memory = sq_page_address(machine, page);
    uint64_t start_ps = now_ps(cpu);
    for (uint64_t i = 0; i < count; i++)
        sq_touch_read(cpu, memory + i * SQ_LINE_SIZE, 8);
    (void)printf("{\"ps\": %llu}\n", (unsigned long long)(now_ps(cpu) - start_ps));
    leave(cpu);
}

/* A free lock in the CPU's own cache. */
static void case_lock(void)
{
    sq_cpu *cpu = enter(0);
    sq_lock *lock = machine->ops->meta_alloc(cpu, sizeof(*lock), 0);
    uint64_t start_ps;
    sq_lock_init(lock, SQ_LOCK_LIST);
    sq_lock_acquire(cpu, lock);
    sq_lock_release(cpu, lock);
    start_ps = now_ps(cpu);
    for (uint64_t i = 0; i < count; i++) {
        sq_lock_acquire(cpu, lock);
        sq_lock_assert_held(cpu, lock);
        sq_lock_release(cpu, lock);
    }
    (void)printf("{\"ps\": %llu, \"acquisitions\": %llu, \"contended\": %llu}\n",
                 (unsigned long long)(now_ps(cpu) - start_ps),
                 (unsigned long long)cpu->lock_stats[SQ_LOCK_LIST].acquisitions,
                 (unsigned long long)cpu->lock_stats[SQ_LOCK_LIST].contended);
    leave(cpu);
}

static void case_misuse(const char *kind)
{
    sq_cpu *cpu = enter(0);
    sq_lock *outer = machine->ops->meta_alloc(cpu, sizeof(*outer), 0);
    sq_lock *inner = machine->ops->meta_alloc(cpu, sizeof(*inner), 0);
    sq_lock_init(outer, SQ_LOCK_SLAB);
    sq_lock_init(inner, SQ_LOCK_LIST);
    if (strcmp(kind, "rank") == 0) {
        sq_lock_acquire(cpu, inner);
        sq_lock_acquire(cpu, outer);
    } else if (strcmp(kind, "twice") == 0) {
        sq_lock_acquire(cpu, inner);
        sq_lock_release(cpu, inner);
        sq_lock_release(cpu, inner);
    } else if (strcmp(kind, "again") == 0) {
        sq_lock_acquire(cpu, inner);
        sq_lock_acquire(cpu, inner);
    } else if (strcmp(kind, "unheld") == 0) {
        sq_lock_assert_held(cpu, inner);
    } else {
        sq_lock_acquire(cpu, inner);
        leave(cpu);
    }
    (void)printf("{\"caught\": false}\n");
}

/* ---- tasks, one pinned on each CPU ---- */

struct contest {
    sq_lock *lock;
    uint64_t asked_ps[CPU_COUNT], got_ps[CPU_COUNT], released_ps[CPU_COUNT];
};

/* Come to the lock one microsecond after the CPU before; hold it for twenty. */
static void contest_main(sq_task *task, void *argument)
{
    struct contest *contest = argument;
    sq_cpu *cpu = task->cpu;
    uint32_t i = cpu->index;
    sq_charge_ns(cpu, 1000 * (i + 1));
    contest->asked_ps[i] = now_ps(cpu);
    sq_lock_acquire(cpu, contest->lock);
    contest->got_ps[i] = now_ps(cpu);
    sq_charge_ns(cpu, 20000);
    sq_lock_release(cpu, contest->lock);
    contest->released_ps[i] = now_ps(cpu);
}

static void print_times(const char *name, const uint64_t *times, const char *end)
{
    (void)printf("\"%s\": [", name);
    for (uint64_t i = 0; i < count; i++)
        (void)printf("%s%llu", i > 0 ? ", " : "", (unsigned long long)times[i]);
    (void)printf("]%s", end);
}

static void case_contest(void)
{
    struct sq_sched_config config = {
        .rules = {.sched_latency_us = 1000000, .sched_min_granularity_us = 1000000}};
    struct contest contest = {0};
    struct sq_lock_stats sum = {0};
    struct sq_error error;
    sq_sched *sched = sq_sched_create(machine, &config);
    sq_cpu *cpu = enter(0);
    contest.lock = machine->ops->meta_alloc(cpu, sizeof(sq_lock), 0);
    sq_lock_init(contest.lock, SQ_LOCK_LIST);
    for (uint32_t i = 0; i < count; i++)
        if (sq_task_create(cpu, sched, contest_main, &contest, NULL, (int32_t)i, true,
                           &error) != SQ_OK)
            fail(&error);
    leave(cpu);
    if (sq_sched_run(sched, NULL, NULL, &error) != SQ_OK)
        fail(&error);
    for (uint32_t i = 0; i < CPU_COUNT; i++) {
        const sq_cpu *one = machine->ops->cpu_at(machine, i);
        sum.contended += one->lock_stats[SQ_LOCK_LIST].contended;
        sum.wait_ns += one->lock_stats[SQ_LOCK_LIST].wait_ns;
    }
    sq_sched_destroy(sched);
    (void)printf("{\"contended\": %llu, \"wait_ns\": %llu, ",
                 (unsigned long long)sum.contended, (unsigned long long)sum.wait_ns);
    print_times("asked", contest.asked_ps, ", ");
    print_times("got", contest.got_ps, ", ");
    print_times("released", contest.released_ps, "}\n");
}

/* ---- requests: every CPU's function, asked for by two CPUs at once ---- */

struct requests {
    sq_lock *lock;
    uint64_t calls[CPU_COUNT];
    bool was_busy; /* a request was taken inside a section with interrupts off */
};

static void requests_take(sq_cpu *target, void *argument)
{
    struct requests *requests = argument;
    requests->calls[target->index]++;
    requests->was_busy |= target->irq_depth > 0 || target->held_count > 0;
    sq_charge_ns(target, 50);
}

/* CPUs 0 and 1 ask ten times; all work with interrupts off most of the time. */
static void requests_main(sq_task *task, void *argument)
{
    struct requests *requests = argument;
    for (uint32_t i = 0; i < 1000; i++) {
        sq_cpu *cpu = sq_task_step_blocking(task);
        sq_irq_save(cpu);
        sq_lock_acquire(cpu, requests->lock);
        sq_charge_ns(cpu, 200);
        sq_lock_release(cpu, requests->lock);
        sq_irq_restore(cpu);
        if (cpu->index < 2 && i % 100 == 0)
            sq_on_each_cpu(cpu, requests_take, requests);
    }
}

static void case_requests(void)
{
    struct sq_sched_config config = {.rules = {.sched_latency_us = 1000,
                                               .sched_min_granularity_us = 1000,
                                               .sched_tick_us = 1000}};
    struct requests requests = {0};
    struct sq_error error;
    sq_sched *sched = sq_sched_create(machine, &config);
    sq_cpu *cpu = enter(0);
    requests.lock = machine->ops->meta_alloc(cpu, sizeof(sq_lock), 0);
    sq_lock_init(requests.lock, SQ_LOCK_LIST);
    for (uint32_t i = 0; i < count; i++)
        if (sq_task_create(cpu, sched, requests_main, &requests, NULL, (int32_t)i, true,
                           &error) != SQ_OK)
            fail(&error);
    leave(cpu);
    if (sq_sched_run(sched, NULL, NULL, &error) != SQ_OK)
        fail(&error);
    sq_sched_destroy(sched);
    (void)printf("{\"was_busy\": %s, ", requests.was_busy ? "true" : "false");
    count = CPU_COUNT;
    print_times("calls", requests.calls, "}\n");
}

/* ---- sleep ---- */

struct sleeper {
    sq_lock *lock;
    struct sq_wait_queue queue;
    uint64_t asked_ps, woke_ps;
};

/* Wait for what nobody will do. */
static void deadlock_main(sq_task *task, void *argument)
{
    struct sleeper *sleeper = argument;
    sq_lock_acquire(task->cpu, sleeper->lock);
    sq_wait_sleep(task, &sleeper->queue, sleeper->lock);
}

/* Sleep for a millisecond. */
static void nap_main(sq_task *task, void *argument)
{
    struct sleeper *sleeper = argument;
    sleeper->asked_ps = (sq_now_ns(task->cpu) + 1000000) * 1000;
    sq_task_sleep_until(task, sleeper->asked_ps / 1000);
    sleeper->woke_ps = now_ps(task->cpu);
}

static void case_sleep(sq_task_function *function)
{
    struct sq_sched_config config = {.rules = {.sched_latency_us = 1000,
                                               .sched_min_granularity_us = 1000,
                                               .sched_tick_us = 1000}};
    struct sleeper sleeper = {0};
    struct sq_error error;
    sq_sched *sched = sq_sched_create(machine, &config);
    sq_cpu *cpu = enter(0);
    sleeper.lock = machine->ops->meta_alloc(cpu, sizeof(sq_lock), 0);
    sq_lock_init(sleeper.lock, SQ_LOCK_WAIT);
    sq_wait_queue_init(&sleeper.queue);
    for (uint64_t i = 0; i < count; i++)
        if (sq_task_create(cpu, sched, function, &sleeper, NULL, (int32_t)i, true,
                           &error) != SQ_OK)
            fail(&error);
    leave(cpu);
    if (sq_sched_run(sched, NULL, NULL, &error) != SQ_OK)
        fail(&error);
    sq_sched_destroy(sched);
    (void)printf("{\"late_ps\": %lld}\n",
                 (long long)(sleeper.woke_ps - sleeper.asked_ps));
}

/* hackbench under a policy; the row of the run. */
static void case_run(const char *policy)
{
    struct sq_run_parameter values[] = {
        {"groups", (int64_t)groups}, {"loops", (int64_t)loops}, {"syscall_ns", 700}};
    struct sq_options options;
    struct sq_run_request request = {.machine = machine,
                                     .options = &options,
                                     .parameters = values,
                                     .parameter_count = SQ_ARRAY_COUNT(values),
                                     .seed = seed};
    struct sq_error error;
    struct sq_json json;
    sq_options_init(&options);
    sq_json_init(&json);
    request.policy = sq_policy_find(policy, "sim", &error);
    extern const struct sq_workload sq_workload_hackbench;
    request.workload = &sq_workload_hackbench;
    if (request.policy == NULL || sq_run(&request, &json, &error) != SQ_OK)
        fail(&error);
    (void)printf("%s\n", sq_json_text(&json));
    sq_json_free(&json);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    if (argc < 2)
        return 3;
    parse(argc - 2, argv + 2);
    make_machine();
    if (strcmp(name, "ping-pong-near") == 0)
        case_ping_pong(1);
    else if (strcmp(name, "ping-pong-socket") == 0)
        case_ping_pong(2);
    else if (strcmp(name, "ping-pong-far") == 0)
        case_ping_pong(4);
    else if (strcmp(name, "stream") == 0)
        case_stream(0);
    else if (strcmp(name, "stream-remote") == 0)
        case_stream(1);
    else if (strcmp(name, "again") == 0)
        case_again();
    else if (strcmp(name, "row") == 0)
        case_row();
    else if (strcmp(name, "lock") == 0)
        case_lock();
    else if (strcmp(name, "contest") == 0)
        case_contest();
    else if (strcmp(name, "deadlock") == 0)
        case_sleep(deadlock_main);
    else if (strcmp(name, "nap") == 0)
        case_sleep(nap_main);
    else if (strcmp(name, "requests") == 0)
        case_requests();
    else if (strncmp(name, "misuse-", 7) == 0)
        case_misuse(name + 7);
    else if (strncmp(name, "run-", 4) == 0)
        case_run(name + 4);
    else
        return 3;
    machine->ops->destroy(machine);
    return 0;
}
