"""Builds the one extension module, slabq._core, from csrc/.

Environment variables:
SLABQ_SANITIZE      `address` (with undefined behaviour) or `thread`: instrumented build
SLABQ_ASSERT_LEVEL  0 to 3, see csrc/base/sq_assert.h (default 1; 3 when sanitizing)
SLABQ_CFLAGS        further compiler flags
"""

import os
import shlex
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
CSRC = Path("csrc")
# Policies, and what is written on machine.h, are compiled through the short files of
# unit/ only: once for each machine.
PER_MACHINE = {
    *(f"csrc/machine/{part}.c" for part in ("pages", "sched", "sched_sim")),
    *(f"csrc/workload/{part}.c" for part in ("env", "channel", "sync")),
}
FOLDERS = ("base", "machine", "unit", "workload", "trace", "experiment", "python")


def sources() -> list[str]:
    return sorted(
        str(path.relative_to(ROOT))
        for folder in FOLDERS
        for path in (ROOT / CSRC / folder).glob("*.c")
        if str(path.relative_to(ROOT)) not in PER_MACHINE
    )


def headers() -> list[str]:
    depends = [*(ROOT / CSRC).rglob("*.h"), *(ROOT / CSRC).rglob("*.c")]
    return sorted(str(path.relative_to(ROOT)) for path in depends)


def flags() -> tuple[list[str], list[str]]:
    compile_flags = ["-std=c11", "-D_GNU_SOURCE", "-fvisibility=hidden", "-g1"]
    compile_flags += ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow"]
    compile_flags += ["-Wstrict-prototypes", "-Wmissing-prototypes"]
    link_flags = ["-pthread"]
    sanitize = os.environ.get("SLABQ_SANITIZE", "")
    level = os.environ.get("SLABQ_ASSERT_LEVEL", "3" if sanitize else "1")
    compile_flags.append(f"-DSQ_ASSERT_LEVEL={level}")
    if sanitize:
        kinds = {"address": "address,undefined", "thread": "thread"}[sanitize]
        compile_flags += [f"-fsanitize={kinds}", "-fno-omit-frame-pointer", "-O1"]
        link_flags.append(f"-fsanitize={kinds}")
        if sanitize == "address":
            compile_flags.append("-fno-sanitize-recover=undefined")
    else:
        compile_flags.append("-O2")
    compile_flags += shlex.split(os.environ.get("SLABQ_CFLAGS", ""))
    return compile_flags, link_flags


class BuildPyWithHeaders(build_py):
    """Puts the public headers into the package: slabq.get_include() is their folder.

    A checkout, editable or built in place, uses csrc/include itself.
    """

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib) / "slabq" / "include" / "slabq"
            target.mkdir(parents=True, exist_ok=True)
            for header in (ROOT / CSRC / "include" / "slabq").glob("*.h"):
                self.copy_file(str(header), str(target / header.name))


compile_flags, link_flags = flags()
setup(
    cmdclass={"build_py": BuildPyWithHeaders},
    ext_modules=[
        Extension(
            "slabq._core",
            sources=sources(),
            depends=headers(),
            include_dirs=["csrc", "csrc/include"],
            define_macros=[("Py_LIMITED_API", "0x030B0000")],
            extra_compile_args=compile_flags,
            extra_link_args=link_flags,
            py_limited_api=True,
        )
    ],
    options={
        "bdist_wheel": {"py_limited_api": "cp311"},
        "build_ext": {"parallel": os.cpu_count() or 1},
    },
)
