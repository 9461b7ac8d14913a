/*
 * Options of the policy `slub`; the form of a row is explained in options.h. The
 * defaults are those of Linux 6.1; every other release is a set of values of these rows
 * and no code (data/kernels/slub.toml).
 */
#ifndef SQ_SLUB_OPTIONS_H
#define SQ_SLUB_OPTIONS_H

/* How the fast paths are guarded: the option `fast_path`. */
enum slub_fast_path {
    SLUB_FAST_IRQ = 0,        /* to 2.6.38: interrupts off */
    SLUB_FAST_CMPXCHG = 1,    /* 2.6.39 on: local exchange of (freelist, tid) */
    SLUB_FAST_LOCAL_LOCK = 2, /* 5.15 with PREEMPT_RT: no lockless path at all */
    SLUB_FAST_HARDENED = 3,   /* not an option: 1 with disguised free pointers */
};

/* When a free that empties a slab gives its pages back: the option `discard_rule`. */
enum slub_discard_rule {
    SLUB_DISCARD_AT_ONCE = 0, /* to 2.6.39: always */
    SLUB_DISCARD_ABOVE = 1,   /* 3.1, 3.2: if nr_partial > min_partial */
    SLUB_DISCARD_FROM = 2,    /* by 3.16: if nr_partial >= min_partial */
};

/* What the per-CPU partial lists count: the option `cpu_partial_unit`. */
enum slub_cpu_partial_unit {
    SLUB_CPU_PARTIAL_NONE = 0,    /* to 3.1: there are none */
    SLUB_CPU_PARTIAL_OBJECTS = 1, /* 3.2 to 5.15 */
    SLUB_CPU_PARTIAL_SLABS = 2,   /* 5.16 on */
};

#define SQ_SLUB_CORE_OPTIONS(X)                                                        \
    X(slub_max_order, 3, 0, 10, "largest order tried (kernel: slub_max_order)")        \
    X(slub_min_order, 0, 0, 10, "smallest order (kernel: slub_min_order)")             \
    X(slub_min_objects, 0, 0, 65535,                                                   \
      "objects a slab should hold; 0: from the number of CPUs (kernel: "               \
      "slub_min_objects)")                                                             \
    X(slub_cpu_partial, 1, 0, 1,                                                       \
      "cpu partial lists (kernel: CONFIG_SLUB_CPU_PARTIAL)")                           \
    X(kmalloc_min_size, 8, 8, 256, "smallest kmalloc cache, bytes; a power of two")     \
    X(kmalloc_max_size, 8192, 2048, 33554432,                                          \
      "largest kmalloc cache, bytes; above, pages (kernel: KMALLOC_MAX_CACHE_SIZE)")   \
    X(kmalloc_named_k, 1, 0, 1,                                                        \
      "kmalloc caches from 1024 bytes on are called kmalloc-1k (since 4.20)")          \
    X(order_search, 2, 0, 3,                                                           \
      "search for an order: 0 to 2.6.25, 1 to 2.6.29, 2 to 6.7, 3 from 6.8 on")        \
    X(slab_objects_max, 32767, 512, 65535,                                             \
      "objects a slab can count: 65535 to 3.0, 32767 since (kernel: "                  \
      "MAX_OBJS_PER_PAGE)")                                                            \
    X(order_fallback, 1, 0, 1,                                                         \
      "the order of a single object when memory is short, since 2.6.26")               \
    X(kmalloc_few_order, 0, 0, 10,                                                     \
      "order of kmalloc caches with fewer than 4 objects a page, which fall back to "  \
      "pages; 0: no such rule (2.6.25 only: 3)")                                       \
    X(hwcache_align_rule, 1, 0, 1,                                                     \
      "SLAB_HWCACHE_ALIGN: 0 whole lines, to 2.6.24; 1 halved lines")                  \
    X(align_is_as_asked, 0, 0, 1,                                                      \
      "a cache says the alignment asked for, not the one it has (to 2.6.25)")          \
    X(free_pointer_middle, 1, 0, 1,                                                    \
      "free pointer in the middle of a free object (since 5.7), not at its start")     \
    X(slub_debug, 1, 0, 1, "debug flags of caches count (kernel: CONFIG_SLUB_DEBUG)")  \
    X(debug_single, 1, 0, 1,                                                           \
      "debug caches take one object under list_lock (since 6.1), no CPU slab")         \
    X(red_left_pad, 1, 0, 1, "a red zone before the object too (since 4.6)")           \
    X(checks_flag, 1, 0, 1,                                                            \
      "debug caches check objects only with SLAB_CONSISTENCY_CHECKS (since 4.6), not "  \
      "all")                                                                           \
    X(report_form, 1, 0, 1, "debug reports as in 0 2.6.34, 1 6.18")                     \
    X(kmalloc_orig_size, 1, 0, 1,                                                      \
      "kmalloc caches with SLAB_STORE_USER keep the size asked for (since 6.1)")       \
    X(freelist_random, 0, 0, 1,                                                        \
      "objects of a new slab come in random order (kernel: "                           \
      "CONFIG_SLAB_FREELIST_RANDOM, since 4.7)")                                       \
    X(freelist_hardened, 0, 0, 2,                                                      \
      "free pointers are disguised (kernel: CONFIG_SLAB_FREELIST_HARDENED): 1 by the "  \
      "byte-swapped address (since 5.7), 2 by the address (4.14 on)")                  \
    X(track_bytes, 64, 0, 4096, "bytes an object that SLAB_STORE_USER adds")           \
    X(min_partial, 5, 0, 65535, "smallest min_partial (kernel: MIN_PARTIAL)")          \
    X(min_partial_divisor, 2, 0, 2,                                                    \
      "min_partial is log2(size) / this, at most 10; 0: constant (to 2.6.26), "        \
      "1: to 3.1, 2: since 3.2")                                                       \
    X(remote_node_defrag_ratio, 1000, 0, 1000000,                                      \
      "chance in 1024 to look for slabs on other nodes; 100 to 2.6.26")                \
    X(explicit_node_any_partial, 0, 0, 1,                                              \
      "a call that names a node may take other nodes' partial slabs (to 2.6.36; "      \
      "6.18 as its last resort)")                                                      \
    X(explicit_node_new_first, 0, 0, 1,                                                \
      "a call that names a node tries new pages there before other nodes (6.18)")      \
    X(fast_path, 1, 0, 2,                                                              \
      "0 interrupts off (to 2.6.38), 1 local compare and exchange, 2 local lock (RT): "   \
      "no lockless allocation, and interrupts off where irq_scope is 0") \
    X(slab_cmpxchg, 1, 0, 1,                                                           \
      "slabs change by compare and exchange (since 3.1), not under slab_lock")         \
    X(discard_rule, 2, 0, 2,                                                           \
      "a free that empties a slab gives it back: 0 always (to 2.6.39), 1 if "          \
      "nr_partial > min_partial (3.1, 3.2), 2 if >= (by 3.16)")                        \
    X(free_add_tail, 1, 0, 1,                                                          \
      "a full slab goes to its node list's tail when an object of it is freed "        \
      "(since 2.6.24), not to the head")                                               \
    X(deactivate_head, 1, 0, 1,                                                        \
      "a CPU's slab goes to its node list's head: 0 if the CPU still had objects of "  \
      "it (to 2.6.39), 1 if no other CPU freed any (since 3.1)")                       \
    X(deactivate_splice, 1, 0, 1,                                                      \
      "a CPU's free list goes back in one piece (by 5.15), not object by object")      \
    X(cpu_partial_unit, 2, 0, 2,                                                       \
      "cpu partial lists count 0 nothing (to 3.1), 1 objects (3.2 to 5.15), 2 slabs")  \
    X(cpu_partial_frozen, 1, 0, 1, "slabs on a cpu partial list are frozen (to 6.7)")  \
    X(cpu_partial_zero_drain, 0, 0, 1,                                                 \
      "with cpu_partial 0 a slab leaves the list as soon as it is put there (4.19)")   \
    X(cpu_partial_zero_stop, 0, 0, 1,                                                  \
      "with cpu_partial 0 an allocation takes one slab of the node, not two (6.18)")   \
    X(shrink_promote, 1, 0, 1,                                                         \
      "shrink moves slabs with at most 32 free objects first, not all by use")         \
    X(count_cpu_partial_moves, 1, 0, 1,                                                \
      "cpu_partial_node and cpu_partial_drain are counted (by 3.16)")                  \
    X(bulk_statistics, 0, 0, 1, "bulk calls count objects in the fast-path counters")  \
    X(bulk_free_reversed, 0, 0, 1,                                                     \
      "a bulk free hands on the objects of a slab last first (6.18)")                  \
    X(slab_nomerge, 1, 0, 1,                                                           \
      "caches are not merged (kernel boot option slab_nomerge, once slub_nomerge)")    \
    X(kmalloc_nomerge, 1, 0, 1,                                                        \
      "no cache is merged into a kmalloc cache (since those may be copied to users)")

/* All of them: those above, which policies on top of SLUB have too, and SLUB's alone.
 */
#define SQ_SLUB_OPTIONS(X)                                                             \
    SQ_SLUB_CORE_OPTIONS(X)                                                            \
    X(preempt_rt, 0, 0, 1, "kernel: CONFIG_PREEMPT_RT; locks may sleep")               \
    X(irq_scope, 0, 0, 1,                                                              \
      "slow paths have interrupts off: 0 from end to end, 1 only where the CPU's part " \
      "changes (RT's 5.14; 5.15 on, where 0 is a departure)")                          \
    X(list_lock_raw, 1, 0, 1,                                                          \
      "PREEMPT_RT: list_lock is 0 a sleeping lock, 1 a raw spin lock")                 \
    X(sheaf_columns, 0, 0, 1,                                                          \
      "say what 6.18 says of sheaves, of which caches of this policy have none")

#endif
