/*
 * A JSON text builder: policies, experiments and readers describe themselves through it,
 * and the text leaves the core as one string. Commas are placed by the builder. A builder
 * that ran out of memory swallows further calls and sq_json_text() returns NULL.
 *
 *   sq_json_open_object(json, NULL);            {
 *   sq_json_integer(json, "cpu", 3);              "cpu":3,
 *   sq_json_open_array(json, "entries");          "entries":[
 *   sq_json_integer(json, NULL, 7);                 7
 *   sq_json_close(json);                          ]
 *   sq_json_close(json);                        }
 */
#ifndef SQ_JSON_H
#define SQ_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SQ_JSON_DEPTH_MAX 32

struct sq_json {
    char *text;
    size_t length, capacity;
    uint32_t depth;
    bool failed;
    bool has_items[SQ_JSON_DEPTH_MAX]; /* at each depth: is a comma needed? */
    char closer[SQ_JSON_DEPTH_MAX];    /* at each depth: ']' or '}' */
};

void sq_json_init(struct sq_json *json);
void sq_json_free(struct sq_json *json);
/* Forget the text, keep the memory. */
void sq_json_clear(struct sq_json *json);
/* The finished, NUL-terminated text, or NULL after a failure. Owned by the builder. */
const char *sq_json_text(struct sq_json *json);

/* `key` is NULL inside arrays and for the outermost value. */
void sq_json_open_object(struct sq_json *json, const char *key);
void sq_json_open_array(struct sq_json *json, const char *key);
void sq_json_close(struct sq_json *json);
void sq_json_integer(struct sq_json *json, const char *key, int64_t value);
void sq_json_unsigned(struct sq_json *json, const char *key, uint64_t value);
/* Prints `null` for a value that is not finite. */
void sq_json_real(struct sq_json *json, const char *key, double value);
void sq_json_boolean(struct sq_json *json, const char *key, bool value);
void sq_json_null(struct sq_json *json, const char *key);
/* `value` NULL prints null; control characters, quotes and bytes that are not UTF-8 are
 * escaped, so that the text is always valid JSON. */
void sq_json_string(struct sq_json *json, const char *key, const char *value);
void sq_json_string_length(struct sq_json *json, const char *key, const char *value,
                           size_t length);
/* An object member or element whose text is JSON already. */
void sq_json_raw(struct sq_json *json, const char *key, const char *text);
/* A line feed between documents; only at depth 0. */
void sq_json_newline(struct sq_json *json);

#endif
