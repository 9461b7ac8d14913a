"""A laboratory for slab allocators: SLAB, SLUB, SLUB+Q and sheaves side by side."""

from slabq.errors import (
    CorruptionError,
    Error,
    OutOfMemory,
    ParameterError,
    TraceFormatError,
)

__all__ = [
    "CorruptionError",
    "Error",
    "OutOfMemory",
    "ParameterError",
    "TraceFormatError",
]
