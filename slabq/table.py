"""A table is some rows under headings, written in one of several forms.

As text it is plain ASCII of at most 78 columns, fit for a mail.
"""

import csv
import dataclasses
import html
import io
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from slabq.checks import require_choice

if TYPE_CHECKING:
    import rich.table
    from rich.console import Console, ConsoleOptions, RenderResult

__all__ = ["FORMATS", "TEXT_WIDTH", "Section", "Table"]

FORMATS = ("text", "markdown", "csv", "latex", "html")
TEXT_WIDTH = 78
FIRST_WIDTH_MIN = 12


@dataclasses.dataclass(frozen=True)
class Section:
    """One group of rows under common headings.

    Parameters
    ----------
    title : str
        What the rows have in common.
    columns : sequence of str
        Headings.
    rows : sequence of sequence of str
        Cells, as many a row as there are headings.
    notes : sequence of str, optional
        Lines below.
    left_count : int, default 1
        Number of leading columns that are words rather than figures.

    Examples
    --------
    >>> Section("title", ["a", "b"], [["x", "1"]]).rows
    [['x', '1']]
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    left_count: int = 1


@dataclasses.dataclass(frozen=True)
class Table:
    """Some sections, to be written in one of several formats.

    Parameters
    ----------
    sections : sequence of Section
        What it consists of.

    Examples
    --------
    >>> table = Table([Section("two", ["policy", "s"], [["slab", "1.5"]])])
    >>> print(table)
    two
    <BLANKLINE>
    policy    s
    ------  ---
    slab    1.5
    """

    sections: Sequence[Section]

    def __str__(self) -> str:
        return self.format("text").rstrip("\n")

    def _repr_html_(self) -> str:
        return self.format("html")

    def format(self, format: str = "text") -> str:
        r"""Write the table.

        Parameters
        ----------
        format : {"text", "markdown", "csv", "latex", "html"}
            ``text`` is plain ASCII of at most 78 columns, fit for a mail.

        Returns
        -------
        str
            Ends with a line end.

        Raises
        ------
        ParameterError
            If the format is not known.

        Examples
        --------
        >>> Table([Section("t", ["policy", "s"], [["slab", "1.5"]])]).format("csv")
        't\r\npolicy,s\r\nslab,1.5\r\n'
        """
        write = _WRITERS[require_choice("format", format, FORMATS)]
        return "\n".join(write(section) for section in self.sections)

    def __rich_console__(
        self, console: "Console", options: "ConsoleOptions"
    ) -> "RenderResult":
        from rich.text import Text

        for index, section in enumerate(self.sections):
            if index:
                yield Text("")
            yield Text("\n".join(_wrap(section.title, "  ")), style="bold")
            yield Text("")
            yield from _rich_grids(section)
            for note in section.notes:
                yield Text("\n".join(_wrap(note, "  ")), style="dim")


def _rich_grids(section: Section) -> "Iterator[rich.table.Table]":
    """Return the section's blocks for a terminal, spaced as in the text form."""
    import rich.box
    import rich.table
    from rich.text import Text

    cells = [section.columns, *section.rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for block in _blocks(widths, section.left_count):
        grid = rich.table.Table(
            box=rich.box.SIMPLE_HEAD,
            show_edge=False,
            pad_edge=False,
            padding=(0, 1, 0, 0),
        )
        for column in block:
            left = column < section.left_count
            grid.add_column(
                Text(section.columns[column]),
                justify="left" if left else "right",
                no_wrap=column > 0,
            )
        for row in section.rows:
            grid.add_row(*(Text(row[column]) for column in block))
        yield grid


# -- formats ---------------------------------------------------------------------------


def _wrap(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, TEXT_WIDTH, subsequent_indent=indent) or [""]


def _ascii(text: str) -> str:
    return text.encode("ascii", "replace").decode()


def _write_text(section: Section) -> str:
    """Aligned columns, in blocks below each other if all would not fit."""
    cells = [[_ascii(cell) for cell in row] for row in [section.columns, *section.rows]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = _wrap(_ascii(section.title), "  ")
    for block in _blocks(widths, section.left_count):
        lines += ["", *_text_block(cells, widths, block, section.left_count)]
    lines += [line for note in section.notes for line in _wrap(_ascii(note), "  ")]
    return "\n".join(lines) + "\n"


def _blocks(widths: list[int], left_count: int) -> list[list[int]]:
    """Split the columns so that each block fits; the left ones are in every block.

    The first column is made narrower before a block is split.
    """
    narrow = [min(widths[0], FIRST_WIDTH_MIN), *widths[1:]]
    left = list(range(left_count))
    blocks = [list(left)]
    for column in range(left_count, len(widths)):
        if _line_width(narrow, [*blocks[-1], column]) > TEXT_WIDTH and (
            len(blocks[-1]) > left_count
        ):
            blocks.append(list(left))
        blocks[-1].append(column)
    others = max(_line_width(narrow, block) for block in blocks) - narrow[0]
    widths[0] = min(widths[0], max(TEXT_WIDTH - others, FIRST_WIDTH_MIN))
    return blocks


def _line_width(widths: Sequence[int], block: Sequence[int]) -> int:
    return sum(widths[column] for column in block) + 2 * (len(block) - 1)


def _text_block(
    cells: Sequence[Sequence[str]],
    widths: Sequence[int],
    block: Sequence[int],
    left_count: int,
) -> list[str]:
    chosen = [widths[column] for column in block]
    lines = []
    for number, row in enumerate(cells):
        lines += _text_row([row[column] for column in block], chosen, left_count)
        if number == 0:
            lines.append("  ".join("-" * width for width in chosen))
    return lines


def _text_row(row: Sequence[str], widths: Sequence[int], left_count: int) -> list[str]:
    first = row[0]
    lines = []
    while len(first) > widths[0]:
        cut = first.rfind(" ", 0, widths[0]) + 1
        if not first[:cut].strip():  # no word ends before the width, but for the indent
            cut = widths[0]
        lines.append(first[:cut])
        first = "  " + first[cut:]
    aligned = [
        cell.ljust(width) if index < left_count else cell.rjust(width)
        for index, (cell, width) in enumerate(
            zip([first, *row[1:]], widths, strict=True)
        )
    ]
    return [*lines, "  ".join(aligned).rstrip()]


def _write_markdown(section: Section) -> str:
    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    marks = [
        "---" if index < section.left_count else "---:"
        for index in range(len(section.columns))
    ]
    lines = [f"**{section.title}**", "", line(section.columns), line(marks)]
    lines += [line(row) for row in section.rows]
    lines += ["", *section.notes] if section.notes else []
    return "\n".join(lines) + "\n"


def _write_csv(section: Section) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([section.title])
    writer.writerow(section.columns)
    writer.writerows(section.rows)
    return text.getvalue()


_LATEX_ESCAPES = str.maketrans(
    {
        **{character: "\\" + character for character in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
    }
)


def _write_latex(section: Section) -> str:
    def line(cells: Iterable[str]) -> str:
        return " & ".join(cell.translate(_LATEX_ESCAPES) for cell in cells) + r" \\"

    figures = len(section.columns) - section.left_count
    lines = [
        r"\begin{table}",
        r"\caption{" + section.title.translate(_LATEX_ESCAPES) + "}",
        r"\begin{tabular}{" + "l" * section.left_count + "r" * figures + "}",
        r"\hline",
        line(section.columns),
        r"\hline",
        *(line(row) for row in section.rows),
        r"\hline",
        r"\end{tabular}",
        *(note.translate(_LATEX_ESCAPES) for note in section.notes),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _write_html(section: Section) -> str:
    def line(tag: str, cells: Iterable[str]) -> str:
        styles = [
            "" if index < section.left_count else ' style="text-align: right"'
            for index in range(len(section.columns))
        ]
        parts = (
            f"<{tag}{style}>{html.escape(cell)}</{tag}>"
            for style, cell in zip(styles, cells, strict=True)
        )
        return "<tr>" + "".join(parts) + "</tr>"

    lines = [
        "<table>",
        f"<caption>{html.escape(section.title)}</caption>",
        line("th", section.columns),
        *(line("td", row) for row in section.rows),
        "</table>",
        *(f"<p>{html.escape(note)}</p>" for note in section.notes),
    ]
    return "\n".join(lines) + "\n"


_WRITERS: Mapping[str, Callable[[Section], str]] = {
    "text": _write_text,
    "markdown": _write_markdown,
    "csv": _write_csv,
    "latex": _write_latex,
    "html": _write_html,
}
