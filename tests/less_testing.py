"""What may not look better after less testing: answers, rules, badges, lines of evidence, and limits."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources
from pathlib import Path

from fedassay.records.record import Finding, RunRecord
from fedassay.reports.answer.answer import Answer, answer
from fedassay.reports.evidence.page import pages
from fedassay.reports.evidence.release import release_of
from fedassay.reports.gate.judging import judge
from fedassay.reports.gate.policy import Policy, load_policy
from fedassay.reports.words.groups import groups
from fedassay.reports.words.summary import strip
from fedassay.reports.words.verdicts import LOOKS

POLICIES = ("strict", "demonstration")
"""The shipped policies under which every attack that applies has to be conclusive."""
GOOD = ("kept", "bounded by the claim")

Cases = Iterable[tuple[str, RunRecord]]
"""Records with less testing, each after what was left out of it."""


def policy_named(name: str) -> Policy:
    return load_policy(Path(str(resources.files("fedassay"))) / "configs" / "policies" / f"{name}.yaml")


def _answers(record: RunRecord, policy: str) -> dict[tuple[str, float], Answer]:
    return {
        (group.label, group.asked.bare): answer(record, policy_named(policy), group.label, group.asked.bare)
        for group in groups(record)
    }


def nothing_becomes_good(full: RunRecord, cases: Cases, policy: str) -> None:
    """No release becomes a Yes, no rule kept, and no badge good."""
    held = policy_named(policy)
    before, marks = _answers(full, policy), {(j.rule, j.cell): j.mark for j in judge(full, held)}
    badges = {(line.group.label, line.group.asked.bare): line.verdict for line in strip(full)}
    for lost, record in cases:
        for key, found in _answers(record, policy).items():
            if found.answer == "yes":
                assert before[key].answer == "yes", (policy, lost, key, found.text)
        for each in judge(record, held):
            if each.mark in GOOD:
                assert marks.get((each.rule, each.cell)) in (*GOOD, None), (policy, lost, each)
                if each.mark == "kept" and (each.rule, each.cell) in marks:
                    assert marks[each.rule, each.cell] == "kept", (policy, lost, each)
        for line in strip(record):
            if LOOKS[line.verdict].tone == "good":
                was = badges[line.group.label, line.group.asked.bare]
                assert LOOKS[was].tone == "good", (policy, lost, line.text)
                assert not line.untested, (policy, lost, line.text)


def no_line_becomes_nothing_found(full: RunRecord, cases: Cases) -> None:
    """Of evidence under the policy `strict`."""
    policy, held = policy_named("strict"), list(cases)
    for group in groups(full):
        if sum(group.label in (each.label, each.method) for each in groups(full)) > 1:
            continue  # a name of several releases asks for none of them
        asked = (policy, group.label, group.asked.bare)
        before = {line.question: line.shown for line in pages(release_of(full, *asked)).tested}
        for lost, record in held:
            for line in pages(release_of(record, *asked)).tested:
                if line.shown == "nothing found":
                    assert before[line.question] == "nothing found", (lost, group.label, line)


def no_limit_shrinks(full: RunRecord, lost: str, record: RunRecord) -> int:
    """Of runs whose levels are corrected for as many tests; how many limits were compared."""
    compared = 0
    for cell, whole in zip(record.cells, full.cells, strict=True):
        known = {(f.audit, f.attack, f.source, f.selection): f.limit for f in whole.findings}
        for finding in cell.findings:
            limit, was = (
                finding.limit,
                known.get((finding.audit, finding.attack, finding.source, finding.selection)),
            )
            if limit is not None and was is not None and limit.metric == was.metric:
                assert limit.value >= was.value, (lost, finding.audit, finding.attack, was, limit)
                compared += 1
    return compared


def _asked(finding: Finding) -> tuple[str | None, ...]:
    return finding.audit, finding.attack, finding.source, finding.selection
