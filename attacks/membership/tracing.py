"""Membership from statistics by likelihood ratio: the message's own law, the other records unknown.

Five kinds of evidence, each a column that is higher for members:

- `class_sum`: a class sum of n records is, the record x among them, N(x + (n - 1) mu, (n - 1) Sigma + V), else
  N(n mu, n Sigma + V); mu and Sigma are the population's, V is the declared noise. The log-likelihood ratio is
  the optimal test for Gaussian records (tracing: Homer et al. 2008; Dwork et al., "Robust Traceability from
  Trace Amounts", 2015). Means of mixtures, times their counts, are class sums.
- `density`: log density of the record under the sender's mixture over that of the population's Gaussian.
- `leverage`: minus log10 of x^T (B + c I)^-1 x for a second moment B, c the size of its rounding or noise. At
  most 1 in B's own records, whatever they are, and more in others.
- `span`: where B has lower rank than there are active features, its records lie in its range: minus log10 of
  the share of the feature that does not, which for them is rounding.
- `nearest`: minus log10 of the distance to the nearest feature that was sent.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedassay.exchange.feature_sources import message_mixtures
from fedassay.exchange.ridge import square
from fedassay.exchange.statistics import field_of, known_counts, noise_of, roundoff, statistics_of
from fedassay.exchange.transcript import Message, MessageField
from fedassay.mixtures.packed import Family, Mixtures, pack_lower
from fedassay.mixtures.population import Population
from fedassay.mixtures.sampling import log_density
from fedassay.support.types import Floats, Ints, Matrix

_NOTHING = 1e-16


def evidence(
    message: Message,
    features: Matrix,
    labels: Ints,
    people: Population,
    classes: int,
    sizes: Ints | None,
    spread: float = 0.0,
) -> dict[str, Matrix]:
    """Every kind of evidence that a message holds, by name, each of shape (n,).

    Args:
        message: Of one sender, or the aggregate.
        features: The candidates' features as the statistics are of them, shape (n, d).
        labels: The candidates' labels, shape (n,).
        people: The population.
        classes: C.
        sizes: Records per class that the sender is known to have, shape (C,), where the message is silent.
        spread: See `class_sum_ratio`.
    """
    found: dict[str, Matrix] = {}
    own = _sums(message, classes, features.shape[1], sizes)
    if own is not None:
        found["class_sum"] = class_sum_ratio(*own, features, labels, people, spread)
    mixtures, ids = message_mixtures(message), message.of_kind("class_ids")
    if mixtures is not None and ids is not None and mixtures.width == features.shape[1]:
        found["density"] = _density_ratio(mixtures, ids.astype(np.int64), features, labels, people)
    moment = field_of(message, "second_moment")
    if moment is not None:
        found |= range_evidence(moment[1], features)
    sent = message.of_kind("features")
    if sent is not None and sent.ndim == 2 and sent.shape[1] == features.shape[1]:
        found["nearest"] = _nearest(sent.astype(np.float64), features)
    return found


def class_sum_ratio(
    counts: Matrix,
    sums: Matrix,
    variances: Matrix,
    features: Matrix,
    labels: Ints,
    people: Population,
    spread: float = 0.0,
) -> Matrix:
    """Log-likelihood ratio of each candidate in the sum of its class, shape (n,).

    Args:
        counts: Records per class, shape (C,); a class without any gives its candidates the lowest score.
        sums: Class sums, shape (C, d).
        variances: Of the noise on one coordinate of each class's sum, shape (C,).
        features: Shape (n, d).
        labels: Shape (n,).
        people: The population.
        spread: Variance of the record about its candidate, in units of Sigma; 0: the candidate is the record.
    """
    scores = np.zeros(len(features))
    for label in np.unique(labels):
        rows, n = labels == label, float(counts[label])
        if n < 0.5:
            scores[rows] = -np.inf
            continue
        n = max(1.0, n)
        total = (sums[label] - n * people.means[label]) @ people.vectors
        steps = (features[rows] - people.means[label]) @ people.vectors
        # The class mean is itself estimated: n of it enter the sum.
        known = people.errors[label] * people.values
        without = n * people.values + n**2 * known + variances[label]
        within = (n - 1 + spread) * people.values + (n - 1) ** 2 * known + variances[label]
        scores[rows] = (total**2 / without - (total - steps) ** 2 / within + np.log(without / within)).sum(
            axis=1
        ) / 2
    # A class that noise has emptied says as little as the worst of the others.
    lost = np.isneginf(scores)
    scores[lost] = scores[~lost].min() if (~lost).any() else 0.0
    return scores


def range_evidence(moment: MessageField, features: Matrix) -> dict[str, Matrix]:
    """`leverage` of features (n, d) in a second moment, and `span` where its range is not the whole space."""
    second = square(moment.values)
    width = len(second)
    if features.shape[1] != width:
        return {}
    values, vectors = np.linalg.eigh(second)
    noise = noise_of(moment)
    floor = max(roundoff(moment.values), 1e-15) * width * float(values[-1])
    if noise > 0:
        floor = noise * np.sqrt(2.0 * width)
    floor = max(floor, 1e-30)
    # The ridge keeps directions that are rounding, or noise, from counting for more than the floor allows.
    leverages = (((features @ vectors) ** 2) / (np.maximum(values, 0.0) + floor)).sum(axis=1)
    found = {"leverage": -np.log10(leverages + _NOTHING)}
    if noise == 0 and (values <= floor).sum() > (np.diag(second) <= 0).sum():
        shares = floor * leverages / np.maximum((features**2).sum(axis=1), _NOTHING)
        found["span"] = -np.log10(shares + _NOTHING)
    return found


def _sums(message: Message, classes: int, width: int, sizes: Ints | None) -> tuple[Matrix, Matrix, Matrix] | None:
    """Counts (C,), class sums (C, d) and the variance of a coordinate's noise (C,), where a message has them."""
    own, known = statistics_of(message, classes), known_counts(message, classes)
    counts = None if known is None else _spread(known[0], own.order, classes)
    if counts is None:
        if sizes is None:
            return None
        counts = sizes.astype(np.float64)
    found = field_of(message, "class_sums") or field_of(message, "class_means")
    sums = None if own.sums is None else _spread(own.sums, own.order, classes)
    if found is not None and found[1].kind == "class_means" and sums is None and len(found[1].shape) == 2:
        sums = _spread(found[1].values.astype(np.float64), own.order, classes) * counts[:, None]
    mixtures = message_mixtures(message)
    if sums is None and mixtures is not None and mixtures.groups:
        found = field_of(message, "mixture_means")
        means = np.stack([mixtures.weights[span] @ mixtures.means[span] for span in mixtures.spans()])
        sums = _spread(means, own.order, classes) * counts[:, None]
    if sums is None or found is None or sums.shape[1] != width:
        return None
    scale = _spread(_scales(found[1], len(own.order)), own.order, classes)
    if found[1].kind != "class_sums" and found[1].release.cells != ("all",):
        # Noise by class is on the mean itself; a joint release noises the sums, from which means are derived.
        scale = scale * np.maximum(counts, 1.0)
    rounding = roundoff(found[1].values) * np.abs(sums).max(axis=1)
    return counts, sums, scale**2 + rounding**2 + 1e-30


def _scales(item: MessageField, classes: int) -> Matrix:
    """Standard deviation of the declared noise on each class's block, shape (P,)."""
    declared = item.release.noise_scale if item.release.mechanism == "gaussian" else None
    if declared is None:
        return np.zeros(classes)
    return np.asarray(declared, np.float64) if len(declared) == classes else np.full(classes, max(declared))


def _spread(values: Matrix, order: Ints, classes: int) -> Matrix:
    whole = np.zeros((classes, *values.shape[1:]))
    whole[order] = values
    return whole


def _density_ratio(mixtures: Mixtures, order: Ints, features: Matrix, labels: Ints, people: Population) -> Matrix:
    scores = np.full(len(features), -np.inf)
    reference = _reference(mixtures.family, people)
    for group, label in enumerate(order):
        rows = labels == label
        if rows.any() and mixtures.components[group]:
            usual = log_density(reference(int(label)), 0, features[rows])
            scores[rows] = log_density(mixtures, group, features[rows]) - usual
    lost = np.isneginf(scores)
    scores[lost] = scores[~lost].min() if (~lost).any() else 0.0
    return scores


def _reference(family: Family, people: Population) -> Callable[[int], Mixtures]:
    """The population's Gaussian of a class, in the family of a mixture."""
    covariance = people.covariance
    packed: Floats = pack_lower(covariance[None])
    if family == "diag":
        packed = np.diag(covariance)[None].copy()
    elif family == "spherical":
        packed = np.array([np.trace(covariance) / len(covariance)])
    one = np.ones(1, np.int64)
    return lambda label: Mixtures(
        family, one, one, np.ones(1), people.means[label][None], np.asarray(packed, np.float64)
    )


def _nearest(sent: Matrix, features: Matrix) -> Matrix:
    from scipy.spatial.distance import cdist

    scale = max(float(np.linalg.norm(sent, axis=1).mean()), 1e-12)
    return np.asarray(-np.log10(cdist(features, sent).min(axis=1) / scale + 1e-8))
