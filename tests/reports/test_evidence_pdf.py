"""The pages of evidence as PDF: by a browser, by WeasyPrint, or not at all, which is said."""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from fedassay.records.facts import Harm
from fedassay.records.record import Coverage, Finding, RunRecord
from fedassay.reports import write_report
from fedassay.reports.evidence import pdf
from fedassay.reports.evidence.folder import PAGES, PRINTED
from fedassay.reports.evidence.page import html, pages
from fedassay.reports.evidence.release import release_of
from fedassay.reports.evidence.verify import verify_evidence
from fedassay.support.errors import PlanError
from fedassay.support.registry import entries

PLAN = {"threat": {"view": "per_client", "backbone": "white_box", "attacker_share": 1.0, "rounds": "all"}}
PAGE = (
    "<!DOCTYPE html><html><head><meta charset='utf-8'><title>t</title></head>"
    "<body><p>one</p><p style='break-before: page'>two</p></body></html>"
)
FOUND = next(filter(None, map(shutil.which, pdf.BROWSERS)), None)


def sheets(printed: bytes) -> int:
    return len(re.findall(rb"/Type\s*/Page[^s]", printed))


def browser(folder: Path, script: str) -> None:
    """A program on the path of which nobody knows that it is no Chromium."""
    program = folder / "chromium"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


@pytest.mark.skipif(FOUND is None, reason="no Chromium on this machine (apt-get install chromium)")
def test_a_browser_prints_the_page() -> None:
    printed = pdf.pdf_of(PAGE)
    assert printed.startswith(b"%PDF-")
    assert sheets(printed) == 2


def test_weasyprint_prints_the_page_where_no_browser_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("weasyprint", reason="WeasyPrint is not installed (fedassay[pdf])")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert pdf.pdf_of(PAGE).startswith(b"%PDF-")


def test_weasyprint_fetches_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("weasyprint", reason="WeasyPrint is not installed (fedassay[pdf])")
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "secret.css").write_text("p { break-before: page }", encoding="utf-8")
    linked = PAGE.replace("</head>", f"<link rel=stylesheet href='{(tmp_path / 'secret.css').as_uri()}'></head>")
    with_css, without = pdf.pdf_of(linked), pdf.pdf_of(PAGE)
    assert abs(len(with_css) - len(without)) < 200


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (None, "no Chromium, Chrome, Edge or WeasyPrint is installed"),
        ("exit 1", "chromium could not print it (CalledProcessError), and WeasyPrint is not installed"),
        ("exit 0", "chromium could not print it (FileNotFoundError), and WeasyPrint is not installed"),
    ],
)
def test_what_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str | None, words: str
) -> None:
    if script is not None:
        browser(tmp_path, script)
    monkeypatch.setenv("PATH", f"{tmp_path}")
    monkeypatch.setitem(__import__("sys").modules, "weasyprint", None)
    with pytest.raises(PlanError, match=re.escape(words)) as error:
        pdf.pdf_of(PAGE)
    assert "print evidence.html in any browser, or install fedassay[pdf]" in str(error.value)


@pytest.mark.long
@pytest.mark.skipif(FOUND is None, reason="no Chromium on this machine (apt-get install chromium)")
def test_the_pdf_is_in_the_statement_and_an_edited_one_is_refused(record: RunRecord, tmp_path: Path) -> None:
    folder = write_report(record, tmp_path, "evidence", None, None, "fedcgs", 1.0, pdf=True)
    printed = (folder / PRINTED).read_bytes()
    assert sheets(printed) == 3
    statement = json.loads((folder / "statement.json").read_text(encoding="utf-8"))
    digests = {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]}
    assert digests[PRINTED] == hashlib.sha256(printed).hexdigest()
    assert verify_evidence(folder).problems == ()
    (folder / PRINTED).write_bytes(printed + b"%")
    assert f"{PRINTED} is not what was written" in verify_evidence(folder).problems


@pytest.mark.long
@pytest.mark.skipif(FOUND is None, reason="no Chromium on this machine (apt-get install chromium)")
def test_a_release_of_which_everything_is_found_still_fits_on_three_pages(build_cell: Any) -> None:
    """Every row has its longest clause, every risk is there, and a dozen attacks were left out."""
    long = "what the clients of a system with a very long name send in every one of its rounds"
    told = [
        (
            "reconstruction",
            "feature_diffusion",
            Harm(kind="pictures", of="record", count=1234, total=5678, mechanism=long),
        ),
        ("message", "gram_factorization", Harm(kind="exact", of="record", count=1234, total=5678, mechanism=long)),
        ("membership", "gallery", Harm(kind="named", of="person", count=1234, total=5678, mechanism=long)),
        ("membership", "membership", Harm(kind="members", of="record", metric="auc", value=0.9, mechanism=long)),
        ("message", "label_distribution", Harm(kind="attributes", of="client", count=5, total=9, mechanism=long)),
        ("message", "message_algebra", Harm(kind="counts", of="client", count=5, total=9, mechanism=long)),
        (
            "attribute_inference",
            "attribute_likelihood",
            Harm(kind="attributes", of="record", metric="attribute_advantage", value=0.25, mechanism=long),
        ),
    ]
    findings = [
        Finding(audit=audit, attack=attack, source=harm.kind, verdict="leak", reason="x", harm=harm)
        for audit, attack, harm in told
    ]
    left_out = tuple(Coverage(attack=name, status="not_run", reason="x") for name in entries("attack"))
    cell = build_cell(None, "fedcgs", "a label that is as long as labels of methods ever are", math.inf, 0)
    cell = cell.model_copy(update={"findings": tuple(findings), "coverage": left_out})
    release = release_of(
        RunRecord(plan={"name": "a plan with a name of some length", **PLAN}, environment={}, cells=(cell,))
    )
    found = pages(release)
    assert [line.shown for line in found.worst_first] == ["found"] * 7
    printed = pdf.pdf_of(html(found, "0" * 64))
    assert sheets(printed) == 3


def test_evidence_without_a_printer_is_whole_and_leaves_no_pdf_of_another_release(
    record: RunRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def nothing(page: str) -> bytes:
        raise PlanError("no PDF: nothing prints")

    monkeypatch.setattr("fedassay.reports.evidence.folder.pdf_of", nothing)
    (tmp_path / "evidence").mkdir()
    (tmp_path / "evidence" / PRINTED).write_bytes(b"%PDF- of another release")
    folder = write_report(record, tmp_path, "evidence", None, None, "fedcgs", 1.0, pdf=True)
    assert (folder / PAGES).is_file()
    assert not (folder / PRINTED).exists()
    assert "no PDF: nothing prints" in caplog.text
    assert verify_evidence(folder).problems == ()
