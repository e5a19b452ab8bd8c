"""The 32x32x3 images that the similarity benchmarks run on."""

from __future__ import annotations

import numpy as np
import public_data
from numpy.typing import NDArray

from fedassay.support.errors import DataError

Images = NDArray[np.uint8]


def load(queries: int, gallery: int) -> tuple[Images, Images, str]:
    """Query and gallery images, and what they are.

    CIFAR-10's test images against its training images where they lie in the folder of data sets (nothing is
    fetched here); else seeded synthetic ones with a photograph's spectrum.
    """
    try:
        images, _ = public_data.in_two("cifar10", gallery, queries, download=False)
    except DataError:
        images = synthetic(queries + gallery)
        return (
            images[:queries],
            images[queries:],
            "synthetic, 1/f spectrum (no cifar10 among the data sets)",
        )
    return images[gallery:], images[:gallery], "CIFAR-10"


def synthetic(number: int) -> Images:
    """Noise with an amplitude spectrum of 1/f, as photographs have on average: (number, 32, 32, 3)."""
    rng = np.random.default_rng(0)
    frequency = np.hypot(*np.meshgrid(np.fft.fftfreq(32), np.fft.fftfreq(32), indexing="ij"))
    shaped = np.fft.fft2(rng.normal(size=(number, 32, 32, 3)), axes=(1, 2))
    shaped /= np.maximum(frequency, 1 / 32)[None, :, :, None]
    images = np.fft.ifft2(shaped, axes=(1, 2)).real
    images = 0.7 * images.mean(axis=3, keepdims=True) + 0.3 * images
    images *= 60 / images.std(axis=(1, 2, 3), keepdims=True)
    made: Images = np.clip(np.rint(127 + images), 0, 255).astype(np.uint8)
    return made


def near_copies(images: Images, number: int) -> Images:
    """Images as they are, then mirrored, with a little noise: what a memorizing generator makes."""
    rng = np.random.default_rng(0)
    chosen = images[np.arange(number) % len(images)]
    chosen = np.where((np.arange(number) // len(images) % 2 == 1)[:, None, None, None], chosen[:, :, ::-1], chosen)
    noisy = chosen + rng.normal(0, 4, chosen.shape).astype(np.float32)
    return np.clip(np.rint(noisy), 0, 255).astype(np.uint8)


def crops(images: Images, number: int) -> Images:
    """Images shifted by up to four pixels and mirrored, as they are in training: more of them than there are."""
    rng = np.random.default_rng(1)
    padded = np.pad(images, ((0, 0), (4, 4), (4, 4), (0, 0)), mode="reflect")
    made = np.empty((number, *images.shape[1:]), np.uint8)
    for start in range(0, number, len(images)):
        top, left = rng.integers(0, 9, 2)
        some = padded[: number - start, top : top + 32, left : left + 32]
        made[start : start + len(images)] = some[:, :, ::-1] if rng.integers(2) else some
    return made
