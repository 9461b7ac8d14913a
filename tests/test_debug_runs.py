"""Debug caches in whole runs: what a faulty workload leaves in the row, when it ends.

The faulty workload writes one byte past an object in each of its loops.
"""

import json

import pytest

import slabq
from slabq.cli import main

pytestmark = pytest.mark.threads

MACHINE = slabq.Machine(cpus=2)
FAULTY = """
#include "slabq/workload.h"
static int64_t loops;
static void worker(const struct sq_env *env, sq_task *task, void *cache)
{
    for (int64_t i = 0; i < loops; i++) {
        char *object = env->alloc(task, cache);
        object[64] = 1;
        env->free(task, cache, object);
        env->progress(task, 1);
    }
}
static void *setup(const struct sq_env *env, sq_task *task, const int64_t *values)
{
    sq_cache *cache = env->cache_create(task, "faulty", 64, 0, 0);
    loops = values[0];
    env->spawn(task, worker, cache, 0);
    env->expect(task, (uint64_t)loops);
    return cache;
}
static const struct sq_workload_parameter parameters[] = {
    {"loops", 3, 1, 1000000000, "how many"},
};
const struct sq_workload faulty = {
    .abi = SQ_WORKLOAD_ABI, .name = "faulty", .help = "writes past its objects",
    .rate_unit = "loops/s", .parameters = parameters, .parameter_count = 1,
    .setup = setup,
};
"""


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    path = tmp_path_factory.mktemp("faulty") / "faulty.c"
    path.write_text(FAULTY)
    return path


@pytest.mark.parametrize("engine", ["native", "sim"])
@pytest.mark.parametrize(
    ("policy", "kernel", "what", "last"),
    [
        ("slab", "6.1", "memory outside object was overwritten", 3),
        ("slab", "2.6.35", "memory outside object was overwritten", 3),
        ("slub", "6.1", "Right Redzone overwritten", 3),
        ("sheaves", "6.18", "Right Redzone overwritten", 3),
        ("slub+q", "2.6.35", "Redzone overwritten", 3),
    ],
)
def test_a_report_does_not_end_a_run(faulty, engine, policy, kernel, what, last):
    result = slabq.run(
        f"c:{faulty}",
        policy=policy,
        kernel=kernel,
        machine=MACHINE,
        engine=engine,
        debug="ZPU" if policy == "slab" else "FZPU",
        loops=last,
    )

    found = result.sample["reports"]
    assert [one["what"] for one in found["kept"]] == [what] * last
    assert found["total"] == last
    assert {one["cache"] for one in found["kept"]} == {"faulty"}
    assert found["text"].count("faulty") >= last
    assert result.operations == last


@pytest.mark.parametrize("engine", ["native", "sim"])
@pytest.mark.parametrize("loops", [1, 1_000_000_000])
def test_the_first_report_ends_a_run_if_asked_to(faulty, engine, loops):
    with pytest.raises(
        slabq.CorruptionError, match="cache faulty, slab 0, object 15: memory"
    ):
        slabq.run(
            f"c:{faulty}",
            policy="slab",
            machine=MACHINE,
            engine=engine,
            debug="Z",
            panic_on_report=True,
            loops=loops,
        )


@pytest.mark.parametrize("policy", ["slab", "slub", "slub+q", "sheaves"])
@pytest.mark.parametrize("engine", ["native", "sim"])
def test_a_sound_run_of_debug_caches_finds_nothing(policy, engine):
    result = slabq.run(
        "hackbench",
        policy=policy,
        machine=slabq.Machine(cpus=4, nodes=2),
        engine=engine,
        debug="ZPU",
        panic_on_report=True,
        groups=1,
        loops=20,
    )
    replayed = slabq.replay(
        slabq.bundled_trace_path(),
        policy=policy,
        machine=MACHINE,
        engine=engine,
        debug="ZPU",
    )

    assert result.sample["reports"]["total"] == 0
    assert replayed.sample["reports"]["total"] == 0
    assert (
        "reports"
        not in slabq.run(
            "hackbench", policy=policy, machine=MACHINE, groups=1, loops=1
        ).sample
    )


def test_a_result_is_repeated_with_its_debug_flags(faulty):
    result = slabq.run(
        "hackbench", policy="slab", machine=MACHINE, debug="Z", groups=1, loops=1
    )

    assert result.repeat().sample["debug"] == "Z"


def test_the_command_line_tells_reports_apart_from_the_rows(faulty, capsys):
    command = ["run", f"c:{faulty}", "-p", "slab", "--cpus", "2", "--debug", "Z"]
    assert main([*command, "--json"]) == 0
    told = capsys.readouterr()
    (row,) = json.loads(told.out)["results"]
    assert row["workload"].endswith("faulty.c")
    assert "slab, seed 1: 3 debug reports" in told.err
    assert "slab error in verify_redzone_free(): cache `faulty'" in told.err

    assert main([*command, "--panic-on-report"]) == 1
    assert "memory outside object" in capsys.readouterr().err


def test_flags_of_another_policy_are_refused_before_anything_runs(faulty):
    with pytest.raises(slabq.ParameterError, match="letters of ZPU for policy slab"):
        slabq.run(f"c:{faulty}", policy="slab", machine=MACHINE, debug="FZ")
