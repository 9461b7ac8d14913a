"""The commands around published tables: tables, show table, reproduce."""

import json
import os
import textwrap
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from slabq.checks import require_choice, require_int
from slabq.cli_options import NUMBER, format_option, json_option, print_table
from slabq.errors import ParameterError
from slabq.processes import Processes
from slabq.published import PublishedTable, find_table, published_tables
from slabq.table import FORMATS, TEXT_WIDTH

__all__ = ["print_published", "reproduce_command", "tables_command"]

STATUS_NOT_ALL = 1
JOBS_MAX = 256


@click.command("tables")
@json_option
@click.option("--defaults", is_flag=True, help="How slabq runs each, too.")
def tables_command(as_json: bool, defaults: bool) -> None:
    """List the published tables that slabq rebuilds."""
    tables = list(published_tables().values())
    if as_json:
        documents = [_listed(table) for table in tables]
        click.echo(json.dumps(documents, indent=1))
        return
    width = max(len(table.id) for table in tables) + 2
    for table in tables:
        click.echo(f"{table.id:<{width}}{_about(table, width)}")
    for table in tables if defaults else ():
        click.echo()
        print_published(table.id, as_json=False)


def _about(table: PublishedTable, width: int) -> str:
    lines = textwrap.wrap(table.title, TEXT_WIDTH - width)
    return ("\n" + " " * width).join(lines)


def _listed(table: PublishedTable) -> dict[str, object]:
    return {
        "id": table.id,
        "title": table.title,
        "source": f"{table.author}: {table.source}",
        "machine": table.machine_name,
        "workload": table.workload,
        "columns": table.column_names,
        "baseline": table.baseline,
        "rows": len(table.rows),
    }


def print_published(table_id: str, as_json: bool) -> None:
    """Print one table as published, and how slabq runs its cells.

    Parameters
    ----------
    table_id : str
        Id of the table.
    as_json : bool
        As JSON in place of text.

    Raises
    ------
    ParameterError
        If there is none of that id.
    """
    table = find_table(table_id)
    if as_json:
        click.echo(json.dumps(table.to_dict(), indent=1))
        return
    from slabq.report import published_table

    click.echo(published_table(table), nl=False)


def _check_output(output: str | None) -> None:
    """Refuse a folder that cannot be one before the work, not after it."""
    if output is None:
        return
    path = Path(output)
    if path.exists() and not path.is_dir():
        raise ParameterError(f"output is {output!r}, a file: accepted is a folder")
    parent = path.absolute().parent
    if not path.exists() and not os.access(parent, os.W_OK | os.X_OK):
        raise ParameterError(
            f"output is {output!r}: accepted is a folder that is there or can be made"
        )


@contextmanager
def _executor(jobs: Any) -> Iterator[Executor | None]:
    """Make what runs `jobs` simulations at a time, each in a process of its own.

    Whatever ends the block early, Ctrl-C above all, ends these processes at once.
    """
    default = len(os.sched_getaffinity(0))
    count = require_int("jobs", default if jobs is None else jobs, 1, JOBS_MAX)
    if count == 1:
        yield None
        return
    pool = Processes(count)
    try:
        yield pool
    except BaseException:
        pool.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@click.command("reproduce")
@click.argument("table_ids", metavar="[ID]...", nargs=-1)
@click.option("--quick", is_flag=True, help="Shorter warm-up and windows.")
@click.option("-o", "--output", metavar="DIR", help="Folder for report and data.")
@click.option(
    "-j",
    "--jobs",
    type=NUMBER,
    default=None,
    help="Runs at a time. [default: one for each CPU of the host]",
)
@json_option
@format_option
@click.pass_context
def reproduce_command(
    ctx: click.Context,
    table_ids: tuple[str, ...],
    quick: bool,
    output: str | None,
    jobs: Any,
    as_json: bool,
    format_name: str,
) -> None:
    """Rebuild published tables by simulation and compare, ratio by ratio.

    Without ID, all of them. Finished runs are kept, in DIR or in the user's cache
    folder, and looked for in both: what was interrupted goes on from there.
    """
    from slabq.reproduce import reproduce

    require_choice("format", format_name, FORMATS)
    _check_output(output)
    with _executor(jobs) as executor:
        found = reproduce(*table_ids, quick=quick, output=output, executor=executor)
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=1))
    else:
        print_table(found.table(), format_name)
    for name, why in found.omitted.items():
        click.echo(f"slabq: table {name} was left out, {why}", err=True)
    if found.omitted:
        ctx.exit(STATUS_NOT_ALL)
