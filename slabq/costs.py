"""Costs of a simulated machine: what lines, locks, interrupts and wake-ups take.

A machine file has them as a table ``[costs]``, each entry with its value, its unit,
where it is from and how sure it is. A machine without such a table takes those of the
preset `DEFAULT_MACHINE`, which has nodes and so a figure for everything.
"""

import functools
import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any

from slabq import _core
from slabq.checks import require_choice, require_int
from slabq.errors import ParameterError

__all__ = ["Costs", "check_costs", "default_costs", "values_of_table"]

DEFAULT_MACHINE = "opteron-4x4"
Costs = tuple[tuple[str, int], ...]


@functools.cache
def _limits() -> Mapping[str, tuple[int, int, int]]:
    return {
        name: (default, minimum, maximum)
        for name, default, minimum, maximum, _ in _core.SimMachine.parameters()
    }


@functools.cache
def default_costs() -> Mapping[str, int]:
    """Return a value of every parameter of a simulated machine.

    Returns
    -------
    mapping of str to int
        Values of `DEFAULT_MACHINE`, and the core's own for what it leaves out.

    Examples
    --------
    >>> default_costs()["strict"]
    0
    """
    file = resources.files("slabq.data").joinpath("machines", f"{DEFAULT_MACHINE}.toml")
    table = values_of_table(tomllib.loads(file.read_text())["costs"], file.name)
    return {name: row[0] for name, row in _limits().items()} | table


def values_of_table(table: Mapping[str, Any], file_name: str) -> dict[str, int]:
    """Return the values of a ``[costs]`` table.

    Parameters
    ----------
    table : mapping
        Of each parameter its value, or a table with its ``value`` and where it is from.
    file_name : str
        For messages.

    Returns
    -------
    dict of str to int

    Raises
    ------
    ParameterError
        If an entry has no value.

    Examples
    --------
    >>> values_of_table({"cycle_ps": {"value": 357, "source": "2.8 GHz"}}, "my.toml")
    {'cycle_ps': 357}
    """
    values = {}
    for name, entry in table.items():
        value = entry.get("value") if isinstance(entry, Mapping) else entry
        if not isinstance(value, int):
            raise ParameterError(
                f"machine file {file_name}: {name} is {entry!r}: accepted are a whole "
                "number and a table with one as its value"
            )
        values[name] = value
    return values


def check_costs(costs: Mapping[str, int] | Iterable[tuple[str, int]] | None) -> Costs:
    """Return all costs, checked, in the order of their names.

    Parameters
    ----------
    costs : mapping of str to int, pairs, or None
        What differs from the default.

    Returns
    -------
    tuple of (str, int)

    Raises
    ------
    ParameterError
        If a name is not known or a value not accepted.

    Examples
    --------
    >>> dict(check_costs({"dram_local_ps": 90_000}))["dram_local_ps"]
    90000
    """
    limits = _limits()
    given = dict(costs or {})
    for name, value in given.items():
        require_choice("cost of a machine", name, list(limits))
        require_int(name, value, limits[name][1], limits[name][2])
    return tuple(sorted({**default_costs(), **given}.items()))
