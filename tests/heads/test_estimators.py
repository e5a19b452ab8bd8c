"""Every head solves the equations that its estimator says it solves, at the weights that say who is in it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedassay.heads.estimating import Equations, Estimator
from fedassay.heads.estimators import GaussianEstimator, RidgeEstimator, SoftmaxEstimator

Matrix = NDArray[np.float64]

ESTIMATORS: dict[str, Estimator] = {
    "softmax": SoftmaxEstimator(decay=1e-2),
    "softmax over all classes": SoftmaxEstimator(decay=1e-2, classes=5),
    "ridge": RidgeEstimator(0.3),
    "least squares": RidgeEstimator(0.0),
    "gaussian, total": GaussianEstimator("total", 0.1),
    "gaussian, within": GaussianEstimator("within", 0.1),
}


def records(seed: int, size: int = 120, width: int = 7, classes: int = 4) -> tuple[Matrix, NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes), rng.integers(0, classes, size - classes)])
    return np.maximum(rng.normal(size=(size, width)) + rng.normal(size=(classes, width))[labels], 0.0), labels


def left(equations: Equations, weights: Matrix) -> float:
    """Length of what weights leave of the equations, orthogonal to what is free, relative to what is summed."""
    total = np.einsum("n,nc,nd->cd", weights, equations.residuals, equations.rows) - equations.target
    free = equations.free.reshape(len(equations.free), total.size).T
    rest = total.ravel()
    if free.size:
        basis, values, _ = np.linalg.svd(free, full_matrices=False)
        basis = basis[:, values > 1e-12 * values[0]]
        rest = rest - basis @ (basis.T @ rest)
    usual = np.sqrt(np.einsum("n,nc,nd->cd", weights, equations.residuals**2, equations.rows**2).sum())
    return float(np.linalg.norm(rest) / usual)


@pytest.mark.parametrize("name", ESTIMATORS)
@given(seed=st.integers(0, 2**20))
@settings(max_examples=4, deadline=None)
def test_a_head_solves_its_equations_at_its_own_records(name: str, seed: int) -> None:
    estimator = ESTIMATORS[name]
    features, labels = records(seed)
    inside = np.random.default_rng(seed + 1).permutation(len(labels)) < 70
    inside[:4] = True
    head = estimator.fit(features[inside], labels[inside])
    truth = inside.astype(np.float64)
    found = left(estimator.equations(head, features, labels, truth), truth)
    others = left(estimator.equations(head, features, labels, truth), 1 - truth)
    # A solver of softmax heads stops at a gradient of 1e-5 for each record.
    assert found < (5e-3 if name.startswith("softmax") else 1e-8)
    assert others > 10 * found


@pytest.mark.parametrize("name", ["ridge", "gaussian, total"])
def test_what_is_known_beforehand_is_what_is_known_of_the_truth(name: str) -> None:
    """Directions that are free do not depend on who is in, where the equations need nothing of the records."""
    estimator = ESTIMATORS[name]
    features, labels = records(3)
    head = estimator.fit(features, labels)
    at_first = estimator.equations(head, features, labels, None)
    assert np.isinf(at_first.slack).all()
    assert at_first.count <= head.weights.size


def test_variances_of_softmax_heads_are_free_at_first_and_known_later() -> None:
    estimator = SoftmaxEstimator(decay=1e-2)
    features, labels = records(4)
    head = estimator.fit(features, labels)
    first = estimator.equations(head, features, labels, None)
    later = estimator.equations(head, features, labels, np.ones(len(labels)))
    assert np.isinf(first.slack).all()
    assert not first.target.any()
    assert np.isfinite(later.slack).all()
    assert later.target.any()
    assert first.count < later.count
