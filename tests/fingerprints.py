"""Fingerprints of simulated runs, to be held against those of another build.

    python tests/fingerprints.py                one line a run, with its fingerprint
    python tests/fingerprints.py --write FILE   the same into a file
    python tests/fingerprints.py FILE           status 1, and what differs, unless the
                                                file has the same

A fingerprint folds in every event of a run with its time, so equal ones mean that two
builds did the same in the same order. Short runs: one under every policy of each
workload, on each machine, with and without jitter.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import slabq
from slabq.machine import machine_presets

WORK: dict[str, dict[str, Any]] = {
    "hackbench": {"groups": 2, "loops": 10},
    "tcp_rr": {"threads": 4, "transactions": 100},
    "tbench": {"clients": 4, "operations": 200},
    "kmalloc": {"test": "concurrent", "count": 1000},
    "producer-consumer": {"pairs": 2, "objects": 2000},
    "churn": {"replacements": 1000},
}
JITTER_PS = (0, 5000)


def runs() -> Iterator[tuple[str, str, str, int]]:
    """Workload, policy, machine, jitter; every policy gets to every machine."""
    machines = list(machine_presets())
    for turn, work in enumerate(WORK):
        for number, policy in enumerate(slabq.policy_names(), start=turn):
            for jitter_ps in JITTER_PS:
                yield work, policy, machines[number % len(machines)], jitter_ps


def fingerprint(
    work: str, policy: str, machine: str, jitter_ps: int, seed: int = 1
) -> str:
    """Run it and return the fingerprint."""
    preset = machine_presets()[machine]
    costs = {**dict(preset.costs or ()), "jitter_ps": jitter_ps}
    # Without sheaves in its caches the policy is SLUB.
    value = slabq.Sheaves(sheaf_all_caches=True) if policy == "sheaves" else policy
    result = slabq.run(
        work,
        policy=value,
        machine=preset.replace(costs=costs),
        engine="sim",
        seed=seed,
        progress=False,
        **WORK[work],
    )
    return str(result.sample["fingerprint"])


def lines() -> list[str]:
    """One line a run."""
    return [
        f"{work} {policy} {machine} jitter {jitter_ps} "
        f"{fingerprint(work, policy, machine, jitter_ps)}"
        for work, policy, machine, jitter_ps in runs()
    ]


def main() -> int:
    """Print the lines, or compare them with a file's."""
    found = lines()
    if len(sys.argv) < 2:
        print("\n".join(found))
        return 0
    if sys.argv[1] == "--write":
        Path(sys.argv[2]).write_text("\n".join(found) + "\n")
        return 0
    wanted = Path(sys.argv[1]).read_text().splitlines()
    differing = [
        f"{a} here, {b.rsplit(' ', 1)[-1]} there"
        for a, b in zip(found, wanted, strict=True)
        if a != b
    ]
    print("\n".join(differing or [f"{len(found)} fingerprints are the same"]))
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
