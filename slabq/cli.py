"""The command ``slabq``: its commands by name, and how failures are told.

Exit status: 0 done; 1 a check that was asked for does not hold; 2 wrong usage or bad
input; 130 interrupted. Whatever goes wrong is one line on standard error.
"""

import importlib
import os
import sys
from collections.abc import Mapping, Sequence

import click

from slabq.errors import CorruptionError, Error

__all__ = ["cli", "main"]

STATUS_FAILED = 1
STATUS_USAGE = 2
STATUS_INTERNAL = 70
STATUS_INTERRUPTED = 130
STATUS_PIPE = 141

# Command -> (module, what it does). The module has a click command of that name with
# `_command` behind it; only the one that is used is imported.
_COMMANDS: Mapping[str, tuple[str, str]] = {
    "run": ("slabq.cli_run", "Run a workload under each policy and compare."),
    "replay": ("slabq.cli_run", "Run a recorded kernel trace under each policy."),
    "demo": ("slabq.cli_run", "A kernel trace and hackbench under every policy."),
    "stat": ("slabq.cli_tools", "What perf kmem stat says of a trace."),
    "geometry": ("slabq.cli_tools", "Order, objects and limits a cache would have."),
    "exec": ("slabq.cli_tools", "Run an operation script step by step."),
    "reproduce": ("slabq.cli_reproduce", "Rebuild published tables and compare."),
    "explain": ("slabq.cli_explain", "What made two results differ, in sentences."),
    "calibrate": ("slabq.cli_explain", "Measure this host, write a machine file."),
    "validate": ("slabq.cli_validate", "The simulated machine against what is known."),
    "record": ("slabq.cli_explain", "Record kmem events while a command runs."),
    "show": ("slabq.cli_list", "Everything about one machine, policy or table."),
    "policies": ("slabq.cli_list", "List the policies."),
    "kernels": ("slabq.cli_list", "List the kernel profiles."),
    "machines": ("slabq.cli_list", "List the machines."),
    "workloads": ("slabq.cli_list", "List the workloads."),
    "tables": ("slabq.cli_reproduce", "List the published tables."),
}


class _Commands(click.Group):
    """Finds a command's module by the command's name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        from slabq.checks import require_choice

        name = require_choice("command", cmd_name, list(_COMMANDS))
        module = importlib.import_module(_COMMANDS[name][0])
        command: click.Command = getattr(module, f"{name}_command")
        return command

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, about) for name, (_, about) in _COMMANDS.items()]
            )


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    from slabq.result import this_build, this_host

    build, host = this_build(), this_host()
    click.echo(f"slabq {build.pop('slabq')}")
    for name, text in build.items():
        click.echo(f"  {name}: {text}")
    click.echo(f"  host: {host['system']}, {host['processor']}, {host['cpus']} CPUs")
    ctx.exit()


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=False,
    invoke_without_command=True,
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Print version, build and host.",
)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Run the Linux kernel's slab policies side by side.

    Start with `slabq demo`.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    arguments : sequence of str, optional
        The words after ``slabq``. Default: those of the process.

    Returns
    -------
    int
        Exit status.

    Examples
    --------
    >>> main(["policies", "--no-such-option"])
    2
    """
    if sys.stderr is None:  # closed: messages go nowhere
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - for as long as it runs
    if sys.stdout is None:
        return _fail("standard output is closed", STATUS_USAGE)
    try:
        status = cli.main(
            list(sys.argv[1:] if arguments is None else arguments),
            prog_name="slabq",
            standalone_mode=False,
        )
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except (KeyboardInterrupt, click.Abort):
        return _fail("interrupted", STATUS_INTERRUPTED)
    except BrokenPipeError:
        # The reader has gone; keep the interpreter's last flush from complaining.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return STATUS_PIPE
    except click.ClickException as error:
        return _fail(_usage_message(error), STATUS_USAGE)
    except CorruptionError as error:
        return _fail(str(error), STATUS_FAILED)
    except Error as error:
        return _fail(str(error), STATUS_USAGE)
    except OSError as error:
        name = f"{error.filename}: " if error.filename is not None else ""
        return _fail(f"{name}{error.strerror or error}", STATUS_USAGE)
    except MemoryError:
        return _fail("the host has not enough memory for this", STATUS_USAGE)
    except Exception as error:
        if os.environ.get("SLABQ_DEBUG"):
            raise
        text = f"internal error, {type(error).__name__}: {error}"
        return _fail(f"{text} (SLABQ_DEBUG=1 shows where)", STATUS_INTERNAL)


def _usage_message(error: click.ClickException) -> str:
    message = error.format_message().rstrip(".")
    context = getattr(error, "ctx", None)
    if context is not None:
        message += f" ({context.command_path} --help says what is accepted)"
    return message


def _fail(message: str, status: int) -> int:
    print("slabq:", " ".join(message.split()), file=sys.stderr)
    return status
