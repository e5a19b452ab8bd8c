"""Rules on what was tried: whether anything concluded, whether all that applies did, how small a leak it saw."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from fedassay.contracts.registry import attack_facts, audit_facts
from fedassay.records.record import CellRecord, Coverage, Finding
from fedassay.reports.gate.judgement import Basis, Judgement
from fedassay.reports.gate.policy import EPSILON_LIMIT
from fedassay.reports.words.allowed import failed, known, settled
from fedassay.reports.words.harms import BY_CLAIM, obstacle_of
from fedassay.reports.words.numbers import short, significant
from fedassay.reports.words.sentences import listed, missed_clause, open_clause
from fedassay.reports.words.summary import search
from fedassay.reports.words.untested import happened, open_rows, unclear
from fedassay.reports.words.verdicts import LOOKS
from fedassay.support.errors import PlanError


def conclusive(finding: Finding) -> bool:
    """Whether a finding says anything of what was sent; the ledger alone adds up what was declared."""
    facts = audit_facts(finding.audit)
    declared = facts is not None and facts.place.section == "accounts"
    return finding.verdict not in ("inconclusive", "not_run") and not declared


def applies(cell: CellRecord, audit: str) -> bool:
    """Whether an audit has anything to judge in what a cell sends, as far as its record says what applies."""
    facts = audit_facts(audit)
    if facts is None or not cell.coverage or not (facts.judges or "generator" in facts.needs):
        return True
    rows = {row.attack for row in cell.coverage}
    return audit in rows or any(_judged(audit, attack) for attack in rows)


def _judged(audit: str, attack: str) -> bool:
    facts = audit_facts(audit)
    try:
        return facts is not None and facts.judge(attack_facts(attack))
    except PlanError:
        return True  # an attack that is not installed here: what it gives is not known


def as_tested(passed: Judgement, cell: CellRecord, audits: Collection[str] | None = None) -> Judgement:
    """A judgement that names the attacks that apply and were not run: a rule that passes rests on less then.

    Args:
        passed: Answer of a rule.
        cell: The cell that it says it of.
        audits: Those that judge what the rule asks about; None: all.
    """
    left_out = [
        row.attack
        for row in cell.coverage
        if row.status == "not_run"
        and (audits is None or any(audit == row.attack or _judged(audit, row.attack) for audit in audits))
    ]
    if passed.state != "pass" or not left_out:
        return passed
    apply = "apply and were" if len(left_out) > 1 else "applies and was"
    words = f"{passed.why}, but {listed(left_out, limit=len(left_out))} {apply} not run"
    return replace(passed, basis="untested", why=words)


def relevant(cell: CellRecord, audit: str) -> list[Finding]:
    """The findings of an audit but those of an attack that does not apply, and of what is asked elsewhere."""
    rows = {row.attack for row in cell.coverage}
    return [
        finding
        for finding in cell.findings
        if finding.audit == audit
        and (finding.obstacle is None or finding.obstacle.kind != "asked_elsewhere")
        and not (cell.coverage and finding.verdict == "not_run" and finding.attack and finding.attack not in rows)
    ]


def nothing_concluded(cell: CellRecord, name: str) -> Iterator[Judgement]:
    """Judge a cell without any verdict undecided, under every policy."""
    claim = cell.privacy.verdict not in ("inconclusive", "not_run")
    if claim or any(conclusive(finding) for finding in cell.findings):
        return
    reason = next((f"{finding.audit}: {finding.reason}" for finding in cell.findings), "no audit was run")
    words = f"no audit reached a verdict ({reason})"
    yield Judgement("anything concluded", name, "undecided", words, "no audit reached a verdict", "coverage")


def attacked(cell: CellRecord, name: str) -> Iterator[Judgement]:
    """Judge a cell undecided where attacks apply and none was run."""
    if not cell.coverage or any(row.status != "not_run" for row in cell.coverage):
        return
    brief = "no attack was run"
    listed = ", ".join(row.attack for row in cell.coverage)
    words = f"{brief}, and {listed} would apply; `attacks: standard` runs them, `coverage: any` waives it"
    yield Judgement("coverage", name, "undecided", words, brief, "coverage", basis="untested")


def complete(cell: CellRecord, name: str) -> Iterator[Judgement]:
    """Every attack that applies was conclusive."""
    open_ = open_rows(cell)
    left_out = [row.attack for row in open_ if row.status == "not_run"]
    if not cell.coverage:
        words = "the record does not say which attacks apply, or none of those installed does"
        yield Judgement("coverage", name, "undecided", words, about="coverage")
    for row in cell.coverage:
        rule = f"coverage {row.attack}"
        if row.status == "conclusive":
            yield Judgement(rule, name, "pass", f"{row.attack} was conclusive", about="coverage")
            continue
        if row not in open_:
            weak = any(failed(cell, finding) for finding in unclear(cell, row))
            why = (
                "fails on this release even without noise, another attack looked for the same harm"
                if weak
                else "reached no verdict"
            )
            words = f"{row.attack} {why}, and the claim bounds what it looks for"
            yield Judgement(rule, name, "pass", words, about="coverage", basis="claim")
            continue
        would = f"; what would decide: {row.would_decide}" if row.would_decide else ""
        status = LOOKS[row.status].word.lower()
        words = f"not fully tested: {row.attack} {status}: {row.reason}{would}"
        basis: Basis = "untested" if row.status == "not_run" else "measured"
        brief = _not_run(left_out) if row.status == "not_run" else _open(cell, row)
        yield Judgement(rule, name, "undecided", words, brief, "coverage", attack=row.attack, basis=basis)


def _not_run(attacks: Collection[str]) -> str:
    several = len(attacks) > 1
    named = listed(attacks, limit=len(attacks))
    return f"the attack{'s' if several else ''} {named} {'were' if several else 'was'} not run"


def _open(cell: CellRecord, row: Coverage) -> str:
    """Clause on the reason why an attack says nothing."""
    for finding in unclear(cell, row):
        obstacle = obstacle_of(finding)
        if obstacle is not None and not settled(cell, finding):
            return open_clause(finding, obstacle)
    return f"the attack {row.attack} {happened(row)}"


def seen_small(cell: CellRecord, name: str, bounds: Mapping[str, float]) -> Iterator[Judgement]:
    """Judge whether each silent audit would have found a leak as small as the policy demands."""
    for audit, bound in bounds.items():
        if audit == EPSILON_LIMIT:
            continue
        rule = f"limit_of_detection {audit}"
        if not applies(cell, audit):
            yield Judgement(rule, name, "pass", f"{audit} does not apply to what is sent", basis="nothing")
            continue
        findings = relevant(cell, audit)
        if not findings:
            yield Judgement(
                rule,
                name,
                "undecided",
                f"the audit {audit} was not part of the run",
                about="silence",
                basis="untested",
            )
        for finding in findings:
            found = _limited(rule, name, known(cell, finding), bound, bounds.get(EPSILON_LIMIT), cell)
            yield as_tested(found, cell, [audit])


def _limited(
    rule: str, name: str, finding: Finding, share: float, epsilon: float | None, cell: CellRecord
) -> Judgement:
    where, asked = search(finding), cell.asked
    if finding.verdict in ("inconclusive", "not_run") and not settled(cell, finding):
        words = f"{where} is {LOOKS[finding.verdict].word.lower()}: {finding.reason}"
        obstacle = obstacle_of(finding)
        brief = "" if obstacle is None else open_clause(finding, obstacle)
        return Judgement(rule, name, "undecided", words, brief, "silence")
    if finding.verdict not in ("no_leak_found", "sound", "not_refuted", "inconclusive"):
        return Judgement(rule, name, "pass", f"{where} is not silent", basis="nothing")
    limit = finding.limit
    if limit is None:
        words = f"{where} says no smallest leak that it would have found"
        return Judgement(rule, name, "undecided", words, missed_clause(finding, asked), "silence")
    if limit.metric == "shift":
        words = f"{where} bounds no share of the records, but how much closer all would have to be: {limit.words}"
        return Judgement(rule, name, "undecided", words, missed_clause(finding, asked), "silence")
    bound = epsilon if limit.metric == "epsilon" else share
    of = f"epsilon; {asked.kind.words}" if limit.metric == "epsilon" else limit.metric
    by_claim = limit.planted == BY_CLAIM
    least = "the smallest leak that would have been found"
    least = "the most that the claim, which is sound, allows" if by_claim else least
    smallest = f"{where}: {least} is {significant(limit.value)} ({of})"
    if bound is None:
        words = f"{smallest}; the policy bounds no limit that is an epsilon"
        return Judgement(rule, name, "pass", words, basis="nothing")
    if limit.value > bound:
        lower = "a smaller epsilon" if by_claim else "more records"
        words = f"{smallest}, above the bound of {significant(bound)}; {lower} would lower it"
        asks = f"ε = {short(bound)}" if limit.metric == "epsilon" else f"{short(100 * bound)} %"
        brief = f"{missed_clause(finding, asked)}, where the policy asks for at most {asks}"
        return Judgement(rule, name, "undecided", words, brief, "silence")
    basis: Basis = "claim" if by_claim else "measured"
    return Judgement(rule, name, "pass", f"{smallest}, within {significant(bound)}", basis=basis)
