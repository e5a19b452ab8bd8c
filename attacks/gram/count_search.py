"""Search for the numbers of vectors of each class in a second moment of full rank, where none is sent.

With n at least the number of active features, the rank says nothing of n. But with P the projection on the column
space of F (n, d), 1_c the indicator of class c and 1 their sum, A_c B^+ A_c^T = 1_c^T P 1_c is at most n_c, and
1^T P 1 at most n; features that are not negative have much in common with 1, so that the second bound is often n
itself when rounded up. Feasibility decides: with wrong counts no vectors are without negative entries, or only
with more records than there are. Counts within the bounds are tried, the smallest totals first, and for one total
those first that divide it as the bounds do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations_with_replacement, islice

import numpy as np

from fedassay.attacks.gram.factorization import Factors, factorize
from fedassay.exchange.gram import Gram, Size, least
from fedassay.support.types import Ints

MOST_TRIALS = 24
"""Counts tried at most."""

_MOST_SHARES = 2000
_STARTS = 3
_FEASIBLE = 1e-6


def search(
    gram: Gram, size: Size, rng: np.random.Generator, *, restarts: int, iterations: int, most: int
) -> tuple[Size, Factors] | None:
    """The likeliest counts with which no entry has to be negative, and the vectors.

    Args:
        gram: With class sums.
        size: Of `measure`, of full rank.
        rng: Source of random starts.
        restarts: See `factorize`.
        iterations: See `factorize`.
        most: Largest total tried.

    Returns:
        None where no counts tried are feasible, or there are no sums.
    """
    if gram.sums is None:
        return None
    for counts in islice(_allowed(gram, size, most), MOST_TRIALS):
        trial = replace(size, counts=counts, total=int(counts.sum()), counted="searched")
        tried = factorize(gram, trial, rng, restarts=_STARTS, iterations=iterations)
        if tried.residual < max(_FEASIBLE, 10 * gram.unit):
            return trial, factorize(gram, trial, rng, restarts=restarts, iterations=iterations)
    return None


def _allowed(gram: Gram, size: Size, most: int) -> Iterator[Ints]:
    """Counts that the bounds allow, the likeliest first."""
    bounds, first = least(gram, size)
    present = np.flatnonzero(bounds > 1e-6)
    fewest = np.ceil(bounds - 0.01).astype(np.int64)
    for total in range(first, min(most, first + MOST_TRIALS) + 1):
        shares = bounds * total / bounds.sum()
        ways = []
        for extra in islice(combinations_with_replacement(present, total - int(fewest.sum())), _MOST_SHARES):
            counts = fewest + np.bincount(np.array(extra, np.int64), minlength=len(fewest))
            ways.append((float(((counts - shares) ** 2).sum()), counts))
        yield from (counts for _, counts in sorted(ways, key=lambda way: way[0])[: MOST_TRIALS // 3])
