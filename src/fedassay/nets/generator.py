"""A small image generator for data-free distillation: latent vectors in, images out."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from fedassay.backbones.base import initialised


class ImageGenerator(nn.Module):
    """A dense layer to a quarter of the resolution, then two doublings with convolutions (after DCGAN).

    Args:
        image_shape: Height, width and channels.
        latent: Width of the latent vector.
        maps: Feature maps of the last hidden layer; twice as many before.
    """

    def __init__(self, image_shape: tuple[int, int, int], latent: int, maps: int) -> None:
        super().__init__()
        self.height, self.width, channels = image_shape
        self.rows, self.columns, self.maps = -(-self.height // 4), -(-self.width // 4), 2 * maps
        self.dense = nn.Linear(latent, self.maps * self.rows * self.columns)
        self.start = nn.BatchNorm2d(self.maps)
        self.first = nn.Sequential(
            nn.Conv2d(self.maps, self.maps, 3, padding=1), nn.BatchNorm2d(self.maps), nn.LeakyReLU(0.2)
        )
        self.second = nn.Sequential(
            nn.Conv2d(self.maps, maps, 3, padding=1), nn.BatchNorm2d(maps), nn.LeakyReLU(0.2)
        )
        self.last = nn.Conv2d(maps, channels, 3, padding=1)

    def forward(self, latent: Tensor) -> Tensor:
        """(n, latent) to images (n, channels, height, width), 0 to 255, as floats."""
        maps = self.start(self.dense(latent).view(-1, self.maps, self.rows, self.columns))
        maps = self.first(functional.interpolate(maps, scale_factor=2.0))
        maps = self.second(functional.interpolate(maps, scale_factor=2.0))
        images: Tensor = 255 * self.last(maps)[:, :, : self.height, : self.width].sigmoid()
        return images


def build_generator(image_shape: tuple[int, int, int], *, latent: int, maps: int, seed: int) -> ImageGenerator:
    """A fresh generator, initialised from `seed` alone."""
    return initialised(lambda: ImageGenerator(image_shape, latent, maps), seed)
