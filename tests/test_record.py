"""Recording kmem events: what perf is told, and what is said of what it did."""

import os
import shutil
import stat

import pytest

import slabq
from slabq import recording
from slabq.cli import main
from slabq.errors import Error, ParameterError, TraceFormatError
from slabq.recording import event_names, host_aliases, perf_command, record

EVENT = (
    "task 42 [000] 12.000{n}00: kmem:kmalloc: call_site=f+0x1 ptr=0xffff8880000{n}0000 "
    "bytes_req=100 bytes_alloc=128 gfp_flags=GFP_KERNEL node=-1 accounted=false"
)
LOST = "task 42 [000] 12.000900: PERF_RECORD_LOST lost 7"


def fake_perf(folder, *, events=2, lost=False, status=0, says="", writes=True):
    """A perf that runs the command and prints events, without the kernel's help."""
    lines = [EVENT.format(n=n) for n in range(1, events + 1)] + [LOST] * lost
    text = folder / "script.txt"
    text.write_text("".join(line + "\n" for line in lines))
    path = folder / "perf"
    path.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = script ]; then cat {text}; exit 0; fi\n'
        f'echo "$@" >> {folder}/calls\n'
        f"[ -n '{says}' ] && echo '{says}' >&2\n"
        'while [ "$1" != -o ]; do shift; done; file=$2\n'
        + ('printf PERFILE2________ > "$file"\n' if writes else f"exit {status or 1}\n")
        + 'while [ "$1" != -- ]; do shift; done; shift\n"$@"\n'
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def perf(tmp_path, monkeypatch):
    """Make a fake perf the one that is found."""

    def make(**options):
        fake_perf(tmp_path, **options)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        return tmp_path

    return make


# -- what perf is told -----------------------------------------------------------------


def test_perf_records_all_cpus_into_large_buffers(tmp_path):
    words = perf_command("perf", ["hackbench", "-g", "1"], 16, tmp_path / "x")

    assert words[:6] == ["perf", "record", "-q", "-m", "16M", "-a"]
    assert words[-3:] == ["hackbench", "-g", "1"]
    events = words[words.index("-e") + 1].split(",")
    assert {"kmem:kmalloc", "kmem:kfree", "kmem:kmem_cache_alloc"} <= set(events)


def test_only_events_of_this_kernel_are_asked_for(tmp_path):
    for name in ("kmalloc", "kfree", "kmalloc_node", "mm_page_alloc"):
        (tmp_path / name).mkdir()

    assert event_names([tmp_path / "none", tmp_path]) == [
        "kmalloc",
        "kmalloc_node",
        "kfree",
    ]


def test_aliases_are_the_links_of_the_slab_folder(tmp_path):
    (tmp_path / ":0000512").mkdir()
    (tmp_path / "dentry").mkdir()
    (tmp_path / "pool_workqueue").symlink_to(":0000512")

    assert host_aliases(tmp_path) == {"pool_workqueue": ":0000512"}


# -- what becomes of it ----------------------------------------------------------------


def test_a_trace_is_saved_and_read_back(perf, tmp_path, capsys):
    perf(events=3)
    path = tmp_path / "t.kmem.xz"

    assert main(["record", "-o", str(path), "--", "true"]) == 0

    assert "3 events on 1 CPUs, 0 lost;" in capsys.readouterr().out
    assert slabq.read_trace(path).summary["kinds"]["kmalloc"] == 3


def test_lost_events_are_told_and_the_status_is_1(perf, tmp_path, capsys):
    perf(lost=True)
    path = tmp_path / "t.kmem"

    assert main(["record", "-o", str(path), "--", "true"]) == 1

    told = "perf lost 7 events: --buffer-mib 32 may keep them"
    assert told in capsys.readouterr().err
    assert slabq.read_trace(path).summary["lost"] == 7


def test_options_of_the_command_stay_its_own(perf, tmp_path):
    folder = perf()
    path = tmp_path / "t.kmem"

    assert main(["record", "-o", str(path), "--", "sh", "-c", "exit 0", "-o"]) == 0

    assert (folder / "calls").read_text().rstrip().endswith("sh -c exit 0 -o")


def test_the_commands_own_errors_go_where_they_went(perf, capfd):
    perf()

    found = record(["sh", "-c", "echo out; echo err >&2; exit 3"])

    out, err = capfd.readouterr()
    assert (out, err) == ("out\n", "err\n")
    assert (found.status, found.lost) == (3, 0)


# -- what goes wrong -------------------------------------------------------------------


def test_without_perf_one_line_says_so(monkeypatch, capsys):
    which = shutil.which
    monkeypatch.setattr(
        recording.shutil, "which", lambda name: None if name == "perf" else which(name)
    )

    assert main(["record", "--", "true"]) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert "perf, which records the events, is not installed" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("says", "told"),
    [
        ("Error: No permissions to read /sys/kernel/tracing", "accepted are root"),
        ("access is limited, perf_event_paranoid is 4", "accepted are root"),
        ("event syntax error: kmem:kfree", "event syntax error: kmem:kfree"),
        ("", "it gives no reason"),
    ],
)
def test_a_perf_that_records_nothing_is_told_in_one_line(perf, says, told):
    perf(says=says, writes=False, status=129)

    with pytest.raises(Error, match=told) as caught:
        record(["true"])

    assert "\n" not in str(caught.value)


def test_a_recording_without_events_is_told_as_such(perf):
    perf(events=0)

    with pytest.raises(TraceFormatError):
        record(["true"])


@pytest.mark.parametrize(
    ("command", "options", "told"),
    [
        ([], {}, "no command"),
        (["no-such-command"], {}, "no command 'no-such-command'"),
        (["true"], {"buffer_mib": 0}, "buffer_mib is 0"),
        (["true"], {"buffer_mib": 3}, "buffer_mib is 3: accepted are powers of two"),
    ],
)
def test_wrong_usage_is_refused_before_perf_runs(command, options, told):
    with pytest.raises(ParameterError, match=told):
        record(command, **options)


def test_a_file_that_could_not_be_written_is_refused_before_the_work(capsys):
    assert main(["record", "-o", "no/such/file", "--", "true"]) == 2
    assert "'no/such/file'" in capsys.readouterr().err


# -- the real thing --------------------------------------------------------------------


def test_this_kernel_is_recorded_where_it_lets_us(tmp_path):
    try:
        found = record(["true"])
    except Error as error:
        pytest.skip(f"this host does not let us record: {error}")

    counts = found.trace.summary
    assert counts["kinds"]["kmem_cache_alloc"] > 0
    assert found.status == 0
