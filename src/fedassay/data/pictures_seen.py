"""Appearance of pictures in few numbers: a small grey copy, brightness, grey values, sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedassay.support.types import Floats, Images, Ints

SMALL = 16
"""Side of the small grey copies that pictures are compared by."""
FEW_VALUES = 4
"""Masks have so few grey values, or fewer."""
_SAMPLED = 64
"""Side of the copy that grey values are counted in."""


@dataclass(frozen=True, eq=False)
class Seen:
    """Measurements of some pictures.

    Attributes:
        rows: Their positions among all pictures, ascending, shape (m,).
        small: Their small grey copies, shape (m, SMALL * SMALL), uint8.
        brightness: Mean grey value of each, 0 to 255.
        contrast: Standard deviation of the grey values of each.
        values: Number of different grey values of each, in a copy of at most 64 by 64 pixels.
    """

    rows: Ints
    small: NDArray[np.uint8]
    brightness: Floats
    contrast: Floats
    values: Ints

    @cached_property
    def masks(self) -> NDArray[np.bool_]:
        """Whether each has so few grey values that it may be a mask, shape (m,)."""
        return self.values <= FEW_VALUES


def seen(rows: Sequence[int], picture: Callable[[int], Images]) -> Seen:
    """Look at pictures.

    Args:
        rows: Positions of the pictures.
        picture: Gives one, shape (H, W, C), uint8.
    """
    small = np.empty((len(rows), SMALL * SMALL), np.uint8)
    numbers = np.empty((len(rows), 3), np.float64)
    for place, row in enumerate(rows):
        pixels = picture(row)
        grey = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).convert("L")
        small[place] = np.asarray(grey.resize((SMALL, SMALL), Image.Resampling.BOX)).ravel()
        whole = np.asarray(grey)
        step = max(1, max(whole.shape) // _SAMPLED)
        numbers[place] = whole.mean(), whole.std(), np.count_nonzero(np.bincount(whole[::step, ::step].ravel()))
    return Seen(np.asarray(rows, np.int64), small, numbers[:, 0], numbers[:, 1], numbers[:, 2].astype(np.int64))
