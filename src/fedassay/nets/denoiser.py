"""Blocks of the conditional denoisers, and the FiLM perceptron for small images.

A denoiser is a function (noisy image, time step, condition) -> image-shaped output. As in appendix E.3 of
Beitollahi et al., "Parametric Feature Transfer" (FedPFT), the condition is embedded, added to the embedding of the
time step, and enters as scale and shift inside every normalisation layer. A row with `keep` False is computed with
a learned "no condition" vector instead; classifier-free guidance (Ho & Salimans 2022) trains and samples with it.

Inputs and outputs are contiguous NCHW and every normalisation is per record (LayerNorm, GroupNorm),
so that the same classes can be trained with per-record gradients.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


def sinusoidal_embedding(timesteps: Tensor, dim: int) -> Tensor:
    """Sines and cosines of the time step (Vaswani et al. 2017; Ho et al. 2020).

    Args:
        timesteps: Integers, shape (n,).
        dim: An even number of columns.

    Returns:
        Shape (n, dim), float32.
    """
    half = dim // 2
    exponents = torch.arange(half, device=timesteps.device, dtype=torch.float32) / half
    angles = timesteps.to(torch.float32)[:, None] * torch.exp(-math.log(10_000.0) * exponents)[None]
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class TimeEmbedding(nn.Module):
    """Sinusoidal embedding of the time step and a small perceptron: (n,) to (n, dim)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.hidden = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, timesteps: Tensor) -> Tensor:
        """Embed integers (n,) to (n, dim)."""
        embedded: Tensor = self.out(functional.silu(self.hidden(sinusoidal_embedding(timesteps, self.dim))))
        return embedded


class ConditionEmbedding(nn.Module):
    """A small perceptron on the condition, with a learned vector where there is none."""

    def __init__(self, condition_dim: int, dim: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(condition_dim, dim)
        self.out = nn.Linear(dim, dim)
        # An embedding of one row: per-record gradients are taken layer by layer and would miss a
        # bare parameter.
        self.absent = nn.Embedding(1, dim)

    def forward(self, condition: Tensor, keep: Tensor) -> Tensor:
        """Embed (n, condition_dim) to (n, dim); rows with `keep` False get the learned vector."""
        embedded = self.out(functional.silu(self.hidden(condition)))
        nothing = self.absent(torch.zeros(len(condition), dtype=torch.long, device=condition.device))
        return torch.where(keep[:, None], embedded, nothing)


class FilmBlock(nn.Module):
    """Residual block: LayerNorm, scale and shift from the embedding, two linear maps."""

    def __init__(self, width: int, embedding: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.film = nn.Linear(embedding, 2 * width)
        self.expand = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)
        self.project = nn.Linear(width, width)
        # The block starts as the identity, so that a deep stack trains from the first step.
        nn.init.zeros_(self.project.weight)
        nn.init.zeros_(self.project.bias)

    def forward(self, hidden: Tensor, embedding: Tensor) -> Tensor:
        """Map (n, width) to (n, width)."""
        scale, shift = self.film(embedding).chunk(2, dim=1)
        inner = functional.silu(self.expand(self.norm(hidden) * (1 + scale) + shift))
        mapped: Tensor = self.project(self.dropout(inner))
        return hidden + mapped


class FilmDenoiser(nn.Module):
    """Denoiser that treats the image as one vector: the cheapest that works on small images.

    A feature vector says nothing about positions in the image, and a convolutional net has to learn that layout
    through its scale-and-shift layers alone. A perceptron has it from the start, and on a CPU reaches in seconds
    the quality of an hour of a U-Net.

    Args:
        shape: (channels, height, width); any positive sizes.
        condition_dim: Columns of the condition.
        width: Units of each layer.
        blocks: Number of residual blocks.
        embedding: Columns of the embedding of time and condition, an even number.
        direct: Give the condition to the first layer too, beside the noisy image. This is an
            addition to the paper's architecture: a linear path from the feature to the image.
        guided: The input has a first guess of the image below the noisy image, in as many channels.
        dropout: Dropout probability of a hidden unit in training.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        condition_dim: int,
        *,
        width: int,
        blocks: int,
        embedding: int,
        direct: bool,
        guided: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        self.shape = shape
        self.direct = direct
        pixels = math.prod(shape)
        self.time = TimeEmbedding(embedding)
        self.condition = ConditionEmbedding(condition_dim, embedding)
        seen = pixels * (2 if guided else 1) + (condition_dim if direct else 0)
        self.enter = nn.Linear(seen, width)
        self.blocks = nn.ModuleList(FilmBlock(width, embedding, dropout) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        self.leave = nn.Linear(width, pixels)
        if guided:
            # Training starts from the guess itself.
            nn.init.zeros_(self.leave.weight)
            nn.init.zeros_(self.leave.bias)

    def forward(self, noisy: Tensor, timesteps: Tensor, condition: Tensor, keep: Tensor) -> Tensor:
        """Predict the training target.

        Args:
            noisy: Shape (n, channels, height, width), twice the channels where the net is guided.
            timesteps: Integers, shape (n,).
            condition: Shape (n, condition_dim), whitened.
            keep: Booleans, shape (n,): False computes that row without its condition.

        Returns:
            Shape (n, channels, height, width).
        """
        embedding = functional.silu(self.time(timesteps) + self.condition(condition, keep))
        flat = noisy.flatten(1)
        if self.direct:
            flat = torch.cat([flat, condition * keep[:, None]], dim=1)
        hidden = self.enter(flat)
        for block in self.blocks:
            hidden = block(hidden, embedding)
        predicted: Tensor = self.leave(self.norm(hidden))
        return predicted.view(-1, *self.shape)
