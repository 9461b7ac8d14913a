"""`Trace.stat` against what `perf kmem --slab stat` printed of the same run."""

import gzip
import os
import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from slabq import _core
from slabq.errors import ParameterError
from slabq.trace import Stat, Trace, read_trace

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("SLABQ_SHARED", ROOT.parent / "shared")) / "traces"
RUNS = ("hackbench-socket-process", "gcc-compile")


def shared(name: str) -> Path:
    if not (SHARED / name).exists():
        pytest.skip(f"../shared/traces/{name} is not there")
    return SHARED / name


def perf_text(run: str) -> str:
    return shared(f"{run}.perf-kmem-stat.txt").read_text()


def stat_of(run: str, **options: object) -> Stat:
    trace = read_trace(shared(f"{run}.perf-script.txt.gz"))
    return trace.stat(**options)  # type: ignore[arg-type]


ROW = re.compile(
    r"^ (\S+) +\| +(\d+)/(\d+) +\| +(\d+)/(\d+) +\| +(\d+) \| +(\d+) \| +([\d.]+)%$"
)


def rows_of(text: str) -> dict[str, tuple[str, ...]]:
    found = [match.groups() for match in map(ROW.match, text.splitlines()) if match]
    rows = {row[0]: row[1:] for row in found}
    assert len(rows) == len(found), "a call site stands twice"
    return rows


@pytest.mark.parametrize("run", RUNS)
def test_every_number_of_every_call_site_is_perfs(run: str) -> None:
    expected = rows_of(perf_text(run))
    assert len(expected) > 50

    assert rows_of(stat_of(run).text()) == expected


@pytest.mark.parametrize("run", RUNS)
def test_header_rules_and_summary_are_perfs_to_the_letter(run: str) -> None:
    expected, text = perf_text(run).strip("\n"), stat_of(run).text().strip("\n")

    def frame(whole: str) -> list[str]:
        return [line for line in whole.splitlines() if not ROW.match(line)]

    assert frame(text) == frame(expected)
    assert len(frame(text)) >= 13


@pytest.mark.parametrize("run", RUNS)
def test_rows_stand_in_perfs_order_as_far_as_the_keys_decide(run: str) -> None:
    """Rows equal in all keys stand by address in perf, which the text has not."""

    def blocks(text: str) -> list[tuple[tuple[float, int, int], set[str]]]:
        grouped: list[tuple[tuple[float, int, int], set[str]]] = []
        for line in text.splitlines():
            match = ROW.match(line)
            if match is None:
                continue
            bytes_alloc, bytes_req, hit = (int(match[i]) for i in (2, 4, 6))
            key = (100 - 100 * bytes_req / bytes_alloc, hit, bytes_alloc)
            if not grouped or grouped[-1][0] != key:
                grouped.append((key, set()))
            grouped[-1][1].add(line)
        return grouped

    expected = blocks(perf_text(run))
    assert blocks(stat_of(run).text()) == expected
    keys = [key for key, _ in expected]
    assert keys == sorted(keys, reverse=True)


KEYS = ["", "hit", "bytes,hit", "pingpong", "frag", "callsite"]
SORTS = [*(("caller", key) for key in KEYS), *(("alloc", key) for key in KEYS)]


@pytest.mark.parametrize(("by", "sort"), [*SORTS, ("alloc", "ptr")])
def test_perf_itself_prints_the_same_lines_for_every_sort_key(
    by: str, sort: str
) -> None:
    """perf.data keeps addresses, so the order is decided to the last row."""
    path = shared("hackbench-socket-process.perf.data")
    perf = shutil.which("perf")
    if perf is None:
        pytest.skip("perf is not installed")
    command = [perf, "kmem", "-f", "-i", str(path), "--slab", f"--{by}", "--raw-ip"]
    command += ["-l", "700", *(["-s", sort] if sort else []), "stat"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    options = {"sort": sort} if sort else {}
    trace = read_trace(path)
    if not all(site.startswith("0x") for site in trace.call_sites):
        pytest.skip("perf resolves the recorded kernel's symbols on this host")

    stat = trace.stat(by, limit=700, **options)  # type: ignore[arg-type]

    assert stat.text().strip("\n").splitlines() == said.strip("\n").splitlines()


LINE = re.compile(
    r"\[(\d+)\].*kmem:(\w+): call_site=(\S+) ptr=(\S+)"
    r"(?:.*bytes_req=(\d+) bytes_alloc=(\d+))?"
)


@pytest.mark.parametrize("run", RUNS)
def test_figures_by_pointer_agree_with_a_plain_model(run: str) -> None:
    hits: dict[int, int] = defaultdict(int)
    allocated: dict[int, int] = defaultdict(int)
    pingpong: dict[int, int] = defaultdict(int)
    cpu_of: dict[int, int] = {}
    with gzip.open(shared(f"{run}.perf-script.txt.gz"), "rt") as file:
        for line in file:
            match = LINE.search(line)
            assert match is not None
            cpu, ptr = int(match[1]), 0 if match[4] == "(nil)" else int(match[4], 16)
            if match[5] is not None:
                hits[ptr] += 1
                allocated[ptr] += int(match[6])
                cpu_of[ptr] = cpu
            elif ptr in cpu_of:
                pingpong[ptr] += cpu_of[ptr] != cpu
                cpu_of[ptr] = -1

    rows = stat_of(run, by="alloc").rows

    assert dict(zip(rows["ptr"].tolist(), rows["hit"].tolist(), strict=True)) == hits
    for row in rows:
        assert row["bytes_alloc"] == allocated[int(row["ptr"])]
        assert row["pingpong"] == pingpong[int(row["ptr"])]


# -- made-up traces --


def parse(text: str) -> Trace:
    core = _core.Trace("sample")
    core.feed(text.encode())
    core.finish()
    return Trace(core)


def line(cpu: int, fields: str) -> str:
    return f"    t 1 [{cpu:03}] 1.0: kmem:{fields}\n"


def alloc(cpu: int, ptr: int, site: str = "f+0x1f", *, node: int = -1) -> str:
    sizes = "bytes_req=30 bytes_alloc=40"
    return line(cpu, f"kmalloc: call_site={site} ptr={ptr:#x} {sizes} node={node}")


def free(cpu: int, ptr: int) -> str:
    return line(cpu, f"kfree: call_site=g+0x2 ptr={ptr:#x}")


PINGPONG = {
    "same CPU": ([alloc(0, 1), free(0, 1)], 0),
    "another CPU": ([alloc(0, 1), free(1, 1)], 1),
    "a second free on any CPU": ([alloc(0, 1), free(0, 1), free(0, 1)], 1),
    "never allocated": ([alloc(0, 1), free(1, 2)], 0),
}


@pytest.mark.parametrize(("lines", "count"), PINGPONG.values(), ids=PINGPONG.keys())
def test_a_free_on_another_cpu_than_the_allocations_is_a_ping_pong(
    lines: list[str], count: int
) -> None:
    trace = parse("".join(lines))

    assert trace.stat("caller").rows["pingpong"].tolist() == [count]
    assert trace.stat("alloc").rows["pingpong"].tolist() == [count]


def test_cross_cpu_allocations_are_those_that_ask_for_another_node() -> None:
    text = alloc(0, 1) + alloc(0, 2, node=0) + alloc(1, 3, node=0) + alloc(1, 4, node=1)
    trace = parse(text)

    assert trace.stat().totals["cross_cpu_allocations"] == 1
    two_nodes = trace.stat(node_of_cpu=[0, 1])
    assert two_nodes.totals["cross_cpu_allocations"] == 1
    assert trace.stat(node_of_cpu=[1, 1]).totals["cross_cpu_allocations"] == 2
    assert two_nodes.text().endswith("Cross CPU allocations: 1/4\n")


SITES = {
    "f+0x1f": "f+1f",
    "f.part.0+0x1f/0x200": "f.part.0+1f",
    "f+0x1f/0x200 [veth]": "f+1f",
    "ffffffff8110f2d3": "0xffffffff8110f2d3",
    "0xffffffff8110f2d3": "0xffffffff8110f2d3",
    "s" * 600: "s" * 511,
}


@pytest.mark.parametrize(("site", "shown"), SITES.items(), ids=range(len(SITES)))
def test_a_call_site_is_shown_as_perf_shows_it(site: str, shown: str) -> None:
    assert f"\n {shown:<34} |" in parse(alloc(0, 1, site)).stat().table


def test_with_raw_ip_a_call_site_stands_as_the_trace_has_it() -> None:
    trace = parse(alloc(0, 1, "f+0x1f/0x200 [veth]"))

    assert "\n f+0x1f/0x200 [veth]                |" in trace.stat(raw_ip=True).table


@pytest.mark.parametrize(("limit", "rows", "dots"), [(0, 0, 1), (2, 2, 1), (3, 3, 0)])
def test_a_line_limit_leaves_a_row_of_dots(limit: int, rows: int, dots: int) -> None:
    trace = parse("".join(alloc(0, ptr) for ptr in (1, 2, 3)))

    lines = trace.stat("alloc", limit=limit).table.splitlines()

    assert sum(bool(ROW.match(text)) for text in lines) == rows
    assert sum(text.startswith(" ...  ") for text in lines) == dots
    assert len(trace.stat("alloc", limit=limit).rows) == 3


def test_call_sites_without_allocations_have_no_row() -> None:
    stat = parse(alloc(0, 1) + free(0, 1)).stat()

    assert len(stat.rows) == 1
    assert stat.frag.tolist() == [25.0]


def test_an_allocation_of_nothing_has_no_fragmentation() -> None:
    zero = line(0, "kmalloc: call_site=f ptr=0x10 bytes_req=0 bytes_alloc=0")

    stat = parse(zero).stat()

    assert stat.frag.tolist() == [0.0]
    assert "Internal fragmentation: 0.000000%" in stat.text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sort": "size"}, "sort key 'size'"),
        ({"sort": "hit,,bytes"}, "sort key ''"),
        ({"sort": ",".join(["hit"] * 17)}, "more than 16 sort keys"),
        ({"by": "page"}, "by is 'page'"),
        ({"limit": -1}, "limit is -1"),
        ({"node_of_cpu": [0, -1]}, r"node_of_cpu\[1\] is -1"),
    ],
)
def test_an_option_that_is_not_accepted_is_named(
    options: dict[str, object], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        parse(alloc(0, 1)).stat(**options)  # type: ignore[arg-type]
