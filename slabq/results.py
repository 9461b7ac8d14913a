"""Results are a list of single ones: compared, plotted, and saved to one file.

A file is JSON inside gzip, with a version; `load` reads it back and tells a damaged
one.
"""

import gzip
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from slabq.checks import shown
from slabq.errors import Error, ParameterError
from slabq.result import Result

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from slabq.table import Table

__all__ = ["Results", "load"]

FORMAT_NAME = "slabq results"
FORMAT_VERSION = 1
# What `Result.from_dict` takes as it is.
_TYPES: Mapping[str, type] = {
    "workload": str,
    "engine": str,
    "seed": int,
    "parameters": dict,
    "host": dict,
    "versions": dict,
}


class Results(Sequence[Result]):
    """A list of results, in the order they were asked for.

    Parameters
    ----------
    results : iterable of Result
        The results.

    Examples
    --------
    >>> len(Results([]))
    0
    """

    def __init__(self, results: Iterable[Result]) -> None:
        self._results = tuple(results)

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> "Results": ...
    def __getitem__(self, index: int | slice) -> "Result | Results":
        if isinstance(index, slice):
            return Results(self._results[index])
        return self._results[index]

    def __len__(self) -> int:
        return len(self._results)

    def __iter__(self) -> Iterator[Result]:
        return iter(self._results)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Results) and self._results == other._results

    def __add__(self, other: "Results") -> "Results":
        return Results([*self, *other])

    def __repr__(self) -> str:
        return f"<slabq.Results: {len(self)} results>"

    def where(self, condition: Callable[[Result], bool]) -> "Results":
        """Return the results for which `condition` holds.

        Parameters
        ----------
        condition : callable
            Takes a `Result`.

        Returns
        -------
        Results

        Examples
        --------
        >>> Results([]).where(lambda result: result.policy.name == "slab")
        <slabq.Results: 0 results>
        """
        return Results(result for result in self if condition(result))

    def table(self, baseline: str | None = None, figure: str = "elapsed_s") -> "Table":
        """Return a comparison table.

        Parameters
        ----------
        baseline : str, optional
            Policy that ratios are against. Default: that of the first result.
        figure : str, default "elapsed_s"
            What is compared, as for `Result.figures`.

        Returns
        -------
        slabq.table.Table
            Prints as text; ``.format("markdown")`` and others.

        Raises
        ------
        ParameterError
            If there is no such policy or figure, or no result at all.

        Notes
        -----
        With repeats a cell is the median. Results of different engines, workloads or
        machines never share a column: each such group is a table of its own.

        Examples
        --------
        >>> import slabq
        >>> rs = slabq.sweep("hackbench", policy=["slab", "slub"], groups=1, loops=10,
        ...                  machine=slabq.Machine(cpus=2))
        >>> print(rs.table(baseline="slab").format("csv").splitlines()[1][:9])
        policy,ke
        """
        from slabq.comparison import comparison_table

        return comparison_table(self, baseline=baseline, figure=figure)

    def rows(self) -> list[dict[str, Any]]:
        """Return every result as a row of ``slabq run --json``.

        Returns
        -------
        list of dict

        Examples
        --------
        >>> Results([]).rows()
        []
        """
        return [result.row() for result in self]

    def to_pandas(self) -> "pd.DataFrame":
        """Return a data frame, one line a repeat.

        Returns
        -------
        pandas.DataFrame
            Nested figures become columns with dots, such as ``counters.allocmiss``.

        Raises
        ------
        Error
            If pandas is not installed.

        Examples
        --------
        >>> import slabq
        >>> rs = slabq.sweep("hackbench", policy="slab", groups=[1, 2], loops=10,
        ...                  machine=slabq.Machine(cpus=2))
        >>> list(rs.to_pandas()["parameters.groups"])
        [1, 2]
        """
        try:
            import pandas as pd
        except ImportError:
            raise Error("to_pandas needs pandas: pip install 'slabq[pandas]'") from None
        lines = []
        for result in self:
            row = result.row()
            row.pop("samples", None)
            for number, sample in enumerate(result.samples):
                lines.append({**row, **sample, "repeat": number})
        return pd.json_normalize(lines)

    def plot(self, ax: "Axes | None" = None, figure: str = "elapsed_s") -> "Axes":
        """Plot a comparison: bars by policy, or lines over what was varied.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw. Default: a new figure.
        figure : str, default "elapsed_s"
            What is compared, as for `Result.figures`.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        ParameterError
            If the results are of more than one workload, machine or engine, or there
            are none.

        Examples
        --------
        >>> import slabq
        >>> rs = slabq.sweep("hackbench", policy=["slab", "slub"], groups=1, loops=10,
        ...                  machine=slabq.Machine(cpus=2))
        >>> rs.plot().get_ylabel()
        'elapsed time [s]'
        """
        from slabq.plot import plot_comparison

        return plot_comparison(self, ax, figure=figure)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save to one file.

        Parameters
        ----------
        path : path-like
            The file; an existing one is replaced.

        Raises
        ------
        OSError
            If it cannot be written.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile(suffix=".slabq") as file:
        ...     Results([]).save(file.name)
        ...     len(load(file.name))
        0
        """
        document = {
            "format": FORMAT_NAME,
            "version": FORMAT_VERSION,
            "results": [result.to_dict() for result in self],
        }
        data = json.dumps(document, separators=(",", ":")).encode()
        with open(path, "wb") as file:
            file.write(gzip.compress(data, mtime=0))


def load(path: str | os.PathLike[str]) -> Results:
    """Read results that were saved.

    Parameters
    ----------
    path : path-like
        A file that `Results.save` or ``slabq run -o`` wrote.

    Returns
    -------
    Results

    Raises
    ------
    ParameterError
        If the file is not one, is of a later version, or is damaged.
    OSError
        If it cannot be read.

    Examples
    --------
    >>> load("no such file")
    Traceback (most recent call last):
    FileNotFoundError: [Errno 2] No such file or directory: 'no such file'
    """
    name = os.fspath(path)
    with open(path, "rb") as file:
        data = file.read(2)
        if data == b"\x1f\x8b":
            data += file.read()
    if data[:2] != b"\x1f\x8b":
        raise ParameterError(
            f"{name} is not a result file: accepted are files that slabq saved"
        )
    try:
        document = json.loads(gzip.decompress(data))
    except (OSError, EOFError, zlib.error, ValueError, RecursionError):
        raise ParameterError(
            f"result file {name} is damaged or cut off: accepted are whole files"
        ) from None
    return _from_document(document, name)


def _check_types(values: Mapping[str, Any]) -> None:
    """Raise TypeError if a value that is used as it stands is of another type."""
    for name, kind in _TYPES.items():
        value = values[name]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise TypeError(f"{name} is {shown(value)}")


def _from_document(document: Any, name: str) -> Results:
    if not isinstance(document, dict) or document.get("format") != FORMAT_NAME:
        raise ParameterError(
            f"{name} is not a result file: accepted are files that slabq saved"
        )
    version = document.get("version")
    if version != FORMAT_VERSION:
        raise ParameterError(
            f"result file {name} is of version {version}: accepted is {FORMAT_VERSION}"
        )
    try:
        for values in document["results"]:
            _check_types(values)
        return Results(Result.from_dict(values) for values in document["results"])
    except ParameterError as error:
        raise ParameterError(f"result file {name}: {error}") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise ParameterError(
            f"result file {name} is damaged ({type(error).__name__}: {error}): "
            "accepted are whole files"
        ) from None
