"""The totals of the kernel's slabinfo tool: sums over caches, averages and ranges."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from slabq.cache_record import CacheRecord
from slabq.policy import version_key

__all__ = ["format_size", "format_totals"]

_UNITS = ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "K"))


def format_size(value: int, in_bytes: bool = False) -> str:
    """Write a number as the tool does: with one decimal and a unit if it is large.

    Parameters
    ----------
    value : int
        Bytes, or a count of anything.
    in_bytes : bool, default False
        Never with a unit.

    Returns
    -------
    str
        Units are powers of 1000; digits that do not show are cut off.

    Examples
    --------
    >>> format_size(1000), format_size(1001), format_size(65536), format_size(2570000)
    ('1000', '1.0K', '65.5K', '2.5M')
    """
    for unit, letter in () if in_bytes else _UNITS:
        if value > unit:
            tenths = value * 10 // unit
            return f"{tenths // 10}.{tenths % 10}{letter}"
    return str(value)


class _Column(NamedTuple):
    """One figure of every cache: its average, range and sum."""

    average: int
    minimum: int
    maximum: int
    total: int

    @classmethod
    def of(cls, values: Sequence[int]) -> "_Column":
        total = sum(values)
        return cls(total // len(values), min(values), max(values), total)


def format_totals(
    records: Iterable[CacheRecord],
    *,
    kernel: str | None = None,
    in_bytes: bool = False,
) -> str:
    """Write the tool's summary (-T) of all caches.

    Parameters
    ----------
    records : iterable of CacheRecord
        The caches; those without slabs or objects count as caches only.
    kernel : str, optional
        Release whose tool it is. Default: the newest.
    in_bytes : bool, default False
        Show numbers without a unit, as with -B.

    Returns
    -------
    str

    Examples
    --------
    >>> record = CacheRecord(name="example", object_size=60, slab_size=64, slabs=2,
    ...                      objs_per_slab=64, order=0, align=8, objects=100)
    >>> format_totals([record]).splitlines()[3]
    'Memory used:            8.1K   # Loss   :            2.1K   MRatio:    36%'
    """
    records = list(records)
    active = [record for record in records if record.slabs and record.objects]
    if not active:
        return "No objects\n"
    is_wide = kernel is None or version_key(kernel)[0] >= (4, 4)
    return (
        _format_head(records, active, is_wide, in_bytes)
        + _format_per_cache(active, is_wide, in_bytes)
        + _format_per_object(active, is_wide, in_bytes)
    )


def _format_head(
    records: Sequence[CacheRecord],
    active: Sequence[CacheRecord],
    is_wide: bool,
    in_bytes: bool,
) -> str:
    """Write caches, memory and objects; merged caches count as their one target."""
    aliases = sum(record.aliases for record in records)
    targets = sum(record.name.startswith(":") for record in records)
    size, lost, used = (
        sum(getattr(record, name) for record in active)
        for name in ("slab_bytes", "lost_bytes", "used_bytes")
    )
    objects = sum(record.objects for record in active)
    partial = sum(record.objects_partial for record in active)
    width = 15 if is_wide else 6
    if is_wide:
        caches = f"{len(records):15d}   Aliases  : {aliases:11d}->{targets:<3d}  "
        caches += f"Active:    {len(active):3d}\n"
    else:
        caches = f"{len(records):3d}      Aliases  : {aliases:3d}->{targets:<3d} "
        caches += f"Active: {len(active):3d}\n"

    def line(a: str, b: str, c: str, values: Sequence[int]) -> str:
        x, y, z = (format_size(value, in_bytes) for value in values)
        return f"{a}: {x:>{width}s}   {b}: {y:>{width}s}   {c}:{z:>6s}%\n"

    return (
        f"Slabcache Totals\n{'-' * 16}\nSlabcaches : {caches}"
        + line("Memory used", "# Loss   ", "MRatio", (size, lost, lost * 100 // used))
        + line(
            "# Objects  ",
            "# PartObj",
            "ORatio",
            (objects, partial, partial * 100 // objects),
        )
    )


def _percent_capped(part: int, whole: int) -> int:
    return min(part * 100 // whole, 100)


def _format_per_cache(
    active: Sequence[CacheRecord], is_wide: bool, in_bytes: bool
) -> str:
    width = 15 if is_wide else 10
    if is_wide:
        head = f"{'Per Cache':<18s}Average{'Min':>17s}{'Max':>17s}{'Total':>17s}\n"
    else:
        head = f"{'Per Cache':<13s}Average{'Min':>12s}{'Max':>12s}{'Total':>12s}\n"

    def line(title: str, column: _Column, mark: str = "") -> str:
        if mark:  # the sign stands where a blank would be
            cells = (f"{format_size(v, in_bytes):>{width}s}%" for v in column)
            return f"{title}{' '.join(cells)}\n"
        cells = (f"{format_size(v, in_bytes):>{width}s}" for v in column)
        return f"{title:<9s} {'  '.join(cells)}\n"

    objects = _Column.of([record.objects for record in active])
    slabs = _Column.of([record.slabs for record in active])
    partial = _Column.of([record.partial for record in active])
    part_objects = _Column.of([record.objects_partial for record in active])
    slab_share = _Column.of([_percent_capped(r.partial, r.slabs) for r in active])
    object_share = _Column.of(
        [_percent_capped(r.objects_partial, r.objects) for r in active]
    )
    # Two oddities of the tool: shares have the share of the sums as their total, and
    # the average number of objects in partial slabs is a share of all objects.
    slab_share = slab_share._replace(total=partial.total * 100 // slabs.total)
    whole_share = part_objects.total * 100 // objects.total
    object_share = object_share._replace(total=whole_share)
    part_objects = part_objects._replace(average=whole_share)
    return (
        f"\n{head}{'-' * (76 if is_wide else 57)}\n"
        + line("#Objects", objects)
        + line("#Slabs", slabs)
        + line("#PartSlab", partial)
        + line("%PartSlab", slab_share, "%")
        + line("PartObjs", part_objects)
        + line("% PartObj", object_share, "%")
        + line("Memory", _Column.of([record.slab_bytes for record in active]))
        + line("Used", _Column.of([record.used_bytes for record in active]))
        + line("Loss", _Column.of([record.lost_bytes for record in active]))
    )


def _format_per_object(
    active: Sequence[CacheRecord], is_wide: bool, in_bytes: bool
) -> str:
    """Sizes of objects; their averages weigh a cache by its objects."""
    width = 15 if is_wide else 10
    if is_wide:
        head = f"{'Per Object':<18s}Average{'Min':>17s}{'Max':>17s}\n"
    else:
        head = f"{'Per Object':<13s}Average{'Min':>12s}{'Max':>12s}\n"
    objects = sum(record.objects for record in active)
    text = f"\n{head}{'-' * (59 if is_wide else 45)}\n"
    for title, sizes in (
        ("Memory", [record.slab_size for record in active]),
        ("User", [record.object_size for record in active]),
        ("Loss", [record.slab_size - record.object_size for record in active]),
    ):
        weighed = sum(
            size * record.objects for size, record in zip(sizes, active, strict=True)
        )
        cells = (
            f"{format_size(value, in_bytes):>{width}s}"
            for value in (weighed // objects, min(sizes), max(sizes))
        )
        text += f"{title:<9s} {'  '.join(cells)}\n"
    return text
