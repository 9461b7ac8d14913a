"""The commands that run something under several policies: run, replay, demo."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from slabq.checks import list_known, require_choice
from slabq.cli_options import (
    NUMBER,
    ParamType,
    format_option,
    json_option,
    machine_options,
    make_policies,
    print_table,
    set_option,
    trace_path,
)
from slabq.cli_reports import REPORT_OPTIONS, Reports
from slabq.errors import ParameterError
from slabq.machine import Machine
from slabq.policy import Policy
from slabq.results import Results
from slabq.run import sweep
from slabq.table import FORMATS
from slabq.workload import (
    C_PREFIX,
    Parameter,
    find_kind,
    parse_old_hackbench,
    workload_kinds,
)

__all__ = ["demo_command", "replay_command", "run_command"]

HACKBENCH = "hackbench"

_RUN_OPTIONS = (
    click.option(
        "-p", "--policy", metavar="P,P,...", help="Policies; the first is the baseline."
    ),
    click.option("-k", "--kernel", metavar="V", help="Kernel profile of all policies."),
    click.option(
        "-e",
        "--engine",
        default="native",
        show_default=True,
        metavar="NAME",
        help="native: measured on this host; sim: simulated.",
    ),
    set_option,
    click.option(
        "--repeat", type=NUMBER, default=1, help="How often; shows the range."
    ),
    click.option("--seed", type=NUMBER, default=1, help="Seed of the first repeat."),
    json_option,
    format_option,
    click.option("-o", "--output", metavar="FILE", help="Save the result."),
    click.option("--plot", metavar="FILE.png|svg", help="Draw the comparison."),
    click.option(
        "--timeline",
        metavar="FILE.json",
        help="Write memory, lock waits, counters over time in Chrome's trace format.",
    ),
    click.option(
        "--debug",
        metavar="FLAGS",
        help="Debug flags of caches, as slub_debug=: letters of FZPUT, then names.",
    ),
    click.option(
        "--panic-on-report",
        is_flag=True,
        help="End at the first report of a debug cache.",
    ),
    *REPORT_OPTIONS,
)


def _run_options(function: Any) -> Any:
    function = machine_options(function)
    for option in reversed(_RUN_OPTIONS):
        function = option(function)
    return function


def _compare(
    work: str | Path,
    *,
    machine: Machine,
    policy: str | None,
    kernel: str | None,
    engine: str,
    settings: Sequence[str],
    repeat: Any,
    seed: Any,
    as_json: bool,
    format_name: str,
    output: str | None,
    plot: str | None,
    timeline: str | None,
    slabinfo: bool,
    stats: bool,
    report: str | None,
    debug: str | None,
    panic_on_report: bool,
    parameters: Mapping[str, Any],
) -> None:
    """Run `work` under every policy; print, save and draw what came of it."""
    require_choice("format", format_name, FORMATS)
    if plot is not None:
        from slabq.plot import check_plot_path

        check_plot_path(plot)
    _check_folders(output, plot, timeline)
    wanted = Reports(slabinfo, stats, report)
    wanted.check(as_json, format_name)
    results = sweep(
        work,
        policy=make_policies(policy, kernel, settings),
        machine=machine,
        engine=engine,
        seed=seed,
        repeat=repeat,
        with_caches=any(wanted),
        with_timeline=timeline is not None,
        debug=debug,
        panic_on_report=panic_on_report,
        **parameters,
    )
    _tell_reports(results)
    _show(results, as_json, format_name, wanted)
    if output is not None:
        results.save(output)
    if plot is not None:
        from slabq.plot import save_plot

        save_plot(results, plot)
    if timeline is not None:
        from slabq.timeline import save_timeline

        save_timeline(results, timeline)


def _check_folders(*paths: str | None) -> None:
    """Refuse a file that could not be written before the work, not after it."""
    for path in paths:
        if path is None:
            continue
        if path == "" or Path(path).is_dir():
            raise ParameterError(f"{path!r} is no file: accepted is the name of one")
        if not Path(path).absolute().parent.is_dir():
            raise ParameterError(f"no folder for {path!r}: accepted are existing ones")


def _tell_reports(results: Results) -> None:
    """Say on standard error what debug caches found: the kernel's own lines."""
    for result in results:
        for sample in result.samples:
            found = sample.get("reports")
            if found and found["total"]:
                told = f"{result.policy.name}, seed {sample['seed']}: {found['total']}"
                click.echo(f"{told} debug reports\n{found['text']}", err=True, nl=False)


def _show(
    results: Results, as_json: bool, format_name: str, wanted: Reports | None = None
) -> None:
    wanted = wanted or Reports()
    if as_json:
        document = {"results": results.rows(), **wanted.listed(results)}
        click.echo(json.dumps(document, indent=1))
    else:
        print_table(results.table(), format_name)
        click.echo(wanted.text(results), nl=False)


# -- run -------------------------------------------------------------------------------


class _Values(ParamType):
    """One value of a workload's parameter, or several with commas between."""

    def __init__(self, parameter: Parameter) -> None:
        self.name = "|".join(parameter.words) or "N[,N...]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        if not isinstance(value, str):
            return value
        return [NUMBER.convert(part.strip(), param, ctx) for part in value.split(",")]


class _RunCommands(click.Group):
    """One command a workload, made from what the core says of it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(workload_kinds())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _workload_command(cmd_name)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Let options stand before the workload too."""
        kinds = workload_kinds()

        def is_workload(word: str) -> bool:
            return word in kinds or word.startswith(C_PREFIX)

        if not args:
            raise ParameterError(
                f"no workload given: known are {list_known('', kinds)}"
            )
        place = next((i for i, word in enumerate(args) if is_workload(word)), 0)
        if args and place:
            args = [args[place], *args[:place], *args[place + 1 :]]
        return super().parse_args(ctx, args)


class _HackbenchCommand(click.Command):
    """hackbench's own ``-p`` and ``-pipe`` mean the option ``--pipe``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [*_with_pipe_spelled(args)])


def _with_pipe_spelled(args: Sequence[str]) -> list[str]:
    """Replace ``-p`` without a policy behind it, as hackbench has it."""
    spelled = []
    for index, word in enumerate(args):
        after = args[index + 1] if index + 1 < len(args) else "-"
        alone = word == "-p" and (after.startswith("-") or after[:1].isdigit())
        spelled.append("--pipe" if alone or word == "-pipe" else word)
    return spelled


def _parameter_option(parameter: Parameter) -> click.Option:
    names = [parameter.name, *parameter.option_names]
    about = f"{parameter.about} [default: {parameter.default_value}]"
    if parameter.is_switch:
        return click.Option(names, is_flag=True, default=None, help=about)
    if parameter.is_file:
        return click.Option(names, metavar="FILE", help=parameter.about)
    kind = _Values(parameter)
    return click.Option(names, type=kind, metavar=kind.name, help=about)


def _workload_command(name: str) -> click.Command:
    kind = find_kind(name)

    @_run_options
    def command(words: Sequence[str] = (), **values: Any) -> None:
        mode = values.pop("mode_flag", None)
        given = {key: values.pop(key) for key in kind.parameters}
        given |= {"mode": mode} if mode is not None else {}
        parameters = {key: value for key, value in given.items() if value is not None}
        _compare(name, parameters=parse_old_hackbench(words) | parameters, **values)

    made = click.command(
        name,
        cls=_HackbenchCommand if name == HACKBENCH else click.Command,
        help=kind.about,
    )(command)
    extra: list[click.Parameter] = [
        _parameter_option(parameter) for parameter in kind.parameters.values()
    ]
    if name == HACKBENCH:
        made.epilog = "-p with no policy behind it is hackbench's own: --pipe."
        extra += [
            click.Option(
                ["mode_flag", "-T", "--threads"],
                flag_value="thread",
                help="--mode thread",
            ),
            click.Option(
                ["mode_flag", "-P", "--process"],
                flag_value="process",
                help="--mode process",
            ),
            click.Argument(
                ["words"], nargs=-1, metavar="[GROUPS [process|thread] [LOOPS]]"
            ),
        ]
    made.params = [*extra, *made.params]
    return made


@click.group(
    cls=_RunCommands,
    no_args_is_help=False,
    subcommand_metavar="WORKLOAD [OPTIONS]...",
)
def run_command() -> None:
    """Run WORKLOAD under each policy named and print one comparison table.

    A parameter of the workload takes several values with commas between. WORKLOAD
    c:FILE.c is one of your own in C, on the header in the folder that
    slabq.get_include() names.
    """


# -- replay and demo -------------------------------------------------------------------


@click.command("replay")
@click.argument("trace_name", metavar="TRACE")
@_run_options
def replay_command(trace_name: str, **values: Any) -> None:
    """Run a recorded kernel TRACE under each policy named and compare.

    TRACE is a file, or - for standard input.
    """
    _compare(Path(trace_path(trace_name)), parameters={}, **values)


def _demo_results(policies: Sequence[Policy], machine: Machine, seed: Any) -> Results:
    from slabq.trace import bundled_trace_path

    path = bundled_trace_path()
    replayed = sweep(path, policy=policies, machine=machine, seed=seed, repeat=15)
    hackbench = sweep(
        HACKBENCH, policy=policies, machine=machine, seed=seed, repeat=3, loops=500
    )
    return replayed + hackbench


@click.command("demo")
@machine_options
@click.option("--seed", type=NUMBER, default=1, help="Seed of the first repeat.")
@json_option
@format_option
def demo_command(machine: Machine, seed: Any, as_json: bool, format_name: str) -> None:
    """Replay a kernel trace that comes with slabq and run hackbench.

    Under every policy on this host: the trace, which takes milliseconds, 15 times, and
    hackbench three times. The tables compare the policies.
    """
    require_choice("format", format_name, FORMATS)
    _show(
        _demo_results(make_policies(None, None, []), machine, seed),
        as_json,
        format_name,
    )
