"""One static page over all runs of a folder, and the same rows as a table."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from urllib.parse import unquote

import pytest
from click.testing import CliRunner

import fedassay
from fedassay.cli import cli
from fedassay.records.record import RunRecord
from fedassay.reports.answer.answer import answer
from fedassay.reports.document.index import entries


@pytest.fixture
def folder(tmp_path: Path, record: RunRecord) -> Path:
    """Two runs, one in a folder with a name that links must escape, one that cannot be read, and no run."""
    for name, began in (
        ("first run #1", "2026-01-01T10:00:00+00:00"),
        ("deep/second", "2026-02-01T10:00:00+00:00"),
    ):
        run = tmp_path / "runs" / name
        run.mkdir(parents=True)
        held = record.model_copy(update={"environment": {**record.environment, "started": began}})
        (run / "record.json").write_text(held.to_json(), encoding="utf-8")
        (run / "report.html").write_text("<p>report</p>")
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "record.json").write_text("{")
    (tmp_path / "runs" / ".hidden").mkdir()
    shutil.copy(tmp_path / "runs" / "broken" / "record.json", tmp_path / "runs" / ".hidden")
    (tmp_path / "runs" / "empty").mkdir()
    return tmp_path / "runs"


def test_the_latest_is_first_and_what_cannot_be_read_says_why(folder: Path, record: RunRecord) -> None:
    found = entries(folder)
    assert [entry.folder for entry in found] == ["deep/second", "first run #1", "broken"]
    assert found[0].date == "2026-02-01 10:00"
    assert found[0].answer is not None
    assert found[0].answer.sentences == answer(record).sentences
    assert found[2].answer is None
    assert "not a record" in found[2].problem
    assert str(folder) not in found[2].problem


@pytest.mark.parametrize("beside", [False, True])
def test_the_page_says_the_answer_and_its_links_lead_there(
    folder: Path, tmp_path: Path, beside: bool, record: RunRecord
) -> None:
    options = ["-o", str(tmp_path / "all runs.html")] if beside else []
    done = CliRunner().invoke(cli, ["view", str(folder), *options], standalone_mode=False)
    assert done.exception is None, done.exception
    written = tmp_path / "all runs.html" if beside else folder / "index.html"
    assert done.output.strip() == str(written)
    text = written.read_text(encoding="utf-8")
    assert text.count(answer(record).headline.replace("'", "&#39;")) == 2
    links = [unquote(link) for link in re.findall(r'<a href="([^"#]+)"', text)]
    assert len([link for link in links if link.endswith("report.html")]) == 2
    assert all((written.parent / link).exists() for link in links)
    assert "<script src" not in text
    assert "https://" not in text


def test_runs_that_cannot_be_read_are_counted(folder: Path) -> None:
    CliRunner().invoke(cli, ["view", str(folder)], standalone_mode=False)
    assert "not readable: 1." in (folder / "index.html").read_text(encoding="utf-8")
    shutil.rmtree(folder / "broken")
    CliRunner().invoke(cli, ["view", str(folder)], standalone_mode=False)
    assert "not readable" not in (folder / "index.html").read_text(encoding="utf-8")


def test_a_run_folder_itself_has_a_page(folder: Path) -> None:
    done = CliRunner().invoke(cli, ["view", str(folder / "deep" / "second")], standalone_mode=False)
    assert done.exception is None
    assert 'href="report.html"' in (folder / "deep" / "second" / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["none", "empty"])
def test_a_folder_without_runs_is_one_error(folder: Path, name: str) -> None:
    done = CliRunner().invoke(cli, ["view", str(folder / name)], standalone_mode=False)
    assert isinstance(done.exception, fedassay.DataError)


def test_the_same_rows_as_a_table(folder: Path) -> None:
    pytest.importorskip("pandas")
    rows = fedassay.runs(folder)
    assert list(rows.name)[:2] == [rows.name[0]] * 2
    assert list(rows.answer)[:2] == [entries(folder)[0].answer.answer] * 2  # type: ignore[union-attr]
    assert rows.report[0].is_file()
    assert fedassay.load(rows.run[0]).record.cells
    assert "not a record" in rows.problem[2]
