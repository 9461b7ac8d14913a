#include "trace/program.h"

#include <stdlib.h>
#include <string.h>

#include "base/sq_assert.h"
#include "trace/pointers.h"

#define PROGRAM_TARGETS_FIRST 256
#define PROGRAM_EVENTS_FIRST  256

/*
 * What the pass needs and the program does not. `live` maps an address to the number of
 * its live object, SQ_POINTERS_NONE for one that was freed. `target_ids` maps a kind
 * and a name or size to the number of the target. `targets_of` keeps each object's
 * target for its free.
 */
struct program_build {
    const struct sq_trace *trace;
    struct sq_program *program;
    struct sq_pointers live, target_ids;
    uint32_t *targets_of; /* [object_capacity] */
    size_t object_capacity, target_capacity;
};

void sq_program_free(struct sq_program *program)
{
    for (uint32_t cpu = 0; program->cpus != NULL && cpu < program->cpu_count; cpu++)
        free(program->cpus[cpu].events);
    free(program->cpus);
    free(program->targets);
    memset(program, 0, sizeof(*program));
}

const char *sq_program_target_kind_name(uint32_t kind)
{
    static const char *const names[] = {"cache", "cache-by-size", "kmalloc"};
    SQ_ASSERT(kind <= SQ_TARGET_KMALLOC);
    return names[kind];
}

/* Grow an array by half. NULL without memory; then the old one stays valid. */
static void *array_grow(void *array, size_t *capacity, size_t first, size_t item_size)
{
    size_t grown = *capacity + *capacity / 2;
    if (grown < first)
        grown = first;
    if (grown > SIZE_MAX / item_size)
        return NULL;
    array = realloc(array, grown * item_size);
    if (array != NULL)
        *capacity = grown;
    return array;
}

/* Append an event to the list of the virtual CPU of `trace_cpu`. 0 or SQ_E_MEMORY. */
static int program_append(struct program_build *build, uint32_t trace_cpu,
                          enum sq_program_op op, uint32_t object, int32_t node)
{
    struct sq_program_cpu *cpu =
        &build->program->cpus[trace_cpu % build->program->cpu_count];
    if (cpu->event_count == cpu->event_capacity) {
        void *events = array_grow(cpu->events, &cpu->event_capacity,
                                  PROGRAM_EVENTS_FIRST, sizeof(*cpu->events));
        if (events == NULL)
            return SQ_E_MEMORY;
        cpu->events = events;
    }
    uint32_t node_bits = node < 0 || node >= (int32_t)SQ_PROGRAM_NODE_NONE
                             ? SQ_PROGRAM_NODE_NONE
                             : (uint32_t)node;
    cpu->events[cpu->event_count++] = (struct sq_program_event){
        object, build->targets_of[object] << 12 | node_bits << 2 | (uint32_t)op};
    return 0;
}

/* The kind of target an allocation has, and the name or size that tells it apart. */
static enum sq_program_target_kind target_kind_of(const struct sq_trace_event *event,
                                                  uint32_t *key)
{
    if (event->kind == SQ_TRACE_KMALLOC || event->kind == SQ_TRACE_KMALLOC_NODE) {
        *key = event->bytes_req;
        return SQ_TARGET_KMALLOC;
    }
    if (event->cache == SQ_TRACE_NO_CACHE) {
        *key = event->bytes_alloc;
        return SQ_TARGET_CACHE_UNNAMED;
    }
    *key = event->cache;
    return SQ_TARGET_CACHE;
}

/* Find or add the target of an allocation. 0, SQ_E_MEMORY or SQ_E_TRACE. */
static int program_target(struct program_build *build,
                          const struct sq_trace_event *event, uint32_t *id)
{
    struct sq_program *program = build->program;
    uint32_t key;
    enum sq_program_target_kind kind = target_kind_of(event, &key);
    struct sq_pointer_slot *slot =
        sq_pointers_enter(&build->target_ids, (uint64_t)kind << 32 | key);
    if (slot == NULL)
        return SQ_E_MEMORY;
    if (slot->value == SQ_POINTERS_NONE) {
        if (program->target_count > SQ_PROGRAM_TARGET_MAX)
            return SQ_E_TRACE;
        if (program->target_count == build->target_capacity) {
            void *targets =
                array_grow(program->targets, &build->target_capacity,
                           PROGRAM_TARGETS_FIRST, sizeof(*program->targets));
            if (targets == NULL)
                return SQ_E_MEMORY;
            program->targets = targets;
        }
        slot->value = program->target_count++;
        program->targets[slot->value] = (struct sq_program_target){
            .name = kind == SQ_TARGET_CACHE ? key : SQ_STRING_NONE, .kind = kind};
    }
    struct sq_program_target *target = &program->targets[slot->value];
    if (event->bytes_req > target->object_size)
        target->object_size = event->bytes_req;
    if (event->bytes_alloc > target->slot_size)
        target->slot_size = event->bytes_alloc;
    target->allocation_count++;
    *id = slot->value;
    return 0;
}

static int program_alloc(struct program_build *build,
                         const struct sq_trace_event *event)
{
    struct sq_program *program = build->program;
    if (event->pointer == 0) {
        program->counts.failed_allocations++;
        return 0;
    }
    struct sq_pointer_slot *slot = sq_pointers_enter(&build->live, event->pointer);
    if (slot == NULL)
        return SQ_E_MEMORY;
    if (slot->value != SQ_POINTERS_NONE) {
        program->counts.reused++;
        if (program_append(build, event->cpu, SQ_PROGRAM_FREE_REUSED, slot->value, -1) <
            0)
            return SQ_E_MEMORY;
    }
    uint32_t object = program->object_count;
    if (object == SQ_POINTERS_NONE)
        return SQ_E_TRACE;
    if (object == build->object_capacity) {
        uint32_t *targets_of = array_grow(build->targets_of, &build->object_capacity,
                                          PROGRAM_EVENTS_FIRST, sizeof(*targets_of));
        if (targets_of == NULL)
            return SQ_E_MEMORY;
        build->targets_of = targets_of;
    }
    int result = program_target(build, event, &build->targets_of[object]);
    if (result < 0)
        return result;
    slot->value = object;
    program->object_count++;
    program->counts.allocations++;
    return program_append(build, event->cpu, SQ_PROGRAM_ALLOC, object, event->node);
}

static int program_free(struct program_build *build, const struct sq_trace_event *event)
{
    struct sq_program_counts *counts = &build->program->counts;
    if (event->pointer == 0) {
        counts->nil_frees++;
        return 0;
    }
    struct sq_pointer_slot *slot = sq_pointers_find(&build->live, event->pointer);
    if (slot == NULL || slot->value == SQ_POINTERS_NONE) {
        counts->unmatched_frees++;
        return 0;
    }
    uint32_t object = slot->value;
    slot->value = SQ_POINTERS_NONE;
    counts->matched_frees++;
    return program_append(build, event->cpu, SQ_PROGRAM_FREE, object, -1);
}

/* Give back the room the lists did not use. */
static void program_trim(struct sq_program *program)
{
    for (uint32_t i = 0; i < program->cpu_count; i++) {
        struct sq_program_cpu *cpu = &program->cpus[i];
        if (cpu->event_count == 0 || cpu->event_count == cpu->event_capacity)
            continue;
        void *events = realloc(cpu->events, cpu->event_count * sizeof(*cpu->events));
        if (events != NULL) {
            cpu->events = events;
            cpu->event_capacity = cpu->event_count;
        }
    }
}

/* The pass over the trace. 0 or an error code without a message. */
static int program_pass(struct program_build *build)
{
    const struct sq_trace *trace = build->trace;
    struct sq_program *program = build->program;
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct sq_trace_event *event = &trace->events[i];
        int result = sq_trace_is_alloc(event->kind) ? program_alloc(build, event)
                                                    : program_free(build, event);
        if (result < 0)
            return result;
    }
    program->counts.lost = trace->counts.lost;
    program->counts.live = program->counts.allocations - program->counts.matched_frees -
                           program->counts.reused;
    program_trim(program);
    return 0;
}

int sq_program_build(const struct sq_trace *trace, uint32_t cpu_count,
                     struct sq_program *program, struct sq_error *error)
{
    memset(program, 0, sizeof(*program));
    if (cpu_count == 0)
        return sq_error_set(error, SQ_E_PARAMETER,
                            "cpu_count is 0; 1 or more is accepted");
    struct program_build build = {.trace = trace, .program = program};
    program->trace_cpu_count = sq_trace_cpu_count(trace);
    program->cpus_folded = program->trace_cpu_count > cpu_count;
    program->cpus = calloc(cpu_count, sizeof(*program->cpus));
    program->cpu_count = program->cpus == NULL ? 0 : cpu_count;
    int result = program->cpus == NULL ? SQ_E_MEMORY : program_pass(&build);
    sq_pointers_free(&build.live);
    sq_pointers_free(&build.target_ids);
    free(build.targets_of);
    if (result == 0)
        return 0;
    sq_program_free(program);
    if (result == SQ_E_MEMORY)
        return sq_error_set(error, SQ_E_MEMORY,
                            "no memory for the replay of %zu events",
                            trace->event_count);
    return sq_error_set(error, SQ_E_TRACE,
                        "the trace has more allocations or kinds of objects than a "
                        "replay takes (2^32 - 2 and 2^20)");
}
