"""How much memory this host still has, so that what cannot fit is refused at once."""

from pathlib import Path

from slabq.errors import OutOfMemory

__all__ = ["available_bytes", "require_memory"]

MEMINFO = Path("/proc/meminfo")
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
CGROUPS = (  # limit and use of the group that this process is in, in either version
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ),
)


def available_bytes() -> int | None:
    """Return how much memory programs can still get.

    Returns
    -------
    int or None
        In bytes: what the kernel calls available, or what the control group has left if
        that is less. None if the host does not say.

    Examples
    --------
    >>> left = available_bytes()
    >>> left is None or left > 0
    True
    """
    found = [_meminfo_bytes(), *(_group_bytes(*files) for files in CGROUPS)]
    return min((count for count in found if count is not None), default=None)


def _meminfo_bytes() -> int | None:
    for line in _text(MEMINFO).splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable" and value.split()[:1]:
            return int(value.split()[0]) * 1024
    return None


def _group_bytes(limit: Path, used: Path) -> int | None:
    most, now = _text(limit).strip(), _text(used).strip()
    if not most.isdigit() or not now.isdigit():
        return None
    return max(int(most) - int(now), 0)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def has_huge_pages() -> bool:
    """Tell whether the kernel gives large pages to who asks for them."""
    text = _text(HUGE_PAGES)
    return "[always]" in text or "[madvise]" in text


def require_memory(what: str, needed_bytes: int) -> None:
    """Refuse what this host has not enough memory for.

    Parameters
    ----------
    what : str
        What needs it, for the message.
    needed_bytes : int
        The estimate.

    Raises
    ------
    OutOfMemory
        If less is available.

    Examples
    --------
    >>> require_memory("a machine of 2^60 bytes", 1 << 54)
    Traceback (most recent call last):
    slabq.errors.OutOfMemory: a machine of 2^60 bytes needs about 16777216.0 GiB
    """
    left = available_bytes()
    if left is None or needed_bytes <= left:
        return
    raise OutOfMemory(
        f"{what} needs about {needed_bytes / 2**30:.1f} GiB of this host's memory, of "
        f"which {left / 2**30:.1f} GiB are left: accepted is what fits"
    )
