"""Digest of an audit's findings in a line and a few sentences, for readers who open no table."""

from __future__ import annotations

from dataclasses import dataclass

from fedassay.records.record import RunRecord, Verdict
from fedassay.reports.document.finding_tables import found
from fedassay.reports.words.groups import cell_name, several_deltas, several_seeds
from fedassay.reports.words.harms import leaks
from fedassay.reports.words.sentences import harm_clause
from fedassay.reports.words.verdicts import LOOKS

_FEW = 6
"""Leaks that are said in words; the table has all."""


@dataclass(frozen=True)
class Digest:
    """The findings of an audit at a glance.

    Attributes:
        counts: How many findings have each verdict, the heaviest first.
        leaks: Leaks in words, the worst first, each with the releases that it was found in.
        further: How many more there are.
    """

    counts: tuple[tuple[Verdict, int], ...]
    leaks: tuple[tuple[str, str], ...]
    further: int


def digest(record: RunRecord, audit: str) -> Digest:
    """Digest of an audit's findings in all cells of a run."""
    findings = found(record, [audit])
    verdicts = [finding.verdict for _, finding in findings]
    deltas, seeds = several_deltas(record), several_seeds(record)
    named: dict[str, list[str]] = {}
    for leak in leaks(record.cells):
        if leak.finding.audit == audit:
            named.setdefault(harm_clause(leak), []).append(cell_name(leak.cell, deltas, seeds))
    said = tuple((words, "; ".join(dict.fromkeys(cells))) for words, cells in named.items())
    return Digest(
        counts=tuple((verdict, verdicts.count(verdict)) for verdict in LOOKS if verdict in verdicts),
        leaks=said[:_FEW],
        further=max(0, len(said) - _FEW),
    )
