"""Conditional variational autoencoders of small images: the networks of FedCVAE's clients.

A record enters as one row: its pixels in [0, 1], its class as one-hot, and the standard normal noise
of the reparametrisation (Kingma & Welling 2014), which the caller draws anew in every step. So the
network is a plain function of a row, and its per-record gradients can be taken like any other's.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedassay.backbones.base import initialised
from fedassay.nets.residual_cvae import ResidualDecoder, ResidualEncoder
from fedassay.support.types import Images

CVAEKind = Literal["dense", "convolutions", "residual"]
"""The available networks; `CVAE` describes each."""

_MAPS = 32


class CVAE(nn.Module):
    """Encoder and decoder, both conditioned on the class.

    Args:
        image_shape: Height, width and channels.
        classes: C.
        latent: Width of the latent vector.
        hidden: Width of hidden layers: of the encoder, and of a dense or residual decoder.
        kind: `dense`, or `convolutions` at the decoder's end, both small; `residual`: blocks both ways, see
            `fedassay.nets.residual_cvae`.
        beta: Weight of the divergence from the prior.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        classes: int,
        *,
        latent: int,
        hidden: int,
        kind: CVAEKind,
        beta: float,
    ) -> None:
        super().__init__()
        height, width, channels = image_shape
        self.pixels, self.classes, self.latent, self.beta = height * width * channels, classes, latent, beta
        self.encoder: nn.Module
        self.decoder: nn.Module
        if kind == "residual":
            self.encoder = ResidualEncoder(image_shape, classes, latent, hidden)
            self.decoder = ResidualDecoder(image_shape, latent + classes, hidden)
            return
        self.encoder = nn.Sequential(
            nn.Linear(self.pixels + classes, hidden), nn.ReLU(), nn.Linear(hidden, 2 * latent)
        )
        if kind == "convolutions":
            self.decoder = _ConvolutionalDecoder(image_shape, latent + classes)
        else:
            self.decoder = nn.Sequential(
                nn.Linear(latent + classes, hidden),
                nn.ReLU(),
                nn.Linear(hidden, hidden),
                nn.ReLU(),
                nn.Linear(hidden, self.pixels),
            )

    def forward(self, rows: Tensor) -> Tensor:
        """Rows (n, pixels + C + latent) to the negative evidence lower bound of each, in nats, (n, 1)."""
        images, known, noise = torch.split(rows, [self.pixels, self.classes, self.latent], dim=1)
        mean, log_variance = self.encoder(torch.cat([images, known], dim=1)).chunk(2, dim=1)
        # Beyond these bounds an exponential overflows before a step can lead back.
        log_variance = log_variance.clamp(-12, 12)
        logits = self.decoder(torch.cat([mean + torch.exp(log_variance / 2) * noise, known], dim=1))
        error = functional.binary_cross_entropy_with_logits(logits, images, reduction="none").sum(dim=1)
        divergence = 0.5 * (mean.square() + log_variance.exp() - log_variance - 1).sum(dim=1)
        bound: Tensor = (error + self.beta * divergence)[:, None]
        return bound


class _ConvolutionalDecoder(nn.Module):
    """A dense layer to a quarter of the resolution, then two doublings with convolutions."""

    def __init__(self, image_shape: tuple[int, int, int], inputs: int) -> None:
        super().__init__()
        self.height, self.width, self.channels = image_shape
        self.rows, self.columns = -(-self.height // 4), -(-self.width // 4)
        self.dense = nn.Linear(inputs, 2 * _MAPS * self.rows * self.columns)
        self.first = nn.Conv2d(2 * _MAPS, _MAPS, 3, padding=1)
        self.second = nn.Conv2d(_MAPS, self.channels, 3, padding=1)

    def forward(self, given: Tensor) -> Tensor:
        """(n, inputs) to logits of pixels (n, channels * height * width), channels first."""
        maps = functional.relu(self.dense(given)).view(-1, 2 * _MAPS, self.rows, self.columns)
        maps = functional.relu(self.first(functional.interpolate(maps, scale_factor=2.0)))
        maps = self.second(functional.interpolate(maps, scale_factor=2.0))
        logits: Tensor = maps[:, :, : self.height, : self.width].flatten(1)
        return logits


def build_cvae(
    image_shape: tuple[int, int, int],
    classes: int,
    *,
    latent: int,
    hidden: int,
    kind: CVAEKind,
    beta: float,
    seed: int,
) -> CVAE:
    """A fresh network, initialised from `seed` alone; arguments as those of `CVAE`."""
    return initialised(
        lambda: CVAE(image_shape, classes, latent=latent, hidden=hidden, kind=kind, beta=beta),
        seed,
    )


def pixel_rows(images: Images, device: torch.device | str) -> Tensor:
    """(n, H, W, C) to rows (n, C * H * W) in [0, 1], channels first."""
    return torch.tensor(images, device=device).permute(0, 3, 1, 2).flatten(1).float() / 255


def one_hot(labels: Tensor, classes: int) -> Tensor:
    """(n,) to (n, C), float32."""
    return (labels[:, None] == torch.arange(classes, device=labels.device)).float()


def truncated_normal(count: int, width: int, bound: float, generator: torch.Generator) -> Tensor:
    """Standard normal draws kept within [-bound, bound], shape (count, width), by inversion."""
    low = 0.5 * (1 + torch.erf(torch.tensor(-bound / 2**0.5, dtype=torch.float64)))
    uniform = torch.rand(count, width, generator=generator, dtype=torch.float64) * (1 - 2 * low) + low
    return (2**0.5 * torch.erfinv(2 * uniform - 1)).clamp(-bound, bound).float()
