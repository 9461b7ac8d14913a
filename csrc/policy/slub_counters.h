/*
 * The counters of SLUB under the names of SLUB_STATS, in the order of 6.18, which has
 * all of them. Releases before sheaves never count those of sheaves.
 */
#ifndef SLUB_COUNTERS_H
#define SLUB_COUNTERS_H

#define SLUB_COUNTERS(X)                                                               \
    X(ALLOC_PCS, "alloc_cpu_sheaf", "taken from the CPU's sheaf")                      \
    X(ALLOC_FASTPATH, "alloc_fastpath", "taken from the CPU's free list")              \
    X(ALLOC_SLOWPATH, "alloc_slowpath", "any slow entry, refills included")            \
    X(FREE_PCS, "free_cpu_sheaf", "put into the CPU's sheaf")                          \
    X(FREE_RCU_SHEAF, "free_rcu_sheaf", "put into the CPU's sheaf for kfree_rcu")      \
    X(FREE_RCU_SHEAF_FAIL, "free_rcu_sheaf_fail", "kfree_rcu found no such sheaf")     \
    X(FREE_FASTPATH, "free_fastpath", "put on the CPU's free list")                    \
    X(FREE_SLOWPATH, "free_slowpath", "put on a slab that is not this CPU's")          \
    X(FREE_FROZEN, "free_frozen", "slow free to a slab that a CPU owns")               \
    X(FREE_ADD_PARTIAL, "free_add_partial", "slab put on a node's partial list")       \
    X(FREE_REMOVE_PARTIAL, "free_remove_partial", "emptied slab taken off that list")  \
    X(ALLOC_FROM_PARTIAL, "alloc_from_partial", "CPU slab taken from a node's list")   \
    X(ALLOC_SLAB, "alloc_slab", "CPU slab made from new pages")                        \
    X(ALLOC_REFILL, "alloc_refill", "took what was freed to the CPU slab meanwhile")   \
    X(ALLOC_NODE_MISMATCH, "alloc_node_mismatch", "CPU slab was on another node")      \
    X(FREE_SLAB, "free_slab", "slab given back to the page allocator")                 \
    X(CPUSLAB_FLUSH, "cpuslab_flush", "CPU slab taken away")                           \
    X(DEACTIVATE_FULL, "deactivate_full", "CPU slab left full")                        \
    X(DEACTIVATE_EMPTY, "deactivate_empty", "CPU slab left empty")                     \
    X(DEACTIVATE_TO_HEAD, "deactivate_to_head", "CPU slab went to the list's head")    \
    X(DEACTIVATE_TO_TAIL, "deactivate_to_tail", "CPU slab went to the list's tail")    \
    X(DEACTIVATE_REMOTE_FREES, "deactivate_remote_frees",                              \
      "CPU slab left with objects that other CPUs freed")                              \
    X(DEACTIVATE_BYPASS, "deactivate_bypass", "full CPU slab was just forgotten")      \
    X(ORDER_FALLBACK, "order_fallback", "slab of the smallest order, memory short")    \
    X(CMPXCHG_DOUBLE_CPU_FAIL, "cmpxchg_double_cpu_fail", "fast path taken again")     \
    X(CMPXCHG_DOUBLE_FAIL, "cmpxchg_double_fail", "slab word changed meanwhile")       \
    X(CPU_PARTIAL_ALLOC, "cpu_partial_alloc", "CPU slab from its partial list")        \
    X(CPU_PARTIAL_FREE, "cpu_partial_free", "full slab put on it by a free")           \
    X(CPU_PARTIAL_NODE, "cpu_partial_node", "put on it from a node's list")            \
    X(CPU_PARTIAL_DRAIN, "cpu_partial_drain", "that list moved to its nodes")          \
    X(SHEAF_FLUSH, "sheaf_flush", "objects given from sheaves to slabs")               \
    X(SHEAF_REFILL, "sheaf_refill", "objects taken from slabs into sheaves")           \
    X(SHEAF_ALLOC, "sheaf_alloc", "sheaf made")                                        \
    X(SHEAF_FREE, "sheaf_free", "sheaf given back")                                    \
    X(BARN_GET, "barn_get", "full sheaf taken from the barn")                          \
    X(BARN_GET_FAIL, "barn_get_fail", "the barn had no full sheaf")                    \
    X(BARN_PUT, "barn_put", "full sheaf put into the barn")                            \
    X(BARN_PUT_FAIL, "barn_put_fail", "the barn could not take a full sheaf")          \
    X(SHEAF_PREFILL_FAST, "sheaf_prefill_fast", "prefilled sheaf was the CPU's spare") \
    X(SHEAF_PREFILL_SLOW, "sheaf_prefill_slow",                                        \
      "prefilled sheaf from the barn, or made")                                        \
    X(SHEAF_PREFILL_OVERSIZE, "sheaf_prefill_oversize",                                \
      "prefilled sheaf of a size of its own")                                          \
    X(SHEAF_RETURN_FAST, "sheaf_return_fast",                                          \
      "prefilled sheaf became the CPU's spare")                                        \
    X(SHEAF_RETURN_SLOW, "sheaf_return_slow",                                          \
      "prefilled sheaf went to the barn or to slabs")

enum slub_counter {
#define SLUB_COUNTER_ENUM(name, text, help) SLUB_##name,
    SLUB_COUNTERS(SLUB_COUNTER_ENUM)
#undef SLUB_COUNTER_ENUM
        SLUB_COUNTER_COUNT
};

#endif
