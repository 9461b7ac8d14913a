/*
 * A cache as text for those who report on it: its geometry and usage, and on request
 * all that reports are made from.
 */
#ifndef SQ_CACHE_PRINT_H
#define SQ_CACHE_PRINT_H

#include "policy/policy.h"

/*
 * Print one JSON object: name, geometry, usage, sums of the counters. `with_state` adds
 * the flags, what the policy describes ("geometry") and dumps ("state"), and the
 * counters of each CPU, those that counted anything. Requires that no CPU is inside a
 * call on the cache.
 */
void sq_cache_print(sq_cpu *cpu, sq_cache *cache, bool with_state,
                    struct sq_json *json);

/* The member "caches": every cache of the heap with its state, oldest first. */
void sq_heap_print_caches(sq_cpu *cpu, sq_heap *heap, struct sq_json *json);

#endif
