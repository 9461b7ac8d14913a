"""A small published table, and a laboratory of plain numbers that rebuilds it."""

import importlib

import pytest

from slabq.published import published_tables

module = importlib.import_module("slabq.reproduce")

IDS = list(published_tables())
every_table = pytest.mark.parametrize("table_id", IDS)

SMALL = """
title = "a small table"
author = "Somebody"
source = "a message"
machine = "a machine"
kernel = "a kernel"
command = "hackbench"
row_heading = "groups"
unit = "s"
better = "smaller"
baseline = "A"
fitted = [["two", "B"]]

[run]
workload = "hackbench"
machine = "penryn-2x4"
figure = "elapsed_s"
parameters = { loops = 1000 }

[window.full]
warmup_operations = 100
measure_operations = 200

[window.quick]
warmup_operations = 10
measure_operations = 20

[slab_share]
functions = ["f", "g"]
waits = ["w"]
published = [0.5, 0.25, 0.1]

[[columns]]
name = "A"
policy = "slab"
kernel = "2.6.35"

[[columns]]
name = "B"
policy = "slub"
kernel = "2.6.35"

[[columns]]
name = "C"
policy = "slub+q"
kernel = "2.6.35"
options = { version = 1 }

[[rows]]
label = "one"
figures = [10, 8, 20]
operations = 1000
parameters = { groups = 1 }
context_switches = [500, 600, 700]

[[rows]]
label = "two"
figures = [10, 9, "-"]
operations = 2000
parameters = { groups = 2 }

[[rows]]
label = "one again"
figures = [10, 8, 20]
operations = 1000
parameters = { groups = 1 }
"""


ELAPSED_S = {"slab": 2.0, "slub": 1.7, "slub+q": 3.0}


class Numbers:
    """A laboratory where each policy has its time, and a seed adds a little."""

    def __init__(self, lacks=(), build=1, stop_after=None):
        self.lacks = dict(lacks)
        self.build = build
        self.stop_after = stop_after
        self.ran = []

    def lack(self, cell):
        return self.lacks.get(cell.policy, "")

    def identity(self, cell):
        return {"cell": repr(cell), "build": self.build}

    def run(self, cell, seed, progress):
        if self.stop_after is not None and len(self.ran) == self.stop_after:
            raise KeyboardInterrupt
        self.ran.append((cell, seed))
        parameters = dict(cell.parameters)
        number = parameters["measure_operations"]
        return {
            "elapsed_s": ELAPSED_S[cell.policy] * (1 + 0.01 * seed),
            "operations": number,
            "rate": 1000.0 + 10 * seed,
            "profile": {"f": 0.25, "w": 0.125, "other": 0.5},
            "context_switches": 3 * number,
            "cpu_migrations": number,
            "latency_by_cpu_ns": {
                "wakeup": {
                    str(cpu): {"mean": 5000.0 + seed, "max": 9000 + seed}
                    for cpu in range(8)
                }
            },
        }


def rebuild(table, laboratory=None, **options):
    laboratory = laboratory or Numbers()
    return module.rebuild([table], laboratory=laboratory, **options)
