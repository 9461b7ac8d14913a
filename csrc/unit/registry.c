/*
 * The registry: which policies there are on which engine. One line a (policy, machine)
 * pair; everything else is derived from it.
 */
#include "policy/policy.h"

#include <stdio.h>
#include <string.h>

#define REGISTRY(X)                                                                    \
    X(sq_slab_native)                                                                  \
    X(sq_slub_native)                                                                  \
    X(sq_slubq_native)                                                                 \
    X(sq_sheaves_native)                                                               \
    X(sq_slab_sim)                                                                     \
    X(sq_slub_sim)                                                                     \
    X(sq_slubq_sim)                                                                    \
    X(sq_sheaves_sim)

#define REGISTRY_DECLARE(ops) extern const sq_policy_ops ops;
REGISTRY(REGISTRY_DECLARE)

#define REGISTRY_ROW(ops) &ops,
static const sq_policy_ops *const registry[] = {REGISTRY(REGISTRY_ROW)};

const sq_policy_ops *sq_policy_at(const char *engine, uint32_t n)
{
    for (size_t i = 0; i < SQ_ARRAY_COUNT(registry); i++)
        if (strcmp(registry[i]->machine, engine) == 0 && n-- == 0)
            return registry[i];
    return NULL;
}

const sq_policy_ops *sq_policy_find(const char *name, const char *engine,
                                    struct sq_error *error)
{
    char known[128] = "";
    const sq_policy_ops *ops;
    for (uint32_t n = 0; (ops = sq_policy_at(engine, n)) != NULL; n++) {
        size_t length = strlen(known);
        if (strcmp(ops->name, name) == 0)
            return ops;
        (void)snprintf(known + length, sizeof(known) - length, "%s%s",
                       length > 0 ? ", " : "", ops->name);
    }
    (void)sq_error_set(error, SQ_E_PARAMETER,
                       "policy is %.40s: accepted on the %s engine are %s", name, engine,
                       known);
    return NULL;
}
