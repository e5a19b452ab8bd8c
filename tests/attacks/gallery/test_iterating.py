"""Conjugate gradients without a kernel give what a kernel gives, as exactly, though their steps are float32's."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from fedassay.attacks.gallery import iterating
from fedassay.attacks.gallery.iterating import conjugate_gradients, operations
from fedassay.attacks.gallery.system import System, system_of
from fedassay.exchange.blocks import LinearBlock

Matrix = NDArray[np.float64]
WIDTH, LABELS, COUNT = 30, 3, 400


def made(seed: int, *, free_ridge: bool = False) -> tuple[System, Matrix, list[LinearBlock]]:
    """Class sums and a second moment of half of the candidates; the system, who is in, and the blocks."""
    rng = np.random.default_rng(seed)
    features = np.maximum(rng.standard_normal((COUNT, WIDTH)), 0) * rng.lognormal(0, 1, (COUNT, 1))
    labels, inside = rng.integers(0, LABELS, COUNT), (rng.random(COUNT) < 0.5).astype(np.float64)
    own = features * inside[:, None]
    first = np.stack([own[labels == label].sum(axis=0) for label in range(LABELS)])
    second = own.T @ own + 7.0 * free_ridge * np.eye(WIDTH)
    exactly = np.full(LABELS, 1e-15)
    blocks = [
        LinearBlock("A", "features", 1, True, first, np.zeros(LABELS), exactly),
        LinearBlock("B", "features", 2, False, second, np.zeros(1), exactly[:1], free_ridge),
    ]
    system = system_of(blocks, features, np.zeros((COUNT, 1, 1, 1), np.uint8), labels, missing=0)
    assert system is not None
    return system, inside, blocks


@pytest.mark.parametrize("free_ridge", [False, True])
def test_members_come_out_to_more_than_float32(free_ridge: bool) -> None:
    system, inside, _ = made(0, free_ridge=free_ridge)
    found = conjugate_gradients(system, np.arange(COUNT), system.side(), tolerance=1e-12)
    assert np.abs(found - inside).max() < 1e-7


def test_some_candidates_with_a_ridge_of_their_own() -> None:
    system, inside, _ = made(1)
    rows = np.flatnonzero(np.arange(COUNT) % 4 > 0)
    ridge = np.random.default_rng(0).uniform(0.5, 2, len(rows)) * float(np.median(system.lengths()))
    side = system.rest(0.5 * inside)
    kernel = system.kernel(rows) + np.diag(ridge)
    found = conjugate_gradients(system, rows, side, ridge, tolerance=1e-12)
    assert np.abs(found - np.linalg.solve(kernel, side[rows])).max() < 1e-9


def test_what_steps_are_taken_against_is_inverted_and_spares_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    system, _, _ = made(2)
    rows, scale = np.arange(COUNT), 1 / np.sqrt(system.lengths())
    nearly = iterating._Nearly.of(system, rows, scale)
    dense = nearly.factor.astype(np.float64) @ nearly.factor.T + nearly.multiple * np.eye(COUNT)
    values = np.random.default_rng(0).standard_normal(COUNT)
    assert np.abs(nearly.solve(dense @ values) - values).max() < 1e-3
    taken, solve = list[Matrix](), iterating._Nearly.solve

    def by_it(self: iterating._Nearly, values: Matrix) -> Matrix:
        taken.append(values)
        return solve(self, values)

    def by_nothing(self: iterating._Nearly, values: Matrix) -> Matrix:
        taken.append(values)
        return values

    steps = []
    for way in (by_it, by_nothing):
        monkeypatch.setattr(iterating._Nearly, "solve", way)
        taken.clear()
        conjugate_gradients(system, rows, system.side())
        steps.append(len(taken))
    assert steps[0] < 0.9 * steps[1]


def test_nothing_to_solve_for_is_zero() -> None:
    system, _, _ = made(3)
    assert not conjugate_gradients(system, np.arange(COUNT), np.zeros(COUNT)).any()


def test_operations_grow_with_candidates_and_their_numbers() -> None:
    _, _, blocks = made(4)
    assert 2**1.5 < operations(2_000, blocks) / operations(1_000, blocks) < 2**3
    assert operations(2_000, blocks[:1]) < operations(2_000, blocks)
