/*
 * slabq's own file form of a kmem trace: compact, by column, checked to the last byte.
 * All numbers are little-endian. Version 1:
 *
 *   offset  size  content
 *        0     8  magic "SLABQKMT"
 *        8     4  version, 1
 *       12     4  number of counters, N
 *       16     8  size of the whole file in bytes
 *       24     8  number of events, E
 *       32   8 N  the counters, in the order of SQ_TRACE_COUNTS
 *           40     5 pairs, in the order of SQ_TRACE_TABLES: number of strings (4),
 *                  bytes of their text (4)
 *                  the 5 tables: where each string ends in the text (4 each), the
 *                  text, zeros up to a multiple of 8 bytes of the file
 *                  the 12 columns, in the order of SQ_TRACE_COLUMNS: E numbers of the
 *                  width of the field in struct sq_trace_event, zeros likewise
 *            8     checksum of everything before it
 *
 * The checksum finds every change of a single byte, and any other with a chance of
 * 1 - 2^-64; all lengths and indices are checked besides, so that a file made up on
 * purpose can do no harm either.
 */
#ifndef SQ_TRACE_COMPACT_H
#define SQ_TRACE_COMPACT_H

#include <stddef.h>
#include <stdint.h>

#include "base/sq_error.h"
#include "trace/trace.h"

#define SQ_COMPACT_MAGIC "SLABQKMT"

/* Encode into a new buffer, which the caller frees. 0 or SQ_E_MEMORY. */
int sq_compact_encode(const struct sq_trace *trace, unsigned char **bytes, size_t *size,
                      struct sq_error *error);

/*
 * Decode into an initialised, empty trace. 0, SQ_E_TRACE (the message says what does
 * not hold) or SQ_E_MEMORY; after an error the trace is only fit to be freed. `name` is
 * the file's, for the message.
 */
int sq_compact_decode(const unsigned char *bytes, size_t size, const char *name,
                      struct sq_trace *trace, struct sq_error *error);

#endif
