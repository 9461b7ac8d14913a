/*
 * Merging: a cache that is asked for may turn out to be another name of one that exists.
 *
 *   create "bio" 192 bytes --> kmalloc-192 exists, 192 bytes --> one cache, two names
 *
 * A cache is left alone in both directions if it has a constructor, debugging that changes
 * its objects, RCU, sheaves, or was made with NO_MERGE. Otherwise it serves for a request
 * whose object, rounded up to a word and to its alignment, is less than a word smaller
 * than the slot, that has the same reclaim accounting, and whose alignment the slots keep.
 * Of several that would do the oldest is taken. CONSISTENCY_CHECKS must be equal too, which
 * the kernel does not ask: there it would silently be lost.
 */
#include "policy/policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD_BYTES 8u
#define NEVER_MERGE                                                                    \
    (SQ_CACHE_RED_ZONE | SQ_CACHE_POISON | SQ_CACHE_STORE_USER |                       \
     SQ_CACHE_TRACE | SQ_CACHE_TYPESAFE_BY_RCU | SQ_CACHE_NO_MERGE)
#define MERGE_SAME (SQ_CACHE_RECLAIM_ACCOUNT | SQ_CACHE_CONSISTENCY_CHECKS)

bool sq_cache_is_mergeable(const sq_cache *cache)
{
    const sq_heap *heap = cache->heap;
    if (!heap->merges || heap->ops->alignment == NULL || cache->constructor != NULL ||
        (cache->flags & NEVER_MERGE) != 0)
        return false;
    if ((cache->flags & SQ_CACHE_KMALLOC) != 0)
        return heap->kmalloc_merges;
    return (cache->flags & SQ_CACHE_BOOT) == 0;
}

/* May the request get its objects from this cache? `size` is its slot. */
static bool cache_serves(const sq_cache *cache, const struct sq_cache_spec *spec,
                         uint64_t size, uint32_t align)
{
    return sq_cache_is_mergeable(cache) && size <= cache->size &&
           cache->size - size < WORD_BYTES && cache->size % align == 0 &&
           ((cache->flags ^ spec->flags) & MERGE_SAME) == 0 &&
           (!cache->ops->shifts_slabs || cache->align % align == 0);
}

static int cache_add_alias(sq_cache *cache, const struct sq_cache_spec *spec,
                           struct sq_error *error)
{
    struct sq_alias *alias = malloc(sizeof(*alias));
    if (alias == NULL)
        return sq_error_set(error, SQ_E_MEMORY,
                            "the host has no memory for the name of cache %.60s",
                            spec->name);
    (void)snprintf(alias->name, sizeof(alias->name), "%s", spec->name);
    sq_list_link_tail(&alias->link, &cache->aliases);
    cache->reference_count++;
    cache->object_size = (uint32_t)sq_max_u64(cache->object_size, spec->size);
    return SQ_OK;
}

int sq_heap_find_alias(sq_heap *heap, const struct sq_cache_spec *spec, sq_cache **result,
                       struct sq_error *error)
{
    uint32_t align;
    uint64_t size;
    if (!heap->merges || heap->ops->alignment == NULL || spec->constructor != NULL ||
        spec->sheaf_capacity > 0 || (spec->flags & NEVER_MERGE) != 0)
        return SQ_OK;
    align = heap->ops->alignment(heap, spec);
    size = sq_align_up(sq_align_up(spec->size, WORD_BYTES), align);
    SQ_LIST_EACH(link, &heap->caches)
    {
        sq_cache *cache = SQ_LIST_ENTRY(link, sq_cache, link);
        if (cache_serves(cache, spec, size, align)) {
            *result = cache;
            return cache_add_alias(cache, spec, error);
        }
    }
    return SQ_OK;
}

static void alias_end(struct sq_alias *alias)
{
    sq_list_unlink(&alias->link);
    free(alias);
}

/* A name that is not an alias is the cache's own, which it keeps. */
void sq_cache_drop_alias(sq_cache *cache, const char *name)
{
    SQ_LIST_EACH(link, &cache->aliases)
    {
        struct sq_alias *alias = SQ_LIST_ENTRY(link, struct sq_alias, link);
        if (strcmp(alias->name, name) == 0) {
            alias_end(alias);
            return;
        }
    }
}

void sq_cache_drop_all_aliases(sq_cache *cache)
{
    while (!sq_list_is_empty(&cache->aliases))
        alias_end(SQ_LIST_ENTRY(cache->aliases.next, struct sq_alias, link));
}

void sq_cache_sysfs_name(const sq_cache *cache, char name[SQ_CACHE_NAME_MAX])
{
    char letters[4] = "";
    size_t count = 0;
    if (!sq_cache_is_mergeable(cache)) {
        (void)snprintf(name, SQ_CACHE_NAME_MAX, "%s", cache->name);
        return;
    }
    if (cache->flags & SQ_CACHE_RECLAIM_ACCOUNT)
        letters[count++] = 'a';
    if (cache->flags & SQ_CACHE_CONSISTENCY_CHECKS)
        letters[count++] = 'F';
    if (count > 0)
        letters[count++] = '-';
    (void)snprintf(name, SQ_CACHE_NAME_MAX, ":%s%07u", letters, cache->size);
}
