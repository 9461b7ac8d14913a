#define SQ_MACHINE_SIM 1
#include "machine/sched_sim.c"
