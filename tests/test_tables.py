"""The published tables: what was typed is what was posted, and slabq can read it."""

import json
import math
import re
from pathlib import Path

import pytest

from slabq.cli import main
from slabq.errors import ParameterError
from slabq.machine import machine_presets
from slabq.published import SEEDS, find_table, published_tables, read_table

SEED_DOCUMENTS = Path(__file__).resolve().parent.parent.parent / "shared" / "seeds"
IDS = [
    "hackbench-splusq-2010",
    "netperf-splusq-penryn-2010",
    "netperf-splusq-numa-2010",
    "min-objects-tigerton-2008",
    "rt-hackbench-i4790-2021",
    "rt-cyclictest-i4790-2021",
    "tbench-skb-2007",
]
every_table = pytest.mark.parametrize("table_id", IDS)


def document(number: int) -> str:
    """One of the mailing-list documents, by the number its name begins with."""
    found = sorted(SEED_DOCUMENTS.glob(f"{number:03d}_*.txt"))
    if not found:
        pytest.skip(f"the mailing-list documents are not at {SEED_DOCUMENTS}")
    return found[0].read_text()


def figures_of(table_id: str) -> list[list[float]]:
    return [list(row.figures) for row in find_table(table_id).rows]


def labels_of(table_id: str) -> list[str]:
    return [row.label for row in find_table(table_id).rows]


# -- against the documents -------------------------------------------------------------


def test_hackbench_figures_are_those_of_the_cover_letter():
    text = document(4)
    body = text.split("Procs NR SLAB SLUB SLUB+Queuing")[1].split("SLUB+Q is a")[0]
    lines = [line.split() for line in body.splitlines() if re.match(r"\d", line)]

    assert [[float(word) for word in line[2:]] for line in lines] == figures_of(
        "hackbench-splusq-2010"
    )
    assert [" ".join(line[:2]) for line in lines] == [
        label.partition(" (")[0] for label in labels_of("hackbench-splusq-2010")
    ]


def netperf_rows(text: str, start: str, end: str, row: str) -> list[list[float]]:
    body = text.split(start)[1].split(end)[0].replace(">", " ")
    found = re.findall(row, " ".join(body.split()))
    return [[float(word.replace(" ", "")) for word in words] for words in found]


@pytest.mark.parametrize(
    ("table_id", "start", "end", "row"),
    [
        pytest.param(
            "netperf-splusq-penryn-2010",
            "Threads SLAB SLUB+Q %",
            "I see you're using",
            r"(\d+) (\d+) (\d+) (\+ [\d.]+)",
            id="penryn",
        ),
        pytest.param(
            "netperf-splusq-numa-2010",
            "threads SLAB SLUB+Q diff",
            "If you'd like",
            r"(\d+) (\d+) (\d+) (-[\d.]+)%",
            id="numa",
        ),
    ],
)
def test_netperf_figures_and_differences_are_those_posted(table_id, start, end, row):
    posted = netperf_rows(document(0), start, end, row)

    typed = [
        [float(r.label), *r.figures, r.difference_percent]
        for r in find_table(table_id).rows
    ]
    assert len(posted) == 12
    assert typed == posted


def test_tigerton_figures_are_those_posted():
    text = document(1)
    lines = [line for line in text.splitlines() if line.startswith("./hackbench")]
    posted = [
        [float(word) for word in re.findall(r"[\d.]+", line.split("|", 1)[1])]
        for line in lines
    ]
    groups = [re.search(r"hackbench (\d+) process (\d+)", line) for line in lines]

    assert posted == figures_of("min-objects-tigerton-2008")
    assert [" ".join(m.groups()) for m in groups if m] == labels_of(
        "min-objects-tigerton-2008"
    )


def test_tigerton_shares_are_those_posted():
    line = next(
        line
        for line in document(1).splitlines()
        if line.startswith("slab(__slab_alloc")
    )
    functions = re.findall(r"\w*_\w+", line.split(")")[0].split("(")[1])
    posted = [float(word) / 100 for word in re.findall(r"([\d.]+)%", line)]
    share = find_table("min-objects-tigerton-2008").slab_share

    assert share is not None
    assert list(share.published) == pytest.approx(posted)
    assert list(share.functions) == functions


def rt_blocks() -> list[tuple[str, str]]:
    """The kernels of the RT document in order: heading and figures of each."""
    text = document(2).split("begin previously reported numbers")[1]
    text = text.split("yup, perf delta")[0].replace(
        "end previously reported numbers", ""
    )
    blocks: list[list[str]] = []
    for line in text.splitlines():
        if re.match(r"(5\.14|repeat of above)", line):
            blocks.append([line, ""])
        elif blocks:
            blocks[-1][1] += line + "\n"
    return [(name, body) for name, body in blocks]


def test_rt_hackbench_times_are_those_posted():
    times = [
        [float(word) for word in re.findall(r"^([\d.]+) \+- ", body, re.MULTILINE)]
        for _, body in rt_blocks()
    ]
    rows = figures_of("rt-hackbench-i4790-2021")
    columns = [list(column) for column in zip(*rows, strict=True)]

    assert [len(column) for column in times] == [3] * 8
    assert columns == times


def test_rt_hackbench_columns_name_the_kernels_as_posted():
    table = find_table("rt-hackbench-i4790-2021")

    assert [column.about for column in table.columns] == [
        heading for heading, _ in rt_blocks()
    ]


@pytest.mark.parametrize("name", ["context_switches", "cpu_migrations"])
def test_rt_hackbench_counts_are_those_posted(name):
    words = name.replace("_", "-")
    posted = []
    for _, body in rt_blocks():
        found = re.search(rf"^([\d,]+) {words}", body, re.MULTILINE)
        assert found is not None
        posted.append(int(found[1].replace(",", "")))

    assert getattr(find_table("rt-hackbench-i4790-2021").rows[0], name) == posted


def test_cyclictest_figures_are_those_posted():
    text = document(2).split("cyclictest -Smqp99&")[1].split("conclusion")[0]
    pattern = r"T: (\d) .*Min: 1 Act: \d Avg: (\d+) Max: (\d+)"
    parts = text.split("SLUB+SLUB_DEBUG")[1:]
    posted = [re.findall(pattern, part) for part in parts]
    averages = [[float(row[1]) for row in rows] for rows in zip(*posted, strict=True)]
    maxima = [[float(row[2]) for row in rows] for rows in zip(*posted, strict=True)]

    assert [len(rows) for rows in posted] == [7, 7, 7]
    assert figures_of("rt-cyclictest-i4790-2021") == averages + maxima
    assert labels_of("rt-cyclictest-i4790-2021") == [
        f"T{number} {word}" for word in ("average", "maximum") for number in range(1, 8)
    ]


def test_tbench_figures_are_those_posted():
    text = document(3)
    before, reverted = map(float, re.findall(r"^> > \t([\d.]+) MB/sec", text, re.M))
    slab = float(re.search(r"which is at ([\d.]+) MB/sec", text)[1])  # type: ignore[index]

    assert figures_of("tbench-skb-2007") == [[slab, before], [slab, reverted]]


# -- among themselves ------------------------------------------------------------------


def test_the_tables_are_those_of_the_interface():
    assert sorted(published_tables()) == sorted(IDS)


@every_table
def test_a_printed_difference_agrees_with_the_figures_beside_it(table_id):
    table = find_table(table_id)

    for row in table.rows:
        if not math.isnan(row.difference_percent):
            base, other = row.figures
            assert 100 * (other / base - 1) == pytest.approx(
                row.difference_percent, abs=0.1
            )


@pytest.mark.parametrize(
    "table_id", ["hackbench-splusq-2010", "min-objects-tigerton-2008"]
)
def test_hackbench_rows_have_the_messages_and_groups_of_their_command(table_id):
    table = find_table(table_id)

    for row in table.rows:
        groups, loops = map(int, row.label.split()[:2])
        assert row.parameters["groups"] == groups
        assert row.operations == groups * 20 * 20 * loops


@every_table
def test_a_table_runs_on_a_machine_that_slabq_has(table_id):
    assert find_table(table_id).machine_name in machine_presets()


@every_table
def test_a_quick_window_is_smaller_and_keeps_the_population(table_id):
    table = find_table(table_id)

    for row in table.rows:
        full, quick = (table.window_of(row, name) for name in ("full", "quick"))
        assert 0 < quick.warmup_operations < full.warmup_operations
        assert 0 < quick.measure_operations < full.measure_operations
        assert not {"groups", "threads", "clients"} & set(quick.parameters())


@every_table
def test_rows_of_one_configuration_have_one_window(table_id):
    table = find_table(table_id)

    for name in ("full", "quick"):
        windows = {}
        for row in table.rows:
            key = str(sorted(row.parameters.items()))
            windows.setdefault(key, set()).add(table.window_of(row, name))
        assert {len(found) for found in windows.values()} == {1}


@every_table
def test_a_window_ends_before_the_work_does(table_id):
    table = find_table(table_id)

    for row in table.rows:
        window = table.window_of(row, "full")
        parameters = table.cell_parameters(row, table.columns[0])
        if "loops" in parameters:
            total = parameters["groups"] * 20 * 20 * parameters["loops"]
            assert window.warmup_operations + window.measure_operations < total


def test_there_are_at_least_three_seeds():
    assert len(set(SEEDS)) >= 3


# -- what is refused -------------------------------------------------------------------

GOOD = """
title = "t"
author = "a"
source = "s"
machine = "m"
kernel = "k"
command = "c"
row_heading = "n"
unit = "1/s"
better = "larger"
baseline = "A"

[run]
workload = "hackbench"
machine = "penryn-2x4"
figure = "rate"

[window.full]
warmup_operations = 10
measure_operations = 20

[window.quick]
warmup_operations = 1
measure_operations = 2

[[columns]]
name = "A"
policy = "slab"
kernel = "2.6.35"

[[columns]]
name = "B"
policy = "slub"
kernel = "2.6.35"

[[rows]]
label = "one"
figures = [1, 2.5]
"""


def test_a_whole_table_is_read():
    table = read_table(GOOD, "x")

    assert table.column_names == ["A", "B"]
    assert table.published(table.rows[0]) == {"A": 1, "B": 2.5}


def test_a_figure_that_was_not_published_is_left_out():
    table = read_table(GOOD.replace("[1, 2.5]", '[1, "-"]'), "x")

    assert table.published(table.rows[0]) == {"A": 1}
    assert table.to_dict()["rows"][0]["figures"] == [1, None]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        pytest.param("[1, 2.5]", "[1]", "figures of row 'one'", id="too few figures"),
        pytest.param("[1, 2.5]", "[1, 0]", "positive", id="a figure of zero"),
        pytest.param("[1, 2.5]", '[1, "x"]', "'x'", id="a word for a figure"),
        pytest.param('baseline = "A"', 'baseline = "C"', "'C'", id="no such baseline"),
        pytest.param('"larger"', '"more"', "'more'", id="neither better nor worse"),
        pytest.param('name = "B"', 'name = "A"', "A, A", id="equal columns"),
        pytest.param('unit = "1/s"', "", "no unit", id="no unit"),
        pytest.param('unit = "1/s"', "unit = 3", "unit is 3", id="a number for a word"),
        pytest.param(
            'unit = "1/s"', 'unit = "s"\nbetr = 1', "'betr'", id="unknown key"
        ),
        pytest.param('"rate"', '"elapsed_s"', "operations of row", id="no operations"),
        pytest.param("[run]", 'fitted = [["two", "A"]]\n[run]', "'two'", id="fitted"),
        pytest.param("[run]", "[run", "table x", id="not TOML"),
        pytest.param("[run]", "[run]\nparameters = {g = 1.5}", "1.5", id="fraction"),
    ],
)
def test_a_damaged_table_is_refused_in_one_line_that_names_what_is_wrong(
    old, new, message
):
    assert old in GOOD

    with pytest.raises(ParameterError) as caught:
        read_table(GOOD.replace(old, new), "x")

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_table_is_refused_with_the_closest_first():
    with pytest.raises(ParameterError, match=r"unknown table 'tbench'.*are tbench-skb"):
        find_table("tbench")


# -- commands --------------------------------------------------------------------------


def test_tables_lists_every_id(capsys):
    assert main(["tables"]) == 0

    out = capsys.readouterr().out
    assert all(table_id in out for table_id in IDS)
    assert max(map(len, out.splitlines())) <= 78


def test_tables_as_json_is_one_document(capsys):
    assert main(["tables", "--json"]) == 0

    listed = json.loads(capsys.readouterr().out)
    assert {table["id"]: table["rows"] for table in listed} == {
        table_id: len(find_table(table_id).rows) for table_id in IDS
    }


@every_table
def test_show_table_has_every_figure_in_78_columns(table_id, capsys):
    assert main(["show", "table", table_id]) == 0

    out = capsys.readouterr().out
    words = set(out.split())
    for figures in figures_of(table_id):
        assert {f"{value:.9g}" for value in figures} <= words
    assert max(map(len, out.splitlines())) <= 78
    assert out.isascii()


@every_table
def test_show_table_as_json_is_one_document(table_id, capsys):
    assert main(["show", "table", table_id, "--json"]) == 0

    shown = json.loads(capsys.readouterr().out)
    assert [row["figures"] for row in shown["rows"]] == figures_of(table_id)


def test_show_table_refuses_an_unknown_id(capsys):
    assert main(["show", "table", "nothing"]) == 2

    err = capsys.readouterr().err
    assert "unknown table 'nothing'" in err
    assert len(err.splitlines()) == 1
