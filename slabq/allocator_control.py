"""CPUs that go offline, time that passes: what an allocator is subject to."""

import math
from collections.abc import Sequence

from slabq import _core
from slabq.cache import check_cpu
from slabq.checks import require_int
from slabq.errors import ParameterError
from slabq.machine import Machine
from slabq.memory_policy import (
    MemoryPolicy,
    MemoryPolicyLike,
    core_memory_policy,
    find_memory_policy,
)

__all__ = ["AllocatorControl"]

SECONDS_MAX = 86400


class AllocatorControl:
    """Methods of `slabq.Allocator` that change what it runs on."""

    _core: _core.Allocator
    _machine: Machine
    _memory_policy: MemoryPolicy

    @property
    def memory_policy(self) -> MemoryPolicy:
        """Where memory comes from when a call names no node; may be set.

        Examples
        --------
        >>> import slabq
        >>> machine = slabq.Machine(cpus=2, nodes=2)
        >>> allocator = slabq.Allocator("slab", machine=machine, memory_policy="bind:1")
        >>> allocator.memory_policy
        MemoryPolicy(mode='bind', nodes=(1,))
        """
        return self._memory_policy

    @memory_policy.setter
    def memory_policy(self, value: MemoryPolicyLike) -> None:
        self._core.set_memory_policy(*core_memory_policy(self._machine, value))
        self._memory_policy = find_memory_policy(value)

    @property
    def online_cpus(self) -> Sequence[int]:
        """CPUs that may be named in calls, ascending."""
        return self._core.online_cpus()

    def offline_cpu(self, cpu: int) -> None:
        """Take a CPU offline: what it holds of every cache goes to its node.

        Parameters
        ----------
        cpu : int
            The CPU; calls may not name it until it is online again.

        Raises
        ------
        ParameterError
            If the machine has no such CPU, it is offline already, or it is the last.

        Notes
        -----
        SLUB gives up the CPU's slab and its partial list, SLUB+Q the CPU's queue. SLAB
        gives the CPU's array to the node's slabs and lowers what the node may keep;
        with the last CPU of a node the shared array, what is queued for other nodes
        and the free slabs go too.

        Examples
        --------
        >>> import slabq
        >>> allocator = slabq.Allocator("slab", machine=slabq.Machine(cpus=4))
        >>> allocator.offline_cpu(3)
        >>> allocator.online_cpus
        [0, 1, 2]
        """
        self._core.offline_cpu(check_cpu(self._machine, cpu))

    def online_cpu(self, cpu: int) -> None:
        """Bring a CPU back that is offline.

        Parameters
        ----------
        cpu : int
            The CPU.

        Raises
        ------
        ParameterError
            If the machine has no such CPU or it is online.

        Examples
        --------
        >>> import slabq
        >>> allocator = slabq.Allocator("slub", machine=slabq.Machine(cpus=2))
        >>> allocator.offline_cpu(0)
        >>> allocator.online_cpu(0)
        """
        self._core.online_cpu(check_cpu(self._machine, cpu))

    @property
    def clock(self) -> float:
        """Seconds that `advance` let pass."""
        return self._core.clock_ms() / 1000

    def advance(self, seconds: float) -> int:
        """Let time pass, and SLAB's periodic reaper run on each CPU when it is due.

        Parameters
        ----------
        seconds : float
            How long, to the millisecond; at most a day.

        Returns
        -------
        int
            Passes of the reaper, of all CPUs; 0 if the policy has none.

        Raises
        ------
        ParameterError
            If it is no time that may pass.

        Notes
        -----
        Every CPU makes a pass over all caches every 2 s, 30 ms before that of the CPU
        numbered before it; the first comes within about a second. A node's shared array
        and free slabs are looked at every 4 s, first 4 to 8 s after the cache was made.

        Examples
        --------
        >>> import slabq
        >>> allocator = slabq.Allocator("slab", machine=slabq.Machine(cpus=2))
        >>> allocator.advance(10)
        10
        """
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not is_number or not math.isfinite(seconds):
            raise ParameterError(f"seconds is {seconds!r}: accepted is a number")
        milliseconds = round(seconds * 1000)
        if not 0 <= milliseconds <= SECONDS_MAX * 1000:
            raise ParameterError(
                f"seconds is {seconds!r}: accepted are 0 to {SECONDS_MAX}"
            )
        return self._core.advance(require_int("milliseconds", milliseconds, 0, 2**63))
