"""Rebuilding published tables: what is run, what is kept, what is said of it.

Nothing is simulated here: a laboratory of plain numbers stands in for the engine.
"""

import dataclasses
import importlib
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
from small_table import SMALL, Numbers, module, rebuild

import slabq
from slabq import kept_runs
from slabq.cli import main
from slabq.errors import Error
from slabq.published import Window, find_table, read_table
from slabq.reproduction import cell_value
from slabq.verdict import (
    median_ratio_error,
    sign_agreement,
    verdict_of,
    worst_verdict,
)

commands = importlib.import_module("slabq.cli_reproduce")


@pytest.fixture
def small():
    return read_table(SMALL, "small")


# -- verdicts --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("published", "ratio", "verdict"),
    [
        (0.80, 0.80, "reproduced"),
        (0.80, 0.84, "reproduced"),
        (0.80, 0.76, "reproduced"),
        (0.80, 0.841, "direction"),
        (0.80, 0.759, "direction"),
        (0.80, 0.9999, "direction"),
        (0.80, 1.0, "missed"),
        (0.80, 1.3, "missed"),
        (1.25, 1.3125, "reproduced"),
        (1.25, 1.32, "direction"),
        (1.25, 0.99, "missed"),
        (14.0, 14.6, "reproduced"),
        (0.99, 1.01, "tie"),
        (1.02, 0.98, "tie"),
        (1.021, 0.999, "missed"),
        (1.001, 0.979, "missed"),
        (1.01, 1.005, "reproduced"),
        (1.0, 1.0, "reproduced"),
        (1.0, 1.02, "tie"),
        (1.0, 1.03, "missed"),
        (1.02, 1.0, "tie"),
    ],
)
def test_a_verdict_follows_from_sign_and_distance(published, ratio, verdict):
    assert verdict_of(published, ratio) == verdict


@pytest.mark.parametrize(
    ("verdicts", "worst"),
    [
        ([], None),
        (["reproduced"], "reproduced"),
        (["reproduced", "direction"], "direction"),
        (["tie", "direction"], "tie"),
        (["missed", "reproduced"], "missed"),
    ],
)
def test_a_row_has_the_worst_verdict_of_its_cells(verdicts, worst):
    assert worst_verdict(verdicts) == worst


@pytest.mark.parametrize(
    ("pairs", "agreement"),
    [
        ([], None),
        ([(0.8, 0.9)], 1.0),
        ([(0.8, 0.9), (1.2, 0.9), (1.2, 1.1), (0.99, 1.01)], 0.5),
    ],
)
def test_sign_agreement_is_the_share_of_cells_with_the_published_sign(pairs, agreement):
    assert sign_agreement(pairs) == agreement


@pytest.mark.parametrize(
    ("pairs", "error"),
    [
        ([], None),
        ([(2.0, 3.0)], 0.5),
        ([(2.0, 1.0), (1.0, 1.0), (1.0, 1.25)], 0.25),
        ([(2.0, 1.0), (1.0, 1.25)], 0.375),
    ],
)
def test_the_ratio_error_is_the_median_distance(pairs, error):
    assert median_ratio_error(pairs) == error


# -- what is run -----------------------------------------------------------------------


def test_a_cell_is_run_once_for_each_seed_and_shared_by_equal_rows(small):
    laboratory = Numbers()

    rebuild(small, laboratory)

    assert len(laboratory.ran) == 2 * 3 * 3  # two configurations, columns, seeds
    assert len(set(laboratory.ran)) == len(laboratory.ran)
    assert {seed for _, seed in laboratory.ran} == {1, 2, 3}


@pytest.mark.parametrize(
    ("quick", "warmup", "measure"), [(False, 100, 200), (True, 10, 20)]
)
def test_a_cell_is_run_with_the_window_and_the_population(
    small, quick, warmup, measure
):
    laboratory = Numbers()

    rebuild(small, laboratory, quick=quick)

    assert {cell.parameters for cell, _ in laboratory.ran} == {
        (
            ("groups", groups),
            ("loops", 1000),
            ("measure_operations", measure),
            ("warmup_operations", warmup),
        )
        for groups in (1, 2)
    }


def test_what_was_interrupted_goes_on_from_the_runs_that_were_finished(small, tmp_path):
    path = tmp_path / "runs.jsonl"
    first, second, third = Numbers(stop_after=7), Numbers(), Numbers()

    with pytest.raises(KeyboardInterrupt):
        rebuild(small, first, store=module.Store(path))
    resumed = rebuild(small, second, store=module.Store(path))
    again = rebuild(small, third, store=module.Store(path))

    assert (len(first.ran), len(second.ran), len(third.ran)) == (7, 11, 0)
    assert resumed.to_dict() == again.to_dict() == rebuild(small).to_dict()


def test_a_line_that_was_cut_off_is_run_again(small, tmp_path):
    path = tmp_path / "runs.jsonl"
    rebuild(small, store=module.Store(path))
    path.write_bytes(path.read_bytes()[:-20])
    second, third = Numbers(), Numbers()

    rebuild(small, second, store=module.Store(path))
    rebuild(small, third, store=module.Store(path))

    assert (len(second.ran), len(third.ran)) == (1, 0)


def test_runs_of_another_build_are_not_taken(small, tmp_path):
    path = tmp_path / "runs.jsonl"
    rebuild(small, store=module.Store(path))
    other = Numbers(build=2)

    rebuild(small, other, store=module.Store(path))

    assert len(other.ran) == 18


def kept(monkeypatch, tmp_path):
    """A cache folder of the test's own, and a function that rebuilds as a command."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def runs_of(table, folder):
        laboratory = Numbers()
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        rebuild(table, laboratory, store=kept_runs.open_store(folder))
        return len(laboratory.ran)

    return runs_of


# Where runs are written by one call and the next -> how many the second makes of 18.
PLACES = {
    "cache, then a folder": (None, "one", 0),
    "a folder, then the cache": ("one", None, 0),
    "a folder, then another": ("one", "two", 0),
    "the same folder": ("one", "one", 0),
    "the cache twice": (None, None, 0),
}


@pytest.mark.parametrize("name", PLACES)
def test_runs_are_found_wherever_they_were_kept(small, tmp_path, monkeypatch, name):
    runs_of = kept(monkeypatch, tmp_path)
    first, second, count = PLACES[name]

    assert runs_of(small, first and tmp_path / first) == 18
    assert runs_of(small, second and tmp_path / second) == count


def test_a_folder_that_was_named_has_all_runs_of_its_tables(
    small, tmp_path, monkeypatch
):
    runs_of = kept(monkeypatch, tmp_path)
    runs_of(small, None)
    cached = kept_runs.cache_path().read_bytes()

    runs_of(small, tmp_path / "one")

    copied = (tmp_path / "one" / "runs.jsonl").read_bytes()
    assert sorted(copied.splitlines()) == sorted(cached.splitlines())
    assert kept_runs.cache_path().read_bytes() == cached  # written where told


def test_a_folder_that_is_gone_is_forgotten(small, tmp_path, monkeypatch):
    runs_of = kept(monkeypatch, tmp_path)
    runs_of(small, tmp_path / "one")
    (tmp_path / "one" / "runs.jsonl").unlink()

    assert runs_of(small, None) == 18
    runs_of(small, tmp_path / "two")
    links = [p for p in kept_runs.cache_path().parent.iterdir() if p.is_symlink()]
    assert [p.resolve() for p in links] == [tmp_path / "two" / "runs.jsonl"]


def test_a_cache_folder_that_cannot_be_written_is_no_fault_of_a_folder_named(
    small, tmp_path, monkeypatch
):
    (tmp_path / "cache").write_text("a file")
    runs_of = kept(monkeypatch, tmp_path)

    assert runs_of(small, tmp_path / "one") == 18
    assert runs_of(small, tmp_path / "one") == 0


def test_quick_runs_are_not_taken_for_full_ones(small, tmp_path):
    path = tmp_path / "runs.jsonl"
    rebuild(small, quick=True, store=module.Store(path))
    full = Numbers()

    rebuild(small, full, store=module.Store(path))

    assert len(full.ran) == 18


def test_an_executor_makes_the_same_tables(small):
    laboratory = Numbers()

    with ThreadPoolExecutor(2) as executor:
        found = rebuild(small, laboratory, executor=executor)

    assert len(laboratory.ran) == 18
    assert found.to_dict() == rebuild(small).to_dict()


def test_an_executor_that_fails_keeps_what_was_finished(small, tmp_path):
    path = tmp_path / "runs.jsonl"
    second = Numbers()

    with ThreadPoolExecutor(1) as executor, pytest.raises(KeyboardInterrupt):
        rebuild(
            small, Numbers(stop_after=5), store=module.Store(path), executor=executor
        )
    rebuild(small, second, store=module.Store(path))

    assert len(second.ran) == 13


def answer(cell, seed):
    """Stands for a run in another process."""
    return {"policy": cell.policy, "seed": seed}


def test_a_cell_and_the_simulator_travel_to_another_process(small, capfd):
    cell = module.cell_of(small, small.rows[0], "A", "full")

    with commands._executor(2) as executor:
        sample = executor.submit(answer, cell, 3).result(timeout=60)

    assert sample == {"policy": "slab", "seed": 3}
    assert pickle.loads(pickle.dumps(module.Simulator().run)) is not None
    assert capfd.readouterr() == ("", "")


def test_progress_rises_to_1(small):
    told = []

    rebuild(small, progress=told.append)

    assert told == sorted(told)
    assert told[-1] == 1.0


# -- figures ---------------------------------------------------------------------------


def test_a_time_is_scaled_from_the_window_to_the_posted_command(small):
    sample = {"elapsed_s": 4.0, "operations": 200}

    assert cell_value(small, small.rows[0], sample) == 4.0 * 1000 / 200
    assert cell_value(small, small.rows[1], sample) == 4.0 * 2000 / 200


def test_a_rate_is_taken_as_it_is():
    table = find_table("netperf-splusq-penryn-2010")

    assert cell_value(table, table.rows[0], {"rate": 700000.0}) == 700000.0


def test_a_latency_is_turned_into_the_unit_of_the_table():
    table = find_table("rt-cyclictest-i4790-2021")
    thread = {"mean": 6500.0, "max": 20000}
    sample = {"latency_by_cpu_ns": {"wakeup": {"1": thread}}}

    assert cell_value(table, table.rows[0], sample) == pytest.approx(6.5)
    assert cell_value(table, table.rows[7], sample) == pytest.approx(20.0)


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ({"operations": 1}, "no figure 'elapsed_s'"),
        ({"elapsed_s": 1.0}, "no figure 'operations'"),
        ({"elapsed_s": "1", "operations": 1}, "'1'"),
        ({"elapsed_s": 0.0, "operations": 1}, "above 0"),
    ],
)
def test_a_run_without_the_figure_is_an_error_that_names_it(small, sample, message):
    with pytest.raises(Error, match=message):
        cell_value(small, small.rows[0], sample)


def test_a_cell_is_the_median_of_the_seeds_with_their_range(small):
    row = rebuild(small).rows[0]

    assert row.slabq == pytest.approx({"A": 10.2, "B": 8.67, "C": 15.3})
    assert row.spreads["A"] == pytest.approx((10.2, 10.1, 10.3))


def test_ratios_are_against_the_baseline_and_pair_the_seeds(small):
    row = rebuild(small).rows[0]

    assert row.ratio_published == {"A": 1.0, "B": 0.8, "C": 2.0}
    assert row.ratio_slabq == pytest.approx({"A": 1.0, "B": 0.85, "C": 1.5})
    assert row.ratio_spreads["B"] == pytest.approx((0.85, 0.85, 0.85))


def test_the_baseline_a_fitted_cell_and_an_unpublished_one_have_no_verdict(small):
    one, two, _ = rebuild(small).rows

    assert one.verdicts == {"B": "direction", "C": "direction"}
    assert two.verdicts == {}
    assert two.verdict is None
    assert two.slabq.keys() == {"A", "B", "C"}


def test_agreement_counts_compared_cells_only(small):
    rebuilt = rebuild(small)[0]

    assert len(rebuilt.pairs) == 4  # B and C in two rows; row "two" has none
    assert rebuilt.sign_agreement == 1.0
    assert rebuilt.median_ratio_error == pytest.approx((0.0625 + 0.25) / 2)


def test_a_share_adds_up_the_published_functions_that_ran(small):
    row = rebuild(small).rows[0]

    assert row.slab_share == {"A": 0.25, "B": 0.25, "C": 0.25}
    assert row.slab_share_with_waits == {"A": 0.375, "B": 0.375, "C": 0.375}


def test_a_share_is_unknown_if_no_published_function_is_in_the_profile(small):
    laboratory = Numbers()
    run = laboratory.run
    laboratory.run = lambda *given: run(*given) | {"profile": {"w": 1.0}}
    row = rebuild(small, laboratory).rows[0]

    assert row.slab_share == {}
    assert row.slab_share_with_waits == {}


def test_counts_are_scaled_to_the_posted_command(small):
    one, two, _ = rebuild(small).rows

    assert one.counts("context_switches") == {
        "published": {"A": 500, "B": 600, "C": 700},
        "slabq": {"A": 3000.0, "B": 3000.0, "C": 3000.0},
    }
    assert two.counts("context_switches") == {}


# -- what this build lacks -------------------------------------------------------------


def test_a_column_that_cannot_be_run_is_left_out_and_named(small):
    laboratory = Numbers(lacks={"slub+q": "no policy slub+q"})

    found = rebuild(small, laboratory)

    assert found[0].lacking == {"C": "no policy slub+q"}
    assert found.rows[0].slabq.keys() == {"A", "B"}
    assert "not run: C: no policy slub+q" in str(found.table())
    assert {cell.policy for cell, _ in laboratory.ran} == {"slab", "slub"}


@pytest.mark.parametrize(
    "lacks",
    [
        pytest.param({"slab": "no slab"}, id="the baseline"),
        pytest.param({"slub": "no slab", "slub+q": "no q"}, id="all but the baseline"),
    ],
)
def test_a_table_without_a_ratio_is_omitted_with_the_reason(small, lacks):
    laboratory = Numbers(lacks=lacks)

    found = rebuild(small, laboratory)

    assert list(found) == []
    assert found.omitted == {"small": "no slab"}
    assert found.to_dict() == {"tables": [], "omitted": {"small": "no slab"}}
    assert laboratory.ran == []


def test_a_table_whose_runs_lack_its_figure_is_omitted_with_the_reason(small):
    laboratory = Numbers()
    run = laboratory.run
    laboratory.run = lambda *given: run(*given) | {"operations": None}

    found = rebuild(small, laboratory)

    assert list(found) == []
    assert "'operations'" in found.omitted["small"]


def test_a_build_without_the_engine_says_so_in_one_line(monkeypatch, capsys):
    monkeypatch.setattr(module, "ENGINES", ("native",))

    assert main(["reproduce", "tbench-skb-2007"]) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert "tbench-skb-2007" in err
    assert "no engine 'sim' in this build" in err
    assert len(err.splitlines()) == 1


def test_a_build_without_a_workload_names_it(monkeypatch):
    monkeypatch.setattr(module, "ENGINES", ("native", "sim"))
    table = find_table("tbench-skb-2007")
    cell = module.cell_of(table, table.rows[0], "SLAB", "full")
    unknown = module.dataclasses.replace(cell, workload="no-such-work")

    assert "no-such-work" in module.Simulator().lack(unknown)


def test_the_product_runs_cells_on_the_engine_sim_and_no_other(small, monkeypatch):
    asked = []

    class Row:
        def row(self):
            return {"elapsed_s": 1.0}

    def fake_run(workload, **options):
        asked.append(options)
        return Row()

    monkeypatch.setattr(module, "run", fake_run)
    monkeypatch.setattr(module.Simulator, "_parts", lambda *_: ("w", "p", "m"))
    cell = module.cell_of(small, small.rows[0], "A", "full")

    module.Simulator().run(cell, 2, None)

    assert [options["engine"] for options in asked] == ["sim"]
    assert asked[0]["seed"] == 2


class Native(Numbers):
    """Runs cells through slabq.run on this host, to try the shape of a result's row."""

    def run(self, cell, seed, progress):
        result = slabq.run(
            "hackbench",
            policy=cell.policy,
            machine=slabq.Machine(cpus=2),
            seed=seed,
            groups=1,
            fds=2,
            loops=dict(cell.parameters)["measure_operations"],
            progress=False,
        )
        return result.row()


@pytest.mark.threads
def test_the_row_of_a_real_result_has_what_a_cell_needs(small):
    names = set(slabq.policy_names())
    lacks = {name: "absent" for name in ("slub", "slub+q") if name not in names}

    found = rebuild(small, Native(lacks=lacks), quick=True)

    for row in found.rows:
        assert all(value > 0 for value in row.slabq.values())
        assert set(row.slabq) >= {"A"}


def test_a_finished_run_can_be_kept_as_json(small, tmp_path):
    path = tmp_path / "runs.jsonl"
    store = module.Store(path)

    store.put(
        "key", Native().run(module.cell_of(small, small.rows[0], "A", "quick"), 1, None)
    )

    assert module.Store(path)["key"] == store["key"]


@pytest.mark.parametrize("table_id", ["hackbench-splusq-2010", "tbench-skb-2007"])
def test_three_seeds_are_three_samples_of_a_workload(table_id):
    table = find_table(table_id)
    quick = Window(warmup_operations=100, measure_operations=300)
    table = dataclasses.replace(table, windows={**table.windows, "quick": quick})
    cell = module.cell_of(table, table.rows[-1], table.baseline, "quick")

    runs = [module.Simulator().run(cell, seed, None) for seed in (1, 2, 3, 1)]

    assert len({run["fingerprint"] for run in runs}) == 3
    assert len({run["elapsed_s"] for run in runs}) == 3
    assert runs[3]["elapsed_s"] == runs[0]["elapsed_s"]
