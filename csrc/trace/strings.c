#include "trace/strings.h"

#include <stdlib.h>
#include <string.h>

#include "base/sq_assert.h"
#include "base/sq_error.h"

#define STRINGS_CAPACITY_FIRST 64
#define STRINGS_TEXT_FIRST     4096

void sq_strings_init(struct sq_strings *strings)
{
    memset(strings, 0, sizeof(*strings));
}

void sq_strings_free(struct sq_strings *strings)
{
    free(strings->ends);
    free(strings->hashes);
    free(strings->text);
    free(strings->slots);
    sq_strings_init(strings);
}

size_t sq_strings_text_size(const struct sq_strings *strings)
{
    return strings->count == 0 ? 0 : strings->ends[strings->count - 1];
}

const char *sq_strings_get(const struct sq_strings *strings, uint32_t id,
                           size_t *length)
{
    SQ_ASSERT(id < strings->count);
    uint32_t begin = id == 0 ? 0 : strings->ends[id - 1];
    *length = strings->ends[id] - begin;
    return strings->text + begin;
}

/* Eight bytes at a time, folded by a multiplication: names are short, and a weak hash
 * only costs a longer probe, since the texts are compared in the end. */
static uint32_t strings_hash(const char *text, size_t length)
{
    uint64_t hash = length * 0x9e3779b97f4a7c15u;
    uint64_t word;
    for (; length >= 8; text += 8, length -= 8) {
        memcpy(&word, text, 8);
        hash = (hash ^ word) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
    }
    word = 0;
    memcpy(&word, text, length);
    hash = (hash ^ word) * 0xff51afd7ed558ccdu;
    return (uint32_t)(hash >> 32);
}

/* Double the index and enter every string again. */
static int strings_index_grow(struct sq_strings *strings)
{
    uint32_t slot_count =
        strings->slot_count == 0 ? 2 * STRINGS_CAPACITY_FIRST : 2 * strings->slot_count;
    if (slot_count == 0)
        return SQ_E_MEMORY; /* more than 2^31 strings */
    uint32_t *slots = calloc(slot_count, sizeof(*slots));
    if (slots == NULL)
        return SQ_E_MEMORY;
    for (uint32_t id = 0; id < strings->count; id++) {
        uint32_t at = strings->hashes[id] & (slot_count - 1);
        while (slots[at] != 0)
            at = (at + 1) & (slot_count - 1);
        slots[at] = id + 1;
    }
    free(strings->slots);
    strings->slots = slots;
    strings->slot_count = slot_count;
    return 0;
}

/* Make room for one more string in the arrays beside the text. */
static int strings_arrays_grow(struct sq_strings *strings)
{
    uint32_t capacity =
        strings->capacity == 0 ? STRINGS_CAPACITY_FIRST : 2 * strings->capacity;
    uint32_t *ends = realloc(strings->ends, capacity * sizeof(*ends));
    if (ends == NULL)
        return SQ_E_MEMORY;
    strings->ends = ends;
    uint32_t *hashes = realloc(strings->hashes, capacity * sizeof(*hashes));
    if (hashes == NULL)
        return SQ_E_MEMORY;
    strings->hashes = hashes;
    strings->capacity = capacity;
    return 0;
}

/* Make room for `length` more bytes of text. */
static int strings_text_grow(struct sq_strings *strings, size_t length)
{
    size_t needed = sq_strings_text_size(strings) + length;
    if (needed > UINT32_MAX)
        return SQ_E_MEMORY;
    size_t capacity =
        strings->text_capacity == 0 ? STRINGS_TEXT_FIRST : strings->text_capacity;
    while (capacity < needed)
        capacity *= 2;
    char *text = realloc(strings->text, capacity);
    if (text == NULL)
        return SQ_E_MEMORY;
    strings->text = text;
    strings->text_capacity = capacity;
    return 0;
}

/* Enter a text that is not in the table yet. */
static int strings_add(struct sq_strings *strings, const char *text, size_t length,
                       uint32_t hash)
{
    size_t size = sq_strings_text_size(strings);
    if (strings->count == strings->capacity && strings_arrays_grow(strings) < 0)
        return SQ_E_MEMORY;
    if (size + length > strings->text_capacity &&
        strings_text_grow(strings, length) < 0)
        return SQ_E_MEMORY;
    if (2 * ((uint64_t)strings->count + 1) > strings->slot_count &&
        strings_index_grow(strings) < 0)
        return SQ_E_MEMORY;
    if (length > 0)
        memcpy(strings->text + size, text, length);
    uint32_t id = strings->count++;
    strings->ends[id] = (uint32_t)(size + length);
    strings->hashes[id] = hash;
    uint32_t at = hash & (strings->slot_count - 1);
    while (strings->slots[at] != 0)
        at = (at + 1) & (strings->slot_count - 1);
    strings->slots[at] = id + 1;
    return 0;
}

int sq_strings_intern(struct sq_strings *strings, const char *text, size_t length,
                      uint32_t *id)
{
    uint32_t hash = strings_hash(text, length);
    uint32_t mask = strings->slot_count - 1;
    if (strings->slot_count > 0) {
        for (uint32_t at = hash & mask; strings->slots[at] != 0; at = (at + 1) & mask) {
            uint32_t found = strings->slots[at] - 1;
            size_t found_length;
            if (strings->hashes[found] != hash)
                continue;
            const char *found_text = sq_strings_get(strings, found, &found_length);
            if (found_length == length && memcmp(found_text, text, length) == 0) {
                *id = found;
                return 0;
            }
        }
    }
    if (strings_add(strings, text, length, hash) < 0)
        return SQ_E_MEMORY;
    *id = strings->count - 1;
    return 0;
}
