"""The policy `sheaves` against recordings of Linux 6.18, line by line."""

import dataclasses

import oracle_suite as suite
import pytest

pytestmark = pytest.mark.skipif(not suite.ORACLE.exists(), reason=suite.KEPT_ASIDE)

FOLDERS = [folder for folder in suite.FOLDERS if folder.policy == "sheaves"]
# What SLUB of 6.18 did: caches without sheaves, and with debug flags, which end them.
SLUB_FOLDERS = [
    dataclasses.replace(folder, policy="sheaves")
    for folder in suite.FOLDERS
    if folder.policy == "slub" and folder.kernel == "6.18"
]
PAIRS = [
    pytest.param(folder, script, lines, id=f"{folder.name}/{script.stem}")
    for folder in [*FOLDERS, *SLUB_FOLDERS]
    for script, lines in suite.recordings(folder)
]
LOST = "linux-6.18.2/bug618-n4c16"


@pytest.mark.parametrize(("folder", "script", "lines"), PAIRS)
def test_a_script_prints_what_the_kernel_did(folder, script, lines):
    comparison = suite.compare_recording(folder, script, lines)

    assert comparison.total > 0
    assert comparison.is_equal, comparison.first_difference


def test_the_bulk_free_that_lost_objects_in_6_18_2_keeps_them():
    folder = suite.Folder(LOST, "sheaves", "6.18")
    script = suite.ORACLE / LOST / "bulk_free_leak.ops"
    recorded = suite.recorded_lines(script.with_suffix(".jsonl.gz"))

    own = suite.run_script(folder, script.read_text())  # each dump is checked

    freed = next(n for n, line in enumerate(recorded) if '"cmd":"fb' in line)
    before = slice(3, freed)  # after the comment, the variables and the machine
    assert own[before] == recorded[before]
    assert own[freed].split('"after"')[0] == recorded[freed].split('"after"')[0]
    assert own[freed] != recorded[freed]
