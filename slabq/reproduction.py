"""A reproduction is published tables rebuilt: figures as posted beside slabq's.

The values here are made from the rows of finished runs and do all of the comparing. A
cell's figure is the median over the seeds, shown with the range.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from slabq.checks import require_choice
from slabq.errors import Error, ParameterError
from slabq.published import ELAPSED, JITTER_PS, PublishedTable, Row
from slabq.stats import Spread, spread
from slabq.verdict import (
    Pair,
    median_ratio_error,
    sign_agreement,
    verdict_of,
    worst_verdict,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from slabq.table import Table

__all__ = ["RebuiltRow", "RebuiltTable", "Reproduction"]

ENGINE = "sim"

Sample = Mapping[str, Any]


def figure_in(sample: Sample, name: str) -> float:
    """Look up a figure by its name with dots; raise `Error` if it is not there."""
    found: Any = sample
    for part in name.split("."):
        if not isinstance(found, Mapping) or part not in found:
            known = ", ".join(sorted(found)) if isinstance(found, Mapping) else "none"
            raise Error(f"a run has no figure {name!r}: it has {known}")
        found = found[part]
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise Error(f"figure {name!r} of a run is {found!r}: accepted is a number")
    return float(found)


def cell_value(table: PublishedTable, row: Row, sample: Sample) -> float:
    """Return the figure of one run in the unit of `table`, as `row` asks for it.

    A time is that of the window for each operation, for as many operations as the
    posted command has.
    """
    name = table.figure_of(row)
    value = figure_in(sample, name)
    if name == ELAPSED:
        value *= row.operations / figure_in(sample, "operations")
    if value <= 0:
        raise Error(f"figure {name!r} of a run is {value:g}: accepted is above 0")
    return value * table.factor


def _scaled_count(row: Row, sample: Sample, name: str) -> float:
    return figure_in(sample, name) * row.operations / figure_in(sample, "operations")


def slab_share_in(sample: Sample, functions: Iterable[str]) -> float | None:
    """Add up the CPU time of `functions` in a run; None if it knows none of them."""
    profile = sample.get("profile", {})
    known = [name for name in functions if name in profile]
    return sum(float(profile[name]) for name in known) if known else None


@dataclasses.dataclass(frozen=True)
class RebuiltRow:
    """One row of a table, as published and as slabq has it.

    Parameters
    ----------
    table : PublishedTable
        The table.
    row : Row
        Its row.
    samples : mapping of str to sequence of mapping
        The runs of each column that could be run, one a seed, in order of the seeds.

    Examples
    --------
    >>> from slabq.published import find_table
    >>> table = find_table("tbench-skb-2007")
    >>> runs = {"SLAB": [{"rate": 100.0}], "SLUB": [{"rate": 50.0}]}
    >>> row = RebuiltRow(table, table.rows[0], runs)
    >>> row.ratio_slabq["SLUB"], row.verdict
    (0.5, 'reproduced')
    """

    table: PublishedTable
    row: Row
    samples: Mapping[str, Sequence[Sample]]

    @property
    def label(self) -> str:
        """What tells the row from the others."""
        return self.row.label

    @property
    def published(self) -> dict[str, float]:
        """Published figures by column."""
        return self.table.published(self.row)

    def values(self, column: str) -> list[float]:
        """Figure of every seed in one column."""
        return [cell_value(self.table, self.row, run) for run in self.samples[column]]

    @property
    def spreads(self) -> dict[str, Spread]:
        """Median and range over the seeds, by column."""
        return {column: spread(self.values(column)) for column in self.samples}

    @property
    def slabq(self) -> dict[str, float]:
        """Median over the seeds, by column."""
        return {column: found.median for column, found in self.spreads.items()}

    @property
    def ratio_published(self) -> dict[str, float]:
        """Published figures over that of the baseline column."""
        return _ratios(self.published, self.table.baseline)

    @property
    def ratio_slabq(self) -> dict[str, float]:
        """Ratios of slabq's medians to that of the baseline column."""
        return _ratios(self.slabq, self.table.baseline)

    @property
    def ratio_spreads(self) -> dict[str, Spread]:
        """Median and range of the ratios of runs of equal seeds, by column."""
        if self.table.baseline not in self.samples:
            return {}
        base = self.values(self.table.baseline)
        return {
            column: spread(
                [a / b for a, b in zip(self.values(column), base, strict=True)]
            )
            for column in self.samples
        }

    @property
    def compared(self) -> list[str]:
        """Columns with a verdict.

        Those that have a ratio on both sides, but the baseline itself and fitted cells.
        """
        simulated = self.ratio_slabq
        return [
            column
            for column in self.ratio_published
            if column in simulated
            and column != self.table.baseline
            and not self.table.is_fitted(self.row, column)
        ]

    @property
    def pairs(self) -> list[Pair]:
        """Published ratio and slabq's of the columns compared."""
        published, simulated = self.ratio_published, self.ratio_slabq
        return [(published[column], simulated[column]) for column in self.compared]

    @property
    def verdicts(self) -> dict[str, str]:
        """Verdict of each column that is compared."""
        verdicts = [verdict_of(*pair) for pair in self.pairs]
        return dict(zip(self.compared, verdicts, strict=True))

    @property
    def verdict(self) -> str | None:
        """The worst verdict of the row's cells; None if none is compared."""
        return worst_verdict(self.verdicts.values())

    @property
    def slab_share(self) -> dict[str, float]:
        """Share of CPU time in the published functions, by column; empty if unknown."""
        share = self.table.slab_share
        return {} if share is None else self._shares(share.own_functions)

    @property
    def slab_share_with_waits(self) -> dict[str, float]:
        """Return `slab_share` with the time spent waiting for locks added."""
        share = self.table.slab_share
        if share is None:
            return {}
        known = self.slab_share
        found = self._shares([*share.own_functions, *share.waits])
        return {column: found[column] for column in known}

    def _shares(self, functions: Sequence[str]) -> dict[str, float]:
        found = {
            column: [slab_share_in(run, functions) for run in runs]
            for column, runs in self.samples.items()
        }
        return {
            column: spread([value for value in values if value is not None]).median
            for column, values in found.items()
            if None not in values
        }

    def counts(self, name: str) -> dict[str, dict[str, float]]:
        """Return published and slabq's counts by column; empty if none were posted."""
        published: Sequence[int] = getattr(self.row, name)
        if not published:
            return {}
        simulated = {
            column: spread([_scaled_count(self.row, run, name) for run in runs]).median
            for column, runs in self.samples.items()
        }
        pairs = zip(self.table.column_names, published, strict=True)
        return {"published": dict(pairs), "slabq": simulated}

    def to_dict(self) -> dict[str, Any]:
        """Return the row as JSON has it."""
        document: dict[str, Any] = {
            "label": self.label,
            "published": self.published,
            "slabq": self.slabq,
            "ratio_published": self.ratio_published,
            "ratio_slabq": self.ratio_slabq,
            "verdict": self.verdict,
            "verdicts": self.verdicts,
            "range": {c: [s.minimum, s.maximum] for c, s in self.spreads.items()},
            "ratio_range": {
                c: [s.minimum, s.maximum] for c, s in self.ratio_spreads.items()
            },
        }
        if self.table.slab_share is not None:
            document["slab_share"] = self.slab_share
            document["slab_share_with_waits"] = self.slab_share_with_waits
        if self.row.windows:
            document["window"] = {
                n: w.parameters() for n, w in self.row.windows.items()
            }
        for name in ("context_switches", "cpu_migrations"):
            if counts := self.counts(name):
                document[name] = counts
        return document


def _ratios(figures: Mapping[str, float], baseline: str) -> dict[str, float]:
    """Figures over that of the baseline; none if the baseline has no figure."""
    if baseline not in figures:
        return {}
    return {column: value / figures[baseline] for column, value in figures.items()}


@dataclasses.dataclass(frozen=True)
class RebuiltTable:
    """One published table rebuilt.

    Parameters
    ----------
    published : PublishedTable
        What was posted.
    rows : sequence of RebuiltRow
        In the order of the posting.
    window : {"full", "quick"}
        How much was measured.
    seeds : sequence of int
        Seeds of the runs.
    lacking : mapping of str to str
        Columns that could not be run, and what was missing.

    Examples
    --------
    >>> from slabq.published import find_table
    >>> RebuiltTable(find_table("tbench-skb-2007"), [], "full", (1, 2, 3)).id
    'tbench-skb-2007'
    """

    published: PublishedTable
    rows: Sequence[RebuiltRow]
    window: str
    seeds: Sequence[int]
    lacking: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def id(self) -> str:
        """Id of the table."""
        return self.published.id

    @property
    def pairs(self) -> list[Pair]:
        """Published ratio and slabq's of every cell compared."""
        return [pair for row in self.rows for pair in row.pairs]

    @property
    def sign_agreement(self) -> float | None:
        """Share of the cells compared whose difference has the published sign."""
        return sign_agreement(self.pairs)

    @property
    def median_ratio_error(self) -> float | None:
        """Median distance of slabq's ratio from the published one, as a share of it."""
        return median_ratio_error(self.pairs)

    def to_dict(self) -> dict[str, Any]:
        """Return the table as JSON has it."""
        document: dict[str, Any] = {
            "id": self.id,
            "title": self.published.title,
            "source": f"{self.published.author}: {self.published.source}",
            "rows": [row.to_dict() for row in self.rows],
            "sign_agreement": self.sign_agreement,
            "median_ratio_error": self.median_ratio_error,
            "fitted": self.published.fitted_names(),
            "baseline": self.published.baseline,
            "unit": self.published.unit,
            "better": self.published.better,
            "machine": self.published.machine_name,
            "engine": ENGINE,
            "seeds": list(self.seeds),
            "jitter_ps": JITTER_PS,
            "window": {
                "name": self.window,
                **self.published.windows[self.window].parameters(),
            },
            "lacking": dict(self.lacking),
        }
        share = self.published.slab_share
        if share is not None:
            names = self.published.column_names
            document["slab_share"] = {
                "functions": list(share.functions),
                "counted": list(share.own_functions),
                "waits": list(share.waits),
                "published": dict(zip(names, share.published, strict=True)),
            }
        return document


class Reproduction(Sequence[RebuiltTable]):
    """Published tables rebuilt, in the order they were asked for.

    Parameters
    ----------
    tables : iterable of RebuiltTable
        The tables.
    omitted : mapping of str to str, optional
        Tables that could not be run at all, and what was missing.

    Examples
    --------
    >>> Reproduction([]).rows
    []
    """

    def __init__(
        self,
        tables: Iterable[RebuiltTable],
        omitted: Mapping[str, str] | None = None,
    ) -> None:
        self._tables = tuple(tables)
        self.omitted = dict(omitted or {})

    @overload
    def __getitem__(self, index: int) -> RebuiltTable: ...
    @overload
    def __getitem__(self, index: slice) -> "Reproduction": ...
    def __getitem__(self, index: int | slice) -> "RebuiltTable | Reproduction":
        if isinstance(index, slice):
            return Reproduction(self._tables[index])
        return self._tables[index]

    def __len__(self) -> int:
        return len(self._tables)

    def __iter__(self) -> Iterator[RebuiltTable]:
        return iter(self._tables)

    def __repr__(self) -> str:
        return f"<slabq.Reproduction: {', '.join(t.id for t in self) or 'no table'}>"

    @property
    def rows(self) -> list[RebuiltRow]:
        """Rows of all tables."""
        return [row for table in self for row in table.rows]

    def find(self, table_id: str | None = None) -> RebuiltTable:
        """Return one table; without an id, the only one.

        Parameters
        ----------
        table_id : str, optional
            Its id.

        Returns
        -------
        RebuiltTable

        Raises
        ------
        ParameterError
            If there is no such table, or several and no id.

        Examples
        --------
        >>> Reproduction([]).find("tbench-skb-2007")
        Traceback (most recent call last):
        slabq.errors.ParameterError: there is no table: accepted is a rebuilt one
        """
        if not self:
            raise ParameterError("there is no table: accepted is a rebuilt one")
        known = [table.id for table in self]
        if table_id is None and len(known) == 1:
            return self[0]
        return self[known.index(require_choice("table", table_id, known))]

    def table(self) -> "Table":
        """Return published figures beside slabq's, ratio by ratio, as text tables.

        Returns
        -------
        slabq.table.Table
            Prints as text of at most 78 columns; ``.format("markdown")`` and others.

        Examples
        --------
        >>> print(str(Reproduction([]).table()).splitlines()[0])
        published tables, rebuilt by simulation
        """
        from slabq.report import reproduction_table

        return reproduction_table(self)

    def plot(
        self,
        ax: "Axes | None" = None,
        *,
        table: str | None = None,
        what: str = "ratios",
    ) -> "Axes":
        """Plot one table, published and slabq's.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw. Default: new axes.
        table : str, optional
            Id of the table. Default: the only one.
        what : {"ratios", "figures"}
            Ratios to the baseline row by row, or slabq's figures over the published.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ParameterError
            If there is no such table or form, or several and no id.

        Examples
        --------
        >>> Reproduction([]).plot()
        Traceback (most recent call last):
        slabq.errors.ParameterError: there is no table: accepted is a rebuilt one
        """
        from slabq.reproduce_plot import plot_rebuilt_table

        return plot_rebuilt_table(self.find(table), ax, what=what)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as ``slabq reproduce --json`` prints it.

        Returns
        -------
        dict
            In types that JSON has.

        Examples
        --------
        >>> Reproduction([]).to_dict()
        {'tables': []}
        """
        document: dict[str, Any] = {"tables": [table.to_dict() for table in self]}
        if self.omitted:
            document["omitted"] = self.omitted
        return document
