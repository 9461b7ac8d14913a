/* The steps of probe.h. */
#define SQ_MACHINE_SIM 1
#include "experiment/probe.h"

#include <string.h>

#include "machine/machine.h"

#define SETTLE_NS UINT64_C(100000000) /* what was asked of a bus is through by then */

const char *const sq_probe_kind_name[SQ_PROBE_KIND_COUNT] = {
#define SQ_PROBE_NAME(name, text) text,
    SQ_PROBE_KINDS(SQ_PROBE_NAME)
#undef SQ_PROBE_NAME
};

static uint64_t probe_now_ps(const sq_cpu *cpu)
{
    return sq_sim_of(cpu)->now_ps;
}

/* The memory of a step, in the first bytes of the node's. */
static char *probe_memory(const sq_machine *machine, const struct sq_probe_step *step)
{
    return machine->arena + ((uint64_t)step->node << machine->node_shift) +
           step->line * SQ_LINE_SIZE;
}

/* Read every other line; twice, so that the second time finds what the caches keep. */
static uint64_t probe_again(sq_cpu *cpu, const char *memory, uint64_t count)
{
    uint64_t start_ps = 0;
    for (int round = 0; round < 2; round++) {
        sq_charge_ns(cpu, SETTLE_NS);
        start_ps = probe_now_ps(cpu);
        for (uint64_t i = 0; i < count; i++)
            sq_touch_read(cpu, memory + 2 * i * SQ_LINE_SIZE, 8);
    }
    return start_ps;
}

static void probe_lock(sq_cpu *cpu, sq_lock *lock, uint64_t count)
{
    if (lock->holder == 0 && lock->lock_class != SQ_LOCK_LIST)
        sq_lock_init(lock, SQ_LOCK_LIST);
    for (uint64_t i = 0; i < count; i++) {
        sq_lock_acquire(cpu, lock);
        sq_lock_release(cpu, lock);
    }
}

static void probe_double(sq_cpu *cpu, char *memory, bool is_local)
{
    struct sq_local_pair *pair = (struct sq_local_pair *)(void *)memory;
    if (is_local)
        (void)sq_local_cas_double(cpu, pair, pair->first, pair->second, pair->first, 0);
    else
        (void)sq_cas_double(cpu, (sq_atomic *)(void *)memory, 0, 0);
}

/* Instructions that touch no line. */
static void probe_instructions(sq_cpu *cpu, enum sq_probe_kind kind, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (kind == SQ_PROBE_IRQ) {
            sq_irq_save(cpu);
            sq_irq_restore(cpu);
        } else {
            sq_preempt_disable(cpu);
            sq_preempt_enable(cpu);
        }
    }
}

/* Do a step as its CPU. `page` is the block that is held between two steps. Returns
 * when its time began. */
static uint64_t probe_do(sq_cpu *cpu, const struct sq_probe_step *step,
                         struct sq_page **page)
{
    char *memory = probe_memory(cpu->machine, step);
    uint64_t start_ps = probe_now_ps(cpu);
    switch (step->kind) {
    case SQ_PROBE_READ:
        sq_touch_read(cpu, memory, step->count * SQ_LINE_SIZE);
        break;
    case SQ_PROBE_WRITE:
        sq_touch_write(cpu, memory, step->count * SQ_LINE_SIZE);
        break;
    case SQ_PROBE_AGAIN:
        return probe_again(cpu, memory, step->count);
    case SQ_PROBE_ROW:
        for (uint64_t i = 0; i < step->count; i++)
            sq_touch_read(cpu, memory + i * SQ_LINE_SIZE, 8);
        break;
    case SQ_PROBE_ADD:
        (void)sq_add_relaxed(cpu, (sq_atomic *)(void *)memory, 1);
        break;
    case SQ_PROBE_CAS_DOUBLE:
    case SQ_PROBE_LOCAL_CAS:
        probe_double(cpu, memory, step->kind == SQ_PROBE_LOCAL_CAS);
        break;
    case SQ_PROBE_LOCK:
        probe_lock(cpu, (sq_lock *)(void *)memory, step->count);
        break;
    case SQ_PROBE_PAGES_ALLOC:
        *page = sq_pages_alloc(cpu, (uint32_t)step->count, (int32_t)step->node, 0);
        break;
    case SQ_PROBE_PAGES_FREE:
        sq_pages_free(cpu, *page);
        *page = NULL;
        break;
    case SQ_PROBE_IRQ:
    case SQ_PROBE_PREEMPT:
    case SQ_PROBE_KIND_COUNT:
        probe_instructions(cpu, step->kind, step->count);
        break;
    }
    return start_ps;
}

/* Is there such a CPU and node, and room for the lines? `has_page`: a block is held. */
static bool probe_step_is_valid(const sq_machine *machine,
                                const struct sq_probe_step *step, bool has_page)
{
    const struct sq_topology *topology = &machine->topology;
    if (step->cpu >= topology->cpu_count || step->node >= topology->node_count)
        return false;
    if (step->kind == SQ_PROBE_PAGES_FREE)
        return has_page;
    if (step->kind == SQ_PROBE_PAGES_ALLOC)
        return !has_page && step->count <= SQ_PAGE_ORDER_MAX;
    return step->count > 0 && step->count <= SQ_PROBE_LINES_MAX &&
           step->line <= SQ_PROBE_LINES_MAX &&
           (step->line + 2 * step->count) * SQ_LINE_SIZE <= machine->node_bytes;
}

static int probe_check(const sq_machine *machine, const struct sq_probe_step *steps,
                       size_t count, struct sq_error *error)
{
    bool has_page = false;
    for (size_t i = 0; i < count; i++) {
        const struct sq_probe_step *step = &steps[i];
        if (!probe_step_is_valid(machine, step, has_page))
            return sq_error_set(
                error, SQ_E_PARAMETER,
                "step %zu is %s of CPU %u, node %u, line %llu, count %llu: accepted "
                "are the machine's CPUs and nodes, lines of the node's memory, and "
                "one block at a time",
                i, sq_probe_kind_name[step->kind], step->cpu, step->node,
                (unsigned long long)step->line, (unsigned long long)step->count);
        if (step->kind == SQ_PROBE_PAGES_ALLOC)
            has_page = true;
        else if (step->kind == SQ_PROBE_PAGES_FREE)
            has_page = false;
    }
    if (has_page)
        return sq_error_set(error, SQ_E_PARAMETER,
                            "the last block is not given back: accepted are as many "
                            "pages_free as pages_alloc");
    return SQ_OK;
}

int sq_probe_run(sq_machine *machine, struct sq_probe_step *steps, size_t count,
                 struct sq_error *error)
{
    struct sq_page *page = NULL;
    int code = probe_check(machine, steps, count, error);
    if (code != SQ_OK)
        return code;
    for (size_t i = 0; i < count; i++) {
        sq_cpu *cpu = machine->ops->cpu_enter(machine, steps[i].cpu);
        uint64_t start_ps;
        sq_charge_ns(cpu, SETTLE_NS);
        start_ps = probe_do(cpu, &steps[i], &page);
        steps[i].ps = probe_now_ps(cpu) - start_ps;
        machine->ops->cpu_leave(cpu);
        if (steps[i].kind == SQ_PROBE_PAGES_ALLOC && page == NULL)
            return sq_error_set(error, SQ_E_MEMORY,
                                "the machine has no block of order %llu",
                                (unsigned long long)steps[i].count);
    }
    return SQ_OK;
}
