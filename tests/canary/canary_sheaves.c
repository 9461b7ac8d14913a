/* The canary of the policy `sheaves`. */
#define SQ_MACHINE_NATIVE 1
#include "policy/sheaves.c"

#include "canary_partial.h"

CANARY(sheaves)
