"""Arrays kept until they are read: the first ones in memory, those beyond a limit in one unnamed file."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from fedassay.support.atomic import make_folder

LIMIT = 64 << 20
"""Bytes that stay in memory."""


class Overflow:
    """Keeps read-only arrays.

    Args:
        folder: Folder of the file, which has no name and vanishes with this object and its arrays, even if the
            process is killed; None: all stay in memory.
        limit: Bytes that stay in memory.
    """

    def __init__(self, folder: Path | None = None, limit: int = LIMIT) -> None:
        self._folder = folder
        self._limit = limit
        self._held = 0
        self._stream: BinaryIO | None = None

    def keep(self, array: NDArray[np.float64]) -> NDArray[np.float64]:
        """The array, or one equal to it that lies on the disk.

        Raises:
            OSError: The disk is full.
        """
        if self._folder is None or self._held + array.nbytes <= self._limit:
            self._held += array.nbytes
            return array
        if self._stream is None:
            make_folder(self._folder)
            self._stream = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115
        offset = self._stream.seek(0, 2)
        self._stream.write(np.ascontiguousarray(array).data)
        self._stream.flush()
        mapped = np.memmap(self._stream, array.dtype, "r", offset, array.shape)
        return np.asarray(mapped)
