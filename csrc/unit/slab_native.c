#define SQ_MACHINE_NATIVE 1
#include "policy/slab.c"
