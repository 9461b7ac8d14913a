/*
 * Memory of the simulated machine: one reservation [shared | frames | arena], the lines
 * beside it, and pieces of the shared part.
 */
#define SQ_MACHINE_SIM 1
#include "machine/address_space.h"
#include "machine/sim_internal.h"

#include <string.h>
#include <sys/mman.h>

#define SHARED_BYTES (UINT64_C(8) << 30) /* address space; touched on use */

/* Accesses are all over the place: with large pages of the host a third of them is
 * cheaper. A host that has none costs speed only. */
static void sim_advise(void *memory, uint64_t bytes)
{
    if (memory != NULL)
        (void)madvise(memory, bytes, MADV_HUGEPAGE);
}

int sim_memory_reserve(struct sim_machine *machine, struct sq_error *error)
{
    sq_machine *base = &machine->base;
    uint64_t arena_bytes;
    base->node_shift = sq_fls(base->node_bytes - 1);
    arena_bytes = (uint64_t)base->topology.node_count << base->node_shift;
    machine->shared_bytes = SHARED_BYTES;
    machine->frames_bytes = sq_align_up(
        (arena_bytes >> SQ_PAGE_SHIFT) * sizeof(struct sq_page), SQ_BLOCK_BYTES_MAX);
    base->region_bytes = machine->shared_bytes + machine->frames_bytes + arena_bytes;
    base->region = sq_address_space_reserve_aligned(base->region_bytes);
    machine->lines = sq_address_space_reserve(base->region_bytes / SQ_LINE_SIZE * 8);
    sim_advise(base->region, base->region_bytes);
    sim_advise(machine->lines, base->region_bytes / SQ_LINE_SIZE * 8);
    if (base->region == NULL || machine->lines == NULL)
        return sq_address_space_refused(base, error);
    base->page_frames =
        (struct sq_page *)(void *)(base->region + machine->shared_bytes);
    base->arena = base->region + machine->shared_bytes + machine->frames_bytes;
    return SQ_OK;
}

/* ---- shared memory outside the nodes ---- */

static uint32_t shared_class(size_t bytes)
{
    return sq_fls(sq_max_u64(bytes, SQ_LINE_SIZE) - 1);
}

void *sq_shared_alloc(sq_machine *base, size_t bytes)
{
    struct sim_machine *machine = sim_of(base);
    uint32_t class_index = shared_class(bytes);
    uint64_t size;
    void *memory;
    if (bytes > machine->shared_bytes)
        return NULL;
    /* Small pieces are reused by size class; large ones take what they need. */
    size = sq_align_up(sq_max_u64(bytes, 1), SQ_LINE_SIZE);
    memory = machine->shared_free[class_index];
    if (memory != NULL) {
        machine->shared_free[class_index] = *(void **)memory;
        return memset(memory, 0, size);
    }
    size = UINT64_C(1) << class_index;
    if (size > machine->shared_bytes - machine->shared_used)
        return NULL;
    memory = base->region + machine->shared_used;
    machine->shared_used += size;
    return memory; /* fresh pages are zero */
}

void sq_shared_free(sq_machine *base, void *memory, size_t bytes)
{
    struct sim_machine *machine = sim_of(base);
    uint32_t class_index = shared_class(bytes);
    if (memory == NULL)
        return;
    *(void **)memory = machine->shared_free[class_index];
    machine->shared_free[class_index] = memory;
}
