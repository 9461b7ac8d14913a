#define SQ_MACHINE_SIM 1
#include "workload/sync.c"
#include "workload/channel.c"
#include "workload/env.c"
