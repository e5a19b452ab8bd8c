"""The gallery's records are whole, small, and of the runs that its page names."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from fedassay.records.record import load_record
from fedassay.reports.document.markdown import markdown

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
RUNS = sorted(path.parent for path in (ROOT / "docs" / "gallery").glob("*/record.json"))
LARGEST = 900_000
"""Bytes of a record, 56 releases and what was tried on each of them; all of them are in every checkout."""


def test_every_report_that_the_page_links_has_a_record_and_the_other_way_round() -> None:
    linked = re.findall(r"\(gallery/(\w+)\.html\)", PAGE)
    assert sorted(linked) == [run.name for run in RUNS]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_a_record_is_small_whole_and_of_no_machine(run: Path) -> None:
    text = (run / "record.json").read_text(encoding="utf-8")
    assert len(text.encode()) < LARGEST
    record = load_record(run)
    assert record.cells
    assert record.errors == ()
    pictures = {picture.file for cell in record.cells for found in cell.findings for picture in found.pictures}
    assert {str(path.relative_to(run)) for path in run.rglob("*.png")} == pictures
    assert not [
        word for word in ("/home/", "/root/", "/tmp/", "/Users/", "/work/", "site-packages") if word in text
    ]


def test_every_evidence_that_the_page_links_is_of_a_release_and_the_other_way_round() -> None:
    pytest.importorskip("mkdocs", reason="the site is not installed (fedassay[docs])")
    spec = importlib.util.spec_from_file_location("gallery_hook", ROOT / "docs" / "gallery.py")
    assert spec is not None
    assert spec.loader is not None
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    made = dict(hook.evidence())
    assert sorted(re.findall(r"\(gallery/([\w.-]+-[\w.-]+)\.html\)", PAGE)) == sorted(made)
    assert all("What law and standards ask" in text for text in made.values())


@pytest.mark.parametrize("name", ["claims", "closed_forms"])
def test_the_page_names_the_command_of_the_run(name: str) -> None:
    row = next(line for line in PAGE.splitlines() if f"(gallery/{name}.html)" in line)
    plan, changes = re.search(r"`(configs/\w+\.yaml)` with `([^`]+)`", row).groups()  # type: ignore[union-attr]
    command = load_record(ROOT / "docs" / "gallery" / name).environment["command"]
    assert command[:3] == ["fedassay", "run", plan]
    assert command[3 : command.index("-o")] == shlex.split(changes)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_the_next_step_is_one_sentence(run: Path) -> None:
    """With its time in brackets, where it is known, and the command after the full stop."""
    lines = markdown(load_record(run)).splitlines()
    (step,) = (line for line in lines if line.startswith("- Next: "))
    assert re.fullmatch(r"- Next: .*[^. ]\. `fedassay [^`]*`", step), step
    assert not re.search(r"\S\(about", step), step
