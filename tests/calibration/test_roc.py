import math

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from sklearn.metrics import roc_auc_score
from sklearn.metrics import roc_curve as sklearn_roc

from fedassay.audits.stats.roc import auc, roc_curve, tpr_at_fpr


def samples(seed, n0=300, n1=200, shift=1.0, ties=False):
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal(n0), rng.standard_normal(n1) + shift
    return (np.round(a), np.round(b)) if ties else (a, b)


@pytest.mark.parametrize("ties", [False, True])
def test_curve_and_area_agree_with_sklearn(ties):
    a, b = samples(0, ties=ties)
    truth = np.concatenate([np.zeros(len(a)), np.ones(len(b))])
    fpr, tpr, _ = sklearn_roc(truth, np.concatenate([a, b]), drop_intermediate=False)
    ours = roc_curve(a, b)
    np.testing.assert_allclose(ours.fpr, fpr)
    np.testing.assert_allclose(ours.tpr, tpr)
    area = auc(a, b)
    assert area.value == pytest.approx(roc_auc_score(truth, np.concatenate([a, b])))
    assert area.value == pytest.approx(np.trapezoid(ours.tpr, ours.fpr))
    assert area.low < area.value < area.high


@pytest.mark.parametrize("shift", [0.0, 0.5, 1.5, 3.0])
def test_auc_coverage(shift):
    truth = float(ndtr(shift / math.sqrt(2)))
    hits = []
    for seed in range(500):
        rate = auc(*samples(seed, 80, 60, shift))
        hits.append(rate.low <= truth <= rate.high)
    assert 0.92 <= np.mean(hits) <= 1.0


@pytest.mark.long
@pytest.mark.parametrize(
    ("n0", "n1", "spread", "shift"),
    [(90, 30, 3.0, 0.0), (300, 100, 3.0, 0.0), (300, 30, 3.0, 0.0), (60, 60, 3.0, 0.0), (90, 30, 3.0, 2.0)],
)
def test_auc_coverage_of_unlike_sizes_and_spreads(n0, n1, spread, shift):
    """By Hanley and McNeil's variance alone these were .85 to .93."""
    truth = float(ndtr(shift / math.hypot(1.0, spread)))
    hits = []
    for seed in range(500):
        zero, one = samples([seed, n0, n1], n0, n1, 0.0)
        rate = auc(zero, spread * one + shift)
        hits.append(rate.low <= truth <= rate.high)
    assert np.mean(hits) >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / 500)


def test_auc_false_alarms_on_noise():
    """As a two-sided 95 % interval: its lower end is above 1/2 in at most 2.5 % of runs, plus sampling."""
    alarms = [auc(*samples(seed, 100, 100, 0.0)).low > 0.5 for seed in range(1000)]
    assert np.mean(alarms) <= 0.04


def test_perfect_separation_keeps_an_honest_interval():
    best = auc([0.0, 1.0, 2.0], [3.0, 4.0, 5.0])
    assert (best.value, best.high) == (1.0, 1.0)
    assert 0.3 < best.low < 1.0
    worst = auc([3.0, 4.0, 5.0], [0.0, 1.0, 2.0])
    assert (worst.value, worst.low) == (0.0, 0.0)
    assert 0.0 < worst.high < 0.7
    many = auc(np.zeros(1000), np.ones(1000))
    assert many.low > 0.99


def test_tpr_at_low_fpr_covers_what_a_fresh_sample_would_show():
    """The threshold's false-positive rate is at most nominal on average over data sets."""
    rates = []
    for seed in range(400):
        zero, one = samples(seed, 199, 500, 1.0)
        rate = tpr_at_fpr(zero, one, 0.05)
        threshold = np.sort(zero)[-10]
        rates.append(1 - ndtr(threshold))
        truth = 1 - ndtr(threshold - 1.0)
        assert rate.value == np.mean(one > threshold)
        assert rate.low - 0.05 <= truth <= rate.high + 0.05
    assert np.mean(rates) == pytest.approx(0.05, abs=0.003)


@pytest.mark.parametrize(("n", "fpr"), [(20, 0.1), (100, 0.1), (100, 0.01), (1000, 0.01)])
@pytest.mark.parametrize("rounded", [False, True])
def test_the_interval_of_a_rate_counts_the_threshold_s_own_error(n, fpr, rounded):
    """Its target is the rate at the true threshold, which no sample of non-members gives."""
    threshold = ndtri(1 - fpr)
    if rounded:
        # Scores in halves: the lowest threshold that at most a share of non-members exceeds.
        grid = np.arange(-8, 16) / 2
        threshold = grid[np.flatnonzero(ndtr(-(grid + 0.25)) <= fpr)[0]] + 0.25
    truth, covered = float(ndtr(1.0 - threshold)), []
    for seed in range(1000):
        zero, one = samples([seed, n], n, n, 1.0)
        if rounded:
            zero, one = np.round(2 * zero) / 2, np.round(2 * one) / 2
        rate = tpr_at_fpr(zero, one, fpr)
        if rate.value is None:
            return
        assert rate.low <= rate.value <= rate.high
        covered.append(rate.low <= truth <= rate.high)
    assert np.mean(covered) >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / 1000)


def test_the_interval_of_a_rate_is_narrow_where_scores_are_many():
    zero, one = samples(1, 4000, 4000, 1.0)
    rate = tpr_at_fpr(zero, one, 0.1)
    assert rate.high - rate.low < 0.12
    assert rate.low > 0.05


def test_a_false_positive_rate_that_cannot_be_resolved_is_absent_not_zero():
    rate = tpr_at_fpr(*samples(0, 500, 200), 0.001)
    assert rate.value is None
    assert rate.low is None
    assert "999" in rate.reason
    assert tpr_at_fpr(*samples(0, 999, 200), 0.001).value is not None


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match="fpr"):
        tpr_at_fpr([1.0, 2.0], [1.0, 2.0], 0.0)
    with pytest.raises(ValueError, match="NaN"):
        auc([1.0, math.nan], [1.0, 2.0])
