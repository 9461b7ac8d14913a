/* The commands of an operation script, one function each, and the table that finds them. */
#include "experiment/script_state.h"

#include <stdlib.h>
#include <string.h>

/* One variable of the kernel, if the policy has an option of that name. */
static void print_option(struct script *script, const char *key, const char *option)
{
    const sq_heap *heap = script->heap;
    int64_t value = sq_options_get(&heap->options, heap->ops->name, option, -1);
    if (value >= 0)
        sq_json_integer(script->json, key, value);
}

static void print_policy_vars(struct script *script)
{
    const sq_heap *heap = script->heap;
    int64_t no_aliens = sq_options_get(&heap->options, heap->ops->name, "noaliencache", -1);
    print_option(script,
                 script->style == SQ_SCRIPT_ORIGINAL ? "slab_break_gfp_order"
                                                     : "slab_max_order",
                 "slab_max_order");
    if (no_aliens >= 0)
        sq_json_unsigned(script->json, "use_alien_caches",
                         no_aliens == 0 && script->machine->topology.node_count > 1);
    print_option(script, "slub_min_objects", "slub_min_objects");
    print_option(script, "slub_max_order", "slub_max_order");
    print_option(script, "slub_min_order", "slub_min_order");
}

/* The variables of the kernel that the recordings begin with, and the names of the step
 * columns. */
static int command_vars(struct script *script)
{
    const sq_policy_ops *ops = script->heap->ops;
    const char *const *column = ops->row_columns_of == NULL
                                    ? ops->row_columns
                                    : ops->row_columns_of(&script->heap->options);
    uint32_t cpus = script->machine->topology.cpu_count;
    sq_json_open_object(script->json, NULL);
    sq_json_open_object(script->json, "vars");
    if (script->style == SQ_SCRIPT_ORIGINAL)
        sq_json_string(script->json, "allocator", ops->name);
    print_policy_vars(script);
    if (script->style != SQ_SCRIPT_ORIGINAL) {
        sq_json_unsigned(script->json, "possible_cpus", cpus);
        sq_json_unsigned(script->json, "present_cpus", cpus);
        sq_json_unsigned(script->json, "online_cpus", cpus - script->heap->offline_count);
    }
    sq_json_unsigned(script->json, "nr_cpu_ids", cpus);
    sq_json_unsigned(script->json, "nr_node_ids", script->machine->topology.node_count);
    sq_json_unsigned(script->json, "HZ", SQ_HZ);
    sq_json_unsigned(script->json, "cache_line", SQ_LINE_SIZE);
    sq_json_open_array(script->json, "step_cols");
    for (; column != NULL && *column != NULL; column++)
        sq_json_string(script->json, NULL, *column);
    sq_json_close(script->json);
    sq_json_close(script->json);
    script_close(script);
    return SQ_OK;
}

static void print_node_matrix(struct script *script, const char *key,
                              const uint8_t (*matrix)[SQ_NODE_MAX])
{
    uint32_t node_count = script->machine->topology.node_count;
    sq_json_open_array(script->json, key);
    for (uint32_t from = 0; from < node_count; from++) {
        sq_json_open_array(script->json, NULL);
        for (uint32_t to = 0; to < node_count; to++)
            sq_json_unsigned(script->json, NULL, matrix[from][to]);
        sq_json_close(script->json);
    }
    sq_json_close(script->json);
}

static int command_topo(struct script *script)
{
    const struct sq_topology *topology = &script->machine->topology;
    sq_json_open_object(script->json, NULL);
    sq_json_open_object(script->json, "topo");
    sq_json_open_array(script->json, "cpu_node");
    for (uint32_t cpu = 0; cpu < topology->cpu_count; cpu++)
        sq_json_unsigned(script->json, NULL, topology->node_of_cpu[cpu]);
    sq_json_close(script->json);
    print_node_matrix(script, "distance", topology->distance);
    if (script->style == SQ_SCRIPT_ORIGINAL)
        print_node_matrix(script, "zonelists", topology->fallback);
    sq_json_close(script->json);
    script_close(script);
    return SQ_OK;
}

static int cache_flags_of(struct script *script, const char *text, uint32_t *flags)
{
    static const struct {
        char letter;
        uint32_t flag;
    } known[] = {{'h', SQ_CACHE_HWCACHE_ALIGN},   {'r', SQ_CACHE_RECLAIM_ACCOUNT},
                 {'z', SQ_CACHE_RED_ZONE},        {'p', SQ_CACHE_POISON},
                 {'u', SQ_CACHE_STORE_USER},      {'c', SQ_CACHE_CONSISTENCY_CHECKS}};
    *flags = 0;
    for (; *text != '\0' && strcmp(text, "-") != 0; text++) {
        size_t i = 0;
        while (i < SQ_ARRAY_COUNT(known) && known[i].letter != *text)
            i++;
        if (i == SQ_ARRAY_COUNT(known))
            return sq_error_set(script->error, SQ_E_PARAMETER,
                                "script line %u: cache flag %c: accepted are h r z p u c "
                                "or - for none",
                                script->line_number, *text);
        if (known[i].flag >= SQ_CACHE_RED_ZONE &&
            (known[i].flag & script->heap->ops->debug_flags) == 0)
            return sq_error_set(script->error, SQ_E_PARAMETER,
                                "script line %u: cache flag %c: policy %s has no such "
                                "debugging, accepted are h r z p u",
                                script->line_number, *text, script->heap->ops->name);
        *flags |= known[i].flag;
    }
    return SQ_OK;
}

static int command_cache(struct script *script, const char *command)
{
    struct sq_cache_spec spec = {0};
    int64_t size, align, capacity = 0;
    sq_cpu *cpu;
    int status;
    if (script->word_count < 5)
        return script_fail(script, SQ_E_PARAMETER, "cache needs NAME SIZE ALIGN FLAGS");
    if (script->cache_count == SCRIPT_CACHE_MAX)
        return script_fail(script, SQ_E_PARAMETER, "a script may make 64 caches");
    spec.name = script->word[1];
    status = script_word(script, 2, "SIZE", 1, 4 << 20, &size);
    if (status == SQ_OK)
        status = script_word(script, 3, "ALIGN", 0, SQ_PAGE_SIZE, &align);
    if (status == SQ_OK)
        status = cache_flags_of(script, script->word[4], &spec.flags);
    if (status == SQ_OK && script->word_count > 5)
        status = script_word(script, 5, "CAPACITY", 0, 4096, &capacity);
    if (status != SQ_OK)
        return status;
    spec.size = (uint64_t)size;
    spec.align = (uint64_t)align;
    spec.sheaf_capacity = (uint32_t)capacity;
    cpu = script->machine->ops->cpu_enter(script->machine, 0);
    status = sq_heap_create_cache(cpu, script->heap, &spec,
                                  &script->cache[script->cache_count], script->error);
    script->machine->ops->cpu_leave(cpu);
    if (status != SQ_OK)
        return status;
    script_open(script, command);
    sq_json_unsigned(script->json, "cache", script->cache_count);
    script->heap->ops->describe(script->cache[script->cache_count], script->json);
    script_close(script);
    script->cache_count++;
    return SQ_OK;
}

static int command_alloc(struct script *script, const char *command, uint32_t flags)
{
    uint32_t cache, cpu_index;
    int64_t count, node = SQ_NODE_ANY;
    sq_cpu *cpu;
    int status = script_word_cache(script, 1, &cache);
    if (status == SQ_OK)
        status = script_word_cpu(script, 2, &cpu_index);
    if (status == SQ_OK)
        status = script_word(script, 3, "N", 0, SCRIPT_ID_MAX, &count);
    if (status == SQ_OK && script->word_count > 4)
        status = script_word(script, 4, "NODE", -1,
                             script->machine->topology.node_count - 1, &node);
    if (status != SQ_OK)
        return status;
    script_open_op(script, command, "alloc", cache, cpu_index);
    sq_json_integer(script->json, "node", node);
    sq_json_unsigned(script->json, "first_id", script->object_count);
    sq_json_open_array(script->json, "objs");
    cpu = script->machine->ops->cpu_enter(script->machine, cpu_index);
    for (int64_t i = 0; i < count && status == SQ_OK; i++) {
        size_t events_before = script->event_count;
        struct sq_object_place place;
        void *object;
        script->step = (int32_t)i;
        object = script->heap->ops->alloc(cpu, script->cache[cache], (int32_t)node,
                                          flags);
        if (object == NULL)
            break;
        status = script_add_object(script, cache, object);
        if (!script->heap->ops->locate(script->cache[cache], object, &place))
            status = script_fail(script, SQ_E_CORRUPTION,
                                 "the policy handed out what is no object of the cache");
        else
            script_print_place(script, cpu, cache, &place, events_before);
    }
    script->machine->ops->cpu_leave(cpu);
    sq_json_close(script->json);
    script_print_events(script);
    script_close(script);
    return status;
}

static int free_one(struct script *script, sq_cpu *cpu, uint32_t cache, int64_t id)
{
    struct script_object *object;
    struct sq_object_place place;
    size_t events_before = script->event_count;
    int status = script_live_object(script, cache, id, &object);
    if (status != SQ_OK)
        return status;
    if (!script->heap->ops->locate(script->cache[cache], object->address, &place))
        return script_fail(script, SQ_E_CORRUPTION,
                           "a live object is no longer an object of its cache");
    object->live = false;
    script->heap->ops->free(cpu, script->cache[cache], object->address);
    script_print_place(script, cpu, cache, &place, events_before);
    return SQ_OK;
}

/* The same ids twice: first printed as a list, then freed one by one. */
static int command_free(struct script *script, const char *command)
{
    uint32_t cache, cpu_index;
    int64_t id = 0, last = 0;
    bool in_range = false;
    const char *ids = script->rest;
    sq_cpu *cpu;
    int more, status = script_word_cache(script, 1, &cache);
    if (status == SQ_OK)
        status = script_word_cpu(script, 2, &cpu_index);
    if (status != SQ_OK)
        return status;
    script_open_op(script, command, "free", cache, cpu_index);
    sq_json_open_array(script->json, "ids");
    while ((more = script_next_id(script, &id, &last, &in_range)) == 1)
        sq_json_integer(script->json, NULL, id);
    sq_json_close(script->json);
    sq_json_open_array(script->json, "objs");
    script->rest = ids;
    in_range = false;
    script->step = -1;
    cpu = script->machine->ops->cpu_enter(script->machine, cpu_index);
    status = more < 0 ? more : SQ_OK;
    while (status == SQ_OK && (more = script_next_id(script, &id, &last, &in_range)) == 1) {
        script->step++;
        status = free_one(script, cpu, cache, id);
    }
    script->machine->ops->cpu_leave(cpu);
    sq_json_close(script->json);
    script_print_events(script);
    script_close(script);
    return status;
}

static int command_dump(struct script *script)
{
    uint32_t cache;
    sq_cpu *cpu;
    int status = script_word_cache(script, 1, &cache);
    if (status != SQ_OK)
        return status;
    cpu = script->machine->ops->cpu_enter(script->machine, 0);
    sq_json_open_object(script->json, NULL);
    sq_json_unsigned(script->json, "state", cache);
    script->heap->ops->dump(cpu, script->cache[cache], script->json);
    script_close(script);
    status = script->heap->ops->check(cpu, script->cache[cache], script->error);
    script->machine->ops->cpu_leave(cpu);
    return status;
}

/* Empty CPU after CPU, ascending, then shrink: the order of events is then known. */
static int command_shrink(struct script *script, const char *command)
{
    const struct sq_machine_ops *machine_ops = script->machine->ops;
    uint32_t cache, cpu_index;
    int64_t ret;
    sq_cpu *cpu;
    int status = script_word_cache(script, 1, &cache);
    if (status == SQ_OK)
        status = script_word_cpu(script, 2, &cpu_index);
    if (status != SQ_OK)
        return status;
    for (uint32_t i = 0; i < script->machine->topology.cpu_count; i++) {
        script->step = (int32_t)i;
        cpu = machine_ops->cpu_enter(script->machine, i);
        script->heap->ops->flush_cpu(cpu, script->cache[cache]);
        machine_ops->cpu_leave(cpu);
    }
    script->step = -1;
    cpu = machine_ops->cpu_enter(script->machine, cpu_index);
    ret = script->heap->ops->shrink(cpu, script->cache[cache]);
    machine_ops->cpu_leave(cpu);
    script_open_op(script, command, "shrink", cache, cpu_index);
    sq_json_integer(script->json, "ret", ret);
    script_print_events(script);
    script_close(script);
    return SQ_OK;
}

/* Allocate until nothing is left; print the nodes as [node, objects in a row]. */
static int command_exhaust(struct script *script, const char *command)
{
    uint32_t cache, cpu_index, run_length = 0;
    int64_t node, count, taken = 0;
    int32_t run_node = -1;
    sq_cpu *cpu;
    int status = script_word_cache(script, 1, &cache);
    if (status == SQ_OK)
        status = script_word_cpu(script, 2, &cpu_index);
    if (status == SQ_OK)
        status = script_word(script, 3, "NODE", -1,
                             script->machine->topology.node_count - 1, &node);
    if (status == SQ_OK)
        status = script_word(script, 4, "N", 0, SCRIPT_ID_MAX, &count);
    if (status != SQ_OK)
        return status;
    script_open(script, command);
    sq_json_string(script->json, "op", "exhaust");
    sq_json_open_array(script->json, "node_runs");
    cpu = script->machine->ops->cpu_enter(script->machine, cpu_index);
    for (; taken <= count && status == SQ_OK; taken++) {
        void *object = taken == count
                           ? NULL
                           : script->heap->ops->alloc(cpu, script->cache[cache],
                                                      (int32_t)node, SQ_ALLOC_NOWAIT);
        int32_t object_node =
            object == NULL ? -1 : (int32_t)sq_node_of_address(script->machine, object);
        if (object_node != run_node && run_length > 0) {
            sq_json_open_array(script->json, NULL);
            sq_json_integer(script->json, NULL, run_node);
            sq_json_unsigned(script->json, NULL, run_length);
            sq_json_close(script->json);
            run_length = 0;
        }
        if (object == NULL)
            break;
        run_node = object_node;
        run_length++;
        status = script_add_object(script, cache, object);
    }
    script->machine->ops->cpu_leave(cpu);
    sq_json_close(script->json);
    sq_json_integer(script->json, "stopped", taken < count ? 1 : 0);
    script->event_count = 0;
    script_close(script);
    return status;
}

/* `brief C`: how much is where. */
static int command_brief(struct script *script)
{
    uint32_t cache;
    sq_cpu *cpu;
    int status = script_word_cache(script, 1, &cache);
    if (status != SQ_OK)
        return status;
    if (script->heap->ops->brief == NULL)
        return script_fail(script, SQ_E_PARAMETER, "brief: only policy slab has it");
    cpu = script->machine->ops->cpu_enter(script->machine, 0);
    sq_json_open_object(script->json, NULL);
    sq_json_unsigned(script->json, "brief", cache);
    sq_json_unsigned(script->json, "jiffies", script->heap->clock_ms * SQ_HZ / 1000);
    script->heap->ops->brief(cpu, script->cache[cache], script->json);
    script->machine->ops->cpu_leave(cpu);
    script_close(script);
    return SQ_OK;
}

/* `sleep MS`: time passes and the periodic reaper runs; prints nothing. */
static int command_sleep(struct script *script)
{
    int64_t milliseconds;
    int status = script_word(script, 1, "MS", 0, 86400000, &milliseconds);
    if (status == SQ_OK) {
        (void)sq_heap_advance(script->heap, (uint64_t)milliseconds);
        script->event_count = 0;
    }
    return status;
}

/* ---- the table ---- */

int script_command(struct script *script, const char *line)
{
    const char *name = script->word[0];
    int64_t value = 0;
    int status;
    if (strcmp(name, "vars") == 0)
        return command_vars(script);
    if (strcmp(name, "topo") == 0)
        return command_topo(script);
    if (strcmp(name, "step") == 0) {
        status = script_word(script, 1, "step", 0, 1, &value);
        script->with_rows = value != 0;
        return status;
    }
    if (strcmp(name, "cache") == 0)
        return command_cache(script, line);
    if (strcmp(name, "a") == 0)
        return command_alloc(script, line, 0);
    if (strcmp(name, "an") == 0)
        return command_alloc(script, line, SQ_ALLOC_NOWAIT);
    if (strcmp(name, "f") == 0)
        return command_free(script, line);
    if (script_bulk_command(script, line, &status))
        return status;
    if (strcmp(name, "dump") == 0)
        return command_dump(script);
    if (strcmp(name, "shrink") == 0)
        return command_shrink(script, line);
    if (script_tune_command(script, line, &status))
        return status;
    if (strcmp(name, "brief") == 0)
        return command_brief(script);
    if (strcmp(name, "sleep") == 0)
        return command_sleep(script);
    if (strcmp(name, "x") == 0)
        return command_exhaust(script, line);
    return sq_error_set(script->error, SQ_E_PARAMETER,
                        "script line %u: command %.20s: accepted are vars topo step "
                        "cache a an f ab fb sp sa sr st dump shrink defrag cpu_partial "
                        "min_partial tune reap reapnode queue sharedq expire brief "
                        "sleep x",
                        script->line_number, name);
}
