"""Kernels of every policy, for tests that are the same for all of them."""

import slabq
from slabq.policy import policy_names

MIB = 1 << 20
POLICIES = policy_names()
FOUR_NODES = [[10, 20, 20, 30], [20, 10, 20, 20], [20, 20, 10, 20], [30, 20, 20, 10]]
# Kernels of every policy, and the options that make different code run.
KERNELS = [
    ("slab", "2.6.25", {}),
    ("slab", "2.6.35", {"noaliencache": True}),
    ("slab", "6.1", {}),
    ("slab", "6.1", {"noaliencache": True}),
    ("slub", "2.6.25", {}),
    ("slub", "2.6.35", {}),
    ("slub", "3.2", {}),
    ("slub", "6.1", {}),
    ("slub", "6.18", {}),
    *(("slub+q", "2.6.35", {"version": version}) for version in (1, 2, 3, 4)),
]


def machine(cpus=8, nodes=2, node_bytes=64 * MIB):
    return slabq.Machine(cpus=cpus, nodes=nodes, node_bytes=node_bytes)


def make(policy, kernel, **options):
    return slabq.Allocator(policy, machine=machine(), kernel=kernel, **options)
