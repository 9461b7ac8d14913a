"""Scripts of operations as plain data: drawn from a seed, run, and made shorter.

A script is a setup and a list of steps; a step is the name of a method of `Model` and
whole numbers. Each script draws its own habits first: which operations it knows, how
long its bursts are, whether it fills or drains (swarm testing: what a script leaves
out lets the rest go where a script of everything never would).
"""

import dataclasses
import functools
import json
import random
from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

from model import (
    ANY,
    BROKEN,
    HWCACHE_ALIGN,
    MEBIBYTE,
    RECLAIM_ACCOUNT,
    STORE_USER,
    TUNABLES,
    TYPESAFE_BY_RCU,
    Model,
    Refused,
    Setup,
    Shape,
)

from slabq import _core
from slabq.policy import kernel_profiles

STEPS_PER_SCRIPT = 100
TOPOLOGIES = [(1, 1), (2, 1), (4, 1), (2, 2), (4, 2), (6, 3), (8, 4), (16, 4), (16, 2)]
NODE_BYTES = [4 * MEBIBYTE, 4 * MEBIBYTE, 16 * MEBIBYTE, 16 * MEBIBYTE, 64 * MEBIBYTE]
SIZES = [1, 8, 24, 64, 100, 192, 256, 700, 1024, 2048, 3000, 4096, 9000, 70000, 300000]
ALIGNS = [0, 0, 0, 0, 8, 64, 256, 4096]
RED_ZONE, POISON, CONSISTENCY_CHECKS = 32, 64, 256
FLAGS = [
    *(HWCACHE_ALIGN, RECLAIM_ACCOUNT, TYPESAFE_BY_RCU),
    *(RED_ZONE, POISON, STORE_USER, CONSISTENCY_CHECKS),
]
VALUES = [-(1 << 63), -2, -1, 0, 0, 1, 2, 3, 4, 5, 8, 16, 30, 120, 500, 1000, 4096]
VALUES += [10000, 65535, 100000, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 63) - 1]

Step = tuple[str, tuple[int, ...]]
# How often an operation is drawn among those that a script knows.
WEIGHTS = {
    "alloc": 12,
    "free": 12,
    "alloc_bulk": 4,
    "free_bulk": 4,
    "prefill": 3,
    "kmalloc": 6,
    "kfree": 6,
    "shrink": 2,
    "flush": 2,
    "reap": 3,
    "tune": 3,
    "look": 1,
    "wrong_pointer": 1,
    "wrong_place": 1,
}
FILLING, DRAINING = {"alloc", "alloc_bulk", "kmalloc"}, {"free", "free_bulk", "kfree"}


class Script(NamedTuple):
    """A heap and what is done to it."""

    setup: Setup
    steps: tuple[Step, ...]

    def to_json(self) -> str:
        """Return one line that `from_json` reads."""
        return json.dumps([dataclasses.asdict(self.setup), self.steps])

    @classmethod
    def from_json(cls, text: str) -> "Script":
        """Read what `to_json` gave."""
        setup, steps = json.loads(text)
        return cls(
            Setup.from_json(setup), tuple((name, tuple(args)) for name, args in steps)
        )


@dataclasses.dataclass
class Outcome:
    """What became of a script."""

    steps: int = 0  # that were run
    checks: int = 0
    ran_out: int = 0  # allocations that got no memory
    failure: str | None = None  # of the last step that was run, or of the end
    refused: str | None = None  # there is no such heap


# -- drawing ---------------------------------------------------------------------------


def draw_value(rng: random.Random, low: int, high: int, default: int) -> int:
    """Draw from a range: its ends, near its ends, small, or anywhere."""
    span = high - low
    choices = (low, high, default, low + 1, high - 1, rng.randint(low, high))
    small = low + rng.randrange(1 << rng.randrange(1, 12))
    return min(max(rng.choice([*choices, small, small, small]), low), low + span)


def draw_options(rng: random.Random, policy: str) -> tuple[tuple[str, int], ...]:
    """Draw a kernel profile, or the defaults, with some options changed."""
    profiles = [{}, *(row.values for row in kernel_profiles(policy).values())]
    options = dict(rng.choice(profiles))
    changed = rng.choice([0.0, 0.1, 0.4, 1.0])
    for owner, name, default, low, high, _ in _core.options():
        if owner == policy and rng.random() < changed:
            options[name] = draw_value(rng, low, high, default)
            if name == "cache_line_size" and rng.random() < 0.95:  # else refused
                options[name] = rng.choice([32, 64, 128])
    return tuple(options.items())


def draw_shape(rng: random.Random) -> Shape:
    """Draw the making of a cache."""
    flags = sum(flag for flag in FLAGS if rng.random() < rng.choice([0, 0, 0.3]))
    small = SIZES[:12] if rng.random() < 0.8 else SIZES
    capacity = rng.choice([0, 1, 4, 30, 200])
    return Shape(rng.choice(small), rng.choice(ALIGNS), flags, capacity)


def draw_setup(rng: random.Random, policies: list[str]) -> Setup:
    """Draw a machine, a policy with its options, and one to three caches."""
    policy = rng.choice(policies)
    cpus, nodes = rng.choice(TOPOLOGIES)
    shapes = tuple(draw_shape(rng) for _ in range(rng.choice([1, 1, 2, 3])))
    node_bytes = rng.choice(NODE_BYTES)
    return Setup(policy, cpus, nodes, node_bytes, draw_options(rng, policy), shapes)


class Habits:
    """How one script draws its steps."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        known = [name for name in WEIGHTS if rng.random() < 0.7]
        if not FILLING & set(known):
            known += ["alloc", "free"]
        self.names = known
        self.burst = rng.choice([1, 4, 20, 90, 300])
        self.cpus = [rng.randrange(16) for _ in range(rng.choice([1, 2, 4, 16]))]
        self.named_node = rng.choice([0.0, 0.3, 1.0])
        self.kmalloc_bits = rng.choice([8, 13, 13, 16, 22])
        self.phase = 1.0

    def step(self) -> Step:
        """Draw one step; now and then the script turns from filling to draining."""
        if self.rng.random() < 0.05:
            self.phase = self.rng.choice([0.2, 1.0, 5.0])
        phases = dict.fromkeys(FILLING, self.phase)
        phases |= dict.fromkeys(DRAINING, 1 / self.phase)
        weights = [WEIGHTS[name] * phases.get(name, 1) for name in self.names]
        name = self.rng.choices(self.names, weights)[0]
        return name, tuple(self.arguments(name))

    def arguments(self, name: str) -> list[int]:
        """Draw the numbers of a step."""
        rng, number = self.rng, self.rng.randrange(1000)
        cache, cpu = rng.randrange(3), rng.choice(self.cpus)
        node = rng.randrange(4) if rng.random() < self.named_node else ANY
        count = rng.randint(1, self.burst)
        first = rng.choice([0, -1, number])
        return {
            "alloc": [cache, cpu, node, count],
            "free": [cache, cpu, first, count],
            "alloc_bulk": [cache, cpu, count - 1],
            "free_bulk": [cache, cpu, first, count - 1],
            "prefill": [cache, cpu, count - 1, number],
            "kmalloc": [cpu, rng.randrange(1 << self.kmalloc_bits), node, count],
            "kfree": [cpu, first, count],
            "shrink": [cache, cpu],
            "flush": [cache, cpu],
            "reap": [cache, cpu, number],
            "tune": [cache, rng.randrange(len(TUNABLES)), rng.choice(VALUES)],
            "look": [cache, number],
            "wrong_pointer": [cache, number % 8, number, rng.randrange(64)],
            "wrong_place": [cache, number],
        }[name]


def draw_script(seed: int, policies: list[str], length: int) -> Script:
    """Draw the script of a seed."""
    rng = random.Random(seed)
    setup = draw_setup(rng, policies)
    habits = Habits(rng)
    return Script(setup, tuple(habits.step() for _ in range(length)))


# -- running ---------------------------------------------------------------------------


def run_script(script: Script, core: ModuleType = _core) -> Outcome:
    """Run a script, with a check after every step and at the end."""
    outcome, model = Outcome(), None
    try:
        model = Model(script.setup, core)
        for name, arguments in script.steps:
            outcome.steps += 1
            getattr(model, name)(*arguments)
            model.settle()
        model.finish()
    except Refused as error:
        outcome.refused = str(error)
    except Exception as error:
        if model is not None:
            BROKEN.append(model)
        outcome.failure = f"{type(error).__name__}: {error}"
    if model is not None:
        outcome.checks, outcome.ran_out = model.check_count, model.ran_out_count
    return outcome


# -- shortening ------------------------------------------------------------------------

Trial = Callable[[Script], bool]  # does it still fail?


def without_steps(script: Script, fails: Trial) -> Script:
    """Leave out steps, the larger pieces first, for as long as it fails."""
    size = len(script.steps) // 2
    while size > 0:
        start = 0
        while start < len(script.steps):
            steps = script.steps[:start] + script.steps[start + size :]
            shorter = script._replace(steps=steps)
            if fails(shorter):
                script = shorter
            else:
                start += size
        size //= 2
    return script


def without_options(script: Script, fails: Trial) -> Script:
    """Leave out the options, and the caches, that do not matter."""
    for field in ("options", "caches"):
        for item in getattr(script.setup, field):
            rest = tuple(each for each in getattr(script.setup, field) if each != item)
            setup = dataclasses.replace(script.setup, **{field: rest})
            simpler = script._replace(setup=setup)
            if (rest or field == "options") and fails(simpler):
                script = simpler
    return script


def with_small_numbers(script: Script, fails: Trial) -> Script:
    """Make the numbers of each step 0, 1, or half of what they are."""
    for place, (name, arguments) in enumerate(script.steps):
        for at in range(len(arguments)):
            now = script.steps[place][1]
            for value in (0, 1, now[at] // 2):
                numbers = (*now[:at], value, *now[at + 1 :])
                steps = list(script.steps)
                steps[place] = (name, numbers)
                smaller = script._replace(steps=tuple(steps))
                if abs(value) < abs(now[at]) and fails(smaller):
                    script = smaller
                    break
    return script


def shorten(script: Script, fails: Trial, trial_max: int = 400) -> Script:
    """Return the shortest script found that still fails, within a number of trials."""
    left = [trial_max]

    @functools.cache
    def tried(text: str) -> bool:
        left[0] -= 1
        return left[0] >= 0 and fails(Script.from_json(text))

    def trial(candidate: Script) -> bool:
        return tried(candidate.to_json())

    for make_simpler in (without_steps, without_options, with_small_numbers):
        script = make_simpler(script, trial)
    return without_steps(script, trial)
