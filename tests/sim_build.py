"""Compile the simulated machine with a driver in C, without Python, by any compiler."""

import json
import shutil
import subprocess
import tomllib
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
CSRC = ROOT / "csrc"
PER_MACHINE = {
    *(f"machine/{part}.c" for part in ("pages", "sched", "sched_sim")),
    *(f"workload/{part}.c" for part in ("env", "channel", "sync")),
}
WARNINGS = (
    "-Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Werror"
)


FOLDERS = ("base", "machine", "unit", "workload", "trace", "experiment")


def sources(driver: str) -> list[Path]:
    """Everything below the Python folder, and the driver."""
    parts = [
        path
        for folder in FOLDERS
        for path in sorted((CSRC / folder).glob("*.c"))
        if f"{folder}/{path.name}" not in PER_MACHINE
    ]
    return [*parts, ROOT / "tests" / driver]


def build(
    compiler: str, folder: Path, *flags: str, driver: str = "sim_driver.c"
) -> Path:
    """Compile and link; returns the program."""
    path = shutil.which(compiler)
    assert path is not None
    common = f"-std=c11 -D_GNU_SOURCE -g1 {WARNINGS}".split()
    common += ["-DSQ_ASSERT_LEVEL=2", f"-I{CSRC}", f"-I{CSRC / 'include'}", *flags]

    def compile_one(source: Path) -> str:
        target = folder / f"{source.parent.name}-{source.stem}.o"
        subprocess.run([path, *common, "-c", source, "-o", target], check=True)
        return str(target)

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compile_one, sources(driver)))
    program = folder / "driver"
    subprocess.run([path, *flags, *objects, "-o", program, "-pthread"], check=True)
    return program


def build_any(factory: pytest.TempPathFactory, driver: str) -> Path:
    """Build the driver with any compiler there is; skip the test without one."""
    for compiler in ("gcc", "clang", "cc"):
        if shutil.which(compiler):
            folder = factory.mktemp(driver.removesuffix(".c"))
            return build(compiler, folder, "-O1", driver=driver)
    pytest.skip("no C compiler is installed: none of gcc, clang and cc")


def preset_table(name: str) -> dict[str, dict[str, Any]]:
    """The cost table of a machine preset, with units and sources."""
    path = resources.files("slabq.data") / "machines" / f"{name}.toml"
    return tomllib.loads(path.read_text())["costs"]


def preset(name: str) -> dict[str, int]:
    """The values of a machine preset's cost table."""
    return {key: int(entry["value"]) for key, entry in preset_table(name).items()}


def run(program: Path, case: str, *words: str, **values: int) -> dict[str, Any]:
    """Run one case; raises CalledProcessError if it does not end well."""
    words += tuple(f"{name}={value}" for name, value in values.items())
    done = subprocess.run(
        [program, case, *words], check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout)
