/*
 * hackbench (Rusty Russell, Ingo Molnar and others; perf bench sched messaging): groups
 * of senders and receivers, every sender of a group writes to every receiver of it.
 *
 *   group   fds senders --messages of 100 bytes--> fds receivers
 *           each sender: loops times, one message to each receiver in turn
 *           each receiver: one stream socket, shared by all senders of the group
 *
 * What a message moves in the kernel over AF_UNIX stream sockets: one object of
 * skbuff_head_cache and one kmalloc of the data with its shared info, allocated by the
 * sender; both freed by the receiver after it has copied the data, the data first. No
 * other object. Over pipes (`pipe`): pages and no object.
 *
 * data_bytes by release, x86-64: 440 (2.6.22 to 2.6.27), 600 to 624 (2.6.28 to 2.6.33),
 * 472 (2.6.34, 2.6.35), 448 (3.2 and later). head_bytes: 192 to 232; the slot is 256.
 * A message is charged as what its two objects take (skb->truesize), by default 512 +
 * 256: at the default limit a socket holds 278 messages.
 *
 * Since 3.10 a message that does not fit one page with the shared info lies in pages of
 * its own (page_count): the kmalloc has the shared info alone, and the receiver gives the
 * pages back before it. A message of 4096 bytes: data_bytes 320, page_count 1,
 * charge_bytes 256 + 512 + 4096.
 */
#include "workload/hackbench.h"

#include <stdio.h>
#include <string.h>

#define PARAMETERS(X)                                                                  \
    X(groups, 10, 1, 10000, "groups of fds senders and fds receivers")                 \
    X(loops, 100, 1, 1000000000, "messages of a sender to each receiver")              \
    X(fds, 20, 1, 1000, "senders of a group, and receivers")                           \
    X(message_bytes, 100, 1, 4096, "bytes written and read a message")                 \
    X(data_bytes, 448, 1, 65536, "size of the kmalloc of a message")                   \
    X(page_count, 0, 0, 16, "pages of a message's data; 0: it is in the kmalloc")      \
    X(head_bytes, 232, 16, 4096, "size of an object of skbuff_head_cache")             \
    X(charge_bytes, 768, 1, 1048576, "charged to the socket a message (truesize)")     \
    X(sndbuf_bytes, 212992, 1, 1073741824,                                             \
      "limit of a socket (net.core.wmem_default)")                                     \
    X(wake_percent, 25, 0, 100, "senders wait until at most so much is charged")       \
    X(pipe, 0, 0, 1, "1: pipes in place of sockets")                                   \
    X(pipe_pages, 16, 1, 256, "pages of a pipe")                                       \
    X(mode, 0, 0, 1, "0: processes, 1: threads; noted only, memory is the same")

enum {
#define PARAMETER_ENUM(name, value, minimum, maximum, help) PARAMETER_##name,
    PARAMETERS(PARAMETER_ENUM) PARAMETER_COUNT
};

#define PARAMETER_ROW(name, value, minimum, maximum, help)                             \
    {#name, value, minimum, maximum, help},
static const struct sq_workload_parameter parameters[PARAMETER_COUNT] = {
    PARAMETERS(PARAMETER_ROW)};

struct hackbench {
    int64_t values[PARAMETER_COUNT];
    sq_cache *head_cache;
    sq_barrier *start;
    sq_channel **channels; /* one a receiver, group after group; NULL with pipes */
    sq_pipe **pipes;
    uint64_t running_count; /* tasks that have not ended; atomic */
};

/* The head of a message: the kernel's sk_buff, as far as we need it. */
struct hackbench_head {
    struct sq_message link;
    void *data;
    void *page[]; /* page_count */
};

/* One task: `index` is the sender's group or the receiver's socket. */
struct hackbench_task {
    struct hackbench *bench;
    uint64_t index;
};

#define PAGE_BYTES   4096u
#define SHARED_BYTES 64u /* what is written of the shared info of a message in pages */

/* A message's pages: allocated one by one, and filled. */
static void hackbench_fill_pages(const struct sq_env *env, sq_task *task,
                                 const int64_t *values, struct hackbench_head *head)
{
    size_t bytes = (size_t)values[PARAMETER_message_bytes];
    for (int64_t i = 0; i < values[PARAMETER_page_count]; i++) {
        size_t part = bytes < PAGE_BYTES ? bytes : PAGE_BYTES;
        head->page[i] = env->pages_alloc(task, 0);
        env->touch_write(task, head->page[i], part);
        bytes -= part;
    }
}

/* They are read, and given back. */
static void hackbench_empty_pages(const struct sq_env *env, sq_task *task,
                                  const int64_t *values,
                                  const struct hackbench_head *head)
{
    size_t bytes = (size_t)values[PARAMETER_message_bytes];
    for (int64_t i = 0; i < values[PARAMETER_page_count]; i++) {
        size_t part = bytes < PAGE_BYTES ? bytes : PAGE_BYTES;
        env->touch_read(task, head->page[i], part);
        bytes -= part;
    }
}

/* A socket's write: wait for room, allocate head, data and pages, fill them, queue. */
static void hackbench_send(const struct sq_env *env, sq_task *task,
                           const struct hackbench *bench, sq_channel *channel)
{
    const int64_t *values = bench->values;
    struct hackbench_head *head;
    void *data;
    env->channel_reserve(task, channel, (uint64_t)values[PARAMETER_charge_bytes]);
    head = env->alloc(task, bench->head_cache);
    data = env->kmalloc(task, (size_t)values[PARAMETER_data_bytes]);
    env->touch_write(task, head, (size_t)values[PARAMETER_head_bytes]);
    if (values[PARAMETER_page_count] == 0)
        env->touch_write(task, data, (size_t)values[PARAMETER_message_bytes]);
    else
        env->touch_write(task, data, SHARED_BYTES);
    head->data = data;
    hackbench_fill_pages(env, task, values, head);
    env->channel_send(task, channel, &head->link);
}

/* A socket's read: take the message, copy, give the charge back, free data, free head.
 */
static void hackbench_receive(const struct sq_env *env, sq_task *task,
                              const struct hackbench *bench, sq_channel *channel)
{
    const int64_t *values = bench->values;
    struct hackbench_head *head = (void *)env->channel_receive(task, channel);
    void *data = head->data;
    if (values[PARAMETER_page_count] == 0)
        env->touch_read(task, data, (size_t)values[PARAMETER_message_bytes]);
    else
        env->touch_read(task, data, SHARED_BYTES);
    hackbench_empty_pages(env, task, values, head);
    env->channel_release(task, channel, (uint64_t)values[PARAMETER_charge_bytes]);
    for (int64_t i = 0; i < values[PARAMETER_page_count]; i++)
        env->pages_free(task, head->page[i]);
    env->kfree(task, data);
    env->free(task, bench->head_cache, head);
}

/* Called by each task at its end. The last one ends the measuring, for hackbench can be a
 * part of a workload whose other tasks go on a little longer. */
static void hackbench_end(const struct sq_env *env, sq_task *task, struct hackbench *bench)
{
    if (__atomic_sub_fetch(&bench->running_count, 1, __ATOMIC_ACQ_REL) == 0)
        env->stop_clock(task);
}

uint64_t sq_hackbench_running_count(const void *state)
{
    const struct hackbench *bench = state;
    return __atomic_load_n(&bench->running_count, __ATOMIC_ACQUIRE);
}

static void hackbench_sender(const struct sq_env *env, sq_task *task, void *argument)
{
    const struct hackbench_task *self = argument;
    struct hackbench *bench = self->bench;
    int64_t fds = bench->values[PARAMETER_fds];
    uint64_t first = self->index * (uint64_t)fds;
    size_t bytes = (size_t)bench->values[PARAMETER_message_bytes];
    char message[4096];
    memset(message, 0, bytes);
    (void)env->barrier_wait(task, bench->start);
    for (int64_t loop = 0; loop < bench->values[PARAMETER_loops]; loop++) {
        for (uint64_t i = first; i < first + (uint64_t)fds; i++) {
            if (bench->pipes != NULL)
                env->pipe_write(task, bench->pipes[i], message, bytes);
            else
                hackbench_send(env, task, bench, bench->channels[i]);
        }
    }
    hackbench_end(env, task, bench);
}

static void hackbench_receiver(const struct sq_env *env, sq_task *task, void *argument)
{
    const struct hackbench_task *self = argument;
    struct hackbench *bench = self->bench;
    size_t bytes = (size_t)bench->values[PARAMETER_message_bytes];
    int64_t count = bench->values[PARAMETER_loops] * bench->values[PARAMETER_fds];
    char message[4096];
    (void)env->barrier_wait(task, bench->start);
    for (int64_t i = 0; i < count; i++) {
        if (bench->pipes != NULL)
            env->pipe_read(task, bench->pipes[self->index], message, bytes);
        else
            hackbench_receive(env, task, bench, bench->channels[self->index]);
        env->progress(task, 1);
    }
    hackbench_end(env, task, bench);
}

static void hackbench_make_sockets(const struct sq_env *env, sq_task *task,
                                   struct hackbench *bench)
{
    const int64_t *values = bench->values;
    uint64_t count = (uint64_t)(values[PARAMETER_groups] * values[PARAMETER_fds]);
    if (values[PARAMETER_pipe] != 0) {
        bench->pipes = env->memory(task, count * sizeof(sq_pipe *));
        for (uint64_t i = 0; i < count; i++)
            bench->pipes[i] =
                env->pipe_create(task, (uint32_t)values[PARAMETER_pipe_pages]);
        return;
    }
    bench->head_cache = env->cache_create(task, "skbuff_head_cache",
                                          (size_t)values[PARAMETER_head_bytes], 0,
                                          SQ_WORKLOAD_HWCACHE_ALIGN);
    bench->channels = env->memory(task, count * sizeof(sq_channel *));
    for (uint64_t i = 0; i < count; i++)
        bench->channels[i] =
            env->channel_create(task, (uint64_t)values[PARAMETER_sndbuf_bytes],
                                (uint32_t)values[PARAMETER_wake_percent]);
}

static void hackbench_check(const struct sq_env *env, sq_task *task,
                            const int64_t *values)
{
    char text[160];
    int64_t pages = values[PARAMETER_page_count];
    int64_t room = pages > 0 ? pages * PAGE_BYTES : values[PARAMETER_data_bytes];
    if (values[PARAMETER_pipe] != 0)
        room = PAGE_BYTES;
    if (values[PARAMETER_message_bytes] > room) {
        (void)snprintf(text, sizeof(text),
                       "message_bytes is %lld: accepted are 1 to %lld, what %s",
                       (long long)values[PARAMETER_message_bytes], (long long)room,
                       pages > 0 ? "page_count pages hold" : "data_bytes holds");
        env->fail(task, text);
    }
    if (values[PARAMETER_pipe] == 0 && pages > 0 &&
        (values[PARAMETER_data_bytes] < SHARED_BYTES ||
         values[PARAMETER_head_bytes] <
             (int64_t)(sizeof(struct hackbench_head) + (size_t)pages * sizeof(void *)))) {
        (void)snprintf(text, sizeof(text),
                       "page_count is %lld: accepted with data_bytes of %u and "
                       "head_bytes of %llu or more",
                       (long long)pages, SHARED_BYTES,
                       (unsigned long long)(sizeof(struct hackbench_head) +
                                            (size_t)pages * sizeof(void *)));
        env->fail(task, text);
    }
}

/* Receivers before senders, group after group, as the original forks them. */
static void *hackbench_setup(const struct sq_env *env, sq_task *task,
                             const int64_t *values)
{
    struct hackbench *bench = env->memory(task, sizeof(*bench));
    uint64_t groups = (uint64_t)values[PARAMETER_groups];
    uint64_t fds = (uint64_t)values[PARAMETER_fds];
    struct hackbench_task *tasks =
        env->memory(task, groups * fds * 2 * sizeof(struct hackbench_task));
    hackbench_check(env, task, values);
    memcpy(bench->values, values, sizeof(bench->values));
    hackbench_make_sockets(env, task, bench);
    bench->running_count = groups * fds * 2;
    bench->start = env->barrier_create(task, (uint32_t)(groups * fds * 2), true);
    env->expect(task, groups * fds * fds * (uint64_t)values[PARAMETER_loops]);
    for (uint64_t group = 0; group < groups; group++) {
        for (uint64_t i = 0; i < 2 * fds; i++, tasks++) {
            bool receives = i < fds;
            tasks->bench = bench;
            tasks->index = receives ? group * fds + i : group;
            env->spawn(task, receives ? hackbench_receiver : hackbench_sender, tasks,
                       SQ_ANY_CPU);
        }
    }
    return bench;
}

const struct sq_workload sq_workload_hackbench = {
    .abi = SQ_WORKLOAD_ABI,
    .name = "hackbench",
    .help = "groups of senders and receivers over stream sockets or pipes",
    .rate_unit = "messages/s",
    .parameters = parameters,
    .parameter_count = PARAMETER_COUNT,
    .setup = hackbench_setup,
};
