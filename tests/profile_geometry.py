"""Geometry under a kernel profile, as the tests of the profiles ask for it."""

import slabq

PAGE_BYTES = 4096
SLAB_KERNELS = ["2.6.24", "2.6.25", "2.6.35", "3.2", "4.19", "6.1"]
CLASSIC_KERNELS = ["2.6.24", "2.6.25", "2.6.35", "3.2"]


def machine_of(cpus=16, nodes=1):
    return slabq.Machine(cpus=cpus, nodes=nodes)


def geometry(policy, kernel, size, *, cpus=16, nodes=1, options=None, **flags):
    value = slabq.policy.find_policy(policy, kernel=kernel, **(options or {}))
    return slabq.geometry(value, size, machine=machine_of(cpus, nodes), **flags)


def order_and_objects(kernel, size, cpus, **flags):
    found = geometry("slub", kernel, size, cpus=cpus, **flags)
    return f"{found['order']}/{found['num']}"
