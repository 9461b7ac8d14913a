/*
 * Options of the policy `slab`; the form of a row is explained in options.h.
 *
 * The defaults are Linux 6.1. Options whose range is 0 to 1 and whose help ends in a
 * release name one difference between releases: 1 is what the later kernels do.
 */
#ifndef SQ_SLAB_OPTIONS_H
#define SQ_SLAB_OPTIONS_H

#define SQ_SLAB_OPTIONS(X)                                                             \
    X(slab_max_order, 1, 0, 10,                                                        \
      "largest order tried for the sake of waste (kernel: slab_max_order, once "       \
      "slab_break_gfp_order)")                                                         \
    X(noaliencache, 0, 0, 1, "no alien arrays (kernel boot option noaliencache)")      \
    X(kmalloc_min_size, 32, 8, 256,                                                    \
      "smallest kmalloc cache, bytes; a power of two")                                 \
    X(kmalloc_max_size, 8192, 4096, 4194304,                                           \
      "largest kmalloc cache, bytes; above, pages (kernel: KMALLOC_MAX_CACHE_SIZE); "  \
      "rounded down to a power of two")                                                \
    X(kmalloc_96, 1, 0, 1, "a kmalloc cache of 96 bytes")                              \
    X(kmalloc_named_size, 0, 0, 1, "kmalloc caches are called size-N, not kmalloc-N")  \
    X(kmalloc_named_k, 1, 0, 1,                                                        \
      "kmalloc caches from 1024 bytes on are called kmalloc-1k (since 4.20)")          \
    X(cache_line_size, 64, 32, 128,                                                    \
      "bytes of a line: HWCACHE_ALIGN and the colouring step (a power of two; the "    \
      "machine's lines stay 64 bytes)")                                                \
    X(limit, 0, 0, 4096, "objects of a CPU's array; 0: by object size")                \
    X(batchcount, 0, 0, 4096,                                                          \
      "objects moved at once, at most the limit; 0: half the limit")                   \
    X(shared, 8, 0, 64,                                                                \
      "batches of a node's shared array (objects up to a page, more than one CPU)")    \
    X(alien_limit, 12, 1, 4096, "objects of an alien array")                           \
    X(batchrefill_limit, 16, 1, 4096,                                                  \
      "most objects of the first refill of an untouched array (kernel: "               \
      "BATCHREFILL_LIMIT)")                                                            \
    X(freelist_index_stack, 1, 0, 1,                                                   \
      "slab management is a stack of byte indexes and the page frame; 0: struct slab " \
      "with its bufctl chain (2.6 to 3.12)")                                           \
    X(objfreelist, 1, 0, 1,                                                            \
      "the index stack may lie in the last free object (kernel: "                      \
      "CFLGS_OBJFREELIST_SLAB, 4.6)")                                                  \
    X(cache_grow_begin, 1, 0, 1,                                                       \
      "a new slab serves the caller before it is linked, its colour is taken without " \
      "the list lock (in 4.19)")                                                       \
    X(lockless_refill_check, 1, 0, 1,                                                  \
      "a refill looks for free objects before it takes the list lock (in 4.19)")       \
    X(shared_touched, 1, 0, 1,                                                         \
      "a refill from the shared array marks that array touched; 0: whatever array "    \
      "receives objects (2.6.34)")                                                     \
    X(destroy_after_batch, 1, 0, 1,                                                    \
      "over free_limit the last free slabs go, after the batch and without the list "  \
      "lock; 0: the slab that became empty, at once (in 4.19)")                        \
    X(free_limit_first, 1, 0, 1,                                                       \
      "retuning sets free_limit before the shared array is flushed (in 4.19)")         \
    X(freelist_random, 0, 0, 1,                                                        \
      "objects of a new slab come in random order, with an index stack only (kernel: "  \
      "CONFIG_SLAB_FREELIST_RANDOM, since 4.7)")                                       \
    X(debug_keeps_align, 1, 0, 1,                                                      \
      "a cache with HWCACHE_ALIGN has neither red zones nor user words; 0: these take "  \
      "its place (to 3.12)")                                                           \
    X(report_form, 1, 0, 1, "debug reports as in 0 2.6, 1 4.19 on")                     \
    X(slab_nomerge, 1, 0, 1,                                                           \
      "caches are not merged (kernel boot option slab_nomerge, once slub_nomerge)")    \
    X(kmalloc_nomerge, 1, 0, 1,                                                        \
      "no cache is merged into a kmalloc cache (since those may be copied to users)")

#endif
