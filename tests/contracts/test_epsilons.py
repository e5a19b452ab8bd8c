"""Bare epsilons leave their type in accountants, in what is written for programs, and onto axes; nowhere else."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("src/fedassay", "reports", "audits", "attacks", "methods")
BARE = {
    "src/fedassay/support/epsilon.py": "the type",
    "src/fedassay/privacy/conversions.py": "an accountant",
    "src/fedassay/plan/record_claims.py": "an accountant: what a claim is for a person",
    "src/fedassay/exchange/ledger.py": "an accountant",
    "src/fedassay/exchange/recount.py": "numbers of a record held against those that are accounted again",
    "src/fedassay/exchange/run_ledger.py": "its own sentence, with relation and unit, and JSON",
    "src/fedassay/exchange/whose.py": "its own sentence, with relation and unit",
    "src/fedassay/records/record.py": "metrics, whose unit says what they are of",
    "src/fedassay/api/frames.py": "data frames, with columns of relation and unit",
    "audits/claim/limits.py": "limits of detection, whose words say what they are of",
    "reports/answer/answer.py": "JSON, with relation, unit and delta",
    "reports/answer/rows.py": "a row, which holds the words of its kind",
    "reports/decision/decision.py": "what somebody types as --epsilon",
    "reports/document/tables.py": "tables, which print the kind below, and CSV",
    "reports/document/figures/epsilon.py": "an axis of one kind",
    "reports/document/figures/epsilons.py": "an axis of one kind",
    "reports/document/figures/tradeoff.py": "a label beside a point; its figure says of what",
    "reports/gate/recomputed.py": "numbers of a record held against those that are accounted again",
    "reports/words/groups.py": "CSV of figures, with relation and unit",
    "reports/words/numbers.py": "the functions that print one with its kind",
}
"""Modules that may read `Epsilon.bare`, and what they do with it."""
RAW = {
    "src/fedassay/records/record.py": "the typed properties",
    "src/fedassay/exchange/recount.py": "numbers of a record held against those that are accounted again",
    "src/fedassay/api/tracking.py": "numbers for a store, whose parameters hold relation and unit",
    "reports/gate/recomputed.py": "numbers of a record held against those that are accounted again",
    "reports/evidence/registry.py": "entries, each with relation, unit and delta",
}
"""Modules that may read a record's own numbers instead of its typed epsilons."""
NUMBERS = {"claimed", "accounted", "accounted_stated", "observed"}


@cache
def _modules() -> dict[str, ast.Module]:
    inside = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    linked = {"methods", "attacks", "audits", "reports", "configs"}
    return {
        str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8"))
        for path in inside
        if path.relative_to(ROOT).parts[:2] != ("src", "fedassay") or path.relative_to(ROOT).parts[2] not in linked
    }


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def test_bare_numbers_leave_in_named_places_alone() -> None:
    found = {
        name
        for name, tree in _modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "bare"
    }
    assert found == set(BARE)


def test_reports_read_epsilons_with_their_kind() -> None:
    """What a report, a figure or a table reads of a record is `cell.claimed`, and never `cell.privacy.claimed`."""
    found = {
        name
        for name, tree in _modules().items()
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and node.attr in NUMBERS and _name(node.value) == "privacy")
        or (isinstance(node, ast.Call) and _name(node.func) == "getattr" and _name(node.args[0]) == "privacy")
    }
    assert found == set(RAW)


@pytest.mark.parametrize("room", ["reports", "src/fedassay/api"])
def test_no_report_reads_the_number_that_a_cell_was_asked_for(room: str) -> None:
    found = {
        name
        for name, tree in _modules().items()
        for node in ast.walk(tree)
        if name.startswith(room) and isinstance(node, ast.Attribute) and node.attr == "epsilon"
    }
    # One by the entry's digest, one by the policy's scope.
    assert found <= {"reports/gate/recomputed.py", "reports/gate/judging.py"}
