/*
 * One program, four allocation patterns, any allocator: the timing loop of
 * benchmarks/native.py, which runs it once an allocator and round and compares.
 *
 *   native_driver malloc            the process's malloc (glibc, or what is preloaded)
 *   native_driver slub kmalloc      a slabq policy through kmalloc and kfree
 *   native_driver slub cache        a slabq policy through a cache of 256-byte objects
 *
 * Prints one line a pattern: its name and nanoseconds per allocation and free. The loop
 * itself, with the store into each object, costs about a third of a nanosecond.
 *
 *   pair      allocate 256 bytes, store one word, free, at once
 *   batch     allocate 128 objects of 256 bytes, then free them in the same order
 *   handoff   one thread allocates, another frees; a ring of 1024 pointers between them
 *   churn     10000 places with objects of 8 to 1024 bytes; replace a random one
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/sq_rng.h"
#include "machine/native_machine.h"
#include "policy/policy.h"

#define OBJECT_BYTES  256u
#define BATCH_COUNT   128u
#define RING_COUNT    1024u
#define PLACE_COUNT   10000u
#define PAIR_LOOPS    4000000u
#define BATCH_LOOPS   20000u
#define HANDOFF_LOOPS 2000000u
#define CHURN_LOOPS   2000000u

/* What is measured. `heap` is NULL for malloc. */
struct subject {
    sq_machine *machine;
    sq_heap *heap;
    sq_cache *cache; /* not NULL: every allocation comes from it */
};

static inline void *subject_alloc(const struct subject *subject, sq_cpu *cpu, size_t size)
{
    if (subject->heap == NULL)
        return malloc(size);
    if (subject->cache != NULL)
        return subject->cache->ops->alloc(cpu, subject->cache, SQ_NODE_ANY, 0);
    return subject->heap->ops->kmalloc(cpu, subject->heap, size, SQ_NODE_ANY, 0);
}

static inline void subject_free(const struct subject *subject, sq_cpu *cpu, void *object)
{
    if (subject->heap == NULL)
        free(object);
    else if (subject->cache != NULL)
        subject->cache->ops->free(cpu, subject->cache, object);
    else
        subject->heap->ops->kfree(cpu, subject->heap, object);
}

static sq_cpu *subject_enter(const struct subject *subject, uint32_t index)
{
    if (subject->heap == NULL)
        return NULL;
    return subject->machine->ops->cpu_enter(subject->machine, index);
}

static void subject_leave(const struct subject *subject, sq_cpu *cpu)
{
    if (subject->heap != NULL)
        subject->machine->ops->cpu_leave(cpu);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void pin_to(uint32_t index)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(index % (uint32_t)sysconf(_SC_NPROCESSORS_ONLN), &set);
    (void)sched_setaffinity(0, sizeof(set), &set);
}

static void *need(void *object)
{
    if (object == NULL) {
        (void)fprintf(stderr, "native_driver: out of memory\n");
        exit(1);
    }
    return object;
}

/* ---- patterns: each returns nanoseconds for an allocation and its free ---- */

static double pattern_pair(const struct subject *subject)
{
    sq_cpu *cpu = subject_enter(subject, 0);
    uint64_t start_ns = now_ns(), ns;
    for (uint32_t i = 0; i < PAIR_LOOPS; i++) {
        uint64_t *object = need(subject_alloc(subject, cpu, OBJECT_BYTES));
        *(volatile uint64_t *)object = i;
        subject_free(subject, cpu, object);
    }
    ns = now_ns() - start_ns;
    subject_leave(subject, cpu);
    return (double)ns / PAIR_LOOPS;
}

static double pattern_batch(const struct subject *subject)
{
    void *object[BATCH_COUNT];
    sq_cpu *cpu = subject_enter(subject, 0);
    uint64_t start_ns = now_ns(), ns;
    for (uint32_t i = 0; i < BATCH_LOOPS; i++) {
        for (uint32_t k = 0; k < BATCH_COUNT; k++) {
            object[k] = need(subject_alloc(subject, cpu, OBJECT_BYTES));
            *(volatile uint64_t *)object[k] = k;
        }
        for (uint32_t k = 0; k < BATCH_COUNT; k++)
            subject_free(subject, cpu, object[k]);
    }
    ns = now_ns() - start_ns;
    subject_leave(subject, cpu);
    return (double)ns / ((double)BATCH_LOOPS * BATCH_COUNT);
}

struct ring {
    const struct subject *subject;
    _Alignas(64) _Atomic uint32_t head; /* next to write */
    _Alignas(64) _Atomic uint32_t tail; /* next to read */
    _Alignas(64) void *slot[RING_COUNT];
};

static void *consumer_main(void *argument)
{
    struct ring *ring = argument;
    sq_cpu *cpu;
    pin_to(1);
    cpu = subject_enter(ring->subject, 1);
    for (uint32_t i = 0; i < HANDOFF_LOOPS; i++) {
        while (atomic_load_explicit(&ring->head, memory_order_acquire) == i)
            (void)sched_yield();
        subject_free(ring->subject, cpu, ring->slot[i % RING_COUNT]);
        atomic_store_explicit(&ring->tail, i + 1, memory_order_release);
    }
    subject_leave(ring->subject, cpu);
    return NULL;
}

static double pattern_handoff(const struct subject *subject)
{
    static struct ring ring;
    pthread_t consumer;
    sq_cpu *cpu = subject_enter(subject, 0);
    uint64_t start_ns;
    memset(&ring, 0, sizeof(ring));
    ring.subject = subject;
    start_ns = now_ns();
    if (pthread_create(&consumer, NULL, consumer_main, &ring) != 0)
        exit(1);
    for (uint32_t i = 0; i < HANDOFF_LOOPS; i++) {
        uint64_t *object = need(subject_alloc(subject, cpu, OBJECT_BYTES));
        *(volatile uint64_t *)object = i;
        while (i - atomic_load_explicit(&ring.tail, memory_order_acquire) == RING_COUNT)
            (void)sched_yield();
        ring.slot[i % RING_COUNT] = object;
        atomic_store_explicit(&ring.head, i + 1, memory_order_release);
    }
    (void)pthread_join(consumer, NULL);
    subject_leave(subject, cpu);
    return (double)(now_ns() - start_ns) / HANDOFF_LOOPS;
}

static double pattern_churn(const struct subject *subject)
{
    static void *place[PLACE_COUNT];
    struct sq_rng rng;
    sq_cpu *cpu = subject_enter(subject, 0);
    uint64_t start_ns, ns;
    sq_rng_seed(&rng, 1);
    for (uint32_t i = 0; i < PLACE_COUNT; i++)
        place[i] = need(subject_alloc(subject, cpu, 8 + sq_rng_below(&rng, 1017)));
    start_ns = now_ns();
    for (uint32_t i = 0; i < CHURN_LOOPS; i++) {
        uint64_t random = sq_rng_next(&rng);
        uint32_t index = (uint32_t)(((random & 0xFFFFFFFF) * PLACE_COUNT) >> 32);
        size_t size = 8 + (size_t)(((random >> 32) * 1017) >> 32);
        subject_free(subject, cpu, place[index]);
        place[index] = need(subject_alloc(subject, cpu, size));
        *(volatile uint64_t *)place[index] = i;
    }
    ns = now_ns() - start_ns;
    for (uint32_t i = 0; i < PLACE_COUNT; i++)
        subject_free(subject, cpu, place[i]);
    subject_leave(subject, cpu);
    return (double)ns / CHURN_LOOPS;
}

static void make_heap(struct subject *subject, const char *policy, int with_cache)
{
    struct sq_machine_config config = {.node_bytes = UINT64_C(1) << 30, .seed = 1};
    struct sq_cache_spec spec = {.name = "bench", .size = OBJECT_BYTES};
    struct sq_options options;
    struct sq_error error = {0};
    const sq_policy_ops *ops = sq_policy_find(policy, "native", &error);
    sq_cpu *cpu;
    config.pcp_order_max = 3;
    config.topology.cpu_count = 2;
    config.topology.node_count = 1;
    config.topology.distance[0][0] = 10;
    spec.flags = SQ_CACHE_HWCACHE_ALIGN;
    sq_options_init(&options);
    options.sheaves.sheaf_all_caches = 1; /* else no cache here has sheaves */
    if (ops == NULL || sq_native_machine_create(&config, &subject->machine, &error) != 0) {
        (void)fprintf(stderr, "native_driver: %s\n", error.message);
        exit(2);
    }
    cpu = subject->machine->ops->cpu_enter(subject->machine, 0);
    if (sq_heap_create(cpu, ops, &options, &subject->heap, &error) != 0 ||
        (with_cache && sq_heap_create_cache(cpu, subject->heap, &spec, &subject->cache,
                                            &error) != 0)) {
        (void)fprintf(stderr, "native_driver: %s\n", error.message);
        exit(2);
    }
    subject->machine->ops->cpu_leave(cpu);
}

int main(int count, char **arguments)
{
    struct subject subject = {0};
    const char *api = count > 2 ? arguments[2] : "";
    if (count < 2 || (strcmp(arguments[1], "malloc") != 0 && strcmp(api, "kmalloc") != 0 &&
                      strcmp(api, "cache") != 0)) {
        (void)fprintf(stderr, "usage: native_driver malloc | POLICY kmalloc|cache\n");
        return 2;
    }
    if (strcmp(arguments[1], "malloc") != 0)
        make_heap(&subject, arguments[1], strcmp(api, "cache") == 0);
    pin_to(0);
    (void)printf("pair %.3f\n", pattern_pair(&subject));
    (void)printf("batch %.3f\n", pattern_batch(&subject));
    (void)printf("handoff %.3f\n", pattern_handoff(&subject));
    if (subject.cache == NULL)
        (void)printf("churn %.3f\n", pattern_churn(&subject));
    return 0;
}
