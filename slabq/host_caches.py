"""The caches of a running kernel against slabq's own answer for them.

A kernel with SLUB shows each cache in ``/sys/kernel/slab``: a folder of one file a
value. A cache that others were merged into is named by what they share, such as
``:0000064``, and the others are symbolic links to it. From the size of an object, its
alignment and flags slabq works out what the kernel made of it, and both stand side by
side. What the kernel does not show is assumed where a cache tells it by its size, and
said so.
"""

import dataclasses
import json
import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, overload

from slabq import _core
from slabq.cache_flags import flag_bits
from slabq.checks import read_limited, require_int
from slabq.errors import ParameterError
from slabq.machine import Machine
from slabq.policy import Policy, find_policy, kernel_profiles, version_key
from slabq.table import Section, Table
from slabq.topology import parse_cpu_list

__all__ = ["HostCache", "HostComparison", "compare_host"]

SYSFS_FOLDERS = ("/sys/kernel/slab", "/sys/slab")  # since 2.6.25; before
PAGE_BYTES = 4096
SIZE_MAX = 1 << 22
NAMES_MAX = 4  # caches that a note names

# The name of a value in sysfs, and in slabq's geometry.
COMPARED = MappingProxyType(
    {
        "slab_size": "size",
        "align": "align",
        "order": "order",
        "objs_per_slab": "num",
        "cpu_partial": "cpu_partial",
        "min_partial": "min_partial",
    }
)
REQUIRED = ("object_size", "slab_size", "align", "order", "objs_per_slab")
TUNABLES = ("cpu_partial", "min_partial")
# Flags of a cache by their names in sysfs; absent where the kernel cannot have them.
FLAGS = MappingProxyType(
    {
        "hwcache_align": "hwcache_align",
        "reclaim_account": "reclaim_account",
        "red_zone": "red_zone",
        "poison": "poison",
        "store_user": "store_user",
        "sanity_checks": "consistency_checks",
    }
)
VALUES = (*REQUIRED, *TUNABLES, *FLAGS, "destroy_by_rcu")

PRESENT_CPUS_SINCE = (5, 13)  # before, the possible CPUs decided the order
FREE_POINTER_PLACED_SINCE = (6, 12)
BOOT_PARAMETER = re.compile(r"\bsl[au]b_(max_order|min_order|min_objects)=(\d+)")

WHY_KMALLOC = "kmalloc: aligned to the largest power of two in the size"
WHY_ALIGN = "the alignment is what its creator asked for; sysfs shows the result only"
WHY_CONSTRUCTOR = "a constructor: the free pointer lies behind the object"
ASSUMED_CONSTRUCTOR = (
    "assumed to have a constructor, which is not shown: a word lies behind the object"
)
ASSUMED_PLACED = (
    "assumed that its creator placed the free pointer inside the object, which is not "
    "shown: with SLAB_TYPESAFE_BY_RCU a word would lie behind it"
)
WHY_STORE_USER = (
    "cannot be derived: what SLAB_STORE_USER adds depends on how the kernel was built"
)
WHY_TUNABLE = "a tunable, which may have been written since the cache was made"


@dataclasses.dataclass(frozen=True)
class HostCache:
    """One cache of the kernel beside slabq's answer.

    Parameters
    ----------
    name : str
        Name of the cache, or the ``:0000064`` of merged ones.
    aliases : tuple of str
        Caches that were merged into it.
    object_size : int
        Bytes of an object.
    shown, own : mapping of str to int
        What the kernel shows and what slabq says, by the names in sysfs.
    verdict : {"same", "assumed", "unknown", "differs"}
        ``assumed``: equal if something holds that the kernel does not show;
        ``unknown``: cannot be derived.
    why : tuple of str
        What was assumed, what cannot be derived, where a value comes from.

    Examples
    --------
    >>> HostCache("x", (), 8, {"order": 0}, {"order": 1}, "differs", ()).differing
    ('order',)
    """

    name: str
    aliases: tuple[str, ...]
    object_size: int
    shown: Mapping[str, int]
    own: Mapping[str, int]
    verdict: str
    why: tuple[str, ...]

    @property
    def differing(self) -> tuple[str, ...]:
        """Names of the values that differ."""
        return tuple(name for name in self.shown if self.shown[name] != self.own[name])

    def to_dict(self) -> dict[str, Any]:
        """Return the row in types that JSON has.

        Returns
        -------
        dict

        Examples
        --------
        >>> row = HostCache("x", (), 8, {"order": 0}, {"order": 0}, "same", ())
        >>> row.to_dict()["slabq"]
        {'order': 0}
        """
        row = dataclasses.asdict(self) | {"shown": dict(self.shown)}
        row["slabq"] = dict(row.pop("own"))
        return row


@dataclasses.dataclass(frozen=True)
class HostComparison(Sequence[HostCache]):
    """The rows of a comparison, one a cache.

    Parameters
    ----------
    rows : sequence of HostCache
        One a cache, by name.
    kernel : str
        Release of the kernel.
    policy : Policy
        The SLUB it is compared with: the nearest profile, and boot parameters.
    cpus : int
        CPUs that slabs are sized by.

    Examples
    --------
    >>> HostComparison([], "6.18.1", find_policy("slub"), 2).counts()["differs"]
    0
    """

    rows: Sequence[HostCache]
    kernel: str
    policy: Policy
    cpus: int

    @overload
    def __getitem__(self, index: int) -> HostCache: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[HostCache]: ...
    def __getitem__(self, index: int | slice) -> HostCache | Sequence[HostCache]:
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"<slabq.HostComparison of {len(self)} caches of Linux {self.kernel}>"

    def counts(self) -> dict[str, int]:
        """Return how many rows have each verdict.

        Returns
        -------
        dict of str to int

        Examples
        --------
        >>> HostComparison([], "6.18.1", find_policy("slub"), 2).counts()
        {'same': 0, 'assumed': 0, 'unknown': 0, 'differs': 0}
        """
        verdicts = [row.verdict for row in self.rows]
        names = ("same", "assumed", "unknown", "differs")
        return {name: verdicts.count(name) for name in names}

    def table(self) -> Table:
        """Return the rows as a table; notes say what was assumed.

        Returns
        -------
        Table

        Examples
        --------
        >>> table = HostComparison([], "6.18.1", find_policy("slub"), 2).table()
        >>> table.sections[0].columns[0]
        'cache'
        """
        columns = ["cache", "object", "size", "align", "order", "objs", "cpu", "min"]
        cells = [
            [
                row.name,
                str(row.object_size),
                *(_cell(row, name) for name in COMPARED),
                row.verdict,
            ]
            for row in self.rows
        ]
        plural = "" if self.cpus == 1 else "s"
        title = (
            f"Linux {self.kernel}, {self.cpus} CPU{plural}, against slub "
            f"{self.policy.kernel}, the nearest profile"
        )
        return Table([Section(title, [*columns, "verdict"], cells, self._notes())])

    def _notes(self) -> list[str]:
        counts = ", ".join(f"{count} {name}" for name, count in self.counts().items())
        notes = [f"{len(self)} caches: {counts}."]
        if any(row.differing for row in self.rows):
            notes.append("Where two numbers stand, the kernel's is the first.")
        for why in dict.fromkeys(why for row in self.rows for why in row.why):
            names = [row.name for row in self.rows if why in row.why]
            more = f" and {len(names) - NAMES_MAX} more" * (len(names) > NAMES_MAX)
            notes.append(f"{', '.join(names[:NAMES_MAX])}{more}: {why}.")
        return notes

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison in types that JSON has.

        Returns
        -------
        dict

        Examples
        --------
        >>> HostComparison([], "6.18.1", find_policy("slub"), 2).to_dict()["cpus"]
        2
        """
        return {
            "kernel": self.kernel,
            "profile": self.policy.kernel,
            "options": self.policy.given(),
            "cpus": self.cpus,
            "counts": self.counts(),
            "caches": [row.to_dict() for row in self.rows],
        }


def _cell(row: HostCache, name: str) -> str:
    if name not in row.shown:
        return "-"
    shown, own = row.shown[name], row.own[name]
    return str(shown) if shown == own else f"{shown}/{own}"


# ---- what the kernel shows -----------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Shown:
    """A cache as the kernel shows it; `has_constructor` is None if that is not said."""

    name: str
    values: Mapping[str, int]
    aliases: tuple[str, ...] = ()
    has_constructor: bool | None = None

    def has(self, flag: str) -> bool:
        return self.values.get(flag, 0) != 0


def _check_values(name: str, values: Mapping[str, int]) -> None:
    for key in REQUIRED:
        if key not in values:
            raise ParameterError(f"cache {name} has no {key}: accepted is a number")
    for key in ("object_size", "slab_size"):
        require_int(f"{key} of cache {name}", values[key], 1, SIZE_MAX)
    align = require_int(f"align of cache {name}", values["align"], 0, SIZE_MAX)
    if align & (align - 1):
        raise ParameterError(
            f"align of cache {name} is {align}: accepted are powers of two and 0"
        )


def _number(where: str, key: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ParameterError(
            f"{key} in {where} is {text!r}: accepted is a whole number"
        ) from None


def _read_folder(folder: Path) -> list[_Shown]:
    """Read a folder of the form of /sys/kernel/slab."""
    entries = sorted(folder.iterdir())
    aliases: dict[str, list[str]] = {}
    for entry in entries:
        if entry.is_symlink():
            aliases.setdefault(entry.resolve().name, []).append(entry.name)
    return [
        _read_cache(entry, tuple(aliases.get(entry.name, ())))
        for entry in entries
        if entry.is_dir() and not entry.is_symlink()
    ]


def _read_cache(folder: Path, aliases: tuple[str, ...]) -> _Shown:
    values = {}
    for key in VALUES:
        file = folder / key
        try:
            values[key] = _number(str(file), key, file.read_text().strip())
        except FileNotFoundError:
            continue
        except PermissionError:
            raise ParameterError(
                f"{file} cannot be read by this user: accepted is root"
            ) from None
    _check_values(folder.name, values)
    constructor = folder / "ctor"
    known = constructor.read_text().strip() if constructor.exists() else None
    return _Shown(folder.name, values, aliases, None if known is None else bool(known))


def _read_table(text: str, where: str) -> list[_Shown]:
    """Read tab-separated values: a line of names, then a line a cache."""
    lines = [
        (number, line.split("\t"))
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.startswith("#")
    ]
    if not lines or "name" not in lines[0][1]:
        raise ParameterError(
            f"{where} has no line of column names: accepted are tab-separated columns "
            f"name, {', '.join(REQUIRED)} and more of /sys/kernel/slab"
        )
    columns = lines[0][1]
    found = []
    for number, fields in lines[1:]:
        if len(fields) != len(columns):
            raise ParameterError(
                f"{where}, line {number} has {len(fields)} columns: accepted are "
                f"{len(columns)}"
            )
        row = dict(zip(columns, fields, strict=True))
        line = f"{where}, line {number}"
        values = {key: _number(line, key, row[key]) for key in VALUES if key in row}
        _check_values(row["name"], values)
        constructor = bool(row["ctor"].strip()) if "ctor" in row else None
        found.append(_Shown(row["name"], values, (), constructor))
    return found


# ---- what slabq says -----------------------------------------------------------------


def _own_geometry(
    cache: _Shown, policy: Policy, machine: Machine, outside: bool, align: int
) -> dict[str, int]:
    """Geometry of such a cache; `outside`: the free pointer lies behind the object."""
    switches = {flag: cache.has(key) for key, flag in FLAGS.items()}
    text = _core.geometry(
        machine.core(),
        policy.name,
        list(policy.values().items()),
        cache.values["object_size"],
        align,
        flag_bits(policy, typesafe_by_rcu=outside, **switches),
        0,
    )
    found = json.loads(text)
    return {key: found[own] for key, own in COMPARED.items() if key in cache.values}


def _assumptions(
    cache: _Shown, release: tuple[int, ...]
) -> Iterator[tuple[bool, str, bool]]:
    """Yield where the free pointer may lie: behind the object, why, if assumed."""
    if cache.has("destroy_by_rcu"):
        yield True, "", False
        if release >= FREE_POINTER_PLACED_SINCE:
            yield False, ASSUMED_PLACED, True
    elif cache.has_constructor is None:
        yield False, "", False
        yield True, ASSUMED_CONSTRUCTOR, True
    else:
        why = WHY_CONSTRUCTOR if cache.has_constructor else ""
        yield cache.has_constructor, why, False


def _why_align(cache: _Shown, policy: Policy, machine: Machine) -> str:
    """Say why the alignment is more than the rule gives, or nothing."""
    shown = cache.values["align"]
    rule = _own_geometry(cache, policy, machine, outside=False, align=0)["align"]
    size = cache.values["object_size"]
    if shown == rule:
        return ""
    is_kmalloc = re.fullmatch(r"(dma-)?kmalloc-.*", cache.name) is not None
    return WHY_KMALLOC if is_kmalloc and shown == size & -size else WHY_ALIGN


def _compare(
    cache: _Shown, policy: Policy, machine: Machine, release: tuple[int, ...]
) -> HostCache:
    shown = {key: cache.values[key] for key in COMPARED if key in cache.values}
    tries = [
        (
            _own_geometry(cache, policy, machine, outside, cache.values["align"]),
            why,
            is_assumed,
        )
        for outside, why, is_assumed in _assumptions(cache, release)
    ]
    fitting = [entry for entry in tries if entry[0]["slab_size"] == shown["slab_size"]]
    own, why, is_assumed = (fitting or tries)[0]
    reasons = [why, _why_align(cache, policy, machine)]
    differing = [key for key in shown if shown[key] != own[key]]
    verdict = "differs" if differing else "assumed" if is_assumed else "same"
    if "slab_size" in differing and cache.has("store_user"):
        verdict = "unknown"
        reasons.append(WHY_STORE_USER)
    elif differing and set(differing) <= set(TUNABLES):
        reasons.append(WHY_TUNABLE)
    return HostCache(
        cache.name,
        cache.aliases,
        cache.values["object_size"],
        shown,
        own,
        verdict,
        tuple(reason for reason in reasons if reason),
    )


# ---- the kernel that is compared -----------------------------------------------------


def _release(kernel: str) -> tuple[int, ...]:
    found = version_key(kernel)[0]
    if len(found) < 2:
        raise ParameterError(f"kernel is {kernel!r}: accepted is such as 6.18.2")
    return found


def nearest_profile(kernel: str) -> str:
    """Return the SLUB profile nearest to a kernel release.

    Parameters
    ----------
    kernel : str
        The release, such as ``6.12.3-generic``.

    Returns
    -------
    str
        The newest profile that is not newer, else the oldest. PREEMPT_RT's is not
        looked at: it has the geometry of its release.

    Raises
    ------
    ParameterError
        If it does not begin like a release.

    Examples
    --------
    >>> nearest_profile("6.19.1"), nearest_profile("4.4.0-31-generic")
    ('6.18', '3.16')
    """
    release = _release(kernel)
    profiles = [name for name in kernel_profiles("slub") if not name.endswith("-rt")]
    older = [name for name in profiles if version_key(name)[0] <= release]
    return older[-1] if older else profiles[0]


def _host_cpus(release: tuple[int, ...], cpu_folder: Path) -> int:
    """CPUs that the kernel sizes slabs by."""
    is_present = release >= PRESENT_CPUS_SINCE
    text = (cpu_folder / ("present" if is_present else "possible")).read_text()
    found = parse_cpu_list(text)
    if is_present and len(found) > 1:
        return len(found)
    return max(parse_cpu_list((cpu_folder / "possible").read_text())) + 1


def _boot_options(command_line: str) -> dict[str, int]:
    return {f"slub_{m[1]}": int(m[2]) for m in BOOT_PARAMETER.finditer(command_line)}


def _host_folder() -> Path:
    for name in SYSFS_FOLDERS:
        if Path(name).is_dir():
            return Path(name)
    raise ParameterError(
        f"this kernel has no {SYSFS_FOLDERS[0]}: accepted are kernels with SLUB and a "
        "mounted /sys, or a file of such values"
    )


def _require_page_bytes() -> None:
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    if page_bytes != PAGE_BYTES:
        raise ParameterError(
            f"pages of this host have {page_bytes} bytes: accepted are {PAGE_BYTES}"
        )


def _read_source(
    source: str | os.PathLike[str] | None,
) -> tuple[list[_Shown], str | None, int | None, dict[str, int]]:
    """Read the caches, and of the kernel its release, CPUs and boot parameters."""
    if source is None:
        _require_page_bytes()
        kernel = platform.release()
        cpus = _host_cpus(_release(kernel), Path("/sys/devices/system/cpu"))
        options = _boot_options(Path("/proc/cmdline").read_text())
        return _read_folder(_host_folder()), kernel, cpus, options
    path = Path(source)
    if path.is_dir():
        return _read_folder(path), None, None, {}
    try:
        text = read_limited(path, "file").decode()
    except FileNotFoundError:
        raise ParameterError(
            f"there is no file {path}: accepted are tab-separated values and a folder "
            f"such as {SYSFS_FOLDERS[0]}"
        ) from None
    except UnicodeDecodeError:
        raise ParameterError(f"file {path} is not text: accepted is UTF-8") from None
    comments = "\n".join(line for line in text.splitlines() if line.startswith("#"))
    named = re.search(r"Linux (\d+\.\d[\w.+-]*)", comments)
    counted = re.search(r"(\d+)-CPU", comments)
    return (
        _read_table(text, path.name),
        named and named[1],
        int(counted[1]) if counted else None,
        {},
    )


def compare_host(
    source: str | os.PathLike[str] | None = None,
    *,
    kernel: str | None = None,
    cpus: int | None = None,
    **options: object,
) -> HostComparison:
    r"""Compare every cache that a kernel shows with slabq's own answer.

    Parameters
    ----------
    source : str or path-like, optional
        A folder of the form of ``/sys/kernel/slab``, or a file of tab-separated values:
        a line of the names ``name``, ``object_size``, ``slab_size``, ... as in sysfs,
        then a line a cache; a comment may say ``Linux 6.18.2`` and ``2-CPU``. Default:
        the running kernel.
    kernel : str, optional
        Release of the kernel. Default: what `source` says.
    cpus : int, optional
        CPUs that slabs are sized by: the present ones since 5.13, the possible ones
        before. Default: what `source` says.
    **options
        Options of `Slub`. Default: boot parameters of the running kernel, the profile.

    Returns
    -------
    HostComparison
        One row a cache. Values compared are ``slab_size``, ``align``, ``order``,
        ``objs_per_slab``, ``cpu_partial`` and ``min_partial``.

    Raises
    ------
    ParameterError
        If there is no such kernel or file, or its values cannot be read.

    Examples
    --------
    >>> import slabq, tempfile
    >>> file = tempfile.NamedTemporaryFile("w+")
    >>> names = "name", "object_size", "slab_size", "align", "order", "objs_per_slab"
    >>> print(*names, sep="\t", file=file)
    >>> print("dentry", 192, 192, 8, 0, 21, sep="\t", file=file, flush=True)
    >>> rows = slabq.compare_host(file.name, kernel="6.18", cpus=2)
    >>> rows[0].verdict
    'same'
    """
    caches, found_kernel, found_cpus, found_options = _read_source(source)
    release = kernel if kernel is not None else found_kernel
    count = cpus if cpus is not None else found_cpus
    if release is None or count is None:
        missing = "kernel release" if release is None else "number of CPUs"
        raise ParameterError(
            f"{source} does not say the {missing}: accepted are kernel and cpus beside "
            "it, or a comment such as '# Linux 6.18.2, 2-CPU'"
        )
    if not caches:
        raise ParameterError(
            f"{source or _host_folder()} has no cache: accepted is at least one"
        )
    machine = Machine(cpus=count)
    if not any(cache.values.get("cpu_partial", 1) for cache in caches):
        found_options["slub_cpu_partial"] = 0  # the kernel was built without
    policy = find_policy(
        "slub", kernel=nearest_profile(release), **(found_options | options)
    )
    rows = [_compare(cache, policy, machine, _release(release)) for cache in caches]
    return HostComparison(rows, release, policy, count)
