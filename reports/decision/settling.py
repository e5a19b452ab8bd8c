"""The largest epsilon at which a claim by itself bounds what silent audits may have missed as a policy asks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from fedassay.records.facts import Change
from fedassay.records.record import CellRecord, RunRecord
from fedassay.reports.decision.steps import Step, again
from fedassay.reports.gate.covered import relevant
from fedassay.reports.gate.judgement import Judgement
from fedassay.reports.gate.policy import EPSILON_LIMIT, Policy
from fedassay.reports.words.allowed import known, rate_of
from fedassay.reports.words.groups import cell_name, several_deltas, several_seeds
from fedassay.reports.words.harms import BY_CLAIM
from fedassay.reports.words.numbers import short
from fedassay.reports.words.sentences import listed

_RULE = "limit_of_detection "
_PARTS = 10
"""Parts of one in which an epsilon is proposed."""


def settling_epsilon(
    record: RunRecord, policy: Policy, judgements: Sequence[Judgement], labels: Iterable[str]
) -> tuple[Step, ...]:
    """A smaller epsilon for releases of which nothing is open but how much their claim allows.

    Args:
        record: The run.
        policy: What it is held to.
        judgements: Of every cell.
        labels: Method entries that are asked about.
    """
    deltas, seeds = several_deltas(record), several_seeds(record)
    wanted, least = set(labels), {}
    rows: dict[str, CellRecord] = {}
    for cell in record.cells:
        name = cell_name(cell, deltas, seeds)
        open_ = [each for each in judgements if each.cell == name and each.state != "pass"]
        only = bool(open_) and all(each.state == "undecided" and each.rule.startswith(_RULE) for each in open_)
        found = _epsilon(cell, policy) if only and cell.label in wanted else None
        if found is not None:
            rows[name], least[name] = cell, found
    if not rows:
        return ()
    epsilon = min(least.values())
    names = listed(dict.fromkeys(cell.label for cell in rows.values()))
    return (
        Step(
            what=f"also run epsilon {short(epsilon)} for {names} (put it into the list privacy.epsilon): there "
            "the claim itself rules out what so few records cannot show",
            why="the claim allows more than the policy's limit of detection, and nothing else is open",
            cells=tuple(rows),
            seconds=again(rows.values()),
            changes=(Change(key="privacy.epsilon", after=epsilon),),
        ),
    )


def _epsilon(cell: CellRecord, policy: Policy) -> float | None:
    """The largest epsilon, rounded down, at which a Gaussian release keeps every bound; None: there is none."""
    from fedassay.privacy.gaussian import epsilon_of, mu_of_power  # SciPy is not needed for other pages

    highest = math.inf
    for audit, bound in policy.limit_of_detection.items():
        for finding in relevant(cell, audit) if audit != EPSILON_LIMIT else ():
            limit = known(cell, finding).limit
            if limit is None or limit.planted != BY_CLAIM or limit.metric == "epsilon" or limit.value <= bound:
                continue
            highest = min(highest, mu_of_power(bound, rate_of(limit.metric)))
    mu = cell.privacy.mu
    if mu is None or not 0 < highest < min(mu, math.inf):
        return None
    epsilon = math.floor(_PARTS * epsilon_of(highest, cell.delta)) / _PARTS
    return epsilon if 0 < epsilon < cell.asked.bare else None
