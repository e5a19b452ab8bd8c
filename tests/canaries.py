"""Looks for planted images in all that a run leaves: by their bytes, by correlation, and through linear maps."""

from __future__ import annotations

import base64
import io
import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors

from fedassay.support.types import Floats, Images

_WINDOW = 16
"""Bytes of an image that give it away: of noise, so many are in a file by chance once in 2^128."""
_ALIKE = 0.6
"""Correlation from which a vector is a canary; that of two images of noise of 256 pixels deviates by 0.06."""
_BASE64 = re.compile(rb"[A-Za-z0-9+/]{64,}={0,2}")
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_LIST = re.compile(rb"(?:-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?[\s,;]+){32,}-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_LARGEST = 4_000
"""Rows and columns of a matrix that is inverted."""


class Canaries:
    """Images of noise, by role; `found` says how many of each role's a folder gives back."""

    def __init__(self, roles: Mapping[str, Images]) -> None:
        self._roles = roles
        every = np.concatenate(list(roles.values()))
        self._pixels = int(np.prod(every.shape[1:]))
        self._centred = {role: _unit(images.reshape(len(images), -1)) for role, images in roles.items()}
        self._pieces = {role: [_pieces(image) for image in images] for role, images in roles.items()}

    def found(self, *folders: Path) -> dict[str, int]:
        """The number of images of each role that the files below some folders give back, for roles with any."""
        hits = {role: np.zeros(len(images), np.bool_) for role, images in self._roles.items()}
        for path in sorted(path for folder in folders for path in folder.rglob("*") if path.is_file()):
            for blob in _blobs(path.read_bytes()):
                self._mark_bytes(blob, hits)
                self._mark_arrays(_arrays(blob), hits)
        return {role: int(hit.sum()) for role, hit in hits.items() if hit.any()}

    def _mark_bytes(self, blob: bytes, hits: dict[str, NDArray[np.bool_]]) -> None:
        for role, images in self._pieces.items():
            for number, pieces in enumerate(images):
                hits[role][number] |= any(piece in blob for piece in pieces)

    def _mark_arrays(self, arrays: list[Floats], hits: dict[str, NDArray[np.bool_]]) -> None:
        """Rows of every array as they are, and of every array through every matrix of its file, both ways."""
        for array in arrays:
            self._mark_rows(array, hits)
        rows = [array.reshape(-1, array.shape[-1]) for array in arrays if array.ndim]
        for matrix in (array for array in arrays if array.ndim == 2 and min(array.shape) > 1):
            if max(matrix.shape) > _LARGEST:
                continue
            inverse = np.linalg.pinv(matrix.astype(np.float64))
            for one in (matrix, inverse, matrix.T, inverse.T):
                # What a centred map leaves out is a vector of its own.
                if one.shape[1] == self._pixels:
                    for row in (row for row in rows if row.shape[1] == one.shape[0]):
                        mapped = row @ one
                        self._mark_rows(mapped, hits)
                        for mean in (each for each in arrays if each.shape == (self._pixels,)):
                            self._mark_rows(mapped + mean, hits)

    def _mark_rows(self, array: Floats, hits: dict[str, NDArray[np.bool_]]) -> None:
        if not array.size or array.size % self._pixels:
            return
        for axis in range(array.ndim):
            rows = _unit(np.moveaxis(array, axis, -1).reshape(-1, self._pixels))
            for role, centred in self._centred.items():
                hits[role] |= (np.abs(centred @ rows.T) > _ALIKE).any(axis=1)


def _pieces(image: NDArray[np.uint8]) -> list[bytes]:
    """Parts of an image as pixels, and as numbers from 0 to 1 and -1 to 1 of several types."""
    flat = image.reshape(-1)
    parts = [flat[start : start + _WINDOW] for start in range(0, len(flat) - _WINDOW, 3 * _WINDOW)]
    scaled = [part / np.float32(255) for part in parts]
    numbers = [
        (part * factor + shift).astype(kind)
        for part in scaled
        for factor, shift in ((1, 0), (2, -1))
        for kind in (np.float16, np.float32, np.float64)
    ]
    return [part.tobytes() for part in parts] + [part.tobytes() for part in numbers]


def _unit(rows: NDArray[Any]) -> NDArray[np.float64]:
    with np.errstate(all="ignore"):
        centred = np.nan_to_num(rows.astype(np.float64), posinf=0.0, neginf=0.0)
        centred = centred - centred.mean(axis=1, keepdims=True)
        norm = np.linalg.norm(centred, axis=1, keepdims=True)
        unit: NDArray[np.float64] = np.nan_to_num(centred / np.where(norm > 0, norm, 1.0))
    return unit


def _blobs(content: bytes) -> Iterator[bytes]:
    """A file, what is base64 in it, and the members of an archive."""
    yield content
    for match in _BASE64.findall(content):
        for shift in range(4):
            part = match[shift:]
            yield base64.b64decode(part[: len(part) // 4 * 4])
    if content.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            yield from (archive.read(name) for name in archive.namelist())


def _arrays(blob: bytes) -> list[Floats]:
    """Every array that a file holds: tensors, an array of NumPy's, pictures, lists of numbers in text."""
    found: list[NDArray[Any]] = []
    with suppress(SafetensorError, ValueError, TypeError, KeyError):
        found += load_tensors(blob).values()
    if blob.startswith(b"\x93NUMPY"):
        found.append(np.load(io.BytesIO(blob), allow_pickle=False))
    with (
        suppress(UnidentifiedImageError, OSError, ValueError, SyntaxError),
        Image.open(io.BytesIO(blob)) as picture,
    ):
        found.append(np.asarray(picture.convert("L")))
    for text in _LIST.findall(blob):
        found.append(np.array([float(number) for number in _NUMBER.findall(text)]))
    return [array.astype(np.float64) for array in found if array.dtype.kind in "biuf"]


def stated(folder: Path) -> dict[str, list[str]]:
    """The roles that each entry of a cache says it was computed from, by its file."""
    found = {}
    for path in sorted(folder.rglob("*.safetensors")):
        blob = path.read_bytes()
        head = json.loads(blob[8 : 8 + int.from_bytes(blob[:8], "little")])
        found[str(path.relative_to(folder))] = json.loads(head["__metadata__"].get("roles", "[]"))
    return found
