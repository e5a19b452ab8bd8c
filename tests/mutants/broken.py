"""What the audits say of a broken attack, held against what they say of the same attack as it is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from catalogue import Concern

CONCLUSIVE = ("leak", "no_leak_found")


@dataclass(frozen=True)
class Said:
    """One finding of a run.

    Attributes:
        cell: Label, epsilon, delta and seed of its cell.
        audit: Registered name.
        attack: Registered name, or empty.
        source: What was attacked, or empty.
        selection: Which targets were scored, or empty.
        verdict: Of the finding.
        reason: Of the verdict.
        caught: Whether its positive control was caught; None where it had none.
        limit: Its limit of detection: the metric, what that counts or is a share of, the mechanism that was
        planted,
            and the value; None where it has none.
    """

    cell: str
    audit: str
    attack: str
    source: str
    selection: str
    verdict: str
    reason: str
    caught: bool | None = None
    limit: tuple[str, str, str, float] | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """What tells it from the other findings of the run, once for each place."""
        return (self.cell, self.audit, self.attack, self.source, self.selection)

    @property
    def label(self) -> str:
        """Of the method entry."""
        return self.cell.split(" | ")[0]


def said_in(record: dict[str, Any]) -> tuple[Said, ...]:
    """Every finding of a run's record."""
    return tuple(
        Said(
            cell=" | ".join(str(cell[key]) for key in ("label", "epsilon", "delta", "seed")),
            audit=finding["audit"],
            attack=finding["attack"] or "",
            source=finding["source"] or "",
            selection=finding["selection"] or "",
            verdict=finding["verdict"],
            reason=finding["reason"],
            caught=None if (held := finding["controls"].get("positive")) is None else bool(held["caught"]),
            limit=None if (limit := finding.get("limit")) is None else limit_in(limit),
        )
        for cell in record["cells"]
        for finding in cell["findings"]
    )


def limit_in(limit: dict[str, Any]) -> tuple[str, str, str, float]:
    """A limit of detection as `Said` has it."""
    return limit["metric"], limit.get("of") or "", limit.get("planted", ""), limit["value"]


def concerned(findings: Sequence[Said], concern: Concern) -> list[Said]:
    """The findings that a fault concerns; one without a source or selection speaks of all of them."""

    def matches(pattern: str, text: str) -> bool:
        return not pattern or not text or re.fullmatch(pattern, text) is not None

    return [
        finding
        for finding in findings
        if finding.attack == (concern.attack or finding.attack)
        and finding.audit == (concern.audit or finding.audit)
        and matches(concern.source, finding.source)
        and matches(concern.selection, finding.selection)
        and matches(concern.label, finding.label)
    ]


def outcome_of_attack(
    concern: Concern, broken: Sequence[Said], intact: Sequence[Said]
) -> tuple[str, str, list[str]]:
    """What became of the findings that a fault concerns.

    Args:
        concern: Which findings these are.
        broken: All findings of the broken code.
        intact: All findings of the code as it is, on the same plan.

    Returns:
        The outcome (see `catalogue`), the verdict that says most of it, and the reasons behind.
    """
    before, after = concerned(intact, concern), concerned(broken, concern)
    concluded = [finding for finding in before if finding.verdict in CONCLUSIVE]
    if not concluded:
        reasons = [f"{finding.verdict}: {finding.reason}" for finding in before]
        return "no baseline", "inconclusive", reasons or ["the code as it is has no finding of this kind"]
    # One that reads what it read before is missed as well: its control should have shown the fault.
    if silent := [finding for finding in after if finding.verdict == "no_leak_found"]:
        return "missed", "no_leak_found", [_reason(finding) for finding in silent]
    if sorted(map(repr, after)) == sorted(map(repr, before)):
        return "no effect", after[0].verdict, [_reason(finding) for finding in after]
    if gone := _gone(concluded, after):
        return "missed", "not_run", [f"{' / '.join(filter(None, key))}: gone without a word" for key in gone]
    worst = next(
        (finding.verdict for finding in after if finding.verdict in ("inconclusive", "not_run")), after[0].verdict
    )
    return "found", worst, [_reason(finding) for finding in after if finding.verdict == worst]


def _gone(concluded: Sequence[Said], after: Sequence[Said]) -> list[tuple[str, ...]]:
    """Conclusive findings that are there no more, although nothing says why: no audit may fall silent."""
    keys = {finding.key for finding in after}
    excused = {finding.key[:3] for finding in after if finding.verdict in ("inconclusive", "not_run")}
    return [item.key for item in concluded if item.key not in keys and item.key[:3] not in excused]


def _reason(finding: Said) -> str:
    where = " / ".join(filter(None, (finding.label, finding.source, finding.selection)))
    return f"{where}: {finding.reason}" if where else finding.reason
