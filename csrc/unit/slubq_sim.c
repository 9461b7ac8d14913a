/* The policy `slub+q` on the simulated machine. */
#define SQ_MACHINE_SIM 1
#include "policy/slubq.c"
