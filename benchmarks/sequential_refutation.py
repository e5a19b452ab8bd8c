"""Releases that refute a broken claim where one stops as soon as it falls, against 10^5 on either side.

    python benchmarks/sequential_refutation.py            50 audits a claim, 1,000 null runs
    python benchmarks/sequential_refutation.py --full     200 audits a claim, 5,000 null runs

A mechanism with half of the noise that its claim needs, at epsilon 0.5, 1, 2 and 4 and delta 1e-5, is audited as
`dp_claim` with `sequential: true` audits it: both estimators, at the level corrected for 50 bounds. `ratio` is
10^5 over the releases a side that the slowest claim's median audit took; the audit of 10^5 a side is timed
beside it.

Checked before: in null runs, where the mechanism meets its claim of 1 exactly and 4,000 releases a side are drawn
and looked at on the way, at 95 %, no more are refuted than the nominal 5 % allow (one-sided binomial test, 1e-3).
"""

from __future__ import annotations

from statistics import median

import measure
import numpy as np
from scipy.stats import binomtest

from fedassay.audits.claim.bounds import Estimator
from fedassay.audits.claim.sequential import SequentialSettings, Stopped, until_refuted
from fedassay.audits.stats.gdp_bound import gdp_bound
from fedassay.privacy.gaussian import mu_of
from fedassay.privacy.reruns import Experiment, llr_scores, shared_sums
from fedassay.privacy.variants import with_mu

TARGET, FIXED = 100, 100_000
CLAIMS, DELTA, TESTS = (0.5, 1.0, 2.0, 4.0), 1e-5, 50
NULL_CLAIM, NULL_RELEASES, ERROR, SIGNIFICANCE = 1.0, 4000, 0.05, 1e-3
BOTH: tuple[Estimator, ...] = ("gaussian", "threshold")


def mechanism(mu: float) -> Experiment:
    """The FedCGS statistics on their worst neighbours, noised to be exactly `mu`-GDP."""
    return with_mu(shared_sums(adjacency="add_remove", sigmas=(2.0, 2.0, 2.0)), mu)


def audited(claim: float, share: float, asked: SequentialSettings, seed: int) -> Stopped:
    """One audit of a mechanism with that share of the noise that its claim needs."""
    return until_refuted(mechanism(mu_of(claim, DELTA) / share), asked, np.random.default_rng([0, seed]))


def fixed(claim: float, share: float, seed: int) -> float:
    """The bound from 10^5 releases a side, looked at once."""
    zero, one = llr_scores(
        mechanism(mu_of(claim, DELTA) / share), reruns=FIXED, rng=np.random.default_rng([1, seed])
    )
    return gdp_bound(zero, one, delta=DELTA, confidence=1 - ERROR / TESTS).epsilon or 0.0


def check(runs: int) -> int:
    """Asserts that true claims fall at the nominal rate at most; how many of the null runs did."""
    asked = SequentialSettings(NULL_CLAIM, DELTA, 1, NULL_RELEASES, BOTH)
    fell = sum(audited(NULL_CLAIM, 1.0, asked, 10_000 + number).refuted for number in range(runs))
    p = binomtest(fell, runs, ERROR, alternative="greater").pvalue
    assert p > SIGNIFICANCE, f"{fell} of {runs} true claims fell, more than {ERROR:.0%} (p = {p:.2g})"
    return fell


def run(full: bool = False, repeats: int = 3) -> measure.Row:
    """The row of the performance table."""
    audits, nulls = (200, 5000) if full else (50, 1000)
    fell = check(nulls)
    taken, missed = {}, 0
    for claim in CLAIMS:
        asked = SequentialSettings(claim, DELTA, TESTS, FIXED, BOTH)
        stopped = [audited(claim, 0.5, asked, number) for number in range(audits)]
        missed += sum(not each.refuted for each in stopped)
        taken[claim] = sorted(each.bounds.n for each in stopped)
    peak = measure.peak_mib()
    assert fixed(1.0, 0.5, 0) > 1.0
    whole, short = measure.alternate(
        lambda: fixed(1.0, 0.5, 1),
        lambda: audited(1.0, 0.5, SequentialSettings(1.0, DELTA, TESTS, FIXED, BOTH), 1),
        repeats=repeats,
    )
    medians = {claim: median(each) for claim, each in taken.items()}
    ratio = FIXED / max(medians.values())
    return {
        "row": "refuting a claim of up to epsilon 4 with half of its noise: releases a side",
        "ratio": round(ratio, 1),
        "target": TARGET,
        "met": ratio >= TARGET and missed == 0,
        "ratio_of_cpu": None,
        "peer": "10^5 releases a side, looked at once",
        "median_releases_a_side": {str(claim): value for claim, value in medians.items()},
        "most_releases_a_side": {str(claim): max(each) for claim, each in taken.items()},
        "audits_a_claim": audits,
        "not_refuted": missed,
        "null_runs": nulls,
        "null_runs_refuted_at_95": fell,
        "time_ratio_at_epsilon_1_of_cpu": round(whole.cpu / short.cpu, 1),
        "peak_mib": peak,
    }


if __name__ == "__main__":
    measure.main(run, __doc__)
