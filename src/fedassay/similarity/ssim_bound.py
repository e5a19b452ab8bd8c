"""SSIM of every pair of two blocks of images, or an upper bound of it, by matrix products.

For window w of image x let m be the mean, v the sample variance and p the centred patch
divided by sqrt(count - 1), so that v = p.p and the covariance with y's window is p.p':

    SSIM(x, y) = mean_w (2 m m' + C1) (2 p.p' + C2) / ((m^2 + m'^2 + C1) (v + v' + C2)).

The numerator's second factor is one product of matrices per window for all pairs, and
the denominator is another of rank 4, so few passes over the pairs remain.

The bound keeps K of the 48 coordinates of p in the orthonormal DCT basis, lowest
frequencies first, and one more: the norm r of what is left out. By Cauchy-Schwarz

    p.p' <= sum_{i <= K} p_i p'_i + r r',

and all other terms are positive. With K = 48 it is the SSIM itself. Photographs have
little energy at high frequencies: with K = 20 the product costs half and the bound lies
0.04 above the SSIM on average, which rules out more than 99 % of the pairs of CIFAR-10.

Tried and dropped: SSIM is a positive-definite kernel with SSIM(x, x) = 1, so projections of its feature map,
several windows together, give bounds by one product without any pass over the windows. The omitted part then adds
up without the contrast term to damp it, and bounds 0.2 to 0.4 above the SSIM rule out too little.

Everything is centred before it is multiplied, so float32 is enough: the result is
within `FLOAT32_ERROR` of the float64 formula.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.fft import dct

from fedassay.similarity.parallel import parallel_map
from fedassay.similarity.precision import full_float32
from fedassay.similarity.ssim import C1, C2, Moments, join_moments, moments
from fedassay.support.devices import times_the_cpu

FLOAT32_ERROR = 2e-5
"""Bound on the difference between float32 and float64, generous: under 1e-6 is measured on photographs."""

TILE = (512, 256)  # queries and gallery images that one thread bounds at a time; a GPU more, by its memory
BLOCK_BYTES = 256 * 2**20  # larger images get smaller blocks, so that the tables of a block stay under this
ROUNDING = 1e-6  # share of p.p added to r^2, so that cancellation in r^2 = p.p - sum p_i^2 never lowers a bound


@dataclass(frozen=True)
class Windows:
    """One block of images as seen through every window, laid out for products over the images."""

    # (windows, K + 2, N): DCT coordinates, remainder r, a constant; the product is C1 (2 p.p' + C2)
    patches: torch.Tensor
    mean: torch.Tensor  # (windows, N): the product is 2 m m' / C1
    # (windows, 4, N): a b, a, b, 1 with a = m^2 + C1/2 and b = v + C2/2, for (a + a') (b + b')
    denominator: torch.Tensor


def dct_basis(side: int) -> torch.Tensor:
    """Orthonormal DCT-II: (side, side), row u the basis vector of frequency u."""
    return torch.from_numpy(dct(np.eye(side), axis=0, norm="ortho"))


def kept_frequencies(side: int, degree: int | None) -> list[list[int]]:
    """For each horizontal frequency v the vertical ones u that are kept: 0 < u + v <= degree; None: all."""
    limit = 2 * (side - 1) if degree is None else degree
    return [[u for u in range(side) if 0 < u + v <= limit] for v in range(side)]


def windows(block: Moments, side: int, degree: int | None) -> Windows:
    """Prepares one block of images for `pair_bounds`.

    Args:
        block: its moments, (N, C, H, W).
        side: side of the window.
        degree: DCT coordinates (u, v) with u + v up to it are kept; None keeps all (the exact SSIM).
    """
    number, channels, height, width = block.planes.shape
    rows, columns = height - side + 1, width - side + 1
    # Applied along both axes, this divides by sqrt(count - 1) and gives either side its half of 2 C1.
    basis = dct_basis(side).to(block.planes.device) * (2 * C1 / (side * side - 1)) ** 0.25
    kept = kept_frequencies(side, degree)
    count = sum(map(len, kept))

    mean = block.mean.reshape(number, -1).T.to(torch.float32).contiguous()
    variance = block.variance.clamp(min=0).reshape(number, -1).T.to(torch.float32).contiguous()
    patches = torch.empty((len(mean), count + 2, number), dtype=torch.float32, device=mean.device)
    by_channel = patches.view(channels, rows, columns, count + 2, number)
    # The images run along the last axis, so that every product below is over contiguous memory.
    planes = (block.planes - 0.5).to(torch.float32).permute(1, 2, 3, 0).contiguous()
    for channel in range(channels):
        first = 0
        for v, frequencies in enumerate(kept):
            if not frequencies:
                continue
            along_rows = banded(basis[v : v + 1], width)[0] @ planes[channel]  # (height, columns, N)
            both = banded(basis[frequencies], height).flatten(0, 1) @ along_rows.flatten(1)
            coordinates = both.view(len(frequencies), rows, columns, number)
            by_channel[channel, :, :, first : first + len(frequencies)] = coordinates.permute(1, 2, 0, 3)
            first += len(frequencies)
    left_out = torch.zeros_like(variance)
    if count < side * side - 1:
        left_out = 2 * C1 * variance
        for coordinate in range(count):
            left_out -= patches[:, coordinate].square()
        left_out = (left_out.clamp_(min=0) + ROUNDING * 2 * C1 * variance).sqrt_()
    patches[:, count] = left_out
    patches[:, count + 1] = (C1 * C2) ** 0.5
    a, b = mean.square() + C1 / 2, variance + C2 / 2
    return Windows(patches, mean * (2 / C1) ** 0.5, torch.stack([a * b, a, b, torch.ones_like(a)], dim=1))


def banded(filters: torch.Tensor, length: int) -> torch.Tensor:
    """Matrices that slide filters along an axis: (K, side) -> (K, length - side + 1, length), float32."""
    side = filters.shape[1]
    matrices = filters.new_zeros((len(filters), length - side + 1, length))
    for start in range(length - side + 1):
        matrices[:, start, start : start + side] = filters
    return matrices.to(torch.float32)


def pair_bounds(x: Windows, y: Windows) -> torch.Tensor:
    """Upper bounds on the SSIM of all pairs: (len(x), len(y)), float32, on the device of the windows.

    Args:
        x: windows of one block.
        y: windows of another, prepared with the same side and number of coordinates.
    """
    shape = (x.mean.shape[1], y.mean.shape[1])
    total = torch.zeros(shape, dtype=torch.float32, device=x.mean.device)
    structure, luminance, denominator = (torch.empty_like(total) for _ in range(3))
    # (2 m m' + C1) (2 p.p' + C2) is computed as s + s l with s = C1 (2 p.p' + C2), l = 2 m m' / C1.
    rows = (x.patches.mT.unbind(), x.mean[:, :, None].unbind(), x.denominator.mT.unbind())
    columns = (y.patches.unbind(), y.mean.unbind(), y.denominator.flip(1).unbind())
    for patch_x, mean_x, halves_x, patch_y, mean_y, halves_y in zip(*rows, *columns, strict=True):
        torch.mm(patch_x, patch_y, out=structure)
        torch.mul(mean_x, mean_y, out=luminance)
        torch.mm(halves_x, halves_y, out=denominator)
        structure.addcmul_(structure, luminance)
        total.addcdiv_(structure, denominator)
    return total.div_(len(x.mean))


def largest_block(
    shape: tuple[int, ...], side: int, degree: int | None, device: str | torch.device = "cpu"
) -> int:
    """Return the number of images of that (height, width, channels) with tables under BLOCK_BYTES.

    On a GPU the limit is 8 times as much, where its memory allows that.
    """
    height, width, channels = shape
    count = sum(len(kept) for kept in kept_frequencies(side, degree))
    per_image = 4 * (count + 7) * channels * (height - side + 1) * (width - side + 1)
    return max(1, BLOCK_BYTES * times_the_cpu(device, 8) // per_image)


def prepare_block(
    images: NDArray[Any], side: int, degree: int | None, device: str | torch.device
) -> list[tuple[Moments, Windows]]:
    """The queries of a block, tile by tile."""

    def prepare(start: int) -> tuple[Moments, Windows]:
        part = moments(images[start : start + tile], side, device)
        return part, windows(part, side, degree)

    tile = TILE[0] * times_the_cpu(device)
    return parallel_map(prepare, range(0, len(images), tile), device)


def bound_block(
    left: list[tuple[Moments, Windows]],
    images: NDArray[Any],
    side: int,
    degree: int | None,
    device: str | torch.device,
) -> tuple[Moments, torch.Tensor]:
    """Bounds on the SSIM of a block of queries with a block of the gallery; the SSIM if degree is None.

    Returns:
        The moments of the gallery's block, and the bounds on the device: (queries, gallery images).
    """
    tile = TILE[1] * times_the_cpu(device)

    def bound(start: int) -> tuple[Moments, torch.Tensor]:
        part = moments(images[start : start + tile], side, device)
        right = windows(part, side, degree)
        return part, torch.cat([pair_bounds(rows, right) for _, rows in left])

    with full_float32():
        tiles = parallel_map(bound, range(0, len(images), tile), device)
    return join_moments([part for part, _ in tiles]), torch.cat([columns for _, columns in tiles], dim=1)
