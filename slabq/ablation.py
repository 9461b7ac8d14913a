"""An ablation runs a comparison again with one thing changed, and the next, in turn.

The changes are options of the policies, and costs of the simulated machine. The seeds
stay, so what comes out differently is due to the change. It takes simulated results: on
a real machine two runs differ for other reasons too.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from slabq.chapters import number_text
from slabq.checks import decimal_or_text, require_choice
from slabq.costs import default_costs
from slabq.errors import ParameterError
from slabq.explanation import pair_labels, result_pairs, wrap_text
from slabq.machine import Machine
from slabq.policy import policy_options
from slabq.result import Result

if TYPE_CHECKING:
    import os

    from slabq.progress import ProgressFunction
    from slabq.results import Results

__all__ = ["Ablation", "Change", "Outcome", "ablate", "default_changes"]

MACHINE = "machine"
# Whose -> what is changed by default, to which value, and what that is.
_DEFAULTS: Mapping[str, Sequence[tuple[str, int, str]]] = {
    "slab": (
        ("noaliencache", 1, "no alien arrays"),
        ("shared", 0, "no shared array"),
        ("limit", 8, "8 objects in a CPU's array"),
        ("limit", 240, "240 objects in a CPU's array"),
    ),
    "slub": (
        ("slub_cpu_partial", 0, "no cpu partial lists"),
        ("min_partial", 0, "empty slabs given back at once where that may be"),
        ("slub_max_order", 0, "slabs of one page where that may be"),
        ("slub_min_objects", 64, "slabs of 64 objects where that may be"),
        ("slab_cmpxchg", 0, "slabs under slab_lock"),
        ("fast_path", 0, "the fast path with interrupts off"),
    ),
    "slub+q": (
        ("cpu_queue_size", 8, "8 objects in a CPU's queue"),
        ("cpu_queue_size", 240, "240 objects in a CPU's queue"),
        ("shared_queue_size", 0, "no shared queues"),
        ("alien_queues", 0, "no alien queues"),
        ("slab_lock", 0, "no lock in each slab"),
        ("slub_max_order", 0, "slabs of one page where that may be"),
    ),
    "sheaves": (
        ("sheaf_all_caches", 0, "sheaves only where a cache asks for them"),
        ("barn_full_max", 0, "no full sheaves in barns"),
        ("slub_cpu_partial", 0, "no cpu partial lists"),
        ("slub_max_order", 0, "slabs of one page where that may be"),
    ),
    MACHINE: (
        ("lock_handover_per_waiter_ps", 0, "locks no slower with more waiters"),
        ("lock_handover_ps", 0, "lock hand-over for the transfer of its line alone"),
        ("irq_save_ps", 0, "turning interrupts off for nothing"),
        ("atomic_ps", 0, "locked instructions for nothing beside their lines"),
        ("upgrade_ps", 0, "stores to lines that others share for nothing extra"),
        ("idle_exit_ps", 0, "idle CPUs awake at once"),
    ),
}


@dataclasses.dataclass(frozen=True)
class Change:
    """One thing that an ablation changes.

    Parameters
    ----------
    owner : str
        Name of a policy, or ``machine``.
    name : str
        Option of the policy, or cost of the machine.
    value : int
        Its value.
    about : str, default ""
        What that is.

    Examples
    --------
    >>> print(Change("slub", "slub_cpu_partial", 0, "no cpu partial lists"))
    slub, slub_cpu_partial=0: no cpu partial lists
    """

    owner: str
    name: str
    value: int
    about: str = ""

    def __str__(self) -> str:
        text = f"{self.owner}, {self.name}={self.value}"
        return f"{text}: {self.about}" if self.about else text

    def applies_to(self, result: Result) -> bool:
        """Whether the result is not so already."""
        if self.owner == MACHINE:
            return dict(result.machine.costs or ())[self.name] != self.value
        values = result.policy.values()
        return self.owner == result.policy.name and values[self.name] != self.value

    def applied_to(self, result: Result) -> Result:
        """Return the result with its policy or machine changed."""
        if self.owner == MACHINE:
            costs = {**dict(result.machine.costs or ()), self.name: self.value}
            machine: Machine = result.machine.replace(costs=costs)
            return dataclasses.replace(result, machine=machine)
        values: dict[str, Any] = {self.name: self.value}
        changed = dataclasses.replace(result.policy, **values)
        return dataclasses.replace(result, policy=changed)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What one change made of a pair.

    Parameters
    ----------
    change : Change
        The change.
    first_ns, second_ns : float
        Time of an operation in ns, of either result, with the change.
    is_same : bool
        True if the runs with it were the same, event by event.
    """

    change: Change
    first_ns: float
    second_ns: float
    is_same: bool = False

    @property
    def ratio(self) -> float:
        """Time of the second over that of the first."""
        return self.second_ns / self.first_ns


@dataclasses.dataclass(frozen=True)
class Ablation:
    """A pair of results, and what became of it with one change at a time.

    Parameters
    ----------
    labels : tuple of str
        What the results are called.
    first_ns, second_ns : float
        Time of an operation in ns, of either, without a change.
    outcomes : sequence of Outcome
        One a change, those first that change the ratio most.
    notes : sequence of str, optional
        What else there is to say.

    Examples
    --------
    >>> Ablation(("slab", "slub"), 4.0, 6.0, []).ratio
    1.5
    """

    labels: tuple[str, str]
    first_ns: float
    second_ns: float
    outcomes: Sequence[Outcome]
    notes: Sequence[str] = ()

    @property
    def ratio(self) -> float:
        """Time of the second over that of the first, without a change."""
        return self.second_ns / self.first_ns

    def sentences(self) -> list[str]:
        """One sentence an outcome.

        Returns
        -------
        list of str

        Examples
        --------
        >>> outcome = Outcome(Change("slub", "min_partial", 0), 4.0, 5.0)
        >>> Ablation(("slab", "slub"), 4.0, 6.0, [outcome]).sentences()
        ['slub, min_partial=0: slub/slab 1.250 (-0.250); slub from 6.00 to 5.00 ns.']
        """
        return [self._sentence(outcome) for outcome in self.outcomes]

    def _sentence(self, outcome: Outcome) -> str:
        if outcome.is_same:
            return f"{outcome.change}: changes nothing, event by event."
        name = f"{self.labels[1]}/{self.labels[0]}"
        moved = [
            f"{label} from {number_text(before)} to {number_text(after)} ns"
            for label, before, after in zip(
                self.labels,
                (self.first_ns, self.second_ns),
                (outcome.first_ns, outcome.second_ns),
                strict=True,
            )
            if before != after
        ]
        change = outcome.ratio - self.ratio
        text = f"{outcome.change}: {name} {outcome.ratio:.3f} ({change:+.3f})"
        return "; ".join([text, *moved]) + "."

    def __str__(self) -> str:
        name = f"{self.labels[1]}/{self.labels[0]}"
        lines = [f"One thing changed at a time, simulated; unchanged {name} is "]
        lines[0] += f"{self.ratio:.3f}"
        lines += [wrap_text(sentence, "- ") for sentence in self.sentences()]
        return "\n".join([*lines, *(wrap_text(note, "  ") for note in self.notes)])

    def to_dict(self) -> dict[str, Any]:
        """Return all figures and sentences, in types that JSON has.

        Returns
        -------
        dict

        Examples
        --------
        >>> Ablation(("slab", "slub"), 4.0, 6.0, []).to_dict()["ratio"]
        1.5
        """
        return {
            "labels": list(self.labels),
            "first_ns": self.first_ns,
            "second_ns": self.second_ns,
            "ratio": self.ratio,
            "outcomes": [
                {**dataclasses.asdict(o), "ratio": o.ratio, "text": text}
                for o, text in zip(self.outcomes, self.sentences(), strict=True)
            ],
            "notes": list(self.notes),
        }


def default_changes(one: Result, other: Result) -> list[Change]:
    """Return the changes that `ablate` makes of itself.

    Parameters
    ----------
    one, other : Result
        The pair.

    Returns
    -------
    list of Change
        Of the policies of the two, then of the machine; only those that are not so
        already.

    Examples
    --------
    >>> import slabq
    >>> rs = slabq.sweep("hackbench", policy=["slab", "slub"], groups=1, loops=5,
    ...                  machine="penryn-2x4", engine="sim")
    >>> print(default_changes(*rs)[0])
    slab, noaliencache=1: no alien arrays
    """
    owners = dict.fromkeys([one.policy.name, other.policy.name, MACHINE])
    changes = [
        Change(owner, name, int(value), about)
        for owner in owners
        for name, value, about in _DEFAULTS.get(owner, ())
    ]
    return [c for c in changes if c.applies_to(one) or c.applies_to(other)]


def find_changes(names: Sequence[str], one: Result, other: Result) -> list[Change]:
    """Return the changes that are named, as ``NAME=VALUE`` or by name alone.

    Parameters
    ----------
    names : sequence of str
        Options of the policies and costs of the machine. A name alone means what
        `default_changes` makes of it, else 0.
    one, other : Result
        The pair.

    Returns
    -------
    list of Change

    Raises
    ------
    ParameterError
        If a name is not known, or its value is not accepted.

    Examples
    --------
    >>> find_changes([], None, None)
    []
    """
    found: list[Change] = []
    for name in names:
        found += _changes_named(name, one, other)
    return found


def _changes_named(text: str, one: Result, other: Result) -> list[Change]:
    name, equals, value = text.partition("=")
    if not equals:
        known = [c for c in default_changes(one, other) if c.name == name]
        if known:
            return known
    policies = dict.fromkeys([one.policy.name, other.policy.name])
    owners = [p for p in policies if name in policy_options(p)]
    owners += [MACHINE] if name in default_costs() else []
    if not owners:
        everything = [o for p in policies for o in policy_options(p)]
        require_choice("option or cost", name, [*everything, *default_costs()])
    number = decimal_or_text(value or "0")
    if isinstance(number, str):
        raise ParameterError(
            f"ablate is {text!r}: accepted are NAME and NAME=VALUE with a whole number"
        )
    return [Change(owner, name, number) for owner in owners]


def ablate(
    a: "Result | Results | str | os.PathLike[str]",
    b: "Result | Results | str | os.PathLike[str] | None" = None,
    *,
    changes: Sequence[str] = (),
    progress: "ProgressFunction | bool | None" = None,
) -> list[Ablation]:
    """Run pairs of simulated results again with one thing changed at a time.

    Parameters
    ----------
    a, b : Result, Results or path-like
        As for `explain`.
    changes : sequence of str, optional
        What to change: options of the policies and costs of the machine, each as
        ``NAME=VALUE`` or ``NAME``. Default: a list by policy.
    progress : callable or bool, optional
        As for `run`.

    Returns
    -------
    list of Ablation
        One a pair; the changes that change the ratio of the two most come first.

    Raises
    ------
    ParameterError
        If the results are not simulated, or a name or value is not accepted.

    Notes
    -----
    Each pair is run unchanged first, with the same seeds; times are against that run.
    With several repeats the median is taken.

    Examples
    --------
    >>> import slabq
    >>> rs = slabq.sweep("hackbench", policy=["slab", "slub"], groups=1, loops=5,
    ...                  machine="penryn-2x4", engine="sim")
    >>> found = slabq.ablate(rs, changes=["lock_handover_per_waiter_ps"])
    >>> found[0].outcomes[0].change.value
    0
    """
    pairs = result_pairs(a, b)
    for pair in pairs:
        for result in pair:
            if result.engine != "sim":
                raise ParameterError(
                    f"an ablation of a result of engine {result.engine}: accepted are "
                    "results of engine sim"
                )
    plans = [
        find_changes(changes, *pair) if changes else default_changes(*pair)
        for pair in pairs
    ]
    for pair, plan in zip(pairs, plans, strict=True):  # all are checked before any run
        for change in plan:
            _changed_pair(change, pair)
    return [
        _ablate_pair(pair, plan, progress)
        for pair, plan in zip(pairs, plans, strict=True)
    ]


def _changed_pair(
    change: Change, pair: tuple[Result, Result]
) -> tuple[Result | None, Result | None]:
    """Apply the change; None for a result that is so already."""
    one, other = pair
    return (
        change.applied_to(one) if change.applies_to(one) else None,
        change.applied_to(other) if change.applies_to(other) else None,
    )


def _ablate_pair(
    pair: tuple[Result, Result],
    changes: Sequence[Change],
    progress: "ProgressFunction | bool | None",
) -> Ablation:
    from slabq.run import job_of, measure_jobs

    todo = [_changed_pair(change, pair) for change in changes]
    wanted = [*pair, *(r for changed in todo for r in changed if r is not None)]
    repeat = min(result.repeat_count for result in pair)
    done = measure_jobs([job_of(r) for r in wanted], repeat=repeat, progress=progress)
    one, other, *rest = done
    found = iter(rest)
    outcomes = []
    for change, (first, second) in zip(changes, todo, strict=True):
        after = (
            one if first is None else next(found),
            other if second is None else next(found),
        )
        same = _marks(after[0]) == _marks(one) and _marks(after[1]) == _marks(other)
        outcomes.append(Outcome(change, _ns(after[0]), _ns(after[1]), same))
    ratio = _ns(other) / _ns(one)
    outcomes.sort(key=lambda outcome: -abs(outcome.ratio - ratio))
    return Ablation(
        pair_labels(*pair), _ns(one), _ns(other), outcomes, _rerun_notes(pair, done)
    )


def _marks(result: Result) -> list[tuple[Any, Any]]:
    """Return what tells a run from another: the order of its events, its time."""
    return [(s.get("fingerprint"), s["elapsed_s"]) for s in result.samples]


def _ns(result: Result) -> float:
    return float(result.sample["ns_per_operation"])


def _rerun_notes(pair: tuple[Result, Result], done: "Results") -> list[str]:
    """Say so if the pair did not come out as it was saved."""
    notes = [
        f"{before.policy.name} came out as another run than the saved one "
        f"({number_text(_ns(before))} ns): it was made by another version."
        for before, after in zip(pair, done, strict=False)
        if _marks(before)[: after.repeat_count] != _marks(after)
    ]
    if done[0].repeat_count < 2:
        notes.append(
            "One seed: a change of the order of events alone also moves a ratio; "
            "results with --repeat show how far seeds move it."
        )
    return notes
