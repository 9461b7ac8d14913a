/*
 * What a run was like over time: operations by CPU, slab pages, locks and counters, as
 * totals since the run began. Taking a sample changes nothing of a simulated run.
 *
 * On a simulated machine samples are taken where a CPU that tells its progress has
 * passed the next point in virtual time; on a real one at ticks of the thread that
 * waits, without locks and counters, which belong to the CPUs. There is room for so
 * many samples; when it is full, every second one goes and the interval is doubled.
 */
#ifndef SQ_TIMELINE_H
#define SQ_TIMELINE_H

#include "base/sq_json.h"
#include "policy/policy.h"
#include "workload/runner.h"

#define SQ_TIMELINE_SAMPLES 512u

struct sq_timeline;

/* For runs of this machine and policy; NULL: no memory. */
struct sq_timeline *sq_timeline_create(const sq_machine *machine, const sq_heap *heap);
void sq_timeline_destroy(struct sq_timeline *timeline);
/* When the next sample is due, by the run's clock. */
uint64_t sq_timeline_due_ns(const struct sq_timeline *timeline);
/* Note how far the run is. `with_totals`: locks and counters too; requires that no
 * other thread is a CPU. */
void sq_timeline_take(struct sq_timeline *timeline, const struct sq_runner *runner,
                      uint64_t now_ns, bool with_totals);
/* The member "timeline"; times are relative to `start_ns`. */
void sq_timeline_write(const struct sq_timeline *timeline, uint64_t start_ns,
                       struct sq_json *json);

#endif
