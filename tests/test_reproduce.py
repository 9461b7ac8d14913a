"""Rebuilding published tables: what is run, what is kept, what is said of it.

Nothing is simulated here: a laboratory of plain numbers stands in for the engine.
"""

import base64
import dataclasses
import importlib
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from html.parser import HTMLParser
from pathlib import Path

import pytest

import slabq
from slabq.cli import main
from slabq.errors import Error, ParameterError
from slabq.published import Window, find_table, published_tables, read_table
from slabq.report import html_report, reproduction_table, simulated, write_report
from slabq.reproduction import Reproduction, cell_value
from slabq.verdict import (
    median_ratio_error,
    sign_agreement,
    verdict_of,
    worst_verdict,
)

module = importlib.import_module("slabq.reproduce")
commands = importlib.import_module("slabq.cli_reproduce")

IDS = list(published_tables())
every_table = pytest.mark.parametrize("table_id", IDS)

SMALL = """
title = "a small table"
author = "Somebody"
source = "a message"
machine = "a machine"
kernel = "a kernel"
command = "hackbench"
row_heading = "groups"
unit = "s"
better = "smaller"
baseline = "A"
fitted = [["two", "B"]]

[run]
workload = "hackbench"
machine = "penryn-2x4"
figure = "elapsed_s"
parameters = { loops = 1000 }

[window.full]
warmup_operations = 100
measure_operations = 200

[window.quick]
warmup_operations = 10
measure_operations = 20

[slab_share]
functions = ["f", "g"]
waits = ["w"]
published = [0.5, 0.25, 0.1]

[[columns]]
name = "A"
policy = "slab"
kernel = "2.6.35"

[[columns]]
name = "B"
policy = "slub"
kernel = "2.6.35"

[[columns]]
name = "C"
policy = "slub+q"
kernel = "2.6.35"
options = { version = 1 }

[[rows]]
label = "one"
figures = [10, 8, 20]
operations = 1000
parameters = { groups = 1 }
context_switches = [500, 600, 700]

[[rows]]
label = "two"
figures = [10, 9, "-"]
operations = 2000
parameters = { groups = 2 }

[[rows]]
label = "one again"
figures = [10, 8, 20]
operations = 1000
parameters = { groups = 1 }
"""


ELAPSED_S = {"slab": 2.0, "slub": 1.7, "slub+q": 3.0}


class Numbers:
    """A laboratory where each policy has its time, and a seed adds a little."""

    def __init__(self, lacks=(), build=1, stop_after=None):
        self.lacks = dict(lacks)
        self.build = build
        self.stop_after = stop_after
        self.ran = []

    def lack(self, cell):
        return self.lacks.get(cell.policy, "")

    def identity(self, cell):
        return {"cell": repr(cell), "build": self.build}

    def run(self, cell, seed, progress):
        if self.stop_after is not None and len(self.ran) == self.stop_after:
            raise KeyboardInterrupt
        self.ran.append((cell, seed))
        parameters = dict(cell.parameters)
        number = parameters["measure_operations"]
        return {
            "elapsed_s": ELAPSED_S[cell.policy] * (1 + 0.01 * seed),
            "operations": number,
            "rate": 1000.0 + 10 * seed,
            "profile": {"f": 0.25, "w": 0.125, "other": 0.5},
            "context_switches": 3 * number,
            "cpu_migrations": number,
            "latency_ns": {"wakeup": {"mean": 5000.0 + seed, "max": 9000 + seed}},
        }


@pytest.fixture
def small():
    return read_table(SMALL, "small")


def rebuild(table, laboratory=None, **options):
    laboratory = laboratory or Numbers()
    return module.rebuild([table], laboratory=laboratory, **options)


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
    sample = {"latency_ns": {"wakeup": {"mean": 6500.0, "max": 20000}}}

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


# -- documents -------------------------------------------------------------------------

KEYS = {
    "id",
    "title",
    "source",
    "rows",
    "sign_agreement",
    "median_ratio_error",
    "fitted",
}
ROW_KEYS = {"label", "published", "slabq", "ratio_published", "ratio_slabq", "verdict"}


@pytest.fixture(scope="module")
def everything():
    return module.rebuild(list(published_tables().values()), laboratory=Numbers())


def test_the_document_has_the_keys_of_the_interface(everything):
    document = json.loads(json.dumps(everything.to_dict()))

    assert [table["id"] for table in document["tables"]] == IDS
    for table in document["tables"]:
        assert table.keys() >= KEYS
        for row in table["rows"]:
            assert row.keys() >= ROW_KEYS
            assert row["verdict"] in {"reproduced", "direction", "tie", "missed"}
            assert row["slabq"].keys() == row["published"].keys()


@every_table
def test_the_figures_of_a_document_make_its_ratios_and_verdicts(everything, table_id):
    table = everything.find(table_id).to_dict()

    for row in table["rows"]:
        for side in ("published", "slabq"):
            base = row[side][table["baseline"]]
            for column, value in row[side].items():
                name = f"ratio_{side}"
                assert row[name][column] == pytest.approx(value / base)
        for column, verdict in row["verdicts"].items():
            pair = row["ratio_published"][column], row["ratio_slabq"][column]
            assert verdict_of(*pair) == verdict
        low, high = row["ratio_range"][table["baseline"]]
        assert low == high == 1


def test_a_fitted_cell_is_listed_and_left_out(everything):
    table = everything.find("min-objects-tigerton-2008").to_dict()

    assert table["fitted"] == ["100 2000 / slub_min_objects=64"]
    assert "slub_min_objects=64" not in table["rows"][0]["verdicts"]
    assert "slub_min_objects=64" in table["rows"][1]["verdicts"]


def test_the_text_is_ascii_of_at_most_78_columns(everything):
    text = everything.table().format("text")

    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 78


@every_table
def test_the_text_has_published_figures_ratios_and_verdicts(everything, table_id):
    rebuilt = everything.find(table_id)
    text = str(Reproduction([rebuilt]).table())
    words = set(text.split())

    assert table_id in text
    assert "simulated" in text
    for row in rebuilt.rows:
        assert {f"{value:.9g}" for value in row.published.values()} <= words
        assert {f"{value:.3f}" for value in row.ratio_published.values()} <= words
        assert row.verdict in words


def test_the_text_has_the_published_share_beside_slabqs(small):
    text = str(rebuild(small).table())

    section = text[text.index("CPU time in f + g") :]
    lines = [line.split() for line in section.splitlines()]
    assert ["one", "A", "50.0", "%", "25.0", "%", "37.5", "%"] in lines
    assert ["two", "C", "10.0", "%", "25.0", "%", "37.5", "%"] in lines


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.012345, "0.0123"),
        (0.9999, "0.9999"),
        (1.23456, "1.235"),
        (12.3456, "12.35"),
        (279.3456, "279.3"),
        (9999.6, "10000"),
        (714788.4, "714788"),
    ],
)
def test_a_simulated_figure_has_four_digits_and_no_exponent(value, text):
    assert simulated(value) == text


@pytest.mark.parametrize("format_name", ["markdown", "csv", "latex", "html"])
def test_the_table_has_the_other_forms_too(everything, format_name):
    assert "hackbench" in reproduction_table(everything).format(format_name)


# -- plots and page --------------------------------------------------------------------


@every_table
def test_a_plot_of_ratios_has_labels_with_units_and_arms(everything, table_id):
    rebuilt = everything.find(table_id)
    columns = len(rebuilt.published.columns)

    ax = everything.plot(table=table_id)

    assert rebuilt.published.unit in ax.get_ylabel()
    assert rebuilt.published.row_heading == ax.get_xlabel()
    assert len(ax.containers) == columns - 1  # error bars of all but the baseline
    assert len(ax.get_xticks()) == len(rebuilt.rows)
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend[:2] == ["published", "slabq, simulated:\nmedian and range of seeds"]
    assert len(legend) == 2 + columns - 1


@every_table
def test_a_plot_of_figures_has_published_over_slabq(everything, table_id):
    rebuilt = everything.find(table_id)
    unit = rebuilt.published.unit

    ax = everything.plot(table=table_id, what="figures")

    assert ax.get_xlabel() == f"published [{unit}]"
    assert ax.get_ylabel() == f"slabq, simulated [{unit}]"
    line = ax.containers[0].lines[0]
    first = rebuilt.published.columns[0].name
    assert list(line.get_xdata()) == [row.published[first] for row in rebuilt.rows]
    assert list(line.get_ydata()) == [row.slabq[first] for row in rebuilt.rows]


def test_a_plot_of_several_tables_asks_which(everything):
    with pytest.raises(ParameterError, match="known are"):
        everything.plot()


def test_an_unknown_form_of_plot_is_refused(everything):
    with pytest.raises(ParameterError, match=r"'pie'.*ratios"):
        everything.plot(table="tbench-skb-2007", what="pie")


class Page(HTMLParser):
    """Notes images, references and open tags."""

    def __init__(self):
        super().__init__()
        self.images, self.links, self.ids, self.open = [], [], [], []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.images += [values["src"]] if tag == "img" else []
        self.links += [values["href"]] if "href" in values else []
        self.ids += [values["id"]] if "id" in values else []
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_no_other_file(everything):
    page = Page()

    page.feed(html_report(everything[:2]))

    assert page.open == []
    assert len(page.images) == 2
    for image in page.images:
        kind, _, data = image.partition("base64,")
        assert kind == "data:image/png;"
        assert base64.b64decode(data).startswith(b"\x89PNG")
    assert page.ids == IDS[:2]
    assert page.links == [f"#{table_id}" for table_id in IDS[:2]]


def test_what_is_posted_cannot_break_the_page(small):
    table = module.dataclasses.replace(small, title="<script>&", notes=["<b>"])

    text = html_report(rebuild(table))

    assert "<script>" not in text
    assert "<b>" not in text
    assert "&lt;script&gt;&amp;" in text


def test_the_folder_has_page_text_data_and_plots(small, tmp_path):
    found = rebuild(small)

    paths = write_report(found, tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "report.html",
        "small.png",
        "tables.json",
        "tables.txt",
    ]
    assert len(paths) == 4
    assert json.loads((tmp_path / "tables.json").read_text()) == found.to_dict()
    assert (tmp_path / "tables.txt").read_text() == found.table().format("text")


# -- command ---------------------------------------------------------------------------


@pytest.fixture
def numbers(monkeypatch, tmp_path):
    laboratory = Numbers()
    monkeypatch.setattr(module, "Simulator", lambda: laboratory)
    monkeypatch.setattr(commands, "_executor", lambda jobs: nullcontext())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return laboratory


def test_reproduce_prints_one_document_and_keeps_the_runs(numbers, capsys, tmp_path):
    arguments = ["reproduce", "tbench-skb-2007", "--quick", "--json"]

    assert main(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert main(arguments) == 0

    assert [table["id"] for table in document["tables"]] == ["tbench-skb-2007"]
    assert json.loads(capsys.readouterr().out) == document
    assert len(numbers.ran) == 2 * 2 * 3
    assert (tmp_path / "cache" / "slabq" / "reproduce" / "runs.jsonl").exists()


def test_reproduce_without_an_id_rebuilds_all(numbers, capsys):
    assert main(["reproduce", "--quick", "--json"]) == 0

    document = json.loads(capsys.readouterr().out)
    assert [table["id"] for table in document["tables"]] == IDS


def test_reproduce_writes_the_folder_and_resumes_from_it(numbers, capsys, tmp_path):
    folder = tmp_path / "out"
    arguments = ["reproduce", "tbench-skb-2007", "-o", str(folder)]

    assert main(arguments) == 0
    assert main(arguments) == 0

    assert sorted(path.name for path in folder.iterdir()) == [
        "report.html",
        "runs.jsonl",
        "tables.json",
        "tables.txt",
        "tbench-skb-2007.png",
    ]
    assert len(numbers.ran) == 2 * 2 * 3
    assert not (tmp_path / "cache").exists()


def test_reproduce_leaves_out_what_cannot_run_and_ends_with_1(numbers, capsys):
    numbers.lacks = {"slub+q": "no policy slub+q"}

    assert main(["reproduce", "--quick"]) == 1

    out, err = capsys.readouterr()
    assert "hackbench-splusq-2010" in out
    assert "netperf-splusq-numa-2010 was left out, no policy slub+q" in err


def test_a_table_asked_for_by_name_must_be_able_to_run(numbers, capsys):
    numbers.lacks = {"slub+q": "no policy slub+q"}

    names = ["netperf-splusq-numa-2010", "tbench-skb-2007"]
    assert main(["reproduce", *names]) == 2

    err = capsys.readouterr().err
    assert "tbench-skb-2007 can" in err
    assert "no policy slub+q" in err
    assert numbers.ran == []


def test_an_output_that_is_a_file_is_refused_before_anything_runs(
    numbers, capsys, tmp_path
):
    path = tmp_path / "file"
    path.write_text("")

    assert main(["reproduce", "tbench-skb-2007", "-o", str(path)]) == 2

    assert "accepted is a folder" in capsys.readouterr().err
    assert numbers.ran == []


@pytest.mark.parametrize("words", [["no-such"], ["--format", "odf"]])
def test_reproduce_refuses_what_it_does_not_know(numbers, capsys, words):
    assert main(["reproduce", *words]) == 2

    assert len(capsys.readouterr().err.splitlines()) == 1


SLOW_LABORATORY = """
import time

class Laboratory:
    def lack(self, cell):
        return ""

    def identity(self, cell):
        return {"cell": repr(cell)}

    def run(self, cell, seed, progress):
        time.sleep(0.2 if seed == 1 else 100)
        return {"rate": 1.0 + seed}
"""
SLOW_COMMAND = """
import importlib, signal, sys, slow_laboratory

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    importlib.import_module("slabq.reproduce").Simulator = slow_laboratory.Laboratory
    from slabq.cli import main
    sys.exit(main(["reproduce", "tbench-skb-2007", "-j", "2", "-o", sys.argv[1]]))
"""


def test_an_interrupt_ends_every_process_and_keeps_what_was_finished(tmp_path):
    (tmp_path / "slow_laboratory.py").write_text(SLOW_LABORATORY)
    (tmp_path / "command.py").write_text(SLOW_COMMAND)
    kept = tmp_path / "out" / "runs.jsonl"
    roots = [str(tmp_path), str(Path(slabq.__file__).parent.parent)]
    process = subprocess.Popen(
        [sys.executable, "command.py", "out"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(roots)},
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    while not kept.exists() and process.poll() is None:
        time.sleep(0.05)

    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)  # its pipe ends with its last process

    assert process.returncode == 130
    assert err.decode().strip() == "slabq: interrupted"
    runs = [json.loads(line)["run"] for line in kept.read_text().splitlines()]
    assert runs
    assert {run["rate"] for run in runs} == {2.0}


@pytest.mark.threads
def test_latencies_come_with_their_mean():
    result = slabq.run(
        "hackbench",
        policy="slab",
        machine=slabq.Machine(cpus=2),
        groups=1,
        fds=2,
        loops=50,
        latency_interval=1,
        progress=False,
    )

    times = result.latency_ns["alloc"]
    assert 0 < times["mean"] <= times["max"]
    assert times["count"] > 0


@pytest.mark.parametrize("jobs", ["0", "-1", "many"])
def test_a_number_of_jobs_that_makes_no_sense_is_refused(capsys, jobs):
    assert main(["reproduce", "tbench-skb-2007", "--jobs", jobs]) == 2

    err = capsys.readouterr().err
    assert f"jobs is {jobs!r}" in err or f"jobs is {jobs}" in err


def test_the_python_call_returns_a_reproduction(numbers):
    found = slabq.reproduce("tbench-skb-2007", quick=True)

    assert isinstance(found, Reproduction)
    assert [row.label for row in found.rows] == ["2.6.24-rc2", "deea84b0 reverted"]
    assert found.plot().get_xlabel() == "kernel"
    assert "published" in str(found.table())
