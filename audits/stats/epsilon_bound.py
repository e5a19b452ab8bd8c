"""The result of every estimator of an epsilon lower bound."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class EpsilonBound:
    """A one-sided lower confidence bound on epsilon at a given delta.

    Attributes:
        epsilon: with probability at least `confidence` over the audit's own randomness, and under the
            estimator's assumptions, the mechanism is (epsilon', delta)-DP for no epsilon' below this.
            At least 0; None where the estimator does not apply.
        confidence: one-sided, of this bound alone (no correction for other bounds).
        estimator: its name.
        mu: lower bound on the Gaussian-DP parameter, where the estimator goes through it.
        reason: why there is no bound; None where there is one.
    """

    epsilon: float | None
    confidence: float
    estimator: str
    mu: float | None = None
    reason: str | None = None


def checked_scores(scores: ArrayLike, name: str) -> NDArray[np.float64]:
    """Scores (n,) as float64; infinities are allowed (a noise-free likelihood ratio), NaN is not."""
    array = np.asarray(scores, dtype=np.float64)
    if array.ndim != 1 or len(array) < 2 or np.isnan(array).any():
        raise ValueError(f"{name} must be one axis of at least two numbers without NaN, got shape {array.shape}")
    return array


def check_levels(delta: float, confidence: float) -> None:
    """Refuse a delta outside [0, 1) or a confidence outside (0, 1)."""
    if not 0 <= delta < 1:
        raise ValueError(f"delta must lie in [0, 1), got {delta}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie strictly between 0 and 1, got {confidence}")
