"""How far the simulated machine is to be trusted, shown by running it.

Three questions: does each primitive take what the machine's parameters say, does the
simulation of this host come near to what this host does, and does it matter that the
simulated machine lets CPUs run ahead of each other where their order cannot be seen.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from slabq.calibration import calibrate
from slabq.checks import require_choice
from slabq.closed_forms import ClosedForm, closed_forms
from slabq.machine import Machine, host, machine_presets
from slabq.policy import find_policy, policy_names
from slabq.progress import ProgressBar
from slabq.published import JITTER_PS
from slabq.result import this_build, this_host
from slabq.run import Job, measure_jobs
from slabq.table import Section, Table
from slabq.workload import find_workload

__all__ = ["PARTS", "HostRow", "OrderRow", "Validation", "validate"]

PARTS = ("forms", "host", "order")
SEED = 1
# A round is short, so that on a busy host most fall between two turns of others.
ROUNDS, ROUNDS_QUICK = 41, 5
# Policies of one release, so that they differ in nothing but the policy.
ORDER_POLICIES, ORDER_KERNEL = ("slab", "slub", "slub+q"), "2.6.35"
# Events that come late at random make each seed a sample; one run alone shows an
# accident of its rhythm as easily as what the order does.
ORDER_SEEDS, ORDER_SEEDS_QUICK = (1, 2, 3), (1, 2)


class _Work(NamedTuple):
    """What is run: a title, the workload's name and its parameters."""

    title: str
    name: str
    parameters: Mapping[str, Any]
    quick: Mapping[str, Any]
    machine: str = ""
    cpus: int = 1
    kernel: str | None = None


def _pairs(size: int) -> _Work:
    values = {"test": "pairs", "size": size, "count": 10_000, "loops": 10}
    return _Work(f"pairs, {size} B", "kmalloc", values, {})


_HOST_WORK = (
    _pairs(64),
    _pairs(512),
    _pairs(4096),
    _Work(
        "hand-over, 256 B",
        "producer-consumer",
        {"size": 256, "objects": 10_000},
        {},
        cpus=2,
    ),
)

_ORDER_WORK = (
    # The objects of a message are those of the table hackbench-splusq-2010.
    _Work(
        "hackbench -g 10",
        "hackbench",
        {"groups": 10, "loops": 100_000, "warmup_operations": 1_000_000}
        | {"measure_operations": 600_000, "data_bytes": 472, "head_bytes": 232}
        | {"charge_bytes": 360, "sndbuf_bytes": 124_928},
        {"warmup_operations": 50_000, "measure_operations": 50_000},
        "penryn-2x4",
        kernel=ORDER_KERNEL,
    ),
    _Work(
        "tcp_rr",
        "tcp_rr",
        {"transactions": 10_000},
        {"transactions": 1_000},
        "opteron-4x4",
        kernel=ORDER_KERNEL,
    ),
    _Work(
        "kmalloc, 8 CPUs",
        "kmalloc",
        {"test": "concurrent", "size": 256, "loops": 5},
        {"loops": 1},
        "penryn-2x4",
        kernel=ORDER_KERNEL,
    ),
)


@dataclasses.dataclass(frozen=True)
class HostRow:
    """One workload under one policy on this host: measured, and simulated.

    Parameters
    ----------
    work, policy : str
        What was run.
    native_ns : sequence of float
        Measured time of an operation, of each round.
    sim_ns : float
        Simulated time of one, on the machine that a calibration of this host makes.
    sim_user_ns : float
        The same where turning interrupts and preemption off takes no time: in user
        space, where the measured run is, nobody does.

    Examples
    --------
    >>> HostRow("pairs", "slab", [10.0, 12.0, 50.0], 24.0, 9.0).user_ratio
    0.75
    """

    work: str
    policy: str
    native_ns: Sequence[float]
    sim_ns: float
    sim_user_ns: float

    @property
    def median_ns(self) -> float:
        """Median of the measured rounds."""
        return statistics.median(self.native_ns)

    @property
    def ratio(self) -> float:
        """Simulated over the median of measured."""
        return self.sim_ns / self.median_ns

    @property
    def user_ratio(self) -> float:
        """The same of what user space does, too."""
        return self.sim_user_ns / self.median_ns


@dataclasses.dataclass(frozen=True)
class OrderRow:
    """One workload with the default order of accesses and with every access in order.

    Parameters
    ----------
    work, machine, policy : str
        What was run, and on what.
    ns, strict_ns : sequence of float
        Simulated time of an operation, by seed.
    host_s, strict_host_s : float
        Processor time of this host that the simulations took, in seconds.
    operations, strict_operations : int
        Operations that were simulated, of all seeds.

    Examples
    --------
    >>> row = OrderRow("churn", "i7-4790", "slab", [90, 110], [80, 110], 1, 1.5, 9, 9)
    >>> row.ratio
    0.95
    """

    work: str
    machine: str
    policy: str
    ns: Sequence[float]
    strict_ns: Sequence[float]
    host_s: float
    strict_host_s: float
    operations: int
    strict_operations: int

    @property
    def ratio(self) -> float:
        """Simulated time, strict over default: of the means over the seeds."""
        return statistics.mean(self.strict_ns) / statistics.mean(self.ns)

    @property
    def host_ratio(self) -> float:
        """Processor time of this host, strict over default."""
        return self.strict_host_s / self.host_s


@dataclasses.dataclass(frozen=True)
class Validation:
    """What was found; made by `validate`.

    Parameters
    ----------
    forms : sequence of ClosedForm
        Primitives against formulas.
    host : sequence of HostRow
        This host measured and simulated.
    order : sequence of OrderRow
        Default and strict order.
    is_quick : bool
        Whether the runs were short.

    Examples
    --------
    >>> Validation([], [], [], True).holds
    True
    """

    forms: Sequence[ClosedForm]
    host: Sequence[HostRow]
    order: Sequence[OrderRow]
    is_quick: bool

    @property
    def holds(self) -> bool:
        """Whether every closed form holds; the other parts have no right answer."""
        return all(form.holds for form in self.forms)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, in types that JSON has.

        Returns
        -------
        dict
            ``forms``, ``host`` and ``order``, a list of rows each; ``holds``,
            ``quick``, ``build`` and ``system``.

        Examples
        --------
        >>> Validation([], [], [], True).to_dict()["forms"]
        []
        """
        return {
            "holds": self.holds,
            "quick": self.is_quick,
            "build": this_build(),
            "system": this_host(),
            "forms": [dataclasses.asdict(f) | {"holds": f.holds} for f in self.forms],
            "host": [
                dataclasses.asdict(row)
                | {"ratio": row.ratio, "user_ratio": row.user_ratio}
                for row in self.host
            ],
            "order": [
                dataclasses.asdict(row)
                | {"ratio": row.ratio, "host_ratio": row.host_ratio}
                for row in self.order
            ],
        }

    def table(self) -> Table:
        """Return it as tables.

        Returns
        -------
        Table

        Examples
        --------
        >>> Validation([], [], [], True).table().sections
        []
        """
        sections = [*_form_sections(self.forms), *_formula_section(self.forms)]
        if self.host:
            sections.append(_host_section(self.host))
        if self.order:
            sections += _order_sections(self.order)
        return Table(sections)

    def markdown(self) -> str:
        """Return the tables as text on a page of Markdown, with what made them.

        Returns
        -------
        str

        Examples
        --------
        >>> Validation([], [], [], True).markdown().splitlines()[0]
        'Made by `slabq validate --quick`.'
        """
        words = "slabq validate --quick" if self.is_quick else "slabq validate"
        build, system = this_build(), this_host()
        made = f"slabq {build['slabq']}, {system['processor']}, {system['cpus']} CPUs."
        texts = (Table([section]).format() for section in self.table().sections)
        blocks = (f"```\n{text.strip()}\n```\n" for text in texts)
        return "\n".join([f"Made by `{words}`.\n{made}\n", *blocks])


def validate(
    *parts: str,
    machines: Iterable[Machine] | None = None,
    quick: bool = False,
    progress: bool | None = None,
) -> Validation:
    """Run the simulated machine against formulas, against this host, and in order.

    Parameters
    ----------
    *parts : {"forms", "host", "order"}
        What to do. Default: all.
    machines : iterable of Machine, optional
        Machines of ``forms``. Default: every preset.
    quick : bool, default False
        Shorter runs; the closed forms are the same.
    progress : bool, optional
        Show a bar. Default: on a terminal.

    Returns
    -------
    Validation

    Raises
    ------
    ParameterError
        If there is no such part.

    Examples
    --------
    >>> import slabq
    >>> slabq.validate("forms").holds
    True
    """
    for part in parts:
        require_choice("part", part, PARTS)
    wanted = [part for part in PARTS if part in (parts or PARTS)]
    chosen = machine_presets().values() if machines is None else machines
    doers: Mapping[str, Callable[[ProgressBar], list[Any]]] = {
        "forms": lambda bar: [form for m in chosen for form in closed_forms(m)],
        "host": lambda bar: list(_host_rows(quick, bar)),
        "order": lambda bar: list(_order_rows(quick, bar)),
    }
    found: dict[str, list[Any]] = {part: [] for part in PARTS}
    with ProgressBar("validate", len(wanted), show=progress) as bar:
        for number, part in enumerate(wanted):
            bar.begin_part(number, f"validate {part}")
            found[part] = doers[part](bar)
    return Validation(found["forms"], found["host"], found["order"], quick)


# -- this host -------------------------------------------------------------------------


def _job(work: _Work, policy: str, machine: Machine, engine: str, quick: bool) -> Job:
    parameters = {**work.parameters, **(work.quick if quick else {})}
    return Job(
        find_workload(work.name, **parameters),
        find_policy(policy, kernel=work.kernel),
        machine,
        engine,
        SEED,
    )


def _host_rows(quick: bool, bar: ProgressBar) -> Iterator[HostRow]:
    """Measure in rounds over all jobs, so that a busy moment meets all alike."""
    here = host()
    model = calibrate(progress=lambda share: bar(share / 2)).machine
    turns = [
        (work, policy)
        for work in _HOST_WORK
        for policy in policy_names()
        if work.cpus <= here.cpus
    ]
    measured = measure_jobs(
        [_job(work, policy, here, "native", quick) for work, policy in turns],
        repeat=ROUNDS_QUICK if quick else ROUNDS,
        progress=lambda share: bar(0.5 + share / 2),
    )
    for (work, policy), result in zip(turns, measured, strict=True):
        simulated = (
            _job(work, policy, one, "sim", quick).measure(0, None)["ns_per_operation"]
            for one in (model, _in_user_space(model))
        )
        native = [sample["ns_per_operation"] for sample in result.samples]
        yield HostRow(work.title, policy, native, *simulated)


def _in_user_space(machine: Machine) -> Machine:
    """Return the machine without what only a kernel does."""
    return _with_cost(machine, irq_save_ps=0, irq_restore_ps=0, preempt_ps=0)


# -- order -----------------------------------------------------------------------------


def _order_rows(quick: bool, bar: ProgressBar) -> Iterator[OrderRow]:
    seeds = ORDER_SEEDS_QUICK if quick else ORDER_SEEDS
    turns = [(work, policy) for work in _ORDER_WORK for policy in ORDER_POLICIES]
    first, policy = turns[0]  # once, so that no row has what only a first run takes
    _job(first, policy, machine_presets()[first.machine], "sim", True).measure(0, None)
    for number, (work, policy) in enumerate(turns):
        bar(number / len(turns))
        machine = machine_presets()[work.machine]
        job = _job(work, policy, _with_cost(machine, jitter_ps=JITTER_PS), "sim", quick)
        strict = dataclasses.replace(job, machine=_with_cost(job.machine, strict=1))
        default_order, strict_order = _Order.of(job, seeds), _Order.of(strict, seeds)
        yield OrderRow(
            work.title,
            work.machine,
            policy,
            default_order.ns,
            strict_order.ns,
            default_order.host_s,
            strict_order.host_s,
            default_order.operations,
            strict_order.operations,
        )


class _Order(NamedTuple):
    """What the seeds of one job came to."""

    ns: list[float]
    host_s: float
    operations: int

    @classmethod
    def of(cls, job: Job, seeds: Iterable[int]) -> "_Order":
        """Run the job once with each seed."""
        start_s = time.process_time()
        rows = [dataclasses.replace(job, seed=seed).measure(0, None) for seed in seeds]
        host_s = time.process_time() - start_s
        ns = [row["ns_per_operation"] for row in rows]
        return cls(ns, host_s, sum(row["operations"] for row in rows))


def _with_cost(machine: Machine, **values: int) -> Machine:
    """Return the machine with some of its costs changed."""
    return machine.replace(costs={**dict(machine.costs or ()), **values})


# -- tables ----------------------------------------------------------------------------


def _ns(ps: int) -> str:
    return f"{ps / 1000:,.3f}"


def _short(ns: float) -> str:
    return f"{ns:.1f}" if ns < 100 else f"{ns:.0f}"


def _form_sections(forms: Sequence[ClosedForm]) -> Iterator[Section]:
    for machine in dict.fromkeys(form.machine for form in forms):
        own = [form for form in forms if form.machine == machine]
        rows = [
            [f.case, _ns(f.expected_ps), _ns(f.got_ps), "yes" if f.holds else "NO"]
            for f in own
        ]
        held = sum(form.holds for form in own)
        yield Section(
            f"closed forms on {machine}, simulated",
            ["case", "expected [ns]", "got [ns]", "equal"],
            rows,
            [f"{held} of {len(own)} are equal, to the picosecond"],
        )


def _formula_section(forms: Sequence[ClosedForm]) -> Iterator[Section]:
    """Every formula once, with the machines whose shape makes it another."""
    if not forms:
        return
    machines = dict.fromkeys(form.machine for form in forms)
    notes = []
    for case in dict.fromkeys(form.case for form in forms):
        found: dict[str, list[str]] = {}
        for form in forms:
            if form.case == case:
                found.setdefault(form.formula, []).append(form.machine)
        for formula, names in found.items():
            alone = len(found) == 1 or len(names) == len(machines)
            place = "" if alone else f" ({', '.join(names)})"
            notes.append(f"{case}{place}: {formula}")
    yield Section("formulas", ["case: parameters of the machine file"], [], notes)


def _host_section(rows: Sequence[HostRow]) -> Section:
    count = len(rows[0].native_ns)
    return Section(
        "this host, time of an operation in ns",
        ["work", "policy", "measured", "min..max", "sim", "ratio", "no irqs", "ratio"],
        [
            [
                row.work,
                row.policy,
                f"{row.median_ns:.1f}",
                f"{_short(min(row.native_ns))}..{_short(max(row.native_ns))}",
                f"{row.sim_ns:.1f}",
                f"{row.ratio:.2f}",
                f"{row.sim_user_ns:.1f}",
                f"{row.user_ratio:.2f}",
            ]
            for row in rows
        ],
        [
            f"measured: engine native, median of {count} interleaved rounds",
            "sim: simulated, on the machine that slabq calibrate has just made of this "
            "host; no irqs: the same where turning interrupts and preemption off takes "
            "no time, as in user space; ratio: simulated over measured",
        ],
        left_count=2,
    )


def _range(values: Sequence[float], digits: int) -> str:
    return f"{min(values):.{digits}f}..{max(values):.{digits}f}"


def _order_sections(rows: Sequence[OrderRow]) -> Iterator[Section]:
    """Show the times; then the policies against each other, which is the use."""
    machines: dict[str, list[str]] = {}
    for row in rows:
        works = machines.setdefault(row.machine, [])
        works += [row.work] if row.work not in works else []
    places = "; ".join(f"{', '.join(works)}: {m}" for m, works in machines.items())
    yield Section(
        "order of accesses: default against strict, simulated",
        ["work", "policy", "default", "min..max", "strict", "min..max", "ratio", "x"],
        [
            [
                row.work,
                row.policy,
                f"{statistics.mean(row.ns):.1f}",
                _range(row.ns, 0),
                f"{statistics.mean(row.strict_ns):.1f}",
                _range(row.strict_ns, 0),
                f"{row.ratio:.3f}",
                f"{row.host_ratio:.2f}",
            ]
            for row in rows
        ],
        [
            f"default, strict: simulated ns of an operation, mean of {len(rows[0].ns)} "
            "seeds with their range; ratio: strict over default",
            "x: processor time of this host, strict over default",
            f"policies of {ORDER_KERNEL}; {places}",
        ],
        left_count=2,
    )
    pairs = [(row, _first_of(rows, row)) for row in rows]
    yield Section(
        f"the same as ratios to {rows[0].policy}",
        ["work", "policy", "default", "min..max", "strict", "min..max"],
        [
            [
                row.work,
                row.policy,
                *_ratio_cells(row.ns, first.ns),
                *_ratio_cells(row.strict_ns, first.strict_ns),
            ]
            for row, first in pairs
            if row is not first
        ],
        ["ratio of the means; range: of the ratios of equal seeds"],
        left_count=2,
    )


def _first_of(rows: Sequence[OrderRow], row: OrderRow) -> OrderRow:
    """Return the row of the same work that the others are compared with."""
    return next(one for one in rows if one.work == row.work)


def _ratio_cells(ns: Sequence[float], first_ns: Sequence[float]) -> list[str]:
    ratios = [one / first for one, first in zip(ns, first_ns, strict=True)]
    mean = statistics.mean(ns) / statistics.mean(first_ns)
    return [f"{mean:.3f}", _range(ratios, 3)]
