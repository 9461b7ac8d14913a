#define SQ_MACHINE_SIM 1
#include "machine/pages.c"
