"""`fedassay look`, and the same sheet in a run's report."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from fedassay.cli import cli
from fedassay.records.record import load_record
from fedassay.records.redacted import redact
from fedassay.reports import render
from fedassay.support.errors import DataError, PlanError

_RNG = np.random.default_rng(0)

_PLAN = """
name: looked
seeds: [0]
data:
  name: image_folder
  path: set
  split: {private: 0.4, attacker: 0.3, public: 0.1, test: 0.2}
clients: {count: 2, partition: iid}
backbone: {name: pixels}
methods: [fedcgs]
attacks: []
audits: []
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two classes of pictures, one file that is none, one picture that is in no class."""
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "set"
    for name in ("ill<b>", "well"):
        (root / name).mkdir(parents=True)
        for number in range(20):
            pixels = _RNG.integers(0, 256, size=(10, 12), dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{number}.png")
    (root / "well" / "notes.txt").write_text("x")
    Image.fromarray(pixels).save(root / "overview.png")
    (tmp_path / "plan.yaml").write_text(_PLAN)
    return root


def _look(*words: str) -> str:
    return CliRunner().invoke(cli, ["look", *words], catch_exceptions=False, standalone_mode=False).output


def test_a_folder_is_shown_as_it_is(folder: Path) -> None:
    assert _look("set").splitlines()[-1] == "look-set.html"
    page = Path("look-set.html").read_text(encoding="utf-8")
    assert "40 pictures of 2 classes; 2 files were left out." in page
    assert page.count("<img ") == 2 * 8 + 1
    assert f"{page.count('<img ')} pictures" in page
    assert "ill&lt;b&gt;" in page
    assert "ill<b>" not in page
    assert "1 file: of ending .txt (well 1)" in page
    assert "12x10, grey" in page
    assert not re.search(r'(?:src|href)="(?!data:|#)', page)
    assert Path("look-set.html").stat().st_mode & 0o077 == 0


def test_a_plan_is_shown_by_who_holds_what(folder: Path) -> None:
    assert json.loads(_look("plan.yaml", "--json", "-o", "page.html")) == {"written": "page.html"}
    page = Path("page.html").read_text(encoding="utf-8")
    for word in ("Parts", "private", "attacker", "Classes", "Clients", "client 1"):
        assert word in page


def test_embedded_data_sets_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plan.yaml").write_text("name: p\ndata: {name: digits, limit: 100}\nmethods: [fedcgs]\n")
    _look("plan.yaml", "-o", "page.html")
    page = Path("page.html").read_text(encoding="utf-8")
    assert "100 pictures of 10 classes; no file was left out." in page


def test_an_archive_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    images = _RNG.integers(0, 256, size=(60, 8, 8), dtype=np.uint8)
    np.savez("x.npz", x=images, y=np.arange(60) % 3)
    assert _look("x.npz").strip().endswith("look-x.html")
    assert "60 pictures of 3 classes" in Path("look-x.html").read_text(encoding="utf-8")


def test_what_cannot_be_looked_at_is_said(folder: Path) -> None:
    with pytest.raises(PlanError, match=r"look: gone does not exist; allowed: a plan, a folder"):
        _look("gone")
    (folder / "well" / "1.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"set/well/1\.png: cannot be read"):
        _look("set")
    np.savez("f.npz", features=_RNG.normal(size=(40, 4)).astype(np.float32), labels=np.arange(40) % 2)
    data = "{name: precomputed_features, features: f.npz, split: {private: 0.5, test: 0.5}}"
    Path("f.yaml").write_text(f"name: f\ndata: {data}\nclients: {{count: 2}}\nmethods: [fedcgs]\n")
    with pytest.raises(PlanError, match=r"look: the data set holds features and no images"):
        _look("f.yaml")


@pytest.mark.long
def test_a_file_that_is_there_is_not_replaced(folder: Path) -> None:
    notes = Path("notes.tex")
    notes.write_text("mine")
    for words in (("look", "set", "-o", "notes.tex"), ("similarity", "set", "set", "-o", "notes.html")):
        with pytest.raises(
            PlanError, match=r"^-o notes\.tex: it is there already; allowed: another file, or --force"
        ):
            CliRunner().invoke(cli, [*words], catch_exceptions=False, standalone_mode=False)
    assert notes.read_text() == "mine"
    CliRunner().invoke(cli, ["look", "set", "-o", "notes.tex", "--force"], standalone_mode=False)
    assert notes.read_text() != "mine"


def test_the_report_of_a_run_shows_what_was_read_unless_it_is_redacted(folder: Path) -> None:
    def invoke(*words: str) -> None:
        CliRunner().invoke(cli, [*words], catch_exceptions=False, standalone_mode=False)

    invoke("run", "plan.yaml", "-o", "run", "--quiet")
    record = load_record(Path("run"))
    page = Path("run/report.html").read_text(encoding="utf-8")
    assert "What was read" in page
    assert "40 pictures of 2 classes; 2 files were left out." in page
    assert render(Path("run"), record, "html") == page
    hidden = redact(record)
    assert "contact_sheet" not in hidden.to_json()
    assert "What was read" not in render(Path("run"), hidden, "html")
    invoke("run", "plan.yaml", "-o", "redacted", "--quiet", "--redact")
    assert not list(Path("redacted").rglob("*.png"))
    assert "contact_sheet" not in Path("redacted/record.json").read_text(encoding="utf-8")
    # A page is made again without the pictures, where these are gone.
    next(Path("run/artifacts/contact_sheet").iterdir()).unlink()
    assert "What was read" not in render(Path("run"), record, "html")
