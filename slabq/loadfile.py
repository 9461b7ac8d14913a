r"""A load file is what dbench and tbench replay: one client's operations, in order.

A line names an operation, a file by its path or its handle, and numbers; a time may
stand before it and a status behind it::

    NTCreateX "\clients\client1\TEST.DOC" 0x40 0x2 12120 SUCCESS
    WriteX 12120 65471 64 64 SUCCESS

What tbench moves for a line are two messages of known sizes.
"""

import functools
import io
import os
import re
import struct
from collections.abc import Callable, Sequence

from slabq.checks import read_limited
from slabq.errors import ParameterError

__all__ = ["read_loadfile", "step_of_line"]

BYTES_MAX = 1 << 24
FILE_BYTES_MAX = 1 << 28
_ENTRIES_MAX = 1 << 16
_WORD = re.compile(r'"([^"]*)"|(\S+)')
_TIME = re.compile(r"\d+\.\d+")

Words = Sequence[str]
# The sizes of an operation's request and response, from the words after its name.
_Sizes = Callable[[Words], tuple[int, int]]


def _number(words: Words, place: int, most: int) -> int:
    """Return the number at `place`; ValueError if there is none, or a bad one."""
    if place >= len(words):
        raise ValueError(f"word {place + 2} is missing")
    number = int(words[place], 0)
    if not 0 <= number <= most:
        raise ValueError(f"{number} is not in 0 to {most}")
    return number


def _name(words: Words, place: int = 0) -> int:
    if place >= len(words):
        raise ValueError(f"word {place + 2} is missing")
    return len(words[place].encode())


def _named(fixed: int, response: int) -> _Sizes:
    return lambda words: (fixed + 2 * _name(words), response)


def _plain(request: int, response: int) -> _Sizes:
    return lambda words: (request, response)


def _entries(words: Words) -> int:
    """Entries of a search: its fourth word, where a file has it."""
    return _number(words, 3, _ENTRIES_MAX) if len(words) > 3 else 0


_OPERATIONS: dict[str, _Sizes] = {
    "NTCREATEX": _named(72, 87),
    "CLOSE": _plain(47, 39),
    "RENAME": lambda words: (47 + 2 * (_name(words) + _name(words, 1)), 39),
    "UNLINK": _named(43, 39),
    "DELTREE": _named(43, 39),
    "MKDIR": _named(43, 39),
    "RMDIR": _named(43, 39),
    "QUERY_PATH_INFORMATION": _named(55, 71),
    "QUERY_FILE_INFORMATION": _plain(59, 71),
    "QUERY_FS_INFORMATION": _plain(59, 71),
    "SET_FILE_INFORMATION": _plain(71, 47),
    "FIND_FIRST": lambda words: (59 + 2 * _name(words), 39 + 90 * _entries(words)),
    "WRITEX": lambda words: (59 + _number(words, 2, BYTES_MAX), 55),
    "WRITE": lambda words: (59 + _number(words, 2, BYTES_MAX), 55),
    "READX": lambda words: (59, 59 + _number(words, 3, BYTES_MAX)),
    "LOCKX": _plain(51, 39),
    "UNLOCKX": _plain(51, 39),
    "FLUSH": _plain(41, 39),
}
# Waiting is no message.
_SILENT = {"SLEEP"}


def step_of_line(line: str) -> tuple[int, int] | None:
    r"""Sizes of the messages that one line of a load file stands for.

    Parameters
    ----------
    line : str
        The line.

    Returns
    -------
    tuple of (int, int) or None
        Bytes of the request and of the response; None for a line without an operation.

    Raises
    ------
    ValueError
        If the operation is not known, or lacks what its sizes follow from.

    Examples
    --------
    >>> step_of_line("ReadX 12120 0 65535 65536")
    (59, 65595)
    >>> step_of_line(r'NTCreateX "\clients" 0x1 0x2 12114 SUCCESS')
    (88, 87)
    """
    found = [quoted or bare for quoted, bare in _WORD.findall(line)]
    if found and _TIME.fullmatch(found[0]):
        found = found[1:]
    if not found or found[0].startswith("#") or found[0].upper() in _SILENT:
        return None
    sizes = _OPERATIONS.get(found[0].upper())
    if sizes is None:
        raise ValueError(f"operation {found[0]!r} is not known")
    return sizes(found[1:])


def read_loadfile(path: str) -> bytes:
    """Read a load file into the steps that the core takes.

    Parameters
    ----------
    path : str
        The file.

    Returns
    -------
    bytes
        Two 32-bit numbers a step: bytes of the request and of the response.

    Raises
    ------
    ParameterError
        If the file cannot be read, a line not understood, or there is no operation.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
    ...     print("Flush 12120", file=file, flush=True)
    ...     struct.unpack("=2I", read_loadfile(file.name))
    (41, 39)
    """
    try:
        status = os.stat(path)
        return _read(path, status.st_mtime_ns, status.st_size)
    except OSError as error:
        raise ParameterError(
            f"loadfile {path!r} cannot be read: {error.strerror}: accepted is a load "
            "file of dbench"
        ) from None


@functools.lru_cache(maxsize=4)
def _read(path: str, mtime_ns: int, size: int) -> bytes:
    """Read the file once for each of its versions."""
    steps = []
    data = io.BytesIO(read_limited(path, "loadfile", FILE_BYTES_MAX))
    for number, line in enumerate(io.TextIOWrapper(data, "utf-8", "replace"), 1):
        try:
            step = step_of_line(line)
        except ValueError as error:
            raise ParameterError(
                f"loadfile {path!r}, line {number}: {error}: accepted are the "
                "operations of dbench, each with its numbers"
            ) from None
        if step is not None:
            steps.append(struct.pack("=2I", *step))
    if not steps:
        raise ParameterError(
            f"loadfile {path!r} has no operation: accepted is a load file of dbench"
        )
    return b"".join(steps)
