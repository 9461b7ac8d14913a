"""Times of single primitives of a simulated machine, worked out from its parameters.

Each case is a few primitives on CPUs of the machine: a line that two CPUs change in
turn, a lock that many want, tasks that wake each other, lines read in a row. What it
must take follows from the values of the machine file by sums that are written here and
nowhere in the C core, so the one can be held against the other, to the picosecond.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, cast

from slabq import _core
from slabq.costs import check_costs
from slabq.machine import Machine

__all__ = ["ClosedForm", "closed_forms"]

TURNS = 10  # of what is done over and over
STREAM_LINES = 1000
WARM_UP_TURNS = 4  # until every line is where a turn finds it each time
WAITERS_MAX = 7
ROW_LINES = 8
LINE_BYTES = 64
# The age of a line in a core's caches wraps after so many others, and a line as old as
# that is taken for a new one. How many lines are read again stays clear of it.
AGE_WRAP_LINES = 1 << 19
OFF_THE_WRAP = 100_003
UNIT = 4 << 20  # of a node's memory
PAGE_LISTS_ORDER_MAX = 3
BLOCK_ORDER_MAX = 10


@dataclasses.dataclass(frozen=True)
class ClosedForm:
    """One case: what the formula says and what the simulated machine took.

    Parameters
    ----------
    machine : str
        Name of the machine.
    case : str
        What was done.
    formula : str
        What it must take, in parameters of the machine.
    expected_ps, got_ps : int
        In picoseconds.

    Examples
    --------
    >>> ClosedForm("m", "irq", "irq_save_ps", 10, 10).holds
    True
    """

    machine: str
    case: str
    formula: str
    expected_ps: int
    got_ps: int

    @property
    def holds(self) -> bool:
        """Whether the two are equal."""
        return self.expected_ps == self.got_ps


class _Sum(NamedTuple):
    """A sum of parameters, each so many times."""

    counts: tuple[tuple[str, int], ...] = ()

    def plus(self, name: str, count: int = 1) -> "_Sum":
        """Return the sum with `count` times a parameter more."""
        counts = dict(self.counts)
        counts[name] = counts.get(name, 0) + count
        return _Sum(tuple(counts.items()))

    def and_(self, other: "_Sum") -> "_Sum":
        """Return the sum of both."""
        total = self
        for name, count in other.counts:
            total = total.plus(name, count)
        return total

    def ps(self, costs: Mapping[str, int]) -> int:
        """Return its value."""
        return sum(count * costs[name] for name, count in self.counts)

    @property
    def text(self) -> str:
        """The sum as people write it."""
        parts = [n if k == 1 else f"{k} {n}" for n, k in self.counts if k]
        return " + ".join(parts) or "0"


class _Expected(NamedTuple):
    formula: str
    ps: int


class _Case(NamedTuple):
    name: str
    expected: _Expected
    run: Callable[[], int]  # what the simulated machine takes


Step = tuple[str, int, int, int, int]  # kind, CPU, node, line, count


def closed_forms(
    machine: Machine, *, run_on: Machine | None = None
) -> list[ClosedForm]:
    """Work out every case that a machine has and run it.

    Parameters
    ----------
    machine : Machine
        Whose parameters go into the formulas.
    run_on : Machine, optional
        What is simulated. Default: the same. Another one shows that a wrong value is
        found.

    Returns
    -------
    list of ClosedForm
        In a fixed order; which cases there are follows from the machine's shape.

    Raises
    ------
    ParameterError
        If the machine cannot be simulated.

    Examples
    --------
    >>> all(form.holds for form in closed_forms(Machine(cpus=4, nodes=2)))
    True
    """
    cases = _Cases(machine, machine if run_on is None else run_on)
    return [
        ClosedForm(
            machine.name,
            case.name,
            case.expected.formula,
            case.expected.ps,
            case.run(),
        )
        for case in cases.all()
    ]


class _Cases:
    """The cases of one machine."""

    def __init__(self, machine: Machine, run_on: Machine) -> None:
        self.costs = dict(check_costs(machine.costs))
        self.machine = machine
        llc_bytes = self.costs["llc_lines"] * LINE_BYTES
        self.run_on = run_on.replace(node_bytes=_whole(max(8 * llc_bytes, 64 << 20)))
        self.node_of_cpu = tuple(machine.node_of_cpu or ())
        self.llc_of_cpu = tuple(machine.llc_of_cpu or ())
        self.distance = tuple(map(tuple, machine.distance or ()))
        self.cores = machine.cpus // self.costs["threads_per_core"]

    def all(self) -> Iterator[_Case]:
        """Every case."""
        for word, other in self._others().items():
            yield from self._two_cpus(word, other)
        yield self._lock_alone()
        for count in range(1, min(WAITERS_MAX, self.machine.cpus - 1) + 1):
            yield from self._waiters(count)
        yield from self._tasks()
        yield from self._streams()
        yield from self._capacities()
        yield from self._instructions()
        yield from self._pages()

    def _sums(self, name: str, total: _Sum, steps: list[Step], measured: int) -> _Case:
        """Make a case whose last `measured` steps take a plain sum of parameters."""
        expected = _Expected(total.text, total.ps(self.costs))
        return _Case(name, expected, lambda: sum(self._probe(steps)[-measured:]))

    def _probe(self, steps: list[Step]) -> list[int]:
        """Run the steps on a fresh machine; the time of each."""
        return _core.probe(self._fresh(), steps)

    def _fresh(self) -> _core.SimMachine:
        return cast(_core.SimMachine, self.run_on.core(1, "sim"))

    # -- two CPUs ----------------------------------------------------------------------

    def _others(self, *, last: bool = False) -> dict[str, int]:
        """One CPU for each way in which another can be placed beside CPU 0."""
        found: dict[str, int] = {}
        cpus = range(1, self.machine.cpus)
        for cpu in reversed(cpus) if last else cpus:
            found.setdefault(self._place(0, cpu), cpu)
        return found

    def _place(self, cpu: int, other: int) -> str:
        if cpu % self.cores == other % self.cores:
            return "same core"
        if self.llc_of_cpu[cpu] == self.llc_of_cpu[other]:
            return "same cache"
        if self._socket(cpu) == self._socket(other):
            return "same socket"
        node, other_node = self.node_of_cpu[cpu], self.node_of_cpu[other]
        if node == other_node:
            return "other socket"
        return f"node at {self.distance[node][other_node]}"

    def _socket(self, cpu: int) -> int:
        return self.llc_of_cpu[cpu] // self.costs["domains_per_socket"]

    def _transfer(self, taker: int, giver: int) -> _Sum:
        """Say what a line costs that another CPU has changed."""
        place = self._place(taker, giver)
        name = {
            "same core": "l1_hit_ps",
            "same cache": "core_transfer_ps",
            "same socket": "socket_transfer_ps",
            "other socket": "hop1_transfer_ps",
        }.get(place)
        if name is not None:
            return _Sum().plus(name)
        distance = self.distance[self.node_of_cpu[taker]][self.node_of_cpu[giver]]
        names = ("socket_transfer_ps", "hop1_transfer_ps", "hop2_transfer_ps")
        return self._by_distance(distance, names)

    def _by_distance(self, distance: int, names: tuple[str, str, str]) -> _Sum:
        """Give the parameter at distance 10, 20 or 30, and straight lines elsewhere."""
        if distance in (10, 20, 30):
            return _Sum().plus(names[distance // 10 - 1])
        near, far = names[:2] if distance <= 20 else names[1:]
        start = 10 if distance <= 20 else 20
        a, b = self.costs[near], self.costs[far]
        ps = a + int((b - a) * (distance - start) / 10)
        name = f"({near}..{far} at distance {distance})"
        self.costs[name] = max(ps, 0)
        return _Sum().plus(name)

    def _two_cpus(self, word: str, other: int) -> Iterator[_Case]:
        to_first, to_other = self._transfer(0, other), self._transfer(other, 0)
        turns = _Sum().plus("atomic_ps", TURNS)
        for _ in range(TURNS // 2):
            turns = turns.and_(to_first).and_(to_other)
        steps: list[Step] = [("add", cpu, 0, 0, 1) for cpu in (0, other)]
        steps += [("add", (0, other)[i % 2], 0, 0, 1) for i in range(TURNS)]
        yield self._sums(f"{TURNS} turns at a word, {word}", turns, steps, TURNS)

        pair = _Sum().plus("lock_acquire_ps").plus("lock_release_ps").plus("l1_hit_ps")
        steps = [("lock", cpu, 0, 0, 1) for cpu in (0, other, 0)]
        yield self._sums(f"lock last held, {word}", to_first.and_(pair), steps, 1)
        if word == "same core":
            return
        steps = [("write", other, 0, 0, 1), ("read", 0, 0, 0, 1)]
        yield self._sums(f"load of a changed line, {word}", to_first, steps, 1)
        yield from self._shared_line(word, other)

    def _shared_line(self, word: str, other: int) -> Iterator[_Case]:
        """Store to a line that both CPUs have read."""
        upgrade = "upgrade_core_ps" if word == "same cache" else "upgrade_ps"
        line = _Sum().plus("llc_hit_ps").plus(upgrade)
        read: list[Step] = [("read", cpu, 0, 0, 1) for cpu in (0, other)]
        atomic = line.plus("atomic_ps")
        steps: list[Step] = [*read, ("add", 0, 0, 0, 1)]
        yield self._sums(f"addition to a shared word, {word}", atomic, steps, 1)

        share = self.costs["store_wait_percent"]
        ps = max(line.ps(self.costs) * share // 100, self.costs["l1_hit_ps"])
        expected = _Expected(f"store_wait_percent of ({line.text})", ps)
        store: list[Step] = [*read, ("write", 0, 0, 0, 1)]
        name = f"store to a shared line, {word}"
        yield _Case(name, expected, lambda: self._probe(store)[-1])

    # -- locks -------------------------------------------------------------------------

    def _lock_alone(self) -> _Case:
        total = _Sum().plus("lock_acquire_ps", TURNS).plus("lock_release_ps", TURNS)
        total = total.plus("l1_hit_ps", 2 * TURNS)
        steps: list[Step] = [("lock", 0, 0, 0, 1), ("lock", 0, 0, 0, TURNS)]
        return self._sums(f"{TURNS} times a lock nobody wants", total, steps, 1)

    def _waiters(self, count: int) -> Iterator[_Case]:
        """CPUs 1 to `count` wait for CPU 0; all hand-overs together."""
        plural = "" if count == 1 else "s"
        name = f"lock through {count} waiter{plural}"
        if not self.costs["lock_is_unfair"]:
            total = self._handed_over(list(range(count + 1)))
            expected = _Expected(total.text, total.ps(self.costs))
            yield _Case(name, expected, lambda: self._hand_overs(self.run_on, count)[1])
        costs = {**dict(check_costs(self.run_on.costs)), "lock_is_unfair": 1}
        unfair = self.run_on if self.costs["lock_is_unfair"] else None
        unfair = unfair or self.run_on.replace(costs=costs)
        order, got_ps = self._hand_overs(unfair, count)
        total = self._handed_over(order, unfair=True)
        # Who gets such a lock is drawn by lot, so the sum is one of what came out.
        text = total.text if count == 1 else f"{total.text} ({_words(order)})"
        expected = _Expected(text, total.ps(self.costs))
        yield _Case(f"unfair {name}", expected, lambda: got_ps)

    def _handed_over(self, order: list[int], *, unfair: bool = False) -> _Sum:
        """Sum up what a lock takes from the first CPU of the order to the last."""
        total = _Sum().plus("lock_handover_ps", len(order) - 1)
        for place in range(1, len(order)):
            giver, taker = order[place - 1 : place + 1]
            own = self.llc_of_cpu[taker]
            waiting = {self.llc_of_cpu[cpu] for cpu in order[place + 1 :]}
            total = total.and_(self._transfer(taker, giver))
            if not unfair:  # else it is who read the line first, behind nobody
                count = len(waiting - {own})
                total = total.plus("lock_handover_per_waiter_ps", count)
            if self.llc_of_cpu[giver] == own and waiting:
                # The copies of those who spin must go first.
                total = total.plus("upgrade_ps")
        return total

    def _hand_overs(self, machine: Machine, count: int) -> tuple[list[int], int]:
        """Run the waiters: the CPUs as they got the lock, and the time between."""
        core = cast(_core.SimMachine, machine.core(1, "sim"))
        holders = _core.probe_waiters(core, count + 1)
        order = sorted(range(count + 1), key=lambda cpu: holders[cpu][1])
        between = [
            holders[taker][1] - holders[giver][2]
            for giver, taker in itertools.pairwise(order)
        ]
        return order, sum(between)

    # -- tasks -------------------------------------------------------------------------

    def _tasks(self) -> Iterator[_Case]:
        """Two tasks that let each other go on, from the one to the other."""
        lock = _Sum().plus("lock_acquire_ps").plus("lock_release_ps")
        # A lock is two touches of its line; its queue's load is beside it.
        run_queue = lock.plus("l1_hit_ps", 3)
        choose = run_queue.plus("schedule_ps").plus("context_switch_ps")
        # One is queued again, the other taken off.
        yields = run_queue.and_(choose)
        yield self._turns(f"{TURNS} yields to another task", yields, yields, 0, True)
        # The lock of what is waited for is let go when the waker has gone to sleep.
        waits = lock.plus("l1_hit_ps", 2).plus("wakeup_ps").and_(yields)
        yield self._turns(f"{TURNS} wake-ups, same CPU", waits, waits, 0, False)
        for word, other in self._others(last=True).items():
            if self._woken_meets_nobody(other):
                name = f"{TURNS} wake-ups, {word}"
                there, back = self._woken(0, other), self._woken(other, 0)
                yield self._turns(name, there, back, other, False)

    def _woken(self, waker: int, woken: int) -> _Sum:
        """Sum up what passes until a task goes on that another CPU has woken."""
        # The lock of what is waited for, then that of the run queue and its load.
        total = self._taken(waker, woken).plus("lock_acquire_ps").plus("wakeup_ps")
        total = total.and_(self._taken(waker, woken)).plus("lock_acquire_ps")
        total = total.and_(self._taken(waker, woken, is_load=True))
        total = total.plus("ipi_ps").plus("idle_exit_ps").plus("schedule_ps")
        # The CPU of the woken one takes it off the queue. Its last task was the same.
        follows = woken == waker + 1  # their queues are beside each other
        total = total.and_(self._taken(woken, waker, follows=follows))
        total = total.and_(self._taken(woken, waker, is_load=True))
        return total.plus("lock_acquire_ps").plus("l1_hit_ps").plus("lock_release_ps")

    def _taken(
        self, taker: int, giver: int, *, is_load: bool = False, follows: bool = False
    ) -> _Sum:
        """Say what a line of a run queue costs that another CPU has changed.

        The load of a queue is stored to, so part of it is not waited for; and it is the
        line behind the lock, so that from another cache it is on its way already.
        """
        line = self._transfer(taker, giver)
        ps, text = line.ps(self.costs), line.text
        if is_load:
            share_ps = ps * self.costs["store_wait_percent"] // 100
            ps = min(ps, max(share_ps, self.costs["l1_hit_ps"]))
            text = f"store_wait_percent of {text}"
        if (is_load or follows) and self.llc_of_cpu[taker] != self.llc_of_cpu[giver]:
            ps = ps * self.costs["stream_percent"] // 100
            text = f"stream_percent of {text}"
        if text == line.text or text.endswith("of l1_hit_ps"):
            return line
        self.costs[text] = ps
        return _Sum().plus(text)

    def _woken_meets_nobody(self, other: int) -> bool:
        """Whether buses, links and the run queue's lock are free when they are needed.

        They are on every machine whose figures are near those of a real one.
        """
        ways = ("bus_line_ps", "bus_snoop_ps", "link_line_ps")
        line_ps = min(
            self._transfer(cpu, giver).ps(self.costs)
            for cpu, giver in ((0, other), (other, 0))
        )
        release_ps = self.costs["l1_hit_ps"] + self.costs["lock_release_ps"]
        pause_ps = self.costs["idle_exit_ps"] + self.costs["schedule_ps"]
        is_shared = self._place(0, other) == "same core"
        are_free = is_shared or max(self.costs[way] for way in ways) <= line_ps
        return are_free and pause_ps > release_ps

    def _turns(
        self, name: str, there: _Sum, back: _Sum, other: int, yields: bool
    ) -> _Case:
        """Make a case of turns from CPU 0 to another and back."""
        total = _Sum()
        for _ in range(TURNS // 2):
            total = total.and_(there).and_(back)
        expected = _Expected(total.text, total.ps(self.costs))
        turns = WARM_UP_TURNS + TURNS
        return _Case(
            name,
            expected,
            lambda: sum(
                _core.probe_turns(self._fresh(), turns, other, yields)[WARM_UP_TURNS:]
            ),
        )

    # -- lines -------------------------------------------------------------------------

    def _streams(self) -> Iterator[_Case]:
        """Lines that nobody has touched, seen from CPU 0."""
        own = self.node_of_cpu[0]
        yield self._stream("one line of memory", own, 1, "read")
        yield self._stream(f"{STREAM_LINES} lines in a row", own, STREAM_LINES, "read")
        yield self._stream(f"{ROW_LINES} touches in a row", own, ROW_LINES, "row")
        done = {10}
        for node in range(self.machine.nodes):
            distance = self.distance[own][node]
            if distance not in done:
                done.add(distance)
                name = f"{STREAM_LINES} lines in a row, node at {distance}"
                yield self._stream(name, node, STREAM_LINES, "read")

    def _stream(self, name: str, node: int, count: int, kind: str) -> _Case:
        own = self.node_of_cpu[0]
        names = ("dram_local_ps", "dram_hop1_ps", "dram_hop2_ps")
        line = self._by_distance(self.distance[own][node], names)
        ways = ["bus_line_ps", "memory_line_ps"]
        ways += ["link_line_ps"] if node != own else []
        line_ps = line.ps(self.costs)
        further_ps = line_ps * self.costs["stream_percent"] // 100
        ps, waited = self._pass(line_ps, further_ps, count, ways)
        text = line.text
        if count > 1:
            text += f" + {count - 1} x stream_percent of it"
        text += f" + {waited} ps behind other lines" if waited else ""
        steps: list[Step] = [(kind, 0, node, 0, count)]
        return _Case(name, _Expected(text, ps), lambda: self._probe(steps)[-1])

    def _pass(
        self, line_ps: int, further_ps: int, count: int, ways: list[str]
    ) -> tuple[int, int]:
        """Sum up lines one behind the other, and what of it they wait in queues."""
        now = waited = last = 0
        backlog = dict.fromkeys(ways, 0)
        for line in range(count):
            wait = 0
            for way in ways:
                backlog[way] = max(0, backlog[way] - (now - last))
                wait += backlog[way]
                backlog[way] += self.costs[way]
            last = now
            now += (further_ps if line else line_ps) + wait
            waited += wait
        return now, waited

    def _capacities(self) -> Iterator[_Case]:
        """Lines that were read before, by which cache has room for them."""
        l1, l2 = self.costs["l1_lines"], self.costs["l2_lines"]
        llc = self.costs["llc_lines"]
        cases = [("the L1", "l1_hit_ps", l1 // 2)]
        if l2 >= 4 * l1:
            cases.append(("the L2", "l2_hit_ps", l2 // 2))
        if llc >= 4 * max(l1, l2):
            cases.append(("the last level", "llc_hit_ps", llc // 2))
        for place, name, count in cases:
            total = _Sum().plus(name, count)
            steps = self._again(count)
            yield self._sums(f"{count} lines again, of {place}", total, steps, 1)
        if llc >= max(l1, l2):
            wrap = OFF_THE_WRAP if 2 * llc >= AGE_WRAP_LINES else 0
            yield self._beyond_the_caches(2 * llc + wrap)

    def _again(self, count: int) -> list[Step]:
        return [("again", 0, self.node_of_cpu[0], 0, count)]

    def _beyond_the_caches(self, count: int) -> _Case:
        """Read lines again that no cache has kept, none right behind the last."""
        line_ps = self.costs["dram_local_ps"]
        ways = ["bus_line_ps", "memory_line_ps"]
        ps, waited = self._pass(line_ps, line_ps, count, ways)
        text = f"{count} dram_local_ps"
        text += f" + {waited} ps behind other lines" if waited else ""
        steps = self._again(count)
        name = f"{count} lines again, of no cache"
        return _Case(name, _Expected(text, ps), lambda: self._probe(steps)[-1])

    # -- instructions and pages --------------------------------------------------------

    def _instructions(self) -> Iterator[_Case]:
        irq = _Sum().plus("irq_save_ps", TURNS).plus("irq_restore_ps", TURNS)
        yield self._sums(f"{TURNS} x irqs off, on", irq, [("irq", 0, 0, 0, TURNS)], 1)
        off = _Sum().plus("preempt_ps", TURNS)
        steps: list[Step] = [("preempt", 0, 0, 0, TURNS)]
        yield self._sums(f"{TURNS} x preemption off, on", off, steps, 1)
        for kind in ("cas_double", "local_cas"):
            total = _Sum().plus("l1_hit_ps").plus(f"{kind}_ps")
            steps = [(kind, 0, 0, 0, 1)] * 2
            yield self._sums(f"{kind} of an own word", total, steps, 1)

    def _pages(self) -> Iterator[_Case]:
        """Blocks of pages, the second time round, when all lines are in the L1."""
        listed = min(self.machine.pcp_order_under(None), PAGE_LISTS_ORDER_MAX)
        order = listed + 1
        splits = BLOCK_ORDER_MAX - order  # of the largest block, and merges back
        lock = _Sum().plus("lock_acquire_ps").plus("lock_release_ps")
        alloc = lock.plus("page_alloc_cycles x cycle_ps")
        free = lock.plus("page_free_cycles x cycle_ps")
        for path in ("page_alloc", "page_free"):
            cycles = self.costs[f"{path}_cycles"] * self.costs["cycle_ps"]
            self.costs[f"{path}_cycles x cycle_ps"] = cycles
        # Each lock is two touches of its line. A block: its first frame, the buddies it
        # is split from, and the frames behind the first one.
        hits = {
            "page from the CPU's list": (0, alloc.plus("l1_hit_ps", 3)),
            "page to the CPU's list": (0, free.plus("l1_hit_ps", 3)),
            f"order {order} under the zone lock": (
                order,
                alloc.plus("l1_hit_ps", 3 + splits + (1 << order) - 1),
            ),
            f"order {order} back to the zone": (
                order,
                free.plus("l1_hit_ps", 4 + splits),
            ),
        }
        for name, (block, total) in hits.items():
            kinds = ["pages_alloc", "pages_free"] * 2
            steps = [(kind, 0, self.node_of_cpu[0], 0, block) for kind in kinds]
            place = 3 if " to " in name else 2
            yield self._step(name, total, steps, place)

    def _step(self, name: str, total: _Sum, steps: list[Step], place: int) -> _Case:
        """Make a case of one of several steps."""
        expected = _Expected(total.text, total.ps(self.costs))
        return _Case(name, expected, lambda: self._probe(steps)[place])


def _words(order: list[int]) -> str:
    """Say in which order CPUs got a lock."""
    return "CPUs " + ", ".join(map(str, order))


def _whole(node_bytes: int) -> int:
    return (node_bytes + UNIT - 1) // UNIT * UNIT
