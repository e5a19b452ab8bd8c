"""Noise scales as published, by name: the formulas of the papers and their code, right or wrong.

None of these is used to claim anything here; they reproduce a paper's mechanism so that its
claim can be compared with the exact accounting of `fedassay.privacy.gaussian`.
"""

from __future__ import annotations

import math

from fedassay.privacy.sensitivities import check_records


def _check(epsilon: float, delta: float) -> None:
    if not (epsilon > 0 and math.isfinite(epsilon)):
        raise ValueError(f"epsilon must be finite and greater than 0, got {epsilon}")
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie strictly between 0 and 1, got {delta}")


def classical_sigma(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """The textbook Gaussian mechanism: sensitivity sqrt(2 ln(1.25/delta)) / epsilon.

    Dwork and Roth, "The Algorithmic Foundations of Differential Privacy" (2014), Theorem A.1, proved
    for epsilon < 1 only. Beyond, it under-delivers: at delta 1e-5 a nominal 10 is really 10.39, a
    nominal 50 really 96.4.
    """
    _check(epsilon, delta)
    return sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def fedpft_lemma_b2_sigma(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """FedPFT, Lemma B.2: sensitivity sqrt(2 ln(2/delta)) / epsilon, stated there for every epsilon > 0.

    It is false for large epsilon: the true delta at nominal (10, 1e-5) is 1.36e-5.
    """
    _check(epsilon, delta)
    return sensitivity * math.sqrt(2 * math.log(2 / delta)) / epsilon


def fedpft_theorem_4_1_sensitivity(n: int) -> float:
    """FedPFT's stated joint L2 sensitivity of (mean, covariance) of n records: 2 sqrt(10) / n.

    Appendix B, proof of Theorem 4.1. The exact value is
    `fedassay.privacy.sensitivities.mean_covariance`, at most sqrt(20) / n.
    """
    check_records(n)
    return 2 * math.sqrt(10) / n


def fedpft_theorem_4_1_sigma(epsilon: float, delta: float, n: int) -> float:
    """FedPFT, Theorem 4.1 (mechanism `paper`): (4 / (n epsilon)) sqrt(5 ln(4/delta)), on every entry.

    This is Lemma B.2 at the stated sensitivity 2 sqrt(10)/n and half of delta. The scale depends on n,
    so the mechanism can only be private where n is public.
    """
    _check(epsilon, delta)
    check_records(n)
    return 4 / (n * epsilon) * math.sqrt(5 * math.log(4 / delta))


def fedpft_remark_b3_sensitivity(n: int) -> float:
    """FedPFT's stated joint L2 sensitivity of (mean, raw second moment): 2 sqrt(2) / n (Remark B.3).

    The exact value is `fedassay.privacy.sensitivities.mean_second_moment`, sqrt(4.5) / n.
    """
    check_records(n)
    return 2 * math.sqrt(2) / n


def fedpft_remark_b3_sigma(epsilon: float, delta: float, n: int) -> float:
    """FedPFT, Remark B.3 (mechanism `second_moment`): (2 sqrt(2)/n) sqrt(2 ln(2/delta)) / epsilon.

    Put on the mean and the raw second moment E[x x^T]; the server computes M - mu mu^T (the remark
    prints the opposite signs).
    """
    return fedpft_lemma_b2_sigma(epsilon, delta, fedpft_remark_b3_sensitivity(n))


def fedlog_theorem_4_sigma(epsilon: float, delta: float, *, rounds: int, features: int, clip: float) -> float:
    """FedLog, Theorem 4 (mechanism `paper`): sqrt(8 k (1 + (m-1) b^2) ln(e + epsilon/delta)) / epsilon.

    Noise of each of k rounds, under add_remove, by the k-fold composition theorem of Kairouz, Oh and
    Viswanath (2015). Loose: at delta .01 a nominal 0.5 is really 0.076.

    Args:
        epsilon: of all rounds together.
        delta: of all rounds together.
        rounds: k, the number of releases.
        features: m, including the constant feature 1.
        clip: b, the bound on the absolute value of the other features.
    """
    _check(epsilon, delta)
    _check_fedlog(features, clip)
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, got {rounds}")
    square = 1 + (features - 1) * clip**2
    return math.sqrt(8 * rounds * square * math.log(math.e + epsilon / delta)) / epsilon


def fedlog_released_code_sigma(epsilon: float, delta: float, *, features: int, clip: float) -> float:
    """FedLog's released code (mechanism `released_code`): sqrt(2 ln(1.25/delta)) sqrt(1+(m-1)b^2)/epsilon.

    Spent anew on every release, with no composition over the rounds: a nominal 0.5 at delta .01 is 4.46
    after 101 releases.

    Args:
        epsilon: of one release.
        delta: of one release.
        features: m, including the constant feature 1.
        clip: b, the bound on the absolute value of the other features.
    """
    _check_fedlog(features, clip)
    return classical_sigma(epsilon, delta, math.sqrt(1 + (features - 1) * clip**2))


def _check_fedlog(features: int, clip: float) -> None:
    if features < 1:
        raise ValueError(f"features must be at least 1 (the constant), got {features}")
    if not clip > 0:
        raise ValueError(f"clip must be greater than 0, got {clip}")
