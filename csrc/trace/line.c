#include "trace/line.h"

#include <stdbool.h>
#include <string.h>

#include "trace/trace.h"

#define NS_PER_S        1000000000
#define SECONDS_MAX     9000000000 /* so that nanoseconds fit 63 bits */
#define CPU_MAX         UINT16_MAX
#define KEY(text)       key_is(key, key_length, text, sizeof(text) - 1)
#define AT_TEXT(text)   (length == sizeof(text) - 1 && memcmp(at, text, length) == 0)
#define FIND(text)      memmem(line, (size_t)(end - line), text, sizeof(text) - 1)
#define SEEN_POINTER    1u
#define SEEN_REQ        2u
#define SEEN_ALLOC      4u
#define SEEN_CALL_SITE  8u
#define SEEN_FOR_FREES  (SEEN_POINTER | SEEN_CALL_SITE)
#define SEEN_FOR_ALLOCS (SEEN_FOR_FREES | SEEN_REQ | SEEN_ALLOC)

static bool is_digit(char c)
{
    return (unsigned char)(c - '0') < 10;
}

/* Spaces, the line feed and a carriage return before it end a token. */
static bool is_blank(char c)
{
    return (unsigned char)c <= ' ';
}

/* The digits [at, end) as a number. False for none, another character, or too many. */
static bool number_read(const char *at, const char *end, uint64_t *value)
{
    uint64_t sum = 0;
    if (at == end)
        return false;
    for (; at < end; at++) {
        uint64_t digit = (unsigned char)(*at - '0');
        if (digit > 9 || __builtin_mul_overflow(sum, 10u, &sum) ||
            __builtin_add_overflow(sum, digit, &sum))
            return false;
    }
    *value = sum;
    return true;
}

static int hex_digit(char c)
{
    if (is_digit(c))
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/*
 * A pointer as %p printed it through the eras: 0x-prefixed by perf, bare digits by the
 * kernel, `(nil)` or `(null)`. Since 4.15 the kernel prints a 32-bit hash padded to 16
 * digits, which no kernel address looks like; before the hash key is there it prints
 * `(____ptrval____)`, which identifies nothing: `*hidden`.
 */
static bool pointer_read(const char *at, const char *end, struct sq_line_event *event,
                         bool *hidden)
{
    size_t length = (size_t)(end - at);
    bool prefixed = length > 2 && at[0] == '0' && (at[1] | 0x20) == 'x';
    uint64_t value = 0;
    if (length > 0 && *at == '(') {
        event->pointer = 0;
        *hidden = AT_TEXT("(____ptrval____)");
        return *hidden || AT_TEXT("(nil)") || AT_TEXT("(null)");
    }
    if (prefixed)
        at += 2;
    if (at == end || end - at > 16)
        return false;
    for (; at < end; at++) {
        int digit = hex_digit(*at);
        if (digit < 0)
            return false;
        value = value << 4 | (uint64_t)digit;
    }
    event->pointer = value;
    if (!prefixed && length == 16 && value != 0 && value >> 32 == 0)
        event->flags |= SQ_TRACE_HASHED;
    return true;
}

static bool node_read(const char *at, const char *end, int32_t *node)
{
    uint64_t value;
    if (end - at == 2 && at[0] == '-' && at[1] == '1') {
        *node = SQ_TRACE_NO_NODE;
        return true;
    }
    if (!number_read(at, end, &value) || value > INT16_MAX)
        return false;
    *node = (int32_t)value;
    return true;
}

/* The kind of event named [at, at + length), or -1. */
static int kind_of_name(const char *at, size_t length)
{
    switch (length) {
    case 5:
        return AT_TEXT("kfree") ? SQ_TRACE_KFREE : -1;
    case 7:
        return AT_TEXT("kmalloc") ? SQ_TRACE_KMALLOC : -1;
    case 12:
        return AT_TEXT("kmalloc_node") ? SQ_TRACE_KMALLOC_NODE : -1;
    case 15:
        return AT_TEXT("kmem_cache_free") ? SQ_TRACE_CACHE_FREE : -1;
    case 16:
        return AT_TEXT("kmem_cache_alloc") ? SQ_TRACE_CACHE_ALLOC : -1;
    case 21:
        return AT_TEXT("kmem_cache_alloc_node") ? SQ_TRACE_CACHE_ALLOC_NODE : -1;
    default:
        return -1;
    }
}

/*
 * The event name at `*at`, with or without `kmem:`, and its colon. Returns the kind and
 * moves `*at` behind the colon, or returns -1.
 */
static int event_name_read(const char **at, const char *end)
{
    const char *name = *at;
    if (end - name > 5 && memcmp(name, "kmem:", 5) == 0)
        name += 5;
    if (*name != 'k')
        return -1;
    const char *colon = name;
    while (*colon != ':' && !is_blank(*colon))
        colon++;
    if (*colon != ':' || !is_blank(colon[1]))
        return -1;
    *at = colon + 1;
    return kind_of_name(name, (size_t)(colon - name));
}

/* The time that ends in front of `colon`; moves `*begin` to its first character. */
static bool time_read(const char *line, const char *colon, const char **begin,
                      int64_t *time_ns)
{
    const char *at = colon, *point = NULL;
    uint64_t seconds, fraction = 0;
    while (at > line && (is_digit(at[-1]) || at[-1] == '.')) {
        at--;
        if (*at == '.')
            point = at;
    }
    *begin = at;
    if (point == NULL) {
        bool good = number_read(at, colon, &seconds) && seconds <= INT64_MAX;
        *time_ns = good ? (int64_t)seconds : 0;
        return good;
    }
    if (!number_read(at, point, &seconds) || seconds > SECONDS_MAX ||
        colon - point > 10 || !number_read(point + 1, colon, &fraction))
        return false;
    for (const char *digit = point + 1; digit < point + 10; digit++)
        fraction *= digit < colon ? 1 : 10;
    *time_ns = (int64_t)(seconds * NS_PER_S + fraction);
    return true;
}

/* Move `at` back over blanks, not beyond `line`. */
static const char *blanks_skip_back(const char *line, const char *at)
{
    while (at > line && is_blank(at[-1]))
        at--;
    return at;
}

/* The task in front of `at`: `COMM-TID`, `COMM TID` or `COMM PID/TID`, then perhaps
 * `(TGID)`. A line without one keeps an empty task. */
static void task_read(const char *line, const char *at, struct sq_line_event *event)
{
    at = blanks_skip_back(line, at);
    if (at > line && at[-1] == ')') {
        while (at > line && *at != '(')
            at--;
        at = blanks_skip_back(line, at);
    }
    const char *tid = at;
    while (tid > line && is_digit(tid[-1]))
        tid--;
    event->tid = (struct sq_line_text){tid, (size_t)(at - tid)};
    if (tid > line && tid[-1] == '/') {
        tid--;
        while (tid > line && is_digit(tid[-1]))
            tid--;
    } else if (tid > line && tid[-1] == '-') {
        tid--;
    }
    while (line < tid && is_blank(*line))
        line++;
    tid = blanks_skip_back(line, tid);
    event->comm = (struct sq_line_text){line, (size_t)(tid - line)};
}

/* Everything in front of the event name, backwards from the colon of the time. */
static bool head_read(const char *line, const char *colon, struct sq_line_event *event)
{
    const char *at;
    uint64_t cpu;
    if (!time_read(line, colon, &at, &event->time_ns))
        return false;
    at = blanks_skip_back(line, at);
    if (at > line && at[-1] != ']') { /* the flags of ftrace's latency format */
        while (at > line && !is_blank(at[-1]))
            at--;
        at = blanks_skip_back(line, at);
    }
    if (at == line || at[-1] != ']')
        return false;
    const char *close = --at;
    while (at > line && is_digit(at[-1]))
        at--;
    if (at == line || at[-1] != '[' || !number_read(at, close, &cpu) || cpu > CPU_MAX)
        return false;
    event->cpu = (uint32_t)cpu;
    task_read(line, at - 1, event);
    return true;
}

static bool key_is(const char *key, size_t key_length, const char *text, size_t length)
{
    return key_length == length && memcmp(key, text, length) == 0;
}

/*
 * The end of a text value that may hold blanks: it goes on over every further token
 * that is not a key=value itself. So `sym+0x1/0x2 [mod]` is one call site, and a cache
 * name may have spaces.
 */
static const char *text_end(const char *value_end, const char *end)
{
    for (;;) {
        const char *at = value_end;
        while (at < end && is_blank(*at))
            at++;
        if (at == end)
            return value_end;
        while (*at != '=' && !is_blank(*at))
            at++;
        if (*at == '=')
            return value_end;
        value_end = at;
    }
}

/*
 * One field. Returns NULL or what is wrong with it, and moves `*value_end` where the
 * value is longer than one token. Unknown keys are left alone: later kernels add some.
 */
static const char *field_read(const char *key, size_t key_length, const char *value,
                              const char **value_end, const char *end,
                              struct sq_line_event *event, unsigned *seen, bool *hidden)
{
    const char *stop = *value_end;
    if (KEY("call_site")) {
        *value_end = stop = text_end(stop, end);
        event->call_site = (struct sq_line_text){value, (size_t)(stop - value)};
        *seen |= stop > value ? SEEN_CALL_SITE : 0;
    } else if (KEY("ptr")) {
        *seen |= SEEN_POINTER;
        return pointer_read(value, stop, event, hidden) ? NULL
                                                        : "whose ptr= is no pointer";
    } else if (KEY("bytes_req")) {
        *seen |= SEEN_REQ;
        return number_read(value, stop, &event->bytes_req)
                   ? NULL
                   : "whose bytes_req= is no number";
    } else if (KEY("bytes_alloc")) {
        *seen |= SEEN_ALLOC;
        return number_read(value, stop, &event->bytes_alloc)
                   ? NULL
                   : "whose bytes_alloc= is no number";
    } else if (KEY("node")) {
        return node_read(value, stop, &event->node) ? NULL : "whose node= is no node";
    } else if (KEY("gfp_flags")) {
        event->gfp = (struct sq_line_text){value, (size_t)(stop - value)};
    } else if (KEY("name")) {
        *value_end = stop = text_end(stop, end);
        event->name = (struct sq_line_text){value, (size_t)(stop - value)};
    } else if (KEY("accounted")) {
        event->flags |= *value == 't' ? SQ_TRACE_ACCOUNTED : 0;
    }
    return NULL;
}

static const char *field_missing(unsigned seen, unsigned needed)
{
    unsigned missing = needed & ~seen;
    if (missing & SEEN_POINTER)
        return "without ptr=";
    if (missing & SEEN_CALL_SITE)
        return "without call_site=";
    if (missing & SEEN_REQ)
        return "without bytes_req=";
    return missing & SEEN_ALLOC ? "without bytes_alloc=" : NULL;
}

/* All fields from `at` on. Returns NULL or what is wrong. */
static const char *fields_read(const char *at, const char *end,
                               struct sq_line_event *event, bool *hidden)
{
    unsigned seen = 0;
    while (at < end) {
        if (is_blank(*at)) {
            at++;
            continue;
        }
        const char *key = at;
        while (*at != '=' && !is_blank(*at))
            at++;
        if (*at != '=')
            continue; /* a word that is no field */
        size_t key_length = (size_t)(at - key);
        const char *value = ++at;
        while (!is_blank(*at))
            at++;
        const char *problem =
            field_read(key, key_length, value, &at, end, event, &seen, hidden);
        if (problem != NULL)
            return problem;
    }
    return field_missing(seen, sq_trace_is_alloc(event->kind) ? SEEN_FOR_ALLOCS
                                                              : SEEN_FOR_FREES);
}

/* An event's fields behind something that is no head: damaged, or printed without the
 * CPU. The text of another event may mention `kmalloc: ` freely, without the field. */
static bool names_event_without_head(const char *line, const char *end)
{
    const char *found = FIND(": call_site=");
    const char *name = found;
    if (found == NULL)
        return false;
    while (name > line && !is_blank(name[-1]) && name[-1] != ':')
        name--;
    return kind_of_name(name, (size_t)(found - name)) >= 0;
}

/*
 * Find the head and the event's name. Returns where the fields begin, with the head and
 * the kind filled in, or NULL for a line without.
 */
static const char *event_find(const char *line, const char *end,
                              struct sq_line_event *event)
{
    struct sq_line_event taskless = {0};
    const char *taskless_fields = NULL, *at = line;
    for (;;) {
        const char *colon = memchr(at, ':', (size_t)(end - at));
        if (colon == NULL)
            break;
        at = colon + 1;
        if (colon == line || !is_digit(colon[-1]) || !is_blank(*at))
            continue;
        const char *fields = at;
        while (fields < end && is_blank(*fields))
            fields++;
        int kind = event_name_read(&fields, end);
        if (kind < 0)
            continue;
        memset(event, 0, sizeof(*event));
        event->kind = (uint8_t)kind;
        event->node = SQ_TRACE_NO_NODE;
        if (!head_read(line, colon, event))
            continue;
        if (event->comm.length > 0 && event->tid.length > 0)
            return fields;
        if (taskless_fields == NULL) {
            taskless_fields = fields;
            taskless = *event;
        }
    }
    *event = taskless;
    return taskless_fields;
}

enum sq_line_verdict sq_line_read(const char *line, const char *end,
                                  struct sq_line_event *event, const char **problem)
{
    bool hidden = false;
    const char *fields = event_find(line, end, event);
    if (fields == NULL) {
        if (!names_event_without_head(line, end))
            return SQ_LINE_OTHER;
        *problem = "without `TASK [CPU] TIME:` in front";
        return SQ_LINE_BROKEN;
    }
    *problem = fields_read(fields, end, event, &hidden);
    if (*problem != NULL)
        return SQ_LINE_BROKEN;
    return hidden ? SQ_LINE_HIDDEN : SQ_LINE_EVENT;
}

/* The first number at or after `at`; `otherwise` where there is none. */
static uint64_t number_after(const char *at, const char *end, uint64_t otherwise)
{
    while (at < end && !is_digit(*at))
        at++;
    const char *stop = at;
    while (stop < end && is_digit(*stop))
        stop++;
    uint64_t value;
    return number_read(at, stop, &value) ? value : otherwise;
}

uint64_t sq_line_lost_count(const char *line, const char *end)
{
    const char *found;
    size_t length = (size_t)(end - line);
    if (length > 1 && line[0] == '#') { /* events overwritten before they were read */
        static const char header[] = "entries-in-buffer/entries-written:";
        found = FIND("entries-in-buffer/entries-written:");
        if (found == NULL)
            return 0;
        found += sizeof(header) - 1;
        const char *slash = memchr(found, '/', (size_t)(end - found));
        if (slash == NULL)
            return 0;
        uint64_t kept = number_after(found, slash, 0);
        uint64_t written = number_after(slash, end, 0);
        return written > kept ? written - kept : 0;
    }
    if (length > 4 && memcmp(line, "CPU:", 4) == 0) { /* ftrace and trace-cmd */
        found = memchr(line, '[', length);
        if (found != NULL && (FIND("LOST") != NULL || FIND("EVENTS DROPPED") != NULL))
            return number_after(found, end, 1);
        return 0;
    }
    found = FIND("PERF_RECORD_LOST");
    if (found != NULL) {
        found = memmem(found, (size_t)(end - found), " lost", 5);
        return found == NULL ? 1 : number_after(found, end, 1);
    }
    return 0;
}
