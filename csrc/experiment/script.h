/*
 * Operation scripts: one CPU after the other does what a line says, and what the policy
 * did is printed as one JSON object a line. With it a policy can be compared step by step
 * with what a real kernel did.
 */
#ifndef SQ_SCRIPT_H
#define SQ_SCRIPT_H

#include "policy/policy.h"

/* How the recordings of a kernel look where that is not a matter of the policy. */
enum sq_script_style {
    SQ_SCRIPT_KERNEL = 0,  /* driver inside a kernel: long commands are cut to 60 */
    SQ_SCRIPT_ORIGINAL = 1 /* allocator sources alone: whole commands, fallback lists */
};

/*
 * Run `script` on a fresh heap of `ops` with `options`; the text goes to `json`. Returns
 * 0, or an error code whose message begins with the line number of the script.
 */
int sq_script_run(sq_machine *machine, const sq_policy_ops *ops,
                  const struct sq_options *options, enum sq_script_style style,
                  const char *script, struct sq_json *json, struct sq_error *error);

#endif
