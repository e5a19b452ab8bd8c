"""One sum over the records of a sender, and what declares how records enter a message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from fedassay.exchange.message import Message
from fedassay.support.types import Floats, Images, Ints, Matrix

if TYPE_CHECKING:
    from torch import nn

Of = Literal["ones", "features", "squares", "norms", "magnitudes"]


@dataclass(frozen=True, eq=False)
class OfImages:
    """Summand of a record that is computed from its image: by a public body, for one.

    Attributes:
        vectors: Makes vectors (n, p) of images (n, H, W, channels).
        network: The same as a module, of float images in [0, 1], (n, channels, H, W), for attacks that descend
            through it; None: there is none.
    """

    vectors: Callable[[Images], Matrix]
    network: nn.Module | None = None


@dataclass(frozen=True, eq=False)
class Cells:
    """Sums that are finer than classes, such as those of the components of a mixture.

    Attributes:
        classes: The class of each sum, shape (Q,).
        of: Number of the sum that a record would be in, shape (n,), from features (n, d) and labels (n,).
    """

    classes: Ints
    of: Callable[[Floats, Ints], Ints]


@dataclass(frozen=True, eq=False)
class LinearBlock:
    """One sum over the records of a sender.

    Attributes:
        field: The fields that it is read from.
        of: Summed part of a record: a named vector, a function of features (n, d), or of images, that makes
            vectors (n, p).
        power: 1: the vector u itself; 2: u u^T.
        by_class: Whether there is a sum of each class, or one over all records.
        total: The sum: (p,) or (p, p), with a first axis of C classes, or Q cells, where it is by class.
        noise: Standard deviation of the declared Gaussian noise on an isometric coordinate of the sum, shape (C,),
            (Q,) or (1,); 0: none.
        rounding: Standard deviation of what the transport has rounded off a coordinate, in the same shape.
        free_ridge: Whether an unknown multiple of the identity is in the sum.
        cells: Replacement of classes; None: classes.
    """

    field: str
    of: Of | Callable[[Floats], Matrix] | OfImages
    power: Literal[1, 2]
    by_class: bool
    total: Matrix
    noise: Matrix
    rounding: Matrix
    free_ridge: bool = False
    cells: Cells | None = None

    def together(self) -> LinearBlock:
        """The block with the sums of each class's cells added up."""
        if self.cells is None:
            return self
        rows, classes = self.cells.classes, int(self.cells.classes.max()) + 1
        total, noise, rounding = (
            np.zeros((classes, *part.shape[1:])) for part in (self.total, self.noise, self.rounding)
        )
        np.add.at(total, rows, self.total)
        np.add.at(noise, rows, self.noise**2)
        np.add.at(rounding, rows, self.rounding**2)
        return replace(self, total=total, noise=np.sqrt(noise), rounding=np.sqrt(rounding), cells=None)

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
        """Number of scalar equations: products count once."""
        each = self.width if self.power == 1 else self.width * (self.width + 1) // 2
        return each * (len(self.total) if self.by_class else 1)

    @property
    def error(self) -> Matrix:
        """Standard deviation of noise and rounding together."""
        return np.asarray(np.hypot(self.noise, self.rounding))


Enters = Callable[[Message, int], Sequence[LinearBlock]]
"""Reads the blocks of a message of so many classes."""
