"""No epsilon is printed without its relation and unit, in any format, where one run holds several of both."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedassay import Run
from fedassay.api.tracking import _tags, _title
from fedassay.records.record import CellRecord, Finding, RunRecord, epsilon_metric, load_record
from fedassay.reports import render, write_tables
from fedassay.reports.answer.answer import answer
from fedassay.reports.answer.text import lines
from fedassay.reports.document.compare import as_dict, comparison
from fedassay.reports.evidence.page import html as evidence_page
from fedassay.reports.evidence.page import markdown as evidence_markdown
from fedassay.reports.evidence.page import pages
from fedassay.reports.evidence.registry import entries
from fedassay.reports.evidence.release import release_of
from fedassay.reports.gate.baseline import differences
from fedassay.reports.gate.judging import judged
from fedassay.reports.gate.policy import Policy
from fedassay.support.epsilon import Epsilon

KIND = r"one (record|person|client) (added or removed|replaced, same label|replaced)\b"
BEFORE = "(?: =| at least| at most| may be above| from| adds up to)? ?"
SAID = re.compile(rf"(?:ε|epsilon){BEFORE}(\d[\d.,]*\d|\d)(?! ×)(.{{0,60}})", re.DOTALL)
"""A number that is said to be an epsilon, and what follows it."""
NAMES = ("epsilon", "claimed", "accounted", "observed", "accounted_stated")


@pytest.fixture
def mixed(build_cell: Any) -> list[CellRecord]:
    """FedPFT under a replacement, FedCGS under adding and removing, of records and of persons, and no privacy."""

    def made(label: str, method: str, epsilon: float, unit: str = "record", **given: Any) -> CellRecord:
        verdict = given.get("verdict", "sound")
        shown = {"observed": None if epsilon > 9 else epsilon / 2}
        metrics = (
            {"observed": epsilon_metric(Epsilon(epsilon / 2, 1e-5, "add_remove", "record"))} if epsilon < 9 else {}
        )
        finding = Finding(audit="dp_claim", verdict=verdict, reason="an attack shows less", metrics=metrics)
        known = build_cell(None, "fedcgs", method, epsilon, 0, findings=(finding,), **shown, **given)
        return known.model_copy(update={"unit": unit, "label": label})

    return [
        *(made("fedpft", "fedpft", epsilon) for epsilon in (8.0, 1.0)),
        *(made("fedcgs", "fedcgs", epsilon) for epsilon in (8.0, 1.0)),
        made("persons", "fedcgs", 2.0, "person"),
        made("wrong", "fedcgs", 4.0, verdict="unsound", accounted=21.9),
        made("shown", "fedpft", 0.5, "person", verdict="unsound", accounted=0.5),
        made("free", "fedcgs", float("inf"), verdict="not_run", exact=()),
    ]


@pytest.fixture
def run_of(mixed: list[CellRecord], tmp_path: Path) -> Path:
    RunRecord(plan={"name": "mixed"}, environment={"fedassay": "1"}, cells=tuple(mixed)).save(tmp_path)
    return tmp_path


def without_kind(text: str) -> list[str]:
    """Every number that a text says is an epsilon, and that is followed by no relation and unit."""
    wrong = []
    for found in SAID.finditer(html.unescape(text)):
        after = re.match(rf"\W*(?:to \S+ |for )?\(?(?:{KIND}|of each release's own unit and relation)", found[2])
        if after is None:
            wrong.append(found.string[max(0, found.start() - 60) : found.end()])
    return wrong


def test_the_search_finds_an_epsilon_without_its_kind() -> None:
    assert without_kind("fedcgs at ε = 8 may be deployed")
    assert without_kind("Claimed ε 8; accounted 7.9")
    assert not without_kind("fedcgs at ε = 8 (one person added or removed) may be deployed")
    assert not without_kind("Accounted ε 8.00 for one record replaced is above")


def texts(run: Path) -> Iterator[tuple[str, str]]:
    record = load_record(run)
    policy = Policy(name="p", maximum={"accounted": 3.0, "observed": 0.1}, claims="sound")
    outcome = judged(record, policy)
    found = answer(record, policy)
    yield "console", "\n".join(lines(found))
    for label in ("fedpft", "persons", "wrong"):
        yield f"console of {label}", "\n".join(lines(answer(record, policy, method=label)))
    yield "check", outcome.text()
    yield "check as JSON", json.dumps(outcome.as_dict(), ensure_ascii=False)
    yield "answer as JSON", json.dumps(found.as_dict(), ensure_ascii=False)
    for name in ("html", "md", "sarif", "junit"):
        shown = render(run, record, name, policy)
        # What is drawn stands on an axis, of which another test asks.
        bare = re.sub(r"<svg.*?</svg>", "", shown, flags=re.DOTALL)
        yield name, re.sub(r"<[^>]*>", " ", bare) if name in ("html", "junit") else shown
    for label in ("persons", "wrong", "free"):
        found_of = pages(release_of(record, policy, label))
        shown = evidence_markdown(found_of) + evidence_page(found_of, "")
        yield f"evidence of {label}", re.sub(r"<[^>]*>", " ", shown)
    yield "notebook", re.sub(r"<[^>]*>", " ", Run(record, run)._repr_html_())
    changed = record.model_copy(
        update={"cells": tuple(c.model_copy(update={"epsilon": 9.0}) for c in record.cells)}
    )
    yield "baseline", "\n".join(each.line for each in differences(changed, record))
    yield "compare as JSON", json.dumps(as_dict([(run, record), (run, changed)]), ensure_ascii=False)
    yield "compare", re.sub(r"<[^>]*>", " ", comparison([(run, record), (run, changed)]))
    yield "repr", f"{Run(record, run)!r} {[cell.asked for cell in record.cells]!r} {found!r}"
    yield "trackers", " ".join(f"{_title(cell)} {_tags(cell)}" for cell in record.cells)


def test_no_text_names_an_epsilon_without_its_relation_and_unit(run_of: Path) -> None:
    wrong = {name: found for name, text in texts(run_of) if (found := without_kind(text))}
    assert wrong == {}


def rows_of(value: Any) -> Iterator[dict[str, Any]]:
    """Every mapping of a tree of JSON."""
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from rows_of(part)


def test_no_row_for_programs_holds_an_epsilon_without_its_relation_and_unit(run_of: Path) -> None:
    record = load_record(run_of)
    held = [row for row in rows_of(answer(record).as_dict()) if isinstance(row.get("epsilon"), float)]
    registered = entries(release_of(record, method="persons"))
    assert len(registered) == 1
    assert all({"adjacency", "unit_of_privacy"} <= set(entry) for entry in registered)
    assert held
    assert all({"adjacency", "unit", "delta"} <= set(row) for row in held)
    pandas = pytest.importorskip("pandas")
    run = Run(record, run_of)
    for name in ("cells", "findings", "metrics", "ledger", "coverage"):
        columns = set(getattr(run, name).columns)
        assert {"adjacency", "unit"} <= columns or {"epsilon_adjacency", "epsilon_unit"} <= columns, name
    metrics = run.metrics
    assert pandas.api.types.is_float_dtype(metrics["value"])


def test_no_table_and_no_figure_for_programs_either(run_of: Path) -> None:
    files = write_tables(load_record(run_of), run_of / "tables")
    assert len(files) > 5
    for file in files:
        header = next(csv.reader(io.StringIO(file.read_text(encoding="utf-8"))))
        if set(NAMES) & set(header):
            one = {"adjacency", "unit"} <= set(header)
            assert one or {"epsilon_adjacency", "epsilon_unit"} <= set(header), file.name


def test_every_axis_of_epsilons_says_what_they_are_of(run_of: Path) -> None:
    from fedassay.reports.document.content import contents

    figures = contents(load_record(run_of)).figures
    drawn = [
        figure for figure in figures if "epsilon" in figure.name or figure.name.startswith("accuracy_observed")
    ]
    # One figure a kind; the plot of claims has an axis for each in one drawing.
    assert len([figure for figure in drawn if figure.name.startswith("accuracy_observed")]) == 4
    for figure in drawn:
        axes = re.findall(r"<text[^>]*>([^<]*ε[^<]*)</text>", figure.svg)
        assert any(re.search(KIND, words) for words in axes), figure.name


def test_every_row_of_a_table_on_the_page_says_it_where_kinds_are_mixed(run_of: Path) -> None:
    page = render(run_of, load_record(run_of), "html")
    bodies = re.findall(r"<table[^>]*>(.*?)</table>", page, re.DOTALL)
    seen = 0
    for body in bodies:
        head, _, rest = body.partition("</thead>")
        if not re.search(r">\s*(<[^>]*>)*\s*ε\s*<", head):
            continue
        for row in re.findall(r"<tr[^>]*>(.*?)</tr>", rest, re.DOTALL):
            words = re.sub(r"<[^>]*>", " ", row)
            if "∞" in words or "no noise" in words or not words.strip():
                continue
            seen += 1
            assert re.search(KIND, words), words[:200]
    assert seen > 10
