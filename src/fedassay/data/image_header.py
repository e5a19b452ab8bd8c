"""Header of an image file: the facts about the pictures in it; nothing is decoded."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from PIL import Image, ImageFile

from fedassay.support import limits
from fedassay.support.reading import regular_size

SUFFIXES = frozenset(
    {
        *(".apng", ".bmp", ".dib", ".gif", ".j2k", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg", ".jpx"),
        *(".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp"),
    }
)
"""Endings of the files that Pillow reads here; files with other endings are left out, and counted."""

BITS = 8
"""Bits a channel of the images that everything works on."""
DEEPEST = 16
"""Most bits a channel that are read."""

_FORMATS = ("BMP", "DIB", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
_GREY = frozenset({"1", "L", "LA", "I", "I;16", "I;16B", "I;16L"})
_COLOUR = frozenset({"P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr"})
_MAGIC = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"II*\0", b"MM\0*", b"RIFF", b"\0\0\0\x0cjP  ")
"""First bytes of the formats that a file without an ending is taken for."""
_STRETCHED = ("PPM", "JPEG2000")
"""Formats with grey values that Pillow stretches to 16 bits, whatever depth the file has."""

_WIDTH_TAG, _HEIGHT_TAG = 256, 257
_ORIENTATION, _BITS_TAG, _KIND_TAG, _SIGNED_TAG, _WHITE_TAG = 0x0112, 258, 254, 339, 262
_COPIES = 0b101
"""Bits of TIFF's NewSubfileType: a page that is a smaller copy of another, or its mask."""


class PictureError(ValueError):
    """Fault of a readable picture, with the allowed ones; the message does not name the file."""


class Place(NamedTuple):
    """One picture of a file; the first has number 0."""

    path: Path
    frame: int = 0


@dataclass(frozen=True, slots=True)
class Header:
    """Facts in the header of an image file.

    Attributes:
        format: Of the file: `PNG`, `DICOM`.
        mode: Of the pixels, in Pillow's or DICOM's words.
        grey: Whether there is one channel, transparency apart.
        size: Width and height, upright.
        bits: Bits of a channel, as the file declares them.
        spread: Bits that decoded values span, where they are more.
        orientation: EXIF's number, 1 to 8, of a rotation that decoding leaves.
        inverted: Whether the highest value is black, and decoding leaves it so.
        frames: Numbers of the pictures in the file; smaller copies and masks of TIFF pages are none.
        whole: Whether the file ends as its format does, or is as long as it says.
        facts: DICOM's values for the person, the site and the like, by keyword.
    """

    format: str
    mode: str
    grey: bool
    size: tuple[int, int]
    bits: int = BITS
    spread: int = BITS
    orientation: int = 1
    inverted: bool = False
    frames: tuple[int, ...] = (0,)
    whole: bool = True
    facts: tuple[tuple[str, str], ...] = ()


def starts_as_image(path: Path) -> bool:
    """Whether a file begins as those formats do that tell themselves by their first bytes."""
    try:
        with path.open("rb") as stream:
            return stream.read(12).startswith(_MAGIC)
    except OSError:
        return False


def header_of(path: Path, frame: int = 0) -> Header:
    """The header of an image file that Pillow reads, or of one of its pictures.

    Raises:
        PictureError: It has more than 16 bits a channel, signed values, or a mode that is not read.
        Exception: Any error of Pillow in a file that is none, or broken.
    """
    with opened(path) as image:
        frames = _frames(image) if getattr(image, "is_animated", False) and image.format != "MPO" else (0,)
        if frame:
            image.seek(frame)
        bits = _bits(image, path)
        if image.mode not in _GREY | _COLOUR or bits > DEEPEST or _is_signed(image):
            raise PictureError(
                f"is of mode {image.mode} with {bits} bits a channel; allowed: up to {DEEPEST} bits without a "
                "sign, grey or colour"
            )
        assert image.fp is not None
        whole = ends_whole(image, image.fp)
        orientation = int(image.getexif().get(_ORIENTATION, 1)) if has_exif(image, image.fp) else 1
        width, height = _tag(image, _WIDTH_TAG, image.width), _tag(image, _HEIGHT_TAG, image.height)
        grey = image.mode in _GREY
        deep = bits > BITS and grey
        return Header(
            format=str(image.format),
            mode=image.mode,
            grey=grey,
            # Orientations 5 to 8 exchange width and height.
            size=(height, width) if orientation in (5, 6, 7, 8) else (width, height),
            bits=bits,
            spread=DEEPEST if deep and image.format in _STRETCHED else bits,
            # Pillow turns pages of a TIFF upright itself, some releases before they are decoded.
            orientation=1 if image.format == "TIFF" else orientation,
            inverted=deep and _tag(image, _WHITE_TAG, 1) == 0,
            frames=frames,
            whole=whole,
        )


@contextmanager
def opened(path: Path) -> Iterator[ImageFile.ImageFile]:
    """Open an image file of bounded size that unpacks to a bounded size by its header.

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
    """A file with a limit on reads byte by byte: Pillow reads comments in headers that way."""

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


def _tag(image: ImageFile.ImageFile, tag: int, default: int) -> int:
    """The largest value of a TIFF tag; the default elsewhere."""
    value = getattr(image, "tag_v2", {}).get(tag, default)
    return int(max(value)) if isinstance(value, tuple) else int(value)


def _is_signed(image: ImageFile.ImageFile) -> bool:
    return _tag(image, _SIGNED_TAG, 1) != 1


def _bits(image: ImageFile.ImageFile, path: Path) -> int:
    """Bits a channel as the file has them: of colour, Pillow keeps eight and does not say so."""
    if image.format == "TIFF":
        return _tag(image, _BITS_TAG, BITS)
    how = image.tile[0][3] if image.tile else ""
    if isinstance(how, str) and ";16" in how:
        return DEEPEST
    if image.format == "PPM" and isinstance(how, tuple) and isinstance(how[-1], int):
        return max(BITS, how[-1].bit_length())
    if image.format == "JPEG2000":
        with path.open("rb") as stream:
            head = stream.read(limits.IMAGE_HEADER_BYTES)
        # SIZ, the first marker of the codestream, gives the depth of the first component at byte 40.
        at = head.find(b"\xff\x4f\xff\x51")
        return max(BITS, (head[at + 42] & 0x7F) + 1) if 0 <= at < len(head) - 42 else BITS
    return BITS


def _frames(image: ImageFile.ImageFile) -> tuple[int, ...]:
    """Numbers of the pictures of an open file of several; it is left at the first.

    Raises:
        ValueError: There are more than `limits.FRAMES`.
    """
    found, number = [], 0
    while True:
        try:
            image.seek(number)
        except EOFError:
            break
        if not _tag(image, _KIND_TAG, 0) & _COPIES:
            found.append(number)
        number += 1
        if number > limits.FRAMES:
            raise ValueError(f"more than {limits.FRAMES:,} pictures in one file")
    image.seek(0)
    return tuple(found) or (0,)


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
