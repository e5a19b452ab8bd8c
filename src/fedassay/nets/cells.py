"""A backbone that a malicious server sends where clients return sums of features: a cell holds a few records.

Features are K cells of 1 + p numbers. A direction h gives every image a scalar answer, and K + 1 thresholds divide
the answers into cells. Within its cell a record has 1 and p coordinates of its image; everywhere else it has 0. A
sum over the records of a class is then a sum for each of the cells, and its first number is the number of records
in the cell. Where that is 1, the others are one record's, exactly (`fedassay.attacks.trapped_sums`).

- h is random, and orthogonal to the differences of class means, so that each class is spread over all cells.
- Thresholds are quantiles of h over the server's own images. Where a sum is over more records of a class than
  there are cells, the cells hold K of them in the mean and leave out the others. A cell that holds one in the
  mean holds one alone with probability 1/e, however many records there are.
- Coordinates are the first principal components of the server's own images, shifted to be at least 0.

The network is three linear layers with rectifiers. The first gives u_k = relu(1/2 - s (h.x - q_k)) and the
coordinates y; the second steps relu(1 - u_k), which are 0 or 1 but within 1/s of q_k; and the third
relu(y_j + M (step_k - step_(k+1) - 1)), with M above all y_j.

Source: none known to us. Fowl et al., "Robbing the Fed" (ICLR 2022), bin the records of one gradient in this way
(`fedassay.nets.traps`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from fedassay.support.errors import PlanError
from fedassay.support.seeds import Seeds
from fedassay.support.types import Floats, Images, Ints, Matrix

_STEEP = 1e4
"""Ratio of the spread of the answers of h to the width of a step."""


@dataclass(frozen=True)
class Layout:
    """The layout of cells in the features.

    Attributes:
        cells: K.
        numbers: 1 + p, for each cell; the features behind the last cell are 0.
    """

    cells: int
    numbers: int

    @staticmethod
    def of(width: int) -> Layout:
        """Return a layout with about as many cells as numbers in each, for features of some width.

        Raises:
            PlanError: The width is too small for two cells.
        """
        numbers = int(np.sqrt(width))
        if numbers < 2:
            raise PlanError(
                f"threat.server: malicious given with a backbone of width {width}, into which no two cells of two "
                "numbers fit; allowed: 4 or more"
            )
        return Layout(width // numbers, numbers)

    def split(self, rows: Floats) -> Matrix:
        """Features or sums (..., d) by cell, (..., K, 1 + p)."""
        held = np.asarray(rows, np.float64)[..., : self.cells * self.numbers]
        return held.reshape(*held.shape[:-1], self.cells, self.numbers)

    def joined(self, cell: int, numbers: Matrix, width: int) -> Matrix:
        """The features (d,) of a record of a cell."""
        found = np.zeros(width)
        found[cell * self.numbers : (cell + 1) * self.numbers] = numbers
        return found


class Cells(nn.Sequential):
    """Images (n, channels, height, width) in [0, 1] to features (n, d) in cells.

    Attributes:
        layout: Layout of the features.
        components: Directions of the p coordinates, orthonormal, shape (p, pixels).
        lowest: Offset that is subtracted from each coordinate, shape (p,).
    """

    def __init__(self, layout: Layout, width: int, ask: Matrix, thresholds: Matrix, components: Matrix) -> None:
        """Write the weights.

        Args:
            layout: Layout of the features.
            width: d.
            ask: h, scaled by the steepness, shape (pixels,).
            thresholds: Thresholds of h, scaled likewise and rising, shape (K + 1,).
            components: Shape (p, pixels).
        """
        steps, coordinates, pixels = len(thresholds), len(components), len(ask)
        first = nn.Linear(pixels, steps + coordinates)
        second = nn.Linear(steps + coordinates, steps + coordinates)
        third = nn.Linear(steps + coordinates, width)
        super().__init__(nn.Flatten(), first, nn.ReLU(), second, nn.ReLU(), third, nn.ReLU())
        self.layout, self.components = layout, components
        # Pixels are in [0, 1]: no coordinate is below its sum of negative entries.
        self.lowest = np.minimum(components, 0).sum(axis=1)
        above = 1 + float(np.abs(components).sum(axis=1).max(initial=0))
        last, shift = np.zeros((width, steps + coordinates)), np.zeros(width)
        for cell in range(layout.cells):
            for number in range(layout.numbers):
                row = cell * layout.numbers + number
                # The first number of a record is 1: the value of `above` without an added coordinate.
                last[row, cell], last[row, cell + 1] = above, -above
                shift[row] = 1 - above if number == 0 else -above
                if 0 < number <= coordinates:
                    last[row, steps + number - 1] = 1
        _write(first, np.concatenate([-np.tile(ask, (steps, 1)), components]), (0.5 + thresholds, -self.lowest))
        _write(second, np.diag([*(-1.0,) * steps, *(1.0,) * coordinates]), (np.ones(steps), np.zeros(coordinates)))
        _write(third, last, (shift,))

    def write_into(self, body: nn.Module) -> None:
        """Make a body of three linear layers compute the same; units that are left over stay at 0.

        Args:
            body: From images in [-1, 1] as its first linear layer takes them, flat and channel by channel, with
                rectifiers between and behind; changed in place.

        Raises:
            PlanError: It has other layers, or too few units.
        """
        leaves = [each for each in body.modules() if not list(each.children())]
        layers = [each for each in leaves if isinstance(each, nn.Linear)]
        own = [each for each in self if isinstance(each, nn.Linear)]
        fits = len(layers) == 3 and layers[0].in_features == own[0].in_features
        if not fits or layers[-1].out_features != own[-1].out_features or not isinstance(leaves[-1], nn.ReLU):
            raise PlanError(
                f"cells for {own[-1].out_features} features are made of three linear layers from pixels, each "
                "with a rectifier behind it, and a body has others"
            )
        if layers[0].out_features < own[0].out_features or layers[1].out_features < own[1].out_features:
            raise PlanError(
                f"cells take {own[0].out_features} hidden units, and a body has {layers[0].out_features}"
            )
        with torch.no_grad():
            for place, (layer, held) in enumerate(zip(layers, own, strict=True)):
                layer.weight.zero_()
                layer.bias.zero_()
                rows, columns = held.weight.shape
                # From [-1, 1] to [0, 1].
                scale, shift = (0.5, held.weight.double().sum(dim=1) / 2) if place == 0 else (1.0, 0.0)
                layer.weight[:rows, :columns] = held.weight * scale
                layer.bias[:rows] = (held.bias.double() + shift).to(layer.bias)

    def images(self, features: Floats, middle: Matrix, shape: tuple[int, int, int]) -> Images:
        """The images that single records' features (n, d) stand for: their coordinates, and a mean for the rest.

        Args:
            features: Features of one record each.
            middle: Mean of the server's own images in [0, 1], channel by channel, shape (pixels,).
            shape: Height, width and channels.
        """
        numbers = self.layout.split(features).sum(axis=1)[:, 1 : 1 + len(self.components)] + self.lowest
        flat = middle + (numbers - self.components @ middle) @ self.components
        height, width, channels = shape
        rows = np.rint(flat.clip(0, 1) * 255).astype(np.uint8)
        return np.asarray(rows.reshape(-1, channels, height, width).transpose(0, 2, 3, 1))


def _write(layer: nn.Linear, weights: Matrix, bias: tuple[Matrix, ...]) -> None:
    with torch.no_grad():
        layer.weight.copy_(torch.as_tensor(weights))
        layer.bias.copy_(torch.as_tensor(np.concatenate(bias)))


def cells_for(images: Images, labels: Ints, width: int, records: float, seeds: Seeds) -> Cells:
    """Build the network from a server's own labelled images.

    Args:
        images: Shape (n, H, W, channels), n at least 2.
        labels: Shape (n,).
        width: d, equal to the honest backbone's, so that messages have the same shape.
        records: Approximate number of records of a class in a sum, known to the server or guessed.
        seeds: Random streams of the direction.

    Raises:
        PlanError: The features are too few, or all images are equal.
    """
    layout = Layout.of(width)
    rows = _flat(images)
    centred = rows - rows.mean(axis=0)
    _, spread, directions = np.linalg.svd(centred, full_matrices=False)
    live = int((spread > 1e-6 * max(float(spread.max(initial=0)), 1e-300)).sum())
    if not live:
        raise PlanError("threat.server: malicious given, but the attacker's own images are all alike")
    components = directions[: min(layout.numbers - 1, live)]
    drawn = np.asarray(seeds.numpy("cells").standard_normal(rows.shape[1]))
    ask = _across(rows, labels, drawn)
    answers = rows @ ask
    scale = _STEEP / max(float(answers.std()), 1e-300)
    share = min(1.0, layout.cells / max(records, 1.0))
    thresholds = np.quantile(answers, 0.5 + share * np.linspace(-0.5, 0.5, layout.cells + 1))
    if share == 1:
        # A record with an answer beyond all of the server's own images is in the first or the last cell.
        reach = float(np.abs(ask).sum())
        thresholds[0], thresholds[-1] = thresholds[0] - reach, thresholds[-1] + reach
    return Cells(layout, width, ask * scale, thresholds * scale, components)


def _flat(images: Images) -> Matrix:
    """Images as the network flattens them, in [0, 1]: channel by channel."""
    return np.asarray(images.transpose(0, 3, 1, 2).reshape(len(images), -1) / 255, np.float64)


def _across(rows: Matrix, labels: Ints, direction: Matrix) -> Matrix:
    """A direction without its part along the differences of class means."""
    means = np.stack([rows[labels == label].mean(axis=0) for label in np.unique(labels)])
    _, sizes, basis = np.linalg.svd(means - means.mean(axis=0), full_matrices=False)
    held = basis[sizes > 1e-9 * max(float(sizes.max(initial=0)), 1e-300)]
    return np.asarray(direction - held.T @ (held @ direction))
