/*
 * Error codes and the one-line message that goes with them.
 *
 * A function that can fail for a reason outside the program returns 0 or one of these
 * negative codes and, where it takes a `struct sq_error *`, fills in one line that names
 * the thing, its value and what would be accepted. The core never prints or exits.
 */
#ifndef SQ_ERROR_H
#define SQ_ERROR_H

#include <stddef.h>

enum sq_error_code {
    SQ_OK = 0,
    SQ_E_PARAMETER = -1,  /* a value out of range, an unknown name     -> ParameterError */
    SQ_E_MEMORY = -2,     /* the host or a node has no memory left     -> OutOfMemory */
    SQ_E_TRACE = -3,      /* a trace of another kind, or cut off       -> TraceFormatError */
    SQ_E_CORRUPTION = -4, /* a structure or a pointer that cannot be   -> CorruptionError */
    SQ_E_STOPPED = -5,    /* the caller asked to stop                  -> KeyboardInterrupt */
    SQ_E_DEADLOCK = -6,   /* every task waits, none can run            -> Error */
    SQ_E_SYSTEM = -7,     /* the operating system refused (errno text) -> Error */
};

struct sq_error {
    int code;
    char message[400];
};

/* Fill `error` (may be NULL) as printf does and return `code`. */
int sq_error_set(struct sq_error *error, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
