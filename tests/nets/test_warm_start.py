"""The first guess: kernel ridge regression with leave-one-out guesses."""

from __future__ import annotations

import numpy as np
import pytest

from fedassay.nets import warm_start
from fedassay.nets.warm_start import fit_warm_start


def curved_pairs(n: int, seed: int):
    """Images that are a smooth, nonlinear function of their conditions."""
    rng = np.random.default_rng(seed)
    conditions = rng.normal(size=(n, 3)).astype(np.float32)
    directions = np.random.default_rng(7).normal(size=(3, 20))
    images = np.clip(127.5 + 100 * np.sin(conditions @ directions), 0, 255).round().astype(np.uint8)
    return images.reshape(n, 4, 5, 1), conditions


@pytest.mark.parametrize("centres", [8, 25, 40])
def test_held_out_guesses_equal_a_refit_without_the_record_and_its_centre(centres: int) -> None:
    rng = np.random.default_rng(0)
    n, d, ridge = 40, 3, 0.05
    whitened = rng.normal(size=(n, d)).astype(np.float32)
    images = rng.integers(0, 256, size=(n, 2, 2, 1)).astype(np.uint8)
    zero = np.zeros(4)
    basis = warm_start._basis(whitened[:centres], 0.5)
    gram, moment = warm_start._moments(basis, images, whitened, zero)
    inverse = np.linalg.inv(gram + ridge * basis.penalty)
    own = np.where(np.arange(n) < centres, np.arange(n), -1)
    columns = basis.columns(whitened)
    target = images.reshape(n, -1).astype(float)
    guesses = warm_start._leave_one_out(columns, own, inverse, inverse @ moment, target)
    for record in (0, centres - 1, n - 1):
        kept = np.delete(np.arange(columns.shape[1]), own[record] if own[record] >= 0 else [])
        phi = np.delete(columns, record, axis=0)[:, kept]
        penalty = basis.penalty[np.ix_(kept, kept)]
        weights = np.linalg.solve(phi.T @ phi + ridge * penalty, phi.T @ np.delete(target, record, axis=0))
        np.testing.assert_allclose(guesses[record], columns[record, kept] @ weights, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("centres", [1000, 60])
def test_guesses_fresh_records_and_knows_how_well(centres: int) -> None:
    images, conditions = curved_pairs(300, seed=0)
    private, features = curved_pairs(200, seed=1)
    regression, held_out = fit_warm_start(images, conditions, centres=centres, rng=np.random.default_rng(0))
    error = np.mean((regression.guess(features, (4, 5, 1)).astype(float) - private) ** 2)
    expected = np.mean((held_out.astype(float) - images) ** 2)
    nearest = np.linalg.norm(features[:, None] - conditions[None], axis=2).argmin(axis=1)
    assert error < 0.8 * np.mean((images[nearest].astype(float) - private) ** 2)
    assert 0.7 < expected / error < 1.4


def test_blocks_do_not_change_the_fit(monkeypatch) -> None:
    images, conditions = curved_pairs(90, seed=0)
    whole, held_out = fit_warm_start(images, conditions, centres=30, rng=np.random.default_rng(0))
    monkeypatch.setattr(warm_start, "_BLOCK", 7)
    blocked, held_out_blocked = fit_warm_start(images, conditions, centres=30, rng=np.random.default_rng(0))
    assert np.abs(held_out.astype(int) - held_out_blocked).max() <= 1
    difference = whole.guess(conditions, (4, 5, 1)).astype(int) - blocked.guess(conditions, (4, 5, 1))
    assert np.abs(difference).max() <= 1


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_handful_of_records(n: int) -> None:
    images, conditions = curved_pairs(n, seed=0)
    regression, held_out = fit_warm_start(images, conditions, centres=10, rng=np.random.default_rng(0))
    assert held_out.shape == images.shape
    assert regression.guess(conditions, (4, 5, 1)).shape == images.shape


def test_equal_conditions_get_the_mean_image_of_the_others() -> None:
    images = np.full((60, 2, 2, 1), 100, np.uint8)
    images[30:] = 200
    regression, _ = fit_warm_start(images, np.ones((60, 4)), centres=20, rng=np.random.default_rng(0))
    assert np.abs(regression.guess(np.ones((1, 4)), (2, 2, 1)).astype(int) - 150).max() <= 1
