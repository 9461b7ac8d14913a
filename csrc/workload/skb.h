/*
 * Packets of the kernel's TCP: which objects one takes, by release, and how it moves
 * between the two ends of a connection over the loopback device.
 *
 * A segment with data is one object of skbuff_fclone_cache, a pair of sk_buffs, and one
 * kmalloc of its head. The clone, second of the pair, is what travels: it needs no object
 * of its own. Who receives it copies the data and lets go of the clone; the pair and the
 * head are freed when the segment is acked, by the CPU that sends the ack, since loopback
 * delivers it there. The ack rides on the next data in the other direction.
 *
 *   client                        server
 *   alloc pair, head --request--> copies, keeps it as unacked
 *                                 alloc pair, head; frees the request: its ack
 *   copies, keeps <---response--- .
 *   alloc pair, head; frees the response ...
 *
 * So in a steady state each end allocates two objects and then frees the two of the other
 * end, a transaction. A message of several segments draws a pure ack for every second one:
 * one object of skbuff_head_cache and one kmalloc, made and freed where the receiver runs.
 *
 * Sizes, x86-64 with lines of 64 bytes (sk_buff depends on the configuration: 192 where a
 * profile of 2.6.24 named kmalloc-192, 232 later):
 *   release            sk_buff  shared info  head of a data segment
 *   2.6.22 to 2.6.26   192      312          as much as fits a page: 4088; 4152 with commit
 *                                            deea84b0ae3d alone (2.6.24-rc1, -rc2)
 *   2.6.27             192      312          the TCP header's 208 and the shared info:
 *   2.6.28, 2.6.29     232      472          568 to 752, 600, 576
 *   2.6.30             232      488
 *   2.6.31 to 2.6.33   232      496
 *   2.6.34, 2.6.35     232      344
 *   3.2 and later      232      320
 *   6.3 and later      the same size, as an object of skbuff_small_head
 *
 * Not modelled: fragments of pages that carry payload from 2.6.27 on (they come from the
 * page allocator, alike under every policy), copies beyond the head, and the small objects
 * that connecting and closing make.
 */
#ifndef SQ_SKB_H
#define SQ_SKB_H

#include "slabq/workload.h"

/* A release is one number: 2.6.35 is 20635, 6.18 is 61800. */
#define SKB_RELEASE_MIN 20622
#define SKB_RELEASE_MAX 69999

#define SKB_LINE_BYTES           64u
#define SKB_PAGE_BYTES           4096u
#define SKB_HEADER_BYTES         208u /* MAX_TCP_HEADER */
#define SKB_LOOPBACK_MSS_BYTES 16384u /* 16436 less IP, TCP and timestamps */

/* What packets take in one release. */
struct skb_sizes {
    uint32_t buff_bytes;   /* one sk_buff */
    uint32_t fclone_bytes; /* a pair and its count */
    uint32_t shared_bytes; /* skb_shared_info */
    uint32_t send_bytes;   /* the kmalloc of a data segment's head */
    uint32_t ack_bytes;    /* of a pure ack's */
    bool has_small_head;   /* heads are objects of skbuff_small_head */
};

static inline uint32_t skb_align(uint32_t bytes)
{
    return (bytes + SKB_LINE_BYTES - 1) / SKB_LINE_BYTES * SKB_LINE_BYTES;
}

static inline uint32_t skb_shared_info_bytes(int64_t release)
{
    static const struct {
        int64_t release;
        uint32_t bytes;
    } since[] = {{30200, 320}, {20634, 344}, {20631, 496}, {20630, 488}, {20628, 472}};
    for (size_t i = 0; i < sizeof(since) / sizeof(since[0]); i++)
        if (release >= since[i].release)
            return since[i].bytes;
    return 312;
}

/*
 * The head of a data segment before 2.6.27: payload is allowed as much as leaves header,
 * payload and shared info within a page. Commit deea84b0ae3d (`overhead_fixed`) rounded
 * the shared info up in place of the payload down, while the header was rounded up too,
 * and so went beyond the page.
 */
static inline uint32_t skb_page_head_bytes(uint32_t shared_bytes, bool overhead_fixed)
{
    uint32_t room = SKB_PAGE_BYTES - SKB_HEADER_BYTES;
    uint32_t payload = overhead_fixed
                           ? room - skb_align(shared_bytes)
                           : (room - shared_bytes) / SKB_LINE_BYTES * SKB_LINE_BYTES;
    return skb_align(skb_align(SKB_HEADER_BYTES) + payload) + shared_bytes;
}

static inline struct skb_sizes skb_sizes_of(int64_t release, bool overhead_fixed)
{
    struct skb_sizes sizes = {.buff_bytes = release >= 20628 ? 232 : 192,
                              .shared_bytes = skb_shared_info_bytes(release),
                              .has_small_head = release >= 60300};
    sizes.fclone_bytes = 2 * sizes.buff_bytes + 4;
    sizes.ack_bytes = skb_align(SKB_HEADER_BYTES) + sizes.shared_bytes;
    sizes.send_bytes = release >= 20627
                           ? sizes.ack_bytes
                           : skb_page_head_bytes(sizes.shared_bytes, overhead_fixed);
    return sizes;
}

/* A segment: lies in the first bytes of its pair of sk_buffs. */
struct skb {
    struct sq_message link; /* the clone's: the receiver's queue */
    struct skb *next;       /* the original's: those to be acked */
    void *head;
    uint32_t message_bytes; /* of the message that begins here; 0: further on in one */
    uint32_t answer_bytes;  /* of the message that answers this one */
};

/* What all connections of a run share. */
struct skb_caches {
    struct skb_sizes sizes;
    sq_cache *fclone, *head;
    sq_cache *small_head; /* NULL: heads are kmalloc's */
};

static inline struct skb_caches *
skb_caches_create(const struct sq_env *env, sq_task *task, int64_t release,
                  bool overhead_fixed)
{
    struct skb_caches *caches = env->memory(task, sizeof(*caches));
    caches->sizes = skb_sizes_of(release, overhead_fixed);
    caches->fclone = env->cache_create(task, "skbuff_fclone_cache",
                                       caches->sizes.fclone_bytes, 0,
                                       SQ_WORKLOAD_HWCACHE_ALIGN);
    caches->head = env->cache_create(task, "skbuff_head_cache", caches->sizes.buff_bytes,
                                     0, SQ_WORKLOAD_HWCACHE_ALIGN);
    if (caches->sizes.has_small_head)
        caches->small_head =
            env->cache_create(task, "skbuff_small_head", caches->sizes.send_bytes, 0,
                              SQ_WORKLOAD_HWCACHE_ALIGN);
    return caches;
}

static inline void *skb_head_alloc(const struct sq_env *env, sq_task *task,
                                   const struct skb_caches *caches, size_t bytes)
{
    return caches->small_head != NULL ? env->alloc(task, caches->small_head)
                                      : env->kmalloc(task, bytes);
}

static inline void skb_head_free(const struct sq_env *env, sq_task *task,
                                 const struct skb_caches *caches, void *head)
{
    if (caches->small_head != NULL)
        env->free(task, caches->small_head, head);
    else
        env->kfree(task, head);
}

/*
 * Make a segment. Both sk_buffs are written, of the head the header, what was copied in
 * behind it as far as it lies there, and the count in the shared info at its end.
 */
static inline struct skb *skb_alloc(const struct sq_env *env, sq_task *task,
                                    const struct skb_caches *caches, uint32_t bytes)
{
    const struct skb_sizes *sizes = &caches->sizes;
    uint32_t room = sizes->send_bytes - sizes->shared_bytes;
    uint32_t used = SKB_HEADER_BYTES + bytes;
    struct skb *skb = env->alloc(task, caches->fclone);
    char *head = skb_head_alloc(env, task, caches, sizes->send_bytes);
    env->touch_write(task, skb, sizes->fclone_bytes);
    env->touch_write(task, head, used < room ? used : room);
    env->touch_write(task, head + room, SKB_LINE_BYTES);
    skb->head = head;
    skb->next = NULL;
    skb->message_bytes = 0;
    skb->answer_bytes = 0;
    return skb;
}

/* What a receiver does with the clone: read header and data, let go of its share of the
 * pair and of the head. */
static inline void skb_consume(const struct sq_env *env, sq_task *task,
                               const struct skb_caches *caches, struct skb *skb,
                               uint32_t bytes)
{
    const struct skb_sizes *sizes = &caches->sizes;
    uint32_t room = sizes->send_bytes - sizes->shared_bytes;
    uint32_t used = SKB_HEADER_BYTES + bytes;
    char *head = skb->head;
    env->touch_read(task, head, used < room ? used : room);
    env->touch_write(task, head + room, SKB_LINE_BYTES);
    env->touch_write(task, (char *)skb + sizes->buff_bytes, sizes->buff_bytes);
}

/* The original is acked: the data goes first. */
static inline void skb_free(const struct sq_env *env, sq_task *task,
                            const struct skb_caches *caches, struct skb *skb)
{
    skb_head_free(env, task, caches, skb->head);
    env->free(task, caches->fclone, skb);
}

/* One end of a connection, of one task. */
struct skb_end {
    const struct skb_caches *caches;
    sq_channel *incoming, *outgoing;
    struct skb *unacked; /* received, the latest first; their ack is still to be sent */
    uint64_t segment_ns; /* work of system calls and the protocol, a segment and end */
};

/* Ack everything that was received. */
static inline void skb_end_ack(const struct sq_env *env, sq_task *task,
                               struct skb_end *end)
{
    while (end->unacked != NULL) {
        struct skb *skb = end->unacked;
        end->unacked = skb->next;
        skb_free(env, task, end->caches, skb);
    }
}

/* An ack without data: made, delivered and freed here. */
static inline void skb_end_pure_ack(const struct sq_env *env, sq_task *task,
                                    struct skb_end *end)
{
    const struct skb_caches *caches = end->caches;
    void *buff = env->alloc(task, caches->head);
    void *head = skb_head_alloc(env, task, caches, caches->sizes.ack_bytes);
    env->touch_write(task, buff, caches->sizes.buff_bytes);
    env->touch_write(task, head, SKB_HEADER_BYTES);
    skb_end_ack(env, task, end);
    skb_head_free(env, task, caches, head);
    env->free(task, caches->head, buff);
}

static inline uint32_t skb_segment_count(uint32_t bytes)
{
    return bytes <= SKB_LOOPBACK_MSS_BYTES
               ? 1
               : (bytes + SKB_LOOPBACK_MSS_BYTES - 1) / SKB_LOOPBACK_MSS_BYTES;
}

/* Send a message that asks for one of `answer_bytes`; its first segment is the ack of all
 * that was received. */
static inline void skb_end_send(const struct sq_env *env, sq_task *task,
                                struct skb_end *end, uint32_t bytes,
                                uint32_t answer_bytes)
{
    uint32_t left = bytes;
    for (uint32_t i = 0; i < skb_segment_count(bytes); i++) {
        uint32_t part = left < SKB_LOOPBACK_MSS_BYTES ? left : SKB_LOOPBACK_MSS_BYTES;
        struct skb *skb = skb_alloc(env, task, end->caches, part);
        left -= part;
        if (i == 0) {
            skb->message_bytes = bytes;
            skb->answer_bytes = answer_bytes;
        }
        if (end->segment_ns > 0)
            env->think(task, end->segment_ns);
        skb_end_ack(env, task, end);
        env->channel_send(task, end->outgoing, &skb->link);
    }
}

/* Receive a message whole. False: the other end has closed. */
static inline bool skb_end_receive(const struct sq_env *env, sq_task *task,
                                   struct skb_end *end, uint32_t *answer_bytes)
{
    uint32_t left = 0, count = 0;
    do {
        struct skb *skb = (void *)env->channel_receive(task, end->incoming);
        uint32_t part;
        if (skb == NULL)
            return false;
        if (count++ == 0) {
            left = skb->message_bytes;
            *answer_bytes = skb->answer_bytes;
        }
        part = left < SKB_LOOPBACK_MSS_BYTES ? left : SKB_LOOPBACK_MSS_BYTES;
        left -= part;
        skb_consume(env, task, end->caches, skb, part);
        if (end->segment_ns > 0)
            env->think(task, end->segment_ns);
        skb->next = end->unacked;
        end->unacked = skb;
        if (count % 2 == 0)
            skb_end_pure_ack(env, task, end);
    } while (left > 0);
    return true;
}

#endif
