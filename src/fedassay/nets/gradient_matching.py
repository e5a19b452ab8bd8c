"""Images with a given gradient: descent on a whole batch at once.

    minimise over images x in [0, 1]:  1 - cos(dL(x, y)/dw, g) + weight * total variation(x)

with Adam on the sign of the derivative (Geiping et al., "Inverting gradients: how easy is it to break privacy in
federated learning?", 2020, equation 4; matching itself is Zhu et al., "Deep leakage from gradients", 2019).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from fedassay.support.progress import Advance, no_progress
from fedassay.support.types import Floats, Images, Ints

_RATE = 0.05


def match_gradient(
    network: nn.Module,
    gradient: Sequence[Floats],
    labels: Ints,
    image_shape: tuple[int, int, int],
    *,
    steps: int,
    weight: float,
    seed: int,
    progress: Advance = no_progress,
) -> tuple[Images, float]:
    """Find a batch with a gradient in the given direction.

    Args:
        network: From images (n, C, H, W), 0 to 255, to class scores.
        gradient: One array a parameter, in their order; positive factors do not matter.
        labels: Shape (n,).
        image_shape: Height, width and channels.
        steps: Steps of Adam; its rate falls to 0 along a cosine.
        weight: Weight of total variation.
        seed: Seed of the starting point.
        progress: Called with (steps done, total steps).

        ^Returns:
        ^    Images (n, H, W, C), uint8, and the remaining 1 - cosine.
    """
    parameters = list(network.parameters())
    device = parameters[0].device
    wanted = torch.cat([torch.as_tensor(np.asarray(part, np.float32)).flatten() for part in gradient]).to(device)
    goals = torch.as_tensor(labels, device=device)
    height, width, channels = image_shape
    generator = torch.Generator().manual_seed(seed)
    start = 0.5 + 0.1 * torch.randn((len(labels), channels, height, width), generator=generator)
    images = start.clamp(0, 1).to(device).requires_grad_()
    optimiser = torch.optim.Adam([images], lr=_RATE)
    fall = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)

    def misfit() -> Tensor:
        loss = functional.cross_entropy(network(images * 255), goals)
        own = torch.autograd.grad(loss, parameters, create_graph=True)
        return 1 - functional.cosine_similarity(torch.cat([part.flatten() for part in own]), wanted, dim=0)

    for step in range(steps):
        progress(step, steps)
        (derivative,) = torch.autograd.grad(misfit() + weight * _variation(images), images)
        images.grad = derivative.sign()
        optimiser.step()
        fall.step()
        with torch.no_grad():
            images.clamp_(0, 1)
    left = float(misfit().detach())
    return _bytes(images), left


def _variation(images: Tensor) -> Tensor:
    """Mean absolute difference of neighbours (Rudin, Osher and Fatemi 1992)."""
    across = (images[..., 1:] - images[..., :-1]).abs().mean()
    return across + (images[..., 1:, :] - images[..., :-1, :]).abs().mean()


def _bytes(images: Tensor) -> NDArray[np.uint8]:
    values = images.detach().mul(255).round().permute(0, 2, 3, 1)
    return np.ascontiguousarray(values.to(torch.uint8).cpu().numpy())
