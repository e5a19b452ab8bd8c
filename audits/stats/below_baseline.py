"""One-sided tests that a result is worse than no attack: an attack that was broken or misled says nothing.

Each returns the p-value of "no worse than that", at whatever level the caller asks; they are not corrected for the
number of tests in a run, because a broken attack must not pass for a harmless release.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedassay.audits.stats.epsilon_bound import checked_scores
from fedassay.audits.stats.paired import paired_test
from fedassay.audits.stats.permutation import PermutationTest


def auc_below_half(scores0: ArrayLike, scores1: ArrayLike) -> float:
    """p-value of "members do not score lower": Mann and Whitney's, exact for few scores without ties.

    Args:
        scores0: Scores of non-members, shape (n0,), at least 2.
        scores1: Scores of members, shape (n1,), at least 2.

    Source: Mann and Whitney, "On a Test of Whether one of Two Random Variables is Stochastically Larger than the
    Other" (1947); beyond 25 scores a side, or with ties, by the normal approximation with ties and continuity
    corrected.
    """
    from scipy.stats import mannwhitneyu

    zero, one = checked_scores(scores0, "scores0"), checked_scores(scores1, "scores1")
    tied = len(np.unique(np.concatenate([zero, one]))) < len(zero) + len(one)
    exact = max(len(zero), len(one)) <= 25 and not tied
    method = "exact" if exact else "asymptotic"
    return float(mannwhitneyu(one, zero, alternative="less", method=method).pvalue)


def below_baseline(
    ours: NDArray[np.float64],
    baseline: NDArray[np.float64],
    rng: np.random.Generator,
    *,
    ranks: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None,
    top: int | None = None,
) -> PermutationTest:
    """Sign-flip test of whether the baseline scores higher than the attack on the same records.

    Args:
        ours: Scores of the attack, higher is better, shape (n,).
        baseline: Scores of what needs no attack, shape (n,).
        rng: Source of exchanges.
        ranks: Values that each chooses its best ones by, the attack's first; see `audits.stats.paired`.
        top: Number of each that count; None: all.
    """
    swapped = None if ranks is None else (ranks[1], ranks[0])
    return paired_test(baseline, ours, rng, ranks=swapped, top=top)
