/*
 * What this host's caches, atomic instructions and locks take, measured.
 *
 * Every measurement runs many short windows on threads of its own, each pinned to one
 * CPU, and returns a low percentile of them: on a busy host many windows are disturbed,
 * and what disturbs mostly adds time. Lines between CPUs are a median: what runs on the
 * other CPU in between takes lines away, too. Each measurement takes a few seconds at
 * most.
 */
#ifndef SQ_CALIBRATE_H
#define SQ_CALIBRATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sq_error.h"

#define SQ_CALIBRATE_BYTES_MIN   UINT64_C(4096)
#define SQ_CALIBRATE_BYTES_MAX   (UINT64_C(1) << 33)
#define SQ_CALIBRATE_LOCKERS_MAX 16u

/* What one CPU does on its own, in ns an instruction. */
#define SQ_CALIBRATE_SINGLE(X)                                                         \
    X(multiply)   /* a 32-bit multiplication that waits for the one before */          \
    X(cas)        /* locked compare and exchange of 8 bytes */                         \
    X(cas_double) /* of 16 bytes; 0: the processor has none */                         \
    X(local_cas)  /* of 16 bytes without the lock prefix; 0: likewise */               \
    X(exchange)   /* exchange of 4 bytes, as a test-and-set lock takes */              \
    X(lock_pair)  /* the same, and the store that lets the lock go */

/* What one CPU does with lines another has just written or read, in ns a line. */
#define SQ_CALIBRATE_PAIR(X)                                                           \
    X(read_changed)  /* loads, each waiting for the one before, of changed lines */    \
    X(cas_changed)   /* locked compare and exchange of changed lines */                \
    X(cas_shared)    /* of lines that both have read */                                \
    X(cas_own)       /* of lines that only this CPU has, as many */                    \
    X(store_changed) /* plain stores to changed lines, one behind the other */         \
    X(store_own)     /* to lines that only this CPU has */

#define SQ_CALIBRATE_FIELD(name) double name;

struct sq_calibrate_single {
    SQ_CALIBRATE_SINGLE(SQ_CALIBRATE_FIELD)
};

struct sq_calibrate_pair {
    SQ_CALIBRATE_PAIR(SQ_CALIBRATE_FIELD)
};

/* Time of a load that waits for the one before it, in `bytes` of memory that was first
 * touched on CPU `home` (so it is on that CPU's node): line by line, in order or at
 * random. 0, SQ_E_MEMORY, or SQ_E_SYSTEM if a CPU is not this process's. */
int sq_calibrate_chase(uint64_t bytes, bool is_in_order, uint32_t cpu, uint32_t home,
                       double *ns, struct sq_error *error);
int sq_calibrate_one(uint32_t cpu, struct sq_calibrate_single *single,
                     struct sq_error *error);
/* `cpu` is timed; `other` writes or reads the lines before. */
int sq_calibrate_two(uint32_t cpu, uint32_t other, struct sq_calibrate_pair *pair,
                     struct sq_error *error);
/* What it adds to a ticket lock's round that another CPU has it before, all CPUs
 * wanting it. Below 0: the CPUs did not run at the same time for long enough. */
int sq_calibrate_lock(const uint32_t *cpus, size_t count, double *ns,
                      struct sq_error *error);

#endif
