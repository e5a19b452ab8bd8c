"""Whether an image file reaches as far as its format says: what was cut off is found without decoding it."""

from __future__ import annotations

import os
from typing import IO

from PIL import ImageFile

_END = 64
"""Last bytes of a file that hold the mark of its end; cameras append some zeros."""
_TAIL = 1 << 16
"""Last bytes of a PNG in which EXIF data behind the pixels is looked for."""
_MARKS = {"JPEG": b"\xff\xd9", "MPO": b"\xff\xd9", "JPEG2000": b"\xff\xd9", "PNG": b"IEND"}
_PARTS = ((273, 279), (324, 325))
"""TIFF's tags of where the strips or tiles of a page lie, and of their bytes."""


def ends_whole(image: ImageFile.ImageFile, stream: IO[bytes]) -> bool:
    """Whether an open file is as long as it says, or ends as its format does; only decoding is certain."""
    end, size = _tail(stream, _END), os.fstat(stream.fileno()).st_size
    if image.format == "TIFF":
        tags = getattr(image, "tag_v2", {})
        parts = next(((tags[at], tags[held]) for at, held in _PARTS if at in tags and held in tags), ((), ()))
        return all(start + length <= size for start, length in zip(*parts, strict=False))
    if image.format in ("BMP", "DIB", "PPM"):
        return all(_least_end(tile) <= size for tile in image.tile)
    if image.format == "WEBP":
        return int.from_bytes(_tail(stream, size)[4:8], "little") + 8 <= size
    if image.format == "GIF":
        return end.rstrip(b"\0").endswith(b";")
    return _MARKS[str(image.format)] in end


def has_exif(image: ImageFile.ImageFile, stream: IO[bytes]) -> bool:
    """Whether to ask for EXIF data: Pillow decodes a PNG to look for such behind the pixels, which few have."""
    return image.format != "PNG" or "exif" in image.info or b"eXIf" in _tail(stream, _TAIL)


def _tail(stream: IO[bytes], most: int) -> bytes:
    """The last bytes of a stream, which is left where it was."""
    place, size = stream.tell(), stream.seek(0, os.SEEK_END)
    stream.seek(max(0, size - most))
    end = stream.read()
    stream.seek(place)
    return end


def _least_end(tile: tuple[object, ...]) -> int:
    """Earliest possible end of a tile's rows, in bytes: those of packed ones are of unknown length."""
    codec, extents, offset, how = tile[:4]
    if not isinstance(extents, tuple) or not isinstance(offset, int):
        return 0
    pixels = (extents[2] - extents[0]) * (extents[3] - extents[1])
    return offset + (pixels * (2 if "16" in str(how) else 1) // 8 if codec == "raw" else 1)
