"""Bodies that the server trains on images of its own, as clients train theirs, many at a time.

Clients of FedLog train a body in each round under a head that the server knows: cross-entropy on their own
records, the head frozen, some of the features dropped. A surrogate does the same on as many records of each class.
All of one architecture are one stack of weights, which Adam steps as if each were alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional

from fedassay.support.optimisation import take_step
from fedassay.support.types import Images

Heads = NDArray[np.float64]
"""Of every round, shape (R, C, m), the constant feature's column first."""

_TOGETHER = 256
"""Images at a time."""


@dataclass(frozen=True)
class Recipe:
    """Training that the server asks of its clients.

    Attributes:
        epochs: Passes over the records in a round.
        batch: Records in a minibatch.
        rate: Learning rate of Adam, which starts anew in each round.
        dropout: Share of the features that training drops before the head.
    """

    epochs: int
    batch: int
    rate: float
    dropout: float


class Stack:
    """Bodies of one architecture, each with weights of its own."""

    def __init__(self, bodies: Sequence[nn.Module], device: str) -> None:
        """From images (n, channels, height, width), 0 to 255, to features (n, m - 1); at least one."""
        weights, buffers = stack_module_state([each.to(device) for each in bodies])
        self._weights = {name: each.detach().requires_grad_() for name, each in weights.items()}
        self._buffers, self._of, self._device = buffers, bodies[0], device

    def train(self, images: Tensor, labels: Tensor, head: Tensor, recipe: Recipe, draws: torch.Generator) -> None:
        """One round, in place.

        Args:
            images: Of each body, shape (S, n, channels, height, width).
            labels: Shape (S, n).
            head: Shape (C, m).
            recipe: Recipe of the training.
            draws: Of orders and of what is dropped, on the CPU.
        """
        steps = torch.optim.Adam(self._weights.values(), recipe.rate)
        bodies, count = labels.shape
        own = torch.arange(bodies)[:, None]
        for _ in range(recipe.epochs):
            order = torch.stack([torch.randperm(count, generator=draws) for _ in range(bodies)])
            for rows in torch.split(order, recipe.batch, dim=1):
                features = self._forward(images[own, rows])
                if recipe.dropout:
                    kept = torch.rand(features.shape, generator=draws).to(features) >= recipe.dropout
                    features = features * kept / (1 - recipe.dropout)
                scores = head[:, 0] + features @ head[:, 1:].T
                # The sum over bodies of each one's mean: gradients of one body do not see the others.
                loss = functional.cross_entropy(scores.flatten(0, 1), labels[own, rows].flatten())
                take_step(steps, loss * bodies)

    def features(self, images: Images) -> NDArray[np.float64]:
        """Features of the same images under every body, shape (S, n, m - 1)."""
        bodies = next(iter(self._weights.values())).shape[0]
        found = []
        with torch.inference_mode():
            for start in range(0, len(images), _TOGETHER):
                part = to_tensor(images[start : start + _TOGETHER], self._device)
                found.append(self._forward(part.expand(bodies, *part.shape)).double().cpu().numpy())
        return np.concatenate(found, axis=1)

    def _forward(self, images: Tensor) -> Tensor:
        def one(weights: dict[str, Tensor], buffers: dict[str, Tensor], given: Tensor) -> Tensor:
            found: Tensor = functional_call(self._of, (weights, buffers), (given,))
            return found

        return vmap(one)(self._weights, self._buffers, images)


def to_tensor(images: Images, device: str) -> Tensor:
    """Images (..., H, W, channels) to (..., channels, H, W)."""
    return torch.tensor(np.moveaxis(images, -1, -3).copy(), device=device)
