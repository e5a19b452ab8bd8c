"""Epsilon lower bound from one run, with guesses weighted by the auditor's confidence in them.

The game of `one_run_fdp` (Steinke, Nasr and Jagielski 2023): m canaries are in by fair coins of their own, and the
auditor guesses coins from the output. Here a right guess counts its weight, a whole number, and the number of
guesses of each weight is fixed beforehand; there all weigh the same. Weights that grow with the auditor's
confidence keep it; a step from no guess to a whole one discards it.

The p-value is this project's own derivation. Let c_i say whether guess i is right and T = sum_i w_i c_i. Given
everything but coin i, (epsilon, delta)-DP says for every event A about the output and the other coins

    P[c_i = 1, A] <= e^epsilon P[c_i = 0, A] + delta,    hence    E[g (c_i - e^epsilon (1 - c_i))] <= delta sup g

for every g >= 0 of the output and the other coins (integrate over the level sets of g). Let B_i be independent
coins that are 1 with probability p = e^epsilon / (1 + e^epsilon), and exchange the c_i for the B_i one by one, in
random order. With D_i, the chance that the i-th exchange decides whether T >= v, the sum telescopes to

    1[T >= v] - P[sum_i w_i B_i >= v] = (1 - p) sum_i D_i (c_i - e^epsilon (1 - c_i))      in the mean over orders,

since c_i - p = (1 - p) (c_i - e^epsilon (1 - c_i)). So

    P[T >= v] <= P[sum_i w_i B_i >= v] + m delta (1 - p) sup D,

and D is the chance that a sum of the other guesses, each exchanged with probability t, t uniform, falls among w_i
values: at most what its characteristic function allows (`_influence`). The same holds for every function of T in
the place of 1[T >= v]. One that is above it and rises to 1 over s values in equal steps has D <= max w / s: for
small levels, where delta is what costs, that is the better one. With delta = 0 and equal weights the p-value is
the binomial tail of Theorem 3.1 there. Failures cost (1 - p) here: only a wrong guess can be made right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from fedassay.audits.stats.epsilon_bound import checked_scores
from fedassay.audits.stats.one_run_fdp import largest_rejected
from fedassay.support.types import Ints, Matrix

_ROUNDING = 1e-12
"""Bound on the rounding error of the Fourier transform in a tail probability."""
_TIMES = 24
_FINE = 1e-4
_TRIED = 40


def weighted_bound(counts: ArrayLike, right: int, m: int, delta: float, level: float) -> float:
    """The largest epsilon at which so much right weight is less likely than `level`, to a hundredth of a percent.

    p-values fall as `right` grows, so that rejections at whatever epsilon are events of one nested family, and the
    largest epsilon that is rejected needs no correction for the others. It may lie above some that are not: what
    delta costs falls with epsilon.

    Args:
        counts: counts[k - 1] guesses of weight k, fixed beforehand.
        right: Weight of the right guesses.
        m: Canaries.
        delta: In [0, 1).
        level: In (0, 1).
    """

    def rejected(epsilon: float, failing: float = delta) -> bool:
        return weighted_p_value(counts, right, m, epsilon, failing) < level

    high = largest_rejected(lambda epsilon: rejected(epsilon, 0.0), tolerance=_FINE) * (1 + _FINE)
    for step in range(_TRIED):
        low = high * (1 - (step + 1) / _TRIED)
        if rejected(low):
            return largest_rejected(rejected, low=low, high=high * (1 - step / _TRIED), tolerance=_FINE)
    return 0.0


def weighted_p_value(counts: ArrayLike, right: int, m: int, epsilon: float, delta: float) -> float:
    """Highest probability of so much right weight, or more, under (epsilon, delta)-DP.

    Args:
        counts: counts[k - 1] guesses of weight k, at least one guess.
        right: Weight of the right guesses, at most the whole.
        m: Canaries, at least as many as guesses.
        epsilon: At least 0.
        delta: In [0, 1].
    """
    numbers = np.trim_zeros(np.asarray(counts, np.int64), "b")
    whole = int((numbers * np.arange(1, len(numbers) + 1)).sum())
    if not (numbers >= 0).all() or not 0 <= right <= whole or not 1 <= numbers.sum() <= m:
        raise ValueError(
            f"counts must not be negative and be 1 to m={m} in all, and right 0 to their weight; got "
            f"{numbers.tolist()}, right={right}"
        )
    wrong = 1 / (1 + math.exp(min(epsilon, 700.0)))
    # Tails of the number of wrong guesses, from the threshold that is asked for down to no right guess.
    tails = np.minimum(np.cumsum(_law_of_wrong(numbers, wrong))[whole - right :] + _ROUNDING, 1.0)
    if delta == 0:
        return float(tails[0])
    widths = 2 ** np.arange(max(1, right).bit_length())
    sums = np.cumsum(tails)
    decides = np.minimum(_influence(numbers, wrong), len(numbers) / widths)
    return float(min(1.0, (sums[widths - 1] / widths + m * delta * wrong * decides).min()))


def weighted_right(scores: ArrayLike, included: ArrayLike, pairs: Sequence[int]) -> int:
    """Weight of the right guesses; ties are broken by position."""
    values, truth = checked_scores(scores, "scores"), np.asarray(included)
    each = int(sum(pairs))
    if truth.shape != values.shape or truth.dtype != np.bool_:
        raise ValueError(f"included must be bool of shape {values.shape}, got {truth.dtype} {truth.shape}")
    if not 1 <= each <= len(values) // 2 or min(pairs) < 0:
        raise ValueError(f"pairs must not be negative and be 1 to {len(values) // 2} in all, got {list(pairs)}")
    weights = np.repeat(np.arange(len(pairs), 0, -1), list(pairs)[::-1])
    truth = truth[np.argsort(values, kind="stable")]
    return int((weights * (truth[::-1][:each].astype(np.int64) + ~truth[:each])).sum())


def _law_of_wrong(counts: Ints, wrong: float) -> Matrix:
    """Probabilities of each weight of wrong guesses, all of them independent, shape (whole + 1,)."""
    whole = int((counts * np.arange(1, len(counts) + 1)).sum())
    size = 1 << whole.bit_length()
    turns = np.exp(-2j * np.pi * np.arange(size // 2 + 1) / size)
    product = np.ones(len(turns), np.complex128)
    for weight, number in enumerate(counts.tolist(), start=1):
        product *= (1 - wrong + wrong * turns**weight) ** number
    return np.asarray(np.fft.irfft(product, size)[: whole + 1].clip(0), np.float64)


def _influence(counts: Ints, wrong: float) -> float:
    """At most how likely a guess decides, in the mean over the share of the others that is exchanged.

    At share t, other guesses are independent and right with probability 1 - t (1 - p) or t p. Both have a variance
    of at least a = t (1 - p) (1 - t (1 - p)), and |E e^(i w x theta)|^2 is 1 - 4 a sin^2(w theta / 2) at most. The
    chance of w values side by side is the mean over theta of that product times |sin(w theta / 2) / sin(theta /
    2)|. It falls with t, so that the left end of each interval bounds it.
    """
    others = np.maximum(counts - 1, 0)
    weights = np.arange(1, len(counts) + 1)
    # Four angles to what the sum deviates by at most.
    angles = (np.arange(size := max(256, 2 * math.isqrt(int((others * weights**2).sum())))) + 0.5) * np.pi / size
    ends = (np.arange(_TIMES + 1) / _TIMES) ** 2
    moved = ends[:-1] * wrong
    variance = 4 * moved * (1 - moved)
    logs = np.zeros((_TIMES, size))
    for weight, number in zip(weights.tolist(), others.tolist(), strict=True):
        if number:
            logs += 0.5 * number * np.log1p(-variance[:, None] * np.sin(weight * angles / 2) ** 2)
    window = np.abs(np.sin(len(counts) * angles / 2) / np.sin(angles / 2))
    chance = np.minimum((np.exp(logs) * window).mean(axis=1), 1.0)
    return float((chance * np.diff(ends)).sum())
