"""Words on open attacks among all that apply to a release; the same wherever they are shown."""

from __future__ import annotations

from collections.abc import Iterable

from fedassay.contracts.registry import judges_the_claim
from fedassay.records.facts import HARMS, HarmKind
from fedassay.records.record import CellRecord, Coverage, Finding
from fedassay.reports.words.allowed import failed, settled
from fedassay.reports.words.harm_words import HARM_WORDS
from fedassay.reports.words.harms import kind_sought, names
from fedassay.reports.words.sentences import listed

_WORDS = ("inconclusive", "not judged", "not run")
"""Outcomes of an applying attack without a result, the worst last."""


def open_rows(cell: CellRecord) -> list[Coverage]:
    """Open attacks of a cell: not run, or inconclusive and not bounded by the claim either."""
    return [row for row in cell.coverage if row.status != "conclusive" and not _settled(cell, row)]


def _settled(cell: CellRecord, row: Coverage) -> bool:
    """Whether all that an attack left open is bounded by a claim that is sound, and the attack itself works."""
    tried = unclear(cell, row)
    return row.status == "inconclusive" and bool(tried) and all(settled(cell, finding) for finding in tried)


def unclear(cell: CellRecord, row: Coverage) -> list[Finding]:
    """The findings of an attack that say nothing."""
    own = (finding for finding in cell.findings if row.attack == (finding.attack or finding.audit))
    return [finding for finding in own if finding.verdict == "inconclusive"]


def gaps(cells: Iterable[CellRecord]) -> dict[str, str]:
    """Attacks that apply and were are open in some of the cells, with their worst status."""
    found: dict[str, str] = {}
    for cell in cells:
        for row in open_rows(cell):
            words = happened(row).removeprefix("was ")
            found[row.attack] = max(words, found.get(row.attack, words), key=_WORDS.index)
    return found


def happened(row: Coverage) -> str:
    """Return a verb phrase on an attack without a result; also for one that no audit of the plan judges."""
    if row.status == "inconclusive":
        return "was inconclusive"
    judged_by_none = row.remedy is not None and {change.key for change in row.remedy.changes} == {"audits"}
    return "was not judged" if judged_by_none else "was not run"


def not_fully_tested(cells: Iterable[CellRecord]) -> str:
    """One clause, such as `not fully tested: membership not run`; empty where nothing is missing."""
    found = gaps(cells)
    parts = [
        f"{', '.join(name for name, status in found.items() if status == words)} {words}"
        for words in _WORDS
        if words in found.values()
    ]
    return f"not fully tested: {'; '.join(parts)}" if parts else ""


def failed_attacks(cells: Iterable[CellRecord]) -> str:
    """Sentence on attacks that fail on this release whatever its noise, and the evidence in their place."""
    names = dict.fromkeys(
        finding.attack or finding.audit for cell in cells for finding in cell.findings if failed(cell, finding)
    )
    if not names:
        return ""
    return (
        f"The attack{'s' if len(names) > 1 else ''} {listed(names)} failed even on messages that leak on purpose: "
        "other attacks looked for the same, and the claim bounds it."
    )


def not_sought(cells: Iterable[CellRecord]) -> tuple[HarmKind, ...]:
    """The harms not looked for in one of the cells, the worst first; the claim was no search."""
    held = list(cells)
    return tuple(kind for kind in HARMS if any(not _sought(cell, kind) for cell in held))


def _sought(cell: CellRecord, kind: HarmKind) -> bool:
    own = (f for f in cell.findings if not judges_the_claim(f.audit) and f.verdict != "not_run")
    return any(kind_sought(finding) == kind or (kind == "named" and names(finding)) for finding in own)


def not_tested(kinds: Iterable[HarmKind]) -> str:
    """Harms that were not looked for, as a sentence; empty where there are none."""
    words = [HARM_WORDS[kind].sought for kind in kinds]
    return f"Not tested: {listed(words, limit=len(words))}." if words else ""
