"""Magnitudes of Fourier spectra of real images, each pair of opposite frequencies once.

The magnitude of the 2-D Fourier transform of a real image repeats itself at opposite frequencies. Half of it is a
vector with a coordinate for each pair, times sqrt(2), and one for each frequency that is its own opposite: it has
the norm of the whole spectrum.
"""

from __future__ import annotations

import numpy as np

from fedassay.support.types import Floats, Images, Ints, Matrix


def magnitudes(images: Images) -> Matrix:
    """|FFT2| of images on [0, 1], every channel by itself: (n, H, W, C) to (n, H, W, C)."""
    return np.asarray(np.abs(np.fft.fft2(images.astype(np.float64) / 255, axes=(1, 2))))


def half_spectrum(height: int, width: int) -> tuple[Ints, Ints, Matrix]:
    """Layout of a spectrum as a vector.

    Returns:
        For each frequency the coordinate that stands for it, shape (H W,); the frequency that each coordinate is
        read from, shape (D,); and each coordinate's factor, 1 or sqrt(2), shape (D,).
    """
    rows, columns = np.divmod(np.arange(height * width), width)
    opposite = (-rows % height) * width + (-columns % width)
    first, where = np.unique(np.minimum(np.arange(height * width), opposite), return_inverse=True)
    weights = np.where(opposite[first] == first, 1.0, np.sqrt(2.0))
    return where.astype(np.int64), first.astype(np.int64), weights


def halved(spectra: Floats) -> Matrix:
    """Spectra (n, H, W, C) as vectors (n, D C) of the half spectrum."""
    count, height, width, channels = spectra.shape
    _, first, weights = half_spectrum(height, width)
    flat = spectra.reshape(count, height * width, channels)
    return np.asarray((flat[:, first] * weights[:, None]).reshape(count, len(first) * channels), np.float64)
