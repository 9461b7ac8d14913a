"""What is made of rebuilt tables: documents, plots, the page, the command."""

import base64
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from html.parser import HTMLParser
from pathlib import Path

import pytest
from small_table import IDS, SMALL, Numbers, every_table, module, rebuild

import slabq
from slabq.cli import main
from slabq.errors import ParameterError
from slabq.published import published_tables, read_table
from slabq.report import html_report, reproduction_table, simulated, write_report
from slabq.reproduction import Reproduction
from slabq.verdict import (
    verdict_of,
)

commands = importlib.import_module("slabq.cli_reproduce")


@pytest.fixture
def small():
    return read_table(SMALL, "small")


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
    (link,) = (tmp_path / "cache" / "slabq" / "reproduce").iterdir()
    assert link.is_symlink()
    assert link.resolve() == folder / "runs.jsonl"


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
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(roots),
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
        },
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


@pytest.mark.parametrize(
    ("times_s", "is_open"),
    [
        ({1: 1.9, 2: 1.9, 3: 1.9}, False),
        ({1: 1.9, 2: 2.2, 3: 1.9}, True),  # one seed of three says otherwise
        ({1: 1.99999, 2: 1.99999, 3: 1.99999}, True),  # no digit shown differs
    ],
)
def test_a_verdict_that_another_seed_may_turn_round_is_marked(small, times_s, is_open):
    class Scattered(Numbers):
        def run(self, cell, seed, progress):
            row = super().run(cell, seed, progress)
            own_s = {"slab": 2.0, "slub": times_s[seed], "slub+q": 3.0}
            row["elapsed_s"] = own_s[cell.policy]
            return row

    found = rebuild(small, Scattered())
    lines = str(found.table()).splitlines()

    marked = [line for line in lines if line.endswith("~")]
    assert found.find().rows[0].verdicts["B"] in ("reproduced", "direction")
    assert bool(marked) == is_open
    assert any(line.startswith("~ the seeds do not agree") for line in lines) == is_open
