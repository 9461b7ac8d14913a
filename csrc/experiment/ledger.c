#include "experiment/ledger.h"

#include <stdlib.h>
#include <string.h>

#include "base/sq_assert.h"

static size_t ledger_home(const struct sq_ledger *ledger, uintptr_t address)
{
    return (size_t)((address * UINT64_C(0x9E3779B97F4A7C15)) >> 20) &
           (ledger->capacity - 1);
}

/* The place of `address`, or the empty place where it belongs. */
static size_t ledger_find(const struct sq_ledger *ledger, uintptr_t address)
{
    size_t place = ledger_home(ledger, address);
    while (ledger->address[place] != 0 && ledger->address[place] != address)
        place = (place + 1) & (ledger->capacity - 1);
    return place;
}

void sq_ledger_free(struct sq_ledger *ledger)
{
    free(ledger->address);
    free(ledger->owner);
    memset(ledger, 0, sizeof(*ledger));
}

bool sq_ledger_reserve(struct sq_ledger *ledger, size_t more)
{
    struct sq_ledger larger = {0};
    if ((ledger->count + more) * 2 <= ledger->capacity)
        return true;
    larger.capacity = 64;
    while (larger.capacity < (ledger->count + more) * 2)
        larger.capacity *= 2;
    larger.address = calloc(larger.capacity, sizeof(*larger.address));
    larger.owner = calloc(larger.capacity, sizeof(*larger.owner));
    if (larger.address == NULL || larger.owner == NULL) {
        sq_ledger_free(&larger);
        return false;
    }
    for (size_t i = 0; i < ledger->capacity; i++)
        if (ledger->address[i] != 0)
            sq_ledger_add(&larger, (const void *)ledger->address[i], ledger->owner[i]);
    sq_ledger_free(ledger);
    *ledger = larger;
    return true;
}

void sq_ledger_add(struct sq_ledger *ledger, const void *address, const void *owner)
{
    size_t place = ledger_find(ledger, (uintptr_t)address);
    SQ_ASSERT(ledger->address[place] == 0 && owner != NULL);
    ledger->address[place] = (uintptr_t)address;
    ledger->owner[place] = owner;
    ledger->count++;
}

const void *sq_ledger_owner(const struct sq_ledger *ledger, const void *address)
{
    size_t place;
    if (ledger->capacity == 0 || address == NULL)
        return NULL;
    place = ledger_find(ledger, (uintptr_t)address);
    return ledger->address[place] == 0 ? NULL : ledger->owner[place];
}

void sq_ledger_remove(struct sq_ledger *ledger, const void *address)
{
    size_t mask = ledger->capacity - 1;
    size_t hole = ledger_find(ledger, (uintptr_t)address);
    SQ_ASSERT(ledger->address[hole] != 0);
    ledger->count--;
    for (size_t i = (hole + 1) & mask; ledger->address[i] != 0; i = (i + 1) & mask) {
        size_t home = ledger_home(ledger, ledger->address[i]);
        /* May entry i move back to the hole without passing its home? */
        if (((i - home) & mask) < ((i - hole) & mask))
            continue;
        ledger->address[hole] = ledger->address[i];
        ledger->owner[hole] = ledger->owner[i];
        hole = i;
    }
    ledger->address[hole] = 0;
    ledger->owner[hole] = NULL;
}

size_t sq_ledger_count_of(const struct sq_ledger *ledger, const void *owner)
{
    size_t count = 0;
    for (size_t i = 0; i < ledger->capacity; i++)
        count += ledger->address[i] != 0 && ledger->owner[i] == owner;
    return count;
}

size_t sq_ledger_remove_owner(struct sq_ledger *ledger, const void *owner)
{
    size_t removed = 0;
    for (size_t i = 0; i < ledger->capacity; i++) {
        /* Removal may move another entry to this place, or one over the end to a place
         * that was passed already: hence the second look, and the second round. */
        while (ledger->address[i] != 0 && ledger->owner[i] == owner) {
            sq_ledger_remove(ledger, (const void *)ledger->address[i]);
            removed++;
        }
    }
    return removed + (sq_ledger_count_of(ledger, owner) > 0
                          ? sq_ledger_remove_owner(ledger, owner)
                          : 0);
}
