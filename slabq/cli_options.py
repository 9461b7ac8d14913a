"""Options that several commands share, and what they make: machines and policies."""

import functools
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from slabq.checks import decimal_or_text, list_known, require_choice
from slabq.errors import ParameterError
from slabq.machine import Machine, find_machine
from slabq.policy import (
    Policy,
    find_policy,
    kernel_profiles,
    policy_names,
    policy_options,
)
from slabq.table import FORMATS, Table
from slabq.topology import parse_distance, parse_numa_fake

__all__ = [
    "NUMBER",
    "STDIN_PATH",
    "ParamType",
    "format_option",
    "json_option",
    "machine_options",
    "make_machine",
    "make_policies",
    "parse_settings",
    "print_table",
    "raw_machine_options",
    "set_option",
    "trace_path",
]

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType

Function = Callable[..., Any]

STDIN_PATH = "/dev/stdin"

_BYTE_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


class _Number(ParamType):
    """A whole number in decimal, or the text as it is, for its owner to refuse."""

    name = "N"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        return decimal_or_text(str(value))


class _Bytes(ParamType):
    """A number of bytes, with K, M, G or T behind it for powers of 1024."""

    name = "BYTES"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        match = re.fullmatch(r"(\d+)([kmgt]?)(?:ib|b)?", str(value).strip().lower())
        return int(match[1]) << _BYTE_UNITS[match[2]] if match else value


NUMBER = _Number()
BYTES = _Bytes()

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
format_option = click.option(
    "--format",
    "format_name",
    default="text",
    show_default=True,
    metavar="|".join(FORMATS),
    help="Form of the tables.",
)
set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A policy option; goes to every policy that has it.",
)

_MACHINE_OPTIONS = (
    click.option("-m", "--machine", metavar="NAME|FILE|host", help="The machine."),
    click.option("--cpus", type=NUMBER, help="Number of CPUs."),
    click.option("--nodes", type=NUMBER, help="Number of nodes."),
    click.option("--distance", metavar='"10 20;20 10"', help="Distances of the nodes."),
    click.option(
        "--numa-fake", metavar='"N:d00,d01,..."', help="Nodes, in the kernel's syntax."
    ),
    click.option("--node-bytes", type=BYTES, help="Memory of each node (K, M, G)."),
    click.option(
        "--remote-delay-ns",
        type=NUMBER,
        help="Delay of a touch at distance 20; off by default.",
    ),
)
_MACHINE_KEYS = (
    "machine",
    "cpus",
    "nodes",
    "distance",
    "numa_fake",
    "node_bytes",
    "remote_delay_ns",
)


def machine_options(function: Function) -> Function:
    """Give a command the options of a machine; it gets a `Machine` as ``machine``."""

    @functools.wraps(function)
    def wrapper(**values: Any) -> Any:
        given = {key: values.pop(key) for key in _MACHINE_KEYS}
        return function(machine=make_machine(**given), **values)

    return raw_machine_options(wrapper)


def raw_machine_options(function: Function) -> Function:
    """Give a command the options of a machine; it gets what `make_machine` takes."""
    for option in reversed(_MACHINE_OPTIONS):
        function = option(function)
    return function


def make_machine(
    machine: str | None = None,
    cpus: Any = None,
    nodes: Any = None,
    distance: str | None = None,
    numa_fake: str | None = None,
    node_bytes: Any = None,
    remote_delay_ns: Any = None,
) -> Machine:
    """Return the machine that the options describe.

    Parameters
    ----------
    machine : str, optional
        Name or file of the machine to start from. Default: the host, or with `cpus` a
        machine of that many CPUs.
    cpus, nodes, node_bytes, remote_delay_ns : int, optional
        Values of `Machine`.
    distance, numa_fake : str, optional
        The nodes as text; only one of them.

    Returns
    -------
    Machine

    Raises
    ------
    ParameterError
        If a value is not accepted.

    Examples
    --------
    >>> make_machine(cpus=4, distance="10 20;20 10").nodes
    2
    """
    changes: dict[str, Any] = {
        "cpus": cpus,
        "nodes": nodes,
        "node_bytes": node_bytes,
        "remote_delay_ns": remote_delay_ns,
    }
    changes = {key: value for key, value in changes.items() if value is not None}
    if distance is not None and numa_fake is not None:
        raise ParameterError("--distance and --numa-fake are given: accepted is one")
    if numa_fake is not None:
        count, matrix = parse_numa_fake(numa_fake)
        changes = {"nodes": count, **changes, "distance": matrix}
    if distance is not None:
        matrix = parse_distance(distance)
        changes = {"nodes": len(matrix), **changes, "distance": matrix}
    if machine is None and cpus is not None:
        return Machine(**changes)
    return find_machine(machine).replace(**changes)


def parse_settings(settings: Sequence[str]) -> dict[str, str]:
    """Read options of the form ``NAME=VALUE``.

    Parameters
    ----------
    settings : sequence of str
        As on the command line.

    Returns
    -------
    dict of str to str

    Raises
    ------
    ParameterError
        If one is not of this form.

    Examples
    --------
    >>> parse_settings(["noaliencache=true"])
    {'noaliencache': 'true'}
    """
    found = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not (name and equals and value):
            raise ParameterError(f"--set is {setting!r}: accepted is NAME=VALUE")
        found[name.strip()] = value.strip()
    return found


def make_policies(
    names: str | None, kernel: str | None, settings: Sequence[str]
) -> list[Policy]:
    """Return the policies that the options describe.

    Parameters
    ----------
    names : str or None
        Names with commas between. None: every policy that has the kernel profile.
    kernel : str or None
        Kernel profile. None: the newest of each policy.
    settings : sequence of str
        Options as ``NAME=VALUE``, each for the policies that have it.

    Returns
    -------
    list of Policy

    Raises
    ------
    ParameterError
        If a policy, the profile or an option is not known, or a value not accepted.

    Examples
    --------
    >>> [policy.name for policy in make_policies("slub,slab", None, [])]
    ['slub', 'slab']
    """
    if names is None:
        wanted = _policies_with(kernel)
    else:
        wanted = [name.strip() for name in names.split(",")]
        if not all(wanted):
            known = ", ".join(policy_names())
            raise ParameterError(
                f"policy is {names!r}, with an empty name in it: known are {known}"
            )
        for name in wanted:
            require_choice("policy", name, policy_names())
    given = parse_settings(settings)
    known_options = list(
        dict.fromkeys(o for name in wanted for o in policy_options(name))
    )
    for option in given:
        require_choice(f"option of {', '.join(wanted)}", option, known_options)
    return [
        find_policy(name, kernel=kernel, **_only(given, policy_options(name)))
        for name in wanted
    ]


def _only(given: Mapping[str, str], known: Mapping[str, object]) -> dict[str, str]:
    return {name: value for name, value in given.items() if name in known}


def _policies_with(kernel: str | None) -> list[str]:
    if kernel is None:
        return list(policy_names())
    found = [name for name in policy_names() if kernel in kernel_profiles(name)]
    if not found:
        profiles = (k for name in policy_names() for k in kernel_profiles(name))
        names = list_known(kernel, dict.fromkeys(profiles))
        raise ParameterError(f"unknown kernel {kernel!r}: known are {names}")
    return found


def trace_path(path: str) -> str:
    """Return the file that TRACE names; ``-`` is standard input.

    Parameters
    ----------
    path : str
        As on the command line.

    Returns
    -------
    str

    Raises
    ------
    ParameterError
        If standard input is meant and closed.

    Examples
    --------
    >>> trace_path("trace.txt.gz")
    'trace.txt.gz'
    """
    if path != "-":
        return path
    if sys.stdin is None:
        raise ParameterError("standard input is closed: accepted is a trace on it")
    return STDIN_PATH


def print_table(table: Table, format_name: str) -> None:
    """Print a table: with colours on a terminal, else in the form asked for."""
    if format_name == "text" and sys.stdout.isatty():
        from rich.console import Console

        Console().print(table)
    else:
        click.echo(table.format(format_name), nl=False)
