"""The commands about why and on what: explain, calibrate, record."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slabq.cli_options import NUMBER, json_option, print_table
from slabq.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["calibrate_command", "explain_command", "record_command"]


@click.command("explain")
@click.argument("paths", metavar="RESULT [RESULT]", nargs=-1)
@click.option(
    "--ablate",
    "is_ablated",
    is_flag=True,
    help="Run simulated results again with one option of a policy or one cost of the "
    "machine changed at a time.",
)
@click.option(
    "--change",
    "changes",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="What --ablate changes, several times if need be. Default: a list by policy.",
)
@click.option("-l", "--limit", type=NUMBER, default=6, help="Sentences of a chapter.")
@json_option
def explain_command(
    paths: "Sequence[str]",
    is_ablated: bool,
    changes: "Sequence[str]",
    limit: Any,
    as_json: bool,
) -> None:
    """Say which counters, locks and cache lines made two results differ.

    One RESULT is a file of several policies, each compared with the first; of two
    files, each result is compared with the one at its place in the other.
    """
    from slabq.ablation import ablate
    from slabq.explanation import Explanation, explain
    from slabq.results import load

    if not 1 <= len(paths) <= 2:
        raise ParameterError(
            f"{len(paths)} result files are given: accepted are one or two"
        )
    results = [load(path) for path in paths]
    explanation = explain(*results, limit=limit)
    if is_ablated or changes:
        found = ablate(*results, changes=changes)
        explanation = Explanation(explanation.differences, found)
    if as_json:
        click.echo(json.dumps(explanation.to_dict(), indent=1))
    else:
        click.echo(str(explanation))


@click.command("calibrate")
@click.option("-o", "--output", metavar="FILE.toml", help="Write a machine file.")
@json_option
def calibrate_command(output: str | None, as_json: bool) -> None:
    """Measure this host: caches, atomic instructions, lines between CPUs, locks.

    The machine file is for -m FILE, on the engine sim. Takes ten seconds or so.
    """
    from slabq.calibration import calibrate

    _check_output(output)
    found = calibrate()
    if output is not None:
        found.save(output)
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=1))
    else:
        print_table(found.table(), "text")
        if output is None:
            click.echo("-o FILE.toml writes a machine file of it, for run -m FILE")


def _check_output(output: str | None) -> None:
    """Refuse a file that could not be written before the work, not after it."""
    if output is not None and not Path(output).absolute().parent.is_dir():
        raise ParameterError(f"no folder for {output!r}: accepted are existing ones")


@click.command(
    "record",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    default="trace.kmem.xz",
    show_default=True,
    help="The trace; packed if it ends in .gz or .xz.",
)
@click.option(
    "--buffer-mib",
    type=NUMBER,
    default=16,
    show_default=True,
    help="perf's buffer for each CPU; more if events are lost.",
)
@click.argument("words", metavar="-- CMD...", nargs=-1, type=click.UNPROCESSED)
def record_command(output: str, buffer_mib: Any, words: "Sequence[str]") -> None:
    """Record the kernel's kmem events on all CPUs while CMD runs.

    Takes perf and the right to use it. The trace is whole if the status is 0; events
    that were lost are told, the trace is kept, and the status is 1.
    """
    from slabq.recording import record

    _check_output(output)
    found = record(words, buffer_mib=buffer_mib)
    found.trace.save(output)
    counts = found.trace.summary
    click.echo(
        f"{output}: {counts['events']} events on {counts['cpus']} CPUs, {found.lost} "
        f"lost; {len(found.trace.aliases)} names of merged caches"
    )
    if found.status:
        click.echo(f"slabq: {words[0]} ended with status {found.status}", err=True)
    if found.lost:
        more = f"--buffer-mib {2 * buffer_mib} may keep them"
        click.echo(f"slabq: perf lost {found.lost} events: {more}", err=True)
        raise click.exceptions.Exit(1)
