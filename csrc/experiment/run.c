/*
 * One run and its row. The members of `memory` are taken at the end of the run, after
 * teardown and before the heap is destroyed, peak_bytes excepted:
 *
 *   slabs, bytes             slabs of all caches, and the pages they are made of
 *
 *   peak_bytes               the most that `bytes` was at any time of the run
 *
 *   in_queues_bytes          slots neither handed out nor in a free list of a slab:
 *                            those in per-CPU, shared and alien queues and in sheaves
 *
 *   internal_fragmentation   of the slots handed out during the run, the share of bytes
 *                            nobody asked for: 1 - requested / slot, summed over the
 *                            timed allocations; null when none was timed
 *
 *   external_fragmentation   of the slab pages, the share not handed out: 1 - live
 *                            slots / bytes; 0 without slabs
 *
 * `latency_ns` is of a sample: about one call in latency_interval, at random gaps.
 * `latency_by_cpu_ns` has the workload's own paths again, by the number of the CPU that
 * told the time: where tasks are pinned, by task.
 *
 * On a simulated machine locks, profile and latencies are of the measured time. With
 * warmup_operations or measure_operations the counters are too; `allocations`, `frees`
 * and `live` are always of the whole run. `busy` is the share of the CPUs' time that
 * was not idle, `profile` are shares of the busy time. `lines` is what each function
 * fetched from beyond its core's first-level cache, by where it was; its time is part
 * of the function's share.
 */
#include "experiment/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "experiment/cache_print.h"
#include "experiment/timeline.h"
#include "workload/runner.h"

static const struct sq_runner_ops *const runners[] = {&sq_runner_native,
                                                      &sq_runner_sim};

#define RUN_COUNTER_MAX 128u

/* All that is counted, at one moment. */
struct run_snapshot {
    struct sq_lock_stats locks[SQ_LOCK_CLASS_COUNT];
    uint64_t counters[RUN_COUNTER_MAX];
    uint64_t operations;
    uint64_t scope_ps[SQ_SCOPE_COUNT];
    struct sq_line_stats lines[SQ_SCOPE_COUNT][SQ_LINE_KIND_COUNT];
    bool is_taken;
};

struct run {
    const struct sq_run_request *request;
    const struct sq_runner_ops *ops;
    struct sq_runner runner;
    int64_t *values;
    struct run_snapshot before, after; /* of the measured time */
    struct sq_timeline *timeline;      /* NULL: nobody asked for one */
};

/* ---- parameters ---- */

static int run_unknown_parameter(const struct run *run, const char *name,
                                 struct sq_error *error)
{
    const struct sq_workload *workload = run->request->workload;
    struct sq_error known = {.message = ""};
    for (uint32_t i = 0; i < workload->parameter_count; i++) {
        size_t length = strlen(known.message);
        (void)strncat(known.message, i > 0 ? ", " : "",
                      sizeof(known.message) - length - 1);
        length = strlen(known.message);
        (void)strncat(known.message, workload->parameters[i].name,
                      sizeof(known.message) - length - 1);
    }
    return sq_error_set(error, SQ_E_PARAMETER,
                        "workload %.40s has no parameter %.40s: accepted are %.200s; "
                        "slice_calls, wake_affine, latency_interval, memory_policy, "
                        "memory_nodes, check_frees",
                        workload->name, name, known.message);
}

/* Put `value` into the field of a table's parameter. 1: the table has no such name. */
static int run_set_in(const struct sq_workload_parameter *table, uint32_t count,
                      int64_t *values, const struct sq_run_parameter *given,
                      struct sq_error *error)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(table[i].name, given->name) != 0)
            continue;
        if (given->value < table[i].value_min || given->value > table[i].value_max)
            return sq_error_set(error, SQ_E_PARAMETER,
                                "%s is %lld: accepted are %lld to "
                                "%lld",
                                given->name, (long long)given->value,
                                (long long)table[i].value_min,
                                (long long)table[i].value_max);
        values[i] = given->value;
        return SQ_OK;
    }
    return 1;
}

static int run_set_parameters(struct run *run, struct sq_error *error)
{
    const struct sq_run_request *request = run->request;
    const struct sq_workload *workload = request->workload;
    for (uint32_t i = 0; i < workload->parameter_count; i++)
        run->values[i] = workload->parameters[i].value_default;
    for (uint32_t i = 0; i < SQ_RUN_PARAMETER_COUNT; i++)
        run->runner.run_values[i] = sq_run_parameters[i].value_default;
    for (size_t i = 0; i < request->parameter_count; i++) {
        const struct sq_run_parameter *given = &request->parameters[i];
        int code = run_set_in(workload->parameters, workload->parameter_count,
                              run->values, given, error);
        if (code > 0)
            code = run_set_in(sq_run_parameters, SQ_RUN_PARAMETER_COUNT,
                              run->runner.run_values, given, error);
        if (code > 0)
            code = run_unknown_parameter(run, given->name, error);
        if (code != SQ_OK)
            return code;
    }
    return SQ_OK;
}

/* ---- what is counted ---- */

static void run_add_locks(const sq_cpu *cpu, struct sq_lock_stats *sums)
{
    for (uint32_t k = 0; k < SQ_LOCK_CLASS_COUNT; k++) {
        sums[k].acquisitions += cpu->lock_stats[k].acquisitions;
        sums[k].contended += cpu->lock_stats[k].contended;
        sums[k].wait_ns += cpu->lock_stats[k].wait_ns;
    }
}

/* Sum what the CPUs counted. `as_each`: as one CPU after the other, since another run
 * may be on the machine; requires that the caller is none of them. Otherwise nothing
 * else may run at this moment. */
static void run_sum_locks(const struct run *run, bool as_each,
                          struct sq_lock_stats *sums)
{
    sq_machine *machine = run->request->machine;
    memset(sums, 0, sizeof(*sums) * SQ_LOCK_CLASS_COUNT);
    for (uint32_t i = 0; i < machine->topology.cpu_count; i++) {
        sq_cpu *cpu = as_each ? machine->ops->cpu_enter(machine, i)
                              : machine->ops->cpu_at(machine, i);
        run_add_locks(cpu, sums);
        if (as_each)
            machine->ops->cpu_leave(cpu);
    }
}

static void run_sum_counters(const struct run *run, uint64_t *sums)
{
    const sq_heap *heap = run->runner.heap;
    SQ_ASSERT(heap->ops->counter_count <= RUN_COUNTER_MAX);
    memset(sums, 0, sizeof(*sums) * RUN_COUNTER_MAX);
    SQ_LIST_EACH (link, &heap->caches) {
        const sq_cache *cache = SQ_LIST_ENTRY(link, sq_cache, link);
        for (uint32_t i = 0; i < run->request->machine->topology.cpu_count; i++)
            for (uint32_t id = 0; id < heap->ops->counter_count; id++)
                sums[id] += cache->counters[i][id];
    }
}

static void run_take(const struct run *run, bool as_each, struct run_snapshot *snapshot)
{
    sq_machine *machine = run->request->machine;
    run_sum_locks(run, as_each, snapshot->locks);
    run_sum_counters(run, snapshot->counters);
    snapshot->operations = 0;
    for (uint32_t i = 0; i < machine->topology.cpu_count; i++)
        snapshot->operations += run->runner.cpus[i].operations;
    if (machine->ops->profile != NULL)
        (void)machine->ops->profile(machine, snapshot->scope_ps, false);
    if (machine->ops->lines != NULL)
        machine->ops->lines(machine, snapshot->lines);
    snapshot->is_taken = true;
}

static bool run_has_window(const struct run *run)
{
    return run->runner.run_values[SQ_RUN_warmup_operations] > 0 ||
           run->runner.run_values[SQ_RUN_measure_operations] > 0;
}

/* Measuring begins or ends; on an engine where nothing else runs at that moment. */
static void run_mark(struct sq_runner *runner, bool is_end)
{
    struct run *run = runner->mark_argument;
    run_take(run, false, is_end ? &run->after : &run->before);
    if (is_end)
        return;
    for (uint32_t i = 0; i < runner->machine->topology.cpu_count; i++) {
        memset(&runner->cpus[i].alloc_ns, 0, sizeof(runner->cpus[i].alloc_ns));
        memset(&runner->cpus[i].free_ns, 0, sizeof(runner->cpus[i].free_ns));
    }
}

/* A simulated run is at a point of its timeline; nothing else runs. */
static void run_sample(struct sq_runner *runner, uint64_t now_ns)
{
    struct run *run = runner->mark_argument;
    sq_timeline_take(run->timeline, runner, now_ns, true);
    runner->sample_at_ns = sq_timeline_due_ns(run->timeline);
}

/* A tick of the waiting thread; a real run's timeline is taken here, by the host's
 * clock, which is the clock of its CPUs. */
static bool run_tick(void *argument, double share)
{
    struct run *run = argument;
    struct timespec now;
    if (run->timeline != NULL && run->runner.sample == NULL) {
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        sq_timeline_take(run->timeline, &run->runner,
                         (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec,
                         false);
    }
    return sq_runner_has_panicked(&run->runner) ||
           (run->request->tick != NULL &&
            run->request->tick(run->request->tick_argument, share));
}

/* Prepare the timeline, if there is to be one. */
static int run_make_timeline(struct run *run, struct sq_error *error)
{
    const sq_machine *machine = run->request->machine;
    if (!run->request->with_timeline)
        return SQ_OK;
    run->timeline = sq_timeline_create(machine, run->runner.heap);
    if (run->timeline == NULL)
        return sq_error_set(error, SQ_E_MEMORY,
                            "the host has no memory for a timeline");
    if (machine->ops->profile != NULL) /* a simulated machine */
        run->runner.sample = run_sample;
    return SQ_OK;
}

/* ---- the row ---- */

static void run_write_locks(const struct run *run, struct sq_json *json)
{
    sq_json_open_object(json, "locks");
    for (uint32_t k = 0; k < SQ_LOCK_CLASS_COUNT; k++) {
        const struct sq_lock_stats *before = &run->before.locks[k];
        const struct sq_lock_stats *after = &run->after.locks[k];
        if (after->acquisitions == before->acquisitions)
            continue;
        sq_json_open_object(json, sq_lock_class_name[k]);
        sq_json_unsigned(json, "acquisitions",
                         after->acquisitions - before->acquisitions);
        sq_json_unsigned(json, "contended", after->contended - before->contended);
        sq_json_unsigned(json, "wait_ns", after->wait_ns - before->wait_ns);
        sq_json_close(json);
    }
    sq_json_close(json);
}

static void run_write_counters(const struct run *run, struct sq_json *json)
{
    const sq_policy_ops *ops = run->runner.heap->ops;
    sq_json_open_object(json, "counters");
    for (uint32_t id = 0; id < ops->counter_count; id++)
        sq_json_unsigned(json, ops->counters[id].name,
                         run->after.counters[id] -
                             (run_has_window(run) ? run->before.counters[id] : 0));
    sq_json_close(json);
}

/* Only a simulated run has one. */
static void run_write_profile(const struct run *run, struct sq_json *json)
{
    const sq_machine *machine = run->request->machine;
    double elapsed_ps = (double)(run->runner.end_ns - run->runner.start_ns) * 1000.0;
    double busy_ps = 0;
    for (uint32_t k = 0; k < SQ_SCOPE_COUNT; k++)
        busy_ps += (double)(run->after.scope_ps[k] - run->before.scope_ps[k]);
    sq_json_open_object(json, "profile");
    for (uint32_t k = 0; machine->ops->profile != NULL && k < SQ_SCOPE_COUNT; k++) {
        uint64_t ps = run->after.scope_ps[k] - run->before.scope_ps[k];
        if (ps > 0)
            sq_json_real(json, sq_scope_name[k], (double)ps / busy_ps);
    }
    sq_json_close(json);
    if (machine->ops->profile != NULL && elapsed_ps > 0)
        sq_json_real(json, "busy",
                     busy_ps / elapsed_ps / (double)machine->topology.cpu_count);
}

static const char *const run_line_kind_name[SQ_LINE_KIND_COUNT] = {
#define RUN_LINE_KIND_TEXT(name, text) text,
    SQ_LINE_KINDS(RUN_LINE_KIND_TEXT)
#undef RUN_LINE_KIND_TEXT
};

/* Lines that one scope fetched, by kind. Opens the member at its first line; two scopes
 * of one function never both have some, since a run has one policy. */
static void run_write_scope_lines(const struct run *run, uint32_t scope,
                                  struct sq_json *json)
{
    bool is_open = false;
    for (uint32_t kind = 0; kind < SQ_LINE_KIND_COUNT; kind++) {
        const struct sq_line_stats *before = &run->before.lines[scope][kind];
        const struct sq_line_stats *after = &run->after.lines[scope][kind];
        if (after->count == before->count)
            continue;
        if (!is_open)
            sq_json_open_object(json, sq_scope_name[scope]);
        is_open = true;
        sq_json_open_object(json, run_line_kind_name[kind]);
        sq_json_unsigned(json, "count", after->count - before->count);
        sq_json_real(json, "ns", (double)(after->ps - before->ps) / 1000.0);
        sq_json_close(json);
    }
    if (is_open)
        sq_json_close(json);
}

/* Only a simulated run knows its lines. */
static void run_write_lines(const struct run *run, struct sq_json *json)
{
    if (run->request->machine->ops->lines == NULL)
        return;
    sq_json_open_object(json, "lines");
    for (uint32_t scope = 0; scope < SQ_SCOPE_COUNT; scope++)
        run_write_scope_lines(run, scope, json);
    sq_json_close(json);
}

static void run_write_fingerprint(const struct run *run, struct sq_json *json)
{
    const sq_machine *machine = run->request->machine;
    char text[17];
    if (machine->ops->fingerprint == NULL)
        return;
    (void)snprintf(text, sizeof(text), "%016llx",
                   (unsigned long long)machine->ops->fingerprint(machine));
    sq_json_string(json, "fingerprint", text);
}

static void run_write_memory(const struct run *run, sq_cpu *cpu,
                             const struct sq_runner_cpu *sums, struct sq_json *json)
{
    const sq_heap *heap = run->runner.heap;
    uint64_t slabs = 0, bytes = 0, live_bytes = 0, queued_bytes = 0;
    SQ_LIST_EACH (link, &heap->caches) {
        sq_cache *cache = SQ_LIST_ENTRY(link, sq_cache, link);
        struct sq_cache_usage usage = {0};
        heap->ops->usage(cpu, cache, &usage);
        slabs += usage.slab_count;
        bytes += usage.slab_bytes;
        live_bytes += usage.object_allocated * cache->size;
        queued_bytes += usage.object_queued * cache->size;
    }
    sq_json_open_object(json, "memory");
    sq_json_unsigned(json, "slabs", slabs);
    sq_json_unsigned(json, "bytes", bytes);
    sq_json_unsigned(json, "peak_bytes", heap->slab_bytes_peak);
    sq_json_unsigned(json, "in_queues_bytes", queued_bytes);
    if (sums->slot_bytes > 0)
        sq_json_real(json, "internal_fragmentation",
                     1.0 - (double)sums->requested_bytes / (double)sums->slot_bytes);
    else
        sq_json_null(json, "internal_fragmentation");
    sq_json_real(json, "external_fragmentation",
                 bytes > 0 ? 1.0 - (double)live_bytes / (double)bytes : 0.0);
    sq_json_close(json);
}

static void run_write_path(struct sq_json *json, const char *path,
                           const struct sq_histogram *histogram)
{
    if (histogram->count == 0)
        return;
    sq_json_open_object(json, path);
    sq_json_unsigned(json, "p50", sq_histogram_percentile(histogram, 50));
    sq_json_unsigned(json, "p90", sq_histogram_percentile(histogram, 90));
    sq_json_unsigned(json, "p99", sq_histogram_percentile(histogram, 99));
    sq_json_unsigned(json, "max", histogram->max);
    sq_json_real(json, "mean", (double)histogram->sum / (double)histogram->count);
    sq_json_unsigned(json, "count", histogram->count);
    sq_json_close(json);
}

/* The workload's own latencies as each CPU told them. */
static void run_write_paths_of_cpus(const struct run *run, struct sq_json *json)
{
    char name[16];
    sq_json_open_object(json, "latency_by_cpu_ns");
    for (uint32_t path = 0; path < run->runner.latency_path_count; path++) {
        sq_json_open_object(json, run->runner.latency_path_name[path]);
        for (uint32_t i = 0; i < run->request->machine->topology.cpu_count; i++) {
            (void)snprintf(name, sizeof(name), "%u", i);
            run_write_path(json, name, &run->runner.cpus[i].latency_ns[path]);
        }
        sq_json_close(json);
    }
    sq_json_close(json);
}

static void run_sum_cpus(const struct run *run, struct sq_runner_cpu *sums)
{
    for (uint32_t i = 0; i < run->request->machine->topology.cpu_count; i++) {
        const struct sq_runner_cpu *cpu = &run->runner.cpus[i];
        sums->allocations += cpu->allocations;
        sums->frees += cpu->frees;
        sums->operations += cpu->operations;
        sums->requested_bytes += cpu->requested_bytes;
        sums->slot_bytes += cpu->slot_bytes;
        sq_histogram_merge(&sums->alloc_ns, &cpu->alloc_ns);
        sq_histogram_merge(&sums->free_ns, &cpu->free_ns);
        for (uint32_t path = 0; path < SQ_LATENCY_PATHS_MAX; path++)
            sq_histogram_merge(&sums->latency_ns[path], &cpu->latency_ns[path]);
    }
}

static void run_write_parameters(const struct run *run, struct sq_json *json)
{
    const struct sq_workload *workload = run->request->workload;
    sq_json_open_object(json, "parameters");
    for (uint32_t i = 0; i < workload->parameter_count; i++)
        sq_json_integer(json, workload->parameters[i].name, run->values[i]);
    for (uint32_t i = 0; i < SQ_RUN_PARAMETER_COUNT; i++)
        sq_json_integer(json, sq_run_parameters[i].name, run->runner.run_values[i]);
    sq_json_close(json);
}

static void run_write_rate(const struct run *run, uint64_t operations,
                           struct sq_json *json)
{
    double elapsed_ns = (double)(run->runner.end_ns - run->runner.start_ns);
    sq_json_real(json, "elapsed_s", elapsed_ns / 1e9);
    sq_json_unsigned(json, "operations", operations);
    sq_json_real(json, "rate",
                 elapsed_ns > 0 ? (double)operations * 1e9 / elapsed_ns : 0.0);
    sq_json_string(json, "rate_unit", run->request->workload->rate_unit);
    sq_json_real(json, "ns_per_operation",
                 operations > 0 ? elapsed_ns / (double)operations : 0.0);
}

#define RUN_REPORT_TEXTS 16u /* reports whose text the row has */

/* What debug caches found; a run without debug flags has no such member. */
static void run_write_reports(const struct run *run, struct sq_json *json)
{
    const struct sq_reports *reports = &run->runner.heap->reports;
    const char *debug = run->request->debug;
    uint32_t texts =
        reports->count < RUN_REPORT_TEXTS ? reports->count : RUN_REPORT_TEXTS;
    size_t length = texts == reports->count ? reports->text_length
                                            : reports->list[texts].text_start;
    char *text;
    if (debug == NULL || *debug == '\0')
        return;
    text = strndup(reports->text == NULL ? "" : reports->text, length);
    sq_json_string(json, "debug", debug);
    sq_json_open_object(json, "reports");
    sq_json_unsigned(json, "total", reports->total);
    sq_json_open_array(json, "kept");
    for (uint32_t i = 0; i < reports->count; i++) {
        const struct sq_report *report = &reports->list[i];
        sq_json_open_object(json, NULL);
        sq_json_string(json, "cache", report->cache);
        sq_json_string(json, "what", report->what);
        sq_json_integer(json, "slab", report->slab);
        sq_json_integer(json, "object_index", report->object);
        sq_json_integer(json, "offset", report->offset);
        sq_json_close(json);
    }
    sq_json_close(json);
    sq_json_string(json, "text", text == NULL ? "" : text);
    sq_json_close(json);
    free(text);
}

static void run_write(const struct run *run, sq_cpu *cpu,
                      const struct sq_runner_cpu *sums, struct sq_json *json)
{
    sq_json_open_object(json, NULL);
    sq_json_string(json, "workload", run->request->workload->name);
    sq_json_string(json, "policy", run->request->policy->name);
    sq_json_string(json, "engine", run->ops->engine);
    sq_json_unsigned(json, "seed", run->request->seed);
    run_write_parameters(run, json);
    run_write_rate(run, run->after.operations - run->before.operations, json);
    run_write_counters(run, json);
    run_write_profile(run, json);
    run_write_locks(run, json);
    run_write_lines(run, json);
    run_write_memory(run, cpu, sums, json);
    sq_json_open_object(json, "latency_ns");
    run_write_path(json, "alloc", &sums->alloc_ns);
    run_write_path(json, "free", &sums->free_ns);
    for (uint32_t path = 0; path < run->runner.latency_path_count; path++)
        run_write_path(json, run->runner.latency_path_name[path],
                       &sums->latency_ns[path]);
    sq_json_close(json);
    if (run->runner.latency_path_count > 0)
        run_write_paths_of_cpus(run, json);
    sq_json_unsigned(json, "context_switches", run->runner.context_switches);
    sq_json_unsigned(json, "cpu_migrations", run->runner.cpu_migrations);
    sq_json_unsigned(json, "allocations", sums->allocations);
    sq_json_unsigned(json, "frees", sums->frees);
    sq_json_integer(json, "live", (int64_t)(sums->allocations - sums->frees));
    run_write_fingerprint(run, json);
    run_write_reports(run, json);
    if (run->request->describe != NULL)
        run->request->describe(run->request->describe_argument, json);
    if (run->timeline != NULL)
        sq_timeline_write(run->timeline, run->runner.start_ns, json);
    if (run->request->with_caches)
        sq_heap_print_caches(cpu, run->runner.heap, json);
    sq_json_close(json);
}

/* ---- the run ---- */

static int run_check_caches(sq_cpu *cpu, sq_heap *heap, struct sq_error *error)
{
    SQ_LIST_EACH (link, &heap->caches) {
        int code = heap->ops->check(cpu, SQ_LIST_ENTRY(link, sq_cache, link), error);
        if (code != SQ_OK)
            return code;
    }
    return SQ_OK;
}

/* Check what the run left behind and write the row. */
static int run_finish(struct run *run, sq_cpu *cpu, struct sq_json *json,
                      struct sq_error *error)
{
    struct sq_runner_cpu *sums = aligned_alloc(SQ_LINE_SIZE, sizeof(*sums));
    int code = run_check_caches(cpu, run->runner.heap, error);
    if (sums == NULL)
        code = sq_error_set(error, SQ_E_MEMORY, "the host has no memory for a result");
    if (code == SQ_OK) {
        memset(sums, 0, sizeof(*sums));
        run_sum_cpus(run, sums);
        run_write(run, cpu, sums, json);
    }
    free(sums);
    return code;
}

/* The error of a run that ends at its first report. */
static int run_panic(const struct run *run, struct sq_error *error)
{
    const struct sq_reports *reports = &run->runner.heap->reports;
    const struct sq_report *first = reports->list;
    if (reports->count == 0)
        return sq_error_set(error, SQ_E_CORRUPTION, "a report that was not kept");
    return sq_error_set(error, SQ_E_CORRUPTION,
                        "cache %.60s, slab %lld, object %lld: %s", first->cache,
                        (long long)first->slab, (long long)first->object, first->what);
}

static int run_on_heap(struct run *run, struct sq_json *json, struct sq_error *error)
{
    const struct sq_run_request *request = run->request;
    const struct sq_machine_ops *ops = request->machine->ops;
    sq_cpu *cpu = ops->cpu_enter(request->machine, 0);
    int code = sq_heap_create_debug(cpu, request->policy, request->options,
                                    request->debug, &run->runner.heap, error);
    ops->cpu_leave(cpu);
    if (code != SQ_OK)
        return code;
    run_sum_locks(run, true, run->before.locks);
    code = run_make_timeline(run, error);
    if (code == SQ_OK)
        code = run->ops->run(&run->runner, error);
    if (sq_runner_has_panicked(&run->runner))
        code = run_panic(run, error);
    if (!run->after.is_taken)
        run_take(run, true, &run->after);
    cpu = ops->cpu_enter(request->machine, 0);
    if (code == SQ_OK)
        code = run_finish(run, cpu, json, error);
    sq_heap_destroy(cpu, run->runner.heap);
    ops->cpu_leave(cpu);
    return code;
}

static int run_make(struct run *run, struct sq_error *error)
{
    const struct sq_run_request *request = run->request;
    uint32_t cpu_count = request->machine->topology.cpu_count;
    size_t bytes = sizeof(struct sq_runner_cpu) * cpu_count;
    for (size_t i = 0; i < SQ_ARRAY_COUNT(runners); i++)
        if (strcmp(runners[i]->engine, request->machine->engine) == 0)
            run->ops = runners[i];
    SQ_ASSERT(run->ops != NULL);
    run->values =
        calloc((size_t)request->workload->parameter_count + 1, sizeof(int64_t));
    run->runner.cpus = aligned_alloc(SQ_LINE_SIZE, bytes);
    if (run->values == NULL || run->runner.cpus == NULL)
        return sq_error_set(error, SQ_E_MEMORY, "the host has no memory for a run");
    memset(run->runner.cpus, 0, bytes);
    run->runner.machine = request->machine;
    run->runner.workload = request->workload;
    run->runner.values = run->values;
    run->runner.seed = request->seed;
    if (request->machine->ops->profile != NULL)
        run->runner.mark = run_mark;
    run->runner.mark_argument = run;
    run->runner.panics = request->panics;
    run->runner.tick = run_tick;
    run->runner.tick_argument = run;
    return run_set_parameters(run, error);
}

int sq_run(const struct sq_run_request *request, struct sq_json *json,
           struct sq_error *error)
{
    struct run run = {.request = request};
    int code = sq_workload_check(request->workload, error);
    if (code == SQ_OK)
        code = run_make(&run, error);
    if (code == SQ_OK)
        code = run_on_heap(&run, json, error);
    sq_timeline_destroy(run.timeline);
    free(run.values);
    free(run.runner.cpus);
    return code;
}
