"""Infer the estimator of an undeclared head: each loss of `fedassay.heads.penalised`, judged by fitting again.

A file with a head contains neither its loss nor its penalty. For each loss the equations are first solved with the
penalty free: the resulting weights give a penalty, up to their errors. For the two losses with the smallest
residuals, that penalty and the nearest round ones (users write C = 10^k) are tried: a head is fitted to the
candidates that are more likely in than not. The nearest head gives the loss and the penalty. Where none comes
near, the equations are solved under every round penalty: the equations of a solver that stopped early give none.
"""

from __future__ import annotations

import numpy as np

from fedassay.attacks.gallery.heads import inside_of
from fedassay.heads.estimating import Equations
from fedassay.heads.linear import LinearHead
from fedassay.heads.penalised import LOSSES, Loss, PenalisedEstimator, coefficients
from fedassay.support.errors import DataError
from fedassay.support.types import Floats, Ints, Matrix

NEAR = 0.1
"""Distance of a head that was fitted again, relative to the one that was sent, at which no other is tried."""
ROUND = tuple(10.0**power for power in range(-3, 4))
"""Values of C (and of `alpha`) that users write."""
_LIBLINEAR: tuple[Loss, ...] = ("logistic", "squared_hinge")
"""Losses that are commonly fitted by liblinear, which penalises the bias."""
_FITTED = 2
"""Number of losses with heads that are fitted again: those with the smallest residuals."""
_BRIEF = 3
"""Number of solves for the weights while a loss and a penalty are chosen."""

SOLVES = len(LOSSES) * _BRIEF
"""Number of solves at least until the estimator is known."""


def estimator_of(
    head: LinearHead,
    features: Floats,
    labels: Ints,
    members: float,
    rng: np.random.Generator,
    beside: tuple[Equations, ...] = (),
) -> PenalisedEstimator | None:
    """Return the loss and penalty under which candidates explain a head best; None: no head can be fitted again.

    Args:
        head: The head as it was sent.
        features: Features of the candidates as inputs of the head, shape (N, d).
        labels: Their labels, shape (N,).
        members: Expected number of candidates in the head.
        rng: Generator for all draws.
        beside: Further equations of the same candidates.
    """

    def tried(estimator: PenalisedEstimator) -> tuple[float, PenalisedEstimator]:
        found = inside_of(estimator, head, features, labels, members, rng, beside, rounds=_BRIEF)
        return _off(estimator, head, features, labels, found.odds), estimator

    # A bias of exactly 0 was not fitted.
    biased, solved = bool(head.bias.any()), []

    def of(loss: Loss, penalty: float | None) -> PenalisedEstimator:
        return PenalisedEstimator(loss, penalty, loss in _LIBLINEAR, biased)

    for loss in LOSSES:
        free = of(loss, None)
        found = inside_of(free, head, features, labels, members, rng, beside, rounds=_BRIEF)
        guess = free.penalty_of(head, features, labels, np.clip(found.weights, 0.0, 1.0))
        # No solver has a penalty below 0: the equations are of another loss.
        if guess > 0:
            solved.append((found.noise, loss, guess, found.odds))
    best: tuple[float, PenalisedEstimator] | None = None
    for _, loss, guess, odds in sorted(solved, key=lambda each: each[0])[:_FITTED]:
        nearest = sorted(_penalties(loss), key=lambda each: abs(np.log(each / guess)))[:2]
        for penalty in (*nearest, guess):
            estimator = of(loss, penalty)
            off = _off(estimator, head, features, labels, odds)
            if best is None or off < best[0]:
                best = off, estimator
    if best is not None and best[0] > NEAR:
        loss = best[1].loss
        every = [of(loss, each) for each in _penalties(loss)]
        best = min([best, *map(tried, every)], key=lambda pair: pair[0])
    return None if best is None or not np.isfinite(best[0]) else best[1]


def _penalties(loss: Loss) -> list[float]:
    """Return the penalties of round values of C or alpha."""
    return [(0.5 if loss == "squared_hinge" else 1.0) * each for each in ROUND]


def _off(estimator: PenalisedEstimator, head: LinearHead, features: Floats, labels: Ints, odds: Matrix) -> float:
    """Return the distance of the likelier candidates' head from the sent one, relative to its length."""
    chosen = odds > 0
    try:
        again = estimator.fit(features[chosen], labels[chosen])
    except (DataError, np.linalg.LinAlgError):
        return np.inf
    if not np.array_equal(again.classes, head.classes):
        return np.inf
    rows, sent = (np.concatenate([part.ravel() for part in coefficients(each)]) for each in (again, head))
    return float(np.linalg.norm(rows - sent) / max(float(np.linalg.norm(sent)), 1e-300))
