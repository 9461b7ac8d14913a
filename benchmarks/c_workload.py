"""Time of allocations and frees of a workload in C on the native engine.

    python benchmarks/c_workload.py [--rounds N] [--json FILE]

Pairs on one CPU, and batches of 128; each with a look at what the workload frees (the
default) and without, and beside them slabq's own workload `kmalloc`, whose frees are
never looked at. Rounds are interleaved.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path

import slabq

SOURCE = """
#include "slabq/workload.h"
static int64_t batch, loops;
static void worker(const struct sq_env *env, sq_task *task, void *cache)
{
    void *objects[128];
    for (int64_t i = 0; i < loops; i++) {
        for (int64_t n = 0; n < batch; n++)
            objects[n] = env->alloc(task, cache);
        for (int64_t n = 0; n < batch; n++)
            env->free(task, cache, objects[n]);
        env->progress(task, (uint64_t)batch);
    }
}
static void *setup(const struct sq_env *env, sq_task *task, const int64_t *values)
{
    sq_cache *cache = env->cache_create(task, "mine", 64, 0, 0);
    batch = values[0], loops = values[1];
    env->spawn(task, worker, cache, 0);
    return cache;
}
static const struct sq_workload_parameter parameters[] = {
    {"batch", 1, 1, 128, "objects at once"},
    {"loops", 2000000, 1, 1000000000, "rounds"},
};
const struct sq_workload pairs = {
    .abi = SQ_WORKLOAD_ABI, .name = "pairs", .help = "alloc and free",
    .rate_unit = "pairs/s", .parameters = parameters, .parameter_count = 2,
    .setup = setup,
};
"""
PAIRS = 4_000_000
BATCHES = (1, 128)
POLICIES = ("slab", "slub", "slub+q", "sheaves")


def once(workload: object, policy: str, **values: int) -> float:
    """Nanoseconds of an operation."""
    machine = slabq.Machine(cpus=1)
    result = slabq.run(
        workload, policy=policy, machine=machine, engine="native", **values
    )
    return float(result.sample["ns_per_operation"])


def subjects(workload: object) -> dict[str, tuple[object, dict[str, int]]]:
    """What is run, by its heading."""
    own = {"test": "pairs", "size": 64, "count": 10_000, "loops": PAIRS // 10_000}
    found: dict[str, tuple[object, dict[str, int]]] = {"kmalloc": ("kmalloc", own)}
    for batch in BATCHES:
        values = {"batch": batch, "loops": PAIRS // batch}
        found[f"C, {batch} at once"] = (workload, values)
        found[f"C, {batch}, unchecked"] = (workload, values | {"check_frees": 0})
    return found


def main() -> None:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairs.c"
        path.write_text(SOURCE)
        work = subjects(slabq.compile_workload(path))
        samples: dict[str, dict[str, list[float]]] = {p: {} for p in POLICIES}
        for _ in range(options.rounds):
            for policy in POLICIES:
                for name, (workload, values) in work.items():
                    times = samples[policy].setdefault(name, [])
                    times.append(once(workload, policy, **values))
    if options.json:
        Path(options.json).write_text(json.dumps(samples, indent=1))
    print(f"ns of a pair: median (least-most) of {options.rounds} interleaved rounds")
    for policy, rows in samples.items():
        for name, times in rows.items():
            middle, low, high = statistics.median(times), min(times), max(times)
            print(f"{policy:8}  {name:20}  {middle:6.1f} ({low:.1f}-{high:.1f})")


if __name__ == "__main__":
    main()
