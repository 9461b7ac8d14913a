"""C workloads for the tests, compiled with cffi against the public header."""

import importlib.util
import itertools
import tempfile
from pathlib import Path
from types import ModuleType

import cffi

INCLUDE = Path(__file__).resolve().parent.parent / "csrc" / "include"
_numbers = itertools.count()

PARAMETERS = """
static const struct sq_workload_parameter parameters[] = {
    {"tasks", 4, 1, 100000, "how many"}, {"loops", 100, 0, 1000000000, "of each"},
    {"extra", 0, -1000000, 1000000000, "as the test likes"},
};
static int64_t tasks, loops, extra;
static void *setup(const struct sq_env *env, sq_task *task, const int64_t *values)
{
    tasks = values[0];
    loops = values[1];
    extra = values[2];
    return prepare(env, task);
}
const struct sq_workload test_workload = {
    .abi = ABI, .name = "test", .help = "of a test", .rate_unit = "loops/s",
    .parameters = parameters, .parameter_count = 3, .setup = setup,
};
static uintptr_t address(void) { return (uintptr_t)&test_workload; }
"""


class CompiledWorkload:
    """A workload made of C source that defines `prepare` and what it needs."""

    def __init__(self, source: str, abi: str = "SQ_WORKLOAD_ABI"):
        ffi = cffi.FFI()
        ffi.cdef("uintptr_t address(void); extern int64_t result[8];")
        name = f"_test_workload_{next(_numbers)}"
        head = '#include <string.h>\n#include "slabq/workload.h"\nint64_t result[8];\n'
        declare = "static int64_t tasks, loops, extra;\n"
        declare += "static void *prepare(const struct sq_env *env, sq_task *task);\n"
        text = head + declare + PARAMETERS.replace("ABI,", abi + ",", 1) + source
        ffi.set_source(name, text, include_dirs=[str(INCLUDE)])
        with tempfile.TemporaryDirectory(prefix="slabq-test-") as folder:
            self.lib = _load(name, ffi.compile(tmpdir=folder)).lib
        self.address = self.lib.address()

    @property
    def result(self) -> list[int]:
        return list(self.lib.result)


def _load(name: str, path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
