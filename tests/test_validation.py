"""The simulated machine against closed forms of its parameters, and in strict order."""

import json

import pytest

import slabq
from slabq import _core
from slabq.cli import main
from slabq.closed_forms import closed_forms
from slabq.costs import check_costs
from slabq.machine import Machine, find_machine, machine_presets
from slabq.validation import HostRow, OrderRow, Validation, validate

PRESETS = list(machine_presets())
# Round figures of a machine with everything: threads, an L2 beside the L1, two caches a
# socket, two nodes at an odd distance, queues that lines do wait in.
ODD = Machine(
    cpus=16,
    nodes=2,
    distance=[[10, 23], [17, 10]],
    llc_of_cpu=[0, 0, 1, 1, 2, 2, 3, 3] * 2,
    node_of_cpu=[0, 0, 0, 0, 1, 1, 1, 1] * 2,
    costs={
        "threads_per_core": 2,
        "domains_per_socket": 2,
        "memory_line_ps": 250_000,
        "link_line_ps": 90_000,
        "l2_hit_ps": 5_000,
    },
    name="odd",
)


def with_cost(machine: Machine, **changes: int) -> Machine:
    return machine.replace(costs={**dict(check_costs(machine.costs)), **changes})


# ---- closed forms --------------------------------------------------------------------


@pytest.mark.parametrize("strict", [0, 1])
@pytest.mark.parametrize("name", [*PRESETS, "odd"])
def test_every_primitive_takes_what_the_parameters_say(name, strict):
    machine = ODD if name == "odd" else find_machine(name)

    forms = closed_forms(machine, run_on=with_cost(machine, strict=strict))

    assert len(forms) >= 30
    assert [form for form in forms if not form.holds] == []


def test_a_last_level_cache_as_large_as_a_servers_has_its_forms():
    """32 MiB: the age of a line wraps on the way through twice as many, twice."""
    machine = with_cost(find_machine("i7-4790"), llc_lines=1 << 19)

    assert [form for form in closed_forms(machine) if not form.holds] == []


def expected_ps(machine: Machine) -> dict[str, int]:
    return {form.case: form.expected_ps for form in closed_forms(machine)}


def test_the_formulas_are_those_of_the_machine_file():
    """Figures worked out by hand from the values in penryn-2x4.toml, in ps."""
    found = expected_ps(find_machine("penryn-2x4"))

    assert found["10 turns at a word, same cache"] == 10 * (50_000 + 8_568)
    assert found["10 turns at a word, same socket"] == 10 * (130_000 + 8_568)
    assert found["10 turns at a word, other socket"] == 10 * (145_000 + 8_568)
    assert found["10 times a lock nobody wants"] == 10 * (8_568 + 7_854 + 2 * 1_071)
    assert found["1000 lines in a row"] == 111_000 + 999 * 27_750
    assert found["10 x irqs off, on"] == 10 * (7_140 + 6_783)
    # 150 cycles of 357 ps; the list's lock, the frame, the lock again.
    page_ps = 150 * 357 + 8_568 + 7_854 + 3 * 1_071
    assert found["page from the CPU's list"] == page_ps
    # CPU 0 holds; 1 shares its cache, 2 and 3 the other one of the socket.
    one, two = 50_000, 130_000 + 50_000
    assert found["lock through 1 waiter"] == one
    # The line to CPU 1 waits for the copy of CPU 2 to go, and one more cache spins.
    assert found["lock through 2 waiters"] == one + 90_000 + 72_000 + 130_000
    assert found["lock through 3 waiters"] == one + 90_000 + 72_000 + two


def test_the_formulas_of_tasks_are_those_of_the_machine_file():
    """Worked out by hand from penryn-2x4.toml: a lock is 16,422 ps and two touches."""
    found = expected_ps(find_machine("penryn-2x4"))

    # Back into the queue and out of it, each the lock and the load: 6 touches.
    queues_ps = 2 * 16_422 + 6 * 1_071
    choose_ps = 200_000 + 600_000
    assert found["10 yields to another task"] == 10 * (queues_ps + choose_ps)
    # One lock more, that of what is waited for.
    wait_ps = 16_422 + 2 * 1_071 + 300_000
    assert found["10 wake-ups, same CPU"] == 10 * (wait_ps + queues_ps + choose_ps)
    # An idle CPU goes on with the task it had. Three locks of 50 ns away, of which the
    # last is let go as well; the load's line twice, of which 45 % are waited for.
    line_ps = 3 * (50_000 + 8_568) + 2 * 22_500 + 7_854 + 1_071
    idle_ps = 300_000 + 200_000 + 2_000_000 + 200_000
    assert found["10 wake-ups, same cache"] == 10 * (line_ps + idle_ps)
    # From the other cache the load follows its lock: a fourth of that.
    line_ps = 3 * (130_000 + 8_568) + 2 * 14_625 + 7_854 + 1_071
    assert found["10 wake-ups, same socket"] == 10 * (line_ps + idle_ps)


def test_an_unfair_lock_goes_to_one_waiter_after_the_other_and_behind_nobody():
    """Of two waiters either may be the first; both sums worked out by hand."""
    found = expected_ps(find_machine("penryn-2x4"))

    assert found["unfair lock through 1 waiter"] == 50_000
    # CPU 1 of the same cache while 2 waits, then 2 of the other; or 2, then 1.
    orders = {50_000 + 90_000 + 130_000, 130_000 + 130_000}
    assert found["unfair lock through 2 waiters"] in orders


@pytest.mark.parametrize("is_unfair", [0, 1])
@pytest.mark.parametrize("name", [*PRESETS, "odd"])
def test_a_lock_of_the_wrong_kind_is_caught(name, is_unfair):
    machine = ODD if name == "odd" else find_machine(name)
    costs = dict(check_costs(machine.costs))
    if costs["lock_handover_per_waiter_ps"] == 0:
        machine = with_cost(machine, lock_handover_per_waiter_ps=1)
    right = with_cost(machine, lock_is_unfair=is_unfair)
    wrong = with_cost(machine, lock_is_unfair=1 - is_unfair)

    forms = closed_forms(right, run_on=wrong)

    caught = [form.case for form in forms if not form.holds]
    # Behind one cache nobody spins elsewhere; then only the order tells them apart.
    assert caught or len(set(machine.llc_of_cpu)) == 1
    assert all("waiters" in case for case in caught)
    assert all(form.holds for form in closed_forms(right))


@pytest.mark.parametrize("cpus", [1, 2])
def test_a_small_machine_has_the_forms_of_tasks_that_it_can_have(cpus):
    found = closed_forms(find_machine("penryn-2x4").replace(cpus=cpus, llc_of_cpu=None))

    woken = [form.case for form in found if "wake-ups" in form.case]
    assert woken == ["10 wake-ups, same CPU", "10 wake-ups, same cache"][:cpus]
    assert all(form.holds for form in found)


def test_two_cpus_of_two_caches_have_run_queues_side_by_side():
    """The lock of one follows the load of the other, and so is on its way already."""
    machine = find_machine("penryn-2x4").replace(cpus=2, llc_of_cpu=[0, 1])

    (form,) = [f for f in closed_forms(machine) if f.case == "10 wake-ups, same socket"]

    assert form.holds
    # Of the turns to CPU 1, half of all, one lock's line is a fourth.
    there_ps = 2 * 130_000 + 32_500 + 3 * 8_568 + 2 * 14_625 + 7_854 + 1_071
    back_ps = there_ps + 130_000 - 32_500
    idle_ps = 300_000 + 200_000 + 2_000_000 + 200_000
    assert form.expected_ps == 5 * (there_ps + back_ps) + 10 * idle_ps


def test_a_bus_that_a_lines_way_keeps_busy_has_no_form_of_wake_ups():
    machine = with_cost(find_machine("penryn-2x4"), bus_line_ps=200_000)

    cases = {form.case: form.holds for form in closed_forms(machine)}

    assert cases["10 wake-ups, same CPU"]
    assert "10 wake-ups, same socket" not in cases


# What no closed form depends on: sizes (a cache that is a little larger holds the same
# lines), faults, and the policies' own paths. lock_is_unfair has tests of its own.
WITHOUT_FORM = {
    "threads_per_core",
    "domains_per_socket",
    "l1_lines",
    "l2_lines",
    "llc_lines",
    "bus_snoop_ps",
    "lock_is_unfair",
    "lock_line_is_polled",
    "strict",
    "fault_pages_ppm",
    "fault_local_cas_ppm",
    "jitter_ps",
}


# Long enough for lines to queue up; shorter times show nowhere.
QUEUES = {"bus_line_ps": 200_000, "link_line_ps": 900_000}


def parameters_with_a_form() -> list[str]:
    names = [row[0] for row in _core.SimMachine.parameters()]
    paths = {name for name in names if name.endswith("_cycles")}
    paths -= {"page_alloc_cycles", "page_free_cycles"}
    return [name for name in names if name not in WITHOUT_FORM | paths]


@pytest.mark.parametrize("name", parameters_with_a_form())
def test_a_machine_with_one_wrong_constant_is_caught(name):
    """Formulas of the right value, run on a machine whose value is another."""
    caught = []
    for machine in (find_machine("penryn-2x4"), ODD):
        right = dict(check_costs(machine.costs))[name]
        large = QUEUES.get(name, right // 2 + 3)
        wrong = with_cost(machine, **{name: large})
        caught += [f.case for f in closed_forms(machine, run_on=wrong) if not f.holds]

    assert caught


@pytest.mark.parametrize("name", ["l1_lines", "l2_lines", "llc_lines"])
def test_a_cache_of_another_size_is_caught(name):
    machine = find_machine("opteron-4x4")
    small = dict(check_costs(machine.costs))[name] // 8

    forms = closed_forms(machine, run_on=with_cost(machine, **{name: small}))

    assert any("again" in form.case for form in forms if not form.holds)


STEPS_REFUSED = {
    "no such kind": ("fly", 0, 0, 0, 1),
    "no such CPU": ("read", 8, 0, 0, 1),
    "no such node": ("read", 0, 1, 0, 1),
    "no line": ("read", 0, 0, 0, 0),
    "beyond the node": ("read", 0, 0, 1 << 24, 1 << 24),
    "count that wraps": ("read", 0, 0, 0, 1 << 63),
    "line that wraps": ("read", 0, 0, 1 << 63, 1),
    "order too large": ("pages_alloc", 0, 0, 0, 11),
    "nothing to free": ("pages_free", 0, 0, 0, 0),
    "block that is kept": ("pages_alloc", 0, 0, 0, 0),
}


@pytest.mark.parametrize("name", STEPS_REFUSED)
def test_a_step_that_cannot_be_is_refused(name):
    machine = find_machine("penryn-2x4").replace(node_bytes=64 << 20)

    with pytest.raises(slabq.ParameterError, match="accepted are"):
        _core.probe(machine.core(1, "sim"), [STEPS_REFUSED[name]])


@pytest.mark.parametrize("cpus", [0, 1, 9])
def test_waiters_that_cannot_be_are_refused(cpus):
    with pytest.raises(slabq.ParameterError, match="accepted are 2 to"):
        _core.probe_waiters(find_machine("penryn-2x4").core(1, "sim"), cpus)


@pytest.mark.parametrize(
    ("turns", "other", "yields", "says"),
    [
        (0, 0, False, "0 turns: accepted are 1 to 1000"),
        (1001, 0, False, "1001 turns"),
        (10, 8, False, "CPU 8: accepted are 0 to 7"),
        (10, 1, True, "accepted are 0 to 7, and 0 for tasks that yield"),
    ],
)
def test_turns_that_cannot_be_are_refused(turns, other, yields, says):
    core = find_machine("penryn-2x4").core(1, "sim")

    with pytest.raises(slabq.ParameterError, match=says):
        _core.probe_turns(core, turns, other, yields)


@pytest.mark.parametrize(("other", "yields"), [(0, True), (0, False), (5, False)])
def test_every_turn_of_two_tasks_takes_the_same_once_their_lines_are_placed(
    other, yields
):
    core = find_machine("penryn-2x4").core(1, "sim")

    turns = _core.probe_turns(core, 20, other, yields)

    assert len(turns) == 20
    assert len(set(turns[4:])) == 1
    assert 0 < max(turns) < 10_000_000


def test_only_a_simulated_machine_can_be_probed():
    with pytest.raises(TypeError, match="SimMachine"):
        _core.probe(Machine(cpus=2).core(), [])


# ---- order ---------------------------------------------------------------------------

SAME_ORDER = {
    "kmalloc": {"test": "pairs", "loops": 1, "at_once": 1},
    "churn": {"tasks": 1, "replacements": 20_000},
}


@pytest.mark.parametrize("policy", ["slab", "slub", "slub+q", "sheaves"])
@pytest.mark.parametrize("name", SAME_ORDER)
def test_one_cpu_alone_is_the_same_in_any_order(name, policy):
    """Without another CPU there is nothing to order: all of it must be equal."""
    values = {k: v for k, v in SAME_ORDER[name].items() if known(name, k)}
    rows = [
        slabq.run(name, policy=policy, machine=m, engine="sim", **values).sample
        for m in (one_cpu(), with_cost(one_cpu(), strict=1))
    ]

    for key in ("elapsed_s", "operations", "counters", "locks", "profile", "memory"):
        assert rows[0][key] == rows[1][key], key


def one_cpu() -> Machine:
    return find_machine("penryn-2x4").replace(cpus=1)


def known(workload: str, parameter: str) -> bool:
    return parameter in slabq.workload_kinds()[workload].parameters


@pytest.mark.parametrize("policy", ["slab", "slub", "slub+q", "sheaves"])
def test_strict_order_does_the_same_work(policy):
    """What a workload asks for does not depend on the order; where it is found may."""
    machine = find_machine("penryn-2x4")
    rows = [
        slabq.run(
            "hackbench", policy=policy, machine=m, engine="sim", groups=2, loops=20
        ).sample
        for m in (machine, with_cost(machine, strict=1))
    ]

    assert rows[0]["operations"] == rows[1]["operations"] == 2 * 20 * 20 * 20
    for key in ("allocations", "frees", "live"):
        assert rows[0][key] == rows[1][key], key
    assert rows[0]["fingerprint"] != rows[1]["fingerprint"]


def test_rows_of_both_orders_are_compared():
    found = validate("order", quick=True, progress=False)

    assert {row.work for row in found.order} == {
        "hackbench -g 10",
        "tcp_rr",
        "kmalloc, 8 CPUs",
    }
    for row in found.order:
        assert row.operations == row.strict_operations > 0
        assert len(row.ns) == len(row.strict_ns) == 2  # seeds of the quick size
        assert min(*row.ns, *row.strict_ns) > 0
        assert row.ns[0] != row.ns[1]  # its events are late by other times


# ---- the command ---------------------------------------------------------------------


def test_the_command_prints_expected_and_got_and_the_formula(capsys, tmp_path):
    page = tmp_path / "page.md"

    status = main(["validate", "forms", "-m", "penryn-2x4", "-o", str(page)])

    out = capsys.readouterr().out
    assert status == 0
    assert "expected [ns]" in out
    assert "10 turns at a word, same cache: 10 atomic_ps + 10 core_transfer_ps" in out
    assert max(map(len, out.splitlines())) <= 78
    assert "closed forms on penryn-2x4, simulated" in page.read_text()


def test_the_json_of_the_command_is_one_document(capsys):
    assert main(["validate", "forms", "--json"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert found["holds"] is True
    assert {form["machine"] for form in found["forms"]} == set(PRESETS)
    assert found["host"] == found["order"] == []


def test_a_form_that_does_not_hold_gives_status_1(capsys, monkeypatch):
    machine = find_machine("penryn-2x4")
    wrong = closed_forms(machine, run_on=with_cost(machine, atomic_ps=1))
    monkeypatch.setattr("slabq.validation.closed_forms", lambda _: wrong)

    assert main(["validate", "forms", "-m", "penryn-2x4"]) == 1
    assert "NO" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["form"], "unknown part 'form': known are forms"),
        (["forms", "-m", "penryn"], "unknown machine 'penryn'"),
        (["forms", "-o", "no/such/page.md"], "no folder for 'no/such/page.md'"),
    ],
)
def test_a_wrong_word_is_told_in_one_line(capsys, words, says):
    assert main(["validate", *words]) == 2

    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1


@pytest.mark.unsanitized  # an instrumented build is no measurement of this host
def test_this_host_is_measured_beside_and_never_in_one_column(capsys):
    found = validate("host", quick=True, progress=False)

    assert {row.policy for row in found.host} == set(slabq.policy_names())
    for row in found.host:
        assert len(row.native_ns) == 5
        assert min(row.native_ns) > 0
        assert row.sim_user_ns > 0
        if not row.work.startswith("hand-over"):  # what two CPUs do to each other
            assert row.sim_user_ns <= row.sim_ns
    (section,) = found.table().sections
    assert "measured" in section.columns
    assert "sim" in section.columns


def test_what_was_found_goes_through_json():
    host = HostRow("pairs", "slab", [10.0, 12.0, 50.0], 24.0, 9.0)
    order = OrderRow("work", "machine", "slab", [90.0, 110.0], [99.0], 1.0, 1.5, 7, 7)
    document = Validation([], [host], [order], False).to_dict()

    assert json.loads(json.dumps(document)) == document
    assert document["host"][0]["ratio"] == 2.0
    assert document["order"][0]["host_ratio"] == 1.5
    assert document["order"][0]["ratio"] == 0.99


def test_order_is_a_table_of_means_and_one_of_ratios_seed_by_seed():
    """Worked out by hand: means 100 and 90, seeds 80/90 and 100/110."""
    slab = OrderRow("work", "m", "slab", [90.0, 110.0], [80.0, 100.0], 1.0, 2.0, 7, 7)
    slub = OrderRow("work", "m", "slub", [80.0, 100.0], [40.0, 50.0], 1.0, 2.0, 7, 7)
    times, ratios = Validation([], [], [slab, slub], False).table().sections

    assert times.rows[0] == [
        "work",
        "slab",
        "100.0",
        "90..110",
        "90.0",
        "80..100",
        "0.900",
        "2.00",
    ]
    assert "mean of 2 seeds" in times.notes[0]
    assert times.notes[-1] == "policies of 2.6.35; work: m"
    assert ratios.rows == [
        ["work", "slub", "0.900", "0.889..0.909", "0.500", "0.500..0.500"]
    ]
