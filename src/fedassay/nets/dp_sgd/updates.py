"""How noised sums become weights: what follows a private training's door, all of it public."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Updates:
    """AdamW without decay on noised sums over a constant, and the moving average of the weights.

    Attributes:
        rate: Learning rate.
        average: Decay of the moving average of the weights that is released in their place; 0: the last weights.
    """

    rate: float
    average: float = 0.0

    def optimizer(self, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.AdamW:
        """A fresh optimiser of these parameters."""
        return torch.optim.AdamW(list(parameters), lr=self.rate, weight_decay=0.0, fused=True)

    @torch.no_grad()
    def follow(self, average: Sequence[Tensor], weights: Sequence[Tensor], step: int) -> None:
        """Move the average towards the weights after a step, in place."""
        # The average forgets its start: early on it follows the weights closely.
        torch._foreach_lerp_(list(average), list(weights), 1 - min(self.average, (1 + step) / (10 + step)))
