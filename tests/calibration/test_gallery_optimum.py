"""The gallery's joint posterior against the best answer: all memberships of up to 20 candidates enumerated.

The optimum ranks candidates by their marginal probabilities under the very prior and noise. Of 20 candidates there
are 2^20 memberships; the energy of two halves and what ties them is a sum of matrices of 2^10 by 2^10.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from fedassay.attacks.gallery.solving import posterior_weights
from fedassay.attacks.gallery.system import system_of
from fedassay.audits.membership.ceiling import highest_auc
from fedassay.audits.stats.roc import auc
from fedassay.exchange.blocks import LinearBlock
from fedassay.support.types import Bools, Ints

Matrix = NDArray[np.float64]

WIDTH, LABELS, DRAWS = 12, 3, 60
SENT = {
    "class sums": ("features",),
    "sums and squares": ("features", "squares"),
    "sums and products": ("features", "products"),
}
"""What is summed of a record: as FedNCM, FedPFT's diagonal component and FedCGS send it."""


def record(features: Matrix, labels: Ints, of: str) -> Matrix:
    """One block's isometric coordinates of every candidate, shape (p, N)."""
    if of == "products":
        rows, columns = np.tril_indices(WIDTH)
        return (features[:, rows] * features[:, columns] * np.where(rows == columns, 1.0, np.sqrt(2.0))).T
    values = features**2 if of == "squares" else features
    return np.asarray((np.eye(LABELS)[labels][:, :, None] * values[:, None]).reshape(len(labels), -1).T)


def block(told: Matrix, of: str, noise: float) -> LinearBlock:
    """Noised isometric coordinates as a block of a message."""
    scales = np.full(1 if of == "products" else LABELS, noise)
    if of != "products":
        name = "features" if of == "features" else "squares"
        return LinearBlock(of, name, 1, True, told.reshape(LABELS, WIDTH), scales, 0 * scales)
    rows, columns = np.tril_indices(WIDTH)
    total = np.zeros((WIDTH, WIDTH))
    total[rows, columns] = total[columns, rows] = told / np.where(rows == columns, 1.0, np.sqrt(2.0))
    return LinearBlock(of, "features", 2, False, total, scales, 0 * scales)


def enumerated(design: Matrix, told: Matrix) -> Matrix:
    """The probability of every candidate, its prior a coin and errors of variance 1, shape (N,)."""
    count = design.shape[1]
    halves = [np.array(list(product((0.0, 1.0), repeat=size))) for size in (count // 2, count - count // 2)]
    parts = [design[:, : count // 2], design[:, count // 2 :]]
    own = [
        choices @ (part.T @ told) - ((choices @ (part.T @ part)) * choices).sum(axis=1) / 2
        for choices, part in zip(halves, parts, strict=True)
    ]
    energy = own[0][:, None] + own[1][None] - halves[0] @ (parts[0].T @ parts[1]) @ halves[1].T
    weight = np.exp(energy - energy.max())
    weight /= weight.sum()
    return np.concatenate([weight.sum(axis=1) @ halves[0], weight.sum(axis=0) @ halves[1]])


def drawn(rng: np.random.Generator, count: int, sent: str, noise: float) -> tuple[Matrix, Matrix, Bools, float]:
    """Ours, the optimum, the truth, and the longest candidate's sums in standard deviations of the noise."""
    features = np.maximum(rng.standard_normal((count, WIDTH)), 0)
    labels, inside = rng.integers(0, LABELS, count), rng.random(count) < 0.5
    designs = [record(features, labels, of) for of in SENT[sent]]
    told = [part @ inside + noise * rng.standard_normal(len(part)) for part in designs]
    blocks = [block(each, of, noise) for each, of in zip(told, SENT[sent], strict=True)]
    system = system_of(blocks, features, np.zeros((count, 1, 1, 1), np.uint8), labels, missing=0)
    assert system is not None
    ours = posterior_weights(system, np.full(count, 0.5))
    whole = np.concatenate(designs) / noise
    return (
        ours,
        enumerated(whole, np.concatenate(told) / noise),
        inside,
        float(np.linalg.norm(whole, axis=0).max()),
    )


@pytest.mark.long
@pytest.mark.parametrize("sent", SENT)
@pytest.mark.parametrize("noise", [1.5, 4.0])
@pytest.mark.parametrize("count", [5, 12, 20])
def test_nine_tenths_of_the_optimum_are_reached(sent: str, noise: float, count: int) -> None:
    rng = np.random.default_rng(count)
    draws = [drawn(rng, count, sent, noise) for _ in range(DRAWS * 20 // count)]
    ours, best, truth = (np.concatenate([draw[place] for draw in draws]) for place in range(3))
    reached, optimum = auc(ours[~truth], ours[truth]).value, auc(best[~truth], best[truth]).value
    assert optimum > 0.55
    assert reached - 0.5 >= 0.9 * (optimum - 0.5)
    # Beyond what chance gives it, nothing is better than the optimum: else the enumeration is wrong.
    assert reached <= optimum + 0.01


def test_the_enumeration_is_that_of_all_memberships() -> None:
    rng = np.random.default_rng(0)
    design, told = rng.standard_normal((9, 7)), rng.standard_normal(9)
    choices = np.array(list(product((0.0, 1.0), repeat=7)))
    weight = np.exp(-((told[:, None] - design @ choices.T) ** 2).sum(axis=0) / 2)
    assert np.abs(enumerated(design, told) - weight @ choices / weight.sum()).max() < 1e-12


@pytest.mark.long
@pytest.mark.parametrize("sent", SENT)
def test_the_lower_bound_is_never_above_the_ceiling(sent: str) -> None:
    """20 seeds of the joint test, each against what the noise allows for the record of the longest sums."""
    for seed in range(20):
        rng = np.random.default_rng(1000 + seed)
        draws = [drawn(rng, 20, sent, 4.0) for _ in range(10)]
        scores, truth = (np.concatenate([draw[place] for draw in draws]) for place in (0, 2))
        area = auc(scores[~truth], scores[truth])
        assert area.low is not None
        assert area.low <= highest_auc(max(draw[3] for draw in draws))
