"""The `vars` line of a script: the variables that the recorded kernels had."""

import json

import oracle_suite as suite
import pytest

pytestmark = pytest.mark.skipif(
    not suite.ORACLE.is_dir(), reason="no recordings of real kernels are there"
)


def variables(lines):
    (line,) = (line for line in lines if line.startswith('{"vars"'))
    return json.loads(line)["vars"]


@pytest.mark.parametrize("folder", suite.FOLDERS, ids=lambda folder: folder.name)
def test_a_script_says_the_variables_of_the_recorded_kernel(folder):
    _, lines = next(suite.recordings(folder))
    recorded = variables(suite.recorded_lines(lines))

    found = variables(suite.run_script(folder, "vars\n"))

    # what the recording calls the allocator ("SLUB 2.6.35.3") no option tells
    assert list(found) == list(recorded)
    assert ("allocator" in found) == folder.original
    assert {**found, "allocator": ""} == {**recorded, "allocator": ""}
