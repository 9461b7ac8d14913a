"""Flags that a cache may be made with, and which policy has which."""

import enum

from slabq.checks import require_flag, require_int
from slabq.errors import ParameterError
from slabq.policy import Policy

__all__ = ["check_sheaf_capacity", "flag_bits"]

SHEAF_CAPACITY_MAX = 1 << 16


class _Flag(enum.IntFlag):
    """Flags of a cache, as csrc/policy/policy.h numbers them."""

    HWCACHE_ALIGN = 1 << 0
    RECLAIM_ACCOUNT = 1 << 1
    TYPESAFE_BY_RCU = 1 << 2
    RED_ZONE = 1 << 5
    POISON = 1 << 6
    STORE_USER = 1 << 7
    CONSISTENCY_CHECKS = 1 << 8
    NO_MERGE = 1 << 9
    TRACE = 1 << 10


# What a policy makes no difference for is refused rather than ignored.
_SLAB_DEBUG = ("red_zone", "poison", "store_user")
_SLUB_DEBUG = (*_SLAB_DEBUG, "consistency_checks", "trace")


def flag_bits(policy: Policy, **switches: bool) -> int:
    """Return the flags that are on, as the core numbers them."""
    for name, value in switches.items():
        require_flag(name, value)
    known = _SLAB_DEBUG if policy.name == "slab" else _SLUB_DEBUG
    for name in _SLUB_DEBUG:
        if switches.get(name) and name not in known:
            raise ParameterError(
                f"{name} is True with policy {policy.name}: accepted are "
                f"{', '.join(known)}"
            )
    return sum(int(_Flag[name.upper()]) for name, on in switches.items() if on)


def check_sheaf_capacity(policy: Policy, capacity: int) -> int:
    """Return `capacity` if `policy` may have such sheaves, or raise."""
    maximum = SHEAF_CAPACITY_MAX if policy.name == "sheaves" else 0
    what = f"sheaf_capacity of a cache of {policy.name}"
    return require_int(what, capacity, 0, maximum)
