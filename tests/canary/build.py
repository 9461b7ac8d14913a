"""Compiles the canaries: the whole core, with every native policy broken on purpose.

The recipe is setup.py's own. The unit of a policy is replaced by the canary that
includes the same source, and the registry is compiled with the canary's name in place
of the policy's; no line of the product knows of this.
"""

import os
import runpy
import shlex
import shutil
import subprocess
import sys
import sysconfig
import types
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent.parent
CANARY = ROOT / "tests" / "canary"
# Names of the policies' symbols and units.
POLICIES = {"slab": "slab", "slub": "slub", "slub+q": "slubq", "sheaves": "sheaves"}


def why_not() -> str | None:
    """Say why the canaries cannot be compiled here, or None if they can."""
    compiler = shlex.split(os.environ.get("CC", "cc"))[0]
    if shutil.which(compiler) is None:
        return f"no C compiler named {compiler}"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "the headers of this Python are missing"
    return None


def recipe() -> dict[str, Any]:
    """Return what setup.py would hand to setuptools of its one extension."""
    found: list[dict[str, Any]] = []
    setuptools = types.ModuleType("setuptools")
    setuptools.Extension = lambda name, **rest: found.append(rest)  # type: ignore
    setuptools.setup = lambda **rest: None  # type: ignore
    build_py = types.ModuleType("setuptools.command.build_py")
    build_py.build_py = object  # type: ignore
    command = types.ModuleType("setuptools.command")
    names = ("setuptools", "setuptools.command", "setuptools.command.build_py")
    stubs = dict(zip(names, (setuptools, command, build_py), strict=True))
    with mock.patch.dict(sys.modules, stubs):
        runpy.run_path(str(ROOT / "setup.py"))
    (extension,) = found
    return extension


def compile_canaries(folder: Path) -> Path:
    """Compile into `folder`; the file of the extension module."""
    extension = recipe()
    compiler = shlex.split(os.environ.get("CC", "cc"))
    flags = ["-std=c11", "-D_GNU_SOURCE", "-fPIC", "-fvisibility=hidden", "-O0", "-w"]
    # A failed assertion would end the process before the model can say what is wrong.
    flags += ["-DSQ_ASSERT_LEVEL=0", "-pthread", f"-I{CANARY}"]
    flags += [f"-D{name}={value}" for name, value in extension["define_macros"]]
    flags += [f"-I{ROOT / path}" for path in extension["include_dirs"]]
    flags += ["-I" + sysconfig.get_path("include")]
    units = {f"csrc/unit/{name}_native.c" for name in POLICIES.values()}
    registry = "csrc/unit/registry.c"
    assert units | {registry} <= set(extension["sources"])
    renamed = [f"-Dsq_{name}_native=canary_{name}" for name in POLICIES.values()]
    target = folder / "registry.o"
    command = [*compiler, *flags, *renamed, "-c", str(ROOT / registry)]
    subprocess.run([*command, "-o", str(target)], check=True)
    rest = sorted(set(extension["sources"]) - units - {registry})
    sources = [str(ROOT / path) for path in rest]
    sources += [str(CANARY / f"canary_{name}.c") for name in POLICIES.values()]
    library = folder / "_core.so"
    command = [*compiler, *flags, "-shared", *sources, str(target)]
    subprocess.run([*command, "-o", str(library)], check=True)
    return library
