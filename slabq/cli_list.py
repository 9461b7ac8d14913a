"""The commands that say what there is: policies, kernels, machines, workloads, show."""

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from slabq.checks import require_choice
from slabq.cli_options import (
    json_option,
    make_machine,
    print_table,
    raw_machine_options,
)
from slabq.machine import PCP_KERNEL, Machine, host, machine_presets
from slabq.policy import (
    Option,
    find_policy,
    kernel_profiles,
    policy_names,
    policy_options,
    version_key,
)
from slabq.table import TEXT_WIDTH, Section, Table
from slabq.workload import Kind, Parameter, workload_kinds

__all__ = [
    "kernels_command",
    "machines_command",
    "policies_command",
    "show_command",
    "workloads_command",
]

_ABOUT_POLICY: Mapping[str, str] = {
    "slab": "per-CPU arrays over slab lists by node, alien and shared arrays",
    "slub": "one active slab a CPU, partial lists, no queues",
    "slub+q": "SLUB's slabs under per-CPU queues, as posted in 2010",
    "sheaves": "SLUB under per-CPU arrays (sheaves) and a barn of them by node",
}

_YOUR_OWN = Kind(
    "c:FILE.c", "your own in C, on the header in slabq.get_include()", parameters={}
)

defaults_option = click.option(
    "--defaults", is_flag=True, help="Every option with its default."
)


def _print_list(rows: Sequence[tuple[str, str]], indent: str = "") -> None:
    width = max((len(name) for name, _ in rows), default=0) + 2
    for name, about in rows:
        start, further = f"{indent}{name:<{width}}", indent + " " * width
        for line in textwrap.wrap(
            about, TEXT_WIDTH, initial_indent=start, subsequent_indent=further
        ) or [start]:
            click.echo(line.rstrip())


def _print_json(document: object) -> None:
    click.echo(json.dumps(document, indent=1))


def _options_json(options: Iterable[Option | Parameter]) -> list[dict[str, Any]]:
    names = ("name", "default", "minimum", "maximum", "about")
    return [{name: getattr(option, name) for name in names} for option in options]


def _profile_list(policy: str) -> str:
    return " ".join(kernel_profiles(policy)) or "none"


@click.command("policies")
@json_option
@defaults_option
def policies_command(as_json: bool, defaults: bool) -> None:
    """List the policies of this build."""
    if as_json:
        _print_json(
            [
                {
                    "name": name,
                    "about": _ABOUT_POLICY.get(name, ""),
                    "kernels": list(kernel_profiles(name)),
                    "options": _options_json(policy_options(name).values()),
                }
                for name in policy_names()
            ]
        )
        return
    for name in policy_names() if defaults else ():
        click.echo(name)
        options = policy_options(name).values()
        _print_list([(f"{o.name}={o.default}", o.about) for o in options], "  ")
    if not defaults:
        _print_list([(name, _ABOUT_POLICY.get(name, "")) for name in policy_names()])


@click.command("kernels")
@json_option
@defaults_option
def kernels_command(as_json: bool, defaults: bool) -> None:
    """List the kernel profiles: which policies have each, and what it is there."""
    profiles: dict[str, dict[str, Any]] = {}
    for policy in policy_names():
        for kernel, profile in kernel_profiles(policy).items():
            profiles.setdefault(kernel, {})[policy] = {
                "about": profile.about,
                "options": dict(profile.values),
            }
    profiles = dict(sorted(profiles.items(), key=lambda item: version_key(item[0])))
    if as_json:
        _print_json(
            [{"name": name, "policies": found} for name, found in profiles.items()]
        )
        return
    width = max(map(len, profiles)) + 2
    _print_list(
        [
            (f"{kernel if policy == next(iter(found)) else '':<{width}}{policy}", about)
            for kernel, found in profiles.items()
            for policy, about in ((name, row["about"]) for name, row in found.items())
        ]
    )
    for kernel, found in profiles.items() if defaults else ():
        for policy, profile in found.items():
            values = " ".join(f"{k}={v}" for k, v in profile["options"].items())
            click.echo(f"{kernel} {policy}: {values or 'the defaults'}")


@click.command("machines")
@json_option
@defaults_option
def machines_command(as_json: bool, defaults: bool) -> None:
    """List the machines."""
    machines = [*machine_presets().values(), host()]
    if as_json:
        _print_json([machine.to_dict() for machine in machines])
        return
    _print_list([(machine.name, machine.about) for machine in machines])
    for machine in machines if defaults else ():
        click.echo(machine.name)
        _print_list([(k, str(v)) for k, v in machine.to_dict().items()], "  ")


@click.command("workloads")
@json_option
@defaults_option
def workloads_command(as_json: bool, defaults: bool) -> None:
    """List the workloads."""
    kinds = [*workload_kinds().values(), _YOUR_OWN]
    if as_json:
        _print_json(
            [
                {
                    "name": kind.name,
                    "about": kind.about,
                    "parameters": _options_json(kind.parameters.values()),
                }
                for kind in kinds
            ]
        )
        return
    if not defaults:
        _print_list([(kind.name, kind.about) for kind in kinds])
    for kind in kinds if defaults else ():
        click.echo(kind.name)
        rows = [
            (f"{p.name}={p.default_value}", p.about) for p in kind.parameters.values()
        ]
        _print_list(rows, "  ")


# -- show ------------------------------------------------------------------------------


@click.group("show", no_args_is_help=False)
def show_command() -> None:
    """Everything about one machine, policy or table."""


@show_command.command("machine")
@click.argument("name", required=False)
@raw_machine_options
@json_option
def show_machine(name: str | None, as_json: bool, **given: Any) -> None:
    """CPUs, nodes, distances, fallback order and effective costs of a machine.

    NAME is a preset, a machine file, or host; or describe a machine by options.
    """
    machine = make_machine(**{**given, "machine": name or given["machine"]})
    described = json.loads(machine.core().describe())
    if as_json:
        _print_json({**machine.to_dict(), **described})
        return
    _print_machine(machine, described)


def _ranges(numbers: Sequence[int]) -> str:
    """Write ascending numbers as the kernel's lists: ``0-3,8``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def _page_lists_text(machine: Machine) -> str:
    if machine.pcp_order_max is not None:
        return f"per CPU, up to order {machine.pcp_order_max}"
    older, newer = (machine.pcp_order_under(kernel) for kernel in ("5.13", None))
    return f"per CPU, up to order {older} before Linux {PCP_KERNEL}, {newer} since"


def _print_machine(machine: Machine, described: Mapping[str, Any]) -> None:
    node_of_cpu, llc_of_cpu = machine.node_of_cpu or (), machine.llc_of_cpu or ()
    caches = [
        _ranges([cpu for cpu, group in enumerate(llc_of_cpu) if group == number])
        for number in sorted(set(llc_of_cpu))
    ]
    _print_list(
        [
            ("machine", machine.name + (f": {machine.about}" if machine.about else "")),
            ("CPUs", str(machine.cpus)),
            ("nodes", f"{machine.nodes}, {machine.node_bytes >> 20} MiB each"),
            ("caches", "last level shared by CPUs " + " | ".join(caches)),
            ("engine", described["engine"]),
            ("memory", _binding_text(described)),
            ("page lists", _page_lists_text(machine)),
        ]
    )
    click.echo()
    costs = described.get("added_ns_per_remote_line", [])
    rows = [
        [
            str(node),
            _ranges([cpu for cpu, home in enumerate(node_of_cpu) if home == node]),
            " ".join(f"{distance:3d}" for distance in described["distance"][node]),
            " ".join(str(other) for other in described["fallback"][node]),
            " ".join(f"{cost:3g}" for cost in costs[node]) if costs else "-",
        ]
        for node in range(machine.nodes)
    ]
    headings = ["node", "CPUs", "distance", "fallback", "added ns/line"]
    off = machine.nodes > 1 and machine.remote_delay_ns == 0
    notes = ["distance adds no time: --remote-delay-ns is 0"] if off else []
    print_table(Table([Section("nodes", headings, rows, notes, left_count=4)]), "text")


def _binding_text(described: Mapping[str, Any]) -> str:
    if described.get("nodes_are_bound"):
        return "each node's memory is on a node of the host"
    return "all nodes' memory is wherever the host puts it"


@show_command.command("policy")
@click.argument("name")
@json_option
def show_policy(name: str, as_json: bool) -> None:
    """Options of a policy, their ranges, and their values by kernel profile."""
    require_choice("policy", name, policy_names())
    options = policy_options(name)
    profiles = kernel_profiles(name)
    values = {kernel: find_policy(name, kernel=kernel).values() for kernel in profiles}
    if as_json:
        _print_json(
            {
                "name": name,
                "about": _ABOUT_POLICY.get(name, ""),
                "options": _options_json(options.values()),
                "kernels": values,
            }
        )
        return
    click.echo(f"{name}: {_ABOUT_POLICY.get(name, '')}\n")
    rows = [
        [
            o.name,
            str(o.default),
            f"{o.minimum}..{o.maximum}",
            *_by_profile(o.name, values),
        ]
        for o in options.values()
    ]
    sections = [
        Section("options", ["option", "default", "accepted"], [r[:3] for r in rows])
    ]
    kernels = list(profiles)
    for start in range(0, len(kernels), 5):
        part = kernels[start : start + 5]
        cells = [[r[0], *r[3 + start : 8 + start]] for r in rows]
        sections.append(Section("by kernel profile", ["option", *part], cells))
    print_table(Table(sections), "text")
    click.echo()
    _print_list([(option.name, option.about) for option in options.values()])
    if profiles:
        click.echo()
        _print_list([(kernel, p.about) for kernel, p in profiles.items()])


def _by_profile(name: str, values: Mapping[str, Mapping[str, int]]) -> list[str]:
    return [str(found[name]) for found in values.values()]


@show_command.command("table")
@click.argument("table_id", metavar="ID")
@json_option
def show_table(table_id: str, as_json: bool) -> None:
    """Figures of a table as published, and how slabq runs its cells."""
    from slabq.cli_reproduce import print_published

    print_published(table_id, as_json)
