"""Next epsilon to run: the largest that a policy allows, or that lets a claim bound what audits missed.

Where a policy judges no release without noise, and nothing else was run, an epsilon is missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from fedassay.contracts.registry import has_private_form
from fedassay.plan.changes import labelled
from fedassay.records.facts import Change
from fedassay.records.record import CellRecord, RunRecord
from fedassay.reports.decision.steps import Step, again
from fedassay.reports.gate.covered import relevant
from fedassay.reports.gate.judgement import Judgement
from fedassay.reports.gate.policy import EPSILON_LIMIT, Policy
from fedassay.reports.words.allowed import allowed, known, rate_of
from fedassay.reports.words.groups import cell_name, several_deltas, several_seeds
from fedassay.reports.words.numbers import short
from fedassay.reports.words.sentences import listed
from fedassay.support.epsilon import exceeds, largest, of_kind, smallest

_EPSILONS = ("accounted", "observed")
_WHY = {
    True: "at smaller ones every bound on privacy holds, but too little use is left",
    False: "every epsilon that was run is larger, and no other rule is broken",
}
"""Rules that another epsilon may keep, and what is said of those below (True) and above the bound."""
_PARTS = 10
"""Parts of one in which an epsilon is proposed."""


def settling_epsilon(
    record: RunRecord, policy: Policy, judgements: Sequence[Judgement], labels: Iterable[str]
) -> tuple[Step, ...]:
    """A smaller epsilon for releases with nothing open but the allowance of their claim.

    Args:
        record: The run.
        policy: The policy.
        judgements: Of every cell.
        labels: Method entries that are asked about.
    """
    deltas, seeds = several_deltas(record), several_seeds(record)
    wanted, least = set(labels), {}
    rows: dict[str, CellRecord] = {}
    for cell in record.cells:
        name = cell_name(cell, deltas, seeds)
        open_ = [each for each in judgements if each.cell == name and each.state != "pass"]
        only = bool(open_) and all(each.state == "undecided" and each.about == "silence" for each in open_)
        found = _epsilon(cell, policy) if only and cell.label in wanted else None
        if found is not None:
            rows[name], least[name] = cell, found
    if not rows:
        return ()
    epsilon = min(least.values())
    return (
        Step(
            what=f"{_also(record, rows.values(), epsilon)}: there the claim itself rules out what so few records "
            "cannot show",
            why="the claim allows more than the policy's limit of detection, and nothing else is open",
            cells=tuple(rows),
            seconds=again(rows.values()),
            changes=_changes(record, rows.values(), epsilon),
        ),
    )


def allowed_epsilon(
    record: RunRecord, policy: Policy, judgements: Sequence[Judgement], labels: Iterable[str]
) -> tuple[Step, ...]:
    """The largest epsilon that a policy allows, where releases below it are of too little use, or all lie above.

    That is said of method entries that were not run at this epsilon. The largest epsilon below it breaks nothing
    but a least figure such as accuracy, which the smallest above it keeps where one was run; or all lie above, and
    the smallest breaks nothing but the bounds on epsilon. Where audits may have missed more than the policy
    accepts, it is no larger than a claim that bounds this by itself. What it takes is what the entry's private
    cells took in this run.
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
        for nearest, below, above in _nearest(own, bound):
            why, further = (
                [each for cell in cells for each in broken.get(cell_name(cell, deltas, seeds), ())]
                for cells in (nearest, above)
            )
            if below and any(each.about == "use" for each in further):
                continue
            if why and all(each.about == "use" if below else each.metric in _EPSILONS for each in why):
                rows += nearest
                sides.add(below)
    if not rows:
        return ()
    settles = min((found for cell in rows if (found := _epsilon(cell, policy)) is not None), default=bound)
    epsilon = min(bound, settles)
    bounded = f"the policy allows {short(bound)}" if epsilon < bound else "the largest that the policy allows"
    if epsilon < bound:
        bounded += f", and at {short(epsilon)} the claim itself rules out what so few records cannot show"
    return (
        Step(
            what=f"{_also(record, rows, epsilon)}: {bounded}",
            why="; ".join(_WHY[below] for below in sorted(sides)),
            cells=tuple(cell_name(cell, deltas, seeds) for cell in rows),
            seconds=again(rows),
            changes=_changes(record, rows, epsilon),
        ),
    )


def first_epsilon(
    record: RunRecord, policy: Policy, judgements: Sequence[Judgement], labels: Iterable[str]
) -> tuple[Step, ...]:
    """The largest epsilon that a policy allows, where nothing was run that it judges.

    That is said of method entries that were run without noise alone and can be run with it.
    """
    bound, wanted = policy.maximum.get("accounted"), set(labels)
    own = [cell for cell in record.cells if cell.label in wanted]
    deltas, seeds = several_deltas(record), several_seeds(record)
    names = {cell_name(cell, deltas, seeds): cell for cell in own}
    judged = any(each.cell in names for each in judgements)
    if bound is None or not math.isfinite(bound) or judged or any(cell.asked.finite for cell in own):
        return ()
    rows = {name: cell for name, cell in names.items() if has_private_form(cell.method)}
    if not rows:
        return ()
    return (
        Step(
            what=f"{_also(record, rows.values(), bound)}: the policy judges no release without noise",
            why="nothing that was run is in the scope of the policy",
            cells=tuple(rows),
            seconds=again(rows.values()),
            changes=_changes(record, rows.values(), bound),
        ),
    )


def _changes(record: RunRecord, cells: Iterable[CellRecord], epsilon: float) -> tuple[Change, ...]:
    """The keys that make method entries run at another epsilon as well: an entry's own goes before the plan's."""
    keys = dict.fromkeys(_key(record, cell.label) for cell in cells)
    return tuple(Change(key=key, after=epsilon) for key in keys)


def _also(record: RunRecord, cells: Iterable[CellRecord], epsilon: float) -> str:
    """Advice to run method entries at another epsilon as well, with the plan key to change."""
    labels = list(dict.fromkeys(cell.label for cell in cells))
    keys = listed(dict.fromkeys(_key(record, label) for label in labels))
    number = short(epsilon)
    return f"also run {listed(labels)} at an epsilon of {number} (put {number} into the list {keys})"


def _key(record: RunRecord, label: str) -> str:
    """The key of the epsilons of a method entry."""
    own = labelled(record.plan, "methods").get(label)
    return f"methods.{label}.epsilon" if own and "epsilon" in own else "privacy.epsilon"


def _epsilon(cell: CellRecord, policy: Policy) -> float | None:
    """The largest epsilon, rounded down, at which a Gaussian release keeps every bound; None: there is none."""
    from fedassay.privacy.gaussian import epsilon_of, mu_of_power  # SciPy is not needed for other pages

    highest = math.inf
    for audit, bound in policy.limit_of_detection.items():
        for finding in relevant(cell, audit) if audit != EPSILON_LIMIT else ():
            limit, most = known(cell, finding).limit, allowed(cell, finding)
            if limit is None or most is None or most.metric == "epsilon" or limit.value <= bound:
                continue
            highest = min(highest, mu_of_power(bound, rate_of(most.metric)))
    mu = cell.privacy.mu
    if mu is None or not 0 < highest < min(mu, math.inf):
        return None
    epsilon = math.floor(_PARTS * epsilon_of(highest, cell.delta)) / _PARTS
    return epsilon if 0 < epsilon < cell.asked.bare else None


def _nearest(
    cells: Sequence[CellRecord], bound: float
) -> Iterator[tuple[list[CellRecord], bool, list[CellRecord]]]:
    """Cells nearest to a bound, of each kind of epsilon that was not run at it.

    Besides, whether they lie below it, and then those nearest to it above.
    """
    for asked in of_kind(cell.asked for cell in cells).values():
        limit = asked[0].like(bound)
        if limit not in asked:
            below = [each for each in asked if exceeds(limit, each)]
            place = largest(below) or smallest(asked)
            above = smallest(each for each in asked if exceeds(each, limit)) if below else None
            yield (
                [cell for cell in cells if cell.asked == place],
                bool(below),
                [cell for cell in cells if above is not None and cell.asked == above],
            )
