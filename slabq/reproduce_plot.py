"""Plots of a rebuilt table: published figures and slabq's on common axes.

Imported only when something is drawn, since it needs matplotlib.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from slabq.checks import require_choice
from slabq.reproduction import RebuiltTable

__all__ = ["FORMS", "draw_rebuilt_table", "plot_rebuilt_table"]

FORMS = ("ratios", "figures")
LOG_FROM = 4.0  # largest over smallest from which an axis is logarithmic
SHORT_LOG = 10.0  # largest over smallest up to which it has more numbers
CLUSTER_WIDTH = 0.7
LONG_LABELS = 60  # letters of all row labels from which they are slanted
PUBLISHED_MARK: Mapping[str, Any] = {
    "marker": "D",
    "linestyle": "none",
    "fillstyle": "none",
    "markersize": 9,
}
SLABQ_LABEL = "slabq, simulated:\nmedian and range of seeds"
SLABQ_MARK: Mapping[str, Any] = {"marker": "o", "linestyle": "none", "markersize": 5}


def plot_rebuilt_table(
    rebuilt: RebuiltTable, ax: Axes | None = None, *, what: str = "ratios"
) -> Axes:
    """Draw one rebuilt table.

    Parameters
    ----------
    rebuilt : RebuiltTable
        The table.
    ax : matplotlib.axes.Axes, optional
        Where to draw. Default: new axes.
    what : {"ratios", "figures"}
        ``ratios``: of every row and column to the baseline. ``figures``: slabq's over
        the published ones, on equal axes.

    Returns
    -------
    matplotlib.axes.Axes
        Open marks are published, filled ones slabq's medians; arms reach from the
        smallest to the largest of the seeds.

    Raises
    ------
    ParameterError
        If the form is not known.

    Examples
    --------
    >>> from slabq.published import find_table
    >>> table = RebuiltTable(find_table("tbench-skb-2007"), [], "full", (1, 2, 3))
    >>> plot_rebuilt_table(table, what="figures").get_xlabel()
    'published [MB/s]'
    """
    require_choice("plot", what, FORMS)
    if ax is None:
        ax = Figure(figsize=(7, 4.3), layout="constrained").subplots()
    if what == "figures":
        _draw_figures(ax, rebuilt)
    else:
        _draw_ratios(ax, rebuilt)
    return ax


def draw_rebuilt_table(rebuilt: RebuiltTable) -> Figure:
    """Draw both forms side by side, as the report has them.

    Parameters
    ----------
    rebuilt : RebuiltTable
        The table.

    Returns
    -------
    matplotlib.figure.Figure
    """
    drawing = Figure(figsize=(13, 4.8), layout="constrained")
    left, right = drawing.subplots(1, 2, width_ratios=[5, 8])
    plot_rebuilt_table(rebuilt, left, what="figures")
    plot_rebuilt_table(rebuilt, right, what="ratios")
    return drawing


def _columns(rebuilt: RebuiltTable, *, baseline: bool) -> list[str]:
    """Columns that were run."""
    published = rebuilt.published
    return [
        name
        for name in published.column_names
        if name not in rebuilt.lacking and (baseline or name != published.baseline)
    ]


def _color(rebuilt: RebuiltTable, column: str) -> str:
    """Colour of a column: the same in both forms."""
    return f"C{rebuilt.published.column_names.index(column) % 10}"


def _arms(
    middles: Sequence[float], lows: Sequence[float], highs: Sequence[float]
) -> tuple[list[float], list[float]]:
    below = [middle - low for middle, low in zip(middles, lows, strict=True)]
    above = [high - middle for middle, high in zip(middles, highs, strict=True)]
    return below, above


def _number_log_axis(axis: Axis) -> None:
    """Write 1, 2, 5, 10 in place of powers of ten; more where the axis is short."""
    low, high = axis.get_view_interval()
    few = high / low < SHORT_LOG
    subs = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0) if few else (1.0, 2.0, 5.0)
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.9g}"))
    axis.set_minor_formatter(NullFormatter())


def _ratio_marks(columns: Sequence[tuple[str, str]]) -> list[Line2D]:
    """Make a legend: what the marks are, then the colour of each column."""
    published = Line2D([], [], color="0.3", label="published", **PUBLISHED_MARK)
    slabq = Line2D([], [], color="0.3", label=SLABQ_LABEL, **SLABQ_MARK)
    colours = [Line2D([], [], color=color, label=name) for name, color in columns]
    return [published, slabq, *colours]


def _draw_figures(ax: Axes, rebuilt: RebuiltTable) -> None:
    seen: list[float] = []
    for column in _columns(rebuilt, baseline=True):
        rows = [row for row in rebuilt.rows if column in row.published]
        spreads = [row.spreads[column] for row in rows]
        published = [row.published[column] for row in rows]
        middles = [found.median for found in spreads]
        lows = [found.minimum for found in spreads]
        highs = [found.maximum for found in spreads]
        ax.errorbar(
            published,
            middles,
            yerr=_arms(middles, lows, highs),
            fmt="o",
            capsize=3,
            color=_color(rebuilt, column),
            label=column,
        )
        seen += [*published, *lows, *highs]
    if seen:
        ends = (min(seen) / 1.1, max(seen) * 1.1)
        ax.plot(ends, ends, color="0.5", linewidth=1, label="slabq = published")
        ax.set_xlim(ends)
        ax.set_ylim(ends)
        if max(seen) / min(seen) >= LOG_FROM:
            ax.set_xscale("log")
            ax.set_yscale("log")
            _number_log_axis(ax.xaxis)
            _number_log_axis(ax.yaxis)
        ax.legend(fontsize="small")
    unit = rebuilt.published.unit
    ax.set_xlabel(f"published [{unit}]")
    ax.set_ylabel(f"slabq, simulated [{unit}]")
    ax.set_title(f"{rebuilt.id}: figures", fontsize="medium")
    ax.grid(alpha=0.3)


def _draw_ratios(ax: Axes, rebuilt: RebuiltTable) -> None:
    table = rebuilt.published
    columns = _columns(rebuilt, baseline=False)
    step = CLUSTER_WIDTH / max(len(columns), 1)
    seen = [1.0]
    for number, column in enumerate(columns):
        offset = (number - (len(columns) - 1) / 2) * step
        color = _color(rebuilt, column)
        seen += _draw_ratio_column(ax, rebuilt, column, offset, color)
    ax.axhline(1, color="0.5", linewidth=1)
    labels = [row.label for row in rebuilt.rows]
    slanted = sum(map(len, labels)) > LONG_LABELS
    ax.set_xticks(
        range(len(labels)),
        labels,
        rotation=30 if slanted else 0,
        ha="right" if slanted else "center",
    )
    ax.set_xlabel(table.row_heading)
    if max(seen) / min(seen) >= LOG_FROM:
        ax.set_yscale("log")
        _number_log_axis(ax.yaxis)
    what = f"ratio to {table.baseline}, of figures in {table.unit}"
    ax.set_ylabel(f"{what}\n({table.better} is better)")
    ax.set_title(f"{rebuilt.id}: ratios", fontsize="medium")
    ax.grid(axis="y", alpha=0.3)
    ax.legend(
        handles=_ratio_marks([(name, _color(rebuilt, name)) for name in columns]),
        fontsize="small",
        loc="upper left",
        bbox_to_anchor=(1.01, 1),
    )


def _draw_ratio_column(
    ax: Axes, rebuilt: RebuiltTable, column: str, offset: float, color: str
) -> list[float]:
    """Draw one column's ratios in all rows; return what was drawn."""
    drawn: list[float] = []
    rows = list(enumerate(rebuilt.rows))
    published = [(i + offset, r.ratio_published.get(column)) for i, r in rows]
    points = [(x, y) for x, y in published if y is not None]
    if points:
        xs, ys = zip(*points, strict=True)
        ax.plot(xs, ys, color=color, **PUBLISHED_MARK)
        drawn += ys
    if rows:
        spreads = [row.ratio_spreads[column] for row in rebuilt.rows]
        middles = [row.ratio_slabq[column] for row in rebuilt.rows]
        lows = [found.minimum for found in spreads]
        highs = [found.maximum for found in spreads]
        ax.errorbar(
            [i + offset for i, _ in rows],
            middles,
            yerr=_arms(middles, lows, highs),
            color=color,
            capsize=3,
            **SLABQ_MARK,
        )
        drawn += [*lows, *highs]
    return drawn
