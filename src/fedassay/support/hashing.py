"""Content hashes of arrays: the identity of images, weights and cached results."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def digest_arrays(arrays: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 over names, types, shapes and values, in the order of the names.

    Args:
        arrays: Named arrays of numbers or booleans, any shape.

    Returns:
        64 hexadecimal digits; equal exactly when all of the above are equal, bit for bit.
    """
    digest = hashlib.sha256()
    for name in sorted(arrays):
        # reshape: ascontiguousarray turns a scalar into a vector, and shapes are hashed.
        array = np.ascontiguousarray(arrays[name]).reshape(arrays[name].shape)
        head = f"{len(name.encode())}:{name}|{array.dtype.str}|{array.shape}|"
        digest.update(head.encode())
        digest.update(array.reshape(-1).view(np.uint8).data if array.size else b"")
    return digest.hexdigest()


def digest_records(images: NDArray[Any]) -> list[bytes]:
    """One 16-byte hash per record of `images` (n, ...): equal exactly for identical records."""
    rows = np.ascontiguousarray(images)
    return [hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in rows]
