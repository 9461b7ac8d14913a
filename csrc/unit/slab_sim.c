#define SQ_MACHINE_SIM 1
#include "policy/slab.c"
