"""Files of a client: what it received, and its own records as the first layer, or the map, takes them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.data.archive import check_levels, open_archive
from fedassay.exchange.public_map import PublicMap
from fedassay.exchange.stored import UNREADABLE, arrays_in, declared_arrays
from fedassay.support import limits
from fedassay.support.errors import DataError
from fedassay.support.reading import read_regular
from fedassay.support.text import shown
from fedassay.support.types import Ints, Matrix

_HOLDS = (
    "an array x: images of bytes, (n, H, W) or (n, H, W, C) with 1 or 3 channels, or rows (n, d) as the layer or "
    "the map takes them"
)


@dataclass(frozen=True, eq=False)
class Layer:
    """A table of weights and the row of biases behind it."""

    name: str
    weights: Matrix
    bias: Matrix


@dataclass(frozen=True, eq=False)
class Received:
    """Testable contents of a file.

    Attributes:
        layers: In their order.
        maps: By the name of their matrix.
        others: Names of arrays that are neither.
    """

    layers: tuple[Layer, ...]
    maps: dict[str, PublicMap]
    others: tuple[str, ...]


def read_received(path: Path, *, any_network: bool = False) -> Received:
    """Read a file of safetensors: a message of a transcript, or a network's state, array by array.

    A table (H, d) before a row (H,) is a layer, and so is (d, H) before biases. A table (w, D) before a row (D,)
    of phases, or by itself where it is called R or projection, is a map; one that is square is a map where it is
    called so, and else a layer.

    Args:
        path: The file.
        any_network: Whether it may be one without any layer or map, such as one of convolutions alone.

    Raises:
        DataError: It is no such file, or nothing in it is a layer or a map.
    """
    declared_arrays(path)
    try:
        arrays = arrays_in(read_regular(path, limits.MESSAGE_BYTES, follow=False))
    except UNREADABLE as error:
        raise DataError(f"{path}: not a safetensors file of NumPy types ({error})") from None
    numbers = {name: each for name, each in arrays.items() if each.dtype.kind == "f"}
    for name, each in numbers.items():
        if not np.isfinite(each).all():
            raise DataError(f"{path}: {shown(name)} holds NaN or infinite values; every value must be finite")
    layers, maps, used = _found(numbers)
    if not layers and not maps and not any_network:
        raise DataError(
            f"{path}: holds {', '.join(map(shown, list(arrays)[:5])) or 'nothing'}, neither a layer nor a map; "
            "allowed: tables of weights with their biases, or R with its phases, each array by its name"
        )
    return Received(tuple(layers), maps, tuple(name for name in arrays if name not in used))


def _found(arrays: dict[str, NDArray[Any]]) -> tuple[list[Layer], dict[str, PublicMap], set[str]]:
    layers: list[Layer] = []
    maps: dict[str, PublicMap] = {}
    used: set[str] = set()
    for first, second in pairwise(_ordered(arrays)):
        table, row = arrays[first], arrays[second]
        if table.ndim != 2 or row.ndim != 1 or first in used:
            continue
        by_rows, by_columns = (row.shape == (side,) for side in table.shape)
        if not (by_rows or by_columns):
            continue
        if _is_called_map(first) or not (by_rows or _is_bias(second, row)):
            matrix = table if by_columns else table.T
            maps[first] = PublicMap(matrix.astype(np.float32), row.astype(np.float32))
        else:
            weights = (table if by_rows else table.T).astype(np.float64)
            layers.append(Layer(first.rpartition(".")[0] or first, weights, row.astype(np.float64)))
        used |= {first, second}
    for name, each in arrays.items():
        if name not in used and each.ndim == 2 and _is_called_map(name):
            maps[name] = PublicMap(each.astype(np.float32))
            used.add(name)
    return layers, maps, used


def _is_called_map(name: str) -> bool:
    return name.rpartition(".")[2] in {"R", "projection"}


def _is_bias(name: str, row: NDArray[Any]) -> bool:
    """Whether a row behind a table with a column for each unit, as Keras lays it, is no phases."""
    return "bias" in name.casefold() or bool((row < 0).any() or (row > 2 * np.pi).any())


def _ordered(arrays: dict[str, NDArray[Any]]) -> list[str]:
    """Names with every table before the row that belongs to it: safetensors sorts names, biases before weights."""
    names = sorted(arrays, key=lambda name: (name.rpartition(".")[0], arrays[name].ndim != 2, name))
    return [name for name in names if arrays[name].ndim in (1, 2)]


@dataclass(frozen=True, eq=False)
class Features:
    """Features of own records under a backbone that was received, shape (n, d), and their labels, shape (n,)."""

    rows: Matrix
    labels: Ints


def read_features(path: Path) -> Features | None:
    """Features `f` of the receiver's own records and their labels `y`; None where there are none.

    Raises:
        DataError: They are no such arrays.
    """
    with open_archive(path, {"f", "y"}, _HOLDS) as archive:
        if "f" not in archive.headers:
            return None
        rows = np.asarray(archive.read("f"))
        labels = np.asarray(archive.read("y")) if "y" in archive.headers else np.zeros(0, np.int64)
    usable = rows.ndim == 2 and rows.dtype.kind == "f" and len(rows) and bool(np.isfinite(rows).all())
    if not usable or labels.shape != rows.shape[:1] or labels.dtype.kind not in "iu":
        raise DataError(
            f"{path}: f of shape {rows.shape} and type {rows.dtype}, y of shape {labels.shape} and type "
            f"{labels.dtype}; allowed: finite features (n, d), and their labels (n,) as integers"
        )
    return Features(rows.astype(np.float64), labels.astype(np.int64))


def read_own(path: Path) -> Matrix:
    """The receiver's own records, as rows of float64, shape (n, d).

    Images become (channel, row, column) in [-1, 1], which is what the first layer of this project's bodies takes.

    Raises:
        DataError: There is no such array.
    """
    with open_archive(path, {"x"}, _HOLDS) as archive:
        if "x" not in archive.headers:
            raise DataError(f"{path}: has no array x; allowed: {_HOLDS}")
        rows = np.asarray(archive.read("x"))
    if rows.dtype == np.uint8 and (rows.ndim == 3 or (rows.ndim == 4 and rows.shape[-1] in (1, 3))) and rows.size:
        check_levels(rows, f"{path}: x")
        images = rows.reshape(*rows.shape[:3], -1)
        return np.asarray(images.transpose(0, 3, 1, 2).reshape(len(images), -1) / 127.5 - 1, np.float64)
    if rows.ndim != 2 or rows.dtype.kind != "f" or not len(rows) or not np.isfinite(rows).all():
        raise DataError(f"{path}: x of shape {rows.shape} and type {rows.dtype}; allowed: {_HOLDS}, finite")
    return rows.astype(np.float64)
