/*
 * Fibers: small stacks that a thread can switch between, the ground of tasks.
 *
 * A fiber that was left by sq_fiber_switch may be continued by any thread, so code that
 * runs on fibers keeps nothing in thread-local storage across a switch (errno
 * included). Every stack has an unreadable guard page below it: an overflow is a fault,
 * never a silent overwrite. The switch keeps what the calling convention says a call
 * keeps, the floating-point control words included, since a workload may be anybody's
 * code.
 *
 * AddressSanitizer and ThreadSanitizer are told of every switch.
 */
#ifndef SQ_FIBER_H
#define SQ_FIBER_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sq_error.h"

#if defined(__has_feature)
#define SQ_HAS_FEATURE(name) __has_feature(name)
#else
#define SQ_HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || SQ_HAS_FEATURE(address_sanitizer)
#define SQ_FIBER_ASAN 1
#else
#define SQ_FIBER_ASAN 0
#endif
#if defined(__SANITIZE_THREAD__) || SQ_HAS_FEATURE(thread_sanitizer)
#define SQ_FIBER_TSAN 1
#else
#define SQ_FIBER_TSAN 0
#endif

/* Instrumented frames are several times as large. */
#define SQ_FIBER_STACK_BYTES ((size_t)(SQ_FIBER_ASAN || SQ_FIBER_TSAN ? 256 : 64) << 10)

typedef void sq_fiber_function(void *argument);

/* A context: of a fiber, or of a thread that called sq_fiber_adopt_thread. */
struct sq_fiber {
    sq_fiber_function *function;
    void *argument;
    void *stack_pointer; /* valid while the context is not running */
    char *stack; /* lowest usable byte; of a thread: known to ASan builds only */
    size_t stack_bytes;
    void *asan_fake_stack;
    void *tsan_fiber;
};

/* Stacks of one size: made in chunks, reused last in first out, unmapped together. */
struct sq_fiber_pool {
    pthread_mutex_t mutex;
    size_t stack_bytes; /* usable; constant */
    size_t page_bytes;  /* of the host, the size of a guard; constant */
    /* -- under mutex -- */
    struct fiber_chunk *chunks;
    void *free_stacks; /* linked through the word at each stack's top */
    uint32_t stack_count;
};

/* `stack_bytes` is rounded up to whole pages of the host. */
void sq_fiber_pool_init(struct sq_fiber_pool *pool, size_t stack_bytes);
/* Unmap every stack. Requires that no fiber of the pool runs any more. */
void sq_fiber_pool_destroy(struct sq_fiber_pool *pool);

/* Make a fiber, which must not move in memory, that calls function(argument) when first
 * switched to. The function must end with sq_fiber_exit. Returns 0 or SQ_E_SYSTEM. */
int sq_fiber_create(struct sq_fiber_pool *pool, struct sq_fiber *fiber,
                    sq_fiber_function *function, void *argument,
                    struct sq_error *error);
/* Give the stack back. Requires that the fiber does not run; it may be in the middle.
 */
void sq_fiber_destroy(struct sq_fiber_pool *pool, struct sq_fiber *fiber);
/* Let `fiber` stand for the calling thread's own stack. */
void sq_fiber_adopt_thread(struct sq_fiber *fiber);

/* Leave `from`, the running context, and continue `to`. Returns when some thread
 * switches to `from` again. */
void sq_fiber_switch(struct sq_fiber *from, struct sq_fiber *to);
/* The same for the last time: `from` can only be destroyed. */
_Noreturn void sq_fiber_exit(struct sq_fiber *from, struct sq_fiber *to);

#endif
