"""Statistics of repeated runs: the middle of them and how far they spread."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Spread", "median_index", "spread"]


class Spread(NamedTuple):
    """Median, smallest and largest of some values."""

    median: float
    minimum: float
    maximum: float


def spread(values: Sequence[float]) -> Spread:
    """Return median and range of `values`.

    Parameters
    ----------
    values : sequence of float, length at least 1

    Returns
    -------
    Spread
        Of an even number of values the lower middle one is the median, so that it is
        always a value that was seen.

    Examples
    --------
    >>> spread([3.0, 1.0, 2.0])
    Spread(median=2.0, minimum=1.0, maximum=3.0)
    """
    return Spread(statistics.median_low(values), min(values), max(values))


def median_index(values: Sequence[float]) -> int:
    """Return where the median of `values` is.

    Parameters
    ----------
    values : sequence of float, length at least 1

    Returns
    -------
    int
        Index of the (lower) median; the first of equals.

    Examples
    --------
    >>> median_index([3.0, 1.0, 2.0])
    2
    """
    return list(values).index(statistics.median_low(values))
