"""How often a head that `head_reconstruction` calls solved is: planted records come back, others never are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedassay.attacks.head_reconstruction.attack import TRUSTED, reconstructed
from fedassay.data.records import Records
from fedassay.heads.estimators import SoftmaxEstimator
from fedassay.heads.linear import LinearHead, train_head
from fedassay.support.optimisation import Minibatches

Matrix = NDArray[np.float64]
Ints = NDArray[np.int64]
Made = Callable[[Matrix, Ints, int], LinearHead]

WIDTH, CLASSES, STARTS = 64, 7, 8
ESTIMATOR = SoftmaxEstimator(classes=CLASSES)
HEADS = 12
"""Heads of each size, or of each condition."""
_CENTRES = np.random.default_rng(7).normal(size=(CLASSES, WIDTH))


def _drawn(labels: Ints, rng: np.random.Generator) -> Matrix:
    values = rng.normal(size=(len(labels), WIDTH)) + 0.5 * _CENTRES[labels]
    return np.maximum(values, 0.0).astype(np.float32).astype(np.float64)


def _own() -> Records:
    labels = np.arange(300) % CLASSES
    features = _drawn(labels, np.random.default_rng(1)).astype(np.float32)
    return Records("attacker", np.zeros((300, 1, 1, 1), np.uint8), labels, lambda _: features)


def _asked(labels: Ints, seed: int, made: Made, scaled: bool = False) -> tuple[float, float] | None:
    """Median error about the mean of a head's records, and the distance of its next solution; None: not solved.

    Args:
        labels: Of the head's records.
        seed: Draws the records.
        made: Makes the head.
        scaled: Whether all records are first scaled to fit best.
    """
    rng = np.random.default_rng([seed, len(labels)])
    truth = _drawn(labels, rng)
    found = reconstructed(made(truth, labels, seed), len(labels), ESTIMATOR, _own(), rng, STARTS)
    if found is None:
        return None
    _, features, solution = found
    about, true = features - features.mean(axis=0), truth - truth.mean(axis=0)
    if scaled:
        about = about * float((about * true).sum() / (about**2).sum())
    off = np.linalg.norm(about - true, axis=1) / np.linalg.norm(true, axis=1)
    return float(np.median(off)), float(solution.apart.max())


def _converged(features: Matrix, labels: Ints, seed: int) -> LinearHead:
    return ESTIMATOR.fit(features, labels)


@pytest.mark.long
@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_heads_that_are_solved_are_solved_for_their_records(size: int) -> None:
    rng = np.random.default_rng(size)
    chosen = [np.sort(rng.permutation(CLASSES)[:size]) for _ in range(HEADS)]
    found = [_asked(labels, seed, _converged) for seed, labels in enumerate(chosen)]
    solved = [each for each in found if each is not None]
    trusted = [off for off, apart in solved if apart < TRUSTED]
    assert len(trusted) >= 0.9 * HEADS
    assert max(trusted) < 0.05


@pytest.mark.long
@pytest.mark.parametrize("decay", [0.002, 0.05])
def test_another_penalty_than_declared_scales_the_records_and_hides_none(decay: float) -> None:
    """The penalty is no unknown of the equations: it is the unit that records are in."""

    def made(features: Matrix, labels: Ints, seed: int) -> LinearHead:
        return SoftmaxEstimator(decay, CLASSES).fit(features, labels)

    rng = np.random.default_rng(4)
    chosen = [np.sort(rng.permutation(CLASSES)[:4]) for _ in range(HEADS // 2)]
    for scaled, most in ((False, 0.5), (True, 0.05)):
        found = [_asked(labels, seed, made, scaled) for seed, labels in enumerate(chosen)]
        errors = [off for each in found if each is not None for off in each[:1]]
        assert len(errors) >= 0.8 * len(chosen)
        assert max(errors) < most
        assert scaled or min(errors) > 0.1


def _early(features: Matrix, labels: Ints, seed: int) -> LinearHead:
    generator = torch.Generator().manual_seed(seed)
    minibatches = Minibatches(100, 128, 1e-2)
    return train_head(features, labels, minibatches=minibatches, classes=CLASSES, generator=generator)


def _noised(features: Matrix, labels: Ints, seed: int) -> LinearHead:
    head, rng = ESTIMATOR.fit(features, labels), np.random.default_rng(seed)
    scale = 0.1 * float(np.abs(head.weights).mean())
    return LinearHead(head.classes, head.weights + scale * rng.normal(size=head.weights.shape), head.bias)


def _one_more(features: Matrix, labels: Ints, seed: int) -> LinearHead:
    """A head that has one record more than it says."""
    absent = np.setdiff1d(np.arange(CLASSES), labels)[:1]
    more = _drawn(absent, np.random.default_rng([seed, 99]))
    return ESTIMATOR.fit(np.concatenate([features, more]), np.concatenate([labels, absent]))


def _of_pairs(features: Matrix, labels: Ints, seed: int) -> LinearHead:
    """A head of two records a class, that says half of their number."""
    more = _drawn(labels, np.random.default_rng([seed, 98]))
    return ESTIMATOR.fit(np.concatenate([features, more]), np.concatenate([labels, labels]))


OTHERS: dict[str, Made] = {
    "stopped early": _early,
    "noised": _noised,
    "one record more": _one_more,
    "two records a class": _of_pairs,
}


@pytest.mark.long
@pytest.mark.parametrize("condition", OTHERS)
def test_heads_of_other_conditions_are_never_solved(condition: str) -> None:
    rng = np.random.default_rng(3)
    chosen = [np.sort(rng.permutation(CLASSES)[:4]) for _ in range(HEADS)]
    assert not [seed for seed, labels in enumerate(chosen) if _asked(labels, seed, OTHERS[condition])]
