#define SQ_MACHINE_NATIVE 1
#include "machine/sched.c"
