#include "trace/compact.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define COMPACT_VERSION 1
#define COMPACT_FIXED   32 /* bytes in front of the counters */
#define COMPACT_COUNTS  (sizeof(struct sq_trace_counts) / sizeof(uint64_t))
#define COMPACT_TABLES  5
#define COMPACT_HEADER  (COMPACT_FIXED + 8 * COMPACT_COUNTS + 8 * COMPACT_TABLES)
#define COMPACT_TRAILER 8
#define COMPACT_PAD(at) (((at) + 7) & ~(size_t)7)
#define FLAGS_KNOWN     (SQ_TRACE_ACCOUNTED | SQ_TRACE_HASHED)

/* Little-endian whatever the host is; compilers make one access of it. */
static void put_number(unsigned char *at, uint64_t value, size_t width)
{
    for (size_t i = 0; i < width; i++)
        at[i] = (unsigned char)(value >> (8 * i));
}

static uint64_t get_number(const unsigned char *at, size_t width)
{
    uint64_t value = 0;
    for (size_t i = 0; i < width; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

/* Each step maps the sum one to one for a given word, and differs for differing words,
 * so one changed word always changes the end. Requires a multiple of 8 bytes. */
static uint64_t compact_checksum(const unsigned char *bytes, size_t size)
{
    uint64_t sum = size;
    for (size_t at = 0; at < size; at += 8) {
        sum = (sum ^ get_number(bytes + at, 8)) * 0x9e3779b97f4a7c15u;
        sum ^= sum >> 29;
    }
    return sum;
}

static size_t table_size(uint64_t string_count, uint64_t text_size)
{
    return COMPACT_PAD(4 * string_count + text_size);
}

/* Bytes of the whole file. Sizes are below 2^40 each, so nothing overflows. */
static size_t compact_size(const struct sq_trace *trace)
{
    size_t size = COMPACT_HEADER + COMPACT_TRAILER, count = trace->event_count;
#define COMPACT_ADD_TABLE(name)                                                        \
    size += table_size(trace->name.count, sq_strings_text_size(&trace->name));
    SQ_TRACE_TABLES(COMPACT_ADD_TABLE)
#define COMPACT_ADD_COLUMN(name)                                                       \
    size += COMPACT_PAD(count * sizeof(trace->events->name));
    SQ_TRACE_COLUMNS(COMPACT_ADD_COLUMN)
    return size;
}

static unsigned char *encode_table(unsigned char *at, const struct sq_strings *strings)
{
    size_t text_size = sq_strings_text_size(strings);
    unsigned char *text = at + 4 * (size_t)strings->count;
    for (uint32_t i = 0; i < strings->count; i++)
        put_number(at + 4 * (size_t)i, strings->ends[i], 4);
    if (text_size > 0)
        memcpy(text, strings->text, text_size);
    return at + table_size(strings->count, text_size);
}

static unsigned char *encode_header(unsigned char *at, const struct sq_trace *trace,
                                    size_t size)
{
    memcpy(at, SQ_COMPACT_MAGIC, 8);
    put_number(at + 8, COMPACT_VERSION, 4);
    put_number(at + 12, COMPACT_COUNTS, 4);
    put_number(at + 16, size, 8);
    put_number(at + 24, trace->event_count, 8);
    at += COMPACT_FIXED;
#define COMPACT_PUT_COUNT(name, text)                                                  \
    put_number(at, trace->counts.name, 8);                                             \
    at += 8;
    SQ_TRACE_COUNTS(COMPACT_PUT_COUNT)
#define COMPACT_PUT_TABLE_SIZE(name)                                                   \
    put_number(at, trace->name.count, 4);                                              \
    put_number(at + 4, sq_strings_text_size(&trace->name), 4);                         \
    at += 8;
    SQ_TRACE_TABLES(COMPACT_PUT_TABLE_SIZE)
    return at;
}

int sq_compact_encode(const struct sq_trace *trace, unsigned char **bytes, size_t *size,
                      struct sq_error *error)
{
    const struct sq_trace_event *events = trace->events;
    size_t count = trace->event_count;
    *size = compact_size(trace);
    *bytes = calloc(1, *size);
    if (*bytes == NULL)
        return sq_error_set(error, SQ_E_MEMORY, "no memory for a file of %zu bytes",
                            *size);
    unsigned char *at = encode_header(*bytes, trace, *size);
#define COMPACT_PUT_TABLE(name) at = encode_table(at, &trace->name);
    SQ_TRACE_TABLES(COMPACT_PUT_TABLE)
#define COMPACT_PUT_COLUMN(name)                                                       \
    for (size_t i = 0; i < count; i++)                                                 \
        put_number(at + i * sizeof(events->name), (uint64_t)events[i].name,            \
                   sizeof(events->name));                                              \
    at += COMPACT_PAD(count * sizeof(events->name));
    SQ_TRACE_COLUMNS(COMPACT_PUT_COLUMN)
    put_number(at, compact_checksum(*bytes, *size - COMPACT_TRAILER), COMPACT_TRAILER);
    return 0;
}

static int decode_fail(const char *name, const char *problem, struct sq_error *error)
{
    return sq_error_set(error, SQ_E_TRACE, "%.120s: a damaged slabq trace: %s", name,
                        problem);
}

static int decode_fail_memory(const char *name, struct sq_error *error)
{
    return sq_error_set(error, SQ_E_MEMORY, "%.120s: no memory for the trace", name);
}

/* Everything that can be told before the content is looked at. */
static int decode_frame(const unsigned char *bytes, size_t size, const char *name,
                        struct sq_error *error)
{
    if (size < COMPACT_FIXED || memcmp(bytes, SQ_COMPACT_MAGIC, 8) != 0)
        return decode_fail(name, "it does not begin as one, or ends at once", error);
    uint64_t version = get_number(bytes + 8, 4), stated = get_number(bytes + 16, 8);
    if (version != COMPACT_VERSION)
        return sq_error_set(error, SQ_E_TRACE,
                            "%.120s: slabq trace of version %" PRIu64
                            "; version 1 is read",
                            name, version);
    if (size < stated)
        return sq_error_set(error, SQ_E_TRACE,
                            "%.120s: a slabq trace cut off: %zu of %" PRIu64
                            " bytes are there",
                            name, size, stated);
    if (size > stated)
        return decode_fail(name, "there is more behind its end", error);
    if (size < COMPACT_HEADER + COMPACT_TRAILER || size % 8 != 0 ||
        get_number(bytes + 12, 4) != COMPACT_COUNTS)
        return decode_fail(name, "its size or number of counters cannot be", error);
    if (compact_checksum(bytes, size - COMPACT_TRAILER) !=
        get_number(bytes + size - COMPACT_TRAILER, COMPACT_TRAILER))
        return decode_fail(name, "the checksum does not match", error);
    return 0;
}

/* Enter the strings of one table; each must get its own number again. */
static int decode_table(const unsigned char *at, uint32_t string_count,
                        uint32_t text_size, struct sq_strings *strings,
                        const char *name, struct sq_error *error)
{
    const char *text = (const char *)at + 4 * (size_t)string_count;
    uint32_t begin = 0, id;
    for (uint32_t i = 0; i < string_count; i++) {
        uint32_t end = (uint32_t)get_number(at + 4 * (size_t)i, 4);
        if (end < begin || end > text_size)
            return decode_fail(name, "a string ends outside its table", error);
        if (sq_strings_intern(strings, text + begin, end - begin, &id) < 0)
            return decode_fail_memory(name, error);
        if (id != i)
            return decode_fail(name, "a table has a string twice", error);
        begin = end;
    }
    if (begin != text_size)
        return decode_fail(name, "a table has text that is no string's", error);
    return 0;
}

static bool id_holds(uint16_t id, const struct sq_strings *strings)
{
    return id == UINT16_MAX || id < strings->count;
}

static bool event_holds(const struct sq_trace *trace,
                        const struct sq_trace_event *event)
{
    return event->kind < SQ_TRACE_KIND_COUNT && (event->flags & ~FLAGS_KNOWN) == 0 &&
           event->call_site < trace->call_sites.count && event->node >= -1 &&
           id_holds(event->cache, &trace->caches) &&
           id_holds(event->gfp, &trace->gfps) && id_holds(event->task, &trace->tasks);
}

/* Requires the columns to lie within the file, which the caller has checked. */
static int decode_events(const unsigned char *at, uint64_t count, const char *name,
                         struct sq_trace *trace, struct sq_error *error)
{
    struct sq_trace_event *events = calloc(count, sizeof(*events));
    if (events == NULL)
        return decode_fail_memory(name, error);
    trace->events = events;
    trace->event_count = trace->event_capacity = count;
#define COMPACT_GET_COLUMN(name)                                                       \
    for (size_t i = 0; i < count; i++) {                                               \
        uint64_t value =                                                               \
            get_number(at + i * sizeof(events->name), sizeof(events->name));           \
        memcpy(&events[i].name, NUMBER_BYTES(value, events->name),                     \
               sizeof(events->name));                                                  \
    }                                                                                  \
    at += COMPACT_PAD(count * sizeof(events->name));
#define NUMBER_BYTES(value, field)                                                     \
    ((const unsigned char *)&(value) +                                                 \
     (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? 8 - sizeof(field) : 0))
    SQ_TRACE_COLUMNS(COMPACT_GET_COLUMN)
    for (uint64_t i = 0; i < count; i++) {
        if (!event_holds(trace, &events[i]))
            return sq_error_set(error, SQ_E_TRACE,
                                "%.120s: a damaged slabq trace: event %" PRIu64
                                " names what is not there",
                                name, i);
    }
    return 0;
}

int sq_compact_decode(const unsigned char *bytes, size_t size, const char *name,
                      struct sq_trace *trace, struct sq_error *error)
{
    int result = decode_frame(bytes, size, name, error);
    if (result < 0)
        return result;
    uint64_t event_count = get_number(bytes + 24, 8);
    const unsigned char *at = bytes + COMPACT_FIXED;
    const unsigned char *sizes = at + 8 * COMPACT_COUNTS;
    size_t left = size - COMPACT_HEADER - COMPACT_TRAILER;
#define COMPACT_GET_COUNT(name, text)                                                  \
    trace->counts.name = get_number(at, 8);                                            \
    at += 8;
    SQ_TRACE_COUNTS(COMPACT_GET_COUNT)
    at = bytes + COMPACT_HEADER;
#define COMPACT_GET_TABLE(field)                                                       \
    {                                                                                  \
        uint32_t string_count = (uint32_t)get_number(sizes, 4);                        \
        uint32_t text_size = (uint32_t)get_number(sizes + 4, 4);                       \
        if (table_size(string_count, text_size) > left)                                \
            return decode_fail(name, "a table is larger than the file", error);        \
        result =                                                                       \
            decode_table(at, string_count, text_size, &trace->field, name, error);     \
        if (result < 0)                                                                \
            return result;                                                             \
        sizes += 8;                                                                    \
        at += table_size(string_count, text_size);                                     \
        left -= table_size(string_count, text_size);                                   \
    }
    SQ_TRACE_TABLES(COMPACT_GET_TABLE)
    if (event_count == 0 || event_count > left / sizeof(struct sq_trace_event))
        return decode_fail(name, "its number of events cannot be", error);
    size_t columns_size = 0;
#define COMPACT_SUM_COLUMN(field)                                                      \
    columns_size += COMPACT_PAD(event_count * sizeof(trace->events->field));
    SQ_TRACE_COLUMNS(COMPACT_SUM_COLUMN)
    if (columns_size != left)
        return decode_fail(name, "its columns do not fill the file", error);
    return decode_events(at, event_count, name, trace, error);
}
