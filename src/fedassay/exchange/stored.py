"""Serialized messages that lie in a file, and their arrays, read when somebody asks for them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError

from fedassay.support.errors import DataError

UNREADABLE = (SafetensorError, KeyError, ValueError, TypeError, OSError, json.JSONDecodeError)
"""What reading a file that is no safetensors file of NumPy types may raise."""

_LENGTH = 8
"""Bytes of a safetensors file that say how long its header is; what the header calls offset 0 comes after it."""


@dataclass(frozen=True)
class Stored:
    """One serialized message (safetensors) in a file that holds it and perhaps others.

    Attributes:
        file: The file.
        offset: Where in it the message starts.
        nbytes: Its length.
        owner: Whatever removes the file when nobody refers to it any more; None: nobody does.
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
        start: Where its bytes start, from the start of the message.
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


def array_starts(serialized: bytes) -> dict[str, int]:
    """Where the bytes of each array of a valid safetensors message start."""
    length = int.from_bytes(serialized[:_LENGTH], "little")
    header = json.loads(serialized[_LENGTH : _LENGTH + length])
    return {
        name: _LENGTH + length + about["data_offsets"][0]
        for name, about in header.items()
        if name != "__metadata__"
    }
