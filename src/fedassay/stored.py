"""Arrays of a message that lie in a file, and are read when somebody asks for them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from fedassay.errors import DataError

UNREADABLE = (SafetensorError, KeyError, ValueError, TypeError, OSError, json.JSONDecodeError)
"""What reading a file that is no safetensors file of NumPy types may raise."""


@dataclass(frozen=True)
class StoredArray:
    """One array of a safetensors file; reading it leaves nothing in memory but the array itself.

    Attributes:
        file: The file.
        name: The array's name in it.
        shape: The array's shape.
        dtype: Its type.
        owner: Whatever removes the file when nobody refers to it any more; None: nobody does.
    """

    file: Path
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    owner: object = field(default=None, repr=False, compare=False)

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
            DataError: The file is gone, or no longer holds the array.
        """
        try:
            with safe_open(self.file, framework="numpy") as content:
                values: NDArray[Any] = content.get_tensor(self.name)
        except UNREADABLE as error:
            raise DataError(f"{self.file}: {self.name!r} can no longer be read ({error})") from None
        if values.shape != self.shape or values.dtype != self.dtype:
            raise DataError(f"{self.file}: {self.name!r} has changed since the transcript was read")
        return values
