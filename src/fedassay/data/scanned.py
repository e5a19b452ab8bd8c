"""What lies in a folder: its images, its tables, and pictures that are not read."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fedassay.data.image_files import is_image
from fedassay.data.other_files import IMAGES_ELSEWHERE
from fedassay.data.table_words import ENDINGS, UNREAD
from fedassay.support import limits
from fedassay.support.errors import DataError
from fedassay.support.text import encodable

_JUNK = frozenset(("thumbs.db", "desktop.ini", "__macosx", "@eadir", "$recycle.bin", "system volume information"))


@dataclass(frozen=True)
class Scanned:
    """The files of a folder, by paths below it with `/`, in order.

    Attributes:
        root: The folder.
        images: Files that are read as images.
        tables: Files with a table's ending, those that are not read included.
        unread: Files that hold pictures and are not read, by their endings.
    """

    root: Path
    images: tuple[str, ...]
    tables: tuple[str, ...]
    unread: tuple[str, ...]


def scanned(root: Path) -> Scanned:
    """Everything below a folder; a folder that links lead to twice is read once.

    Raises:
        DataError: Folders lie too deep inside each other, one cannot be read, or has a name that is no UTF-8.
    """
    kinds: dict[str, list[str]] = {"images": [], "tables": [], "unread": []}
    left, seen = [(root, "", 0)], set()
    while left:
        folder, path, depth = left.pop()
        if depth > limits.FOLDERS_DEEP:
            raise DataError(f"{root.name}: has more than {limits.FOLDERS_DEEP} folders inside each other")
        try:
            status = folder.stat()
            entries = [*os.scandir(folder)]
        except OSError as error:
            raise DataError(f"{root.name}/{path}: cannot be read ({error.strerror})") from None
        if (status.st_dev, status.st_ino) in seen:
            continue
        seen.add((status.st_dev, status.st_ino))
        for entry in entries:
            if entry.name.startswith(".") or entry.name.casefold() in _JUNK:
                continue
            if encodable(entry.name) != entry.name:
                raise DataError(
                    f"{encodable(entry.path)}: its name is not UTF-8, and would name a class or a file; allowed: "
                    "rename it"
                )
            if os.path.isdir(entry):
                left.append((Path(entry.path), f"{path}{entry.name}/", depth + 1))
            elif (kind := _kind(Path(entry.path))) is not None:
                kinds[kind].append(path + entry.name)
    return Scanned(root, *(tuple(sorted(found)) for found in kinds.values()))


def copies(root: Path, paths: Sequence[str]) -> int:
    """How many files are equal to another to the byte."""
    found = ((path, (root / path).stat()) for path in paths)
    return _copies(root, tuple((path, status.st_size, status.st_mtime_ns) for path, status in found))


@lru_cache(maxsize=4)
def _copies(root: Path, files: tuple[tuple[str, int, int], ...]) -> int:
    sizes: dict[int, list[str]] = defaultdict(list)
    for path, size, _ in files:
        sizes[size].append(path)
    return sum(
        len(alike) - len({hashlib.sha256((root / path).read_bytes()).digest() for path in alike})
        for alike in sizes.values()
        if len(alike) > 1
    )


def _kind(file: Path) -> str | None:
    ending = file.suffix.lower()
    if ending in ENDINGS | UNREAD:
        return "tables" if file.is_file() else None
    if ending in IMAGES_ELSEWHERE:
        return "unread"
    return "images" if is_image(file) else None
