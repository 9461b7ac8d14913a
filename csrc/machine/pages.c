/*
 * Page allocator. The idea is the kernel's: free blocks of 2^k pages on one list an order
 * and node (the zone), merged with their buddy when they come back; in front of it short
 * lists of single blocks for each CPU and node, filled and emptied a batch at a time.
 *
 *   zone of node 1   free[0] <-> page <-> page      lock: zone_lock
 *                    free[3] <-> page
 *   lists of CPU 2   node 0: [0] <-> page           lock: pcp_lock, contended only when
 *                    node 1: [0] <-> page <-> page  another CPU collects them
 *
 * Lock order: pcp_lock, then zone_lock.
 *
 * Departures from the kernel: one zone a node; no watermarks, so a node is used up to its
 * last page before the next one of the fallback list is asked; a page list that another
 * CPU collects is locked (as in Linux 6.1 and later) in place of an inter-processor call.
 *
 * The second half is meta memory: small pieces for the policies' own structures, cut from
 * pages of the wanted node so that their lines lie where the kernel's would.
 */
#include "machine/pages.h"

#include <string.h>

#define PCP_ORDER_MAX    3u
#define META_CLASS_COUNT 6u /* 64, 128, ... 2048 bytes */

struct zone {
    _Alignas(SQ_LINE_SIZE) sq_lock lock;
    /* -- guarded by lock -- */
    uint64_t free_pages;
    struct sq_list free[SQ_PAGE_ORDER_MAX + 1];
};

/* The page lists of one CPU for one node. */
struct page_list {
    _Alignas(SQ_LINE_SIZE) sq_lock lock;
    /* -- guarded by lock -- */
    uint32_t count; /* pages on all lists */
    struct sq_list list[PCP_ORDER_MAX + 1];
};

struct meta_node {
    _Alignas(SQ_LINE_SIZE) sq_lock lock;
    /* -- guarded by lock -- */
    struct sq_list partial[META_CLASS_COUNT]; /* pages with a free piece */
};

struct sq_pages {
    struct zone zone[SQ_NODE_MAX];
    struct meta_node meta[SQ_NODE_MAX];
    /* -- constant -- */
    uint32_t cpu_count, node_count, order_max; /* order_max: of the page lists */
    uint32_t batch, high;                      /* pages; of the page lists */
    uint64_t node_pages;
    struct page_list *lists; /* [cpu * node_count + node] */
};

/* ---- zones ---- */

static struct sq_page *frame_of_pages(sq_machine *machine, uint32_t node)
{
    return machine->page_frames + ((uint64_t)node << (machine->node_shift - SQ_PAGE_SHIFT));
}

static void zone_link(struct zone *zone, struct sq_page *page, uint32_t order)
{
    page->buddy = order + 1;
    sq_list_link_head(&page->lru, &zone->free[order]);
}

/* Take a block of exactly `order`, splitting a larger one. Requires zone->lock. */
static struct sq_page *zone_take(sq_cpu *cpu, struct zone *zone, uint32_t order)
{
    uint32_t found = order;
    struct sq_page *page;
    sq_lock_assert_held(cpu, &zone->lock);
    while (found <= SQ_PAGE_ORDER_MAX && sq_list_is_empty(&zone->free[found]))
        found++;
    if (found > SQ_PAGE_ORDER_MAX)
        return NULL;
    page = SQ_LIST_ENTRY(zone->free[found].next, struct sq_page, lru);
    sq_touch_write(cpu, page, sizeof(*page));
    sq_list_unlink(&page->lru);
    page->buddy = 0;
    while (found > order) {
        found--;
        sq_touch_write(cpu, page + (UINT64_C(1) << found), sizeof(*page));
        zone_link(zone, page + (UINT64_C(1) << found), found);
    }
    zone->free_pages -= UINT64_C(1) << order;
    return page;
}

/* Give a block back, merging it with its free buddies. Requires zone->lock. */
static void zone_give(sq_cpu *cpu, struct zone *zone, struct sq_page *first_frame,
                      struct sq_page *page, uint32_t order)
{
    uint64_t index = (uint64_t)(page - first_frame);
    sq_lock_assert_held(cpu, &zone->lock);
    zone->free_pages += UINT64_C(1) << order;
    while (order < SQ_PAGE_ORDER_MAX) {
        struct sq_page *buddy = first_frame + (index ^ (UINT64_C(1) << order));
        sq_touch_read(cpu, buddy, sizeof(*buddy));
        if (buddy->buddy != order + 1)
            break;
        sq_list_unlink(&buddy->lru);
        buddy->buddy = 0;
        index &= ~(UINT64_C(1) << order);
        order++;
    }
    page = first_frame + index;
    sq_touch_write(cpu, page, sizeof(*page));
    zone_link(zone, page, order);
}

/* ---- page lists ---- */

static struct page_list *list_of(const sq_cpu *cpu, uint32_t node)
{
    struct sq_pages *pages = cpu->machine->pages;
    return &pages->lists[cpu->index * pages->node_count + node];
}

/* Move blocks from the zone to an empty list. Requires list->lock. */
static void list_fill(sq_cpu *cpu, struct page_list *list, uint32_t node, uint32_t order)
{
    struct sq_pages *pages = cpu->machine->pages;
    struct zone *zone = &pages->zone[node];
    uint32_t block_count = pages->batch >> order > 0 ? pages->batch >> order : 1;
    sq_lock_acquire(cpu, &zone->lock);
    for (uint32_t i = 0; i < block_count; i++) {
        struct sq_page *page = zone_take(cpu, zone, order);
        if (page == NULL)
            break;
        page->state = SQ_PAGE_PCP;
        page->order = (uint8_t)order;
        sq_list_link_tail(&page->lru, &list->list[order]);
        list->count += 1u << order;
    }
    sq_lock_release(cpu, &zone->lock);
}

/* Move about `page_count` pages, the longest unused first, back to the zone. Requires
 * list->lock. */
static void list_spill(sq_cpu *cpu, struct page_list *list, uint32_t node,
                       uint32_t page_count)
{
    struct sq_pages *pages = cpu->machine->pages;
    struct zone *zone = &pages->zone[node];
    struct sq_page *first_frame = frame_of_pages(cpu->machine, node);
    uint32_t target = list->count > page_count ? list->count - page_count : 0;
    sq_lock_acquire(cpu, &zone->lock);
    for (uint32_t order = 0; order <= pages->order_max; order++) {
        while (list->count > target && !sq_list_is_empty(&list->list[order])) {
            struct sq_page *page =
                SQ_LIST_ENTRY(list->list[order].prev, struct sq_page, lru);
            sq_list_unlink(&page->lru);
            list->count -= 1u << order;
            page->state = SQ_PAGE_FREE;
            zone_give(cpu, zone, first_frame, page, order);
        }
    }
    sq_lock_release(cpu, &zone->lock);
}

static struct sq_page *list_take(sq_cpu *cpu, uint32_t node, uint32_t order)
{
    struct page_list *list = list_of(cpu, node);
    struct sq_page *page = NULL;
    sq_lock_acquire(cpu, &list->lock);
    if (sq_list_is_empty(&list->list[order]))
        list_fill(cpu, list, node, order);
    if (!sq_list_is_empty(&list->list[order])) {
        page = SQ_LIST_ENTRY(list->list[order].next, struct sq_page, lru);
        sq_touch_write(cpu, page, sizeof(*page));
        sq_list_unlink(&page->lru);
        list->count -= 1u << order;
    }
    sq_lock_release(cpu, &list->lock);
    return page;
}

/* Everything that sits on page lists of `node` goes back to its zone, so that blocks can
 * merge. */
static void list_collect_all(sq_cpu *cpu, uint32_t node)
{
    struct sq_pages *pages = cpu->machine->pages;
    for (uint32_t i = 0; i < pages->cpu_count; i++) {
        struct page_list *list = &pages->lists[i * pages->node_count + node];
        sq_lock_acquire(cpu, &list->lock);
        list_spill(cpu, list, node, list->count);
        sq_lock_release(cpu, &list->lock);
    }
}

/* ---- the contract ---- */

static struct sq_page *node_take(sq_cpu *cpu, uint32_t node, uint32_t order)
{
    struct sq_pages *pages = cpu->machine->pages;
    struct sq_page *page;
    if (order <= pages->order_max)
        return list_take(cpu, node, order);
    sq_lock_acquire(cpu, &pages->zone[node].lock);
    page = zone_take(cpu, &pages->zone[node], order);
    sq_lock_release(cpu, &pages->zone[node].lock);
    return page;
}

/* The first node of the fallback list that has a block. */
static struct sq_page *nodes_take(sq_cpu *cpu, uint32_t node, uint32_t order,
                                  uint32_t flags, bool collect)
{
    const struct sq_topology *topology = &cpu->machine->topology;
    uint32_t count = (flags & SQ_PAGES_THISNODE) ? 1 : topology->node_count;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t candidate = topology->fallback[node][i];
        struct sq_page *page;
        if (collect)
            list_collect_all(cpu, candidate);
        page = node_take(cpu, candidate, order);
        if (page != NULL) {
            page->node = (uint8_t)candidate;
            return page;
        }
    }
    return NULL;
}

struct sq_page *sq_pages_alloc(sq_cpu *cpu, uint32_t order, int32_t node, uint32_t flags)
{
    uint32_t from = node < 0 ? cpu->node : (uint32_t)node;
    struct sq_page *page;
    SQ_ASSERT(order <= SQ_PAGE_ORDER_MAX && from < cpu->machine->topology.node_count);
    if (sq_fault_pages(cpu))
        return NULL;
    SQ_IN_SCOPE(cpu, PAGE_ALLOC);
    page = nodes_take(cpu, from, order, flags, false);
    if (page == NULL && !(flags & SQ_PAGES_NOWAIT))
        page = nodes_take(cpu, from, order, flags, true);
    if (page == NULL)
        return NULL;
    page->state = SQ_PAGE_BLOCK;
    page->order = (uint8_t)order;
    page->policy_flags = 0;
    page->head_offset = 0;
    page->serial = 0;
    memset(page->word, 0, sizeof(page->word));
    for (uint32_t i = 1; i < 1u << order; i++) {
        sq_touch_write(cpu, &page[i], sizeof(*page));
        page[i].state = SQ_PAGE_TAIL;
        page[i].head_offset = i;
    }
    return page;
}

void sq_pages_free(sq_cpu *cpu, struct sq_page *page)
{
    struct sq_pages *pages = cpu->machine->pages;
    uint32_t order = page->order, node = page->node;
    SQ_ASSERT(page->state != SQ_PAGE_FREE && page->state != SQ_PAGE_PCP &&
              page->state != SQ_PAGE_TAIL);
    SQ_IN_SCOPE(cpu, PAGE_FREE);
    sq_touch_write(cpu, page, sizeof(*page));
    for (uint32_t i = 1; i < 1u << order; i++) {
        page[i].state = SQ_PAGE_FREE;
        page[i].head_offset = 0;
    }
    sq_list_init(&page->lru);
    if (order <= pages->order_max) {
        struct page_list *list = list_of(cpu, node);
        sq_lock_acquire(cpu, &list->lock);
        page->state = SQ_PAGE_PCP;
        sq_list_link_head(&page->lru, &list->list[order]);
        list->count += 1u << order;
        if (list->count > pages->high)
            list_spill(cpu, list, node, pages->batch);
        sq_lock_release(cpu, &list->lock);
        return;
    }
    sq_lock_acquire(cpu, &pages->zone[node].lock);
    page->state = SQ_PAGE_FREE;
    zone_give(cpu, &pages->zone[node], frame_of_pages(cpu->machine, node), page, order);
    sq_lock_release(cpu, &pages->zone[node].lock);
}

uint64_t sq_pages_in_use(sq_machine *machine, uint32_t node)
{
    struct sq_pages *pages = machine->pages;
    uint64_t free_pages = pages->zone[node].free_pages;
    for (uint32_t i = 0; i < pages->cpu_count; i++)
        free_pages += pages->lists[i * pages->node_count + node].count;
    return pages->node_pages - free_pages;
}

/* ---- meta memory ----
 *
 * A page of pieces: word[0] is the class, word[1] the pieces in use, word[2] the first
 * free piece (each free piece holds the address of the next), word[3] the node that asked
 * for the page, which is not the node it lies on when that one was full. A block of its
 * own has class META_CLASS_COUNT.
 */

static uint32_t meta_class_of(size_t bytes)
{
    uint32_t class_index = 0;
    while (class_index < META_CLASS_COUNT && (size_t)SQ_LINE_SIZE << class_index < bytes)
        class_index++;
    return class_index;
}

static void *meta_alloc_block(sq_cpu *cpu, size_t bytes, uint32_t node)
{
    uint32_t order = sq_order_of(bytes, SQ_PAGE_SHIFT);
    struct sq_page *page =
        order > SQ_PAGE_ORDER_MAX ? NULL : sq_pages_alloc(cpu, order, (int32_t)node, 0);
    if (page == NULL)
        return NULL;
    page->state = SQ_PAGE_META;
    page->word[0] = META_CLASS_COUNT;
    return memset(sq_page_address(cpu->machine, page), 0, (size_t)SQ_PAGE_SIZE << order);
}

/* A fresh page cut into pieces of a class, or NULL. Requires the lock of `meta`. */
static struct sq_page *meta_grow(sq_cpu *cpu, struct meta_node *meta, uint32_t class_index,
                                 uint32_t node)
{
    size_t piece = (size_t)SQ_LINE_SIZE << class_index;
    struct sq_page *page = sq_pages_alloc(cpu, 0, (int32_t)node, 0);
    char *base;
    if (page == NULL)
        return NULL;
    base = sq_page_address(cpu->machine, page);
    page->state = SQ_PAGE_META;
    page->word[0] = class_index;
    page->word[3] = node;
    for (size_t offset = SQ_PAGE_SIZE; offset >= piece; offset -= piece) {
        *(uint64_t *)(void *)(base + offset - piece) = page->word[2];
        page->word[2] = (uintptr_t)(base + offset - piece);
    }
    sq_list_link_head(&page->lru, &meta->partial[class_index]);
    return page;
}

void *sq_meta_alloc(sq_cpu *cpu, size_t bytes, uint32_t node)
{
    struct meta_node *meta = &cpu->machine->pages->meta[node];
    uint32_t class_index = meta_class_of(bytes);
    struct sq_page *page;
    void *memory = NULL;
    if (class_index == META_CLASS_COUNT)
        return meta_alloc_block(cpu, bytes, node);
    sq_lock_acquire(cpu, &meta->lock);
    if (sq_list_is_empty(&meta->partial[class_index]))
        page = meta_grow(cpu, meta, class_index, node);
    else
        page = SQ_LIST_ENTRY(meta->partial[class_index].next, struct sq_page, lru);
    if (page != NULL) {
        memory = (void *)(uintptr_t)page->word[2];
        page->word[2] = *(uint64_t *)memory;
        page->word[1]++;
        if (page->word[2] == 0)
            sq_list_unlink(&page->lru);
    }
    sq_lock_release(cpu, &meta->lock);
    return memory == NULL ? NULL
                          : memset(memory, 0, (size_t)SQ_LINE_SIZE << class_index);
}

void sq_meta_free(sq_cpu *cpu, void *memory)
{
    struct sq_page *page;
    struct meta_node *meta;
    if (memory == NULL)
        return;
    page = sq_page_of_address(cpu->machine, memory);
    SQ_ASSERT(page->state == SQ_PAGE_META);
    if (page->word[0] == META_CLASS_COUNT) {
        sq_pages_free(cpu, page);
        return;
    }
    meta = &cpu->machine->pages->meta[page->word[3]];
    sq_lock_acquire(cpu, &meta->lock);
    if (page->word[2] == 0)
        sq_list_link_head(&page->lru, &meta->partial[page->word[0]]);
    *(uint64_t *)memory = page->word[2];
    page->word[2] = (uintptr_t)memory;
    if (--page->word[1] == 0)
        sq_list_unlink(&page->lru);
    else
        page = NULL;
    sq_lock_release(cpu, &meta->lock);
    if (page != NULL)
        sq_pages_free(cpu, page);
}

bool sq_percpu_alloc(sq_cpu *cpu, struct sq_percpu *percpu, size_t bytes)
{
    const struct sq_topology *topology = &cpu->machine->topology;
    memset(percpu, 0, sizeof(*percpu));
    for (uint32_t i = 0; i < topology->cpu_count; i++) {
        percpu->part[i] = sq_meta_alloc(cpu, bytes, topology->node_of_cpu[i]);
        if (percpu->part[i] == NULL) {
            sq_percpu_free(cpu, percpu);
            return false;
        }
    }
    return true;
}

void sq_percpu_free(sq_cpu *cpu, struct sq_percpu *percpu)
{
    for (uint32_t i = 0; i < cpu->machine->topology.cpu_count; i++) {
        sq_meta_free(cpu, percpu->part[i]);
        percpu->part[i] = NULL;
    }
}

/* ---- making and ending ---- */

/*
 * Pages that a CPU's list takes from the zone at a time, and the most it keeps: the
 * kernel's rule for a zone of this size (a thousandth of it, at most 512 KiB, a quarter
 * of that, made one less than a power of two; six batches at most).
 */
static void pages_size_lists(struct sq_pages *pages)
{
    uint64_t batch = sq_min_u64(pages->node_pages / 1024, (512 * 1024) / SQ_PAGE_SIZE) / 4;
    batch = sq_max_u64(batch, 1);
    batch = (UINT64_C(1) << sq_ilog2(batch + batch / 2)) - 1;
    pages->batch = (uint32_t)sq_max_u64(batch, 1);
    pages->high = 6 * pages->batch;
}

static void pages_init_node(sq_machine *machine, struct sq_pages *pages, uint32_t node)
{
    struct zone *zone = &pages->zone[node];
    struct sq_page *first = frame_of_pages(machine, node);
    sq_lock_init(&zone->lock, SQ_LOCK_ZONE);
    for (uint32_t order = 0; order <= SQ_PAGE_ORDER_MAX; order++)
        sq_list_init(&zone->free[order]);
    for (uint64_t i = 0; i < pages->node_pages; i += UINT64_C(1) << SQ_PAGE_ORDER_MAX) {
        first[i].buddy = SQ_PAGE_ORDER_MAX + 1;
        sq_list_link_tail(&first[i].lru, &zone->free[SQ_PAGE_ORDER_MAX]);
    }
    zone->free_pages = pages->node_pages;
    sq_lock_init(&pages->meta[node].lock, SQ_LOCK_META);
    for (uint32_t i = 0; i < META_CLASS_COUNT; i++)
        sq_list_init(&pages->meta[node].partial[i]);
}

struct sq_pages *sq_pages_create(sq_machine *machine, uint32_t pcp_order_max)
{
    uint32_t cpu_count = machine->topology.cpu_count;
    uint32_t node_count = machine->topology.node_count;
    size_t list_bytes = sizeof(struct page_list) * cpu_count * node_count;
    struct sq_pages *pages = sq_shared_alloc(machine, sizeof(*pages));
    struct page_list *lists = sq_shared_alloc(machine, list_bytes);
    if (pages == NULL || lists == NULL) {
        sq_shared_free(machine, pages, sizeof(*pages));
        sq_shared_free(machine, lists, list_bytes);
        return NULL;
    }
    pages->cpu_count = cpu_count;
    pages->node_count = node_count;
    pages->order_max = pcp_order_max < PCP_ORDER_MAX ? pcp_order_max : PCP_ORDER_MAX;
    pages->node_pages = machine->node_bytes >> SQ_PAGE_SHIFT;
    pages->lists = lists;
    pages_size_lists(pages);
    for (uint32_t node = 0; node < node_count; node++)
        pages_init_node(machine, pages, node);
    for (uint32_t i = 0; i < cpu_count * node_count; i++) {
        sq_lock_init(&lists[i].lock, SQ_LOCK_PCP);
        for (uint32_t order = 0; order <= PCP_ORDER_MAX; order++)
            sq_list_init(&lists[i].list[order]);
    }
    return pages;
}

void sq_pages_destroy(sq_machine *machine, struct sq_pages *pages)
{
    size_t list_bytes;
    if (pages == NULL)
        return;
    list_bytes = sizeof(struct page_list) * pages->cpu_count * pages->node_count;
    sq_shared_free(machine, pages->lists, list_bytes);
    sq_shared_free(machine, pages, sizeof(*pages));
}
