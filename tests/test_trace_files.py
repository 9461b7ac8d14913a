"""Files of traces: compressed, of other kinds, through perf, and the compact form."""

import gzip
import lzma
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from trace_text import (
    FORMS,
    GOOD,
    parse,
    shared,
)

from slabq import _core
from slabq.errors import TraceFormatError
from slabq.trace import (
    KINDS,
    Trace,
    read_trace,
)

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
