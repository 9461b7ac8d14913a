"""Every policy against the simplest model of an allocator: a set of live objects.

A hypothesis state machine draws a machine of up to 16 CPUs and 4 nodes, a kernel
profile, options anywhere in their ranges, the caches, and which operations there are at
all (swarm testing). After every step the policy's own check() runs, and what it counts
is compared with the model. What the operations do, model.py says.
"""

import contextlib
import functools
from types import ModuleType

import pytest
from hypothesis import HealthCheck, reject, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from model import ANY, BROKEN, TUNABLES, Model, Refused, Setup, Shape
from scripts import (
    ALIGNS,
    FLAGS,
    NODE_BYTES,
    SIZES,
    TOPOLOGIES,
    VALUES,
    WEIGHTS,
)

from slabq import _core
from slabq.policy import kernel_profiles

CACHES, CPUS, NUMBERS = st.integers(0, 2), st.integers(0, 15), st.integers(0, 999)
NODES, COUNTS = st.integers(ANY, 3), st.integers(1, 120)
SHAPES = st.builds(
    Shape,
    size=st.one_of(st.sampled_from(SIZES), st.integers(1, 9000)),
    align=st.sampled_from(ALIGNS),
    flags=st.lists(st.sampled_from(FLAGS), unique=True, max_size=3).map(sum),
    sheaf_capacity=st.sampled_from([0, 1, 4, 30, 200]),
)


def option_values(low: int, high: int, default: int) -> st.SearchStrategy[int]:
    """Give the ends of an option's range, its default, or anything between."""
    ends = st.sampled_from([default, low, high])
    near = st.integers(low, min(high, low + 100))
    return st.one_of(ends, near, st.integers(low, high))


@st.composite
def options_of(draw: st.DrawFn, policy: str) -> tuple[tuple[str, int], ...]:
    """Give a kernel profile, or the defaults, with some options changed."""
    profiles = [{}, *(row.values for row in kernel_profiles(policy).values())]
    options = dict(draw(st.sampled_from(profiles)))
    rows = [row[1:5] for row in _core.options() if row[0] == policy]
    for name, default, low, high in draw(st.lists(st.sampled_from(rows), max_size=6)):
        options[name] = draw(option_values(low, high, default))
    if options.get("cache_line_size", 64) not in (32, 64, 128):
        options["cache_line_size"] = 128
    return tuple(options.items())


def known(**strategies: st.SearchStrategy[int]):
    """Make a rule that is there if the run has drawn its name."""

    def make(function):
        name = function.__name__

        @functools.wraps(function)
        def step(self, **numbers):
            with self.keeping_what_breaks():
                function(self, **numbers)

        return precondition(lambda self: name in self.names)(rule(**strategies)(step))

    return make


class PolicyModel(RuleBasedStateMachine):
    policy: str
    core: ModuleType = _core

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.model: Model | None = None

    @initialize(
        data=st.data(),
        names=st.sets(st.sampled_from(sorted(WEIGHTS)), min_size=4),
        topology=st.sampled_from(TOPOLOGIES),
        node_bytes=st.sampled_from(NODE_BYTES),
        shapes=st.lists(SHAPES, min_size=1, max_size=3),
    )
    def build(self, data, names, topology, node_bytes, shapes):
        options = data.draw(options_of(self.policy))
        setup = Setup(self.policy, *topology, node_bytes, options, tuple(shapes))
        try:
            self.model = Model(setup, self.core)
        except Refused:
            reject()
        self.names = names | {"alloc"}

    @known(cache=CACHES, cpu=CPUS, node=NODES, count=COUNTS)
    def alloc(self, cache, cpu, node, count):
        self.model.alloc(cache, cpu, node, count)

    @known(cache=CACHES, cpu=CPUS, first=NUMBERS, count=COUNTS)
    def free(self, cache, cpu, first, count):
        self.model.free(cache, cpu, first, count)

    @known(cache=CACHES, cpu=CPUS, count=st.integers(0, 120))
    def alloc_bulk(self, cache, cpu, count):
        self.model.alloc_bulk(cache, cpu, count)

    @known(cache=CACHES, cpu=CPUS, first=NUMBERS, count=st.integers(0, 120))
    def free_bulk(self, cache, cpu, first, count):
        self.model.free_bulk(cache, cpu, first, count)

    @known(cache=CACHES, cpu=CPUS, count=COUNTS, number=NUMBERS)
    def prefill(self, cache, cpu, count, number):
        self.model.prefill(cache, cpu, count, number)

    @known(cpu=CPUS, size=st.integers(0, 1 << 22), node=NODES, count=COUNTS)
    def kmalloc(self, cpu, size, node, count):
        self.model.kmalloc(cpu, size, node, count)

    @known(cpu=CPUS, first=NUMBERS, count=COUNTS)
    def kfree(self, cpu, first, count):
        self.model.kfree(cpu, first, count)

    @known(cache=CACHES, cpu=CPUS)
    def shrink(self, cache, cpu):
        self.model.shrink(cache, cpu)

    @known(cache=CACHES, cpu=CPUS)
    def flush(self, cache, cpu):
        self.model.flush(cache, cpu)

    @known(cache=CACHES, cpu=CPUS, with_node=st.integers(0, 1))
    def reap(self, cache, cpu, with_node):
        self.model.reap(cache, cpu, with_node)

    @known(
        cache=CACHES,
        name=st.integers(0, len(TUNABLES) - 1),
        value=st.one_of(st.sampled_from(VALUES), st.integers(0, 300)),
    )
    def tune(self, cache, name, value):
        self.model.tune(cache, name, value)

    @known(cache=CACHES, number=NUMBERS)
    def look(self, cache, number):
        self.model.look(cache, number)

    @known(cache=CACHES, kind=st.integers(0, 7), number=NUMBERS, offset=NUMBERS)
    def wrong_pointer(self, cache, kind, number, offset):
        self.model.wrong_pointer(cache, kind, number, offset)

    @known(cache=CACHES, kind=st.integers(0, 2))
    def wrong_place(self, cache, kind):
        self.model.wrong_place(cache, kind)

    @invariant()
    def the_policy_is_sound_and_counts_what_the_model_counts(self):
        if self.model is not None:
            with self.keeping_what_breaks():
                self.model.settle()

    def teardown(self):
        if self.model is not None:
            with self.keeping_what_breaks():
                self.model.finish()

    @contextlib.contextmanager
    def keeping_what_breaks(self):
        """Touch a heap no more once something was found: it might crash."""
        try:
            yield
        except Exception:
            BROKEN.append(self.model)
            self.model = None
            raise


def run_model(policy: str, core: ModuleType = _core, **limits: object) -> None:
    """Run the state machine on a policy; an exception tells what it found."""
    machine = type("Machine", (PolicyModel,), {"policy": policy, "core": core})
    base = {"max_examples": 40, "stateful_step_count": 30, "derandomize": True}
    rules = {"deadline": None, "database": None}
    rules["suppress_health_check"] = list(HealthCheck)
    run_state_machine_as_test(machine, settings=settings(**(base | rules | limits)))


def test_every_operation_of_the_model_is_a_rule():
    assert set(WEIGHTS) <= set(vars(PolicyModel))


@pytest.mark.parametrize("policy", _core.policies())
def test_a_policy_agrees_with_the_model_after_every_step(policy):
    run_model(policy)
