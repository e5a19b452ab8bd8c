"""Intervals: coverage by simulation, exactness where it is promised, and sane ends."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from fedassay.audits.stats.intervals import clopper_pearson, wilson


def test_clopper_pearson_covers_every_proportion():
    """Exact coverage by summing over outcomes, two-sided and one-sided."""
    n = 40
    k = np.arange(n + 1)
    for p in np.linspace(0.005, 0.995, 60):
        mass = binom.pmf(k, n, p)
        for confidence in (0.9, 0.95, 0.99):
            two = clopper_pearson(k, n, confidence=confidence)
            lower = clopper_pearson(k, n, confidence=confidence, side="lower")
            upper = clopper_pearson(k, n, confidence=confidence, side="upper")
            assert mass[(two.low <= p) & (p <= two.high)].sum() >= confidence - 1e-12
            assert mass[lower.low <= p].sum() >= confidence - 1e-12
            assert mass[p <= upper.high].sum() >= confidence - 1e-12


def test_proportions_agree_with_scipy():
    for k, n in ((0, 10), (3, 10), (10, 10), (77, 1000)):
        for method, ours in (("exact", clopper_pearson), ("wilson", wilson)):
            theirs = binomtest(k, n).proportion_ci(0.95, method=method)
            got = ours(k, n)
            assert (float(got.low), float(got.high)) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def test_proportions_are_vectorised():
    low, high = clopper_pearson([[0, 1], [5, 9]], 10)
    assert low.shape == high.shape == (2, 2)
    assert low[0, 0] == 0
    assert float(clopper_pearson(3, 10).low) == clopper_pearson([3], [10]).low[0]
    assert wilson([0, 10], 10).low[0] == 0
    assert wilson([0, 10], 10).high[1] == 1


def test_wilson_covers_on_average():
    n, k = 50, np.arange(51)
    interval = wilson(k, n)
    grid = np.linspace(0.02, 0.98, 200)
    coverage = [binom.pmf(k, n, p)[(interval.low <= p) & (p <= interval.high)].sum() for p in grid]
    assert np.mean(coverage) == pytest.approx(0.95, abs=0.01)


@settings(max_examples=50, deadline=None)
@given(n=st.integers(1, 10**6), share=st.floats(0, 1), confidence=st.floats(0.5, 0.999))
def test_proportion_intervals_contain_the_estimate(n, share, confidence):
    k = round(share * n)
    for interval in (clopper_pearson(k, n, confidence=confidence), wilson(k, n, confidence=confidence)):
        assert 0 <= interval.low <= k / n + 1e-12
        assert k / n - 1e-12 <= interval.high <= 1


@pytest.mark.parametrize(
    "call",
    [
        lambda: clopper_pearson(5, 4),
        lambda: clopper_pearson(0, 0),
        lambda: clopper_pearson(1, 4, confidence=1.0),
        lambda: wilson(-1, 4),
    ],
)
def test_nonsense_is_refused(call):
    with pytest.raises(ValueError, match="must"):
        call()
