"""The simulated scheduler of each kernel release.

The rules are parameters of a run whose names begin with ``sched_``
(``csrc/machine/sched_rules.h``); one that is -1 is as the kernel of the run's policy
had it, by ``data/schedulers.toml``, where each release has its source.
"""

import functools
import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any

from slabq.checks import require_int
from slabq.policy import version_key

__all__ = ["scheduler_release", "scheduler_rules"]

_RULE = "sched_"
CPUS_MAX = 256


@functools.cache
def _releases() -> tuple[list[str], list[dict[str, Any]]]:
    """Read the names of the scaled rules, and every release with all that it has."""
    file = resources.files("slabq.data").joinpath("schedulers.toml")
    data = tomllib.loads(file.read_text())
    releases: list[dict[str, Any]] = []
    for entry in data["scheduler"]:
        releases.append({**(releases[-1] if releases else {}), **entry})
    return list(data["scaled"]), releases


def scheduler_release(kernel: str) -> Mapping[str, Any]:
    """Return the entry of ``data/schedulers.toml`` that `kernel` has.

    Parameters
    ----------
    kernel : str
        A kernel release, such as ``2.6.35``.

    Returns
    -------
    mapping of str to object
        The rules as the kernel names them, for one CPU, with ``since``, ``about``,
        ``source`` and ``confidence``. A kernel older than all has the oldest.

    Examples
    --------
    >>> scheduler_release("2.6.25")["since"]
    '2.6.24'
    """
    _, releases = _releases()
    place = version_key(kernel)[0]
    fitting = [entry for entry in releases if version_key(entry["since"])[0] <= place]
    return fitting[-1] if fitting else releases[0]


def scheduler_rules(kernel: str, cpus: int) -> dict[str, int]:
    """Return the rules that `kernel` has on a machine of `cpus` CPUs.

    Parameters
    ----------
    kernel : str
        A kernel release, such as ``2.6.35``.
    cpus : int
        CPUs of the machine, 1 to 256: the kernel makes slices longer with more.

    Returns
    -------
    dict of str to int
        By name of the run's parameter; times in microseconds.

    Raises
    ------
    ParameterError
        If the number of CPUs is not accepted.

    Examples
    --------
    >>> scheduler_rules("2.6.35", 8)["sched_latency_us"]
    24000
    """
    cpus = require_int("cpus", cpus, 1, CPUS_MAX)
    scaled, _ = _releases()
    entry = scheduler_release(kernel)
    counted = min(cpus, entry["scaled_cpus_max"] or cpus)
    limit_us = entry["scaled_max_us"]
    rules = {name: value for name, value in entry.items() if name.startswith(_RULE)}
    for name in scaled:
        rules[name] *= counted.bit_length()  # 1 + log2
        if limit_us and name != "sched_wakeup_granularity_us":
            rules[name] = min(rules[name], limit_us)
    return rules
