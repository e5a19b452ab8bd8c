"""What a published head says of a gallery: who is in it, and whether the named make the head that was sent.

The certificate needs no truth. The head is fitted again to the candidates that are more likely in it than not.
What is left of the head that was sent is measured in what one record moves, the median over a few of those named
who are left out in turn. Below `CERTIFIED` this list made this head: of 1,000 members one wrong name leaves 1.2 to
2.4, one in a hundred 3 to 7, and another head 25. A record that hardly moves the head is hardly told by it, and so
a certificate is of the list. Where it is withheld, names are those that decoys calibrate (`certificate.named`).
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
"""How far the head of those named may be from the one that was sent, in what one record moves."""
_LEFT_OUT = 5
"""Named candidates that are left out one by one, to see what one record moves."""


def answer_of_head(
    estimator: Estimator | None,
    head: LinearHead,
    features: Matrix,
    kept: Kept,
    members: float,
    rng: np.random.Generator,
    scaler: Scaler | None = None,
) -> Answer:
    """Solve a head for who is in it.

    Args:
        estimator: What the head solves; None: nobody says, and it is found out (`unknown`).
        head: As it was sent.
        features: Of candidates and decoys, shape (N, d): as the scaler takes them where there is one, else as the
            head does.
        kept: The candidates and decoys.
        members: Candidates that are expected to be in it.
        rng: For what is drawn.
        scaler: What features are standardised by before the head, as it was sent beside it.

    Returns:
        Weights are the logarithm of the odds that a candidate is in the head.
    """
    labels, here = kept.records.labels, np.flatnonzero(~kept.decoys)
    inputs = features if scaler is None else scaler.transform(features)

    def beside(rows: Ints) -> tuple[Equations, ...]:
        return () if scaler is None else (scaler.equations(features[rows]),)

    if estimator is None:
        estimator = estimator_of(head, inputs[here], labels[here], members, rng, beside(here))
        if estimator is None:
            estimator = PenalisedEstimator("softmax", None)
    solves = estimator

    def solved(rows: Ints) -> Inside:
        return inside_of(solves, head, inputs[rows], labels[rows], members, rng, beside(rows))

    def off(rows: Ints) -> float | None:
        return distance(solves, head, inputs[rows], labels[rows], rng)

    return _answered("head", kept, solved, off)


def answer_of_scaler(
    scaler: Scaler, features: Matrix, kept: Kept, members: float, rng: np.random.Generator
) -> Answer:
    """Solve a published scaler, without a head, for who is in it; see `answer_of_head`."""

    def solved(rows: Ints) -> Inside:
        told = scaler.equations(features[rows])
        return inside(lambda weights: (told,), len(rows), scaler.count or members, rng)

    return _answered("scaler", kept, solved, lambda rows: scaler.distance(features[rows]))


def _answered(
    what: str, kept: Kept, solved: Callable[[Ints], Inside], off: Callable[[Ints], float | None]
) -> Answer:
    """The answer of what is solved for some of the candidates and decoys, and certified by the list it gives."""
    here, size = np.flatnonzero(~kept.decoys), len(kept.decoys)
    found = solved(here)
    odds = np.full(size, -np.inf)
    odds[here] = found.odds
    chosen = here[found.odds > 0]
    left = off(chosen)
    words = f"{len(here)} candidates, {found.equations} equations of the {what}"
    nothing = np.zeros((size, 0), np.int64)
    if left is not None and left < CERTIFIED:
        same = f"the {what} of the {len(chosen)} named is the {what} that was sent, to {left:.2g} of a record"
        return Answer(odds, odds > 0, True, f"{words}: {same}", nothing)
    # Decoys are solved for beside the candidates, and calibrate the names.
    names = named(solved(np.arange(size)).odds, kept.decoys) if kept.decoys.any() else np.zeros(size, np.bool_)
    apart = "" if left is None else f", {left:.2g} records from the {what} that was sent"
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
    except (DataError, np.linalg.LinAlgError):
        return None
    return found if np.array_equal(found.classes, head.classes) else None


def _numbers(head: LinearHead) -> Matrix:
    return np.concatenate([head.weights.ravel(), head.bias]).astype(np.float64)
