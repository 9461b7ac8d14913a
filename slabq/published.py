"""A published table is figures that somebody posted, and how slabq runs each cell.

The tables are files in ``data/tables``, one a table. What a posting does not say is not
in them; what slabq adds, the machine and the parameters of a run, stands in sections of
its own.
"""

import dataclasses
import functools
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Any

from slabq.checks import require_choice
from slabq.errors import ParameterError

__all__ = [
    "JITTER_PS",
    "SEEDS",
    "Column",
    "PublishedTable",
    "Row",
    "Share",
    "Window",
    "find_table",
    "published_tables",
]

SEEDS = (1, 2, 3)
# Each event of a simulated run is late by a random time of up to so much. It stands for
# what no parameter of a machine says: refresh of the memory, conflicts in the caches,
# interrupts of the clock. Workloads that draw no random numbers would otherwise be the
# same run under every seed. A nanosecond is less than any cache miss, so it changes
# which of two CPUs comes first and no figure by itself.
JITTER_PS = 1000
NOT_PUBLISHED = "-"
BETTER = ("smaller", "larger")
ELAPSED = "elapsed_s"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Column:
    """One column: what it is called in the posting, and the policy slabq runs for it.

    Parameters
    ----------
    name : str
        Heading.
    policy, kernel : str
        Policy and kernel profile.
    options : mapping of str to int
        Options of the policy that differ from the profile's.
    parameters : mapping of str to int
        Parameters of the workload in this column.
    about : str
        What the posting says of it beyond the heading.

    Examples
    --------
    >>> Column(name="SLAB", policy="slab", kernel="2.6.35").options
    {}
    """

    name: str
    policy: str
    kernel: str
    options: Mapping[str, int] = dataclasses.field(default_factory=dict)
    parameters: Mapping[str, int] = dataclasses.field(default_factory=dict)
    about: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One row: the figures as posted, and what slabq runs for it.

    Parameters
    ----------
    label : str
        What tells the row from the others.
    figures : sequence of float, length number of columns
        In the table's unit; NaN where none was published.
    parameters : mapping of str to int
        Parameters of the workload in this row.
    operations : int
        Operations of the command as posted, to scale a window's time up to it; 0 for a
        rate or a latency.
    figure : str
        Name of slabq's figure, as for `Result.figures`, if not the table's.
    difference_percent : float
        Difference that the posting prints beside the figures; NaN if it does not.
    context_switches, cpu_migrations : sequence of int
        Published counts, by column; empty if there are none.
    windows : mapping of str to Window
        ``full`` and ``quick`` of this row, if not the table's.

    Examples
    --------
    >>> Row(label="8", figures=[1.0, 2.0]).operations
    0
    """

    label: str
    figures: Sequence[float]
    parameters: Mapping[str, int] = dataclasses.field(default_factory=dict)
    operations: int = 0
    figure: str = ""
    difference_percent: float = math.nan
    context_switches: Sequence[int] = ()
    cpu_migrations: Sequence[int] = ()
    windows: "Mapping[str, Window]" = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Window:
    """What of a run is measured: operations passed over, then operations measured.

    Parameters
    ----------
    warmup_operations, measure_operations : int
        Counts of the workload's operations.

    Examples
    --------
    >>> Window(warmup_operations=10, measure_operations=5).parameters()
    {'warmup_operations': 10, 'measure_operations': 5}
    """

    warmup_operations: int
    measure_operations: int

    def parameters(self) -> dict[str, int]:
        """Return the window as parameters of a run."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Share:
    """Published share of CPU time in the allocator.

    Parameters
    ----------
    functions : sequence of str
        The functions that the posting added up.
    waits : sequence of str
        Where slabq books the time spent waiting for locks.
    counted : sequence of str
        The functions of slabq that do what those of the posting did. Default: of the
        same names.
    published : sequence of float, length number of columns
        Shares, 0 to 1.

    Examples
    --------
    >>> Share(functions=["__slab_alloc"], published=[0.88]).published
    [0.88]
    """

    functions: Sequence[str]
    published: Sequence[float]
    waits: Sequence[str] = ()
    counted: Sequence[str] = ()

    @property
    def own_functions(self) -> Sequence[str]:
        """The functions of slabq whose time is added up."""
        return self.counted or self.functions


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublishedTable:
    """One published table.

    Parameters
    ----------
    id : str
        Its name in slabq.
    title, author, source : str
        What it is, who posted it, subject and list and date of the message.
    machine, kernel, command : str
        As the posting says.
    row_heading, unit : str
        What the rows are by, and the unit of the figures.
    better : {"smaller", "larger"}
        Which figures are the better ones.
    baseline : str
        Column that ratios are against.
    columns, rows : sequence
        Of `Column` and `Row`.
    workload, machine_name : str
        What slabq runs, and the machine it runs on.
    figure : str
        Name of slabq's figure, as for `Result.figures`.
    factor : float
        What it is multiplied by to be in `unit`.
    parameters : mapping of str to int
        Parameters of the workload in every cell.
    windows : mapping of str to Window
        ``full`` and ``quick``.
    fitted : sequence of (str, str)
        Row and column of the cells that a constant of the machine was fitted on.
    notes : sequence of str
        What a reader has to know.
    message_id : str
        Of the message, if known.
    slab_share : Share, optional
        Published share of CPU time in the allocator.

    Raises
    ------
    ParameterError
        If a part does not fit the others.

    Examples
    --------
    >>> find_table("tbench-skb-2007").baseline
    'SLAB'
    """

    id: str
    title: str
    author: str
    source: str
    machine: str
    kernel: str
    command: str
    row_heading: str
    unit: str
    better: str
    baseline: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    workload: str
    machine_name: str
    figure: str
    windows: Mapping[str, Window]
    factor: float = 1.0
    parameters: Mapping[str, int] = dataclasses.field(default_factory=dict)
    fitted: Sequence[tuple[str, str]] = ()
    notes: Sequence[str] = ()
    message_id: str = ""
    slab_share: Share | None = None

    def __post_init__(self) -> None:
        names, labels = self.column_names, [row.label for row in self.rows]
        self._require_distinct("columns", names)
        self._require_distinct("rows", labels)
        require_choice(f"baseline of table {self.id}", self.baseline, names)
        require_choice(f"better of table {self.id}", self.better, BETTER)
        for label, name in self.fitted:
            require_choice(f"fitted row of table {self.id}", label, labels)
            require_choice(f"fitted column of table {self.id}", name, names)
        for row in self.rows:
            self._check_row(row)
        if self.slab_share is not None:
            self._require_count("shares", len(self.slab_share.published))

    def _require_distinct(self, what: str, names: Sequence[str]) -> None:
        if len(names) < 1 or len(set(names)) != len(names):
            raise ParameterError(
                f"{what} of table {self.id} are {', '.join(names) or 'none'}: accepted "
                "are some, each with a name of its own"
            )

    def _require_count(self, what: str, count: int) -> None:
        if count != len(self.columns):
            raise ParameterError(
                f"{what} of table {self.id} are {count}: accepted are as many as "
                f"columns, {len(self.columns)}"
            )

    def _check_row(self, row: Row) -> None:
        self._require_count(f"figures of row {row.label!r}", len(row.figures))
        for counts in (row.context_switches, row.cpu_migrations):
            if counts:
                self._require_count(f"counts of row {row.label!r}", len(counts))
        if any(value <= 0 for value in row.figures):
            raise ParameterError(
                f"figures of row {row.label!r} of table {self.id} are "
                f"{', '.join(map(str, row.figures))}: accepted are positive ones"
            )
        if self.figure_of(row) == ELAPSED and row.operations <= 0:
            raise ParameterError(
                f"operations of row {row.label!r} of table {self.id} is "
                f"{row.operations}: accepted is the count of the posted command"
            )

    @property
    def column_names(self) -> list[str]:
        """Names of the columns, in order."""
        return [column.name for column in self.columns]

    def column(self, name: str) -> Column:
        """Return the column of that name.

        Parameters
        ----------
        name : str
            Its heading.

        Returns
        -------
        Column

        Raises
        ------
        ParameterError
            If there is none; the known ones are listed.

        Examples
        --------
        >>> find_table("tbench-skb-2007").column("SLUB").kernel
        '2.6.24'
        """
        require_choice(f"column of table {self.id}", name, self.column_names)
        return self.columns[self.column_names.index(name)]

    def figure_of(self, row: Row) -> str:
        """Name slabq's figure in `row`.

        Parameters
        ----------
        row : Row
            A row of this table.

        Returns
        -------
        str
            As for `Result.figures`.

        Examples
        --------
        >>> table = find_table("tbench-skb-2007")
        >>> table.figure_of(table.rows[0])
        'rate'
        """
        return row.figure or self.figure

    def published(self, row: Row) -> dict[str, float]:
        """Return the published figures of `row`, those that there are.

        Parameters
        ----------
        row : Row
            A row of this table.

        Returns
        -------
        dict of str to float
            By column, in the table's unit.

        Examples
        --------
        >>> table = find_table("tbench-skb-2007")
        >>> table.published(table.rows[1])
        {'SLAB': 2435.58, 'SLUB': 2350.04}
        """
        pairs = zip(self.column_names, row.figures, strict=True)
        return {name: value for name, value in pairs if not math.isnan(value)}

    def window_of(self, row: Row, name: str) -> Window:
        """Return what of a run of `row` is measured.

        Parameters
        ----------
        row : Row
            A row of this table.
        name : {"full", "quick"}
            How long.

        Returns
        -------
        Window
            The row's own, or the table's.

        Examples
        --------
        >>> table = find_table("tbench-skb-2007")
        >>> table.window_of(table.rows[0], "full") == table.windows["full"]
        True
        """
        return row.windows.get(name, self.windows[name])

    def cell_parameters(self, row: Row, column: Column) -> dict[str, int]:
        """Return the parameters of the workload in one cell, without the window's.

        Parameters
        ----------
        row : Row
            A row of this table.
        column : Column
            A column of it.

        Returns
        -------
        dict of str to int

        Examples
        --------
        >>> table = find_table("tbench-skb-2007")
        >>> table.cell_parameters(table.rows[0], table.columns[0])["clients"]
        16
        """
        return {**self.parameters, **column.parameters, **row.parameters}

    def is_fitted(self, row: Row, column: str) -> bool:
        """Tell whether a constant was fitted on a cell.

        Parameters
        ----------
        row : Row
            A row of this table.
        column : str
            Name of a column.

        Returns
        -------
        bool

        Examples
        --------
        >>> table = find_table("tbench-skb-2007")
        >>> table.is_fitted(table.rows[1], "SLAB")
        True
        """
        return (row.label, column) in self.fitted

    def fitted_names(self) -> list[str]:
        """Name the fitted cells.

        Returns
        -------
        list of str
            Each as ``row / column``.

        Examples
        --------
        >>> find_table("tbench-skb-2007").fitted_names()
        ['deea84b0 reverted / SLAB']
        """
        return [f"{label} / {name}" for label, name in self.fitted]

    def to_dict(self) -> dict[str, Any]:
        """Return everything, in types that JSON has.

        Returns
        -------
        dict
            None stands for a figure that was not published.

        Examples
        --------
        >>> find_table("tbench-skb-2007").to_dict()["unit"]
        'MB/s'
        """
        values = dataclasses.asdict(self)
        for row in values["rows"]:
            row["figures"] = [None if math.isnan(v) else v for v in row["figures"]]
            if math.isnan(row["difference_percent"]):
                row["difference_percent"] = None
        return values


# -- reading ---------------------------------------------------------------------------


class _Reader:
    """Takes values out of a table of TOML, each by name, and refuses what is left."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self._left = dict(values)
        self.where = where

    def take(
        self, name: str, kind: type | tuple[type, ...], default: Any = None
    ) -> Any:
        if name not in self._left:
            if default is None:
                raise ParameterError(f"{self.where} has no {name}: it is required")
            return default
        value = self._left.pop(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            kinds = kind if isinstance(kind, tuple) else (kind,)
            names = " or ".join(one.__name__ for one in kinds)
            raise ParameterError(
                f"{self.where}: {name} is {value!r}: accepted is {names}"
            )
        return value

    def take_numbers(self, name: str) -> dict[str, int]:
        """Take a table of whole numbers; none is an empty one."""
        found = self.take(name, dict, {})
        for key, value in found.items():
            if not isinstance(value, int) or isinstance(value, bool):
                text = f"{self.where}: {name}.{key} is {value!r}"
                raise ParameterError(f"{text}: accepted is a whole number")
        return dict(found)

    def take_table(self, name: str) -> "_Reader":
        """Take a section; it is required."""
        return _Reader(self.take(name, dict), f"{self.where}, {name}")

    def take_tables(self, name: str) -> "Iterator[_Reader]":
        """Take a list of sections; it is required."""
        for number, values in enumerate(self.take(name, list), 1):
            yield _Reader(values, f"{self.where}, {name} {number}")

    def end(self) -> None:
        if self._left:
            name = next(iter(self._left))
            raise ParameterError(f"{self.where}: unknown key {name!r}")


def _read_column(reader: _Reader) -> Column:
    column = Column(
        name=reader.take("name", str),
        policy=reader.take("policy", str),
        kernel=reader.take("kernel", str),
        options=reader.take_numbers("options"),
        parameters=reader.take_numbers("parameters"),
        about=reader.take("about", str, ""),
    )
    reader.end()
    return column


def _read_figure(value: object, where: str) -> float:
    if value == NOT_PUBLISHED:
        return math.nan
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ParameterError(
            f"{where}: figure is {value!r}: accepted are a number and "
            f"{NOT_PUBLISHED!r} where none was published"
        )
    return value


def _read_row(reader: _Reader) -> Row:
    figures = reader.take("figures", list)
    row = Row(
        label=reader.take("label", str),
        figures=[_read_figure(value, reader.where) for value in figures],
        parameters=reader.take_numbers("parameters"),
        operations=reader.take("operations", int, 0),
        figure=reader.take("figure", str, ""),
        difference_percent=reader.take("difference_percent", (int, float), math.nan),
        context_switches=reader.take("context_switches", list, []),
        cpu_migrations=reader.take("cpu_migrations", list, []),
        windows=_read_row_windows(reader),
    )
    reader.end()
    return row


def _read_row_windows(reader: _Reader) -> dict[str, Window]:
    found = reader.take("window", dict, {})
    return _read_windows(_Reader(found, f"{reader.where}, window")) if found else {}


def _read_windows(reader: _Reader) -> dict[str, Window]:
    windows = {}
    for name in ("full", "quick"):
        part = reader.take_table(name)
        windows[name] = Window(
            warmup_operations=part.take("warmup_operations", int),
            measure_operations=part.take("measure_operations", int),
        )
        part.end()
    reader.end()
    return windows


def _read_share(reader: _Reader) -> Share | None:
    found = reader.take("slab_share", dict, {})
    if not found:
        return None
    part = _Reader(found, f"{reader.where}, slab_share")
    share = Share(
        functions=part.take("functions", list),
        published=part.take("published", list),
        waits=part.take("waits", list, []),
        counted=part.take("counted", list, []),
    )
    part.end()
    return share


_WORDS = (
    *("title", "author", "source", "machine", "kernel", "command"),
    *("row_heading", "unit", "better", "baseline"),
)


def read_table(text: str, table_id: str) -> PublishedTable:
    """Read one table from TOML; raise `ParameterError` that names what is wrong."""
    where = f"table {table_id}"
    try:
        reader = _Reader(tomllib.loads(text), where)
    except tomllib.TOMLDecodeError as error:
        raise ParameterError(f"{where}: {error}") from None
    run = reader.take_table("run")
    table = PublishedTable(
        id=table_id,
        **{word: reader.take(word, str) for word in _WORDS},
        message_id=reader.take("message_id", str, ""),
        columns=[_read_column(part) for part in reader.take_tables("columns")],
        rows=[_read_row(part) for part in reader.take_tables("rows")],
        workload=run.take("workload", str),
        machine_name=run.take("machine", str),
        figure=run.take("figure", str),
        factor=float(run.take("factor", (int, float), 1.0)),
        parameters=run.take_numbers("parameters"),
        windows=_read_windows(reader.take_table("window")),
        fitted=[(row, column) for row, column in reader.take("fitted", list, [])],
        notes=reader.take("notes", list, []),
        slab_share=_read_share(reader),
    )
    run.end()
    reader.end()
    return table


@functools.cache
def published_tables() -> Mapping[str, PublishedTable]:
    """Read the published tables that slabq brings along.

    Returns
    -------
    mapping of str to PublishedTable
        By id, the oldest posting first.

    Raises
    ------
    ParameterError
        If a file is not such a table.

    Examples
    --------
    >>> list(published_tables())[0]
    'tbench-skb-2007'
    """
    folder = resources.files("slabq.data").joinpath("tables")
    names = [entry.name for entry in folder.iterdir() if entry.name.endswith(".toml")]
    ids = [name.removesuffix(".toml") for name in names]
    ids.sort(key=lambda one: (one.rpartition("-")[2], one))
    return {
        one: read_table(folder.joinpath(f"{one}.toml").read_text(), one) for one in ids
    }


def find_table(table: PublishedTable | str) -> PublishedTable:
    """Return the table that is meant.

    Parameters
    ----------
    table : PublishedTable or str
        A table or its id.

    Returns
    -------
    PublishedTable

    Raises
    ------
    ParameterError
        If there is none of that id; the known ones are listed, the closest first.

    Examples
    --------
    >>> find_table("rt-hackbench-i4790-2021").unit
    's'
    """
    if isinstance(table, PublishedTable):
        return table
    known = published_tables()
    return known[require_choice("table", table, list(known))]
