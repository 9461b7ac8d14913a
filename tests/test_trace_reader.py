"""Reading kmem traces: all eras and text forms, what is counted, what is refused."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_text import FORMS, GOOD, Form, alloc, free, parse, perf

from slabq import _core
from slabq.errors import TraceFormatError
from slabq.trace import (
    KINDS,
)

# -- eras and forms --


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
