"""Which figures were fitted, on what, and which cells are therefore no prediction.

Everything here is read from the files of the machines and from the core, so the page
``docs/fitted.md``, which ``python -m slabq.fitted`` prints, cannot say anything else.
"""

import dataclasses
import tomllib
from collections.abc import Sequence
from importlib import resources

from slabq import _core
from slabq.published import published_tables

__all__ = ["FittedValue", "fitted_instructions", "fitted_page", "fitted_values"]

FITTED = "fitted"
SECTIONS = ("costs", "syscall_ns")


@dataclasses.dataclass(frozen=True)
class FittedValue:
    """One value of a machine's file that was fitted.

    Parameters
    ----------
    machine : str
        Name of the machine.
    section, name : str
        Where it stands in the file.
    value : int
        What it is.
    unit, source : str
        Its unit, and what it was fitted on.
    table, row, column : str
        The published cell it was fitted on; empty if it is none of these tables'.

    Examples
    --------
    >>> FittedValue("m", "costs", "jitter_ps", 1, "ps", "nothing").cell
    ''
    """

    machine: str
    section: str
    name: str
    value: int
    unit: str
    source: str
    table: str = ""
    row: str = ""
    column: str = ""

    @property
    def text(self) -> str:
        """The value with its unit."""
        return f"{self.value} {self.unit}"

    @property
    def cell(self) -> str:
        """The published cell as ``row / column``; empty if there is none."""
        return f"{self.row} / {self.column}" if self.table else ""


def fitted_values() -> list[FittedValue]:
    """Return every fitted value of the machines that slabq brings along.

    Returns
    -------
    list of FittedValue
        In the order of the files.

    Examples
    --------
    >>> {value.section for value in fitted_values()} == {"costs", "syscall_ns"}
    True
    """
    found = []
    folder = resources.files("slabq.data").joinpath("machines")
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        machine = file.name.removesuffix(".toml")
        content = tomllib.loads(file.read_text())
        for section in SECTIONS:
            for name, entry in content.get(section, {}).items():
                if entry["confidence"] == FITTED:
                    given = {k: v for k, v in entry.items() if k != "confidence"}
                    found.append(FittedValue(machine, section, name, **given))
    return found


def fitted_instructions() -> list[tuple[str, int, str]]:
    """Return the counts of instructions that were fitted, the same on every machine.

    Returns
    -------
    list of (str, int, str)
        Name of the parameter, cycles, and what it was fitted on.

    Examples
    --------
    >>> ("slab_alloc_cycles", 18) in [row[:2] for row in fitted_instructions()]
    True
    """
    return [
        (name, value, help_text[help_text.index(FITTED) :])
        for name, value, _, _, help_text in _core.SimMachine.parameters()
        if name.endswith("_cycles") and FITTED in help_text
    ]


def _markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [headings, ["---"] * len(headings), *rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines] + [""]


INTRODUCTION = """\
# What was fitted

Printed by `python -m slabq.fitted` from the files of the machines and the tables; a
test compares this page with them.

Two kinds of figures are fitted. Those of the first table are on a contended run: the
part of a message that is not the allocator, one constant for each workload and machine,
so that one cell comes out in its own unit. That cell proves nothing and is left out.
All other cells are predictions. Where the cell is in the baseline column, it sets the
scale of the figures and no ratio, and the ratios of its row are compared all the same.
Those of the other tables are from runs of one thread, which no published table of
slabq is about.
"""


def fitted_page() -> str:
    """Write what was fitted as a page of Markdown.

    Returns
    -------
    str
        Ends with a line end.

    Examples
    --------
    >>> fitted_page().splitlines()[0]
    '# What was fitted'
    """
    values = fitted_values()
    contended = [value for value in values if value.table]
    lines = [INTRODUCTION, "## On a cell of a published table", ""]
    lines += _markdown(
        ["machine", "value", "is", "table", "cell, which is no prediction"],
        [
            [
                v.machine,
                f"`{v.section}.{v.name}`",
                f"{v.value} {v.unit}",
                v.table,
                v.cell,
            ]
            for v in contended
        ],
    )
    tables = published_tables().values()
    free = [table.id for table in tables if not table.fitted]
    lines += [f"Nothing was fitted on: {', '.join(free) or 'no table'}.", ""]
    lines += ["## On runs of one thread", ""]
    lines += _markdown(
        ["machine", "value", "is", "fitted on"],
        [[v.machine, f"`{v.name}`", v.text, v.source] for v in values if not v.table],
    )
    lines += [
        "Instructions of a path, on every machine. A1 is the table of kmalloc and",
        "kfree by size of Lameter, 28 October 2007, on two Xeon E5345.",
        "",
    ]
    lines += _markdown(
        ["value", "cycles", "fitted on"],
        [
            [f"`{name}`", str(value), text]
            for name, value, text in fitted_instructions()
        ],
    )
    return "\n".join(lines).rstrip("\n") + "\n"


if __name__ == "__main__":
    print(fitted_page(), end="")
