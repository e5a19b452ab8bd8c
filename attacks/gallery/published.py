"""Solve a published head for the candidates in it, and certify their list by fitting the head again.

The certificate needs no truth. The head is fitted again to the candidates that are more likely in it than not. Its
distance from the sent head is measured in units of one record's effect: the median over a few named candidates
that are left out in turn. Below `CERTIFIED` this list made this head: with 1,000 members one wrong name leaves 1.2
to 2.4, one in a hundred 3 to 7, and another head 25. A record with little effect on the head is hardly determined
by it, so that a certificate is for the list as a whole: under it, candidates with odds above `CERTAIN` are named.
Without it, decoys calibrate the names (`certificate.named`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fedassay.attacks.gallery.answers import Answer, Kept
from fedassay.attacks.gallery.certificate import named
from fedassay.attacks.gallery.heads import Inside, inside, inside_of
from fedassay.attacks.gallery.unknown import estimator_of
from fedassay.heads.estimating import Equations, Estimator
from fedassay.heads.linear import LinearHead
from fedassay.heads.penalised import PenalisedEstimator
from fedassay.heads.scaler import Scaler
from fedassay.support.errors import DataError
from fedassay.support.types import Ints

Matrix = NDArray[np.float64]

CERTIFIED = 0.3
"""Largest distance of the named candidates' head from the sent one, in units of one record's effect."""
CERTAIN = float(np.log(99.0))
"""Log odds above which a candidate is named under a certificate."""
_LEFT_OUT = 5
"""Number of named candidates that are left out one by one, to measure the effect of one record."""


def answer_of_head(
    estimator: Estimator | None,
    head: LinearHead,
    features: Matrix,
    kept: Kept,
    members: float,
    rng: np.random.Generator,
    scaler: Scaler | None = None,
) -> Answer:
    """Solve a head for the candidates that are in it.

    Args:
        estimator: Gives the head's estimating equations; None: unknown, and inferred (`unknown`).
        head: The head as it was sent.
        features: Features of candidates and decoys, shape (N, d): inputs of the scaler where there is one, else of
            the head.
        kept: The candidates and decoys.
        members: Expected number of candidates in the head.
        rng: Generator for all draws.
        scaler: The scaler that standardises features before the head, as it was sent beside it.

    Returns:
        The answer. Its weights are the logarithms of the odds that candidates are in the head.
    """
    labels, here = kept.records.labels, np.flatnonzero(~kept.decoys)
    inputs = features if scaler is None else scaler.inputs(head, features, labels)

    def beside(rows: Ints) -> tuple[Equations, ...]:
        return () if scaler is None else (scaler.equations(features[rows]),)

    if estimator is None:
        estimator = estimator_of(head, inputs[here], labels[here], members, rng, beside(here))
        if estimator is None:
            estimator = PenalisedEstimator("softmax", None, intercept=bool(head.bias.any()))
    solves = estimator

    def solved(rows: Ints) -> Inside:
        return inside_of(solves, head, inputs[rows], labels[rows], members, rng, beside(rows))

    def off(rows: Ints) -> float | None:
        return distance(solves, head, inputs[rows], labels[rows], rng)

    return _answered("head", kept, solved, off)


def answer_of_scaler(
    scaler: Scaler, features: Matrix, kept: Kept, members: float, rng: np.random.Generator
) -> Answer:
    """Solve a published scaler, without a head, for the candidates in it; see `answer_of_head`."""

    def solved(rows: Ints) -> Inside:
        told = scaler.equations(features[rows])
        return inside(lambda weights: (told,), len(rows), scaler.count or members, rng)

    return _answered("scaler", kept, solved, lambda rows: scaler.distance(features[rows]))


def _answered(
    what: str, kept: Kept, solved: Callable[[Ints], Inside], off: Callable[[Ints], float | None]
) -> Answer:
    """Solve for the candidates, certify the list of likely ones, and else name candidates by decoys."""
    here, size = np.flatnonzero(~kept.decoys), len(kept.decoys)
    found = solved(here)
    odds = np.full(size, -np.inf)
    odds[here] = found.odds
    chosen = here[found.odds > 0]
    left = off(chosen)
    words = f"{len(here)} candidates, {found.equations} equations of the {what}"
    nothing = np.zeros((size, 0), np.int64)
    if left is not None and left < CERTIFIED:
        names = odds > CERTAIN
        same = f"the {what} of {len(chosen)} likely members is the {what} that was sent, to {left:.2g} of a record"
        return Answer(odds, names, True, f"{words}: {same}, {int(names.sum())} named", nothing)
    # Decoys are solved for together with the candidates, and calibrate the names.
    names = named(solved(np.arange(size)).odds, kept.decoys) if kept.decoys.any() else np.zeros(size, np.bool_)
    apart = "" if left is None else f", {left:.2g} records from the {what} that was sent"
    return Answer(odds, names, False, f"{words}: not certified{apart}, {int(names.sum())} named", nothing)


def distance(
    estimator: Estimator, head: LinearHead, features: Matrix, labels: Ints, rng: np.random.Generator
) -> float | None:
    """Return the distance of records' head from another, in units of one record's effect; None: no such head."""
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
    """Fit the head of records; None where it is not one of the same classes."""
    if not len(features):
        return None
    try:
        found = estimator.fit(features, labels)
    except (DataError, np.linalg.LinAlgError):
        return None
    return found if np.array_equal(found.classes, head.classes) else None


def _numbers(head: LinearHead) -> Matrix:
    return np.concatenate([head.weights.ravel(), head.bias]).astype(np.float64)
