"""An explanation says what made two results differ, in sentences with figures.

Every sentence is built from figures that both results hold: time by function, waits by
lock, lines fetched, the kernel's counters, memory. Nothing is concluded beyond them.
"""

import dataclasses
import os
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from slabq.chapters import CHAPTERS, Chapter, Finding, Pair, how
from slabq.checks import require_int
from slabq.comparison import policy_labels, varied_parameters
from slabq.errors import ParameterError
from slabq.result import Result
from slabq.results import Results, load
from slabq.table import TEXT_WIDTH

if TYPE_CHECKING:
    from slabq.ablation import Ablation

__all__ = ["Difference", "Explanation", "explain"]

LIMIT_MAX = 1000


@dataclasses.dataclass(frozen=True)
class Difference:
    """Why the second of two results differs from the first.

    Parameters
    ----------
    first, second : Result
        The results.
    labels : tuple of str
        What they are called.
    chapters : sequence of Chapter
        What differs.

    Examples
    --------
    >>> import slabq
    >>> rs = slabq.sweep("hackbench", policy=["slab", "slub"], groups=1, loops=5,
    ...                  machine="penryn-2x4", engine="sim")
    >>> slabq.explain(rs).differences[0].labels
    ('slab', 'slub')
    """

    first: Result
    second: Result
    labels: tuple[str, str]
    chapters: Sequence[Chapter]

    @property
    def title(self) -> str:
        """What is compared with what, and whether it is measured or simulated."""
        machine = self.first.machine.name
        if self.second.machine != self.first.machine:
            machine += f" and {self.second.machine.name}"
        return (
            f"{self.first.workload}: {self.labels[1]} against {self.labels[0]}; "
            f"machine {machine}, {how(self.first)}"
        )

    @property
    def findings(self) -> list[Finding]:
        """All findings, chapter by chapter."""
        return [finding for chapter in self.chapters for finding in chapter.findings]

    def to_dict(self) -> dict[str, Any]:
        """Return titles, sentences and figures, in types that JSON has."""
        return {
            "title": self.title,
            "labels": list(self.labels),
            "engine": self.first.engine,
            "chapters": [
                {
                    "title": chapter.title,
                    "findings": [dataclasses.asdict(f) for f in chapter.findings],
                    "notes": list(chapter.notes),
                }
                for chapter in self.chapters
            ],
        }


@dataclasses.dataclass(frozen=True)
class Explanation:
    """Why results differ: pair by pair, in sentences.

    Parameters
    ----------
    differences : sequence of Difference
        One a pair.
    ablations : sequence of Ablation, optional
        What became of each pair with one thing changed at a time.

    Examples
    --------
    >>> print(Explanation([]))
    <BLANKLINE>
    """

    differences: Sequence[Difference]
    ablations: "Sequence[Ablation]" = ()

    def __str__(self) -> str:
        blocks = [_difference_text(difference) for difference in self.differences]
        blocks += [str(ablation) for ablation in self.ablations]
        return "\n\n".join(blocks)

    def __iter__(self) -> Iterator[Difference]:
        return iter(self.differences)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, in types that JSON has.

        Returns
        -------
        dict
            ``differences`` and ``ablations``.

        Examples
        --------
        >>> Explanation([]).to_dict()
        {'differences': [], 'ablations': []}
        """
        return {
            "differences": [difference.to_dict() for difference in self.differences],
            "ablations": [ablation.to_dict() for ablation in self.ablations],
        }


def explain(
    a: "Result | Results | str | os.PathLike[str]",
    b: "Result | Results | str | os.PathLike[str] | None" = None,
    *,
    limit: int = 6,
) -> Explanation:
    """Say which counters, locks and lines made results differ.

    Parameters
    ----------
    a : Result, Results or path-like
        A result, several, or a file of them.
    b : Result, Results or path-like, optional
        What to compare with `a`, as many results, in the same order. Without it, `a`
        holds several, and each is compared with the first one of the same workload,
        parameters, machine and engine.
    limit : int, default 6
        Sentences of a chapter; the largest differences are told.

    Returns
    -------
    Explanation
        Printed, it is the sentences; its findings have the figures.

    Raises
    ------
    ParameterError
        If there are no two results to compare, or two are of different workloads or
        engines.

    Notes
    -----
    Times are of all CPUs together, per operation, so waits and functions add up to the
    CPU time of an operation. With repeats the figures are those of the repeat with the
    median time, as in `Result`.

    Examples
    --------
    >>> import slabq
    >>> rs = slabq.sweep("hackbench", policy=["slab", "slub"], groups=1, loops=5,
    ...                  machine="penryn-2x4", engine="sim")
    >>> [chapter.title for chapter in slabq.explain(rs).differences[0].chapters][:2]
    ['Time', 'Time by function']
    """
    limit = require_int("limit", limit, 1, LIMIT_MAX)
    return Explanation([_difference(*pair, limit) for pair in result_pairs(a, b)])


# -- what is compared ------------------------------------------------------------------


def _listed(results: "Result | Results | str | os.PathLike[str]") -> list[Result]:
    if isinstance(results, str | os.PathLike):
        return list(load(results))
    return [results] if isinstance(results, Result) else list(results)


def result_pairs(
    a: "Result | Results | str | os.PathLike[str]",
    b: "Result | Results | str | os.PathLike[str] | None" = None,
) -> list[tuple[Result, Result]]:
    """Pair the results that are to be compared; see `explain`."""
    first = _listed(a)
    if b is None:
        pairs = _pairs_within(first)
        if not pairs:
            raise ParameterError(
                f"no two of {len(first)} results have the same workload, parameters, "
                "machine and engine: accepted are two policies in one file, or two "
                "files"
            )
        return pairs
    second = _listed(b)
    if len(first) != len(second) or not first:
        raise ParameterError(
            f"{len(first)} results against {len(second)}: accepted are as many in "
            "either, at least one"
        )
    pairs = list(zip(first, second, strict=True))
    for one, other in pairs:
        _check_pair(one, other)
    return pairs


def _pairs_within(results: Sequence[Result]) -> list[tuple[Result, Result]]:
    groups: dict[tuple[object, ...], list[Result]] = {}
    for result in results:
        parameters = tuple(sorted((k, str(v)) for k, v in result.parameters.items()))
        key = (result.workload, result.machine, result.engine, parameters)
        groups.setdefault(key, []).append(result)
    return [(group[0], other) for group in groups.values() for other in group[1:]]


def _check_pair(one: Result, other: Result) -> None:
    if one.workload != other.workload:
        raise ParameterError(
            f"a result of {one.workload} against one of {other.workload}: accepted "
            "are two of the same workload"
        )
    if one.engine != other.engine:
        raise ParameterError(
            f"a result of engine {one.engine} against one of {other.engine}: accepted "
            "are two of the same engine"
        )


def pair_labels(one: Result, other: Result) -> tuple[str, str]:
    """Name two results by what tells them apart."""
    first, second = policy_labels([one, other])
    if first != second:
        return first, second
    if one.machine.name != other.machine.name:
        return (f"{first} on {one.machine.name}", f"{second} on {other.machine.name}")
    names = varied_parameters([one, other])
    if names:
        name = names[0]
        return (
            f"{first} ({name} {one.parameters.get(name)})",
            f"{second} ({name} {other.parameters.get(name)})",
        )
    return f"the first ({first})", f"the second ({second})"


def _difference(one: Result, other: Result, limit: int) -> Difference:
    labels = pair_labels(one, other)
    pair = Pair(one, other, labels, limit)
    chapters = [make(pair) for make in CHAPTERS]
    told = [chapter for chapter in chapters if chapter.findings or chapter.notes]
    return Difference(one, other, labels, told)


# -- text ------------------------------------------------------------------------------


def wrap_text(text: str, indent: str = "") -> str:
    """Fold a sentence to the width of a mail, further lines indented."""
    return textwrap.fill(
        text,
        TEXT_WIDTH,
        initial_indent=indent,
        subsequent_indent=" " * len(indent),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _difference_text(difference: Difference) -> str:
    lines = [wrap_text(difference.title)]
    for chapter in difference.chapters:
        lines += ["", chapter.title]
        lines += [wrap_text(f.text, "- ") for f in chapter.findings]
        lines += [wrap_text(note, "  ") for note in chapter.notes]
    return "\n".join(lines)
