"""The user's own images in folders, one per class."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from fedassay.data.images import ImageSet, LoadedData
from fedassay.data.loading import MIN_SIDE, DataRequest, allow_only, check_bytes, check_usable
from fedassay.data.sampling import stratified_sample
from fedassay.support import limits
from fedassay.support.errors import DataError, PlanError
from fedassay.support.paths import find
from fedassay.support.reading import regular_size
from fedassay.support.registry import register
from fedassay.support.text import cut, encodable

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
"""Files with other endings are ignored."""

_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
_GREY = frozenset({"1", "L"})
_COLOUR = frozenset({"P", "RGB", "RGBA", "CMYK", "YCbCr"})
_LAYOUTS = "class/image, domain/class/image, or train/class/image with test/class/image"


@dataclass(frozen=True)
class _File:
    path: Path
    domain: str
    label: str


@register("dataset", "image_folder")
def image_folder(request: DataRequest) -> LoadedData:
    """Images of your own in folders: class/image, or domain/class/image.

    Two folders named `train` and `test` at the top, with classes inside, are the training set and
    the official test set. Classes, domains and images come in the order of their names. All images
    are grey (1 channel) if every file is, else all are RGB (transparency is ignored); they are
    turned upright by their EXIF orientation. Sizes must agree, unless `size` has them all resized
    to a square (Lanczos).

    Raises:
        PlanError: No path is given, or `size` is too small.
        DataError: A layout other than these, fewer than two classes, a broken or too small image,
            two sizes; the message names the files.
    """
    allow_only(request, "path")
    if request.path is None:
        raise PlanError("data.path: not given; data set image_folder needs the path of a folder")
    root = find(request.path, request.base, "data.path")
    if not root.is_dir():
        raise DataError(f"data.path: {root.name} is a file; allowed: a folder ({_LAYOUTS})")
    files = _files(root)
    train, test = files, []
    if {file.domain for file in files} == {"train", "test"}:
        train = [file for file in files if file.domain == "train"]
        test = [file for file in files if file.domain == "test"]
    classes = sorted({file.label for file in files})
    if len(classes) < 2:
        raise DataError(f"{root.name}: has one class folder, {classes[0]}; allowed: two or more ({_LAYOUTS})")
    train, test = _limited(train, request), _limited(test, request)
    images = _read([*train, *test], root, request.size)
    domains = [] if test else sorted({file.domain for file in train} - {""})
    sets = [
        _image_set(part, files, classes, domains)
        for part, files in ((images[: len(train)], train), (images[len(train) :], test))
        if files
    ]
    check_usable(sets[0], root.name)
    return LoadedData(sets[0], sets[1] if test else None, f"folder {root.name}")


def _files(root: Path) -> list[_File]:
    """Every image with its class and, in the layout of two levels, its domain."""
    tops = _folders(root)
    if not tops:
        raise DataError(f"{root.name}: has no folders in it; allowed: {_LAYOUTS}")
    flat = [top for top in tops if _images_in(top)]
    deep = [top for top in tops if any(_images_in(folder) for folder in _folders(top))]
    if flat and deep:
        raise DataError(
            f"{root.name}: {flat[0].name} holds images, but {deep[0].name} holds folders of images; "
            f"allowed: {_LAYOUTS}"
        )
    if deep:
        found = [
            _File(path, domain.name, label.name)
            for domain in deep
            for label in _folders(domain)
            for path in _images_in(label)
        ]
    else:
        found = [_File(path, "", label.name) for label in flat for path in _images_in(label)]
    if not found:
        raise DataError(
            f"{root.name}: no images in its folders ({', '.join(sorted(SUFFIXES))}); allowed: {_LAYOUTS}"
        )
    return found


def _folders(folder: Path) -> list[Path]:
    found = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    for path in found:
        if encodable(path.name) != path.name:
            raise DataError(
                f"{encodable(str(path))}: its name is not UTF-8, and would name a class; allowed: rename it"
            )
    return found


def _images_in(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()
    )


def _limited(files: list[_File], request: DataRequest) -> list[_File]:
    """Draw before reading, so that a limit also limits what is decoded."""
    if request.limit is None or len(files) <= request.limit:
        return files
    _, labels = np.unique([file.label for file in files], return_inverse=True)
    rng = np.random.default_rng(request.seed)
    return [files[i] for i in stratified_sample(labels.astype(np.int64), request.limit, rng)]


def _read(files: Sequence[_File], root: Path, size: int | None) -> NDArray[np.uint8]:
    """All images in one array; modes and sizes are compared before anything is decoded."""
    looked = [_look(file.path, root) for file in files]
    mode = "L" if all(found in _GREY for found, _ in looked) else "RGB"
    (width, height), first = looked[0][1], files[0].path
    if size is not None:
        width = height = size
    else:
        for file, (_, other) in zip(files, looked, strict=True):
            if other != (width, height):
                raise DataError(
                    f"{root.name}: images of different sizes: {_name(first, root)} is {width}x{height}, "
                    f"{_name(file.path, root)} is {other[0]}x{other[1]}; allowed: one size, or data.size to "
                    "resize them all"
                )
    shape = (len(files), height, width, 1 if mode == "L" else 3)
    check_bytes(shape, root.name)
    images = np.empty(shape, dtype=np.uint8)
    for row, file in enumerate(files):
        images[row] = _decode(file.path, root, mode, (width, height)).reshape(images.shape[1:])
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
    with warnings.catch_warnings():
        # Pillow warns of large images; those beyond our own limit are refused.
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        with Image.open(path, formats=_FORMATS) as image:
            if image.width * image.height > limits.IMAGE_PIXELS:
                raise ValueError(f"{image.width}x{image.height} pixels; allowed: {limits.IMAGE_PIXELS:,} in all")
            yield image


def _broken(path: Path, root: Path, error: Exception) -> DataError:
    reason = "no image format known" if isinstance(error, UnidentifiedImageError) else str(error)
    reason = cut(reason, limits.NAME_LENGTH) or type(error).__name__
    return DataError(f"{_name(path, root)}: cannot be read as an image ({reason})")


def _name(path: Path, root: Path) -> str:
    return str(path.relative_to(root.parent))


def _image_set(
    images: NDArray[np.uint8], files: Sequence[_File], classes: list[str], domains: list[str]
) -> ImageSet:
    return ImageSet(
        images,
        np.array([classes.index(file.label) for file in files], dtype=np.int64),
        tuple(classes),
        np.array([domains.index(file.domain) for file in files], dtype=np.int64) if domains else None,
        tuple(domains),
    )
