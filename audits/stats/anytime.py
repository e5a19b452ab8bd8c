"""Lower bounds on epsilon that hold at any stopping time: bets against (epsilon, delta)-DP.

Releases come in pairs, y of data set 0 and x of data set 1. Under (epsilon, delta)-DP P1(S) <= e^epsilon P0(S) +
delta for every event S, so that with S and 0 <= lambda < 1 / (e^epsilon + delta) chosen before the pair is seen

    e = 1 + lambda (1[x in S] - e^epsilon 1[y in S] - delta)

is at least 0 and at most 1 in expectation, and the product over pairs exceeds 1 / alpha at any time with
probability at most alpha (Ville's inequality; Waudby-Smith and Ramdas, "Estimating means of bounded random
variables by betting", 2023; for auditing, arXiv 2509.07055). No law of the scores is assumed, and nothing is paid
for looking often. The bound is the largest epsilon of a fixed grid such that it and all smaller ones were refuted.
It is wrong only if the smallest epsilon of the grid that the mechanism satisfies is refuted.

S is "score above c" or "score at most c", either data set in either part, as past pairs choose it. For each
epsilon, lambda is the bet that would have grown fastest on them (Kelly). Even with perfectly separated scores each
pair shows little: refuting epsilon takes at least ln(1 / alpha) / -ln(1 - e^-epsilon) pairs.
"""

from __future__ import annotations

import math

import numpy as np

from fedassay.audits.stats.epsilon_bound import EpsilonBound
from fedassay.support.types import Bools, Matrix

NAME = "anytime-valid (betting)"
_QUANTILES = np.concatenate([np.geomspace(1e-4, 0.1, 25), np.linspace(0.1, 0.5, 12)[1:]])
_SHARES = np.linspace(0.02, 0.98, 25)
"""Bets as shares of the largest bet that cannot lose more than there is."""
_GRID = 80


class AnytimeBound:
    """Bets pair after pair.

    Args:
        claimed: Epsilon, greater than 0: what events are chosen to refute.
        delta: In [0, 1).
    """

    def __init__(self, claimed: float, delta: float) -> None:
        self._delta = delta
        below = np.linspace(0, claimed, _GRID // 2 + 1)
        self._grid = np.concatenate([below, claimed * np.geomspace(1, 8, _GRID // 2 + 1)[1:]])
        self._claimed = len(below) - 1
        self._wealth = np.zeros(len(self._grid))
        self._richest = np.zeros(len(self._grid))
        self._zero, self._one = np.zeros(0), np.zeros(0)

    @property
    def pairs(self) -> int:
        """Pairs seen."""
        return len(self._zero)

    def see(self, zero: Matrix, one: Matrix) -> None:
        """Bet on pairs, by what was seen before them, and keep them.

        Args:
            zero: Scores of releases of data set 0, (n,), -inf and inf among them or not.
            one: Scores of as many releases of data set 1.
        """
        if len(zero) != len(one):
            raise ValueError(f"as many scores of either data set are needed, got {len(zero)} and {len(one)}")
        if self.pairs and len(zero):
            swapped, above, cut = self._event()
            likely, rare = (zero, one) if swapped else (one, zero)
            inside, outside = ((scores > cut) == above for scores in (likely, rare))
            gains = self._gains(inside[:, None], outside[:, None])
            bets = self._bets(swapped, above, cut)
            path = self._wealth + np.cumsum(np.log1p(bets * gains), axis=0)
            self._richest = np.maximum(self._richest, path.max(axis=0))
            self._wealth = path[-1]
        self._zero, self._one = np.concatenate([self._zero, zero]), np.concatenate([self._one, one])

    def bound(self, confidence: float) -> EpsilonBound:
        """The lower bound at a one-sided confidence; bounds at several ones hold each by itself."""
        refuted = self._richest >= -math.log(1 - confidence)
        number = len(refuted) if refuted.all() else int(np.argmin(refuted))
        return EpsilonBound(float(self._grid[number - 1]) if number else 0.0, confidence, NAME)

    def refutes(self, confidence: float) -> bool:
        """Whether more than the claimed epsilon was shown."""
        return bool((self._richest[: self._claimed + 1] >= -math.log(1 - confidence)).all())

    def _event(self) -> tuple[bool, bool, float]:
        """Choose S of the fastest past growth: data set likelier in it, whether it lies above, and threshold."""
        pooled = np.sort(np.concatenate([self._zero, self._one]))
        cuts = np.unique(np.quantile(pooled, np.concatenate([_QUANTILES, 1 - _QUANTILES]), method="lower"))
        best, chosen = -math.inf, (False, True, float(cuts[0]))
        for swapped in (False, True):
            for above in (True, False):
                likely, rare = self._rates(swapped, above, cuts)
                growth = _growth(likely, rare, self._grid[self._claimed], self._delta).max(axis=0)
                place = int(np.argmax(growth))
                if growth[place] > best:
                    best, chosen = float(growth[place]), (swapped, above, float(cuts[place]))
        return chosen

    def _rates(self, swapped: bool, above: bool, cuts: Matrix) -> tuple[Matrix, Matrix]:
        """Past shares in S, pulled to half: of the data set in which it is likelier, and of the other."""
        rates = []
        for scores in (self._one, self._zero):
            over = len(scores) - np.searchsorted(np.sort(scores), cuts, side="right")
            rates.append(((over if above else len(scores) - over) + 0.5) / (len(scores) + 1))
        return (rates[1], rates[0]) if swapped else (rates[0], rates[1])

    def _bets(self, swapped: bool, above: bool, cut: float) -> Matrix:
        """The bet against each epsilon of the grid."""
        likely, rare = self._rates(swapped, above, np.array([cut]))
        growth = np.stack([_growth(likely, rare, epsilon, self._delta)[:, 0] for epsilon in self._grid], axis=1)
        shares = np.where(growth.max(axis=0) > 0, _SHARES[np.argmax(growth, axis=0)], 0.0)
        return np.asarray(shares / (np.exp(self._grid) + self._delta))

    def _gains(self, inside: Bools, outside: Bools) -> Matrix:
        return np.asarray(inside - np.exp(self._grid) * outside - self._delta)


def _growth(likely: Matrix, rare: Matrix, epsilon: float, delta: float) -> Matrix:
    """Expected logarithm of e for each bet, (shares, events), at these probabilities of S."""
    factor = math.exp(epsilon)
    bets = _SHARES[:, None] / (factor + delta)
    total = np.zeros((len(_SHARES), len(likely)))
    for x, p in ((1, likely), (0, 1 - likely)):
        for y, q in ((1, rare), (0, 1 - rare)):
            total += p * q * np.log1p(bets * (x - factor * y - delta))
    return total
