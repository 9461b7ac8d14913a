"""Native speed of slabq's policies beside four mallocs, interleaved in one run.

    python benchmarks/native.py [--rounds N] [--json FILE]

Builds native_driver.c with the C core, runs it once an allocator and round, in a new
order each round, and prints medians, ranges and the ratio to glibc. The peers are
Debian packages (benchmarks/install_peers.sh); one that is missing is said to be.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CSRC = HERE.parent / "csrc"
PATTERNS = ("pair", "batch", "handoff", "churn")
PEERS = {"jemalloc": "jemalloc", "mimalloc": "mimalloc", "tcmalloc": "tcmalloc_minimal"}
POLICIES = ("slab", "slub", "slub+q", "sheaves")
# Everything below the Python folder; what is compiled through unit/ is left out.
FOLDERS = ("base", "machine", "unit", "workload", "trace", "experiment")
LEFT_OUT = {"pages.c", "sched.c", "sched_sim.c", "env.c", "channel.c", "sync.c"}


def build(folder: str) -> str:
    """Compile the driver as setup.py compiles the extension; return its path."""
    program = os.path.join(folder, "native_driver")
    found = [path for folder in FOLDERS for path in (CSRC / folder).glob("*.c")]
    sources = [
        str(path)
        for path in found
        if path.parent.name == "unit" or path.name not in LEFT_OUT
    ]
    command = [os.environ.get("CC", "cc"), "-std=c11", "-D_GNU_SOURCE", "-O2"]
    command += [
        f"-I{CSRC}",
        f"-I{CSRC}/include",
        str(HERE / "native_driver.c"),
        *sources,
    ]
    subprocess.run([*command, "-pthread", "-lm", "-o", program], check=True)
    return program


def peer_library(name: str) -> str | None:
    """Path of a peer's shared library as the dynamic linker knows it, or None."""
    command = ["/sbin/ldconfig", "-p"]
    listing = subprocess.run(command, capture_output=True, text=True, check=True)
    paths = (line.rsplit("=> ", 1)[-1] for line in listing.stdout.splitlines())
    found = sorted(path for path in paths if f"/lib{name}.so" in path)
    return found[0] if found else None


def subjects() -> dict[str, tuple[list[str], dict[str, str]]]:
    """Name -> (arguments of the driver, environment to add)."""
    table: dict[str, tuple[list[str], dict[str, str]]] = {"glibc": (["malloc"], {})}
    for name, library in PEERS.items():
        path = peer_library(library)
        if path is None:
            print(
                f"{name}: not installed (benchmarks/install_peers.sh)", file=sys.stderr
            )
        else:
            table[name] = (["malloc"], {"LD_PRELOAD": path})
    for policy in POLICIES:
        table[f"slabq {policy}, kmalloc"] = ([policy, "kmalloc"], {})
        table[f"slabq {policy}, cache"] = ([policy, "cache"], {})
    return table


def run_once(program: str, arguments: list[str], extra: dict[str, str]) -> dict:
    result = subprocess.run(
        [program, *arguments],
        env={**os.environ, **extra},
        capture_output=True,
        text=True,
        check=True,
    )
    rows = (line.split() for line in result.stdout.splitlines())
    return {name: float(value) for name, value in rows}


def measure(program: str, rounds: int) -> dict[str, dict[str, list[float]]]:
    table = subjects()
    samples: dict = {name: {pattern: [] for pattern in PATTERNS} for name in table}
    for round_number in range(rounds):
        order = list(table)
        random.Random(round_number).shuffle(order)
        for name in order:
            for pattern, value in run_once(program, *table[name]).items():
                samples[name][pattern].append(value)
    return samples


def cell(values: list[float]) -> str:
    if not values:
        return "-"
    return f"{statistics.median(values):.1f} ({min(values):.1f}-{max(values):.1f})"


def print_table(samples: dict, rounds: int) -> None:
    print(
        f"ns per allocation and free: median (min-max) of {rounds} interleaved rounds"
    )
    print(f"{'':<23}" + "".join(f"{pattern:>22}" for pattern in PATTERNS))
    for name, row in samples.items():
        print(f"{name:<23}" + "".join(f"{cell(row[p]):>22}" for p in PATTERNS))
    print("\nratio of medians to glibc (below 1 is faster)")
    for name, row in samples.items():
        ratios = [
            statistics.median(row[p]) / statistics.median(samples["glibc"][p])
            if row[p]
            else None
            for p in PATTERNS
        ]
        texts = ["-" if ratio is None else f"{ratio:.2f}" for ratio in ratios]
        print(f"{name:<23}" + "".join(f"{text:>22}" for text in texts))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write every sample here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        samples = measure(build(folder), options.rounds)
    print_table(samples, options.rounds)
    if options.json:
        options.json.write_text(json.dumps(samples, indent=1))


if __name__ == "__main__":
    main()
