/*
 * What the heap types Allocator and Cache share: their structs, the checks of arguments,
 * and how a cache is printed.
 */
#ifndef SQ_ALLOCATOR_TYPE_H
#define SQ_ALLOCATOR_TYPE_H

#include "experiment/ledger.h"
#include "policy/memory_policy.h"
#include "python/gate.h"
#include "python/machine_type.h"

typedef struct {
    PyObject_HEAD
    PyObject *machine_object; /* keeps the machine alive */
    sq_machine *machine;
    sq_heap *heap;
    struct sq_ledger ledger; /* owner: the sq_cache, or the heap for kmalloc */
    int panics;              /* a report ends the call with CorruptionError */
    uint64_t reports_told;   /* of all reports, those before have been looked at */
    struct sq_memory_policy memory_policy; /* of calls that bring none */
    uint32_t interleave_turn;
    struct core_gate gate;
} allocator_object;

typedef struct {
    PyObject_HEAD
    allocator_object *allocator; /* strong reference */
    sq_cache *cache;             /* NULL once destroyed */
    PyObject *name; /* this handle's: the cache's own or an alias */
} cache_object;

/* What a call asks for beside its size: a node, or a memory policy for it. */
struct core_request {
    long cpu, node;
    struct sq_memory_policy policy;
};


/* Become the CPU that a call names; NULL with ParameterError if there is none or it is
 * offline. Requires the GIL, which may be given up until core_leave_cpu. */
sq_cpu *core_enter_cpu(struct core_state *state, allocator_object *allocator, long cpu);
/* Become some CPU, for work that is no CPU's in particular. */
sq_cpu *core_enter_any_cpu(allocator_object *allocator);
void core_leave_cpu(sq_cpu *cpu);
/* Fill in `request` from what a call was given, `mode` -1 being the allocator's own memory
 * policy. 0, or -1 with ParameterError. */
int core_make_request(struct core_state *state, const allocator_object *allocator,
                      long cpu, long node, long mode, unsigned long nodes,
                      struct core_request *request);
/* Allocate: from `cache`, or `bytes` by kmalloc if that is NULL. */
void *core_allocate(allocator_object *allocator, sq_cpu *cpu, sq_cache *cache,
                    size_t bytes, const struct core_request *request);
/* Refuse an address that `cache` did not hand out or that is free already, naming what it
 * is. `cache` is NULL for kmalloc. 0, or -1 with CorruptionError. */
int core_check_address(struct core_state *state, allocator_object *allocator,
                       sq_cache *cache, unsigned long long address);
/* Returns NULL with OutOfMemory. */
PyObject *core_raise_out_of_memory(struct core_state *state, const char *what, long node);
/* Check a cache against itself and against the ledger. 0, or an error code. */
int core_check_cache(allocator_object *allocator, sq_cpu *cpu, sq_cache *cache,
                     struct sq_error *error);
/* Is there such a CPU? 0, or -1 with ParameterError. */
int core_check_cpu(struct core_state *state, const sq_machine *machine, long cpu);

/* The policy of these nodes, as a bit each, and this mode. 0, or -1 with ParameterError. */
int core_make_memory_policy(struct core_state *state, const sq_machine *machine,
                            long mode, unsigned long nodes,
                            struct sq_memory_policy *policy);

/* Methods of Allocator (allocator_cpus.c). */
PyObject *core_set_memory_policy(PyObject *object, PyObject *args);
PyObject *core_offline_cpu(PyObject *object, PyObject *argument);
PyObject *core_online_cpu(PyObject *object, PyObject *argument);
PyObject *core_online_cpus(PyObject *object, PyObject *unused);
PyObject *core_advance(PyObject *object, PyObject *argument);
PyObject *core_clock_ms(PyObject *object, PyObject *unused);

/* ---- debug.c ---- */
/* The methods of the same names. */
PyObject *core_peek(struct core_state *state, allocator_object *allocator, PyObject *args);
PyObject *core_poke(struct core_state *state, allocator_object *allocator, PyObject *args);
PyObject *core_reports(allocator_object *allocator);
/* With panic_on_report: -1 with CorruptionError if there are reports not told yet. */
int core_panic(struct core_state *state, allocator_object *allocator);
/* Free by a cache that checks frees itself, or, with `cache` NULL, by kfree. 1: done;
 * 0: the address is not for it, the ledger's rules hold; -1 with an exception. */
int core_free_judged(struct core_state *state, allocator_object *allocator,
                     sq_cache *cache, long cpu_index, unsigned long long address);
/* Note a new object in the ledger. A debug cache whose free list was corrupted may hand
 * out one that is held already. */
void core_hold(allocator_object *allocator, void *object, const void *owner);
/* After a free of many by `owner`: those that were refused are held again. */
void core_take_all_refused(allocator_object *allocator, const void *owner, void **objects,
                           size_t count);
/* Begin a call on the cache of a cache_object that will give the GIL up. NULL with an
 * exception if the cache is destroyed, which it may be since the caller looked; then
 * nothing is to be ended. */
sq_cache *core_begin_call(PyObject *object);
/* Methods of Cache (cache_bulk.c). */
PyObject *core_alloc_bulk(PyObject *object, PyObject *args);
PyObject *core_free_bulk(PyObject *object, PyObject *args);
/* A method of Cache, and the type of what it makes (sheaf_type.c). */
#define CORE_SHEAF_COUNT_MAX (1 << 18)
PyObject *core_prefill_sheaf(PyObject *object, PyObject *args);
int core_add_sheaf(PyObject *module, struct core_state *state);
/* Add the type Cache. */
int core_add_cache(PyObject *module, struct core_state *state);

#endif
