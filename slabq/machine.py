"""A machine is CPUs, nodes with memory, distances and shared caches: a plain value.

`Machine` checks itself when it is made. Presets are read from ``data/machines``; `host`
is the machine this process runs on.
"""

import dataclasses
import functools
import os
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Self

from slabq import _core, topology
from slabq.checks import list_known, read_limited, require_choice, require_int, shown
from slabq.costs import (
    check_costs,
    check_units,
    require_mapping,
    values_of_table,
)
from slabq.errors import ParameterError
from slabq.host_memory import has_huge_pages, require_memory
from slabq.policy import version_key

__all__ = [
    "Machine",
    "find_machine",
    "host",
    "machine_costs_table",
    "machine_presets",
    "read_machine",
]

MIB = 1 << 20
NODE_BYTES_UNIT = 4 * MIB  # the largest block of the page allocator
NODE_BYTES_MAX = 1 << 40
REMOTE_DELAY_MAX_NS = 1_000_000
SYSCALL_MAX_NS = 1_000_000
PAGE_ORDER_MAX = 10
TICKET_KERNEL = "2.6.25"  # the first whose spin locks are given out in turn on x86
PCP_KERNEL = "5.14"  # the first whose per-CPU page lists keep more than single pages
PCP_ORDER_MAX = 3
HOST_NAME = "host"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine to run policies on: CPUs, nodes, distances, memory.

    Parameters
    ----------
    cpus : int
        Number of CPUs, 1 to 256.
    nodes : int, default 1
        Number of NUMA nodes, 1 to 16, at most one a CPU.
    distance : array_like of int, shape (nodes, nodes), optional
        Distances as in the ACPI SLIT: 10 on the diagonal, 11 to 255 elsewhere; they may
        differ by direction. Default: 20 between any two nodes.
    node_bytes : int, default 1 GiB
        Memory of each node in bytes, a multiple of 4 MiB.
    node_of_cpu : sequence of int, length cpus, optional
        Node of each CPU. Default: equal groups of neighbours, CPU c on node
        ``c * nodes // cpus``.
    llc_of_cpu : sequence of int, length cpus, optional
        Number of the last-level cache of each CPU, counted from 0. Default: one a node.
    pcp_order_max : int, optional
        Largest page order kept in the per-CPU page lists. Default: what the kernel of
        the policy has, single pages only before Linux 5.14, up to order 3 since.
    remote_delay_ns : int, default 0
        Native engine: delay of a touch at distance 20, in nanoseconds; other distances
        in proportion to distance - 10. 0 is off: the host's own memory decides.
    costs : mapping of str to int, optional
        Simulated machine: what lines, locks, interrupts and wake-ups take, by name;
        ``slabq show machine NAME`` prints all. Default: those of ``opteron-4x4``.
    syscall_ns : mapping of str to int, optional
        Simulated machine: by workload, what a send, receive, read or write takes beside
        memory, locks and waking.
    name : str, default ""
        What tables call the machine; without one it is named after its shape.
    about : str, default ""
        One line on what the machine is.

    Raises
    ------
    ParameterError
        If a value is not accepted; the message names it and what is.

    Examples
    --------
    >>> machine = Machine(cpus=4, nodes=2, distance=[[10, 21], [21, 10]])
    >>> machine.node_of_cpu
    (0, 0, 1, 1)
    >>> machine.name
    '4 CPUs, 2 nodes'
    """

    cpus: int
    nodes: int = 1
    distance: Sequence[Sequence[int]] | None = None
    node_bytes: int = 1 << 30
    node_of_cpu: Sequence[int] | None = None
    llc_of_cpu: Sequence[int] | None = None
    pcp_order_max: int | None = None
    remote_delay_ns: int = 0
    costs: Mapping[str, int] | Sequence[tuple[str, int]] | None = None
    syscall_ns: Mapping[str, int] | Sequence[tuple[str, int]] = ()
    name: str = ""
    about: str = dataclasses.field(default="", compare=False)

    def __post_init__(self) -> None:
        cpus = require_int("cpus", self.cpus, 1, topology.CPU_MAX)
        nodes = require_int("nodes", self.nodes, 1, topology.NODE_MAX)
        if nodes > cpus:
            raise ParameterError(
                f"nodes is {nodes} with {cpus} cpus: accepted are at most as many "
                "nodes as cpus"
            )
        self._put(cpus=cpus, nodes=nodes)
        distance = self.distance
        self._put(
            distance=topology.default_distance(nodes)
            if distance is None
            else topology.check_distance(distance, nodes),
            node_bytes=_check_node_bytes(self.node_bytes),
            node_of_cpu=self._check_node_of_cpu(),
            pcp_order_max=_check_pcp_order_max(self.pcp_order_max),
            remote_delay_ns=require_int(
                "remote_delay_ns", self.remote_delay_ns, 0, REMOTE_DELAY_MAX_NS
            ),
        )
        self._put(llc_of_cpu=self._check_llc_of_cpu())
        self._put(costs=check_costs(self.costs), syscall_ns=self._check_syscall_ns())
        self._put(name=str(self.name) or _shape_name(cpus, nodes))

    def _put(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _check_node_of_cpu(self) -> tuple[int, ...]:
        if self.node_of_cpu is None:
            return tuple(c * self.nodes // self.cpus for c in range(self.cpus))
        return _check_cpu_map("node_of_cpu", self.node_of_cpu, self.cpus, self.nodes)

    def _check_llc_of_cpu(self) -> tuple[int, ...]:
        if self.llc_of_cpu is None:
            assert self.node_of_cpu is not None
            return tuple(self.node_of_cpu)
        return _check_cpu_map("llc_of_cpu", self.llc_of_cpu, self.cpus, self.cpus)

    def _check_syscall_ns(self) -> tuple[tuple[str, int], ...]:
        given = require_mapping("syscall_ns", self.syscall_ns)
        return tuple(
            (str(name), require_int(f"syscall_ns of {name}", value, 0, SYSCALL_MAX_NS))
            for name, value in sorted(given.items())
        )

    def replace(self, **changes: Any) -> Self:
        """Return this machine with some values changed, all checked again.

        Parameters
        ----------
        **changes
            Parameters of `Machine`. With another number of CPUs or nodes, what was said
            CPU by CPU or node by node returns to its default unless it is given too.
            The name gets a ``*`` unless a new one is given.

        Returns
        -------
        Machine

        Raises
        ------
        ParameterError
            If a value is not accepted.

        Examples
        --------
        >>> Machine(cpus=4).replace(nodes=2).distance
        ((10, 20), (20, 10))
        """
        if not changes:
            return self
        shape = {"cpus": self.cpus, "nodes": self.nodes}
        if any(changes.get(key, value) != value for key, value in shape.items()):
            changes = {"node_of_cpu": None, "llc_of_cpu": None, **changes}
        if changes.get("nodes", self.nodes) != self.nodes:
            changes = {"distance": None, **changes}
        shaped = self.name == _shape_name(self.cpus, self.nodes)
        name = "" if shaped else self.name.removesuffix("*") + "*"
        return dataclasses.replace(self, **{"name": name, **changes})

    def pcp_order_under(self, kernel: str | None) -> int:
        """Return the largest page order that per-CPU page lists keep under a kernel.

        Parameters
        ----------
        kernel : str or None
            Kernel profile; None is the newest.

        Returns
        -------
        int
            `pcp_order_max` where it is given. Else 0 before Linux 5.14, whose commit
            44042b449872 lets the lists keep pages of order 1 to 3 too.

        Examples
        --------
        >>> Machine(cpus=1).pcp_order_under("2.6.35")
        0
        >>> Machine(cpus=1).pcp_order_under("5.14-rt")
        3
        """
        if self.pcp_order_max is not None:
            return self.pcp_order_max
        is_older = kernel is not None and version_key(kernel) < version_key(PCP_KERNEL)
        return 0 if is_older else PCP_ORDER_MAX

    def _costs_under(self, kernel: str | None) -> dict[str, int]:
        """Return the costs, with the kind of spin lock that the kernel has on x86."""
        costs = dict(check_costs(self.costs))
        if kernel is not None and version_key(kernel) < version_key(TICKET_KERNEL):
            costs["lock_is_unfair"] = 1
        return costs

    def core(
        self, seed: int = 0, engine: str = "native", kernel: str | None = None
    ) -> _core.Machine | _core.SimMachine:
        """Make the machine in the C core.

        Parameters
        ----------
        seed : int, default 0
            Seed of the machine's random numbers.
        engine : str, default "native"
            ``native`` or ``sim``.
        kernel : str, optional
            Kernel profile that decides what the machine leaves to it. Default: the
            newest.

        Returns
        -------
        slabq._core.Machine or slabq._core.SimMachine

        Raises
        ------
        OutOfMemory
            If this host has not enough memory for its page frames.
        ParameterError
            If the engine sim cannot run such a machine.

        Examples
        --------
        >>> type(Machine(cpus=1, node_bytes=1 << 24).core()).__name__
        'Machine'
        """
        assert self.node_of_cpu is not None
        assert self.llc_of_cpu is not None
        assert self.distance is not None
        self._check_host_memory(engine)
        if engine == "sim":
            self._check_caches_by_node()
            return _core.SimMachine(
                list(self.node_of_cpu),
                list(self.llc_of_cpu),
                [list(row) for row in self.distance],
                self.node_bytes,
                seed,
                list(self._costs_under(kernel).items()),
                self.pcp_order_under(kernel),
            )
        return _core.Machine(
            list(self.node_of_cpu),
            list(self.llc_of_cpu),
            [list(row) for row in self.distance],
            self.node_bytes,
            self.pcp_order_under(kernel),
            self.remote_delay_ns,
            seed,
        )

    def _check_host_memory(self, engine: str) -> None:
        """Refuse more page frames than the host has memory for.

        Making a machine touches the frame of every block of 4 MiB, a page of the host
        each; the simulated one asks for large pages, and then touches all frames.
        """
        share = 64 if engine == "sim" and has_huge_pages() else 1024
        what = f"node_bytes is {self.node_bytes} on {self.nodes} nodes: the machine"
        shift = (self.node_bytes - 1).bit_length()
        require_memory(what, (self.nodes << shift) // share)

    def _check_caches_by_node(self) -> None:
        """Refuse a cache that CPUs of two nodes share; the simulation has none such."""
        first: dict[int, int] = {}
        nodes, caches = self.node_of_cpu or (), self.llc_of_cpu or ()
        for cpu, (node, cache) in enumerate(zip(nodes, caches, strict=True)):
            other = first.setdefault(cache, cpu)
            if nodes[other] != node:
                raise ParameterError(
                    f"llc_of_cpu is {cache} for CPU {other} of node {nodes[other]} and "
                    f"CPU {cpu} of node {node}: accepted by the engine sim are caches "
                    "of one node"
                )

    def to_dict(self) -> dict[str, Any]:
        """Return every parameter, in types that JSON has.

        Returns
        -------
        dict
            ``Machine(**machine.to_dict())`` equals the machine.

        Examples
        --------
        >>> machine = Machine(cpus=2)
        >>> Machine(**machine.to_dict()) == machine
        True
        """
        values = dataclasses.asdict(self)
        values["distance"] = [list(row) for row in self.distance or ()]
        values["node_of_cpu"] = list(self.node_of_cpu or ())
        values["llc_of_cpu"] = list(self.llc_of_cpu or ())
        values["costs"] = dict(self.costs or ())
        values["syscall_ns"] = dict(self.syscall_ns)
        return values


MachineLike = Machine | str | os.PathLike[str] | None


def _shape_name(cpus: int, nodes: int) -> str:
    def some(count: int, word: str) -> str:
        return f"{count} {word}" + ("" if count == 1 else "s")

    return f"{some(cpus, 'CPU')}, {some(nodes, 'node')}"


def _check_node_bytes(value: object) -> int:
    try:
        number = require_int("node_bytes", value, NODE_BYTES_UNIT, NODE_BYTES_MAX)
    except ParameterError:
        number = 0
    if number == 0 or number % NODE_BYTES_UNIT:
        raise ParameterError(
            f"node_bytes is {value!r}: accepted are multiples of {NODE_BYTES_UNIT} "
            f"(4 MiB) up to {NODE_BYTES_MAX} (1 TiB)"
        )
    return number


def _check_pcp_order_max(value: object) -> int | None:
    if value is None:
        return None
    return require_int("pcp_order_max", value, 0, PAGE_ORDER_MAX)


def _check_cpu_map(
    what: str, values: Sequence[int], cpus: int, count: int
) -> tuple[int, ...]:
    """Check a list with one entry a CPU; every number below the largest is in use."""
    try:
        numbers = list(values)
    except TypeError:
        text = f"{what} is {values!r}: accepted is a list of {cpus} whole numbers"
        raise ParameterError(text) from None
    if len(numbers) != cpus:
        raise ParameterError(
            f"{what} has {len(numbers)} values with {cpus} cpus: accepted are {cpus}"
        )
    return tuple(
        require_int(f"{what}[{cpu}]", number, 0, count - 1)
        for cpu, number in enumerate(numbers)
    )


@functools.cache
def machine_presets() -> Mapping[str, Machine]:
    """Read the machines that slabq brings along.

    Returns
    -------
    mapping of str to Machine
        By name; `host` is not among them.

    Examples
    --------
    >>> machine_presets()["opteron-4x4"].nodes
    4
    """
    folder = resources.files("slabq.data").joinpath("machines")
    files = sorted(folder.iterdir(), key=lambda entry: entry.name)
    return {
        file.name.removesuffix(".toml"): _from_toml(
            file.read_bytes(), file.name, file.name.removesuffix(".toml")
        )
        for file in files
        if file.name.endswith(".toml")
    }


def read_machine(path: str | os.PathLike[str]) -> Machine:
    """Read a machine file.

    Parameters
    ----------
    path : path-like
        A TOML file with the parameters of `Machine` as keys; the tables ``costs`` and
        ``syscall_ns`` may say of each value where it is from. Other tables are left
        alone.

    Returns
    -------
    Machine

    Raises
    ------
    ParameterError
        If the file is not such a file.
    OSError
        If it cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
    ...     file.write("cpus = 4")
    ...     file.flush()
    ...     read_machine(file.name).cpus
    8
    4
    """
    data = read_limited(path, "machine file")
    return _from_toml(data, os.fspath(path), Path(path).stem)


def machine_costs_table(machine: MachineLike) -> Mapping[str, Any]:
    """Return the ``[costs]`` of a machine's file as they stand there, with sources.

    Parameters
    ----------
    machine : Machine, str, path-like or None
        As for `find_machine`.

    Returns
    -------
    mapping
        Empty for a machine that is not a preset nor a file.

    Raises
    ------
    ParameterError
        If the file is not a machine file.

    Examples
    --------
    >>> machine_costs_table("penryn-2x4")["cycle_ps"]["unit"]
    'ps'
    """
    if machine is None or isinstance(machine, Machine) or machine == HOST_NAME:
        return {}
    text = os.fspath(machine)
    if text in machine_presets():
        folder = resources.files("slabq.data").joinpath("machines")
        data = folder.joinpath(f"{text}.toml").read_bytes()
    else:
        data = read_limited(text, "machine file")
    costs = _toml_values(data, text).get("costs", {})
    return costs if isinstance(costs, dict) else {}


def _toml_values(data: bytes, file_name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(data.decode())
    except ValueError as error:
        raise ParameterError(f"machine file {file_name}: {error}") from None


def _from_toml(data: bytes, file_name: str, name: str) -> Machine:
    values = _toml_values(data, file_name)
    fields = [field.name for field in dataclasses.fields(Machine)]
    given = {k: v for k, v in values.items() if not isinstance(v, dict)}
    for table, unit in (("costs", None), ("syscall_ns", "ns")):
        if isinstance(values.get(table), dict):
            check_units(values[table], unit, file_name)
            given[table] = values_of_table(values[table], file_name)
    for key in given:
        require_choice(f"parameter of machine file {file_name}", key, fields)
    if "cpus" not in given:
        raise ParameterError(f"machine file {file_name} has no cpus: it is required")
    try:
        return Machine(**{"name": name, **given})
    except ParameterError as error:
        raise ParameterError(f"machine file {file_name}: {error}") from None


@functools.cache
def host() -> Machine:
    """Return the machine this process runs on, as sysfs describes it.

    Returns
    -------
    Machine
        Named ``host``; its nodes have the default amount of memory.

    Raises
    ------
    ParameterError
        If the host has more CPUs or nodes than a machine may have.

    Examples
    --------
    >>> host().name
    'host'
    """
    found = topology.read_host()
    return Machine(
        cpus=len(found.node_of_cpu),
        nodes=len(found.distance),
        distance=found.distance,
        node_of_cpu=found.node_of_cpu,
        llc_of_cpu=found.llc_of_cpu,
        name=HOST_NAME,
        about="the machine this runs on",
    )


def find_machine(machine: MachineLike) -> Machine:
    """Return the machine that is meant.

    Parameters
    ----------
    machine : Machine, str, path-like or None
        A machine, the name of a preset, ``"host"``, or the path of a machine file
        (with a slash or ``.toml`` in it). None is the host.

    Returns
    -------
    Machine

    Raises
    ------
    ParameterError
        If there is no such machine; the known ones are listed, the closest first.

    Examples
    --------
    >>> find_machine("penryn-2x4").cpus
    8
    """
    if isinstance(machine, Machine):
        return machine
    if machine is None or machine == HOST_NAME:
        return host()
    if not isinstance(machine, str | os.PathLike):
        raise ParameterError(
            f"machine is {machine!r}: accepted are a slabq.Machine, a name and a path"
        )
    text = os.fspath(machine)
    presets = machine_presets()
    if text in presets:
        return presets[text]
    if "/" in text or text.endswith(".toml"):
        return read_machine(text)
    names = list_known(text, [*presets, HOST_NAME])
    raise ParameterError(
        f"unknown machine {shown(text)}: known are {names}, and paths of machine files"
    )
