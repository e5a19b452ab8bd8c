"""The update of weights from noised sums: public post-processing after a private training's noise mechanism."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedassay.support.optimisation import Optimizer, OptimizerName, pulled


@dataclass(frozen=True)
class Updates:
    """An optimiser on noised sums over a constant, and the moving average of the weights.

    Attributes:
        rate: Learning rate.
        average: Decay of the moving average of the weights that is released in their place; 0: the last weights.
        name: The optimiser.
        momentum: SGD's.
        decay: Weight decay.
        pull: See `fedassay.support.optimisation.pulled`.
    """

    rate: float
    average: float = 0.0
    name: OptimizerName = "adamw"
    momentum: float = 0.0
    decay: float = 0.0
    pull: float = 0.0

    @staticmethod
    def by(given: Optimizer | None, beside: float, pull: float = 0.0) -> Updates:
        """The updates of a plan's key `optimizer` and the learning rate beside it; None: AdamW without decay."""
        if given is None:
            return Updates(beside, pull=pull)
        return Updates(given.rate(beside), 0.0, given.name, given.momentum, given.decay, pull)

    def optimizer(self, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        """A fresh optimiser of these parameters."""
        if self.name == "adamw":
            own = torch.optim.AdamW(list(parameters), lr=self.rate, weight_decay=self.decay, fused=True)
            return pulled(own, self.pull)
        named = Optimizer(name=self.name, momentum=self.momentum, weight_decay=self.decay)
        return named.build(parameters, self.rate, pull=self.pull)

    @torch.no_grad()
    def follow(self, average: Sequence[Tensor], weights: Sequence[Tensor], step: int) -> None:
        """Move the average towards the weights after a step, in place."""
        # The average forgets its start: early on it follows the weights closely.
        torch._foreach_lerp_(list(average), list(weights), 1 - min(self.average, (1 + step) / (10 + step)))
