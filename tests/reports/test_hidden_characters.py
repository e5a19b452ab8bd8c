"""Whatever a record holds, no page that is made of it has a control character or a mark of direction in it."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from fedassay.records.record import Finding, RunRecord, Series, load_record
from fedassay.reports import Format, render, write_report, write_tables
from fedassay.reports.document.compare import comparison, write_comparison
from fedassay.reports.gate.check import check_record
from fedassay.reports.gate.places import cell_places
from fedassay.reports.gate.policy import Policy

GALLERY = Path(__file__).resolve().parents[2] / "docs" / "gallery"
HOSTILE = "a\x1b[2J\x9b31m\x07\x7f\u202eb\u2066\u2028\u2029\x85\r\nc"


@pytest.fixture
def hostile(hostile_record: Callable[[str], RunRecord]) -> RunRecord:
    """A record whose every free text is hostile."""
    return hostile_record(HOSTILE)


def _hidden(text: str) -> set[str]:
    categories = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    return {char for char in text if unicodedata.category(char) in categories and char not in "\n\t"}


@pytest.mark.parametrize("format_", [name for name in get_args(Format) if name not in {"csv", "evidence"}])
def test_every_page_is_plain(hostile: RunRecord, format_: Format) -> None:
    text = render(Path(), hostile, format_)
    assert not _hidden(text)
    assert "2J" in text  # what was hostile is there, and can be read


def test_what_the_json_of_sarif_stands_for_is_plain_too(hostile: RunRecord) -> None:
    def texts(value: object) -> list[str]:
        if isinstance(value, dict):
            return [text for pair in value.items() for part in pair for text in texts(part)]
        if isinstance(value, list):
            return [text for part in value for text in texts(part)]
        return [value] if isinstance(value, str) else []

    assert not any(_hidden(text) for text in texts(json.loads(render(Path(), hostile, "sarif"))))


def test_tables_are_plain_and_each_row_is_a_line(hostile: RunRecord, tmp_path: Path) -> None:
    written = write_tables(hostile, tmp_path)
    assert written
    for path in written:
        text = path.read_bytes().decode("utf-8")
        assert not _hidden(text)
        assert not _hidden(path.name)
        assert path.parent == tmp_path


def test_evidence_is_plain(hostile: RunRecord, tmp_path: Path) -> None:
    files = list(write_report(hostile, tmp_path, "evidence", None).iterdir())
    assert len(files) == 8
    assert not any(_hidden(path.read_bytes().decode("utf-8")) for path in files)


def test_a_comparison_and_a_judgement_are_plain(hostile: RunRecord) -> None:
    assert not _hidden(comparison([(Path("a"), hostile), (Path("b"), hostile)]))
    policy = Policy(name=HOSTILE, forbidden_verdicts=("leak",), must_conclude=("other:x",))
    outcome = check_record(hostile, policy).text()
    assert not _hidden(outcome)
    # A line end in a name must not make a line of its own, which could read as the policy's verdict.
    assert not any(line.startswith("c") for line in outcome.splitlines())


def test_the_record_says_the_same_and_its_lines_are_where_tools_look(hostile: RunRecord) -> None:
    document = hostile.to_json()
    assert not _hidden(document)
    assert RunRecord.model_validate_json(document) == hostile
    lines = document.split("\n")
    ((cell, (finding,)),) = cell_places(hostile)
    assert lines[cell.line - 1] == "  {"
    assert lines[cell.line].startswith('   "method"')
    assert lines[finding.line].strip().startswith('"audit"')


@pytest.mark.parametrize("format_", ["html", "md", "latex", "csv"])
def test_a_comparison_of_images_is_plain_in_every_format(format_: str, tmp_path: Path) -> None:
    record = load_record(GALLERY / "photographs")
    named = record.cells[0].model_copy(update={"label": HOSTILE})
    hostile = record.model_copy(update={"cells": (named, *record.cells[1:])})
    written = write_comparison([(Path("a"), hostile), (Path("b"), record)], tmp_path / "page", format_)
    text = written.read_bytes().decode("utf-8")
    assert not _hidden(text)
    assert "2J" in text


def test_cells_whose_names_look_alike_have_tables_of_their_own(build_cell: Any, tmp_path: Path) -> None:
    def cell(label: str, epsilon: float, attack: str = "a") -> Any:
        series = {"rows": Series(title="rows", columns={"value": (label, repr(epsilon), attack)})}
        finding = Finding(audit="message", attack=attack, verdict="leak", reason="", series=series)
        held = {"label": label, "findings": (finding, finding.model_copy())}
        return build_cell(None, "fedpft", "fedpft", epsilon, 0).model_copy(update=held)

    cells = (
        *(cell(label, 1.0) for label in ("no noise", "no_noise", "no-noise", "NO NOISE", "x" * 300, "x" * 301)),
        *(cell("dp", epsilon) for epsilon in (1.0, 1.0000001, 1.0000004)),
    )
    written = write_tables(RunRecord(plan={}, environment={}, cells=cells), tmp_path)
    series = [path for path in written if path.name.startswith("series_")]
    assert len({path.name.casefold() for path in series}) == len(series) == 2 * len(cells)
    assert len({path.read_text(encoding="utf-8") for path in series}) == len(cells)
    assert len({path.name.casefold() for path in written}) == len(written)
