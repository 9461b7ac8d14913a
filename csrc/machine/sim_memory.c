/*
 * Memory of the simulated machine: one reservation [shared | frames | arena], the lines
 * beside it, and pieces of the shared part.
 */
#define SQ_MACHINE_SIM 1
#include "machine/sim_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define BLOCK_BYTES  (UINT64_C(1) << (SQ_PAGE_ORDER_MAX + SQ_PAGE_SHIFT))
#define SHARED_BYTES (UINT64_C(8) << 30) /* address space; touched on use */

static void *sim_reserve(uint64_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* Accesses are all over the place: with large pages of the host a third of them is
 * cheaper. A host that has none costs speed only. */
static void sim_advise(void *memory, uint64_t bytes)
{
    if (memory != NULL)
        (void)madvise(memory, bytes, MADV_HUGEPAGE);
}

/* A reservation at a multiple of the largest block; the parts around it go back. */
static char *sim_reserve_region(uint64_t bytes)
{
    char *memory = sim_reserve(bytes + BLOCK_BYTES), *start;
    if (memory == NULL)
        return NULL;
    start = (char *)sq_align_up((uintptr_t)memory, BLOCK_BYTES);
    if (start > memory)
        (void)munmap(memory, (size_t)(start - memory));
    (void)munmap(start + bytes, (size_t)(memory + BLOCK_BYTES - start));
    return start;
}

int sim_memory_check(const struct sq_machine_config *config, struct sq_error *error)
{
    uint64_t max = UINT64_C(1) << 40;
    if (config->node_bytes < BLOCK_BYTES || config->node_bytes > max ||
        config->node_bytes % BLOCK_BYTES != 0)
        return sq_error_set(error, SQ_E_PARAMETER,
                            "node_bytes is %llu: accepted are multiples of 4 MiB "
                            "(%llu) up to 1 TiB",
                            (unsigned long long)config->node_bytes,
                            (unsigned long long)BLOCK_BYTES);
    return SQ_OK;
}

int sim_memory_reserve(struct sim_machine *machine, struct sq_error *error)
{
    sq_machine *base = &machine->base;
    uint64_t arena_bytes;
    base->node_shift = sq_fls(base->node_bytes - 1);
    arena_bytes = (uint64_t)base->topology.node_count << base->node_shift;
    machine->shared_bytes = SHARED_BYTES;
    machine->frames_bytes = sq_align_up(
        (arena_bytes >> SQ_PAGE_SHIFT) * sizeof(struct sq_page), BLOCK_BYTES);
    base->region_bytes = machine->shared_bytes + machine->frames_bytes + arena_bytes;
    base->region = sim_reserve_region(base->region_bytes);
    machine->lines = sim_reserve(base->region_bytes / SQ_LINE_SIZE * 8);
    sim_advise(base->region, base->region_bytes);
    sim_advise(machine->lines, base->region_bytes / SQ_LINE_SIZE * 8);
    if (base->region == NULL || machine->lines == NULL)
        return sq_error_set(
            error, SQ_E_MEMORY,
            "node_bytes is %llu on %u nodes: the host refuses to reserve "
            "that much address space (%s)",
            (unsigned long long)base->node_bytes, base->topology.node_count,
            strerror(errno));
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
