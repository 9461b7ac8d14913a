"""One policy source, two machines: a script gives the same lines on both.

Scripts run one operation at a time, so nothing that the machines differ in (order,
time) may show: not in objects, slabs and lists, and not in a single counter.
"""

import random
from typing import Any

import oracle_suite
import pytest
import sim_build

from slabq import _core

FOUR_NODES = [[10, 20, 20, 30], [20, 10, 20, 20], [20, 20, 10, 20], [30, 20, 20, 10]]
SIZES = [16, 64, 192, 256, 512, 1024, 2048]
CASES = [
    ("slab", "2.6.25"),
    ("slab", "2.6.35"),
    ("slab", "6.1"),
    ("slub", "2.6.25"),
    ("slub", "2.6.35"),
    ("slub", "4.19"),
    ("slub", "5.15"),
    ("slub", "6.1"),
    ("slub", "6.18"),
    ("slub+q", "2.6.35"),
]


def machines(cpus: int, nodes: int) -> tuple[Any, Any]:
    node_of_cpu = [cpu * nodes // cpus for cpu in range(cpus)]
    distance = [row[:nodes] for row in FOUR_NODES[:nodes]]
    costs = list(sim_build.preset("opteron-4x4").items())
    return (
        _core.Machine(node_of_cpu, node_of_cpu, distance, 64 << 20, 3, 0, 1),
        _core.SimMachine(node_of_cpu, node_of_cpu, distance, 64 << 20, 1, costs, 3),
    )


def random_script(seed: int, cpus: int) -> str:
    """Allocations and frees in bursts, on all CPUs, in caches of several sizes.

    `a cache cpu count` takes objects, `f cache cpu number...` gives them back by the
    number they were taken in, `dump cache` prints everything a cache has.
    """
    dice = random.Random(seed)
    lines = ["topo", "step 1"]
    lines += [f"cache test{size} {size} 0 -" for size in SIZES]
    live: list[list[int]] = [[] for _ in SIZES]
    taken = 0
    for _ in range(160):
        cache, cpu = dice.randrange(len(SIZES)), dice.randrange(cpus)
        if dice.random() < 0.55:
            count = dice.randrange(1, 80)
            lines.append(f"a {cache} {cpu} {count}")
            live[cache] += range(taken, taken + count)
            taken += count
        elif live[cache]:
            dice.shuffle(live[cache])
            cut = dice.randrange(len(live[cache])) + 1
            numbers = " ".join(map(str, live[cache][:cut]))
            lines.append(f"f {cache} {cpu} {numbers}")
            live[cache] = live[cache][cut:]
        if dice.random() < 0.1:
            lines.append(f"dump {cache}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(("cpus", "nodes"), [(2, 1), (16, 4)])
@pytest.mark.parametrize(("policy", "kernel"), CASES)
def test_a_script_gives_the_same_lines_on_both_machines(policy, kernel, cpus, nodes):
    options = list(oracle_suite.profile(policy, kernel).items())
    for seed in range(3):
        script = random_script(seed, cpus)
        native, sim = machines(cpus, nodes)
        want = _core.execute(native, policy, options, script)
        assert want.count("\n") > 100
        assert _core.execute(sim, policy, options, script) == want


def recorded_scripts() -> list[Any]:
    if not oracle_suite.ORACLE.exists():
        skip = pytest.mark.skip(reason=oracle_suite.KEPT_ASIDE)
        return [pytest.param(None, marks=skip)]
    folders = [one for one in oracle_suite.FOLDERS if one.policy != "sheaves"]
    return [pytest.param(one, id=one.name) for one in folders]


@pytest.mark.parametrize("folder", recorded_scripts())
def test_a_recorded_script_gives_the_same_lines_on_both_machines(folder):
    values = {**oracle_suite.profile(folder.policy, folder.kernel), **folder.options}
    options = list(values.items())
    costs = list(sim_build.preset("opteron-4x4").items())
    scripts = [script for script, _ in oracle_suite.recordings(folder)]
    assert scripts
    for script in scripts:
        text = script.read_text()
        native = oracle_suite.machine(folder.topology)
        if folder.topology == "n4c16":
            nodes = [cpu // 4 for cpu in range(16)]
            sim = _core.SimMachine(nodes, nodes, FOUR_NODES, 256 << 20, 1, costs, 3)
        else:
            sim = _core.SimMachine([0, 0], [0, 0], [[10]], 1 << 30, 1, costs, 3)
        want = _core.execute(native, folder.policy, options, text, folder.original)
        assert _core.execute(sim, folder.policy, options, text, folder.original) == want
