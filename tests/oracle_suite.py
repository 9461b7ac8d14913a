"""The recordings of real allocators, run again under slabq's policies.

    python tests/oracle_suite.py [--only TEXT] [--show N]

prints, by allocator and topology, how many files and lines are equal. The recordings
lie in ../shared/oracle beside the checkout; what they are is told by the README there.
A line of slabq must be the recorded line, byte for byte; only the `vars` line
(variables of the recorded kernel) is left aside.
"""

import argparse
import csv
import gzip
import json
import os
import sys
import tomllib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path

from slabq import _core

SHARED = Path(__file__).resolve().parent.parent.parent / "shared"
ORACLE = Path(os.environ.get("SLABQ_SHARED", SHARED)) / "oracle"
FOUR_NODES = [[10, 20, 20, 30], [20, 10, 20, 20], [20, 20, 10, 20], [30, 20, 20, 10]]
PROFILE_FILES = {
    "slab": "slab",
    "slub": "slub",
    "slub+q": "slubq",
    "sheaves": "sheaves",
}
KEPT_ASIDE = "no recording beside the checkout (../shared/oracle)"


@dataclass(frozen=True)
class Folder:
    """Recordings of one allocator on one topology, and how slabq runs the same."""

    name: str  # below ORACLE
    policy: str
    kernel: str
    options: dict[str, int] = field(default_factory=dict)
    scripts: str = ""  # folder of the .ops files, when it is another one

    @property
    def topology(self) -> str:
        part = self.name.rsplit("/", 1)[-1]
        return "n4c16" if "n4c16" in part else "n1c2"

    @property
    def original(self) -> bool:
        return self.name.startswith("original/")


def both(pattern: str, policy: str, kernel: str, **options: int) -> list[Folder]:
    return [
        Folder(pattern.format(topology), policy, kernel, options)
        for topology in ("n1c2", "n4c16")
    ]


def fuzz(allocator: str, topology: str, policy: str, **options: int) -> Folder:
    scripts = f"fuzz/ops-{topology}"
    return Folder(f"fuzz/{allocator}-{topology}", policy, "6.1", options, scripts)


def min_objects(allocator: str, policy: str) -> list[Folder]:
    return [
        Folder(
            f"original/{allocator}-n4c16-minobj{count}",
            policy,
            "2.6.35",
            {"slub_min_objects": count},
        )
        for count in (8, 32, 64)
    ]


FOLDERS = [
    *both("seq/slab-{}", "slab", "6.1"),
    Folder("seq/slab-n4c16-noalien", "slab", "6.1", {"noaliencache": 1}),
    fuzz("slab", "n1c2", "slab"),
    fuzz("slab", "n4c16", "slab"),
    *both("original/slab25-{}", "slab", "2.6.25"),
    *both("original/slab35-{}", "slab", "2.6.35"),
    Folder("original/slab35-n4c16-noalien", "slab", "2.6.35", {"noaliencache": 1}),
    *both("seq/slub-{}", "slub", "6.1"),
    fuzz("slub", "n1c2", "slub"),
    fuzz("slub", "n4c16", "slub"),
    *both("seq/slubnocp-{}", "slub", "6.1", slub_cpu_partial=0),
    fuzz("slubnocp", "n4c16", "slub", slub_cpu_partial=0),
    *both("original/slub25-{}", "slub", "2.6.25"),
    *both("original/slub35-{}", "slub", "2.6.35"),
    *min_objects("slub35", "slub"),
    *both("linux-4.19.108/slub419-{}", "slub", "4.19"),
    *both("linux-4.19.108/slubnocp419-{}", "slub", "4.19", slub_cpu_partial=0),
    Folder("linux-4.19.108/dbg419-n4c16", "slub", "4.19"),
    *both("linux-5.15.100/slub515-{}", "slub", "5.15"),
    Folder("linux-5.15.100/dbg515-n4c16", "slub", "5.15"),
    *both("linux-6.18.2/slub618-{}", "slub", "6.18"),
    *both("linux-6.18.2/dbg618-{}", "slub", "6.18"),
    *both("linux-6.18.2/sheaf618-{}", "sheaves", "6.18"),
    *both("original/sq1-{}", "slub+q", "2.6.35", version=1),
    *both("original/sq2-{}", "slub+q", "2.6.35", version=2),
    *min_objects("sq2", "slub+q"),
    *both("original/sq3-{}", "slub+q", "2.6.35", version=3),
    *both("original/sq4-{}", "slub+q", "2.6.35", version=4),
    Folder("original/sq4n-n4c16", "slub+q", "2.6.35", {"version": 4, "honour_node": 1}),
]


@cache
def profile(policy: str, kernel: str) -> dict[str, int]:
    """The option values of a kernel profile."""
    path = resources.files("slabq.data") / "kernels" / f"{PROFILE_FILES[policy]}.toml"
    tables = tomllib.loads(path.read_text())
    table = tables.get("profile", tables)[kernel]
    return {
        name: int(value)
        for name, value in table.items()
        if isinstance(value, (int, bool))
    }


def machine(topology: str) -> _core.Machine:
    """The machine of a recording: 16 CPUs on 4 nodes, or N CPUs on one."""
    if topology == "n4c16":
        nodes = [cpu // 4 for cpu in range(16)]
        return _core.Machine(nodes, nodes, FOUR_NODES, 256 << 20, 3, 0, 1)
    cpus = int(topology.removeprefix("n1c"))
    return _core.Machine([0] * cpus, [0] * cpus, [[10]], 1 << 30, 3, 0, 1)


def run_script(folder: Folder, script: str, kernel: str | None = None) -> list[str]:
    values = {**profile(folder.policy, kernel or folder.kernel), **folder.options}
    output = _core.execute(
        machine(folder.topology),
        folder.policy,
        list(values.items()),
        script,
        folder.original,
    )
    return output.splitlines()


def recordings(folder: Folder) -> Iterator[tuple[Path, Path]]:
    """(script, recorded lines) of every script of a folder."""
    base = ORACLE / folder.name
    scripts = ORACLE / (folder.scripts or folder.name)
    for script in sorted(scripts.glob("*.ops")):
        lines = base / f"{script.stem}.jsonl.gz"
        if lines.exists():
            yield script, lines


def recorded_lines(path: Path) -> list[str]:
    with gzip.open(path, "rt") as lines:
        return lines.read().splitlines()


@dataclass
class Comparison:
    """One script: how many of the recorded lines came out equal."""

    name: str
    equal: int = 0
    total: int = 0
    first_difference: str = ""

    @property
    def is_equal(self) -> bool:
        return self.equal == self.total

    def add(self, number: int, want: str, got: str) -> None:
        self.total += 1
        if want == got:
            self.equal += 1
        elif not self.first_difference:
            at = next(
                (i for i, (a, b) in enumerate(zip(want, got, strict=False)) if a != b),
                min(len(want), len(got)),
            )
            start = max(0, at - 40)
            self.first_difference = (
                f"line {number}, character {at}:\n"
                f"    recorded ...{want[start : at + 80]}\n"
                f"    slabq    ...{got[start : at + 80]}"
            )


def compare_lines(name: str, want: list[str], got: list[str]) -> Comparison:
    result = Comparison(name)
    for number, line in enumerate(want):
        if not line.startswith('{"vars"'):
            result.add(number + 1, line, got[number] if number < len(got) else "")
    if len(got) > len(want):
        result.add(len(want) + 1, "", got[len(want)])
    return result


def compare_recording(folder: Folder, script: Path, lines: Path) -> Comparison:
    name = f"{folder.name}/{script.stem}"
    want = recorded_lines(lines)
    try:
        got = run_script(folder, script.read_text())
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        return Comparison(name, 0, len(want), text)
    return compare_lines(name, want, got)


# ---- recordings that are told by their difference from 6.1's -------------------------

LIKE_6_1 = [
    (Folder("seq/slub-n4c16", "slub", "5.15"), "linux-5.15.100/compare.tsv", "515slub"),
    (Folder("seq/slub-n1c2", "slub", "5.15"), "linux-5.15.100/compare.tsv", "515slub"),
    (Folder("seq/slub-n4c16", "slub", "4.19"), "linux-4.19.108/compare.tsv", "419slub"),
    (Folder("seq/slub-n1c2", "slub", "4.19"), "linux-4.19.108/compare.tsv", "419slub"),
    (Folder("seq/slub-n4c16", "slub", "6.18"), "linux-6.18.2/nosheaf/compare.tsv", ""),
    (Folder("seq/slub-n1c2", "slub", "6.18"), "linux-6.18.2/nosheaf/compare.tsv", ""),
]


def same_as_6_1(folder: Folder, table: str, kernel: str) -> dict[str, dict[str, str]]:
    """Rows of a comparison table for a folder of 6.1's scripts, by script name."""
    with open(ORACLE / table) as lines:
        rows = list(csv.DictReader(lines, delimiter="\t"))
    return {
        row["file"]: row
        for row in rows
        if row["set"] == "seq"
        and row["topo"] == folder.topology
        and row.get("kernel", kernel) == kernel
        and row.get("compared_with", "6.1.192") == "6.1.192"
    }


def placements(line: str) -> str:
    """What two releases have in common in an operation: objects and slab events."""
    row = json.loads(line)
    common = {key: row[key] for key in ("cmd", "first_id", "ret", "ev") if key in row}
    if "objs" in row:
        common["objs"] = [place[:2] for place in row["objs"]]
    return json.dumps(common)


def compare_with_6_1(folder: Folder, row: dict[str, str]) -> Comparison:
    script = ORACLE / folder.name / f"{row['file']}.ops"
    result = Comparison(f"{folder.name}/{row['file']} as {folder.kernel}")
    want = recorded_lines(script.with_suffix(".jsonl.gz"))
    got = run_script(folder, script.read_text())
    for number, (line, own) in enumerate(zip(want, got, strict=True)):
        if '"op":' not in line:
            continue
        if row["placement_same"] == "1" and row["events_same"] == "1":
            result.add(number + 1, placements(line), placements(own))
    return result


# ---- exhaustion: which node objects come from ----------------------------------------


def node_order(line: str) -> list[int]:
    """Nodes in the order in which they first give objects."""
    order: list[int] = []
    for node, _ in json.loads(line)["node_runs"]:
        if node not in order:
            order.append(node)
    return order


def compare_exhaustion(path: Path) -> Comparison:
    policy = "slab" if "exhaust-slab" in path.name else "slub"
    folder = Folder(f"timed/{path.name}", policy, "6.1")
    want = [line for line in recorded_lines(path) if '"cmd"' in line]
    script = "\n".join(json.loads(line)["cmd"] for line in want)
    got = [line for line in run_script(folder, script) if '"cmd"' in line]
    result = Comparison(f"timed/{path.name}")
    pair = (str(node_order(want[-1])), str(node_order(got[-1])))
    result.add(len(want), *pair)
    return result


# ---- all of it -----------------------------------------------------------------------


def compare_folder(folder: Folder) -> list[Comparison]:
    return [compare_recording(folder, *pair) for pair in recordings(folder)]


def compare_table_folder(index: int) -> list[Comparison]:
    folder, table, kernel = LIKE_6_1[index]
    rows = same_as_6_1(folder, table, kernel)
    present = [row for name, row in rows.items() if has_script(folder, name)]
    return [
        comparison
        for row in present
        if (comparison := compare_with_6_1(folder, row)).total > 0
    ]


def has_script(folder: Folder, name: str) -> bool:
    return (ORACLE / folder.name / f"{name}.ops").exists()


def compare_exhaustions(_: int) -> list[Comparison]:
    return [
        compare_exhaustion(path)
        for path in sorted((ORACLE / "timed").glob("exhaust-*.jsonl.gz"))
    ]


def run_all(only: str = "") -> dict[str, list[Comparison]]:
    """Every comparison whose group's name contains `only`, by group."""
    jobs: dict[str, tuple] = {
        f"{folder.name} ({folder.policy} {folder.kernel})": (compare_folder, folder)
        for folder in FOLDERS
    }
    for index, (folder, _, _) in enumerate(LIKE_6_1):
        key = f"{folder.name} as {folder.kernel}, where equal"
        jobs[key] = (compare_table_folder, index)
    jobs["timed/exhaust-* (node order)"] = (compare_exhaustions, 0)
    chosen = {name: job for name, job in jobs.items() if only in name}
    known = set(_core.policies())
    with ProcessPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as pool:
        futures = {
            name: pool.submit(*job)
            for name, job in chosen.items()
            if not (isinstance(job[1], Folder) and job[1].policy not in known)
        }
        return {name: future.result() for name, future in futures.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="groups whose name has this in it")
    parser.add_argument(
        "--show", type=int, default=0, help="first differences to print"
    )
    options = parser.parse_args()
    if not ORACLE.exists():
        print(f"oracle_suite: {KEPT_ASIDE}", file=sys.stderr)
        return 2
    groups = run_all(options.only)
    print(f"{'recordings':<52}{'files equal':>13}{'lines equal':>17}")
    shown = 0
    for name, comparisons in groups.items():
        files = f"{sum(c.is_equal for c in comparisons)}/{len(comparisons)}"
        equal = sum(c.equal for c in comparisons)
        lines = f"{equal}/{sum(c.total for c in comparisons)}"
        print(f"{name:<52}{files:>13}{lines:>17}")
        for comparison in comparisons:
            if not comparison.is_equal and shown < options.show:
                print(f"  {comparison.name}: {comparison.first_difference}")
                shown += 1
    flat = [c for comparisons in groups.values() for c in comparisons]
    equal = sum(c.is_equal for c in flat)
    lines = f"{sum(c.equal for c in flat)}/{sum(c.total for c in flat)}"
    print(f"{'all':<52}{f'{equal}/{len(flat)}':>13}{lines:>17}")
    return 0 if equal == len(flat) and flat else 1


if __name__ == "__main__":
    raise SystemExit(main())
