"""Privacy events: the leakage of one release about a record, as plain numbers that an accountant composes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from fedassay.support.adjacency import Adjacency

Sampling = Literal["poisson", "fixed_size", "shuffled"]
"""The sampling of batches in DP-SGD: each record independently; a fixed number of records without replacement,
anew in every step; or the records in a new order in every epoch, cut into batches."""


@dataclass(frozen=True)
class GaussianEvent:
    """One Gaussian mechanism, or a joint release as one: mu = L2 sensitivity / noise standard deviation."""

    mu: float

    def __post_init__(self) -> None:
        if not self.mu >= 0:
            raise ValueError(f"mu must be at least 0, got {self.mu}")


@dataclass(frozen=True)
class PureEvent:
    """Any mechanism that is (epsilon, 0)-DP, such as Laplace."""

    epsilon: float

    def __post_init__(self) -> None:
        if not self.epsilon >= 0:
            raise ValueError(f"epsilon must be at least 0, got {self.epsilon}")


@dataclass(frozen=True)
class SubsampledGaussianEvent:
    """DP-SGD: `steps` clipped sums over batches, with Gaussian noise.

    Attributes:
        noise_multiplier: noise standard deviation over the clipping norm.
        sampling_rate: probability of each record to be in a batch, in [0, 1], or the share of records in a batch.
        steps: number of noisy sums released.
        adjacency: the relation to account for; see `fedassay.privacy.loss_distributions`.
        members: records that are added, removed or replaced together, each sampled by itself.
        sampling: how batches are drawn. Batches of a fixed size reveal the number of records, which only the
            relations of replacement make public.
    """

    noise_multiplier: float
    sampling_rate: float
    steps: int
    adjacency: Adjacency = "add_remove"
    members: int = 1
    sampling: Sampling = "poisson"

    def __post_init__(self) -> None:
        if self.members < 1:
            raise ValueError(f"members must be at least 1, got {self.members}")
        if not self.noise_multiplier >= 0:
            raise ValueError(f"noise_multiplier must be at least 0, got {self.noise_multiplier}")
        if not 0 <= self.sampling_rate <= 1:
            raise ValueError(f"sampling_rate must lie between 0 and 1, got {self.sampling_rate}")
        if self.steps < 0:
            raise ValueError(f"steps must be at least 0, got {self.steps}")


@dataclass(frozen=True)
class Unbounded:
    """A release without a guarantee; `reason` describes it, and does not distinguish two of them."""

    reason: str = field(compare=False)


Event = GaussianEvent | PureEvent | SubsampledGaussianEvent | Unbounded
