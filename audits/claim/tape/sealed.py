"""Does somebody else's mechanism hide a record as well as it promises: tested on known inputs.

The noise of another library cannot be computed again. But the mechanism that a method gave to the door can be run
on inputs of our own: a few records at the low end of its bounds, with and without one more at the high end. It
treats every column by itself with an equal share of its epsilon, so all columns of all runs are independent trials
of one mechanism, and a lower bound on epsilon that exceeds a column's share refutes the promise.

The bound is the threshold test (`fedassay.audits.stats.threshold_bound`), which assumes independent trials only.
It has little power where epsilon is small. So of a library that is known the outputs are also held against its own
mechanism at the promised epsilon, called from here, on many equal records (two-sample Kolmogorov-Smirnov test).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.stats import ks_2samp

from fedassay.audits.stats.threshold_bound import threshold_bound
from fedassay.privacy.tape import Floats, Sealed

TRIALS = 4000
"""Numbers released on each side, at least: no bound above ln(TRIALS / 8) can be shown."""

_RECORDS = 3
_MANY = 1000
_LEVEL = 1e-4


def broken_promise(entry: Sealed, rng: np.random.Generator) -> str:
    """What known inputs show against a mechanism's promise, in words; empty where they show nothing.

    Args:
        entry: The mechanism, which must still be there.
        rng: Of the halves of the threshold test.
    """
    columns = int(np.prod(entry.shape))
    if entry.mechanism is None or not columns:
        return ""
    low, high = entry.bounds
    without = np.full((_RECORDS, columns), low)
    within = np.concatenate([without, np.full((1, columns), high)])
    sides = [_released(entry, values, math.ceil(TRIALS / columns)) for values in (without, within)]
    share = entry.pure_epsilon / columns
    # Two halves of one side must not be told apart; a mechanism without noise gives the same number every time.
    if all(np.ptp(side) == 0 for side in sides):
        return f"{entry.library} gives out the same number on every run of known inputs: it adds no noise"
    if words := _unlike_the_library(entry, share):
        return words
    bound = threshold_bound(*sides, delta=0.0, rng=rng, confidence=1 - _LEVEL)
    shown = bound.epsilon or 0.0
    if shown <= share:
        return ""
    return (
        f"{entry.library} shows epsilon at least {shown:.3g} a number on known inputs, where {share:.3g} is "
        f"promised ({entry.pure_epsilon:.4g} over {columns:,} numbers)"
    )


def _unlike_the_library(entry: Sealed, share: float) -> str:
    """Whether outputs are not what the library's own mechanism gives out at the promised epsilon."""
    reference = _REFERENCES.get(entry.library)
    if reference is None:
        return ""
    columns, (low, high) = int(np.prod(entry.shape)), entry.bounds
    values = np.full((_MANY, columns), (low + high) / 2)
    runs = math.ceil(TRIALS / columns)
    theirs = np.array([reference(values[:, 0], share, entry.bounds) for _ in range(runs * columns)])
    p = float(ks_2samp(_released(entry, values, runs), theirs).pvalue)
    if p >= _LEVEL:
        return ""
    return (
        f"on known inputs its outputs are not those of {entry.library} at epsilon {share:.3g} a number, which is "
        f"promised ({entry.pure_epsilon:.4g} over {columns:,} numbers; Kolmogorov-Smirnov p = {p:.2g})"
    )


def _bounded_mean(column: Floats, epsilon: float, bounds: tuple[float, float]) -> float:
    from pydp.algorithms.laplacian import BoundedMean

    mechanism = BoundedMean(epsilon=epsilon, lower_bound=bounds[0], upper_bound=bounds[1], dtype="float")
    return float(mechanism.quick_result(column.tolist()))


_REFERENCES: dict[str, Callable[[Floats, float, tuple[float, float]], float]] = {"PyDP": _bounded_mean}
"""One column's mechanism, by library."""


def _released(entry: Sealed, values: Floats, runs: int) -> Floats:
    assert entry.mechanism is not None
    return np.concatenate([np.ravel(entry.mechanism(values)) for _ in range(runs)]).astype(np.float64)
