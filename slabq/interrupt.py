"""Ctrl-C while the command is still being imported: one line, as at any later time.

Importing this module prepares it, so it is imported first, before what takes time.
"""

import os
import sys
from collections.abc import Sequence
from types import TracebackType

__all__ = ["is_command", "prepare_interrupts"]

STATUS_INTERRUPTED = 130


def is_command(words: Sequence[str]) -> bool:
    """Tell whether a process with these words is the command ``slabq``.

    Parameters
    ----------
    words : sequence of str
        Of the whole command line, the interpreter first.

    Returns
    -------
    bool

    Examples
    --------
    >>> is_command(["python3", "-m", "slabq", "run"])
    True
    >>> is_command(["python3", "slabq.py"])
    False
    """
    rest = iter(words[1:])
    for word in rest:
        if word == "-m":
            return next(rest, "") == "slabq"
        if not word.startswith("-"):
            return os.path.basename(word) == "slabq"
        if word in ("-X", "-W"):
            next(rest, "")
    return False


def prepare_interrupts() -> None:
    """Have an interrupt that nobody catches end the command in one line.

    In any other program nothing changes.

    Examples
    --------
    >>> prepare_interrupts()
    """
    if is_command(sys.orig_argv):
        sys.excepthook = _end


def _end(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, traceback)
        return
    os.write(2, b"slabq: interrupted\n")
    os._exit(STATUS_INTERRUPTED)


prepare_interrupts()
