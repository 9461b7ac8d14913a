/*
 * Debugging from Python: bytes of slabs, reports, and frees that the policy judges.
 */
#include "base/sq_json.h"
#include "python/allocator_type.h"

#include <string.h>

/* ---- bytes anywhere in a slab ---- */

/* The place `address + offset` if `count` bytes from there lie in one slab; NULL with
 * ParameterError. `page` is the slab's. */
static char *place_in_slab(struct core_state *state, allocator_object *allocator,
                           unsigned long long address, long long offset,
                           Py_ssize_t count, struct sq_page **page)
{
    const sq_machine *machine = allocator->machine;
    unsigned long long target = address + (unsigned long long)offset;
    char *place = (char *)(uintptr_t)target;
    struct sq_error error;
    uint64_t bytes, start;
    *page = NULL;
    if (sq_machine_owns(machine, place))
        *page = sq_page_of_address(machine, place);
    if (*page == NULL || (*page)->state != SQ_PAGE_SLAB ||
        allocator->heap->ops->cache_of_page(*page)->heap != allocator->heap) {
        (void)sq_error_set(&error, SQ_E_PARAMETER,
                           "0x%llx is in no slab: accepted are addresses of this "
                           "allocator's slabs",
                           target);
        (void)core_raise(state, &error);
        return NULL;
    }
    bytes = (uint64_t)SQ_PAGE_SIZE << (*page)->order;
    start = (uint64_t)(place - sq_page_address(machine, *page));
    if (count < 0 || (uint64_t)count > bytes - start) {
        (void)sq_error_set(&error, SQ_E_PARAMETER,
                           "%zd bytes from offset %llu of a slab of %llu: accepted are 0 "
                           "to %llu",
                           count, (unsigned long long)start, (unsigned long long)bytes,
                           (unsigned long long)(bytes - start));
        (void)core_raise(state, &error);
        return NULL;
    }
    return place;
}

PyObject *core_peek(struct core_state *state, allocator_object *allocator, PyObject *args)
{
    unsigned long long address;
    struct sq_page *page;
    long long offset;
    Py_ssize_t count;
    char *place;
    if (!PyArg_ParseTuple(args, "KLn:peek", &address, &offset, &count))
        return NULL;
    core_gate_wait(&allocator->gate);
    place = place_in_slab(state, allocator, address, offset, count, &page);
    return place == NULL ? NULL : PyBytes_FromStringAndSize(place, count);
}

/* Is it found, and does it lead nowhere, if these bytes are overwritten? */
static bool may_corrupt(sq_cache *cache, struct sq_page *page, const char *place,
                        Py_ssize_t count, struct sq_error *error)
{
    const sq_policy_ops *ops = cache->ops;
    unsigned long long address = (uintptr_t)place;
    if (!cache->is_debug)
        (void)sq_error_set(error, SQ_E_PARAMETER,
                           "0x%llx is in a slab of cache %s: accepted are slabs of caches "
                           "with debug flags",
                           address, cache->name);
    else if (ops->may_corrupt != NULL &&
             !ops->may_corrupt(cache, page, place, (size_t)count))
        (void)sq_error_set(error, SQ_E_PARAMETER,
                           "%zd bytes at 0x%llx are in the management of cache %s: "
                           "accepted are bytes of its objects and of what guards them",
                           count, address, cache->name);
    else
        return true;
    return false;
}

/* Only slabs of debug caches: what a corrupted free pointer of another leads to, nobody
 * looks at before it is followed. */
PyObject *core_poke(struct core_state *state, allocator_object *allocator, PyObject *args)
{
    unsigned long long address;
    struct sq_page *page;
    struct sq_error error;
    const char *bytes;
    long long offset;
    Py_ssize_t count;
    char *place;
    if (!PyArg_ParseTuple(args, "KLy#:poke", &address, &offset, &bytes, &count))
        return NULL;
    core_gate_wait(&allocator->gate);
    place = place_in_slab(state, allocator, address, offset, count, &page);
    if (place == NULL)
        return NULL;
    if (!may_corrupt(allocator->heap->ops->cache_of_page(page), page, place, count,
                     &error))
        return core_raise(state, &error);
    memcpy(place, bytes, (size_t)count);
    Py_RETURN_NONE;
}

/* ---- reports ---- */

static void print_report(const struct sq_reports *reports, uint32_t n,
                         struct sq_json *json)
{
    const struct sq_report *report = &reports->list[n];
    size_t end =
        n + 1 < reports->count ? reports->list[n + 1].text_start : reports->text_length;
    sq_json_open_object(json, NULL);
    sq_json_string(json, "cache", report->cache);
    sq_json_string(json, "what", report->what);
    sq_json_integer(json, "slab", report->slab);
    sq_json_integer(json, "object_index", report->object);
    sq_json_integer(json, "offset", report->offset);
    sq_json_unsigned(json, "fixes", report->fix_count);
    sq_json_unsigned(json, "text_start", report->text_start);
    sq_json_unsigned(json, "text_end", end);
    sq_json_close(json);
}

/* (JSON of all reports, their text, the text of traces, how many there were) */
PyObject *core_reports(allocator_object *allocator)
{
    struct sq_reports *reports = &allocator->heap->reports;
    PyObject *list, *text = NULL, *trace = NULL;
    unsigned long long total = reports->total;
    struct sq_json json;
    sq_json_init(&json);
    sq_reports_lock(reports);
    sq_json_open_array(&json, NULL);
    for (uint32_t i = 0; i < reports->count; i++)
        print_report(reports, i, &json);
    sq_json_close(&json);
    list = core_json_to_text(&json);
    if (list != NULL)
        text = PyUnicode_DecodeUTF8(reports->text == NULL ? "" : reports->text,
                                    (Py_ssize_t)reports->text_length, "replace");
    if (text != NULL)
        trace = PyUnicode_DecodeUTF8(reports->trace == NULL ? "" : reports->trace,
                                     (Py_ssize_t)reports->trace_length, "replace");
    sq_reports_unlock(reports);
    if (trace != NULL)
        return Py_BuildValue("NNNK", list, text, trace, total);
    Py_XDECREF(list);
    Py_XDECREF(text);
    return NULL;
}

/* With panic_on_report: -1 with CorruptionError if there are reports that were not
 * told yet. */
int core_panic(struct core_state *state, allocator_object *allocator)
{
    const struct sq_reports *reports = &allocator->heap->reports;
    uint64_t told = allocator->reports_told;
    allocator->reports_told = reports->total;
    if (!allocator->panics || reports->total <= told)
        return 0;
    if (told < reports->count)
        PyErr_Format(state->corruption_error, "cache %s, slab %lld, object %lld: %s",
                     reports->list[told].cache, (long long)reports->list[told].slab,
                     (long long)reports->list[told].object, reports->list[told].what);
    else
        PyErr_SetString(state->corruption_error, "a report that was not kept");
    return -1;
}

/* ---- frees that the policy judges ---- */

/* Take back into the ledger what was refused and had an owner. */
static void take_refused(allocator_object *allocator, const void *owner, void *object)
{
    struct sq_reports *reports = &allocator->heap->reports;
    for (uint32_t i = 0; i < reports->refused_count; i++)
        if (reports->refused[i] == object && owner != NULL &&
            sq_ledger_owner(&allocator->ledger, object) == NULL) {
            sq_ledger_add(&allocator->ledger, object, owner);
            break;
        }
    reports->refused_count = 0;
}

void core_hold(allocator_object *allocator, void *object, const void *owner)
{
    if (sq_ledger_owner(&allocator->ledger, object) == NULL)
        sq_ledger_add(&allocator->ledger, object, owner);
}

void core_take_all_refused(allocator_object *allocator, const void *owner, void **objects,
                           size_t count)
{
    struct sq_reports *reports = &allocator->heap->reports;
    for (uint32_t i = 0; i < reports->refused_count; i++)
        for (size_t n = 0; n < count; n++)
            if (objects[n] == reports->refused[i] &&
                sq_ledger_owner(&allocator->ledger, objects[n]) == NULL)
                sq_ledger_add(&allocator->ledger, objects[n], owner);
    reports->refused_count = 0;
}

/*
 * Free by a cache that checks frees itself, or, with `cache` NULL, by kfree. 1: done;
 * 0: the address is not for it, the ledger's rules hold; -1 with an exception.
 */
int core_free_judged(struct core_state *state, allocator_object *allocator,
                     sq_cache *cache, long cpu_index, unsigned long long address)
{
    void *object = (void *)(uintptr_t)address;
    const void *owner = sq_ledger_owner(&allocator->ledger, object);
    sq_heap *heap = allocator->heap;
    bool is_judged;
    sq_cpu *cpu;
    if (heap->ops->free_checked == NULL || !sq_machine_owns(allocator->machine, object))
        return 0;
    if (cache == NULL && owner == NULL) { /* look at its slab, which may be going */
        core_gate_wait(&allocator->gate);
        owner = sq_ledger_owner(&allocator->ledger, object);
    }
    if (cache == NULL && owner != NULL && owner != (const void *)heap)
        return 0; /* kfree of a live object of a cache: refused with or without debug */
    if (cache == NULL && sq_page_of_address(allocator->machine, object)->state ==
                             SQ_PAGE_SLAB)
        cache = heap->ops->cache_of_page(sq_page_of_address(allocator->machine, object));
    if (cache == NULL || cache->heap != heap ||
        (!cache->checks_frees && (owner != NULL) != cache->is_debug))
        return 0; /* checked by the ledger, and before use by the policy */
    cpu = core_enter_cpu(state, allocator, cpu_index);
    if (cpu == NULL)
        return -1;
    if (owner != NULL)
        sq_ledger_remove(&allocator->ledger, object);
    is_judged = heap->ops->free_checked(cpu, cache, object, owner != NULL);
    core_leave_cpu(cpu);
    take_refused(allocator, owner, object);
    if (!is_judged)
        return 0;
    return core_panic(state, allocator) < 0 ? -1 : 1;
}
