"""Received decoders as generators of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fedassay.data.records import Records
from fedassay.nets.cvae import CVAE, one_hot, pixel_rows, truncated_normal
from fedassay.nets.latent_search import latent_losses
from fedassay.support.progress import Progress
from fedassay.support.seeds import Seeds
from fedassay.support.types import Images, Ints, Matrix

_SAMPLED_TOGETHER = 1024

TRUNCATION = 2.0
"""Latent vectors are drawn from a standard normal kept within this many deviations."""


@dataclass(frozen=True, eq=False)
class DecoderGenerator:
    """A received decoder as a generator: a `fedassay.exchange.models.Generator`.

    Attributes:
        network: Its `decoder` is the received one; the encoder is not, and is not used.
        counts: The sender's label histogram, shape (C,), at least one of them positive.
        image_shape: Height, width, channels.
    """

    network: CVAE
    counts: Ints
    image_shape: tuple[int, int, int]

    def sample(self, count: int, seeds: Seeds, progress: Progress) -> Images:
        """`count` images, labels drawn by the histogram."""
        labels = seeds.numpy("labels").choice(len(self.counts), count, p=self.counts / self.counts.sum())
        return self.decode(labels, seeds, progress)

    def decode(self, labels: Ints, seeds: Seeds, progress: Progress | None = None) -> Images:
        """One image of each label, (n,) to (n, H, W, C)."""
        height, width, channels = self.image_shape
        source = torch.Generator().manual_seed(seeds.integer("latent"))
        device = next(self.network.parameters()).device
        images = np.empty((len(labels), height, width, channels), dtype=np.uint8)
        with (progress or Progress()).step("sampling") as advance, torch.inference_mode():
            for start in range(0, len(labels), _SAMPLED_TOGETHER):
                advance(start, len(labels))
                own = torch.tensor(labels[start : start + _SAMPLED_TOGETHER])
                latent = truncated_normal(len(own), self.network.latent, TRUNCATION, source)
                given = torch.cat([latent, one_hot(own, self.network.classes)], dim=1).to(device)
                decoded = torch.sigmoid(self.network.decoder(given)).reshape(-1, channels, height, width)
                pixels = decoded.permute(0, 2, 3, 1).mul(255).round().to(torch.uint8)
                images[start : start + _SAMPLED_TOGETHER] = pixels.cpu().numpy()
        return images

    def losses(self, records: Records, levels: Sequence[float], seeds: Seeds) -> Matrix:
        """Loss of each record, one column: a `fedassay.exchange.models.ScoringGenerator` without levels."""
        device = next(self.network.parameters()).device
        found = latent_losses(
            self.network.decoder,
            pixel_rows(records.images, device),
            one_hot(torch.tensor(records.labels, device=device), self.network.classes),
            self.network.latent,
            torch.Generator().manual_seed(seeds.integer("latent")),
        )
        return found.double().cpu().numpy()[:, None]
