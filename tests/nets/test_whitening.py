"""The attacker's scaling of conditions."""

from __future__ import annotations

import numpy as np
import pytest

from fedassay.nets.whitening import SHRINKAGE, fit_whitening


def test_columns_get_mean_zero_and_deviation_one() -> None:
    vectors = np.random.default_rng(0).normal(5, [1.0, 100.0, 1e-3], size=(500, 3))
    mapped = fit_whitening(vectors, decorrelate=False)(vectors)
    np.testing.assert_allclose(mapped.mean(axis=0), 0, atol=1e-3)
    np.testing.assert_allclose(mapped.std(axis=0), 1, atol=1e-3)


def test_principal_axes_become_uncorrelated_with_shrunk_variance() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(2000, 4)) @ rng.normal(size=(4, 4)) + 3
    variances = np.linalg.eigvalsh(np.cov(vectors.T, bias=True))
    covariance = np.cov(fit_whitening(vectors, decorrelate=True)(vectors).T, bias=True)
    expected = variances / (variances + SHRINKAGE * variances.max())
    np.testing.assert_allclose(covariance, np.diag(expected), atol=1e-4)


@pytest.mark.parametrize("decorrelate", [False, True])
def test_directions_that_the_attacker_never_saw_are_dropped(decorrelate: bool) -> None:
    rng = np.random.default_rng(0)
    vectors = np.concatenate([rng.normal(size=(50, 3)), np.full((50, 2), 7.0)], axis=1).astype(np.float32)
    whitening = fit_whitening(vectors, decorrelate=decorrelate)
    moved = vectors.copy()
    moved[:, 3:] += 100
    np.testing.assert_allclose(whitening(moved), whitening(vectors), atol=1e-3)


@pytest.mark.parametrize("decorrelate", [False, True])
def test_one_record_and_fewer_records_than_columns(decorrelate: bool) -> None:
    one = np.ones((1, 6), np.float32)
    assert not fit_whitening(one, decorrelate=decorrelate)(one).any()
    few = np.random.default_rng(0).normal(size=(3, 6)).astype(np.float32)
    mapped = fit_whitening(few, decorrelate=decorrelate)(few)
    assert np.isfinite(mapped).all()
    assert np.abs(mapped).max() < 10


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(n, d\)"):
        fit_whitening(np.zeros((0, 3)), decorrelate=True)
    whitening = fit_whitening(np.eye(3), decorrelate=True)
    with pytest.raises(ValueError, match=r"\(n, 3\)"):
        whitening(np.zeros((2, 4)))
    with pytest.raises(ValueError, match="NaN"):
        whitening(np.full((2, 3), np.inf))
