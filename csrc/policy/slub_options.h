/* Options of the policy `slub`; the form of a row is explained in options.h. */
#ifndef SQ_SLUB_OPTIONS_H
#define SQ_SLUB_OPTIONS_H

#define SQ_SLUB_OPTIONS(X)                                                              \
    X(slub_max_order, 3, 0, 10, "largest order tried (kernel: slub_max_order)")        \
    X(slub_min_order, 0, 0, 10, "smallest order (kernel: slub_min_order)")             \
    X(slub_min_objects, 0, 0, 65535,                                                   \
      "objects a slab should hold; 0: from the number of CPUs (kernel: "               \
      "slub_min_objects)")                                                             \
    X(slub_cpu_partial, 1, 0, 1, "cpu partial lists (kernel: CONFIG_SLUB_CPU_PARTIAL)") \
    X(kmalloc_min_size, 8, 8, 256, "smallest kmalloc cache, bytes")                    \
    X(kmalloc_max_size, 8192, 2048, 33554432,                                          \
      "largest kmalloc cache, bytes; above, pages (kernel: KMALLOC_MAX_CACHE_SIZE)")

#endif
