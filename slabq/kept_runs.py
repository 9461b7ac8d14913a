"""Runs of published tables that are kept, so that none is simulated twice.

They are in the folder that a user names, or else in the cache folder; which also has
links to the folders that were named, so that runs are found wherever they were written.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["CACHE_FILE", "Store", "cache_path", "open_store"]

CACHE_FILE = "runs.jsonl"
LINK_DIGITS = 16

Sample = Mapping[str, Any]


class Store:
    """Runs that have finished, one line of JSON each, in a file that only grows.

    Parameters
    ----------
    path : path-like or None
        The file; made when the first run is put. None keeps them in memory only.
    also : iterable of path-like, optional
        Further files in which runs are looked for, if they can be read. Nothing is
        written there.

    Raises
    ------
    OSError
        If it cannot be read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        also: Iterable[str | os.PathLike[str]] = (),
    ) -> None:
        self._path = None if path is None else Path(path)
        self._runs = {} if self._path is None else _read(self._path)
        self._elsewhere: dict[str, Sample] = {}
        for other in also:
            with contextlib.suppress(OSError):
                self._elsewhere |= _read(Path(other))

    def __contains__(self, key: str) -> bool:
        return key in self._runs or key in self._elsewhere

    def __getitem__(self, key: str) -> Sample:
        return self._runs[key] if key in self._runs else self._elsewhere[key]

    def put(self, key: str, sample: Sample) -> None:
        """Keep a run; it is in the file when this returns."""
        self._write({key: sample})

    def keep(self, keys: Iterable[str]) -> None:
        """Have all of these in the file, those that were found elsewhere too."""
        missing = dict.fromkeys(key for key in keys if key not in self._runs)
        if missing:
            self._write({key: self._elsewhere[key] for key in missing})

    def _write(self, runs: Mapping[str, Sample]) -> None:
        self._runs |= runs
        if self._path is None:
            return
        lines = b"".join(
            json.dumps({"key": key, "run": run}, separators=(",", ":")).encode() + b"\n"
            for key, run in runs.items()
        )
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with open(self._path, "ab+") as file:
            file.write(_end_of_broken_line(file) + lines)
            file.flush()
            os.fsync(file.fileno())


def _read(path: Path) -> dict[str, Sample]:
    runs: dict[str, Sample] = {}
    if not path.exists():
        return runs
    for line in path.read_bytes().splitlines():
        try:
            entry = json.loads(line)
            runs[str(entry["key"])] = dict(entry["run"])
        except (ValueError, TypeError, KeyError):
            continue  # cut off when it was interrupted: that run is done again
    return runs


def _end_of_broken_line(file: Any) -> bytes:
    if file.seek(0, os.SEEK_END) == 0:
        return b""
    file.seek(-1, os.SEEK_END)
    return b"" if file.read(1) == b"\n" else b"\n"


def cache_path() -> Path:
    """Return where runs are kept if no output folder is named."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(Path.home(), ".cache")
    return Path(base) / "slabq" / "reproduce" / CACHE_FILE


def open_store(folder: Path | None) -> Store:
    """Return the runs that are kept in a folder, and know of those of all others.

    Parameters
    ----------
    folder : Path or None
        Where runs are written. None: to the cache folder.

    Returns
    -------
    Store

    Raises
    ------
    OSError
        If a file of runs cannot be read.
    """
    cache = cache_path()
    own = cache if folder is None else folder / CACHE_FILE
    found = {path.resolve() for path in cache.parent.glob("*.jsonl")}
    if folder is not None:
        # The cache folder was not asked for; if it cannot be written, runs of this
        # folder are found by those who name it.
        with contextlib.suppress(OSError):
            _link(own, cache.parent)
    return Store(own, sorted(found - {own.resolve()}))


def _link(path: Path, caches: Path) -> None:
    """Leave a link to a file of runs, and take those away whose file is gone."""
    caches.mkdir(parents=True, exist_ok=True)
    for link in caches.glob("*.jsonl"):
        if link.is_symlink() and not link.exists():
            link.unlink(missing_ok=True)
    digest = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:LINK_DIGITS]
    link = caches / f"{digest}.jsonl"
    if not link.is_symlink():
        link.symlink_to(path.resolve())
