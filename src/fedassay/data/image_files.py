"""Image files of other people's: headers are compared before anything is decoded."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from fedassay.data.loading import MIN_SIDE, check_bytes
from fedassay.support import limits
from fedassay.support.errors import DataError
from fedassay.support.reading import regular_size
from fedassay.support.text import cut

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
"""Files with other endings are ignored."""

_GREY = frozenset({"1", "L"})
_COLOUR = frozenset({"P", "RGB", "RGBA", "CMYK", "YCbCr"})
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")


def is_image(path: Path) -> bool:
    """Whether a file is taken for an image, by its name."""
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()


def shared_shape(files: Sequence[Path], root: Path, size: int | None) -> tuple[int, int, int]:
    """Height, width and channels that all files are read with, from their headers.

    Args:
        files: At least one image.
        root: The folder that the user named; errors name files from there.
        size: Side of the square that all are resized to; None: they must agree.

    Raises:
        DataError: A file that is no image, one that is too small or has more than 8 bits a channel, two sizes, or
            more than `limits.ARRAY_BYTES` in memory.
    """
    looked = [_look(file, root) for file in files]
    channels = 1 if all(mode in _GREY for mode, _ in looked) else 3
    width, height = looked[0][1] if size is None else (size, size)
    for file, (_, other) in zip(files, looked, strict=True):
        if size is None and other != (width, height):
            raise DataError(
                f"{root.name}: images of different sizes: {_name(files[0], root)} is {width}x{height}, "
                f"{_name(file, root)} is {other[0]}x{other[1]}; allowed: one size, or data.size to resize them all"
            )
    check_bytes((len(files), height, width, channels), root.name)
    return height, width, channels


def read_images(files: Sequence[Path], root: Path, size: int | None) -> NDArray[np.uint8]:
    """All images in one array (n, height, width, channels).

    Args:
        files: At least one image.
        root: As `shared_shape`.
        size: As `shared_shape`.

    Raises:
        DataError: As `shared_shape`, or a broken image.
    """
    height, width, channels = shared_shape(files, root, size)
    images = np.empty((len(files), height, width, channels), dtype=np.uint8)
    for row, file in enumerate(files):
        images[row] = _decode(file, root, "L" if channels == 1 else "RGB", (width, height)).reshape(
            height, width, channels
        )
    return images


def _look(path: Path, root: Path) -> tuple[str, tuple[int, int]]:
    """Mode and upright size (width, height), from the file's header."""
    try:
        with _opened(path) as image:
            mode, (width, height) = image.mode, image.size
            # Orientations 5 to 8 exchange width and height.
            if image.getexif().get(0x0112, 1) in (5, 6, 7, 8):
                width, height = height, width
    except Exception as error:  # noqa: BLE001 - Pillow's readers raise whatever they run into
        raise _broken(path, root, error) from None
    if mode not in _GREY | _COLOUR:
        modes = ", ".join(sorted(_GREY | _COLOUR))
        raise DataError(f"{_name(path, root)}: is of mode {mode}; allowed: 8 bits a channel ({modes})")
    if min(width, height) < MIN_SIDE:
        raise DataError(
            f"{_name(path, root)}: is {width}x{height} pixels; allowed: {MIN_SIDE}x{MIN_SIDE} or larger "
            "(the window of SSIM)"
        )
    return mode, (width, height)


def _decode(path: Path, root: Path, mode: str, size: tuple[int, int]) -> NDArray[np.uint8]:
    try:
        with _opened(path) as image:
            upright = ImageOps.exif_transpose(image).convert(mode)
    except Exception as error:  # noqa: BLE001 - Pillow's readers raise whatever they run into
        raise _broken(path, root, error) from None
    if upright.size != size:
        upright = upright.resize(size, Image.Resampling.LANCZOS)
    return np.asarray(upright, dtype=np.uint8)


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    """An image file of bounded size whose header says that it unpacks to a bounded size.

    Only the formats that `SUFFIXES` names are tried: others are read by programs that Pillow starts.
    """
    regular_size(path, limits.IMAGE_FILE_BYTES)
    # Pillow warns of large images and of odd headers; what it cannot read, or is beyond our limit, is refused.
    with (
        warnings.catch_warnings(action="ignore"),
        _Stream(io.FileIO(path)) as stream,
        Image.open(stream, formats=_FORMATS) as image,
    ):
        if image.width * image.height > limits.IMAGE_PIXELS:
            raise ValueError(f"{image.width}x{image.height} pixels; allowed: {limits.IMAGE_PIXELS:,} in all")
        yield image


class _Stream(io.BufferedReader):
    """A file of which only so much can be read byte by byte: Pillow reads comments in headers that way."""

    _single = 0

    def read(self, size: int | None = -1, /) -> bytes:
        """As `io.BufferedReader`.

        Raises:
            ValueError: More than `limits.IMAGE_HEADER_BYTES` bytes were read one at a time.
        """
        self._single = self._single + 1 if size == 1 else 0
        if self._single > limits.IMAGE_HEADER_BYTES:
            raise ValueError(f"a header of more than {limits.IMAGE_HEADER_BYTES:,} bytes")
        return super().read(size)


def _broken(path: Path, root: Path, error: Exception) -> DataError:
    reason = "no image format known" if isinstance(error, UnidentifiedImageError) else str(error)
    reason = cut(reason, limits.NAME_LENGTH) or type(error).__name__
    return DataError(f"{_name(path, root)}: cannot be read as an image ({reason})")


def _name(path: Path, root: Path) -> str:
    return str(path.relative_to(root.parent))
