"""The functions of sheaves in the profile of a simulated run."""

import pytest

import slabq

# Scopes with the kernel's names: those that a run in which tasks hand objects on cannot
# do without, and those that need calls for many objects at once.
SHEAF_SCOPES = {
    "hackbench": {
        "alloc_from_pcs",
        "free_to_pcs",
        "__pcs_replace_empty_main",
        "__pcs_replace_full_main",
        "refill_sheaf",
        "sheaf_flush_unused",
        "barn_get_empty_sheaf",
        "barn_put_empty_sheaf",
        "barn_replace_empty_sheaf",
        "barn_replace_full_sheaf",
    },
    "kmalloc": {"alloc_from_pcs_bulk", "free_to_pcs_bulk"},
}
PROFILED = {
    "hackbench": {"groups": 2, "loops": 20},
    "kmalloc": {"test": "bulk", "loops": 1},
}


def profile_of(workload, **options):
    return slabq.run(
        workload,
        policy=slabq.Sheaves(**options),
        machine="penryn-2x4",
        engine="sim",
        progress=False,
        **PROFILED[workload],
    ).sample["profile"]


@pytest.mark.parametrize("workload", SHEAF_SCOPES)
def test_a_profile_names_the_functions_of_sheaves(workload):
    profile = profile_of(workload, sheaf_all_caches=True)

    assert {n for n in SHEAF_SCOPES[workload] if profile.get(n, 0) == 0} == set()
    assert sum(profile.values()) == pytest.approx(1.0, abs=1e-6)


def test_a_cache_without_sheaves_has_no_time_in_their_functions():
    profile = profile_of("hackbench", sheaf_all_caches=False)

    assert SHEAF_SCOPES["hackbench"] & set(profile) == set()


def test_cycles_of_a_sheafs_function_are_charged_once_for_each_call_of_it():
    """Of pairs on one CPU each takes one object from a sheaf and gives it back."""
    plain = slabq.machine.find_machine("penryn-2x4").replace(cpus=1)
    times = []
    for cycles in (0, 1000):
        costs = {**dict(plain.costs), "sheaf_alloc_cycles": cycles}
        result = slabq.run(
            "kmalloc",
            policy=slabq.Sheaves(sheaf_all_caches=True),
            machine=plain.replace(costs=costs),
            engine="sim",
            progress=False,
            test="pairs",
            count=100,
            loops=10,
            size=64,
            latency_interval=0,
        )
        times.append(result.elapsed_s)
        pairs = result.sample["allocations"]

    extra_ps = (times[1] - times[0]) * 1e12
    assert extra_ps == pytest.approx(pairs * 1000 * 357, rel=0.01)
