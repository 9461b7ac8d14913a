/*
 * Intrusive doubly linked circular list with a head, in the kernel's sense: `link_head`
 * puts an entry first, `link_tail` last. An entry that is on no list points to itself,
 * so `sq_list_is_linked` can tell.
 */
#ifndef SQ_LIST_H
#define SQ_LIST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/sq_bits.h"

struct sq_list {
    struct sq_list *next, *prev;
};

#define SQ_LIST_ENTRY(link, type, member) SQ_CONTAINER_OF(link, type, member)
#define SQ_LIST_EACH(cursor, head)                                                     \
    for (struct sq_list *cursor = (head)->next; cursor != (head); cursor = cursor->next)
/* As SQ_LIST_EACH, while the body may unlink the cursor. */
#define SQ_LIST_EACH_SAFE(cursor, following, head)                                     \
    for (struct sq_list *cursor = (head)->next, *following = cursor->next;             \
         cursor != (head); cursor = following, following = cursor->next)

static inline void sq_list_init(struct sq_list *list)
{
    list->next = list;
    list->prev = list;
}

static inline bool sq_list_is_empty(const struct sq_list *head)
{
    return head->next == head;
}

static inline bool sq_list_is_linked(const struct sq_list *entry)
{
    return entry->next != entry;
}

static inline void sq_list_link_between(struct sq_list *entry, struct sq_list *prev,
                                        struct sq_list *next)
{
    entry->prev = prev;
    entry->next = next;
    prev->next = entry;
    next->prev = entry;
}

static inline void sq_list_link_head(struct sq_list *entry, struct sq_list *head)
{
    sq_list_link_between(entry, head, head->next);
}

static inline void sq_list_link_tail(struct sq_list *entry, struct sq_list *head)
{
    sq_list_link_between(entry, head->prev, head);
}

static inline void sq_list_unlink(struct sq_list *entry)
{
    entry->prev->next = entry->next;
    entry->next->prev = entry->prev;
    sq_list_init(entry);
}

static inline void sq_list_move_head(struct sq_list *entry, struct sq_list *head)
{
    sq_list_unlink(entry);
    sq_list_link_head(entry, head);
}

static inline void sq_list_move_tail(struct sq_list *entry, struct sq_list *head)
{
    sq_list_unlink(entry);
    sq_list_link_tail(entry, head);
}

/* Number of entries. Ends on any list of at most `limit` entries; limit + 1 if longer
 * or if a back link does not match. */
static inline size_t sq_list_count(const struct sq_list *head, size_t limit)
{
    size_t count = 0;
    for (const struct sq_list *entry = head->next; entry != head; entry = entry->next) {
        if (entry == NULL || entry->next == NULL || entry->next->prev != entry ||
            ++count > limit)
            return limit + 1;
    }
    return count;
}

#endif
