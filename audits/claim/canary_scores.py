"""Scores of canaries from the noised sums of DP-SGD's steps, fixed before a step is seen.

- likelihood: the log-likelihood ratio of the declared mechanism, the best score (Neyman and Pearson) where the
  mechanism is the declared one. The sample of each step is hidden, as amplification by sampling requires.
- centred: the same, with each step's median over all canaries subtracted. Nearly as good; it detects noise that is
  one number for all coordinates.
- varying: the variance of a canary's sums over the steps. Next to nothing where noise is fresh; it detects noise
  that every step repeats.
- total: the sum over steps, with guesses on the few largest only; it detects records that are in every step where
  others are in none.

A mechanism that differs from its declaration may reveal every canary. So a share of the error is for guesses on
all of them, by the likelihood ratio, divided at its widest gap (`CanaryScores.parted`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedassay.support.adjacency import Adjacency
from fedassay.support.types import Bools, Matrix

FEW, ALL = "total", "all"
SHARES = {"likelihood": 0.69, "centred": 0.05, "varying": 0.05, FEW: 0.05, ALL: 0.16}
"""Shares of the error that the scores of one run may make together. Smaller shares would drown in delta, since
every canary brings one."""


class CanaryScores:
    """Scores of m canaries, added up step by step.

    Args:
        count: m.
        noise_multiplier: Declared, greater than 0.
        sampling_rate: Declared.
        adjacency: `add_remove`: a canary is there or not. Otherwise it is there with either sign.
    """

    def __init__(self, count: int, noise_multiplier: float, sampling_rate: float, adjacency: Adjacency) -> None:
        self._noise, self._rate = noise_multiplier, sampling_rate
        self._removed = adjacency == "add_remove"
        self._steps = 0
        self._likelihood, self._centred = np.zeros(count), np.zeros(count)
        self._powers = np.zeros((3, count))

    def see(self, sums: Matrix) -> None:
        """A step: its noised sums along every canary's gradient over the norm, (m,)."""
        self._steps += 1
        self._likelihood += self._log_ratio(sums)
        self._centred += self._log_ratio(sums - np.median(sums))
        self._powers += np.stack([sums, sums**2, sums**3])

    def named(self) -> dict[str, Matrix]:
        """By name, (m,), higher where a canary looks included, or positive."""
        first, second, third = self._powers / max(self._steps, 1)
        varying = second - first**2
        if not self._removed:
            # Either sign varies as much; its third moment has the sign of the rarer of taken and not taken.
            varying = math.copysign(1.0, 1 - 2 * self._rate) * (third - 3 * first * second + 2 * first**3)
        return {"likelihood": self._likelihood, "centred": self._centred, "varying": varying, FEW: self._powers[0]}

    def guessed(self) -> Bools:
        """Whether each canary is guessed to be in, or positive: those with a ratio above the median.

        A likelihood ratio of 1 would divide them rightly only where noise is as declared.
        """
        return self._likelihood > np.median(self._likelihood)

    def parted(self) -> Bools:
        """A guess on every canary, (m,): in, or positive, above the widest gap of the likelihood ratio.

        The gap is looked for where fair coins part m canaries, six standard deviations about the half, so that it
        says nothing of the coins. Where no gap stands out, it is one of noise, and the guesses are about as good
        as those of `guessed`.
        """
        ordered = np.sort(self._likelihood)
        count, reach = len(ordered), 3 * math.sqrt(len(ordered))
        first, last = max(1, math.floor(count / 2 - reach)), min(count - 1, math.ceil(count / 2 + reach))
        if first > last:
            return self.guessed()
        place = first + int(np.argmax(np.diff(ordered[first - 1 : last + 1])))
        return np.asarray(self._likelihood > (ordered[place - 1] + ordered[place]) / 2)

    @classmethod
    def joined(cls, parts: Sequence[CanaryScores]) -> CanaryScores:
        """Scores of canaries of several trainings, each of all its steps, as those of one."""
        first = parts[0]
        found = cls(0, first._noise, first._rate, "add_remove" if first._removed else "replace_one")
        found._steps = first._steps
        found._likelihood = np.concatenate([part._likelihood for part in parts])
        found._centred = np.concatenate([part._centred for part in parts])
        found._powers = np.concatenate([part._powers for part in parts], axis=1)
        return found

    def _log_ratio(self, sums: Matrix) -> Matrix:
        return self._mixture(sums) if self._removed else self._mixture(sums) - self._mixture(-sums)

    def _mixture(self, sums: Matrix) -> Matrix:
        """Logarithm of (1 - q) N(0, z^2) + q N(1, z^2) over N(0, z^2)."""
        taken = (sums - 0.5) / self._noise**2 + math.log(self._rate)
        if self._rate == 1:
            return np.asarray(taken)
        return np.logaddexp(math.log1p(-self._rate), taken)
