"""The text of ``/proc/slabinfo``, version 2.1."""

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["format_slabinfo"]

_HEADER = (
    "slabinfo - version: 2.1\n"
    "# name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab>"
    " : tunables <limit> <batchcount> <sharedfactor>"
    " : slabdata <active_slabs> <num_slabs> <sharedavail>\n"
)
_ROW = (
    "{name:<17s} {active_objs:6d} {objects_total:6d} {size:6d} {objects_per_slab:4d}"
    " {pages:4d} : tunables {limit:4d} {batchcount:4d} {sharedfactor:4d}"
    " : slabdata {active_slabs:6d} {slabs:6d} {sharedavail:6d}\n"
)


def format_slabinfo(caches: Iterable[Mapping[str, Any]]) -> str:
    """Write caches as the kernel's ``/proc/slabinfo`` does.

    Parameters
    ----------
    caches : iterable of mapping
        As `Allocator.caches` returns them, the oldest first.

    Returns
    -------
    str
        Two header lines and a line for each cache, the newest first.

    Examples
    --------
    >>> format_slabinfo([]).splitlines()[0]
    'slabinfo - version: 2.1'
    """
    rows = [_ROW.format(pages=1 << cache["order"], **cache) for cache in caches]
    return _HEADER + "".join(reversed(rows))
