/*
 * kmalloc for any policy: size classes over the policy's own caches. This header contains
 * code; a policy includes it after its alloc and free, which it calls directly:
 *
 *   SQ_KMALLOC_ALLOC(cpu, cache, node, flags)   SQ_KMALLOC_FREE(cpu, cache, object)
 *   SQ_KMALLOC_CACHE_OF(page)                   the cache of a slab page
 *   SQ_KMALLOC_NOTE(cpu, cache, object, size)   optional: the size that was asked for
 *
 * Sizes above heap->kmalloc_cached_size_max go to the page allocator as they are: no
 * cache, no statistics, and kfree tells them by the page not being a slab (facts: SLUB
 * passes through above half a page, a page or two pages, by release).
 */
#ifndef SQ_KMALLOC_IMPL_H
#define SQ_KMALLOC_IMPL_H

#include "machine/machine.h"
#include "policy/policy.h"

/* The class of a size from 1 to heap->kmalloc_cached_size_max. */
static inline sq_cache *kmalloc_cache_of_size(const sq_heap *heap, size_t size)
{
    uint32_t class_index = size <= 192 ? heap->kmalloc_small_class[(size - 1) / 8]
                                       : heap->kmalloc_large_class[sq_fls(size - 1)];
    return heap->kmalloc_cache[class_index];
}

static void *kmalloc_large(sq_cpu *cpu, sq_heap *heap, size_t size, int32_t node,
                           uint32_t flags)
{
    uint32_t order = sq_order_of(size, SQ_PAGE_SHIFT);
    uint32_t page_flags = ((flags & SQ_ALLOC_THISNODE) ? SQ_PAGES_THISNODE : 0) |
                          ((flags & SQ_ALLOC_NOWAIT) ? SQ_PAGES_NOWAIT : 0);
    struct sq_page *page =
        order > SQ_PAGE_ORDER_MAX ? NULL : sq_pages_alloc(cpu, order, node, page_flags);
    if (page == NULL)
        return NULL;
    page->word[0] = (uintptr_t)heap; /* sq_heap_destroy finds it by this */
    (void)__atomic_add_fetch(&heap->large_bytes, (uint64_t)SQ_PAGE_SIZE << order,
                             __ATOMIC_RELAXED);
    return sq_page_address(cpu->machine, page);
}

#ifdef SQ_KMALLOC_NOTE
/* From a debug cache, apart so that the others have nothing to save on the way. */
static __attribute__((noinline)) void *kmalloc_alloc_noted(sq_cpu *cpu, sq_heap *heap,
                                                           size_t size, int32_t node,
                                                           uint32_t flags)
{
    sq_cache *cache = kmalloc_cache_of_size(heap, size);
    void *object = SQ_KMALLOC_ALLOC(cpu, cache, node, flags);
    SQ_KMALLOC_NOTE(cpu, cache, object, size);
    return object;
}
#endif

/* Size 0 gives the smallest object (the kernel's ZERO_SIZE_PTR has no use here). */
static void *kmalloc_alloc(sq_cpu *cpu, sq_heap *heap, size_t size, int32_t node,
                           uint32_t flags)
{
    if (size == 0)
        size = 1;
    if (size > heap->kmalloc_cached_size_max)
        return kmalloc_large(cpu, heap, size, node, flags);
#ifdef SQ_KMALLOC_NOTE
    if (__builtin_expect(kmalloc_cache_of_size(heap, size)->is_debug, 0))
        return kmalloc_alloc_noted(cpu, heap, size, node, flags);
#endif
    return SQ_KMALLOC_ALLOC(cpu, kmalloc_cache_of_size(heap, size), node, flags);
}

static void kmalloc_free(sq_cpu *cpu, sq_heap *heap, void *memory)
{
    struct sq_page *page;
    if (memory == NULL)
        return;
    page = sq_page_of_address(cpu->machine, memory);
    sq_touch_read(cpu, page, sizeof(*page));
    if (page->state == SQ_PAGE_SLAB) {
        SQ_KMALLOC_FREE(cpu, SQ_KMALLOC_CACHE_OF(page), memory);
        return;
    }
    (void)__atomic_sub_fetch(&heap->large_bytes, (uint64_t)SQ_PAGE_SIZE << page->order,
                             __ATOMIC_RELAXED);
    sq_pages_free(cpu, page);
}

static size_t kmalloc_usable_size(sq_heap *heap, const void *memory)
{
    const struct sq_page *page = sq_page_of_address(heap->machine, memory);
    if (page->state == SQ_PAGE_SLAB)
        return SQ_KMALLOC_CACHE_OF(page)->object_size;
    return (size_t)SQ_PAGE_SIZE << page->order;
}

static sq_cache *kmalloc_cache_of_page(const struct sq_page *page)
{
    return SQ_KMALLOC_CACHE_OF(page);
}

#endif
