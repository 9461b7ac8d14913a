#include "experiment/script_state.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors ---- */

int script_fail(struct script *script, int code, const char *what)
{
    return sq_error_set(script->error, code, "script line %u: %s", script->line_number,
                        what);
}

int script_bad_number(struct script *script, const char *name, int64_t value,
                             int64_t max)
{
    if (max < 0)
        return sq_error_set(script->error, SQ_E_PARAMETER,
                            "script line %u: %s is %lld: there is none yet",
                            script->line_number, name, (long long)value);
    return sq_error_set(script->error, SQ_E_PARAMETER,
                        "script line %u: %s is %lld: accepted are 0 to %lld",
                        script->line_number, name, (long long)value, (long long)max);
}

/* ---- the words of a line ---- */

static int script_integer(struct script *script, const char *text, int64_t *value)
{
    char *end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno == ERANGE)
        return sq_error_set(script->error, SQ_E_PARAMETER,
                            "script line %u: %.40s: accepted is a whole number of at "
                            "most 18 digits",
                            script->line_number, text);
    return SQ_OK;
}

/* Word `index` as an integer from `min` to `max`. */
int script_word(struct script *script, uint32_t index, const char *name,
                       int64_t min, int64_t max, int64_t *value)
{
    int status;
    if (index >= script->word_count)
        return sq_error_set(script->error, SQ_E_PARAMETER,
                            "script line %u: %s needs a value for %s",
                            script->line_number, script->word[0], name);
    status = script_integer(script, script->word[index], value);
    if (status == SQ_OK && (*value < min || *value > max))
        status = sq_error_set(script->error, SQ_E_PARAMETER,
                              "script line %u: %s is %lld: accepted are %lld to %lld",
                              script->line_number, name, (long long)*value,
                              (long long)min, (long long)max);
    return status;
}

int script_word_cache(struct script *script, uint32_t index, uint32_t *cache)
{
    int64_t value = 0;
    int status = script_word(script, index, "the cache", 0, SCRIPT_CACHE_MAX - 1, &value);
    if (status == SQ_OK && (uint64_t)value >= script->cache_count)
        status = script_bad_number(script, "the cache", value,
                                   (int64_t)script->cache_count - 1);
    *cache = (uint32_t)value;
    return status;
}

int script_word_cpu(struct script *script, uint32_t index, uint32_t *cpu)
{
    int64_t value = 0;
    int status = script_word(script, index, "the CPU", 0,
                             script->machine->topology.cpu_count - 1, &value);
    *cpu = (uint32_t)value;
    return status;
}

/* ---- events and objects ---- */

static bool script_grow(void **items, size_t *capacity, size_t count, size_t item_bytes)
{
    if (count >= *capacity) {
        size_t larger = *capacity * 2 + 256;
        void *memory = realloc(*items, larger * item_bytes);
        if (memory == NULL)
            return false;
        *items = memory;
        *capacity = larger;
    }
    return true;
}

static void script_note_event(void *argument, sq_cpu *cpu, sq_cache *cache,
                              struct sq_page *page, bool is_new)
{
    struct script *script = argument;
    struct script_event *event;
    uint32_t index = 0;
    while (index < script->cache_count && script->cache[index] != cache)
        index++;
    if (index == script->cache_count)
        return; /* a kmalloc cache of the heap */
    if (!script_grow((void **)&script->event, &script->event_capacity,
                     script->event_count, sizeof(*event))) {
        script->out_of_memory = true;
        return;
    }
    event = &script->event[script->event_count++];
    event->is_new = is_new;
    event->step = script->step_is_cpu ? (int32_t)cpu->index : script->step;
    event->cache = index;
    event->serial = page->serial;
    event->node = page->node;
    event->order = page->order;
}

static bool script_slab_was_freed(const struct script *script, size_t since,
                                  uint32_t cache, uint32_t serial)
{
    for (size_t i = since; i < script->event_count; i++)
        if (!script->event[i].is_new && script->event[i].cache == cache &&
            script->event[i].serial == serial)
            return true;
    return false;
}

void script_print_events(struct script *script)
{
    struct sq_json *json = script->json;
    sq_json_open_array(json, "ev");
    for (size_t i = 0; i < script->event_count; i++) {
        const struct script_event *event = &script->event[i];
        sq_json_open_array(json, NULL);
        sq_json_string(json, NULL, event->is_new ? "new" : "free");
        sq_json_integer(json, NULL, event->step);
        sq_json_unsigned(json, NULL, event->cache);
        sq_json_unsigned(json, NULL, event->serial);
        sq_json_unsigned(json, NULL, event->node);
        sq_json_unsigned(json, NULL, event->order);
        sq_json_close(json);
    }
    sq_json_close(json);
    script->event_count = 0;
}

int script_add_object(struct script *script, uint32_t cache, void *address)
{
    struct script_object *object;
    if (script->object_count >= SCRIPT_ID_MAX ||
        !script_grow((void **)&script->object, &script->object_capacity,
                     script->object_count, sizeof(*object)))
        return script_fail(script, SQ_E_MEMORY, "too many objects for the host");
    object = &script->object[script->object_count++];
    object->address = address;
    object->cache = cache;
    object->live = true;
    return SQ_OK;
}

int script_add_handle(struct script *script, uint32_t cache, struct sq_sheaf *sheaf)
{
    struct script_handle *handle;
    if (!script_grow((void **)&script->handle, &script->handle_capacity,
                     script->handle_count, sizeof(*handle)))
        return script_fail(script, SQ_E_MEMORY, "too many sheaves for the host");
    handle = &script->handle[script->handle_count];
    handle->sheaf = sheaf;
    handle->cache = cache;
    if (sheaf != NULL)
        sheaf->handle = (uint32_t)script->handle_count;
    script->handle_count++;
    return SQ_OK;
}

int script_live_object(struct script *script, uint32_t cache, int64_t id,
                       struct script_object **object)
{
    if (id < 0 || (uint64_t)id >= script->object_count)
        return script_bad_number(script, "the id", id,
                                 (int64_t)script->object_count - 1);
    *object = &script->object[id];
    if (!(*object)->live || (*object)->cache != cache)
        return sq_error_set(script->error, SQ_E_PARAMETER,
                            "script line %u: object %lld %s", script->line_number,
                            (long long)id,
                            (*object)->live ? "is of another cache"
                                            : "is freed already");
    return SQ_OK;
}

int script_next_id(struct script *script, int64_t *id, int64_t *last, bool *in_range)
{
    char *end;
    if (*in_range && *id != *last) {
        *id += *id < *last ? 1 : -1;
        return 1;
    }
    *in_range = false;
    while (isspace((unsigned char)*script->rest))
        script->rest++;
    if (*script->rest == '\0')
        return 0;
    *id = strtoll(script->rest, &end, 10);
    if (end == script->rest)
        return script_fail(script, SQ_E_PARAMETER, "accepted are ids and ranges of ids");
    if (*end == '-') {
        const char *second = end + 1;
        *last = strtoll(second, &end, 10);
        if (end == second)
            return script_fail(script, SQ_E_PARAMETER, "a range of ids is like 5-9");
        for (uint32_t i = 0; i < 2; i++) { /* no range longer than all there are */
            int64_t edge = i == 0 ? *id : *last;
            if (edge < 0 || (uint64_t)edge >= script->object_count)
                return script_bad_number(script, "the id", edge,
                                         (int64_t)script->object_count - 1);
        }
        *in_range = true;
    }
    script->rest = end;
    return 1;
}

/* ---- printing ---- */

/* Open the line's object and print the command as the recordings show it. */
void script_open(struct script *script, const char *command)
{
    size_t length = strlen(command);
    char shown[SCRIPT_COMMAND_SHOWN + 1];
    sq_json_open_object(script->json, NULL);
    if (script->style == SQ_SCRIPT_KERNEL && length > SCRIPT_COMMAND_SHOWN) {
        (void)snprintf(shown, sizeof(shown), "%.*s...", (int)SCRIPT_COMMAND_SHOWN - 3, command);
        command = shown;
    }
    sq_json_string(script->json, "cmd", command);
}

void script_open_op(struct script *script, const char *command, const char *op,
                           uint32_t cache, uint32_t cpu)
{
    script_open(script, command);
    sq_json_string(script->json, "op", op);
    sq_json_unsigned(script->json, "cache", cache);
    sq_json_unsigned(script->json, "cpu", cpu);
}

void script_close(struct script *script)
{
    sq_json_close(script->json);
    sq_json_newline(script->json);
}

/* An integer member of what the policy says of a cache; false if there is none. */
bool script_describe_member(sq_cache *cache, const char *name, int64_t *value)
{
    struct sq_json json;
    char key[80];
    const char *text, *found;
    sq_json_init(&json);
    sq_json_open_object(&json, NULL);
    cache->ops->describe(cache, &json);
    if (cache->ops->tunables != NULL)
        cache->ops->tunables(cache, &json);
    sq_json_close(&json);
    text = sq_json_text(&json);
    (void)snprintf(key, sizeof(key), "\"%s\":", name);
    found = text == NULL ? NULL : strstr(text, key);
    if (found != NULL)
        *value = strtoll(found + strlen(key), NULL, 10);
    sq_json_free(&json);
    return found != NULL;
}

/* [slab, idx, further columns when stepping] of one object after its operation. */
void script_print_place(struct script *script, sq_cpu *cpu, uint32_t cache_index,
                               const struct sq_object_place *place, size_t events_before)
{
    sq_cache *cache = script->cache[cache_index];
    bool is_free =
        script_slab_was_freed(script, events_before, cache_index, place->serial);
    sq_json_open_array(script->json, NULL);
    sq_json_unsigned(script->json, NULL, place->serial);
    sq_json_unsigned(script->json, NULL, place->index);
    if (script->with_rows)
        cache->ops->row(cpu, cache, place, is_free, script->json);
    sq_json_close(script->json);
}

/* ---- lines ---- */

/* Cut `line` (a copy that may be changed) into its first words; `f` and `fb` keep their
 * ids whole, since there may be thousands. */
static void script_split(struct script *script, char *line)
{
    uint32_t limit = SQ_ARRAY_COUNT(script->word);
    script->word_count = 0;
    while (script->word_count < limit) {
        while (isspace((unsigned char)*line))
            line++;
        if (*line == '\0')
            break;
        script->word[script->word_count++] = line;
        while (*line != '\0' && !isspace((unsigned char)*line))
            line++;
        if (*line != '\0')
            *line++ = '\0';
        if (script->word_count == 3 && (strcmp(script->word[0], "f") == 0 ||
                                        strcmp(script->word[0], "fb") == 0))
            break;
    }
    script->rest = line;
}

static int script_line(struct script *script, const char *start, size_t length)
{
    char *line, *words;
    int status = SQ_OK;
    while (length > 0 && isspace((unsigned char)start[length - 1]))
        length--;
    line = strndup(start, length);
    words = strndup(start, length);
    if (line == NULL || words == NULL) {
        status = script_fail(script, SQ_E_MEMORY, "the host has no memory");
    } else if (line[0] == '#') {
        sq_json_open_object(script->json, NULL);
        sq_json_string(script->json, "note", line);
        script_close(script);
    } else {
        script_split(script, words);
        if (script->word_count > 0)
            status = script_command(script, line);
    }
    if (status == SQ_OK && script->out_of_memory)
        status = script_fail(script, SQ_E_MEMORY, "the host has no memory for events");
    free(line);
    free(words);
    return status;
}

static int script_lines(struct script *script, const char *text)
{
    int status = SQ_OK;
    while (*text != '\0' && status == SQ_OK) {
        size_t length = strcspn(text, "\n");
        script->line_number++;
        status = script_line(script, text, length);
        text += length;
        if (*text == '\n')
            text++;
    }
    return status;
}

int sq_script_run(sq_machine *machine, const sq_policy_ops *ops,
                  const struct sq_options *options, enum sq_script_style style,
                  const char *text, struct sq_json *json, struct sq_error *error)
{
    struct script script = {.machine = machine, .json = json, .error = error};
    sq_cpu *cpu = machine->ops->cpu_enter(machine, 0);
    int status = sq_heap_create(cpu, ops, options, &script.heap, error);
    machine->ops->cpu_leave(cpu);
    if (status != SQ_OK)
        return status;
    script.style = style;
    script.heap->merges = false; /* as in the recordings */
    script.heap->slab_event = script_note_event;
    script.heap->slab_event_argument = &script;
    status = script_lines(&script, text);
    script.heap->slab_event = NULL;
    cpu = machine->ops->cpu_enter(machine, 0);
    sq_heap_destroy(cpu, script.heap);
    machine->ops->cpu_leave(cpu);
    free(script.object);
    free(script.handle);
    free(script.event);
    return status;
}
