/*
 * The page allocator of a machine: a buddy allocator a node, page lists a CPU and node.
 *
 *   sq_pages_alloc --> page list of (this CPU, node) --batch--> zone of the node
 *                      orders 0 .. pcp_order_max                free[0] .. free[10]
 *
 * Compiled once a machine (unit/pages_<machine>.c), since its locks and lines cost what
 * the machine says they cost.
 */
#ifndef SQ_PAGES_H
#define SQ_PAGES_H

#include "machine/machine.h"

#define sq_pages_create  SQ_ON_MACHINE(sq_pages_create)
#define sq_pages_destroy SQ_ON_MACHINE(sq_pages_destroy)
#define sq_pages_in_use  SQ_ON_MACHINE(sq_pages_in_use)

/* Requires machine->topology, arena, node_bytes and page_frames to be set; frames are
 * zero. Returns NULL when the host has no memory. */
struct sq_pages *sq_pages_create(sq_machine *machine, uint32_t pcp_order_max);
void sq_pages_destroy(sq_machine *machine, struct sq_pages *pages);
/* Takes no lock: exact at a quiet moment, a good estimate otherwise. */
uint64_t sq_pages_in_use(sq_machine *machine, uint32_t node);

#endif
