/*
 * A map from a pointer of the trace to a number, open-addressed. Nothing is ever taken
 * out: addresses come back all the time, so whoever wants a pointer gone stores a value
 * that says so.
 *
 *   count <= slot_count / 2        (always: a probe ends soon)
 */
#ifndef SQ_TRACE_POINTERS_H
#define SQ_TRACE_POINTERS_H

#include <stdint.h>
#include <stdlib.h>

#include "base/sq_error.h"

#define SQ_POINTERS_NONE UINT32_MAX

struct sq_pointer_slot {
    uint64_t pointer;
    uint32_t value;
    uint32_t used;
};

struct sq_pointers {
    struct sq_pointer_slot *slots;
    uint64_t slot_count, count;
};

/* The slot of `pointer`, or the empty one where it belongs. Requires slots. */
static inline struct sq_pointer_slot *sq_pointers_probe(const struct sq_pointers *map,
                                                        uint64_t pointer)
{
    uint64_t mask = map->slot_count - 1;
    uint64_t at = (pointer * 0x9e3779b97f4a7c15u) >> 20;
    for (;; at++) {
        struct sq_pointer_slot *slot = &map->slots[at & mask];
        if (!slot->used || slot->pointer == pointer)
            return slot;
    }
}

/* The slot of a known pointer, or NULL. */
static inline struct sq_pointer_slot *sq_pointers_find(const struct sq_pointers *map,
                                                       uint64_t pointer)
{
    if (map->slot_count == 0)
        return NULL;
    struct sq_pointer_slot *slot = sq_pointers_probe(map, pointer);
    return slot->used ? slot : NULL;
}

static inline int sq_pointers_grow(struct sq_pointers *map)
{
    struct sq_pointers old = *map;
    map->slot_count = old.slot_count == 0 ? 1024 : 2 * old.slot_count;
    map->slots = calloc(map->slot_count, sizeof(*map->slots));
    if (map->slots == NULL) {
        *map = old;
        return SQ_E_MEMORY;
    }
    for (uint64_t i = 0; i < old.slot_count; i++) {
        if (old.slots[i].used)
            *sq_pointers_probe(map, old.slots[i].pointer) = old.slots[i];
    }
    free(old.slots);
    return 0;
}

/* The slot of `pointer`, entered with the value SQ_POINTERS_NONE if it was not there.
 * NULL without memory. Valid until the next call. */
static inline struct sq_pointer_slot *sq_pointers_enter(struct sq_pointers *map,
                                                        uint64_t pointer)
{
    if (2 * (map->count + 1) > map->slot_count && sq_pointers_grow(map) < 0)
        return NULL;
    struct sq_pointer_slot *slot = sq_pointers_probe(map, pointer);
    if (!slot->used) {
        *slot = (struct sq_pointer_slot){pointer, SQ_POINTERS_NONE, 1};
        map->count++;
    }
    return slot;
}

static inline void sq_pointers_free(struct sq_pointers *map)
{
    free(map->slots);
    *map = (struct sq_pointers){0};
}

#endif
