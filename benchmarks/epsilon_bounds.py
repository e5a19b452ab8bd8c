"""Lower bounds on epsilon from 5,000 + 5,000 scores, against jax_privacy's Clopper-Pearson and Gaussian-DP ones.

    python benchmarks/epsilon_bounds.py

jax_privacy is optional (`pip install jax-privacy`); without it the peers are plain writings of the same two
estimators: the threshold one in a loop over all thresholds with SciPy's beta quantiles, corrected for their
number, and the Gaussian one by a scan over mu with SciPy's noncentral t. PrivacyGuard is in no package index.

False claims: the share of runs on pure noise (one distribution on both sides) whose 95 % bound is above 0. Its
95 % interval must not lie above 5 %. A bound of ours must not exceed the truth of N(0, 1) against N(1, 1).
"""

from __future__ import annotations

import measure
import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, nct

from fedassay.audits.stats.gdp_bound import gdp_bound
from fedassay.audits.stats.intervals import clopper_pearson
from fedassay.audits.stats.threshold_bound import threshold_bound
from fedassay.privacy.gaussian import epsilon_of

AS_FAST = 0.95
"""Medians of two equally fast programs on a shared machine differ by as much."""

TARGET, SCORES, DELTA, LEVEL = 1.0, 5000, 1e-5, 0.05
Scores = NDArray[np.float64]


def scores(number: int, mu: float, seed: int) -> tuple[Scores, Scores]:
    rng = np.random.default_rng([seed, number])
    return rng.standard_normal(number), rng.standard_normal(number) + mu


def our_threshold(zero: Scores, one: Scores) -> float:
    return threshold_bound(zero, one, delta=DELTA, rng=np.random.default_rng(0)).epsilon or 0.0


def our_gaussian(zero: Scores, one: Scores) -> float:
    return gdp_bound(zero, one, delta=DELTA).epsilon or 0.0


def plain_threshold(zero: Scores, one: Scores) -> float:
    """Clopper-Pearson at every threshold, both directions, Bonferroni over all of them."""
    thresholds = np.unique(np.concatenate([zero, one]))
    error, best = LEVEL / (4 * len(thresholds)), 0.0
    for threshold in thresholds:
        above0, above1 = int((zero > threshold).sum()), int((one > threshold).sum())
        for likely, n1, rare, n0 in ((above1, len(one), above0, len(zero)),
                                     (len(zero) - above0, len(zero), len(one) - above1, len(one))):  # fmt: skip
            low = beta.ppf(error, likely, n1 - likely + 1) if likely else 0.0
            high = beta.ppf(1 - error, rare + 1, n0 - rare) if rare < n0 else 1.0
            if low > DELTA:
                best = max(best, float(np.log((low - DELTA) / high)))
    return best


def plain_gaussian(zero: Scores, one: Scores) -> float:
    """The largest mu on a grid of 10^-3 that the two-sample t statistic rejects."""
    n0, n1 = len(zero), len(one)
    pooled = np.sqrt(((n0 - 1) * zero.var(ddof=1) + (n1 - 1) * one.var(ddof=1)) / (n0 + n1 - 2))
    root = np.sqrt(n0 * n1 / (n0 + n1))
    t = (one.mean() - zero.mean()) / pooled * root
    grid = np.arange(0, max(t / root, 0) + 1e-3, 1e-3)
    rejected = grid[nct.sf(t, n0 + n1 - 2, grid * root) <= LEVEL]
    return epsilon_of(float(rejected[-1]), DELTA) if len(rejected) else 0.0


def peers() -> tuple[str, dict[str, object]]:
    try:
        from jax_privacy.auditing import CanaryScoreAuditor
    except ImportError:
        return "plain writings of the same estimators (jax_privacy not installed)", {
            "threshold": plain_threshold, "gaussian": plain_gaussian,
        }  # fmt: skip
    return "jax_privacy epsilon_clopper_pearson and epsilon_from_gdp", {
        "threshold": lambda a, b: CanaryScoreAuditor(b, a).epsilon_clopper_pearson(LEVEL, DELTA, False),
        "gaussian": lambda a, b: CanaryScoreAuditor(b, a).epsilon_from_gdp(LEVEL, DELTA),
    }


def false_claims(estimate: object, number: int, runs: int) -> int:
    assert callable(estimate)
    return sum(estimate(*scores(number, 0.0, seed)) > 0 for seed in range(runs))


def check(number: int, runs: int) -> dict[str, int]:
    """Asserts that ours stay below the truth, near a plain writing, and claim nothing on noise too often."""
    zero, one = scores(number, 1.0, 0)
    truth = epsilon_of(1.0, DELTA)
    assert 0 < our_threshold(zero, one) <= truth
    assert abs(our_gaussian(zero, one) - plain_gaussian(zero, one)) < 0.02
    claims = {}
    for name, ours in (("threshold", our_threshold), ("gaussian", our_gaussian)):
        claims[name] = false_claims(ours, number, runs)
        low = float(clopper_pearson(claims[name], runs).low)
        assert low <= LEVEL, f"{name}: {claims[name]} false claims in {runs} runs on noise"
    return claims


def run(full: bool = False, repeats: int = 3) -> measure.Row:
    """The row: the worse of the two ratios decides."""
    runs = 2000 if full else 200
    zero, one = scores(SCORES, 1.0, 0)
    our_threshold(zero, one), our_gaussian(zero, one)
    peak = measure.peak_mib()
    claims = check(SCORES, runs)
    name, theirs = peers()
    ratios, of_cpu, peer_claims = {}, {}, {}
    for which, ours in (("threshold", our_threshold), ("gaussian", our_gaussian)):
        other = theirs[which]
        assert callable(other)
        ours(zero, one), other(zero, one)
        a, b = measure.alternate(
            lambda call=other: [call(zero, one) for _ in range(20)],
            lambda call=ours: [call(zero, one) for _ in range(20)],
            repeats=repeats,
        )  # fmt: skip
        ratios[which], of_cpu[which] = a.elapsed / b.elapsed, a.cpu / b.cpu
        if name.startswith("jax"):
            peer_claims[which] = false_claims(other, SCORES, 50)
    return {
        "row": "lower-bound estimators, 5,000 + 5,000 scores",
        "ratio": round(min(ratios.values()), 2),
        "target": TARGET,
        "met": min(*ratios.values(), *of_cpu.values()) >= AS_FAST,
        "ratio_of_cpu": round(min(of_cpu.values()), 2),
        "peer": name,
        **{f"ratio_{which}": round(value, 1) for which, value in ratios.items()},
        "false_claims": {which: f"{count} of {runs}" for which, count in claims.items()},
        "peer_false_claims": {which: f"{count} of 50" for which, count in peer_claims.items()},
        "ours_bounds": [round(our_threshold(zero, one), 3), round(our_gaussian(zero, one), 3)],
        "truth": round(epsilon_of(1.0, DELTA), 3),
        "peak_mib": peak,
    }


if __name__ == "__main__":
    measure.main(run, __doc__)
