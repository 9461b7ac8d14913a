"""Costs of a simulated machine: what lines, locks, interrupts and wake-ups take.

A machine file has them as a table ``[costs]``, each entry with its value, its unit,
where it is from and how sure it is. A machine without such a table takes those of the
preset `DEFAULT_MACHINE`, which has nodes and so a figure for everything.
"""

import functools
import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any, NamedTuple, cast

from slabq import _core
from slabq.checks import require_choice, require_int, shown
from slabq.errors import ParameterError

__all__ = [
    "Cost",
    "Costs",
    "check_costs",
    "check_units",
    "costs_with_sources",
    "default_costs",
    "require_mapping",
    "values_of_table",
]

DEFAULT_MACHINE = "opteron-4x4"
Costs = tuple[tuple[str, int], ...]

# How the name of a cost ends, and its unit; the others count things.
_UNITS = {
    "_ps": "ps",
    "_ns": "ns",
    "_us": "us",
    "_percent": "percent",
    "_ppm": "ppm",
    "_cycles": "cycles",
    "_lines": "lines",
}
_COUNTS = {"threads_per_core": "CPUs", "domains_per_socket": "caches"}
SWITCH_UNIT = "0 or 1"


class Cost(NamedTuple):
    """One parameter of a simulated machine, with what is known of it."""

    name: str
    value: int
    unit: str
    about: str
    source: str
    confidence: str


@functools.cache
def _limits() -> Mapping[str, tuple[int, int, int]]:
    return {
        name: (default, minimum, maximum)
        for name, default, minimum, maximum, _ in _core.SimMachine.parameters()
    }


@functools.cache
def _default_table() -> Mapping[str, Any]:
    file = resources.files("slabq.data").joinpath("machines", f"{DEFAULT_MACHINE}.toml")
    table: Mapping[str, Any] = tomllib.loads(file.read_text())["costs"]
    return table


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
    table = values_of_table(_default_table(), f"{DEFAULT_MACHINE}.toml")
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
    >>> values_of_table({"cycle_ps": {"value": 357, "unit": "ps"}}, "my.toml")
    {'cycle_ps': 357}
    """
    values = {}
    for name, entry in table.items():
        value = entry.get("value") if isinstance(entry, Mapping) else entry
        if not isinstance(value, int) or isinstance(value, bool):
            raise ParameterError(
                f"machine file {file_name}: {name} is {entry!r}: accepted are a whole "
                "number and a table with one as its value"
            )
        values[name] = value
    return values


def unit_of(name: str) -> str:
    """Return the unit that the name of a cost says."""
    found = (unit for end, unit in _UNITS.items() if name.endswith(end))
    return next(found, _COUNTS.get(name, SWITCH_UNIT))


def check_units(table: Mapping[str, Any], unit: str | None, file_name: str) -> None:
    """Refuse an entry of a machine file whose unit is missing or another.

    A plain number has the unit that its name says; a table says it again, so that who
    typed nanoseconds is told.

    Parameters
    ----------
    table : mapping
        As for `values_of_table`.
    unit : str or None
        The unit of every entry. None: each name says its own.
    file_name : str
        For messages.

    Raises
    ------
    ParameterError
        If a table has no unit, or another one.

    Examples
    --------
    >>> check_units({"cycle_ps": {"value": 1, "unit": "ns"}}, None, "my.toml")
    Traceback (most recent call last):
    slabq.errors.ParameterError: machine file my.toml: unit of cycle_ps is 'ns'
    """
    for name, entry in table.items():
        if not isinstance(entry, Mapping):
            continue
        wanted = unit_of(name) if unit is None else unit
        if "unit" not in entry:
            raise ParameterError(
                f"machine file {file_name}: {name} has no unit: accepted is "
                f"unit = {wanted!r}"
            )
        if entry["unit"] != wanted:
            raise ParameterError(
                f"machine file {file_name}: unit of {name} is {entry['unit']!r}: "
                f"accepted is {wanted!r}"
            )


def costs_with_sources(costs: Costs, table: Mapping[str, Any]) -> list[Cost]:
    """Return every cost with its unit, source and confidence.

    Parameters
    ----------
    costs : tuple of (str, int)
        The values that count, as `check_costs` returns them.
    table : mapping
        The ``[costs]`` table of the machine's file; empty if it has none.

    Returns
    -------
    list of Cost
        In the core's order. A value that the file does not have is slabq's own default
        or that of `DEFAULT_MACHINE`, and its source says so.

    Examples
    --------
    >>> costs = costs_with_sources(check_costs(None), {})
    >>> costs[0].name, costs[0].unit, costs[0].source[:16]
    ('cycle_ps', 'ps', 'as opteron-4x4: ')
    """
    values = dict(costs)
    default = _default_table()
    found = []
    for name, own, _, _, about in _core.SimMachine.parameters():
        about, _, core_source = about.partition("; ")
        if not name.endswith("_cycles") and core_source:
            about, core_source = f"{about}; {core_source}", ""
        place, entry = "", table.get(name)
        if entry is None and name in default:
            place, entry = f"as {DEFAULT_MACHINE}: ", default[name]
        if entry is None:
            known = (core_source or "slabq's default", _confidence(core_source))
            entry = {"value": own, "source": known[0], "confidence": known[1]}
        elif not isinstance(entry, Mapping):
            entry = {"value": entry}
        source = place + str(entry.get("source", "the file does not say"))
        confidence = str(entry.get("confidence", "-"))
        if entry["value"] != values[name]:
            source, confidence = f"given; else {entry['value']}, {source}", "-"
        cost = Cost(name, values[name], unit_of(name), about, source, confidence)
        found.append(cost)
    return found


def _confidence(source: str) -> str:
    """How sure a default of the core is, by the first word of its source."""
    words = {"fitted": "fitted", "estimate": "low", "estimate:": "low"}
    return words.get(source.split(" ")[0].rstrip(";"), "-")


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
    given = require_mapping("costs", costs or {})
    for name, value in given.items():
        require_choice("cost of a machine", name, list(limits))
        require_int(name, value, limits[name][1], limits[name][2])
    values = {**default_costs(), **given}
    _check_sizes(values)
    return tuple(sorted(values.items()))


def require_mapping(what: str, value: object) -> dict[str, Any]:
    """Return a mapping, or pairs of a name and a value, as a dict.

    Parameters
    ----------
    what : str
        Name of the parameter, for the message.
    value : object
        What was given.

    Returns
    -------
    dict

    Raises
    ------
    ParameterError
        If it is anything else.

    Examples
    --------
    >>> require_mapping("costs", [("cycle_ps", 357)])
    {'cycle_ps': 357}
    """
    try:
        if isinstance(value, str):
            raise TypeError
        return dict(cast(Any, value))
    except (TypeError, ValueError):
        raise ParameterError(
            f"{what} is {shown(value)}: accepted is a table of names and values"
        ) from None


def _check_sizes(values: Mapping[str, int]) -> None:
    """Refuse a first level that is larger than the ones behind it."""
    l1, l2, llc = (values[f"{level}_lines"] for level in ("l1", "l2", "llc"))
    behind = {"llc_lines": llc} | ({"l2_lines": l2} if l2 else {})
    for name, lines in behind.items():
        if lines < l1:
            raise ParameterError(
                f"{name} is {lines} with l1_lines {l1}: accepted are at least as many"
            )
