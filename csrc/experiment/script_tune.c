/*
 * The commands of an operation script that change a cache's tunables, and those that do
 * what a kernel does now and then by them: queues expire, a cache is reaped.
 */
#include "experiment/script_state.h"

#include <string.h>

/* Set tunables of a cache as a CPU. */
static int script_tune(struct script *script, uint32_t cpu_index, uint32_t cache,
                       uint32_t count, const char *const *names, const int64_t *values)
{
    struct sq_error why = {0};
    sq_cpu *cpu = script->machine->ops->cpu_enter(script->machine, cpu_index);
    int status =
        script->heap->ops->tune(cpu, script->cache[cache], count, names, values, &why);
    script->machine->ops->cpu_leave(cpu);
    if (status != SQ_OK)
        return sq_error_set(script->error, status, "script line %u: %s",
                            script->line_number, why.message);
    return SQ_OK;
}

/* `defrag C X`, `min_partial C N`, `cpu_partial C N`, `queue C N`: one tunable. */
static int command_tune_one(struct script *script, const char *command,
                            const char *name)
{
    uint32_t cache;
    int64_t value, old = 0;
    int status = script_word_cache(script, 1, &cache);
    if (status == SQ_OK)
        status = script_word(script, 2, name, 0, INT32_MAX, &value);
    if (status != SQ_OK)
        return status;
    if (!script_describe_member(script->cache[cache], name, &old))
        return SQ_OK; /* the release has no such tunable */
    script->step = 0;
    status = script_tune(script, 0, cache, 1, &name, &value);
    if (status != SQ_OK)
        return status;
    script_open(script, command);
    sq_json_integer(script->json, "old", old);
    if (strcmp(name, "cpu_partial") == 0)
        script->heap->ops->describe(script->cache[cache], script->json);
    script->event_count = 0;
    script_close(script);
    return SQ_OK;
}

/* `queue C N`: resize the CPU queues of SLUB+Q; events name the CPU that was flushed.
 */
static int command_queue(struct script *script, const char *command)
{
    static const char *const name = "cpu_queue_size";
    uint32_t cache;
    int64_t value, old = 0, queue = 0, batch = 0;
    int status = script_word_cache(script, 1, &cache);
    if (status == SQ_OK)
        status = script_word(script, 2, name, 0, INT32_MAX, &value);
    if (status != SQ_OK)
        return status;
    (void)script_describe_member(script->cache[cache], "queue", &old);
    script->step_is_cpu = true;
    status = script_tune(script, 0, cache, 1, &name, &value);
    script->step_is_cpu = false;
    if (status != SQ_OK)
        return status;
    (void)script_describe_member(script->cache[cache], "queue", &queue);
    (void)script_describe_member(script->cache[cache], "batch", &batch);
    script_open(script, command);
    sq_json_string(script->json, "op", "queue");
    sq_json_integer(script->json, "old", old);
    sq_json_integer(script->json, "queue", queue);
    sq_json_integer(script->json, "batch", batch);
    script_print_events(script);
    script_close(script);
    return SQ_OK;
}

/* Commands that print an error number and the geometry that results. The driver inside
 * a kernel printed no events here; they came out with the next operation on objects, at
 * the step where the last one had ended. */
static int command_tune_many(struct script *script, const char *command, const char *op,
                             uint32_t count, const char *const *names, bool with_events)
{
    uint32_t cache;
    int64_t values[3];
    int status = script_word_cache(script, 1, &cache);
    for (uint32_t i = 0; i < count && status == SQ_OK; i++)
        status = script_word(script, 2 + i, names[i], 0, INT32_MAX, &values[i]);
    if (status != SQ_OK)
        return status;
    if (with_events)
        script->step = -1;
    script->step_is_cpu = strcmp(op, "sharedq") == 0; /* flushed as `queue` does */
    status = script_tune(script, 0, cache, count, names, values);
    script->step_is_cpu = false;
    if (status != SQ_OK)
        return status;
    script_open(script, command);
    sq_json_string(script->json, "op", op);
    sq_json_integer(script->json, "err", 0);
    script->heap->ops->describe(script->cache[cache], script->json);
    if (with_events)
        script_print_events(script);
    script_close(script);
    return SQ_OK;
}

static int command_expire(struct script *script, const char *command)
{
    static const char *const name = "expire";
    uint32_t cache;
    int64_t node;
    int status = script_word_cache(script, 1, &cache);
    if (status == SQ_OK)
        status = script_word(script, 2, "NODE", -1,
                             script->machine->topology.node_count - 1, &node);
    script->step = 0;
    if (status == SQ_OK)
        status = script_tune(script, 0, cache, 1, &name, &node);
    if (status != SQ_OK)
        return status;
    script_open(script, command);
    sq_json_string(script->json, "op", "expire");
    script_print_events(script);
    script_close(script);
    return SQ_OK;
}

/* A counter of a cache by name, over all CPUs; 0 if the policy has none of that name.
 */
static uint64_t script_counter(const struct script *script, uint32_t cache,
                               const char *name)
{
    const sq_policy_ops *ops = script->heap->ops;
    uint64_t sum = 0;
    for (uint32_t id = 0; id < ops->counter_count; id++)
        for (uint32_t i = 0; i < script->machine->topology.cpu_count; i++)
            if (strcmp(ops->counters[id].name, name) == 0)
                sum += script->cache[cache]->counters[i][id];
    return sum;
}

/* The kernel keeps the reap node by CPU, a policy by CPU and cache: keep them equal. */
static int script_set_reap_node(struct script *script, uint32_t cpu_index, int64_t node)
{
    static const char *const name = "reap_node";
    int status = SQ_OK;
    for (uint32_t i = 0; i < script->cache_count && status == SQ_OK; i++)
        status = script_tune(script, cpu_index, i, 1, &name, &node);
    return status;
}

static int command_reap(struct script *script, const char *command)
{
    uint32_t cache, cpu_index;
    uint64_t reaped;
    int64_t with_node;
    int32_t node;
    sq_cpu *cpu;
    int status = script_word_cache(script, 1, &cache);
    if (status == SQ_OK)
        status = script_word_cpu(script, 2, &cpu_index);
    if (status == SQ_OK)
        status = script_word(script, 3, "the node part", 0, 1, &with_node);
    if (status != SQ_OK)
        return status;
    if (script->heap->ops->reap == NULL)
        return script_fail(script, SQ_E_PARAMETER, "reap: this policy has no reaper");
    script->step = 0;
    reaped = script_counter(script, cache, "reaped");
    cpu = script->machine->ops->cpu_enter(script->machine, cpu_index);
    node = script->heap->ops->reap(cpu, script->cache[cache], with_node != 0);
    script->machine->ops->cpu_leave(cpu);
    script_open_op(script, command, "reap", cache, cpu_index);
    sq_json_integer(script->json, "node_part", with_node);
    sq_json_integer(script->json, "reap_node", node);
    if (with_node)
        sq_json_unsigned(script->json, "slabs_reaped",
                         script_counter(script, cache, "reaped") - reaped);
    script_print_events(script);
    script_close(script);
    return script_set_reap_node(script, cpu_index,
                                (node + 1) % script->machine->topology.node_count);
}

static int command_reap_node(struct script *script, const char *command)
{
    uint32_t cpu_index;
    int64_t node;
    int status = script_word_cpu(script, 1, &cpu_index);
    if (status == SQ_OK)
        status = script_word(script, 2, "NODE", 0,
                             script->machine->topology.node_count - 1, &node);
    if (status == SQ_OK)
        status = script_set_reap_node(script, cpu_index, node);
    if (status == SQ_OK) {
        script_open(script, command);
        script_close(script);
    }
    return status;
}

/* ---- the table ---- */

static const char *const tune_names[] = {"limit", "batchcount", "shared"};
static const char *const shared_names[] = {"shared_queue_size"};

/* `defrag`, `cpu_partial` and `min_partial`; false if it is none of them. */
static bool script_tune_one(struct script *script, const char *line, int *status)
{
    const char *name = script->word[0];
    if (strcmp(name, "defrag") == 0) {
        /* SLAB has no such ratio; scripts are shared between policies. */
        *status = strcmp(script->heap->ops->name, "slab") == 0
                      ? SQ_OK
                      : command_tune_one(script, line, "remote_node_defrag_ratio");
        return true;
    }
    if (strcmp(name, "cpu_partial") != 0 && strcmp(name, "min_partial") != 0)
        return false;
    *status = command_tune_one(script, line, name);
    return true;
}

bool script_tune_command(struct script *script, const char *line, int *status)
{
    const char *name = script->word[0];
    bool original = script->style == SQ_SCRIPT_ORIGINAL;
    if (script_tune_one(script, line, status))
        return true;
    if (strcmp(name, "queue") == 0)
        *status = command_queue(script, line);
    else if (strcmp(name, "tune") == 0)
        *status = command_tune_many(script, line, "tune", 3, tune_names, original);
    else if (strcmp(name, "sharedq") == 0)
        *status = command_tune_many(script, line, "sharedq", 1, shared_names, true);
    else if (strcmp(name, "expire") == 0)
        *status = command_expire(script, line);
    else if (strcmp(name, "reap") == 0)
        *status = command_reap(script, line);
    else if (strcmp(name, "reapnode") == 0)
        *status = command_reap_node(script, line);
    else
        return false;
    return true;
}
