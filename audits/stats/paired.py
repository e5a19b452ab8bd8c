"""Sign-flip test of whether the first of each pair scores higher than the second.

If in every pair the two are exchangeable (which is to say that their difference is symmetric about 0), exchanging
any of the pairs leaves the joint distribution as it is; so the test is exact whatever the scores are like, their
spread may differ from pair to pair, and a selection is part of the statistic (Fisher 1935, section 21; Good 2005,
chapter 3).

What is assumed is that symmetry, and it is what is tested. "The mean gain is 0" is less: gains of mean 0 that
are skewed to the left (most of them small wins, a few large losses) are not symmetric, and the test rejects them
more often than its level. At .0025, minus a centred lognormal is rejected never of 5 pairs (no 5 pairs could), in
.06 of samples of 20 and .02 of 100; no test of a mean holds there without a known range (Bahadur and Savage 1956).
So a rejection says "the attack does what the baseline does not", and "the mean gain is above 0" only where gains
are not skewed to the left. Where the range of a gain is known, the betting interval of
`audits.stats.typed_intervals` holds for the mean without any symmetry, at the price of power.

A p-value is at least 2^-n: fewer pairs than `smallest_pairs(level)` cannot reject at a level, whatever they show.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from fedassay.audits.stats.best_bound import CERTAIN, log_chance_of_pairs
from fedassay.audits.stats.permutation import Draws, PermutationTest, best_mean, largest_mean
from fedassay.support.types import Bools, Matrix

_ENUMERATED = 14
"""Pairs up to which all exchanges are gone through: 2^14 of them."""


def smallest_pairs(level: float) -> int:
    """The smallest number of pairs at which a sign-flip test can reject at a level."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie strictly between 0 and 1, got {level}")
    return math.ceil(-math.log2(level) - 1e-12)


def paired_test(
    first: Matrix,
    second: Matrix,
    rng: np.random.Generator,
    *,
    ranks: tuple[Matrix, Matrix] | None = None,
    top: int | None = None,
    tests: int = 1,
    draws: int = 2000,
) -> PermutationTest:
    """Test whether the first of each pair scores higher on average than the second.

    Args:
        first: Scores, shape (n,), n at least 1.
        second: Scores of the partners, shape (n,).
        rng: Source of exchanges, where there are too many to go through all of them.
        ranks: Values that each side chooses its best ones by, shapes (n,); exchanged together with the scores.
            None: the scores themselves.
        top: Number of each side's best ones that count; None: all.
        tests: Number of tests in the run: there are enough draws for a level of 0.05 / tests.
        draws: Least number of exchanges that are drawn.

    Raises:
        ValueError: Sides that do not pair, scores that are not finite, or `top` out of range.
    """
    n, count = len(first), len(first) if top is None else top
    scores, orders = _sides(first, second, ranks)
    if not 1 <= count <= n:
        raise ValueError(f"top must lie in 1 to {n}, got {count}")
    if ranks is not None and np.array_equal(orders[0], orders[1]):
        # Both sides choose the same pairs, whichever are exchanged: the others say nothing.
        best = np.argsort(-orders[0], kind="stable")[:count]
        scores, orders, n = scores[:, best], orders[:, best], count

    own = np.array_equal(orders, scores)

    def gains(flips: Bools) -> Matrix:
        if count == n:
            return np.asarray((1 - 2.0 * flips) @ (scores[0] - scores[1]) / n)
        sides = (np.where(flips, scores[1 - side], scores[side]) for side in (0, 1))
        if own and len(flips) > 1:
            # The best by their own scores are the largest, which are found without looking up what they rank.
            ours, theirs = (largest_mean(x, count) for x in sides)
            return ours - theirs
        chosen = (np.where(flips, orders[1 - side], orders[side]) for side in (0, 1))
        ours, theirs = (best_mean(x, by, count) for x, by in zip(sides, chosen, strict=True))
        return ours - theirs

    scale = float(np.abs(scores).max())
    value = float(gains(np.zeros((1, n), np.bool_))[0])
    if n <= _ENUMERATED:
        return PermutationTest.of_all(value, gains(_every_exchange(n)), (n, n), scale)

    def drawn(size: int) -> Matrix:
        return gains(rng.random((size, n)) < 0.5)

    bound = partial(log_chance_of_pairs, scores[0], scores[1], count, spreads=CERTAIN)
    of_one, size = bound if own or count == n else None, Draws.of_run(tests, draws)
    return PermutationTest.of_some(value, drawn, size, 2.0**-n, (n, n), scale, log_chance_of_one=of_one)


def _every_exchange(n: int) -> Bools:
    return np.asarray((np.arange(2**n)[:, None] >> np.arange(n)) & 1, np.bool_)


def _sides(first: Matrix, second: Matrix, ranks: tuple[Matrix, Matrix] | None) -> tuple[Matrix, Matrix]:
    """Scores of both sides, and what each side chooses its best ones by, shapes (2, n)."""
    if first.shape != second.shape or first.ndim != 1 or len(first) < 1:
        raise ValueError(
            f"two sides of equal length, at least 1, are needed, got {first.shape} and {second.shape}"
        )
    scores = np.stack([first, second]).astype(np.float64)
    orders = scores if ranks is None else np.stack(ranks).astype(np.float64)
    if orders.shape != scores.shape or not (np.isfinite(scores).all() and np.isfinite(orders).all()):
        raise ValueError("scores must be finite, and ranks finite and of their shape")
    return scores, orders


def sign_flip(gains: Matrix, rng: np.random.Generator, *, tests: int = 1, draws: int = 2000) -> PermutationTest:
    """Test whether paired gains (n,) are larger than 0; see `paired_test`."""
    return paired_test(gains, np.zeros_like(gains), rng, tests=tests, draws=draws)
