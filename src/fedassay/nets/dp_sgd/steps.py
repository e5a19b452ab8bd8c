"""The declared steps of DP-SGD."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Engine = Literal["fast", "opacus"]
"""The code that adds up the clipped gradients: `fedassay.nets.dp_sgd.record_gradients`, or Opacus's hooks and
optimiser. Both give the same sums; the noise mechanism adds the noise to either."""


@dataclass(frozen=True)
class PrivateSteps:
    """The DP-SGD steps of one call (Abadi et al., "Deep Learning with Differential Privacy", 2016).

    Attributes:
        noise_multiplier: Noise standard deviation over `norm`.
        sampling_rate: Probability of each record to be in a batch (Poisson sampling).
        steps: Number of steps, independent of the number of records: under add_remove that number is private.
        norm: L2 norm that every record's gradient is clipped to.
        batch: Divisor of the noised sums; a public constant, not the number sampled.
        engine: See `Engine`.
    """

    noise_multiplier: float
    sampling_rate: float
    steps: int
    norm: float
    batch: float
    engine: Engine = "fast"


def steps_of(epochs: int, sampling_rate: float) -> int:
    """Return the number of steps that samples each record `epochs` times on average."""
    return max(1, math.ceil(epochs / sampling_rate))
