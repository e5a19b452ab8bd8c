"""Bare epsilons leave their type in accountants, in what is written for programs, and onto axes; nowhere else."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("src/fedassay", "reports", "audits", "attacks", "methods")
BARE = {
    "src/fedassay/support/epsilon.py": "the type",
    "src/fedassay/privacy/conversions.py": "an accountant",
    "src/fedassay/execution/account.py": "its own line, with relation and unit, and JSON",
    "src/fedassay/plan/record_claims.py": "an accountant: what a claim is for a person",
    "src/fedassay/exchange/ledger.py": "an accountant",
    "src/fedassay/exchange/recount.py": "numbers of a record held against those that are accounted again",
    "src/fedassay/exchange/run_ledger.py": "its own sentence, with relation and unit, and JSON",
    "src/fedassay/exchange/privacy_unit.py": "its own sentence, with relation and unit",
    "src/fedassay/records/record.py": "metrics, whose unit says what they are of",
    "src/fedassay/api/frames.py": "data frames, with columns of relation and unit",
    "audits/claim/detection_limit.py": "limits of detection, whose words say what they are of",
    "reports/answer/answer.py": "JSON, with relation, unit and delta",
    "reports/answer/next_step.py": "what somebody types as --epsilon",
    "reports/answer/rows.py": "a row, which holds the words of its kind",
    "reports/decision/settling.py": "what a plan would ask for",
    "reports/words/allowed.py": "a limit of detection, which is said with its kind",
    "reports/decision/decision.py": "what somebody types as --epsilon",
    "reports/document/latex.py": "a table, whose caption says the kind",
    "reports/document/mission/figure.py": "an axis of one kind",
    "reports/document/mission/shown.py": "a table, whose note says the kind",
    "reports/document/mission/strips.py": "a label above a picture; the table beside it says of what",
    "reports/document/tables.py": "tables, which print the kind below, and CSV",
    "reports/document/figures/epsilon.py": "an axis of one kind",
    "reports/document/figures/epsilons.py": "an axis of one kind",
    "reports/document/figures/tradeoff.py": "a label beside a point; its figure says of what",
    "reports/document/figures/utility.py": "a label beside a bar; its figure says of what",
    "reports/evidence/release.py": "what a signature vouches for, with relation, unit and delta",
    "reports/gate/recomputed.py": "numbers of a record held against those that are accounted again",
    "reports/words/epsilon_scale.py": "how many guesses can be right, which is said with its kind",
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
def _modules() -> dict[str, str]:
    linked = {"methods", "attacks", "audits", "reports", "configs"}
    paths = [path.relative_to(ROOT) for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    own = [path for path in paths if path.parts[:2] != ("src", "fedassay") or path.parts[2] not in linked]
    return {str(path): (ROOT / path).read_text(encoding="utf-8") for path in own}


def _where(word: str, does: Callable[[ast.AST], bool], below: str = "") -> set[str]:
    """The modules in which something is done; `word` stands in all of them."""
    held = {name: text for name, text in _modules().items() if word in text and name.startswith(below)}
    assert len(_modules()) > 300
    return {name for name, text in held.items() if any(map(does, ast.walk(ast.parse(text))))}


def _name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _raw(node: ast.AST) -> bool:
    """Whether a number is read of `cell.privacy`."""
    if isinstance(node, ast.Call):
        return _name(node.func) == "getattr" and _name(node.args[0]) == "privacy"
    return isinstance(node, ast.Attribute) and node.attr in NUMBERS and _name(node.value) == "privacy"


def test_bare_numbers_leave_in_named_places_alone() -> None:
    assert _where(".bare", lambda node: isinstance(node, ast.Attribute) and node.attr == "bare") == set(BARE)


@pytest.mark.long
def test_reports_read_epsilons_with_their_kind() -> None:
    """What a report, a figure or a table reads of a record is `cell.claimed`, and never `cell.privacy.claimed`."""
    assert _where("privacy", _raw) == set(RAW)


@pytest.mark.parametrize("room", ["reports", "src/fedassay/api"])
def test_no_report_reads_the_number_that_a_cell_was_asked_for(room: str) -> None:
    found = _where(".epsilon", lambda node: isinstance(node, ast.Attribute) and node.attr == "epsilon", room)
    # One by the entry's digest, one by the policy's scope, one of a plan, and one of scores that no cell made.
    held = ("gate/recomputed.py", "gate/judging.py", "document/mission/beforehand.py")
    assert found <= {f"reports/{name}" for name in held} | {"src/fedassay/api/membership.py"}
