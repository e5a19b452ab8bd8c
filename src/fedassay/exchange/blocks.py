"""One sum over the records of a sender, and what declares how records enter a message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedassay.exchange.message import Message
from fedassay.support.types import Floats, Images

Matrix = NDArray[np.float64]
Of = Literal["ones", "features", "squares", "norms", "magnitudes"]


@dataclass(frozen=True, eq=False)
class OfImages:
    """What is summed of a record is computed from its image: by a body that everybody has, for one.

    Attributes:
        vectors: Makes vectors (n, p) of images (n, H, W, channels).
    """

    vectors: Callable[[Images], Matrix]


@dataclass(frozen=True, eq=False)
class LinearBlock:
    """One sum over the records of a sender.

    Attributes:
        field: The fields that it is read from.
        of: What is summed of a record: a named vector, what makes vectors (n, p) of features (n, d), or of images.
        power: 1: the vector u itself; 2: u u^T.
        by_class: Whether there is a sum of each class, or one over all records.
        total: The sum: (p,) or (p, p), with a first axis of C classes where it is by class.
        noise: Standard deviation of the declared Gaussian noise on an isometric coordinate of the sum, shape (C,)
            or (1,); 0: none.
        rounding: Standard deviation of what the transport has rounded off a coordinate, in the same shape.
        free_ridge: Whether an unknown multiple of the identity is in the sum.
        classes: Which classes were sent, shape (C,); all where the block is over all records.
    """

    field: str
    of: Of | Callable[[Floats], Matrix] | OfImages
    power: Literal[1, 2]
    by_class: bool
    total: Matrix
    noise: Matrix
    rounding: Matrix
    free_ridge: bool = False

    @property
    def of_images(self) -> bool:
        """Whether what is summed comes from images, and not from a backbone's features."""
        return self.of == "magnitudes" or isinstance(self.of, OfImages)

    @property
    def width(self) -> int:
        """Length p of the vector."""
        return int(self.total.shape[-1])

    @property
    def equations(self) -> int:
        """Numbers that are told: products count once."""
        each = self.width if self.power == 1 else self.width * (self.width + 1) // 2
        return each * (len(self.total) if self.by_class else 1)

    @property
    def error(self) -> Matrix:
        """Standard deviation of noise and rounding together."""
        return np.asarray(np.hypot(self.noise, self.rounding))


Enters = Callable[[Message, int], Sequence[LinearBlock]]
"""Reads the blocks of a message of so many classes."""
