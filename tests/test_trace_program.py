"""The replay program: which free belongs to which allocation, on which CPU."""

import gzip
import json
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_text import (
    GOOD,
    alloc,
    free,
    parse,
    perf,
    shared,
)

from slabq import dtypes
from slabq.errors import ParameterError, TraceFormatError
from slabq.trace import (
    KINDS,
    Trace,
    bundled_alias_path,
    bundled_trace_path,
    read_aliases,
    read_trace,
)

# -- the replay program --

COUNTS = ("allocations", "matched_frees", "unmatched_frees", "nil_frees", "reused")


def model_counts(events: Iterable[tuple[bool, int]]) -> dict[str, int]:
    """What a replay does with (is it an allocation, pointer) pairs, by a plain dict."""
    live: set[int] = set()
    counts = dict.fromkeys((*COUNTS, "failed_allocations"), 0)
    for is_alloc, ptr in events:
        if is_alloc and ptr == 0:
            counts["failed_allocations"] += 1
        elif is_alloc:
            counts["allocations"] += 1
            counts["reused"] += ptr in live
            live.add(ptr)
        elif ptr == 0:
            counts["nil_frees"] += 1
        elif ptr in live:
            counts["matched_frees"] += 1
            live.remove(ptr)
        else:
            counts["unmatched_frees"] += 1
    return {**counts, "live": len(live)}


def program(
    trace: Trace, cpus: int
) -> tuple[dict[str, object], list["np.ndarray[tuple[int], np.dtype[np.void]]"]]:
    text, lists = trace._core.program(cpus)
    return json.loads(text), [np.frombuffer(x, dtypes.PROGRAM_EVENT) for x in lists]


def check_lists(trace: Trace, cpus: int) -> None:
    """Every object is allocated once, freed at most once, and never before."""
    counts, lists = program(trace, cpus)
    assert counts == {**counts, **model_counts(pairs(trace)), "lost": 0}
    assert len(lists) == cpus
    waiting = [list(map(tuple, events.tolist())) for events in lists]
    live: set[int] = set()
    allocated = 0
    while any(waiting):  # as a replay does: each CPU in its own order, or it waits
        moved = False
        for events in waiting:
            while events:
                number, code = events[0]
                if code & 3 == 0:
                    live.add(number)
                    allocated += 1
                elif number in live:
                    live.remove(number)
                else:
                    break
                del events[0]
                moved = True
        assert moved, "the replay would wait for ever"
    assert allocated == counts["allocations"] == counts["objects"]
    assert len(live) == counts["live"]


def pairs(trace: Trace) -> list[tuple[bool, int]]:
    return [(bool(e["kind"] < 4), int(e["ptr"])) for e in trace.events]


CASES = {
    "alloc and free": ([alloc(1), free(1)], (1, 1, 0, 0, 0, 0)),
    "never freed": ([alloc(1), alloc(2)], (2, 0, 0, 0, 0, 2)),
    "never allocated": ([free(1), alloc(2)], (1, 0, 1, 0, 0, 1)),
    "freed twice": ([alloc(1), free(1), free(1)], (1, 1, 1, 0, 0, 0)),
    "nil": ([free(0), alloc(1)], (1, 0, 0, 1, 0, 1)),
    "bulk free not traced": ([alloc(1), alloc(1), free(1)], (2, 1, 0, 0, 1, 0)),
    "traced after the free": (
        [alloc(1), alloc(1, cpu=1), free(1), free(1, cpu=1)],
        (2, 1, 1, 0, 1, 0),
    ),
}


@pytest.mark.parametrize(("lines", "expected"), CASES.values(), ids=CASES.keys())
def test_allocations_and_frees_are_paired_by_the_rules(
    lines: list[str], expected: tuple[int, ...]
) -> None:
    counts, _ = program(parse("".join(lines)), 2)

    assert tuple(counts[name] for name in (*COUNTS, "live")) == expected


EVENTS = st.lists(
    st.tuples(st.booleans(), st.integers(0, 6), st.integers(0, 4)),
    min_size=1,
    max_size=80,
)


@given(EVENTS, st.integers(1, 6))
def test_the_program_agrees_with_a_plain_model(
    events: list[tuple[bool, int, int]], cpus: int
) -> None:
    text = "".join(
        alloc(ptr, cpu=cpu) if is_alloc else free(ptr, cpu=cpu)
        for is_alloc, ptr, cpu in events
    )

    check_lists(parse(text), cpus)


def test_a_reused_object_is_freed_by_the_cpu_of_the_new_allocation() -> None:
    _, lists = program(parse(alloc(1, cpu=0) + alloc(1, cpu=1)), 2)

    assert [(int(o), int(c) & 3) for o, c in lists[0].tolist()] == [(0, 0)]
    assert [(int(o), int(c) & 3) for o, c in lists[1].tolist()] == [(0, 2), (1, 0)]


def test_targets_are_named_caches_sizes_of_unnamed_ones_and_kmalloc_sizes() -> None:
    old = (
        perf("kmem_cache_alloc: call_site=1 ptr=0x9 bytes_req=90 bytes_alloc=96")
        + perf("kmem_cache_alloc: call_site=1 ptr=0xa bytes_req=91 bytes_alloc=96")
        + perf("kmem_cache_free: call_site=1 ptr=0xa")
    )
    text = (
        alloc(1, 100, name="filp")
        + alloc(2, 120, name="filp")
        + alloc(3, 100)
        + alloc(4, 200)
        + alloc(5, 100)
        + old
    )

    counts, lists = program(parse(text), 1)

    rows = [tuple(target.values()) for target in counts["targets"]]  # type: ignore[attr-defined]
    assert rows == [
        ("cache", "filp", 120, 120, 2),
        ("kmalloc", None, 100, 100, 2),
        ("kmalloc", None, 200, 200, 1),
        ("cache-by-size", None, 91, 96, 2),
    ]
    assert (lists[0]["code"] >> 12).tolist() == [0, 0, 1, 2, 1, 3, 3, 3]


def test_a_requested_node_is_kept_and_none_stays_none() -> None:
    text = perf(
        "kmalloc: call_site=f ptr=0x1 bytes_req=8 bytes_alloc=8 node=3"
    ) + alloc(2)

    _, lists = program(parse(text), 1)

    assert (lists[0]["code"] >> 2 & 1023).tolist() == [3, 1023]


def test_cpus_keep_their_number_where_they_fit_and_are_folded_where_not() -> None:
    trace = parse("".join(alloc(cpu + 1, cpu=cpu) for cpu in range(5)))

    same, lists = program(trace, 8)
    folded, folded_lists = program(trace, 2)

    assert (same["cpus_folded"], folded["cpus_folded"]) == (False, True)
    assert same["trace_cpus"] == folded["trace_cpus"] == 5
    assert [len(events) for events in lists] == [1, 1, 1, 1, 1, 0, 0, 0]
    assert [events["object"].tolist() for events in folded_lists] == [[0, 2, 4], [1, 3]]


@pytest.mark.parametrize("cpus", [0, 65537])
def test_a_number_of_cpus_that_cannot_be_is_refused(cpus: int) -> None:
    with pytest.raises(ParameterError, match=f"cpu_count is {cpus}"):
        parse(GOOD)._core.program(cpus)


# -- real traces, counted a second time by a regular expression --

EVENT = re.compile(
    r"\[(?P<cpu>\d+)\].*?\d+\.\d+: +(?:kmem:)?"
    r"(?P<kind>kmalloc|kfree|kmem_cache_alloc|kmem_cache_free): .*?"
    r"ptr=(?P<ptr>\S+)"
)
REAL = (
    "hackbench-socket-process.perf-script.txt.gz",
    "gcc-compile.perf-script.txt.gz",
    "hackbench-pipe.ftrace.txt.gz",
)


@pytest.mark.parametrize("name", REAL)
def test_real_traces_have_the_counts_a_regular_expression_finds(name: str) -> None:
    path = shared(name)
    with gzip.open(path, "rt") as file:
        lines = file.read().splitlines()
    found = [match for match in map(EVENT.search, lines) if match]
    ptrs = [0 if m["ptr"] == "(nil)" else int(m["ptr"], 16) for m in found]
    kinds = [m["kind"] for m in found]
    expected = model_counts(("alloc" in k, p) for k, p in zip(kinds, ptrs, strict=True))

    trace = read_trace(path)
    counts, lists = program(trace, 2)

    assert trace.events["ptr"].tolist() == ptrs
    assert trace.events["cpu"].tolist() == [int(m["cpu"]) for m in found]
    assert [KINDS[kind] for kind in trace.events["kind"]] == kinds
    assert trace.summary["lines"] == len(lines)
    assert trace.summary["nil_frees"] == expected["nil_frees"]
    assert {key: counts[key] for key in expected} == expected
    freed = expected["matched_frees"] + expected["reused"]
    assert sum(map(len, lists)) == expected["allocations"] + freed


def test_the_bundled_trace_replays_without_waiting_for_ever() -> None:
    check_lists(read_trace(bundled_trace_path()), 2)


def test_the_bundled_aliases_name_every_cache_the_trace_prints_for_another() -> None:
    trace = read_trace(bundled_trace_path(), aliases=bundled_alias_path())

    assert trace.aliases == read_aliases(bundled_alias_path())
    assert trace.aliases_of("pool_workqueue") == (
        "mem_cgroup_per_node",
        "sgpool-16",
        "skbuff_fclone_cache",
    )
    assert trace.aliases_of("no such cache") == ()


def test_an_alias_file_with_a_broken_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "aliases.tsv"
    path.write_text("alias\tcache\nonly one column\n")

    with pytest.raises(TraceFormatError, match=r"aliases.tsv:2: 1 columns"):
        read_aliases(path)
