"""Bootstrap of means: coverage. The permutation test: exactness, and what it finds."""

from __future__ import annotations

import numpy as np
import pytest

from fedassay.audits.stats.permutation import gap
from fedassay.audits.stats.resampling import difference, mean_of, resampled


def test_the_interval_of_a_mean_covers() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        found = resampled(80, mean_of(rng.normal(1.0, 1.0, 80)), rng, draws=400)
        covered += found.low <= 1.0 <= found.high
    # 95 % nominal; the percentile bootstrap loses about one point at n = 80.
    assert 0.91 <= covered / 400 <= 0.98


def test_a_real_difference_passes() -> None:
    rng = np.random.default_rng(3)
    base = rng.normal(size=200)
    found = resampled(200, difference(mean_of(base + 0.3), mean_of(base)), rng)
    assert found.low > 0
    assert found.value == pytest.approx(0.3)


def test_one_row_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 rows"):
        resampled(1, mean_of(np.zeros(1)), np.random.default_rng(0))


@pytest.mark.long
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
