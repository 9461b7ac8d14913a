/*
 * The options of all policies. Each policy lists its own in <policy>_options.h as an
 * X-macro of rows
 *
 *   X(name, default, minimum, maximum, "what it is; where the value comes from")
 *
 * which gives the struct, the table for Python and the documentation. Names are the
 * kernel's where it has one. All values are integers; a switch is 0 or 1. Kernel profiles
 * (data/kernels.toml) are sets of values of these options and nothing else.
 */
#ifndef SQ_OPTIONS_H
#define SQ_OPTIONS_H

#include <stdint.h>

#include "base/sq_error.h"
#include "policy/sheaves_options.h"
#include "policy/slab_options.h"
#include "policy/slub_options.h"
#include "policy/slubq_options.h"

#define SQ_OPTION_FIELD(name, value, minimum, maximum, help) int64_t name;

struct sq_options {
    struct {
        SQ_SLAB_OPTIONS(SQ_OPTION_FIELD)
    } slab;
    struct {
        SQ_SLUB_OPTIONS(SQ_OPTION_FIELD)
    } slub;
    struct {
        SQ_SLUBQ_OPTIONS(SQ_OPTION_FIELD)
    } slubq;
    struct {
        SQ_SHEAVES_OPTIONS(SQ_OPTION_FIELD)
    } sheaves;
};

/* One row of the table. */
struct sq_option {
    const char *policy, *name;
    int64_t value_default, value_min, value_max;
    const char *help;
    uint32_t offset; /* of the field in struct sq_options */
};

/* The table of all policies' options; `count` rows. */
const struct sq_option *sq_options_table(uint32_t *count);
void sq_options_init(struct sq_options *options); /* every default */
/* The value of an option, or `other` if the policy has none of that name. */
int64_t sq_options_get(const struct sq_options *options, const char *policy,
                       const char *name, int64_t other);
/* Set one by name. Unknown names and values out of range are refused with a message. */
int sq_options_set(struct sq_options *options, const char *policy, const char *name,
                   int64_t value, struct sq_error *error);

#endif
