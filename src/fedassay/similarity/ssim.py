"""Structural similarity, per pair of images, as skimage defines it.

Wang, Bovik, Sheikh, Simoncelli (2004), equation 13, in the variant that `skimage.metrics.structural_similarity`
computes by default and that the reconstruction tables of the literature report. It has a 7x7 uniform window, K1 =
0.01, K2 = 0.03, sample covariance (divided by 48, not 49), windows that lie wholly inside the image, the mean over
windows and then over channels. The data range is 255 for uint8 images and 1 for floating-point ones. Computed in
float64.

Images with a side under 7 use the largest odd window that fits, which skimage's error message tells its users to
pass as `win_size`. A side under 3 has no window with a sample covariance and is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fedassay.similarity.images import check_pairs, to_unit
from fedassay.similarity.parallel import parallel_map
from fedassay.support.devices import times_the_cpu

K1 = 0.01
K2 = 0.03
C1 = K1**2  # on the scale where the data range is 1
C2 = K2**2
WINDOW = 7


def window_side(height: int, width: int) -> int:
    """Side of the window for images of that size: 7, or the largest odd number that fits.

    Raises:
        ValueError: a side under 3.
    """
    side = min(height, width, WINDOW)
    side -= 1 - side % 2
    if side < 3:
        raise ValueError(f"SSIM needs images of at least 3x3 pixels: {height}x{width} given")
    return side


def window_sums(planes: torch.Tensor, side: int) -> torch.Tensor:
    """Sum over every side x side window: (..., H, W) -> (..., H - side + 1, W - side + 1)."""
    for dim in (-1, -2):
        length = planes.shape[dim] - side + 1
        total = planes.narrow(dim, 0, length).clone()
        for offset in range(1, side):
            total += planes.narrow(dim, offset, length)
        planes = total
    return planes


class Moments(NamedTuple):
    """Planes of a batch of images with their window means and sample variances, on the [0, 1] scale."""

    planes: torch.Tensor  # (N, C, H, W)
    mean: torch.Tensor  # (N, C, H', W')
    variance: torch.Tensor  # (N, C, H', W')

    def select(self, index: torch.Tensor | slice) -> Moments:
        """The moments of some of the images."""
        return Moments(self.planes[index], self.mean[index], self.variance[index])


def moments(images: NDArray[Any], side: int, device: str | torch.device = "cpu") -> Moments:
    """Window moments, in float64, of checked images (N, H, W, C)."""
    planes = torch.from_numpy(to_unit(images)).to(device).permute(0, 3, 1, 2).contiguous()
    count = side * side
    mean = window_sums(planes, side) / count
    square = window_sums(planes * planes, side) / count
    return Moments(planes, mean, (square - mean * mean) * (count / (count - 1)))


def join_moments(parts: Sequence[Moments]) -> Moments:
    """The moments of several batches of images, one after the other."""
    return Moments(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))


def ssim_of_moments(x: Moments, y: Moments, side: int) -> torch.Tensor:
    """Return the SSIM of pairs from their moments: (N,), float64. Leading sizes broadcast (1 against N)."""
    count = side * side
    product = x.mean * y.mean
    covariance = (window_sums(x.planes * y.planes, side) / count - product) * (count / (count - 1))
    luminance = (2 * product + C1) / (x.mean**2 + y.mean**2 + C1)
    structure = (2 * covariance + C2) / (x.variance + y.variance + C2)
    # One axis at a time: a single reduction may be split between threads, and its last bits would then
    # depend on the size of the batch. Searches break ties by equality.
    return (luminance * structure).mean(dim=-1).mean(dim=-1).mean(dim=-1)


def ssim(
    x: NDArray[Any], y: NDArray[Any], *, device: str | torch.device = "cpu", batch: int = 64
) -> NDArray[np.float64]:
    """SSIM of each pair (x[i], y[i]).

    Args:
        x: (N, H, W) or (N, H, W, C), uint8 (data range 255) or float in [0, 1] (data range 1).
        y: the same shape; the two may differ in type, since SSIM does not depend on the scale.
        device: where to compute.
        batch: pairs that one thread holds at a time; a GPU more, by its memory.

    Returns:
        (N,), each in [-1, 1] and exactly symmetric; 1 for identical images.

    Raises:
        ValueError: different shapes, another type, values outside [0, 1], a side under 3.
    """
    x, y = check_pairs(x, y)
    side = window_side(x.shape[1], x.shape[2])
    batch *= times_the_cpu(device)

    def evaluate(start: int) -> NDArray[np.float64]:
        part = slice(start, start + batch)
        left, right = moments(x[part], side, device), moments(y[part], side, device)
        return ssim_of_moments(left, right, side).cpu().numpy()

    return np.concatenate([np.empty(0), *parallel_map(evaluate, range(0, len(x), batch), device)])
