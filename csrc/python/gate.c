#include "python/gate.h"

#include <time.h>

#include "python/core_state.h"

#define GATE_WAIT_NS 20000

/* Let other threads have the GIL. */
static void gate_pause(void)
{
    const struct timespec pause = {.tv_sec = 0, .tv_nsec = GATE_WAIT_NS};
    Py_BEGIN_ALLOW_THREADS
    (void)nanosleep(&pause, NULL);
    Py_END_ALLOW_THREADS
}

void core_gate_enter(struct core_gate *gate)
{
    while (gate->waiter_count > 0)
        gate_pause();
    gate->call_count++;
}

void core_gate_leave(struct core_gate *gate)
{
    gate->call_count--;
}

void core_gate_wait(struct core_gate *gate)
{
    gate->waiter_count++;
    while (gate->call_count > 0)
        gate_pause();
    gate->waiter_count--;
}
