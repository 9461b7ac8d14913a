#include "trace/stat.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace/pointers.h"

#define STAT_KEYS_MAX  16
#define STAT_RULE_SIZE 105 /* dashes around a table */
#define STAT_NAME_MAX  512

enum stat_key { KEY_PTR, KEY_CALLSITE, KEY_BYTES, KEY_HIT, KEY_PINGPONG, KEY_FRAG };

static const char *const stat_key_names[] = {"ptr", "callsite", "bytes",
                                             "hit", "pingpong", "frag"};

/* What a comparison needs: the keys, first to last, and the names of call sites. */
struct stat_order {
    const struct sq_trace *trace;
    enum stat_key keys[STAT_KEYS_MAX];
    uint32_t key_count;
};

void sq_stat_free(struct sq_stat *stat)
{
    free(stat->callers.rows);
    free(stat->pointers.rows);
    memset(stat, 0, sizeof(*stat));
}

double sq_stat_fragmentation(uint64_t bytes_req, uint64_t bytes_alloc)
{
    return bytes_alloc == 0 ? 0.0
                            : 100.0 - 100.0 * (double)bytes_req / (double)bytes_alloc;
}

static void row_add(struct sq_stat_row *row, const struct sq_trace_event *event)
{
    row->hit++;
    row->bytes_req += event->bytes_req;
    row->bytes_alloc += event->bytes_alloc;
}

/* The row of a pointer, a new one for a pointer not seen before. NULL without memory.
 */
static struct sq_stat_row *pointer_row(struct sq_stat_rows *rows,
                                       struct sq_pointers *map, uint64_t pointer)
{
    struct sq_pointer_slot *slot = sq_pointers_enter(map, pointer);
    if (slot == NULL || rows->count == SQ_POINTERS_NONE)
        return NULL;
    if (slot->value == SQ_POINTERS_NONE) {
        if (rows->count == rows->capacity) {
            size_t capacity = rows->capacity == 0 ? 256 : 2 * rows->capacity;
            void *grown = realloc(rows->rows, capacity * sizeof(*rows->rows));
            if (grown == NULL)
                return NULL;
            rows->rows = grown;
            rows->capacity = capacity;
        }
        slot->value = (uint32_t)rows->count++;
        rows->rows[slot->value] = (struct sq_stat_row){.pointer = pointer};
    }
    return &rows->rows[slot->value];
}

/* 0 or SQ_E_MEMORY. */
static int stat_alloc(struct sq_stat *stat, struct sq_pointers *map,
                      const struct sq_trace_event *event, int32_t cpu_node)
{
    struct sq_stat_row *row = pointer_row(&stat->pointers, map, event->pointer);
    if (row == NULL)
        return SQ_E_MEMORY;
    row_add(row, event);
    row->call_site = event->call_site;
    row->alloc_cpu = event->cpu;
    row->last_alloc = event->bytes_alloc;
    row_add(&stat->callers.rows[event->call_site], event);
    stat->bytes_requested += event->bytes_req;
    stat->bytes_allocated += event->bytes_alloc;
    stat->allocation_count++;
    stat->cross_count += event->node >= 0 && event->node != cpu_node;
    return 0;
}

static void stat_free(struct sq_stat *stat, const struct sq_pointers *map,
                      const struct sq_trace_event *event)
{
    const struct sq_pointer_slot *slot = sq_pointers_find(map, event->pointer);
    if (slot == NULL)
        return;
    struct sq_stat_row *row = &stat->pointers.rows[slot->value];
    stat->bytes_freed += row->last_alloc;
    if (row->alloc_cpu != (int32_t)event->cpu) {
        row->pingpong++;
        stat->callers.rows[row->call_site].pingpong++;
    }
    row->alloc_cpu = -1;
}

/* Leave only the call sites that allocated, in order of their first event. */
static void callers_pack(struct sq_stat_rows *callers)
{
    size_t kept = 0;
    for (size_t i = 0; i < callers->count; i++) {
        if (callers->rows[i].hit > 0)
            callers->rows[kept++] = callers->rows[i];
    }
    callers->count = kept;
}

int sq_stat_build(const struct sq_trace *trace, const uint16_t *node_of_cpu,
                  size_t cpu_count, struct sq_stat *stat, struct sq_error *error)
{
    struct sq_pointers map = {0};
    memset(stat, 0, sizeof(*stat));
    stat->trace = trace;
    stat->callers.count = trace->call_sites.count;
    stat->callers.rows = calloc(stat->callers.count + 1, sizeof(*stat->callers.rows));
    int result = stat->callers.rows == NULL ? SQ_E_MEMORY : 0;
    for (uint32_t i = 0; result == 0 && i < trace->call_sites.count; i++)
        stat->callers.rows[i].call_site = i;
    for (size_t i = 0; result == 0 && i < trace->event_count; i++) {
        const struct sq_trace_event *event = &trace->events[i];
        if (sq_trace_is_alloc(event->kind))
            result = stat_alloc(stat, &map, event,
                                event->cpu < cpu_count ? node_of_cpu[event->cpu] : 0);
        else
            stat_free(stat, &map, event);
    }
    sq_pointers_free(&map);
    if (result < 0) {
        sq_stat_free(stat);
        return sq_error_set(error, SQ_E_MEMORY,
                            "no memory for the figures of %zu events",
                            trace->event_count);
    }
    callers_pack(&stat->callers);
    return 0;
}

/* The address a call site's text is, or false where it is a symbol. */
static bool call_site_address(const char *text, size_t length, uint64_t *address)
{
    uint64_t value = 0;
    if (length > 2 && text[0] == '0' && (text[1] | 0x20) == 'x') {
        text += 2;
        length -= 2;
    }
    if (length == 0 || length > 16)
        return false;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        char lower = (char)(c | 0x20);
        if (c >= '0' && c <= '9')
            value = value << 4 | (uint64_t)(c - '0');
        else if (lower >= 'a' && lower <= 'f')
            value = value << 4 | (uint64_t)(lower - 'a' + 10);
        else
            return false;
    }
    *address = value;
    return true;
}

static int compare_numbers(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* By address; symbols stand above all addresses, among themselves by text. */
static int compare_call_sites(const struct sq_trace *trace, uint32_t a, uint32_t b)
{
    size_t a_length, b_length;
    uint64_t a_address = 0, b_address = 0;
    const char *a_text = sq_strings_get(&trace->call_sites, a, &a_length);
    const char *b_text = sq_strings_get(&trace->call_sites, b, &b_length);
    bool a_known = call_site_address(a_text, a_length, &a_address);
    bool b_known = call_site_address(b_text, b_length, &b_address);
    if (a_known != b_known)
        return a_known ? -1 : 1;
    if (a_known)
        return compare_numbers(a_address, b_address);
    int order = memcmp(a_text, b_text, a_length < b_length ? a_length : b_length);
    return order != 0 ? order : compare_numbers(a_length, b_length);
}

static int compare_by_key(const struct stat_order *order, enum stat_key key,
                          const struct sq_stat_row *a, const struct sq_stat_row *b)
{
    double a_frag, b_frag;
    switch (key) {
    case KEY_PTR:
        return compare_numbers(a->pointer, b->pointer);
    case KEY_CALLSITE:
        return compare_call_sites(order->trace, a->call_site, b->call_site);
    case KEY_BYTES:
        return compare_numbers(a->bytes_alloc, b->bytes_alloc);
    case KEY_HIT:
        return compare_numbers(a->hit, b->hit);
    case KEY_PINGPONG:
        return compare_numbers(a->pingpong, b->pingpong);
    case KEY_FRAG:
        a_frag = sq_stat_fragmentation(a->bytes_req, a->bytes_alloc);
        b_frag = sq_stat_fragmentation(b->bytes_req, b->bytes_alloc);
        return (a_frag > b_frag) - (a_frag < b_frag);
    }
    return 0;
}

/* Largest first by the keys, then smallest address first. */
static int compare_rows(const void *left, const void *right, void *context)
{
    const struct sq_stat_row *a = left, *b = right;
    const struct stat_order *order = context;
    for (uint32_t i = 0; i < order->key_count; i++) {
        int result = compare_by_key(order, order->keys[i], a, b);
        if (result != 0)
            return -result;
    }
    if (a->pointer != b->pointer)
        return compare_numbers(a->pointer, b->pointer);
    uint64_t address;
    size_t length;
    const char *text = sq_strings_get(&order->trace->call_sites, a->call_site, &length);
    if (call_site_address(text, length, &address)) {
        int result = compare_call_sites(order->trace, a->call_site, b->call_site);
        if (result != 0)
            return result;
    }
    return compare_numbers(a->call_site, b->call_site);
}

/* Read one key of the list; moves `*at` behind it. */
static int sort_key_read(const char **at, struct stat_order *order,
                         struct sq_error *error)
{
    size_t length = strcspn(*at, ",");
    for (uint32_t key = 0; key <= KEY_FRAG; key++) {
        if (strlen(stat_key_names[key]) != length ||
            memcmp(stat_key_names[key], *at, length) != 0)
            continue;
        if (order->key_count == STAT_KEYS_MAX)
            return sq_error_set(
                error, SQ_E_PARAMETER,
                "more than %d sort keys; at most that many are accepted",
                STAT_KEYS_MAX);
        order->keys[order->key_count++] = (enum stat_key)key;
        *at += length;
        return 0;
    }
    return sq_error_set(error, SQ_E_PARAMETER,
                        "sort key '%.*s' is none; ptr, callsite, bytes, hit, pingpong "
                        "and frag are accepted, with commas between",
                        length > 40 ? 40 : (int)length, *at);
}

int sq_stat_sort(const struct sq_stat *stat, struct sq_stat_rows *rows,
                 const char *keys, struct sq_error *error)
{
    struct stat_order order = {.trace = stat->trace};
    for (const char *at = keys;; at++) {
        int result = sort_key_read(&at, &order, error);
        if (result < 0)
            return result;
        if (*at == '\0')
            break;
    }
    if (rows->count > 1)
        qsort_r(rows->rows, rows->count, sizeof(*rows->rows), compare_rows, &order);
    return 0;
}

/* A call site as perf shows it: `symbol+1f`, without the size and module that the
 * kernel's own text has. An address, or with `raw_ip` any call site, stands as it is.
 */
static void call_site_name(const struct sq_trace *trace, uint32_t call_site,
                           bool raw_ip, char name[STAT_NAME_MAX])
{
    size_t length;
    uint64_t address;
    const char *text = sq_strings_get(&trace->call_sites, call_site, &length);
    if (call_site_address(text, length, &address)) {
        (void)snprintf(name, STAT_NAME_MAX, "%#" PRIx64, address);
        return;
    }
    if (length >= STAT_NAME_MAX)
        length = STAT_NAME_MAX - 1;
    memcpy(name, text, length);
    name[length] = '\0';
    if (raw_ip)
        return;
    name[strcspn(name, " ")] = '\0';
    char *plus = strstr(name, "+0x");
    if (plus != NULL) {
        memmove(plus + 1, plus + 3, strlen(plus + 3) + 1);
        plus[strcspn(plus, "/")] = '\0';
    }
}

static void table_rule(FILE *out)
{
    for (uint32_t i = 0; i < STAT_RULE_SIZE; i++)
        (void)fputc('-', out);
    (void)fputc('\n', out);
}

static void table_row(FILE *out, const struct sq_stat *stat,
                      const struct sq_stat_row *row, bool by_caller, bool raw_ip)
{
    char name[STAT_NAME_MAX];
    if (by_caller)
        call_site_name(stat->trace, row->call_site, raw_ip, name);
    else
        (void)snprintf(name, sizeof(name), "%#" PRIx64, row->pointer);
    (void)fprintf(out,
                  " %-34s | %9" PRIu64 "/%-5" PRIu64 " | %9" PRIu64 "/%-5" PRIu64
                  " | %8" PRIu64 " | %9" PRIu64 " | %6.3f%%\n",
                  name, row->bytes_alloc, row->bytes_alloc / row->hit, row->bytes_req,
                  row->bytes_req / row->hit, row->hit, row->pingpong,
                  sq_stat_fragmentation(row->bytes_req, row->bytes_alloc));
}

char *sq_stat_table(const struct sq_stat *stat, const struct sq_stat_rows *rows,
                    bool by_caller, int64_t limit, bool raw_ip)
{
    char *text = NULL;
    size_t size = 0, shown = rows->count;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return NULL;
    if (limit >= 0 && (uint64_t)limit < shown)
        shown = (size_t)limit;
    table_rule(out);
    (void)fprintf(out,
                  " %-34s | Total_alloc/Per | Total_req/Per   | Hit      | "
                  "Ping-pong | Frag\n",
                  by_caller ? "Callsite" : "Alloc Ptr");
    table_rule(out);
    for (size_t i = 0; i < shown; i++)
        table_row(out, stat, &rows->rows[i], by_caller, raw_ip);
    if (shown < rows->count)
        (void)fprintf(out, " %-34s | %-15s | %-15s | %-8s | %-9s | %-6s\n", "...",
                      "...", "...", "...", "...", "...");
    table_rule(out);
    bool failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed) {
        free(text);
        return NULL;
    }
    return text;
}

char *sq_stat_summary(const struct sq_stat *stat)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return NULL;
    (void)fprintf(
        out,
        "\nSUMMARY (SLAB allocator)\n========================\n"
        "Total bytes requested: %" PRIu64 "\nTotal bytes allocated: %" PRIu64 "\n"
        "Total bytes freed:     %" PRIu64 "\nNet total bytes allocated: %" PRId64 "\n"
        "Total bytes wasted on internal fragmentation: %" PRId64 "\n"
        "Internal fragmentation: %f%%\nCross CPU allocations: %" PRIu64 "/%" PRIu64
        "\n",
        stat->bytes_requested, stat->bytes_allocated, stat->bytes_freed,
        (int64_t)(stat->bytes_allocated - stat->bytes_freed),
        (int64_t)(stat->bytes_allocated - stat->bytes_requested),
        sq_stat_fragmentation(stat->bytes_requested, stat->bytes_allocated),
        stat->cross_count, stat->allocation_count);
    bool failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed) {
        free(text);
        return NULL;
    }
    return text;
}
