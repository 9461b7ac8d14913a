"""Kmem traces: what the kernel's slab allocator was asked for, event by event.

A trace is read from what perf, trace-cmd or ftrace recorded, whatever the era of the
kernel, and is then one numpy array of events with tables of the names they use. It can
say what ``perf kmem stat`` says, be saved in a compact form, and be replayed.
"""

import csv
import gzip
import json
import lzma
import os
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, cast

import numpy as np

from slabq import _core, dtypes
from slabq.errors import ParameterError, TraceFormatError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = [
    "KINDS",
    "Stat",
    "Trace",
    "bundled_alias_path",
    "bundled_trace_path",
    "read_aliases",
    "read_trace",
]

KINDS = (
    "kmalloc",
    "kmalloc_node",
    "kmem_cache_alloc",
    "kmem_cache_alloc_node",
    "kfree",
    "kmem_cache_free",
)
"""The kmem events by the number in the field ``kind``; the first four allocate."""

ACCOUNTED = 1
"""Bit of the field ``flags``: the allocation is charged to a memory control group."""

HASHED = 2
"""Bit of the field ``flags``: the kernel printed a hash in place of the pointer."""

Progress = Callable[[float], object]

_BLOCK_SIZE = 1 << 20
_COMPACT_MAGIC = b"SLABQKMT"
_PERF_MAGICS = (b"PERFILE2", b"2ELIFREP")
_TRACE_CMD_MAGIC = b"\x17\x08Dtracing"
_GZIP_MAGIC = b"\x1f\x8b"
_XZ_MAGIC = b"\xfd7zXZ\x00"
_OTHER_PACKERS = {b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"PK\x03\x04": "zip"}
_HEAD_SIZE = 16
_NO_ID = 0xFFFF


class Trace:
    """A kmem trace in memory.

    Made by `read_trace`. It does not change, and any number of threads may use it.

    Examples
    --------
    >>> from slabq.trace import bundled_trace_path, read_trace
    >>> trace = read_trace(bundled_trace_path())
    >>> trace
    <Trace of 27081 events on 2 CPUs, 0 lost>
    >>> trace.caches[int(trace.events["cache"][3])]
    'names_cache'
    """

    def __init__(self, core: _core.Trace) -> None:
        self._core = core

    def __len__(self) -> int:
        return len(self._core)

    def __repr__(self) -> str:
        counts = self.summary
        return (
            f"<Trace of {len(self)} events on {counts['cpus']} CPUs, "
            f"{counts['lost']} lost>"
        )

    @cached_property
    def events(self) -> "NDArray[np.void]":
        """The events in the order of the file, a read-only view.

        Returns
        -------
        ndarray of `slabq.dtypes.TRACE_EVENT`, shape (n_events,)
            ``time_ns`` is of the trace's own clock; ``ptr`` is 0 for nil; ``bytes_req``
            and ``bytes_alloc`` are 0 for frees; ``call_site``, ``cache``, ``gfp`` and
            ``task`` index `call_sites`, `caches`, `gfp_flags` and `tasks`, where 65535
            in the last three says that the event names none; ``node`` is the requested
            node or -1; ``kind`` indexes `KINDS`; ``flags`` has the bits `ACCOUNTED` and
            `HASHED`.

        Examples
        --------
        >>> trace = read_trace(bundled_trace_path())
        >>> int((trace.events["kind"] == KINDS.index("kmalloc")).sum())
        5040
        """
        return np.frombuffer(memoryview(self._core), dtype=dtypes.TRACE_EVENT)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """What was counted while reading.

        Returns
        -------
        dict
            ``events``, ``kinds`` (events by name), ``lines``, ``other_lines`` (headers,
            call-chain frames, other events), ``lost`` events and the ``lost_records``
            that say so, ``nil_frees``, ``failed_allocations`` (returned nil),
            ``hashed_pointers``, ``hidden_pointers`` (printed as no pointer at all; left
            out), ``time_backwards``, ``clamped_sizes``, ``unnamed``,
            ``truncated_lines``, ``cpus``, the lengths of the tables, and the first and
            last time.

        Examples
        --------
        >>> read_trace(bundled_trace_path()).summary["nil_frees"]
        1470
        """
        counts: dict[str, Any] = json.loads(self._core.summary())
        return counts

    @cached_property
    def call_sites(self) -> tuple[str, ...]:
        """Texts of the call sites, by the field ``call_site``."""
        return tuple(self._core.strings("call_sites"))

    @cached_property
    def caches(self) -> tuple[str, ...]:
        """Names of the caches, by the field ``cache``."""
        return tuple(self._core.strings("caches"))

    @cached_property
    def gfp_flags(self) -> tuple[str, ...]:
        """Texts of the allocation flags, by the field ``gfp``."""
        return tuple(self._core.strings("gfps"))

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """Tasks as ``comm-tid``, by the field ``task``."""
        return tuple(self._core.strings("tasks"))

    @cached_property
    def aliases(self) -> dict[str, str]:
        """The cache that each alias is merged into, as noted with the trace.

        A kernel that merges caches prints the first name of a merged cache; the others
        are its aliases.
        """
        pairs = (text.split("\t", 1) for text in self._core.strings("aliases"))
        return {alias: cache for alias, cache in pairs}  # noqa: C416 - lists, not pairs

    def aliases_of(self, cache: str) -> tuple[str, ...]:
        """Other names of the cache that the trace prints as `cache`.

        Parameters
        ----------
        cache : str
            A name of `caches`.

        Returns
        -------
        tuple of str
            Sorted; empty if nothing is noted of it.

        Examples
        --------
        >>> trace = read_trace(bundled_trace_path(), aliases=bundled_alias_path())
        >>> "skbuff_fclone_cache" in trace.aliases_of("pool_workqueue")
        True
        """
        merged = self.aliases.get(cache, cache)
        return tuple(
            sorted(
                name
                for name, target in self.aliases.items()
                if target == merged and name != cache
            )
        )

    def stat(
        self,
        by: Literal["caller", "alloc"] = "caller",
        *,
        sort: str = "frag,hit,bytes",
        limit: int | None = None,
        raw_ip: bool = False,
        node_of_cpu: Sequence[int] | None = None,
    ) -> "Stat":
        """Compute what ``perf kmem --slab stat`` says of the trace.

        Parameters
        ----------
        by : {"caller", "alloc"}
            A row for each call site, or for each pointer.
        sort : str
            Keys with commas between, the first first, largest on top: ``ptr``,
            ``callsite``, ``bytes``, ``hit``, ``pingpong``, ``frag``.
        limit : int, optional
            Rows of the text; a row of dots stands for the rest. Default: all.
        raw_ip : bool
            Show call sites as the trace has them.
        node_of_cpu : sequence of int, optional
            The node of each CPU of the traced machine, for the cross-CPU allocations.
            Default: all on node 0.

        Returns
        -------
        Stat

        Raises
        ------
        ParameterError
            If a sort key, `by`, `limit` or a node is not accepted.

        References
        ----------
        .. [1] ``perf-kmem(1)``, whose figures and columns these are.

        Examples
        --------
        >>> stat = read_trace(bundled_trace_path()).stat(sort="hit,bytes", limit=1)
        >>> int(stat.rows["hit"][0]), stat.totals["bytes_allocated"]
        (4453, 6236064)
        """
        if by not in ("caller", "alloc"):
            raise ParameterError(f"by is {by!r}; 'caller' or 'alloc' is accepted")
        if limit is not None and not 0 <= limit < 2**63:
            raise ParameterError(f"limit is {limit}; 0 or more is accepted")
        nodes = _nodes_checked(() if node_of_cpu is None else node_of_cpu)
        rows, totals, table, summary = self._core.stat(
            by == "caller",
            sort,
            -1 if limit is None else limit,
            raw_ip,
            nodes.tobytes(),
        )
        return Stat(
            by=by,
            rows=np.frombuffer(rows, dtype=dtypes.STAT_ROW),
            totals=totals,
            table=table.decode("utf-8", "backslashreplace"),
            summary=summary.decode("ascii"),
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trace in slabq's compact form, which `read_trace` takes.

        Parameters
        ----------
        path : path-like
            The file to write; compressed if its name ends in ``.gz`` or ``.xz``.

        Notes
        -----
        The form is columns of little-endian numbers behind a header with a version, and
        a checksum at the end: 40 bytes an event, compressed 3 to 5.
        ``csrc/trace/compact.h`` describes each byte.

        Examples
        --------
        >>> import tempfile, pathlib
        >>> trace = read_trace(bundled_trace_path())
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "trace.kmem.xz"
        ...     trace.save(path)
        ...     bool((read_trace(path).events == trace.events).all())
        True
        """
        data = self._core.encode()
        suffix = Path(path).suffix
        if suffix == ".gz":
            data = gzip.compress(data, mtime=0)
        elif suffix == ".xz":
            data = lzma.compress(data)
        Path(path).write_bytes(data)


@dataclass(frozen=True)
class Stat:
    """The figures of ``perf kmem stat``; made by `Trace.stat`.

    Attributes
    ----------
    by : {"caller", "alloc"}
        What a row is of.
    rows : ndarray of `slabq.dtypes.STAT_ROW`, shape (n_rows,)
        All rows, sorted: hits, bytes and ping-pong of each call site (``call_site`` is
        its number) or pointer (``ptr``).
    totals : dict of str to int
        ``bytes_requested``, ``bytes_allocated``, ``bytes_freed``, ``allocations``,
        ``cross_cpu_allocations``.
    table, summary : str
        The two parts of perf's text.
    """

    by: str
    rows: "NDArray[np.void]"
    totals: dict[str, int]
    table: str
    summary: str

    @property
    def frag(self) -> "NDArray[np.float64]":
        """Internal fragmentation of each row in percent, shape (n_rows,)."""
        requested = self.rows["bytes_req"].astype(np.float64)
        allocated = self.rows["bytes_alloc"].astype(np.float64)
        share = np.ones_like(allocated)
        np.divide(requested, allocated, out=share, where=allocated > 0)
        return 100.0 - 100.0 * share

    def text(self) -> str:
        """Table and summary as perf prints them.

        Returns
        -------
        str

        Examples
        --------
        >>> text = read_trace(bundled_trace_path()).stat(limit=5).text()
        >>> text.splitlines()[-1]
        'Cross CPU allocations: 0/13483'
        """
        return self.table + self.summary


def _nodes_checked(node_of_cpu: Sequence[int]) -> "NDArray[np.uint16]":
    for cpu, node in enumerate(node_of_cpu):
        if not 0 <= node < _NO_ID:
            raise ParameterError(
                f"node_of_cpu[{cpu}] is {node}; 0 to {_NO_ID - 1} is accepted"
            )
    return np.asarray(node_of_cpu, dtype=np.uint16)


def bundled_trace_path() -> Path:
    """Path of the trace that comes with slabq.

    ``hackbench -g 2 -f 10 -l 20`` over sockets, recorded with perf on a 2-CPU virtual
    machine under Linux 6.18, as perf script text.

    Returns
    -------
    pathlib.Path

    Examples
    --------
    >>> len(read_trace(bundled_trace_path()))
    27081
    """
    return _bundled("hackbench-socket.txt.gz")


def bundled_alias_path() -> Path:
    """Path of the alias map of the machine of the bundled trace.

    Returns
    -------
    pathlib.Path
        For the parameter `aliases` of `read_trace`.

    Examples
    --------
    >>> read_aliases(bundled_alias_path())["skbuff_fclone_cache"]
    ':0000512'
    """
    return _bundled("host-6.18-aliases.tsv")


def _bundled(name: str) -> Path:
    return Path(str(resources.files("slabq.data") / "traces" / name))


def read_aliases(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read a map of cache aliases.

    Parameters
    ----------
    path : path-like
        Lines of ``alias TAB cache`` below a heading, as the links of
        ``/sys/kernel/slab`` say.

    Returns
    -------
    dict of str to str
        The merged cache of each alias.

    Raises
    ------
    TraceFormatError
        If a line has not two columns.

    Examples
    --------
    >>> aliases = read_aliases(bundled_alias_path())
    >>> aliases["pool_workqueue"] == aliases["skbuff_fclone_cache"]
    True
    """
    aliases: dict[str, str] = {}
    with open(path, encoding="utf-8", errors="replace", newline="") as file:
        rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        for number, row in enumerate(rows, 1):
            if len(row) != 2:
                raise TraceFormatError(
                    f"{os.fspath(path)}:{number}: {len(row)} columns; alias TAB cache "
                    "was expected"
                )
            if number > 1:
                aliases[row[0]] = row[1]
    return aliases


def read_trace(
    path: str | os.PathLike[str],
    *,
    allow_truncated: bool = False,
    aliases: Mapping[str, str] | str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Trace:
    """Read a kmem trace. What kind of file it is, its content says, not its name.

    Parameters
    ----------
    path : path-like
        Text of ``perf script``, of ``trace-cmd report``, or of ftrace's ``trace`` file,
        from any kernel since 2.6.31; a ``perf.data`` file, read through the installed
        perf; or slabq's compact form. Each plain or compressed with gzip or xz.
    allow_truncated : bool
        Leave out a last line without a line feed, and count it, instead of refusing the
        file.
    aliases : mapping or path-like, optional
        Other names of merged caches, noted in the trace: a mapping from alias to cache
        or a file for `read_aliases`.
    progress : callable, optional
        Called now and then with the fraction of the file that is read, 0 to 1. An
        exception it raises stops the reading and comes out.

    Returns
    -------
    Trace

    Raises
    ------
    TraceFormatError
        If the file is empty, has no kmem event, is cut off in the middle of a line, is
        another kind of file, has a line that names a kmem event but does not read as
        one, or takes a tool that is not installed. The message names file and line.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> trace = read_trace(bundled_trace_path())
    >>> trace.summary["events"], trace.summary["lost"]
    (27081, 0)
    """
    core = _read_core(Path(path), allow_truncated, progress)
    if aliases is not None:
        if not isinstance(aliases, Mapping):
            aliases = read_aliases(aliases)
        for alias, cache in aliases.items():
            core.add_alias(alias, cache)
    if progress is not None:
        progress(1.0)
    return Trace(core)


def _read_core(
    path: Path, allow_truncated: bool, progress: Progress | None
) -> _core.Trace:
    """Peel off the compression, look at the first bytes, and choose the reader."""
    name = str(path).encode("utf-8", "backslashreplace").decode()
    with open(path, "rb") as raw, _decompression_errors(name):
        head = _peek(raw)
        if head.startswith(_GZIP_MAGIC):
            file = cast(IO[bytes], gzip.GzipFile(fileobj=raw))
        elif head.startswith(_XZ_MAGIC):
            file = lzma.open(raw)  # noqa: SIM115 - ends with raw, which it reads
        else:
            file = raw
        packed = file is not raw
        head = _peek(file)
        if head.startswith(_COMPACT_MAGIC):
            return _core.Trace.decode(file.read(), name)
        if head.startswith(_PERF_MAGICS):
            is_stream = packed or not file.seekable()
            return _read_perf(path, name, file if is_stream else None, allow_truncated)
        if not packed and file.seekable():
            _refuse_known(head, name)
            return _core.Trace.from_file(path, allow_truncated, progress)
        _refuse_known(head, name)
        size = os.fstat(raw.fileno()).st_size
        core = _core.Trace(name)
        try:
            while block := file.read(_BLOCK_SIZE):
                core.feed(block)
                if progress is not None and size > 0 and raw.seekable():
                    progress(min(raw.tell() / size, 1.0))
            core.finish(allow_truncated)
        except TraceFormatError:
            if packed:
                _read_to_the_end(file)
            raise
        return core


def _read_to_the_end(file: IO[bytes]) -> None:
    """Look for damage behind a line that does not read: it is why, and is raised."""
    while file.read(_BLOCK_SIZE):
        pass


def _peek(file: IO[bytes]) -> bytes:
    """Return the first bytes without taking them; they fit the buffer of any file."""
    return file.peek(_HEAD_SIZE)[:_HEAD_SIZE]  # type: ignore[attr-defined,no-any-return]


def _refuse_known(head: bytes, name: str) -> None:
    """Refuse a file of a kind that is known not to be text of events."""
    if head.startswith(_TRACE_CMD_MAGIC):
        raise TraceFormatError(
            f"{name} is a recording of trace-cmd; the text that "
            "`trace-cmd report` makes of it is accepted"
        )
    for magic, packer in _OTHER_PACKERS.items():
        if head.startswith(magic):
            raise TraceFormatError(
                f"{name} is compressed with {packer}; gzip and xz are accepted"
            )
    if b"\0" in head:
        raise TraceFormatError(
            f"{name} is a binary file of another kind; text of kmem events, perf.data "
            "or slabq's compact form was expected"
        )


@contextmanager
def _decompression_errors(name: str) -> "Iterator[None]":
    """Tell of a damaged compressed file as of any other damaged trace."""
    try:
        yield
    except EOFError as error:
        raise TraceFormatError(
            f"{name} is cut off: the compressed data has no end"
        ) from error
    except (gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise TraceFormatError(f"{name}: damaged compressed data: {error}") from error


def _read_perf(
    path: Path, name: str, unpacked: IO[bytes] | None, allow_truncated: bool
) -> _core.Trace:
    """Read a perf.data file through ``perf script``, which knows its event formats."""
    perf = shutil.which("perf")
    if perf is None:
        raise TraceFormatError(
            f"{name} is a perf.data file, and perf, which reads those, is not "
            "installed; the text that `perf script` makes of it is accepted too"
        )
    with tempfile.TemporaryDirectory(prefix="slabq-") as folder:
        if unpacked is not None:
            path = Path(folder) / "perf.data"
            with open(path, "wb") as plain:
                shutil.copyfileobj(unpacked, plain)
        with open(Path(folder) / "stderr", "w+b") as messages:
            return _run_perf_script(perf, path, name, messages, allow_truncated)


def _run_perf_script(
    perf: str, path: Path, name: str, messages: IO[bytes], allow_truncated: bool
) -> _core.Trace:
    command = [perf, "script", "--force", "--ns", "--show-lost-events"]
    command += ["-F", "comm,tid,cpu,time,event,trace", "-i", str(path.absolute())]
    core = _core.Trace(name)
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=messages,
        env={**os.environ, "LC_ALL": "C"},
    ) as process:
        assert process.stdout is not None
        try:
            while block := process.stdout.read(_BLOCK_SIZE):
                core.feed(block)
        except BaseException:
            process.kill()
            raise
    messages.seek(0)
    said = messages.read().decode("utf-8", "replace").split("\n")
    if process.returncode != 0:
        last = next(
            (line for line in reversed(said) if line.strip()), "no reason given"
        )
        raise TraceFormatError(
            f"{name}: perf script cannot read it (status {process.returncode}): {last}"
        )
    core.finish(allow_truncated)
    return core
