#include "machine/address_space.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define NODE_BYTES_MAX (UINT64_C(1) << 40)

int sq_node_bytes_check(uint64_t node_bytes, struct sq_error *error)
{
    if (node_bytes < SQ_BLOCK_BYTES_MAX || node_bytes > NODE_BYTES_MAX ||
        node_bytes % SQ_BLOCK_BYTES_MAX != 0)
        return sq_error_set(error, SQ_E_PARAMETER,
                            "node_bytes is %llu: accepted are multiples of 4 MiB "
                            "(%llu) up to 1 TiB",
                            (unsigned long long)node_bytes,
                            (unsigned long long)SQ_BLOCK_BYTES_MAX);
    return SQ_OK;
}

void *sq_address_space_reserve(uint64_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* More is reserved than asked for; the parts before and behind go back. */
char *sq_address_space_reserve_aligned(uint64_t bytes)
{
    char *memory = sq_address_space_reserve(bytes + SQ_BLOCK_BYTES_MAX), *start;
    if (memory == NULL)
        return NULL;
    start = (char *)sq_align_up((uintptr_t)memory, SQ_BLOCK_BYTES_MAX);
    if (start > memory)
        (void)munmap(memory, (size_t)(start - memory));
    (void)munmap(start + bytes, (size_t)(memory + SQ_BLOCK_BYTES_MAX - start));
    return start;
}

int sq_address_space_refused(const sq_machine *machine, struct sq_error *error)
{
    return sq_error_set(error, SQ_E_MEMORY,
                        "node_bytes is %llu on %u nodes: the host refuses to reserve "
                        "that much address space (%s)",
                        (unsigned long long)machine->node_bytes,
                        machine->topology.node_count, strerror(errno));
}
