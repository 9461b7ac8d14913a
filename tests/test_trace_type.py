"""A trace as an object: its records in numpy, its state, threads that share it."""

import subprocess
import sys
import threading
from collections.abc import Callable

import numpy as np
import pytest
from trace_text import GOOD, ROOT, parse

from slabq import _core, dtypes
from slabq.errors import Error, ParameterError, TraceFormatError

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
