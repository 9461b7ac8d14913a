/*
 * tbench (Andrew Tridgell): the network part of a file server's work. Each client sends
 * requests to a server task of its own over loopback TCP and waits for each response;
 * nothing is stored. skb.h says what the packets are.
 *
 * Sizes of a request and its response, n: bytes of a name, size: of the data
 *   NTCreateX 72+2n/87   Close 47/39        Rename 47+4n/39   Unlink 43+2n/39
 *   Qpathinfo 55+2n/71   Qfileinfo 59/71    Qfsinfo 59/71     Sfileinfo 71/47
 *   Find 59+2n/39+90*entries                WriteX 59+size/55 ReadX 59/59+size
 *   LockX, UnlockX 51/39 Flush 41/39        connect 8/8
 *
 * Without a load file a client draws its operations with the weights of a published run.
 * Neither names nor data sizes of that run were published: name_bytes, find_entries and
 * io_bytes are chosen, not measured. With one, it goes through the file's operations in
 * order, again and again; whoever reads the file gives them as `argument`, a struct
 * tbench_script.
 *
 * Natively give pin_step, 0 or more, for comparisons; tcp_rr.c says why.
 *
 * Before 2.6.27 a segment's head takes all of a page, so the allocation that a policy
 * makes of 4088 bytes, or of 4152 with skb_overhead, is nearly the whole benchmark. Both
 * are plain kmallocs here: what is passed on to the page allocator, the policy decides.
 */
#include "workload/tbench.h"

#include "workload/draw.h"
#include "workload/skb.h"

#include <string.h>

#define PARAMETERS(X)                                                                  \
    X(clients, 0, 0, 10000, "clients, each with a server; 0: one a CPU")               \
    X(operations, 2000, 1, 1000000000, "of each client, unless seconds is given")      \
    X(seconds, 0, 0, 86400, "how long; 0: until the operations are done")              \
    X(release, 20624, SKB_RELEASE_MIN, SKB_RELEASE_MAX,                                \
      "kernel release that packets are of; 20624: 2.6.24")                             \
    X(skb_overhead, 0, 0, 1,                                                           \
      "1: with commit deea84b0ae3d, heads of 4152 bytes in place of 4088")             \
    X(name_bytes, 40, 1, 255, "bytes of a file name")                                  \
    X(find_entries, 10, 0, 500, "names that a Find returns")                           \
    X(io_bytes, 4096, 1, 65536, "data of a ReadX or WriteX")                           \
    X(pin_step, -1, -1, 255,                                                           \
      "-1: tasks run where the scheduler likes; k: client i on CPU i, its server on "  \
      "CPU i + k")                                                                     \
    X(segment_ns, 0, 0, 1000000000, "work on a segment that is not the allocator's")

enum {
#define PARAMETER_ENUM(name, value, minimum, maximum, help) PARAMETER_##name,
    PARAMETERS(PARAMETER_ENUM) PARAMETER_COUNT
};

#define PARAMETER_ROW(name, value, minimum, maximum, help)                             \
    {#name, value, minimum, maximum, help},
static const struct sq_workload_parameter parameters[PARAMETER_COUNT] = {
    PARAMETERS(PARAMETER_ROW)};

#define TBENCH_CONNECT_BYTES  8
#define TBENCH_CLOCK_INTERVAL 16 /* operations between looks at the clock */

/* An operation: how often in the published run, and the sizes of its messages. */
struct tbench_kind {
    uint32_t weight;
    uint32_t request_bytes, request_names;
    uint32_t response_bytes;
    bool sends_data, gets_data, gets_entries;
};

static const struct tbench_kind kinds[] = {
    {940362, 72, 1, 87, false, false, false},  /* NTCreateX */
    {690773, 47, 0, 39, false, false, false},  /* Close */
    {39816, 47, 2, 39, false, false, false},   /* Rename */
    {189895, 43, 1, 39, false, false, false},  /* Unlink */
    {852313, 55, 1, 71, false, false, false},  /* Qpathinfo */
    {149372, 59, 0, 71, false, false, false},  /* Qfileinfo */
    {156277, 59, 0, 71, false, false, false},  /* Qfsinfo */
    {76600, 71, 0, 47, false, false, false},   /* Sfileinfo */
    {329527, 59, 1, 39, false, false, true},   /* Find */
    {468874, 59, 0, 55, true, false, false},   /* WriteX */
    {1474053, 59, 0, 59, false, true, false},  /* ReadX */
    {3062, 51, 0, 39, false, false, false},    /* LockX */
    {3062, 51, 0, 39, false, false, false},    /* UnlockX */
    {65918, 41, 0, 39, false, false, false},   /* Flush */
};
#define TBENCH_KIND_COUNT (sizeof(kinds) / sizeof(kinds[0]))
#define TBENCH_ENTRY_BYTES 90

struct tbench {
    int64_t values[PARAMETER_COUNT];
    const struct tbench_script *script; /* NULL: operations are drawn */
    uint64_t weight_sum;
    struct skb_caches *caches;
    sq_barrier *start;
};

struct tbench_client {
    struct tbench *bench;
    struct draw draw;
    struct skb_end end, server;
};

static struct tbench_step tbench_draw(struct tbench_client *self)
{
    const int64_t *values = self->bench->values;
    uint64_t place = draw_below(&self->draw, self->bench->weight_sum);
    const struct tbench_kind *kind = kinds;
    struct tbench_step step;
    while (place >= kind->weight)
        place -= kind++->weight;
    step.request_bytes =
        kind->request_bytes +
        kind->request_names * 2 * (uint32_t)values[PARAMETER_name_bytes] +
        (kind->sends_data ? (uint32_t)values[PARAMETER_io_bytes] : 0);
    step.response_bytes =
        kind->response_bytes +
        (kind->gets_data ? (uint32_t)values[PARAMETER_io_bytes] : 0) +
        (kind->gets_entries ? TBENCH_ENTRY_BYTES *
                                  (uint32_t)values[PARAMETER_find_entries]
                            : 0);
    return step;
}

static bool tbench_goes_on(const struct sq_env *env, sq_task *task,
                           const struct tbench *bench, int64_t n, uint64_t deadline_ns)
{
    if (bench->values[PARAMETER_seconds] == 0)
        return n < bench->values[PARAMETER_operations];
    return n % TBENCH_CLOCK_INTERVAL != 0 || env->now_ns(task) < deadline_ns;
}

static void tbench_ask(const struct sq_env *env, sq_task *task,
                       struct tbench_client *self, struct tbench_step step)
{
    uint32_t none;
    skb_end_send(env, task, &self->end, step.request_bytes, step.response_bytes);
    if (!skb_end_receive(env, task, &self->end, &none))
        env->fail(task, "a server has gone");
}

static void tbench_client(const struct sq_env *env, sq_task *task, void *argument)
{
    struct tbench_client *self = argument;
    const struct tbench *bench = self->bench;
    const struct tbench_step connect = {TBENCH_CONNECT_BYTES, TBENCH_CONNECT_BYTES};
    uint64_t deadline_ns, place = 0;
    tbench_ask(env, task, self, connect);
    (void)env->barrier_wait(task, bench->start);
    deadline_ns = env->now_ns(task) +
                  (uint64_t)bench->values[PARAMETER_seconds] * 1000000000u;
    for (int64_t n = 0; tbench_goes_on(env, task, bench, n, deadline_ns); n++) {
        if (bench->script == NULL) {
            tbench_ask(env, task, self, tbench_draw(self));
        } else {
            tbench_ask(env, task, self, bench->script->step[place]);
            place = (place + 1) % bench->script->count;
        }
        env->progress(task, 1);
    }
    env->channel_close(task, self->end.outgoing);
    skb_end_ack(env, task, &self->end);
}

static void tbench_server(const struct sq_env *env, sq_task *task, void *argument)
{
    struct tbench_client *client = argument;
    uint32_t bytes;
    while (skb_end_receive(env, task, &client->server, &bytes))
        skb_end_send(env, task, &client->server, bytes, 0);
}

static int32_t tbench_cpu_of(const struct sq_env *env, sq_task *task,
                             const struct tbench *bench, uint32_t index, bool is_server)
{
    int64_t step = bench->values[PARAMETER_pin_step];
    if (step < 0)
        return SQ_ANY_CPU;
    return (int32_t)((index + (is_server ? (uint32_t)step : 0)) % env->cpu_count(task));
}

static void tbench_spawn(const struct sq_env *env, sq_task *task, struct tbench *bench,
                         struct tbench_client *client, uint32_t index)
{
    uint64_t segment_ns = (uint64_t)bench->values[PARAMETER_segment_ns];
    sq_channel *there = env->channel_create(task, UINT64_MAX, 0);
    sq_channel *back = env->channel_create(task, UINT64_MAX, 0);
    client->bench = bench;
    draw_seed(env, task, &client->draw);
    client->end = (struct skb_end){bench->caches, back, there, NULL, segment_ns};
    client->server = (struct skb_end){bench->caches, there, back, NULL, segment_ns};
    env->spawn(task, tbench_server, client,
               tbench_cpu_of(env, task, bench, index, true));
    env->spawn(task, tbench_client, client,
               tbench_cpu_of(env, task, bench, index, false));
}

static void *tbench_setup(const struct sq_env *env, sq_task *task, const int64_t *values)
{
    struct tbench *bench = env->memory(task, sizeof(*bench));
    uint32_t count = (uint32_t)values[PARAMETER_clients];
    struct tbench_client *clients;
    if (count == 0)
        count = env->cpu_count(task);
    clients = env->memory(task, count * sizeof(*clients));
    memcpy(bench->values, values, sizeof(bench->values));
    bench->script = env->argument(task);
    if (bench->script != NULL && bench->script->count == 0)
        env->fail(task, "the load file has no operation");
    for (size_t i = 0; i < TBENCH_KIND_COUNT; i++)
        bench->weight_sum += kinds[i].weight;
    bench->caches = skb_caches_create(env, task, values[PARAMETER_release],
                                      values[PARAMETER_skb_overhead] != 0);
    bench->start = env->barrier_create(task, count, true);
    if (values[PARAMETER_seconds] == 0)
        env->expect(task, count * (uint64_t)values[PARAMETER_operations]);
    for (uint32_t i = 0; i < count; i++)
        tbench_spawn(env, task, bench, &clients[i], i);
    return bench;
}

extern const struct sq_workload sq_workload_tbench;
const struct sq_workload sq_workload_tbench = {
    .abi = SQ_WORKLOAD_ABI,
    .name = "tbench",
    .help = "the network part of a file server's work: requests and responses of many sizes",
    .rate_unit = "operations/s",
    .parameters = parameters,
    .parameter_count = PARAMETER_COUNT,
    .setup = tbench_setup,
};
