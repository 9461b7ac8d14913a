"""The geometry of a cache: how its objects lie in slabs, and the limits that follow."""

import json
from collections.abc import Mapping
from typing import Any

from slabq import _core
from slabq.cache_flags import check_sheaf_capacity, flag_bits
from slabq.checks import require_int
from slabq.machine import MachineLike, find_machine
from slabq.policy import Policy, find_policy

__all__ = ["geometry"]

SIZE_MAX = 1 << 22  # the largest block of the page allocator
ALIGN_MAX = 1 << 22


def geometry(
    policy: Policy | str,
    size: int,
    *,
    machine: MachineLike = None,
    kernel: str | None = None,
    align: int = 0,
    hwcache_align: bool = False,
    reclaim_account: bool = False,
    typesafe_by_rcu: bool = False,
    red_zone: bool = False,
    poison: bool = False,
    store_user: bool = False,
    sheaf_capacity: int = 0,
) -> Mapping[str, Any]:
    """Order, objects a slab and limits that a cache would have; makes none.

    Parameters
    ----------
    policy : Policy or str
        The policy, or its name.
    size : int
        Size of an object in bytes.
    machine : Machine, str or path-like, optional
        The machine; limits depend on its CPUs and nodes. Default: the host.
    kernel : str, optional
        Kernel profile of a policy given by name.
    align : int, default 0
        Alignment in bytes, a power of two; 0 is the policy's minimum.
    hwcache_align, reclaim_account, typesafe_by_rcu : bool, default False
        The kernel's flags ``SLAB_HWCACHE_ALIGN``, ``SLAB_RECLAIM_ACCOUNT`` and
        ``SLAB_TYPESAFE_BY_RCU``.
    red_zone, poison, store_user : bool, default False
        The kernel's debugging flags of the same names.
    sheaf_capacity : int, default 0
        Objects of a sheaf; policy `Sheaves` only.

    Returns
    -------
    mapping
        ``size``, ``align``, ``order``, ``num`` and the policy's limits.

    Raises
    ------
    ParameterError
        If the policy does not accept such a cache.

    Examples
    --------
    >>> import slabq
    >>> machine = slabq.Machine(cpus=16)
    >>> found = slabq.geometry("slub", 256, machine=machine, kernel="6.1")
    >>> found["order"], found["num"], found["cpu_partial"]
    (1, 32, 52)
    """
    value = find_policy(policy, kernel=kernel)
    text = _core.geometry(
        find_machine(machine).core(),
        value.name,
        list(value.values().items()),
        require_int("size", size, 1, SIZE_MAX),
        require_int("align", align, 0, ALIGN_MAX),
        flag_bits(
            value,
            hwcache_align=hwcache_align,
            reclaim_account=reclaim_account,
            typesafe_by_rcu=typesafe_by_rcu,
            red_zone=red_zone,
            poison=poison,
            store_user=store_user,
        ),
        check_sheaf_capacity(value, sheaf_capacity),
    )
    found: dict[str, Any] = json.loads(text)
    return found
