#include "base/sq_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/sq_assert.h"

int sq_error_set(struct sq_error *error, int code, const char *format, ...)
{
    if (error != NULL) {
        va_list arguments;
        error->code = code;
        va_start(arguments, format);
        (void)vsnprintf(error->message, sizeof(error->message), format, arguments);
        va_end(arguments);
    }
    return code;
}

_Noreturn void sq_assert_fail(const char *expression, const char *file, int line)
{
    (void)fprintf(stderr, "slabq: internal error: %s is false at %s:%d\n", expression,
                  file, line);
    abort();
}
