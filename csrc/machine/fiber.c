/*
 * Fibers: stacks, the switch, and what the sanitizers must be told. See fiber.h.
 *
 * The frame of a context that is not running, from its stack pointer upwards:
 *
 *   x86-64   mxcsr, x87 control word | r15 r14 r13 r12 rbx rbp | address to go on at
 *   aarch64  x19 .. x30, d8 .. d15, fpcr; goes on at x30
 *
 * The x86-64 switch ends with a jump and not with `ret`, whose predictor would foretell
 * the wrong context every time (3 ns against 22 ns a switch). The control words are
 * loaded only where they differ, the exception flags aside, which no call keeps: loading
 * mxcsr with other flags costs 100 ns.
 */
#include "machine/fiber.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/sq_bits.h"

#if SQ_FIBER_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if SQ_FIBER_TSAN
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void *fiber);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
#endif

#define FIBER_CHUNK_STACK_COUNT 32u

struct fiber_chunk {
    struct fiber_chunk *next;
    char *memory;
    size_t bytes;
};

/* Save the running context, its stack pointer in *save; continue at stack pointer
 * `load`. In assembly below. */
void sq_fiber_swap(void **save, void *load) __attribute__((visibility("hidden")));
/* Where a new fiber begins: calls its function. In assembly below. */
void sq_fiber_start(void) __attribute__((visibility("hidden")));
static void fiber_main(struct sq_fiber *fiber);

#if defined(__x86_64__)

enum { FIBER_FRAME_WORDS = 8 };

__asm__(".text\n"
        ".p2align 4\n"
        ".globl sq_fiber_swap\n"
        ".hidden sq_fiber_swap\n"
        ".type sq_fiber_swap, @function\n"
        "sq_fiber_swap:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    subq $8, %rsp\n"
        "    stmxcsr (%rsp)\n"
        "    fnstcw 4(%rsp)\n"
        "    movl (%rsp), %eax\n"
        "    movzwl 4(%rsp), %edx\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    xorl (%rsp), %eax\n"
        "    xorw 4(%rsp), %dx\n"
        "    andl $0xffc0, %eax\n" /* without the six sticky flags */
        "    orl %edx, %eax\n"
        "    jnz 2f\n"
        "1:  addq $8, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    popq %rcx\n"
        "    jmpq *%rcx\n"
        "2:  ldmxcsr (%rsp)\n"
        "    fldcw 4(%rsp)\n"
        "    jmp 1b\n"
        ".size sq_fiber_swap, .-sq_fiber_swap\n"
        ".p2align 4\n"
        ".globl sq_fiber_start\n"
        ".hidden sq_fiber_start\n"
        ".type sq_fiber_start, @function\n"
        "sq_fiber_start:\n"
        "    .cfi_startproc\n"
        "    .cfi_undefined rip\n" /* a debugger's walk ends here */
        "    xorl %ebp, %ebp\n"
        "    movq %r13, %rdi\n"
        "    callq *%r12\n"
        "    ud2\n"
        "    .cfi_endproc\n"
        ".size sq_fiber_start, .-sq_fiber_start\n");

/* Lay the first frame below `top`, a multiple of 16; returns the stack pointer. */
static void *fiber_first_frame(char *top, struct sq_fiber *fiber)
{
    uint64_t *frame = (uint64_t *)(void *)(top - 16) - FIBER_FRAME_WORDS;
    uint32_t mxcsr;
    uint16_t control;
    __asm__ volatile("stmxcsr %0" : "=m"(mxcsr));
    __asm__ volatile("fnstcw %0" : "=m"(control));
    memset(frame, 0, FIBER_FRAME_WORDS * sizeof(*frame));
    frame[0] = mxcsr | (uint64_t)control << 32;
    frame[3] = (uintptr_t)fiber;      /* r13 */
    frame[4] = (uintptr_t)fiber_main; /* r12 */
    frame[7] = (uintptr_t)sq_fiber_start;
    return frame;
}

#elif defined(__aarch64__)

enum { FIBER_FRAME_WORDS = 22 };

__asm__(".text\n"
        ".p2align 4\n"
        ".globl sq_fiber_swap\n"
        ".hidden sq_fiber_swap\n"
        ".type sq_fiber_swap, %function\n"
        "sq_fiber_swap:\n"
        "    sub sp, sp, #176\n"
        "    stp x19, x20, [sp, #0]\n"
        "    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n"
        "    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mrs x9, fpcr\n"
        "    str x9, [sp, #160]\n"
        "    mov x10, sp\n"
        "    str x10, [x0]\n"
        "    mov sp, x1\n"
        "    ldr x10, [sp, #160]\n"
        "    cmp x9, x10\n"
        "    b.eq 1f\n"
        "    msr fpcr, x10\n"
        "1:\n"
        "    ldp x19, x20, [sp, #0]\n"
        "    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n"
        "    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #176\n"
        "    br x30\n"
        ".size sq_fiber_swap, .-sq_fiber_swap\n"
        ".p2align 4\n"
        ".globl sq_fiber_start\n"
        ".hidden sq_fiber_start\n"
        ".type sq_fiber_start, %function\n"
        "sq_fiber_start:\n"
        "    mov x29, #0\n"
        "    mov x30, #0\n"
        "    mov x0, x20\n"
        "    blr x19\n"
        "    brk #1\n"
        ".size sq_fiber_start, .-sq_fiber_start\n");

static void *fiber_first_frame(char *top, struct sq_fiber *fiber)
{
    uint64_t *frame = (uint64_t *)(void *)(top - 16) - FIBER_FRAME_WORDS;
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    memset(frame, 0, FIBER_FRAME_WORDS * sizeof(*frame));
    frame[0] = (uintptr_t)fiber_main;      /* x19 */
    frame[1] = (uintptr_t)fiber;           /* x20 */
    frame[11] = (uintptr_t)sq_fiber_start; /* x30 */
    frame[20] = fpcr;
    return frame;
}

#else
#error "fibers need an assembly switch for this processor: x86-64 and aarch64 have one"
#endif

/* ---- what the sanitizers are told ---- */

/* Inlined in every build: ThreadSanitizer counts the calls of each context, so no call
 * may begin in one and end in another. */
#define FIBER_INLINE inline __attribute__((always_inline))

/* Tell the sanitizers that `to` runs next. `fake_stack` keeps what ASan wants back when
 * the context goes on; NULL if it never will. */
static FIBER_INLINE void fiber_before_switch(void **fake_stack, struct sq_fiber *to)
{
#if SQ_FIBER_ASAN
    __sanitizer_start_switch_fiber(fake_stack, to->stack, to->stack_bytes);
#endif
#if SQ_FIBER_TSAN
    __tsan_switch_to_fiber(to->tsan_fiber, 0);
#endif
    (void)fake_stack;
    (void)to;
}

/* The first thing a context does when it goes on. */
static FIBER_INLINE void fiber_after_switch(void *fake_stack)
{
#if SQ_FIBER_ASAN
    __sanitizer_finish_switch_fiber(fake_stack, NULL, NULL);
#endif
    (void)fake_stack;
}

/* The first function of every fiber. */
static void fiber_main(struct sq_fiber *fiber)
{
    fiber_after_switch(NULL);
    fiber->function(fiber->argument);
    abort(); /* the function must end with sq_fiber_exit */
}

/* ---- stacks ---- */

void sq_fiber_pool_init(struct sq_fiber_pool *pool, size_t stack_bytes)
{
    memset(pool, 0, sizeof(*pool));
    (void)pthread_mutex_init(&pool->mutex, NULL);
    pool->page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    pool->stack_bytes = sq_align_up(stack_bytes, pool->page_bytes);
}

void sq_fiber_pool_destroy(struct sq_fiber_pool *pool)
{
    while (pool->chunks != NULL) {
        struct fiber_chunk *chunk = pool->chunks;
        pool->chunks = chunk->next;
        (void)munmap(chunk->memory, chunk->bytes);
        free(chunk);
    }
    (void)pthread_mutex_destroy(&pool->mutex);
}

/* The word at the top of a free stack that leads to the next free one. */
static void **fiber_stack_link(const struct sq_fiber_pool *pool, char *stack)
{
    return (void **)(void *)(stack + pool->stack_bytes - sizeof(void *));
}

static int fiber_chunk_refused(const struct sq_fiber_pool *pool, struct sq_error *error)
{
    return sq_error_set(error, SQ_E_SYSTEM,
                        "no stack for task %u: %s (a task needs %zu bytes of address "
                        "space and two of the maps that vm.max_map_count limits)",
                        pool->stack_count + 1, strerror(errno), pool->stack_bytes);
}

/* Map a chunk of stacks, a guard page below each. Requires pool->mutex. */
static int fiber_chunk_add(struct sq_fiber_pool *pool, struct sq_error *error)
{
    size_t stride = pool->page_bytes + pool->stack_bytes;
    struct fiber_chunk *chunk = malloc(sizeof(*chunk));
    bool guarded = true;
    if (chunk == NULL)
        return fiber_chunk_refused(pool, error);
    chunk->bytes = stride * FIBER_CHUNK_STACK_COUNT;
    chunk->memory = mmap(NULL, chunk->bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (chunk->memory == MAP_FAILED) {
        free(chunk);
        return fiber_chunk_refused(pool, error);
    }
    for (uint32_t i = 0; guarded && i < FIBER_CHUNK_STACK_COUNT; i++)
        guarded =
            mprotect(chunk->memory + i * stride, pool->page_bytes, PROT_NONE) == 0;
    if (!guarded) {
        int code = fiber_chunk_refused(pool, error);
        (void)munmap(chunk->memory, chunk->bytes);
        free(chunk);
        return code;
    }
    for (uint32_t i = 0; i < FIBER_CHUNK_STACK_COUNT; i++) {
        char *stack = chunk->memory + i * stride + pool->page_bytes;
        *fiber_stack_link(pool, stack) = pool->free_stacks;
        pool->free_stacks = stack;
    }
    pool->stack_count += FIBER_CHUNK_STACK_COUNT;
    chunk->next = pool->chunks;
    pool->chunks = chunk;
    return SQ_OK;
}

int sq_fiber_create(struct sq_fiber_pool *pool, struct sq_fiber *fiber,
                    sq_fiber_function *function, void *argument, struct sq_error *error)
{
    int code = SQ_OK;
    memset(fiber, 0, sizeof(*fiber));
    (void)pthread_mutex_lock(&pool->mutex);
    if (pool->free_stacks == NULL)
        code = fiber_chunk_add(pool, error);
    if (code == SQ_OK) {
        fiber->stack = pool->free_stacks;
        pool->free_stacks = *fiber_stack_link(pool, fiber->stack);
    }
    (void)pthread_mutex_unlock(&pool->mutex);
    if (code != SQ_OK)
        return code;
    fiber->stack_bytes = pool->stack_bytes;
    fiber->function = function;
    fiber->argument = argument;
    fiber->stack_pointer = fiber_first_frame(fiber->stack + fiber->stack_bytes, fiber);
#if SQ_FIBER_TSAN
    fiber->tsan_fiber = __tsan_create_fiber(0);
#endif
    return SQ_OK;
}

void sq_fiber_destroy(struct sq_fiber_pool *pool, struct sq_fiber *fiber)
{
#if SQ_FIBER_ASAN
    /* Frames that were left in the middle keep their red zones: the next owner must not
     * stumble over them. */
    ASAN_UNPOISON_MEMORY_REGION(fiber->stack, fiber->stack_bytes);
#endif
#if SQ_FIBER_TSAN
    __tsan_destroy_fiber(fiber->tsan_fiber);
#endif
    (void)pthread_mutex_lock(&pool->mutex);
    *fiber_stack_link(pool, fiber->stack) = pool->free_stacks;
    pool->free_stacks = fiber->stack;
    (void)pthread_mutex_unlock(&pool->mutex);
    fiber->stack = NULL;
}

void sq_fiber_adopt_thread(struct sq_fiber *fiber)
{
    memset(fiber, 0, sizeof(*fiber));
#if SQ_FIBER_ASAN
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        void *stack;
        if (pthread_attr_getstack(&attributes, &stack, &fiber->stack_bytes) == 0)
            fiber->stack = stack;
        (void)pthread_attr_destroy(&attributes);
    }
#endif
#if SQ_FIBER_TSAN
    fiber->tsan_fiber = __tsan_get_current_fiber();
#endif
}

void sq_fiber_switch(struct sq_fiber *from, struct sq_fiber *to)
{
    fiber_before_switch(&from->asan_fake_stack, to);
    sq_fiber_swap(&from->stack_pointer, to->stack_pointer);
    fiber_after_switch(from->asan_fake_stack);
}

_Noreturn void sq_fiber_exit(struct sq_fiber *from, struct sq_fiber *to)
{
    fiber_before_switch(NULL, to);
    sq_fiber_swap(&from->stack_pointer, to->stack_pointer);
    abort(); /* an ended fiber was switched to */
}
