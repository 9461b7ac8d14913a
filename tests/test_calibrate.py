"""A calibration gives every cost of a machine, and says where each is from."""

import json
import tomllib

import pytest

import slabq
from slabq import _core
from slabq.calibration import Calibration, calibrate
from slabq.calibration_costs import Measured, check_complete, figures_of
from slabq.calibration_host import CalibratedHost
from slabq.cli import main
from slabq.errors import Error, ParameterError

KIB, MIB = 1 << 10, 1 << 20
SIZES = [16 * KIB << n for n in range(15)]
SINGLE = {
    "multiply": 0.9,
    "cas": 6.0,
    "cas_double": 9.0,
    "local_cas": 5.0,
    "exchange": 5.5,
    "lock_pair": 7.5,
}
PAIR = {
    "read_changed": 80.0,
    "cas_changed": 60.0,
    "cas_shared": 75.0,
    "cas_own": 5.0,
    "store_changed": 8.5,
    "store_own": 0.5,
}


def place(cpus=2, nodes=1, llc_of_cpu=None, siblings=None, package=None):
    """A host by hand: 32 KiB, 1 MiB and 16 MiB of cache."""
    return CalibratedHost(
        shape=slabq.Machine(cpus=cpus, nodes=nodes, llc_of_cpu=llc_of_cpu),
        cpus=range(cpus),
        allowed=range(cpus),
        siblings=siblings or [(cpu,) for cpu in range(cpus)],
        package=package or ["0"] * cpus,
        cache_bytes={1: 32 * KIB, 2: MIB, 3: 16 * MIB},
        processor="by hand",
    )


def measured(**changes):
    values = {
        "latencies": {size: 1.0 + n for n, size in enumerate(SIZES)},
        "stream": 3.0,
        "remote": None,
        "single": SINGLE,
        "pairs": {"core": PAIR},
        "handover": 110.0,
        "handover_many": None,
    }
    return Measured(**{**values, **changes})


def figures(host=None, **changes):
    found = list(figures_of(host or place(), measured(**changes)))
    check_complete(found)
    return {figure.name: figure for figure in found}


# -- from times to costs ---------------------------------------------------------------

# Cost -> what the times above make of it.
EXPECTED = {
    "cycle_ps": 300,  # three cycles a multiplication
    "l1_lines": 512,
    "l2_lines": 16384,
    "llc_lines": 262144,
    "l1_hit_ps": 1000,  # 16 KiB, half of the L1
    "l2_hit_ps": 5000,  # 256 KiB, a quarter of the L2
    "llc_hit_ps": 8000,  # 2 MiB, twice the L2
    "dram_local_ps": 15000,  # the largest
    "stream_percent": 20,
    "core_transfer_ps": 80000,
    "upgrade_core_ps": 70000,
    "store_wait_percent": 10,
    "atomic_ps": 5000,  # less a load of the L1
    "cas_double_ps": 8000,
    "local_cas_ps": 4000,
    "lock_acquire_ps": 4500,
    "lock_release_ps": 1000,
    "lock_handover_ps": 30000,  # less the transfer of its line
    "lock_handover_per_waiter_ps": 0,
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_cost_is_worked_out_from_the_times(name):
    assert figures()[name].value == EXPECTED[name]


def test_every_cost_says_where_it_is_from_and_how_sure_it_is():
    for figure in figures().values():
        assert figure.source
        assert figure.confidence in ("high", "medium", "low")
    assert figures()["atomic_ps"].source.startswith("measured by slabq calibrate on ")


def test_interrupts_and_the_scheduler_are_not_called_measured():
    found = figures()
    for name in ("irq_save_ps", "irq_restore_ps", "ipi_ps", "context_switch_ps"):
        assert found[name].origin == "not measured"
        assert found[name].confidence == "low"


@pytest.mark.parametrize("handover", [None, -1.0])
def test_a_lock_that_could_not_be_measured_is_not_called_measured(handover):
    figure = figures(handover=handover)["lock_handover_ps"]

    assert figure.origin == "not measured"
    assert figure.confidence == "low"


def test_a_host_of_one_cpu_has_all_costs_too():
    found = figures(place(cpus=1), pairs={}, handover=None)

    assert found["core_transfer_ps"].origin == "not measured"


def test_no_cost_is_below_zero_however_noisy_the_times():
    noisy = {**PAIR, "cas_shared": 1.0, "store_changed": 0.1, "read_changed": 200.0}
    single = {**SINGLE, "lock_pair": 1.0, "cas": 0.5}

    found = figures(pairs={"core": noisy}, single=single)

    assert min(figure.value for figure in found.values()) == 0
    assert found["lock_handover_ps"].value == 0


def test_memory_smaller_than_the_last_level_cache_is_of_low_confidence():
    host = place()
    large = {**host.cache_bytes, 3: 480 * MIB}
    host = CalibratedHost(**{**vars(host), "cache_bytes": large})

    figure = figures(host)["dram_local_ps"]

    assert figure.confidence == "low"
    assert "480 MiB" in figure.source


def test_waiters_of_other_caches_slow_a_lock_by_what_was_measured():
    host = place(cpus=4, llc_of_cpu=[0, 1, 2, 3])
    found = figures(host, pairs={"socket": PAIR}, handover_many=(4, 150.0))

    assert found["lock_handover_per_waiter_ps"].value == 20_000


def test_threads_of_a_core_count_only_where_cpus_are_numbered_alike():
    regular = place(cpus=4, siblings=[(0, 2), (1, 3), (0, 2), (1, 3)])
    adjacent = place(cpus=4, siblings=[(0, 1), (0, 1), (2, 3), (2, 3)])

    assert regular.threads_per_core == 2
    assert adjacent.threads_per_core == 1


def test_two_threads_of_one_core_are_no_pair():
    host = place(cpus=4, siblings=[(0, 1), (0, 1), (2, 3), (2, 3)])

    assert host.pair(lambda a, b: True) == (0, 2)


# -- the machine file ------------------------------------------------------------------


def test_the_machine_file_is_read_as_the_machine(tmp_path):
    found = Calibration(place().shape, list(figures().values()), {4096: 1.5}, "x")
    path = tmp_path / "me.toml"

    found.save(path)

    read = slabq.read_machine(path)
    assert read.costs == found.machine.costs
    assert (read.cpus, read.node_of_cpu) == (2, (0, 0))
    assert tomllib.loads(path.read_text())["latency_ns_by_bytes"] == {"4096": 1.5}


def test_a_host_with_an_odd_name_makes_a_file_all_the_same():
    found = Calibration(place().shape, [], {}, 'a "b" \\ \n c = 3 \N{SNOWMAN}')

    assert "c" not in tomllib.loads(found.toml())


# -- this host -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def here():
    return calibrate(progress=False)


@pytest.mark.unsanitized
def test_this_host_is_measured_and_runs_on_the_sim_engine(here, tmp_path, capsys):
    check_complete(here.figures)
    path = tmp_path / "me.toml"
    here.save(path)

    words = ["run", "hackbench", "-g", "1", "-l", "10", "-p", "slab,slub"]
    status = main([*words, "-m", str(path), "-e", "sim", "--json"])
    rows = json.loads(capsys.readouterr().out)["results"]

    assert status == 0
    assert [row["operations"] for row in rows] == [4000, 4000]


@pytest.mark.unsanitized
def test_the_table_names_every_cost(here):
    text = here.table().format("text")

    for figure in here.figures:
        assert figure.name in text
    assert max(map(len, text.splitlines())) <= 78


REFUSED = {
    "CPU": lambda: _core.calibrate_one(4000),
    "pair": lambda: _core.calibrate_two(0, 4000),
    "home": lambda: _core.calibrate_chase(4096, False, 0, 4000),
    "bytes": lambda: _core.calibrate_chase(64, False, 0, 0),
    "lockers": lambda: _core.calibrate_lock([0]),
    "locker": lambda: _core.calibrate_lock([0, 4000]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_measured_is_refused_in_one_line(name):
    with pytest.raises(Error, match="accepted are") as caught:
        REFUSED[name]()

    assert "\n" not in str(caught.value)


def test_a_file_that_could_not_be_written_is_refused_before_the_work(capsys):
    assert main(["calibrate", "-o", "no/such/x.toml"]) == 2
    assert "'no/such/x.toml'" in capsys.readouterr().err


def test_a_missing_cost_is_named():
    with pytest.raises(ParameterError, match="cycle_ps is missing"):
        check_complete([])
