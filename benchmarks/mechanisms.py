"""What a change of a machine, the scheduler or a workload does to the published tables.

    python3 benchmarks/mechanisms.py                          # as the presets are
    python3 benchmarks/mechanisms.py --cost idle_exit_ps=0    # a cost of every machine
    python3 benchmarks/mechanisms.py --cost tigerton-4x4:lock_handover_per_waiter_ps=0
    python3 benchmarks/mechanisms.py --set sched_idle_sibling=0 --set tcp_rr:ring=256

Every cell of every table is simulated, at quick size and with seed 1 unless told
otherwise, and one line a table says how near it came: the verdicts of its rows, the
agreement of signs, the median error of the ratios, and the mean ratio of each column.
docs/mechanisms.md is the log of what was tried with it.
"""

import argparse
import collections
import dataclasses
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slabq.machine import Machine
from slabq.policy import find_policy, policy_options
from slabq.published import PublishedTable, Row, Window, published_tables
from slabq.reproduce import Cell, Simulator, Store, lacking_columns, rebuild, why_not
from slabq.reproduction import RebuiltTable
from slabq.verdict import VERDICTS
from slabq.workload import find_workload

Change = tuple[str, str, int]  # machine, workload or policy, or "" for all; name; value


def parse_change(text: str) -> Change:
    """Read ``[OF:]NAME=VALUE``."""
    name, sign, value = text.rpartition("=")
    if not sign:
        raise argparse.ArgumentTypeError(f"{text!r}: accepted is [OF:]NAME=VALUE")
    of, _, name = name.rpartition(":")
    return of, name, int(value, 0)


def changes_of(changes: Sequence[Change], of: str) -> dict[str, int]:
    """Those that are for all, and those for `of`."""
    return {name: value for where, name, value in changes if where in ("", of)}


class Changed(Simulator):
    """The simulator with something changed in every cell."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.costs = arguments.cost
        self.sets = arguments.set
        self.options = arguments.option
        self.syscalls = arguments.syscall

    def _parts(self, cell: Cell) -> tuple[Any, Any, Any]:
        _, _, machine = super()._parts(cell)
        parameters = dict(cell.parameters) | changes_of(self.sets, cell.workload)
        known = policy_options(cell.policy)
        options = dict(cell.options)
        for name, value in changes_of(self.options, cell.policy).items():
            if name in known:
                options[name] = value
        return (
            find_workload(cell.workload, **parameters),
            find_policy(cell.policy, kernel=cell.kernel, **options),
            self._machine(machine, cell.machine),
        )

    def _machine(self, machine: Machine, name: str) -> Machine:
        costs: Mapping[str, int] = dict(machine.costs or ())
        syscalls = dict(machine.syscall_ns) | {
            key.partition("/")[2] or key: value
            for where, key, value in self.syscalls
            if where in ("", name)
        }
        return machine.replace(
            costs={**costs, **changes_of(self.costs, name)},
            syscall_ns=syscalls,
            name=machine.name,
        )


def scaled(window: Window, scale: float) -> Window:
    """A window so many times as long."""
    return Window(
        warmup_operations=max(int(window.warmup_operations * scale), 1),
        measure_operations=max(int(window.measure_operations * scale), 1),
    )


def sized(table: PublishedTable, scale: float, labels: Sequence[str]) -> PublishedTable:
    """The table with its quick windows so many times as long, and some rows only.

    Rows that repeat a command share its cells, so the first of them is enough.
    """
    kept: dict[str, Row] = {}
    for row in table.rows:
        if row.label in labels or not labels:
            windows = {name: scaled(one, scale) for name, one in row.windows.items()}
            key = row.label if labels else str(sorted(row.parameters.items()))
            kept.setdefault(key, dataclasses.replace(row, windows=windows))
    rows = list(kept.values()) or list(table.rows)
    names = {row.label for row in rows}
    return dataclasses.replace(
        table,
        windows={name: scaled(one, scale) for name, one in table.windows.items()},
        rows=rows,
        fitted=[cell for cell in table.fitted if cell[0] in names],
    )


def line_of(rebuilt: RebuiltTable) -> str:
    """How near one table came."""
    counts = collections.Counter(row.verdict for row in rebuilt.rows)
    verdicts = " ".join(f"{counts[verdict]:2}" for verdict in VERDICTS)
    ratios: dict[str, list[float]] = collections.defaultdict(list)
    for row in rebuilt.rows:
        for column, value in row.ratio_slabq.items():
            if column != rebuilt.published.baseline:
                ratios[column].append(value)
    means = " ".join(f"{statistics.mean(values):.3f}" for values in ratios.values())
    agreement, error = rebuilt.sign_agreement, rebuilt.median_ratio_error
    return (
        f"{rebuilt.id:27} {verdicts}  sign {agreement or 0:5.0%}"
        f"  error {error or 0:7.1%}  mean ratios {means}"
    )


def print_details(rebuilt: RebuiltTable) -> None:
    """Figures and ratios, a line a row."""
    for row in rebuilt.rows:
        cells = [
            f"{column}: {row.slabq[column]:.4g} ({row.published.get(column, 0):.4g})"
            f" {row.ratio_slabq[column]:.3f} ({row.ratio_published.get(column, 0):.3f})"
            for column in row.slabq
        ]
        print(f"    {row.label:14} {row.verdict or '-':10}", "  ".join(cells))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    several = {"action": "append", "type": parse_change, "default": []}
    parser.add_argument("tables", nargs="*", help="ids; default: all that can be run")
    parser.add_argument("--cost", **several, help="[MACHINE:]NAME=VALUE")
    parser.add_argument("--set", **several, help="[WORKLOAD:]NAME=VALUE")
    parser.add_argument("--option", **several, help="[POLICY:]NAME=VALUE")
    parser.add_argument("--syscall", **several, help="[MACHINE:]WORKLOAD=NS")
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--scale", type=float, default=1.0, help="of the quick windows")
    parser.add_argument("--row", action="append", default=[], help="only these rows")
    parser.add_argument("-v", "--verbose", action="store_true", help="every row")
    parser.add_argument("--cache", type=Path, help="file of runs that are kept")
    arguments = parser.parse_args()
    laboratory = Changed(arguments)
    print("#", *sys.argv[1:])
    print(f"{'':27} re di ti mi")
    for name, table in published_tables().items():
        if arguments.tables and name not in arguments.tables:
            continue
        small = sized(table, arguments.scale, arguments.row)
        if why_not(small, lacking_columns(small, "quick", laboratory)):
            continue
        began = time.monotonic()
        found = rebuild(
            [small],
            laboratory=laboratory,
            quick=True,
            seeds=range(1, arguments.seeds + 1),
            store=Store(arguments.cache),
            progress=False,
        )
        for rebuilt in found:
            print(line_of(rebuilt), f" {time.monotonic() - began:5.1f} s", flush=True)
            if arguments.verbose:
                print_details(rebuilt)


if __name__ == "__main__":
    main()
