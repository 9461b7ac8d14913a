"""The commands that look closely at one thing: stat, geometry, exec."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import click

from slabq.cache_geometry import geometry
from slabq.cli_options import (
    NUMBER,
    json_option,
    machine_options,
    make_machine,
    make_policies,
    parse_settings,
    print_table,
    raw_machine_options,
    set_option,
    trace_path,
)
from slabq.errors import ParameterError
from slabq.host_caches import compare_host
from slabq.machine import Machine
from slabq.policy import Policy
from slabq.progress import ProgressBar
from slabq.script import execute

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slabq.trace import Stat, Trace

__all__ = ["exec_command", "geometry_command", "stat_command"]

SCRIPT_BYTES_MAX = 64 << 20

By = Literal["caller", "alloc"]

_policy_option = click.option(
    "-p", "--policy", required=True, metavar="P", help="The policy."
)
_kernel_option = click.option("-k", "--kernel", metavar="V", help="Kernel profile.")


def _one_policy(policy: str, kernel: str | None, settings: "Sequence[str]") -> Policy:
    found = make_policies(policy, kernel, settings)
    if len(found) > 1:
        raise ParameterError(f"policy is {policy!r}: accepted is one policy")
    return found[0]


@click.command("geometry")
@click.option("-p", "--policy", metavar="P", help="The policy.")
@_kernel_option
@click.option("--size", type=NUMBER, help="Bytes of an object.")
@click.option("--align", type=NUMBER, default=0, help="Alignment, a power of two.")
@click.option("--hwcache", is_flag=True, help="SLAB_HWCACHE_ALIGN.")
@click.option("--reclaim", is_flag=True, help="SLAB_RECLAIM_ACCOUNT.")
@click.option("--sheaf-capacity", type=NUMBER, default=0, help="Objects of a sheaf.")
@click.option(
    "--host",
    "host_source",
    is_flag=False,
    flag_value="",
    metavar="[FILE]",
    help="Every cache of the running kernel (of FILE: such values, tab-separated) "
    "against slabq's own answer. Of the other options only -k (the kernel's release), "
    "--cpus, --set and --json count.",
)
@raw_machine_options
@set_option
@json_option
def geometry_command(
    policy: str | None,
    kernel: str | None,
    size: Any,
    align: Any,
    hwcache: bool,
    reclaim: bool,
    sheaf_capacity: Any,
    host_source: str | None,
    settings: "Sequence[str]",
    as_json: bool,
    **machine_values: Any,
) -> None:
    """Order, objects a slab and limits that a cache would have."""
    if host_source is not None:
        _print_host(host_source, kernel, machine_values["cpus"], settings, as_json)
        return
    value = _one_policy(_given("policy", policy), kernel, settings)
    machine = make_machine(**machine_values)
    found = geometry(
        value,
        _given("size", size),
        machine=machine,
        align=align,
        hwcache_align=hwcache,
        reclaim_account=reclaim,
        sheaf_capacity=sheaf_capacity,
    )
    if as_json:
        click.echo(json.dumps(found))
        return
    click.echo(f"{value.name} {value.kernel} on {machine.name}:")
    width = max(map(len, found))
    for name, number in found.items():
        click.echo(f"  {name:<{width}}  {number}")


def _given(name: str, value: Any) -> Any:
    """Return `value` if it was given; without --host it must be."""
    if value is None:
        raise click.MissingParameter(param_hint=f"'--{name}'", param_type="option")
    return value


def _print_host(
    source: str,
    kernel: str | None,
    cpus: Any,
    settings: "Sequence[str]",
    as_json: bool,
) -> None:
    """Print the comparison; the exit status is 1 if a cache differs."""
    found = compare_host(
        source or None, kernel=kernel, cpus=cpus, **parse_settings(settings)
    )
    if as_json:
        click.echo(json.dumps(found.to_dict()))
    else:
        print_table(found.table(), "text")
    if found.counts()["differs"]:
        raise click.exceptions.Exit(1)


@click.command("exec")
@click.argument("script", metavar="SCRIPT")
@_policy_option
@_kernel_option
@machine_options
@set_option
def exec_command(
    script: str,
    policy: str,
    kernel: str | None,
    machine: Machine,
    settings: "Sequence[str]",
) -> None:
    """Run an operation SCRIPT (- is standard input) on one host thread.

    Prints one JSON object a line: what each operation did, object by object. Caches
    and objects are numbered from 0, in the order in which a script makes them.

    \b
    cache NAME SIZE ALIGN FLAGS  make a cache; flags - or of h r z p u c
    a CACHE CPU N [NODE]         allocate N objects
    f CACHE CPU ID...            free objects; 3-9 is a range
    ab CACHE CPU N               allocate in bulk; fb CACHE CPU ID... frees
    dump CACHE                   every list and queue
    shrink CACHE CPU             give empty slabs back
    sleep MS                     let time pass; the reaper runs

    \b
    printf 'cache c 64 0 -\\na 0 0 3\\nf 0 0 0-2\\n' | slabq exec -p slub -
    """  # noqa: D301 - click's mark of lines to keep is a backspace
    value = _one_policy(policy, kernel, settings)
    click.echo(execute(_read_script(script), value, machine=machine), nl=False)


def _read_script(path: str) -> str:
    if path != "-":
        with open(path, "rb") as file:
            data = file.read(SCRIPT_BYTES_MAX + 1)
    elif sys.stdin is not None:
        data = sys.stdin.buffer.read(SCRIPT_BYTES_MAX + 1)
    else:
        raise ParameterError("standard input is closed: accepted is a script on it")
    if len(data) > SCRIPT_BYTES_MAX:
        accepted = f"accepted are at most {SCRIPT_BYTES_MAX} bytes"
        raise ParameterError(f"script {path} is longer: {accepted}")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ParameterError(f"script {path} is not text: accepted is UTF-8") from None


@click.command("stat")
@click.argument("trace_name", metavar="TRACE")
@click.option(
    "--caller", "by", flag_value="caller", multiple=True, help="By call site."
)
@click.option("--alloc", "by", flag_value="alloc", multiple=True, help="By pointer.")
@click.option(
    "-s",
    "--sort",
    default="frag,hit,bytes",
    show_default=True,
    metavar="KEYS",
    help="ptr, callsite, bytes, hit, pingpong, frag; commas between.",
)
@click.option("-l", "--line", "limit", type=NUMBER, help="Rows to print.")
@click.option("--raw-ip", is_flag=True, help="Call sites as the trace has them.")
@json_option
def stat_command(
    trace_name: str,
    by: "Sequence[By]",
    sort: str,
    limit: Any,
    raw_ip: bool,
    as_json: bool,
) -> None:
    """Print what `perf kmem stat` says of TRACE: same columns, same numbers.

    TRACE is a file, or - for standard input.

    Without --caller and --alloc, the summary alone.
    """
    from slabq.trace import read_trace

    if isinstance(limit, str):
        raise ParameterError(f"line is {limit!r}: accepted are whole numbers from 0 on")
    with ProgressBar(f"reading {Path(trace_name).name}") as bar:
        trace = read_trace(trace_path(trace_name), progress=bar)
    stats = [
        trace.stat(cast(By, kind), sort=sort, limit=limit, raw_ip=raw_ip)
        for kind in dict.fromkeys(by) or ["caller"]
    ]
    if as_json:
        click.echo(json.dumps(_stat_json(trace, stats if by else [], limit)))
        return
    tables = [stat.table for stat in stats] if by else []
    click.echo("".join([*tables, stats[0].summary]), nl=False)


def _stat_json(
    trace: "Trace", stats: "Sequence[Stat]", limit: int | None
) -> dict[str, Any]:
    totals = trace.stat("caller", limit=0).totals
    document: dict[str, Any] = {"totals": totals, "trace": trace.summary}
    for stat in stats:
        names = stat.rows.dtype.names or ()
        lines = [
            dict(zip(names, row, strict=True)) for row in stat.rows[:limit].tolist()
        ]
        for line, frag in zip(lines, stat.frag.tolist(), strict=False):
            site = line["call_site"]
            known = site < len(trace.call_sites)
            line["call_site"] = trace.call_sites[site] if known else None
            line["frag"] = frag
        document[stat.by] = lines
    return document
