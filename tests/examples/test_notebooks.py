"""The notebooks run from top to bottom in an empty folder, and what they show is what they are stored with."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.long

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "examples" / "notebooks").glob("*.ipynb"))
SLOW = {"epsilon_sweep"}
LARGEST = 400_000
"""Bytes of a notebook, outputs included."""


def _cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _shown(cell: dict[str, Any]) -> list[str]:
    """What a cell shows, but for the line of a run's progress, which is empty in the end."""
    kinds = []
    for output in cell["outputs"]:
        data = output.get("data", {})
        if output["output_type"] == "stream":
            kinds.append(output["name"])
        elif "".join(data.get("text/html", ["-"])):
            kinds.append(" ".join(sorted(data)))
    return list(dict.fromkeys(kinds))


def _words(cell: dict[str, Any]) -> list[str]:
    """What a cell says, but for its numbers, which differ a little from machine to machine."""
    texts = []
    for output in cell["outputs"]:
        data = output.get("data", {})
        text = "".join(output.get("text", data.get("text/html", data.get("text/plain", ""))))
        texts += [word for word in re.split(r"[\W\d_]+|e-", text) if len(word) > 2]
    return texts


def _names() -> list[Any]:
    return [
        pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem in SLOW else [])
        for path in NOTEBOOKS
    ]


def test_there_are_notebooks() -> None:
    assert {path.stem for path in NOTEBOOKS} > SLOW


@pytest.mark.parametrize("path", _names())
def test_a_notebook_runs_and_shows_what_it_is_stored_with(path: Path, tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    pytest.importorskip("pandas")
    import nbformat

    notebook = nbformat.read(path, 4)
    stored, said = ([of(cell) for cell in _cells(notebook)] for of in (_shown, _words))
    where = {"metadata": {"path": str(tmp_path)}}
    done = nbclient.NotebookClient(notebook, timeout=900, kernel_name="python3", resources=where).execute()
    assert [_shown(cell) for cell in _cells(done)] == stored
    assert [_words(cell) for cell in _cells(done)] == said


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_small_and_whole(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.encode()) < LARGEST
    cells = _cells(json.loads(text))
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert outputs
    assert not [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"]
    # Nothing of the machine that ran it.
    assert not [word for word in ("/home/", "/root/", "/tmp/", "/Users/", "site-packages") if word in text]
