"""One picture of an image file, decoded to eight bits a channel.

A picture of more bits keeps the highest eight of its depth: the depth is what the file declares, or what the plan
says of the data set (`data.bits`), since twelve bits are often stored as sixteen.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile, ImageOps

from fedassay.data.image_header import BITS, Header, PictureError, Place, opened

_HIGH_LOW = {"B": "L", "L": "B", "N": "B" if sys.byteorder == "little" else "L"}
"""Orders of the two bytes of a value, each with the order in which the lower byte is taken for the higher one."""


class Picture(NamedTuple):
    """A decoded picture.

    Attributes:
        image: Upright, of eight bits a channel.
        peak: Highest value as a share of what its depth allows; None where that depth is eight bits.
    """

    image: Image.Image
    peak: float | None = None


def decoded(place: Place, header: Header, bits: int | None) -> Picture:
    """Decode one picture.

    Args:
        place: The file, and which of its pictures.
        header: Of that picture.
        bits: Depth of pictures that declare more than it; None: what they declare.

    Raises:
        PictureError: A value needs more bits than `bits`, or the lower bits of a value cannot be had.
        Exception: Any error of Pillow in a broken file.
    """
    asked = bits if bits is not None and header.bits > bits else None
    depth = header.spread if asked is None else asked
    with opened(place.path) as image:
        if place.frame:
            image.seek(place.frame)
        if header.bits <= BITS:
            return Picture(ImageOps.exif_transpose(image))
        if header.grey and header.mode != "LA":
            values = np.asarray(image).astype(np.int64)
        elif asked is not None:
            values = _both_bytes(place, image)
        else:
            image.load()
            flat = image.convert("L" if header.grey else "RGB")
            # Pillow cuts the lower bits off, but rounds those of a PPM.
            most = float(np.asarray(flat).max()) - (0.5 if header.format == "PPM" else 0.0)
            return Picture(_upright(flat, header), most / 2**BITS)
    if header.inverted:
        values = 2**header.spread - 1 - values
    return Picture(_upright(Image.fromarray(shallow(values, depth)), header), float(values.max()) / 2**depth)


def shallow(values: NDArray[np.int64], depth: int) -> NDArray[np.uint8]:
    """The highest eight bits of values of `depth` bits, any shape.

    Raises:
        PictureError: One of them has more bits.
    """
    if (most := int(values.max())) >= 2**depth:
        raise PictureError(f"has a value of {most:,}; data.bits: {depth} allows up to {2**depth - 1:,}")
    return (values >> (depth - BITS)).astype(np.uint8)


def _both_bytes(place: Place, image: ImageFile.ImageFile) -> NDArray[np.int64]:
    """Colours of 16 bits: Pillow keeps the higher byte, and decoding again gives the lower one."""
    if image.mode != "RGB" or not all(";16" in str(tile[3]) for tile in image.tile):
        raise PictureError(
            f"is of mode {image.mode}; only its highest {BITS} bits can be read; allowed with data.bits: "
            "grey or RGB in PNG or TIFF"
        )
    high = np.asarray(image).astype(np.int64)
    with opened(place.path) as again:
        if place.frame:
            again.seek(place.frame)
        again.tile = [tile._replace(args=_swapped(tile[3])) for tile in again.tile]
        return high * 256 + np.asarray(again, np.int64)


def _swapped(how: Any) -> Any:
    if isinstance(how, tuple):
        return (_swapped(how[0]), *how[1:])
    words = str(how)
    return words[:-1] + _HIGH_LOW[words[-1]]


def _upright(image: Image.Image, header: Header) -> Image.Image:
    image.getexif()[0x0112] = header.orientation
    return ImageOps.exif_transpose(image)
