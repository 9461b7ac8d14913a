"""Reading kmem traces: all eras and text forms, what is counted, what is refused."""

import gzip
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slabq import _core, dtypes
from slabq.errors import Error, ParameterError, TraceFormatError
from slabq.trace import (
    ACCOUNTED,
    HASHED,
    KINDS,
    Trace,
    bundled_alias_path,
    bundled_trace_path,
    read_aliases,
    read_trace,
)

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("SLABQ_SHARED", ROOT.parent / "shared")) / "traces"


def shared(name: str) -> Path:
    if not (SHARED / name).exists():
        pytest.skip(f"../shared/traces/{name} is not there")
    return SHARED / name


def parse(text: str | bytes, *, allow_truncated: bool = False, block: int = 0) -> Trace:
    data = text.encode() if isinstance(text, str) else text
    core = _core.Trace("sample")
    step = block or max(len(data), 1)
    for at in range(0, len(data), step):
        core.feed(data[at : at + step])
    core.finish(allow_truncated)
    return Trace(core)


def perf(fields: str, *, time: str = "1.000001", cpu: int = 0, comm: str = "t") -> str:
    return f"{comm:>16} {7:7} [{cpu:03}] {time:>12}: kmem:{fields}\n"


def alloc(ptr: int, size: int = 32, *, cpu: int = 0, name: str = "") -> str:
    if name:
        head = f"kmem_cache_alloc: call_site=f+0x1 ptr={ptr:#x} name={name}"
    else:
        head = f"kmalloc: call_site=g+0x2 ptr={ptr:#x}"
    tail = f" bytes_req={size} bytes_alloc={size} gfp_flags=GFP_KERNEL node=-1"
    return perf(head + tail, cpu=cpu)


def free(ptr: int, *, cpu: int = 0) -> str:
    return perf(f"kfree: call_site=h+0x3 ptr={ptr:#x}", cpu=cpu)


# -- eras and forms --


@dataclass(frozen=True)
class Form:
    line: str
    expected: dict[str, object]
    texts: dict[str, str] = field(default_factory=dict)


MS = 1_000_000
FORMS = {
    "2.6.31 ftrace kmalloc": Form(
        "            bash-1234  [003]  1234.567890: kmalloc: "
        "call_site=ffffffff8110f2d3 ptr=ffff88003d8a1c00 bytes_req=100 "
        "bytes_alloc=128 gfp_flags=GFP_KERNEL\n",
        {
            "kind": "kmalloc",
            "cpu": 3,
            "time_ns": 1234_567890_000,
            "ptr": 0xFFFF88003D8A1C00,
            "bytes_req": 100,
            "bytes_alloc": 128,
            "node": -1,
        },
        {"call_site": "ffffffff8110f2d3", "gfp": "GFP_KERNEL", "task": "bash-1234"},
    ),
    "2.6.35 perf trace with node": Form(
        "            perf-99    [001]     5.000007: kmem_cache_alloc_node: "
        "call_site=c04b1234 ptr=f6a01000 bytes_req=200 bytes_alloc=256 "
        "gfp_flags=GFP_ATOMIC|GFP_ZERO node=1\n",
        {"kind": "kmem_cache_alloc_node", "node": 1, "ptr": 0xF6A01000, "flags": 0},
        {"gfp": "GFP_ATOMIC|GFP_ZERO", "task": "perf-99", "call_site": "c04b1234"},
    ),
    "2.6.35 kmalloc_node without a node asked for": Form(
        "            perf-99    [001]     5.000007: kmalloc_node: call_site=c04b1234 "
        "ptr=f6a01000 bytes_req=200 bytes_alloc=256 gfp_flags=GFP_ATOMIC node=-1\n",
        {"kind": "kmalloc_node", "node": -1},
    ),
    "4.19 ftrace with four flags": Form(
        "     kworker/0:1-21    [000] d.h2    77.123456: kfree: "
        "call_site=ffffffffa03b2f11 ptr=ffff9a8f1c2d3e00\n",
        {"kind": "kfree", "cpu": 0, "ptr": 0xFFFF9A8F1C2D3E00, "bytes_req": 0},
        {"task": "kworker/0:1-21"},
    ),
    "5.15 free with a name and a module's call site": Form(
        "          <idle>-0       [002] ..s1   100.000001: kmem_cache_free: "
        "call_site=kfree_skbmem+0x8d/0xa0 [veth] ptr=00000000d01d5e71 "
        "name=skbuff_head_cache\n",
        {"kind": "kmem_cache_free", "ptr": 0xD01D5E71, "flags": HASHED, "cpu": 2},
        {
            "call_site": "kfree_skbmem+0x8d/0xa0 [veth]",
            "cache": "skbuff_head_cache",
            "task": "<idle>-0",
        },
    ),
    "6.1 perf script": Form(
        "            perf 15852 [000]   581.337297:          kmem:kmalloc: "
        "call_site=sched_setaffinity+0x10c ptr=0xffff8881044406c0 bytes_req=32 "
        "bytes_alloc=32 gfp_flags=GFP_KERNEL node=-1 accounted=true\n",
        {"kind": "kmalloc", "time_ns": 581_337297_000, "flags": ACCOUNTED},
        {"task": "perf-15852", "call_site": "sched_setaffinity+0x10c"},
    ),
    "6.18 ftrace with tgid and name": Form(
        "            bash-27279   (  27279) [001] .n...   628.552363: "
        "kmem_cache_alloc: call_site=alloc_empty_file+0x3c/0x110 "
        "ptr=ffff888012345678 name=filp "
        "bytes_req=184 bytes_alloc=192 gfp_flags=GFP_KERNEL node=0 accounted=false\n",
        {"kind": "kmem_cache_alloc", "bytes_req": 184, "node": 0, "flags": 0},
        {"cache": "filp", "task": "bash-27279"},
    ),
    "trace-cmd report": Form(
        "        sshd-4711    [005]   42.000000123: kmalloc:              "
        "call_site=__alloc_skb+0x147 ptr=0xffff888012345600 bytes_req=704 "
        "bytes_alloc=1024 gfp_flags=GFP_ATOMIC node=-1 accounted=false\n",
        {"kind": "kmalloc", "time_ns": 42_000000123, "cpu": 5},
        {"task": "sshd-4711"},
    ),
    "a clock that counts no time": Form(
        "            bash-1     [000] .....        987654321: kfree: "
        "call_site=f+0x1/0x2 ptr=ffff888012345678\n",
        {"time_ns": 987654321},
    ),
    "perf with pid and tid": Form(
        "            perf    12/13    [000]     1.5: kmem:kfree: call_site=f+0x1 "
        "ptr=0xffff888012345678\n",
        {"time_ns": 1500 * MS},
        {"task": "perf-13"},
    ),
    "a command with spaces, brackets and an event's name": Form(
        " 1 [0] 1: kfree:     9 [004]     2.000000: kmem:kfree: call_site=f+0x1 "
        "ptr=0x10\n",
        {"cpu": 4, "time_ns": 2000 * MS, "ptr": 0x10},
        {"task": "1 [0] 1: kfree:-9"},
    ),
    "a task without a name": Form(
        "                 123 [004]     2.0: kmem:kfree: call_site=f+0x1 ptr=0x10\n",
        {"cpu": 4, "time_ns": 2000 * MS, "ptr": 0x10},
        {"task": "-123"},
    ),
    "no task at all": Form(
        "[004]     2.0: kmem:kfree: call_site=f+0x1 ptr=0x10\n",
        {"cpu": 4, "time_ns": 2000 * MS, "ptr": 0x10, "task": 65535},
    ),
    "the name field behind all others": Form(
        perf(
            "kmem_cache_alloc: bytes_alloc=64 bytes_req=60 node=3 ptr=0x40 "
            "call_site=f+0x1 new_field=7 name=TCP (old v2)"
        ),
        {"bytes_req": 60, "bytes_alloc": 64, "node": 3, "ptr": 0x40},
        {"cache": "TCP (old v2)", "call_site": "f+0x1"},
    ),
    "a nil pointer of perf": Form(
        perf("kfree: call_site=f+0x1 ptr=(nil)"), {"ptr": 0}, {"task": "t-7"}
    ),
    "a nil pointer of an old kernel": Form(
        perf("kfree: call_site=f+0x1 ptr=(null)"), {"ptr": 0}
    ),
    "a line that ends as under DOS": Form(
        perf("kfree: call_site=f+0x1 ptr=0xffff888000000040")[:-1] + "\r\n",
        {"ptr": 0xFFFF888000000040},
    ),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_every_era_and_form_of_an_event_line_is_read_by_field(form: Form) -> None:
    trace = parse(form.line)

    event = trace.events[0]
    tables = {
        "call_site": trace.call_sites,
        "cache": trace.caches,
        "gfp": trace.gfp_flags,
        "task": trace.tasks,
    }
    got = {
        key: KINDS[event["kind"]] if key == "kind" else event[key]
        for key in form.expected
    }
    assert got == form.expected
    assert {key: tables[key][event[key]] for key in form.texts} == form.texts


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_blocks_of_any_size_read_the_same(form: Form) -> None:
    text = form.line * 3
    whole = parse(text).events

    for block in (1, 2, 7, len(form.line), len(form.line) + 1):
        assert (parse(text, block=block).events == whole).all()


@pytest.mark.parametrize("kind", [bytearray, memoryview, lambda x: memoryview(x * 2)])
def test_any_buffer_can_be_fed(kind: Callable[[bytes], bytearray | memoryview]) -> None:
    core = _core.Trace("sample")
    block = kind((alloc(0x1000) + free(0x1000)).encode() * 30_000)

    core.feed(block)
    core.finish()

    assert len(core) == len(block) // len(alloc(0x1000) + free(0x1000)) * 2


def test_lines_of_other_events_headers_and_frames_are_counted_and_skipped() -> None:
    text = (
        "# tracer: nop\n#\n# entries-in-buffer/entries-written: 2/2   #P:4\n\n"
        + alloc(0x1000)
        + "\tffffffff81a84e8b __kmalloc+0x1b ([kernel.kallsyms])\n"
        + "\n"
        + "            perf     1 [000]   1.0: sched:sched_switch: prev_comm=kfree: x\n"
        + "            perf     1 [000]     1.0: kmem:mm_page_alloc: page=0x1 order=0\n"
        + "            perf     1 [000]     1.0: bprint: driver: kmalloc: failed\n"
        + "cpus=4\n"
        + free(0x1000)
    )

    summary = parse(text).summary

    assert summary["events"] == 2
    assert summary["lines"] == text.count("\n")
    assert summary["other_lines"] == text.count("\n") - 2
    assert summary["lost"] == 0


LOST = {
    "ftrace": ("CPU:2 [LOST 345 EVENTS]\n", 345, 1),
    "ftrace without a number": ("CPU:2 [LOST EVENTS]\n", 1, 1),
    "trace-cmd": ("CPU:0 [17 EVENTS DROPPED]\n", 17, 1),
    "perf": (
        "       perf-exec  3181 [001]   759.638370: PERF_RECORD_LOST lost 39561\n",
        39561,
        1,
    ),
    "perf samples": (
        "   t  3181 [001]   759.638370: PERF_RECORD_LOST_SAMPLES lost 5\n",
        5,
        1,
    ),
    "ftrace overwrote": ("# entries-in-buffer/entries-written: 30/100   #P:2\n", 70, 1),
    "two of them": ("CPU:2 [LOST 3 EVENTS]\nCPU:1 [LOST 4 EVENTS]\n", 7, 2),
    "a task named so": ("  LOST 9 [001]  7.6: x:y: LOST 345 EVENTS\n", 0, 0),
    "none": ("# entries-in-buffer/entries-written: 30/30   #P:2\n", 0, 0),
}


@pytest.mark.parametrize(("line", "lost", "records"), LOST.values(), ids=LOST.keys())
def test_lost_events_are_counted(line: str, lost: int, records: int) -> None:
    summary = parse(alloc(0x1000) + line + free(0x1000)).summary

    assert (summary["lost"], summary["lost_records"]) == (lost, records)
    assert summary["other_lines"] == line.count("\n")


def test_hashed_hidden_nil_and_failed_pointers_are_counted() -> None:
    text = (
        perf("kfree: call_site=f+0x1 ptr=00000000d01d5e71")
        + perf("kfree: call_site=f+0x1 ptr=(____ptrval____)")
        + perf("kfree: call_site=f+0x1 ptr=0000000000000000")
        + perf("kmalloc: call_site=f+0x1 ptr=(nil) bytes_req=9 bytes_alloc=16")
        + perf("kfree: call_site=f+0x1 ptr=0xd01d5e71")
    )

    summary = parse(text).summary

    assert summary["events"] == 4
    assert summary["hashed_pointers"] == 1
    assert summary["hidden_pointers"] == 1
    assert summary["nil_frees"] == 1
    assert summary["failed_allocations"] == 1


def test_time_that_goes_backwards_is_counted_and_the_order_kept() -> None:
    times = ["5.0", "4.0", "4.5", "4.4", "9.0"]
    text = "".join(
        perf(f"kfree: call_site=f+0x1 ptr={i:#x}", time=t) for i, t in enumerate(times)
    )

    trace = parse(text)

    assert trace.summary["time_backwards"] == 2
    assert trace.events["ptr"].tolist() == [0, 1, 2, 3, 4]


def test_sizes_beyond_32_bits_are_clamped_and_counted() -> None:
    trace = parse(
        perf("kmalloc: call_site=f+0x1 ptr=0x10 bytes_req=4294967296 bytes_alloc=7")
    )

    assert trace.events["bytes_req"][0] == 2**32 - 1
    assert trace.summary["clamped_sizes"] == 1


def test_more_tasks_than_an_event_can_name_stay_unnamed_and_counted() -> None:
    lines = (
        f" t {tid} [000] 1.0: kmem:kfree: call_site=f+0x1 ptr=0x10\n"
        for tid in range(65540)
    )

    trace = parse("".join(lines))

    assert trace.summary["unnamed"] == 5
    assert trace.events["task"][-6:].tolist() == [65534] + [65535] * 5


# -- what is refused --

GOOD = alloc(0xFFFF888000001000, 100, name="filp") + free(0xFFFF888000001000)
REFUSED = {
    "empty": ("", "sample is empty"),
    "no event": ("hello\nworld\n", "no kmem event in 2 lines"),
    "other events only": (
        "   t 1 [000] 1.0: sched:sched_switch: prev=1\n",
        "no kmem event in 1 lines",
    ),
    "cut in a line": (GOOD + GOOD[:50], "sample:3: the last line is cut off"),
    "cut before the line feed": (GOOD[:-1], "sample:2: the last line is cut off"),
    "cut in the only line": (GOOD[:30], "sample:1: the last line is cut off"),
    "binary line": (GOOD + "\0\0\0\n", "sample:3: a line that is not text"),
    "binary end": (GOOD + "\0\0\0", "sample:3: a line that is not text"),
    "no pointer": (
        GOOD + perf("kfree: call_site=f+0x1"),
        "sample:3: a kmem event without ptr=: 't       7 [000]",
    ),
    "no size": (
        perf("kmalloc: call_site=f+0x1 ptr=0x10 bytes_alloc=8"),
        "sample:1: a kmem event without bytes_req=",
    ),
    "no size of the cache": (
        perf("kmalloc: call_site=f+0x1 ptr=0x10 bytes_req=8"),
        "without bytes_alloc=",
    ),
    "no call site": (perf("kfree: ptr=0x10"), "without call_site="),
    "a pointer that is none": (
        perf("kfree: call_site=f+0x1 ptr=0xwhat"),
        "whose ptr= is no pointer",
    ),
    "a pointer of 17 digits": (
        perf("kfree: call_site=f+0x1 ptr=0x11112222333344445"),
        "whose ptr= is no pointer",
    ),
    "a size that is none": (
        perf("kmalloc: call_site=f+0x1 ptr=0x10 bytes_req=-8 bytes_alloc=8"),
        "whose bytes_req= is no number",
    ),
    "a node that is none": (
        perf("kmalloc: call_site=f+1 ptr=0x10 bytes_req=8 bytes_alloc=8 node=-2"),
        "whose node= is no node",
    ),
    "no CPU": (
        " perf 1   1.0: kmem:kfree: call_site=f+0x1 ptr=0x10\n",
        "without `TASK [CPU] TIME:` in front",
    ),
    "a CPU beyond all": (
        " perf 1 [70000]  1.0: kmem:kfree: call_site=f+0x1 ptr=0x10\n",
        "without `TASK [CPU] TIME:` in front",
    ),
    "a line without an end": ("x" * 1_100_000, "a line of more than"),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_no_whole_trace_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(TraceFormatError) as caught:
        parse(text)

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_cut_last_line_can_be_left_out_and_is_counted() -> None:
    trace = parse(GOOD + GOOD[:50], allow_truncated=True)

    assert len(trace) == 2
    assert trace.summary["truncated_lines"] == 1


def test_a_text_cut_at_any_byte_is_refused_or_read_up_to_there() -> None:
    text = GOOD * 3
    ends = [at + 1 for at, char in enumerate(text) if char == "\n"]

    for size in range(len(text)):
        if size in ends:
            assert len(parse(text[:size])) == ends.index(size) + 1
        else:
            with pytest.raises(TraceFormatError, match=r"empty|cut off"):
                parse(text[:size])


@given(st.binary(max_size=400), st.integers(1, 50))
def test_random_bytes_never_crash_the_reader(data: bytes, block: int) -> None:
    with pytest.raises(TraceFormatError):
        parse(data, block=block)


PIECES = st.lists(
    st.sampled_from(
        [
            *(form.line for form in FORMS.values()),
            "kmem:kmalloc: ",
            "[000] ",
            "1.5: ",
            "kfree: ",
            "ptr=",
            "call_site=",
            "name=",
            "=",
            ":",
            " ",
            "(nil)",
            "9" * 30,
            "\n",
            "t-1 ",
            ")",
            "(",
            "]",
            ": call_site=",
            "CPU:",
            "PERF_RECORD_LOST",
            "#entries-in-buffer/entries-written:",
        ]
    ),
    max_size=12,
)


@settings(max_examples=400)
@given(PIECES, st.integers(0, 300), st.integers(0, 255))
def test_pieces_of_lines_in_any_order_are_read_or_refused(
    pieces: list[str], at: int, byte: int
) -> None:
    data = bytearray("".join(pieces).encode() + b"\n")
    data[at % len(data)] = byte

    try:
        trace = parse(bytes(data), allow_truncated=True)
    except TraceFormatError:
        return
    assert len(trace) == sum(trace.summary["kinds"].values()) > 0
    assert len(trace) + trace.summary["other_lines"] <= trace.summary["lines"]
    assert parse(bytes(data), allow_truncated=True, block=3).summary == trace.summary


# -- files --

WRITERS: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda data: data,
    "gzip": gzip.compress,
    "xz": lzma.compress,
}


@pytest.mark.parametrize("pack", WRITERS.values(), ids=WRITERS.keys())
@pytest.mark.parametrize("compact", [False, True], ids=["text", "compact"])
def test_a_file_is_known_by_its_content(
    tmp_path: Path, pack: Callable[[bytes], bytes], compact: bool
) -> None:
    path = tmp_path / "trace.misleading.jpg"
    data = parse(GOOD)._core.encode() if compact else GOOD.encode()
    path.write_bytes(pack(data))

    trace = read_trace(path)

    assert trace.events["ptr"].tolist() == [0xFFFF888000001000] * 2
    assert trace.caches == ("filp",)


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress], ids=["gzip", "xz"])
def test_compressed_data_that_is_cut_or_damaged_is_told(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "trace"
    whole = pack((GOOD * 200).encode())

    for size in (len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(TraceFormatError, match=r"trace.* (cut off|damaged)"):
            read_trace(path)
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0x55
    path.write_bytes(damaged)
    with pytest.raises(TraceFormatError, match="damaged compressed data"):
        read_trace(path)


OTHER_FILES = {
    "nothing": (b"", "is empty"),
    "binary": (b"\x7fELF\x02\x01\x01\0\0\0", "binary file of another kind"),
    "trace-cmd": (b"\x17\x08Dtracing\0", "recording of trace-cmd"),
    "zstd": (b"\x28\xb5\x2f\xfdxxxx", "compressed with zstd"),
    "gzip of nothing": (gzip.compress(b""), "is empty"),
    "prose": (b"All the world's a stage.\n", "no kmem event"),
}


@pytest.mark.parametrize(("data", "text"), OTHER_FILES.values(), ids=OTHER_FILES.keys())
def test_a_file_of_another_kind_is_named_as_such(
    tmp_path: Path, data: bytes, text: str
) -> None:
    path = tmp_path / "thing"
    path.write_bytes(data)

    with pytest.raises(TraceFormatError, match=text) as caught:
        read_trace(path)

    assert "thing" in str(caught.value)


def test_a_missing_file_and_a_folder_are_os_errors(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_trace(tmp_path / "none")
    with pytest.raises(IsADirectoryError):
        read_trace(tmp_path)


def test_a_file_name_in_any_encoding_is_named_in_the_message(tmp_path: Path) -> None:
    path = Path(
        os.fsdecode(os.fsencode(tmp_path) + b"/" + b"\xff\xfe" + b"\xc3\xa9" * 90)
    )
    path.write_bytes(b"prose\n")

    with pytest.raises(TraceFormatError, match="no kmem event"):
        read_trace(path)


def test_progress_is_reported_and_can_stop_the_reading(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(GOOD * 20_000)
    packed = tmp_path / "trace.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))

    for file in (path, packed):
        seen: list[float] = []
        read_trace(file, progress=seen.append)
        assert len(seen) > 2
        assert seen == sorted(seen)
        assert seen[-1] == 1.0

    def stop(fraction: float) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        read_trace(path, progress=stop)


def test_perf_data_is_read_through_perf() -> None:
    path = shared("hackbench-socket-process.perf.data")
    if shutil.which("perf") is None:
        pytest.skip("perf is not installed")
    text = read_trace(shared("hackbench-socket-process.perf-script.txt.gz"))

    trace = read_trace(path)

    for name in ("ptr", "bytes_req", "bytes_alloc", "cpu", "node", "kind", "flags"):
        assert (trace.events[name] == text.events[name]).all()
    assert (trace.events["time_ns"] // 1000 == text.events["time_ns"] // 1000).all()
    assert trace.caches == text.caches


def test_perf_data_without_perf_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "perf.data"
    path.write_bytes(b"PERFILE2" + bytes(100))
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(TraceFormatError, match=r"perf.*not installed"):
        read_trace(path)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_damaged_perf_data_is_told_with_what_perf_says(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    if shutil.which("perf") is None:
        pytest.skip("perf is not installed")
    path = tmp_path / "perf.data"
    path.write_bytes(pack(b"PERFILE2" + bytes(100)))

    with pytest.raises(TraceFormatError, match="perf script cannot read it"):
        read_trace(path)


# -- the compact form --


def small_trace() -> Trace:
    text = "CPU:1 [LOST 3 EVENTS]\n" + "".join(form.line for form in FORMS.values())
    trace = parse(text)
    trace._core.add_alias("skbuff_fclone_cache", ":0000512")
    return trace


def test_the_compact_form_gives_everything_back(tmp_path: Path) -> None:
    trace = small_trace()
    for name in ("plain", "gzip.gz", "xz.xz"):
        trace.save(tmp_path / name)

        again = read_trace(tmp_path / name)

        assert (again.events == trace.events).all()
        assert again.summary == trace.summary
        for table in ("call_sites", "caches", "gfp_flags", "tasks", "aliases"):
            assert getattr(again, table) == getattr(trace, table)


def test_a_compact_file_with_any_one_byte_changed_is_refused() -> None:
    data = bytearray(small_trace()._core.encode())

    for at in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            data[at] ^= flip
            with pytest.raises(TraceFormatError):
                _core.Trace.decode(bytes(data), "small")
            data[at] ^= flip
    assert len(_core.Trace.decode(bytes(data), "small")) == len(FORMS)


def test_a_compact_file_cut_at_any_byte_or_with_more_behind_is_refused() -> None:
    data = small_trace()._core.encode()

    for size in range(len(data)):
        with pytest.raises(TraceFormatError, match=r"cut off|does not begin"):
            _core.Trace.decode(data[:size], "small")
    with pytest.raises(TraceFormatError, match="more behind its end"):
        _core.Trace.decode(data + b"\0", "small")


def checksum(data: bytes) -> bytes:
    """The checksum of csrc/trace/compact.h, for files made up on purpose."""
    total, mask = len(data), 2**64 - 1
    for at in range(0, len(data), 8):
        total = (total ^ int.from_bytes(data[at : at + 8], "little")) & mask
        total = total * 0x9E3779B97F4A7C15 & mask
        total ^= total >> 29
    return total.to_bytes(8, "little")


def test_a_compact_file_with_a_right_checksum_is_still_checked_in_all_its_numbers() -> (
    None
):
    data = bytearray(small_trace()._core.encode())
    assert checksum(bytes(data[:-8])) == bytes(data[-8:])
    refused = 0

    for at in range(len(data) - 8):
        old = data[at]
        data[at] = 0xFF if old != 0xFF else 0
        data[-8:] = checksum(bytes(data[:-8]))
        try:
            trace = Trace(_core.Trace.decode(bytes(data), "made up"))
        except TraceFormatError:
            refused += 1
        else:  # a sound trace: everything it names is there
            assert (trace.events["kind"] < len(KINDS)).all()
            assert (trace.events["call_site"] < len(trace.call_sites)).all()
            trace.stat("alloc")
            trace._core.program(3)
        data[at] = old
    assert refused > 200


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


# -- the type --


@pytest.mark.parametrize(
    ("record", "dtype"),
    [
        ("event", dtypes.TRACE_EVENT),
        ("stat_row", dtypes.STAT_ROW),
        ("program_event", dtypes.PROGRAM_EVENT),
    ],
)
def test_numpy_sees_each_record_as_c_lays_it_out(
    record: str, dtype: "np.dtype[np.void]"
) -> None:
    size, fields = _core.trace_layout(record)

    assert dtype.itemsize == size
    assert dtype.names is not None
    assert dtype.fields is not None
    names = [name.replace("pointer", "ptr") for name, _, _ in fields]
    assert sorted(dtype.names) == sorted(names)
    for name, (_, offset, width) in zip(names, fields, strict=True):
        assert dtype.fields[name][1] == offset
        assert dtype.fields[name][0].itemsize == width


def test_a_replay_holds_at_most_64_bytes_an_event() -> None:
    program_size = dtypes.PROGRAM_EVENT.itemsize
    worst = dtypes.TRACE_EVENT.itemsize + 2 * program_size + 8  # all reused

    assert dtypes.TRACE_EVENT.itemsize <= 40
    assert worst <= 64


def test_events_are_a_read_only_view_that_outlives_the_trace() -> None:
    events = parse(GOOD).events

    assert events["bytes_req"].tolist() == [100, 0]
    with pytest.raises(ValueError, match="read-only"):
        events["cpu"][0] = 1


MISUSE: dict[str, Callable[[_core.Trace], object]] = {
    "buffer": memoryview,
    "summary": lambda core: core.summary(),
    "encode": lambda core: core.encode(),
    "strings": lambda core: core.strings("caches"),
    "stat": lambda core: core.stat(True, "hit", -1, False, b""),
    "program": lambda core: core.program(2),
}


@pytest.mark.parametrize("use", MISUSE.values(), ids=MISUSE.keys())
def test_a_trace_that_is_not_complete_cannot_be_used(
    use: Callable[[_core.Trace], object],
) -> None:
    unfinished = _core.Trace("x")
    unfinished.feed(GOOD.encode())
    failed = _core.Trace("y")
    with pytest.raises(TraceFormatError):
        failed.finish()

    for core in (unfinished, failed):
        assert len(core) == 0
        with pytest.raises((Error, BufferError), match="not read to its end"):
            use(core)


def test_a_complete_or_failed_trace_takes_no_more() -> None:
    complete, failed = parse(GOOD)._core, _core.Trace("y")
    with pytest.raises(TraceFormatError):
        failed.finish()

    for core, text in ((complete, "is complete"), (failed, "failed to read")):
        with pytest.raises(Error, match=text):
            core.feed(b"x")
        with pytest.raises(Error, match=text):
            core.finish()


def test_arguments_of_a_wrong_kind_are_refused() -> None:
    core = parse(GOOD)._core
    wrong: list[tuple[type[Exception], Callable[[], object]]] = [
        (TypeError, lambda: _core.Trace(3)),  # type: ignore[arg-type]
        (TypeError, lambda: _core.Trace(name="x")),  # type: ignore[call-arg]
        (TypeError, lambda: _core.Trace("x").feed("text")),  # type: ignore[arg-type]
        (TypeError, lambda: _core.Trace.from_file(7.5)),  # type: ignore[arg-type]
        (ParameterError, lambda: core.strings("nothing")),
        (ParameterError, lambda: core.add_alias("a\tb", "c")),
        (TypeError, lambda: type("Sub", (_core.Trace,), {})),
        (TypeError, lambda: setattr(_core.Trace, "feed", None)),
    ]

    for error, call in wrong:
        with pytest.raises(error):
            call()


def test_threads_that_feed_one_trace_do_no_harm() -> None:
    core = _core.Trace("shared")
    block = (GOOD * 5000).encode()
    fed, refused = [], []

    def work() -> None:
        for _ in range(20):
            try:
                core.feed(block)
                fed.append(1)
            except Error as error:
                refused.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    core.finish()

    assert len(core) == 10_000 * len(fed)
    assert len(fed) + len(refused) == 80
    assert set(refused) <= {"the trace is in use by another thread"}


def test_importing_the_reader_imports_no_plotting_or_compiling_library() -> None:
    code = (
        "import sys, slabq.trace;"
        "print(sorted({'matplotlib', 'cffi', 'rich', 'click'} & set(sys.modules)))"
    )
    said = subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert said.stdout.strip() == "[]"
