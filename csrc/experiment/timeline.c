/* Samples of a run over time; see timeline.h. */
#include "experiment/timeline.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_INTERVAL_NS UINT64_C(10000)

/* One sample; behind it, operations by CPU and, if taken, counters by number. */
struct sample {
    uint64_t at_ns, slab_bytes;
    bool has_totals;
    struct sq_lock_stats locks[SQ_LOCK_CLASS_COUNT];
};

struct sq_timeline {
    const sq_machine *machine;
    const sq_heap *heap;
    uint32_t cpu_count, counter_count;
    size_t count;
    uint64_t interval_ns, due_ns;
    struct sample samples[SQ_TIMELINE_SAMPLES];
    uint64_t numbers[]; /* SQ_TIMELINE_SAMPLES rows of operations and counters */
};

static size_t row_length(const struct sq_timeline *timeline)
{
    return (size_t)timeline->cpu_count + timeline->counter_count;
}

static uint64_t *row_of(struct sq_timeline *timeline, size_t sample)
{
    return &timeline->numbers[sample * row_length(timeline)];
}

struct sq_timeline *sq_timeline_create(const sq_machine *machine, const sq_heap *heap)
{
    uint32_t cpu_count = machine->topology.cpu_count;
    size_t row = (size_t)cpu_count + heap->ops->counter_count;
    struct sq_timeline *timeline =
        calloc(1, sizeof(*timeline) + sizeof(uint64_t) * row * SQ_TIMELINE_SAMPLES);
    if (timeline == NULL)
        return NULL;
    timeline->machine = machine;
    timeline->heap = heap;
    timeline->cpu_count = cpu_count;
    timeline->counter_count = heap->ops->counter_count;
    timeline->interval_ns = FIRST_INTERVAL_NS;
    return timeline;
}

void sq_timeline_destroy(struct sq_timeline *timeline)
{
    free(timeline);
}

uint64_t sq_timeline_due_ns(const struct sq_timeline *timeline)
{
    return timeline->due_ns;
}

/* Make room: keep the first of each two. */
static void timeline_thin(struct sq_timeline *timeline)
{
    size_t bytes = row_length(timeline) * sizeof(uint64_t);
    for (size_t i = 1; 2 * i < timeline->count; i++) {
        timeline->samples[i] = timeline->samples[2 * i];
        memcpy(row_of(timeline, i), row_of(timeline, 2 * i), bytes);
    }
    timeline->count = (timeline->count + 1) / 2;
    timeline->interval_ns *= 2;
}

static void take_totals(struct sq_timeline *timeline, struct sample *sample,
                        uint64_t *counters)
{
    sq_machine *machine = (sq_machine *)(uintptr_t)timeline->machine;
    for (uint32_t cpu = 0; cpu < timeline->cpu_count; cpu++) {
        const struct sq_lock_stats *stats =
            machine->ops->cpu_at(machine, cpu)->lock_stats;
        for (uint32_t k = 0; k < SQ_LOCK_CLASS_COUNT; k++) {
            sample->locks[k].acquisitions += stats[k].acquisitions;
            sample->locks[k].contended += stats[k].contended;
            sample->locks[k].wait_ns += stats[k].wait_ns;
        }
    }
    SQ_LIST_EACH (link, &timeline->heap->caches) {
        const sq_cache *cache = SQ_LIST_ENTRY(link, sq_cache, link);
        for (uint32_t cpu = 0; cpu < timeline->cpu_count; cpu++)
            for (uint32_t id = 0; id < timeline->counter_count; id++)
                counters[id] += cache->counters[cpu][id];
    }
}

void sq_timeline_take(struct sq_timeline *timeline, const struct sq_runner *runner,
                      uint64_t now_ns, bool with_totals)
{
    struct sample *sample;
    uint64_t *row;
    if (timeline->count == SQ_TIMELINE_SAMPLES)
        timeline_thin(timeline);
    sample = &timeline->samples[timeline->count];
    row = row_of(timeline, timeline->count);
    timeline->count++;
    timeline->due_ns = now_ns + timeline->interval_ns;
    memset(sample, 0, sizeof(*sample));
    memset(row, 0, row_length(timeline) * sizeof(uint64_t));
    sample->at_ns = now_ns;
    sample->slab_bytes = __atomic_load_n(&timeline->heap->slab_bytes, __ATOMIC_RELAXED);
    sample->has_totals = with_totals;
    for (uint32_t cpu = 0; cpu < timeline->cpu_count; cpu++)
        row[cpu] = __atomic_load_n(&runner->cpus[cpu].operations, __ATOMIC_RELAXED);
    if (with_totals)
        take_totals(timeline, sample, &row[timeline->cpu_count]);
}

/* ---- the member ---- */

static void write_totals(const struct sq_timeline *timeline,
                         const struct sample *sample, const uint64_t *counters,
                         struct sq_json *json)
{
    const sq_policy_ops *ops = timeline->heap->ops;
    sq_json_open_object(json, "locks");
    for (uint32_t k = 0; k < SQ_LOCK_CLASS_COUNT; k++) {
        if (sample->locks[k].acquisitions == 0)
            continue;
        sq_json_open_object(json, sq_lock_class_name[k]);
        sq_json_unsigned(json, "acquisitions", sample->locks[k].acquisitions);
        sq_json_unsigned(json, "contended", sample->locks[k].contended);
        sq_json_unsigned(json, "wait_ns", sample->locks[k].wait_ns);
        sq_json_close(json);
    }
    sq_json_close(json);
    sq_json_open_object(json, "counters");
    for (uint32_t id = 0; id < timeline->counter_count; id++)
        if (counters[id] > 0)
            sq_json_unsigned(json, ops->counters[id].name, counters[id]);
    sq_json_close(json);
}

void sq_timeline_write(const struct sq_timeline *timeline, uint64_t start_ns,
                       struct sq_json *json)
{
    sq_json_open_array(json, "timeline");
    for (size_t i = 0; i < timeline->count; i++) {
        const struct sample *sample = &timeline->samples[i];
        const uint64_t *row = &timeline->numbers[i * row_length(timeline)];
        sq_json_open_object(json, NULL);
        sq_json_integer(json, "at_ns", (int64_t)(sample->at_ns - start_ns));
        sq_json_unsigned(json, "slab_bytes", sample->slab_bytes);
        sq_json_open_array(json, "operations_by_cpu");
        for (uint32_t cpu = 0; cpu < timeline->cpu_count; cpu++)
            sq_json_unsigned(json, NULL, row[cpu]);
        sq_json_close(json);
        if (sample->has_totals)
            write_totals(timeline, sample, &row[timeline->cpu_count], json);
        sq_json_close(json);
    }
    sq_json_close(json);
}
