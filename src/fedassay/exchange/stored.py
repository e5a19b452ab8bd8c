"""Serialized messages that lie in a file, and their arrays, read when somebody asks for them."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError

from fedassay.support import limits
from fedassay.support.errors import DataError
from fedassay.support.reading import regular_size
from fedassay.support.text import cut

UNREADABLE = (SafetensorError, KeyError, ValueError, TypeError, OSError, json.JSONDecodeError)
"""Exceptions from reading a file that is no safetensors file of NumPy types."""

_LENGTH = 8
"""Bytes of a safetensors file that say how long its header is; what the header calls offset 0 comes after it."""


_TYPES = {
    **{
        f"{kind}{8 * size}": f"<{kind.lower()}{size}"
        for kind in "FIU"
        for size in (1, 2, 4, 8)
        if kind + str(size) != "F1"
    },
    "BOOL": "?",
    "C64": "<c8",
}
"""Types of safetensors that NumPy has."""


@dataclass(frozen=True)
class Stored:
    """One serialized message (safetensors) in a file that holds it and perhaps others.

    Attributes:
        file: The file.
        offset: First byte of the message in the file.
        nbytes: Its length.
        owner: Object that removes the file when it is no longer referred to; None: there is none.
    """

    file: Path
    offset: int
    nbytes: int
    owner: object = field(default=None, repr=False, compare=False)

    def read(self) -> bytes:
        """The message as it goes over the wire.

        Raises:
            DataError: The file is gone or too short.
        """
        found = self.values(0, np.dtype(np.uint8), self.nbytes, "the message")
        return found.tobytes()

    def values(self, start: int, dtype: np.dtype[Any], count: int, what: str) -> NDArray[Any]:
        """`count` numbers from byte `start` of the message on.

        Raises:
            DataError: As `read`; `what` says what could not be read.
        """
        try:
            found = np.fromfile(self.file, dtype, count, offset=self.offset + start)
        except OSError as error:
            raise DataError(f"{self.file}: {what} can no longer be read ({error.strerror or error})") from None
        if found.size != count:
            raise DataError(f"{self.file}: {what} can no longer be read: the file has become shorter")
        return found


@dataclass(frozen=True)
class StoredArray:
    """One array of a stored message; reading it leaves nothing in memory but the array itself.

    Attributes:
        within: The message.
        name: The array's name in it.
        start: Offset of its first byte in the message.
        shape: The array's shape.
        dtype: Its type.
    """

    within: Stored
    name: str
    start: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """Number of entries."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        """Bytes in memory once it is read."""
        return self.size * self.dtype.itemsize

    def read(self) -> NDArray[Any]:
        """The array.

        Raises:
            DataError: The file is gone or too short.
        """
        return self.within.values(self.start, self.dtype, self.size, repr(self.name)).reshape(self.shape)


@dataclass(frozen=True)
class Declared:
    """Declaration of one array in the header of a safetensors file."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def declared_arrays(file: Path) -> dict[str, Declared]:
    """Read the declarations in the header of a safetensors file; nothing but its header is read.

    Args:
        file: In an untrusted folder.

    Raises:
        DataError: It is no regular file, or a link; too large; no safetensors file of NumPy types; or its declared
            size is not its real one.
    """
    size = regular_size(file, limits.MESSAGE_BYTES, follow=False)
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(_LENGTH), "little")
            allowed = min(limits.HEADER_BYTES, max(0, size - _LENGTH))
            if length > allowed:
                raise ValueError(f"its header would be {length:,} bytes long; allowed in {size:,}: {allowed:,}")
            header = json.loads(stream.read(length))
        if not isinstance(header, dict) or len(header) > limits.ARRAYS:
            raise ValueError(f"the header is no mapping of at most {limits.ARRAYS:,} arrays")
        found = {name: _declared(about) for name, about in header.items() if name != "__metadata__"}
    except RecursionError:
        raise DataError(f"{file}: not a safetensors file of NumPy types (its header is nested)") from None
    except UNREADABLE as error:
        raise DataError(f"{file}: not a safetensors file of NumPy types ({error})") from None
    held = sum(math.prod(each.shape) * each.dtype.itemsize for each in found.values())
    if held != size - _LENGTH - length:
        raise DataError(f"{file}: declares arrays of {held:,} bytes and holds {size - _LENGTH - length:,}")
    return found


def _declared(about: Any) -> Declared:
    """One entry of a header.

    Raises:
        ValueError: It is none, or of a type that NumPy has not.
    """
    if not isinstance(about, dict) or about.get("dtype") not in _TYPES:
        raise ValueError(f"an array of another type than {', '.join(_TYPES)}")
    shape = about.get("shape")
    if not isinstance(shape, list) or len(shape) > limits.SIDES:
        raise ValueError(f"a shape that is no list of at most {limits.SIDES} sides")
    if not all(type(side) is int and 0 <= side <= limits.MESSAGE_BYTES for side in shape):
        raise ValueError(f"a shape of {cut(str(shape), 100)}")
    return Declared(tuple(shape), np.dtype(_TYPES[about["dtype"]]))


def arrays_in(serialized: bytes) -> dict[str, NDArray[Any]]:
    """The arrays of a safetensors message.

    The library's own reader is not asked: where memory does not suffice it panics.

    Raises:
        ValueError: It is no safetensors file of NumPy types, or its arrays overlap or leave gaps.
    """
    length = int.from_bytes(serialized[:_LENGTH], "little")
    header = json.loads(serialized[_LENGTH : _LENGTH + length])
    found, spans = {}, []
    for name, about in header.items():
        if name == "__metadata__":
            continue
        declared, (start, end) = _declared(about), about["data_offsets"]
        count = math.prod(declared.shape)
        if not 0 <= start <= end or end - start != count * declared.dtype.itemsize:
            raise ValueError(f"{cut(repr(name), 100)} lies where it does not fit")
        values = np.frombuffer(serialized, declared.dtype, count, _LENGTH + length + start) if count else ()
        found[name] = np.array(values, declared.dtype).reshape(declared.shape)
        spans.append((start, end))
    ends = [0, *(end for _, end in sorted(spans))]
    if [start for start, _ in sorted(spans)] != ends[:-1] or ends[-1] != len(serialized) - _LENGTH - length:
        raise ValueError("its arrays overlap, or leave gaps")
    return found


def array_starts(serialized: bytes) -> dict[str, int]:
    """First byte of each array of a valid safetensors message."""
    length = int.from_bytes(serialized[:_LENGTH], "little")
    header = json.loads(serialized[_LENGTH : _LENGTH + length])
    return {
        name: _LENGTH + length + about["data_offsets"][0]
        for name, about in header.items()
        if name != "__metadata__"
    }
