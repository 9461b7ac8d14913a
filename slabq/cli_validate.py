"""The command that shows how far the simulated machine is to be trusted: validate."""

import json
from collections.abc import Sequence
from pathlib import Path

import click

from slabq.cli_options import json_option, print_table
from slabq.errors import ParameterError
from slabq.machine import find_machine

__all__ = ["validate_command"]

STATUS_NOT_EQUAL = 1


@click.command("validate")
@click.argument("parts", metavar="[forms|host|order]...", nargs=-1)
@click.option("--quick", is_flag=True, help="Shorter runs.")
@click.option(
    "-m",
    "--machine",
    "machines",
    multiple=True,
    metavar="NAME|FILE",
    help="A machine of the closed forms, several times if need be. [default: every "
    "preset]",
)
@click.option("-o", "--output", metavar="FILE.md", help="Write the tables as Markdown.")
@json_option
@click.pass_context
def validate_command(
    ctx: click.Context,
    parts: Sequence[str],
    quick: bool,
    machines: Sequence[str],
    output: str | None,
    as_json: bool,
) -> None:
    """Run the simulated machine against what is known otherwise.

    \b
    forms  single primitives against formulas of the machine's parameters,
           to the picosecond; the exit status is 1 if one is not equal
    host   this host measured, and simulated as calibrated just before
    order  the default order of accesses against every access in order

    Without a part, all of them: a few minutes, or with --quick half a minute.
    order runs every workload with three seeds, with --quick with two.
    """  # noqa: D301 - click's mark of lines to keep is a backspace
    from slabq.validation import validate

    if output is not None and not Path(output).absolute().parent.is_dir():
        raise ParameterError(f"no folder for {output!r}: accepted are existing ones")
    chosen = [find_machine(name) for name in machines] or None
    found = validate(*parts, machines=chosen, quick=quick)
    if output is not None:
        Path(output).write_text(found.markdown(), encoding="utf-8")
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=1))
    else:
        print_table(found.table(), "text")
    if not found.holds:
        ctx.exit(STATUS_NOT_EQUAL)
