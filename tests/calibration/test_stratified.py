"""The stratified permutation test: exact under the hypothesis, whatever the strata; powerful otherwise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest, kstest

from fedassay.audits.stats.stratified import stratified_gap


def _groups(rng: np.random.Generator, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two groups of 30 in three strata with very different means."""
    strata = np.repeat([0, 5, 900], 10)
    first, second = (rng.normal(strata * 3.0, 1.0) for _ in range(2))
    return first + shift, second, strata


@pytest.mark.long
def test_p_values_are_uniform_when_nothing_differs() -> None:
    rng = np.random.default_rng(0)
    values = []
    for _ in range(1600):
        first, second, strata = _groups(rng)
        values.append(stratified_gap(first, second, (strata, strata), rng, draws=200).p)
    assert kstest(values, "uniform").pvalue > 0.01
    # At most the nominal share of false alarms, plus sampling error.
    assert binomtest(sum(p <= 0.05 for p in values), 1600, 0.05, alternative="greater").pvalue > 0.01


def test_strata_take_their_differences_out() -> None:
    """A shift that is small beside the strata, and that a test without them does not see."""
    rng = np.random.default_rng(1)
    first, second, strata = _groups(rng, shift=1.0)
    one = np.zeros(30, np.int64)
    assert stratified_gap(first, second, (strata, strata), rng, draws=2000).p < 0.01
    assert stratified_gap(first, second, (one, one), rng, draws=2000).p > 0.05


def test_groups_of_different_size_and_one_sided() -> None:
    rng = np.random.default_rng(2)
    first, second = rng.normal(1, 1, 40), rng.normal(0, 1, 25)
    labels = (np.arange(40) % 2, np.arange(25) % 2)
    up = stratified_gap(first, second, labels, rng)
    assert up.p < 0.01
    assert up.value == pytest.approx(first.mean() - second.mean())
    assert up.low < up.value < up.high
    assert up.n == (40, 25)
    assert stratified_gap(second, first, (labels[1], labels[0]), rng).p > 0.9


def test_what_it_refuses() -> None:
    rng = np.random.default_rng(0)
    zeros = np.zeros(2, np.int64)
    with pytest.raises(ValueError, match="nothing can be swapped"):
        stratified_gap(np.ones(2), np.ones(2), (zeros, zeros + 1), rng)
    with pytest.raises(ValueError, match="at least 2 finite"):
        stratified_gap(np.array([1.0, np.nan]), np.ones(2), (zeros, zeros), rng)
