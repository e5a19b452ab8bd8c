"""What to do next: what would decide the rest, and where something could be recommended yet."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fedassay.plan import rates
from fedassay.records.coverage import together
from fedassay.records.facts import HARMS, Change
from fedassay.records.record import CellRecord, Coverage, RunRecord
from fedassay.reports.gate.judgement import Judgement
from fedassay.reports.gate.policy import Policy
from fedassay.reports.words.groups import cell_name, several_deltas, several_seeds
from fedassay.reports.words.harms import kind_sought
from fedassay.reports.words.numbers import short
from fedassay.reports.words.sentences import listed
from fedassay.reports.words.untested import open_rows
from fedassay.support.epsilon import exceeds, largest, of_kind, smallest

_EPSILONS = ("accounted", "observed")
_STATUS = {"inconclusive": "was inconclusive", "not_run": "was not run"}
_WHY = {
    True: "at smaller ones every bound on privacy holds, but too little use is left",
    False: "every epsilon that was run is larger, and no other rule is broken",
}
"""Rules that another epsilon may keep, and what is said of those below (True) and above the bound."""


@dataclass(frozen=True)
class Step:
    """Something that would decide what is open.

    Attributes:
        what: To do, in one sentence.
        why: What is open without it.
        cells: Whom it is about.
        seconds: Estimated time of one run that does it for all of them, on one core; None where nobody can
            estimate it.
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
    """What would decide each thing that is open, with the cells that it is open in.

    What was run and said nothing comes first, then what the plan left out; of each the worst harm, and the most
    frequent. More clients come last: who runs five hospitals has five.
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
            why=f"{rows[0][1].attack.replace('_', ' ')} {_STATUS[rows[0][1].status]}",
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
    """What an attack that said nothing needs; what adds one that was not run says so itself."""
    if rows[0][1].status != "inconclusive":
        return what
    names = list(dict.fromkeys(row.attack.replace("_", " ") for _, row in rows))
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


def allowed_epsilon(
    record: RunRecord, policy: Policy, judgements: Sequence[Judgement], labels: Iterable[str]
) -> tuple[Step, ...]:
    """The largest epsilon that a policy allows, where releases below it are of too little use, or all lie above.

    That is said of method entries that were not run at this epsilon, and whose largest epsilon below it breaks
    nothing but a least figure such as accuracy; or whose smallest, where all lie above, breaks nothing but the
    bounds on epsilon. What it takes is what the entry's private cells took in this run.
    """
    bound = policy.maximum.get("accounted")
    if bound is None or not math.isfinite(bound):
        return ()
    deltas, seeds = several_deltas(record), several_seeds(record)
    broken: dict[str, list[Judgement]] = {}
    for judgement in judgements:
        if judgement.state == "broken":
            broken.setdefault(judgement.cell, []).append(judgement)
    rows: list[CellRecord] = []
    sides: set[bool] = set()
    for label in labels:
        own = [cell for cell in record.cells if cell.label == label and cell.asked.finite]
        for nearest, below in _nearest(own, bound):
            why = [each for cell in nearest for each in broken.get(cell_name(cell, deltas, seeds), ())]
            if why and all(each.about == "use" if below else each.metric in _EPSILONS for each in why):
                rows += nearest
                sides.add(below)
    if not rows:
        return ()
    names = listed(dict.fromkeys(cell.label for cell in rows))
    return (
        Step(
            what=f"put {short(bound)}, the largest that the policy allows, into the list privacy.epsilon for "
            f"{names}",
            why="; ".join(_WHY[below] for below in sorted(sides)),
            cells=tuple(cell_name(cell, deltas, seeds) for cell in rows),
            seconds=again(rows),
            changes=(Change(key="privacy.epsilon", after=bound),),
        ),
    )


def again(cells: Iterable[CellRecord]) -> float:
    """Seconds of one run of these cells, by what they took in this one."""
    return rates.START + sum(sum(cell.seconds.values()) for cell in cells)


def _nearest(cells: Sequence[CellRecord], bound: float) -> Iterator[tuple[list[CellRecord], bool]]:
    """Cells nearest to a bound, of each kind of epsilon that was not run at it, and whether they lie below it."""
    for asked in of_kind(cell.asked for cell in cells).values():
        limit = asked[0].like(bound)
        if limit not in asked:
            below = [each for each in asked if exceeds(limit, each)]
            place = largest(below) or smallest(asked)
            yield [cell for cell in cells if cell.asked == place], bool(below)
