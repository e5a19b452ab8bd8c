"""Truth joined to vectors that an attack recovered: which record is it, and how far off?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedassay.audits.stats.intervals import wilson
from fedassay.audits.stats.resampling import Interval, Statistic, mean_of, resampled
from fedassay.contracts.audit import AuditContext
from fedassay.data.records import Records, joined
from fedassay.exchange.transcript import AGGREGATE
from fedassay.heads.linear import FeatureModel
from fedassay.records.record import Metric, unmeasured
from fedassay.support.types import Ints

Matrix = NDArray[np.float64]

EXACT = 1e-3
"""Relative error below which a record counts as recovered."""


NEAR = 0.1
"""Median relative error below which a positive control counts as caught."""


@dataclass(frozen=True)
class Matched:
    """Recovered vectors with the true records that they are closest to, matched one to one within a sender.

    Attributes:
        errors: |v - f| / |f|, shape (k,).
        cosines: Cosine of v and f, shape (k,).
        baseline: The same error for the nearest of the class means, as anybody may know them, shape (k,). The
            nearest, not that of the record's own class: matching lets a vector choose its record, too.
        labelled: Whether the vector came with a label, shape (k,).
        label_right: Whether that label is the record's, shape (k,).
        records: True records of the senders attacked.
        vectors: Vectors recovered, k or more.
    """

    errors: Matrix
    cosines: Matrix
    baseline: Matrix
    labelled: NDArray[np.bool_]
    label_right: NDArray[np.bool_]
    records: int
    vectors: int

    @property
    def exact(self) -> int:
        """Records recovered to `EXACT`."""
        return int((self.errors < EXACT).sum())


@dataclass(frozen=True)
class Judged:
    """Matched vectors with what a verdict rests on.

    Attributes:
        matched: The match.
        gain: Baseline's error minus ours, mean over the matched records; None for fewer than two.
    """

    matched: Matched
    gain: Interval | None

    @property
    def beats(self) -> bool:
        """Whether single records came back, exactly or closer than what is known of their class."""
        return self.matched.exact > 0 or (self.gain is not None and self.gain.corrected_low > 0)

    @property
    def caught(self) -> bool:
        """Of a release known to leak: whether most of its records came back, nearly as they are."""
        errors = self.matched.errors
        return 2 * len(errors) >= self.matched.records > 0 and float(np.median(errors)) < NEAR

    @property
    def worse(self) -> bool:
        """Whether the vectors are farther from the records than their class means."""
        return self.gain is not None and self.gain.high < 0 and self.matched.exact == 0


def encoder(context: AuditContext) -> Callable[[Records], Matrix] | None:
    """What turns records into the features that the method summed up; None for features of its own networks."""
    model = context.outcome.model
    if model is not None and not isinstance(model, FeatureModel):
        return None
    transform = None if model is None else model.transform

    def encode(records: Records) -> Matrix:
        features = records.features if transform is None else transform(records.features)
        return np.asarray(features, np.float64)

    return encode


def truth_of(context: AuditContext, sender: str) -> Records | None:
    """The records that a sender's message speaks of; for the aggregate, those of all clients; None if unknown."""
    if sender != AGGREGATE:
        return context.records(sender)
    return joined("clients", context.clients) if context.clients else None


def class_means(context: AuditContext, encode: Callable[[Records], Matrix]) -> Matrix:
    """Class means of records that no client holds, shape (C, d); their common mean for a class without any."""
    known = context.fresh
    features = encode(known)
    means = np.repeat(features.mean(axis=0, keepdims=True), context.classes, axis=0)
    for label in np.unique(known.labels):
        means[label] = features[known.labels == label].mean(axis=0)
    return means


def match(
    vectors: Matrix,
    labels: Ints,
    truth: Sequence[tuple[Ints, Matrix, Ints]],
    means: Matrix,
) -> Matched:
    """Match vectors to true records, sender by sender, at the least total distance.

    Args:
        vectors: Shape (k, d).
        labels: Their labels, -1 where unknown, shape (k,).
        truth: For each sender: which vectors are its own, its true features (n, d) and true labels (n,).
        means: Class means for the baseline, shape (C, d).
    """
    from scipy.optimize import linear_sum_assignment

    parts = []
    for own, features, classes in truth:
        norms = np.linalg.norm(features, axis=1)
        seen = np.flatnonzero(norms > 0)  # a record whose features are all 0 cannot be off by a relative error
        if not len(own) or not len(seen):
            continue
        found, real, norms = vectors[own], features[seen], norms[seen]
        squares = (found**2).sum(axis=1)[:, None] + norms**2 - 2 * found @ real.T
        rows, columns = linear_sum_assignment(np.sqrt(np.maximum(squares, 0)) / norms)
        found, real, norms, known = found[rows], real[columns], norms[columns], classes[seen][columns]
        lengths = np.maximum(np.linalg.norm(found, axis=1) * norms, np.finfo(float).tiny)
        errors = np.linalg.norm(found - real, axis=1) / norms
        cosines = (found * real).sum(axis=1) / lengths
        baseline = np.min([np.linalg.norm(real - mean, axis=1) for mean in means], axis=0) / norms
        given = labels[own][rows]
        parts.append(np.stack([errors, cosines, baseline, given >= 0, given == known]))
    joined = np.concatenate([np.zeros((5, 0)), *parts], axis=1)
    return Matched(
        errors=joined[0],
        cosines=joined[1],
        baseline=joined[2],
        labelled=joined[3].astype(np.bool_),
        label_right=joined[4].astype(np.bool_),
        records=sum(len(part[2]) for part in truth),
        vectors=len(vectors),
    )


def judge(matched: Matched, rng: np.random.Generator, *, tests: int, draws: int) -> Judged:
    """Bootstrap the gain over the baseline."""
    if len(matched.errors) < 2:
        return Judged(matched, None)
    gain = resampled(
        len(matched.errors), mean_of(matched.baseline - matched.errors), rng, tests=tests, draws=draws
    )
    return Judged(matched, gain)


def metrics(matched: Matched, rng: np.random.Generator, draws: int) -> tuple[dict[str, Metric], dict[str, Metric]]:
    """Metrics of the vectors and of the baseline."""
    size = len(matched.errors)
    ours: dict[str, Metric] = {}
    theirs: dict[str, Metric] = {}
    if size == 0:
        ours["relative_error"] = ours["cosine"] = unmeasured("no vector was recovered")
        theirs["relative_error"] = unmeasured("no vector was recovered")
    else:
        ours["relative_error"] = _median(matched.errors, rng, draws)
        ours["cosine"] = _median(matched.cosines, rng, draws)
        theirs["relative_error"] = _median(matched.baseline, rng, draws)
    ours["fraction_recovered"] = _share(matched.exact, matched.records, f"relative error below {EXACT:g}")
    if matched.labelled.any():
        ours["label_accuracy"] = _share(int(matched.label_right.sum()), int(matched.labelled.sum()), "")
    return ours, theirs


def _median(values: Matrix, rng: np.random.Generator, draws: int) -> Metric:
    if len(values) < 2:
        return Metric(value=float(values[0]), n=1)
    found = resampled(len(values), _median_of(values), rng, draws=draws)
    return Metric(value=found.value, low=found.low, high=found.high, n=len(values))


def _median_of(values: Matrix) -> Statistic:
    return lambda rows: np.asarray(np.median(values[rows], axis=1))


def _share(part: int, whole: int, reason: str) -> Metric:
    if whole == 0:
        return unmeasured("no record to count")
    low, high = wilson(part, whole)
    return Metric(value=part / whole, low=float(low), high=float(high), n=whole, reason=reason)
