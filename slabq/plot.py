"""Plots of results. This is the one module that imports matplotlib.

Every function takes results and ``ax=None``, draws on those axes or on new ones, and
returns them; nothing is shown or saved.
"""

import os
from collections.abc import Iterable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from slabq.comparison import figure_label, policy_labels, scaled, varied_parameters
from slabq.errors import ParameterError
from slabq.result import Result

__all__ = ["plot_comparison", "plot_latency", "plot_locks", "save_plot"]

PLOT_SUFFIXES = (".png", ".svg", ".pdf")


def _as_list(results: Result | Iterable[Result]) -> list[Result]:
    found = [results] if isinstance(results, Result) else list(results)
    if not found:
        raise ParameterError("there are no results: accepted is at least one")
    for what in ("workload", "machine", "engine"):
        values = list(dict.fromkeys(getattr(result, what) for result in found))
        if len(values) > 1:
            names = ", ".join(str(getattr(value, "name", value)) for value in values)
            raise ParameterError(f"{what}s of the results are {names}: accepted is one")
    return found


def _new_axes() -> Axes:
    return Figure(figsize=(7, 4.3), layout="constrained").subplots()


def _title(results: Sequence[Result]) -> str:
    first = results[0]
    repeats = f", median of {first.repeat_count}" if first.repeat_count > 1 else ""
    kind = "measured" if first.engine == "native" else "simulated"
    return f"{first.workload} on {first.machine.name}, {kind}{repeats}"


def _by_label(results: Iterable[Result]) -> dict[str, list[Result]]:
    groups: dict[str, list[Result]] = {}
    found = list(results)
    for result, label in zip(found, policy_labels(found, kernel=True), strict=True):
        groups.setdefault(label, []).append(result)
    return groups


def _middle_and_arms(values: Sequence[float]) -> tuple[float, float, float]:
    from slabq.stats import spread

    found = spread(values)
    return found.median, found.median - found.minimum, found.maximum - found.median


def plot_comparison(
    results: Result | Iterable[Result],
    ax: Axes | None = None,
    *,
    figure: str = "elapsed_s",
) -> Axes:
    """Compare policies: bars, or lines over the one numeric parameter that was varied.

    Parameters
    ----------
    results : Result or iterable of Result
        Results of one workload on one machine and engine.
    ax : matplotlib.axes.Axes, optional
        Where to draw. Default: new axes.
    figure : str, default "elapsed_s"
        What is compared, as for `Result.figures`.

    Returns
    -------
    matplotlib.axes.Axes
        Medians; with repeats, arms reach from the smallest to the largest value.

    Raises
    ------
    ParameterError
        If the results do not belong on common axes, or there are none.

    Examples
    --------
    >>> plot_comparison([])
    Traceback (most recent call last):
    slabq.errors.ParameterError: there are no results: accepted is at least one
    """
    found = _as_list(results)
    ax = _new_axes() if ax is None else ax
    varied = varied_parameters(found)
    lines = len(varied) == 1 and all(
        isinstance(result.parameters[varied[0]], int) for result in found
    )
    if lines:
        _draw_lines(ax, found, varied[0], figure)
    else:
        _draw_bars(ax, found, varied, figure)
    ax.set_ylabel(figure_label(figure))
    ax.set_ylim(bottom=0)
    ax.set_title(_title(found), fontsize="medium")
    ax.grid(axis="y", alpha=0.3)
    ax.set_axisbelow(True)
    return ax


def _draw_lines(ax: Axes, results: list[Result], name: str, figure: str) -> None:
    for label, group in _by_label(results).items():
        ordered = sorted(group, key=lambda result: int(result.parameters[name]))
        points = [_middle_and_arms(scaled(result, figure)) for result in ordered]
        middles, lows, highs = zip(*points, strict=True)
        ax.errorbar(
            [int(result.parameters[name]) for result in ordered],
            middles,
            yerr=(lows, highs),
            marker="o",
            capsize=3,
            label=label,
        )
    ax.set_xlabel(name.replace("_", " "))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend()


def _draw_bars(
    ax: Axes, results: list[Result], varied: Sequence[str], figure: str
) -> None:
    groups = _by_label(results)
    settings = list(dict.fromkeys(_setting_label(r, varied) for r in results))
    width = 0.8 / len(groups) if varied else 0.6
    for number, (label, group) in enumerate(groups.items()):
        for result in group:
            place: float = number
            if varied:
                offset = (number - (len(groups) - 1) / 2) * width
                place = settings.index(_setting_label(result, varied)) + offset
            middle, low, high = _middle_and_arms(scaled(result, figure))
            arms: dict[str, Any] = {}
            if result.repeat_count > 1:
                arms = {"yerr": ([low], [high]), "capsize": 4}
            first = result is group[0]
            ax.bar(
                place,
                middle,
                width,
                color=f"C{number}",
                label=label if first else None,
                **arms,
            )
    if varied:
        ax.set_xticks(range(len(settings)), settings)
        ax.set_xlabel(", ".join(name.replace("_", " ") for name in varied))
        ax.legend()
    else:
        ax.set_xticks(range(len(groups)), list(groups))
        ax.set_xlabel("policy and kernel profile")


def _setting_label(result: Result, varied: Sequence[str]) -> str:
    return ", ".join(str(result.parameters.get(name)) for name in varied)


def plot_locks(results: Result | Iterable[Result], ax: Axes | None = None) -> Axes:
    """Show how long CPUs waited for each kind of lock that any of them waited for.

    Parameters
    ----------
    results : Result or iterable of Result
        Results of one workload on one machine and engine.
    ax : matplotlib.axes.Axes, optional
        Where to draw. Default: new axes.

    Returns
    -------
    matplotlib.axes.Axes
        Horizontal bars, in milliseconds summed over the CPUs.

    Raises
    ------
    ParameterError
        If the results do not belong on common axes, or there are none.

    Examples
    --------
    >>> plot_locks([])
    Traceback (most recent call last):
    slabq.errors.ParameterError: there are no results: accepted is at least one
    """
    found = _as_list(results)
    ax = _new_axes() if ax is None else ax
    waited = [n for r in found for n, lock in r.locks.items() if lock["wait_ns"] > 0]
    names = list(dict.fromkeys(waited))
    height = 0.8 / len(found)
    for number, (label, group) in enumerate(_by_label(found).items()):
        for result in group:
            waits = [
                result.locks.get(name, {}).get("wait_ns", 0) / 1e6 for name in names
            ]
            offset = (number - (len(found) - 1) / 2) * height
            places = [index + offset for index in range(len(names))]
            ax.barh(places, waits, height, color=f"C{number}", label=label)
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.set_xlabel("time waited, sum over CPUs [ms]")
    ax.set_title(_title(found), fontsize="medium")
    ax.grid(axis="x", alpha=0.3)
    ax.set_axisbelow(True)
    ax.legend()
    return ax


def plot_latency(results: Result | Iterable[Result], ax: Axes | None = None) -> Axes:
    """Show the latency percentiles of every path, policy beside policy.

    Parameters
    ----------
    results : Result or iterable of Result
        Results of one workload on one machine and engine.
    ax : matplotlib.axes.Axes, optional
        Where to draw. Default: new axes.

    Returns
    -------
    matplotlib.axes.Axes
        A mark each for p50, p90, p99 and the largest value, in nanoseconds, on a
        logarithmic axis.

    Raises
    ------
    ParameterError
        If the results do not belong on common axes, have no latencies, or there are
        none.

    Examples
    --------
    >>> plot_latency([])
    Traceback (most recent call last):
    slabq.errors.ParameterError: there are no results: accepted is at least one
    """
    found = _as_list(results)
    paths = list(dict.fromkeys(path for r in found for path in r.latency_ns))
    if not paths:
        raise ParameterError("the results have no latencies: accepted are some that do")
    ax = _new_axes() if ax is None else ax
    marks = {"p50": "o", "p90": "s", "p99": "^", "max": "x"}
    labels = policy_labels(found, kernel=True)
    for number, (result, label) in enumerate(zip(found, labels, strict=True)):
        for name, mark in marks.items():
            points = [
                (index + (number - (len(found) - 1) / 2) * 0.15, figures[name])
                for index, path in enumerate(paths)
                if (figures := result.latency_ns.get(path)) and figures.get("count", 1)
            ]
            if points:
                xs, ys = zip(*points, strict=True)
                ax.plot(xs, ys, mark, color=f"C{number}", label=f"{label} {name}")
    ax.set_xticks(range(len(paths)), paths)
    ax.set_yscale("log")
    ax.set_xlabel("path")
    ax.set_ylabel("latency [ns]")
    ax.set_title(_title(found), fontsize="medium")
    ax.grid(axis="y", alpha=0.3)
    ax.legend(fontsize="x-small", ncols=2)
    return ax


def save_plot(
    results: Iterable[Result],
    path: str | os.PathLike[str],
    *,
    figure: str = "elapsed_s",
) -> None:
    """Draw `plot_comparison` into a picture file.

    Parameters
    ----------
    results : iterable of Result
        What is drawn.
    path : path-like
        The file; its suffix is the format: .png, .svg or .pdf.
    figure : str, default "elapsed_s"
        What is compared.

    Raises
    ------
    ParameterError
        If the suffix is another.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> save_plot([], "picture.bmp")
    Traceback (most recent call last):
    slabq.errors.ParameterError: plot is 'picture.bmp': accepted end in .png .svg .pdf
    """
    check_plot_path(path)
    drawing = Figure(figsize=(7, 4.3), layout="constrained")
    plot_comparison(results, drawing.subplots(), figure=figure)
    drawing.savefig(path, dpi=150)


def check_plot_path(path: str | os.PathLike[str]) -> None:
    """Raise `ParameterError` unless the suffix of `path` is a picture format."""
    name = os.fspath(path)
    if os.path.splitext(name)[1] not in PLOT_SUFFIXES:
        accepted = " ".join(PLOT_SUFFIXES)
        raise ParameterError(f"plot is {name!r}: accepted end in {accepted}")
