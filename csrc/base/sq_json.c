#include "base/sq_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sq_assert.h"

void sq_json_init(struct sq_json *json)
{
    memset(json, 0, sizeof(*json));
}

void sq_json_free(struct sq_json *json)
{
    free(json->text);
    sq_json_init(json);
}

void sq_json_clear(struct sq_json *json)
{
    json->length = 0;
    json->depth = 0;
    json->failed = false;
    json->has_items[0] = false;
}

static bool json_reserve(struct sq_json *json, size_t more)
{
    if (json->failed)
        return false;
    if (json->length + more + 1 > json->capacity) {
        size_t capacity = json->capacity * 2 + more + 256;
        char *text = realloc(json->text, capacity);
        if (text == NULL) {
            json->failed = true;
            return false;
        }
        json->text = text;
        json->capacity = capacity;
    }
    return true;
}

static void json_put(struct sq_json *json, const char *bytes, size_t length)
{
    if (json_reserve(json, length)) {
        memcpy(json->text + json->length, bytes, length);
        json->length += length;
    }
}

static void json_put_char(struct sq_json *json, char byte)
{
    json_put(json, &byte, 1);
}

const char *sq_json_text(struct sq_json *json)
{
    SQ_ASSERT(json->failed || json->depth == 0);
    if (!json_reserve(json, 0))
        return NULL;
    json->text[json->length] = '\0';
    return json->text;
}

/* Length of the valid UTF-8 sequence at `text`, 0 if there is none. */
static size_t json_utf8_length(const unsigned char *text, size_t available)
{
    static const unsigned char lead[] = {0xC0, 0xE0, 0xF0};
    static const unsigned char mask[] = {0xE0, 0xF0, 0xF8};
    if (text[0] < 0x80)
        return 1;
    for (size_t extra = 1; extra <= 3; extra++) {
        if ((text[0] & mask[extra - 1]) != lead[extra - 1])
            continue;
        if (available <= extra || (extra == 1 && text[0] < 0xC2) || text[0] > 0xF4 ||
            (text[0] == 0xE0 && text[1] < 0xA0) || (text[0] == 0xED && text[1] > 0x9F) ||
            (text[0] == 0xF0 && text[1] < 0x90) || (text[0] == 0xF4 && text[1] > 0x8F))
            return 0;
        for (size_t i = 1; i <= extra; i++)
            if ((text[i] & 0xC0) != 0x80)
                return 0;
        return extra + 1;
    }
    return 0;
}

static void json_put_quoted(struct sq_json *json, const char *value, size_t length)
{
    json_put_char(json, '"');
    for (size_t i = 0; i < length;) {
        unsigned char byte = (unsigned char)value[i];
        size_t run = json_utf8_length((const unsigned char *)value + i, length - i);
        if (byte == '"' || byte == '\\') {
            json_put_char(json, '\\');
            json_put_char(json, (char)byte);
        } else if (byte < 0x20 || byte == 0x7F || run == 0) {
            char escape[8];
            (void)snprintf(escape, sizeof(escape), "\\u%04x", byte);
            json_put(json, escape, 6);
        } else {
            json_put(json, value + i, run);
        }
        i += run == 0 ? 1 : run;
    }
    json_put_char(json, '"');
}

static void json_begin_value(struct sq_json *json, const char *key)
{
    if (json->depth > 0 && json->has_items[json->depth])
        json_put_char(json, ',');
    json->has_items[json->depth] = true;
    if (key != NULL) {
        json_put_quoted(json, key, strlen(key));
        json_put_char(json, ':');
    }
}

static void json_open(struct sq_json *json, const char *key, char opener, char closer)
{
    json_begin_value(json, key);
    json_put_char(json, opener);
    SQ_ASSERT(json->depth + 1 < SQ_JSON_DEPTH_MAX);
    json->depth++;
    json->has_items[json->depth] = false;
    json->closer[json->depth] = closer;
}

void sq_json_open_object(struct sq_json *json, const char *key)
{
    json_open(json, key, '{', '}');
}

void sq_json_open_array(struct sq_json *json, const char *key)
{
    json_open(json, key, '[', ']');
}

void sq_json_close(struct sq_json *json)
{
    SQ_ASSERT(json->depth > 0);
    json_put_char(json, json->closer[json->depth]);
    json->depth--;
}

void sq_json_integer(struct sq_json *json, const char *key, int64_t value)
{
    char digits[24];
    int length = snprintf(digits, sizeof(digits), "%" PRId64, value);
    json_begin_value(json, key);
    json_put(json, digits, (size_t)length);
}

void sq_json_unsigned(struct sq_json *json, const char *key, uint64_t value)
{
    char digits[24];
    int length = snprintf(digits, sizeof(digits), "%" PRIu64, value);
    json_begin_value(json, key);
    json_put(json, digits, (size_t)length);
}

void sq_json_real(struct sq_json *json, const char *key, double value)
{
    char digits[40];
    int length;
    if (!isfinite(value)) {
        sq_json_null(json, key);
        return;
    }
    length = snprintf(digits, sizeof(digits), "%.17g", value);
    json_begin_value(json, key);
    json_put(json, digits, (size_t)length);
}

void sq_json_boolean(struct sq_json *json, const char *key, bool value)
{
    json_begin_value(json, key);
    json_put(json, value ? "true" : "false", value ? 4 : 5);
}

void sq_json_null(struct sq_json *json, const char *key)
{
    json_begin_value(json, key);
    json_put(json, "null", 4);
}

void sq_json_string(struct sq_json *json, const char *key, const char *value)
{
    if (value == NULL)
        sq_json_null(json, key);
    else
        sq_json_string_length(json, key, value, strlen(value));
}

void sq_json_string_length(struct sq_json *json, const char *key, const char *value,
                           size_t length)
{
    json_begin_value(json, key);
    json_put_quoted(json, value, length);
}

void sq_json_raw(struct sq_json *json, const char *key, const char *text)
{
    json_begin_value(json, key);
    json_put(json, text, strlen(text));
}

void sq_json_newline(struct sq_json *json)
{
    SQ_ASSERT(json->failed || json->depth == 0);
    json_put_char(json, '\n');
}
