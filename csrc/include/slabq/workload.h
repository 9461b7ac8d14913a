/*
 * slabq/workload.h -- what a workload is written on, slabq's own and yours.
 *
 * A workload is a set of tasks, each a plain blocking loop in C, that calls the
 * functions of a `struct sq_env`. The run decides which policy and which machine are
 * behind them, so a workload is compiled once and runs on all. Include this header and
 * the C library, define one `struct sq_workload`, and hand its address to slabq:
 *
 *   static void worker(const struct sq_env *env, sq_task *task, void *cache)
 *   {
 *       for (int i = 0; i < 1000; i++) {
 *           void *object = env->alloc(task, cache);
 *           env->touch_write(task, object, 64);
 *           env->free(task, cache, object);
 *           env->progress(task, 1);
 *       }
 *   }
 *
 *   static void *setup(const struct sq_env *env, sq_task *task, const int64_t *values)
 *   {
 *       sq_cache *cache = env->cache_create(task, "toy", 64, 0, 0);
 *       for (int64_t i = 0; i < values[0]; i++)
 *           env->spawn(task, worker, cache, SQ_ANY_CPU);
 *       return cache;
 *   }
 *
 *   static const struct sq_workload_parameter parameters[] = {
 *       {"tasks", 4, 1, 1000, "how many work at once"},
 *   };
 *   const struct sq_workload toy = {
 *       .abi = SQ_WORKLOAD_ABI, .name = "toy", .help = "pairs of alloc and free",
 *       .rate_unit = "pairs/s", .parameters = parameters, .parameter_count = 1,
 *       .setup = setup,
 *   };
 *
 * Rules
 *   - Every call takes the task that makes it. A task's CPU can change only inside a
 *     call that may block; which these are is said below.
 *   - No call that makes something fails: the run ends instead, with a message.
 *   - A run can end at any call (memory gone, stopped by its user): the call then never
 *     returns. So what must be given back comes from env->memory, and is, by the run.
 *   - Task stacks are small (64 KiB). Tasks keep nothing in thread-local storage across
 *     a call that may block (errno included), and do not block in the host.
 *   - What is freed was handed out, once. An address that was not, or a second free, ends
 *     the run with a message on either engine. That takes 5 to 7 ns of an allocation and
 *     free on a real machine; the run's parameter check_frees=0 does without, and then
 *     such a free may crash Python. A store to memory that is free is not noticed.
 *   - A loop without any call of the environment cannot be stopped.
 */
#ifndef SLABQ_WORKLOAD_H
#define SLABQ_WORKLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SQ_WORKLOAD_ABI 1u

#define SQ_ANY_CPU  (-1)
#define SQ_ANY_NODE (-1)

#define SQ_LATENCY_PATHS_MAX 4u

/* Flags of env->cache_create. */
#define SQ_WORKLOAD_HWCACHE_ALIGN 1u

typedef struct sq_task sq_task;
typedef struct sq_cache sq_cache; /* the kernel's kmem_cache */
typedef struct sq_channel sq_channel;
typedef struct sq_pipe sq_pipe;
typedef struct sq_barrier sq_barrier;
struct sq_env;

typedef void sq_workload_main(const struct sq_env *env, sq_task *task, void *argument);

/* How every message of a channel begins. A queue is linked through its messages, so it
 * needs no memory of its own; the link is the channel's between send and receive. */
struct sq_message {
    struct sq_message *next;
};

struct sq_env {
    uint32_t abi;          /* SQ_WORKLOAD_ABI of the slabq that runs the workload */
    uint32_t struct_bytes; /* of this struct there: later ones only add at the end */

    /* ---- calls that keep the task on its CPU ---- */

    /* Objects. `bytes` above the largest kmalloc cache are whole pages. */
    void *(*alloc)(sq_task *task, sq_cache *cache);
    void *(*alloc_node)(sq_task *task, sq_cache *cache, int32_t node);
    void (*free)(sq_task *task, sq_cache *cache, void *object);
    void *(*kmalloc)(sq_task *task, size_t bytes);
    void *(*kmalloc_node)(sq_task *task, size_t bytes, int32_t node);
    void (*kfree)(sq_task *task, void *memory); /* NULL does nothing */

    /* Read or overwrite every byte of something; what is written is of no meaning. */
    void (*touch_read)(sq_task *task, const void *address, size_t bytes);
    void (*touch_write)(sq_task *task, void *address, size_t bytes);

    uint64_t (*random)(sq_task *task); /* 64 bits; a sequence for each CPU */
    uint64_t (*now_ns)(sq_task *task); /* of the machine's clock */
    uint32_t (*cpu_index)(sq_task *task);
    uint32_t (*cpu_count)(sq_task *task);
    /* True: the run is over, and the next call will not return. For loops that make no
     * other call for long. */
    bool (*should_stop)(sq_task *task);
    /* End the run with this message; from setup it says which parameter is not
     * accepted. */
    void (*fail)(sq_task *task, const char *message);
    /* The workload's `argument`. */
    void *(*argument)(sq_task *task);

    /* ---- making; mostly from setup ---- */

    sq_cache *(*cache_create)(sq_task *task, const char *name, size_t bytes,
                              size_t align, uint32_t flags);
    /* Zeroed memory of the host, outside the machine; the run gives it back. */
    void *(*memory)(sq_task *task, size_t bytes);
    /* Start a task, on `cpu` for good or (SQ_ANY_CPU) where the scheduler likes. */
    void (*spawn)(sq_task *task, sq_workload_main *main, void *argument, int32_t cpu);
    /* `limit_bytes` and `wake_percent` as in reserve and release below. */
    sq_channel *(*channel_create)(sq_task *task, uint64_t limit_bytes,
                                  uint32_t wake_percent);
    sq_pipe *(*pipe_create)(sq_task *task, uint32_t page_count);
    /* For `count` tasks. `starts_clock`: measuring begins when it first opens. */
    sq_barrier *(*barrier_create)(sq_task *task, uint32_t count, bool starts_clock);
    /* How many operations the run will have, for the display of its progress. */
    void (*expect)(sq_task *task, uint64_t operations);

    /* ---- calls that may block: the task may go on as another CPU ---- */

    void (*yield)(sq_task *task);
    /* Work on something that is not memory for so long. */
    void (*think)(sq_task *task, uint64_t ns);
    /* Operations done: what the rate counts. */
    void (*progress)(sq_task *task, uint64_t operations);
    /* True for the task that came last. */
    bool (*barrier_wait)(sq_task *task, sq_barrier *barrier);

    /*
     * A channel is one direction of a stream socket. A sender first reserves: it waits
     * while `limit_bytes` or more are charged (sk_sndbuf), then charges its message; so
     * one message may go beyond the limit. A receiver takes the oldest message, waiting
     * for one, and releases its charge when it is done with it. Waiting senders are
     * woken, all of them, when at most `wake_percent` of the limit is charged (a socket
     * is called writable again at 25).
     */
    void (*channel_reserve)(sq_task *task, sq_channel *channel, uint64_t bytes);
    void (*channel_send)(sq_task *task, sq_channel *channel,
                         struct sq_message *message);
    /* NULL: closed and empty. */
    struct sq_message *(*channel_receive)(sq_task *task, sq_channel *channel);
    void (*channel_release)(sq_task *task, sq_channel *channel, uint64_t bytes);
    void (*channel_close)(sq_task *task, sq_channel *channel);

    /* A pipe of whole pages from the page allocator: small writes fill up the last
     * page, a page that was read goes back but for one that is kept. Each call moves
     * exactly `bytes`, at most one page. */
    void (*pipe_write)(sq_task *task, sq_pipe *pipe, const void *source, size_t bytes);
    void (*pipe_read)(sq_task *task, sq_pipe *pipe, void *target, size_t bytes);

    /* Sleep while *word == value, looked at again after each wake; and wake all who
     * sleep on a word. Change the word (an atomic store) before waking. */
    void (*wait)(sq_task *task, const uint64_t *word, uint64_t value);
    void (*wake)(sq_task *task, const uint64_t *word);

    /* ---- more calls that keep the task on its CPU ---- */

    /* `count` objects at once, and back: kmem_cache_alloc_bulk, kmem_cache_free_bulk. */
    void (*alloc_bulk)(sq_task *task, sq_cache *cache, size_t count, void **objects);
    void (*free_bulk)(sq_task *task, sq_cache *cache, size_t count, void **objects);
    /* Times of your own in the result's latency_ns: name a path (mostly from setup, at
     * most SQ_LATENCY_PATHS_MAX of them), then add times to it. The name must live as long
     * as the run; "alloc" and "free" are taken. */
    uint32_t (*latency_path)(sq_task *task, const char *name);
    void (*latency)(sq_task *task, uint32_t path, uint64_t ns);
    /* Measuring ends now, whatever goes on; of several calls the last one counts. */
    void (*stop_clock)(sq_task *task);

    /* ---- more that may block ---- */

    /* Sleep until the machine's clock shows `time_ns`. The task is woken on the CPU it
     * slept on and goes before those that wait there, as one of real-time priority. */
    void (*sleep_until)(sq_task *task, uint64_t time_ns);
    /* As channel_send, by an interrupt: it costs no system call. */
    void (*channel_deliver)(sq_task *task, sq_channel *channel,
                            struct sq_message *message);

    /* ---- and some that keep the task on its CPU ---- */

    /* SCHED_FIFO of `priority`, 1 to 99, or with 0 a normal task again: the task goes
     * before all of lower priority; with PREEMPT_RT it takes the CPU from them at once.
     * 100: the work of interrupts, which takes the CPU at once under every kernel and is
     * no load to the scheduler. */
    void (*set_priority)(sq_task *task, uint32_t priority);
    /* A block of 2^order whole pages from the page allocator, at its CPU, and back. Sockets
     * and pipes keep in such pages what is no object of a cache. */
    void *(*pages_alloc)(sq_task *task, uint32_t order);
    void (*pages_free)(sq_task *task, void *pages);
};

struct sq_workload_parameter {
    const char *name;
    int64_t value_default, value_min, value_max;
    const char *help;
};

struct sq_workload {
    uint32_t abi; /* SQ_WORKLOAD_ABI it was compiled with */
    const char *name;
    const char *help;      /* one line */
    const char *rate_unit; /* "messages/s" */
    const struct sq_workload_parameter *parameters;
    uint32_t parameter_count;
    /*
     * Run by the first task, on CPU 0. `values` are the parameters in the order of the
     * table, checked against it. Makes what is needed and spawns the tasks that work;
     * they may begin at once. The run lasts until all of them have ended; without a
     * barrier that starts the clock, measuring begins with setup. Returns what teardown
     * is given.
     */
    void *(*setup)(const struct sq_env *env, sq_task *task, const int64_t *values);
    /* After all tasks have ended, outside the measured time; may be NULL. Not called
     * when the run ends early. */
    void (*teardown)(const struct sq_env *env, sq_task *task, void *state);
    void *argument; /* whatever setup needs beside numbers; env->argument gives it */
};

#endif
