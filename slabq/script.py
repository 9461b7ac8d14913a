"""Operation scripts: what `slabq exec` runs, an operation a line."""

from collections.abc import Sequence

from slabq import _core
from slabq.errors import ParameterError
from slabq.machine import MachineLike, find_machine
from slabq.policy import Policy, find_policy

__all__ = ["execute"]


def execute(
    script: str,
    policy: Policy | str,
    *,
    machine: MachineLike = None,
    kernel: str | None = None,
) -> str:
    """Run an operation script on one host thread.

    Parameters
    ----------
    script : str
        The script, an operation a line.
    policy : Policy or str
        The policy, or its name.
    machine : Machine, str or path-like, optional
        The machine. Default: the host.
    kernel : str, optional
        Kernel profile of a policy given by name.

    Returns
    -------
    str
        One JSON object a line: what each operation did, object by object.

    Raises
    ------
    ParameterError
        If a line of the script is not accepted; the message has its number.

    Notes
    -----
    The lines are those of recordings made inside a kernel; for the profiles of the 2.6
    series those of the 2.6 sources run by themselves, with whole commands and fallback
    lists.

    Examples
    --------
    >>> import json, slabq
    >>> script = "cache example 64 0 -" + chr(10) + "a 0 0 1"
    >>> text = execute(script, "slub", machine=slabq.Machine(cpus=1), kernel="6.1")
    >>> json.loads(text.splitlines()[1])["objs"]  # slab 0, object 0
    [[0, 0]]
    """
    if "\0" in script:
        line = script[: script.index("\0")].count("\n") + 1
        raise ParameterError(f"script line {line}: it has a NUL: accepted is text")
    value = find_policy(policy, kernel=kernel)
    options: Sequence[tuple[str, int]] = list(value.values().items())
    original = (value.kernel or "").startswith("2.6.")
    core = find_machine(machine).core()
    return _core.execute(core, value.name, options, script, original)
