/*
 * Address space of the host for the memory of a machine, whichever engine runs it: it
 * is reserved whole and takes memory of the host only where it is touched.
 */
#ifndef SQ_ADDRESS_SPACE_H
#define SQ_ADDRESS_SPACE_H

#include "machine/machine_base.h"

#define SQ_BLOCK_BYTES_MAX (UINT64_C(1) << (SQ_PAGE_ORDER_MAX + SQ_PAGE_SHIFT))

/* 0, or SQ_E_PARAMETER with a message: whole blocks of the largest order, 1 TiB at
 * most.
 */
int sq_node_bytes_check(uint64_t node_bytes, struct sq_error *error);
/* Zeroed memory, or NULL. It goes back by munmap. */
void *sq_address_space_reserve(uint64_t bytes);
/* The same at a multiple of the largest block. */
char *sq_address_space_reserve_aligned(uint64_t bytes);
/* SQ_E_MEMORY, with what the host refused for `machine`; errno says why. */
int sq_address_space_refused(const sq_machine *machine, struct sq_error *error);

#endif
