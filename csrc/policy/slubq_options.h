/* Options of the policy `slub+q`; the form of a row is explained in options.h. */
#ifndef SQ_SLUBQ_OPTIONS_H
#define SQ_SLUBQ_OPTIONS_H

#define SQ_SLUBQ_OPTIONS(X)                                                              \
    X(version, 2, 1, 4, "which posting: V1 (25 Jun 2010) to V4 (5 Oct 2010)")          \
    X(slub_max_order, 3, 0, 10, "largest order tried (kernel: slub_max_order)")        \
    X(slub_min_order, 0, 0, 10, "smallest order (kernel: slub_min_order)")             \
    X(slub_min_objects, 0, 0, 65535,                                                   \
      "objects a slab should hold; 0: from the number of CPUs (kernel: "               \
      "slub_min_objects)")                                                             \
    X(kmalloc_min_size, 8, 8, 256, "smallest kmalloc cache, bytes")                    \
    X(kmalloc_max_size, 8192, 2048, 33554432,                                          \
      "largest kmalloc cache, bytes; above, pages")

#endif
