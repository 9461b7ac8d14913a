/* The canary of the policy `slub`. */
#define SQ_MACHINE_NATIVE 1
#include "policy/slub.c"

#include "canary_partial.h"

CANARY(slub)
