"""Identification of the records behind recovered vectors: their galleries, what counts under a claim, and metrics.

A vector's gallery is the records of its sender that have its label (all of them where it has none), and records of
the same labels that no client holds. Beside the vectors stands what needs no attack: the mean of a sender's
vectors of one label, which is what was sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fedassay.audits.stats.identification import Group, Identification, identify
from fedassay.audits.stats.persons import share_interval, share_of_persons
from fedassay.audits.stats.resampling import level_of
from fedassay.contracts.audit import AuditContext
from fedassay.data.records import Records
from fedassay.exchange.release import PrivacyClaim
from fedassay.records.record import Metric, unmeasured
from fedassay.support.types import Ints, Matrix

_TEN = 10


def identification(
    vectors: Matrix,
    labels: Ints,
    held: Mapping[str, tuple[Ints, Records]],
    others: Records,
    encode: Callable[[Records], Matrix],
) -> Identification | None:
    """Hold recovered vectors against galleries.

    Args:
        vectors: Shape (k, d).
        labels: Their labels, -1 where unknown, shape (k,).
        held: For each sender, the indices of its vectors, and its true records.
        others: Records that no client holds.
        encode: Turns records into features.

    Returns:
        None where no vector has a gallery, or where records carry a person's identity: those of one person are not
        exchangeable with others one by one.
    """
    if any(records.groups is not None for _, records in held.values()):
        return None
    known = encode(others)
    groups = []
    for client, (own, records) in enumerate(held.values()):
        features = encode(records)
        for label in np.unique(labels[own]):
            rows = own[labels[own] == label]
            mine = np.ones(len(features), np.bool_) if label < 0 else records.labels == label
            theirs = np.isin(others.labels, records.labels) if label < 0 else others.labels == label
            groups.append(Group(vectors[rows], features[mine], known[theirs], client))
    return identify(groups)


def counting(named: Identification | None, context: AuditContext) -> Identification | None:
    """Return the identification if it counts as a leak: beyond chance, or under a claim beyond its allowance."""
    if named is None or not isinstance(context.outcome.transcript.claim, PrivacyClaim):
        return named
    mu = context.accounted.mu
    return named if mu is not None and named.beyond(mu, level_of(context.num_tests)) else None


def identification_metrics(
    named: Identification | None, means: Identification | None, context: AuditContext
) -> tuple[dict[str, Metric], dict[str, Metric]]:
    """Metrics of the vectors, and of the means of what was sent."""
    if named is None:
        return {}, {}
    claim = context.outcome.transcript.claim
    words = f"of a gallery of {int(np.median(named.sizes))} in the median; chance {named.chance.mean():.2g}"
    if isinstance(claim, PrivacyClaim):
        mu = context.accounted.mu
        words += (
            "; what the claim allows is not known" if mu is None else f"; the claim allows {named.allowed(mu):.2g}"
        )
    figures = {
        "identified": _share(named, 1, f"{words}; p = {named.test.p:.2g}"),
        "identified_in_ten": _share(named, _TEN, words),
    }
    return figures, {} if means is None else {"identified": _share(means, 1, "the mean of what was sent")}


def averaged(vectors: Matrix, labels: Ints, owners: Sequence[Ints]) -> Matrix:
    """Each vector replaced by the mean of its sender's vectors of its label."""
    means = vectors.copy()
    for own in owners:
        for label in np.unique(labels[own]):
            rows = own[labels[own] == label]
            means[rows] = vectors[rows].mean(axis=0)
    return means


def _share(named: Identification, within: int, reason: str) -> Metric:
    hits = named.ranks <= within
    if not len(hits):
        return unmeasured("no vector has a gallery")
    low, high = share_interval(hits, named.clients)
    words = f"{reason}; mean over {len(np.unique(named.clients))} client(s)"
    return Metric(value=share_of_persons(hits, named.clients), low=low, high=high, n=len(hits), reason=words)
