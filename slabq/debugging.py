"""What debugging finds: reports in the kernel's words, and where each fault lies."""

import json
from typing import NamedTuple

from slabq import _core

__all__ = ["Finding", "Report", "read_findings", "read_reports"]


class Report(NamedTuple):
    """One report of a debug cache, as the kernel would print it.

    Parameters
    ----------
    cache : str
        Name of the cache.
    what : str
        The fault, in the kernel's words.
    slab, object_index, offset : int or None
        Serial of the slab, index of the object in it, and offset of the first wrong
        byte in the slab; None where there is no such thing.
    fixes : int
        Number of its ``FIX`` lines.
    text : str
        The whole report.

    Examples
    --------
    >>> Report("example", "Object already free", 0, 3, None, 1, "").object_index
    3
    """

    cache: str
    what: str
    slab: int | None
    object_index: int | None
    offset: int | None
    fixes: int
    text: str


class Finding(NamedTuple):
    """What `Cache.validate` found wrong, and where.

    Parameters
    ----------
    what : str
        The fault, in the kernel's words, or in those of `Cache.check`.
    slab, object_index, offset : int or None
        As of a `Report`.

    Examples
    --------
    >>> Finding("Poison overwritten", 0, 2, 128).offset
    128
    """

    what: str
    slab: int | None
    object_index: int | None
    offset: int | None


def _place(number: int) -> int | None:
    return None if number < 0 else number


def read_reports(core: _core.Allocator) -> list[Report]:
    """Return the reports that an allocator has kept, the oldest first."""
    listed, text, _, _ = core.reports()
    return [
        Report(
            one["cache"],
            one["what"],
            _place(one["slab"]),
            _place(one["object_index"]),
            _place(one["offset"]),
            one["fixes"],
            text[one["text_start"] : one["text_end"]],
        )
        for one in json.loads(listed)
    ]


def read_findings(core: _core.Allocator, cache: str, since: int) -> list[Finding]:
    """Return what the reports of `cache` say, without the first `since` of all."""
    return [
        Finding(one.what, one.slab, one.object_index, one.offset)
        for one in read_reports(core)[since:]
        if one.cache == cache
    ]
