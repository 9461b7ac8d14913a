#!/usr/bin/env python3
"""Everything a developer or a newcomer runs, with nothing to install first.

    python3 dev.py demo         set up and run the main job
    python3 dev.py test         set up and run the tests
    python3 dev.py help         the other tasks

Each task makes the virtual environment that it needs (.venv, or .venv-asan and
.venv-tsan for the sanitizers), builds slabq into it from this checkout, and runs there.
Needs Python 3.11 or later with its headers, and a C compiler.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent
COMPILERS = {
    ".venv-gcc": {"CC": "gcc"},
    ".venv-clang": {"CC": "clang"},
    ".venv-o0": {"SLABQ_CFLAGS": "-O0"},
}
WARNINGS = "-Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes"


def fail(message: str) -> None:
    """End with one line."""
    raise SystemExit(f"dev.py: {message}")


def run(*command: str | Path, env: dict[str, str] | None = None) -> None:
    """Run a command in the checkout; end with its status if it fails."""
    arguments = [str(part) for part in command]
    print("+", " ".join(arguments), flush=True)
    environment = {**os.environ, **(env or {})}
    status = subprocess.run(arguments, cwd=ROOT, env=environment).returncode
    if status != 0:
        raise SystemExit(status)


def newest_source() -> float:
    """Modification time of the newest file that goes into the package."""
    folders = ("csrc", "slabq")
    files = [path for name in folders for path in (ROOT / name).rglob("*")]
    files += [ROOT / "setup.py", ROOT / "pyproject.toml"]
    return max(path.stat().st_mtime for path in files if path.is_file())


def check_tools() -> None:
    """End with one line if something is missing that dev.py cannot set up."""
    if sys.version_info < (3, 11):  # noqa: UP036 - a newcomer may have an older one
        fail(f"Python is {sys.version.split()[0]}: accepted is 3.11 or later")
    compiler = os.environ.get("CC", "cc").split()[0]
    if shutil.which(compiler) is None:
        fail(f"no C compiler named {compiler}: install one, or set CC")
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        fail("the headers of this Python are missing (Debian: python3-dev)")


def make_venv(folder: Path, with_pip: bool) -> None:
    """Make an empty virtual environment."""
    try:
        venv.create(folder, with_pip=with_pip, symlinks=True)
    except subprocess.CalledProcessError:
        fail("this Python cannot make a virtual environment (Debian: python3-venv)")


def environment(with_tools: bool = True) -> Path:
    """Make .venv, or bring it up to date with this checkout; its bin folder.

    The tools (pytest, ruff, mypy and so on) are left out of what only runs slabq.
    """
    check_tools()
    folder = ROOT / ".venv"
    stamp, tools = folder / "slabq-installed", folder / "tools-installed"
    pyproject = ROOT / "pyproject.toml"
    python = folder / "bin" / "python"
    pip = (python, "-m", "pip", "--disable-pip-version-check", "-q", "install")
    if not python.exists():
        make_venv(folder, with_pip=True)
        run(*pip, "--upgrade", "pip")  # older ones know no groups
    if not is_newer(stamp, newest_source()):
        # Only a changed pyproject.toml can have changed what slabq depends on.
        known = is_newer(stamp, pyproject.stat().st_mtime)
        again = ("--force-reinstall", "--no-deps") if known else ()
        run(*pip, *again, fresh_source())
        stamp.touch()
    if with_tools and not is_newer(tools, pyproject.stat().st_mtime):
        run(*pip, "--group", "dev", "pandas>=2")
        tools.touch()
    return folder / "bin"


def is_newer(stamp: Path, time: float) -> bool:
    """Tell whether a stamp is there and newer than a time."""
    return stamp.exists() and stamp.stat().st_mtime > time


def fresh_source() -> Path:
    """Return the checkout, without objects of another compiler or sanitizer in it."""
    shutil.rmtree(ROOT / "build", ignore_errors=True)
    return ROOT


def other_build(name: str, env: dict[str, str]) -> Path:
    """Make an environment with another build of slabq over the packages of .venv."""
    base = environment()
    folder = ROOT / name
    python = folder / "bin" / "python"
    stamp = folder / "slabq-installed"
    if not python.exists():
        make_venv(folder, with_pip=False)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = Path("lib", version, "site-packages")
    (folder / packages / "base.pth").write_text(f"{base.parent / packages}\n")
    if not stamp.exists() or stamp.stat().st_mtime < newest_source():
        pip = (base / "python", "-m", "pip", "--python", python, "-q", "install")
        again = ("--force-reinstall", "--no-deps")
        run(*pip, *again, fresh_source(), env=env)
        stamp.touch()
    return folder / "bin"


def demo(*arguments: str) -> None:
    """Set up, then run the bundled trace and a hackbench under every policy."""
    run(environment(with_tools=False) / "slabq", "demo", *arguments)


def test(*arguments: str) -> None:
    """Set up, then run the tests (arguments go to pytest)."""
    run(environment() / "pytest", "-m", "not slow and not notebooks", *arguments)


def slow(*arguments: str) -> None:
    """Run the campaigns that take minutes."""
    run(environment() / "pytest", "-m", "slow", "--timeout=1800", *arguments)


def notebooks(*arguments: str) -> None:
    """Run the notebooks (or those with TEXT in the name); --write keeps the outputs."""
    write = {"SLABQ_WRITE_NOTEBOOKS": "1" if "--write" in arguments else "0"}
    chosen = [part for text in arguments if text != "--write" for part in ("-k", text)]
    pytest = (environment() / "pytest", "-m", "notebooks", "--durations=0")
    run(*pytest, "tests/test_notebooks.py", *chosen, env=write)


def lint(*_: str) -> None:
    """Ruff, mypy --strict, and a build with every warning an error, gcc and clang."""
    binary = environment()
    run(binary / "ruff", "check", ".")
    run(binary / "ruff", "format", "--check", ".")
    run(binary / "mypy")
    for compiler in ("gcc", "clang"):
        if shutil.which(compiler) is None:
            print(f"dev.py: {compiler} is not installed, its build is left out")
            continue
        env = {"CC": compiler, "SLABQ_CFLAGS": "-Werror " + WARNINGS}
        target = ROOT / "build" / f"lint-{compiler}"
        run(binary / "python", "-m", "pip", "-q", "install", "setuptools", "wheel")
        command = ("setup.py", "-q", "build_ext", "--build-lib", str(target))
        temporary = ("--build-temp", str(target))
        run(binary / "python", *command, *temporary, env=env)


def compiler_file(name: str) -> str:
    """Return the path of a library that comes with the compiler."""
    compiler = os.environ.get("CC", "gcc")
    command = [compiler, f"-print-file-name={name}"]
    path = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    if not os.path.isabs(path):
        fail(f"{compiler} has no {name}")
    return path


def sanitized(kind: str, library: str, options: dict[str, str], *tests: str) -> None:
    """Run tests on an instrumented build."""
    binary = other_build(f".venv-{library[3:7]}", {"SLABQ_SANITIZE": kind})
    env = {**preloaded(library), "SLABQ_SANITIZED": kind, **options}
    pytest = ("-P", "-m", "pytest", "-q", "-p", "no:cacheprovider")
    run(binary / "python", *pytest, *tests, env=env)


def preloaded(library: str) -> dict[str, str]:
    """Return what an interpreter needs that loads an instrumented build."""
    # With libstdc++ in place, the sanitizer finds the C++ exceptions of other packages.
    files = [compiler_file(library), compiler_file("libstdc++.so.6")]
    return {"LD_PRELOAD": " ".join(files)}


def asan_environment() -> dict[str, str]:
    """Return what a program needs that runs on the build of `asan`."""
    options = {
        "ASAN_OPTIONS": "detect_leaks=0,detect_stack_use_after_return=0",
        "UBSAN_OPTIONS": "print_stacktrace=1,halt_on_error=1",
    }
    return {**preloaded("libasan.so"), **options}


def asan(*arguments: str) -> None:
    """Run the tests under AddressSanitizer and UndefinedBehaviorSanitizer."""
    tests = arguments or ("-m", "not slow and not notebooks and not unsanitized")
    sanitized("address", "libasan.so", asan_environment(), "--timeout=600", *tests)


def tsan(*arguments: str) -> None:
    """Run the threaded tests under ThreadSanitizer."""
    options = {"TSAN_OPTIONS": "halt_on_error=1,second_deadlock_stack=1"}
    tests = arguments or ("-m", "threads and not slow and not unsanitized")
    sanitized("thread", "libtsan.so", options, "--timeout=600", *tests)


def oracle(*arguments: str) -> None:
    """Run the recordings of real kernels again: all, or --only TEXT; --show N."""
    run(environment() / "python", "-P", "tests/oracle_suite.py", *arguments)


def check_compilers() -> None:
    """End with one line if a compiler of `COMPILERS` is not there."""
    for env in COMPILERS.values():
        name = env.get("CC", "cc")
        if shutil.which(name) is None:
            fail(f"{name} is not installed")


def compilers(*arguments: str) -> None:
    """Run the recordings with builds by gcc, by clang, and without optimisation."""
    check_compilers()
    for name, env in COMPILERS.items():
        python = other_build(name, env) / "python"
        run(python, "-P", "tests/oracle_suite.py", *arguments)


def fingerprints(*_: str) -> None:
    """Compare simulated runs event by event: gcc, clang, gcc -O0, AddressSanitizer."""
    script = "tests/fingerprints.py"
    builds: dict[str, tuple[dict[str, str], dict[str, str]]] = {
        **{name: (env, {}) for name, env in COMPILERS.items()},
        ".venv-asan": ({"SLABQ_SANITIZE": "address"}, asan_environment()),
    }
    check_compilers()
    with tempfile.TemporaryDirectory(prefix="slabq-") as folder:
        wanted = Path(folder) / "fingerprints.txt"
        for name, (env, run_env) in builds.items():
            python = other_build(name, env) / "python"
            if wanted.exists():
                run(python, "-P", script, wanted, env=run_env)
            else:
                run(python, "-P", script, "--write", wanted, env=run_env)


def fuzz(*arguments: str) -> None:
    """Run random scripts on every policy (--steps N, --seed S, --policy P)."""
    run(environment() / "python", "tests/property/campaign.py", *arguments)


def bench(*arguments: str) -> None:
    """Run the benchmarks beside their peers (benchmarks/README.md)."""
    python = environment() / "python"
    run(python, "benchmarks/native.py", *arguments)
    run(python, "benchmarks/bench_trace.py")


def format(*_: str) -> None:
    """Format Python with ruff and C with clang-format."""
    binary = environment()
    run(binary / "ruff", "check", "--fix", ".")
    run(binary / "ruff", "format", ".")
    if shutil.which("clang-format"):
        files = [*(ROOT / "csrc").rglob("*.c"), *(ROOT / "csrc").rglob("*.h")]
        run("clang-format", "-i", *files)


def clean(*_: str) -> None:
    """Remove environments and everything that was built."""
    for pattern in (".venv*", "build", "*.egg-info", "slabq/*.so"):
        for path in ROOT.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


TASKS = (
    demo,
    test,
    slow,
    notebooks,
    lint,
    asan,
    tsan,
    fuzz,
    oracle,
    compilers,
    fingerprints,
    bench,
    format,
    clean,
)


def main() -> None:
    """Run the task that is named."""
    names = {task.__name__: task for task in TASKS}
    name = sys.argv[1] if len(sys.argv) > 1 else "help"
    if name in names:
        names[name](*sys.argv[2:])
        return
    print((__doc__ or "").strip(), "\n")
    width = max(map(len, names)) + 2
    for task in TASKS:
        print(f"  {task.__name__:<{width}}{(task.__doc__ or '').strip()}")
    if name not in ("help", "-h", "--help"):
        fail(f"task is {name}: accepted are {', '.join(names)}")


if __name__ == "__main__":
    main()
