"""What the notebooks share: their size, the table they argue about, small pictures.

Whatever is of use outside a notebook belongs into slabq and not here.
"""

import dataclasses
import io
import os
from collections.abc import Sequence

from IPython.display import Image
from matplotlib.figure import Figure

import slabq
from slabq.machine import find_machine
from slabq.reproduce import jittered
from slabq.reproduction import RebuiltTable

FULL = os.environ.get("SLABQ_FULL") == "1"
WINDOW = "full" if FULL else "quick"
PICTURE_DPI = 70


def table(table_id: str, rows: Sequence[str] = ()) -> slabq.PublishedTable:
    """Return a published table; at quick size with the named rows only, if any are."""
    found = slabq.published_tables()[table_id]
    if FULL or not rows:
        return found
    return dataclasses.replace(
        found,
        rows=[row for row in found.rows if row.label in rows],
        fitted=[cell for cell in found.fitted if cell[0] in rows],
    )


def rebuild(published: slabq.PublishedTable) -> slabq.Reproduction:
    """Rebuild one table by simulation, at the size of the notebook."""
    return slabq.reproduce(published, quick=not FULL, progress=False)


def row_of(rebuilt: RebuiltTable, label: str) -> slabq.reproduction.RebuiltRow:
    """Return the row of that label."""
    return next(row for row in rebuilt.rows if row.label == label)


def run_cell(
    published: slabq.PublishedTable,
    label: str,
    column: str,
    *,
    machine: slabq.Machine | None = None,
    changes: dict[str, int] | None = None,
    **options: int,
) -> slabq.Result:
    """Run one cell of a table with seed 1: as it is, or with something changed.

    `options` are those of the policy, `changes` parameters of the workload.
    """
    row = next(row for row in published.rows if row.label == label)
    spec = published.column(column)
    kinds = {"slab": slabq.Slab, "slub": slabq.Slub, "slub+q": slabq.SlubQ}
    parameters = published.cell_parameters(row, spec)
    parameters |= published.window_of(row, WINDOW).parameters() | (changes or {})
    return slabq.run(
        published.workload,
        policy=kinds[spec.policy](kernel=spec.kernel, **{**spec.options, **options}),
        machine=jittered(find_machine(machine or published.machine_name)),
        engine="sim",
        progress=False,
        **parameters,
    )


def picture(figure: Figure) -> Image:
    """Show a figure as a picture small enough to be committed."""
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=PICTURE_DPI)
    return Image(data.getvalue())
