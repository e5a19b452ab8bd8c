"""The step that every training here takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def take_step(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    """One step of an optimiser against the gradient of a loss."""
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
