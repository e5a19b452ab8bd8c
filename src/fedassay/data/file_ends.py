"""Whether an image file reaches as far as its format says: what was cut off is found without decoding it."""

from __future__ import annotations

import os
from typing import IO, NamedTuple

from PIL import ImageFile

_CHUNKS = 10_000
"""Chunks of a PNG that are walked through; whoever has more is decoded."""
_END = 64
"""Last bytes of a file that hold the mark of its end; cameras append some zeros."""
_MARKS = {"JPEG": b"\xff\xd9", "MPO": b"\xff\xd9", "JPEG2000": b"\xff\xd9"}
_STRIPS, _TILES = (273, 279), (324, 325)
"""TIFF's tags of where the parts of a page lie, and of their bytes."""


class End(NamedTuple):
    """How a file ends.

    Attributes:
        whole: Whether it is as long as it says, or ends as its format does; decoding tells for certain.
        exif: Whether a PNG has EXIF data anywhere.
    """

    whole: bool
    exif: bool = True


def end_of(image: ImageFile.ImageFile, stream: IO[bytes]) -> End:
    """How an open file ends; the stream is left where it was."""
    place, size = stream.tell(), stream.seek(0, os.SEEK_END)
    try:
        if image.format == "PNG":
            return _end_of_png(stream, size)
        return End(_is_whole(image, stream, size))
    finally:
        stream.seek(place)


def _is_whole(image: ImageFile.ImageFile, stream: IO[bytes], size: int) -> bool:
    if image.format == "TIFF":
        return all(start + length <= size for start, length in _parts(image))
    if image.format in ("BMP", "DIB", "PPM"):
        return all(_least_end(tile) <= size for tile in image.tile)
    stream.seek(0)
    if image.format == "WEBP":
        return int.from_bytes(stream.read(8)[4:], "little") + 8 <= size
    stream.seek(max(0, size - _END))
    end = stream.read()
    if image.format == "GIF":
        return end.rstrip(b"\0").endswith(b";")
    return _MARKS.get(str(image.format), b"") in end


def _end_of_png(stream: IO[bytes], size: int) -> End:
    """Walk from chunk to chunk: length, name, content, checksum."""
    place, exif = 8, False
    for _ in range(_CHUNKS):
        stream.seek(place)
        head = stream.read(8)
        place += 12 + int.from_bytes(head[:4], "big")
        exif |= head[4:] == b"eXIf"
        if place > size or len(head) < 8:
            break
        if head[4:] == b"IEND":
            return End(True, exif)
    return End(False, exif)


def _parts(image: ImageFile.ImageFile) -> list[tuple[int, int]]:
    """Where the strips or tiles of a TIFF page begin, and their bytes."""
    tags = getattr(image, "tag_v2", {})
    starts, lengths = next(((tags[a], tags[b]) for a, b in (_STRIPS, _TILES) if a in tags and b in tags), ((), ()))
    return list(zip(starts, lengths, strict=False))


def _least_end(tile: tuple[object, ...]) -> int:
    """Where the rows of a tile end at the earliest: those of packed ones are of unknown length."""
    codec, extents, offset, how = tile[:4]
    if not isinstance(extents, tuple) or not isinstance(offset, int):
        return 0
    pixels = (extents[2] - extents[0]) * (extents[3] - extents[1])
    return offset + (pixels * (2 if "16" in str(how) else 1) // 8 if codec == "raw" else 1)
