"""DICOM files as images: what the header says of picture and person, and grey values as a viewer shows them.

Grey values are what PS3.3 C.11 makes of the stored ones: rescaled, windowed by the first window of the file, and
turned over for MONOCHROME1. Without a window, all of the range that the stored bits can hold is shown.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedassay.data.image_header import BITS, DEEPEST, Header, PictureError, Place
from fedassay.data.image_pixels import Picture
from fedassay.support import limits
from fedassay.support.errors import DataError
from fedassay.support.extras import optional
from fedassay.support.reading import regular_size

SUFFIXES = frozenset({".dcm", ".dicom", ".ima"})
"""Endings of DICOM files; those without one tell themselves by their first bytes."""

PERSON, SITE, BURNED_IN = "PatientID", "InstitutionName", "BurnedInAnnotation"
"""Keywords of a picture's person, of its site, and of text burnt into its pixels.

`data.groups` and `data.sites` may name the first two."""

_GREY = ("MONOCHROME1", "MONOCHROME2")
_SHAPE = ("Rows", "Columns", "SamplesPerPixel", "PhotometricInterpretation", "BitsAllocated", "BitsStored")
_READ = (*_SHAPE, "NumberOfFrames", PERSON, SITE, BURNED_IN)
_INDEX = "DICOMDIR"
"""Name of the table of contents of a disc, which holds no picture."""


def is_dicom(path: Path) -> bool:
    """Whether a file is taken for DICOM: by its ending, or, where it has none, by its first bytes."""
    if path.suffix.lower() in SUFFIXES:
        return True
    if path.name == _INDEX or (path.suffix and not path.suffix[1:].isdecimal()):
        return False
    try:
        with path.open("rb") as stream:
            return stream.read(132)[128:] == b"DICM"
    except OSError:
        return False


def header_of_dicom(path: Path) -> Header:
    """The header of a DICOM file.

    Raises:
        MissingExtraError: pydicom is not installed.
        PictureError: It holds no picture, one of other values, or one that is packed in a way that nothing here
            unpacks.
        Exception: Any error of pydicom in a file that is none, or broken.
    """
    pydicom = _pydicom(path)
    held = _read(pydicom, path, pixels=False)
    if missing := next((name for name in _SHAPE if name not in held), None):
        raise PictureError(f"is DICOM without a picture (no {missing}); allowed: move it away")
    bits, kind = int(held.BitsStored), str(held.PhotometricInterpretation)
    if int(held.BitsAllocated) not in (8, 16) or not 1 <= bits <= DEEPEST:
        raise PictureError(f"has {held.BitsAllocated} bits a value; allowed: 8 or 16")
    width, height, frames = int(held.Columns), int(held.Rows), int(held.get("NumberOfFrames") or 1)
    if width * height > limits.IMAGE_PIXELS:
        raise PictureError(f"has {width}x{height} pixels; allowed: {limits.IMAGE_PIXELS:,} in all")
    if frames > limits.FRAMES:
        raise PictureError(f"holds {frames:,} pictures; allowed: {limits.FRAMES:,}")
    packed = _is_packed(pydicom, held)
    least = width * height * frames * int(held.SamplesPerPixel) * int(held.BitsAllocated) // 8
    facts = ((name, str(held.get(name) or "").strip()) for name in (PERSON, SITE, BURNED_IN))
    return Header(
        format="DICOM",
        mode=kind,
        grey=kind in _GREY,
        size=(width, height),
        bits=bits,
        spread=bits,
        frames=tuple(range(frames)),
        whole=packed or path.stat().st_size >= least,
        facts=tuple((name, value) for name, value in facts if value),
    )


def decoded_dicom(place: Place, header: Header, bits: int | None) -> Picture:
    """Decode one picture; arguments as for `fedassay.data.image_pixels.decoded`.

    Raises:
        PictureError: A value needs more bits than `bits`.
        Exception: Any error of pydicom in a broken file.
    """
    pydicom = _pydicom(place.path)
    held = _read(pydicom, place.path, pixels=True)
    values = pydicom.pixels.pixel_array(held, index=place.frame)
    if header.mode == "PALETTE COLOR":
        values = pydicom.pixels.apply_color_lut(values, held)
    if not header.grey:
        most = np.iinfo(values.dtype).bits if header.mode == "PALETTE COLOR" else header.bits
        return Picture(Image.fromarray((values.astype(np.int64) >> max(0, most - BITS)).astype(np.uint8)))
    asked = bits if bits is not None and header.bits > bits else None
    signed = int(held.get("PixelRepresentation") or 0) == 1
    shown, windowed = _shown(pydicom, held, values, _range(asked or header.bits, signed))
    largest = int(np.abs(values.astype(np.int64)).max())
    if asked is not None and (shown.min() < 0 or shown.max() > 1):
        raise PictureError(f"has a value of {largest:,}, which is more than data.bits: {bits} allows")
    share = np.clip(1 - shown if header.mode == "MONOCHROME1" else shown, 0, 1)
    peak = None if windowed or header.bits <= BITS else largest / 2 ** (header.bits - signed)
    # The highest eight bits are kept, as of other files.
    return Picture(Image.fromarray((255.9999 * share).astype(np.uint8)), peak)


def _range(bits: int, signed: bool) -> tuple[int, int]:
    """The least and the largest value of so many bits."""
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)


def _shown(
    pydicom: Any, held: Any, values: NDArray[Any], ends: tuple[int, int]
) -> tuple[NDArray[np.float64], bool]:
    """Grey values, 0 to 1 within `ends`, before MONOCHROME1 turns them over; and whether a window made them."""
    rescaled = pydicom.pixels.apply_modality_lut(values, held)
    if "VOILUTSequence" in held:
        shown = pydicom.pixels.apply_voi_lut(rescaled, held, prefer_lut=True)
        depth = int(held.VOILUTSequence[0].LUTDescriptor[2])
        return np.asarray(shown, np.float64) / (2**depth - 1), True
    windowed = "WindowCenter" in held and "WindowWidth" in held
    if windowed:
        # pydicom spreads a window over what all stored bits can hold.
        rescaled = pydicom.pixels.apply_windowing(rescaled, held)
        ends = _range(int(held.BitsStored), ends[0] < 0)
    if "ModalityLUTSequence" in held:
        low, high = _range(int(held.ModalityLUTSequence[0].LUTDescriptor[2]), signed=False)
    else:
        low, high = sorted(pydicom.pixels.apply_modality_lut(np.array(ends, np.int64), held).tolist())
    return (np.asarray(rescaled, np.float64) - low) / max(high - low, 1e-9), windowed


def _read(pydicom: Any, path: Path, *, pixels: bool) -> Any:
    regular_size(path, limits.IMAGE_FILE_BYTES)
    # pydicom warns of values that break the standard and can be read.
    with warnings.catch_warnings(action="ignore"):
        if pixels:
            return pydicom.dcmread(path)
        return pydicom.dcmread(path, stop_before_pixels=True, specific_tags=list(_READ))


def _is_packed(pydicom: Any, held: Any) -> bool:
    """Whether the file takes fewer bytes than its pixels.

    Raises:
        PictureError: The pixels are packed in a way that no decoder here unpacks.
    """
    syntax = held.file_meta.TransferSyntaxUID
    if not syntax.is_encapsulated:
        return bool(syntax.is_deflated)
    try:
        able = pydicom.pixels.get_decoder(syntax).is_available
    except NotImplementedError:
        able = False
    if not able:
        raise PictureError(
            f"is packed as {syntax.name}, for which pydicom finds no decoder; allowed: pip install pylibjpeg "
            "pylibjpeg-libjpeg pylibjpeg-openjpeg, or unpacked files"
        )
    return True


def of_headers(key: str, values: Sequence[str], paths: Sequence[str]) -> list[str]:
    """Return the values of all headers for a key of `data`.

    Args:
        key: The key.
        values: Of each file, empty where its header has none.
        paths: The files.

    Raises:
        DataError: One header has none.
    """
    if (missed := next((path for path, value in zip(paths, values, strict=True) if not value), None)) is not None:
        raise DataError(f"data.{key}: {missed} does not say it in its header; allowed: leave it away")
    return list(values)


def proposed(
    facts: Mapping[str, Sequence[str]], known: Mapping[str, Sequence[str]], notes: list[str]
) -> dict[str, str]:
    """Keys that headers of DICOM files give values for, where nothing else does; notes say where some do not."""
    found = {}
    for key, keyword in (("groups", PERSON), ("sites", SITE)):
        values = facts.get(keyword, ())
        if any(known[key]) or len(set(values) - {""}) < 2:
            continue
        if not all(values):
            notes.append(
                f"{sum(map(bool, values)):,} of {len(values):,} headers have {keyword}, which is not used"
            )
        elif key == "sites" or len(set(values)) < len(values):
            found[key] = keyword
    return found


def _pydicom(path: Path) -> Any:
    return optional("pydicom", "dicom", f"reading the DICOM file {path.name}")
