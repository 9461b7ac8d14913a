"""What an explanation says: only what the figures of both results show."""

import json

import pytest

import slabq
from slabq.ablation import Ablation, Change, Outcome, ablate, default_changes
from slabq.cli import main
from slabq.errors import ParameterError
from slabq.explanation import explain
from slabq.policy import find_policy
from slabq.result import Result
from slabq.results import Results

MACHINE = slabq.Machine(cpus=2, name="twin")


def sample(**changes):
    """One repeat: 1000 messages in 1 ms on 2 CPUs, 1500 ns of CPU time a message."""
    figures = {
        "elapsed_s": 0.001,
        "operations": 1000,
        "rate_unit": "messages/s",
        "ns_per_operation": 1000.0,
        "busy": 0.75,
        "fingerprint": "1",
        "counters": {},
        "locks": {},
        "profile": {},
        "memory": {},
        "latency_ns": {},
    }
    return {**figures, **changes}


def result(policy, *samples, engine="sim", workload="hackbench", **changes):
    return Result(
        workload=workload,
        policy=find_policy(policy),
        machine=changes.pop("machine", MACHINE),
        engine=engine,
        seed=1,
        parameters=changes.pop("parameters", {"groups": 1}),
        samples=samples or [sample(**changes)],
    )


def findings(one, other, **options):
    (difference,) = explain(one, other, **options)
    return {finding.name: finding for finding in difference.findings}


# -- figures and sentences -------------------------------------------------------------


def test_the_time_of_a_message_is_told_with_both_figures_and_what_is_between():
    found = findings(
        result("slab"), result("slub", ns_per_operation=1250.0, elapsed_s=0.00125)
    )

    finding = found["ns_per_operation"]
    assert (finding.first, finding.second, finding.difference) == (1000, 1250, 250)
    assert (
        "1000 ns under slab, 1250 ns under slub: 250 ns more (+25.0%)" in finding.text
    )


def test_functions_are_told_in_ns_of_cpu_time_and_the_parts_add_up():
    one = result("slab", profile={"free_block": 0.2, "lock_wait": 0.3, "workload": 0.5})
    other = result("slub", profile={"__slab_free": 0.5, "workload": 0.5})

    found = findings(one, other)

    # 1500 ns of CPU time a message: 0.75 busy x 2 CPUs x 1000 ns.
    assert found["profile.free_block"].first == pytest.approx(300)
    assert found["profile.free_block"].second == 0
    assert found["profile.free_block"].text == (
        "In free_block(): 300 ns under slab, none under slub: 300 ns less."
    )
    assert found["part.waiting for locks"].difference == pytest.approx(-450)
    parts = [f for name, f in found.items() if name.startswith("part.")]
    assert sum(f.first for f in parts) == pytest.approx(1500)
    assert sum(f.second for f in parts) == pytest.approx(1500)


def test_the_largest_difference_comes_first_and_the_rest_is_counted():
    shares = {"a": 0.1, "b": 0.3, "c": 0.2}
    one = result("slab", profile=shares)
    other = result("slub", profile={"d": 0.4})

    (difference,) = explain(one, other, limit=2)

    (chapter,) = [c for c in difference.chapters if c.title == "Time by function"]
    names = [f.name for f in chapter.findings if f.name.startswith("profile.")]
    assert names == ["profile.d", "profile.b"]
    assert "2 more differ by less." in chapter.notes


def test_a_lock_is_told_with_its_wait_and_how_often_it_was_taken():
    lock = {"acquisitions": 500, "contended": 125, "wait_ns": 400_000}
    found = findings(result("slab", locks={"list_lock": lock}), result("slub"))

    text = found["locks.list_lock"].text
    assert "waiting: 400 ns under slab, none under slub: 400 ns less" in text
    assert "taken 0.5 times under slab, 25.0% of them after a wait" in text
    assert "not taken under slub" in text


def test_a_lock_that_makes_no_difference_is_not_told():
    lock = {"acquisitions": 500, "contended": 125, "wait_ns": 400_000}
    one, other = result("slab", locks={"l": lock}), result("slub", locks={"l": lock})

    assert "locks.l" not in findings(one, other)


def test_cache_lines_are_told_by_where_they_were_and_by_function():
    lines = {"__slab_free": {"other_cache": {"count": 2000, "ns": 260_000.0}}}
    one = result("slab", lines={"free_block": {"memory": {"count": 1, "ns": 1.0}}})
    found = findings(one, result("slub", lines=lines))

    assert found["lines.other_cache"].second == pytest.approx(260)
    text = found["lines.__slab_free.other_cache"].text
    assert "that a CPU behind another cache had changed, in __slab_free()" in text
    assert "260 ns under slub" in text
    assert "for 0 and 2.00 such lines" in text


def test_shares_of_the_fast_path_name_the_counters_they_come_from():
    one = result("slab", counters={"allochit": 90, "allocmiss": 10})
    other = result("slub", counters={"alloc_fastpath": 60, "alloc_slowpath": 40})

    found = findings(one, other)

    finding = found["share.allocations served by the CPU's own objects"]
    assert (finding.first, finding.second) == (90, 60)
    assert (
        "90.0% under slab (allochit), 60.0% under slub (alloc_fastpath)" in finding.text
    )


def test_a_counter_of_one_policy_alone_is_not_compared():
    one = result("slab", counters={"grown": 100})
    found = findings(one, result("slub", counters={"alloc_slab": 50}))

    assert found["counters.grown"].second is None
    assert "0.1 under slab, which alone" in found["counters.grown"].text
    assert found["new_slabs"].difference == pytest.approx(-0.05)


def test_results_without_a_figure_have_no_sentence_on_it():
    bare = {"elapsed_s": 1.0}
    pair = result("slab", bare), result("slub", bare)

    (difference,) = explain(*pair)

    assert [chapter.title for chapter in difference.chapters] == ["Time"]


@pytest.mark.parametrize(
    ("engine", "word"), [("native", "measured"), ("sim", "simulated")]
)
def test_measured_and_simulated_are_called_what_they_are(engine, word):
    text = str(explain(result("slab", engine=engine), result("slub", engine=engine)))

    other = {"measured": "simulated", "simulated": "measured"}[word]
    assert word in text
    assert other not in text


@pytest.mark.parametrize(
    ("times", "words"),
    [
        (([1.0, 1.2], [1.3, 1.4]), "are apart"),
        (([1.0, 1.3], [1.2, 1.4]), "overlap: the results may not differ at all"),
        (([1.0], [2.0]), "One run each"),
    ],
)
def test_the_range_of_repeats_is_told(times, words):
    pair = [
        result(policy, *[sample(elapsed_s=time) for time in some])
        for policy, some in zip(("slab", "slub"), times, strict=True)
    ]

    assert words in str(explain(*pair)).replace("\n  ", " ")


def test_the_text_fits_a_mail():
    profile = {f"function_with_a_long_name_{n}": 0.1 for n in range(10)}
    text = str(explain(result("slab", profile=profile), result("slub")))

    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 78


# -- what is compared ------------------------------------------------------------------


def test_policies_of_one_file_are_compared_with_the_first_of_their_setting(tmp_path):
    path = tmp_path / "x.slabq"
    Results(
        [
            result(policy, parameters={"groups": groups})
            for groups in (1, 2)
            for policy in ("slab", "slub", "slub+q")
        ]
    ).save(path)

    labels = [difference.labels for difference in explain(path)]

    assert labels == [("slab", "slub"), ("slab", "slub+q")] * 2


def test_two_results_of_one_policy_are_named_by_what_tells_them_apart():
    other = slabq.Machine(cpus=4, name="quad")
    pairs = {
        ("slab on twin", "slab on quad"): result("slab", machine=other),
        ("slab (groups 1)", "slab (groups 5)"): result(
            "slab", parameters={"groups": 5}
        ),
        ("the first (slab)", "the second (slab)"): result("slab"),
    }
    for labels, second in pairs.items():
        assert explain(result("slab"), second).differences[0].labels == labels


REFUSED = {
    "workload hackbench, churn": (result("slab"), result("slab", workload="churn")),
    "engine": (result("slab"), result("slab", engine="native")),
    "count": (Results([result("slab"), result("slub")]), result("slab")),
    "one result": (result("slab"), None),
    "none": (Results([]), None),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_compared_is_refused_in_one_line(name):
    with pytest.raises(ParameterError, match="accepted are") as caught:
        explain(*REFUSED[name])

    assert "\n" not in str(caught.value)


# -- simulated results -----------------------------------------------------------------


@pytest.fixture(scope="module")
def simulated():
    return slabq.sweep(
        "hackbench",
        policy=["slab", "slub"],
        kernel="2.6.35",
        machine="penryn-2x4",
        engine="sim",
        groups=1,
        loops=10,
    )


def test_the_functions_of_a_run_add_up_to_its_cpu_time(simulated):
    found = findings(*simulated)
    parts = [f for name, f in found.items() if name.startswith("part.")]

    assert sum(f.first for f in parts) == pytest.approx(found["cpu_ns"].first)
    assert sum(f.second for f in parts) == pytest.approx(found["cpu_ns"].second)


def test_the_lines_of_a_function_take_no_longer_than_the_function(simulated):
    for row in simulated:
        used_ns = row.sample["busy"] * row.elapsed_s * 1e9 * row.machine.cpus
        assert row.sample["lines"]
        for function, kinds in row.sample["lines"].items():
            ns = sum(kind["ns"] for kind in kinds.values())
            assert ns <= row.sample["profile"][function] * used_ns * 1.0001
            assert all(kind["count"] > 0 for kind in kinds.values())


def test_a_machine_of_one_cpu_fetches_no_line_from_another():
    row = slabq.run(
        "kmalloc",
        policy="slub",
        machine=slabq.Machine(cpus=1),
        engine="sim",
    )

    kinds = {kind for f in row.sample["lines"].values() for kind in f}
    assert kinds
    assert kinds.isdisjoint({"core", "other_cache", "other_node", "remote_memory"})


# -- ablation --------------------------------------------------------------------------


def test_outcomes_are_ranked_by_what_they_change(simulated):
    changes = ["upgrade_ps", "limit=8", "noaliencache=1"]

    (found,) = ablate(simulated, changes=changes)

    moved = [abs(outcome.ratio - found.ratio) for outcome in found.outcomes]
    assert moved == sorted(moved, reverse=True)
    assert {o.change.name for o in found.outcomes} == {
        "upgrade_ps",
        "limit",
        "noaliencache",
    }


def test_the_unchanged_pair_comes_out_as_it_was_saved(simulated):
    (found,) = ablate(simulated, changes=["upgrade_ps"])

    assert found.first_ns == simulated[0].sample["ns_per_operation"]
    assert found.second_ns == simulated[1].sample["ns_per_operation"]
    assert not any("another version" in note for note in found.notes)


def test_an_option_without_effect_changes_nothing_event_by_event(simulated):
    # One node: there are no alien arrays to leave out.
    (found,) = ablate(simulated, changes=["noaliencache=1"])

    assert found.outcomes[0].is_same
    (sentence,) = found.sentences()
    assert sentence == "slab, noaliencache=1: changes nothing, event by event."


def test_a_change_goes_to_the_policies_that_have_the_option(simulated):
    (found,) = ablate(simulated, changes=["slub_max_order=0"])
    (outcome,) = found.outcomes

    assert outcome.change.owner == "slub"
    assert outcome.first_ns == found.first_ns


def test_what_is_so_already_is_no_change(simulated):
    one, other = simulated
    names = {(c.owner, c.name) for c in default_changes(one, other)}

    assert ("machine", "lock_handover_ps") not in names  # 0 on this machine
    assert ("slab", "shared") in names
    assert not any(owner == "sheaves" for owner, _ in names)


def test_an_ablation_of_measured_results_is_refused():
    pair = result("slab", engine="native"), result("slub", engine="native")

    with pytest.raises(ParameterError, match=r"engine native.*accepted are"):
        ablate(*pair)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("limt", "known are limit"),
        ("limit=many", "'limit=many': accepted are NAME and NAME=VALUE"),
        ("limit=0x10", "'limit=0x10': accepted are NAME and NAME=VALUE"),
        ("limit=-5", "limit is -5: accepted are 0 to"),
        ("upgrade_ps=-1", "upgrade_ps"),
    ],
)
def test_a_change_that_is_not_accepted_is_refused_before_any_run(change, words):
    with pytest.raises(ParameterError, match=words):
        ablate(result("slab"), result("slub"), changes=[change])


def test_a_sentence_tells_the_ratio_and_who_moved():
    change = Change("machine", "upgrade_ps", 0)
    outcome = Outcome(change, first_ns=100.0, second_ns=110.0)
    found = Ablation(("slab", "slub"), 100.0, 150.0, [outcome])

    assert found.sentences() == [
        "machine, upgrade_ps=0: slub/slab 1.100 (-0.400); slub from 150 to 110 ns."
    ]


# -- command line ----------------------------------------------------------------------


def test_the_command_prints_one_json_document(simulated, tmp_path, capsys):
    path = tmp_path / "x.slabq"
    simulated.save(path)

    assert main(["explain", str(path), "--json", "--change", "upgrade_ps"]) == 0
    document = json.loads(capsys.readouterr().out)

    assert document["differences"][0]["labels"] == ["slab", "slub"]
    assert document["ablations"][0]["outcomes"][0]["change"]["name"] == "upgrade_ps"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["explain"], "0 result files are given: accepted are one or two"),
        (["explain", "a", "b", "c"], "3 result files are given"),
        (["explain", __file__], "is not a result file"),
        (["explain", "no-such"], "no-such: No such file"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(words, told, capsys):
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert told in err
    assert err.count("\n") == 1
