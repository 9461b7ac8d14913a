"""Checks of values handed in: each refusal is one line that says what is accepted."""

import difflib
import operator
import os
import re
from collections.abc import Iterable, Sequence

from slabq.errors import ParameterError

__all__ = [
    "check_debug",
    "closest_first",
    "decimal_or_text",
    "list_known",
    "read_limited",
    "require_bytes",
    "require_choice",
    "require_flag",
    "require_int",
    "require_switch",
    "shown",
]

FILE_BYTES_MAX = 1 << 24  # of a file that is never large
KNOWN_MAX = 12  # names listed in a message
SHOWN_MAX = 100  # characters of a value in a message
DIGITS_MAX = 100  # more are no number that anything accepts
_SWITCH_WORDS = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


def decimal_or_text(text: str) -> int | str:
    """Read a whole number in decimal, as people write one.

    Parameters
    ----------
    text : str
        What was given.

    Returns
    -------
    int or str
        The number; or the text as it is, for the owner of the value to refuse: with a
        prefix such as 0x, underscores, blanks or a 0 in front it is none.

    Examples
    --------
    >>> [decimal_or_text(text) for text in ("-16", "0x10", "1_0", "010")]
    [-16, '0x10', '1_0', '010']
    """
    is_number = re.fullmatch(r"[+-]?(0|[1-9][0-9]*)", text) is not None
    return int(text) if is_number and len(text) <= DIGITS_MAX else text


def shown(value: object) -> str:
    """Write a value for a message, of a long one the beginning.

    Parameters
    ----------
    value : object
        What was given.

    Returns
    -------
    str
        Its representation; of a very large int that in base 16.

    Examples
    --------
    >>> shown("slubb")
    "'slubb'"
    """
    is_huge = isinstance(value, int) and value.bit_length() > 4 * SHOWN_MAX
    text = hex(value) if isinstance(value, int) and is_huge else repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


def closest_first(word: str, known: Iterable[str]) -> list[str]:
    """Sort `known` by likeness to `word`, the most alike first.

    Parameters
    ----------
    word : str
        What was written.
    known : iterable of str
        What could have been meant.

    Returns
    -------
    list of str
        All of `known`; equally alike names keep their order.

    Examples
    --------
    >>> closest_first("slubq", ["slab", "slub", "slub+q"])
    ['slub+q', 'slub', 'slab']
    """

    def likeness(name: str) -> float:
        return difflib.SequenceMatcher(None, word.lower(), name.lower()).ratio()

    return sorted(known, key=likeness, reverse=True)


def require_choice(what: str, value: object, known: Sequence[str]) -> str:
    """Return `value` if it is one of `known`.

    Parameters
    ----------
    what : str
        What the value names, for the message.
    value : object
        What was given.
    known : sequence of str
        The accepted names.

    Returns
    -------
    str
        `value`.

    Raises
    ------
    ParameterError
        Otherwise; the message lists the known names, the closest first.

    Examples
    --------
    >>> require_choice("engine", "native", ["native"])
    'native'
    """
    if isinstance(value, str) and value in known:
        return value
    raise ParameterError(
        f"unknown {what} {shown(value)}: known are {list_known(value, known)}"
    )


def list_known(value: object, known: Iterable[str]) -> str:
    """Write the known names for a message, the closest to `value` first.

    Parameters
    ----------
    value : object
        What was given instead.
    known : iterable of str
        The accepted names.

    Returns
    -------
    str
        Names with commas between; of a long list the closest, and how many more.

    Examples
    --------
    >>> list_known("slubb", ["slab", "slub"])
    'slub, slab'
    """
    names = closest_first(str(value)[:SHOWN_MAX], known)
    more = len(names) - KNOWN_MAX
    text = ", ".join(names[:KNOWN_MAX]) or "none"
    return f"{text} and {more} more" if more > 0 else text


def require_int(what: str, value: object, minimum: int, maximum: int) -> int:
    """Return `value` as an int if it is a whole number from `minimum` to `maximum`.

    Parameters
    ----------
    what : str
        Name of the value, for the message.
    value : object
        What was given: an int or anything with ``__index__``, such as a numpy integer.
    minimum, maximum : int
        The accepted range, both ends included.

    Returns
    -------
    int
        The value.

    Raises
    ------
    ParameterError
        If it is not a whole number or not in the range.

    Examples
    --------
    >>> require_int("cpus", 16, 1, 256)
    16
    """
    accepted = f"accepted are {minimum} to {maximum}"
    if minimum == maximum:
        accepted = f"accepted is {minimum}"
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        text = f"{what} is {shown(value)}: {accepted}, a whole number"
        raise ParameterError(text) from None
    if not minimum <= number <= maximum:
        raise ParameterError(f"{what} is {shown(number)}: {accepted}")
    return number


def require_flag(what: str, value: object) -> bool:
    """Return `value` as a bool if it is one, or 0 or 1; a word is none.

    Parameters
    ----------
    what : str
        Name of the flag, for the message.
    value : object
        What was given.

    Returns
    -------
    bool
        The value.

    Raises
    ------
    ParameterError
        If it is anything else.

    Examples
    --------
    >>> require_flag("hwcache_align", "no")
    Traceback (most recent call last):
    slabq.errors.ParameterError: hwcache_align is 'no': accepted are True and False
    """
    kind = getattr(getattr(value, "dtype", None), "kind", "")  # of numpy's scalars
    is_whole = isinstance(value, int) or kind in ("b", "i", "u")
    if not is_whole or value not in (0, 1):
        raise ParameterError(f"{what} is {shown(value)}: accepted are True and False")
    return bool(value)


def require_switch(what: str, value: object) -> bool:
    """Return `value` as a bool if it means on or off.

    Parameters
    ----------
    what : str
        Name of the switch, for the message.
    value : object
        A bool, 0 or 1, or one of the words true, yes, on, false, no, off.

    Returns
    -------
    bool
        The value.

    Raises
    ------
    ParameterError
        If it is anything else.

    Examples
    --------
    >>> require_switch("noaliencache", "yes")
    True
    """
    if isinstance(value, bool):
        return value
    word = str(value).lower()
    if word not in _SWITCH_WORDS:
        raise ParameterError(f"{what} is {shown(value)}: accepted are true and false")
    return _SWITCH_WORDS[word]


def check_debug(debug: object) -> str | None:
    """Return `debug` if it can be boot flags of debug caches, or raise."""
    if debug is None or (isinstance(debug, str) and "\0" not in debug):
        return debug
    raise ParameterError(f"debug is {debug!r}: accepted are letters of FZPUT and names")


def require_bytes(name: str, value: object) -> bytes:
    """Return the bytes that `value` is; a number is none.

    Parameters
    ----------
    name : str
        What it is, for the message.
    value : object
        What was given.

    Returns
    -------
    bytes

    Raises
    ------
    ParameterError
        If it is not bytes, a bytearray or a memoryview.

    Examples
    --------
    >>> require_bytes("data", bytearray(b"x"))
    b'x'
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise ParameterError(f"{name} is {shown(value)}: accepted are bytes")


def read_limited(
    path: str | os.PathLike[str], what: str, limit_bytes: int = FILE_BYTES_MAX
) -> bytes:
    """Read a file that is never large, so that one without an end is told.

    Parameters
    ----------
    path : str or path-like
        The file.
    what : str
        What it is, for the message.
    limit_bytes : int, default 16 MiB
        The most that is read.

    Returns
    -------
    bytes

    Raises
    ------
    ParameterError
        If it is longer.
    OSError
        If it cannot be read.

    Examples
    --------
    >>> read_limited("/dev/zero", "machine file", 100)
    Traceback (most recent call last):
    slabq.errors.ParameterError: machine file /dev/zero is longer than 100 bytes: \
accepted are shorter ones
    """
    with open(path, "rb") as file:
        data = file.read(limit_bytes + 1)
    if len(data) > limit_bytes:
        raise ParameterError(
            f"{what} {os.fspath(path)} is longer than {limit_bytes} bytes: accepted "
            "are shorter ones"
        )
    return data
