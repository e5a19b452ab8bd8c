"""Image files of other people's: headers are compared before anything is decoded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from fedassay.data import dicom
from fedassay.data.image_header import (
    BITS,
    SUFFIXES,
    Header,
    PictureError,
    Place,
    header_of,
    starts_as_image,
)
from fedassay.data.image_pixels import Picture, decoded
from fedassay.data.loading import MIN_SIDE, check_bytes
from fedassay.support import limits
from fedassay.support.errors import DataError, MissingExtraError
from fedassay.support.text import cut

Frames = Literal["first", "each"]

_DARK = 0.25
"""Share of the largest value that a depth allows: if deep images stay below it, another depth is likelier."""
_DECODED_FIRST, _MOST_DECODED = 32 * limits.MIB, 10_000
"""Pixels and pictures that are decoded when only headers are asked for, which takes about a second."""


@dataclass(frozen=True)
class Reading:
    """Parameters of the reading of image files.

    Attributes:
        size: Side of the square that all are resized to; None: they must agree.
        bits: Actual bits of the values of images that declare more; None: the declared bits.
        frames: Pictures that are taken of a file of several; None: there must be one.
    """

    size: int | None = None
    bits: int | None = None
    frames: Frames | None = None


def endings() -> str:
    """The endings of files that are read, for messages."""
    return ", ".join(sorted(SUFFIXES | dicom.SUFFIXES))


def is_image(path: Path) -> bool:
    """Whether a file is taken for an image: by its ending, or, where it has none, by its first bytes."""
    if path.name.startswith(".") or not path.is_file():
        return False
    if path.suffix.lower() in SUFFIXES or dicom.is_dicom(path):
        return True
    return not path.suffix and starts_as_image(path)


def places_in(files: Sequence[Path], root: Path, reading: Reading) -> list[Place]:
    """The pictures of some files that are taken: the first of each, or all of them one by one.

    Raises:
        DataError: As `headers_of`.
    """
    if reading.frames != "each":
        return [Place(file) for file in files]
    return [Place(file, frame) for file in files for frame in _header(Place(file), root).frames]


def headers_of(places: Sequence[Place], root: Path, reading: Reading) -> list[Header]:
    """The headers of some pictures.

    Args:
        places: At least one.
        root: The folder that the user named; errors name files from there.
        reading: Options of the reading.

    Raises:
        DataError: A file that is no image or ends too early, one with several pictures where `frames` is not
            given, one that is too small or too deep.
        MissingExtraError: Reading one needs a package that is not installed.
    """
    found = []
    for place in places:
        header = _header(place, root)
        if not header.whole:
            # The file is shorter than its header says, or lacks the mark of its end: some of these can be read.
            _tried(place, header, root, reading)
        if len(header.frames) > 1 and reading.frames is None:
            raise DataError(
                f"{_name(place.path, root)}: holds {len(header.frames)} pictures; allowed: data.frames: first "
                "takes the first of every file, each takes all of them, each file as a person"
            )
        width, height = header.size
        if min(width, height) < MIN_SIDE:
            raise DataError(
                f"{_name(place.path, root)}: is {width}x{height} pixels; allowed: {MIN_SIDE}x{MIN_SIDE} or larger "
                "(the window of SSIM)"
            )
        found.append(header)
    return found


def shared_shape(files: Sequence[Path] | Sequence[Place], root: Path, reading: Reading) -> tuple[int, int, int]:
    """Height, width and channels that all files are read with, from their headers; some of them are decoded.

    Those that are decoded are drawn at random, and are all of a small set: what is broken inside, or too dark, is
    found before a run.

    Args:
        files: At least one, by path, or as pictures of files.
        root: As `headers_of`.
        reading: Options of the reading.

    Raises:
        DataError: As `read_images`, as far as headers and the decoded files tell.
        MissingExtraError: As `headers_of`.
    """
    places = _places(files)
    headers = headers_of(places, root, reading)
    shape = _shape(places, headers, root, reading.size)
    left, peaks = _DECODED_FIRST, _Peaks(root)
    for number in np.random.default_rng(0).permutation(len(places))[:_MOST_DECODED].tolist():
        place, header = places[number], headers[number]
        left -= header.size[0] * header.size[1]
        if left < 0:
            break
        peaks.add(place, header, _tried(place, header, root, reading))
    peaks.check(reading.bits)
    return shape


def read_images(files: Sequence[Path] | Sequence[Place], root: Path, reading: Reading) -> NDArray[np.uint8]:
    """All images in one array (n, height, width, channels).

    Args:
        files: At least one, by path, or as pictures of files.
        root: As `headers_of`.
        reading: Options of the reading.

    Raises:
        DataError: As `headers_of`; two sizes, or more than `limits.ARRAY_BYTES`; a broken image; deep images that
            are all so dark that their depth is likely to be another.
        MissingExtraError: As `headers_of`.
    """
    places = _places(files)
    headers = headers_of(places, root, reading)
    height, width, channels = _shape(places, headers, root, reading.size)
    images = np.empty((len(places), height, width, channels), dtype=np.uint8)
    peaks = _Peaks(root)
    for row, (place, header) in enumerate(zip(places, headers, strict=True)):
        picture = _decoded(place, header, root, reading)
        peaks.add(place, header, picture.peak)
        images[row] = _fitted(picture.image, "L" if channels == 1 else "RGB", (width, height)).reshape(
            height, width, channels
        )
    peaks.check(reading.bits)
    return images


def _places(files: Sequence[Path] | Sequence[Place]) -> list[Place]:
    return [file if isinstance(file, Place) else Place(file) for file in files]


def _shape(
    places: Sequence[Place], headers: Sequence[Header], root: Path, size: int | None
) -> tuple[int, int, int]:
    channels = 1 if all(header.grey for header in headers) else 3
    width, height = headers[0].size if size is None else (size, size)
    for place, header in zip(places, headers, strict=True):
        if size is None and header.size != (width, height):
            raise DataError(
                f"{root.name}: images of different sizes: {_name(places[0].path, root)} is {width}x{height}, "
                f"{_name(place.path, root)} is {header.size[0]}x{header.size[1]}; allowed: one size, or data.size "
                "to resize them all"
            )
    check_bytes((len(places), height, width, channels), root.name)
    return height, width, channels


def one_image(place: Place, root: Path, reading: Reading) -> NDArray[np.uint8]:
    """One picture as it is, shape (H, W, C).

    Raises:
        DataError: As `headers_of`, or it is broken.
    """
    header = _header(place, root)
    image = _decoded(place, header, root, reading).image.convert("L" if header.grey else "RGB")
    return np.atleast_3d(np.asarray(image, np.uint8))


def facts_of(files: Sequence[Path], root: Path, reading: Reading) -> dict[str, list[str]]:
    """Persons and sites in the headers of DICOM files, one value a file, by keyword; empty without DICOM files.

    Raises:
        DataError: As `headers_of`.
    """
    if not any(map(dicom.is_dicom, files)):
        return {}
    facts = [dict(header.facts) for header in headers_of(_places(files), root, reading)]
    return {keyword: [each.get(keyword, "") for each in facts] for keyword in (dicom.PERSON, dicom.SITE)}


def in_words(files: Sequence[Path] | Sequence[Place], root: Path, reading: Reading) -> list[str]:
    """Sentences on ambiguous readings of files, without full stops.

    Args:
        files: By path, or as pictures of files; all can be read.
        root: As `headers_of`.
        reading: Options of the reading.
    """
    headers = headers_of(_places(files), root, reading)
    depths = Counter(header.bits for header in headers if header.bits > BITS and header.format != "DICOM")
    said = [
        f"images of {depth} bits a channel ({count:,}): the highest {BITS} of "
        f"{depth if reading.bits is None else min(reading.bits, depth)} bits are kept"
        for depth, count in sorted(depths.items())
    ]
    several = sum(len(header.frames) > 1 for header in headers)
    if several:
        taken = "the first of each is taken" if reading.frames == "first" else "each is taken"
        said.append(f"pictures of files that hold several ({several:,}): {taken} (data.frames)")
    if scans := sum(header.format == "DICOM" for header in headers):
        said.append(
            f"DICOM ({scans:,}): values are rescaled and windowed as each file says; without a window all of its "
            "stored bits are shown"
        )
    burned = sum((dicom.BURNED_IN, "YES") in header.facts for header in headers)
    if burned:
        said.append(
            f"text is burnt into the pixels of DICOM files, as they say ({burned:,}): it may name the person "
            f"({dicom.BURNED_IN})"
        )
    return said


class _Peaks:
    """The highest value of deep images, as a share of what their depth allows."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._found: tuple[float, Place, Header] | None = None

    def add(self, place: Place, header: Header, peak: float | None) -> None:
        """Take note of one picture."""
        if peak is not None and (self._found is None or peak > self._found[0]):
            self._found = (peak, place, header)

    def check(self, bits: int | None) -> None:
        """Refuse deep images that are all dark, unless the plan says how deep they are.

        Raises:
            DataError: They are.
        """
        if bits is not None or self._found is None or self._found[0] >= _DARK:
            return
        share, place, header = self._found
        needed = next(each for each in (8, 10, 12, 14) if share < 2.0 ** (each - header.bits))
        raise DataError(
            f"{self._root.name}: images of {header.bits} bits a channel, and no value in them needs more than "
            f"{needed} ({_name(place.path, self._root)} has the highest): read as {header.bits} bits they are "
            f"nearly black; allowed: data.bits: {needed}, or data.bits: {header.bits} where they are that dark"
        )


def _header(place: Place, root: Path) -> Header:
    with _naming(place, root):
        known = place.path.stat()
        return _looked(place, known.st_mtime_ns, known.st_size)


@lru_cache(maxsize=limits.LOOKED)
def _looked(place: Place, changed: int, size: int) -> Header:
    """The header of a picture in a file of that time and size: `init` and a dry run ask for it several times."""
    if dicom.is_dicom(place.path):
        return dicom.header_of_dicom(place.path)
    return header_of(place.path, place.frame)


@lru_cache(maxsize=limits.LOOKED)
def _peak(place: Place, header: Header, bits: int | None, changed: int, size: int) -> float | None:
    """The highest value of a picture as `Picture` has it, which shows as well that it can be decoded."""
    return _decoder(header)(place, header, bits).peak


def _decoder(header: Header) -> Callable[[Place, Header, int | None], Picture]:
    return dicom.decoded_dicom if header.format == "DICOM" else decoded


def _decoded(place: Place, header: Header, root: Path, reading: Reading) -> Picture:
    with _naming(place, root):
        return _decoder(header)(place, header, reading.bits)


def _tried(place: Place, header: Header, root: Path, reading: Reading) -> float | None:
    with _naming(place, root):
        known = place.path.stat()
        return _peak(place, header, reading.bits, known.st_mtime_ns, known.st_size)


def _fitted(image: Image.Image, mode: str, size: tuple[int, int]) -> NDArray[np.uint8]:
    upright = image.convert(mode)
    if upright.size != size:
        upright = upright.resize(size, Image.Resampling.LANCZOS)
    return np.asarray(upright, dtype=np.uint8)


@contextmanager
def _naming(place: Place, root: Path) -> Iterator[None]:
    """Errors in the block name the file.

    Raises:
        DataError: The block fails.
        MissingExtraError: It needs a package that is not installed.
    """
    try:
        yield
    except MissingExtraError:
        raise
    except PictureError as error:
        raise DataError(f"{_name(place.path, root)}: {error}") from None
    except Exception as error:  # noqa: BLE001 - readers of images raise whatever they run into
        reason = "no image format known" if isinstance(error, UnidentifiedImageError) else str(error)
        reason = cut(reason, limits.NAME_LENGTH) or type(error).__name__
        said = f"{_name(place.path, root)}: cannot be read as an image ({reason})"
        raise DataError(f"{said}; allowed: mend it, or take it away") from None


def _name(path: Path, root: Path) -> str:
    return str(path.relative_to(root.parent))
