"""A run is one workload under one policy on one machine; a sweep is many of them."""

import dataclasses
import itertools
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from slabq import _core
from slabq.cache_record import summarize_cache
from slabq.checks import check_debug, list_known, require_int, shown
from slabq.errors import ParameterError
from slabq.host_memory import require_memory
from slabq.machine import Machine, MachineLike, find_machine
from slabq.policy import Policy, find_policy, policy_names
from slabq.progress import ProgressBar, ProgressFunction
from slabq.result import CACHES, REPLAY, TIMELINE, Result
from slabq.results import Results
from slabq.scheduler import scheduler_rules
from slabq.workload import Value, Workload, find_workload

if TYPE_CHECKING:
    from slabq.trace import Trace

__all__ = ["ENGINES", "replay", "run", "sweep"]

ENGINES = ("native", "sim")
REPEAT_MAX = 10_000
SEED_MAX = 2**64 - 1 - REPEAT_MAX

Progress = ProgressFunction | bool | None
Options = Sequence[tuple[str, int]]


def check_engine(engine: object) -> str:
    """Return `engine` if it is one of this build, or raise `ParameterError`."""
    if engine in ENGINES:
        return str(engine)
    raise ParameterError(
        f"unknown engine {engine!r}: accepted: {list_known(engine, ENGINES)}"
    )


@dataclasses.dataclass(frozen=True)
class Job:
    """One configuration to run; all of it plain values, so it may travel."""

    work: "Workload | Trace | Path"
    policy: Policy
    machine: Machine
    engine: str
    seed: int
    trace_path: str = ""
    with_caches: bool = False
    with_timeline: bool = False
    debug: str | None = None
    panics: bool = False

    @property
    def name(self) -> str:
        """Name of the workload."""
        return self.work.name if isinstance(self.work, Workload) else REPLAY

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Parameters of the workload."""
        if isinstance(self.work, Workload):
            return {**self.work.parameters, **self._syscall_ns(self.work)}
        return {"trace": self.trace_path}

    def _numbers(self, work: Workload) -> list[tuple[str, int]]:
        """Give the workload's numbers, with what is the machine's and the kernel's."""
        numbers = {**dict(work.numbers()), **self._syscall_ns(work)}
        if self.engine == "sim" and self.policy.kernel is not None:
            rules = scheduler_rules(self.policy.kernel, self.machine.cpus)
            numbers |= {n: v for n, v in rules.items() if numbers.get(n) == -1}
        return list(numbers.items())

    def _syscall_ns(self, work: Workload) -> dict[str, int]:
        """Give the machine's own time of a system call, if it is left open."""
        if work.parameters.get("syscall_ns") != -1:
            return {}
        own = dict(self.machine.syscall_ns) if self.engine == "sim" else {}
        return {"syscall_ns": own.get(work.name, 0)}

    def measure(self, number: int, progress: ProgressFunction | None) -> dict[str, Any]:
        """Run the job's repeat `number`, from 0, and return its sample."""
        seed = self.seed + number
        self._check_host_memory()
        machine = self.machine.core(seed, self.engine, self.policy.kernel)
        options: Options = list(self.policy.values().items())
        name = self.policy.name
        if isinstance(self.work, Workload):
            numbers = self._numbers(self.work)
            text = _core.run(
                machine,
                name,
                options,
                self.work.core(),
                numbers,
                seed,
                progress,
                self.with_caches,
                self.with_timeline,
                self.debug,
                self.panics,
            )
        else:
            core = open_trace(self.work)._core
            text = _core.replay(
                machine,
                name,
                options,
                core,
                seed,
                progress,
                self.with_caches,
                self.with_timeline,
                self.debug,
                self.panics,
            )
        sample = {"seed": seed, **json.loads(text)}
        if self.with_caches:
            sample["caches"] = [summarize_cache(cache) for cache in sample["caches"]]
        return sample

    def _check_host_memory(self) -> None:
        """Refuse live objects that the machine has room for and the host has not."""
        if not isinstance(self.work, Workload):
            return
        needed = live_bytes(self.work, self.machine.cpus)
        if needed <= self.machine.nodes * self.machine.node_bytes:
            require_memory(f"{self.name}, with so many live objects,", needed)

    def result(self, samples: Sequence[Mapping[str, Any]]) -> Result:
        """Return the result that `samples`, one of each repeat, make."""
        return Result(
            workload=self.name,
            policy=self.policy,
            machine=self.machine,
            engine=self.engine,
            seed=self.seed,
            parameters=self.parameters,
            samples=samples,
            source=None if isinstance(self.work, Workload | Path) else self.work,
        )

    def packed(self) -> "Job":
        """Return the job fit to travel: a trace that is a file goes as its path."""
        if self.trace_path and not isinstance(self.work, Workload):
            return dataclasses.replace(self, work=Path(self.trace_path).absolute())
        return self


def live_bytes(work: Workload, cpus: int) -> int:
    """Return about how many bytes of objects are live at once where that is given.

    Parameters
    ----------
    work : Workload
        What is run.
    cpus : int
        CPUs of the machine.

    Returns
    -------
    int
        0 for work whose objects come and go.

    Examples
    --------
    >>> live_bytes(Workload("churn", {"slots": 1000, "size_max": 8}), 4)
    32000
    """
    values = {k: v for k, v in work.numbers() if isinstance(v, int)}
    if work.name == "churn":
        tables = 1 if values["shared"] else values["tasks"] or cpus
        each = (values["size_min"] + values["size_max"]) // 2
        return tables * values["slots"] * each
    if work.name == "kmalloc":
        at_once = {"alloc-free": 1, "concurrent": cpus, "remote-free": cpus}
        own = at_once.get(str(work.parameters["test"]), 0)
        tables = values["at_once"] or own if own else 0
        return tables * values["count"] * values["size"]
    return 0


def _measure(job: Job, number: int) -> dict[str, Any]:
    return job.measure(number, None)


def measure_jobs(
    jobs: Sequence[Job],
    *,
    repeat: int = 1,
    executor: Executor | None = None,
    progress: Progress = None,
) -> Results:
    """Run every job `repeat` times: round after round, so that drift meets all alike.

    Parameters
    ----------
    jobs : sequence of Job
        What to run.
    repeat : int, default 1
        Number of rounds.
    executor : concurrent.futures.Executor, optional
        Who runs them. The native engine needs the host for itself, so its jobs are
        handed over one at a time.
    progress : callable or bool, optional
        As for `run`.

    Returns
    -------
    Results
        In the order of the jobs.

    Raises
    ------
    ParameterError
        If the number of repeats is not accepted.

    Examples
    --------
    >>> len(measure_jobs([]))
    0
    """
    repeat = require_int("repeat", repeat, 1, REPEAT_MAX)
    turns = [(number, job) for number in range(repeat) for job in jobs]
    if executor is not None:
        if not isinstance(executor, Executor) and not hasattr(executor, "submit"):
            raise ParameterError(
                f"executor is {shown(executor)}: accepted is one of concurrent.futures"
            )
        samples = _run_turns_on(turns, executor)
    else:
        samples = _run_turns_here(turns, progress)
    return Results(
        job.result(samples[index :: len(jobs)]) for index, job in enumerate(jobs)
    )


def _run_turns_on(
    turns: Sequence[tuple[int, Job]], executor: Executor
) -> list[dict[str, Any]]:
    samples = []
    for number, job in turns:
        future = executor.submit(_measure, job.packed(), number)
        samples.append(future.result())  # before the next: native runs are alone
    return samples


def _run_turns_here(
    turns: Sequence[tuple[int, Job]], progress: Progress
) -> list[dict[str, Any]]:
    if callable(progress):
        return _run_turns_with(turns, _Parts(progress, len(turns)))
    title = turns[0][1].name if turns else ""
    show = None if progress is None else bool(progress)
    with ProgressBar(title, len(turns), show=show) as bar:
        return _run_turns_with(turns, bar)


class _Parts:
    """Gives a caller's function the fraction of the whole."""

    def __init__(self, function: ProgressFunction, total: int) -> None:
        self._function, self._total, self._done = function, total, 0

    def __call__(self, fraction: float) -> None:
        self._function((self._done + fraction) / self._total)

    def begin_part(self, number: int, title: str) -> None:
        self._done = number
        self(0.0)


def _run_turns_with(
    turns: Sequence[tuple[int, Job]], progress: ProgressBar | _Parts
) -> list[dict[str, Any]]:
    samples = []
    for index, (number, job) in enumerate(turns):
        part = f", {index + 1} of {len(turns)}" if len(turns) > 1 else ""
        progress.begin_part(index, f"{job.name} {job.policy.name}{part}")
        samples.append(job.measure(number, progress))
    progress.begin_part(len(turns), "done")
    return samples


def run(
    workload: Workload | str,
    *,
    policy: Policy | str,
    machine: MachineLike = None,
    engine: str = "native",
    kernel: str | None = None,
    seed: int = 1,
    repeat: int = 1,
    progress: Progress = None,
    with_caches: bool = False,
    with_timeline: bool = False,
    debug: str | None = None,
    panic_on_report: bool = False,
    **parameters: Value,
) -> Result:
    """Run a workload under one policy.

    Parameters
    ----------
    workload : Workload or str
        The workload, or its name: ``slabq workloads`` lists them.
    policy : Policy or str
        The policy, or its name.
    machine : Machine, str or path-like, optional
        The machine, the name of a preset, or a machine file. Default: the host.
    engine : str, default "native"
        ``native``: real threads and wall-clock time on this host; ``sim``: virtual CPUs
        and virtual time, the same on every host.
    kernel : str, optional
        Kernel profile of a policy given by name. Default: the newest that has it.
    seed : int, default 1
        Seed of all random choices; the n-th repeat has ``seed + n``.
    repeat : int, default 1
        How often to run.
    progress : callable or bool, optional
        A function that is called with the fraction done; False for no progress bar.
        Default: a bar on a terminal, if it takes longer than two seconds.
    with_caches : bool, default False
        Keep what every cache was like at the end, for `Result.slabinfo` and
        `Result.report`.
    with_timeline : bool, default False
        Keep what the run was like over time, for `save_timeline`.
    debug : str, optional
        Debug flags of the caches, as for `Allocator`; ``sample["reports"]`` of the
        result says what they found.
    panic_on_report : bool, default False
        The first report ends the run with `CorruptionError`.
    **parameters
        Parameters of the workload that differ from its defaults.

    Returns
    -------
    Result

    Raises
    ------
    ParameterError
        If a name or a value is not accepted.
    OutOfMemory
        If the machine's memory does not suffice.
    CorruptionError
        With `panic_on_report`, if debug caches found something.
    KeyboardInterrupt
        On Ctrl-C; the run is stopped and its memory given back.

    Examples
    --------
    >>> import slabq
    >>> result = slabq.run("hackbench", policy="slab", machine=slabq.Machine(cpus=2),
    ...                    groups=1, loops=10)
    >>> result.operations  # one group: 20 senders, 20 receivers, 10 loops
    4000
    """
    job = Job(
        find_workload(workload, **parameters),
        find_policy(policy, kernel=kernel),
        find_machine(machine),
        check_engine(engine),
        require_int("seed", seed, 0, SEED_MAX),
        with_caches=bool(with_caches),
        with_timeline=bool(with_timeline),
        debug=check_debug(debug),
        panics=bool(panic_on_report),
    )
    return measure_jobs([job], repeat=repeat, progress=progress)[0]


def replay(
    trace: "Trace | str | os.PathLike[str]",
    *,
    policy: Policy | str,
    machine: MachineLike = None,
    engine: str = "native",
    kernel: str | None = None,
    seed: int = 1,
    repeat: int = 1,
    progress: Progress = None,
    with_caches: bool = False,
    with_timeline: bool = False,
    debug: str | None = None,
    panic_on_report: bool = False,
) -> Result:
    """Run the allocations and frees of a recorded kernel trace under one policy.

    Parameters
    ----------
    trace : Trace, str or path-like
        The trace, or a file that `read_trace` takes.
    policy, machine, engine, kernel, seed, repeat, progress, with_caches, with_timeline
        As for `run`.
    debug, panic_on_report
        As for `run`.

    Returns
    -------
    Result
        ``result.sample["trace"]`` counts what the trace itself was like.

    Raises
    ------
    ParameterError
        If a name or a value is not accepted.
    TraceFormatError
        If the file is not a kmem trace.
    OutOfMemory
        If the machine's memory does not suffice.

    Examples
    --------
    >>> import slabq
    >>> result = slabq.replay(slabq.bundled_trace_path(), policy="slub",
    ...                       machine=slabq.Machine(cpus=2))
    >>> result.sample["trace"]["lost"]
    0
    """
    job = Job(
        open_trace(trace, progress),
        find_policy(policy, kernel=kernel),
        find_machine(machine),
        check_engine(engine),
        require_int("seed", seed, 0, SEED_MAX),
        trace_path(trace),
        bool(with_caches),
        bool(with_timeline),
        check_debug(debug),
        bool(panic_on_report),
    )
    return measure_jobs([job], repeat=repeat, progress=progress)[0]


def trace_path(trace: "Workload | Trace | str | os.PathLike[str]") -> str:
    """Path that `trace` was given as; empty for a trace in memory."""
    return os.fspath(trace) if isinstance(trace, str | os.PathLike) else ""


def open_trace(
    trace: "Trace | str | os.PathLike[str]", progress: Progress = None
) -> "Trace":
    """Return the trace that is meant: `trace` itself, or read from that file."""
    if not isinstance(trace, str | os.PathLike):
        return trace
    from slabq.trace import read_trace

    show = None if progress is None or callable(progress) else bool(progress)
    with ProgressBar(f"reading {os.path.basename(trace)}", show=show) as bar:
        return read_trace(trace, progress=bar)


def _listed(value: object) -> list[Any]:
    """Return what is swept over: a list, tuple, range or array; else the one value."""
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        return [value]
    return list(value)


def sweep(
    workload: "Workload | Trace | str | os.PathLike[str]",
    *,
    policy: Policy | str | Sequence[Policy | str] | None = None,
    machine: MachineLike | Sequence[MachineLike] = None,
    engine: str | Sequence[str] = "native",
    kernel: str | Sequence[str | None] | None = None,
    seed: int = 1,
    repeat: int = 1,
    executor: Executor | None = None,
    progress: Progress = None,
    with_caches: bool = False,
    with_timeline: bool = False,
    debug: str | None = None,
    panic_on_report: bool = False,
    **parameters: Value | Sequence[Value],
) -> Results:
    """Run a workload under every combination of the values given as lists.

    Parameters
    ----------
    workload : Workload, str, Trace or path
        The workload, its name, or a recorded trace: itself or as a `pathlib.Path`.
    policy : Policy or str, or a list of them, optional
        Default: every policy of this build. The first is the baseline of tables.
    machine, engine, kernel
        As for `run`, or a list.
    seed, repeat, progress, with_caches, with_timeline, debug, panic_on_report
        As for `run`. The repeats go round: every configuration once, then again.
    executor : concurrent.futures.Executor, optional
        Who runs the configurations, dask's included. A native run needs the host for
        itself, so native runs are handed to the executor one at a time.
    **parameters
        Parameters of the workload, each one value or a list.

    Returns
    -------
    Results
        The policy varies fastest, then the parameters from the last to the first, then
        kernel, engine and machine.

    Raises
    ------
    ParameterError
        If a name or a value is not accepted; before anything has run.

    Examples
    --------
    >>> import slabq
    >>> rs = slabq.sweep("hackbench", policy=["slab", "slub"], groups=[1, 2], loops=5,
    ...                  machine=slabq.Machine(cpus=2))
    >>> [(r.parameters["groups"], r.policy.name) for r in rs]
    [(1, 'slab'), (1, 'slub'), (2, 'slab'), (2, 'slub')]
    """
    policies = list(policy_names()) if policy is None else _listed(policy)
    seed = require_int("seed", seed, 0, SEED_MAX)
    find_work = _work_maker(workload, progress)
    path = "" if isinstance(workload, str) else trace_path(workload)
    names = list(parameters)
    jobs = [
        Job(
            find_work(dict(zip(names, values, strict=True))),
            find_policy(one, kernel=release),
            find_machine(computer),
            check_engine(kind),
            seed,
            path,
            bool(with_caches),
            bool(with_timeline),
            check_debug(debug),
            bool(panic_on_report),
        )
        for computer in _listed(machine)
        for kind in _listed(engine)
        for release in _listed(kernel)
        for values in itertools.product(*map(_listed, parameters.values()))
        for one in policies
    ]
    return measure_jobs(jobs, repeat=repeat, executor=executor, progress=progress)


def _work_maker(
    workload: "Workload | Trace | str | os.PathLike[str]", progress: Progress
) -> "Callable[[Mapping[str, Value]], Workload | Trace]":
    trace = None
    if not isinstance(workload, Workload | str):
        trace = open_trace(workload, progress)

    def make(parameters: Mapping[str, Value]) -> "Workload | Trace":
        if trace is None:
            return find_workload(cast(Workload | str, workload), **parameters)
        if parameters:
            name = next(iter(parameters))
            raise ParameterError(f"parameter {name!r} with a trace: accepted are none")
        return trace

    return make


def repeat_result(result: Result) -> Result:
    """Run again what made `result`; see `Result.repeat`."""
    return measure_jobs([job_of(result)], repeat=result.repeat_count)[0]


def job_of(result: Result) -> Job:
    """Return the job that made `result`."""
    path = str(result.parameters.get("trace", ""))
    work: Workload | Trace
    if result.workload != REPLAY:
        work = Workload(result.workload, result.parameters)
    elif result.source is not None:
        work = result.source
    elif os.path.exists(path):
        work = open_trace(path)
    else:
        raise ParameterError(
            f"trace file {path!r} of the result is not there: accepted is the file it "
            "was replayed from"
        )
    return Job(
        work,
        result.policy,
        result.machine,
        result.engine,
        result.seed,
        path,
        CACHES in result.sample,
        TIMELINE in result.sample,
        result.sample.get("debug"),
    )
