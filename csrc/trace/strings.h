/*
 * A table of interned strings: each distinct text is kept once and has a dense id.
 *
 * A trace names the same few call sites, caches and tasks in every line, so an event
 * keeps ids of 16 or 32 bits. The texts lie one after another in `text`; string i ends
 * at `ends[i]` and begins where string i - 1 ends. `slots` is an open-addressed index
 * by hash that holds id + 1, and 0 where it is empty.
 *
 *   count <= slot_count / 2        (always: a probe ends soon)
 */
#ifndef SQ_STRINGS_H
#define SQ_STRINGS_H

#include <stddef.h>
#include <stdint.h>

#define SQ_STRING_NONE UINT32_MAX

struct sq_strings {
    uint32_t count, capacity;
    uint32_t *ends;   /* [capacity] offset in `text` behind each string */
    uint32_t *hashes; /* [capacity] */
    char *text;
    size_t text_capacity;
    uint32_t *slots; /* [slot_count] id + 1, or 0 */
    uint32_t slot_count;
};

/* An empty table is all zeros; this makes it so. */
void sq_strings_init(struct sq_strings *strings);
void sq_strings_free(struct sq_strings *strings);

/* The id of the text, a new one if it was not there. 0 or SQ_E_MEMORY. */
int sq_strings_intern(struct sq_strings *strings, const char *text, size_t length,
                      uint32_t *id);

/* The text of string `id` (not NUL-terminated) and its length. Requires id < count. */
const char *sq_strings_get(const struct sq_strings *strings, uint32_t id,
                           size_t *length);

/* Bytes of all texts together. */
size_t sq_strings_text_size(const struct sq_strings *strings);

#endif
