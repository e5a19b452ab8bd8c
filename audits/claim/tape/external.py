"""Test of another library's mechanism by running it again: does it hide a record as well as it promises?

The noise of another library cannot be computed again. But the mechanism that a method gave to `task.mechanism` can
be run
again: on the run's own inputs, on columns like these, jittered and of another number of records, and on few and on
many equal records. A mechanism that is honest on some inputs only is held to the others.

It treats every column by itself with an equal share of its epsilon. In a table of columns with the same numbers,
each in an order of its own, all columns of all runs are then independent trials of one mechanism:

- Does the same come out of every run?
- With one record more at an end of the bounds, is the lower bound on epsilon of the threshold test
  (`fedassay.audits.stats.threshold_bound`), which assumes independent trials only, above a column's share?
- For a known library: are the outputs those of its own mechanism at the promised epsilon, called from here
  (two-sample Kolmogorov-Smirnov test)? The threshold test has little power where epsilon is small.
- Do columns share noise: two of them, or all that are as far apart (by normal scores over the runs)?

On the run's own inputs no two columns are alike. So the noise of a column is measured by the differences between
two runs. They are compared with those of the library's own mechanism on the same columns, or of the mechanism on
jittered columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import ks_2samp, rankdata, t

from fedassay.audits.stats.threshold_bound import threshold_bound
from fedassay.privacy.tape import ExternalMechanism
from fedassay.support.types import Matrix

TRIALS = 4000
"""Numbers released on each side, at least: no bound above ln(TRIALS / 8) can be shown."""

_RECORDS = 3
_MANY = 1000
_RUNS = 12
"""Runs of a table at least, by which columns are compared."""
_JITTER = 0.01
"""Largest move of a jittered number, as a share of the distance of the bounds."""
_LEVEL = 1e-4
_TESTS = 4 * 4 + 1
"""Tests of an entry, which share the level: four tables, asked four questions each, and its own inputs."""


def broken_promise(entry: ExternalMechanism, rng: np.random.Generator) -> str:
    """Evidence of further runs against a mechanism's promise, in words; empty where there is none.

    Args:
        entry: The mechanism, which must still be there.
        rng: Of the tables, and of the halves of the threshold test.
    """
    columns = int(np.prod(entry.shape))
    if entry.mechanism is None or not columns:
        return ""
    for where, column in _columns(entry, rng):
        words = _on_column(entry, column, where, rng)
        # A false accusation of an honest library recurs by chance only: the tests are repeated on new runs.
        if words and _on_column(entry, column, where, rng):
            return words
    words = _on_own(entry, rng)
    return words if words and _on_own(entry, rng) else ""


def _columns(entry: ExternalMechanism, rng: np.random.Generator) -> Iterator[tuple[str, Matrix]]:
    """Columns of four tables: few equal numbers, many, as many as in the run, and another number."""
    low, high = entry.bounds
    yield "known inputs", np.full(_RECORDS, low)
    own = entry.values
    records = _RECORDS if own is None else len(own)
    for where, count in (
        ("inputs like the run's", records),
        ("another number of records", _another(records, rng)),
    ):
        if own is None or not own.size:
            column = rng.uniform(low, high, max(1, count))
        else:
            column = rng.choice(own[:, rng.integers(own.shape[1])], max(1, count), replace=count > records)
        yield where, np.clip(column + _JITTER * (high - low) * rng.uniform(-1, 1, len(column)), low, high)
    yield "known inputs", np.full(_MANY, (low + high) / 2)


def _another(records: int, rng: np.random.Generator) -> int:
    """A number of records that differs from the run's and is not known beforehand."""
    drawn = int(rng.integers(2, 2 * max(records, 20)))
    return drawn + (drawn >= records)


def _on_column(entry: ExternalMechanism, column: Matrix, where: str, rng: np.random.Generator) -> str:
    """Evidence from tables of one column, in words."""
    columns, level = int(np.prod(entry.shape)), _LEVEL / _TESTS
    share, (low, high) = entry.pure_epsilon / columns, entry.bounds
    # The end that is farther from the mean moves it more.
    end = high if 2 * float(column.mean()) < low + high else low
    tables = [rng.permuted(np.tile(each[:, None], columns), axis=0) for each in (column, np.append(column, end))]
    sides = [_released(entry, table, columns) for table in tables]
    if any(_silent(side) for side in sides):
        return f"{entry.library} gives out the same number on every run of {where}: it adds no noise"
    if words := _unlike_the_library(entry, tables[0], sides[0], where, level):
        return words
    if words := _shared(sides[0], entry, where, level):
        return words
    bound = threshold_bound(*(side.ravel() for side in sides), delta=0.0, rng=rng, confidence=1 - level)
    shown = bound.epsilon or 0.0
    if shown <= share:
        return ""
    return (
        f"{entry.library} shows epsilon at least {shown:.3g} a number on {where}, where {share:.3g} is "
        f"promised ({entry.pure_epsilon:.4g} over {columns:,} numbers)"
    )


def _silent(side: Matrix) -> bool:
    """Whether most columns give out one number in all runs."""
    return bool((np.ptp(side, axis=0) == 0).mean() > 0.5)


def _unlike_the_library(
    entry: ExternalMechanism, table: Matrix, released: Matrix, where: str, level: float
) -> str:
    """Whether outputs are not what the library's own mechanism gives out at the promised epsilon."""
    reference = _REFERENCES.get(entry.library)
    if reference is None:
        return ""
    columns = table.shape[1]
    share = entry.pure_epsilon / columns
    theirs = [reference(table[:, number % columns], share, entry.bounds) for number in range(released.size)]
    p = float(ks_2samp(released.ravel(), theirs).pvalue)
    return "" if p >= level else _not_those(entry, where, p)


def _not_those(entry: ExternalMechanism, where: str, p: float) -> str:
    columns = int(np.prod(entry.shape))
    return (
        f"on {where} its outputs are not those of {entry.library} at epsilon {entry.pure_epsilon / columns:.3g} a "
        f"number, which is promised ({entry.pure_epsilon:.4g} over {columns:,} numbers; Kolmogorov-Smirnov p = "
        f"{p:.2g})"
    )


def _shared(side: Matrix, entry: ExternalMechanism, where: str, level: float) -> str:
    """Whether columns go up and down together over the runs: two of them, or all that are as far apart."""
    runs, columns = side.shape
    if columns < 2:
        return ""
    scores = ndtri((rankdata(side).reshape(side.shape) - 0.5) / side.size)
    products = scores.T @ scores
    lengths = np.sqrt(np.diagonal(products))
    pairs = np.triu_indices(columns, 1)
    alike = np.clip(np.abs(products / np.outer(lengths, lengths))[pairs], 0, 1 - 1e-12)
    # For normals of known mean, r sqrt(n - 1) / sqrt(1 - r^2) has Student's distribution.
    nearest = alike.max() * math.sqrt((runs - 1) / (1 - alike.max() ** 2))
    by_pair = 2 * float(t.sf(nearest, runs - 1)) * len(alike)
    apart = np.array([np.trace(products, offset) for offset in range(1, columns)])
    by_lag = 2 * ndtr(-np.abs(apart) / np.sqrt(runs * np.arange(columns - 1, 0, -1))).min() * (columns - 1)
    p = 2 * min(by_pair, float(by_lag))
    if p >= level:
        return ""
    return f"on {where} columns of {entry.library} share their noise (p = {p:.2g})"


def _on_own(entry: ExternalMechanism, rng: np.random.Generator) -> str:
    """Evidence from the run's own inputs, in words."""
    own = entry.values
    if own is None or not own.size or entry.mechanism is None:
        return ""
    columns, (low, high) = int(np.prod(entry.shape)), entry.bounds
    released = _released(entry, own, columns)
    if _silent(released):
        return f"{entry.library} gives out the same number on every run of the run's own inputs: it adds no noise"
    reference = _REFERENCES.get(entry.library)
    if reference is not None:
        share = entry.pure_epsilon / columns
        again = np.array([[reference(column, share, entry.bounds) for column in own.T] for _ in released])
    else:
        moved = own + _JITTER * (high - low) * rng.uniform(-1, 1, own.shape)
        again = _released(entry, np.clip(moved, low, high), columns)
    p = float(ks_2samp(_differences(released), _differences(again)).pvalue)
    if p >= _LEVEL / _TESTS:
        return ""
    if reference is not None:
        return _not_those(entry, "the run's own inputs", p)
    return (
        f"{entry.library} adds other noise to the run's own inputs than to inputs that are hardly different "
        f"(Kolmogorov-Smirnov p = {p:.2g})"
    )


def _differences(released: Matrix) -> Matrix:
    """Differences of runs two by two, column by column: the noise of two runs, whatever lies beneath it."""
    pairs = len(released) // 2
    return np.asarray((released[:pairs] - released[pairs : 2 * pairs]).ravel())


def _bounded_mean(column: Matrix, epsilon: float, bounds: tuple[float, float]) -> float:
    from pydp.algorithms.laplacian import BoundedMean

    mechanism = BoundedMean(epsilon=epsilon, lower_bound=bounds[0], upper_bound=bounds[1], dtype="float")
    return float(mechanism.quick_result(column.tolist()))


_REFERENCES: dict[str, Callable[[Matrix, float, tuple[float, float]], float]] = {"PyDP": _bounded_mean}
"""One column's mechanism, by library."""


def _released(entry: ExternalMechanism, table: Matrix, columns: int) -> Matrix:
    """The outputs of as many runs of a table as give enough numbers, (runs, D)."""
    assert entry.mechanism is not None
    runs = max(_RUNS, math.ceil(TRIALS / columns))
    return np.array([np.ravel(entry.mechanism(table)) for _ in range(runs)], np.float64)
