"""The command line: what it prints, where, and with which exit status."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import slabq
from slabq import progress
from slabq.cli import main
from slabq.cli_run import _with_pipe_spelled
from slabq.interrupt import is_command
from slabq.policy import policy_names

TRACE = str(slabq.bundled_trace_path())
SMALL = ["-g", "1", "-l", "5", "--cpus", "2"]


@pytest.fixture
def slabq_command(capsys):
    """Run the command in this process; its status, standard output and error."""

    def call(*words):
        status = main([str(word) for word in words])
        out, err = capsys.readouterr()
        return status, out, err

    return call


def succeeds(outcome):
    status, out, err = outcome
    assert (status, err) == (0, "")
    return out


# -- usage errors ----------------------------------------------------------------------

# Words of the command line -> words of the one line on standard error.
REFUSED = {
    "runn hackbench": ["unknown command 'runn': known are run,"],
    "run": ["no workload given: known are hackbench"],
    "run hackbenhc": ["unknown workload 'hackbenhc': known are hackbench"],
    "run hackbench -p slubb": ["unknown policy 'slubb': known are slub,"],
    "run hackbench -p ,": ["policy is ','", "an empty name"],
    "run hackbench -p slab,": ["policy is 'slab,'", "an empty name", "known are slab"],
    "run hackbench -p slab,,slub": ["an empty name"],
    "run hackbench -g 0x10": ["groups is '0x10': accepted are 1 to", "whole number"],
    "run hackbench -g 1_0": ["groups is '1_0': accepted are 1 to"],
    "run hackbench -g 010": ["groups is '010': accepted are 1 to"],
    "run hackbench --seed 0x10": ["seed is '0x10'"],
    "run hackbench -k 6.11": ["unknown kernel '6.11': known are 6.1"],
    "run hackbench -p slab -k 6.18": ["unknown kernel of slab '6.18': known are 6.1,"],
    "run hackbench -m opteron": ["unknown machine 'opteron': known are opteron-4x4,"],
    "run hackbench -m no/such.toml": ["no/such.toml", "No such file"],
    "run hackbench -e simm": ["unknown engine 'simm': accepted: sim, native"],
    "run hackbench --distance 10,20;20": ["distance has 2 rows", "square"],
    "run hackbench --distance 10,20;20,11": ["distance[1][1] is 11", "accepted is 10"],
    "run hackbench --cpus 2 --nodes 4": ["nodes is 4 with 2 cpus"],
    "run hackbench --node-bytes 100": ["node_bytes is 100", "multiples of 4194304"],
    "run hackbench --node-bytes big": ["node_bytes is 'big'"],
    "run hackbench --numa-fake 2:10": ["numa-fake has 1 distances for 2 nodes"],
    "run hackbench --numa-fake 2 --distance 10": ["--distance and --numa-fake"],
    "run hackbench --set x": ["--set is 'x': accepted is NAME=VALUE"],
    "run hackbench --set noaliencaches=1": ["'noaliencaches': known are noaliencache"],
    "run hackbench --set slab_max_order=99": ["slab_max_order is 99: accepted are 0"],
    "run hackbench --set noaliencache=maybe": ["noaliencache is 'maybe'"],
    "run hackbench --set limit=0x10": ["limit is '0x10': accepted are 0 to 4096"],
    "run hackbench --set limit=0b1": ["limit is '0b1'", "a whole number"],
    "run hackbench --set limit=1_0": ["limit is '1_0'", "a whole number"],
    "run hackbench --set noaliencache=0x1": ["noaliencache is '0x1'"],
    "geometry -p slab --size 100 --set limit=0x10": ["limit is '0x10'"],
    "run hackbench -g many": ["groups is 'many': accepted are 1 to"],
    "run hackbench -g 1,0": ["groups is 0: accepted are 1 to"],
    "run hackbench --mode fiber": ["unknown mode 'fiber': known are"],
    "run hackbench --repeat 0": ["repeat is 0: accepted are 1 to"],
    "run hackbench --seed -1": ["seed is -1: accepted are 0 to"],
    "run hackbench --format xml": ["unknown format 'xml': known are html"],
    "run hackbench --plot x.bmp": ["plot is 'x.bmp': accepted end in .png"],
    "run hackbench -o no/such/file": ["'no/such/file'"],
    "run hackbench -o .": ["'.' is no file: accepted is the name of one"],
    f"run hackbench -g {'9' * 9999}": ["groups is '9999", "...: accepted are 1 to"],
    f"run hackbench -p {'x' * 9999}": ["unknown policy 'xxxx", "...: known are slab"],
    "exec /dev/zero -p slab": ["script /dev/zero is longer: accepted are at most"],
    "run hackbench 10 fiber": ["'10 fiber'", "100 process 2000"],
    "run hackbench --polcy slab": ["No such option '--polcy'", "--policy"],
    "run hackbench -g": ["'-g' requires an argument"],
    "replay no-such-trace": ["no-such-trace: No such file"],
    "replay": ["Missing argument 'TRACE'"],
    f"stat {TRACE} -s speed": ["'speed'"],
    f"stat {TRACE} -l few": ["line is 'few'"],
    "geometry -p slab": ["Missing option '--size'"],
    "geometry --size 8": ["Missing option '--policy'"],
    "geometry --host no-such": ["no file no-such", "accepted are tab-separated"],
    "geometry -p slab --size 0": ["size is 0: accepted are 1 to"],
    "geometry -p slab,slub --size 8": ["policy is 'slab,slub': accepted is one"],
    "exec no-such-script -p slab": ["no-such-script: No such file"],
    "show machine opteron": ["known are opteron-4x4,"],
    "show policy slubb": ["known are slub,"],
    "show": ["Missing command"],
}


@pytest.mark.parametrize("words", REFUSED)
def test_bad_usage_is_one_line_on_standard_error_and_status_2(slabq_command, words):
    status, out, err = slabq_command(*words.split())

    assert (status, out) == (2, "")
    assert err.startswith("slabq: ")
    assert err.count("\n") == 1
    for word in REFUSED[words]:
        assert word in err


def test_a_file_that_is_no_trace_is_told_by_name(slabq_command, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("nothing of this is an event\n")

    status, out, err = slabq_command("replay", path)

    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "notes.txt" in err


@pytest.mark.parametrize(
    "words",
    [
        ("show", "machine", "/dev/zero"),
        ("run", "hackbench", "-m", "/dev/zero"),
        ("run", "c:/dev/zero"),
        ("run", "tbench", "--loadfile", "/dev/zero"),
        ("exec", "/dev/zero", "-p", "slab"),
        ("explain", "/dev/zero"),
    ],
)
def test_a_file_without_an_end_is_told(slabq_command, words):
    status, out, err = slabq_command(*words)

    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "/dev/zero" in err


def test_the_statistics_of_a_trace_may_have_no_row(slabq_command, tmp_path):
    path = tmp_path / "nil.txt"
    path.write_text("  a 1 [000] 1.0: kmem:kfree: call_site=1 ptr=(nil)\n")

    stated = json.loads(succeeds(slabq_command("stat", path, "--alloc", "--json")))

    assert (stated["alloc"], stated["trace"]["events"]) == ([], 1)


def test_a_binary_script_is_told_by_name(slabq_command, tmp_path):
    path = tmp_path / "script.ops"
    path.write_bytes(b"\xff\xfe\x00")

    status, _, err = slabq_command("exec", path, "-p", "slab")

    assert (status, err.count("\n")) == (2, 1)
    assert "script.ops is not text" in err


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("cache c 64 0 -\nstep \0", "script line 2: it has a NUL"),
        ("cache c 64 0 -\nf 0 0 0", "script line 2: the id is 0: there is none yet"),
        (
            f"cache c 64 0 -\na 0 0 3\nf 0 0 0-{1 << 62}",
            f"script line 3: the id is {1 << 62}: accepted are 0 to 2",
        ),
        (
            f"cache c 64 0 -\na 0 0 3\nfb 0 0 -{1 << 62}-2",
            f"script line 3: the id is -{1 << 62}: accepted are 0 to 2",
        ),
        (
            "cache c 64 0 -\nsa 0 0 0",
            "script line 2: the sheaf is 0: there is none yet",
        ),
        (f"cache c {'9' * 20} 0 -", f"script line 1: {'9' * 20}: accepted is a whole"),
    ],
)
def test_a_broken_script_is_told_by_line(slabq_command, tmp_path, script, message):
    path = tmp_path / "script.ops"
    path.write_text(script)

    status, out, err = slabq_command("exec", path, "-p", "slub")

    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_the_example_in_the_help_of_exec_runs(slabq_command, tmp_path):
    text = succeeds(slabq_command("exec", "--help"))
    example = re.search(r"printf '(.*)' \| slabq exec -p slub -", text)
    script = tmp_path / "script.ops"
    script.write_text(example[1].replace("\\n", "\n"))

    out = succeeds(slabq_command("exec", script, "-p", "slub"))

    allocated, freed = [json.loads(line)["objs"] for line in out.splitlines()[-2:]]
    assert len(allocated) == len(freed) == 3


def test_an_empty_script_prints_nothing(slabq_command):
    assert succeeds(slabq_command("exec", os.devnull, "-p", "slub")) == ""


def test_a_closed_output_is_told_in_one_line():
    command = f"{sys.executable} -P -m slabq policies >&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)

    assert done.returncode == 2
    assert done.stderr == "slabq: standard output is closed\n"


def test_a_closed_standard_error_changes_no_status():
    command = f"{sys.executable} -P -m slabq polices 2>&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (2, "")


def test_a_machine_that_is_too_small_for_the_work_is_told_in_one_line(slabq_command):
    words = ["-p", "slab", "-g", "100", "--cpus", "2", "--node-bytes", "4M"]
    status, out, err = slabq_command("run", "hackbench", *words)

    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "no memory" in err


# -- run and replay --------------------------------------------------------------------


def test_run_prints_one_table_with_a_line_a_policy(slabq_command):
    out = succeeds(slabq_command("run", "hackbench", *SMALL))

    lines = [line.split() for line in out.splitlines()]
    ratios = [line[3] for line in lines if line and line[0] in policy_names()]
    assert len(ratios) == len(policy_names())
    assert ratios[0] == "1.000"
    assert "kernel: each policy as in the newest kernel profile that has it" in out
    assert max(map(len, out.splitlines())) <= 78


def test_run_prints_exactly_one_json_document(slabq_command):
    out = succeeds(
        slabq_command("run", "hackbench", "-p", "slub,slab", "--json", *SMALL)
    )

    rows = json.loads(out)["results"]
    assert [row["policy"] for row in rows] == ["slub", "slab"]
    assert [row["kernel"] for row in rows] == ["6.18", "6.1"]
    assert rows[0]["parameters"]["groups"] == 1
    assert rows[0]["operations"] == 20 * 20 * 5


def test_a_kernel_chooses_the_policies_that_have_it(slabq_command):
    out = succeeds(slabq_command("run", "hackbench", "-k", "5.15", "--json", *SMALL))

    rows = json.loads(out)["results"]
    assert {row["kernel"] for row in rows} == {"5.15"}
    assert "slab" not in {row["policy"] for row in rows}


def test_a_setting_goes_to_the_policies_that_have_it(slabq_command):
    words = ["--set", "slub_max_order=1", "--set", "noaliencache=true", "--json"]
    out = succeeds(slabq_command("run", "hackbench", *words, *SMALL))

    options = {row["policy"]: row["options"] for row in json.loads(out)["results"]}
    assert options["slab"] == {"noaliencache": True}
    assert options["slub"] == {"slub_max_order": 1}


def parameters(slabq_command, *words):
    out = succeeds(slabq_command("run", *words, "--json", "--cpus", "2"))
    return json.loads(out)["results"][0]["parameters"]


def test_hackbench_takes_the_options_of_the_original(slabq_command):
    words = ["-p", "slab", "-g", "2", "-l", "3", "-s", "50", "-f", "4", "-T", "--pipe"]

    found = parameters(slabq_command, "hackbench", *words)

    wanted = {"groups": 2, "loops": 3, "message_bytes": 50, "fds": 4}
    assert wanted.items() <= found.items()
    assert (found["mode"], found["pipe"]) == ("thread", 1)


def test_hackbench_takes_the_old_form(slabq_command):
    found = parameters(slabq_command, "hackbench", "-pipe", "1", "thread", "4")

    assert (found["groups"], found["mode"], found["loops"]) == (1, "thread", 4)
    assert found["pipe"] == 1


def test_options_may_stand_before_the_workload(slabq_command):
    found = parameters(slabq_command, "-p", "slab", "hackbench", "-l", "1", "-g", "1")

    assert found["loops"] == 1


@pytest.mark.parametrize(
    ("words", "spelled"),
    [
        ("-p -g 1", "--pipe -g 1"),
        ("-g 1 -p", "-g 1 --pipe"),
        ("-p 100 process 2000", "--pipe 100 process 2000"),
        ("-pipe 10", "--pipe 10"),
        ("-p slab,slub -p", "-p slab,slub --pipe"),
        ("-p slbu", "-p slbu"),
    ],
)
def test_hackbenchs_own_p_is_told_from_the_policies(words, spelled):
    assert _with_pipe_spelled(words.split()) == spelled.split()


def test_several_values_of_a_parameter_make_a_sweep(slabq_command):
    words = ["-p", "slab,slub", "-g", "1,2", "-l", "2", "--cpus", "2"]
    out = succeeds(slabq_command("run", "hackbench", *words))

    assert re.search(r"^groups +slab +slub +slub/slab$", out, re.M)
    assert re.search(r"^2 +", out, re.M)


def test_run_saves_and_draws_what_it_printed(slabq_command, tmp_path):
    result, plot = tmp_path / "x.slabq", tmp_path / "x.png"
    words = ["-p", "slab", "--repeat", "2", "-o", result, "--plot", plot, "--json"]
    out = succeeds(slabq_command("run", "hackbench", *words, *SMALL))

    assert slabq.load(result).rows() == json.loads(out)["results"]
    assert plot.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("name", ["markdown", "csv", "latex", "html"])
def test_tables_come_in_other_forms(slabq_command, name):
    words = ["-p", "slab", "--format", name]
    out = succeeds(slabq_command("run", "hackbench", *words, *SMALL))

    mark = {
        "markdown": "| slab |",
        "csv": "slab,6.1",
        "latex": r"\hline",
        "html": "<td",
    }
    assert mark[name] in out


def test_replay_counts_the_trace_alike_under_every_policy(slabq_command):
    out = succeeds(slabq_command("replay", TRACE, "--json", "--cpus", "2"))

    rows = json.loads(out)["results"]
    assert [row["policy"] for row in rows] == list(policy_names())
    assert all(row["trace"] == rows[0]["trace"] for row in rows)
    members = {"allocations", "matched_frees", "unmatched_frees", "nil_frees"}
    assert members | {"reused", "live", "lost"} <= set(rows[0]["trace"])


def test_a_numa_layout_overrides_the_machines(slabq_command):
    words = ["-m", "penryn-2x4", "--numa-fake", "2:10,21,21,10", "--json"]
    described = json.loads(succeeds(slabq_command("show", "machine", *words)))

    assert described["distance"] == [[10, 21], [21, 10]]
    assert described["node_of_cpu"] == [0] * 4 + [1] * 4


# -- the other commands ----------------------------------------------------------------


@pytest.mark.parametrize("command", ["policies", "kernels", "machines", "workloads"])
def test_a_list_has_a_line_each_and_the_same_names_as_json(slabq_command, command):
    text = succeeds(slabq_command(command))
    lines = [line for line in text.splitlines() if not line.startswith(" ")]
    entries = json.loads(succeeds(slabq_command(command, "--json")))

    assert [line.split()[0] for line in lines] == [entry["name"] for entry in entries]
    assert all(len(line) <= 80 for line in lines)


def test_defaults_name_every_option(slabq_command):
    out = succeeds(slabq_command("policies", "--defaults"))

    for policy in policy_names():
        for option in slabq.policy_options(policy).values():
            assert f"{option.name}={option.default}" in out


def test_show_machine_prints_distances_and_fallback_order(slabq_command):
    out = succeeds(slabq_command("show", "machine", "opteron-4x4"))

    nodes = out.split("\na line, from CPU 0")[0]
    rows = [line.split() for line in nodes.splitlines() if re.match(r"[0-3] ", line)]
    distances = [row[2:6] for row in rows]
    fallback = [row[6:10] for row in rows]
    assert distances[3] == ["30", "20", "20", "10"]
    # As 6.1 builds its node lists for these distances.
    assert fallback == [list("0123"), list("1230"), list("2301"), list("3120")]


def test_show_machine_prints_what_distance_costs(slabq_command):
    words = ["--cpus", "2", "--distance", "10 30;20 10", "--remote-delay-ns", "50"]
    described = json.loads(succeeds(slabq_command("show", "machine", *words, "--json")))

    assert described["added_ns_per_remote_line"] == [[0, 100], [50, 0]]


def test_show_policy_prints_every_option_by_profile(slabq_command):
    shown = json.loads(succeeds(slabq_command("show", "policy", "slab", "--json")))
    out = succeeds(slabq_command("show", "policy", "slab"))

    assert shown["kernels"]["2.6.24"]["objfreelist"] == 0
    assert shown["kernels"]["6.1"]["objfreelist"] == 1
    assert all(option["name"] in out for option in shown["options"])


def test_geometry_prints_one_object(slabq_command):
    words = ["-p", "slub", "-k", "6.1", "--size", "256", "--cpus", "16"]
    found = json.loads(succeeds(slabq_command("geometry", *words, "--json")))
    text = succeeds(slabq_command("geometry", *words))

    assert (found["order"], found["num"], found["cpu_partial"]) == (1, 32, 52)
    assert re.search(r"^ +num +32$", text, re.M)


def test_geometry_takes_options_of_the_policy(slabq_command):
    words = ["-p", "slub", "-k", "6.1", "--size", "256", "--cpus", "16", "--json"]
    found = json.loads(
        succeeds(slabq_command("geometry", *words, "--set", "slub_max_order=0"))
    )

    assert (found["order"], found["num"]) == (0, 16)


def test_exec_prints_a_json_object_a_line(slabq_command, tmp_path):
    script = tmp_path / "script.ops"
    script.write_text("cache example 64 0 -\na 0 0 2\n")

    out = succeeds(slabq_command("exec", script, "-p", "slub", "-k", "6.1"))

    assert json.loads(out.splitlines()[1])["objs"] == [[0, 0], [0, 1]]


def test_stat_prints_the_summary_alone_or_with_tables(slabq_command):
    summary = succeeds(slabq_command("stat", TRACE))
    both = succeeds(slabq_command("stat", TRACE, "--caller", "--alloc", "-l", "2"))

    assert summary.strip().startswith("SUMMARY")
    assert both.endswith(summary)
    assert both.index("Callsite") < both.index("Alloc Ptr")


def test_stat_prints_exactly_one_json_document(slabq_command):
    out = succeeds(slabq_command("stat", TRACE, "--caller", "-l", "3", "--json"))

    document = json.loads(out)
    assert document["totals"]["bytes_allocated"] == 6236064
    assert len(document["caller"]) == 3
    assert document["caller"][0]["call_site"].startswith("lsm_blob_alloc")


def test_version_names_the_build_and_the_host(slabq_command):
    out = succeeds(slabq_command("--version"))

    assert out.startswith(f"slabq {slabq.__version__}\n")
    assert "core compiler:" in out
    assert "host:" in out


def test_help_is_there_for_every_command(slabq_command):
    listed = re.findall(r"^  (\w+) +[A-Z]", succeeds(slabq_command("--help")), re.M)

    assert {"run", "replay", "stat", "geometry", "exec", "show", "demo"} <= set(listed)
    for name in listed:
        assert succeeds(slabq_command(name, "--help")).startswith("Usage: ")


# -- as a process ----------------------------------------------------------------------


def process(*words, **options):
    command = [sys.executable, "-P", "-m", "slabq", *words]
    return subprocess.Popen(command, text=True, **options)


def test_the_module_runs_as_the_command():
    out, _ = process("policies", stdout=subprocess.PIPE).communicate(timeout=60)

    assert [line.split()[0] for line in out.splitlines()] == list(policy_names())


def test_interrupting_ends_with_one_line_and_status_130():
    # A terminal on standard error shows when the run is under way, by its bar.
    terminal, other = pty.openpty()
    words = ["run", "hackbench", "-p", "slab", "-g", "100", "-l", "1000000"]
    child = process(*words, stdout=subprocess.PIPE, stderr=other)
    os.close(other)
    seen = b""
    while b"hackbench" not in seen:
        seen += os.read(terminal, 4096)
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=60)
    while chunk := read_terminal(terminal):
        seen += chunk
    os.close(terminal)

    assert (child.returncode, out) == (130, "")
    assert seen.rstrip().endswith(b"slabq: interrupted")


@pytest.mark.parametrize("module", ["difflib", "click"])
def test_interrupting_the_imports_is_the_same_line_and_status(tmp_path, module):
    # A module of that name that is interrupted: one of the package, one of the command.
    (tmp_path / f"{module}.py").write_text("raise KeyboardInterrupt")
    path = os.pathsep.join([str(tmp_path), *sys.path])

    done = subprocess.run(
        [sys.executable, "-P", "-m", "slabq", "policies"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        timeout=60,
    )

    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "slabq: interrupted\n"


def test_another_program_keeps_its_own_way_with_interrupts():
    words = "import sys, slabq; assert sys.excepthook is sys.__excepthook__"

    subprocess.run([sys.executable, "-P", "-c", words], check=True, timeout=60)


@pytest.mark.parametrize(
    ("words", "is_one"),
    [
        (["python3", "/usr/bin/slabq", "run"], True),
        (["python3", "-m", "slabq"], True),
        (["python3", "-X", "dev", "-m", "slabq"], True),
        (["python3", "-B", "-m", "slabq", "run"], True),
        (["python3", "-m", "pytest", "slabq"], False),
        (["python3", "slabq.py"], False),
        (["python3"], False),
    ],
)
def test_only_the_command_itself_is_taken_for_the_command(words, is_one):
    assert is_command(words) is is_one


def test_a_trace_is_read_from_standard_input():
    with open(TRACE, "rb") as file:
        packed = file.read()
    by_name = process("stat", TRACE, stdout=subprocess.PIPE).communicate(timeout=60)[0]

    for command in (["stat", "-"], ["replay", "-", "-p", "slub", "--cpus", "2"]):
        done = subprocess.run(
            [sys.executable, "-P", "-m", "slabq", *command],
            input=packed,
            capture_output=True,
            timeout=60,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert (done.returncode, done.stderr) == (0, b"")
        if command[0] == "stat":
            assert done.stdout.decode() == by_name
        else:
            assert b"slub" in done.stdout


def test_system_calls_are_a_parameter_of_simulated_runs_alone(slabq_command):
    words = ["run", "hackbench", "-p", "slab", *SMALL]

    native = succeeds(slabq_command(*words))
    simulated = succeeds(slabq_command(*words, "-e", "sim"))

    assert "syscall_ns" not in native
    assert "syscall_ns" in simulated


def test_the_help_of_run_says_that_a_workload_may_be_ones_own(slabq_command):
    assert "c:FILE.c" in succeeds(slabq_command("run", "--help"))


def read_terminal(terminal):
    try:
        return os.read(terminal, 4096)
    except OSError:  # the other end is closed
        return b""


def test_a_reader_that_goes_away_is_no_error():
    child = process(
        "policies", "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    child.stdout.close()
    err = child.stderr.read()
    child.stderr.close()

    child.wait(timeout=60)

    assert err == ""


def test_nothing_but_results_goes_to_standard_output_without_a_terminal():
    child = process(
        "run", "hackbench", "-p", "slab", "--json", *SMALL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    out, err = child.communicate(timeout=60)

    assert err == ""
    assert len(json.loads(out)["results"]) == 1


def test_a_command_imports_no_more_than_it_needs():
    code = (
        "import sys; from slabq.cli import main; main(['policies']);"
        "heavy = ('matplotlib', 'numpy', 'rich', 'pandas');"
        "print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )

    assert done.stdout.splitlines()[-1] == "[]"


class DrawnBar:
    """Stands in for the bar on the terminal and keeps what it was told."""

    task_ids = (0,)

    def __init__(self):
        self.updates = []

    def update(self, task, **values):
        self.updates.append(values)

    def start(self):
        self.updates.append("started")

    def stop(self):
        self.updates.append("stopped")


def test_a_bar_is_shown_after_two_seconds_with_the_time_left(monkeypatch):
    drawn = DrawnBar()
    clock = iter([0.0, 1.9, 3.0, 3.0, 3.0]).__next__
    monkeypatch.setattr(progress, "monotonic", clock)
    monkeypatch.setattr(progress.ProgressBar, "_make", lambda bar: drawn)

    with progress.ProgressBar("work", 2, show=True) as bar:
        bar(0.5)
        assert drawn.updates == []
        bar.begin_part(1, "second")

    shown = {"completed": 0.5, "left": "0:00:03 left", "description": "second"}
    assert drawn.updates == ["started", shown, "stopped"]


def test_no_bar_is_shown_where_there_is_no_terminal(monkeypatch):
    monkeypatch.setattr(progress, "DELAY_S", 0.0)
    monkeypatch.setattr(progress.ProgressBar, "_make", None)  # would fail if called

    with progress.ProgressBar("work") as bar:
        bar(0.5)


def test_readers_of_paths_take_pathlib_too(tmp_path):
    path = tmp_path / "box.toml"
    path.write_text("cpus = 2\n")

    assert slabq.read_machine(Path(path)).name == "box"
