/*
 * Stream sockets and pipes, as far as they decide when memory moves. Part of
 * unit/workload_<machine>.c.
 *
 *   channel   sending side: charged bytes, senders that wait for room
 *             receiving side: the queue of messages, receivers that wait for one
 *             each side has its lock (class WORKLOAD) and its lines, as the two sockets
 *             of a pair have
 *   pipe      a ring of pages under one lock; one emptied page is kept for the next
 * write
 *
 * The kernel's order is kept: room is looked for before the message is allocated, the
 * queue is locked for a few stores, a receiver gives the charge back before it frees.
 * Departure: the charge is made with the check, under the lock, where the kernel
 * charges after allocating; so senders that ran at once do not overshoot together.
 *
 * With PREEMPT_RT the locks of a socket sleep (simulated only, as its scheduler alone
 * can take a CPU in the middle of a call):
 *
 *   queue_mutex      the messages; the kernel's socket state lock and queue lock in one
 *   receivers_mutex  the head of the receivers' wait queue, held while they are woken
 *   senders_mutex    the same of the senders
 *
 * The charge is an atomic of the kernel and no lock, so send_lock stays what it is. A
 * wait queue without sleepers is looked at without its lock. Which tasks are on it is
 * under the spin lock of its side all the same, which stands for the woken task's own
 * lock. Who waits looks once more for what it waits for when it has the head's lock, so
 * no wake-up is lost.
 */
#include <string.h>

#include "workload/env.h"

struct sq_channel {
    /* -- sending side -- */
    _Alignas(SQ_LINE_SIZE) sq_lock send_lock;
    struct sq_wait_queue senders; /* under send_lock */
    uint64_t charged_bytes;       /* under send_lock */
    uint64_t limit_bytes, writable_bytes;
    /* -- receiving side -- */
    _Alignas(SQ_LINE_SIZE) sq_lock queue_lock;
    struct sq_message *first, *last; /* under queue_lock or queue_mutex, as is_closed */
    struct sq_wait_queue receivers;  /* under queue_lock */
    bool is_closed;
    /* -- with PREEMPT_RT; each has the line of its side -- */
    bool sleeps; /* constant */
    struct sq_rt_mutex queue_mutex, receivers_mutex, senders_mutex;
};

static sq_channel *channel_create(sq_task *task, uint64_t limit_bytes,
                                  uint32_t wake_percent)
{
    sq_channel *channel = env_memory(task, sizeof(*channel));
    sq_lock_init(&channel->send_lock, SQ_LOCK_WORKLOAD);
    sq_lock_init(&channel->queue_lock, SQ_LOCK_WORKLOAD);
    sq_wait_queue_init(&channel->senders);
    sq_wait_queue_init(&channel->receivers);
    channel->receivers.is_for_data = true;
    channel->sleeps = env_of(task)->locks_sleep;
    sq_rt_mutex_init(&channel->queue_mutex, SQ_LOCK_WORKLOAD, &channel->queue_lock);
    sq_rt_mutex_init(&channel->receivers_mutex, SQ_LOCK_WORKLOAD, &channel->receivers);
    sq_rt_mutex_init(&channel->senders_mutex, SQ_LOCK_WORKLOAD, &channel->senders);
    channel->limit_bytes = limit_bytes;
    channel->writable_bytes =
        limit_bytes / 100 * wake_percent + limit_bytes % 100 * wake_percent / 100;
    return channel;
}

/* The lock of the messages. Returns the CPU that the task is then. */
static sq_cpu *channel_lock(sq_cpu *cpu, sq_channel *channel)
{
    if (channel->sleeps)
        return sq_rt_mutex_acquire(cpu, &channel->queue_mutex);
    sq_lock_acquire(cpu, &channel->queue_lock);
    return cpu;
}

static void channel_unlock(sq_cpu *cpu, sq_channel *channel)
{
    if (channel->sleeps)
        sq_rt_mutex_release(cpu, &channel->queue_mutex);
    else
        sq_lock_release(cpu, &channel->queue_lock);
}

/* Wake up to `limit_count` of `queue`, under the lock of its head, which sleeps, and
 * `lock`. Without sleepers neither is taken. */
static void channel_wake(sq_cpu *cpu, struct sq_wait_queue *queue,
                         struct sq_rt_mutex *head, sq_lock *lock, uint32_t limit_count)
{
    if (sq_list_is_empty(&queue->tasks))
        return;
    cpu = sq_rt_mutex_acquire(cpu, head);
    sq_lock_acquire(cpu, lock);
    (void)sq_wait_wake(cpu, queue, limit_count);
    sq_lock_release(cpu, lock);
    sq_rt_mutex_release(cpu, head);
}

/* With sleeping locks: wait for room unless there is some by now. */
static void channel_await_room(sq_task *task, sq_channel *channel)
{
    sq_cpu *cpu = sq_rt_mutex_acquire(task->cpu, &channel->senders_mutex);
    bool is_full;
    sq_lock_acquire(cpu, &channel->send_lock);
    is_full = channel->charged_bytes >= channel->limit_bytes;
    sq_rt_mutex_release(cpu, &channel->senders_mutex);
    if (is_full)
        sq_wait_sleep(task, &channel->senders, &channel->send_lock);
    else
        sq_lock_release(cpu, &channel->send_lock);
}

/* The same for a message. */
static void channel_await_message(sq_task *task, sq_channel *channel)
{
    sq_cpu *cpu = sq_rt_mutex_acquire(task->cpu, &channel->receivers_mutex);
    bool is_empty;
    sq_lock_acquire(cpu, &channel->queue_lock);
    is_empty = channel->first == NULL && !channel->is_closed;
    sq_rt_mutex_release(cpu, &channel->receivers_mutex);
    if (is_empty)
        sq_wait_sleep(task, &channel->receivers, &channel->queue_lock);
    else
        sq_lock_release(cpu, &channel->queue_lock);
}

static void channel_reserve(sq_task *task, sq_channel *channel, uint64_t bytes)
{
    for (;;) {
        sq_cpu *cpu = sq_task_step_blocking(task);
        sq_lock_acquire(cpu, &channel->send_lock);
        if (channel->charged_bytes < channel->limit_bytes) {
            channel->charged_bytes += bytes;
            sq_lock_release(cpu, &channel->send_lock);
            return;
        }
        if (channel->sleeps) {
            sq_lock_release(cpu, &channel->send_lock);
            channel_await_room(task, channel);
        } else {
            sq_wait_sleep(task, &channel->senders, &channel->send_lock);
        }
    }
}

/* Queue a message and wake who waits for one. */
static void channel_put(sq_cpu *cpu, sq_channel *channel, struct sq_message *message)
{
    message->next = NULL;
    cpu = channel_lock(cpu, channel);
    if (channel->first == NULL) {
        channel->first = message;
    } else {
        sq_touch_write(cpu, channel->last, sizeof(*message));
        channel->last->next = message;
    }
    channel->last = message;
    if (!channel->sleeps)
        (void)sq_wait_wake(cpu, &channel->receivers, 1);
    channel_unlock(cpu, channel);
    if (channel->sleeps)
        channel_wake(cpu, &channel->receivers, &channel->receivers_mutex,
                     &channel->queue_lock, 1);
}

static void channel_send(sq_task *task, sq_channel *channel, struct sq_message *message)
{
    sq_cpu *cpu = sq_task_step_blocking(task);
    env_charge_syscall(task);
    channel_put(cpu, channel, message);
}

static void channel_deliver(sq_task *task, sq_channel *channel,
                            struct sq_message *message)
{
    channel_put(sq_task_step_blocking(task), channel, message);
}

static struct sq_message *channel_receive(sq_task *task, sq_channel *channel)
{
    for (;;) {
        sq_cpu *cpu = channel_lock(sq_task_step_blocking(task), channel);
        struct sq_message *message = channel->first;
        if (message != NULL) {
            sq_touch_read(cpu, message, sizeof(*message));
            channel->first = message->next;
        }
        if (message != NULL || channel->is_closed) {
            channel_unlock(cpu, channel);
            env_charge_syscall(task);
            return message;
        }
        if (channel->sleeps) {
            channel_unlock(cpu, channel);
            channel_await_message(task, channel);
        } else {
            sq_wait_sleep(task, &channel->receivers, &channel->queue_lock);
        }
    }
}

static void channel_release(sq_task *task, sq_channel *channel, uint64_t bytes)
{
    sq_cpu *cpu = sq_task_step_blocking(task);
    bool is_writable;
    sq_lock_acquire(cpu, &channel->send_lock);
    channel->charged_bytes -= sq_min_u64(bytes, channel->charged_bytes);
    is_writable = channel->charged_bytes <= channel->writable_bytes;
    if (is_writable && !channel->sleeps)
        (void)sq_wait_wake(cpu, &channel->senders, UINT32_MAX);
    sq_lock_release(cpu, &channel->send_lock);
    if (is_writable && channel->sleeps)
        channel_wake(cpu, &channel->senders, &channel->senders_mutex,
                     &channel->send_lock, UINT32_MAX);
}

static void channel_close(sq_task *task, sq_channel *channel)
{
    sq_cpu *cpu = channel_lock(sq_task_step_blocking(task), channel);
    channel->is_closed = true;
    if (!channel->sleeps)
        (void)sq_wait_wake(cpu, &channel->receivers, UINT32_MAX);
    channel_unlock(cpu, channel);
    if (channel->sleeps)
        channel_wake(cpu, &channel->receivers, &channel->receivers_mutex,
                     &channel->queue_lock, UINT32_MAX);
}

/* ---- pipes ---- */

/* Bytes [begin, end) of a page wait to be read. */
struct pipe_page {
    struct sq_page *page;
    uint32_t begin, end;
};

struct sq_pipe {
    _Alignas(SQ_LINE_SIZE) sq_lock lock; /* class WORKLOAD: all below */
    uint32_t page_count;                 /* of the ring; constant */
    uint32_t first_index, used_count;
    uint64_t readable_bytes;
    struct sq_page *spare; /* an emptied page for the next write */
    struct sq_wait_queue readers, writers;
    struct sq_pipe *next; /* of the run, so that pages are given back */
    struct pipe_page ring[];
};

static sq_pipe *pipe_create(sq_task *task, uint32_t page_count)
{
    uint32_t count = page_count > 0 ? page_count : 1;
    sq_pipe *pipe = env_memory(task, sizeof(*pipe) + sizeof(pipe->ring[0]) * count);
    sq_lock_init(&pipe->lock, SQ_LOCK_WORKLOAD);
    sq_wait_queue_init(&pipe->readers);
    sq_wait_queue_init(&pipe->writers);
    pipe->page_count = count;
    env_keep_pipe(task, pipe, &pipe->next);
    return pipe;
}

/* Give every page back: the run is over. */
static void pipe_destroy(sq_cpu *cpu, sq_pipe *pipe)
{
    for (uint32_t i = 0; i < pipe->used_count; i++)
        sq_pages_free(cpu, pipe->ring[(pipe->first_index + i) % pipe->page_count].page);
    if (pipe->spare != NULL)
        sq_pages_free(cpu, pipe->spare);
}

static struct pipe_page *pipe_last(sq_pipe *pipe)
{
    return &pipe->ring[(pipe->first_index + pipe->used_count - 1) % pipe->page_count];
}

/* Where `bytes` can be written now, or NULL: more room, or a page for it, is needed. */
static struct pipe_page *pipe_room(sq_pipe *pipe, size_t bytes)
{
    struct pipe_page *last;
    if (pipe->used_count > 0 && pipe_last(pipe)->end + bytes <= SQ_PAGE_SIZE)
        return pipe_last(pipe);
    if (pipe->used_count == pipe->page_count || pipe->spare == NULL)
        return NULL;
    pipe->used_count++;
    last = pipe_last(pipe);
    last->page = pipe->spare;
    last->begin = 0;
    last->end = 0;
    pipe->spare = NULL;
    return last;
}

/* Allocate the page that the next write needs. Requires no lock held: the page
 * allocator may ask other CPUs. */
static void pipe_add_spare(sq_task *task, sq_pipe *pipe)
{
    sq_cpu *cpu = task->cpu;
    struct sq_page *page = sq_pages_alloc(cpu, 0, SQ_NODE_ANY, 0);
    if (page == NULL) {
        struct sq_error error;
        (void)sq_error_set(&error, SQ_E_MEMORY,
                           "no node of the machine has a page for a pipe (asked on CPU "
                           "%u, node %u)",
                           cpu->index, cpu->node);
        env_fail(task, &error);
    }
    sq_lock_acquire(cpu, &pipe->lock);
    if (pipe->spare == NULL) {
        pipe->spare = page;
        page = NULL;
    }
    sq_lock_release(cpu, &pipe->lock);
    if (page != NULL)
        sq_pages_free(cpu, page);
}

static void pipe_check_bytes(sq_task *task, size_t bytes)
{
    struct sq_error error;
    if (bytes >= 1 && bytes <= SQ_PAGE_SIZE)
        return;
    (void)sq_error_set(&error, SQ_E_PARAMETER,
                       "a pipe call of %zu bytes: accepted are 1 to %u", bytes,
                       SQ_PAGE_SIZE);
    env_fail(task, &error);
}

static void pipe_write(sq_task *task, sq_pipe *pipe, const void *source, size_t bytes)
{
    pipe_check_bytes(task, bytes);
    env_charge_syscall(task);
    for (;;) {
        sq_cpu *cpu = sq_task_step_blocking(task);
        struct pipe_page *room;
        sq_lock_acquire(cpu, &pipe->lock);
        room = pipe_room(pipe, bytes);
        if (room != NULL) {
            char *target = sq_page_address(cpu->machine, room->page) + room->end;
            memcpy(target, source, bytes);
            sq_touch_write(cpu, target, bytes);
            room->end += (uint32_t)bytes;
            pipe->readable_bytes += bytes;
            (void)sq_wait_wake(cpu, &pipe->readers, 1);
            sq_lock_release(cpu, &pipe->lock);
            return;
        }
        if (pipe->used_count == pipe->page_count) {
            sq_wait_sleep(task, &pipe->writers, &pipe->lock);
            continue;
        }
        sq_lock_release(cpu, &pipe->lock);
        pipe_add_spare(task, pipe);
    }
}

/* The first page was read to its end. Returns it if it is not kept. Wakes the writers
 * if the ring was full. */
static struct sq_page *pipe_drop_first(sq_cpu *cpu, sq_pipe *pipe)
{
    struct sq_page *page = pipe->ring[pipe->first_index].page;
    pipe->first_index = (pipe->first_index + 1) % pipe->page_count;
    if (pipe->used_count-- == pipe->page_count)
        (void)sq_wait_wake(cpu, &pipe->writers, UINT32_MAX);
    if (pipe->spare != NULL)
        return page;
    pipe->spare = page;
    return NULL;
}

/* Move up to `bytes` from the first page. Requires the lock and readable bytes. */
static size_t pipe_read_first(sq_cpu *cpu, sq_pipe *pipe, char *target, size_t bytes)
{
    struct pipe_page *first = &pipe->ring[pipe->first_index];
    const char *source = sq_page_address(cpu->machine, first->page) + first->begin;
    size_t count = sq_min_u64(bytes, first->end - first->begin);
    sq_touch_read(cpu, source, count);
    memcpy(target, source, count);
    first->begin += (uint32_t)count;
    pipe->readable_bytes -= count;
    return count;
}

static void pipe_read(sq_task *task, sq_pipe *pipe, void *target, size_t bytes)
{
    size_t done = 0;
    pipe_check_bytes(task, bytes);
    env_charge_syscall(task);
    while (done < bytes) {
        sq_cpu *cpu = sq_task_step_blocking(task);
        struct sq_page *emptied = NULL;
        sq_lock_acquire(cpu, &pipe->lock);
        if (pipe->readable_bytes == 0) {
            sq_wait_sleep(task, &pipe->readers, &pipe->lock);
            continue;
        }
        done += pipe_read_first(cpu, pipe, (char *)target + done, bytes - done);
        if (pipe->ring[pipe->first_index].begin == pipe->ring[pipe->first_index].end)
            emptied = pipe_drop_first(cpu, pipe);
        sq_lock_release(cpu, &pipe->lock);
        if (emptied != NULL)
            sq_pages_free(cpu, emptied);
    }
}
