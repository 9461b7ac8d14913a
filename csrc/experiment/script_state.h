/*
 * A running script: what the engine (script.c) and the commands (script_commands.c) share.
 * Private to the two.
 */
#ifndef SQ_SCRIPT_STATE_H
#define SQ_SCRIPT_STATE_H

#include "experiment/script.h"

#define SCRIPT_CACHE_MAX     64u
#define SCRIPT_COMMAND_SHOWN 60u /* characters of a command that a kernel recording shows */
#define SCRIPT_ID_MAX        (1u << 24)

/* An object that the script knows by its number. */
struct script_object {
    void *address;
    uint32_t cache;
    bool live;
};

/* A prefilled sheaf that the script knows by its number. */
struct script_handle {
    struct sq_sheaf *sheaf; /* NULL when it was returned, or could not be had */
    uint32_t cache;
};

struct script_event {
    bool is_new;
    int32_t step;
    uint32_t cache, serial, node, order;
};

struct script {
    sq_machine *machine;
    sq_heap *heap;
    struct sq_json *json;
    struct sq_error *error;
    enum sq_script_style style;
    bool with_rows; /* `step 1` */
    uint32_t line_number;
    sq_cache *cache[SCRIPT_CACHE_MAX];
    uint32_t cache_count;
    struct script_object *object;
    size_t object_count, object_capacity;
    struct script_handle *handle;
    size_t handle_count, handle_capacity;
    struct script_event *event;
    size_t event_count, event_capacity;
    int32_t step;      /* of events to come */
    bool step_is_cpu;  /* events name the CPU that runs, not a position */
    bool out_of_memory;
    /* the line being run, cut into words */
    char *word[8];
    uint32_t word_count;
    const char *rest; /* of the line, after the words that a command takes */
};

/* ---- script.c ---- */

int script_fail(struct script *script, int code, const char *what);
int script_bad_number(struct script *script, const char *name, int64_t value,
                             int64_t max);
/* Word `index` as an integer from `min` to `max`. */
int script_word(struct script *script, uint32_t index, const char *name,
                       int64_t min, int64_t max, int64_t *value);
int script_word_cache(struct script *script, uint32_t index, uint32_t *cache);
int script_word_cpu(struct script *script, uint32_t index, uint32_t *cpu);
void script_print_events(struct script *script);
int script_add_object(struct script *script, uint32_t cache, void *address);
/* Open the line's object and print the command as the recordings show it. */
void script_open(struct script *script, const char *command);
void script_open_op(struct script *script, const char *command, const char *op,
                           uint32_t cache, uint32_t cpu);
void script_close(struct script *script);
/* An integer member of what the policy says of a cache; false if there is none. */
bool script_describe_member(sq_cache *cache, const char *name, int64_t *value);
/* [slab, idx, further columns when stepping] of one object after its operation. */
void script_print_place(struct script *script, sq_cpu *cpu, uint32_t cache_index,
                               const struct sq_object_place *place, size_t events_before);

/* The ids of a line, `5-9` and `9-5` being ranges, one at a time: 1, 0 at the end of the
 * line, or an error. */
int script_next_id(struct script *script, int64_t *id, int64_t *last, bool *in_range);
/* The live object of that id, which must be of that cache. */
int script_live_object(struct script *script, uint32_t cache, int64_t id,
                       struct script_object **object);
int script_add_handle(struct script *script, uint32_t cache, struct sq_sheaf *sheaf);

/* ---- script_bulk.c ---- */

/* Run the line if it is a bulk or sheaf command; false if it is none. */
bool script_bulk_command(struct script *script, const char *line, int *status);

/* ---- script_tune.c ---- */

/* The same for commands that change tunables, expire queues or reap. */
bool script_tune_command(struct script *script, const char *line, int *status);

/* ---- script_commands.c ---- */

/* Run the command of the current line; `line` is its whole text. */
int script_command(struct script *script, const char *line);

#endif
