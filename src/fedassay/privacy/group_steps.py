"""Privacy loss of one DP-SGD step in which m records come or go together, each sampled by itself.

N(0, s^2) against M = sum_k p_k N(k, s^2), p binomial (m, q), in both directions. The logarithm of the ratio of the
densities, a(x) = log sum_k p_k exp((k x - k^2 / 2) / s^2), grows with x, so that the hockey-stick divergence of
order e^epsilon is M(x > t) - e^epsilon N(x > t) where a(t) = epsilon, and N(x < t) - e^epsilon M(x < t) where
a(t) = -epsilon. These are computed on a grid and joined to a pessimistic distribution by "Connect the Dots"
(Doroshenko et al. 2022), as dp-accounting's own mixture mechanism does one number at a time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import logsumexp, ndtr
from scipy.stats import binom

Floats = NDArray[np.float64]

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

    numbers: Floats
    chances: Floats
    noise: float
    lost: float

    def log_ratio(self, x: Floats) -> tuple[Floats, Floats]:
        """a(x), and its slope."""
        k = self.numbers
        terms = np.log(self.chances) + (k * x[:, None] - k**2 / 2) / self.noise**2
        value = logsumexp(terms, axis=1)
        return value, np.exp(terms - value[:, None]) @ k / self.noise**2

    def above(self, x: Floats) -> Floats:
        """M's mass above x."""
        return np.asarray(ndtr((self.numbers - x[:, None]) / self.noise) @ self.chances)

    def below(self, x: Floats) -> Floats:
        """M's mass below x."""
        return np.asarray(ndtr((x[:, None] - self.numbers) / self.noise) @ self.chances)

    def where(self, values: Floats) -> Floats:
        """Places x with a(x) equal to each of some values; minus infinity where a is above it everywhere."""
        low, high = self.range
        nodes = np.linspace(low, high, _NODES)
        known = self.log_ratio(nodes)[0]
        found = np.interp(values, known, nodes)
        rows = max(1, _TOGETHER // len(self.numbers))
        for start in range(0, len(found), rows):
            part = slice(start, start + rows)
            for _ in range(_NEWTON):
                value, slope = self.log_ratio(found[part])
                step = (values[part] - value) / np.maximum(slope, 1e-300)
                found[part] = np.clip(found[part] + step, low - 1, high + 1)
        return np.where(values <= known[0], -np.inf, found)

    @property
    def range(self) -> tuple[float, float]:
        """Where all but `_TAIL` of both distributions lies."""
        far = 10.0 * self.noise
        high = float(self.numbers[-1]) + far
        cut = brentq(lambda x: math.log(max(float(self.above(np.array([x]))[0]), 1e-300) / _TAIL), -far, high)
        return -far, max(float(cut), far)


def group_step(noise: float, rate: float, members: int, interval: float) -> Any:
    """The privacy loss distribution of a step, on a grid.

    Args:
        noise: s, standard deviation over the clipping norm, above 0.
        rate: q, in (0, 1).
        members: m, at least 1.
        interval: Of the grid of losses.

    Returns:
        dp-accounting's `PrivacyLossDistribution`, pessimistic.
    """
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    chances = binom.pmf(np.arange(members + 1), members, rate)
    kept = np.flatnonzero(chances > _TAIL / (members + 1))
    mixture = _Mixture(kept.astype(float), chances[kept], noise, max(0.0, 1.0 - float(chances[kept].sum())))
    low, high = mixture.range
    ends = mixture.log_ratio(np.array([low, high]))[0]

    def removed(epsilons: Floats) -> Floats:
        at = mixture.where(epsilons)
        return np.asarray(mixture.above(at) - np.exp(epsilons) * ndtr(-at / noise))

    def added(epsilons: Floats) -> Floats:
        at = mixture.where(-epsilons)
        return np.asarray(ndtr(at / noise) - np.exp(epsilons) * mixture.below(at))

    return PrivacyLossDistribution(
        _connected(removed, ends[0], ends[1], interval, mixture.lost),
        _connected(added, -ends[1], -ends[0], interval, mixture.lost),
    )


def _connected(deltas_of: Any, low: float, high: float, interval: float, lost: float) -> Any:
    """The pessimistic distribution of losses between two bounds from divergences; `lost` mass has any loss."""
    from dp_accounting.pld import pld_pmf

    first, last = math.floor(low / interval), math.ceil(high / interval)
    deltas = np.clip(deltas_of(interval * np.arange(first, last + 1)) + lost, 0.0, 1.0)
    # Rounding must not let divergences grow with epsilon.
    falling = np.maximum.accumulate(deltas[::-1])[::-1]
    return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, first, last, falling)
