/* The policy `slub` on the native machine. */
#define SQ_MACHINE_NATIVE 1
#include "policy/slub.c"
