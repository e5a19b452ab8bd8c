"""Families of images that an inversion descends in: the prior is what the family shows easily.

- `spectrum`: white coordinates v, coloured to the spectrum that natural images have (amplitude falling with
  frequency), with |v|^2 as penalty: a Gaussian prior that takes no image of the adversary's own.
- `principal_components`: coordinates z along the principal components of the adversary's own images, with |z|^2 as
  penalty: a Gaussian prior with their mean and covariance (Turk and Pentland 1991), the strongest on small images.
- `pixels`: each pixel by itself, with total variation as penalty.
- `deep_image_prior`: the output of a skip network (Ulyanov et al. 2018); the network is the prior.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedassay.nets.deep_image_prior import DeepImagePrior
from fedassay.support.types import Images

Family = Literal["spectrum", "principal_components", "pixels", "deep_image_prior"]
"""The parametrization of an image; see the module."""

_FALL = 1.5  # of amplitude with frequency
_VARIANCE, _COLOUR = 0.06, 0.1  # of a pixel in [0, 1]; share of it that is colour, not brightness
_DEPTH = 32
_MOST_IMAGES, _MOST_COMPONENTS = 1000, 256


@dataclass(frozen=True)
class Size:
    """Size of a batch of images.

    Attributes:
        count: Number of images.
        shape: Height, width and channels.
        channels: Channels of the networks of `deep_image_prior`.
        levels: Levels of these networks.
    """

    count: int
    shape: tuple[int, int, int]
    channels: int
    levels: int


@dataclass(frozen=True, eq=False)
class Basis:
    """Mean and principal components of images.

    Attributes:
        mean: Shape (pixels,), in [0, 1].
        axes: Principal components, each as long as the deviation along it, shape (components, pixels).
    """

    mean: NDArray[np.float32]
    axes: NDArray[np.float32]

    @classmethod
    def of(cls, images: Images) -> Basis:
        """The principal components of up to 1,000 images, shape (n, H, W, C), uint8; at most 256 of them."""
        rows = images[:_MOST_IMAGES].reshape(min(len(images), _MOST_IMAGES), -1) / 255.0
        mean = rows.mean(axis=0)
        # The Gram matrix of the images has the same eigenvalues as their covariance, and is the smaller one.
        values, vectors = np.linalg.eigh((rows - mean) @ (rows - mean).T)
        kept = np.flatnonzero(values > 1e-9 * max(values[-1], 1e-12))[-_MOST_COMPONENTS:]
        axes = vectors[:, kept].T @ (rows - mean) / np.sqrt(max(1, len(rows) - 1))
        return cls(mean.astype(np.float32), axes.astype(np.float32))


Build = Callable[[Size, int], "ParametrizedImages"]
"""Makes images of a size; the integer seeds their start."""


def family_named(family: Family, own: Images | None) -> Build:
    """Look a family up.

    Args:
        family: Its name.
        own: Images of the adversary's own, shape (m, H, W, C), uint8; `principal_components` needs at least two.

    Raises:
        ValueError: It needs images, and there are fewer than two.
    """
    if family != "principal_components":
        return _FAMILIES[family]
    if own is None or len(own) < 2:
        raise ValueError(f"family {family} needs at least 2 images, got {0 if own is None else len(own)}")
    return partial(_Principal, Basis.of(own))


class ParametrizedImages(nn.Module):
    """Parametrised images; `forward` gives them, shape (n, C, H, W)."""

    def penalty(self, images: Tensor) -> Tensor:
        """Return the family's penalty of each image, shape (n,)."""
        return images.new_zeros(len(images))


class _Spectrum(ParametrizedImages):
    """mean + M irfft2(s rfft2(v)): white noise in, the covariance of natural images out."""

    amplitudes: Tensor
    mixing: Tensor

    def __init__(self, size: Size, seed: int) -> None:
        super().__init__()
        height, width, colours = size.shape
        generator = torch.Generator().manual_seed(seed)
        self.white = nn.Parameter(0.1 * torch.randn(size.count, colours, height, width, generator=generator))
        frequencies = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None])
        falling = np.maximum(frequencies, 1 / max(height, width)) ** -_FALL
        twice = np.fft.fft2(np.fft.irfft2(falling, s=(height, width))).real  # the whole plane
        amplitudes = falling / np.sqrt((twice**2).mean())
        # Equal correlation of all colours: brightness is their common part.
        covariance = _VARIANCE * ((1 - _COLOUR) * np.ones((colours, colours)) + _COLOUR * np.eye(colours))
        values, vectors = np.linalg.eigh(covariance)
        self.register_buffer("amplitudes", torch.as_tensor(amplitudes, dtype=torch.float32))
        self.register_buffer("mixing", torch.as_tensor(vectors * np.sqrt(values) @ vectors.T, dtype=torch.float32))

    def forward(self) -> Tensor:
        plane = self.white.shape[-2:]
        coloured = torch.fft.irfft2(torch.fft.rfft2(self.white) * self.amplitudes, s=plane)
        return 0.5 + torch.einsum("ij,njhw->nihw", self.mixing, coloured)

    def penalty(self, _images: Tensor) -> Tensor:
        return self.white.square().mean(dim=(1, 2, 3))


class _Principal(ParametrizedImages):
    """mean + A^T z: the mean of the adversary's own images, and their principal components in deviations."""

    mean: Tensor
    axes: Tensor

    def __init__(self, basis: Basis, size: Size, _seed: int) -> None:
        super().__init__()
        self.shape = size.shape
        # The descent starts at the mean of all images: components that no feature shows stay there.
        self.white = nn.Parameter(torch.zeros(size.count, len(basis.axes)))
        self.register_buffer("mean", torch.as_tensor(basis.mean))
        self.register_buffer("axes", torch.as_tensor(basis.axes))

    def forward(self) -> Tensor:
        rows = self.mean + self.white @ self.axes
        return rows.reshape(-1, *self.shape).permute(0, 3, 1, 2)

    def penalty(self, _images: Tensor) -> Tensor:
        return self.white.square().mean(dim=1)


class _Pixels(ParametrizedImages):
    """Each pixel by itself, kept in [0, 1] by a sigmoid."""

    def __init__(self, size: Size, seed: int) -> None:
        super().__init__()
        height, width, colours = size.shape
        generator = torch.Generator().manual_seed(seed)
        self.logits = nn.Parameter(0.1 * torch.randn(size.count, colours, height, width, generator=generator))

    def forward(self) -> Tensor:
        return torch.sigmoid(self.logits)

    def penalty(self, images: Tensor) -> Tensor:
        """Total variation, mean absolute difference of neighbours (Rudin, Osher and Fatemi 1992)."""
        across = (images[..., 1:] - images[..., :-1]).abs().mean(dim=(1, 2, 3))
        down = (images[..., 1:, :] - images[..., :-1, :]).abs().mean(dim=(1, 2, 3))
        return across + down


class _Network(ParametrizedImages):
    """A deep image prior: the network is all the prior there is."""

    def __init__(self, size: Size, seed: int) -> None:
        super().__init__()
        self.network = DeepImagePrior(
            size.count,
            size.shape,
            channels=size.channels,
            levels=size.levels,
            depth=_DEPTH,
            generator=torch.Generator().manual_seed(seed),
        )

    def forward(self) -> Tensor:
        images: Tensor = self.network()
        return images


_FAMILIES: dict[Family, Build] = {"spectrum": _Spectrum, "pixels": _Pixels, "deep_image_prior": _Network}
