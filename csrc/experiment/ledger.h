/*
 * The ledger: which addresses an interactive user holds, and from which cache. It is kept
 * outside the policies, so that a double free or a foreign pointer is told before it
 * reaches one, and the policy's own counts can be checked against it.
 *
 * Open addressing with linear probing; removal moves later entries back, so there are no
 * tombstones. Not thread-safe: the caller holds one lock around it.
 */
#ifndef SQ_LEDGER_H
#define SQ_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sq_ledger {
    uintptr_t *address; /* 0: empty place */
    const void **owner;
    size_t count, capacity; /* capacity is 0 or a power of two */
};

void sq_ledger_free(struct sq_ledger *ledger);
/* False when the host has no memory; the ledger is then unchanged. */
bool sq_ledger_reserve(struct sq_ledger *ledger, size_t more);
/* Requires a reserved place and an address that is not in the ledger. */
void sq_ledger_add(struct sq_ledger *ledger, const void *address, const void *owner);
/* The owner given to sq_ledger_add, or NULL. */
const void *sq_ledger_owner(const struct sq_ledger *ledger, const void *address);
/* Requires that the address is in the ledger. */
void sq_ledger_remove(struct sq_ledger *ledger, const void *address);
size_t sq_ledger_count_of(const struct sq_ledger *ledger, const void *owner);

/* Forget everything of an owner; returns how many that were. */
size_t sq_ledger_remove_owner(struct sq_ledger *ledger, const void *owner);

#endif
