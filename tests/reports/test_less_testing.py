"""Less testing never looks better: what a record says after an attack, an audit or controls are taken out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from less_testing import POLICIES, no_line_becomes_nothing_found, nothing_becomes_good, policy_named

from fedassay.contracts.registry import attack_facts, audit_facts, judges_the_claim
from fedassay.records.facts import Obstacle
from fedassay.records.record import CellRecord, Controls, Coverage, Finding, Limit, RunRecord, load_record
from fedassay.reports.answer.answer import answer
from fedassay.reports.gate.judging import judge
from fedassay.reports.words.groups import groups
from fedassay.reports.words.sentences import strength
from fedassay.reports.words.summary import silent, strip

GALLERY = Path(__file__).resolve().parents[2] / "docs" / "gallery"
RUNS = sorted(path.parent.name for path in GALLERY.glob("*/record.json") if path.parent.name != "claims")


def _left_out(cell: CellRecord, attack: str) -> CellRecord:
    """A cell whose plan lacks an attack."""
    rows = tuple(
        Coverage(attack=row.attack, status="not_run", reason="it is not part of the plan")
        if row.attack == attack
        else row
        for row in cell.coverage
    )
    kept = tuple(finding for finding in cell.findings if attack not in (finding.attack, finding.audit))
    return cell.model_copy(update={"findings": kept, "coverage": rows})


def _without_audit(cell: CellRecord, audit: str) -> CellRecord:
    """A cell whose plan lacks an audit: nobody judges what its attacks gave."""
    facts = audit_facts(audit)
    alone = {row.attack for row in cell.coverage} & {
        finding.attack for finding in cell.findings if finding.audit == audit
    }
    alone -= {finding.attack for finding in cell.findings if finding.audit != audit}
    if facts is not None and "generator" in facts.needs:
        alone |= {audit}
    rows = tuple(
        Coverage(attack=row.attack, status="not_run", reason="no audit of the plan judges it")
        if row.attack in alone
        else row
        for row in cell.coverage
    )
    kept = tuple(finding for finding in cell.findings if finding.audit != audit)
    return cell.model_copy(update={"findings": kept, "coverage": rows})


def _undecided(finding: Finding, role: str) -> Finding:
    """A finding whose control could not be made: the ladder says nothing then."""
    return finding.model_copy(
        update={
            "verdict": "inconclusive",
            "controls": Controls(),
            "all_controls": (),
            "harm": None,
            "limit": None,
            "obstacle": Obstacle(kind="records_missing", role=role, held=3, needed=40),
        }
    )


def _without_controls(cell: CellRecord, attack: str) -> CellRecord:
    """A cell in which the controls of an attack lack their records."""
    found = tuple(
        _undecided(each, "control") if each.attack == attack and each.verdict != "not_run" else each
        for each in cell.findings
    )
    rows = tuple(
        row.model_copy(update={"status": "inconclusive"})
        if row.attack == attack and row.status != "not_run"
        else row
        for row in cell.coverage
    )
    return cell.model_copy(update={"findings": found, "coverage": rows})


def _of_fewer(cell: CellRecord) -> CellRecord:
    """A cell of half the records: what would have been found is twice as large, and leaks are in between."""

    def half(limit: Limit | None) -> Limit | None:
        return None if limit is None else limit.model_copy(update={"value": 2 * limit.value})

    found = tuple(
        _undecided(each, "private")
        if each.verdict == "leak"
        else each.model_copy(update={"limit": half(each.limit)})
        for each in cell.findings
    )
    open_ = {each.attack for each in found if each.verdict == "inconclusive"}
    rows = tuple(
        row.model_copy(update={"status": "inconclusive"}) if row.attack in open_ else row for row in cell.coverage
    )
    return cell.model_copy(update={"findings": found, "coverage": rows})


def _changed(record: RunRecord) -> Iterator[tuple[str, RunRecord]]:
    """A record with less testing, and what was taken out of it."""
    attacks = dict.fromkeys(
        row.attack for cell in record.cells for row in cell.coverage if row.status != "not_run"
    )
    audits = dict.fromkeys(
        finding.audit for cell in record.cells for finding in cell.findings if not judges_the_claim(finding.audit)
    )
    for attack in attacks:
        yield attack, _with(record, [_left_out(cell, attack) for cell in record.cells])
        yield f"controls of {attack}", _with(record, [_without_controls(cell, attack) for cell in record.cells])
    for audit in audits:
        yield f"audit {audit}", _with(record, [_without_audit(cell, audit) for cell in record.cells])
    yield "records", _with(record, [_of_fewer(cell) for cell in record.cells])


def _with(record: RunRecord, cells: list[CellRecord]) -> RunRecord:
    return record.model_copy(update={"cells": tuple(cells)})


@pytest.mark.long
@pytest.mark.parametrize("run", RUNS)
def test_less_testing_turns_nothing_into_yes_kept_or_nothing_found(run: str) -> None:
    full = load_record(GALLERY / run)
    cases = list(_changed(full))
    assert cases
    for policy in POLICIES:
        nothing_becomes_good(full, cases, policy)


@pytest.mark.long
@pytest.mark.parametrize("run", RUNS)
def test_less_testing_leaves_no_better_line_of_evidence(run: str) -> None:
    full = load_record(GALLERY / run)
    no_line_becomes_nothing_found(full, _changed(full))


@pytest.mark.parametrize("run", RUNS)
def test_an_attack_that_was_left_out_is_named_where_it_applies(run: str) -> None:
    full = load_record(GALLERY / run)
    for lost, record in _changed(full):
        if lost not in {row.attack for cell in full.cells for row in cell.coverage}:
            continue
        for line in strip(record):
            if any(row.attack == lost for cell in line.group.cells for row in cell.coverage):
                assert lost in line.untested, (lost, line.untested)


@pytest.mark.long
@pytest.mark.parametrize("run", RUNS)
def test_bounds_are_of_attacks_that_ran_and_name_them(run: str) -> None:
    """Without `gram_factorization` nothing may be said of what it would have missed."""
    full = load_record(GALLERY / run)
    for lost, record in _changed(full):
        for mine, whole in zip(groups(record), groups(full), strict=True):
            for finding in silent(mine):
                assert finding.attack != lost
            weakest = min(silent(mine), key=strength, default=None)
            was = min(silent(whole), key=strength, default=None)
            if weakest is not None and was is not None and weakest.attack in {f.attack for f in silent(whole)}:
                said = " ".join(answer(record, policy_named("strict"), mine.label, mine.asked.bare).sentences)
                assert "may have been missed" not in said or ", by " in said, said


def test_attacks_of_the_gallery_are_installed() -> None:
    """Else the tests above would take nothing out."""
    rows = {row.attack for run in RUNS for cell in load_record(GALLERY / run).cells for row in cell.coverage}
    assert {name for name in rows if name != "memorization" and not attack_facts(name).gives} == set()
    assert len(rows) > 6


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_rule_that_passes_though_attacks_were_left_out_names_them(name: str, policy: str) -> None:
    record = load_record(GALLERY / name)
    for judgement in judge(record, policy_named(policy)):
        if judgement.state == "pass" and judgement.basis == "untested":
            assert re.search(r", but .+ and (was|were) not run$", judgement.why), judgement
