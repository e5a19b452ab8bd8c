"""Fourier magnitude filtering: the clients' mean magnitudes, and the images that they rule out.

Source: Mendieta et al. 2025, section 5.3.

Images are on [0, 1]. The magnitude of the 2-D Fourier transform of a real image repeats itself at opposite
frequencies, so `gaussian` works on half of it: one vector with a coordinate for each pair, times sqrt(2), and one
for each frequency that is its own opposite. That keeps the norm of the whole spectrum, so by Parseval no image's
vector is longer than H W sqrt(channels), the norm of the white image's; and noise that is white in these
coordinates is sqrt(2) smaller on every paired magnitude.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.exchange.spectra import half_spectrum, halved, magnitudes
from fedassay.privacy.mechanisms import release_magnitude_sum
from fedassay.privacy.tape import NoiseSource
from fedassay.support.types import Floats, Images

_TOGETHER = 1024


def mean_magnitude(images: Images) -> NDArray[np.float64]:
    """Mean of `magnitudes` over n >= 1 images, shape (H, W, C)."""
    total = np.zeros(images.shape[1:])
    for start in range(0, len(images), _TOGETHER):
        total += magnitudes(images[start : start + _TOGETHER]).sum(axis=0)
    return total / len(images)


def largest_norm(image_shape: tuple[int, int, int]) -> float:
    """The longest that an image's vector of magnitudes can be: H W sqrt(channels)."""
    height, width, channels = image_shape
    return float(height * width * np.sqrt(channels))


def noised_mean(
    images: Images,
    *,
    clip: float,
    sigma: float,
    count: float,
    noise: NoiseSource,
    of_records: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """The `gaussian` release: one vector Gaussian mechanism on the sum of the clipped vectors, over `count`.

    Args:
        images: A client's, shape (n, H, W, C); n may be 0.
        clip: L2 norm that every image's vector is clipped to.
        sigma: Noise on each coordinate of the sum.
        count: Divisor of the sum: the number of records where it is public, a noised one otherwise.
        noise: Source of the noise.
        of_records: Weights of the images in the sum, (n,); None: 1 each.

    Returns:
        Shape (H, W, C). Noise may have made entries negative. They are sent unchanged, so that readers of the
        message see the declared noise.
    """
    height, width, channels = images.shape[1:]
    where, first, weights = half_spectrum(height, width)
    # Vectors are clipped by themselves, so the sum is taken in blocks; without images there is one of none.
    blocks = (
        halved(magnitudes(images[start : start + _TOGETHER])) for start in range(0, max(len(images), 1), _TOGETHER)
    )
    total = release_magnitude_sum(blocks, clip=clip, sigma=sigma, noise=noise, weights=of_records)
    mean = total.reshape(len(first), channels) / weights[:, None] / max(1.0, count)
    return mean[where].reshape(height, width, channels)


def pydp_bounds(images: Images) -> tuple[float, float]:
    """Return bounds on every magnitude of images (n, H, W, C): 0 and the number of pixels of a channel."""
    height, width = images.shape[1:3]
    return 0.0, float(height * width)


def pydp_means(values: NDArray[np.float64], epsilon: float, bounds: tuple[float, float]) -> NDArray[np.float64]:
    """The `pydp` release, as in the paper: PyDP's BoundedMean of every coordinate of the spectrum by itself.

    Each mean is epsilon-DP under add_remove (Laplace noise, half of epsilon for the number of records), so the
    release is (D epsilon)-DP. PyDP cannot be seeded.

    Args:
        values: Magnitudes of a client's images, shape (n, D). Of none PyDP answers exactly 0, which is no release
            under any epsilon: one record in the middle of the bounds stands in. It adds 0 to the sum that PyDP
            noises, about that middle, and 1 to its count: no further from any one record than the promise covers.
        epsilon: Epsilon of each coordinate.
        bounds: Lower and upper bound on the magnitudes.

    Returns:
        Shape (D,).
    """
    from pydp.algorithms.laplacian import BoundedMean

    low, high = bounds
    columns = values if len(values) else np.full((1, values.shape[1]), (low + high) / 2)
    means = [
        BoundedMean(epsilon=epsilon, lower_bound=low, upper_bound=high, dtype="float").quick_result(
            column.tolist()
        )
        for column in columns.T
    ]
    return np.array(means, dtype=np.float64)


def distances(images: Images, mean: Floats) -> NDArray[np.float64]:
    """Score of each image: L2 distance of its magnitude to a mean (H, W, C) cut at 0, shape (n,)."""
    goal = mean.clip(min=0)
    parts = [
        np.linalg.norm((magnitudes(images[start : start + _TOGETHER]) - goal).reshape(-1, goal.size), axis=1)
        for start in range(0, len(images), _TOGETHER)
    ]
    return np.concatenate([*parts, np.zeros(0)])


def kept(scores: NDArray[Any], gamma: float) -> NDArray[np.bool_]:
    """Return the images to keep, (n,): all but the `gamma` percent with the highest score, rounded to nearest."""
    dropped = round(gamma / 100 * len(scores))
    mask = np.ones(len(scores), dtype=bool)
    mask[np.argsort(scores, kind="stable")[len(scores) - dropped :]] = False
    return mask
