"""Bootstrap of selected means: coverage, and how often a null difference passes the corrected bar."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t

from fedassay.audits.stats.permutation import gap
from fedassay.audits.stats.resampling import ALONE, difference, mean_of, mean_of_top, resampled


def test_the_interval_of_a_mean_covers() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        found = resampled(80, mean_of(rng.normal(1.0, 1.0, 80)), rng, draws=400)
        covered += found.low <= 1.0 <= found.high
    # 95 % nominal; the percentile bootstrap loses about one point at n = 80.
    assert 0.91 <= covered / 400 <= 0.98


@pytest.mark.parametrize("tests", [1, 20])
def test_a_null_difference_of_means_seldom_passes(tests: int) -> None:
    rng = np.random.default_rng(1)
    passed = 0
    for _ in range(400):
        first, second = rng.normal(size=(2, 100))
        found = resampled(100, difference(mean_of(first), mean_of(second)), rng, tests=tests, draws=400)
        passed += found.corrected_low > 0
    # Nominal 0.05 / tests; three binomial standard deviations above it.
    assert passed / 400 <= 0.05 / tests + 3 * np.sqrt(0.05 / tests / 400)


@pytest.mark.long
@pytest.mark.parametrize("n", [2, 3, 5, 12])
@pytest.mark.parametrize("tests", [1, 20])
def test_few_rows_pass_no_oftener_than_many(n: int, tests: int) -> None:
    rng = np.random.default_rng(n)
    level, runs = 0.05 / tests, 2000
    rows = (rng.normal(size=n) for _ in range(runs))
    passed = sum(resampled(n, mean_of(each), rng, tests=tests, draws=200).corrected_low > 0 for each in rows)
    assert passed / runs <= level + 3 * np.sqrt(level / runs)


def test_a_null_difference_of_the_best_seldom_passes() -> None:
    """Each side chooses its own best twenty of 300, as the oracle selections do."""
    rng = np.random.default_rng(2)
    passed = 0
    for _ in range(300):
        first, second = rng.beta(5, 2, size=(2, 300))
        statistic = difference(mean_of_top(first, first, 20), mean_of_top(second, second, 20))
        passed += resampled(300, statistic, rng, tests=6, draws=400).corrected_low > 0
    assert passed / 300 <= 0.05


def test_where_the_draws_reach_so_far_the_lower_of_two_ends_counts() -> None:
    """With two rows far below, that is the bootstrap's quantile; few draws do not reach it: Student's counts."""
    values = np.append(np.random.default_rng(8).normal(0.0, 0.1, 58), [-20.0, -20.0])
    drawn = values[np.random.default_rng(9).integers(0, 60, size=(20_000, 60))].mean(axis=1)
    quantile = float(np.quantile(drawn, ALONE))
    student = float(values.mean() - t.isf(ALONE, 59) * values.std(ddof=1) / np.sqrt(60))
    assert quantile < student - 0.15
    many = resampled(60, mean_of(values), np.random.default_rng(10), draws=20_000).alone_low
    assert many == pytest.approx(quantile, abs=0.04)
    few = [resampled(60, mean_of(values), np.random.default_rng(seed), draws=200).alone_low for seed in range(40)]
    assert np.mean(few) == pytest.approx(student, abs=0.04)


def test_a_real_difference_passes() -> None:
    rng = np.random.default_rng(3)
    base = rng.normal(size=200)
    found = resampled(200, difference(mean_of(base + 0.3), mean_of(base)), rng, tests=20)
    assert found.corrected_low > 0
    assert found.value == pytest.approx(0.3)


def test_the_selection_is_redone_in_every_resample() -> None:
    """The mean of the best is higher than the mean of a fixed choice would spread."""
    rng = np.random.default_rng(4)
    values = rng.normal(size=500)
    found = resampled(500, mean_of_top(values, values, 25), rng)
    assert found.value == pytest.approx(np.sort(values)[-25:].mean())
    assert found.low < found.value < found.high
    fixed = np.sort(values)[-25:]
    assert found.high - found.low > 2 * fixed.std() / 5


def test_one_row_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 rows"):
        resampled(1, mean_of(np.zeros(1)), np.random.default_rng(0))


@pytest.mark.parametrize("share", [1.0, 0.05])
def test_the_permutation_test_is_exact(share: float) -> None:
    """Exchangeable groups of unequal size: p <= 0.05 in no more than 5 %, whatever the scores look like."""
    rng = np.random.default_rng(5)
    small = sum(
        gap(scores[:300], scores[300:], rng, share=share, draws=300).p <= 0.05
        for scores in rng.beta(8, 2, size=(300, 400)) ** 3
    )
    assert small / 300 <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 300)
    assert small / 300 >= 0.01


def test_the_permutation_test_finds_a_few_that_leak() -> None:
    rng = np.random.default_rng(6)
    private, fresh = rng.beta(8, 4, size=400), rng.beta(8, 4, size=160)
    private[:20] = 0.99
    assert gap(private, fresh, rng, share=0.05, tests=100).p <= 0.05 / 100
    assert gap(private, fresh, rng, tests=100).p > 0.05 / 100


def test_a_gap_of_too_few_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        gap(np.zeros(1), np.zeros(5), np.random.default_rng(0))
