"""A topology is which CPU is on which node, who shares a cache, how far nodes are.

Here are the text forms of it (a matrix, the kernel's ``numa=fake``, sysfs) and the
rules that distances keep to. Distances are those of the ACPI SLIT: 10 from a node to
itself, 11 to 255 between nodes, not necessarily the same both ways.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from slabq.checks import require_int
from slabq.errors import ParameterError

__all__ = [
    "CPU_MAX",
    "NODE_MAX",
    "HostTopology",
    "check_distance",
    "default_distance",
    "parse_cpu_list",
    "parse_distance",
    "parse_numa_fake",
    "read_host",
]

CPU_MAX = 256
NODE_MAX = 16
LOCAL_DISTANCE = 10
DISTANCE_MAX = 255

Matrix = tuple[tuple[int, ...], ...]


def default_distance(nodes: int) -> Matrix:
    """Return the distances of `nodes` nodes that are all equally far from each other.

    Parameters
    ----------
    nodes : int
        Number of nodes.

    Returns
    -------
    tuple of tuple of int, shape (nodes, nodes)
        10 on the diagonal, 20 elsewhere, as the kernel assumes without a table.

    Examples
    --------
    >>> default_distance(2)
    ((10, 20), (20, 10))
    """
    return tuple(
        tuple(LOCAL_DISTANCE if a == b else 2 * LOCAL_DISTANCE for b in range(nodes))
        for a in range(nodes)
    )


def check_distance(distance: Sequence[Sequence[int]], nodes: int) -> Matrix:
    """Return `distance` as tuples if it is a distance matrix of `nodes` nodes.

    Parameters
    ----------
    distance : array_like of int, shape (nodes, nodes)
        Distance from the node of the row to the node of the column.
    nodes : int
        Number of nodes.

    Returns
    -------
    tuple of tuple of int, shape (nodes, nodes)

    Raises
    ------
    ParameterError
        If it is not square, not of that many nodes, not 10 on the diagonal, or outside
        11 to 255 elsewhere.

    Examples
    --------
    >>> check_distance([[10, 21], [31, 10]], 2)
    ((10, 21), (31, 10))
    """
    try:
        if isinstance(distance, str):
            raise TypeError
        rows = [list(row) for row in distance]
    except TypeError:
        text = f"distance is {distance!r}: accepted is a list of rows of whole numbers"
        raise ParameterError(text) from None
    for index, row in enumerate(rows):
        if len(row) != len(rows):
            raise ParameterError(
                f"distance has {len(rows)} rows but row {index} has {len(row)} values: "
                "accepted is a square matrix"
            )
    if len(rows) != nodes:
        raise ParameterError(
            f"distance is {len(rows)} by {len(rows)} with {nodes} nodes: accepted is "
            f"{nodes} by {nodes}"
        )
    return tuple(
        tuple(_check_one(a, b, value) for b, value in enumerate(row))
        for a, row in enumerate(rows)
    )


def _check_one(from_node: int, to_node: int, value: object) -> int:
    what = f"distance[{from_node}][{to_node}]"
    if from_node != to_node:
        return require_int(what, value, LOCAL_DISTANCE + 1, DISTANCE_MAX)
    number = require_int(what, value, 0, DISTANCE_MAX)
    if number != LOCAL_DISTANCE:
        raise ParameterError(
            f"{what} is {number}: accepted is {LOCAL_DISTANCE}, the distance of a node "
            "from itself"
        )
    return number


def parse_distance(text: str) -> Matrix:
    """Read a distance matrix as ``"10 20;20 10"``: rows by semicolons or line ends.

    Parameters
    ----------
    text : str
        The matrix; values are separated by blanks or commas.

    Returns
    -------
    tuple of tuple of int, shape (nodes, nodes)

    Raises
    ------
    ParameterError
        If the text is not such a matrix.

    Examples
    --------
    >>> parse_distance("10 20;20 10")
    ((10, 20), (20, 10))
    """
    rows = [row for row in re.split(r"[;\n]", text) if row.strip()]
    if not rows:
        raise ParameterError(
            f'distance is {text!r}: accepted is the form "10 20;20 10"'
        )
    matrix = [_parse_numbers("distance", text, row) for row in rows]
    return check_distance(matrix, len(matrix))


def _parse_numbers(what: str, text: str, row: str) -> list[int]:
    try:
        return [int(word) for word in row.replace(",", " ").split()]
    except ValueError:
        raise ParameterError(
            f"{what} is {text!r}: accepted are whole numbers between the separators"
        ) from None


def parse_numa_fake(text: str) -> tuple[int, Matrix]:
    """Read the kernel's ``numa=fake=`` form ``N`` or ``N:d00,d01,...``.

    Parameters
    ----------
    text : str
        The number of nodes, with ``U`` behind it or not, and then optionally a colon
        and the N times N distances, row after row. A leading ``numa=fake=`` is skipped.

    Returns
    -------
    nodes : int
    distance : tuple of tuple of int, shape (nodes, nodes)

    Raises
    ------
    ParameterError
        If the text is not of this form.

    Notes
    -----
    The kernel also takes a size for each node (``512M``); here the size of a node is a
    parameter of the machine.

    Examples
    --------
    >>> parse_numa_fake("2:10,21,21,10")
    (2, ((10, 21), (21, 10)))
    """
    match = re.fullmatch(r"(?:numa=fake=)?(\d+)[uU]?(?::(.*))?", text.strip())
    if match is None:
        raise ParameterError(
            f'numa-fake is {text!r}: accepted is the form "2" or "2:10,20,20,10"'
        )
    nodes = require_int("nodes of numa-fake", int(match[1]), 1, NODE_MAX)
    if match[2] is None:
        return nodes, default_distance(nodes)
    values = _parse_numbers("numa-fake", text, match[2])
    if len(values) != nodes * nodes:
        raise ParameterError(
            f"numa-fake has {len(values)} distances for {nodes} nodes: accepted are "
            f"{nodes * nodes}"
        )
    rows = [values[start : start + nodes] for start in range(0, len(values), nodes)]
    return nodes, check_distance(rows, nodes)


def parse_cpu_list(text: str) -> list[int]:
    """Read the kernel's list form, as in ``0-3,8``.

    Parameters
    ----------
    text : str
        Numbers and ranges between commas; may be empty.

    Returns
    -------
    list of int

    Raises
    ------
    ParameterError
        If it is not of this form.

    Examples
    --------
    >>> parse_cpu_list("0-2,5")
    [0, 1, 2, 5]
    """
    numbers: list[int] = []
    for part in text.strip().split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if match is not None:
            numbers += range(int(match[1]), int(match[2] or match[1]) + 1)
        elif part.strip():
            raise ParameterError(f'list is {text!r}: accepted is the form "0-3,8"')
    return numbers


class HostTopology(NamedTuple):
    """What sysfs says of this host, CPUs and nodes counted from 0 without gaps."""

    node_of_cpu: tuple[int, ...]
    llc_of_cpu: tuple[int, ...]
    distance: Matrix


def read_host(sysfs: Path = Path("/sys/devices/system")) -> HostTopology:
    """Read the topology of this host from sysfs.

    Parameters
    ----------
    sysfs : Path, optional
        Where the folders ``cpu`` and ``node`` are.

    Returns
    -------
    HostTopology
        The online CPUs and the nodes that have some. Without node folders there is one
        node; without cache folders all CPUs of a node share a cache.

    Raises
    ------
    ParameterError
        If the host has more CPUs or nodes than a machine may have.

    Examples
    --------
    >>> host = read_host()
    >>> len(host.node_of_cpu) == len(host.llc_of_cpu)
    True
    """
    cpus = parse_cpu_list(_read(sysfs / "cpu/online") or "0")
    require_int("number of online CPUs of this host", len(cpus), 1, CPU_MAX)
    nodes = _host_nodes(sysfs, cpus)
    require_int("number of nodes of this host", len(nodes), 1, NODE_MAX)
    node_index = {number: index for index, number in enumerate(nodes)}
    node_of_cpu = {
        cpu: node_index[n] for n, members in nodes.items() for cpu in members
    }
    groups = [_cache_group(sysfs, cpu) or f"node {node_of_cpu[cpu]}" for cpu in cpus]
    group_index = {group: index for index, group in enumerate(dict.fromkeys(groups))}
    return HostTopology(
        tuple(node_of_cpu[cpu] for cpu in cpus),
        tuple(group_index[group] for group in groups),
        _host_distance(sysfs, list(nodes)),
    )


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _host_nodes(sysfs: Path, cpus: list[int]) -> dict[int, list[int]]:
    """CPUs by number of the node; a CPU that no node lists goes to the first."""
    online = set(cpus)
    nodes: dict[int, list[int]] = {}
    for number in parse_cpu_list(_read(sysfs / "node/online") or "0"):
        listed = parse_cpu_list(_read(sysfs / f"node/node{number}/cpulist"))
        members = [cpu for cpu in listed if cpu in online]
        if members:
            nodes[number] = members
    left = online.difference(*nodes.values())
    if left or not nodes:
        nodes.setdefault(min(nodes, default=0), []).extend(sorted(left))
    return nodes


def _cache_group(sysfs: Path, cpu: int) -> str:
    """CPUs that share the largest-level cache with `cpu`, as sysfs lists them."""
    folders = (sysfs / f"cpu/cpu{cpu}/cache").glob("index*")
    levels = [(_read(f / "level"), _read(f / "shared_cpu_list")) for f in folders]
    known = [(int(level), group) for level, group in levels if level.isdigit()]
    return max(known, default=(0, ""))[1]


def _host_distance(sysfs: Path, nodes: list[int]) -> Matrix:
    online = parse_cpu_list(_read(sysfs / "node/online") or "0")
    columns = [online.index(node) for node in nodes]
    rows = [_read(sysfs / f"node/node{node}/distance").split() for node in nodes]
    if any(len(row) != len(online) for row in rows):
        return default_distance(len(nodes))
    matrix = [[int(row[column]) for column in columns] for row in rows]
    return check_distance(matrix, len(nodes))
