"""Recognise gradients and updates of networks by the ranks and sums that backpropagation gives.

The gradient of a layer is dW = sum_i d_i x_i^T and db = sum_i d_i over the records i of a batch, x_i the layer's
inputs and d_i the backpropagated error. So fewer records than units and inputs leave dW of a rank below both,
with db in its range; trained weights have no reason for either. At a softmax head the d_i add up to 0 over classes
(Zhao et al., "iDLG", 2020, section 3), and so do the rows of dW and the entries of db. The same holds for the
change by steps of gradient descent. Units or inputs that are off throughout make rows or columns of 0, as pruning
does in weights: they are left out before ranks are compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedassay.exchange.inference.reading import Readings, sure, unsure
from fedassay.exchange.inference.sheets import Sheet
from fedassay.support.types import Matrix

Sheets = Mapping[str, Sheet]

_FEWEST = 4
"""Units and inputs that a layer must have for a missing rank to say something."""

_WIDEST = 1024
"""Side above which no rank is computed."""

_SMALL = 0.1
"""Root mean square times the root of the number of inputs, below which arrays are a change and not weights. At the
start of training it is 0.58 (uniform) to 1.41 (He et al. 2015)."""


@dataclass(frozen=True)
class Layer:
    """A table and the row beside it, by name."""

    table: str
    row: str


def layers_of(shapes: Mapping[str, tuple[int, ...]]) -> list[Layer]:
    """Linear layers with a bias, the first one first: each table with the nearest row of its height.

    Args:
        shapes: Shapes of the arrays, in the order of the message.
    """
    names = list(shapes)
    rows = [name for name in names if len(shapes[name]) == 1]
    found: list[Layer] = []
    for place, name in enumerate(names):
        if len(shapes[name]) != 2:
            continue
        fitting = [row for row in rows if shapes[row] == shapes[name][:1]]
        if fitting:
            nearest = min(fitting, key=lambda row: (abs(names.index(row) - place), names.index(row) < place))
            rows.remove(nearest)
            found.append(Layer(name, nearest))
    return _chained(found, shapes)


def _chained(layers: Sequence[Layer], shapes: Mapping[str, tuple[int, ...]]) -> list[Layer]:
    """Order layers so that each takes the output of the one before; unchanged where they form no single chain."""
    left, chain = list(layers), []
    outputs = [shapes[layer.table][0] for layer in layers]
    width = None
    while left:
        fitting = [
            layer
            for layer in left
            if (shapes[layer.table][1] not in outputs if width is None else shapes[layer.table][1] == width)
        ]
        if len(fitting) != 1:
            return list(layers)
        chain.append(fitting[0])
        left.remove(fitting[0])
        width = shapes[fitting[0].table][0]
    return chain


def in_order(names: Sequence[str], shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
    """Names of a gradient's arrays with each layer's table before its row, the first layer first."""
    layers = [name for layer in layers_of(shapes) for name in (layer.table, layer.row)]
    return [*(name for name in names if name not in layers), *layers]


def read_gradients(sheets: Sheets, classes: int) -> Readings:
    """Read the arrays of a network in a form of message as a gradient or a change of weights.

    Args:
        sheets: The fields of a form, in the order of the message.
        classes: C.

    Returns:
        A reading of every array of floats; empty without evidence of a gradient.
    """
    real = {name: sheet for name, sheet in sheets.items() if sheet.items[0].dtype.kind == "f" and sheet.sides > 0}
    if any(len({item.shape for item in sheet.items}) != 1 for sheet in real.values()):
        return {}
    layers = layers_of({name: sheet.items[0].shape for name, sheet in real.items()})
    layers = [layer for layer in layers if sheets[layer.table].arrays and sheets[layer.row].arrays]
    if not layers:
        return {}
    words = _low_rank(layers, sheets)
    balanced = _balanced(layers[-1], sheets, classes)
    if words:
        evidence = (words, *((_BALANCED,) if balanced else ()))
        return {name: sure("gradient", *evidence) for name in real}
    if len(layers) > 1 and balanced:
        return {name: unsure("gradient", "parameters", why=_BALANCED) for name in real}
    if len(layers) > 1 and _small([sheets[layer.table] for layer in layers]):
        why = "the arrays are of a network's shapes, and as small as what training changes"
        return {name: unsure("gradient", "parameters", why=why) for name in real}
    return {}


_BALANCED = "rows and offsets of the last layer add up to 0, as those of a softmax head's gradient do"


def _low_rank(layers: Sequence[Layer], sheets: Sheets) -> str:
    """Return a sentence about the first layer with the rank of a few records in every message; or ""."""
    for layer in layers:
        pairs = list(zip(sheets[layer.table].arrays, sheets[layer.row].arrays, strict=True))
        unit = max(sheets[layer.table].unit, sheets[layer.row].unit)
        ranks = [_rank_of_records(table, row, unit) for table, row in pairs]
        if all(ranks):
            height, width = pairs[0][0].shape
            return (
                f"{layer.table} ({height} x {width}) has rank {max(ranks)} with {layer.row} in its range, as the "
                "gradient of that many records has"
            )
    return ""


def _rank_of_records(table: Matrix, row: Matrix, unit: float) -> int:
    """Return the rank that a few records explain; 0 if weights may have it, or the row is outside the range."""
    if max(table.shape) > _WIDEST * 16 or min(table.shape) > _WIDEST or not row.any():
        return 0
    rows, columns = table.any(axis=1) | (row != 0), table.any(axis=0)
    held = table[np.ix_(rows, columns)]
    side = min(held.shape)
    if side < _FEWEST:
        return 0
    left, values, _ = np.linalg.svd(held, full_matrices=False)
    rank = int((values > 8 * np.sqrt(max(held.shape)) * max(unit, 1e-12) * values[0]).sum())
    # Weights may have centred rows, which take one from the rank.
    if rank > side - 2 or rank == 0:
        return 0
    offsets = row[rows]
    outside = offsets - left[:, :rank] @ (left[:, :rank].T @ offsets)
    return rank if float(np.linalg.norm(outside)) <= 1e-2 * float(np.linalg.norm(offsets)) else 0


def _balanced(layer: Layer, sheets: Sheets, classes: int) -> bool:
    """Whether the sums over the classes of a last layer are 0 to rounding."""
    table, row = sheets[layer.table], sheets[layer.row]
    if not table.has_lengths([classes] * len(table.items)) or classes < 2:
        return False
    pairs: list[tuple[Matrix, float]] = [(a, table.unit) for a in table.arrays]
    pairs += [(a, row.unit) for a in row.arrays]
    return all(
        a.any() and np.abs(a.sum(axis=0)).max() <= 64 * max(unit, 1e-12) * np.abs(a).sum(axis=0).max()
        for a, unit in pairs
    )


def _small(tables: Sequence[Sheet]) -> bool:
    """Whether all tables are far smaller than weights with as many inputs, and of both signs.

    An optimiser's second moments are as small, and never negative.
    """
    if any((a >= 0).all() or (a <= 0).all() for sheet in tables for a in sheet.arrays):
        return False
    return all(0 < float(np.sqrt(np.mean(a**2) * a.shape[1])) < _SMALL for sheet in tables for a in sheet.arrays)
