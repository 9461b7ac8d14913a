/*
 * The commands of an operation script that are one call for many objects: bulk calls,
 * and sheaves that are filled for the caller. Nothing is printed between the objects of
 * a call, so the state of the CPU follows at the end, as `after`.
 */
#include "experiment/script_state.h"

#include <stdlib.h>
#include <string.h>

#define BULK_MAX     (1 << 20) /* objects of one call */
#define ERRNO_ENOMEM (-12)     /* the kernel's, whatever the host's is */

/* The CPU's and its node's columns after the call, where recordings have them. */
static void print_after(struct script *script, sq_cpu *cpu, uint32_t cache)
{
    if (script->heap->ops->row_cpu == NULL)
        return;
    sq_json_open_array(script->json, "after");
    script->heap->ops->row_cpu(cpu, script->cache[cache], script->json);
    sq_json_close(script->json);
}

/* [slab, idx] of an object, and its node if asked for. */
static int print_object(struct script *script, uint32_t cache, const void *object,
                        bool with_node)
{
    struct sq_object_place place;
    if (!script->heap->ops->locate(script->cache[cache], object, &place))
        return script_fail(script, SQ_E_CORRUPTION,
                           "the policy has what is no object of the cache");
    sq_json_open_array(script->json, NULL);
    sq_json_unsigned(script->json, NULL, place.serial);
    sq_json_unsigned(script->json, NULL, place.index);
    if (with_node)
        sq_json_unsigned(script->json, NULL, place.node);
    sq_json_close(script->json);
    return SQ_OK;
}

static int print_objects(struct script *script, uint32_t cache, const char *key,
                         void *const *objects, size_t count, bool with_node)
{
    int status = SQ_OK;
    sq_json_open_array(script->json, key);
    for (size_t i = 0; i < count && status == SQ_OK; i++)
        status = print_object(script, cache, objects[i], with_node);
    sq_json_close(script->json);
    return status;
}

/* The words `C CPU` of a line; `cpu` is entered. */
static int enter(struct script *script, uint32_t *cache, sq_cpu **cpu)
{
    uint32_t cpu_index;
    int status = script_word_cache(script, 1, cache);
    if (status == SQ_OK)
        status = script_word_cpu(script, 2, &cpu_index);
    if (status == SQ_OK)
        *cpu = script->machine->ops->cpu_enter(script->machine, cpu_index);
    return status;
}

/* The end of a line: the state after it, its events. Leaves the CPU. */
static void finish(struct script *script, uint32_t cache, sq_cpu *cpu)
{
    print_after(script, cpu, cache);
    script->machine->ops->cpu_leave(cpu);
    script_print_events(script);
    script_close(script);
}

/* ---- bulk calls ---- */

/* ab C CPU N */
static int command_alloc_bulk(struct script *script, const char *command)
{
    uint32_t cache;
    int64_t count;
    void **objects;
    size_t got;
    sq_cpu *cpu;
    int status = script_word(script, 3, "N", 1, BULK_MAX, &count);
    if (status == SQ_OK)
        status = enter(script, &cache, &cpu);
    if (status != SQ_OK)
        return status;
    script->step = 0;
    script_open_op(script, command, "alloc_bulk", cache, cpu->index);
    objects = calloc((size_t)count, sizeof(*objects));
    got = objects == NULL ? 0
                          : script->heap->ops->alloc_bulk(cpu, script->cache[cache], 0,
                                                          (size_t)count, objects);
    sq_json_unsigned(script->json, "ret", got);
    sq_json_unsigned(script->json, "first_id", script->object_count);
    status = print_objects(script, cache, "objs", objects, got, false);
    for (size_t i = 0; i < got && status == SQ_OK; i++)
        status = script_add_object(script, cache, objects[i]);
    free(objects);
    finish(script, cache, cpu);
    return status;
}

/* The objects of the ids of the line, which are printed and no longer live. */
static int take_objects(struct script *script, uint32_t cache, void **objects,
                        size_t *count)
{
    int64_t id = 0, last = 0;
    bool in_range = false;
    int more = 1, status = SQ_OK;
    *count = 0;
    sq_json_open_array(script->json, "ids");
    while (status == SQ_OK &&
           (more = script_next_id(script, &id, &last, &in_range)) == 1) {
        struct script_object *object;
        status = script_live_object(script, cache, id, &object);
        if (status != SQ_OK)
            break;
        object->live = false;
        objects[(*count)++] = object->address;
        sq_json_integer(script->json, NULL, id);
    }
    sq_json_close(script->json);
    return more < 0 ? more : status;
}

/* fb C CPU IDS */
static int command_free_bulk(struct script *script, const char *command)
{
    void **objects = calloc(script->object_count + 1, sizeof(*objects));
    uint32_t cache;
    size_t count;
    sq_cpu *cpu;
    int status;
    if (objects == NULL)
        return script_fail(script, SQ_E_MEMORY, "the host has no memory");
    status = enter(script, &cache, &cpu);
    if (status != SQ_OK) {
        free(objects);
        return status;
    }
    script->step = 0;
    script_open_op(script, command, "free_bulk", cache, cpu->index);
    status = take_objects(script, cache, objects, &count);
    if (status == SQ_OK)
        status = print_objects(script, cache, "objs", objects, count, true);
    if (status == SQ_OK && count > 0)
        script->heap->ops->free_bulk(cpu, script->cache[cache], count, objects);
    free(objects);
    finish(script, cache, cpu);
    return status;
}

/* ---- sheaves ---- */

/* The sheaf of word 3 of the line, which must be of the cache and not returned. */
static int held_handle(struct script *script, uint32_t cache,
                       struct script_handle **handle)
{
    int64_t number;
    int status = script_word(script, 3, "H", 0, UINT32_MAX, &number);
    if (status != SQ_OK)
        return status;
    if ((uint64_t)number >= script->handle_count)
        return script_bad_number(script, "the sheaf", number,
                                 (int64_t)script->handle_count - 1);
    *handle = &script->handle[number];
    if ((*handle)->sheaf == NULL || (*handle)->cache != cache)
        return sq_error_set(
            script->error, SQ_E_PARAMETER, "script line %u: sheaf %lld %s",
            script->line_number, (long long)number,
            (*handle)->sheaf == NULL ? "is not held" : "is of another cache");
    return SQ_OK;
}

static int print_sheaf(struct script *script, const struct script_handle *handle)
{
    const struct sq_sheaf *sheaf = handle->sheaf;
    sq_json_integer(script->json, "handle", handle - script->handle);
    if (sheaf == NULL) {
        sq_json_null(script->json, "sheaf");
        return SQ_OK;
    }
    sq_json_unsigned(script->json, "capacity", sheaf->capacity);
    return print_objects(script, handle->cache, "sheaf", sheaf->object, sheaf->size,
                         false);
}

/* sp C CPU N */
static int command_prefill(struct script *script, const char *command)
{
    uint32_t cache;
    int64_t count;
    struct sq_sheaf *sheaf;
    sq_cpu *cpu;
    int status = script_word(script, 3, "N", 0, BULK_MAX, &count);
    if (status == SQ_OK)
        status = enter(script, &cache, &cpu);
    if (status != SQ_OK)
        return status;
    script->step = 0;
    script_open_op(script, command, "prefill", cache, cpu->index);
    sheaf =
        script->heap->ops->sheaf_prefill(cpu, script->cache[cache], 0, (uint32_t)count);
    status = script_add_handle(script, cache, sheaf);
    if (status == SQ_OK)
        status = print_sheaf(script, &script->handle[script->handle_count - 1]);
    finish(script, cache, cpu);
    return status;
}

/* Objects out of a sheaf, until it is empty: printed, and live from then on. */
static int take_from_sheaf(struct script *script, sq_cpu *cpu,
                           const struct script_handle *handle, int64_t count,
                           int64_t *got)
{
    const sq_policy_ops *ops = script->heap->ops;
    sq_cache *cache = script->cache[handle->cache];
    int status = SQ_OK;
    sq_json_open_array(script->json, "objs");
    for (*got = 0; *got < count && status == SQ_OK; ++*got) {
        void *object = ops->sheaf_alloc(cpu, cache, handle->sheaf);
        if (object == NULL)
            break;
        status = print_object(script, handle->cache, object, false);
        if (status == SQ_OK)
            status = script_add_object(script, handle->cache, object);
    }
    sq_json_close(script->json);
    return status;
}

/* sa C CPU H N */
static int command_from_sheaf(struct script *script, const char *command)
{
    struct script_handle *handle;
    uint32_t cache;
    int64_t count, got;
    sq_cpu *cpu;
    int status = script_word_cache(script, 1, &cache);
    if (status == SQ_OK)
        status = held_handle(script, cache, &handle);
    if (status == SQ_OK)
        status = script_word(script, 4, "N", 0, BULK_MAX, &count);
    if (status == SQ_OK)
        status = enter(script, &cache, &cpu);
    if (status != SQ_OK)
        return status;
    script->step = 0;
    script_open_op(script, command, "from_sheaf", cache, cpu->index);
    sq_json_unsigned(script->json, "first_id", script->object_count);
    status = take_from_sheaf(script, cpu, handle, count, &got);
    sq_json_integer(script->json, "got", got);
    if (status == SQ_OK)
        status = print_sheaf(script, handle);
    finish(script, cache, cpu);
    return status;
}

/* sr C CPU H N */
static int command_refill(struct script *script, const char *command)
{
    struct script_handle *handle;
    uint32_t cache;
    int64_t count;
    sq_cpu *cpu;
    int status = script_word_cache(script, 1, &cache);
    if (status == SQ_OK)
        status = held_handle(script, cache, &handle);
    if (status == SQ_OK)
        status = script_word(script, 4, "N", 0, BULK_MAX, &count);
    if (status == SQ_OK)
        status = enter(script, &cache, &cpu);
    if (status != SQ_OK)
        return status;
    script->step = 0;
    script_open_op(script, command, "refill", cache, cpu->index);
    status = script->heap->ops->sheaf_refill(cpu, script->cache[cache], 0,
                                             &handle->sheaf, (uint32_t)count);
    sq_json_integer(script->json, "ret", status == SQ_OK ? 0 : ERRNO_ENOMEM);
    status = print_sheaf(script, handle);
    finish(script, cache, cpu);
    return status;
}

/* st C CPU H */
static int command_return(struct script *script, const char *command)
{
    struct script_handle *handle;
    uint32_t cache;
    sq_cpu *cpu;
    int status = script_word_cache(script, 1, &cache);
    if (status == SQ_OK)
        status = held_handle(script, cache, &handle);
    if (status == SQ_OK)
        status = enter(script, &cache, &cpu);
    if (status != SQ_OK)
        return status;
    script->step = 0;
    script_open_op(script, command, "return", cache, cpu->index);
    script->heap->ops->sheaf_return(cpu, script->cache[cache], 0, handle->sheaf);
    handle->sheaf = NULL;
    status = print_sheaf(script, handle);
    finish(script, cache, cpu);
    return status;
}

/* ---- the table ---- */

bool script_bulk_command(struct script *script, const char *line, int *status)
{
    static const struct {
        const char *name;
        int (*run)(struct script *script, const char *command);
        bool needs_sheaves;
    } commands[] = {{"ab", command_alloc_bulk, false}, {"fb", command_free_bulk, false},
                    {"sp", command_prefill, true},     {"sa", command_from_sheaf, true},
                    {"sr", command_refill, true},      {"st", command_return, true}};
    for (size_t i = 0; i < SQ_ARRAY_COUNT(commands); i++) {
        if (strcmp(script->word[0], commands[i].name) != 0)
            continue;
        if (commands[i].needs_sheaves && script->heap->ops->sheaf_prefill == NULL)
            *status = sq_error_set(script->error, SQ_E_PARAMETER,
                                   "script line %u: %s: policy %s fills no sheaves: "
                                   "accepted with slub and sheaves",
                                   script->line_number, commands[i].name,
                                   script->heap->ops->name);
        else
            *status = commands[i].run(script, line);
        return true;
    }
    return false;
}
