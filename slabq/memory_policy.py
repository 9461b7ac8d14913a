"""A memory policy says which node an allocation that names none goes to."""

import dataclasses
import re
from collections.abc import Iterable
from typing import Self

from slabq.checks import require_choice, require_int
from slabq.errors import ParameterError
from slabq.machine import Machine

__all__ = ["MemoryPolicy", "MemoryPolicyLike", "find_memory_policy"]

NODE_MAX = 15
MODES = ("local", "preferred", "bind", "interleave")  # as the core numbers them


@dataclasses.dataclass(frozen=True)
class MemoryPolicy:
    """Where memory comes from when a call names no node, Linux's ``mempolicy``.

    Parameters
    ----------
    mode : str
        ``local``: the allocator's own way, near the CPU. ``preferred``: one node, and
        its fallback list when that is full. ``bind``: some nodes, the nearest to the
        CPU first, and no others. ``interleave``: some nodes in turn, each with its
        fallback list.
    nodes : tuple of int, default ()
        One node for ``preferred``, some for ``bind`` and ``interleave``, none for
        ``local``.

    Raises
    ------
    ParameterError
        If there is no such mode, or it does not take such nodes.

    Notes
    -----
    As in SLAB, the policy picks a node for each object, and any but the CPU's own goes
    the way of ``kmem_cache_alloc_node``. SLUB does so with ``strict_numa`` only (6.18);
    without it it lets the page allocator choose for each new slab, which is not
    modelled. A policy that ignores explicit nodes, such as SLUB+Q V4 as posted, ignores
    these too. Bulk calls take the allocator's own way.

    Examples
    --------
    >>> MemoryPolicy.interleave([0, 2])
    MemoryPolicy(mode='interleave', nodes=(0, 2))
    """

    mode: str
    nodes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        require_choice("memory policy", self.mode, MODES)
        nodes = tuple(require_int("node", node, 0, NODE_MAX) for node in self.nodes)
        object.__setattr__(self, "nodes", tuple(sorted(set(nodes))))
        accepted = {"local": (0, 0), "preferred": (1, 1)}.get(
            self.mode, (1, NODE_MAX + 1)
        )
        if not accepted[0] <= len(self.nodes) <= accepted[1]:
            count = {"local": "none", "preferred": "one"}.get(self.mode, "one or more")
            raise ParameterError(
                f"memory policy {self.mode} is given nodes {list(self.nodes)}: "
                f"accepted is {count}"
            )

    @classmethod
    def local(cls) -> Self:
        """Return the policy of near memory, the default.

        Returns
        -------
        MemoryPolicy

        Examples
        --------
        >>> MemoryPolicy.local().nodes
        ()
        """
        return cls("local")

    @classmethod
    def preferred(cls, node: int) -> Self:
        """Return the policy of one node while it has memory.

        Parameters
        ----------
        node : int
            The node.

        Returns
        -------
        MemoryPolicy

        Examples
        --------
        >>> MemoryPolicy.preferred(1).nodes
        (1,)
        """
        return cls("preferred", (node,))

    @classmethod
    def bind(cls, nodes: Iterable[int]) -> Self:
        """Return the policy of these nodes and no others.

        Parameters
        ----------
        nodes : iterable of int
            The nodes.

        Returns
        -------
        MemoryPolicy

        Examples
        --------
        >>> MemoryPolicy.bind({3, 1}).nodes
        (1, 3)
        """
        return cls("bind", tuple(nodes))

    @classmethod
    def interleave(cls, nodes: Iterable[int]) -> Self:
        """Return the policy of these nodes in turn.

        Parameters
        ----------
        nodes : iterable of int
            The nodes.

        Returns
        -------
        MemoryPolicy

        Examples
        --------
        >>> MemoryPolicy.interleave(range(4)).nodes
        (0, 1, 2, 3)
        """
        return cls("interleave", tuple(nodes))


MemoryPolicyLike = MemoryPolicy | str


def find_memory_policy(value: MemoryPolicyLike) -> MemoryPolicy:
    """Return the memory policy that is meant.

    Parameters
    ----------
    value : MemoryPolicy or str
        A value, or a text such as ``interleave:0-2,5``.

    Returns
    -------
    MemoryPolicy

    Raises
    ------
    ParameterError
        If the text is not of that form.

    Examples
    --------
    >>> find_memory_policy("bind:0-1,3").nodes
    (0, 1, 3)
    """
    if isinstance(value, MemoryPolicy):
        return value
    if not isinstance(value, str):
        raise ParameterError(
            f"memory policy is {value!r}: accepted are a MemoryPolicy and a text such "
            "as 'interleave:0-3'"
        )
    mode, _, nodes = value.partition(":")
    return MemoryPolicy(mode, _read_nodes(nodes) if nodes else ())


def _read_nodes(text: str) -> tuple[int, ...]:
    found: list[int] = []
    for part in text.split(","):
        ends = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", part)
        if ends is None:
            raise ParameterError(
                f"nodes of the memory policy are {text!r}: accepted are numbers and "
                "ranges such as 0-2,5"
            )
        found.extend(range(int(ends[1]), int(ends[2] or ends[1]) + 1))
    return tuple(found)


def core_memory_policy(machine: Machine, value: MemoryPolicyLike) -> tuple[int, int]:
    """Return mode and set of nodes as the core takes them, or raise."""
    policy = find_memory_policy(value)
    for node in policy.nodes:
        require_int("node of the memory policy", node, 0, machine.nodes - 1)
    return MODES.index(policy.mode), sum(1 << node for node in policy.nodes)
