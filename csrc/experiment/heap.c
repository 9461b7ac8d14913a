/*
 * Heaps and caches: making and ending them, the kmalloc size classes. What happens inside
 * a cache is the policy's; this file is the same for all of them.
 */
#include "policy/policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- caches ---- */

/* The constructor of a cache with a pattern: write it over the whole object. */
static void cache_write_pattern(const sq_cache *cache, void *object)
{
    for (uint32_t at = 0; at < cache->object_size; at += cache->pattern_bytes) {
        uint32_t rest = cache->object_size - at;
        memcpy((char *)object + at, cache->pattern,
               rest < cache->pattern_bytes ? rest : cache->pattern_bytes);
    }
}

/* Copy the pattern of the spec, which its owner may change or free. */
static int cache_keep_pattern(sq_cache *cache, const struct sq_cache_spec *spec)
{
    cache->pattern_bytes = spec->pattern_bytes;
    cache->pattern = malloc(spec->pattern_bytes);
    if (cache->pattern == NULL)
        return SQ_E_MEMORY;
    memcpy(cache->pattern, spec->pattern, spec->pattern_bytes);
    return SQ_OK;
}

static int spec_check(const struct sq_cache_spec *spec, struct sq_error *error)
{
    uint64_t size_max = (uint64_t)SQ_PAGE_SIZE << SQ_PAGE_ORDER_MAX;
    if (spec->size < 1 || spec->size > size_max)
        return sq_error_set(error, SQ_E_PARAMETER,
                            "size of cache %.60s is %llu: accepted are 1 to %llu bytes",
                            spec->name, (unsigned long long)spec->size,
                            (unsigned long long)size_max);
    if (spec->align != 0 &&
        (!sq_is_power_of_two(spec->align) || spec->align > SQ_PAGE_SIZE))
        return sq_error_set(error, SQ_E_PARAMETER,
                            "align of cache %.60s is %llu: accepted are 0 and powers of "
                            "two up to %u",
                            spec->name, (unsigned long long)spec->align, SQ_PAGE_SIZE);
    if (spec->pattern != NULL &&
        (spec->pattern_bytes < 1 || spec->pattern_bytes > spec->size))
        return sq_error_set(error, SQ_E_PARAMETER,
                            "constructor of cache %.60s is %u bytes: accepted are 1 to "
                            "%llu, the size of an object",
                            spec->name, spec->pattern_bytes,
                            (unsigned long long)spec->size);
    return SQ_OK;
}

/* The counters of each CPU lie on that CPU's node, a line or more of their own. */
static int cache_make_counters(sq_cpu *cpu, sq_cache *cache)
{
    const struct sq_topology *topology = &cpu->machine->topology;
    size_t bytes = sizeof(uint64_t) * cache->ops->counter_count;
    for (uint32_t i = 0; i < topology->cpu_count; i++) {
        cache->counters[i] =
            cpu->machine->ops->meta_alloc(cpu, bytes, topology->node_of_cpu[i]);
        if (cache->counters[i] == NULL)
            return SQ_E_MEMORY;
    }
    return SQ_OK;
}

static void cache_free_memory(sq_cpu *cpu, sq_cache *cache)
{
    for (uint32_t i = 0; i < cpu->machine->topology.cpu_count; i++)
        cpu->machine->ops->meta_free(cpu, cache->counters[i]);
    free(cache->pattern);
    sq_cache_drop_all_aliases(cache);
    cpu->machine->ops->meta_free(cpu, cache);
}

/* Everything of the base that is not the policy's. */
static int cache_fill_in(sq_cpu *cpu, sq_heap *heap, const struct sq_cache_spec *spec,
                         sq_cache *cache)
{
    cache->ops = heap->ops;
    cache->heap = heap;
    cache->index = heap->cache_count;
    cache->flags = spec->flags | (spec->sheaf_capacity > 0 ? SQ_CACHE_NO_MERGE : 0);
    cache->object_size = (uint32_t)spec->size;
    cache->constructor = spec->constructor;
    cache->reference_count = 1;
    sq_list_init(&cache->aliases);
    (void)snprintf(cache->name, sizeof(cache->name), "%s", spec->name);
    sq_cache_start_reaping(cache);
    if (spec->pattern != NULL && cache_keep_pattern(cache, spec) != SQ_OK)
        return SQ_E_MEMORY;
    return cache_make_counters(cpu, cache);
}

static int cache_make(sq_cpu *cpu, sq_heap *heap, const struct sq_cache_spec *spec,
                      sq_cache **result, struct sq_error *error)
{
    sq_cache *cache =
        cpu->machine->ops->meta_alloc(cpu, heap->ops->cache_bytes, cpu->node);
    int status;
    if (cache == NULL)
        return sq_error_set(error, SQ_E_MEMORY,
                            "no memory on the machine for cache %.60s", spec->name);
    status = cache_fill_in(cpu, heap, spec, cache);
    if (status == SQ_OK)
        status = heap->ops->cache_init(cpu, cache, spec, error);
    else
        (void)sq_error_set(error, status, "no memory on the machine for cache %.60s",
                           spec->name);
    if (status != SQ_OK) {
        cache_free_memory(cpu, cache);
        return status;
    }
    heap->cache_count++;
    sq_list_link_tail(&cache->link, &heap->caches);
    *result = cache;
    return SQ_OK;
}

/* Flags that the boot text gives a cache; no letters stand for all that there are. */
static uint32_t heap_debug_flags(const sq_heap *heap, const struct sq_cache_spec *spec)
{
    const sq_policy_ops *ops = heap->ops;
    uint32_t flags =
        (uint32_t)sq_debug_flags(heap->debug, spec->name) & ops->debug_flags;
    return ops->boot_debug_flags == NULL ? flags : ops->boot_debug_flags(spec, flags);
}

int sq_heap_create_cache(sq_cpu *cpu, sq_heap *heap, const struct sq_cache_spec *spec,
                         sq_cache **result, struct sq_error *error)
{
    struct sq_cache_spec own = *spec;
    int status = spec_check(spec, error);
    if (status != SQ_OK)
        return status;
    own.flags |= heap_debug_flags(heap, spec);
    if (own.pattern != NULL)
        own.constructor = cache_write_pattern;
    *result = NULL;
    status = sq_heap_find_alias(heap, &own, result, error);
    if (status != SQ_OK || *result != NULL)
        return status;
    return cache_make(cpu, heap, &own, result, error);
}

void sq_heap_destroy_cache(sq_cpu *cpu, sq_cache *cache)
{
    sq_list_unlink(&cache->link);
    cache->ops->cache_release(cpu, cache);
    cache_free_memory(cpu, cache);
}

bool sq_heap_put_cache(sq_cpu *cpu, sq_cache *cache, const char *name)
{
    if (--cache->reference_count == 0) {
        sq_heap_destroy_cache(cpu, cache);
        return true;
    }
    sq_cache_drop_alias(cache, name);
    return false;
}

/* ---- kmalloc classes ---- */

static uint32_t kmalloc_list_sizes(const struct sq_kmalloc_shape *shape, uint64_t *sizes)
{
    uint32_t count = 0;
    for (uint64_t size = shape->size_min; size <= shape->size_max; size *= 2) {
        SQ_ASSERT(count + 3 <= SQ_KMALLOC_CLASS_MAX);
        sizes[count++] = size;
        if (size == 64 && shape->has_96)
            sizes[count++] = 96;
        if (size == 128 && shape->has_192)
            sizes[count++] = 192;
    }
    return count;
}

/* The first class that holds `size`. */
static uint8_t kmalloc_class_of(const uint64_t *sizes, uint32_t count, uint64_t size)
{
    uint32_t class_index = 0;
    while (class_index + 1 < count && sizes[class_index] < size)
        class_index++;
    return (uint8_t)class_index;
}

static void kmalloc_fill_tables(sq_heap *heap, const uint64_t *sizes)
{
    uint32_t count = heap->kmalloc_count;
    for (uint32_t i = 0; i < SQ_ARRAY_COUNT(heap->kmalloc_small_class); i++)
        heap->kmalloc_small_class[i] = kmalloc_class_of(sizes, count, 8u * (i + 1));
    for (uint32_t i = 0; i < SQ_ARRAY_COUNT(heap->kmalloc_large_class); i++)
        heap->kmalloc_large_class[i] = kmalloc_class_of(sizes, count, UINT64_C(1) << i);
}

/* kmalloc-192, and since 4.20 kmalloc-4k and kmalloc-1M. */
static void kmalloc_name(const struct sq_kmalloc_shape *shape, uint64_t size,
                         char name[SQ_CACHE_NAME_MAX])
{
    static const char *const units[] = {"", "k", "M"};
    uint32_t unit = 0;
    while (shape->has_units && unit < 2 && size >= 1024 && size % 1024 == 0) {
        size /= 1024;
        unit++;
    }
    (void)snprintf(name, SQ_CACHE_NAME_MAX, "%s-%llu%s", shape->name_prefix,
                   (unsigned long long)size, units[unit]);
}

static int kmalloc_make(sq_cpu *cpu, sq_heap *heap, struct sq_error *error)
{
    struct sq_kmalloc_shape shape = {0};
    uint64_t sizes[SQ_KMALLOC_CLASS_MAX];
    heap->ops->kmalloc_shape(&heap->options, &shape);
    heap->kmalloc_cached_size_max = shape.cached_size_max;
    heap->kmalloc_count = kmalloc_list_sizes(&shape, sizes);
    kmalloc_fill_tables(heap, sizes);
    for (uint32_t i = 0; i < heap->kmalloc_count; i++) {
        char name[SQ_CACHE_NAME_MAX];
        struct sq_cache_spec spec = {.name = name, .size = sizes[i]};
        int status;
        spec.flags = shape.cache_flags | SQ_CACHE_KMALLOC | SQ_CACHE_BOOT;
        kmalloc_name(&shape, sizes[i], name);
        spec.flags |= heap_debug_flags(heap, &spec);
        status = cache_make(cpu, heap, &spec, &heap->kmalloc_cache[i], error);
        if (status != SQ_OK)
            return status;
    }
    return SQ_OK;
}

/* Debug caches guard what was not asked for, so a block of theirs does not grow into it. */
static bool kmalloc_is_debug(const sq_heap *heap, const void *memory)
{
    const struct sq_page *page = sq_page_of_address(heap->machine, memory);
    return page->state == SQ_PAGE_SLAB && heap->ops->cache_of_page(page)->is_debug;
}

void *sq_heap_krealloc(sq_cpu *cpu, sq_heap *heap, void *memory, size_t size, int32_t node,
                       uint32_t flags)
{
    size_t usable = memory == NULL ? 0 : heap->ops->ksize(heap, memory);
    void *larger;
    if (memory != NULL && size == 0) {
        heap->ops->kfree(cpu, heap, memory);
        return NULL;
    }
    if (memory != NULL && size <= usable && !kmalloc_is_debug(heap, memory))
        return memory;
    larger = heap->ops->kmalloc(cpu, heap, size, node, flags);
    if (larger == NULL || memory == NULL)
        return larger;
    memcpy(larger, memory, usable < size ? usable : size);
    heap->ops->kfree(cpu, heap, memory);
    return larger;
}

/* ---- heaps ---- */

/* The letters of these flags, in the kernel's order. */
static const char *debug_letters_of(uint32_t flags, char letters[8])
{
    static const char all[] = "FZPUT";
    static const uint32_t flag[] = {SQ_CACHE_CONSISTENCY_CHECKS, SQ_CACHE_RED_ZONE,
                                    SQ_CACHE_POISON, SQ_CACHE_STORE_USER,
                                    SQ_CACHE_TRACE};
    size_t count = 0;
    for (size_t i = 0; i < SQ_ARRAY_COUNT(flag); i++)
        if (flags & flag[i])
            letters[count++] = all[i];
    letters[count] = '\0';
    return letters;
}

/* Are these boot flags that caches of the policy may have? */
static int debug_check(const sq_policy_ops *ops, const char *debug,
                       struct sq_error *error)
{
    size_t length = debug == NULL ? 0 : strlen(debug);
    int64_t flags = length == 0 ? 0 : sq_debug_letters(debug);
    char letters[8];
    if (length >= sizeof(((sq_heap *)0)->debug) || flags < 0 ||
        (flags & ~(int64_t)ops->debug_flags) != 0)
        return sq_error_set(error, SQ_E_PARAMETER,
                            "debug is %.60s: accepted are letters of %s for policy %s, "
                            "then after commas names of caches, up to %zu bytes",
                            debug, debug_letters_of(ops->debug_flags, letters), ops->name,
                            sizeof(((sq_heap *)0)->debug) - 1);
    return SQ_OK;
}

int sq_heap_create(sq_cpu *cpu, const sq_policy_ops *ops,
                   const struct sq_options *options, sq_heap **result,
                   struct sq_error *error)
{
    return sq_heap_create_debug(cpu, ops, options, NULL, result, error);
}

int sq_heap_create_debug(sq_cpu *cpu, const sq_policy_ops *ops,
                         const struct sq_options *options, const char *debug,
                         sq_heap **result, struct sq_error *error)
{
    sq_heap *heap;
    int status = debug_check(ops, debug, error);
    if (status != SQ_OK)
        return status;
    heap = calloc(1, sizeof(*heap));
    if (heap == NULL)
        return sq_error_set(error, SQ_E_MEMORY, "the host has no memory for a heap");
    (void)snprintf(heap->debug, sizeof(heap->debug), "%s", debug == NULL ? "" : debug);
    heap->ops = ops;
    heap->machine = cpu->machine;
    heap->options = *options;
    heap->merges = sq_options_get(options, ops->name, "slab_nomerge", 1) == 0;
    heap->kmalloc_merges = sq_options_get(options, ops->name, "kmalloc_nomerge", 1) == 0;
    sq_list_init(&heap->caches);
    for (uint32_t i = 0; i < cpu->machine->topology.cpu_count; i++)
        sq_heap_start_reaper(heap, i);
    status = kmalloc_make(cpu, heap, error);
    if (status != SQ_OK) {
        sq_heap_destroy(cpu, heap);
        return status;
    }
    *result = heap;
    return SQ_OK;
}

/* Free the kmalloc blocks that are whole pages and still live. They are on no list, so
 * that kmalloc takes no lock for them: look at every frame, if there are any at all. */
static void heap_free_large(sq_cpu *cpu, sq_heap *heap)
{
    const sq_machine *machine = heap->machine;
    uint64_t node_pages = machine->node_bytes >> SQ_PAGE_SHIFT;
    for (uint32_t node = 0; node < machine->topology.node_count; node++) {
        struct sq_page *frames =
            machine->page_frames + ((uint64_t)node << (machine->node_shift - SQ_PAGE_SHIFT));
        for (uint64_t i = 0; i < node_pages && heap->large_bytes > 0; i++) {
            struct sq_page *page = &frames[i];
            if (page->state != SQ_PAGE_BLOCK || page->word[0] != (uintptr_t)heap)
                continue;
            heap->large_bytes -= (uint64_t)SQ_PAGE_SIZE << page->order;
            machine->ops->pages_free(cpu, page);
        }
    }
}

/* Newest cache first: a cache may keep its management in an older one. */
void sq_heap_destroy(sq_cpu *cpu, sq_heap *heap)
{
    while (!sq_list_is_empty(&heap->caches))
        sq_heap_destroy_cache(cpu,
                              SQ_LIST_ENTRY(heap->caches.prev, sq_cache, link));
    heap_free_large(cpu, heap);
    sq_reports_free(&heap->reports);
    free(heap);
}
