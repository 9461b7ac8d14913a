/*
 * Placement by averages: where 5.14 puts a woken task. Part of sched_place.h, with rule
 * sched_load_average.
 *
 *   load     of a task, how much of the time it was runnable, and of a CPU, how many
 *            tasks were: averages in which 32 periods of about a millisecond count for
 *            one half. A task takes its share along when it wakes elsewhere
 *   wide     a waker that wakes many in turn, and so does the woken: the task stays
 *            near its last CPU (wake_wide)
 *   affine   else the waker's CPU draws it, if it has no other task and is about to
 *            sleep, or less load with the task than the last CPU without it
 *            (wake_affine_idle, wake_affine_weight)
 *   idle     of the CPUs of that last-level cache an idle one if there is any: the
 *            chosen, the last, one recently used, one of an idle core, the last one's
 *            sibling, any, in order from the chosen (select_idle_sibling)
 *
 * A CPU's load is read as it was at its last change or tick, a sleeper's as it fell
 * asleep, as in the kernel. The last search is bounded (SIS_PROP): a waker whose CPU
 * was seldom idle of late looks at three CPUs, the chosen one among them. Departures:
 * averages are of the time itself and not of whole microseconds; an idle core is looked
 * for and not remembered; a search is taken to last as long as fetching a line of every
 * CPU, but is not charged.
 */
#ifndef SQ_SCHED_PLACE_PELT_H
#define SQ_SCHED_PLACE_PELT_H

#include "machine/sched_queue.h"

#define LOAD_ONE              (UINT64_C(1) << 20) /* of one task that is always runnable */
#define LOAD_PERIOD_PS        (UINT64_C(1048576) * 1000)
#define LOAD_HALF_COUNT       32u /* periods */
#define FLIPS_DECAY_PS        (UINT64_C(1000) * 1000 * US_PS)
#define SEARCH_MIN            4u
#define SMT_IMBALANCE_PERCENT 110u /* of two CPUs of a core; further away: */
#define LLC_IMBALANCE_PERCENT 117u

/* 2^32 * 2^(-i/32) */
static const uint64_t load_factors[LOAD_HALF_COUNT + 1] = {
    4294967296u, 4202935003u, 4112874773u, 4024744348u, 3938502376u, 3854108391u,
    3771522796u, 3690706840u, 3611622603u, 3534232978u, 3458501653u, 3384393094u,
    3311872529u, 3240905930u, 3171459999u, 3103502151u, 3037000500u, 2971923842u,
    2908241642u, 2845924021u, 2784941738u, 2725266179u, 2666869345u, 2609723834u,
    2553802834u, 2499080105u, 2445529972u, 2393127307u, 2341847524u, 2291666561u,
    2242560872u, 2194507417u, 2147483648u,
};

/* ---- averages ---- */

/* What is left of a level after so long; straight between two periods. */
static uint64_t load_decay(uint64_t level, uint64_t ps)
{
    uint64_t count = ps / LOAD_PERIOD_PS, rest_ps = ps % LOAD_PERIOD_PS;
    uint64_t halves = count / LOAD_HALF_COUNT, i = count % LOAD_HALF_COUNT;
    uint64_t step = load_factors[i] - load_factors[i + 1];
    uint64_t factor =
        load_factors[i] - step * (rest_ps / 1000) / (LOAD_PERIOD_PS / 1000);
    if (halves >= 32)
        return 0;
    return (level >> halves) * factor >> 32;
}

static void load_update(struct sim_load *load, uint64_t now_ps)
{
    uint64_t full = load->runnable_count * LOAD_ONE;
    uint64_t ps;
    if (now_ps <= load->updated_ps)
        return;
    ps = now_ps - load->updated_ps;
    load->level = load_decay(load->level, ps) + full - load_decay(full, ps);
    load->updated_ps = now_ps;
}

/* The load of a CPU as a waker reads it: a tick has brought it up to date. */
static uint64_t load_read(struct run_queue *queue, uint64_t now_ps)
{
    uint64_t tick_ps = (uint64_t)queue->sched->rules.sched_tick_us * US_PS;
    if (queue->load.runnable_count > 0)
        load_update(&queue->load, now_ps - now_ps % tick_ps);
    return queue->load.level;
}

/* The task is runnable on the queue from now on; nothing if it was. Only normal tasks
 * are load. */
static void load_begin(struct run_queue *queue, sq_task *task, uint64_t now_ps)
{
    if (queue->sched->rules.sched_load_average == 0 || task->own_priority > 0 ||
        task->engine.load.runnable_count > 0)
        return;
    load_update(&queue->load, now_ps);
    load_update(&task->engine.load, now_ps);
    queue->load.runnable_count++;
    task->engine.load.runnable_count = 1;
}

/* It is no more. */
static void load_end(struct run_queue *queue, sq_task *task, uint64_t now_ps)
{
    if (task->engine.load.runnable_count == 0)
        return;
    load_update(&queue->load, now_ps);
    load_update(&task->engine.load, now_ps);
    queue->load.runnable_count--;
    task->engine.load.runnable_count = 0;
}

/* The task changes queues, with what it is of their loads. */
static void load_move(struct run_queue *from, struct run_queue *to, sq_task *task,
                      uint64_t now_ps)
{
    struct sim_load *load = &task->engine.load;
    if (from->sched->rules.sched_load_average == 0)
        return;
    if (load->runnable_count > 0)
        load_update(&from->load, now_ps);
    load_update(load, from->load.updated_ps);
    load_update(&to->load, now_ps);
    from->load.runnable_count -= load->runnable_count;
    to->load.runnable_count += load->runnable_count;
    from->load.level -= sq_min_u64(load->level, from->load.level);
    to->load.level += load->level;
    load->updated_ps = sq_max_u64(load->updated_ps, now_ps);
}

/* ---- who wakes whom ---- */

static void wakee_note(sq_task *waker, const sq_task *task, uint64_t now_ps)
{
    struct sq_task_engine *engine = &waker->engine;
    if (now_ps > engine->flips_decayed_ps + FLIPS_DECAY_PS) {
        engine->flip_count /= 2;
        engine->flips_decayed_ps = now_ps;
    }
    if (engine->last_wakee != task->number + 1) {
        engine->last_wakee = task->number + 1;
        engine->flip_count++;
    }
}

static uint32_t cache_cpu_count(const struct run_queue *queue)
{
    const struct sim_sched *sched = queue->sched;
    uint32_t count = 0;
    for (uint32_t i = 0; i < sched->cpu_count; i++)
        count += sched->queues[i].cpu->core->domain == queue->cpu->core->domain;
    return count;
}

/* Do the two have more partners than a cache has CPUs for? */
static bool wake_is_wide(const struct run_queue *here, const sq_task *waker,
                         const sq_task *task)
{
    uint64_t many = sq_max_u64(waker->engine.flip_count, task->engine.flip_count);
    uint64_t few = sq_min_u64(waker->engine.flip_count, task->engine.flip_count);
    uint64_t factor = cache_cpu_count(here);
    return few >= factor && many >= few * factor;
}

/* ---- the waker's CPU, or the last one ---- */

static bool queues_share_cache(const struct run_queue *a, const struct run_queue *b)
{
    return a->cpu->core->domain == b->cpu->core->domain;
}

/* Has the waker's CPU less load with the task than the last one has without it? */
static bool wake_is_lighter(struct run_queue *here, struct run_queue *last,
                            const sq_task *waker, const sq_task *task, bool sync)
{
    uint64_t now_ps = here->cpu->now_ps, level = task->engine.load.level;
    uint64_t percent = here->cpu->core == last->cpu->core ? SMT_IMBALANCE_PERCENT
                                                          : LLC_IMBALANCE_PERCENT;
    uint64_t there = load_read(last, now_ps), own = load_read(here, now_ps);
    if (sync && waker != NULL) {
        if (waker->engine.load.level > own)
            return true;
        own -= waker->engine.load.level;
    }
    there -= sq_min_u64(level, there);
    return 100 * (own + level) < (100 + (percent - 100) / 2) * there + (sync ? 1 : 0);
}

static struct run_queue *wake_affine_target(struct run_queue *here,
                                            struct run_queue *last,
                                            const sq_task *waker, const sq_task *task,
                                            bool sync)
{
    if (queue_is_idle(here) && queues_share_cache(here, last))
        return queue_is_idle(last) ? last : here;
    if (sync && queue_load(here) == 1)
        return here;
    if (queue_is_idle(last))
        return last;
    return wake_is_lighter(here, last, waker, task, sync) ? here : last;
}

/* ---- an idle CPU near that ---- */

static bool core_is_idle(const struct run_queue *queue)
{
    const struct sim_sched *sched = queue->sched;
    for (uint32_t i = 0; i < sched->cpu_count; i++)
        if (sched->queues[i].cpu->core == queue->cpu->core &&
            !queue_is_idle(&sched->queues[i]))
            return false;
    return true;
}

/* How long the CPU was idle at a time, halved for each tick since it was. */
static uint64_t wake_age_idle(struct run_queue *queue)
{
    uint64_t tick_ps = (uint64_t)queue->sched->rules.sched_tick_us * US_PS;
    uint64_t tick = queue->cpu->now_ps / tick_ps;
    if (tick > queue->idle_tick) {
        uint64_t count = sq_min_u64(tick - queue->idle_tick, 63);
        queue->wake_idle_ps >>= count;
        queue->idle_tick = tick;
    }
    return queue->wake_idle_ps;
}

/* The CPU has work again. */
static void wake_note_idle(struct run_queue *queue)
{
    uint64_t tick_ps = (uint64_t)queue->sched->rules.sched_tick_us * US_PS;
    queue->wake_idle_ps = queue->average_idle_ps / 2;
    queue->idle_tick = queue->cpu->now_ps / tick_ps;
}

/* How many CPUs a waker here may look at: as many searches as its CPU is likely to be
 * idle for, but three at least. */
static uint32_t wake_search_limit(struct run_queue *here)
{
    uint32_t count = cache_cpu_count(here);
    uint64_t search_ps = count * (uint64_t)here->cpu->costs->core_transfer_ps;
    uint64_t span_ps = count * wake_age_idle(here);
    here->wake_idle_ps -= sq_min_u64(search_ps, here->wake_idle_ps);
    if (span_ps <= SEARCH_MIN * search_ps || search_ps == 0)
        return SEARCH_MIN - 1;
    return (uint32_t)sq_min_u64(span_ps / search_ps, UINT32_MAX) - 1;
}

/* The first idle CPU of the cache, or the first of an idle core, from `from` on, of the
 * first `limit` that are looked at. */
static struct run_queue *cache_find_idle(struct run_queue *from, bool whole_core,
                                         uint32_t limit)
{
    struct sim_sched *sched = from->sched;
    for (uint32_t i = 0; i < sched->cpu_count && limit > 0; i++) {
        struct run_queue *queue =
            &sched->queues[(from->cpu->base.index + i) % sched->cpu_count];
        if (!queues_share_cache(queue, from))
            continue;
        limit--;
        if (queue_is_idle(queue) && (!whole_core || core_is_idle(queue)))
            return queue;
    }
    return NULL;
}

static struct run_queue *core_find_idle(const struct run_queue *of)
{
    struct sim_sched *sched = of->sched;
    for (uint32_t i = 0; i < sched->cpu_count; i++)
        if (sched->queues[i].cpu->core == of->cpu->core &&
            queue_is_idle(&sched->queues[i]))
            return &sched->queues[i];
    return NULL;
}

static struct run_queue *idle_sibling(struct run_queue *here, sq_task *task,
                                      struct run_queue *last, struct run_queue *target)
{
    struct run_queue *recent = &last->sched->queues[task->engine.recent_cpu];
    struct run_queue *found;
    if (queue_is_idle(target))
        return target;
    if (queues_share_cache(last, target) && queue_is_idle(last))
        return last;
    if (recent != last && recent != target && queues_share_cache(recent, target) &&
        queue_is_idle(recent)) {
        task->engine.recent_cpu = last->cpu->base.index;
        return recent;
    }
    found = cache_find_idle(target, true, UINT32_MAX);
    if (found == NULL && queues_share_cache(last, target))
        found = core_find_idle(last);
    if (found == NULL)
        found = cache_find_idle(target, false, wake_search_limit(here));
    return found != NULL ? found : target;
}

/* Where a woken task goes; requires that it may move. `sync`: its waker is about to
 * sleep. */
static struct run_queue *wake_place_by_load(sq_cpu *cpu, sq_task *task, bool sync)
{
    struct sim_sched *sched = sched_of(task);
    struct run_queue *here = &sched->queues[cpu->index], *last = queue_of(task);
    struct run_queue *target = last;
    sq_task *waker = cpu->task;
    bool wants_affine = sched->rules.sched_wake_affine != 0;
    if (waker != NULL) {
        wakee_note(waker, task, here->cpu->now_ps);
        wants_affine = wants_affine && !wake_is_wide(here, waker, task);
    }
    if (wants_affine && here != last)
        target = wake_affine_target(here, last, waker, task, sync);
    if (sched->rules.sched_idle_sibling != 0)
        target = idle_sibling(here, task, last, target);
    if (wants_affine && waker != NULL)
        waker->engine.recent_cpu = cpu->index;
    return target;
}

#endif
