"""A policy is an allocator design with its options set: a plain value.

Each class here is one policy; its fields are the policy's options by the kernel's own
names. What is not given comes from the kernel profile, a named set of option values
that one kernel release had (``data/kernels``), and what the profile leaves open from
the policy's own defaults.
"""

import dataclasses
import functools
import re
import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any, ClassVar, NamedTuple, Self

from slabq import _core
from slabq.checks import decimal_or_text, require_choice, require_int, require_switch
from slabq.errors import ParameterError

__all__ = [
    "KernelProfile",
    "Option",
    "Policy",
    "Sheaves",
    "Slab",
    "Slub",
    "SlubQ",
    "find_policy",
    "kernel_profiles",
    "policy_names",
    "policy_options",
]


# Options that the kernel has as powers of two only; the core refuses others too.
_POWERS_OF_TWO = ("kmalloc_min_size",)


class Option(NamedTuple):
    """One option of a policy: its default, its range, and what it is."""

    name: str
    default: int
    minimum: int
    maximum: int
    about: str

    @property
    def is_switch(self) -> bool:
        """True for an option that is on or off."""
        return (self.minimum, self.maximum) == (0, 1)

    def check(self, value: object) -> int | bool:
        """Return `value` as the option holds it, or raise `ParameterError`."""
        if self.is_switch:
            return require_switch(self.name, value)
        if isinstance(value, str):
            value = decimal_or_text(value)
        number = require_int(self.name, value, self.minimum, self.maximum)
        if self.name in _POWERS_OF_TWO and number & (number - 1):
            raise ParameterError(
                f"{self.name} is {number}: accepted are powers of two from "
                f"{self.minimum} to {self.maximum}"
            )
        return number


@dataclasses.dataclass(frozen=True)
class KernelProfile:
    """What one kernel release made of one policy's options.

    Parameters
    ----------
    kernel : str
        The release, such as ``6.1``.
    about : str
        One line on what it is.
    values : mapping of str to int
        Options that differ from the policy's defaults.

    Examples
    --------
    >>> KernelProfile("6.1", "the last release with SLAB", {}).kernel
    '6.1'
    """

    kernel: str
    about: str
    values: Mapping[str, int]


@functools.cache
def policy_names() -> tuple[str, ...]:
    """Names of the policies of this build.

    Returns
    -------
    tuple of str

    Examples
    --------
    >>> "slab" in policy_names()
    True
    """
    return tuple(_core.policies())


@functools.cache
def policy_options(policy: str) -> Mapping[str, Option]:
    """Options of a policy, in the order of its documentation.

    Parameters
    ----------
    policy : str
        Name of the policy.

    Returns
    -------
    mapping of str to Option
        By name.

    Raises
    ------
    ParameterError
        If there is no such policy.

    Examples
    --------
    >>> policy_options("slub")["slub_max_order"].default
    3
    """
    require_choice("policy", policy, policy_names())
    rows = [row[1:] for row in _core.options() if row[0] == policy]
    return {row[0]: Option(*row) for row in rows}


def version_key(kernel: str) -> tuple[tuple[int, ...], str]:
    """Sort key of a kernel release: ``5.14-rt`` before ``5.15`` before ``6.1``."""
    numbers = re.match(r"[\d.]*", kernel)
    digits = numbers[0].strip(".") if numbers else ""
    return tuple(int(part) for part in digits.split(".") if part), kernel


@functools.cache
def kernel_profiles(policy: str) -> Mapping[str, KernelProfile]:
    """Kernel profiles of a policy, the oldest first.

    Parameters
    ----------
    policy : str
        Name of the policy.

    Returns
    -------
    mapping of str to KernelProfile
        By kernel release.

    Raises
    ------
    ParameterError
        If there is no such policy.

    Examples
    --------
    >>> "6.1" in kernel_profiles("slab")
    True
    """
    options = policy_options(policy)
    file = resources.files("slabq.data").joinpath(
        "kernels", policy.replace("+", "") + ".toml"
    )
    if not file.is_file():
        return {}
    tables = tomllib.loads(file.read_text())
    profiles = {
        kernel: _read_profile(kernel, table, options)
        for kernel, table in tables.items()
    }
    return dict(sorted(profiles.items(), key=lambda item: version_key(item[0])))


def _read_profile(
    kernel: str, table: Mapping[str, Any], options: Mapping[str, Option]
) -> KernelProfile:
    values = {}
    for name, value in table.items():
        if name != "about":
            require_choice(f"option of kernel profile {kernel}", name, list(options))
            values[name] = int(options[name].check(value))
    return KernelProfile(kernel, table.get("about", ""), values)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Policy:
    """Base of the policies; use one of its subclasses.

    Parameters
    ----------
    kernel : str, optional
        Kernel profile. Default: the newest that has the policy.

    Raises
    ------
    ParameterError
        If the profile is not known or an option out of range.

    Examples
    --------
    >>> Slab(kernel="6.1").name
    'slab'
    """

    name: ClassVar[str] = ""
    kernel: str | None = None

    def __post_init__(self) -> None:
        options = policy_options(self.name)
        profiles = list(kernel_profiles(self.name))
        kernel = self.kernel
        if kernel is not None:
            kernel = require_choice(f"kernel of {self.name}", kernel, profiles)
        elif profiles:
            kernel = profiles[-1]
        object.__setattr__(self, "kernel", kernel)
        for name, value in self.given().items():
            object.__setattr__(self, name, options[name].check(value))

    def __repr__(self) -> str:
        values = {"kernel": self.kernel, **self.given()}
        arguments = ", ".join(f"{name}={value!r}" for name, value in values.items())
        return f"slabq.{type(self).__name__}({arguments})"

    def given(self) -> dict[str, int]:
        """Options that were given, and so come before the profile's.

        Returns
        -------
        dict of str to int

        Examples
        --------
        >>> Slab(noaliencache=True).given()
        {'noaliencache': True}
        """
        fields = (field.name for field in dataclasses.fields(self))
        values = {name: getattr(self, name) for name in fields if name != "kernel"}
        return {name: value for name, value in values.items() if value is not None}

    def values(self) -> dict[str, int]:
        """Every option with the value that holds.

        Returns
        -------
        dict of str to int
            Given values, else the profile's, else the defaults.

        Examples
        --------
        >>> Slub(slub_max_order=1).values()["slub_max_order"]
        1
        """
        values = {o.name: o.default for o in policy_options(self.name).values()}
        if self.kernel is not None:
            values |= kernel_profiles(self.name)[self.kernel].values
        return values | {name: int(value) for name, value in self.given().items()}

    def replace(self, **changes: Any) -> Self:
        """Return this policy with some options changed, all checked again.

        Parameters
        ----------
        **changes
            Fields of the policy.

        Returns
        -------
        Policy

        Raises
        ------
        ParameterError
            If a field is not known or a value not accepted.

        Examples
        --------
        >>> Slub().replace(slub_min_objects=32).slub_min_objects
        32
        """
        known = [field.name for field in dataclasses.fields(self)]
        for name in changes:
            require_choice(f"option of {self.name}", name, known)
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the policy's name, profile and given options, in types that JSON has.

        Returns
        -------
        dict

        Examples
        --------
        >>> SlubQ().to_dict()["policy"]
        'slub+q'
        """
        return {"policy": self.name, "kernel": self.kernel, "options": self.given()}


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Slab(Policy):
    """SLAB: per-CPU arrays over three slab lists a node, alien and shared arrays.

    Parameters
    ----------
    kernel : str, optional
        Kernel profile. Default: the newest, 6.1.
    **options : int or bool, optional
        The options by the kernel's names: slab_max_order, noaliencache,
        kmalloc_min_size, kmalloc_max_size, kmalloc_96, kmalloc_named_size,
        kmalloc_named_k, cache_line_size, limit, batchcount, shared, alien_limit,
        batchrefill_limit, freelist_index_stack, objfreelist, cache_grow_begin,
        lockless_refill_check, shared_touched, destroy_after_batch, free_limit_first,
        freelist_random,
        debug_keeps_align, report_form, slab_nomerge, kmalloc_nomerge.
        ``slabq show policy slab`` says what each is. Default: the profile's value.

    Raises
    ------
    ParameterError
        If the profile is not known or an option out of range.

    Examples
    --------
    >>> Slab(slab_max_order=0).given()
    {'slab_max_order': 0}
    """

    name: ClassVar[str] = "slab"
    slab_max_order: int | None = None
    noaliencache: bool | None = None
    kmalloc_min_size: int | None = None
    kmalloc_max_size: int | None = None
    kmalloc_96: bool | None = None
    kmalloc_named_size: bool | None = None
    kmalloc_named_k: bool | None = None
    cache_line_size: int | None = None
    limit: int | None = None
    batchcount: int | None = None
    shared: int | None = None
    alien_limit: int | None = None
    batchrefill_limit: int | None = None
    freelist_index_stack: bool | None = None
    objfreelist: bool | None = None
    cache_grow_begin: bool | None = None
    lockless_refill_check: bool | None = None
    shared_touched: bool | None = None
    destroy_after_batch: bool | None = None
    free_limit_first: bool | None = None
    freelist_random: bool | None = None
    debug_keeps_align: bool | None = None
    report_form: bool | None = None
    slab_nomerge: bool | None = None
    kmalloc_nomerge: bool | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class _SlubSlabs(Policy):
    """The options that SLUB and the policies on top of it have in common."""

    slub_max_order: int | None = None
    slub_min_order: int | None = None
    slub_min_objects: int | None = None
    slub_cpu_partial: bool | None = None
    kmalloc_min_size: int | None = None
    kmalloc_max_size: int | None = None
    kmalloc_named_k: bool | None = None
    order_search: int | None = None
    slab_objects_max: int | None = None
    order_fallback: bool | None = None
    kmalloc_few_order: int | None = None
    hwcache_align_rule: bool | None = None
    align_is_as_asked: bool | None = None
    free_pointer_middle: bool | None = None
    slub_debug: bool | None = None
    debug_single: bool | None = None
    red_left_pad: bool | None = None
    checks_flag: bool | None = None
    report_form: bool | None = None
    kmalloc_orig_size: bool | None = None
    freelist_random: bool | None = None
    freelist_hardened: int | None = None
    track_bytes: int | None = None
    min_partial: int | None = None
    min_partial_divisor: int | None = None
    remote_node_defrag_ratio: int | None = None
    explicit_node_any_partial: bool | None = None
    explicit_node_new_first: bool | None = None
    fast_path: int | None = None
    slab_cmpxchg: bool | None = None
    discard_rule: int | None = None
    free_add_tail: bool | None = None
    deactivate_head: bool | None = None
    deactivate_splice: bool | None = None
    cpu_partial_unit: int | None = None
    cpu_partial_frozen: bool | None = None
    cpu_partial_zero_drain: bool | None = None
    cpu_partial_zero_stop: bool | None = None
    shrink_promote: bool | None = None
    count_cpu_partial_moves: bool | None = None
    bulk_statistics: bool | None = None
    bulk_free_reversed: bool | None = None
    slab_nomerge: bool | None = None
    kmalloc_nomerge: bool | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Slub(_SlubSlabs):
    """SLUB: one active slab a CPU, partial lists by CPU and by node, no queues.

    Parameters
    ----------
    kernel : str, optional
        Kernel profile. Default: the newest, 6.18.
    **options : int or bool, optional
        The options by the kernel's names: slub_max_order, slub_min_order,
        slub_min_objects, slub_cpu_partial, kmalloc_min_size, kmalloc_max_size,
        kmalloc_named_k, order_search, slab_objects_max, order_fallback,
        kmalloc_few_order,
        hwcache_align_rule, align_is_as_asked, free_pointer_middle, slub_debug,
        debug_single, red_left_pad, checks_flag, report_form, kmalloc_orig_size,
        freelist_random, freelist_hardened, track_bytes, min_partial,
        min_partial_divisor,
        remote_node_defrag_ratio, explicit_node_any_partial, explicit_node_new_first,
        fast_path, slab_cmpxchg, discard_rule, free_add_tail, deactivate_head,
        deactivate_splice, cpu_partial_unit, cpu_partial_frozen,
        cpu_partial_zero_drain, cpu_partial_zero_stop, shrink_promote,
        count_cpu_partial_moves, bulk_statistics, bulk_free_reversed, slab_nomerge,
        kmalloc_nomerge, preempt_rt, irq_scope, list_lock_raw, sheaf_columns.
        ``slabq show policy slub`` says what each is. Default: the profile's value.

    Raises
    ------
    ParameterError
        If the profile is not known, an option out of range, or list_lock_raw given
        where the kernel has no PREEMPT_RT.

    Examples
    --------
    >>> Slub(slub_cpu_partial=False).given()
    {'slub_cpu_partial': False}
    """

    name: ClassVar[str] = "slub"
    preempt_rt: bool | None = None
    irq_scope: bool | None = None
    list_lock_raw: bool | None = None
    sheaf_columns: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.list_lock_raw is not None and not self.values()["preempt_rt"]:
            raise ParameterError(
                f"list_lock_raw is {int(self.list_lock_raw)} of policy slub, kernel "
                f"{self.kernel}: accepted with preempt_rt 1 only, as in kernel 5.14-rt"
            )


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class SlubQ(Policy):
    """SLUB+Q: SLUB's slabs under SLAB-like per-CPU queues, as posted in 2010.

    Parameters
    ----------
    kernel : str, optional
        Kernel profile. Default: 2.6.35.
    **options : int or bool, optional
        The options by the kernel's names: version, slub_max_order, slub_min_order,
        slub_min_objects, cpu_queue_size, shared_queue_size, alien_queues, slab_lock,
        discard_at_once, touched, remote_node_defrag_ratio, count_free_slab,
        count_partial_mended, honour_node, flush_all_levels, resize_keeps_aliens,
        resize_clears_counters, expire_mended, kmalloc_min_size, kmalloc_max_size,
        slab_nomerge, kmalloc_nomerge.
        ``slabq show policy slub+q`` says what each is. Default: the profile's value.

    Raises
    ------
    ParameterError
        If the profile is not known or an option out of range.

    Examples
    --------
    >>> SlubQ(version=4).given()
    {'version': 4}
    """

    name: ClassVar[str] = "slub+q"
    version: int | None = None
    slub_max_order: int | None = None
    slub_min_order: int | None = None
    slub_min_objects: int | None = None
    cpu_queue_size: int | None = None
    shared_queue_size: int | None = None
    alien_queues: int | None = None
    slab_lock: int | None = None
    discard_at_once: int | None = None
    touched: int | None = None
    remote_node_defrag_ratio: int | None = None
    count_free_slab: int | None = None
    count_partial_mended: int | None = None
    honour_node: bool | None = None
    flush_all_levels: bool | None = None
    resize_keeps_aliens: bool | None = None
    resize_clears_counters: int | None = None
    expire_mended: bool | None = None
    kmalloc_min_size: int | None = None
    kmalloc_max_size: int | None = None
    slab_nomerge: bool | None = None
    kmalloc_nomerge: bool | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Sheaves(_SlubSlabs):
    """SLUB with sheaves: per-CPU arrays of objects over a node's barn of such arrays.

    Parameters
    ----------
    kernel : str, optional
        Kernel profile. Default: the newest, 6.18, in which a cache that asks for it
        (``sheaf_capacity`` of `Allocator.create_cache`) has sheaves.
    **options : int or bool, optional
        The options of `Slub` but sheaf_columns, for the slabs beneath, and
        sheaf_all_caches, sheaf_capacity, sheaf_cpu_slab, barn_full_max, barn_empty_max,
        sheaf_flush_percent. ``slabq show policy sheaves`` says what each is. Default:
        the profile's value.

    Raises
    ------
    ParameterError
        If the profile is not known or an option out of range.

    Examples
    --------
    >>> Sheaves(sheaf_all_caches=True).given()
    {'sheaf_all_caches': True}
    """

    name: ClassVar[str] = "sheaves"
    sheaf_all_caches: bool | None = None
    sheaf_capacity: int | None = None
    sheaf_cpu_slab: bool | None = None
    barn_full_max: int | None = None
    barn_empty_max: int | None = None
    sheaf_flush_percent: int | None = None


_CLASSES: Mapping[str, type[Policy]] = {
    cls.name: cls for cls in (Slab, Slub, SlubQ, Sheaves)
}


def find_policy(
    policy: Policy | str, *, kernel: str | None = None, **options: object
) -> Policy:
    """Return the policy that is meant.

    Parameters
    ----------
    policy : Policy or str
        A policy value or the name of a policy.
    kernel : str, optional
        Kernel profile. A policy value brings its own, which must be the same.
    **options
        Options of the policy.

    Returns
    -------
    Policy

    Raises
    ------
    ParameterError
        If there is no such policy, profile or option; the known ones are listed, the
        closest first.

    Examples
    --------
    >>> find_policy("slub", slub_max_order=0).values()["slub_max_order"]
    0
    """
    if isinstance(policy, Policy):
        if kernel not in (None, policy.kernel):
            raise ParameterError(
                f"kernel is {kernel!r} but the policy given is of {policy.kernel!r}: "
                "accepted is one of them"
            )
        return policy.replace(**options) if options else policy
    if not isinstance(policy, str):
        raise ParameterError(
            f"policy is {policy!r}: accepted are a policy value and a name"
        )
    name = require_choice("policy", policy, policy_names())
    return _CLASSES[name](kernel=kernel).replace(**options)
