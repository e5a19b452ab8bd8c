"""A model as OpenFL writes it (`save/*_init.pbuf`, `*_best.pbuf`), read without its package.

A `ModelProto` is a row of tensors in field 1, each with its name in field 1, its bytes, and the metadata of what
packed them, in which field 2 has the shape. Numbers are floats of 4 bytes, or of 8. Tensors that
a pipeline compressed or quantised are refused: only OpenFL unpacks them.

Source: Protocol Buffers, "Encoding" (wire types 0, 1, 2 and 5).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedassay.support import limits
from fedassay.support.errors import DataError
from fedassay.support.reading import read_regular

_INSTEAD = (
    "save its arrays instead: np.savez('FILE.npz', **tensors), with tensors, _ = "
    "openfl.protocols.utils.deconstruct_model_proto(model, the pipeline of its plan)"
)
_FIXED = {1: 8, 5: 4}

Field = tuple[int, int | memoryview]


def arrays_of_model(path: Path) -> Iterator[tuple[str, NDArray[np.floating]]]:
    """The tensors of a model by name.

    Raises:
        DataError: The file is no such model, or its tensors are packed otherwise.
    """
    try:
        held = memoryview(read_regular(path, limits.MESSAGE_BYTES))
        tensors = [value for number, value in _fields(held) if number == 1]
        if not tensors or len(tensors) > limits.ARRAYS:
            raise ValueError(f"{len(tensors):,} tensors")
        named = [_tensor(tensor) for tensor in tensors]
    except (ValueError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: no model of OpenFL in a layout that is read ({error}); {_INSTEAD}") from None
    yield from named


def _tensor(held: int | memoryview) -> tuple[str, NDArray[np.floating]]:
    parts = [(number, value) for number, value in _fields(_bytes(held)) if isinstance(value, memoryview)]
    name = next((bytes(value).decode() for number, value in parts if number == 1), "")
    rest = [value for number, value in parts if number > 1]
    if not name or not rest:
        raise ValueError("a tensor without a name or numbers")
    data = max(rest, key=len)
    shapes = [shape for value in rest if value is not data and (shape := _shape(value)) is not None]
    for shape in shapes:
        size = math.prod(shape)
        if len(shape) <= limits.SIDES and len(data) in {4 * size, 8 * size} and size:
            kind = np.float32 if len(data) == 4 * size else np.float64
            return name, np.frombuffer(data, np.dtype(kind).newbyteorder("<")).reshape(shape).astype(kind)
    raise ValueError("a tensor that is compressed, or whose shape is not beside it")


def _shape(held: memoryview) -> tuple[int, ...] | None:
    """The list of whole numbers in field 2 of metadata; None where it holds anything else."""
    found: list[int] = []
    try:
        for number, value in _fields(held):
            if number == 1:
                return None
            if number == 2 and isinstance(value, int):
                found.append(value)
            elif number == 2 and isinstance(value, memoryview):
                at = 0
                while at < len(value):
                    entry, at = _varint(value, at)
                    found.append(entry)
    except ValueError:
        return None
    return tuple(found) if found else None


def _fields(held: memoryview) -> Iterator[Field]:
    """The fields of a message: a number, or the bytes of anything longer."""
    at = 0
    while at < len(held):
        key, at = _varint(held, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(held, at)
            yield number, value
            continue
        if wire == 2:
            length, at = _varint(held, at)
        elif wire in _FIXED:
            length = _FIXED[wire]
        else:
            raise ValueError(f"wire type {wire}")
        if not number or length > len(held) - at:
            raise ValueError("a field that is longer than the file")
        yield number, held[at : at + length]
        at += length


def _varint(held: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(held):
            raise ValueError("a number that is cut off")
        byte = held[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number of more than 64 bits")


def _bytes(held: int | memoryview) -> memoryview:
    if isinstance(held, int):
        raise ValueError("a number in place of a tensor")
    return held
