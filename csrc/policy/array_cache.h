/*
 * array_cache.h -- a queue of objects: a CPU's own, a node's shared one, or the alien
 * array in which a node keeps objects of another node on their way home.
 *
 *   avail limit batchcount touched | oldest ........ newest |  room up to limit
 *                                    leave here      objects come and go here
 *
 * The header is 16 bytes, as in 4.19; in 2.6 every array carried an unused lock as
 * well. Who may change an array: a CPU's, that CPU; a shared one, who holds the node's
 * list lock; an alien one, who holds its own lock. `avail` of the latter two is also
 * read without their lock, as a hint, and therefore stored with array_set_avail.
 */
#ifndef SQ_ARRAY_CACHE_H
#define SQ_ARRAY_CACHE_H

#include <string.h>

#include "machine/machine.h"

/* The batchcount of shared and alien arrays is never used; the kernel poisons it. */
#define ARRAY_BATCH_POISON 0xbaadf00du

struct array_cache {
    uint32_t avail;
    uint32_t limit;      /* constant */
    uint32_t batchcount; /* constant */
    uint32_t touched;    /* used since the reaper last looked */
    void *entry[];
};

/* An array with a lock in front of it. */
struct alien_cache {
    sq_lock lock;
    void *array_follows[];
};

static inline struct array_cache *alien_array(struct alien_cache *alien)
{
    return (struct array_cache *)(void *)alien->array_follows;
}

static inline size_t array_bytes(uint32_t limit)
{
    return sizeof(struct array_cache) + limit * sizeof(void *);
}

static inline void array_init(struct array_cache *array, uint32_t limit, uint32_t batch)
{
    array->avail = 0;
    array->limit = limit;
    array->batchcount = batch;
    array->touched = 0;
}

static inline void array_set_avail(struct array_cache *array, uint32_t avail)
{
    __atomic_store_n(&array->avail, avail, __ATOMIC_RELAXED);
}

/* The reaper looks at this mark, and clears it, without the lock. */
static inline void array_set_touched(struct array_cache *array, uint32_t touched)
{
    __atomic_store_n(&array->touched, touched, __ATOMIC_RELAXED);
}

/* How many objects there are, asked without the lock: true a moment ago. */
static inline uint32_t array_peek_avail(sq_cpu *cpu, const struct array_cache *array)
{
    sq_touch_read(cpu, array, sizeof(*array));
    return __atomic_load_n(&array->avail, __ATOMIC_RELAXED);
}

/* Append `count` entries of `objects`. Requires room for them. */
static inline void array_append(sq_cpu *cpu, struct array_cache *array,
                                void *const *objects, uint32_t count)
{
    SQ_ASSERT_INTERNAL(count <= array->limit - array->avail);
    sq_touch_write(cpu, array, sizeof(*array));
    sq_touch_write(cpu, &array->entry[array->avail], count * sizeof(void *));
    memcpy(&array->entry[array->avail], objects, count * sizeof(void *));
    array_set_avail(array, array->avail + count);
}

/* Move the newest objects of `from`, at most `count` and what fits; returns how many.
 * The order is kept, so the newest of `from` is the newest of `to`. */
static inline uint32_t array_transfer(sq_cpu *cpu, struct array_cache *to,
                                      struct array_cache *from, uint32_t count)
{
    uint32_t room = to->limit - to->avail;
    sq_touch_read(cpu, from, sizeof(*from));
    count = count < from->avail ? count : from->avail;
    count = count < room ? count : room;
    if (count == 0)
        return 0;
    sq_touch_write(cpu, from, sizeof(*from));
    sq_touch_read(cpu, &from->entry[from->avail - count], count * sizeof(void *));
    array_append(cpu, to, &from->entry[from->avail - count], count);
    array_set_avail(from, from->avail - count);
    return count;
}

/* Forget the `count` oldest objects; the rest moves down. */
static inline void array_drop_oldest(struct array_cache *array, uint32_t count)
{
    uint32_t rest = array->avail - count;
    SQ_ASSERT_INTERNAL(count <= array->avail);
    memmove(array->entry, &array->entry[count], rest * sizeof(void *));
    array_set_avail(array, rest);
}

#endif
