"""The reports of the kernel's slabinfo tool, from plain records of caches.

Columns, widths and whole-number percentages are those of the tool that came with the
release: `Documentation/vm/slabinfo.c` of the 2.6 and 3 series, later
`tools/mm/slabinfo.c`.
"""

import getopt
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from slabq.cache_record import CacheRecord
from slabq.errors import ParameterError
from slabq.policy import version_key
from slabq.slabinfo_totals import format_size, format_totals

__all__ = [
    "format_activity",
    "format_counter",
    "format_extended",
    "format_listing",
    "format_report",
    "format_size",
    "format_totals",
    "run_slabinfo",
    "sort_records",
]

NEWEST = "6.18"


class ToolLayout(NamedTuple):
    """What the tool of a release shows and how wide."""

    has_cmpxchg: bool  # of the lockless paths
    has_cpu_partial: bool
    is_wide: bool  # with the columns and totals of -B, -L and -X

    @classmethod
    def of(cls, kernel: str | None) -> "ToolLayout":
        """Return the layout of a release."""
        release = version_key(kernel or NEWEST)[0]
        return cls(release >= (3, 1), release >= (3, 2), release >= (4, 4))


def _percent(part: int, whole: int, *, of_none: int = 0) -> int:
    return part * 100 // whole if whole else of_none


# -- order of the caches ---------------------------------------------------------------

_KEYS: dict[str, Callable[[CacheRecord], int]] = {
    "name": lambda record: 0,
    "size": lambda record: record.slab_bytes,
    "activity": lambda record: sum(record.alloc_counts) + sum(record.free_counts),
    "loss": lambda record: record.lost_bytes,
    "partial": lambda record: record.partial,
}


def sort_records(
    records: Iterable[CacheRecord], key: str = "name", *, inverted: bool = False
) -> list[CacheRecord]:
    """Sort caches as the tool does: the largest first, equal ones by name.

    Parameters
    ----------
    records : iterable of CacheRecord
        The caches.
    key : {"name", "size", "activity", "loss", "partial"}, default "name"
        What counts: nothing but the name (letters alike whatever their case), bytes of
        slabs (-S), calls (-A), bytes lost (-L), partial slabs (-P).
    inverted : bool, default False
        The other way round (-i).

    Returns
    -------
    list of CacheRecord

    Raises
    ------
    ParameterError
        If there is no such key.

    Examples
    --------
    >>> sort_records([], "size")
    []
    """
    if key not in _KEYS:
        raise ParameterError(f"key is {key!r}: accepted are {', '.join(_KEYS)}")
    weight = _KEYS[key]
    return sorted(
        records,
        key=lambda record: (-weight(record), record.name.lower()),
        reverse=inverted,
    )


# -- one line a cache ------------------------------------------------------------------

_FLAG_LETTERS = (
    ("aliases", "*"),
    ("cache_dma", "d"),
    ("hwcache_align", "A"),
    ("poison", "P"),
    ("reclaim_account", "a"),
    ("red_zone", "Z"),
    ("sanity_checks", "F"),
    ("store_user", "U"),
    ("trace", "T"),
)


def format_listing(
    records: Iterable[CacheRecord],
    *,
    kernel: str | None = None,
    by_loss: bool = False,
    in_bytes: bool = False,
) -> str:
    """Write the tool's default listing: objects, space and how full slabs are.

    Parameters
    ----------
    records : iterable of CacheRecord
        The caches, in the order wanted.
    kernel : str, optional
        Release whose tool it is. Default: the newest.
    by_loss : bool, default False
        Show the bytes lost instead of the space, as with -L.
    in_bytes : bool, default False
        Show bytes without a unit, as with -B.

    Returns
    -------
    str
        A heading and a line for each cache; nothing if there is none.

    Examples
    --------
    >>> record = CacheRecord(name="example", object_size=60, slab_size=64, slabs=2,
    ...                      objs_per_slab=64, order=0, align=8, objects=100)
    >>> print(format_listing([record], kernel="2.6.35").splitlines()[1].rstrip())
    example                    100      60     8.1K          2/0/0   64 0   0  73
    """
    width = 15 if ToolLayout.of(kernel).is_wide else 8
    title = " Loss" if by_loss else "Space"
    head = (
        f"{'Name':<22s} Objects Objsize {title:>{width}s} Slabs/Part/Cpu  O/S O"
        " %Fr %Ef Flg\n"
    )
    lines = []
    for record in records:
        size = record.lost_bytes if by_loss else record.slab_bytes
        lines.append(_listing_line(record, format_size(size, in_bytes), width))
    return head + "".join(lines) if lines else ""


def _listing_line(record: CacheRecord, size: str, width: int) -> str:
    flags = "".join(letter for name, letter in _FLAG_LETTERS if getattr(record, name))
    slabs = f"{record.slabs - record.cpu_slabs}/{record.partial}/{record.cpu_slabs}"
    partial = _percent(record.partial, record.slabs, of_none=100)
    effective = _percent(record.used_bytes, record.slab_bytes, of_none=100)
    return (
        f"{record.name:<21s} {record.objects:8d} {record.object_size:7d}"
        f" {size:>{width}s} {slabs:>14s} {record.objs_per_slab:4d} {record.order:1d}"
        f" {partial:3d} {effective:3d} {flags}\n"
    )


def format_activity(
    records: Iterable[CacheRecord], *, kernel: str | None = None
) -> str:
    """Write the tool's listing of activity (-D): calls and the share of fast ones.

    Parameters
    ----------
    records : iterable of CacheRecord
        The caches, in the order wanted.
    kernel : str, optional
        Release whose tool it is. Default: the newest.

    Returns
    -------
    str
        A heading and a line for each cache; nothing if there is none.

    Examples
    --------
    >>> record = CacheRecord(name="example", object_size=60, slab_size=64,
    ...                      objs_per_slab=64, order=0, align=8,
    ...                      counters={"alloc_fastpath": 2, "alloc_slowpath": 1})
    >>> print(format_activity([record], kernel="2.6.35").splitlines()[1])
    example                      0          3          0  66   0     0 0
    """
    layout = ToolLayout.of(kernel)
    head = f"{'Name':<22s} Objects      Alloc       Free   %Fast Fallb O"
    head += " CmpX   UL\n" if layout.has_cmpxchg else "\n"
    lines = [_activity_line(record, layout) for record in records]
    return head + "".join(lines) if lines else ""


def _activity_line(record: CacheRecord, layout: ToolLayout) -> str:
    allocs, frees = record.alloc_counts, record.free_counts
    line = (
        f"{record.name:<21s} {record.objects:8d} {sum(allocs):10d} {sum(frees):10d}"
        f" {_percent(allocs[0], sum(allocs)):3d} {_percent(frees[0], sum(frees)):3d}"
        f" {record.count('order_fallback'):5d} {record.order:1d}"
    )
    if layout.has_cmpxchg:
        line += (
            f" {record.count('cmpxchg_double_fail'):4d}"
            f" {record.count('cmpxchg_double_cpu_fail'):4d}"
        )
    return line + "\n"


# -- the report of one cache -----------------------------------------------------------

_ATTRIBUTES = (
    ("hwcache_align", "** Hardware cacheline aligned"),
    ("cache_dma", "** Memory is allocated in a special DMA zone"),
    ("destroy_by_rcu", "** Slabs are destroyed via RCU"),
    ("reclaim_account", "** Reclaim accounting active"),
)


def format_report(record: CacheRecord, *, kernel: str | None = None) -> str:
    """Write the tool's report of one cache (-r): sizes, slabs, memory, counters.

    Parameters
    ----------
    record : CacheRecord
        The cache.
    kernel : str, optional
        Release whose tool it is. Default: the newest.

    Returns
    -------
    str

    Examples
    --------
    >>> record = CacheRecord(name="example", object_size=60, slab_size=64,
    ...                      objs_per_slab=64, order=0, align=8)
    >>> format_report(record).splitlines()[1]
    'Slabcache: example          Aliases:  0 Order :  0 Objects: 0'
    """
    layout = ToolLayout.of(kernel)
    width = 15 if layout.is_wide else 20
    head = (
        f"\nSlabcache: {record.name:<{width}s}  Aliases: {record.aliases:2d}"
        f" Order : {record.order:2d} Objects: {record.objects}\n"
    )
    notes = "".join(f"{text}\n" for name, text in _ATTRIBUTES if getattr(record, name))
    return (
        head
        + notes
        + _format_sizes(record)
        + f"\n{record.name} has no kmem_cache operations\n"
        + _format_tracking(record)
        + _format_nodes(record)
        + _format_counters(record, layout)
    )


def _format_sizes(record: CacheRecord) -> str:
    """Four columns of five rows: sizes, slabs, debugging, memory."""
    padding = record.slab_size - record.object_size
    full = record.slabs - record.partial - record.cpu_slabs
    tail = record.one_slab_bytes - record.objs_per_slab * record.slab_size
    rows: list[tuple[str, int, str, int, str, bool, str, int]] = [
        ("Object", record.object_size, "Total", record.slabs,
         "Sanity Checks", record.sanity_checks, "Total", record.slab_bytes),
        ("SlabObj", record.slab_size, "Full", full,
         "Redzoning", record.red_zone, "Used", record.used_bytes),
        ("SlabSiz", record.one_slab_bytes, "Partial", record.partial,
         "Poisoning", record.poison, "Loss", record.lost_bytes),
        ("Loss", padding, "CpuSlab", record.cpu_slabs,
         "Tracking", record.store_user, "Lalig", padding * record.objects),
        ("Align", record.align, "Objects", record.objs_per_slab,
         "Tracing", record.trace, "Lpadd", tail * record.slabs),
    ]  # fmt: skip
    head = f"\n{'Sizes (bytes)':<18s}{'Slabs':<19s}{'Debug':<21s}Memory\n{'-' * 72}\n"
    return head + "".join(
        f"{a:<7s}: {a_value:7d}  {b:<7s}: {b_value:7d}   {c:<14s}:"
        f" {'On ' if c_value else 'Off'}  {d:<5s}: {d_value:7d}\n"
        for a, a_value, b, b_value, c, c_value, d, d_value in rows
    )


def _format_tracking(record: CacheRecord) -> str:
    """Where the kernel lists callers; slabq has none to list."""
    return (
        f"\n{record.name}: Kernel object allocation\n{'-' * 71}\nNo Data\n"
        f"\n{record.name}: Kernel object freeing\n{'-' * 72}\nNo Data\n"
    )


def _format_nodes(record: CacheRecord) -> str:
    """Slabs by node. The tool knows only of nodes that have a slab."""
    slabs = record.nodes.get("slabs", ())
    partial = record.nodes.get("partial", ())
    count = max((n + 1 for n, number in enumerate(slabs) if number), default=0)
    if count <= 1:
        return f"\n{record.name}: No NUMA information available.\n"

    def row(title: str, values: Sequence[int]) -> str:
        cells = (f" {format_size(value):>4s}" for value in values[:count])
        return f"{title:<21s} " + "".join(cells) + "\n"

    numbers = "".join(f" {node:4d}" for node in range(count))
    head = f"\n{'NUMA nodes':<21s}:{numbers}\n{'-' * 22}{'-----' * count}\n"
    return head + row("All slabs", slabs) + row("Partial slabs", partial)


def _format_counters(record: CacheRecord, layout: ToolLayout) -> str:
    """Table of the paths; nothing for a cache that never made a slab or object."""
    total = sum(record.alloc_counts)
    if record.count("alloc_slab") == 0 or total == 0:
        return ""
    text = _format_paths(record, layout) + "\n"
    if record.count("cpuslab_flush"):
        text += f"Flushes {record.count('cpuslab_flush'):8d}\n"
    if layout.has_cmpxchg:
        return text + _format_deactivation(record) + _format_cmpxchg(record)
    if record.count("alloc_refill"):
        text += f"Refill {record.count('alloc_refill'):8d}\n"
    return text + _format_deactivation_line(record)


def _format_paths(record: CacheRecord, layout: ToolLayout) -> str:
    count = record.count
    allocs, frees = record.alloc_counts, record.free_counts
    total_alloc, total_free = sum(allocs), sum(frees)
    listed = count("deactivate_to_head") + count("deactivate_to_tail")
    rows = [
        ("Fastpath", allocs[0], frees[0]),
        ("Slowpath", allocs[1], frees[1]),
        ("Page Alloc", count("alloc_slab"), count("free_slab")),
        ("Add partial", listed, count("free_add_partial")),
        ("Remove partial", count("alloc_from_partial"), count("free_remove_partial")),
    ]
    if layout.has_cpu_partial:
        pair = count("cpu_partial_alloc"), count("cpu_partial_free")
        rows.append(("Cpu partial list", *pair))
    pair = count("deactivate_remote_frees"), count("free_frozen")
    rows.append(("RemoteObj/SlabFrozen", *pair))
    text = f"\n{'Slab Perf Counter':<20s}{'Alloc':>9s}{'Free':>9s} %Al %Fr\n"
    text += f"{'-' * 50}\n"
    for title, alloc, free in rows:
        text += (
            f"{title:<20s} {alloc:8d} {free:8d}"
            f" {_percent(alloc, total_alloc):3d} {_percent(free, total_free):3d}\n"
        )
    return text + f"{'Total':<20s} {total_alloc:8d} {total_free:8d}\n"


_DEACTIVATIONS = (
    ("Slab full", "deactivate_full"),
    ("Slab empty", "deactivate_empty"),
    ("Moved to head of partial list", "deactivate_to_head"),
    ("Moved to tail of partial list", "deactivate_to_tail"),
    ("Deactivation bypass", "deactivate_bypass"),
    ("Refilled from foreign frees", "alloc_refill"),
    ("Node mismatch", "alloc_node_mismatch"),
)
_DEACTIVATION_KINDS = 5  # of these, those that make the whole


def _format_deactivation(record: CacheRecord) -> str:
    whole = sum(record.count(name) for _, name in _DEACTIVATIONS[:_DEACTIVATION_KINDS])
    if whole == 0:
        return ""
    text = f"\n{'Slab Deactivation':<30s}Occurrences %\n{'-' * 49}\n"
    for title, name in _DEACTIVATIONS:
        number = record.count(name)
        text += f"{title:<29s} {number:7d}  {_percent(number, whole):3d}%\n"
    return text


def _format_deactivation_line(record: CacheRecord) -> str:
    names = ("Full", "Empty", "ToHead", "ToTail")
    keys = [key for _, key in _DEACTIVATIONS[: len(names)]]
    whole = sum(record.count(key) for key in keys)
    if whole == 0:
        return ""
    cells = (
        f"{name}={record.count(key)}({_percent(record.count(key), whole)}%)"
        for name, key in zip(names, keys, strict=True)
    )
    return f"Deactivate {' '.join(cells)}\n"


def _format_cmpxchg(record: CacheRecord) -> str:
    locked = record.count("cmpxchg_double_fail")
    unlocked = record.count("cmpxchg_double_cpu_fail")
    if locked == unlocked == 0:
        return ""
    return (
        f"\nCmpxchg_double Looping\n{'-' * 24}\n"
        f"{'Locked Cmpxchg Double redos':<29s} {locked}\n"
        f"{'Unlocked Cmpxchg Double redos':<29s} {unlocked}\n"
    )


def format_counter(values: Sequence[int]) -> str:
    """Write a counter as its file in ``/sys/kernel/slab`` has it.

    Parameters
    ----------
    values : sequence of int
        The counter of CPU 0, CPU 1 and so on. The kernel's have 32 bits.

    Returns
    -------
    str
        The sum, then the CPUs that counted.

    Examples
    --------
    >>> format_counter([2, 0, 0, 1])
    '3 C0=2 C3=1'
    """
    narrow = [value & 0xFFFFFFFF for value in values]
    cells = (f" C{cpu}={value}" for cpu, value in enumerate(narrow) if value)
    return str(sum(narrow)) + "".join(cells)


# -- extended totals, and the tool itself ----------------------------------------------


def format_extended(
    records: Iterable[CacheRecord], *, lines: int = 1, kernel: str | None = None
) -> str:
    """Write the tool's extended summary (-X): totals, and three listings in bytes.

    Parameters
    ----------
    records : iterable of CacheRecord
        The caches.
    lines : int, default 1
        How many caches each listing shows (-N).
    kernel : str, optional
        Release whose tool it is. Default: the newest.

    Returns
    -------
    str

    Examples
    --------
    >>> format_extended([]).splitlines()[0]
    'No objects'
    """
    records = list(records)
    text = format_totals(records, kernel=kernel, in_bytes=True)
    for title, key in (
        ("Slabs sorted by size", "size"),
        ("Slabs sorted by loss", "loss"),
        ("Slabs sorted by number of partial slabs", "partial"),
    ):
        first = [r for r in sort_records(records, key)[:lines] if r.slabs]
        listing = format_listing(
            first, kernel=kernel, by_loss=key == "loss", in_bytes=True
        )
        text += f"\n{title}\n{'-' * len(title)}\n{listing}"
    return text + "\n"


_SHORT = "ABDeilLN:PrSTUXz"
_LETTER_OF = {
    "--activity": "-A", "--Bytes": "-B", "--display-activity": "-D", "--empty": "-e",
    "--inverted": "-i", "--slabs": "-l", "--Loss": "-L", "--lines": "-N",
    "--partial": "-P", "--report": "-r", "--Size": "-S", "--Totals": "-T",
    "--Unreclaim": "-U", "--Xtotals": "-X", "--zero": "-z",
}  # fmt: skip
_LONG = [name[2:] + ("=" if name == "--lines" else "") for name in _LETTER_OF]
_SORT_OF = {"-S": "size", "-A": "activity", "-L": "loss", "-P": "partial"}


def _parse(options: str) -> tuple[dict[str, str], re.Pattern[str]]:
    """Letters of the options with their values, and the pattern of names."""
    try:
        given, words = getopt.gnu_getopt(shlex.split(options), _SHORT, _LONG)
        letters = {_LETTER_OF.get(name, name): value for name, value in given}
        pattern = re.compile(words[0] if words else "", re.IGNORECASE)
    except (getopt.GetoptError, re.error, ValueError) as error:
        raise ParameterError(
            f"options of slabinfo are {options!r} ({error}): accepted are "
            "-A -B -D -e -i -l -L -N K -P -r -S -T -U -X -z and a pattern of names"
        ) from None
    lines = letters.get("-N", "1")
    if not lines.isdecimal() or int(lines) < 1 or len(words) > 1:
        raise ParameterError(
            f"options of slabinfo are {options!r}: accepted are -N with a number from "
            "1 and at most one pattern"
        )
    return letters, pattern


def run_slabinfo(
    records: Iterable[CacheRecord], options: str = "", *, kernel: str | None = None
) -> str:
    r"""Write what the tool prints when it is called with these options.

    Parameters
    ----------
    records : iterable of CacheRecord
        The caches of a heap.
    options : str, default ""
        The tool's own, such as ``-AD`` or ``-r kmalloc-512``: listing by default, -D
        activity, -r reports, -T totals, -X extended totals; sorted by -A, -S, -L or -P,
        -i inverted; -N first caches only, -U unreclaimable ones, -e empty ones, -z
        empty ones too, -B in bytes; then a pattern of names.
    kernel : str, optional
        Release whose tool it is. Default: the newest.

    Returns
    -------
    str
        Empty if no cache is to be shown.

    Raises
    ------
    ParameterError
        If an option is not accepted.

    Examples
    --------
    >>> run_slabinfo([], "-T")
    'No objects\n'
    """
    letters, pattern = _parse(options)
    found = [record for record in records if pattern.search(record.name)]
    lines = int(letters["-N"]) if "-N" in letters else None
    if "-X" in letters:
        return format_extended(found, lines=lines or 1, kernel=kernel)
    if "-T" in letters:
        return format_totals(found, kernel=kernel, in_bytes="-B" in letters)
    key = next((_SORT_OF[name] for name in _SORT_OF if name in letters), "name")
    ordered = sort_records(found, key, inverted="-i" in letters)[:lines]
    if "-r" in letters and "-l" not in letters:
        return "".join(format_report(record, kernel=kernel) for record in ordered)
    shown = [record for record in ordered if _is_shown(record, letters)]
    if len(found) == 1 and not ("-U" in letters and found[0].reclaim_account):
        return format_report(found[0], kernel=kernel)
    if "-D" in letters:
        return format_activity(shown, kernel=kernel)
    return format_listing(
        shown, kernel=kernel, by_loss="-L" in letters, in_bytes="-B" in letters
    )


def _is_shown(record: CacheRecord, letters: dict[str, Any]) -> bool:
    if "-U" in letters and record.reclaim_account:
        return False
    if "-e" in letters:
        return record.slabs == 0
    return record.slabs > 0 or "-z" in letters
