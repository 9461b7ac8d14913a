/* The options of all policies as one table, made from their X-macros. */
#include "policy/options.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define OPTION_ROW(text, field_of, name, value, minimum, maximum, help)                \
    {text, #name, value, minimum, maximum, help,                                       \
     (uint32_t)offsetof(struct sq_options, field_of.name)},
#define SLAB_ROW(name, value, minimum, maximum, help)                                  \
    OPTION_ROW("slab", slab, name, value, minimum, maximum, help)
#define SLUB_ROW(name, value, minimum, maximum, help)                                  \
    OPTION_ROW("slub", slub, name, value, minimum, maximum, help)
#define SLUBQ_ROW(name, value, minimum, maximum, help)                                 \
    OPTION_ROW("slub+q", slubq, name, value, minimum, maximum, help)
#define SHEAVES_ROW(name, value, minimum, maximum, help)                               \
    OPTION_ROW("sheaves", sheaves, name, value, minimum, maximum, help)

static const struct sq_option option_table[] = {
    SQ_SLAB_OPTIONS(SLAB_ROW) SQ_SLUB_OPTIONS(SLUB_ROW) SQ_SLUBQ_OPTIONS(SLUBQ_ROW)
        SQ_SHEAVES_OPTIONS(SHEAVES_ROW)};

const struct sq_option *sq_options_table(uint32_t *count)
{
    *count = (uint32_t)(sizeof(option_table) / sizeof(option_table[0]));
    return option_table;
}

static int64_t *option_field(struct sq_options *options, const struct sq_option *option)
{
    return (int64_t *)(void *)((char *)options + option->offset);
}

void sq_options_init(struct sq_options *options)
{
    uint32_t count;
    const struct sq_option *table = sq_options_table(&count);
    for (uint32_t i = 0; i < count; i++)
        *option_field(options, &table[i]) = table[i].value_default;
}

int64_t sq_options_get(const struct sq_options *options, const char *policy,
                       const char *name, int64_t other)
{
    uint32_t count;
    const struct sq_option *table = sq_options_table(&count);
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(table[i].policy, policy) == 0 && strcmp(table[i].name, name) == 0)
            return *(const int64_t *)(const void *)((const char *)options +
                                                    table[i].offset);
    return other;
}

/* Sizes that the kernel has as powers of two only. */
static int check_power_of_two(const struct sq_option *option, int64_t value,
                              struct sq_error *error)
{
    bool is_power = value > 0 && (value & (value - 1)) == 0;
    if (strcmp(option->name, "kmalloc_min_size") != 0 || is_power)
        return SQ_OK;
    return sq_error_set(error, SQ_E_PARAMETER,
                        "%s of policy %s is %lld: accepted are powers of two from %lld to "
                        "%lld",
                        option->name, option->policy, (long long)value,
                        (long long)option->value_min, (long long)option->value_max);
}

int sq_options_set(struct sq_options *options, const char *policy, const char *name,
                   int64_t value, struct sq_error *error)
{
    uint32_t count;
    const struct sq_option *table = sq_options_table(&count);
    for (uint32_t i = 0; i < count; i++) {
        const struct sq_option *option = &table[i];
        if (strcmp(option->policy, policy) != 0 || strcmp(option->name, name) != 0)
            continue;
        if (value < option->value_min || value > option->value_max)
            return sq_error_set(error, SQ_E_PARAMETER,
                                "%s of policy %s is %lld: accepted are %lld to %lld", name,
                                policy, (long long)value, (long long)option->value_min,
                                (long long)option->value_max);
        if (check_power_of_two(option, value, error) != SQ_OK)
            return SQ_E_PARAMETER;
        *option_field(options, option) = value;
        return SQ_OK;
    }
    return sq_error_set(error, SQ_E_PARAMETER, "policy %s has no option named %s", policy,
                        name);
}
