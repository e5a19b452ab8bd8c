"""PSNR and SSIM of the pairs that a report shows: scikit-image's.

The numbers beside a picture or in a table come from the package that the literature reports by. Searches over all
pairs stay with `fedassay.similarity.ssim_search`, which gives the same numbers to rounding and takes a hundredth
of the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.similarity.images import check_pairs, to_unit
from fedassay.similarity.ssim import window_side

_TOGETHER = 1024
_SIDE_BY_SIDE = 64
"""Images that are laid side by side: running sums over a longer row round more."""


def reported_psnr(truth: NDArray[Any], images: NDArray[Any]) -> NDArray[np.float64]:
    """`skimage.metrics.peak_signal_noise_ratio` of each pair, in decibels, +inf for identical images.

    Args:
        truth: (n, H, W) or (n, H, W, C), uint8 or float in [0, 1].
        images: The same shape.

    Returns:
        Shape (n,).

    Raises:
        ValueError: Different shapes, another type, values outside [0, 1].
    """
    from skimage.metrics import peak_signal_noise_ratio

    truth, images = check_pairs(truth, images)
    with np.errstate(divide="ignore"):
        return np.array(
            [peak_signal_noise_ratio(*pair, data_range=1.0) for pair in _pairs(truth, images)], dtype=np.float64
        )


def reported_ssim(truth: NDArray[Any], images: NDArray[Any]) -> NDArray[np.float64]:
    """`skimage.metrics.structural_similarity` of each pair, by default but for the window of images under 7x7.

    Images are laid side by side, and scikit-image is asked once for the map of the whole row: it means the map of
    an image over windows that lie within it, and these know nothing of the neighbours.

    Arguments and errors as those of `reported_psnr`; a side under 3 is refused as well.
    """
    from skimage.metrics import structural_similarity

    truth, images = check_pairs(truth, images)
    side = window_side(truth.shape[1], truth.shape[2])
    rim = (side - 1) // 2
    found = [np.zeros(0)]
    for start in range(0, len(truth), _SIDE_BY_SIDE):
        rows = (_in_a_row(to_unit(part[start : start + _SIDE_BY_SIDE])) for part in (truth, images))
        _, whole = structural_similarity(*rows, channel_axis=-1, data_range=1.0, win_size=side, full=True)
        each = whole.reshape(whole.shape[0], -1, *truth.shape[2:])
        within = each[rim : each.shape[0] - rim, :, rim : each.shape[2] - rim]
        found.append(within.mean(axis=(0, 2, 3), dtype=np.float64))
    return np.concatenate(found)


def _in_a_row(images: NDArray[np.float64]) -> NDArray[np.float64]:
    """Images of shape (n, H, W, C) side by side, shape (H, n * W, C)."""
    return np.ascontiguousarray(images.transpose(1, 0, 2, 3)).reshape(images.shape[1], -1, images.shape[3])


def _pairs(truth: NDArray[Any], images: NDArray[Any]) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Yield the pairs one by one, on [0, 1] in float64: a uint8 image may be compared with a float one."""
    for start in range(0, len(truth), _TOGETHER):
        part = slice(start, start + _TOGETHER)
        yield from zip(to_unit(truth[part]), to_unit(images[part]), strict=True)
