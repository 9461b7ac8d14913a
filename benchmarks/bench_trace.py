"""How fast a kmem trace is read, beside its peers, in one run on one core.

    python benchmarks/bench_trace.py [--lines 1000000] [--repeat 5]

Makes a perf script text of a million lines: the bundled trace repeated, with the times
and the pointers shifted, so that neither comes twice, and reads it with

- a scan for line feeds (what ``wc -l`` does): the text is at least looked at once;
- slabq's reader, from the plain file, from gzip, and from the compact form;
- a regular expression in Python, which finds the same events into tuples.

The best of the repeats counts. MB/s are of the plain text, whatever was read.
"""

import argparse
import gzip
import os
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from slabq.trace import bundled_trace_path, read_trace

HEAD = re.compile(
    rb"^(?P<front>.*?\] +)(?P<s>\d+)\.(?P<us>\d{6})(?P<middle>: .*? ptr=)"
    rb"(?P<ptr>0x[0-9a-f]+|\(nil\))(?P<rest>.*)$"
)
EVENT = re.compile(
    rb"^ *(.*?) +(\d+) \[(\d+)\] +(\d+)\.(\d+): +kmem:(\w+): call_site=(\S+) ptr=(\S+)"
    rb"(?: name=(\S+))?"
    rb"(?: bytes_req=(\d+) bytes_alloc=(\d+) gfp_flags=(\S+) node=(-?\d+))?",
    re.MULTILINE,
)


def make_text(path: Path, line_count: int) -> None:
    """Write the bundled trace again and again, each time later and further up."""
    with gzip.open(bundled_trace_path(), "rb") as file:
        parts = [HEAD.match(line) for line in file.read().splitlines()]
    lines = [part.groupdict() for part in parts if part is not None]
    times_us = [int(line["s"]) * 10**6 + int(line["us"]) for line in lines]
    span_us = times_us[-1] - times_us[0] + 1
    written = 0
    with open(path, "wb") as out:
        for copy in range(line_count // len(lines) + 1):
            for line, time_us in zip(lines, times_us, strict=True):
                if written == line_count:
                    return
                seconds, us = divmod(time_us + copy * span_us, 10**6)
                ptr = line["ptr"]
                if ptr != b"(nil)":
                    ptr = b"%#x" % (int(ptr, 16) + copy * 0x100000000)
                out.write(
                    b"%b%d.%06d%b%b%b\n"
                    % (line["front"], seconds, us, line["middle"], ptr, line["rest"])
                )
                written += 1


def scan_lines(path: Path) -> int:
    count = 0
    with open(path, "rb", buffering=0) as file:
        while block := file.read(1 << 20):
            count += block.count(b"\n")
    return count


def read_by_regex(path: Path) -> int:
    events = [
        (
            comm,
            int(tid),
            int(cpu),
            int(s) * 10**9 + int(us) * 1000,
            kind,
            site,
            0 if ptr == b"(nil)" else int(ptr, 16),
            name,
            int(req or 0),
            int(size or 0),
            gfp,
            int(node or -1),
        )
        for comm, tid, cpu, s, us, kind, site, ptr, name, req, size, gfp, node in (
            EVENT.findall(path.read_bytes())
        )
    ]
    return len(events)


def best_s(work: Callable[[], int], repeat: int, expected: int) -> float:
    best = float("inf")
    for _ in range(repeat):
        begin = time.perf_counter()
        count = work()
        best = min(best, time.perf_counter() - begin)
        if count != expected:
            raise SystemExit(f"found {count} of {expected} events")
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    lines = options.lines
    with tempfile.TemporaryDirectory() as folder:
        text, packed = Path(folder) / "trace.txt", Path(folder) / "trace.txt.gz"
        compact = Path(folder) / "trace.kmem"
        make_text(text, lines)
        packed.write_bytes(gzip.compress(text.read_bytes(), 1))
        trace = read_trace(text)
        trace.save(compact)
        size_mb = text.stat().st_size / 1e6
        print(f"{lines} lines, {size_mb:.1f} MB of text, one core, best of the repeats")
        rows: list[tuple[str, Callable[[], int], int]] = [
            ("scan for line feeds", lambda: scan_lines(text), options.repeat),
            ("slabq, plain text", lambda: len(read_trace(text)), options.repeat),
            ("slabq, gzip", lambda: len(read_trace(packed)), options.repeat),
            ("slabq, compact", lambda: len(read_trace(compact)), options.repeat),
            ("Python regex", lambda: read_by_regex(text), min(2, options.repeat)),
        ]
        for name, work, repeat in rows:
            seconds = best_s(work, repeat, lines)
            print(f"{name:22} {seconds:8.3f} s {size_mb / seconds:9.0f} MB/s")
        steps: list[tuple[str, Callable[[], object]]] = [
            ("stat by call site", lambda: trace.stat()),
            ("stat by pointer", lambda: trace.stat("alloc", limit=20)),
            ("replay program", lambda: trace._core.program(2)),
        ]
        for name, step in steps:
            begin = time.perf_counter()
            step()
            print(f"{name:22} {time.perf_counter() - begin:8.3f} s")


if __name__ == "__main__":
    main()
