"""Replay: the events of a kernel's CPUs on threads, in each CPU's own order."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import slabq
from slabq import _core
from slabq.errors import OutOfMemory
from slabq.machine import Machine
from slabq.trace import Trace, bundled_trace_path, read_trace

pytestmark = pytest.mark.threads

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("SLABQ_SHARED", ROOT.parent / "shared")) / "traces"
POLICIES = _core.policies()


def trace_of(lines: Sequence[str]) -> Trace:
    core = _core.Trace("sample")
    core.feed("".join(lines).encode())
    core.finish(False)
    return Trace(core)


def event(cpu: int, text: str) -> str:
    return f"{'t':>16} {7:7} [{cpu:03}] 1.000001: kmem:{text}\n"


def kmalloc(cpu: int, ptr: int, size: int = 100, node: int = -1) -> str:
    return event(
        cpu,
        f"kmalloc: call_site=f+0x1 ptr={ptr:#x} bytes_req={size} bytes_alloc={size} "
        f"gfp_flags=GFP_KERNEL node={node} accounted=false",
    )


def kfree(cpu: int, ptr: int) -> str:
    return event(cpu, f"kfree: call_site=f+0x1 ptr={ptr:#x}")


def cache_alloc(cpu: int, ptr: int, name: str, size: int, slot: int) -> str:
    return event(
        cpu,
        f"kmem_cache_alloc: call_site=f+0x1 ptr={ptr:#x} name={name} bytes_req={size} "
        f"bytes_alloc={slot} gfp_flags=GFP_KERNEL node=-1 accounted=false",
    )


def cache_free(cpu: int, ptr: int, name: str) -> str:
    return event(cpu, f"kmem_cache_free: call_site=f+0x1 ptr={ptr:#x} name={name}")


def replay(
    trace: Trace, policy: str = POLICIES[0], cpus: int = 2, **options: Any
) -> dict[str, Any]:
    machine = Machine(cpus=cpus, **options).core(1)
    before = json.loads(machine.describe())["bytes_in_use"]
    row: dict[str, Any] = json.loads(
        _core.replay(machine, policy, [], trace._core, 1, None)
    )
    assert json.loads(machine.describe())["bytes_in_use"] == before
    return row


def counted(row: dict[str, Any]) -> tuple[int, int, int]:
    return row["allocations"], row["frees"], row["live"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("cpus", [1, 2, 5])
def test_the_bundled_trace_balances_under_every_policy(policy, cpus):
    row = replay(read_trace(bundled_trace_path()), policy, cpus)
    counts = row["trace"]

    assert counts["allocations"] == (
        counts["matched_frees"] + counts["reused"] + counts["live"]
    )
    assert counted(row) == (
        counts["allocations"],
        counts["matched_frees"] + counts["reused"],
        counts["live"],
    )
    assert row["operations"] == row["allocations"] + row["frees"]
    assert (row["workload"], row["policy"]) == ("replay", policy)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "name", ["gcc-compile.perf-script.txt.gz", "hackbench-pipe.ftrace.txt.gz"]
)
def test_recorded_traces_leave_live_what_they_left_live(policy, name):
    if not (SHARED / name).exists():
        pytest.skip(f"../shared/traces/{name} is not there")
    row = replay(read_trace(SHARED / name), policy, 4)

    assert row["live"] == row["trace"]["live"]
    assert row["allocations"] == row["trace"]["allocations"]


def test_a_free_on_another_cpu_waits_for_its_allocation():
    # CPU 0 has only allocations and CPU 1 only frees, which find nothing at first.
    pointers = range(0x1000, 0x1000 + 500 * 16, 16)
    lines = [line for p in pointers for line in (kmalloc(0, p), kfree(1, p))]

    assert counted(replay(trace_of(lines))) == (500, 500, 0)


def test_a_chain_of_waits_between_many_cpus_ends():
    # Each object is freed by the next CPU, right before that one allocates its own.
    lines = [kmalloc(0, 0x1000)]
    for turn in range(1, 3000):
        lines.append(kfree(turn % 8, 0x1000 + (turn - 1) % 7 * 64))
        lines.append(kmalloc(turn % 8, 0x1000 + turn % 7 * 64))

    for cpus in (1, 3, 8):
        assert counted(replay(trace_of(lines), cpus=cpus)) == (3000, 2999, 1)


def test_an_address_that_is_given_out_again_is_freed_first():
    row = replay(trace_of([kmalloc(0, 0x1000), kmalloc(1, 0x1000), kfree(0, 0x1000)]))

    assert row["trace"]["reused"] == 1
    assert counted(row) == (2, 2, 0)


def test_named_caches_are_made_with_the_sizes_of_the_trace():
    lines = [
        cache_alloc(0, 0x1000 + i * 4096, "skbuff_head_cache", 232, 256)
        for i in range(8)
    ]
    lines += [cache_free(0, 0x1000, "skbuff_head_cache")]
    row = replay(trace_of(lines))

    assert counted(row) == (8, 1, 7)
    # Slots of 256 bytes for 232: only the alignment to lines gives those.
    memory = row["memory"]
    assert memory["bytes"] * (1 - memory["external_fragmentation"]) == 7 * 256


@pytest.mark.parametrize(("node", "remote"), [(-1, 0), (0, 0), (1, 196), (3, 196)])
def test_a_requested_node_is_honoured_modulo_the_nodes_there_are(node, remote):
    # SLAB counts the objects it takes from slabs of another node than the CPU's own,
    # but not the first of a new slab: 200 objects of 64 bytes lie on 4 slabs.
    lines = [kmalloc(0, 0x10000 + i * 0x100, 64, node) for i in range(200)]

    row = replay(trace_of(lines), "slab", cpus=2, nodes=2)

    assert row["counters"]["node_allocs"] == remote


def test_a_trace_that_needs_more_than_the_machine_has_ends_with_the_reason():
    lines = [kmalloc(0, 0x10000 + i * 0x10000, 8192, 1) for i in range(1100)]

    with pytest.raises(OutOfMemory, match="node 1 was asked, by CPU 0"):
        replay(trace_of(lines), cpus=2, nodes=2, node_bytes=4 << 20)


def test_blocks_of_whole_pages_that_stay_live_are_given_back():
    # replay() looks at the machine's pages before and after.
    lines = [kmalloc(0, (i + 1) << 24, 1 << 20) for i in range(20)]

    assert counted(replay(trace_of(lines))) == (20, 0, 20)


def test_a_trace_without_an_allocation_is_replayed_too():
    row = replay(trace_of([kfree(0, 0x1000), kfree(0, 0)]))

    assert counted(row) == (0, 0, 0)
    assert row["trace"]["unmatched_frees"] == 1


def test_the_table_of_a_replay_accounts_for_every_event_of_the_trace(tmp_path):
    trace = tmp_path / "small.txt"
    lines = [kmalloc(0, 0x1000, 64), kmalloc(0, 0x2000, 64), kmalloc(0, 0x1000, 64)]
    lines += [kfree(0, 0x2000), kfree(0, 0x9000), kfree(0, 0)]
    trace.write_text("".join(lines))

    text = " ".join(str(slabq.sweep(trace, policy="slub").table()).split())

    assert "3 allocations: 1 freed in it, 1 live at its end, 1 freed without" in text
    assert "left out: 1 frees of what was allocated before it began" in text
