"""A sheaf that its caller holds: objects filled in advance, as 6.18 gives them."""

from types import TracebackType
from typing import TYPE_CHECKING

from slabq.checks import require_int

if TYPE_CHECKING:
    from slabq import _core

__all__ = ["Sheaf"]

COUNT_MAX = 1 << 18  # as csrc/python/allocator_type.h has it


class Sheaf:
    """Objects of a cache that can be had without failing; see `Cache.prefill_sheaf`.

    The kernel's ``struct slab_sheaf`` as the caller of ``kmem_cache_prefill_sheaf``
    holds it. It is given back by `give_back`, or at the end of a ``with`` block as the
    CPU that it was made by. One that is dropped stays held: its objects are the
    cache's again when that is destroyed.

    Attributes
    ----------
    object_count : int
        Objects in it.
    capacity : int
        Objects that fit into it.

    Examples
    --------
    >>> import slabq
    >>> allocator = slabq.Allocator("sheaves", machine=slabq.Machine(cpus=1))
    >>> cache = allocator.create_cache("maple_node", 256, sheaf_capacity=32)
    >>> with cache.prefill_sheaf(10) as sheaf:
    ...     objects = [sheaf.alloc() for _ in range(10)]
    ...     sheaf.object_count
    22
    >>> cache.stats()["sheaf_prefill_slow"], cache.stats()["sheaf_return_fast"]
    (1, 1)
    """

    def __init__(self, core: "_core.Sheaf", cpus: int, cpu: int) -> None:
        self._core = core
        self._cpus = cpus
        self._cpu = cpu

    def __repr__(self) -> str:
        usage = self._core.usage()
        if usage is None:
            return "Sheaf(given back)"
        return f"Sheaf({usage[0]} of {usage[1]} objects)"

    @property
    def object_count(self) -> int:
        """Objects in it; 0 once it was given back."""
        return (self._core.usage() or (0, 0))[0]

    @property
    def capacity(self) -> int:
        """Objects that fit into it; 0 once it was given back."""
        return (self._core.usage() or (0, 0))[1]

    def alloc(self, *, cpu: int = 0) -> int | None:
        """Take the object that was put in last (``kmem_cache_alloc_from_sheaf``).

        Parameters
        ----------
        cpu : int, default 0
            CPU that takes it.

        Returns
        -------
        int or None
            Its address, to be freed by the cache as any other; None if there is none
            left.

        Raises
        ------
        ParameterError
            If the sheaf was given back or its cache destroyed, or there is no such CPU.

        Examples
        --------
        >>> import slabq
        >>> allocator = slabq.Allocator("sheaves", machine=slabq.Machine(cpus=1))
        >>> cache = allocator.create_cache("maple_node", 256, sheaf_capacity=32)
        >>> sheaf = cache.prefill_sheaf(10)
        >>> cache.free(sheaf.alloc())
        >>> sheaf.object_count
        31
        """
        return self._core.alloc(self._check_cpu(cpu))

    def refill(self, count: int, *, cpu: int = 0) -> None:
        """See to it that it holds objects enough (``kmem_cache_refill_sheaf``).

        Parameters
        ----------
        count : int
            Objects that it must hold, 1 to 262144. More than fit make it a larger one.
        cpu : int, default 0
            CPU that refills.

        Raises
        ------
        OutOfMemory
            If the machine has not the memory; the sheaf is as it was.
        ParameterError
            As `alloc`.

        Examples
        --------
        >>> import slabq
        >>> allocator = slabq.Allocator("sheaves", machine=slabq.Machine(cpus=1))
        >>> cache = allocator.create_cache("maple_node", 256, sheaf_capacity=32)
        >>> sheaf = cache.prefill_sheaf(10)
        >>> sheaf.refill(50)
        >>> sheaf
        Sheaf(50 of 50 objects)
        """
        wanted = require_int("count", count, 1, COUNT_MAX)
        self._core.refill(self._check_cpu(cpu), wanted)

    def give_back(self, *, cpu: int | None = None) -> None:
        """Give it back with what is left in it (``kmem_cache_return_sheaf``).

        Parameters
        ----------
        cpu : int, optional
            CPU that gives it back; the one that it was made by if left out.

        Raises
        ------
        ParameterError
            As `alloc`.

        Examples
        --------
        >>> import slabq
        >>> allocator = slabq.Allocator("sheaves", machine=slabq.Machine(cpus=1))
        >>> cache = allocator.create_cache("maple_node", 256, sheaf_capacity=32)
        >>> sheaf = cache.prefill_sheaf(10)
        >>> sheaf.give_back()
        >>> sheaf
        Sheaf(given back)
        """
        self._core.give_back(self._check_cpu(self._cpu if cpu is None else cpu))

    def __enter__(self) -> "Sheaf":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Give it back unless that was done, or its cache is no more."""
        if self._core.usage() is not None:
            self.give_back()

    def _check_cpu(self, cpu: int) -> int:
        return require_int("cpu", cpu, 0, self._cpus - 1)
