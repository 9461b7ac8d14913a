/*
 * Options of the policy `slub+q`; the form of a row is explained in options.h.
 *
 * A row whose default is -1 follows `version`; giving it a value of its own makes a
 * release that never was, which is what an ablation wants.
 */
#ifndef SQ_SLUBQ_OPTIONS_H
#define SQ_SLUBQ_OPTIONS_H

#define SQ_SLUBQ_OPTIONS(X)                                                            \
    X(version, 2, 1, 4,                                                                \
      "which posting: V1 (25 Jun 2010), V2 (9 Jul 2010), V3 (3 Aug 2010), V4 (5 Oct "  \
      "2010)")                                                                         \
    X(slub_max_order, 3, 0, 10, "largest order tried (kernel: slub_max_order)")        \
    X(slub_min_order, 0, 0, 10, "smallest order (kernel: slub_min_order)")             \
    X(slub_min_objects, 0, 0, 65535,                                                   \
      "objects a slab should hold; 0: from the number of CPUs (kernel: "               \
      "slub_min_objects)")                                                             \
    X(cpu_queue_size, 0, 0, 10000,                                                     \
      "objects of a CPU's queue; 0: 120, 54, 24 or 8 by object size (kernel: sysfs "   \
      "cpu_queue_size)")                                                               \
    X(shared_queue_size, -1, -1, 100000,                                               \
      "objects asked for a shared queue; 0: none; -1: none in V1 and V2, the queue "   \
      "size in V3, 10 batches in V4 if there is more than one CPU and objects are "    \
      "smaller than a page (kernel: sysfs shared_queue_size)")                         \
    X(alien_queues, -1, -1, 1,                                                         \
      "a foreign object is freed to its node, through an alien queue where there is "  \
      "a shared one; -1: from V3 on")                                                  \
    X(slab_lock, -1, -1, 1, "a lock in each slab besides the node's; -1: up to V3")    \
    X(discard_at_once, -1, -1, 1,                                                      \
      "an emptied slab goes back whatever min_partial says; -1: up to V3")             \
    X(touched, -1, -1, 1,                                                              \
      "a queue not in use lately is refilled with 16 objects only; -1: from V4 on")    \
    X(remote_node_defrag_ratio, 1000, 0, 65535,                                        \
      "of 1024, how often a CPU may take other nodes' partial slabs, up to V3 "        \
      "(kernel: remote_node_defrag_ratio)")                                            \
    X(count_free_slab, -1, -1, 1,                                                      \
      "count free_slab; the postings before V4 never did; -1: from V4 on")             \
    X(count_partial_mended, -1, -1, 1,                                                 \
      "free_add_partial counts slabs added; V1 counted them as free_remove_partial; "  \
      "-1: from V2 on")                                                                \
    X(honour_node, 0, 0, 1,                                                            \
      "V4: an explicit node is honoured; as posted the local node was taken")          \
    X(flush_all_levels, 0, 0, 1,                                                       \
      "V3, V4: shrink empties shared and alien queues of a CPU whose own queue is "    \
      "empty too; as posted they were left")                                           \
    X(resize_keeps_aliens, 0, 0, 1,                                                    \
      "V4: a resize gives alien objects back; as posted they were lost")               \
    X(resize_clears_counters, -1, -1, 1,                                               \
      "a change of cpu_queue_size sets the counters to 0, which lay in the area it "   \
      "replaces; -1: up to V2")                                                        \
    X(expire_mended, 0, 0, 1,                                                          \
      "V4: expire stops at the first level that gave something, visits every alien "   \
      "queue, adds up what it freed; as posted it did none of these")                  \
    X(kmalloc_min_size, 8, 8, 256,                                                     \
      "smallest kmalloc cache, bytes; a power of two")                                 \
    X(kmalloc_max_size, 8192, 2048, 33554432,                                          \
      "largest kmalloc cache, bytes; above, pages; rounded down to a power of two")   \
    X(slab_nomerge, 1, 0, 1,                                                           \
      "caches are not merged (kernel boot option slab_nomerge, once slub_nomerge)")    \
    X(kmalloc_nomerge, 1, 0, 1,                                                        \
      "no cache is merged into a kmalloc cache (since those may be copied to users)")

#endif
