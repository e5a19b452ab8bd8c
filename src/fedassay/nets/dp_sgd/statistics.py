"""Tests of the noise and the sampling of DP-SGD against the declared ones: p-values of blocks fixed beforehand.

They are for generators with streams that cannot be computed again. The noise of a step, over its declared
deviation, is a vector of independent standard normals, cut in the order of the parameters into windows of 100. Too
little noise makes a chi-squared too small, in one window of one step, in one window over all steps, or in all of
it. Noise that returns from step to step, or cancels, shows in the sum over the steps. Only the statistics needed
for this are stored.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, chi2

_WINDOW = 100
"""Numbers in a window: half of the declared noise in one of them has a p-value near 1e-13, on average."""

_SIMULATED = 1999
"""Sets of batch sizes that the observed ones are compared with."""


class NoiseBlocks:
    """Sums of squares of the noise of one training.

    Args:
        size: d, numbers that every step adds noise to, at least 1.
    """

    def __init__(self, size: int) -> None:
        self.window = min(_WINDOW, size)
        self.steps, self.total, self.smallest = 0, 0.0, float("inf")
        self.windows = np.zeros(size // self.window)
        self.sums = np.zeros(size)

    def add(self, noise: NDArray[np.float64], deviation: float) -> None:
        """The noise of one step, (d,), and its declared standard deviation."""
        whole = len(self.windows) * self.window
        cut = noise[:whole].reshape(-1, self.window)
        own = np.einsum("ij,ij->i", cut, cut)
        own /= deviation**2
        self.steps += 1
        # The rest after the last whole window counts in `total` alone.
        self.total += float(own.sum()) + float(noise[whole:] @ noise[whole:]) / deviation**2
        self.smallest = min(self.smallest, float(own.min()))
        self.windows += own
        self.sums += noise if deviation == 1 else noise / deviation

    @property
    def share(self) -> float:
        """Root mean square of the noise over the declared deviation."""
        return float(np.sqrt(self.total / max(1, self.coordinates)))

    @property
    def coordinates(self) -> int:
        """Numbers that noise was added to, over all steps."""
        return self.steps * len(self.sums)

    def p_values(self) -> dict[str, float]:
        """By block; each is uniform where the noise is as declared. The four depend on each other."""
        if not self.steps:
            return {}
        across = self.window * self.steps
        found = {
            "a window of a step": _least(chi2.cdf(self.smallest, self.window), self.steps * len(self.windows)),
            "a window of all steps": _least(chi2.cdf(self.windows.min(), across), len(self.windows)),
            "all noise": float(chi2.cdf(self.total, self.coordinates)),
        }
        if self.steps > 1:
            square = float(self.sums @ self.sums) / self.steps
            tails = chi2.cdf(square, len(self.sums)), chi2.sf(square, len(self.sums))
            found["the sum over steps"] = 2 * float(min(tails))
        return found

    def state(self) -> dict[str, NDArray[np.float64]]:
        """Everything, as arrays."""
        scalars = np.array([self.steps, self.total, self.smallest])
        return {"scalars": scalars, "windows": self.windows.copy(), "sums": self.sums.copy()}

    def restore(self, state: dict[str, NDArray[np.float64]]) -> None:
        """Resume from a result of `state`."""
        self.steps, self.total, self.smallest = (
            int(state["scalars"][0]),
            float(state["scalars"][1]),
            float(state["scalars"][2]),
        )
        self.windows, self.sums = state["windows"].copy(), state["sums"].copy()


def _least(p: float, count: int) -> float:
    """Return the p-value of the smallest of several independent p-values."""
    return float(-np.expm1(count * np.log1p(-p))) if p < 1 else 1.0


def sampling_p_values(counts: NDArray[np.int64], sizes: NDArray[np.int64], rate: float) -> dict[str, float]:
    """p-values of Poisson sampling, two-sided; conservative, for numbers of records are whole.

    Args:
        counts: Steps that each record came into, (n,): binomial each, which a fixed subset is not.
        sizes: Records that came into each step, (steps,): as far apart as binomial ones, which batches of one size
            are not, nor records that come together.
        rate: The declared probability.

    Returns:
        By test; empty where the rate leaves nothing to chance, or there are no records or steps.
    """
    if not len(counts) or not len(sizes) or not 0 < rate < 1:
        return {}
    simulated = np.random.default_rng(0).binomial(len(counts), rate, (_SIMULATED, len(sizes)))
    spread, spreads = sizes.var(), simulated.var(axis=1)
    above, below = int((spreads >= spread).sum()), int((spreads <= spread).sum())
    return {
        "rate": float(_two_sided(np.array([counts.sum()]), len(counts) * len(sizes), rate)[0]),
        "a record": _least(float(_two_sided(counts, len(sizes), rate).min()), len(counts)),
        "batch sizes": min(1.0, 2 * (1 + min(above, below)) / (1 + _SIMULATED)),
    }


def _two_sided(counts: NDArray[np.int64], trials: int, rate: float) -> NDArray[np.float64]:
    tails = np.minimum(binom.cdf(counts, trials, rate), binom.sf(counts - 1, trials, rate))
    return np.asarray(np.minimum(1.0, 2 * tails), dtype=np.float64)
