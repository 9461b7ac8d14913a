"""How fast the simulated machine runs on one core of this host.

    python benchmarks/sim_speed.py [--quick]

hackbench on eight CPUs with 10 groups and on sixteen with 100, under each policy:
messages a second of the host's processor time, nanoseconds a simulated access, and
with every access in order (strict). Processor time, so that a busy host changes little.
Memory is the peak of the process; the last row has 8000 tasks.
"""

import argparse
import json
import resource
import time

from slabq import _core
from slabq.machine import find_machine

POLICIES = ("slab", "slub", "slub+q")
CASES = (("penryn-2x4", 10, 1_000_000), ("tigerton-4x4", 100, 2_000_000))
LARGE = ("tigerton-4x4", 200, 2_000_000)


def measure(
    preset: str, policy: str, groups: int, messages: int, *, strict: bool
) -> None:
    """Run one case and print its row."""
    machine = find_machine(preset)
    machine = machine.replace(costs={**dict(machine.costs or ()), "strict": strict})
    core = machine.replace(node_bytes=2 << 30).core(1, "sim")
    values = {
        "groups": groups,
        "loops": 100_000,
        "syscall_ns": 700,
        "measure_operations": messages,
    }
    start_s = time.process_time()
    pairs = list(values.items())
    row = json.loads(_core.run(core, policy, [], "hackbench", pairs, 1))
    host_s = time.process_time() - start_s
    accesses = core.accesses()
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{preset:13}{groups:4} groups  {policy:7}{'strict' if strict else '':7}"
        f"{messages / host_s / 1e6:6.2f} M messages/s"
        f"{accesses / messages:6.1f} accesses each"
        f"{host_s * 1e9 / accesses:6.1f} ns an access"
        f"{peak_mib:6.0f} MiB  {row['fingerprint']}",
        flush=True,
    )


def main() -> None:
    """Measure all cases."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages")
    share = 10 if parser.parse_args().quick else 1
    for preset, groups, messages in CASES:
        for policy in POLICIES:
            for strict in (False, True):
                measure(preset, policy, groups, messages // share, strict=strict)
    preset, groups, messages = LARGE
    measure(preset, "slub", groups, messages // share, strict=False)


if __name__ == "__main__":
    main()
