"""A test that cannot fail is none: policies broken on purpose are found, every way."""

import json
import subprocess
import sys
from pathlib import Path

import build
import pytest

pytestmark = [
    # The canaries are a build of their own, without instruments.
    pytest.mark.unsanitized,
    pytest.mark.timeout(600),
]
TRIAL = Path(__file__).parent / "trial.py"
# What each way of finding must say, where it may say one thing only.
SAYS = {
    ("lost", "check"): "objects as handed out",
    ("double", "check"): "objects as handed out|no object of the slab",
    ("miscounted", "check"): "there are|not the length|does not add up",
    ("misplaced", "check"): "is listed on node|leads astray|does not add up",
    # The state machine may meet another consequence of that defect first.
    ("elsewhere", "campaign"): "has memory, the object is on node",
}


@pytest.fixture(scope="session")
def canaries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the library with the broken policies."""
    reason = build.why_not()
    if reason is not None:
        pytest.skip(reason)
    return build.compile_canaries(tmp_path_factory.mktemp("canary"))


@pytest.mark.parametrize("policy", build.POLICIES)
def test_every_defect_is_found_and_a_sound_copy_passes(canaries, policy):
    command = [sys.executable, "-P", str(TRIAL), str(canaries), policy]
    trial = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert trial.returncode == 0, trial.stderr
    found = json.loads(trial.stdout)

    assert set(found.pop("none").values()) == {None}
    assert len(found) == 4 if policy == "slub+q" else 5
    for defect, ways in found.items():
        for way, message in ways.items():
            wanted = SAYS.get((defect, way), "")
            assert message is not None, f"{defect} is not found by {way}"
            assert any(part in message for part in wanted.split("|")), message
            assert "did not end" not in message


def test_the_canaries_are_copies_of_all_policies():
    from slabq import _core

    assert set(build.POLICIES) == set(_core.policies())
