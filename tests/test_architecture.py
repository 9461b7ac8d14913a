"""The include and import arrows hold: the house is built as csrc/README.md says."""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CSRC = ROOT / "csrc"

# A file may include its own rank and those below it.
RANKS = {
    "base": 0,
    "machine": 1,
    "policy": 2,
    "include": 2,
    "unit": 3,
    "workload": 3,
    "trace": 3,
    "experiment": 4,
    "python": 5,
}
# Folders of equal rank that may not see each other.
STRANGERS = {("workload", "trace"), ("trace", "workload"), ("trace", "unit")}
STRANGERS |= {("unit", "trace"), ("policy", "include")}
# A policy's own file sees machine.h alone; policy.h sees the base of a machine.
POLICY_MAY_SEE = {"machine/machine.h", "machine/machine_base.h"}


def c_files() -> list[Path]:
    return sorted([*CSRC.rglob("*.c"), *CSRC.rglob("*.h")])


def includes_of(path: Path) -> list[str]:
    return re.findall(r'^\s*#\s*include\s+"([^"]+)"', path.read_text(), re.MULTILINE)


def folder_of(include: str) -> str:
    return "include" if include.startswith("slabq/") else include.split("/")[0]


@pytest.mark.parametrize("path", c_files(), ids=lambda p: str(p.relative_to(CSRC)))
def test_a_file_includes_its_own_rank_and_below(path):
    own = path.relative_to(CSRC).parts[0]

    for include in includes_of(path):
        seen = folder_of(include)
        assert RANKS[seen] <= RANKS[own], f"{own} may not include {include}"
        assert (own, seen) not in STRANGERS, f"{own} may not include {include}"


def test_only_units_include_c_files():
    wrong = [
        (str(path.relative_to(CSRC)), include)
        for path in c_files()
        for include in includes_of(path)
        if include.endswith(".c") and path.parent.name != "unit"
    ]

    assert wrong == []


@pytest.mark.parametrize(
    "path", sorted((CSRC / "policy").iterdir()), ids=lambda path: path.name
)
def test_a_policy_sees_machine_h_and_nothing_else_of_the_machine(path):
    if path.suffix not in (".c", ".h"):
        return
    seen = {name for name in includes_of(path) if name.startswith("machine/")}

    assert seen <= POLICY_MAY_SEE


def test_only_the_python_folder_knows_python():
    wrong = [
        str(path.relative_to(CSRC))
        for path in c_files()
        if "Python.h" in path.read_text() and path.parent.name != "python"
    ]

    assert wrong == []


def test_nobody_but_machine_h_asks_which_machine_it_is():
    pattern = re.compile(r"^\s*#\s*(el)?if.*SQ_MACHINE_(NATIVE|SIM)", re.MULTILINE)
    wrong = [path for path in c_files() if pattern.search(path.read_text())]

    assert wrong == [CSRC / "machine" / "machine.h"]


# What the compiler and the C library may be asked for by a policy's object file; every
# other undefined symbol must be a primitive of the machine.
POLICY_MAY_CALL = {"memset", "memcpy", "memmove", "strcmp", "strlen", "snprintf"}
POLICY_MAY_CALL |= {"_GLOBAL_OFFSET_TABLE_", "__stack_chk_fail", "__popcountdi2"}
# check() keeps its marks in memory of the host: they are no part of the machine.
POLICY_MAY_CALL |= {"calloc", "free", "qsort"}
PRIMITIVES = re.compile(
    r"sq_((pages|meta|percpu)_(alloc|free)|on_each_cpu)_native|"
    r"sq_native_(lock_wait|take_request|remote_delay|now_ns|rt_mutex_(wait|wake))|"
    r"sq_assert_fail|sq_error_set|sq_json_\w+|sq_report_\w+"
)


@pytest.mark.skipif(shutil.which("nm") is None, reason="binutils' nm is not installed")
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler named cc")
@pytest.mark.parametrize("policy", ["slab", "slub", "slubq", "sheaves"])
def test_a_policy_object_calls_only_the_machine(policy, tmp_path):
    target = tmp_path / "unit.o"
    unit = CSRC / "unit" / f"{policy}_native.c"
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-fPIC", f"-I{CSRC}"]
    flags.append("-DSQ_ASSERT_LEVEL=3")
    subprocess.run(["cc", *flags, "-c", unit, "-o", target], check=True)
    listing = subprocess.run(["nm", target], capture_output=True, text=True, check=True)
    rows = [line.split() for line in listing.stdout.splitlines()]
    sizes = subprocess.run(
        ["size", "-A", target], capture_output=True, text=True, check=True
    )
    section_bytes = {
        words[0]: int(words[1])
        for words in (line.split() for line in sizes.stdout.splitlines()[2:])
        if len(words) == 3
    }

    called = {row[-1] for row in rows if row[-2] == "U"}
    foreign = {name for name in called if not PRIMITIVES.fullmatch(name)}
    exported = {row[-1] for row in rows if row[-2] in "TDRB"}

    assert foreign <= POLICY_MAY_CALL
    assert exported == {f"sq_{policy}_native"}
    assert section_bytes.get(".data", 0) == section_bytes.get(".bss", 0) == 0


# Python: a module may import those of its own layer and of the layers below.
LAYERS = [
    {"errors", "interrupt", "version", "_core"},
    {
        "checks",
        "costs",
        "data",
        "debugging",
        "dtypes",
        "host_memory",
        "kept_runs",
        "loadfile",
        "stats",
        "topology",
        "verdict",
    },
    {
        "cworkload",
        "machine",
        "memory_policy",
        "policy",
        "processes",
        "published",
        "trace",
        "workload",
    },
    {
        "cache_flags",
        "cache_geometry",
        "cache_record",
        "scheduler",
        "script",
        "sheaf",
        "slabinfo",
        "slabinfo_tool",
        "slabinfo_totals",
        "sysfs",
    },
    {
        "allocator",
        "allocator_control",
        "allocator_memory",
        "cache",
        "host_caches",
        "progress",
        "table",
    },
    {
        "calibration",
        "calibration_costs",
        "calibration_host",
        "closed_forms",
        "cost_screen",
        "recording",
    },
    {"result"},
    {"results"},
    {"run", "comparison", "reproduction", "fitted"},
    {"chapters", "explanation", "ablation", "timeline", "validation"},
    {"plot", "report", "reproduce", "reproduce_plot"},
    {"cli_reports"},
    {
        "cli",
        "cli_explain",
        "cli_list",
        "cli_options",
        "cli_reproduce",
        "cli_run",
        "cli_tools",
        "cli_validate",
    },
    {"__main__"},
]
# Methods that lead on to what is built on their class; imported when called.
LATER = {
    "result": {"results", "run"},
    "results": {"comparison", "plot"},
    "reproduction": {"report", "reproduce_plot"},
}


def python_modules() -> list[Path]:
    return sorted((ROOT / "slabq").glob("*.py"))


def layer_of(name: str) -> int:
    for layer, names in enumerate(LAYERS):
        if name in names:
            return layer
    raise AssertionError(f"slabq.{name} has no layer: add it to LAYERS")


def imported_modules(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "slabq":
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
            "slabq."
        ):
            names.add((node.module or "").split(".")[1])
    return names


@pytest.mark.parametrize("path", python_modules(), ids=lambda path: path.stem)
def test_a_module_imports_its_own_layer_and_below(path):
    if path.stem == "__init__":
        return
    known = {name for layer in LAYERS for name in layer}
    allowed = LATER.get(path.stem, set())

    for name in (imported_modules(path) & known) - allowed:
        assert layer_of(name) <= layer_of(path.stem), f"{path.stem} imports {name}"


def test_importing_slabq_loads_neither_plots_nor_compilers_nor_terminals():
    heavy = ["matplotlib", "cffi", "rich", "click", "pandas"]
    code = f"import sys, slabq; print([m for m in {heavy} if m in sys.modules])"

    out = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )

    assert out.stdout.strip() == "[]"
