/*
 * The gate of an allocator: calls that give the GIL up around the policy's work go
 * through it side by side; whoever needs every structure at rest waits until none is on
 * its way, and keeps new ones out meanwhile.
 *
 * Without it a thread could destroy a cache that another one's bulk call is still
 * working on, or print a queue that is being filled.
 */
#ifndef SQ_PYTHON_GATE_H
#define SQ_PYTHON_GATE_H

#include <stdint.h>

/* Read and changed with the GIL held alone. */
struct core_gate {
    uint32_t call_count;   /* calls on their way, which may be without the GIL */
    uint32_t waiter_count; /* threads that wait for those to end */
};

/* Begin a call that will give the GIL up. Requires the GIL, which may be given up
 * before this returns: look at the cache again afterwards. */
void core_gate_enter(struct core_gate *gate);
/* Requires the GIL. */
void core_gate_leave(struct core_gate *gate);
/* Wait until no call is on its way. Requires the GIL, which may be given up before this
 * returns; none begins until the caller gives it up again. */
void core_gate_wait(struct core_gate *gate);

#endif
