"""The text of ``/proc/slabinfo``, version 2.1."""

from collections.abc import Iterable, Mapping
from typing import Any

from slabq.errors import ParameterError

__all__ = ["format_slab_statistics", "format_slabinfo", "slab_statistics"]

_VERSION = "slabinfo - version: 2.1"
_COLUMNS = (
    "# name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab>"
    " : tunables <limit> <batchcount> <sharedfactor>"
    " : slabdata <active_slabs> <num_slabs> <sharedavail>"
)
_ROW = (
    "{name:<17s} {active_objs:6d} {objects_total:6d} {size:6d} {objects_per_slab:4d}"
    " {pages:4d} : tunables {limit:4d} {batchcount:4d} {sharedfactor:4d}"
    " : slabdata {active_slabs:6d} {slabs:6d} {sharedavail:6d}"
)

# Column of the statistics: (width, counter or level of the policy slab).
_GLOBALSTAT = {
    "listallocs": (7, "num_allocations"),
    "maxobjs": (6, "high_mark"),
    "grown": (5, "grown"),
    "reaped": (4, "reaped"),
    "error": (4, ""),  # refills that found a slab broken; check() tells instead
    "maxfreeable": (4, "max_freeable"),
    "nodeallocs": (4, "node_allocs"),
    "remotefrees": (4, "node_frees"),
    "alienoverflow": (4, "node_overflow"),
}
_CPUSTAT = {
    "allochit": (6, "allochit"),
    "allocmiss": (6, "allocmiss"),
    "freehit": (6, "freehit"),
    "freemiss": (6, "freemiss"),
}
_STATISTICS = {"globalstat": _GLOBALSTAT, "cpustat": _CPUSTAT}


def format_slabinfo(
    caches: Iterable[Mapping[str, Any]], *, statistics: bool = False
) -> str:
    """Write caches as the kernel's ``/proc/slabinfo`` does.

    Parameters
    ----------
    caches : iterable of mapping
        As `Allocator.caches` returns them, the oldest first; with statistics, as
        `summarize_cache` does.
    statistics : bool, default False
        Write the columns of SLAB's statistics too, as a kernel built for them does.

    Returns
    -------
    str
        Two header lines and a line for each cache, the newest first.

    Raises
    ------
    ParameterError
        If statistics are asked for that a cache of another policy has not.

    Examples
    --------
    >>> format_slabinfo([]).splitlines()[0]
    'slabinfo - version: 2.1'
    """
    rows = [_format_row(cache, statistics) for cache in caches]
    head = [_VERSION, _COLUMNS]
    if statistics:
        head[0] += " (statistics)"
        for group, columns in _STATISTICS.items():
            head[1] += f" : {group} " + " ".join(f"<{name}>" for name in columns)
    return "".join(f"{line}\n" for line in [*head, *reversed(rows)])


def _format_row(cache: Mapping[str, Any], statistics: bool) -> str:
    row = _ROW.format(pages=1 << cache["order"], **cache)
    if not statistics:
        return row
    found = slab_statistics(cache)
    for group, columns in _STATISTICS.items():
        values = (
            f"{found[group][name]:{width}d}" for name, (width, _) in columns.items()
        )
        row += f" : {group} " + " ".join(values)
    return row


def slab_statistics(cache: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """SLAB's statistics of one cache by the names of ``/proc/slabinfo``.

    Parameters
    ----------
    cache : mapping
        A cache as `summarize_cache` returns it.

    Returns
    -------
    dict of str to dict of str to int
        ``globalstat`` and ``cpustat``.

    Raises
    ------
    ParameterError
        If the cache is not SLAB's.

    Examples
    --------
    >>> slab_statistics({"name": "example", "counters": {"alloc_fastpath": 0}})
    Traceback (most recent call last):
    slabq.errors.ParameterError: statistics of cache example: accepted are ...
    """
    values: dict[str, int] = {"": 0, **cache["counters"], **cache.get("levels", {})}
    if "allochit" not in values or "high_mark" not in values:
        raise ParameterError(
            f"statistics of cache {cache['name']}: accepted are caches of policy slab, "
            "the others have none in slabinfo"
        )
    return {
        group: {name: values[key] for name, (_, key) in columns.items()}
        for group, columns in _STATISTICS.items()
    }


def format_slab_statistics(caches: Iterable[Mapping[str, Any]]) -> str:
    r"""Write SLAB's statistics by name, a block for each cache that was used.

    Parameters
    ----------
    caches : iterable of mapping
        As `summarize_cache` returns them, the oldest first.

    Returns
    -------
    str
        The newest cache first.

    Raises
    ------
    ParameterError
        If a cache is not SLAB's.

    Examples
    --------
    >>> format_slab_statistics([])
    'No statistics\n'
    """
    blocks = []
    for cache in caches:
        found = slab_statistics(cache)
        if not any(any(values.values()) for values in found.values()):
            continue
        lines = [f"{cache['name']}\n"]
        for group, values in found.items():
            lines.append(f"  {group}\n")
            lines += [f"    {name:<13s} {n:20d}\n" for name, n in values.items()]
        blocks.append("".join(lines))
    return "\n".join(reversed(blocks)) or "No statistics\n"
