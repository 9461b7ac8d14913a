/*
 * Workloads that somebody else compiled: what can be checked of one before it is run. The
 * abi comes before all else, since the rest of a foreign struct may mean anything.
 */
#include <stdio.h>
#include <string.h>

#include "workload/runner.h"

#define USER_NAME_MAX      40u
#define USER_PARAMETER_MAX 64u

/* Text of printable ASCII, of 1 to USER_NAME_MAX characters. */
static bool user_is_text(const char *text)
{
    size_t length = 0;
    if (text == NULL)
        return false;
    for (; text[length] != '\0'; length++)
        if (length == USER_NAME_MAX || text[length] < ' ' || text[length] > '~')
            return false;
    return length > 0;
}

/* A name as C has them. */
static bool user_is_identifier(const char *text)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    return user_is_text(text) && strspn(text, letters) == strlen(text) &&
           !(text[0] >= '0' && text[0] <= '9');
}

/* Has a parameter of the run, or an earlier one of the workload, this name? */
static bool user_is_taken(const struct sq_workload *workload, uint32_t index)
{
    const char *name = workload->parameters[index].name;
    for (uint32_t i = 0; i < SQ_RUN_PARAMETER_COUNT; i++)
        if (strcmp(sq_run_parameters[i].name, name) == 0)
            return true;
    for (uint32_t i = 0; i < index; i++)
        if (strcmp(workload->parameters[i].name, name) == 0)
            return true;
    return false;
}

static int user_check_parameter(const struct sq_workload *workload, uint32_t index,
                                struct sq_error *error)
{
    const struct sq_workload_parameter *row = &workload->parameters[index];
    if (!user_is_identifier(row->name))
        return sq_error_set(error, SQ_E_PARAMETER,
                            "parameter %u of workload %s has no usable name: accepted are "
                            "letters, digits and _, at most %u",
                            index, workload->name, USER_NAME_MAX);
    if (user_is_taken(workload, index))
        return sq_error_set(error, SQ_E_PARAMETER,
                            "parameter %s of workload %s has a name that is taken: "
                            "accepted is one that no other parameter has, nor "
                            "slice_calls, wake_affine or latency_interval",
                            row->name, workload->name);
    if (row->value_min > row->value_default || row->value_default > row->value_max)
        return sq_error_set(error, SQ_E_PARAMETER,
                            "parameter %s of workload %s has the default %lld, the "
                            "minimum %lld and the maximum %lld: accepted is a default "
                            "between the two",
                            row->name, workload->name, (long long)row->value_default,
                            (long long)row->value_min, (long long)row->value_max);
    return SQ_OK;
}

int sq_workload_check(const struct sq_workload *workload, struct sq_error *error)
{
    int code = SQ_OK;
    if (workload->abi != SQ_WORKLOAD_ABI)
        return sq_error_set(error, SQ_E_PARAMETER,
                            "the workload's abi is %u: accepted is %u (set it to "
                            "SQ_WORKLOAD_ABI and compile with this slabq's header)",
                            workload->abi, SQ_WORKLOAD_ABI);
    if (!user_is_text(workload->name) || !user_is_text(workload->rate_unit))
        return sq_error_set(error, SQ_E_PARAMETER,
                            "the workload has no usable name or rate_unit: accepted are 1 "
                            "to %u characters of ASCII each",
                            USER_NAME_MAX);
    if (workload->setup == NULL)
        return sq_error_set(error, SQ_E_PARAMETER,
                            "workload %s has no setup function: accepted is one that "
                            "spawns its tasks",
                            workload->name);
    if (workload->parameter_count > USER_PARAMETER_MAX ||
        (workload->parameter_count > 0 && workload->parameters == NULL))
        return sq_error_set(error, SQ_E_PARAMETER,
                            "workload %s has %u parameters%s: accepted are 0 to %u, with "
                            "a table",
                            workload->name, workload->parameter_count,
                            workload->parameters == NULL ? " and no table" : "",
                            USER_PARAMETER_MAX);
    for (uint32_t i = 0; i < workload->parameter_count && code == SQ_OK; i++)
        code = user_check_parameter(workload, i, error);
    return code;
}
