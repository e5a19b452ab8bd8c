"""SSIM of every pair of two sets of images: one matrix product per window.

For a window w let p_w(x) be the patch minus its mean, divided by sqrt(count - 1). Then
the covariance of all pairs is one product of matrices, and the rest of the formula is
element by element:

    SSIM(x, y) = mean_w (2 m m' + C1) (2 p.p' + C2) / ((m^2 + m'^2 + C1) (v + v' + C2)).

The constants ride along as extra columns, and both the luminance's numerator (rank 2)
and the whole denominator (rank 4) are small products too, so that two passes over the
pairs per window remain. Patches are centred before the product, so float32 is enough:
the error stays under 1e-5 (E[xy] - E[x]E[y] would lose up to 1e-4 in bright, flat areas).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedassay.similarity.ssim import C1, C2


def _planes(images: NDArray[Any], device: str | torch.device) -> torch.Tensor:
    """(C, H, W, N) float32 on [-1/2, 1/2]: the images run along the last, contiguous axis."""
    tensor = torch.from_numpy(np.ascontiguousarray(images)).to(device).permute(3, 1, 2, 0)
    scaled = tensor.to(torch.float32)
    if images.dtype == np.uint8:
        scaled = scaled / 255.0
    return (scaled - 0.5).contiguous()


def _patches(
    planes: torch.Tensor, top: int, left: int, side: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Centred patches (side^2 + 1, N) with the constant row, means on [0, 1] (N,), variances (N,)."""
    count = side * side
    patch = planes[top : top + side, left : left + side].reshape(count, -1)
    mean = patch.mean(dim=0)
    rows = torch.empty((count + 1, patch.shape[1]), dtype=patch.dtype, device=patch.device)
    torch.sub(patch, mean, out=rows[:count])
    rows[:count] *= (2.0 / (count - 1)) ** 0.5  # the 2 of 2 p.p'
    rows[count] = C2**0.5
    variance = rows[:count].square().sum(dim=0) / 2.0
    return rows, mean + 0.5, variance


def dense_block(x: NDArray[Any], y: NDArray[Any], side: int, device: str | torch.device = "cpu") -> torch.Tensor:
    """SSIM of all pairs of one block: (len(x), len(y)), float32, on the device.

    Args:
        x: checked images (N, H, W, C).
        y: checked images (M, H, W, C).
        side: side of the window.
        device: where to compute.
    """
    planes_x, planes_y = _planes(x, device), _planes(y, device)
    channels, height, width, _ = planes_x.shape
    total = torch.zeros((len(x), len(y)), dtype=torch.float32, device=device)
    structure, luminance, denominator = (torch.empty_like(total) for _ in range(3))
    one_x, one_y = torch.ones_like(planes_x[0, 0, 0]), torch.ones_like(planes_y[0, 0, 0])
    for channel in range(channels):
        for top in range(height - side + 1):
            for left in range(width - side + 1):
                px, mx, vx = _patches(planes_x[channel], top, left, side)
                py, my, vy = _patches(planes_y[channel], top, left, side)
                torch.mm(px.T, py, out=structure)
                torch.mm(torch.stack([2 * mx, C1 * one_x], dim=1), torch.stack([my, one_y]), out=luminance)
                # (a + a') (b + b') with a = m^2 + C1/2 and b = v + C2/2.
                ax, ay, bx, by = mx * mx + C1 / 2, my * my + C1 / 2, vx + C2 / 2, vy + C2 / 2
                torch.mm(
                    torch.stack([ax * bx, ax, bx, one_x], dim=1),
                    torch.stack([one_y, by, ay, ay * by]),
                    out=denominator,
                )
                total.addcdiv_(structure.mul_(luminance), denominator)
    return total / (channels * (height - side + 1) * (width - side + 1))
