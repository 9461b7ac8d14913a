"""hackbench moves what the kernel moves: two objects a message, and nothing stays."""

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from slabq import _core
from slabq.errors import Error, OutOfMemory, ParameterError
from slabq.machine import Machine

POLICIES = _core.policies()

pytestmark = pytest.mark.threads


def make(cpus: int = 2, **options: Any) -> _core.Machine:
    return Machine(cpus=cpus, **options).core(1)


def run(
    machine: _core.Machine,
    policy: str = POLICIES[0],
    progress: Callable[[float], object] | None = None,
    **parameters: int,
) -> dict[str, Any]:
    pairs = list(parameters.items())
    text = _core.run(machine, policy, [], "hackbench", pairs, 1, progress)
    row: dict[str, Any] = json.loads(text)
    return row


def bytes_in_use(machine: _core.Machine) -> list[int]:
    return list(json.loads(machine.describe())["bytes_in_use"])


def settle(row: dict[str, Any]) -> tuple[int, int, int]:
    return row["allocations"], row["frees"], row["live"]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_message_is_two_allocations_and_two_frees_under_every_policy(policy):
    row = run(make(), policy, groups=2, loops=200)

    assert row["operations"] == 2 * 20 * 20 * 200
    assert settle(row) == (2 * row["operations"], 2 * row["operations"], 0)
    assert row["rate_unit"] == "messages/s"
    assert row["elapsed_s"] > 0
    assert row["rate"] == pytest.approx(row["operations"] / row["elapsed_s"])


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("cpus", [1, 3, 16])
def test_the_counts_do_not_depend_on_the_number_of_cpus(policy, cpus):
    row = run(make(cpus), policy, groups=3, loops=10)

    assert row["operations"] == 3 * 20 * 20 * 10
    assert settle(row) == (2 * row["operations"], 2 * row["operations"], 0)


@pytest.mark.parametrize(
    ("groups", "fds", "loops"),
    [(1, 1, 1), (1, 1, 1000), (7, 2, 13), (2, 33, 2), (40, 5, 1)],
)
def test_every_sender_reaches_every_receiver_of_its_group(groups, fds, loops):
    row = run(make(), groups=groups, fds=fds, loops=loops)

    assert row["operations"] == groups * fds * fds * loops
    assert settle(row) == (2 * row["operations"], 2 * row["operations"], 0)


@pytest.mark.parametrize("policy", POLICIES)
def test_pipes_move_pages_and_no_object(policy):
    row = run(make(), policy, groups=2, loops=100, pipe=1)

    assert row["operations"] == 2 * 20 * 20 * 100
    assert settle(row) == (0, 0, 0)
    assert row["latency_ns"] == {}
    assert row["memory"]["in_queues_bytes"] == 0
    assert row["locks"]["pcp_lock"]["acquisitions"] > 0


def test_small_writes_to_a_pipe_fill_up_its_last_page():
    one_page_a_message = run(make(1), groups=1, loops=100, pipe=1, message_bytes=4096)
    forty_to_a_page = run(make(1), groups=1, loops=100, pipe=1, message_bytes=100)

    pages = [
        row["locks"]["pcp_lock"]["acquisitions"]
        for row in (one_page_a_message, forty_to_a_page)
    ]
    assert pages[1] <= pages[0] / 20


@pytest.mark.parametrize("policy", POLICIES)
def test_a_run_gives_all_memory_back_and_can_be_repeated(policy):
    machine = make(4, nodes=2)
    before = bytes_in_use(machine)

    rows = [run(machine, policy, groups=2, loops=20) for _ in range(3)]

    assert bytes_in_use(machine) == before
    assert [settle(row) for row in rows] == [(32000, 32000, 0)] * 3


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "parameters", [{}, {"pipe": 1}, {"data_bytes": 65536, "charge_bytes": 65536}]
)
def test_a_run_that_was_stopped_gives_all_memory_back(policy, parameters):
    machine = make(4, nodes=2)
    before = bytes_in_use(machine)
    shares = []

    def stop(share: float) -> None:
        shares.append(share)
        if len(shares) == 3:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        run(machine, policy, stop, groups=4, loops=10**8, **parameters)

    assert bytes_in_use(machine) == before
    assert len(shares) == 3
    assert settle(run(machine, groups=1, loops=1)) == (800, 800, 0)


def test_progress_is_a_share_that_grows():
    shares: list[float] = []

    def note(share: float) -> None:
        shares.append(share)
        if len(shares) >= 5 and share > 0:
            raise StopIteration

    with pytest.raises(StopIteration):
        run(make(), progress=note, groups=2, loops=10**6)

    assert shares == sorted(shares)
    assert all(0 <= share <= 1 for share in shares)


@pytest.fixture
def interrupt_soon() -> Iterator[None]:
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    yield
    timer.cancel()


@pytest.mark.usefixtures("interrupt_soon")
def test_ctrl_c_ends_a_run():
    with pytest.raises(KeyboardInterrupt):
        run(make(), groups=2, loops=10**8)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_machine_that_is_too_small_ends_the_run_and_says_which_node(policy):
    machine = make(4, nodes=2, node_bytes=4 << 20)
    before = bytes_in_use(machine)

    with pytest.raises(
        OutOfMemory, match=r"node [01] was asked.*2 nodes of 4194304 bytes"
    ):
        run(machine, policy, groups=40, loops=1000, sndbuf_bytes=1 << 30)

    assert bytes_in_use(machine) == before


def test_the_share_of_slots_nobody_asked_for_is_that_of_the_two_slots():
    row = run(make(), groups=4, loops=100, latency_interval=8)
    asked, given = 232 + 448, 256 + 512

    # Sampled: half of the timed allocations are heads, give or take.
    assert row["memory"]["internal_fragmentation"] == pytest.approx(
        1 - asked / given, abs=0.005
    )


@pytest.mark.parametrize("interval", [1, 50])
def test_about_one_call_in_latency_interval_is_timed(interval):
    row = run(make(), groups=1, loops=200, latency_interval=interval)

    for path, calls in (("alloc", "allocations"), ("free", "frees")):
        timed = row["latency_ns"][path]
        assert timed["count"] == pytest.approx(row[calls] / interval, rel=0.2)
        assert timed["p50"] <= timed["p90"] <= timed["p99"] <= timed["max"]


def test_no_call_is_timed_when_nobody_asks():
    row = run(make(), groups=1, loops=10, latency_interval=0)

    assert row["latency_ns"] == {}
    assert row["memory"]["internal_fragmentation"] is None


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"groups": 0}, "groups is 0: accepted are 1 to 10000"),
        ({"loops": 10**10}, "loops is 10000000000: accepted are 1 to 1000000000"),
        ({"grups": 1}, "no parameter grups: accepted are groups, loops, fds"),
        ({"slice_calls": -1}, "slice_calls is -1: accepted are 0 to"),
        ({"message_bytes": 500}, "message_bytes is 500: accepted are 1 to 448"),
    ],
)
def test_a_parameter_that_is_not_accepted_is_named(parameters, message):
    with pytest.raises(ParameterError, match=message):
        run(make(), **parameters)


def test_an_unknown_workload_is_named():
    with pytest.raises(
        ParameterError, match="workload is hackbank: accepted are hackbench"
    ):
        _core.run(make(), POLICIES[0], [], "hackbank", [], 1, None)


def test_more_tasks_than_the_host_has_maps_for_are_refused_with_the_reason():
    with open("/proc/sys/vm/max_map_count", encoding="ascii") as file:
        maps = int(file.read())
    if maps > 100_000:
        pytest.skip(f"the host allows {maps} maps: too many to use up here")
    if _core.build_info()["sanitizer"] != "none":
        pytest.skip("the sanitizers have a smaller limit of their own")

    with pytest.raises(Error, match=r"no stack for task .*vm\.max_map_count"):
        run(make(), groups=maps // 80 + 1, loops=1)


def test_the_tables_list_every_parameter_with_its_range():
    [(name, about, rows)] = [row for row in _core.workloads() if row[0] == "hackbench"]
    defaults = {row[0]: row[1] for row in rows}

    assert name == "hackbench"
    assert "sockets or pipes" in about
    assert (defaults["groups"], defaults["loops"], defaults["fds"]) == (10, 100, 20)
    assert defaults["message_bytes"] == 100
    assert {"slice_calls", "wake_affine", "latency_interval"} <= set(defaults)
    assert all(
        low <= value <= high and help_text for _, value, low, high, help_text in rows
    )


@pytest.mark.parametrize("machine_count", [1, 2])
def test_runs_on_one_or_two_machines_go_on_side_by_side(machine_count):
    machines = [make(3) for _ in range(machine_count)]
    rows: list[dict[str, Any]] = []

    def work(number: int) -> None:
        machine = machines[number % machine_count]
        rows.append(run(machine, POLICIES[-1], groups=2, loops=100))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [settle(row) for row in rows] == [(160000, 160000, 0)] * 2
