"""Theorem 6.1: divergences that are known, a bound that holds, and when it is vacuous."""

from __future__ import annotations

import numpy as np
import pytest

from fedassay.methods.fedpft.theorem_6_1 import class_gap, guarantee, loss_bound
from fedassay.mixtures import Mixtures, fit_mixtures


def _gaussian(mean: list[float], variance: float) -> Mixtures:
    return Mixtures(
        "spherical",
        np.array([1]),
        np.array([0]),
        np.ones(1),
        np.array([mean], dtype=np.float64),
        np.array([variance], dtype=np.float64),
    )


@pytest.mark.parametrize(("scale", "shift"), [(1.0, 0.0), (2.0, 0.0), (1.0, 0.7), (0.5, 0.3)])
def test_the_divergence_of_two_gaussians_is_the_closed_form(scale: float, shift: float) -> None:
    # One record and noise of the mixture's own width: p = N(0, I), q = N(shift, scale^2 I).
    width = 6
    variance = scale**2
    found = class_gap(
        np.zeros((1, width)),
        _gaussian([shift] * width, variance),
        0,
        np.random.default_rng(0),
        noise=1 / scale,
        draws=40_000,
    )
    exact = width / 2 * ((1 + shift**2) / variance - 1 + np.log(variance))
    assert found.divergence == pytest.approx(exact, abs=4 * found.error + 1e-9)
    entropy = width / 2 * np.log(2 * np.pi * np.e)
    assert -entropy - found.log_likelihood == pytest.approx(found.divergence, abs=0.05 + 4 * found.error)


def test_the_bound_of_a_class() -> None:
    assert loss_bound(0.0, 0.0) == 0
    assert loss_bound(0.1, 0.0) == pytest.approx(2 * 0.1 - 0.1**2)
    assert loss_bound(0.1, 2 * 0.9**2) == pytest.approx(1)
    assert loss_bound(1.0, 50.0) == 1
    with pytest.raises(ValueError, match=r"in \[0, 1\]"):
        loss_bound(1.2, 0.0)
    with pytest.raises(ValueError, match="at least 0"):
        loss_bound(0.2, -1.0)


def _two_classes(count: int, width: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.repeat([0, 1], count)
    return rng.standard_normal((2 * count, width)) + 4.0 * labels[:, None] * (np.arange(width) == 0), labels


@pytest.mark.parametrize("seed", range(3))
def test_it_holds_and_is_not_vacuous_where_records_are_many_and_features_few(seed: int) -> None:
    features, labels = _two_classes(1500, 2, seed)
    mixtures, _ = fit_mixtures(
        [features[labels == c] for c in (0, 1)], 1, "full", [np.random.default_rng(c) for c in (0, 1)]
    )

    def predict(rows: np.ndarray) -> np.ndarray:
        return (rows[:, 0] > 2).astype(np.int64)

    rng = np.random.default_rng(seed)
    found = guarantee(predict, features, labels, mixtures, np.array([0, 1]), rng, noise=0.3)
    blurred = features + 0.3 * rng.standard_normal(features.shape)
    assert np.mean(predict(blurred) != labels) <= found.loss_bound
    assert not found.vacuous
    assert found.loss_bound < 0.6
    assert 0 < found.synthetic_loss < 0.06


def test_it_is_vacuous_with_few_records_in_many_dimensions() -> None:
    features, labels = _two_classes(50, 64, 0)
    mixtures, _ = fit_mixtures(
        [features[labels == c] for c in (0, 1)], 2, "diag", [np.random.default_rng(c) for c in (0, 1)]
    )
    found = guarantee(
        lambda rows: (rows[:, 0] > 2).astype(np.int64),
        features,
        labels,
        mixtures,
        np.array([0, 1]),
        np.random.default_rng(0),
    )
    assert found.vacuous
    assert found.divergence > 2


def test_a_class_without_a_mixture_counts_as_lost() -> None:
    features, labels = _two_classes(20, 2, 0)
    found = guarantee(
        lambda rows: np.zeros(len(rows), np.int64),
        features,
        labels,
        _gaussian([0.0, 0.0], 1.0),
        np.array([0]),
        np.random.default_rng(0),
    )
    assert found.synthetic_loss == 0.5
    assert found.divergence == np.inf
    with pytest.raises(ValueError, match="without records"):
        guarantee(
            lambda rows: np.zeros(len(rows), np.int64),
            features[:0],
            labels[:0],
            _gaussian([0.0, 0.0], 1.0),
            np.array([0]),
            np.random.default_rng(0),
        )
    with pytest.raises(ValueError, match="at least one record"):
        class_gap(features[:0], _gaussian([0.0, 0.0], 1.0), 0, np.random.default_rng(0))
