#define SQ_MACHINE_NATIVE 1
#include "machine/pages.c"
