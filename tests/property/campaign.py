"""A campaign of random scripts: python campaign.py [--steps N] [--seed S]

Every policy, every option, every kernel profile, on up to 16 CPUs and 4 nodes, with
check() after every step. Each seed is one script, run in a process of its own, so that
a crash or a hang is a failure like others. A failing seed is printed with the shortest
script found that fails; `--script` runs such a line again.
"""

import argparse
import multiprocessing
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from importlib import machinery, util
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any

from scripts import STEPS_PER_SCRIPT, Outcome, Script, draw_script, run_script, shorten

from slabq import _core

FORK = multiprocessing.get_context("fork")
TIME_MAX_S = 120  # for one script
Running = tuple[int, BaseProcess, float]
# Threads of numerical libraries, which a child does not use.
warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)


def load_core(path: Path) -> ModuleType:
    """Load another build of the core than the installed one."""
    loader = machinery.ExtensionFileLoader("canary._core", str(path))
    spec = util.spec_from_loader("canary._core", loader)
    assert spec is not None
    core = util.module_from_spec(spec)
    loader.exec_module(core)
    return core


# -- one script, in a process of its own -----------------------------------------------


def report(sender: Connection, work: Callable[[], Any]) -> None:
    """Run in the child: send what comes of it, and end without looking back."""
    sender.send(work())
    sender.close()
    os._exit(0)


def start(work: Callable[[], Any]) -> tuple[Connection, BaseProcess]:
    """Begin `work` in a child."""
    receiver, sender = FORK.Pipe(duplex=False)
    child = FORK.Process(target=report, args=(sender, work))
    child.start()
    sender.close()
    return receiver, child


def collect(receiver: Connection, child: BaseProcess) -> Outcome:
    """Receive what a child sends; if it died instead, that is the failure."""
    try:
        outcome = receiver.recv()
        assert isinstance(outcome, Outcome)
    except EOFError:
        child.join()
        code = child.exitcode or 0
        name = signal.Signals(-code).name if code < 0 else f"status {code}"
        outcome = Outcome(failure=f"the process ended with {name}")
    finally:
        receiver.close()
    child.join()
    return outcome


def run_quietly(script: Script, core: ModuleType) -> Outcome:
    """Run in the child: what it says of a failed assertion was said before."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    return run_script(script, core)


def run_apart(script: Script, core: ModuleType, time_max_s: float = 20) -> Outcome:
    """Run one script in a child."""
    receiver, child = start(lambda: run_quietly(script, core))
    if not receiver.poll(time_max_s):
        child.kill()
        child.join()
        receiver.close()
        return Outcome(failure=f"the script did not end in {time_max_s} s")
    return collect(receiver, child)


# -- many ------------------------------------------------------------------------------


class Campaign:
    """Runs scripts of consecutive seeds until a number of steps is reached."""

    def __init__(self, core: ModuleType, policies: list[str], jobs: int) -> None:
        self.core, self.policies, self.jobs = core, policies, jobs
        self.total = Outcome()
        self.refused_count = self.script_count = 0
        self.failed: dict[int, str] = {}

    def outcomes(self, seed: int, step_count: int) -> Iterator[tuple[int, Outcome]]:
        """Run scripts, several at a time; stop starting when the steps are run."""
        running: dict[Connection, Running] = {}
        while running or self.total.steps < step_count:
            while len(running) < self.jobs and self.total.steps < step_count:
                script = draw_script(seed, self.policies, STEPS_PER_SCRIPT)
                receiver, child = start(lambda s=script: run_script(s, self.core))
                running[receiver] = (seed, child, time.monotonic())
                seed += 1
            for receiver in wait(list(running), timeout=1):
                assert isinstance(receiver, Connection)
                own_seed, child, _ = running.pop(receiver)
                outcome = collect(receiver, child)
                self.add_up(outcome)
                yield own_seed, outcome
            for _, child, since in running.values():
                if time.monotonic() - since > TIME_MAX_S:
                    child.kill()  # its pipe ends, which is found above

    def add_up(self, outcome: Outcome) -> None:
        """Note the outcome of one more script; a process that died tells no steps."""
        died = outcome.failure is not None and outcome.steps == 0
        self.script_count += 1
        self.total.steps += STEPS_PER_SCRIPT if died else outcome.steps
        self.total.checks += outcome.checks
        self.total.ran_out += outcome.ran_out
        self.refused_count += outcome.refused is not None

    def run(self, seed: int, step_count: int) -> None:
        """Run, and print what fails."""
        for own_seed, outcome in self.outcomes(seed, step_count):
            if outcome.failure is not None:
                self.failed[own_seed] = outcome.failure
                print(f"seed {own_seed} fails at step {outcome.steps}: ", end="")
                print(outcome.failure, flush=True)
                self.print_shortest(own_seed, outcome)
            if len(self.failed) >= 20:
                print("more than 20 seeds fail: the campaign ends here")
                return

    def print_shortest(self, seed: int, outcome: Outcome) -> None:
        """Find a short script that fails and print it, ready for --script."""
        script = draw_script(seed, self.policies, STEPS_PER_SCRIPT)
        if outcome.steps:
            script = script._replace(steps=script.steps[: outcome.steps])

        def fails(candidate: Script) -> bool:
            return run_apart(candidate, self.core).failure is not None

        if not fails(script):
            print("  alone, the steps up to there do not fail: the end of it does")
            script = draw_script(seed, self.policies, STEPS_PER_SCRIPT)
        script = shorten(script, fails)
        print(f"  {run_apart(script, self.core).failure}")
        print(f"  {len(script.steps)} steps: --script '{script.to_json()}'", flush=True)


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000, help="how many, in all")
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--policy", help="this one only")
    parser.add_argument("--script", help="run this one line instead")
    return parser.parse_args(arguments)


def main(arguments: list[str], core: ModuleType = _core) -> int:
    """Run the campaign; 0 if nothing failed."""
    wanted = parse(arguments)
    if wanted.script:
        outcome = run_apart(Script.from_json(wanted.script), core)
        print(outcome)
        return outcome.failure is not None
    policies = [wanted.policy] if wanted.policy else core.policies()
    campaign = Campaign(core, policies, wanted.jobs)
    since = time.monotonic()
    campaign.run(wanted.seed, wanted.steps)
    total = campaign.total
    print(
        f"{total.steps} steps, {total.checks} checks, {campaign.script_count} scripts: "
        f"seeds {wanted.seed} to {wanted.seed + campaign.script_count - 1} "
        f"of {', '.join(policies)}\n"
        f"{campaign.refused_count} setups refused, {total.ran_out} allocations without "
        f"memory, {len(campaign.failed)} seeds failed, {time.monotonic() - since:.0f} s"
    )
    return bool(campaign.failed)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
