"""Published tables are rebuilt cell by cell on the engine ``sim``.

A cell is one configuration. It is run once for each seed, at the population of the
posted command, after a warm-up, in a window. Rows that ask for the same configuration
share it. Every finished run is kept in a file at once, so that a call that was
interrupted goes on from there.
"""

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, as_completed
from importlib import resources
from pathlib import Path
from typing import Any, Protocol

from slabq import _core
from slabq.errors import Error, ParameterError
from slabq.kept_runs import Store, open_store
from slabq.machine import Machine, find_machine
from slabq.policy import find_policy
from slabq.progress import ProgressBar, ProgressFunction
from slabq.published import (
    JITTER_PS,
    SEEDS,
    PublishedTable,
    Row,
    find_table,
    published_tables,
)
from slabq.reproduction import (
    ENGINE,
    RebuiltRow,
    RebuiltTable,
    Reproduction,
    Sample,
)
from slabq.run import ENGINES, run
from slabq.version import __version__
from slabq.workload import find_workload

__all__ = ["jittered", "reproduce"]


# -- cells -----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Cell:
    """One configuration to simulate: plain values, equal if all of them are."""

    workload: str
    machine: str
    policy: str
    kernel: str
    options: tuple[tuple[str, int], ...]
    parameters: tuple[tuple[str, int], ...]


def cell_of(table: PublishedTable, row: Row, column: str, window: str) -> Cell:
    """Return the configuration of one cell of `table`."""
    spec = table.column(column)
    parameters = table.cell_parameters(row, spec)
    parameters |= table.window_of(row, window).parameters()
    return Cell(
        table.workload,
        table.machine_name,
        spec.policy,
        spec.kernel,
        tuple(sorted(spec.options.items())),
        tuple(sorted(parameters.items())),
    )


def jittered(machine: Machine) -> Machine:
    """Return the machine as published tables are run on it: its events jitter.

    Parameters
    ----------
    machine : Machine
        Any; what it says of ``jitter_ps`` is overridden.

    Returns
    -------
    Machine
        Of the same name.

    Examples
    --------
    >>> dict(jittered(Machine(cpus=2)).costs)["jitter_ps"]
    1000
    """
    costs = {**dict(machine.costs or ()), "jitter_ps": JITTER_PS}
    return machine.replace(costs=costs, name=machine.name)


class Laboratory(Protocol):
    """Where cells run."""

    def lack(self, cell: Cell) -> str:
        """Say what is missing to run `cell`; nothing if it can be run."""

    def identity(self, cell: Cell) -> Mapping[str, Any]:
        """All that decides the figures of `cell` beside the seed."""

    def run(self, cell: Cell, seed: int, progress: ProgressFunction | None) -> Sample:
        """Run `cell` and return the row of its result."""


class Simulator:
    """The laboratory of the product: the engine ``sim``, and never another."""

    def lack(self, cell: Cell) -> str:
        """Say what this build lacks for `cell`."""
        if ENGINE not in ENGINES:
            return f"no engine {ENGINE!r} in this build"
        try:
            self._parts(cell)
        except ParameterError as error:
            return str(error).partition(": ")[0]
        return ""

    def _parts(self, cell: Cell) -> tuple[Any, Any, Any]:
        workload = find_workload(cell.workload, **dict(cell.parameters))
        policy = find_policy(cell.policy, kernel=cell.kernel, **dict(cell.options))
        return workload, policy, jittered(find_machine(cell.machine))

    def identity(self, cell: Cell) -> Mapping[str, Any]:
        """Return the values of every part, and what the core is built from."""
        workload, policy, machine = self._parts(cell)
        return {
            "workload": [workload.name, dict(workload.parameters)],
            "policy": [policy.name, policy.kernel, policy.values()],
            "machine": machine.to_dict(),
            "machine_file": _machine_file_digest(cell.machine),
            "slabq": __version__,
            "core": _core_digest(),
        }

    def run(self, cell: Cell, seed: int, progress: ProgressFunction | None) -> Sample:
        """Simulate `cell`."""
        workload, policy, machine = self._parts(cell)
        result = run(
            workload,
            policy=policy,
            machine=machine,
            engine=ENGINE,
            seed=seed,
            progress=progress if progress is not None else False,
        )
        return result.row()


@functools.cache
def _core_digest() -> str:
    """Digest of the built core: another build is another simulator."""
    return hashlib.sha256(Path(str(_core.__file__)).read_bytes()).hexdigest()[:16]


@functools.cache
def _machine_file_digest(name: str) -> str:
    """Digest of a preset's file, which holds costs beside the fields of `Machine`."""
    file = resources.files("slabq.data").joinpath("machines", f"{name}.toml")
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


# -- runs that are kept ----------------------------------------------------------------


def run_key(identity: Mapping[str, Any], seed: int) -> str:
    """Name a run by all that decides its figures."""
    text = json.dumps([identity, seed], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


# -- doing it --------------------------------------------------------------------------


def lacking_columns(
    table: PublishedTable, window: str, laboratory: Laboratory
) -> dict[str, str]:
    """Say which columns of `table` cannot be run, and what is missing."""
    lacking = {}
    for column in table.column_names:
        cells = (cell_of(table, row, column, window) for row in table.rows)
        reason = next(filter(None, map(laboratory.lack, cells)), "")
        if reason:
            lacking[column] = reason
    return lacking


def why_not(table: PublishedTable, lacking: Mapping[str, str]) -> str:
    """Say why no ratio of `table` can be had; empty if one can."""
    if table.baseline in lacking:
        return lacking[table.baseline]
    left = [name for name in table.column_names if name not in lacking]
    return "" if len(left) > 1 else next(iter(lacking.values()), "a second column")


def rebuild(
    tables: Sequence[PublishedTable],
    *,
    laboratory: Laboratory,
    quick: bool = False,
    seeds: Sequence[int] = SEEDS,
    store: Store | None = None,
    executor: Executor | None = None,
    progress: ProgressFunction | bool | None = None,
) -> Reproduction:
    """Rebuild `tables` in `laboratory`; see `reproduce`.

    A table of which no ratio can be had is left out, and named with the reason.
    """
    window = "quick" if quick else "full"
    store = Store(None) if store is None else store
    lacking = {t.id: lacking_columns(t, window, laboratory) for t in tables}
    omitted = {t.id: why for t in tables if (why := why_not(t, lacking[t.id]))}
    wanted = [table for table in tables if table.id not in omitted]
    keys: dict[tuple[Cell, int], str] = {}
    for table in wanted:
        for cell in _cells(table, window, lacking[table.id]):
            identity = laboratory.identity(cell)
            keys |= {(cell, seed): run_key(identity, seed) for seed in seeds}
    _run_missing(keys, laboratory, store, executor, progress)
    store.keep(keys.values())
    samples = {run: store[key] for run, key in keys.items()}
    found = []
    for table in wanted:
        rebuilt = _rebuilt(table, window, tuple(seeds), lacking[table.id], samples)
        if why := _unreadable(rebuilt):
            omitted[table.id] = why
        else:
            found.append(rebuilt)
    return Reproduction(found, omitted)


def _unreadable(rebuilt: RebuiltTable) -> str:
    """Say which figure the runs of a table do not have; nothing if all are there."""
    try:
        rebuilt.to_dict()
    except Error as error:
        return str(error)
    return ""


def _cells(
    table: PublishedTable, window: str, lacking: Mapping[str, str]
) -> Iterator[Cell]:
    for row in table.rows:
        for column in table.column_names:
            if column not in lacking:
                yield cell_of(table, row, column, window)


def _run_missing(
    keys: Mapping[tuple[Cell, int], str],
    laboratory: Laboratory,
    store: Store,
    executor: Executor | None,
    progress: ProgressFunction | bool | None,
) -> None:
    """Run what the store does not have, and keep each run as soon as it is done."""
    missing = {run: key for run, key in keys.items() if key not in store}
    title = f"{len(missing)} runs"
    told = _Parts(progress, len(missing)) if callable(progress) else None
    show = None if progress is None else bool(progress)
    with ProgressBar(title, len(missing), show=False if told else show) as bar:
        parts = told or bar
        done = (
            _run_in_turn(missing, laboratory, parts)
            if executor is None
            else _run_on(missing, laboratory, executor)
        )
        for number, (key, sample) in enumerate(done, 1):
            store.put(key, sample)
            parts.begin_part(number, f"{number} of {title}")


def _run_in_turn(
    missing: Mapping[tuple[Cell, int], str],
    laboratory: Laboratory,
    progress: ProgressFunction,
) -> Iterator[tuple[str, Sample]]:
    for (cell, seed), key in missing.items():
        yield key, laboratory.run(cell, seed, progress)


def _run_on(
    missing: Mapping[tuple[Cell, int], str], laboratory: Laboratory, executor: Executor
) -> Iterator[tuple[str, Sample]]:
    """Give all runs to `executor`; whatever ends this takes back those not begun."""
    futures: dict[Future[Sample], str] = {}
    try:
        for (cell, seed), key in missing.items():
            futures[executor.submit(laboratory.run, cell, seed, None)] = key
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        for future in futures:
            future.cancel()


class _Parts:
    """Gives a caller's function the fraction of the whole."""

    def __init__(self, function: ProgressFunction, total: int) -> None:
        self._function, self._total, self._done = function, max(total, 1), 0

    def __call__(self, fraction: float) -> None:
        self._function((self._done + fraction) / self._total)

    def begin_part(self, number: int, title: str) -> None:
        self._done = number
        self(0.0)


def _rebuilt(
    table: PublishedTable,
    window: str,
    seeds: tuple[int, ...],
    lacking: Mapping[str, str],
    samples: Mapping[tuple[Cell, int], Sample],
) -> RebuiltTable:
    def runs(row: Row, column: str) -> list[Sample]:
        cell = cell_of(table, row, column, window)
        return [samples[cell, seed] for seed in seeds]

    columns = [name for name in table.column_names if name not in lacking]
    rows = [
        RebuiltRow(table, row, {column: runs(row, column) for column in columns})
        for row in table.rows
    ]
    return RebuiltTable(table, rows, window, seeds, lacking)


def reproduce(
    *tables: PublishedTable | str,
    quick: bool = False,
    output: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    progress: ProgressFunction | bool | None = None,
) -> Reproduction:
    """Rebuild published tables on the engine ``sim``.

    Parameters
    ----------
    *tables : PublishedTable or str
        Tables or their ids; ``slabq tables`` lists them. Default: all.
    quick : bool, default False
        Measure shorter windows after a shorter warm-up. The population and the seeds
        are the same.
    output : path-like, optional
        Folder for the report, the plots, the data and the runs that are kept. Default:
        runs are kept in the user's cache folder, and nothing else is written. Runs that
        were kept in the one are found by calls that write to the other, too.
    executor : concurrent.futures.Executor, optional
        Who runs the cells, dask's included; they do not depend on each other. Default:
        this process, one after the other.
    progress : callable or bool, optional
        A function that is called with the fraction done; False for no progress bar.
        Default: a bar on a terminal, if it takes longer than two seconds.

    Returns
    -------
    Reproduction

    Raises
    ------
    ParameterError
        If there is no such table, or this build lacks what one that was named needs.
    OSError
        If the output folder cannot be written.
    KeyboardInterrupt
        On Ctrl-C. Runs that were finished are kept; the next call goes on from them.

    Notes
    -----
    Each cell is run with the seeds 1, 2 and 3 and shown as median and range. Every
    event is late by a random time of up to a nanosecond (``jitter_ps``), so that three
    seeds are three samples of a workload that draws no random numbers, too. A time is
    that of the window for each operation, for as many operations as the posted command
    has. Ratios are against the table's baseline column.

    Without a table named, those that this build cannot run are left out and listed in
    ``omitted``.

    Examples
    --------
    >>> import slabq
    >>> slabq.reproduce("no-such-table")
    Traceback (most recent call last):
    slabq.errors.ParameterError: unknown table 'no-such-table': known are ...
    """
    wanted = [find_table(table) for table in tables] or list(
        published_tables().values()
    )
    laboratory = Simulator()
    require_runnable(wanted, quick, laboratory, all_of_them=bool(tables))
    folder = None if output is None else Path(output)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    store = open_store(folder)
    found = rebuild(
        wanted,
        laboratory=laboratory,
        quick=quick,
        store=store,
        executor=executor,
        progress=progress,
    )
    if folder is not None:
        from slabq.report import write_report

        write_report(found, folder)
    return found


def require_runnable(
    tables: Sequence[PublishedTable],
    quick: bool,
    laboratory: Laboratory,
    *,
    all_of_them: bool,
) -> None:
    """Raise `ParameterError` before anything runs if a table, or every one, cannot."""
    window = "quick" if quick else "full"
    reasons = {
        table.id: why_not(table, lacking_columns(table, window, laboratory))
        for table in tables
    }
    able = [name for name, reason in reasons.items() if not reason]
    unable = {name: reason for name, reason in reasons.items() if reason}
    if unable and (all_of_them or not able):
        name, reason = next(iter(unable.items()))
        others = f" and {len(unable) - 1} more" if len(unable) > 1 else ""
        known = f" (of those asked for, {', '.join(able)} can)" if able else ""
        text = f"table {name}{others} cannot be rebuilt here{known}"
        raise ParameterError(f"{text}: {reason}")
