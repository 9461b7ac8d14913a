/*
 * Single primitives on a simulated machine, one after the other, each with the virtual
 * time it took: what a closed formula of the machine's parameters can be held against.
 */
#ifndef SQ_PROBE_H
#define SQ_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sq_error.h"
#include "machine/machine_base.h"

#define SQ_PROBE_LINES_MAX (UINT64_C(1) << 24)

/* X(NAME, name); `count` is lines, rounds, or the order of a block. */
#define SQ_PROBE_KINDS(X)                                                              \
    X(READ, "read")               /* `count` lines in one touch */                     \
    X(WRITE, "write")             /* likewise */                                       \
    X(AGAIN, "again")             /* every other of 2 `count` lines, read before */    \
    X(ROW, "row")                 /* `count` lines, each in a touch of its own */      \
    X(ADD, "add")                 /* an atomic addition */                             \
    X(CAS_DOUBLE, "cas_double")   /* a locked compare and exchange of two words */     \
    X(LOCAL_CAS, "local_cas")     /* one without the lock prefix */                    \
    X(LOCK, "lock")               /* a free lock taken and let go, `count` times */    \
    X(IRQ, "irq")                 /* interrupts off and on, `count` times */           \
    X(PREEMPT, "preempt")         /* preemption off and on, `count` times */           \
    X(PAGES_ALLOC, "pages_alloc") /* a block of order `count` */                       \
    X(PAGES_FREE, "pages_free")   /* the block of the last such step */

enum sq_probe_kind {
#define SQ_PROBE_ENUM(name, text) SQ_PROBE_##name,
    SQ_PROBE_KINDS(SQ_PROBE_ENUM)
#undef SQ_PROBE_ENUM
        SQ_PROBE_KIND_COUNT
};

extern const char *const sq_probe_kind_name[SQ_PROBE_KIND_COUNT];

struct sq_probe_step {
    enum sq_probe_kind kind;
    uint32_t cpu;
    uint32_t node; /* whose memory the lines are */
    uint64_t line; /* counted from the first of the node's */
    uint64_t count;
    uint64_t ps; /* out */
};

/*
 * Run the steps in order on a machine of the engine sim, each when what the ones before
 * have asked of buses, links and memory is through. The lines are not allocated, so a
 * machine that also gives out pages must have them elsewhere. 0; SQ_E_PARAMETER names
 * the step that is not accepted, and nothing has run; SQ_E_MEMORY.
 */
int sq_probe_run(sq_machine *machine, struct sq_probe_step *steps, size_t count,
                 struct sq_error *error);

/* When one CPU asked for the lock, got it, and had let it go. */
struct sq_probe_holder {
    uint64_t asked_ps, got_ps, released_ps;
};

/*
 * CPUs 0 to `count` - 1 come to one lock a microsecond apart; each holds it until long
 * after the last has come. `holders` has `count` entries.
 */
int sq_probe_waiters(sq_machine *machine, struct sq_probe_holder *holders,
                     uint32_t count, struct sq_error *error);

/* When a task let another one go on, and when that one did. */
struct sq_probe_turn {
    uint64_t start_ps, end_ps;
};

/*
 * Two tasks take `count` turns: one on CPU 0, the other on CPU `other`, which may be
 * the same. One wakes the other through a wait queue and sleeps itself, under one lock;
 * or each yields (`is_yield`, on one CPU). Between two turns a task works for so long
 * that the other CPU is idle. SQ_E_PARAMETER: no such CPU.
 */
int sq_probe_turns(sq_machine *machine, struct sq_probe_turn *turn, uint32_t count,
                   uint32_t other, bool is_yield, struct sq_error *error);

#endif
