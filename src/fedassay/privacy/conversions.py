"""Conversion of guarantees for records to guarantees for units of several, without bounded contributions.

All are sound, and all cost epsilon. A unit of m records differs from its neighbour by m records.

- Gaussian mechanisms of parameter mu give m mu (Dong, Roth and Su, "Gaussian Differential Privacy", 2022, Theorem
2.14). That is attained by m equal records, and by no others.
- (epsilon, delta) gives (m epsilon, delta (e^(m epsilon) - 1) / (e^epsilon - 1)): one chain of m neighbours (Dwork
  and Roth, "The Algorithmic Foundations of Differential Privacy", 2014, section 2.3, with its sum kept whole).
- DP-SGD that samples records (rate q, noise s over the norm) and gives or takes m of them: a step is dominated by
  N(0, s^2) against the mixture of N(k, s^2) with k binomial (m, q), in both directions (Ganesh, "Tight Group-Level
  DP Guarantees for DP-SGD with Sampling via Mixture of Gaussians Mechanisms", 2024, Theorem 3.1), and steps
  compose by privacy loss distributions.
- Where m of them are replaced a step is dominated by that mixture against its mirror image, with k at -k (proof:
  `fedassay.privacy.group_steps`).
- To replace a unit is to remove it and to add another one: 2 mu, or (2 epsilon, (1 + e^epsilon) delta). A
  sensitivity is never doubled inside an accountant of sampled steps: replacing and sampling do not commute.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedassay.privacy.accounting import Total, compose
from fedassay.privacy.events import Event, GaussianEvent, PureEvent, SubsampledGaussianEvent
from fedassay.support.adjacency import Adjacency
from fedassay.support.epsilon import Epsilon, UnlikeKindsError


@dataclass(frozen=True)
class Pair:
    """An (epsilon, delta) guarantee; delta is 1 where nothing is guaranteed."""

    epsilon: float
    delta: float


def group_pair(epsilon: float, delta: float, records: int) -> Pair:
    """(epsilon, delta) of one record as a guarantee for `records` of them together.

    Raises:
        ValueError: epsilon is negative, delta outside [0, 1], or there is no record.
    """
    _check(records)
    if not (epsilon >= 0 and 0 <= delta <= 1):
        raise ValueError(f"epsilon must be at least 0 and delta in [0, 1], got {epsilon}, {delta}")
    total = records * epsilon
    if delta == 0 or records == 1:
        return Pair(total, delta)
    if math.isinf(total):
        return Pair(total, 1.0)
    # In logarithms: e^epsilon alone overflows at 710, and where it is cut off a group would cost nothing.
    chain = math.log(records) if epsilon == 0 else _log_expm1(total) - _log_expm1(epsilon)
    growth = math.log(delta) + chain
    return Pair(total, math.exp(growth) if growth < 0 else 1.0)


def _log_expm1(x: float) -> float:
    """ln(e^x - 1) for x above 0."""
    return x + math.log(-math.expm1(-x))


def of_group(event: Event, records: int) -> Event:
    """Return an event that bounds the leakage of `event` about this many records together.

    Raises:
        ValueError: There is no record.
    """
    _check(records)
    if isinstance(event, GaussianEvent):
        return GaussianEvent(records * event.mu)
    if isinstance(event, PureEvent):
        return PureEvent(records * event.epsilon)
    if isinstance(event, SubsampledGaussianEvent) and records > 1:
        return replace(event, members=event.members * records)
    return event


def compose_for_group(events: Sequence[Event], records: int, delta: float, adjacency: Adjacency) -> Total:
    """Return epsilon at `delta`, for a group of records, of a composition stated for one record.

    Args:
        events: Events of one record, under `adjacency`.
        records: m, at least 1.
        delta: Strictly between 0 and 1.
        adjacency: The relation between neighbours for the unit.

    Returns:
        An upper bound; its steps of DP-SGD are those of the group under the relation.
    """
    _check(records)
    asked = [
        replace(event, adjacency=adjacency) if isinstance(event, SubsampledGaussianEvent) else event
        for event in events
    ]
    return compose([of_group(event, records) for event in asked], delta)


def for_person(claim: Epsilon, records: int) -> Epsilon:
    """Convert a guarantee for one record to one for a person with this many, for any mechanism.

    Raises:
        UnlikeKindsError: The guarantee is not for one record.
    """
    if claim.unit != "record":
        raise UnlikeKindsError(f"given {claim!r}; a guarantee for one record is converted")
    how = f"from {claim} by a chain of {records:,} records"
    return _chained(replace(claim, unit="person"), records, how)


def under_replacement(claim: Epsilon, adjacency: Adjacency) -> Epsilon:
    """A guarantee under a relation that removes or replaces, as one under a relation that replaces.

    To replace is to remove and to add: add_remove becomes (2 epsilon, (1 + e^epsilon) delta). A replacement with
    the same label is a replacement.

    Raises:
        UnlikeKindsError: Nothing follows for that relation.
    """
    if claim.adjacency == adjacency:
        return claim
    asked = replace(claim, adjacency=adjacency)
    if claim.adjacency == "replace_one" and adjacency == "replace_one_same_label":
        return replace(asked, how=f"from {claim}, a special case")
    if claim.adjacency != "add_remove":
        raise UnlikeKindsError(f"{claim!r} says nothing of {adjacency}")
    return _chained(asked, 2, f"from {claim} by removing one and adding one")


def _chained(claim: Epsilon, steps: int, how: str) -> Epsilon:
    """Return the guarantee over a chain of neighbours; infinite where its delta reaches 1."""
    pair = group_pair(claim.bare, claim.delta, steps)
    nothing = pair.delta >= 1
    bare, delta = (math.inf, claim.delta) if nothing else (pair.epsilon, pair.delta)
    return replace(claim, bare=bare, delta=delta, how=how)


def _check(records: int) -> None:
    if records < 1:
        raise ValueError(f"records must be at least 1, got {records}")
