"""The chapters of an explanation: what each kind of figure says of two results.

A chapter is made from figures that both results hold, the largest differences first.
Times and counts are per operation of the workload, so runs of different length compare.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from slabq import _core
from slabq.result import Result

__all__ = ["CHAPTERS", "Chapter", "Finding", "Pair", "cpu_ns", "how", "number_text"]

MIB = 1 << 20
TIME_SHARE_TOLD = 0.005  # of the CPU time of an operation
RATIO_TOLD = 0.01  # of the larger of two counts
COUNT_TOLD = 0.001  # of an operation
LOCK_WAIT = "lock_wait"
# Functions that belong to no policy, by whose they are.
_PARTS: Mapping[str, Sequence[str]] = {
    "waiting for locks": (LOCK_WAIT,),
    "the page allocator": ("get_page_from_freelist", "free_hot_cold_page"),
    "the workload, its copies and the scheduler": (
        "workload",
        "smp_call_function",
        "system_call",
        "copy_user",
        "schedule",
        "try_to_wake_up",
    ),
}
_POLICY_PART = "the policy's own functions"
# (what it is, counters that count it, counters that make the whole with them)
_SHARES: Sequence[tuple[str, Sequence[str], Sequence[str]]] = (
    (
        "allocations served by the CPU's own objects",
        ("allochit", "alloc_fastpath", "alloc_cpu_sheaf"),
        ("allocmiss", "alloc_slowpath"),
    ),
    (
        "frees that ended in the CPU's own objects",
        ("freehit", "free_fastpath", "free_cpu_sheaf"),
        ("freemiss", "free_slowpath"),
    ),
)
_NEW_SLABS = ("grown", "alloc_slab")
# Kind of line -> what it is; the names are those of a row's "lines".
_LINES: Mapping[str, str] = {
    "cache": "lines found in the CPU's own caches beyond the first level",
    "core": "lines that another core behind the same cache had changed",
    "other_cache": "lines that a CPU behind another cache had changed",
    "other_node": "lines that a CPU of another node had changed",
    "memory": "lines from the node's own memory",
    "remote_memory": "lines from the memory of another node",
    "upgrade": "lines at hand of which others had copies to give up",
}


@dataclasses.dataclass(frozen=True)
class Finding:
    """One figure of two results, and the sentence that tells it.

    Parameters
    ----------
    name : str
        What the figure is of, such as ``locks.list_lock``.
    unit : str
        Its unit; of times and counts per operation of the workload.
    first, second : float or None
        The figure of either result; None where a result has none.
    text : str
        The sentence.

    Examples
    --------
    >>> Finding("locks.list_lock", "ns", 4.0, 1.0, "list_lock ...").difference
    -3.0
    """

    name: str
    unit: str
    first: float | None
    second: float | None
    text: str

    @property
    def difference(self) -> float:
        """The second figure less the first; one that is not there counts as 0."""
        return (self.second or 0.0) - (self.first or 0.0)


@dataclasses.dataclass(frozen=True)
class Chapter:
    """Findings of one kind, the largest difference first.

    Parameters
    ----------
    title : str
        What they are of.
    findings : sequence of Finding
        What was found.
    notes : sequence of str, optional
        What else there is to say.

    Examples
    --------
    >>> Chapter("Locks", []).findings
    []
    """

    title: str
    findings: Sequence[Finding]
    notes: Sequence[str] = ()


def how(result: Result) -> str:
    """Return ``simulated`` or ``measured``, as the figures of `result` are."""
    return "simulated" if result.engine == "sim" else "measured"


# -- sentences -------------------------------------------------------------------------


def number_text(value: float) -> str:
    """Write a number with about three digits."""
    size = abs(value)
    if size == 0:
        return "0"
    if size >= 100:
        return f"{value:.0f}"
    return f"{value:.{1 if size >= 10 else 2}f}" if size >= 1 else f"{value:.3g}"


def capital(text: str) -> str:
    """Begin a sentence with `text`."""
    return text[:1].upper() + text[1:]


def _place(function: str) -> str:
    """Say where a function's time was spent; two of them are no functions."""
    places = {
        "workload": "in the workload itself",
        LOCK_WAIT: "while waiting for locks",
    }
    return places.get(function, f"in {function}()")


def change_text(first: float, second: float, unit: str) -> str:
    """Say how much more or less the second is."""
    if first == second:
        return "the same"
    word = "more" if second > first else "less"
    text = f"{number_text(abs(second - first))} {unit}".rstrip() + f" {word}"
    if first > 0 and second > 0:
        text += f" ({100 * (second / first - 1):+.1f}%)"
    return text


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two results and how their sentences are made."""

    one: Result
    other: Result
    labels: tuple[str, str]
    limit: int

    @property
    def noun(self) -> str:
        """What an operation is called: the unit of the rate says it."""
        unit = self.one.rate_unit.removesuffix("/s")
        return unit[:-1] if unit.endswith("s") and len(unit) > 1 else "operation"

    def each(self, get: Callable[[Result], Any]) -> tuple[Any, Any]:
        """Ask both results."""
        return get(self.one), get(self.other)

    def both(self, first: float, second: float, unit: str) -> str:
        """Both figures and what is between them."""

        def one(value: float, label: str) -> str:
            if value == 0:
                return f"none under {label}"
            return f"{number_text(value)} {unit}".rstrip() + f" under {label}"

        pieces = [
            one(value, label)
            for value, label in zip((first, second), self.labels, strict=True)
        ]
        return f"{pieces[0]}, {pieces[1]}: {change_text(first, second, unit)}"

    def finding(
        self, name: str, subject: str, first: float, second: float, unit: str = ""
    ) -> Finding:
        """Make a sentence of two figures: what it is, both, and what is between."""
        text = f"{subject}: {self.both(first, second, unit)}."
        return Finding(name, unit, first, second, text)

    def largest(
        self, findings: Iterable[Finding], is_told: Callable[[Finding], bool]
    ) -> tuple[list[Finding], list[str]]:
        """Sort by difference and keep what is told, with a note on the rest."""
        ranked = sorted(findings, key=lambda f: (-abs(f.difference), f.name))
        told = [finding for finding in ranked if is_told(finding)]
        left = len(told) - self.limit
        notes = [f"{left} more differ by less."] if left > 0 else []
        return told[: self.limit], notes


def _per_operation(result: Result, value: float) -> float:
    return value / result.operations if result.operations else 0.0


def cpu_ns(result: Result) -> float | None:
    """Busy time of all CPUs per operation in ns; None if the engine keeps none."""
    busy = result.sample.get("busy")
    per_operation = result.sample.get("ns_per_operation")
    if busy is None or not per_operation:
        return None
    return float(busy) * float(per_operation) * result.machine.cpus


# -- chapters --------------------------------------------------------------------------


def _time_chapter(pair: Pair) -> Chapter:
    noun, word = pair.noun, how(pair.one)
    findings, notes = [], []
    times = pair.each(lambda r: r.sample.get("ns_per_operation"))
    if all(times):
        subject = f"A {noun} took ({word}, elapsed time over {noun}s)"
        findings.append(pair.finding("ns_per_operation", subject, *times, "ns"))
    else:
        elapsed = pair.each(lambda r: r.elapsed_s)
        subject = f"The whole run took ({word})"
        findings.append(pair.finding("elapsed_s", subject, *elapsed, "s"))
    notes.append(_spread_note(pair))
    used = pair.each(cpu_ns)
    if None not in used:
        subject = f"CPU time of a {noun}, all CPUs together"
        findings.append(pair.finding("cpu_ns", subject, *used, "ns"))
        idle = pair.each(
            lambda r: (
                (1 - r.sample["busy"]) * r.sample["ns_per_operation"] * r.machine.cpus
            )
        )
        subject = f"Idle time of the CPUs a {noun}"
        findings.append(pair.finding("idle_ns", subject, *idle, "ns"))
    return Chapter("Time", findings, notes)


def _spread_note(pair: Pair) -> str:
    if min(pair.one.repeat_count, pair.other.repeat_count) < 2:
        return (
            "One run each: how much runs of the same differ is not known; --repeat "
            "shows it."
        )
    first, second = pair.each(lambda r: r.spread("elapsed_s"))
    ranges = (
        f"{number_text(first.minimum)} to {number_text(first.maximum)} s and "
        f"{number_text(second.minimum)} to {number_text(second.maximum)} s"
    )
    apart = first.maximum < second.minimum or second.maximum < first.minimum
    if apart:
        return f"The ranges of the repeats, {ranges}, are apart."
    return (
        f"The ranges of the repeats, {ranges}, overlap: the results may not differ at "
        "all."
    )


def _functions_ns(result: Result) -> dict[str, float]:
    used = cpu_ns(result) or 0.0
    return {name: share * used for name, share in result.sample["profile"].items()}


def _part_of(function: str) -> str:
    return next((p for p, names in _PARTS.items() if function in names), _POLICY_PART)


def _profile_chapter(pair: Pair) -> Chapter:
    used = pair.each(cpu_ns)
    profiles = pair.each(lambda r: r.sample.get("profile"))
    if None in used or not all(profiles):
        return Chapter("Time by function", [])
    first, second = pair.each(_functions_ns)
    parts = [
        pair.finding(
            f"part.{part}",
            capital(part),
            sum(ns for name, ns in first.items() if _part_of(name) == part),
            sum(ns for name, ns in second.items() if _part_of(name) == part),
            "ns",
        )
        for part in (_POLICY_PART, *_PARTS)
    ]
    names = [n for n in dict.fromkeys([*first, *second]) if n != LOCK_WAIT]
    told = TIME_SHARE_TOLD * max(used)
    functions, notes = pair.largest(
        (
            pair.finding(
                f"profile.{name}",
                capital(_place(name)),
                first.get(name, 0.0),
                second.get(name, 0.0),
                "ns",
            )
            for name in names
        ),
        lambda finding: abs(finding.difference) >= told,
    )
    parts = [p for p in parts if p.first or p.second]
    parts.sort(key=lambda f: -abs(f.difference))
    total = change_text(*used, "ns")
    notes.insert(0, f"The parts add up to the CPU time of a {pair.noun}: {total}.")
    return Chapter("Time by function", [*parts, *functions], notes)


def _lock_finding(pair: Pair, name: str) -> Finding:
    def of(result: Result) -> Mapping[str, int]:
        return result.locks.get(name, {})

    waits = pair.each(lambda r: _per_operation(r, of(r).get("wait_ns", 0)))
    taken = pair.each(lambda r: _per_operation(r, of(r).get("acquisitions", 0)))
    pieces = []
    for result, label, count in zip(
        (pair.one, pair.other), pair.labels, taken, strict=True
    ):
        lock = of(result)
        if not lock.get("acquisitions"):
            pieces.append(f"not taken under {label}")
            continue
        share = 100 * lock["contended"] / lock["acquisitions"]
        pieces.append(
            f"taken {number_text(count)} times under {label}, {share:.1f}% of them "
            "after a wait"
        )
    text = f"{name}, waiting: {pair.both(*waits, 'ns')}; {'; '.join(pieces)}."
    return Finding(f"locks.{name}", "ns", *waits, text)


def _lock_chapter(pair: Pair) -> Chapter:
    names = list(dict.fromkeys([*pair.one.locks, *pair.other.locks]))
    used = pair.each(lambda r: cpu_ns(r) or r.sample.get("ns_per_operation") or 0.0)
    told = TIME_SHARE_TOLD * max(used)
    findings, notes = pair.largest(
        (_lock_finding(pair, name) for name in names),
        lambda finding: abs(finding.difference) >= max(told, 1e-9),
    )
    if names and not findings:
        notes = [f"No lock's waiting differs by {number_text(told)} ns a {pair.noun}."]
    return Chapter(f"Locks, per {pair.noun}", findings, notes)


Lines = Mapping[str, Mapping[str, Mapping[str, float]]]


def _lines_of(result: Result) -> Lines:
    found: Lines = result.sample.get("lines", {})
    return found


def _sum_lines(
    result: Result, kind: str, what: str, functions: Iterable[str] | None = None
) -> float:
    lines = _lines_of(result)
    wanted = lines if functions is None else functions
    total = sum(lines.get(name, {}).get(kind, {}).get(what, 0) for name in wanted)
    return _per_operation(result, total)


def _line_finding(pair: Pair, kind: str, function: str | None) -> Finding:
    functions = None if function is None else [function]
    times = pair.each(lambda r: _sum_lines(r, kind, "ns", functions))
    counts = pair.each(lambda r: _sum_lines(r, kind, "count", functions))
    subject = capital(_LINES.get(kind, kind))
    subject += f", {_place(function)}" if function else ""
    text = f"{subject}: {pair.both(*times, 'ns')}, for {number_text(counts[0])} and "
    text += f"{number_text(counts[1])} such lines."
    name = f"lines.{kind}" if function is None else f"lines.{function}.{kind}"
    return Finding(name, "ns", *times, text)


def _line_chapter(pair: Pair) -> Chapter:
    """Kinds of lines first, then the functions that fetched them."""
    used = pair.each(lambda r: cpu_ns(r) or 0.0)
    lines = pair.each(_lines_of)
    if not all(lines):
        return Chapter("Cache lines", [])
    told = TIME_SHARE_TOLD * max(used)
    kinds = dict.fromkeys(k for side in lines for f in side.values() for k in f)
    functions = dict.fromkeys([*lines[0], *lines[1]])
    by_kind, notes = pair.largest(
        (_line_finding(pair, kind, None) for kind in kinds),
        lambda finding: abs(finding.difference) >= told,
    )
    by_function, further = pair.largest(
        (_line_finding(pair, kind, name) for name in functions for kind in kinds),
        lambda finding: abs(finding.difference) >= told,
    )
    title = f"Cache lines, per {pair.noun}"
    return Chapter(title, [*by_kind, *by_function], [*notes, *further])


def _share_finding(
    pair: Pair, what: str, hits: Sequence[str], misses: Sequence[str]
) -> Finding | None:
    """Work out a share of the calls from counters, by either policy's names."""
    shares, words = [], []
    for result, label in zip((pair.one, pair.other), pair.labels, strict=True):
        counters = result.counters
        hit = [name for name in hits if counters.get(name)]
        all_names = [name for name in (*hits, *misses) if counters.get(name)]
        total = sum(counters[name] for name in all_names)
        if not total:
            return None
        share = 100 * sum(counters[name] for name in hit) / total
        shares.append(share)
        names = " + ".join(hit) or "none of " + ", ".join(all_names)
        words.append(f"{share:.1f}% under {label} ({names})")
    text = f"{capital(what)}: {', '.join(words)}."
    return Finding(f"share.{what}", "%", shares[0], shares[1], text)


def _new_slab_finding(pair: Pair) -> Finding | None:
    names = pair.each(
        lambda r: next((name for name in _NEW_SLABS if name in r.counters), None)
    )
    if None in names:
        return None
    counts = [
        _per_operation(result, result.counters[name])
        for result, name in zip((pair.one, pair.other), names, strict=True)
    ]
    subject = "New slabs (" + ", ".join(dict.fromkeys(names)) + ")"
    return pair.finding("new_slabs", subject, counts[0], counts[1])


def counter_meanings(policy: str) -> Mapping[str, str]:
    """Say what each counter of a policy counts, by its name."""
    return dict(_core.counters(policy))


def _counter_finding(pair: Pair, name: str) -> Finding:
    meanings = {
        counter_meanings(result.policy.name).get(name)
        for result in (pair.one, pair.other)
        if name in result.counters
    }
    about = (
        meanings.pop() if len(meanings) == 1 else None
    )  # policies may mean two things
    values: list[float | None] = [
        _per_operation(result, result.counters[name])
        if name in result.counters
        else None
        for result in (pair.one, pair.other)
    ]
    subject = f"{name} ({about})" if about else name
    first, second = values
    if first is not None and second is not None:
        return pair.finding(f"counters.{name}", subject, first, second)
    label = pair.labels[0 if second is None else 1]
    value = first if second is None else second
    text = (
        f"{subject}: {number_text(value or 0.0)} under {label}, which alone counts it."
    )
    return Finding(f"counters.{name}", "", first, second, text)


def _counter_chapter(pair: Pair) -> Chapter:
    fixed = [_share_finding(pair, *share) for share in _SHARES]
    fixed.append(_new_slab_finding(pair))
    names = dict.fromkeys([*pair.one.counters, *pair.other.counters])

    def is_told(finding: Finding) -> bool:
        largest = max(finding.first or 0.0, finding.second or 0.0)
        least = max(COUNT_TOLD, RATIO_TOLD * largest)
        return abs(finding.difference) >= least

    findings, notes = pair.largest(
        (_counter_finding(pair, name) for name in names), is_told
    )
    told = [finding for finding in fixed if finding is not None]
    if names and not findings:
        notes = [f"No counter differs by {COUNT_TOLD} a {pair.noun} and by 1 %."]
    return Chapter(f"Counters, per {pair.noun}", [*told, *findings], notes)


def _memory_chapter(pair: Pair) -> Chapter:
    wanted = {
        "peak_bytes": "Most slab memory at any time",
        "bytes": "Slab memory at the end",
        "in_queues_bytes": "Free objects in queues at the end",
    }
    memories = pair.each(lambda r: r.memory)
    findings = [
        pair.finding(
            f"memory.{name}",
            subject,
            memories[0][name] / MIB,
            memories[1][name] / MIB,
            "MiB",
        )
        for name, subject in wanted.items()
        if name in memories[0] and name in memories[1]
    ]
    findings = [f for f in findings if f.first != f.second]
    return Chapter("Memory", findings)


def _switch_chapter(pair: Pair) -> Chapter:
    wanted = {
        "context_switches": "Context switches",
        "cpu_migrations": "Tasks that went to another CPU",
    }
    findings = []
    for name, subject in wanted.items():
        counts = (pair.one.sample.get(name), pair.other.sample.get(name))
        if None in counts or not any(counts):
            continue
        values = [
            _per_operation(result, float(count or 0))
            for result, count in zip((pair.one, pair.other), counts, strict=True)
        ]
        if abs(values[1] - values[0]) >= RATIO_TOLD * max(values):
            findings.append(pair.finding(name, subject, values[0], values[1]))
    return Chapter(f"Scheduler, per {pair.noun}", findings)


def _latency_chapter(pair: Pair) -> Chapter:
    latencies = pair.each(lambda r: r.latency_ns)
    findings = []
    for path in (path for path in latencies[0] if path in latencies[1]):
        for percentile in ("p50", "p99"):
            values = [found[path][percentile] for found in latencies]
            if values[0] == values[1]:
                continue
            subject = f"{percentile} of {path}"
            name = f"latency_ns.{path}.{percentile}"
            findings.append(pair.finding(name, subject, values[0], values[1], "ns"))
    return Chapter(f"Latency of a call, {how(pair.one)}", findings)


CHAPTERS: Sequence[Callable[[Pair], Chapter]] = (
    _time_chapter,
    _profile_chapter,
    _lock_chapter,
    _line_chapter,
    _counter_chapter,
    _memory_chapter,
    _switch_chapter,
    _latency_chapter,
)
