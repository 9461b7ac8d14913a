"""A verdict says how near a ratio came to the one that was published.

Everything here is arithmetic on ratios to a baseline: 1 is "as the baseline".
"""

import statistics
from collections.abc import Iterable, Sequence

__all__ = [
    "DIRECTION",
    "MISSED",
    "REPRODUCED",
    "TIE",
    "VERDICTS",
    "median_ratio_error",
    "ratio_error",
    "same_sign",
    "sign_agreement",
    "verdict_of",
    "worst_verdict",
]

REPRODUCED = "reproduced"
DIRECTION = "direction"
TIE = "tie"
MISSED = "missed"
VERDICTS = (REPRODUCED, DIRECTION, TIE, MISSED)  # the best first

REPRODUCED_WITHIN = 0.05
TIE_WITHIN = 0.02
ROUNDING = 1e-9  # of binary fractions: 1.05 / 1.0 is within 5 %

Pair = tuple[float, float]  # ratio published, ratio of slabq


def same_sign(published: float, ratio: float) -> bool:
    """Tell whether both ratios lie on the same side of 1, or both on it.

    Parameters
    ----------
    published, ratio : float
        Ratios to the baseline.

    Returns
    -------
    bool

    Examples
    --------
    >>> same_sign(0.8, 0.95), same_sign(1.0, 1.3)
    (True, False)
    """
    return (published > 1) == (ratio > 1) and (published < 1) == (ratio < 1)


def ratio_error(published: float, ratio: float) -> float:
    """Return how far `ratio` is from the published one, as a share of that.

    Parameters
    ----------
    published, ratio : float
        Ratios to the baseline, positive.

    Returns
    -------
    float
        0 for the same; 0.05 for 5 % off either way.

    Examples
    --------
    >>> ratio_error(2.0, 1.5)
    0.25
    """
    return abs(ratio / published - 1)


def verdict_of(published: float, ratio: float) -> str:
    """Judge one cell.

    Parameters
    ----------
    published, ratio : float
        Ratios to the baseline, positive.

    Returns
    -------
    {"reproduced", "direction", "tie", "missed"}
        The first that holds: same sign of the difference and within 5 % of the
        published ratio; same sign; both within 2 % of 1; none of them.

    Examples
    --------
    >>> verdict_of(0.80, 0.83), verdict_of(0.80, 0.95), verdict_of(0.99, 1.01)
    ('reproduced', 'direction', 'tie')
    """
    if same_sign(published, ratio):
        near = ratio_error(published, ratio) <= REPRODUCED_WITHIN + ROUNDING
        return REPRODUCED if near else DIRECTION
    both_near_1 = max(abs(published - 1), abs(ratio - 1)) <= TIE_WITHIN + ROUNDING
    return TIE if both_near_1 else MISSED


def worst_verdict(verdicts: Iterable[str]) -> str | None:
    """Return the verdict of a row: the worst of its cells'.

    Parameters
    ----------
    verdicts : iterable of str
        Of the cells that are compared.

    Returns
    -------
    str or None
        None if no cell is compared.

    Examples
    --------
    >>> worst_verdict(["reproduced", "tie", "direction"])
    'tie'
    """
    return max(verdicts, key=VERDICTS.index, default=None)


def sign_agreement(pairs: Sequence[Pair]) -> float | None:
    """Return the share of cells whose difference has the published sign.

    Parameters
    ----------
    pairs : sequence of (float, float)
        Published ratio and slabq's, of every cell compared.

    Returns
    -------
    float or None
        0 to 1; a tie of opposite signs does not agree. None without a cell.

    Examples
    --------
    >>> sign_agreement([(0.8, 0.9), (1.1, 0.9)])
    0.5
    """
    if not pairs:
        return None
    return sum(same_sign(*pair) for pair in pairs) / len(pairs)


def median_ratio_error(pairs: Sequence[Pair]) -> float | None:
    """Return the median of `ratio_error` over cells.

    Parameters
    ----------
    pairs : sequence of (float, float)
        Published ratio and slabq's, of every cell compared.

    Returns
    -------
    float or None
        The mean of the two middle ones of an even number; None without a cell.

    Examples
    --------
    >>> median_ratio_error([(1.0, 1.5), (1.0, 0.75), (2.0, 2.0)])
    0.25
    """
    return statistics.median(ratio_error(*pair) for pair in pairs) if pairs else None
