/*
 * tcp_rr (netperf -t TCP_RR): threads that send a request of a byte and wait for a
 * response of a byte, one transaction at a time each. skb.h says what a packet is.
 *
 * localhost       netperf and netserver are tasks of this machine, a pair a thread.
 * Four objects are allocated and four freed a transaction: at each end a pair of
 *                 sk_buffs and a head, freed by the other end.
 *
 * client-server   this machine is one side, the other is a delay. An interrupt CPU
 * takes what arrives: it allocates receive buffers and frees, with the ack they bring,
 * what the threads have sent.
 *
 *   thread     alloc pair, kmalloc head --wire--> .
 *   interrupt  (after delay_ns) kmalloc 4096, alloc sk_buff; kfree head, free pair
 *   thread     copy; kfree 4096, free sk_buff
 *
 *   So a client's transaction is, beside the pair, one allocation and one free of each
 * of kmalloc-1024 (the head), kmalloc-4096 (receive_bytes) and the 256 bytes of an
 * sk_buff, which a SLUB that merges caches calls kmalloc-256. On the server the same,
 * the other way round. With `ring`, buffers wait their turn in a ring of the device
 * first.
 *
 * Natively a pair that the scheduler has split wakes a thread of the host twice a
 * transaction, which costs more than all else: compare with pin_step 0 (each pair on
 * one CPU) or 1 (the two ends on neighbours).
 *
 * A thread ends after `transactions`, or after `seconds` unless that is 0. The work of
 * system calls and of the protocol is the machine's syscall_ns, once for each handling
 * of a packet (by who sends it, by the interrupt CPU, by who reads it), and
 * `segment_ns` on top.
 */
#include "workload/skb.h"

#include <stdio.h>
#include <string.h>

#define PARAMETERS(X)                                                                  \
    X(threads, 0, 0, 10000, "netperf processes; 0: one a CPU")                         \
    X(transactions, 10000, 1, 1000000000, "of each thread, unless seconds is given")   \
    X(seconds, 0, 0, 86400, "how long; 0: until the transactions are done")            \
    X(placement, 0, 0, 1, "localhost (0) or client-server (1)")                        \
    X(side, 0, 0, 1, "client-server: this machine is the client (0) or server (1)")    \
    X(release, 20635, SKB_RELEASE_MIN, SKB_RELEASE_MAX,                                \
      "kernel release that packets are of; 20635: 2.6.35")                             \
    X(request_bytes, 1, 1, 65536, "bytes of a request")                                \
    X(response_bytes, 1, 1, 65536, "bytes of a response")                              \
    X(pin_step, -1, -1, 255,                                                           \
      "-1: tasks run where the scheduler likes; k: thread i on CPU i and its "         \
      "netserver "                                                                     \
      "on CPU i + k, or of client-server thread i on CPU i + k")                       \
    X(irq_cpu, 0, -1, 255,                                                             \
      "client-server: the CPU that interrupts go to; -1: each to the sender's")        \
    X(delay_ns, 50000, 0, 1000000000,                                                  \
      "client-server: from sending to the arrival of the other side's packet")         \
    X(receive_bytes, 4096, 128, 65536, "client-server: size of a receive buffer")      \
    X(ring, 0, 0, 4096, "client-server: receive buffers allocated ahead")              \
    X(receive_node, -1, -1, 15,                                                        \
      "client-server: node that receive buffers are asked from; -1: none is named")    \
    X(segment_ns, 0, 0, 1000000000, "work on a segment that is not the allocator's")

enum {
#define PARAMETER_ENUM(name, value, minimum, maximum, help) PARAMETER_##name,
    PARAMETERS(PARAMETER_ENUM) PARAMETER_COUNT
};

#define PARAMETER_ROW(name, value, minimum, maximum, help)                             \
    {#name, value, minimum, maximum, help},
static const struct sq_workload_parameter parameters[PARAMETER_COUNT] = {
    PARAMETERS(PARAMETER_ROW)};

#define RR_CLOCK_INTERVAL     16  /* transactions between looks at the clock */
#define RR_PRIORITY_INTERRUPT 100 /* set_priority's, of the work of interrupts */

struct rr {
    int64_t values[PARAMETER_COUNT];
    struct skb_caches *caches;
    sq_barrier *start;
    uint32_t wire_count;
    struct rr_wire *wires;  /* one an interrupt CPU */
    uint64_t running_count; /* threads; atomic */
};

/* A received packet: lies in the first bytes of its sk_buff. */
struct rr_received {
    struct sq_message link;
    void *data;
};

/* A packet under way. One a thread, as one transaction is. */
struct rr_packet {
    struct sq_message link;
    struct rr_thread *thread;
    struct skb *skb;     /* sent by this machine, NULL at a server's start */
    uint64_t arrival_ns; /* of the other side's packet */
    bool is_last;        /* nothing but an ack arrives */
};

/* What goes out and comes in through one interrupt CPU. */
struct rr_wire {
    struct rr *rr;
    sq_channel *packets;
    struct rr_received **ring; /* `ring` buffers, the next to be used at `ring_next` */
    uint32_t ring_next;
};

struct rr_thread {
    struct rr *rr;
    struct skb_end end; /* localhost: of netperf; else `incoming` alone */
    struct skb_end server;
    struct rr_packet packet;
};

/* Does the thread's next transaction, its n-th, still belong to the run? */
static bool rr_goes_on(const struct sq_env *env, sq_task *task, const struct rr *rr,
                       int64_t n, uint64_t *deadline_ns)
{
    uint64_t seconds = (uint64_t)rr->values[PARAMETER_seconds];
    if (seconds == 0)
        return n < rr->values[PARAMETER_transactions];
    if (n == 0)
        *deadline_ns = env->now_ns(task) + seconds * 1000000000u;
    return n % RR_CLOCK_INTERVAL != 0 || env->now_ns(task) < *deadline_ns;
}

static void rr_work(const struct sq_env *env, sq_task *task, const struct rr *rr)
{
    if (rr->values[PARAMETER_segment_ns] > 0)
        env->think(task, (uint64_t)rr->values[PARAMETER_segment_ns]);
}

/* ---- localhost ---- */

static void rr_netperf(const struct sq_env *env, sq_task *task, void *argument)
{
    struct rr_thread *self = argument;
    const int64_t *values = self->rr->values;
    uint64_t deadline_ns = 0;
    uint32_t none;
    (void)env->barrier_wait(task, self->rr->start);
    for (int64_t n = 0; rr_goes_on(env, task, self->rr, n, &deadline_ns); n++) {
        skb_end_send(env, task, &self->end, (uint32_t)values[PARAMETER_request_bytes],
                     (uint32_t)values[PARAMETER_response_bytes]);
        if (!skb_end_receive(env, task, &self->end, &none))
            env->fail(task, "a netserver has gone");
        env->progress(task, 1);
    }
    env->channel_close(task, self->end.outgoing);
    skb_end_ack(env, task, &self->end);
}

static void rr_netserver(const struct sq_env *env, sq_task *task, void *argument)
{
    struct rr_thread *self = argument;
    uint32_t bytes;
    (void)env->barrier_wait(task, self->rr->start);
    while (skb_end_receive(env, task, &self->server, &bytes))
        skb_end_send(env, task, &self->server, bytes, 0);
}

/* ---- client-server: the interrupt CPU ---- */

/* A buffer for the device to fill. */
static struct rr_received *rr_buffer_alloc(const struct sq_env *env, sq_task *task,
                                           const struct rr *rr)
{
    int32_t node = (int32_t)rr->values[PARAMETER_receive_node];
    struct rr_received *received = env->alloc_node(task, rr->caches->head, node);
    void *data =
        env->kmalloc_node(task, (size_t)rr->values[PARAMETER_receive_bytes], node);
    env->touch_write(task, received, rr->caches->sizes.buff_bytes);
    received->data = data;
    return received;
}

static void rr_buffer_free(const struct sq_env *env, sq_task *task, const struct rr *rr,
                           struct rr_received *received)
{
    env->kfree(task, received->data);
    env->free(task, rr->caches->head, received);
}

/* The buffer that the packet came in; the ring gets another for it. */
static struct rr_received *rr_take_buffer(const struct sq_env *env, sq_task *task,
                                          struct rr_wire *wire)
{
    struct rr_received *received = rr_buffer_alloc(env, task, wire->rr);
    if (wire->rr->values[PARAMETER_ring] > 0) {
        struct rr_received **place = &wire->ring[wire->ring_next];
        struct rr_received *filled = *place;
        *place = received;
        received = filled;
        wire->ring_next =
            (wire->ring_next + 1) % (uint32_t)wire->rr->values[PARAMETER_ring];
    }
    return received;
}

/* The other side's packet is here: read its header, free what it acks, and give it to
 * the thread. The frame itself was written by the device. */
static void rr_arrive(const struct sq_env *env, sq_task *task, struct rr_wire *wire,
                      struct rr_packet *packet)
{
    const struct rr *rr = wire->rr;
    struct rr_thread *thread = packet->thread;
    struct skb *acked = packet->skb;
    if (packet->is_last) {
        skb_free(env, task, rr->caches, acked);
        return;
    }
    struct rr_received *received = rr_take_buffer(env, task, wire);
    env->touch_write(task, received->data, SKB_LINE_BYTES);
    rr_work(env, task, rr);
    if (acked != NULL)
        skb_free(env, task, rr->caches, acked);
    env->channel_deliver(task, thread->end.incoming, &received->link);
}

/* All that an interrupt CPU does: packets in the order they were sent in. */
static void rr_interrupts(const struct sq_env *env, sq_task *task, void *argument)
{
    struct rr_wire *wire = argument;
    const struct rr *rr = wire->rr;
    const struct skb_sizes *sizes = &rr->caches->sizes;
    struct rr_packet *packet;
    env->set_priority(task, RR_PRIORITY_INTERRUPT);
    for (int64_t i = 0; i < rr->values[PARAMETER_ring]; i++)
        wire->ring[i] = rr_buffer_alloc(env, task, rr);
    (void)env->barrier_wait(task, rr->start);
    while ((packet = (void *)env->channel_receive(task, wire->packets)) != NULL) {
        if (packet->skb != NULL) /* sent: the device lets go of the clone */
            env->touch_write(task, (char *)packet->skb + sizes->buff_bytes,
                             sizes->buff_bytes);
        if (env->now_ns(task) < packet->arrival_ns)
            env->sleep_until(task, packet->arrival_ns);
        rr_arrive(env, task, wire, packet);
    }
    for (int64_t i = 0; i < rr->values[PARAMETER_ring]; i++)
        rr_buffer_free(env, task, rr, wire->ring[i]);
}

/* ---- client-server: the threads ---- */

static void rr_post(const struct sq_env *env, sq_task *task, struct rr_thread *self,
                    struct skb *skb, bool is_last)
{
    struct rr *rr = self->rr;
    uint64_t delay_ns = is_last ? 0 : (uint64_t)rr->values[PARAMETER_delay_ns];
    uint32_t wire = rr->wire_count > 1 ? env->cpu_index(task) : 0;
    self->packet.thread = self;
    self->packet.skb = skb;
    self->packet.is_last = is_last;
    self->packet.arrival_ns = env->now_ns(task) + delay_ns;
    env->channel_send(task, rr->wires[wire].packets, &self->packet.link);
}

static struct skb *rr_make(const struct sq_env *env, sq_task *task,
                           const struct rr_thread *self, uint32_t bytes)
{
    struct skb *skb = skb_alloc(env, task, self->rr->caches, bytes);
    rr_work(env, task, self->rr);
    return skb;
}

static void rr_take(const struct sq_env *env, sq_task *task, struct rr_thread *self,
                    uint32_t bytes)
{
    struct rr_received *received =
        (void *)env->channel_receive(task, self->end.incoming);
    size_t room = (size_t)self->rr->values[PARAMETER_receive_bytes];
    env->touch_read(task, received->data, bytes < room ? bytes : room);
    rr_work(env, task, self->rr);
    rr_buffer_free(env, task, self->rr, received);
}

/* The last thread closes the wires, so that the interrupt CPUs end too. */
static void rr_thread_end(const struct sq_env *env, sq_task *task, struct rr *rr)
{
    if (__atomic_sub_fetch(&rr->running_count, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    for (uint32_t i = 0; i < rr->wire_count; i++)
        env->channel_close(task, rr->wires[i].packets);
}

static void rr_client(const struct sq_env *env, sq_task *task, void *argument)
{
    struct rr_thread *self = argument;
    const int64_t *values = self->rr->values;
    uint64_t deadline_ns = 0;
    (void)env->barrier_wait(task, self->rr->start);
    for (int64_t n = 0; rr_goes_on(env, task, self->rr, n, &deadline_ns); n++) {
        rr_post(env, task, self,
                rr_make(env, task, self, (uint32_t)values[PARAMETER_request_bytes]),
                false);
        rr_take(env, task, self, (uint32_t)values[PARAMETER_response_bytes]);
        env->progress(task, 1);
    }
    rr_thread_end(env, task, self->rr);
}

static void rr_server(const struct sq_env *env, sq_task *task, void *argument)
{
    struct rr_thread *self = argument;
    const int64_t *values = self->rr->values;
    struct skb *response = NULL;
    uint64_t deadline_ns = 0;
    (void)env->barrier_wait(task, self->rr->start);
    for (int64_t n = 0; rr_goes_on(env, task, self->rr, n, &deadline_ns); n++) {
        rr_post(env, task, self, response, false);
        rr_take(env, task, self, (uint32_t)values[PARAMETER_request_bytes]);
        response = rr_make(env, task, self, (uint32_t)values[PARAMETER_response_bytes]);
        env->progress(task, 1);
    }
    if (response != NULL)
        rr_post(env, task, self, response, true);
    rr_thread_end(env, task, self->rr);
}

/* ---- making it ---- */

static int32_t rr_cpu_of(const struct sq_env *env, sq_task *task, const struct rr *rr,
                         uint32_t index, bool is_stepped)
{
    int64_t step = rr->values[PARAMETER_pin_step];
    if (step < 0)
        return SQ_ANY_CPU;
    return (int32_t)((index + (is_stepped ? (uint32_t)step : 0)) %
                     env->cpu_count(task));
}

static void rr_spawn_pairs(const struct sq_env *env, sq_task *task, struct rr *rr,
                           struct rr_thread *threads, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct rr_thread *thread = &threads[i];
        sq_channel *there = env->channel_create(task, UINT64_MAX, 0);
        sq_channel *back = env->channel_create(task, UINT64_MAX, 0);
        uint64_t segment_ns = (uint64_t)rr->values[PARAMETER_segment_ns];
        thread->rr = rr;
        thread->end = (struct skb_end){rr->caches, back, there, NULL, segment_ns};
        thread->server = (struct skb_end){rr->caches, there, back, NULL, segment_ns};
        env->spawn(task, rr_netserver, thread, rr_cpu_of(env, task, rr, i, true));
        env->spawn(task, rr_netperf, thread, rr_cpu_of(env, task, rr, i, false));
    }
}

static void rr_spawn_side(const struct sq_env *env, sq_task *task, struct rr *rr,
                          struct rr_thread *threads, uint32_t count)
{
    bool is_server = rr->values[PARAMETER_side] != 0;
    for (uint32_t i = 0; i < rr->wire_count; i++) {
        struct rr_wire *wire = &rr->wires[i];
        wire->rr = rr;
        wire->packets = env->channel_create(task, UINT64_MAX, 0);
        wire->ring = env->memory(task, (size_t)rr->values[PARAMETER_ring] *
                                           sizeof(wire->ring[0]));
        env->spawn(task, rr_interrupts, wire,
                   rr->wire_count > 1 ? (int32_t)i
                                      : (int32_t)rr->values[PARAMETER_irq_cpu]);
    }
    for (uint32_t i = 0; i < count; i++) {
        threads[i].rr = rr;
        threads[i].end.incoming = env->channel_create(task, UINT64_MAX, 0);
        env->spawn(task, is_server ? rr_server : rr_client, &threads[i],
                   rr_cpu_of(env, task, rr, i, true));
    }
}

static void rr_check(const struct sq_env *env, sq_task *task, const int64_t *values)
{
    char text[120];
    uint32_t cpu_count = env->cpu_count(task);
    if (values[PARAMETER_irq_cpu] < (int64_t)cpu_count)
        return;
    (void)snprintf(text, sizeof(text), "irq_cpu is %lld: accepted are -1 to %u",
                   (long long)values[PARAMETER_irq_cpu], cpu_count - 1);
    env->fail(task, text);
}

static void *rr_setup(const struct sq_env *env, sq_task *task, const int64_t *values)
{
    struct rr *rr = env->memory(task, sizeof(*rr));
    bool is_local = values[PARAMETER_placement] == 0;
    uint32_t cpu_count = env->cpu_count(task);
    uint32_t count = (uint32_t)values[PARAMETER_threads];
    struct rr_thread *threads;
    rr_check(env, task, values);
    if (count == 0)
        count = cpu_count;
    memcpy(rr->values, values, sizeof(rr->values));
    threads = env->memory(task, count * sizeof(*threads));
    rr->caches = skb_caches_create(env, task, values[PARAMETER_release], false);
    rr->running_count = count;
    rr->wire_count = values[PARAMETER_irq_cpu] < 0 ? cpu_count : 1;
    rr->wires = env->memory(task, rr->wire_count * sizeof(rr->wires[0]));
    rr->start =
        env->barrier_create(task, count + (is_local ? count : rr->wire_count), true);
    if (values[PARAMETER_seconds] == 0)
        env->expect(task, count * (uint64_t)values[PARAMETER_transactions]);
    if (is_local)
        rr_spawn_pairs(env, task, rr, threads, count);
    else
        rr_spawn_side(env, task, rr, threads, count);
    return rr;
}

extern const struct sq_workload sq_workload_tcp_rr;
const struct sq_workload sq_workload_tcp_rr = {
    .abi = SQ_WORKLOAD_ABI,
    .name = "tcp_rr",
    .help = "netperf TCP_RR: requests and responses over TCP, on one machine or "
            "between two",
    .rate_unit = "transactions/s",
    .parameters = parameters,
    .parameter_count = PARAMETER_COUNT,
    .setup = rr_setup,
};
