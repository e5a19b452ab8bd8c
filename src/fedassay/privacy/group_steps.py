"""Privacy loss of one DP-SGD step for m records added, removed or replaced together, each sampled by itself.

If they are added or removed it is N(0, s^2) against M = sum_k p_k N(k, s^2), p binomial (m, q), in both
directions. The logarithm of the ratio of the densities, a(x) = log sum_k p_k exp((k x - k^2 / 2) / s^2), grows
with x. The hockey-stick divergence of order e^epsilon is therefore M(x > t) - e^epsilon N(x > t) where a(t) =
epsilon, and N(x < t) - e^epsilon M(x < t) where a(t) = -epsilon. These are computed on a grid and joined to a
pessimistic distribution by "Connect the Dots" (Doroshenko et al. 2022). The mixture mechanism of dp-accounting
does the same one number at a time.

Where they are replaced it is M against its mirror image M' = sum_k p_k N(-k, s^2). No other pair is worse. Let the
records' gradients be vectors of norm at most 1, so that the k sampled ones sum to a vector of norm at most k.
Joint convexity allows conditioning on the sampling of all other records. The outputs are then mixtures P and Q of
N(g, s^2 I) and N(h, s^2 I) over these sums. For a set S let a = N(0, s^2 I)(S) and t = Phi^-1(a). By Neyman and
Pearson no set of that mass has more of N(g), or less of N(h), than a half-space: N(g)(S) <= Phi(t + |g| / s) and
N(h)(S) >= Phi(t - |h| / s). So, c being e^epsilon,

    P(S) - c Q(S) <= sum_k p_k (Phi(t + k / s) - c Phi(t - k / s)) = M(x > -s t) - c M'(x > -s t),

which is at most the divergence of M from M' of that order, for every order. Dominating pairs compose (Zhu, Dong
and Wang 2022, Theorem 10). With m = 1 this is the pair of `fedassay.privacy.loss_distributions`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import logsumexp, ndtr
from scipy.stats import binom

from fedassay.support.types import Matrix

Ratio = Callable[[Matrix], tuple[Matrix, Matrix]]
"""The logarithm of a ratio of densities, and its slope."""

_TAIL = 1e-22
"""Mass that is given up at either end, which counts as an infinite loss."""
_NODES = 4096
_NEWTON = 4
_TOGETHER = 4_000_000


@dataclass(frozen=True, eq=False)
class _Mixture:
    """M, and the mass of it that was left out.

    Attributes:
        numbers: k, shape (K,).
        chances: p_k.
        noise: s.
        lost: Mass of the numbers that are left out.
    """

    numbers: Matrix
    chances: Matrix
    noise: float
    lost: float

    def log_ratio(self, x: Matrix) -> tuple[Matrix, Matrix]:
        """a(x), and its slope."""
        k = self.numbers
        terms = np.log(self.chances) + (k * x[:, None] - k**2 / 2) / self.noise**2
        value = logsumexp(terms, axis=1)
        return value, np.exp(terms - value[:, None]) @ k / self.noise**2

    def above(self, x: Matrix) -> Matrix:
        """M's mass above x."""
        return np.asarray(ndtr((self.numbers - x[:, None]) / self.noise) @ self.chances)

    def below(self, x: Matrix) -> Matrix:
        """M's mass below x."""
        return np.asarray(ndtr((x[:, None] - self.numbers) / self.noise) @ self.chances)

    def log_mirrored(self, x: Matrix) -> tuple[Matrix, Matrix]:
        """The logarithm of M's density over that of its mirror image, and its slope."""
        (value, slope), (other, back) = self.log_ratio(x), self.log_ratio(-x)
        return value - other, slope + back

    def where(self, values: Matrix, ratio: Ratio, low: float, high: float) -> Matrix:
        """Places x at which a rising ratio is each of some values; minus infinity where it is always above."""
        nodes = np.linspace(low, high, _NODES)
        known = ratio(nodes)[0]
        found = np.interp(values, known, nodes)
        rows = max(1, _TOGETHER // len(self.numbers))
        for start in range(0, len(found), rows):
            part = slice(start, start + rows)
            for _ in range(_NEWTON):
                value, slope = ratio(found[part])
                step = (values[part] - value) / np.maximum(slope, 1e-300)
                found[part] = np.clip(found[part] + step, low - 1, high + 1)
        return np.where(values <= known[0], -np.inf, found)

    @property
    def range(self) -> tuple[float, float]:
        """The interval that contains all but `_TAIL` of both distributions."""
        far = 10.0 * self.noise
        high = float(self.numbers[-1]) + far
        cut = brentq(lambda x: math.log(max(float(self.above(np.array([x]))[0]), 1e-300) / _TAIL), -far, high)
        return -far, max(float(cut), far)


def group_step(noise: float, rate: float, members: int, interval: float, *, replaced: bool = False) -> Any:
    """The privacy loss distribution of a step, on a grid.

    Args:
        noise: s, standard deviation over the clipping norm, above 0.
        rate: q, in (0, 1).
        members: m, at least 1.
        interval: Interval of the grid of losses.
        replaced: Whether the members are replaced by as many others; else they come or go.

    Returns:
        dp-accounting's `PrivacyLossDistribution`, pessimistic.
    """
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    chances = binom.pmf(np.arange(members + 1), members, rate)
    kept = np.flatnonzero(chances > _TAIL / (members + 1))
    mixture = _Mixture(kept.astype(float), chances[kept], noise, max(0.0, 1.0 - float(chances[kept].sum())))
    low, high = mixture.range
    if replaced:
        return PrivacyLossDistribution(_of_replaced(mixture, max(-low, high), interval))
    ends = mixture.log_ratio(np.array([low, high]))[0]

    def removed(epsilons: Matrix) -> Matrix:
        at = mixture.where(epsilons, mixture.log_ratio, low, high)
        return np.asarray(mixture.above(at) - np.exp(epsilons) * ndtr(-at / noise))

    def added(epsilons: Matrix) -> Matrix:
        at = mixture.where(-epsilons, mixture.log_ratio, low, high)
        return np.asarray(ndtr(at / noise) - np.exp(epsilons) * mixture.below(at))

    return PrivacyLossDistribution(
        _connected(removed, ends[0], ends[1], interval, mixture.lost),
        _connected(added, -ends[1], -ends[0], interval, mixture.lost),
    )


def _of_replaced(mixture: _Mixture, far: float, interval: float) -> Any:
    """The distribution of losses of M against its mirror image: the same in both directions."""

    def divergences(epsilons: Matrix) -> Matrix:
        at = mixture.where(epsilons, mixture.log_mirrored, -far, far)
        # The mass of the mirror image above a place is the mass of M below its mirror image.
        return np.asarray(mixture.above(at) - np.exp(epsilons) * mixture.below(-at))

    end = float(mixture.log_mirrored(np.array([far]))[0][0])
    return _connected(divergences, -end, end, interval, mixture.lost)


def _connected(deltas_of: Any, low: float, high: float, interval: float, lost: float) -> Any:
    """The pessimistic distribution of losses between two bounds from divergences; `lost` mass has any loss."""
    from dp_accounting.pld import pld_pmf

    first, last = math.floor(low / interval), math.ceil(high / interval)
    deltas = np.clip(deltas_of(interval * np.arange(first, last + 1)) + lost, 0.0, 1.0)
    # Rounding must not let divergences grow with epsilon.
    falling = np.maximum.accumulate(deltas[::-1])[::-1]
    return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, first, last, falling)
