"""Epsilon lower bounds: silent on noise, below the truth at the nominal rate, and close to it."""

import math

import numpy as np
import pytest
from scipy.stats import nct, ttest_ind

from fedassay.audits.stats.gdp_bound import gdp_bound, mu_lower_bound
from fedassay.audits.stats.threshold_bound import threshold_bound
from fedassay.privacy import reruns
from fedassay.privacy.gaussian import calibrate_sigma, epsilon_of

DELTA = 1e-5
TRUTH = epsilon_of(1.0, DELTA)  # of N(0,1) against N(1,1): 4.377
# 400 trials at 5 %: 7.5 % is 2.3 standard deviations above.
TRIALS, ALLOWED = 400, 0.075


LAWS = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "heavy": lambda rng, n: rng.standard_t(2, n),
    "skewed": lambda rng, n: rng.exponential(size=n),
    "few values": lambda rng, n: rng.integers(0, 3, n).astype(float),
}


def pure_noise(law, n):
    for seed in range(TRIALS):
        rng = np.random.default_rng([seed, n])
        yield LAWS[law](rng, n), LAWS[law](rng, n), rng


@pytest.mark.parametrize(("law", "n"), [*((law, 100) for law in LAWS), ("normal", 1000)])
def test_threshold_bound_is_silent_on_noise_of_any_shape(law, n):
    claims = [threshold_bound(a, b, delta=0.0, rng=rng).epsilon > 0 for a, b, rng in pure_noise(law, n)]
    assert np.mean(claims) <= ALLOWED


@pytest.mark.parametrize(("law", "n"), [*((law, 100) for law in LAWS), ("normal", 1000)])
def test_bonferroni_over_ranks_is_silent_on_noise_of_any_shape(law, n):
    claims = [
        threshold_bound(a, b, delta=0.0, rng=rng, choice="bonferroni").epsilon > 0
        for a, b, rng in pure_noise(law, n)
    ]
    assert np.mean(claims) <= ALLOWED


def test_bonferroni_over_ranks_shows_more_than_half_of_the_scores_and_stays_below_the_truth():
    for mu, n in ((1.0, 1000), (1.0, 5000), (2.0, 5000)):
        split, ranks = [], []
        for seed in range(60):
            rng = np.random.default_rng(seed)
            a, b = rng.standard_normal(n), rng.standard_normal(n) + mu
            split.append(threshold_bound(a, b, delta=DELTA, rng=rng).epsilon)
            ranks.append(threshold_bound(a, b, delta=DELTA, rng=rng, choice="bonferroni").epsilon)
        assert np.median(ranks) > 1.03 * np.median(split)
        assert max(ranks) <= epsilon_of(mu, DELTA)


def test_bonferroni_over_ranks_covers_randomised_response_and_sees_every_side():
    keep, bounds = 1 / (1 + math.exp(-1.0)), []
    for seed in range(TRIALS):
        rng = np.random.default_rng(seed)
        zero, one = (rng.random(2000) > keep).astype(float), (rng.random(2000) < keep).astype(float)
        bounds.append(threshold_bound(zero, one, delta=0.0, rng=rng, choice="bonferroni").epsilon)
    assert np.mean(np.array(bounds) > 1.0) <= ALLOWED
    plain = rng.standard_normal(4000)
    for direction in (1, -1):
        odd = np.where(rng.random(4000) < 0.2, 50.0 * direction, rng.standard_normal(4000))
        for pair in ((plain, odd), (odd, plain)):
            assert threshold_bound(*pair, delta=DELTA, rng=rng, choice="bonferroni").epsilon > 3.5


@pytest.mark.parametrize("n", [50, 4000])
def test_bonferroni_over_ranks_is_clopper_and_pearsons_of_none_and_all_for_scores_apart(n):
    """Of n of n and of none of n these are a^(1/n) and 1 - a^(1/n), a what each of two bounds an event may err."""
    ranks = {0} | {int(min(1.6**power, n / 2)) for power in range(40)}
    error = 0.05 / (2 * 4 * len(ranks))
    low = error ** (1 / n)
    rng = np.random.default_rng(0)
    bound = threshold_bound(rng.random(n), 2 + rng.random(n), delta=DELTA, rng=rng, choice="bonferroni")
    assert bound.epsilon == pytest.approx(math.log((low - DELTA) / (1 - low)), rel=1e-9)


def test_gdp_bound_is_refused_below_a_thousand_releases_a_side():
    """Laplace scores pass for Gaussian at 100 a side, where the bound exceeded the truth in a third of runs."""
    for n in (100, 999):
        for seed in range(20):
            rng = np.random.default_rng([seed, n])
            bound = gdp_bound(rng.laplace(size=n), rng.laplace(size=5000) + 1, delta=DELTA)
            assert bound.epsilon is None
            assert "1000 a side" in bound.reason
    assert gdp_bound(rng.standard_normal(1000), rng.standard_normal(1000), delta=DELTA).epsilon is not None


@pytest.mark.parametrize("law", LAWS)
def test_gdp_bound_does_not_over_claim_at_its_least_number(law):
    """Of heavy or skewed scores it is refused; of few-valued ones too."""
    over = []
    for seed in range(TRIALS):
        rng = np.random.default_rng([seed, 1])
        bound = gdp_bound(LAWS[law](rng, 1000), LAWS[law](rng, 1000) + 1, delta=DELTA)
        truth = 1.0 if law == "normal" else 0.0  # no mu belongs to the other laws: any bound is too much
        over.append(bound.mu is not None and bound.mu > truth)
    assert np.mean(over) <= ALLOWED


@pytest.mark.parametrize("law", LAWS)
def test_gdp_bound_is_silent_on_noise_of_any_shape(law):
    bounds = [gdp_bound(a, b, delta=DELTA) for a, b, _ in pure_noise(law, 1000)]
    assert np.mean([bound.mu is not None and bound.mu > 0 for bound in bounds]) <= ALLOWED


@pytest.mark.long
@pytest.mark.parametrize("n", [30, 400])
def test_mu_bound_has_exactly_its_nominal_coverage(n):
    """Both the noncentral t and its large-sample form: a 95 % bound exceeds the truth in 5 % of runs."""
    for mu in (0.0, 1.0, 3.0):
        rng = np.random.default_rng(17)
        zero, one = rng.standard_normal((4000, n)), rng.standard_normal((4000, n)) + mu
        runs = 4000 if n > 250 else 400
        above = [mu_lower_bound(a, b) > mu for a, b in zip(zero[:runs], one[:runs], strict=True)]
        assert np.mean(above) == pytest.approx(0.05, abs=3.5 * math.sqrt(0.05 * 0.95 / runs))


def test_the_two_forms_of_the_mu_bound_agree_where_they_meet():
    rng = np.random.default_rng(3)
    for mu in (0.0, 0.5, 4.0):
        a, b = rng.standard_normal(251), rng.standard_normal(251) + mu
        exact = mu_lower_bound(a[:-1], b[:-1])  # 498 degrees of freedom: noncentral t
        spread = math.sqrt((a[:-1].var(ddof=1) + b[:-1].var(ddof=1)) / 2)
        t = (b[:-1].mean() - a[:-1].mean()) / spread * math.sqrt(125)
        normal = (t * (1 - 1 / (4 * 498)) - 1.6448536 * math.sqrt(1 + t * t / 996)) / math.sqrt(125)
        assert exact == pytest.approx(normal, abs=0.01 * math.sqrt(2 / 250 + mu**2 / 1000))


@pytest.mark.parametrize(("sizes", "confidence"), [((7, 12), 0.95), ((40, 25), 0.8)])
def test_the_mu_bound_inverts_the_two_sample_t_of_scores_on_any_scale(sizes, confidence):
    rng = np.random.default_rng(0)
    zero, one = (rng.standard_normal(size) + shift for size, shift in zip(sizes, (0.0, 1.5), strict=True))
    t = float(ttest_ind(one, zero).statistic)
    found = mu_lower_bound(zero, one, confidence=confidence)
    centre = found * math.sqrt(sizes[0] * sizes[1] / sum(sizes))
    assert float(nct.sf(t, sum(sizes) - 2, centre)) == pytest.approx(1 - confidence, abs=1e-6)
    for scale in (1e-3, 50.0):
        moved = mu_lower_bound(scale * zero + 3, scale * one + 3, confidence=confidence)
        assert moved == pytest.approx(found, rel=1e-6)


def test_gdp_bound_refuses_what_it_assumes_away():
    rng = np.random.default_rng(0)
    normal = rng.standard_normal(2000)
    for bad, why in (
        (rng.standard_t(3, 2000), "not Gaussian"),
        (rng.laplace(size=1000), "not Gaussian"),
        (rng.exponential(size=2000), "not Gaussian"),
        (2 * rng.standard_normal(2000), "equally spread"),
        (np.full(2000, 3.0), "no spread"),
        (np.full(2000, math.inf), "infinite"),
    ):
        for pair in ((normal, bad), (bad, normal)):
            bound = gdp_bound(*pair, delta=DELTA)
            assert bound.epsilon is None
            assert why in bound.reason


def test_gdp_bound_rarely_refuses_gaussian_scores():
    refused = [gdp_bound(a, b, delta=DELTA).epsilon is None for a, b, _ in pure_noise("normal", 1000)]
    assert np.mean(refused) <= 0.02


def test_medians_on_a_known_gaussian_pair():
    gdp, threshold = [], []
    for seed in range(50):
        rng = np.random.default_rng(seed)
        a, b = rng.standard_normal(5000), rng.standard_normal(5000) + 1
        gdp.append(gdp_bound(a, b, delta=DELTA).epsilon or math.nan)
        threshold.append(threshold_bound(a, b, delta=DELTA, rng=rng).epsilon)
    assert 3.7 <= np.nanmedian(gdp) <= TRUTH
    assert 1.5 <= np.median(threshold) <= TRUTH
    assert np.mean(np.array(gdp) > TRUTH) <= 0.14  # 5 % of 50, plus 3 standard deviations
    assert max(threshold) <= TRUTH


def test_threshold_bound_covers_randomised_response():
    """A mechanism whose epsilon a two-valued score attains: the bound exceeds it in at most 5 % of runs."""
    epsilon = 1.0
    keep = 1 / (1 + math.exp(-epsilon))
    bounds = []
    for seed in range(TRIALS):
        rng = np.random.default_rng(seed)
        zero, one = (rng.random(2000) > keep).astype(float), (rng.random(2000) < keep).astype(float)
        bounds.append(threshold_bound(zero, one, delta=0.0, rng=rng).epsilon)
    assert np.mean(np.array(bounds) > epsilon) <= ALLOWED
    assert np.median(bounds) >= 0.8 * epsilon


def test_threshold_bound_sees_a_one_sided_leak_in_either_direction():
    """Mass that only one data set can produce: the ratio is infinite one way and harmless the other."""
    rng = np.random.default_rng(0)
    plain = rng.standard_normal(4000)
    for direction in (1, -1):
        odd = np.where(rng.random(4000) < 0.2, 50.0 * direction, rng.standard_normal(4000))
        for pair in ((plain, odd), (odd, plain)):
            assert threshold_bound(*pair, delta=DELTA, rng=rng).epsilon > 3.5


def test_delta_is_paid_for():
    """A leak of probability 0.05 is nothing at delta 0.1 and a large epsilon at delta 0."""
    rng = np.random.default_rng(1)
    plain, odd = rng.random(4000), np.where(rng.random(4000) < 0.05, 9.0, rng.random(4000))
    assert threshold_bound(plain, odd, delta=0.0, rng=rng).epsilon > 2
    assert threshold_bound(plain, odd, delta=0.1, rng=rng).epsilon == 0


def test_noise_free_scores_are_caught():
    zero, one = np.full(2000, -math.inf), np.full(2000, math.inf)
    bound = threshold_bound(zero, one, delta=DELTA, rng=np.random.default_rng(0))
    assert bound.epsilon > 5


def test_tight_fedpft_is_observed_close_to_its_accounted_epsilon():
    """Mechanism `tight` at epsilon 1, n = 500, 10^5 reruns a side: at least 85 % of what is accounted."""
    n, epsilon = 500, 1.0
    sigma = calibrate_sigma(epsilon, DELTA, math.sqrt(4.5) / n)
    experiment = reruns.mean_second_moment(n, sigmas=(sigma, sigma))
    assert epsilon_of(experiment.mu, DELTA) == pytest.approx(epsilon, rel=1e-9)
    found = []
    for seed in range(9):
        zero, one = reruns.llr_scores(experiment, reruns=100_000, rng=np.random.default_rng(seed))
        found.append(gdp_bound(zero, one, delta=DELTA).epsilon or math.nan)
    assert 0.85 * epsilon <= np.nanmedian(found) <= epsilon


@pytest.mark.parametrize(
    "call",
    [
        lambda rng: threshold_bound([1, 2, 3], [1, 2, 3, 4], delta=0.0, rng=rng),
        lambda rng: threshold_bound([1, 2, 3, math.nan], [1, 2, 3, 4], delta=0.0, rng=rng),
        lambda rng: threshold_bound(np.ones(9), np.ones(9), delta=1.0, rng=rng),
        lambda rng: threshold_bound(np.ones(9), np.ones(9), delta=0.0, rng=rng, confidence=1.0),
        lambda rng: threshold_bound(np.ones((9, 2)), np.ones(9), delta=0.0, rng=rng),
        lambda rng: gdp_bound(np.arange(1.0), np.arange(50.0), delta=DELTA),
        lambda rng: gdp_bound(np.arange(50.0), np.arange(50.0), delta=0.0),
    ],
)
def test_nonsense_is_refused(call):
    with pytest.raises(ValueError, match=r"must|needed"):
        call(np.random.default_rng(0))
