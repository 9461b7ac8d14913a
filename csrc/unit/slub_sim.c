/* The policy `slub` on the simulated machine. */
#define SQ_MACHINE_SIM 1
#include "policy/slub.c"
