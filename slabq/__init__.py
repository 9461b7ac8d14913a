"""A laboratory for slab allocators: SLAB, SLUB, SLUB+Q and sheaves side by side."""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

# First of all: what follows takes time, in which a user may press Ctrl-C.
import slabq.interrupt as _interrupt  # noqa: F401
from slabq.allocator import Allocator
from slabq.cache import Cache, Leaks, Place
from slabq.cache_geometry import geometry
from slabq.debugging import Finding, Report
from slabq.errors import (
    CorruptionError,
    Error,
    OutOfMemory,
    ParameterError,
    TraceFormatError,
)
from slabq.host_caches import HostCache, HostComparison, compare_host
from slabq.machine import Machine, host, machine_presets, read_machine
from slabq.memory_policy import MemoryPolicy
from slabq.policy import (
    KernelProfile,
    Policy,
    Sheaves,
    Slab,
    Slub,
    SlubQ,
    kernel_profiles,
    policy_names,
    policy_options,
)
from slabq.published import PublishedTable, published_tables
from slabq.reproduce import reproduce
from slabq.reproduction import Reproduction
from slabq.result import Result
from slabq.results import Results, load
from slabq.run import replay, run, sweep
from slabq.script import execute
from slabq.sheaf import Sheaf
from slabq.version import __version__
from slabq.workload import Workload, workload_kinds

if _TYPE_CHECKING:
    from slabq.ablation import Ablation, ablate
    from slabq.calibration import Calibration, calibrate
    from slabq.cworkload import compile_workload, get_include
    from slabq.explanation import Explanation, explain
    from slabq.plot import plot_comparison, plot_latency, plot_locks
    from slabq.recording import Recording, record
    from slabq.table import Table
    from slabq.timeline import save_timeline
    from slabq.trace import Stat, Trace, bundled_trace_path, read_trace
    from slabq.validation import Validation, validate

__all__ = [
    "Ablation",
    "Allocator",
    "Cache",
    "Calibration",
    "CorruptionError",
    "Error",
    "Explanation",
    "Finding",
    "HostCache",
    "HostComparison",
    "KernelProfile",
    "Leaks",
    "Machine",
    "MemoryPolicy",
    "OutOfMemory",
    "ParameterError",
    "Place",
    "Policy",
    "PublishedTable",
    "Recording",
    "Report",
    "Reproduction",
    "Result",
    "Results",
    "Sheaf",
    "Sheaves",
    "Slab",
    "Slub",
    "SlubQ",
    "Stat",
    "Table",
    "Trace",
    "TraceFormatError",
    "Validation",
    "Workload",
    "__version__",
    "ablate",
    "bundled_trace_path",
    "calibrate",
    "compare_host",
    "compile_workload",
    "execute",
    "explain",
    "geometry",
    "get_include",
    "host",
    "kernel_profiles",
    "load",
    "machine_presets",
    "plot_comparison",
    "plot_latency",
    "plot_locks",
    "policy_names",
    "policy_options",
    "published_tables",
    "read_machine",
    "read_trace",
    "record",
    "replay",
    "reproduce",
    "run",
    "save_timeline",
    "sweep",
    "validate",
    "workload_kinds",
]

# Names whose modules import numpy, matplotlib or cffi: found when first asked for.
_LAZY = {
    "Ablation": "slabq.ablation",
    "Calibration": "slabq.calibration",
    "Explanation": "slabq.explanation",
    "Recording": "slabq.recording",
    "Stat": "slabq.trace",
    "Table": "slabq.table",
    "Trace": "slabq.trace",
    "Validation": "slabq.validation",
    "ablate": "slabq.ablation",
    "bundled_trace_path": "slabq.trace",
    "calibrate": "slabq.calibration",
    "compile_workload": "slabq.cworkload",
    "explain": "slabq.explanation",
    "get_include": "slabq.cworkload",
    "plot_comparison": "slabq.plot",
    "plot_latency": "slabq.plot",
    "plot_locks": "slabq.plot",
    "read_trace": "slabq.trace",
    "record": "slabq.recording",
    "save_timeline": "slabq.timeline",
    "validate": "slabq.validation",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'slabq' has no attribute {name!r}")
    value: object = getattr(_import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
