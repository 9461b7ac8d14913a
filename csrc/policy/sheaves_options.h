/*
 * Options of the policy `sheaves`: those of SLUB, which lies beneath, and its own. The
 * form of a row is explained in options.h. The defaults of its own are those of 6.18;
 * SLUB's have the values of 6.18 in data/kernels/sheaves.toml.
 */
#ifndef SQ_SHEAVES_OPTIONS_H
#define SQ_SHEAVES_OPTIONS_H

#include "policy/slub_options.h"

#define SQ_SHEAVES_OPTIONS(X)                                                          \
    SQ_SLUB_CORE_OPTIONS(X)                                                            \
    X(sheaf_all_caches, 0, 0, 1,                                                       \
      "every cache has sheaves, kmalloc caches too, of a capacity by object size "     \
      "(series of October 2025); 0: caches that ask for them (6.18)")                  \
    X(sheaf_capacity, 0, 0, 4096,                                                      \
      "capacity of every cache that has sheaves; 0: what the cache asks for, or what " \
      "its object size gives (kernel: sheaf_capacity)")                                \
    X(sheaf_cpu_slab, 1, 0, 1,                                                         \
      "caches with sheaves have CPU slabs and cpu partial lists too; 0: slabs are "    \
      "taken from the node and go back at once")                                       \
    X(barn_full_max, 10, 0, 65535,                                                     \
      "full sheaves of a node's barn above which none is put there (kernel: "          \
      "MAX_FULL_SHEAVES)")                                                             \
    X(barn_empty_max, 0, 0, 65535,                                                     \
      "empty sheaves of a node's barn above which they are given back; 0: never, as "  \
      "6.18, where only kfree_rcu asks (kernel: MAX_EMPTY_SHEAVES, 10)")               \
    X(sheaf_flush_percent, 100, 1, 100,                                                \
      "part of a full sheaf that goes to slabs when the barn has enough, oldest "      \
      "objects first (6.18: all)")

#endif
