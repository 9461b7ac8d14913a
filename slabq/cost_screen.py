"""What a simulated machine's accesses and locks cost, as a screen of text."""

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slabq.costs import Cost
from slabq.machine import Machine
from slabq.table import TEXT_WIDTH, Section

__all__ = ["cost_sections", "parameter_lines", "ranges"]

MATRIX_MAX = 9  # rows and columns that fit a line
A1 = "A1: Lameter's table of 28 Oct 2007, kmalloc and kfree on one CPU of two E5345"


def ranges(numbers: Sequence[int]) -> str:
    """Write ascending numbers as the kernel's lists: ``0-3,8``.

    Parameters
    ----------
    numbers : sequence of int
        Ascending.

    Returns
    -------
    str

    Examples
    --------
    >>> ranges([0, 1, 2, 3, 8])
    '0-3,8'
    """
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def cost_sections(machine: Machine) -> list[Section]:
    """Return what every kind of access and lock takes on the simulated machine.

    Parameters
    ----------
    machine : Machine
        The machine.

    Returns
    -------
    list of Section
        From CPU 0 to every place a line can be; caches by caches; nodes by nodes; locks
        and instructions. In nanoseconds, without queues before buses and memory.

    Raises
    ------
    ParameterError
        If it cannot be simulated.

    Examples
    --------
    >>> cost_sections(Machine(cpus=2))[0].rows[0]
    ['in its L1', '1.4', '1.4', '10.2']
    """
    screen = _Screen(machine)
    return [screen.lines(), *screen.matrices(), screen.locks(), screen.queues()]


class _Screen:
    def __init__(self, machine: Machine) -> None:
        described = json.loads(machine.core(1, "sim").describe())
        self.costs: Mapping[str, int] = described["parameters"]
        self.transfer_ps: list[list[int]] = described["transfer_ps"]
        self.memory_ps: list[list[int]] = described["memory_ps"]
        self.machine = machine
        self.llc_of_cpu = tuple(machine.llc_of_cpu or ())
        self.node_of_cpu = tuple(machine.node_of_cpu or ())
        self.distance = tuple(map(tuple, machine.distance or ()))
        self.cores = machine.cpus // self.costs["threads_per_core"]

    # -- lines -------------------------------------------------------------------------

    def lines(self) -> Section:
        """From CPU 0 to wherever a line can be."""
        costs = self.costs
        rows = [self._row("in its L1", costs["l1_hit_ps"])]
        if costs["l2_lines"]:
            rows.append(self._row("in its own L2", costs["l2_hit_ps"]))
        rows.append(self._row("in its last-level cache", costs["llc_hit_ps"]))
        rows += [self._row(*place) for place in self._changed()]
        rows += [
            self._row(f"memory of node {node}{self._far(node)}", ps)
            for node, ps in enumerate(self.memory_ps[self.node_of_cpu[0]])
        ]
        rows += [self._shared(*place) for place in self._shared_places()]
        return Section(
            "a line, from CPU 0, simulated [ns]",
            ["where it is", "load", "store", "atomic"],
            rows,
            [
                f"store: a plain one waits for {costs['store_wait_percent']} % of a "
                "miss; atomic: a locked instruction",
                f"each further line of one touch: {costs['stream_percent']} % of its "
                "miss",
            ],
        )

    def _row(self, place: str, ps: int) -> list[str]:
        return [place, _ns(ps), _ns(self._store(ps)), self._atomic(ps)]

    def _store(self, ps: int) -> int:
        hit = self.costs["l1_hit_ps"]
        return (
            max(ps * self.costs["store_wait_percent"] // 100, hit) if ps > hit else ps
        )

    def _atomic(self, ps: int) -> str:
        return _ns(ps + self.costs["atomic_ps"])

    def _shared(self, place: str, upgrade_ps: int) -> list[str]:
        ps = self.costs["llc_hit_ps"] + upgrade_ps
        load = _ns(self.costs["llc_hit_ps"])
        return [place, load, _ns(self._store(ps)), self._atomic(ps)]

    def _far(self, node: int) -> str:
        if node == self.node_of_cpu[0]:
            return ", its own"
        return f", distance {self.distance[self.node_of_cpu[0]][node]}"

    def _changed(self) -> Iterator[tuple[str, int]]:
        """Find caches that changed a line: the own, then by what a transfer costs."""
        own = self.llc_of_cpu[0]
        cores = {cpu % self.cores for cpu in self._cpus_of(own)}
        if len(cores) > 1:
            cpus = [c for c in self._cpus_of(own) if c % self.cores != 0]
            yield (
                f"changed in the L1 of CPU {ranges(cpus)}, same cache",
                self.costs["core_transfer_ps"],
            )
        groups: dict[tuple[str, int], list[int]] = {}
        for llc in sorted(set(self.llc_of_cpu) - {own}):
            key = (self._place(llc), self.transfer_ps[own][llc])
            groups.setdefault(key, []).extend(self._cpus_of(llc))
        for (place, ps), cpus in groups.items():
            yield f"changed in a cache of CPU {ranges(sorted(cpus))}, {place}", ps

    def _cpus_of(self, llc: int) -> list[int]:
        return [cpu for cpu, number in enumerate(self.llc_of_cpu) if number == llc]

    def _place(self, llc: int) -> str:
        sockets = self.costs["domains_per_socket"]
        if llc // sockets == self.llc_of_cpu[0] // sockets:
            return "same socket"
        node, own = self.node_of_cpu[self._cpus_of(llc)[0]], self.node_of_cpu[0]
        if node == own:
            return "other socket"
        return f"distance {self.distance[own][node]}"

    def _shared_places(self) -> Iterator[tuple[str, int]]:
        own = self._cpus_of(self.llc_of_cpu[0])
        if len({cpu % self.cores for cpu in own}) > 1:
            yield "read by others of its cache, too", self.costs["upgrade_core_ps"]
        if len(set(self.llc_of_cpu)) > 1:
            yield "read by CPUs of other caches, too", self.costs["upgrade_ps"]

    # -- matrices ----------------------------------------------------------------------

    def matrices(self) -> Iterator[Section]:
        """Every pair of caches, and every pair of nodes, where that fits."""
        caches = sorted(set(self.llc_of_cpu))
        if 1 < len(caches) <= MATRIX_MAX:
            yield Section(
                "a changed line from cache to cache, simulated [ns]",
                ["taken by CPU", *(f"of {ranges(self._cpus_of(c))}" for c in caches)],
                [
                    [ranges(self._cpus_of(to)), *map(_ns, self.transfer_ps[to])]
                    for to in caches
                ],
            )
        if 1 < self.machine.nodes <= MATRIX_MAX:
            yield Section(
                "a line of memory by node, simulated [ns]",
                ["CPUs of node", *map(str, range(self.machine.nodes))],
                [
                    [str(node), *map(_ns, row)]
                    for node, row in enumerate(self.memory_ps)
                ],
            )

    # -- locks -------------------------------------------------------------------------

    def locks(self) -> Section:
        """Say what locks and instructions take when their line is in the L1."""
        costs, hit = self.costs, self.costs["l1_hit_ps"]
        near = "" if costs["lock_is_unfair"] else ", the one that came first"
        rows = [
            ("free lock, taken", hit + costs["lock_acquire_ps"]),
            ("free lock, let go", hit + costs["lock_release_ps"]),
            (f"lock to a waiter{near}: its line, and", costs["lock_handover_ps"]),
            ("  for each other cache that waits", costs["lock_handover_per_waiter_ps"]),
            ("compare and exchange, 16 bytes, locked", hit + costs["cas_double_ps"]),
            ("the same without the lock prefix", hit + costs["local_cas_ps"]),
            ("interrupts off, state kept", costs["irq_save_ps"]),
            ("interrupts on again", costs["irq_restore_ps"]),
            ("preemption off and on", costs["preempt_ps"]),
            ("inter-processor interrupt, sent", costs["ipi_ps"]),
            ("idle CPU, from interrupt to task", costs["idle_exit_ps"]),
            ("wake-up of a task, without its lines", costs["wakeup_ps"]),
            ("choice of a task, without its lines", costs["schedule_ps"]),
            ("switch to another task", costs["context_switch_ps"]),
        ]
        return Section(
            "locks and instructions, lines in the L1, simulated [ns]",
            ["what", "ns"],
            [[name, _ns(ps)] for name, ps in rows],
        )

    def queues(self) -> Section:
        """Say what a line occupies on its way; others wait behind it."""
        names = {
            "the socket's bus": "bus_line_ps",
            "each other socket's bus, to be asked": "bus_snoop_ps",
            "the node's memory": "memory_line_ps",
            "the links of a remote node": "link_line_ps",
        }
        rows = [[name, _ns(self.costs[cost])] for name, cost in names.items()]
        title = "a line occupies, so that others wait behind it, simulated [ns]"
        return Section(title, ["what", "ns"], rows)


def parameter_lines(costs: Sequence[Cost]) -> Iterator[str]:
    """Write every parameter: value, unit, confidence; then what it is, and from where.

    Parameters
    ----------
    costs : sequence of Cost
        As `costs_with_sources` returns them.

    Yields
    ------
    str
        Lines of at most 78 columns.

    Examples
    --------
    >>> list(parameter_lines([Cost("l1_hit_ps", 9, "ps", "line", "a test", "low")]))[2]
    'l1_hit_ps      9  ps    low'
    """
    width = max(len("parameter"), *(len(cost.name) for cost in costs))
    digits = max(len("value"), *(len(str(cost.value)) for cost in costs))
    units = max(len("unit"), *(len(cost.unit) for cost in costs))
    heading = f"{'parameter':<{width}}  {'value':>{digits}}  {'unit':<{units}}"
    yield f"{heading}  confidence"
    yield f"{'-' * width}  {'-' * digits}  {'-' * units}  ----------"
    for cost in costs:
        start = f"{cost.name:<{width}}  {cost.value:>{digits}}  {cost.unit:<{units}}"
        yield f"{start}  {cost.confidence}"
        text = f"{cost.about}. From: {cost.source}"
        indents: dict[str, Any] = dict.fromkeys(
            ("initial_indent", "subsequent_indent"), "    "
        )
        yield from textwrap.wrap(text, TEXT_WIDTH, **indents)
    if any("A1" in cost.source for cost in costs):
        yield from ["", *textwrap.wrap(A1, TEXT_WIDTH)]


def _ns(ps: int) -> str:
    return f"{ps / 1000:.1f}"
