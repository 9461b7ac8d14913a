"""Records the kernel's kmem events while a command runs, through the installed perf.

perf records on all CPUs into buffers large enough to lose nothing; what it lost is
counted all the same. The names of merged caches are noted with the trace, since the
kernel prints only the first of them.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slabq.checks import require_int
from slabq.errors import Error, ParameterError

if TYPE_CHECKING:
    from slabq.trace import Trace

__all__ = ["Recording", "host_aliases", "record"]

EVENT_NAMES = (
    "kmem_cache_alloc",
    "kmem_cache_alloc_node",
    "kmem_cache_free",
    "kmalloc",
    "kmalloc_node",
    "kfree",
)
EVENT_FOLDERS = (
    Path("/sys/kernel/tracing/events/kmem"),
    Path("/sys/kernel/debug/tracing/events/kmem"),
)
ALWAYS_THERE = ("kmem_cache_alloc", "kmem_cache_free", "kmalloc", "kfree")
SLAB_FOLDER = Path("/sys/kernel/slab")
BUFFER_MIB = 16
BUFFER_MIB_MAX = 4096
# perf's own messages go to a file and are read; the command keeps the standard error of
# this process, by way of the open file 3.
_AROUND_PERF = ("sh", "-c", 'file=$1; shift; exec "$@" 3>&2 2>"$file"', "slabq")
_AROUND_COMMAND = ("sh", "-c", 'exec "$@" 2>&3 3>&-', "slabq")


@dataclass(frozen=True)
class Recording:
    """What was recorded while a command ran; made by `record`.

    Attributes
    ----------
    trace : Trace
        The events, with the names of merged caches.
    status : int
        Exit status of the command; minus the signal's number if one ended it.
    """

    trace: "Trace"
    status: int

    @property
    def lost(self) -> int:
        """Events that perf lost: 0 if the trace is whole."""
        return int(self.trace.summary["lost"])


def host_aliases(folder: str | os.PathLike[str] = SLAB_FOLDER) -> dict[str, str]:
    """Return the merged cache of each alias of this host.

    Parameters
    ----------
    folder : path-like, default /sys/kernel/slab
        Where aliases are links to folders of caches.

    Returns
    -------
    dict of str to str
        Empty if the host merges none, or does not show them.

    Examples
    --------
    >>> host_aliases("/no/such/folder")
    {}
    """
    try:
        entries = sorted(Path(folder).iterdir())
    except OSError:
        return {}
    return {
        entry.name: os.path.basename(os.readlink(entry))
        for entry in entries
        if entry.is_symlink()
    }


def event_names(folders: Sequence[Path] = EVENT_FOLDERS) -> list[str]:
    """Return the kmem events that this kernel has, of those that allocate or free.

    Parameters
    ----------
    folders : sequence of Path, optional
        Where tracefs may be mounted.

    Returns
    -------
    list of str
        Those that every kernel has, if tracefs does not say.

    Examples
    --------
    >>> event_names([])
    ['kmem_cache_alloc', 'kmem_cache_free', 'kmalloc', 'kfree']
    """
    for folder in folders:
        found = [name for name in EVENT_NAMES if (folder / name).is_dir()]
        if found:
            return found
    return list(ALWAYS_THERE)


def record(
    command: Sequence[str], *, buffer_mib: int = BUFFER_MIB, perf: str | None = None
) -> Recording:
    """Record the kernel's kmem events on all CPUs while a command runs.

    Parameters
    ----------
    command : sequence of str
        The command and its arguments. Its input and output are those of this process.
    buffer_mib : int, default 16
        Memory of perf's buffer for each CPU, in MiB; a power of two.
    perf : str, optional
        The perf to use. Default: the one that is found.

    Returns
    -------
    Recording

    Raises
    ------
    ParameterError
        If there is no such command, or a value is not accepted.
    Error
        If perf is not installed, or may not record the kernel's events.
    TraceFormatError
        If perf recorded no event at all.

    Examples
    --------
    >>> import slabq
    >>> slabq.record([])
    Traceback (most recent call last):
    slabq.errors.ParameterError: no command: accepted are a command and its arguments
    """
    if not command:
        raise ParameterError("no command: accepted are a command and its arguments")
    if shutil.which(command[0]) is None:
        raise ParameterError(
            f"no command {command[0]!r}: accepted are names in PATH and paths"
        )
    size = require_int("buffer_mib", buffer_mib, 1, BUFFER_MIB_MAX)
    if size & (size - 1):
        raise ParameterError(f"buffer_mib is {size}: accepted are powers of two")
    perf = perf or shutil.which("perf")
    if perf is None:
        raise Error(
            "perf, which records the events, is not installed; distributions have "
            "it as linux-perf, perf or linux-tools"
        )
    from slabq.trace import read_trace

    aliases = host_aliases()
    with tempfile.TemporaryDirectory(prefix="slabq-") as folder:
        path = Path(folder) / "perf.data"
        status, said = _run_perf(perf, command, size, path)
        if not path.exists() or path.stat().st_size == 0:
            raise Error(_refusal(status, said))
        return Recording(read_trace(path, aliases=aliases), status)


def perf_command(
    perf: str, command: Sequence[str], buffer_mib: int, path: Path
) -> list[str]:
    """Return the words of ``perf record`` for `command`.

    Parameters
    ----------
    perf : str
        The perf.
    command : sequence of str
        What to run; its standard error is to be open as file 3.
    buffer_mib : int
        Memory of the buffer of each CPU.
    path : Path
        Where perf writes.

    Returns
    -------
    list of str

    Examples
    --------
    >>> perf_command("perf", ["true"], 16, Path("x"))[:5]
    ['perf', 'record', '-q', '-m', '16M']
    """
    words = [perf, "record", "-q", "-m", f"{buffer_mib}M", "-a"]
    words += ["-e", ",".join(f"kmem:{name}" for name in event_names())]
    return [*words, "-o", str(path), "--", *_AROUND_COMMAND, *command]


def _run_perf(
    perf: str, command: Sequence[str], buffer_mib: int, path: Path
) -> tuple[int, str]:
    """Run it; its exit status, which is the command's, and what perf itself said."""
    messages = path.with_name("messages")
    words = perf_command(perf, command, buffer_mib, path)
    with subprocess.Popen([*_AROUND_PERF, str(messages), *words]) as process:
        status = _wait(process)
    said = messages.read_text("utf-8", "replace") if messages.exists() else ""
    return status, said


def _wait(process: "subprocess.Popen[bytes]") -> int:
    """Wait for perf; an interrupt reaches perf and the command, too."""
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
            raise


def _refusal(status: int, said: str) -> str:
    """Say in one line why perf recorded nothing."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    lower = said.lower()
    if any(word in lower for word in ("permission", "paranoid", "not permitted")):
        return (
            "perf may not record the kernel's events: accepted are root, CAP_PERFMON "
            "with readable tracefs, and sysctl kernel.perf_event_paranoid=-1"
        )
    reason = next((x for x in lines if x.lower() not in ("error:", "usage:")), "")
    return f"perf recorded nothing (status {status}): {reason or 'it gives no reason'}"
