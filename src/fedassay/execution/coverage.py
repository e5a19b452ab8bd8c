"""Coverage of a cell: the attacks that apply to its messages, and those that were tried.

An attack applies by the fields that it declares to read (`AttackFacts.reads`) and the adversary's view. The plan
decides only whether it was run.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

from fedassay.contracts.attack import Attack
from fedassay.contracts.facts import ATTACK_NEED_WORDS, AttackFacts
from fedassay.contracts.registry import attack_facts, every_audit
from fedassay.data.roles import Role
from fedassay.exchange.feature_sources import other_features, public_bodies
from fedassay.exchange.transcript import SERVER, kinds_in
from fedassay.exchange.view import View
from fedassay.execution.cell_job import AttackAuditEntry, RunAuditEntry
from fedassay.plan.next_run import NextRun, Part
from fedassay.plan.schema import Component
from fedassay.plan.wiring import installed_attacks
from fedassay.records.facts import Change, Obstacle, Remedy
from fedassay.records.record import Coverage, Finding

_ROLES: tuple[Role, ...] = ("private", "attacker", "control")
_KEYS: tuple[Role | Literal["clients"], ...] = (*_ROLES, "test", "clients")


_CANDIDATES = "candidates who may be among the records (--gallery FILE)"
_RIGHT_BACKBONE = "the backbone that the clients used"
"""Missing input of captured messages of another width; a run here has the backbone of its plan."""


def _foreign_to(facts: AttackFacts, view: View) -> bool:
    """Whether features of networks that are not the backbone are nothing to an attack."""
    bodies = "public_body" in facts.features_of and bool(public_bodies(view))
    return bool(facts.features_of) and not bodies


def seen_kinds(view: View) -> frozenset[str]:
    """Kinds in a view: the clients' fields, weights that anybody sent, models and generators."""
    kinds = kinds_in(view.from_clients())
    broadcast = kinds_in(message for message in view.messages if message.sender == SERVER)
    models = [*(["model"] if view.models else ()), *(["generator"] if view.generators else ())]
    return frozenset({*kinds, *(broadcast & {"head", "parameters"}), *models})


def coverage(
    view: View,
    findings: Sequence[Finding],
    *,
    attacks: Sequence[Component[Attack]],
    audits: Sequence[RunAuditEntry | AttackAuditEntry],
    idle: Collection[str] = (),
    another: NextRun | None = None,
    width: int | None = None,
) -> tuple[Coverage, ...]:
    """Every attack that applies to a view, and whether it was conclusive.

    Args:
        view: The view of the adversary.
        findings: Of the cell.
        attacks: The attacks that were run.
        audits: The audits that were run.
        idle: Attacks that were run and found nothing of what they read: they do not apply after all.
        another: Another run of the cell, for estimates of its cost; None where there is no plan.
        width: Of the backbone's features; None: the adversary has no backbone.
    """
    kinds = seen_kinds(view)
    others = "" if width is None else other_features(view, width)
    run, judged = {attack.name for attack in attacks}, {audit.name for audit in audits}
    rows = []
    for name, facts in installed_attacks():
        own = [finding for finding in findings if finding.attack == name and finding.audit in judged]
        tried = [finding for finding in own if finding.verdict != "not_run"]
        # No attack reads fields that an honest server never sends: nothing is untested for that.
        trapped = "malicious_server" not in facts.needs or view.threat.server == "malicious"
        if tried or (trapped and facts.applies(kinds) and name not in idle):
            foreign = others if not tried and _foreign_to(facts, view) else ""
            if foreign and another is None:
                rows.append(Coverage(attack=name, status="not_run", reason=foreign, would_decide=_RIGHT_BACKBONE))
            elif not foreign:
                rows.append(_row(name, own, another) if own else _not_run(name, facts, run, judged, another))
    for name, audit in every_audit().items():
        if "generator" in audit.needs and not audit.judges and "generator" in kinds:
            own = [finding for finding in findings if finding.audit == name]
            missing = Coverage(
                attack=name,
                status="not_run",
                reason="it is not part of the plan",
                would_decide=f"add {name} to audits",
            )
            part = Part("audit", name)
            rows.append(
                _row(name, own, another) if own else _timed(_added(missing, [part], another), [part], another)
            )
    return tuple(rows)


def _timed(row: Coverage, parts: Sequence[Part], another: NextRun | None) -> Coverage:
    """A row with what the parts of another run would take."""
    seconds = another.seconds(parts) if another is not None and row.would_decide else None
    if seconds is None:
        return row
    return row.model_copy(update={"seconds": round(seconds[0], 1), "further_seconds": round(seconds[1], 1)})


def _not_run(name: str, facts: AttackFacts, run: set[str], judged: set[str], another: NextRun | None) -> Coverage:
    """The row of an applying attack without a finding."""
    if another is None and facts.takes_gallery and name not in run:
        return Coverage(attack=name, status="not_run", reason="no candidates were given", would_decide=_CANDIDATES)
    judges = [audit for audit, other in every_audit().items() if other.judge(facts)]
    missing = [f"{name} to attacks"] if name not in run else []
    if not set(judges) & judged and judges:
        missing.append(f"{' or '.join(judges)} to audits")
    what = "it is not part of the plan" if name not in run else "no audit of the plan judges it"
    needs = [ATTACK_NEED_WORDS[need] for need in facts.needs] if another is None else another.unmet(facts)
    would = f"add {' and '.join(missing)}" if missing else ""
    row = Coverage(
        attack=name,
        status="not_run",
        reason=what,
        would_decide=f"{would}; it needs {' and '.join(needs)}" if would and needs else would,
    )
    judge = next((audit for audit in judges if audit in judged), *judges[:1]) if judges else None
    parts = [Part("attack", name), *([Part("audit", judge)] if judge else [])]
    lacking = [part for part in parts if part.name not in (run if part.kind == "attack" else judged)]
    return _timed(row if needs else _added(row, lacking, another), parts, another)


def _added(row: Coverage, lacking: Sequence[Part], another: NextRun | None) -> Coverage:
    """A row with the parts that a plan lacks as changes of it."""
    if another is None:
        return row
    changes = tuple(Change(key=f"{part.kind}s", after=part.name) for part in lacking)
    return row.model_copy(update={"remedy": Remedy(changes=changes)})


def _row(name: str, findings: Sequence[Finding], another: NextRun | None) -> Coverage:
    """The row of an attack with findings: a leak is an answer, and silence where no finding is inconclusive."""
    tried = [finding for finding in findings if finding.verdict != "not_run"]
    if not tried:
        kept = next((finding for finding in findings if _lacks(finding)), None)
        return Coverage(
            attack=name,
            status="not_run",
            reason=findings[0].reason,
            would_decide="" if kept is None else would_decide(kept, another),
            remedy=None if kept is None else kept.remedy,
        )
    unclear = [finding for finding in tried if finding.verdict == "inconclusive"]
    if not unclear or any(finding.verdict == "leak" for finding in tried):
        return Coverage(attack=name, status="conclusive")
    which = " / ".join(part for part in (unclear[0].source, unclear[0].selection) if part)
    row = Coverage(
        attack=name,
        status="inconclusive",
        reason=f"{which}: {unclear[0].reason}" if which else unclear[0].reason,
        would_decide="; ".join(dict.fromkeys(would_decide(finding, another) for finding in unclear)),
    )
    parts: list[Part] = [Part("audit", audit) for audit in dict.fromkeys(finding.audit for finding in unclear)]
    if unclear[0].attack is not None:
        weak = any(_too_weak(finding) for finding in unclear)
        stronger = another.stronger(name) if another is not None and weak else None
        parts.insert(0, stronger or Part("attack", name))
    return _timed(row, parts, another)


def _lacks(finding: Finding) -> bool:
    """Whether a number is what stood in the way: of records, or a parameter of the attack."""
    found = finding.obstacle
    return found is not None and (bool(found.key) or found.kind == "records_missing")


def _too_weak(finding: Finding) -> bool:
    """Whether the attack did not find its positive control."""
    positive, negative = finding.controls.positive, finding.controls.negative
    return positive is not None and negative is not None and not negative.flagged and not positive.caught


def would_decide(finding: Finding, another: NextRun | None = None) -> str:
    """Return the change that would make an inconclusive finding conclusive, read off its controls.

    Args:
        finding: The finding.
        another: A run with a plan that names the keys and their present values.
    """
    obstacle = finding.obstacle
    if obstacle is not None and obstacle.kind == "records_missing":
        return _records_missing(obstacle, another)
    if obstacle is not None and obstacle.key:
        return f"attacks: {finding.attack}: {obstacle.key}: {obstacle.needed}, now {obstacle.held}"
    positive, negative = finding.controls.positive, finding.controls.negative
    private, attacker, control = (
        f"data.split.{role}" if another is None else another.key(role) for role in _ROLES
    )
    if positive is None or negative is None:
        return f"more records for its controls ({control}; {attacker})"
    if negative.flagged:
        return "other records for the control that no client holds: more of them, or of the same distribution"
    if not positive.caught:
        more, larger = f"more records ({attacker}; {control})", _stronger(finding.attack, another)
        return f"a stronger attack ({larger}), or {more}" if larger else more
    return (
        f"more records ({private}), or a run of this release alone, so that its level is corrected for fewer tests"
    )


def _stronger(attack: str | None, another: NextRun | None) -> str:
    """A stronger form of an attack, in words; empty where it has none, or the plan asks for the strongest."""
    key = "" if attack is None else attack_facts(attack).stronger
    if attack is None or not key:
        return ""
    if another is None:
        return f"a larger {key}"
    part = another.stronger(attack)
    return "" if part is None else f"attacks: {attack}: {key}: {part.changed[key]}"


def _records_missing(obstacle: Obstacle, another: NextRun | None) -> str:
    """So many more records of a role, or clients, with their key in the plan."""
    of_clients = obstacle.role == "clients"
    what = "clients" if of_clients else f"records of the {obstacle.role} role"
    where = "clients.count" if of_clients else f"data.split.{obstacle.role}"
    role = next((known for known in _KEYS if known == obstacle.role), None)
    if another is not None and role is not None:
        where = another.key(role)
    if obstacle.held is None or obstacle.needed is None:
        return f"more {what} ({where})"
    return f"{obstacle.needed - obstacle.held:,} more {what} ({where})"


def with_remedies(findings: Sequence[Finding], another: NextRun | None) -> list[Finding]:
    """The findings, each with the change of the plan that would decide it, where one is known to."""
    return [
        finding
        if another is None or (remedy := another.remedy(finding.obstacle, finding.attack)) is None
        else finding.model_copy(update={"remedy": remedy})
        for finding in findings
    ]
