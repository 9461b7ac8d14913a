/* The policy `slub+q` on the native machine. */
#define SQ_MACHINE_NATIVE 1
#include "policy/slubq.c"
