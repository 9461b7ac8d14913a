"""A workload is what is run on a policy: a program and its parameters.

The built-in programs, their parameters and the accepted ranges are the C core's. Here
they become checked values, with the option letters of the original programs. A name
``c:FILE.c`` is a program of the user's own; `slabq.cworkload` compiles it.
"""

import dataclasses
import functools
import os
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from slabq import _core
from slabq.checks import require_choice, require_int, require_switch
from slabq.errors import ParameterError
from slabq.loadfile import read_loadfile

__all__ = [
    "C_PREFIX",
    "Kind",
    "Parameter",
    "Workload",
    "find_kind",
    "find_workload",
    "parse_old_hackbench",
    "workload_kinds",
]

# How the name of a workload in C begins; a path follows.
C_PREFIX = "c:"

_OLD_MODES = {"process": "process", "thread": "thread", "threads": "thread"}
# Words for numbered choices, in the order of their numbers.
_WORDS: Mapping[tuple[str, str], Sequence[str]] = {
    ("hackbench", "mode"): ("process", "thread"),
    ("tcp_rr", "placement"): ("localhost", "client-server"),
    ("tcp_rr", "side"): ("client", "server"),
    ("kmalloc", "test"): ("alloc-free", "pairs", "concurrent", "remote-free", "bulk"),
}
# Files: parameters that are text and no number to the core.
_FILES: Mapping[str, Mapping[str, str]] = {
    "tbench": {"loadfile": "load file of dbench, in place of drawn operations"},
}
# Option letters and long names of the original programs.
_OPTIONS: Mapping[tuple[str, str], Sequence[str]] = {
    ("hackbench", "groups"): ("-g", "--groups"),
    ("hackbench", "loops"): ("-l", "--loops"),
    ("hackbench", "message_bytes"): ("-s", "--datasize", "--message-bytes"),
    ("hackbench", "fds"): ("-f", "--fds"),
    ("hackbench", "pipe"): ("--pipe",),
    ("cyclictest", "interval_us"): ("-i", "--interval", "--interval-us"),
    ("cyclictest", "distance_us"): ("-d", "--distance-us"),
    ("cyclictest", "groups"): ("-g", "--groups"),
    ("cyclictest", "loops"): ("-l", "--loops"),
    ("cyclictest", "message_bytes"): ("-s", "--datasize", "--message-bytes"),
    ("cyclictest", "fds"): ("-f", "--fds"),
}
_RELEASE = re.compile(r"(\d)\.(\d{1,2})(?:\.(\d{1,2}))?")


Value = int | str


class Parameter(NamedTuple):
    """One parameter of a workload: its default, its range, and what it is."""

    workload: str
    name: str
    default: int
    minimum: int
    maximum: int
    about: str

    @property
    def words(self) -> Sequence[str]:
        """Words for the values from 0 on; empty if it is a plain number."""
        return _WORDS.get((self.workload, self.name), ())

    @property
    def is_file(self) -> bool:
        """True for the path of a file; without one it is empty."""
        return self.name in _FILES.get(self.workload, {})

    @property
    def is_switch(self) -> bool:
        """True for a parameter that is on or off."""
        return not self.words and (self.minimum, self.maximum) == (0, 1)

    @property
    def option_names(self) -> Sequence[str]:
        """Names on the command line."""
        default = ("--" + self.name.replace("_", "-"),)
        return _OPTIONS.get((self.workload, self.name), default)

    @property
    def default_value(self) -> Value:
        """The default, as a `Workload` holds it."""
        if self.is_file:
            return ""
        return self.words[self.default] if self.words else self.default

    def check(self, value: object) -> Value:
        """Return `value` as a `Workload` holds it, or raise `ParameterError`."""
        if self.is_file:
            return self._check_file(value)
        if self.words:
            if isinstance(value, int) and not isinstance(value, bool):
                return self.words[require_int(self.name, value, 0, self.maximum)]
            return require_choice(self.name, value, self.words)
        if self.name == "release" and isinstance(value, str):
            value = _release_number(value)
        if self.is_switch:
            return int(require_switch(self.name, value))
        return require_int(self.name, value, self.minimum, self.maximum)

    def number(self, value: Value) -> int:
        """Return the number that the core takes for a checked `value`."""
        return self.words.index(value) if isinstance(value, str) else value

    def _check_file(self, value: object) -> str:
        if not isinstance(value, str | os.PathLike):
            raise ParameterError(f"{self.name} is {value!r}: accepted is a path")
        return os.fspath(value)


def _release_number(text: str) -> int | str:
    """Return the number of a kernel release, 20635 for 2.6.35, or what was given."""
    match = _RELEASE.fullmatch(text)
    if match is None:
        return text
    return 10000 * int(match[1]) + 100 * int(match[2]) + int(match[3] or 0)


class Kind(NamedTuple):
    """A program: its name, what it is, its parameters by name."""

    name: str
    about: str
    parameters: Mapping[str, Parameter]
    address: int = 0  # of a compiled one


def _parameters_of(
    name: str, rows: Sequence[tuple[str, int, int, int, str]]
) -> Mapping[str, Parameter]:
    """Parameters by name, the files last."""
    files = [(file, 0, 0, 0, about) for file, about in _FILES.get(name, {}).items()]
    return {row[0]: Parameter(name, *row) for row in [*rows, *files]}


@functools.cache
def workload_kinds() -> Mapping[str, Kind]:
    """Read the built-in workloads from the core.

    Returns
    -------
    mapping of str to Kind
        By name, each with ``name``, ``about`` and ``parameters``.

    Examples
    --------
    >>> workload_kinds()["hackbench"].parameters["fds"].default
    20
    """
    return {
        name: Kind(name, about, _parameters_of(name, rows))
        for name, about, rows in _core.workloads()
    }


def find_kind(name: str) -> Kind:
    """Return the program of that name: a built-in one, or ``c:FILE.c``.

    Parameters
    ----------
    name : str
        The name.

    Returns
    -------
    Kind

    Raises
    ------
    ParameterError
        If no program has this name, or the file is not one.

    Examples
    --------
    >>> find_kind("hackbench").address
    0
    """
    if isinstance(name, str) and name.startswith(C_PREFIX):
        from slabq.cworkload import compiled_kind

        return compiled_kind(name)
    kinds = workload_kinds()
    return kinds[require_choice("workload", name, list(kinds))]


@dataclasses.dataclass(frozen=True)
class Workload:
    """A workload with every parameter set.

    Parameters
    ----------
    name : str
        Name of the workload; ``c:FILE.c`` for one of your own.
    parameters : mapping of str to int or str, optional
        Values that differ from the defaults.

    Raises
    ------
    ParameterError
        If the workload or a parameter is not known, or a value not accepted.

    Examples
    --------
    >>> Workload("hackbench", {"groups": 2}).parameters["groups"]
    2
    """

    name: str
    parameters: Mapping[str, Value] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        known = find_kind(self.name).parameters
        for name in self.parameters:
            require_choice(f"parameter of {self.name}", name, list(known))
        values = {
            name: parameter.check(self.parameters[name])
            if name in self.parameters
            else parameter.default_value
            for name, parameter in known.items()
        }
        object.__setattr__(self, "parameters", values)

    def numbers(self) -> list[tuple[str, int]]:
        """Return the parameters as the core takes them.

        Returns
        -------
        list of (str, int)

        Examples
        --------
        >>> dict(Workload("hackbench", {"loops": 3}).numbers())["loops"]
        3
        """
        known = find_kind(self.name).parameters
        return [
            (name, known[name].number(value))
            for name, value in self.parameters.items()
            if not known[name].is_file
        ]

    def core(self) -> str | tuple[str, bytes] | int:
        """Return what the core is to run.

        Returns
        -------
        str, tuple of (str, bytes), or int
            The name; with the operations of the load file; the address of a compiled
            workload.

        Raises
        ------
        ParameterError
            If a file cannot be read or is not understood.

        Examples
        --------
        >>> Workload("tbench").core()
        'tbench'
        """
        loadfile = self.parameters.get("loadfile", "")
        if self.name == "tbench" and loadfile:
            return self.name, read_loadfile(str(loadfile))
        return find_kind(self.name).address or self.name


def find_workload(workload: Workload | str, **parameters: Value) -> Workload:
    """Return the workload that is meant.

    Parameters
    ----------
    workload : Workload or str
        A workload value or the name of a built-in one.
    **parameters
        Parameters that differ from the value's or from the defaults.

    Returns
    -------
    Workload

    Raises
    ------
    ParameterError
        If the workload or a parameter is not known, or a value not accepted.

    Examples
    --------
    >>> find_workload("hackbench", groups=3).parameters["groups"]
    3
    """
    if isinstance(workload, Workload):
        return Workload(workload.name, {**workload.parameters, **parameters})
    if not isinstance(workload, str):
        raise ParameterError(
            f"workload is {workload!r}: accepted are a slabq.Workload and a name"
        )
    return Workload(workload, parameters)


def parse_old_hackbench(words: Sequence[str]) -> dict[str, Value]:
    """Read the old form of hackbench's arguments, ``GROUPS [process|thread] [LOOPS]``.

    Parameters
    ----------
    words : sequence of str
        The words, as in ``100 process 2000``.

    Returns
    -------
    dict
        Parameters of the workload.

    Raises
    ------
    ParameterError
        If the words are not of this form.

    Examples
    --------
    >>> parse_old_hackbench(["100", "process", "2000"])
    {'groups': 100, 'mode': 'process', 'loops': 2000}
    """
    found: dict[str, Value] = {}
    left = list(words)
    if left and left[0].isdecimal():
        found["groups"] = int(left.pop(0))
        if left and left[0] in _OLD_MODES:
            found["mode"] = _OLD_MODES[left.pop(0)]
        if left and left[0].isdecimal():
            found["loops"] = int(left.pop(0))
    if left:
        text = " ".join(words)
        raise ParameterError(
            f"hackbench arguments are {text!r}: accepted is the form "
            '"100 process 2000" (groups, process or thread, loops)'
        )
    return found
