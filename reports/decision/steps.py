"""Next steps: those that would decide open questions, where something could be recommended yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedassay.plan import rates
from fedassay.records.facts import HARMS, Change
from fedassay.records.record import CellRecord, Coverage, RunRecord
from fedassay.reports.words.groups import cell_name, several_deltas, several_seeds
from fedassay.reports.words.harms import kind_sought
from fedassay.reports.words.sentences import listed
from fedassay.reports.words.untested import happened, open_rows


@dataclass(frozen=True)
class Step:
    """Step that would decide an open question.

    Attributes:
        what: The step, in one sentence.
        why: The question that is open without it.
        cells: Names of the cells that it is about.
        seconds: Estimated time of one run that does it for all of them, on one core; None where there is no
            estimate.
        changes: The keys of the plan that do it; empty where a person has to choose.
    """

    what: str
    why: str
    cells: tuple[str, ...]
    seconds: float | None
    changes: tuple[Change, ...] = ()

    @property
    def needs_clients(self) -> bool:
        """Whether it takes more clients."""
        return any(change.key == "clients.count" for change in self.changes)


def open_steps(record: RunRecord) -> tuple[Step, ...]:
    """Steps that would decide each open question, with the cells that it is open in.

    Attacks that were run without a result come first, then those that the plan left out; within each the worst
    harm, and the most frequent. More clients come last: their number is rarely a choice.
    """
    deltas, seeds = several_deltas(record), several_seeds(record)
    found: dict[str, list[tuple[CellRecord, Coverage]]] = {}
    for cell in record.cells:
        for entry in open_rows(cell):
            if entry.would_decide:
                found.setdefault(entry.would_decide, []).append((cell, entry))
    steps = [
        Step(
            what=_in_words(what, rows),
            why=f"{rows[0][1].attack} {happened(rows[0][1])}",
            cells=tuple(dict.fromkeys(cell_name(cell, deltas, seeds) for cell, _ in rows)),
            seconds=None if seconds is None else rates.START + seconds,
            changes=_changes(rows),
        )
        for what, rows in found.items()
        for seconds in [together([entry for _, entry in rows])]
    ]
    places = {id(step): _place(rows) for step, rows in zip(steps, found.values(), strict=True)}
    return tuple(sorted(steps, key=lambda step: (step.needs_clients, *places[id(step)], -len(step.cells))))


def _in_words(what: str, rows: Sequence[tuple[CellRecord, Coverage]]) -> str:
    """Sentence on an inconclusive attack's needs; an attack that was not run states its own."""
    if rows[0][1].status != "inconclusive":
        return what
    names = list(dict.fromkeys(row.attack for _, row in rows))
    return f"{listed(names)} {'need' if len(names) > 1 else 'needs'} {what}"


def _place(rows: Sequence[tuple[CellRecord, Coverage]]) -> tuple[bool, int]:
    """Whether none of the attacks was run, and how bad the worst harm is that it looked for in vain."""
    sought = [
        HARMS.index(kind_sought(finding))
        for cell, row in rows
        for finding in cell.findings
        if row.status == "inconclusive" and row.attack == (finding.attack or finding.audit)
        if finding.verdict == "inconclusive"
    ]
    return all(row.status == "not_run" for _, row in rows), min(sought, default=len(HARMS))


def _changes(rows: Sequence[tuple[CellRecord, Coverage]]) -> tuple[Change, ...]:
    """Changes of the plan: the remedies that findings state, or the attacks and audits that the plan lacks."""
    stated = [
        finding.remedy
        for cell, row in rows
        for finding in cell.findings
        if row.status == "inconclusive" and finding.attack == row.attack and finding.remedy is not None
    ]
    stated += [row.remedy for _, row in rows if row.remedy is not None]
    return stated[0].changes if stated else ()


def again(cells: Iterable[CellRecord]) -> float:
    """Seconds of one run of these cells, by what they took in this one."""
    return rates.START + sum(sum(cell.seconds.values()) for cell in cells)


def together(rows: Sequence[Coverage]) -> float | None:
    """Return the seconds of one run that decides all of these rows; None where a part cannot be estimated.

    Work that several cells share, such as the training of an attack, is counted once.
    """
    if not rows or any(row.seconds is None or row.further_seconds is None for row in rows):
        return None
    once = [(row.seconds or 0.0) - (row.further_seconds or 0.0) for row in rows]
    return max(once) + sum(row.further_seconds or 0.0 for row in rows)
