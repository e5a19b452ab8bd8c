"""What a published head says of a gallery: who is in it, and whether the named make the head that was sent.

The certificate needs no truth. The head is fitted again to the candidates that are more likely in it than not.
What is left of the head that was sent is measured in what one record moves, the median over a few of those named
who are left out in turn. Below `CERTIFIED` this list made this head: of 1,000 members one wrong name leaves 1.2 to
2.4, one in a hundred 3 to 7, and another head 25. A record that hardly moves the head is hardly told by it, and so
a certificate is of the list. Where it is withheld, names are those that decoys calibrate (`certificate.named`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedassay.attacks.gallery.answers import Answer, Kept
from fedassay.attacks.gallery.certificate import named
from fedassay.attacks.gallery.heads import inside_of
from fedassay.heads.estimating import Estimator
from fedassay.heads.linear import LinearHead
from fedassay.support.errors import DataError
from fedassay.support.types import Bools, Ints

Matrix = NDArray[np.float64]

CERTIFIED = 0.3
"""How far the head of those named may be from the one that was sent, in what one record moves."""
_LEFT_OUT = 5
"""Named candidates that are left out one by one, to see what one record moves."""


def answer_of_head(
    estimator: Estimator, head: LinearHead, features: Matrix, kept: Kept, members: float, rng: np.random.Generator
) -> Answer:
    """Solve a head for who is in it.

    Args:
        estimator: What the head solves.
        head: As it was sent.
        features: As the head takes them, of candidates and decoys, shape (N, d).
        kept: The candidates and decoys.
        members: Candidates that are expected to be in it.
        rng: For what is drawn.

    Returns:
        Weights are the logarithm of the odds that a candidate is in the head.
    """
    labels, here = kept.records.labels, np.flatnonzero(~kept.decoys)
    found = inside_of(estimator, head, features[here], labels[here], members, rng)
    odds = np.full(len(features), -np.inf)
    odds[here] = found.odds
    chosen = here[found.odds > 0]
    off = distance(estimator, head, features[chosen], labels[chosen], rng)
    words = f"{len(here)} candidates, {found.equations} equations of the head"
    nothing = np.zeros((len(features), 0), np.int64)
    if off is not None and off < CERTIFIED:
        words = f"{words}: the head of the {len(chosen)} named is the head that was sent, to {off:.2g} of a record"
        return Answer(odds, odds > 0, True, words, nothing)
    names = _calibrated(estimator, head, features, labels, kept.decoys, members, rng)
    apart = "" if off is None else f", {off:.2g} records from the head that was sent"
    return Answer(odds, names, False, f"{words}: not certified{apart}, {int(names.sum())} named", nothing)


def distance(
    estimator: Estimator, head: LinearHead, features: Matrix, labels: Ints, rng: np.random.Generator
) -> float | None:
    """How far the head of records is from another, in what one record moves; None where they give no such head."""
    again = _fitted(estimator, head, features, labels)
    if again is None:
        return None
    sent, moved = _numbers(head), []
    for left_out in rng.permutation(len(features))[:_LEFT_OUT]:
        without = _fitted(estimator, head, np.delete(features, left_out, axis=0), np.delete(labels, left_out))
        if without is not None:
            moved.append(float(np.linalg.norm(_numbers(without) - _numbers(again))))
    one = float(np.median(moved)) if moved else 0.0
    return float(np.linalg.norm(_numbers(again) - sent)) / one if one > 0 else None


def _fitted(estimator: Estimator, head: LinearHead, features: Matrix, labels: Ints) -> LinearHead | None:
    """The head of records, where it is one of the same classes."""
    if not len(features):
        return None
    try:
        found = estimator.fit(features, labels)
    except DataError:
        return None
    return found if np.array_equal(found.classes, head.classes) else None


def _numbers(head: LinearHead) -> Matrix:
    return np.concatenate([head.weights.ravel(), head.bias]).astype(np.float64)


def _calibrated(
    estimator: Estimator,
    head: LinearHead,
    features: Matrix,
    labels: Ints,
    decoys: Bools,
    members: float,
    rng: np.random.Generator,
) -> Bools:
    """Names at the false-discovery rate of decoys, which are solved for beside the candidates, shape (N,)."""
    if not decoys.any():
        return np.zeros(len(features), np.bool_)
    return named(inside_of(estimator, head, features, labels, members, rng).odds, decoys)
