"""Every notebook runs from its first cell to its last, and is committed as it ran.

The runs take minutes, so they are left out of `dev.py test`; `dev.py notebooks` runs
them. With SLABQ_WRITE_NOTEBOOKS=1 the outputs of the run are written into the files.
"""

import json
import os
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
CELL_SECONDS = 900
NOTEBOOK_BYTES_MAX = 400_000

by_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def outputs_of(document):
    return [out for cell in document["cells"] for out in cell.get("outputs", [])]


def test_there_are_notebooks():
    assert [path.name[:3] for path in NOTEBOOKS][:2] == ["00_", "01_"]


@by_notebook
def test_a_notebook_is_committed_with_the_outputs_of_one_run(path):
    document = json.loads(path.read_text())

    code = [cell for cell in document["cells"] if cell["cell_type"] == "code"]

    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert not [out for out in outputs_of(document) if out["output_type"] == "error"]


@by_notebook
def test_a_notebook_asks_answers_and_asserts(path):
    document = json.loads(path.read_text())

    texts = ["".join(cell["source"]) for cell in document["cells"]]

    assert texts[0].startswith("# ")
    assert "**Question.**" in texts[0]
    assert "**Answer.**" in texts[0]
    assert any("assert " in text for text in texts[1:])


@by_notebook
def test_a_notebook_is_small_and_names_no_folder_of_a_machine(path):
    text = path.read_text()

    assert len(text) < NOTEBOOK_BYTES_MAX
    assert str(FOLDER.parent) not in text
    assert "/home/" not in text


@pytest.mark.notebooks
@pytest.mark.unsanitized  # a kernel is another process, which is not instrumented
@pytest.mark.timeout(1800)
@by_notebook
def test_a_notebook_runs_in_a_fresh_kernel(path, monkeypatch, tmp_path):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # no run of before is taken
    monkeypatch.setenv("PYTHONWARNINGS", "default")
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(FOLDER)}},
    )

    client.execute()  # raises what a cell raised, an assertion of its claim too

    assert not [out for out in outputs_of(notebook) if out["output_type"] == "error"]
    if os.environ.get("SLABQ_WRITE_NOTEBOOKS") == "1":
        nbformat.write(notebook, path)
