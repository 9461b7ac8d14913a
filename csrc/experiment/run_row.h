/*
 * The row of a run: what it counted and measured, written as one JSON object. Part of
 * run.c, whose own structures and sums it uses.
 */
#ifndef SQ_RUN_ROW_H
#define SQ_RUN_ROW_H

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

#endif
