"""A plan's settings of a backbone's preprocessing. Needs no torch: plans are read before it is imported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedassay.support.errors import PlanError

Interpolation = Literal["bilinear", "bicubic", "nearest"]
"""The interpolation of resized images. The first two average over the area of one pixel (antialiased)."""


@dataclass(frozen=True)
class Preprocessing:
    """A plan's settings of preprocessing; None: the backbone's own.

    Attributes:
        mean: Subtracted from images in [0, 1], one number a channel (red, green, blue), or one for all.
        std: Divisor after that, like `mean`.
        crop: Side of the square that is cut out of the middle; images are then resized by their shorter side.
        interpolation: The interpolation of resized images.
    """

    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    crop: int | None = None
    interpolation: Interpolation | None = None

    def check(self, name: str, channels: int) -> None:
        """Refuse means and deviations for another number of channels.

        Args:
            name: The backbone.
            channels: Channels of the network's input.

        Raises:
            PlanError: There are neither one nor `channels` of them, or only means or only deviations.
        """
        if (self.mean is None) != (self.std is None):
            raise PlanError(
                "backbone.mean and backbone.std: one given without the other; allowed: both or neither"
            )
        for key, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and len(values) not in (1, channels):
                order = " (red, green, blue)" if channels == 3 else ""
                raise PlanError(
                    f"backbone.{key}: {len(values)} numbers given; {name} takes images of {channels} "
                    f"channel{'s' * (channels > 1)}, allowed: one number, or {channels}{order}"
                )


AS_IT_IS = Preprocessing()
"""A plan that says nothing of preprocessing."""
