"""Weights by candidates and by equations are the same, and more of both than fit are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from fedassay.attacks.gallery import heads, precision
from fedassay.attacks.gallery.heads import inside_of
from fedassay.attacks.gallery.precision import Posterior, posterior
from fedassay.heads.estimating import Estimator
from fedassay.heads.estimators import GaussianEstimator, RidgeEstimator, SoftmaxEstimator
from fedassay.support.errors import NotRunError

Matrix = NDArray[np.float64]
EVERY, MULTIPLE = 0.3, 4.0


@dataclass(frozen=True)
class Plain:
    """Sums with rows that are kept, shape (N, M)."""

    rows: Matrix

    @property
    def columns(self) -> int:
        return self.rows.shape[1]

    def products(self, rows: slice) -> Matrix:
        return self.rows[rows] @ self.rows.T

    def block(self, rows: slice) -> Matrix:
        return self.rows[rows]


@pytest.mark.parametrize("columns", [17, 2000], ids=["fewer equations", "fewer candidates"])
def test_the_inverse_of_a_precision(columns: int) -> None:
    # More than one block of candidates, and a last one that is not full.
    rng, size = np.random.default_rng(0), precision._TOGETHER + 276
    sums = [Plain(rng.standard_normal((size, columns))), Plain(rng.standard_normal((size, 3)))]
    sides = rng.standard_normal((size, 2))
    matrix = MULTIPLE * np.eye(size) + EVERY + sum(each.rows @ each.rows.T for each in sums)
    inverse = np.linalg.inv(matrix)
    found = posterior(sums, MULTIPLE, EVERY, sides, np.random.default_rng(1), 4000)
    assert np.allclose(found.solutions, inverse @ sides, atol=1e-10)
    assert np.allclose(found.variances, inverse.diagonal(), atol=1e-10)
    # Draws along the sums and across them have the inverse as covariance, within what 4,000 draws show.
    for direction in (sums[0].rows[:, 0], np.ones(size), rng.standard_normal(size)):
        expected = float(direction @ inverse @ direction)
        assert float((direction @ found.draws).var()) == pytest.approx(expected, rel=0.12)


@pytest.mark.parametrize(
    "estimator",
    [RidgeEstimator(0.01), GaussianEstimator("total", 0.1), GaussianEstimator("within", 0.1), SoftmaxEstimator()],
    ids=["ridge", "total", "within", "softmax"],
)
def test_heads_are_solved_alike_either_way(estimator: Estimator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Free directions, known ones and a scaler's slack are taken off in either way."""
    rng, size = np.random.default_rng(3), 300
    labels = np.arange(size) % 4
    features = np.maximum(rng.standard_normal((size, 14)) + 0.4 * np.eye(4, 14)[labels], 0.0)
    head = estimator.fit(features[:150], labels[:150])

    def odds(way: Callable[..., Posterior]) -> Matrix:
        monkeypatch.setattr(heads, "posterior", way)
        return inside_of(estimator, head, features, labels, 150, np.random.default_rng(0), rounds=1).odds

    assert np.allclose(odds(precision._by_candidates), odds(precision._by_equations), atol=1e-6)


def test_directions_with_slack_are_taken_off_in_part() -> None:
    """The share of a direction that is taken off depends on how well its multiple is known."""
    rng, size = np.random.default_rng(5), 40
    labels, features = np.arange(size) % 3, rng.standard_normal((size, 8))
    estimator = SoftmaxEstimator()
    told = estimator.equations(estimator.fit(features, labels), features, labels, None)
    for slack in (1e-3, 1.0, np.inf):
        loose = replace(told, free=rng.standard_normal((2, *told.target.shape)), slack=np.full(2, slack))
        part = heads._Weighted.of(loose, None)
        rows = part.block(slice(0, size))
        assert np.allclose(rows @ rows.T, part.products(slice(0, size)), atol=1e-6 * np.abs(rows @ rows.T).max())


def test_more_candidates_and_equations_than_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "MOST", 20)
    sums = [Plain(np.ones((30, 25)))]
    with pytest.raises(NotRunError, match="30 candidates and 25 equations; allowed: at most 20"):
        posterior(sums, MULTIPLE, EVERY, np.ones((30, 1)), np.random.default_rng(0), 0)
    monkeypatch.setattr(precision, "MOST", 25)
    assert posterior(sums, MULTIPLE, EVERY, np.ones((30, 1)), np.random.default_rng(0), 0).solutions.shape == (
        30,
        1,
    )
