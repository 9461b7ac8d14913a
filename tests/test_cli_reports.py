"""Reports of a run's caches: from the command line, and kept with a result."""

import json
import pickle

import pytest

import slabq
from slabq.cli import main

TRACE = str(slabq.bundled_trace_path())
SMALL = ["run", "hackbench", "-g", "1", "-l", "5", "--cpus", "2"]
ALL = "slab,slub,slub+q"


@pytest.fixture
def slabq_command(capsys):
    """Run the command in this process; its standard output."""

    def call(*words):
        status = main([str(word) for word in words])
        out, err = capsys.readouterr()
        assert (status, err) == (0, "")
        return out

    return call


@pytest.fixture(scope="module")
def kept():
    """A result of each policy with its caches."""
    results = slabq.sweep(
        "hackbench",
        policy=ALL.split(","),
        groups=1,
        loops=5,
        machine=slabq.Machine(cpus=2),
        with_caches=True,
    )
    return {result.policy.name: result for result in results}


def blocks(text):
    """The lines below each heading of a report."""
    found = {}
    for line in text.splitlines():
        if ", policy " in line and line.endswith(":"):
            found[line] = lines = []
        elif found:
            lines.append(line)
    return found


@pytest.mark.parametrize("work", [SMALL, ["replay", TRACE, "--cpus", "2"]])
def test_slabinfo_follows_the_table_for_every_policy(slabq_command, work):
    out = slabq_command(*work, "-p", ALL, "--slabinfo")

    found = blocks(out)
    assert len(found) == 3
    for heading, lines in found.items():
        assert heading.startswith(f"{work[1] if work[0] == 'run' else 'replay'}, ")
        assert lines[1] == "slabinfo - version: 2.1"
        assert lines[2].startswith("# name            <active_objs>")
        assert all(" : slabdata " in line for line in lines[3:] if line)


def test_stats_are_the_tools_reports_and_slabs_statistics(slabq_command):
    found = blocks(slabq_command(*SMALL, "-p", ALL, "--stats"))

    for heading, lines in found.items():
        text = "\n".join(lines)
        assert "Slabcache Totals" in text
        assert "Slabs/Part/Cpu" in text
        assert "%Fast" in text
        assert ("globalstat" in text) == ("policy slab," in heading)
        assert ("Slabcache: kmalloc-512" in text) == ("policy slab," not in heading)
    slub = next(lines for heading, lines in found.items() if "policy slub," in heading)
    counter = next(line for line in slub if line.startswith("alloc_slowpath "))
    total, *cpus = counter.split()[1:]
    assert int(total) == sum(int(cpu.partition("=")[2]) for cpu in cpus)


def test_a_report_takes_the_tools_options(slabq_command):
    found = blocks(slabq_command(*SMALL, "-p", "slub", "--report", "-AD"))

    (lines,) = found.values()
    assert lines[1].split() == [
        *("Name", "Objects", "Alloc", "Free", "%Fast", "Fallb", "O", "CmpX", "UL")
    ]
    assert {line.split()[0] for line in lines[2:] if line} == {
        "kmalloc-512",
        "skbuff_head_cache",
    }


def test_headings_name_the_parameters_that_vary(slabq_command):
    out = slabq_command(
        *SMALL[:4], "-l", "5,6", "-p", "slub", "--cpus", 2, "--slabinfo"
    )

    assert [heading.partition(", policy")[0] for heading in blocks(out)] == [
        "hackbench, loops 5",
        "hackbench, loops 6",
    ]


def test_json_stays_one_document_whose_rows_have_no_caches(slabq_command):
    words = [*SMALL, "-p", "slub,slab", "--slabinfo", "--stats", "--repeat", "2"]
    plain = json.loads(slabq_command(*SMALL, "-p", "slub,slab", "--json"))
    document = json.loads(slabq_command(*words, "--json"))

    assert list(plain) == ["results"]
    assert list(document) == ["results", "slabinfo", "stats"]
    assert [len(texts) for texts in document.values()] == [2, 2, 2]
    for row in (*plain["results"], *document["results"]):
        assert "caches" not in row
        assert all("caches" not in sample for sample in row.get("samples", ()))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--report", "-Q"], "options of slabinfo are '-Q'"),
        (["--slabinfo", "--format", "csv"], "format is 'csv' with reports of caches"),
    ],
)
def test_what_could_not_be_printed_is_refused_before_the_run(capsys, words, message):
    assert main([*SMALL, *words]) == 2
    out, err = capsys.readouterr()

    assert out == ""
    assert message in err
    assert len(err.splitlines()) == 1


# -- kept with a result ----------------------------------------------------------------


@pytest.mark.parametrize("policy", ALL.split(","))
def test_the_rows_of_slabinfo_add_up_to_the_memory_of_the_run(kept, policy):
    result = kept[policy]

    assert sum(c["slabs"] for c in result.caches()) == result.memory["slabs"]
    assert sum(c["slab_bytes"] for c in result.caches()) == result.memory["bytes"]
    for counter, total in result.counters.items():
        assert sum(c["counters"][counter] for c in result.caches()) == total
    for cache in result.caches():
        assert cache["active_objs"] == sum(cache["nodes"]["objects"])
        assert cache["slabs"] == sum(cache["nodes"]["slabs"])
        assert cache["partial_slabs"] == sum(cache["nodes"]["partial"])
        for counter, values in cache["counters_by_cpu"].items():
            assert sum(values) == cache["counters"][counter]


def test_slabs_statistics_are_kept(kept):
    row = kept["slab"].slabinfo(statistics=True).splitlines()[2].split()

    assert row.index("globalstat") < row.index("cpustat")
    with pytest.raises(
        slabq.ParameterError, match="accepted are caches of policy slab"
    ):
        kept["slub"].slabinfo(statistics=True)


def test_a_result_keeps_its_caches_through_a_file_and_a_pickle(kept, tmp_path):
    result = kept["slub"]
    result.save(tmp_path / "x.slabq")

    (loaded,) = slabq.load(tmp_path / "x.slabq")
    copied = pickle.loads(pickle.dumps(result))

    for other in (loaded, copied):
        assert other.slabinfo() == result.slabinfo()
        assert other.report("-r") == result.report("-r")
    assert "caches" in result.repeat().sample


def test_a_result_that_kept_no_caches_says_so():
    result = slabq.replay(TRACE, policy="slub", machine=slabq.Machine(cpus=1))

    for read in (result.caches, result.slabinfo, result.report):
        with pytest.raises(slabq.ParameterError, match="accepted are results of with_"):
            read()
