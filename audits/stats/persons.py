"""Statistics of records of which several are of one person.

Records of one person are alike, so n of them say less than n records of n persons: intervals and tests that take
records for independent cover too little and reject too often. With u persons of m records each whose correlation
is rho, the variance of a mean is 1 + (m - 1) rho times that of independent records (Kish 1965, "Survey Sampling",
section 5.4). Persons are independent; so what is tested and bounded is one number of each of them, its mean.
tests/calibration simulates both.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t

from fedassay.audits.stats.intervals import wilson

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]


def mean_by(values: Floats, persons: Numbers) -> Floats:
    """The mean of each person's values, NaN ones left out; persons in ascending order.

    Args:
        values: Shape (n,).
        persons: Whose each is, shape (n,).

    Returns:
        Shape (u,); NaN of a person without values.
    """
    known, of = ~np.isnan(values), np.unique(persons, return_inverse=True)[1]
    count = np.bincount(of[known], minlength=int(of.max(initial=-1)) + 1)
    total = np.bincount(of[known], weights=values[known], minlength=len(count))
    return np.asarray(np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0))


def share_interval(hits: NDArray[np.bool_], persons: Numbers, *, confidence: float = 0.95) -> tuple[float, float]:
    """Interval of a share of records whose persons are independent and whose records are not.

    Wilson's, for as many records as would give the share the variance that it has between persons, scaled by the
    quantiles of Student's t (Korn and Graubard 1998, "Confidence intervals for proportions with small expected
    number of positive counts estimated from survey data"). Where all records are hits, or none is, nothing shows
    how alike a person's records are: persons then count instead.

    Args:
        hits: Shape (n,), n at least 1.
        persons: Whose each record is, shape (n,).
        confidence: Two-sided, in (0, 1).
    """
    of = np.unique(persons, return_inverse=True)[1]
    n, units, share = len(hits), int(of.max()) + 1, float(hits.mean())
    size = float(units)
    if 0 < share < 1 and units > 1:
        off = np.bincount(of, weights=hits - share)
        variance = units / (units - 1) * float((off**2).sum()) / n**2
        level = (1 + confidence) / 2
        scale = float(t.ppf(level, n - 1) / t.ppf(level, units - 1)) if n > 1 else 1.0
        size = min(float(n), share * (1 - share) / variance * scale**2) if variance > 0 else size
    low, high = wilson(share * size, size, confidence=confidence)
    return float(low), float(high)
