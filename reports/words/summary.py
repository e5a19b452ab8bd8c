"""The verdict strip: one line in plain words per method entry and epsilon, worst finding first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fedassay.contracts.registry import judges_the_claim
from fedassay.records.facts import HARMS
from fedassay.records.record import CellRecord, Finding, RunRecord, Verdict
from fedassay.reports.words.allowed import known, settled
from fedassay.reports.words.claims import claim_clause, fault_clause, fault_of, refuted
from fedassay.reports.words.groups import Group, groups
from fedassay.reports.words.harm_words import harm_clause
from fedassay.reports.words.harms import Leak, kind_sought, leaks, obstacle_of
from fedassay.reports.words.sentences import NO_ATTACK, listed, open_clause, silent_clause
from fedassay.reports.words.things import source_words
from fedassay.reports.words.untested import not_fully_tested
from fedassay.reports.words.verdicts import LOOKS, worst
from fedassay.support.adjacency import class_counts_public

SELECTIONS = {
    "all": "all targets",
    "attacker": "the attacker's own pick",
    "oracle": "the best matches",
    "oracle_all": "every private image",
    "controlled_sizes": "clients of sizes that were controlled",
    "larger_clients": "clients larger than any that was controlled",
}
"""Plain words for which targets were scored."""

_WHOEVER = frozenset({"named", "members"})
"""Kinds of harm that are named without their source."""

_AT_A_GLANCE = 15
"""Lines that are taken in at once, whatever their order."""


@dataclass(frozen=True)
class Line:
    """One line of the strip.

    Attributes:
        group: The group of releases.
        verdict: The heaviest verdict in the group.
        clauses: Harms that were found, in plain words, the worst first.
        untested: Attacks that apply and were not conclusive, as a clause; empty where all were.
        seeds: On how many seeds the verdict was reached, as words; empty for one seed.
    """

    group: Group
    verdict: Verdict
    clauses: tuple[str, ...]
    untested: str
    seeds: str

    @property
    def said(self) -> str:
        """The first two clauses, which are the worst."""
        return "; ".join(self.clauses[:2])

    @property
    def further(self) -> int:
        """Number of clauses beyond the first two."""
        return max(0, len(self.clauses) - 2)

    @property
    def text(self) -> str:
        """Words on the found leaks, and on the harms that were not tested."""
        return "; ".join(part for part in (self.said, self.untested) if part)


def selection_words(selection: str | None) -> str:
    """Name the scored targets, in plain words; empty where nothing was selected."""
    return SELECTIONS.get(selection or "", (selection or "").replace("_", " "))


def about(finding: Finding) -> str:
    """Name a finding's source and selection, in plain words; empty where it has neither."""
    source = "" if finding.source is None else source_words(finding.source)
    return ", ".join(part for part in (source, selection_words(finding.selection)) if part)


def search(finding: Finding) -> str:
    """A finding as the search that it is: the audit, what it looked at, and for whom."""
    words = finding.audit.replace("_", " ")
    words += "" if finding.source is None else f" of {source_words(finding.source)}"
    selected = selection_words(finding.selection)
    return f"{words} ({selected})" if selected else words


def strip(record: RunRecord) -> tuple[Line, ...]:
    """The lines of the verdict strip, in the record's order; the worst first where there are many to read."""
    lines = tuple(line_of(group) for group in groups(record))
    if len(lines) <= _AT_A_GLANCE:
        return lines
    return tuple(sorted(lines, key=lambda line: -LOOKS[line.verdict].rank))


def lead(record: RunRecord) -> str:
    """Above the strip: how many releases came out how, and of how many a claim says what attacks do not."""
    counts: dict[Verdict, int] = {}
    bounded = 0
    for line in strip(record):
        counts[line.verdict] = counts.get(line.verdict, 0) + 1
        bounded += line.verdict == "inconclusive" and _bounded(line.group)
    alone = " by attacks alone" if bounded else ""
    words: dict[Verdict, tuple[str, str]] = {
        "unsound": ("makes a claim that is disproved", "make claims that are disproved"),
        "leak": ("leaks", "leak"),
        "unsupported": ("claims more than its ledger supports", "claim more than their ledgers support"),
        "inconclusive": (f"could not be judged{alone}",) * 2,
        "not_refuted": ("makes a claim that was not refuted", "make claims that were not refuted"),
        "no_leak_found": ("shows no leak", "show no leak"),
        "sound": ("holds its claim", "hold their claims"),
        "not_run": ("was not assessed", "were not assessed"),
    }
    total = sum(counts.values())
    if not total:
        return "No release was audited."
    parts = [f"{counts[verdict]} {words[verdict][counts[verdict] > 1]}" for verdict in LOOKS if verdict in counts]
    said = f"Of {total} release{'s' if total != 1 else ''} under audit, {listed(parts, limit=7)}."
    if not bounded:
        return said
    unclear = counts["inconclusive"]
    which = "Its claim bounds" if bounded == 1 else "Their claims bound"
    if bounded < unclear:
        whose = "claim of 1 bounds" if bounded == 1 else f"claims of {bounded} bound"
        which = f"Of these {unclear}, the {whose}"
    return f"{said} {which} what attacks could not judge."


def _bounded(group: Group) -> bool:
    """Whether a claim that holds bounds whatever attacks on a group could not judge."""
    unclear = [(cell, f) for cell in group.cells for f in attacks_on(cell) if f.verdict == "inconclusive"]
    held = all(cell.privacy.verdict == "sound" for cell in group.cells)
    left = bool(unclear) or bool(not_fully_tested(group.cells))
    return left and held and all(settled(cell, finding) for cell, finding in unclear)


def attacks_on(cell: CellRecord) -> tuple[Finding, ...]:
    """A cell's findings without those on its claim, which decide the cell's own privacy verdict."""
    return tuple(finding for finding in cell.findings if not judges_the_claim(finding.audit))


def verdicts_of(cell: CellRecord) -> list[Verdict]:
    """Every verdict of a cell, the claim's first."""
    return [cell.privacy.verdict, *(finding.verdict for finding in attacks_on(cell))]


def silent(group: Group) -> list[Finding]:
    """The findings of a group that found no leak."""
    return [finding for cell in group.cells for finding in silent_in(cell)]


def silent_in(cell: CellRecord) -> list[Finding]:
    """The findings of a cell that found no leak."""
    return [finding for finding in attacks_on(cell) if finding.verdict == "no_leak_found"]


def _quiet(cell: CellRecord, finding: Finding) -> bool:
    """Whether a finding is silent, or reached no verdict where the claim bounds what it looked for."""
    return finding.verdict == "no_leak_found" or settled(cell, finding)


def _unbounded(group: Group) -> bool:
    """Whether some silent finding has no known bound on the leaks that it missed."""
    return any(
        known(cell, finding).limit is None and not _public(cell, finding)
        for cell in group.cells
        for finding in silent_in(cell)
    )


def _public(cell: CellRecord, finding: Finding) -> bool:
    """Whether a finding looked for labels that the guarantee declares public: there is nothing to miss."""
    return class_counts_public(cell.adjacency) and "total_variation" in finding.metrics


def line_of(group: Group) -> Line:
    """The line of a method entry at one epsilon."""
    per_seed = [worst(verdicts_of(cell)) for cell in group.cells]
    verdict = worst(per_seed)
    missing = not_fully_tested(group.cells)
    seeds = ""
    if 0 < per_seed.count(verdict) < len(per_seed):
        seeds = f"{per_seed.count(verdict)} of {len(per_seed)} seeds"
    # Silence is no answer where another attack that applies said nothing, or where what it missed is not known.
    # A claim that holds says nothing of an attack that was not tried: fewer attacks make no better badge.
    quiet = verdict in ("no_leak_found", "sound", "not_refuted")
    if quiet and (missing or (verdict == "no_leak_found" and _unbounded(group))):
        verdict = "inconclusive"
    return Line(group, verdict, tuple(_clauses(group)), missing, seeds)


def _clauses(group: Group) -> Iterator[str]:
    """Clauses on a group, the worst first; nothing that comforts stands below a harm."""
    found = distinct(leaks(group.cells))
    cell = max(group.cells, key=lambda item: LOOKS[item.privacy.verdict].rank)
    fault = fault_of(cell)
    said = [harm_clause(leak) for leak in found]
    yield from said[:1]
    if fault is not None:
        yield fault_clause(fault)
    yield from said[1:]
    if any(refuted(each) for each in group.cells):
        return
    if not said:
        yield from silence(group)
    if fault is None:
        yield claim_clause(cell)


def distinct(found: list[Leak]) -> list[Leak]:
    """The worst leak of each kind of harm and mechanism, the worst first, one of each kind before a second.

    Two mechanisms with the same sentence are one to a reader. Participation is inferred or named by the best
    attack, whichever that is.
    """
    kept: dict[tuple[str, ...], Leak] = {}
    for leak in found:
        harm = leak.harm
        way = (harm.of, harm.metric) if harm.kind in _WHOEVER else (harm.mechanism,)
        kept.setdefault((harm.kind, *way), leak)
    told: dict[str, Leak] = {}
    for leak in kept.values():
        told.setdefault(harm_clause(leak), leak)
    first: dict[str, Leak] = {}
    for leak in told.values():
        first.setdefault(leak.harm.kind, leak)
    return [*first.values(), *(leak for leak in told.values() if leak not in first.values())]


def silence(group: Group, where: str = "", unasked: str = "") -> Iterator[str]:
    """Clauses on a release without a found leak: harms that could not be tested, the worst first, or limits.

    Args:
        group: A release.
        where: Its name, where others stand beside it.
        unasked: Said before each thing that could not be tested.
    """
    unclear = [
        (HARMS.index(kind_sought(finding)), open_clause(finding, obstacle))
        for cell in group.cells
        for finding in attacks_on(cell)
        if finding.verdict == "inconclusive" and not settled(cell, finding)
        if (obstacle := obstacle_of(finding)) is not None
    ]
    quiet = [
        known(cell, finding)
        for cell in group.cells
        for finding in attacks_on(cell)
        if _quiet(cell, finding) and not _public(cell, finding)
    ]
    if unclear:
        yield from dict.fromkeys(f"{unasked}{words}" for _, words in sorted(unclear, key=lambda each: each[0]))
    elif quiet:
        yield silent_clause(quiet, group.asked, where)
    elif all(cell.observed is None for cell in group.cells):
        yield NO_ATTACK
