"""Statistics of records when several are of one person.

Records of one person are alike, so n of them say less than n records of n persons: intervals and tests that take
records for independent cover too little and reject too often. With u persons of m records each, of correlation
rho, the variance of a mean is 1 + (m - 1) rho times that of independent records (Kish 1965, "Survey Sampling",
section 5.4). Persons are independent; so tests and bounds use one number of each of them, its mean.
tests/calibration simulates both.
"""

from __future__ import annotations

import numpy as np

from fedassay.audits.stats.betting import betting_interval
from fedassay.audits.stats.intervals import clopper_pearson
from fedassay.support.types import Bools, Ints, Matrix


def mean_by(values: Matrix, persons: Ints) -> Matrix:
    """The mean of each person's values, NaN ones left out; persons in ascending order.

    Args:
        values: Shape (n,).
        persons: The person of each value, shape (n,).

    Returns:
        Shape (u,); NaN of a person without values.
    """
    known, of = ~np.isnan(values), np.unique(persons, return_inverse=True)[1]
    count = np.bincount(of[known], minlength=int(of.max(initial=-1)) + 1)
    total = np.bincount(of[known], weights=values[known], minlength=len(count))
    return np.asarray(np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0))


def share_interval(hits: Bools, persons: Ints) -> tuple[float, float]:
    """95 % interval of the expected share of hits of one person, whatever the sizes of persons.

    The estimand is of persons, not of records: each person counts once, by the share of its own records that are
    hits, and `share_of_persons` estimates it. Persons are independent draws; their records need not be, and their
    number may depend on the number of hits. Shares lie in [0, 1], so the betting interval holds at every number of
    persons. Where every person has one record the interval is Clopper and Pearson's.

    Args:
        hits: Shape (n,), n at least 1.
        persons: The person of each record, shape (n,).
    """
    shares = mean_by(np.asarray(hits, np.float64), persons)
    if len(shares) == len(hits):
        ends = clopper_pearson(int(np.sum(hits)), len(hits))
        return float(ends.low), float(ends.high)
    return interval_of_shares(shares)


def interval_of_shares(shares: Matrix, *, confidence: float = 0.95) -> tuple[float, float]:
    """The betting interval of independent persons' mean share, widened to their own mean where that lies outside.

    Args:
        shares: In [0, 1], shape (u,), u at least 1.
        confidence: Two-sided, in (0, 1).
    """
    low, high = betting_interval(shares, 0.0, 1.0, level=confidence)
    mean = float(shares.mean())
    return min(low, mean), max(high, mean)


def share_of_persons(hits: Bools, persons: Ints) -> float:
    """The mean over persons of the share of each one's records that are hits."""
    return float(mean_by(np.asarray(hits, np.float64), persons).mean())
