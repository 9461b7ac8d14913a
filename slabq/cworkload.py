"""A C workload is a file of the user's own, compiled against slabq/workload.h.

The compiler makes a shared object of it; cffi loads it and finds its one
``struct sq_workload``. The object stays loaded as long as the process lives, since a
run may use it at any time; a file that has changed is compiled and loaded anew.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path

import cffi

from slabq import _core
from slabq.checks import read_limited
from slabq.errors import ParameterError
from slabq.workload import C_PREFIX, Kind, Parameter, Workload

__all__ = ["compile_workload", "compiled_kind", "get_include"]

# A task's stack is 64 KiB; what calls a policy is to leave it half.
FRAME_BYTES_MAX = 32768
_COMPILE_FLAGS = (
    "-std=gnu11",
    "-O2",
    "-g",
    "-fPIC",
    "-shared",
    "-Wl,--no-undefined",
    # What C lets pass here is a crash later.
    "-Werror=implicit-function-declaration",
    "-Werror=int-conversion",
    "-Werror=incompatible-pointer-types",
    f"-Wframe-larger-than={FRAME_BYTES_MAX}",
)
_COMPILE_SECONDS_MAX = 120
# Names that `slabq.run` has for itself.
_TAKEN = {"workload", "policy", "machine", "engine", "kernel", "seed", "repeat"}
_TAKEN |= {"progress", "executor"}
_TEXT_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_DEFINITION = re.compile(r"\bstruct\s+sq_workload\s+(\w+)\s*=")


class _Loaded:
    """One version of a file: its kind, and the library that must stay loaded."""

    def __init__(self, digest: str, kind: Kind, library: object) -> None:
        self.digest, self.kind, self.library = digest, kind, library


_loaded: dict[str, _Loaded] = {}


def get_include() -> str:
    """Folder of the C headers: ``#include "slabq/workload.h"`` is found from there.

    Returns
    -------
    str

    Examples
    --------
    >>> (Path(get_include()) / "slabq" / "workload.h").is_file()
    True
    """
    package = Path(__file__).resolve().parent
    installed = package / "include"
    if (installed / "slabq" / "workload.h").is_file():
        return str(installed)
    return str(package.parent / "csrc" / "include")  # a checkout


def compile_workload(path: str | os.PathLike[str]) -> Workload:
    r"""Compile a workload of your own, written in C on slabq/workload.h.

    Parameters
    ----------
    path : str or path-like
        The C file. It defines one ``struct sq_workload`` that is not static; the header
        says how. The compiler is ``$CC``, or ``cc``.

    Returns
    -------
    Workload
        For `run` and `sweep`, with the file's own parameters at their defaults. Its
        name, ``c:`` and the path, stands for the same everywhere.

    Raises
    ------
    ParameterError
        If there is no such file or no compiler, if the file does not compile, defines
        no workload or more than one, or one that cannot be run: of another ABI, without
        a setup function, or with parameters that contradict themselves.

    Notes
    -----
    The code runs inside this process, so a wild pointer in it ends the process.

    Examples
    --------
    >>> source = '''
    ... #include "slabq/workload.h"
    ... static void *setup(const struct sq_env *env, sq_task *task, const int64_t *v)
    ... {
    ...     for (int64_t i = 0; i < v[0]; i++)
    ...         env->kfree(task, env->kmalloc(task, 100));
    ...     env->progress(task, (uint64_t)v[0]);
    ...     return NULL;
    ... }
    ... static const struct sq_workload_parameter parameters[] = {
    ...     {"pairs", 10, 1, 1000, "how many"},
    ... };
    ... const struct sq_workload toy = {
    ...     .abi = SQ_WORKLOAD_ABI, .name = "toy", .rate_unit = "pairs/s",
    ...     .parameters = parameters, .parameter_count = 1, .setup = setup,
    ... };
    ... '''
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "toy.c"
    ...     _ = file.write_text(source)
    ...     toy = compile_workload(file)
    ...     toy.parameters["pairs"]
    10
    """
    return Workload(C_PREFIX + os.fspath(path))


def compiled_kind(name: str) -> Kind:
    """Return the kind of workload that ``c:FILE.c`` stands for, compiled if need be.

    Parameters
    ----------
    name : str
        ``c:`` and the path of the file.

    Returns
    -------
    Kind

    Raises
    ------
    ParameterError
        As `compile_workload` does.
    """
    path = Path(name.removeprefix(C_PREFIX))
    key = str(path.absolute())
    try:
        source = read_limited(path, "C file")
    except OSError as error:
        if key in _loaded:  # the file is gone, the program is not
            return _loaded[key].kind
        raise ParameterError(
            f"workload {name!r} cannot be read: {error.strerror}: accepted is c: and a "
            "C file"
        ) from None
    digest = hashlib.sha256(source).hexdigest()
    if key not in _loaded or _loaded[key].digest != digest:
        library, address = _load(name, path, source.decode(errors="replace"))
        _loaded[key] = _Loaded(digest, _kind_of(name, address), library)
    return _loaded[key].kind


def _definition_of(name: str, source: str) -> str:
    """Name of the one workload that `source` defines."""
    code = _TEXT_OR_COMMENT.sub(" ", source)
    found = list(dict.fromkeys(_DEFINITION.findall(code)))
    if len(found) != 1:
        listed = f"{len(found)} ({', '.join(found)})" if found else "none"
        raise ParameterError(
            f"workload {name!r} defines {listed}: accepted is a file that defines one "
            "struct sq_workload"
        )
    return str(found[0])


def _load(name: str, path: Path, source: str) -> tuple[object, int]:
    """Compile and load; return the library and the address of its workload."""
    symbol = _definition_of(name, source)
    ffi = cffi.FFI()
    ffi.cdef(f"extern char {symbol}[];")
    with tempfile.TemporaryDirectory(prefix="slabq-") as folder:
        target = Path(folder) / "workload.so"
        _compile(name, path, target)
        try:
            library = ffi.dlopen(str(target), ffi.RTLD_NOW | ffi.RTLD_LOCAL)
        except OSError as error:
            raise ParameterError(
                f"workload {name!r} cannot be loaded: {error}: accepted is C that "
                "needs the C library alone"
            ) from None
    try:
        return library, int(ffi.cast("uintptr_t", getattr(library, symbol)))
    except (AttributeError, KeyError):
        raise ParameterError(
            f"workload {name!r} has no symbol {symbol!r}: accepted is a struct "
            "sq_workload that is not static"
        ) from None


def _compile(name: str, path: Path, target: Path) -> None:
    compiler = shlex.split(os.environ.get("CC", "")) or ["cc"]
    if shutil.which(compiler[0]) is None:
        raise ParameterError(
            f"workload {name!r} needs a C compiler and {compiler[0]!r} is none: "
            "accepted is one named cc or in $CC"
        )
    command = [*compiler, *_COMPILE_FLAGS, f"-I{get_include()}", "-o", str(target)]
    try:
        done = subprocess.run(
            [*command, str(path.absolute()), "-lm"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_COMPILE_SECONDS_MAX,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ParameterError(
            f"workload {name!r} cannot be compiled: {error}: accepted is one that "
            f"compiles within {_COMPILE_SECONDS_MAX} s"
        ) from None
    if done.returncode != 0 or "frame-larger-than" in done.stderr:
        message = _first_message(done.stderr, path)
        raise ParameterError(
            f"workload {name!r} does not compile (accepted is C11 on "
            f"slabq/workload.h): {message}"
        )
    if done.stderr:
        warnings.warn(f"{name}: {_first_message(done.stderr, path)}", stacklevel=2)


def _first_message(text: str, path: Path) -> str:
    """Return the compiler's first complaint, with the file's own name for its path."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for mark in ("undefined reference", "error:", "frame", "warning:"):
        for line in lines:
            if mark in line:
                return line.replace(str(path.absolute()), path.name)
    return lines[0] if lines else "the compiler says nothing"


def _kind_of(name: str, address: int) -> Kind:
    """Describe the workload at `address`, which the core checks first."""
    try:
        _, about, rows = _core.describe_workload(address)
    except ParameterError as error:
        raise ParameterError(f"workload {name!r}: {error}") from None
    for row in rows:
        if row[0] in _TAKEN:
            raise ParameterError(
                f"workload {name!r} has a parameter {row[0]!r}: accepted are names "
                f"that a run does not have itself ({', '.join(sorted(_TAKEN))})"
            )
    parameters = {row[0]: Parameter(name, *row) for row in rows}
    return Kind(name, about or "a workload of your own", parameters, address)
