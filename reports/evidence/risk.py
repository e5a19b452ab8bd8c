"""Risk on a stated scale: what was found, by whom it could be found again, and what that would take.

No probability is invented: likely is what an attack of the run did, or what a bound of the claim leaves possible.
The harm decides the level, by the one list of ranked harms (`fedassay.reports.words.harm_words.SCALE`), and a
severe one counts as serious where the attack needs the very records that it asks about.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from fedassay.contracts.registry import attack_facts, audit_facts
from fedassay.records.facts import HarmKind
from fedassay.records.record import CellRecord
from fedassay.reports.evidence.lines import NOT_TESTED, Line, Status
from fedassay.reports.evidence.release import Release
from fedassay.reports.words.claims import claims, ledger_stands
from fedassay.reports.words.epsilon_scale import chance
from fedassay.reports.words.harm_words import HARM_WORDS, Level, harm_clause
from fedassay.reports.words.harms import Leak, faint, leaks
from fedassay.reports.words.sentences import sentence
from fedassay.reports.words.summary import distinct
from fedassay.reports.words.untested import not_sought, not_tested
from fedassay.support.epsilon import Epsilon
from fedassay.support.registry import entries

Likelihood = Literal["shown", "conceivable"]

_SHOWN: Likelihood = "shown"
_CONCEIVABLE: Likelihood = "conceivable"

_LEVELS: tuple[Level, ...] = ("severe", "serious", "limited")

_WHO = {
    "per_client": "the server, or whoever reads a client's messages",
    "aggregate": "whoever sees the sums over the clients",
    "broadcast": "whoever receives what the server sends out",
}


@dataclass(frozen=True)
class Risk:
    """One harm that was found.

    Attributes:
        level: Severity, on the scale.
        likelihood: `shown`: an attack of the run did it. `conceivable`: to an artificial worst record alone.
        kind: The harm, one of the ranked list.
        found: Result of the attack, as a sentence.
        who: The adversary.
        takes: Means that it would take.
        pointers: Places in the record.
    """

    level: Level
    likelihood: Likelihood
    kind: HarmKind
    found: str
    who: str
    takes: str
    pointers: tuple[str, ...]


def risks(release: Release) -> tuple[Risk, ...]:
    """Every kind of harm that was found, the worst first."""
    return tuple(sorted(_risks(release), key=lambda risk: _LEVELS.index(risk.level)))


def _risks(release: Release) -> Iterator[Risk]:
    plan = release.record.plan
    threat = plan.get("threat") if isinstance(plan, dict) else None
    view = threat.get("view") if isinstance(threat, dict) else None
    who = _WHO.get(str(view), "whoever reads the captured messages" if release.captured else _WHO["per_client"])
    if isinstance(threat, dict) and (colluding := threat.get("colluding")):
        who += f", with {colluding} of the clients on its side"
    if isinstance(threat, dict) and threat.get("server") == "malicious":
        who += ", where the server sends out what it chose for it"
    for leak in distinct(leaks(release.option.group.cells)):
        places = tuple(place for place, finding in release.findings() if finding == leak.finding)
        level, likelihood = HARM_WORDS[leak.harm.kind].level, _SHOWN
        if leak.harm.of == "worst_neighbours":
            level, likelihood = "limited", _CONCEIVABLE
        elif level == "severe" and (faint(leak.harm) or _needs_records(leak)):
            level = "serious"
        yield Risk(level, likelihood, leak.harm.kind, sentence(harm_clause(leak)), who, _takes(leak), places)


def risk_line(release: Release, clause: str, question: str) -> Line:
    """The worst risk as a line of the form."""
    found = risks(release)
    if found:
        words = f"{found[0].level.capitalize()}: {found[0].found}"
        return Line(clause, question, "answered", words, found[0].pointers, found=True)
    tested = _tested(release)
    if not tested:
        return Line(clause, question, "not tested", NOT_TESTED)
    open_ = any(finding.verdict == "inconclusive" and finding.limit is None for _, finding in release.findings())
    if open_ or release.answer.untested:
        words = "The tests that were made found none, but not every attack was conclusive."
        return Line(clause, question, "not decided", words, tested)
    missed = f"The tests that were made found none. {release.answer.missed}".strip()
    return Line(clause, question, "answered", missed, tested, found=False)


def _tested(release: Release) -> tuple[str, ...]:
    """Places of the findings with an attempted attack."""
    return tuple(place for place, finding in release.findings() if finding.verdict != "not_run")


def likelihood_line(release: Release, clause: str, question: str) -> Line:
    """Line on the likelihood of the worst risk, without a probability: shown, or bounded by the claim."""
    found = risks(release)
    if found:
        words = f"{found[0].likelihood.capitalize()}; it takes {found[0].takes}."
        return Line(clause, question, "answered", words, found[0].pointers, found=True)
    tested = _tested(release)
    places = tuple(f"/cells/{number}/privacy/accounted" for number, _ in release.cells)
    bounds = dict.fromkeys(chance(spent_by(cell), cell.privacy.mu) for _, cell in release.cells)
    more = "showed more than is claimed" if any(claims(cell) for _, cell in release.cells) else "did it"
    first = f"No attack of this run {more}" if tested else "No attack was run"
    if "" not in bounds:
        return Line(clause, question, "answered", f"{first}; {'; '.join(bounds)}.", (*tested, *places))
    if not tested:
        return Line(clause, question, "not tested", NOT_TESTED)
    return Line(clause, question, "not decided", f"{first}, and no claim bounds it.", tested)


def spent_by(cell: CellRecord) -> Epsilon | None:
    """Return the accounted total of a cell where it bounds anything; None where it does not stand."""
    stands = claims(cell) and ledger_stands(cell) and cell.accounted is not None and cell.accounted.finite
    return cell.accounted if stands else None


def residual_line(release: Release, clause: str, question: str) -> Line:
    """The risk that remains: what was found, what may have been missed, and the harms that were not sought."""
    found = risks(release)
    first = f"The finding remains, {found[0].level}: {found[0].found}" if found else release.answer.missed
    unsought = not_tested(not_sought(release.option.group.cells))
    tested = _tested(release)
    words = " ".join(filter(None, (first, unsought)))
    if not words:
        return risk_line(release, clause, question)
    settled: Status = "answered" if found or not unsought else "not tested"
    return Line(clause, question, settled, words, found[0].pointers if found else tested)


def _needs_records(leak: Leak) -> bool:
    """Whether the attack needs the very records that it asks about."""
    facts = audit_facts(leak.finding.audit)
    return (facts is not None and "known_members" in facts.needs) or "membership_game" in _needs(leak)


def _needs(leak: Leak) -> tuple[str, ...]:
    attack = leak.finding.attack or ""
    return attack_facts(attack).needs if attack in entries("attack") else ()


def _takes(leak: Leak) -> str:
    """Means that an attacker needs to repeat the leak."""
    attack, needs = leak.finding.attack or "", _needs(leak)
    if leak.harm.of == "worst_neighbours":
        return "all records but one, and the one that is asked about"
    if attack in entries("attack") and attack_facts(attack).takes_gallery:
        return "a list of candidates"
    if _needs_records(leak):
        return "a copy of each record that is asked about"
    have = [
        words
        for need, words in (
            ("attacker_records", "data of the same kind"),
            ("backbone_gradients", "the network that makes the features"),
        )
        if need in needs
    ]
    have += ["the network that the clients train"] if _reads_networks(attack) else []
    return " and ".join(have) or "arithmetic on the messages alone"


def _reads_networks(attack: str) -> bool:
    """Whether an attack reads gradients or weights, which say nothing without the network that they are of."""
    reads = attack_facts(attack).alternatives if attack in entries("attack") else ()
    return any({"gradient", "model"} & each for each in reads)
