/*
 * The calls of a workload that allocate and free: each is counted, and one in many is
 * timed. Part of env.c, whose own functions it uses.
 */
#ifndef SQ_ENV_OBJECTS_H
#define SQ_ENV_OBJECTS_H

#include "workload/env.h"
#include "workload/wrong_free.h"

static _Noreturn void env_no_memory(sq_task *task, const sq_cache *cache, size_t bytes,
                                    int32_t node)
{
    struct sq_error error;
    const sq_machine *machine = task->cpu->machine;
    int32_t asked = node == SQ_NODE_ANY ? (int32_t)task->cpu->node : node;
    (void)sq_error_set(
        &error, SQ_E_MEMORY,
        "no memory for %zu bytes of %s: node %d was asked, by CPU %u, and "
        "none of the %u nodes of %llu bytes%s has the pages",
        bytes, cache != NULL ? cache->name : "kmalloc", asked, task->cpu->index,
        machine->topology.node_count, (unsigned long long)machine->node_bytes,
        env_of(task)->memory_policy.mode == SQ_MEMORY_BIND ? " that memory_nodes names"
                                                           : "");
    env_fail(task, &error);
}

/* With a memory policy, if `is_special`. */
static ENV_INLINE void *env_ask(struct env_run *run, sq_cpu *cpu, sq_cache *cache,
                                size_t bytes, int32_t node, bool is_special)
{
    if (is_special && run->memory_policy.mode != SQ_MEMORY_LOCAL && node == SQ_NODE_ANY)
        return sq_alloc_by_policy(cpu, run->heap, cache, bytes, &run->memory_policy,
                                  &run->cpus[cpu->index].interleave_turn);
    return cache != NULL ? run->ops->alloc(cpu, cache, node, 0)
                         : run->ops->kmalloc(cpu, run->heap, bytes, node, 0);
}

/* The number of calls to the next one that is timed: 1 to 2 * interval - 1. */
static uint32_t env_gap(struct env_run *run, struct sq_runner_cpu *own)
{
    uint64_t interval = (uint64_t)run->runner->run_values[SQ_RUN_latency_interval];
    if (interval == 0)
        return UINT32_MAX;
    return 1 + sq_rng_below(&own->rng, 2 * interval - 1);
}

static uint64_t env_elapsed_ns(const struct env_run *run, const sq_cpu *cpu,
                               uint64_t start_ns)
{
    uint64_t elapsed_ns = sq_now_ns(cpu) - start_ns;
    return elapsed_ns - sq_min_u64(elapsed_ns, run->clock_cost_ns);
}

static __attribute__((noinline)) void *env_ask_timed(struct env_run *run, sq_cpu *cpu,
                                                     sq_cache *cache, size_t bytes,
                                                     int32_t node)
{
    struct sq_runner_cpu *own = &run->cpus[cpu->index];
    uint64_t start_ns = sq_now_ns(cpu);
    void *memory = env_ask(run, cpu, cache, bytes, node, true);
    uint64_t elapsed_ns = env_elapsed_ns(run, cpu, start_ns);
    own->alloc_countdown = env_gap(run, own);
    if (memory != NULL && run->runner->run_values[SQ_RUN_latency_interval] > 0) {
        sq_histogram_add(&own->alloc_ns, elapsed_ns);
        own->requested_bytes += bytes;
        own->slot_bytes +=
            cache != NULL ? cache->size : run->ops->ksize(run->heap, memory);
    }
    return memory;
}

/* As the calling CPU. A special run has a memory policy, or looks at frees. */
static ENV_INLINE void *env_allocate_on(sq_task *task, sq_cpu *cpu, sq_cache *cache,
                                        size_t bytes, int32_t node, bool is_special)
{
    struct env_run *run = env_of(task);
    struct sq_runner_cpu *own = &run->cpus[cpu->index];
    void *memory = --own->alloc_countdown == 0
                       ? env_ask_timed(run, cpu, cache, bytes, node)
                       : env_ask(run, cpu, cache, bytes, node, is_special);
    if (memory == NULL)
        env_no_memory(task, cache, bytes, node);
    own->allocations++;
    if (is_special)
        wrong_free_note(run, memory, LIVE_OBJECT);
    return memory;
}

static __attribute__((noinline)) void *env_allocate_special(sq_task *task, sq_cpu *cpu,
                                                            sq_cache *cache,
                                                            size_t bytes, int32_t node)
{
    return env_allocate_on(task, cpu, cache, bytes, node, true);
}

static ENV_INLINE void *env_allocate(sq_task *task, sq_cache *cache, size_t bytes,
                                     int32_t node)
{
    sq_cpu *cpu = sq_task_step(task);
    if (__builtin_expect(env_of(task)->is_special, 0))
        return env_allocate_special(task, cpu, cache, bytes, node);
    return env_allocate_on(task, cpu, cache, bytes, node, false);
}

/* A simulated call that does the work of many counts as many, so that the host's clock
 * is looked at in time. */
static ENV_INLINE void env_count_work(sq_task *task, size_t calls)
{
    if (!SQ_TOUCH_IS_REAL)
        task->calls_left -= (uint32_t)sq_min_u64(task->calls_left, calls);
}

/* A node the machine does not have is the workload's mistake, not a crash. */
static void env_check_node(sq_task *task, int32_t node)
{
    struct sq_error error;
    uint32_t node_count = task->cpu->machine->topology.node_count;
    if (node >= SQ_NODE_ANY && node < (int32_t)node_count)
        return;
    (void)sq_error_set(&error, SQ_E_PARAMETER,
                       "node is %d: accepted are 0 to %u and SQ_ANY_NODE", node,
                       node_count - 1);
    env_fail(task, &error);
}

static void *env_alloc(sq_task *task, sq_cache *cache)
{
    return env_allocate(task, cache, cache->object_size, SQ_NODE_ANY);
}

static void *env_alloc_node(sq_task *task, sq_cache *cache, int32_t node)
{
    env_check_node(task, node);
    return env_allocate(task, cache, cache->object_size, node);
}

static void *env_kmalloc(sq_task *task, size_t bytes)
{
    return env_allocate(task, NULL, bytes, SQ_NODE_ANY);
}

static void *env_kmalloc_node(sq_task *task, size_t bytes, int32_t node)
{
    env_check_node(task, node);
    return env_allocate(task, NULL, bytes, node);
}

static ENV_INLINE void env_give_back(struct env_run *run, sq_cpu *cpu, sq_cache *cache,
                                     void *memory)
{
    if (cache != NULL)
        run->ops->free(cpu, cache, memory);
    else
        run->ops->kfree(cpu, run->heap, memory);
}

static __attribute__((noinline)) void env_give_back_timed(sq_task *task, sq_cpu *cpu,
                                                          sq_cache *cache, void *memory)
{
    struct env_run *run = env_of(task);
    struct sq_runner_cpu *own;
    uint64_t start_ns = sq_now_ns(cpu);
    env_give_back(run, cpu, cache, memory);
    own = &run->cpus[task->cpu->index]; /* it may have waited */
    if (run->runner->run_values[SQ_RUN_latency_interval] > 0)
        sq_histogram_add(&own->free_ns, env_elapsed_ns(run, task->cpu, start_ns));
    own->free_countdown = env_gap(run, own);
}

static ENV_INLINE void env_release(sq_task *task, sq_cache *cache, void *memory)
{
    sq_cpu *cpu = sq_task_step(task);
    struct env_run *run = env_of(task);
    struct sq_runner_cpu *own = &run->cpus[cpu->index];
    if (__builtin_expect(run->checks_frees, 0))
        wrong_free_check(task, cache, memory);
    if (--own->free_countdown == 0)
        env_give_back_timed(task, cpu, cache, memory);
    else
        env_give_back(run, cpu, cache, memory);
    run->cpus[task->cpu->index].frees++;
}

static void env_free(sq_task *task, sq_cache *cache, void *object)
{
    env_release(task, cache, object);
}

static void env_kfree(sq_task *task, void *memory)
{
    if (memory != NULL)
        env_release(task, NULL, memory);
    else
        (void)sq_task_step(task);
}

static void env_alloc_bulk(sq_task *task, sq_cache *cache, size_t count, void **objects)
{
    sq_cpu *cpu = sq_task_step(task);
    struct env_run *run = env_of(task);
    env_count_work(task, count);
    if (count == 0)
        return;
    if (sq_alloc_bulk_by_policy(cpu, run->heap, cache, count, &run->memory_policy,
                                &run->cpus[cpu->index].interleave_turn,
                                objects) != count)
        env_no_memory(task, cache, cache->object_size * count, SQ_NODE_ANY);
    run->cpus[cpu->index].allocations += count;
    for (size_t i = 0; run->live != NULL && i < count; i++)
        wrong_free_note(run, objects[i], LIVE_OBJECT);
}

static void env_free_bulk(sq_task *task, sq_cache *cache, size_t count, void **objects)
{
    sq_cpu *cpu = sq_task_step(task);
    struct env_run *run = env_of(task);
    env_count_work(task, count);
    if (count == 0)
        return;
    for (size_t i = 0; run->checks_frees && i < count; i++)
        wrong_free_check(task, cache, objects[i]);
    run->ops->free_bulk(cpu, cache, count, objects);
    run->cpus[task->cpu->index].frees += count;
}

static void *env_pages_alloc(sq_task *task, uint32_t order)
{
    sq_cpu *cpu = sq_task_step(task);
    struct sq_page *page;
    void *pages;
    if (order > SQ_PAGE_ORDER_MAX)
        env_fail_message(task, "a block of pages is asked for whose order is above 10");
    page = sq_pages_alloc(cpu, order, SQ_NODE_ANY, 0);
    if (page == NULL)
        env_no_memory(task, NULL, (size_t)SQ_PAGE_SIZE << order, SQ_NODE_ANY);
    pages = sq_page_address(cpu->machine, page);
    wrong_free_note(env_of(task), pages, LIVE_PAGES);
    return pages;
}

static void env_pages_free(sq_task *task, void *pages)
{
    sq_cpu *cpu = sq_task_step(task);
    if (env_of(task)->checks_frees)
        wrong_free_check_pages(task, pages);
    sq_pages_free(cpu, sq_page_of_address(cpu->machine, pages));
}

static void env_touch_read(sq_task *task, const void *address, size_t bytes)
{
    const unsigned char *byte = address;
    uint64_t sum = 0;
    sq_cpu *cpu = sq_task_step(task);
    env_count_work(task, bytes / SQ_LINE_SIZE);
    sq_scope_enter(cpu, COPY);
    sq_touch_read(cpu, address, bytes);
    sq_scope_leave(cpu, COPY);
    if (!SQ_TOUCH_IS_REAL)
        return;
    for (; bytes >= sizeof(uint64_t); bytes -= sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, byte, sizeof(word));
        sum += word;
        byte += sizeof(word);
    }
    while (bytes-- > 0)
        sum += *byte++;
    __asm__ volatile("" : : "r"(sum)); /* so that the reads are not left out */
}

static void env_touch_write(sq_task *task, void *address, size_t bytes)
{
    sq_cpu *cpu = sq_task_step(task);
    env_count_work(task, bytes / SQ_LINE_SIZE);
    sq_scope_enter(cpu, COPY);
    sq_touch_write(cpu, address, bytes);
    sq_scope_leave(cpu, COPY);
    if (!SQ_TOUCH_IS_REAL)
        return;
    memset(address, 0x5A, bytes);
    __asm__ volatile("" : : "r"(address) : "memory");
}

static sq_cache *env_cache_create(sq_task *task, const char *name, size_t bytes,
                                  size_t align, uint32_t flags)
{
    sq_cpu *cpu = sq_task_step(task);
    struct sq_cache_spec spec = {
        .name = name, .size = bytes, .align = align, .flags = flags};
    struct sq_error error;
    sq_cache *cache = NULL;
    int code;
    env_lock(task); /* making caches is for one CPU at a time */
    code = sq_heap_create_cache(cpu, env_of(task)->heap, &spec, &cache, &error);
    env_unlock(task);
    if (code != SQ_OK)
        env_fail(task, &error);
    return cache;
}

#endif
