"""The exceptions of slabq: what was wrong, in one line a person can act on."""

__all__ = [
    "CorruptionError",
    "Error",
    "OutOfMemory",
    "ParameterError",
    "TraceFormatError",
]


class Error(Exception):
    """Base of every exception that slabq raises on purpose."""


class ParameterError(Error, ValueError):
    """A value that is not accepted; the message names it and what would be."""


class TraceFormatError(Error, ValueError):
    """A file that is not a kmem trace, or one that is cut off or damaged."""


class CorruptionError(Error):
    """A structure, or a pointer handed in, that cannot be what it should be."""


class OutOfMemory(Error, MemoryError):  # noqa: N818 - the name is part of the interface
    """No allowed node of the machine has the pages that were asked for."""
