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
    "{name:<17s} {active_objects:6d} {num_objects:6d} {size:6d} {num:4d} {pages:4d}"
    " : tunables {limit:4d} {batchcount:4d} {shared:4d}"
    " : slabdata {active_slabs:6d} {num_slabs:6d} {shared_available:6d}\n"
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
    return _HEADER + "".join(_row(cache) for cache in reversed(list(caches)))


def _row(cache: Mapping[str, Any]) -> str:
    usage, shape = cache["usage"], cache["geometry"]
    return _ROW.format(
        name=cache["name"],
        active_objects=usage["slabinfo_active_objects"],
        num_objects=usage["object_total"],
        size=shape["size"],
        num=shape["num"],
        pages=1 << shape["order"],
        limit=usage["slabinfo_limit"],
        batchcount=usage["slabinfo_batchcount"],
        shared=usage["slabinfo_shared"],
        active_slabs=usage["slabinfo_active_slabs"],
        num_slabs=usage["slab_count"],
        shared_available=usage["slabinfo_shared_available"],
    )
