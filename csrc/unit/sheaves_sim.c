/* The policy `sheaves` on the simulated machine. */
#define SQ_MACHINE_SIM 1
#include "policy/sheaves.c"
