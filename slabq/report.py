"""A report shows rebuilt tables: as text fit for a mail, as one HTML page, as data.

Everywhere the published figure stands beside slabq's, ratio by ratio, with the range
over the seeds and a verdict. Simulated figures are called simulated.
"""

import base64
import html
import io
import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from slabq.published import Column, PublishedTable, Row, Window
from slabq.reproduction import RebuiltRow, RebuiltTable, Reproduction
from slabq.stats import Spread
from slabq.table import TEXT_WIDTH, Section, Table
from slabq.verdict import DIRECTION, REPRODUCED, VERDICTS
from slabq.version import __version__

__all__ = [
    "html_report",
    "published_table",
    "reproduction_table",
    "summary_section",
    "table_sections",
    "write_report",
]

WHOLE_ROW = "whole row"
DIGITS = 4  # significant ones of a simulated figure


# -- cells as text ---------------------------------------------------------------------


def posted(value: float | None) -> str:
    """Write a published figure with the digits it has; ``-`` for none."""
    return "-" if value is None else f"{value:.9g}"


def simulated(value: float) -> str:
    """Write a simulated figure with four significant digits, never an exponent."""
    whole = len(f"{abs(value):.0f}") if abs(value) >= 1 else 0
    decimals = max(DIGITS - whole, 0)
    return f"{value:.{decimals}f}"


def span(found: Spread) -> str:
    """Write a range of simulated figures."""
    return f"{simulated(found.minimum)}..{simulated(found.maximum)}"


def ratio(value: float | None) -> str:
    """Write a ratio; ``-`` for none."""
    return "-" if value is None else f"{value:.3f}"


def ratio_span(found: Spread) -> str:
    """Write a range of ratios."""
    return f"{found.minimum:.3f}..{found.maximum:.3f}"


def percent(value: float | None) -> str:
    """Write a share of 1 as a percentage; ``-`` for none."""
    return "-" if value is None else f"{100 * value:.1f} %"


# After a verdict that another seed may turn round.
OPEN_SIGN = " ~"
OPEN_SIGN_NOTE = (
    "~ the seeds do not agree on the sign of the difference, or it is smaller than the "
    "digits shown"
)

# -- sections of one table -------------------------------------------------------------


def _run_columns(rebuilt: RebuiltTable) -> list[str]:
    return [c for c in rebuilt.published.column_names if c not in rebuilt.lacking]


def _figure_section(rebuilt: RebuiltTable) -> Section:
    """Set published figures beside slabq's, one line a cell."""
    table = rebuilt.published
    rows = []
    for row in rebuilt.rows:
        for number, column in enumerate(_run_columns(rebuilt)):
            rows.append(
                [
                    row.label if number == 0 else "",
                    column + (" *" if table.is_fitted(row.row, column) else ""),
                    posted(row.published.get(column)),
                    simulated(row.slabq[column]),
                    span(row.spreads[column]),
                ]
            )
    seeds = len(rebuilt.seeds)
    headings = [table.row_heading, "column", "published", "slabq", f"{seeds} seeds"]
    title = f"{table.id}: figures [{table.unit}], {table.better} is better"
    notes = ["* a constant was fitted on this cell"] if table.fitted else []
    return Section(title, headings, rows, notes, left_count=2)


def _ratio_section(rebuilt: RebuiltTable) -> Section:
    """Set ratios side by side with their verdicts, one line a cell."""
    table = rebuilt.published
    columns = [c for c in _run_columns(rebuilt) if c != table.baseline]
    rows = []
    for row in rebuilt.rows:
        for number, column in enumerate(columns):
            label = row.label if number == 0 else ""
            rows.append([label, column, *_ratio_cells(row, column)])
        if len(columns) > 1:
            rows.append(["", WHOLE_ROW, "", "", "", row.verdict or "-"])
    headings = [table.row_heading, "column", "published", "slabq", "seeds", "verdict"]
    title = f"{table.id}: ratios to {table.baseline}"
    notes = [_agreement(rebuilt)]
    if any(line[-1].endswith(OPEN_SIGN) for line in rows):
        notes.insert(0, OPEN_SIGN_NOTE)
    return Section(title, headings, rows, notes, left_count=2)


def _has_open_sign(row: RebuiltRow, column: str) -> bool:
    """Tell whether a verdict hangs on a difference that another seed may turn round."""
    found = row.ratio_spreads[column]
    no_difference = ratio(row.ratio_slabq.get(column)) == ratio(1.0)
    return no_difference or found.minimum <= 1 <= found.maximum


def _ratio_cells(row: RebuiltRow, column: str) -> list[str]:
    verdict = row.verdicts.get(column)
    if verdict is None:
        verdict = "fitted" if row.table.is_fitted(row.row, column) else "-"
    elif verdict in (REPRODUCED, DIRECTION) and _has_open_sign(row, column):
        verdict += OPEN_SIGN
    return [
        ratio(row.ratio_published.get(column)),
        ratio(row.ratio_slabq.get(column)),
        ratio_span(row.ratio_spreads[column]),
        verdict,
    ]


def _agreement(rebuilt: RebuiltTable) -> str:
    if rebuilt.sign_agreement is None or rebuilt.median_ratio_error is None:
        return "no cell could be compared"
    sign, distance = rebuilt.sign_agreement, rebuilt.median_ratio_error
    return (
        f"{len(rebuilt.pairs)} cells compared: {percent(sign)} have the published "
        f"sign, median distance of the ratios {percent(distance)}"
    )


def _share_section(rebuilt: RebuiltTable) -> Section | None:
    """Set the published share of CPU time in the allocator beside slabq's."""
    share = rebuilt.published.slab_share
    if share is None:
        return None
    names = rebuilt.published.column_names
    published = dict(zip(names, share.published, strict=True))
    rows = []
    for row in rebuilt.rows:
        own, all_of_it = row.slab_share, row.slab_share_with_waits
        for column in _run_columns(rebuilt):
            shares = published[column], own.get(column), all_of_it.get(column)
            rows.append([row.label, column, *map(percent, shares)])
    title = f"{rebuilt.id}: CPU time in {' + '.join(share.functions)}"
    headings = [rebuilt.published.row_heading, "column", "published", "slabq"]
    headings += ["with lock waits"]
    return Section(title, headings, rows, left_count=2)


def _count_section(rebuilt: RebuiltTable, name: str) -> Section | None:
    """Set published counts of a name beside slabq's, where there are any."""
    words = name.replace("cpu", "CPU").replace("_", " ")
    rows = []
    for row in rebuilt.rows:
        counts = row.counts(name)
        for column in _run_columns(rebuilt) if counts else ():
            published = posted(counts["published"][column])
            rows.append(
                [row.label, column, published, f"{counts['slabq'][column]:.0f}"]
            )
    headings = [rebuilt.published.row_heading, "column", "published", "slabq"]
    title = f"{rebuilt.id}: {words} of the command"
    return Section(title, headings, rows, left_count=2) if rows else None


def _source_notes(rebuilt: RebuiltTable) -> list[str]:
    """Say what was posted, what slabq ran, and what a reader has to know."""
    table, window = rebuilt.published, rebuilt.published.windows[rebuilt.window]
    seeds = ", ".join(map(str, rebuilt.seeds))
    lines = [
        f"{table.title}; published by {table.author}: {table.source}",
        f"there: {table.machine}; {table.kernel}; {table.command}",
        f"slabq: simulated; machine {table.machine_name}, workload {table.workload}, "
        f"{rebuilt.window} window of {window.measure_operations} operations after "
        f"{window.warmup_operations}, seeds {seeds}",
    ]
    lines += _row_window_notes(rebuilt)
    lines += [f"not run: {name}: {why}" for name, why in rebuilt.lacking.items()]
    return [*lines, *table.notes]


def _row_window_notes(rebuilt: RebuiltTable) -> list[str]:
    """Name the rows with a window of their own; rows of equal windows together."""
    labels: dict[Window, list[str]] = {}
    for row in rebuilt.rows:
        if rebuilt.window in row.row.windows:
            labels.setdefault(row.row.windows[rebuilt.window], []).append(row.label)
    return [
        f"rows {', '.join(names)}: {window.measure_operations} operations after "
        f"{window.warmup_operations}"
        for window, names in labels.items()
    ]


def table_sections(rebuilt: RebuiltTable) -> list[Section]:
    """Return everything about one rebuilt table.

    Parameters
    ----------
    rebuilt : RebuiltTable
        The table.

    Returns
    -------
    list of slabq.table.Section
        Figures, ratios, and where they were published the share of CPU time in the
        allocator and the counts; the notes stand below the last.
    """
    found = [
        _figure_section(rebuilt),
        _ratio_section(rebuilt),
        _share_section(rebuilt),
        _count_section(rebuilt, "context_switches"),
        _count_section(rebuilt, "cpu_migrations"),
    ]
    sections = [section for section in found if section is not None]
    last = sections[-1]
    notes = [*last.notes, *_source_notes(rebuilt)]
    return [
        *sections[:-1],
        Section(last.title, last.columns, last.rows, notes, last.left_count),
    ]


def verdict_counts(rows: Iterable[RebuiltRow]) -> dict[str, int]:
    """Count the rows of each verdict."""
    found = [row.verdict for row in rows]
    return {verdict: found.count(verdict) for verdict in VERDICTS}


def summary_section(reproduction: Reproduction) -> Section:
    """Return one line a table: verdicts of its rows, agreement, distance.

    Parameters
    ----------
    reproduction : Reproduction
        The tables.

    Returns
    -------
    slabq.table.Section
    """
    rows = []
    for rebuilt in reproduction:
        counts = verdict_counts(rebuilt.rows)
        rows.append(
            [
                rebuilt.id,
                *(str(counts[verdict]) for verdict in VERDICTS),
                percent(rebuilt.sign_agreement),
                percent(rebuilt.median_ratio_error),
            ]
        )
    headings = ["table", "repr.", "dir.", "tie", "missed", "sign", "distance"]
    notes = [
        "rows: reproduced, sign and ratio within 5 %; direction, sign only; tie, both "
        "within 2 % of 1; missed. A row has the worst verdict of its cells",
        "sign: share of the cells that differ from the baseline as published; "
        "distance: median distance of the ratios from the published ones",
    ]
    notes += [f"not run: {name}: {why}" for name, why in reproduction.omitted.items()]
    return Section("published tables, rebuilt by simulation", headings, rows, notes)


def reproduction_table(reproduction: Reproduction) -> Table:
    """Return rebuilt tables as text tables; see `Reproduction.table`.

    Parameters
    ----------
    reproduction : Reproduction
        The tables.

    Returns
    -------
    slabq.table.Table
        The summary, then every table.

    Examples
    --------
    >>> print(str(reproduction_table(Reproduction([]))).splitlines()[0])
    published tables, rebuilt by simulation
    """
    sections = [summary_section(reproduction)]
    for rebuilt in reproduction:
        sections += table_sections(rebuilt)
    return Table(sections)


# -- a table as published --------------------------------------------------------------


def _wrapped(name: str, text: str) -> str:
    start, further = f"{name:<10}", " " * 10
    return textwrap.fill(
        text, TEXT_WIDTH, initial_indent=start, subsequent_indent=further
    )


def _settings(values: Mapping[str, int]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())


def published_table(table: PublishedTable) -> str:
    """Return a published table and how slabq runs it, as text.

    Parameters
    ----------
    table : PublishedTable
        The table.

    Returns
    -------
    str
        At most 78 columns; ends with a line end.

    Examples
    --------
    >>> from slabq.published import find_table
    >>> print(published_table(find_table("tbench-skb-2007")).splitlines()[0])
    table     tbench-skb-2007
    """
    lines = [
        _wrapped("table", table.id),
        _wrapped("title", table.title),
        _wrapped("posted", f"{table.author}: {table.source}"),
    ]
    lines += [_wrapped("message", table.message_id)] if table.message_id else []
    lines += [
        _wrapped("machine", table.machine),
        _wrapped("kernel", table.kernel),
        _wrapped("command", table.command),
        "",
        Table([_published_section(table)]).format("text"),
        _wrapped("workload", f"{table.workload} {_settings(table.parameters)}"),
        _wrapped("machine", f"{table.machine_name}, engine sim"),
    ]
    for name, window in table.windows.items():
        lines.append(_wrapped(name, _settings(window.parameters())))
    for row in table.rows:
        for name, window in row.windows.items():
            text = f"row {row.label}: {_settings(window.parameters())}"
            lines.append(_wrapped(name, text))
    lines += ["", *map(_column_text, table.columns), ""]
    lines += [_wrapped("fitted", ", ".join(table.fitted_names()) or "no cell")]
    lines += [_wrapped("note", note) for note in table.notes]
    return "\n".join(lines) + "\n"


def _column_text(column: Column) -> str:
    settings = _settings({**column.options, **column.parameters})
    about = f" ({column.about})" if column.about else ""
    text = f"{column.name}{about}: {column.policy} {column.kernel} {settings}"
    return _wrapped("column", text.rstrip())


def _published_section(table: PublishedTable) -> Section:
    names = table.column_names
    rows = [_published_cells(table, row) for row in table.rows]
    notes = [f"baseline of ratios: {table.baseline}"]
    if table.slab_share is not None:
        shares = ", ".join(
            f"{name}: {percent(value)}"
            for name, value in zip(names, table.slab_share.published, strict=True)
        )
        functions = " + ".join(table.slab_share.functions)
        notes.append(f"CPU time in {functions}: {shares}")
    title = f"as published [{table.unit}], {table.better} is better"
    return Section(title, [table.row_heading, *names], rows, notes)


def _published_cells(table: PublishedTable, row: Row) -> list[str]:
    published = table.published(row)
    return [row.label, *(posted(published.get(name)) for name in table.column_names)]


# -- one page --------------------------------------------------------------------------

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto;
       padding: 0 1rem; color: #1b1b1b; background: #fff; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; margin-top: 3rem; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { padding: .15rem .7rem; text-align: right; border-bottom: 1px solid #ddd; }
th { border-bottom: 2px solid #888; } .left { text-align: left; }
img { max-width: 100%; height: auto; } p.note { margin: .2rem 0; color: #444; }
.reproduced { background: #d3eed8; } .direction { background: #fdf3c7; }
.tie { background: #e3e7ee; } .missed { background: #f6d3cf; }
"""


def html_report(reproduction: Reproduction) -> str:
    """Return one page with every table and plot, images embedded.

    Parameters
    ----------
    reproduction : Reproduction
        The tables.

    Returns
    -------
    str
        A whole HTML document that needs no other file.
    """
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>slabq: published tables</title><style>{_STYLE}</style></head><body>",
        "<h1>Published tables, rebuilt by simulation</h1>",
        f"<p>slabq {html.escape(__version__)}. No figure of slabq on this page was "
        "measured: all are simulated.</p>",
        _html_section(summary_section(reproduction), links=True),
    ]
    for rebuilt in reproduction:
        parts += _html_table(rebuilt)
    return "\n".join([*parts, "</body></html>", ""])


def _html_table(rebuilt: RebuiltTable) -> list[str]:
    words = f"Published figures of {rebuilt.id} beside slabq's, and their ratios"
    image = base64.b64encode(plot_png(rebuilt)).decode()
    name, title = html.escape(rebuilt.id), html.escape(rebuilt.published.title)
    return [
        f'<h2 id="{name}">{title}</h2>',
        f'<img alt="{html.escape(words)}" src="data:image/png;base64,{image}">',
        *map(_html_section, table_sections(rebuilt)),
    ]


def _html_section(section: Section, links: bool = False) -> str:
    rows = [_html_row("th", section.columns, section.left_count)]
    for row in section.rows:
        rows.append(_html_row("td", row, section.left_count, links))
    notes = [f'<p class="note">{html.escape(note)}</p>' for note in section.notes]
    caption = f"<caption>{html.escape(section.title)}</caption>"
    return "\n".join(["<table>", caption, *rows, "</table>", *notes])


def _html_row(
    tag: str, cells: Sequence[str], left_count: int, links: bool = False
) -> str:
    parts = []
    for number, cell in enumerate(cells):
        classes = ["left"] if number < left_count else []
        classes += [cell] if cell in VERDICTS and tag == "td" else []
        mark = f' class="{" ".join(classes)}"' if classes else ""
        text = html.escape(cell)
        if links and number == 0:
            text = f'<a href="#{text}">{text}</a>'
        parts.append(f"<{tag}{mark}>{text}</{tag}>")
    return f"<tr>{''.join(parts)}</tr>"


def plot_png(rebuilt: RebuiltTable) -> bytes:
    """Draw one table as the bytes of a PNG picture."""
    from slabq.reproduce_plot import draw_rebuilt_table

    picture = io.BytesIO()
    draw_rebuilt_table(rebuilt).savefig(picture, format="png", dpi=110)
    return picture.getvalue()


def write_report(reproduction: Reproduction, folder: Path) -> list[Path]:
    """Write the report, the plots and the data into `folder`.

    Parameters
    ----------
    reproduction : Reproduction
        The tables.
    folder : Path
        An existing folder; files of these names are replaced.

    Returns
    -------
    list of Path
        ``report.html``, ``tables.txt``, ``tables.json``, and a ``.png`` for each table.

    Raises
    ------
    OSError
        If a file cannot be written.
    """
    text = reproduction.table().format("text")
    data = json.dumps(reproduction.to_dict(), indent=1) + "\n"
    contents: dict[str, bytes] = {
        "report.html": html_report(reproduction).encode(),
        "tables.txt": text.encode(),
        "tables.json": data.encode(),
    }
    contents |= {f"{rebuilt.id}.png": plot_png(rebuilt) for rebuilt in reproduction}
    paths = []
    for name, content in contents.items():
        path = folder / name
        path.write_bytes(content)
        paths.append(path)
    return paths
