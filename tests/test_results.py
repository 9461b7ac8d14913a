"""Results keep what it takes to run again, save to one file, and compare fairly."""

import concurrent.futures
import dataclasses
import gzip
import json

import pytest

import slabq
from slabq.comparison import comparison_table, figure_label, policy_labels
from slabq.result import Result
from slabq.stats import spread
from slabq.table import FORMATS, TEXT_WIDTH, Section, Table

MACHINE = slabq.Machine(cpus=2, node_bytes=64 << 20, name="two")
SMALL = {"groups": 1, "loops": 5, "machine": MACHINE}


def result(policy="slab", seconds=(2.0,), *, engine="native", groups=1, **options):
    """A made-up result; the figures of repeat n are seconds[n] and 1000 of it."""
    return Result(
        workload="hackbench",
        policy=slabq.policy.find_policy(policy, **options),
        machine=MACHINE,
        engine=engine,
        seed=1,
        parameters={"groups": groups, "loops": 5},
        samples=[
            {"elapsed_s": s, "operations": 1000 * n, "counters": {"n": n}}
            for n, s in enumerate(seconds)
        ],
    )


# -- runs ------------------------------------------------------------------------------


def test_a_run_counts_every_message_of_hackbench():
    run = slabq.run("hackbench", policy="slab", fds=3, **SMALL)

    assert run.operations == 1 * 3 * 3 * 5
    assert run.parameters["fds"] == 3
    assert run.sample["live"] == 0


def test_a_row_has_the_members_of_the_interface():
    row = slabq.run("hackbench", policy="slub", **SMALL).row()

    identity = [
        "workload",
        "policy",
        "kernel",
        "machine",
        "engine",
        "seed",
        "parameters",
    ]
    figures = ["elapsed_s", "operations", "rate", "rate_unit", "ns_per_operation"]
    detail = ["counters", "profile", "locks", "memory", "latency_ns"]
    assert {*identity, *figures, *detail, "slabq_version"} <= set(row)
    assert (row["policy"], row["machine"], row["engine"]) == ("slub", "two", "native")
    assert json.loads(json.dumps(row)) == row


def test_repeats_have_seeds_of_their_own_and_one_of_them_is_the_result():
    run = slabq.run("hackbench", policy="slab", seed=7, repeat=3, **SMALL)

    assert [sample["seed"] for sample in run.samples] == [7, 8, 9]
    assert run.elapsed_s in run.figures("elapsed_s")
    assert len(run.row()["samples"]) == 3


def test_a_result_repeats_itself():
    run = slabq.run("hackbench", policy="slab", repeat=2, **SMALL)

    again = run.repeat()

    assert again.operations == run.operations
    assert again.parameters == run.parameters
    assert (again.policy, again.machine, again.seed) == (run.policy, run.machine, 1)
    assert again.repeat_count == 2


def test_a_sweep_varies_the_policy_fastest():
    swept = slabq.sweep(
        "hackbench", policy=["slab", "slub"], **{**SMALL, "groups": [1, 2]}
    )

    found = [(r.parameters["groups"], r.policy.name) for r in swept]
    assert found == [(1, "slab"), (1, "slub"), (2, "slab"), (2, "slub")]


def test_a_sweep_refuses_a_wrong_value_before_anything_runs():
    calls = []

    with pytest.raises(slabq.ParameterError, match="groups is 0"):
        slabq.sweep(
            "hackbench", policy="slab", groups=[1, 0], machine=MACHINE,
            progress=calls.append,
        )  # fmt: skip

    assert calls == []


def test_an_executor_gets_native_runs_one_at_a_time():
    running = []

    class Watching(concurrent.futures.ThreadPoolExecutor):
        def submit(self, *args, **kwargs):
            assert all(future.done() for future in running)
            running.append(super().submit(*args, **kwargs))
            return running[-1]

    with Watching(max_workers=4) as executor:
        swept = slabq.sweep("hackbench", executor=executor, repeat=2, **SMALL)

    assert len(running) == 2 * len(swept)


def test_jobs_travel_to_another_process():
    with concurrent.futures.ProcessPoolExecutor(max_workers=1) as executor:
        swept = slabq.sweep("hackbench", policy="slab", executor=executor, **SMALL)

    assert swept[0].operations == 20 * 20 * 5


def test_progress_goes_from_0_to_1_over_all_runs():
    told = []

    slabq.sweep("hackbench", policy=["slab", "slub"], progress=told.append, **SMALL)

    assert told == sorted(told)
    assert told[0] >= 0
    assert told[-1] == pytest.approx(1.0)


def test_an_exception_of_the_progress_function_ends_the_run():
    def stop(fraction):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        slabq.run("hackbench", policy="slab", groups=20, loops=100000, progress=stop)


def test_an_engine_that_is_not_there_is_told_in_one_line():
    with pytest.raises(slabq.ParameterError, match="'fpga': accepted: native, sim"):
        slabq.run("hackbench", policy="slab", engine="fpga", **SMALL)


def test_a_replay_counts_what_the_trace_is_like_alike_under_every_policy():
    replayed = slabq.sweep(slabq.bundled_trace_path(), machine=MACHINE)
    counts = [r.sample["trace"] for r in replayed]

    assert all(count == counts[0] for count in counts)
    assert counts[0]["allocations"] == 13483  # perf kmem stat: of .../13483
    assert counts[0]["nil_frees"] == 1470
    assert counts[0]["lost"] == 0


def test_a_trace_travels_to_another_process_as_its_path():
    with concurrent.futures.ProcessPoolExecutor(max_workers=1) as executor:
        path = slabq.bundled_trace_path()
        swept = slabq.sweep(path, policy="slab", machine=MACHINE, executor=executor)

    assert swept[0].sample["trace"]["allocations"] == 13483


def test_a_trace_in_memory_is_replayed_and_repeats_itself():
    trace = slabq.read_trace(slabq.bundled_trace_path())

    replayed = slabq.replay(trace, policy="slub", machine=MACHINE)

    assert replayed.workload == "replay"
    assert replayed.repeat().sample["trace"] == replayed.sample["trace"]


def test_a_replay_repeats_itself_from_the_saved_path(tmp_path):
    path = slabq.bundled_trace_path()
    slabq.replay(path, policy="slab", machine=MACHINE).save(tmp_path / "x.slabq")

    again = slabq.load(tmp_path / "x.slabq")[0].repeat()

    assert again.parameters == {"trace": str(path)}


def test_a_replay_whose_trace_is_gone_says_which(tmp_path):
    trace = tmp_path / "trace.gz"
    trace.write_bytes(slabq.bundled_trace_path().read_bytes())
    slabq.replay(trace, policy="slab", machine=MACHINE).save(tmp_path / "x.slabq")
    trace.unlink()

    with pytest.raises(slabq.ParameterError, match=r"trace\.gz.*is not there"):
        slabq.load(tmp_path / "x.slabq")[0].repeat()


def test_a_trace_takes_no_parameters():
    with pytest.raises(slabq.ParameterError, match="'groups' with a trace"):
        slabq.sweep(slabq.bundled_trace_path(), groups=[1])


# -- results as values and files -------------------------------------------------------


def test_the_median_repeat_is_the_result():
    assert result(seconds=(3.0, 1.0, 2.0)).elapsed_s == 2.0
    assert result(seconds=(3.0, 1.0, 2.0)).counters == {"n": 2}


def test_of_an_even_number_the_lower_middle_is_the_median():
    assert spread([4.0, 1.0, 3.0, 2.0]) == (2.0, 1.0, 4.0)


def test_a_result_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        result().seed = 2


def test_a_figure_is_found_by_name_and_an_unknown_one_lists_what_is_there():
    assert result().figures("counters.n") == [0.0]
    with pytest.raises(slabq.ParameterError, match=r"counters, elapsed_s, operations"):
        result().figures("speed")
    with pytest.raises(slabq.ParameterError, match="not a number"):
        result().figures("counters")


def test_saved_results_load_as_they_were(tmp_path):
    results = slabq.Results(
        [result("slab", (1.0, 2.0)), result("slub", slub_max_order=1)]
    )
    results.save(tmp_path / "x.slabq")

    assert slabq.load(tmp_path / "x.slabq") == results


def saved(tmp_path):
    path = tmp_path / "x.slabq"
    slabq.Results([result()]).save(path)
    return path, path.read_bytes()


def as_file(document):
    return gzip.compress(json.dumps(document).encode())


DAMAGES = {
    "empty": (lambda data: b"", "is not a result file"),
    "text": (lambda data: b"hello", "is not a result file"),
    "cut off": (lambda data: data[:-20], "damaged or cut off"),
    "cut short": (lambda data: data[:5], "damaged or cut off"),
    "a byte changed": (
        lambda data: data[:40] + bytes([data[40] ^ 255]) + data[41:],
        "damaged or cut off",
    ),
    "no json": (lambda data: gzip.compress(b"{"), "damaged or cut off"),
    "other json": (lambda data: as_file([1]), "is not a result file"),
    "later version": (
        lambda data: as_file({"format": "slabq results", "version": 99}),
        "version 99: accepted is 1",
    ),
    "no results": (
        lambda data: as_file({"format": "slabq results", "version": 1}),
        "is damaged",
    ),
    "wrong result": (
        lambda data: as_file(
            {"format": "slabq results", "version": 1, "results": [{}]}
        ),
        "is damaged",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_result_file_is_told_by_name(tmp_path, name):
    path, data = saved(tmp_path)
    damage, words = DAMAGES[name]
    path.write_bytes(damage(data))

    with pytest.raises(slabq.ParameterError) as caught:
        slabq.load(path)

    assert "x.slabq" in str(caught.value)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_result_file_with_a_wrong_value_names_it(tmp_path):
    path, data = saved(tmp_path)
    document = json.loads(gzip.decompress(data))
    document["results"][0]["machine"]["cpus"] = 0
    path.write_bytes(as_file(document))

    with pytest.raises(slabq.ParameterError, match="cpus is 0"):
        slabq.load(path)


def test_results_become_a_data_frame_with_a_line_a_repeat():
    pd = pytest.importorskip("pandas", reason="pandas is an extra")

    frame = slabq.Results([result(seconds=(1.0, 2.0)), result("slub")]).to_pandas()

    assert isinstance(frame, pd.DataFrame)
    assert list(frame["policy"]) == ["slab", "slab", "slub"]
    assert list(frame["elapsed_s"]) == [1.0, 2.0, 2.0]
    assert list(frame["counters.n"]) == [0, 1, 0]


# -- tables ----------------------------------------------------------------------------


def cells(table, section=0):
    return [list(row) for row in table.sections[section].rows]


def test_ratios_are_against_the_first_policy_or_the_one_named():
    results = slabq.Results([result("slab", (2.0,)), result("slub", (3.0,))])

    assert [row[3] for row in cells(results.table())] == ["1.000", "1.500"]
    assert [row[3] for row in cells(results.table(baseline="slub"))] == [
        "0.667",
        "1.000",
    ]


def test_an_unknown_baseline_lists_the_known_ones():
    with pytest.raises(slabq.ParameterError, match="known are slab"):
        slabq.Results([result("slab")]).table(baseline="slob")


def test_a_table_says_which_kernel_profile_each_policy_took():
    table = slabq.Results([result("slab"), result("slub")]).table()

    assert [row[1] for row in cells(table)] == ["6.1", "6.18"]


def test_repeats_show_the_median_and_the_range():
    table = slabq.Results([result("slab", (3.0, 1.0, 2.0))]).table()

    assert "2.000" in cells(table)[0]
    assert "1.000..3.000" in cells(table)[0]
    assert "median of 3 runs" in table.sections[0].title


def test_native_and_simulated_rows_never_share_a_column():
    table = slabq.Results([result(), result(engine="sim")]).table()

    titles = [section.title for section in table.sections]
    assert len(titles) == 2
    assert "measured" in titles[0]
    assert "measured" not in titles[1]


def test_a_sweep_is_a_row_a_setting_and_a_column_a_policy():
    table = slabq.Results(
        [
            result(p, (s * g,), groups=g)
            for g in (1, 4)
            for p, s in (("slab", 1), ("slub", 2))
        ]
    ).table()

    assert list(table.sections[0].columns) == ["groups", "slab", "slub", "slub/slab"]
    assert cells(table) == [
        ["1", "1.000", "2.000", "2.000"],
        ["4", "4.000", "8.000", "2.000"],
    ]


def test_policies_are_named_by_what_tells_them_apart():
    results = [result("slub"), result("slub", slub_max_order=1), result("slab")]

    assert policy_labels(results) == ["slub", "slub slub_max_order=1", "slab"]
    assert policy_labels(results[:1], kernel=True) == ["slub 6.18"]


def option_notes(*results):
    notes = slabq.Results(results).table().sections[0].notes
    return [note for note in notes if "option" in note or "given" in note]


def test_a_note_says_which_rows_its_options_are_of():
    queued = result("slub+q", version=2, slub_max_order=1)

    assert option_notes(result("slab"), queued) == [
        "options of slub+q: version=2, slub_max_order=1"
    ]
    assert option_notes(result("slab"), result("slub")) == []


def test_options_that_a_label_has_are_not_told_again():
    rows = [result("slub+q", version=version, slub_max_order=1) for version in (2, 4)]

    assert policy_labels(rows) == ["slub+q version=2", "slub+q version=4"]
    assert option_notes(*rows) == ["options of every slub+q: slub_max_order=1"]


def test_a_note_says_what_holds_in_a_row_that_was_not_given_an_option():
    rows = [result("slub+q"), result("slub+q", version=4)]

    assert policy_labels(rows) == ["slub+q", "slub+q version=4"]
    assert option_notes(*rows) == ["not given to slub+q: version=2 by default"]


def test_the_columns_of_a_sweep_have_such_notes_too():
    rows = [result("slab", (g,), groups=g) for g in (1, 4)]
    rows += [result("slub+q", (g,), groups=g, version=2) for g in (1, 4)]

    assert option_notes(*rows) == ["options of slub+q: version=2"]


def test_text_tables_are_plain_ascii_of_78_columns():
    many = [
        result(p, (s,), groups=g, **{option: 1})
        for g in (1, 10)
        for s, p, option in [
            (1.0, "slab", "slab_max_order"),
            (1.5, "slub", "slub_max_order"),
            (2.5, "slub", "slub_min_order"),
            (123456.5, "slub+q", "slub_max_order"),
        ]
    ]
    text = comparison_table(many).format("text")

    assert text.isascii()
    assert max(map(len, text.splitlines())) <= TEXT_WIDTH
    assert "123456.500" in text


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_every_cell(name):
    table = Table(
        [Section("a title", ["policy", "s"], [["slab", "1.5"], ["slub", "2.5"]])]
    )

    text = table.format(name)

    for word in ("a title", "policy", "slab", "1.5", "slub", "2.5"):
        assert word in text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("html", "a&lt;b&amp;c|d_e"),
        ("latex", r"a<b\&c|d\_e"),
        ("markdown", r"a<b&c\|d_e"),
    ],
)
def test_marks_of_the_format_are_escaped(name, text):
    assert text in Table([Section("t", ["x"], [["a<b&c|d_e"]])]).format(name)


def test_an_unknown_format_lists_the_known_ones():
    with pytest.raises(slabq.ParameterError, match="known are html"):
        Table([]).format("htm")


def test_figures_are_named_with_their_unit():
    assert figure_label("elapsed_s") == "elapsed time [s]"
    assert figure_label("locks.list_lock.wait_ns") == "locks list lock wait [ns]"
    assert figure_label("counters.allocmiss") == "counters allocmiss"


# -- plots -----------------------------------------------------------------------------


def test_a_comparison_is_a_bar_a_policy_with_arms_for_the_range():
    ax = slabq.Results(
        [result("slab", (1.0, 2.0, 4.0)), result("slub", (3.0,) * 3)]
    ).plot()

    assert [patch.get_height() for patch in ax.patches] == [2.0, 3.0]
    assert [text.get_text() for text in ax.get_xticklabels()] == [
        "slab 6.1",
        "slub 6.18",
    ]
    assert ax.get_ylabel() == "elapsed time [s]"
    assert len(ax.containers) == 4


def test_a_sweep_over_a_number_is_a_line_a_policy():
    results = [result(p, (s,), groups=s) for p in ("slab", "slub") for s in (8, 1, 2)]

    ax = slabq.plot_comparison(results)

    assert [list(line.get_xdata()) for line in ax.get_lines()[::3]] == [[1, 2, 8]] * 2
    assert ax.get_xlabel() == "groups"


def test_plots_draw_on_the_axes_given():
    from matplotlib.figure import Figure

    ax = Figure().subplots()

    assert slabq.Results([result()]).plot(ax) is ax


def test_plots_refuse_what_must_not_share_axes():
    with pytest.raises(slabq.ParameterError, match="engines of the results"):
        slabq.plot_comparison([result(), result(engine="sim")])


def test_locks_and_latencies_of_a_run_are_drawn_with_units():
    run = slabq.run("hackbench", policy="slab", **SMALL)

    assert slabq.plot_locks(run).get_xlabel().endswith("[ms]")
    assert slabq.plot_latency(run).get_ylabel() == "latency [ns]"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("workload", {}),
        ("engine", []),
        ("seed", "1"),
        ("parameters", "x"),
        ("host", None),
        ("versions", []),
    ],
)
def test_a_file_with_a_value_of_another_type_is_damaged(tmp_path, name, value):
    path = tmp_path / "one.slabq"
    slabq.run("hackbench", policy="slab", groups=1, loops=1).save(path)
    document = json.loads(gzip.decompress(path.read_bytes()))
    document["results"][0][name] = value
    path.write_bytes(gzip.compress(json.dumps(document).encode()))

    with pytest.raises(slabq.ParameterError, match=rf"damaged \(TypeError: {name} is"):
        slabq.load(path)


def test_a_file_nested_too_deeply_is_damaged(tmp_path):
    path = tmp_path / "deep.slabq"
    path.write_bytes(gzip.compress(b"[" * 200_000))

    with pytest.raises(slabq.ParameterError, match="damaged or cut off"):
        slabq.load(path)
