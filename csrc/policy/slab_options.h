/* Options of the policy `slab`; the form of a row is explained in options.h. */
#ifndef SQ_SLAB_OPTIONS_H
#define SQ_SLAB_OPTIONS_H

#define SQ_SLAB_OPTIONS(X)                                                              \
    X(slab_max_order, 1, 0, 10,                                                        \
      "largest order tried for the sake of waste (kernel: slab_max_order)")            \
    X(noaliencache, 0, 0, 1, "no alien arrays (kernel boot option noaliencache)")      \
    X(kmalloc_min_size, 32, 8, 256, "smallest kmalloc cache, bytes")                   \
    X(kmalloc_max_size, 8192, 4096, 33554432,                                          \
      "largest kmalloc cache, bytes; above, pages (kernel: KMALLOC_MAX_CACHE_SIZE)")

#endif
