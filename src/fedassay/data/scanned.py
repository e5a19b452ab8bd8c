"""Content of a folder: images, tables, pictures that are not read, and everything else by its ending."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath

from fedassay.data.account import LeftOut
from fedassay.data.image_files import is_image
from fedassay.data.image_header import SUFFIXES
from fedassay.data.table_words import ENDINGS, UNREAD, WORDS
from fedassay.support import limits
from fedassay.support.errors import DataError
from fedassay.support.text import encodable

_UNREAD = frozenset(f".{ending}" for ending in WORDS["unread_images"])
_LINK = "a link to a folder, which is not followed"
_UNREAD_WHY = ", which is not read: convert them to PNG"
_NAMED = 4
"""Folders that a line names before it counts the rest."""
_HELD = 1_000
"""Paths of one line that are kept, for thumbnails."""


@dataclass(frozen=True)
class Scanned:
    """The files of a folder, by paths below it with `/`, in order.

    Attributes:
        root: The folder.
        images: Files that are read as images.
        tables: Files with a table's ending, those that are not read included.
        others: Other entries of the folder, by kind in words.
        empty: Folders without an entry.
        states: Size and time of every image and table, by which two scans tell whether anything changed.
    """

    root: Path
    images: tuple[str, ...]
    tables: tuple[str, ...]
    others: Mapping[str, Sequence[str]] = field(compare=False)
    empty: tuple[str, ...]
    states: tuple[tuple[int, int], ...]

    @property
    def unread(self) -> list[str]:
        """Files that hold pictures and are not read, by their endings."""
        return [path for why, paths in self.others.items() if why.endswith(_UNREAD_WHY) for path in paths]

    def left_out(self, read: Path | None = None) -> tuple[LeftOut, ...]:
        """Files that are neither image nor table, nor the one that is `read`: one entry for each suffix."""
        rest = {why: [path for path in paths if Path(path) != read] for why, paths in self.others.items()}
        return tuple(
            LeftOut("file", len(paths), why + _in_folders(paths), tuple(sorted(paths)[:_HELD]))
            for why, paths in sorted(rest.items(), key=lambda item: (-len(item[1]), item[0]))
            if paths
        )

    def lies_there(self) -> str:
        """Content of a folder without images, for messages."""
        return "; ".join(each.line for each in self.left_out()[:_NAMED]) or "nothing lies there"

    def copies(self, paths: Collection[str]) -> int:
        """Number of images among some that equal another to the byte."""
        return _copies(self, frozenset(paths))


def scanned(root: Path) -> Scanned:
    """Everything below a folder; a folder that links lead to twice is read once.

    Raises:
        DataError: Folders lie too deep inside each other, one cannot be read, a link leads to itself, or a name is
            no UTF-8.
    """
    states: dict[str, dict[str, tuple[int, int]]] = {"images": {}, "tables": {}}
    others: dict[str, list[str]] = defaultdict(list)
    left, seen = [(str(root), "", False)], set()
    empty: list[str] = []
    while left:
        folder, path, linked = left.pop()
        status, entries = _entries(folder, path, root.name)
        if (status.st_dev, status.st_ino) in seen:
            if linked:
                others[_LINK].append(path.rstrip("/"))
            continue
        seen.add((status.st_dev, status.st_ino))
        empty += [] if entries else [path.rstrip("/")]
        for entry in entries:
            below = path + entry.name
            if entry.name.startswith(".") or entry.name.casefold() in WORDS["systems"]:
                others["hidden, or of an operating system"] += _all_below(entry, below)
                continue
            if encodable(entry.name) != entry.name:
                raise DataError(
                    f"{encodable(entry.path)}: its name is not UTF-8, and would name a class or a file; allowed: "
                    "rename it"
                )
            if (found := _state(entry, f"{root.name}/{below}")) is None:
                others["a link that leads nowhere"].append(below)
            elif stat.S_ISDIR(found.st_mode):
                # Folders themselves come before links to them.
                left.insert(0 if entry.is_symlink() else len(left), (entry.path, f"{below}/", entry.is_symlink()))
            elif (kind := _kind(entry, found)) in states:
                states[kind][below] = (found.st_size, found.st_mtime_ns)
            else:
                others[_in_words(entry.name)].append(below)
    images, tables = (tuple(sorted(held)) for held in states.values())
    known = (*(states["images"][path] for path in images), *(states["tables"][path] for path in tables))
    return Scanned(root, images, tables, others, tuple(sorted(empty)), known)


def _entries(folder: str, path: str, name: str) -> tuple[os.stat_result, list[os.DirEntry[str]]]:
    """The status and the entries of a folder.

    Raises:
        DataError: It lies too deep, or cannot be read.
    """
    if path.count("/") > limits.FOLDERS_DEEP:
        raise DataError(f"{name}: has more than {limits.FOLDERS_DEEP} folders inside each other")
    try:
        return os.stat(folder), [*os.scandir(folder)]
    except OSError as error:
        raise DataError(f"{name}/{path}: cannot be read ({error.strerror})") from None


def tables_beside(root: Path) -> list[Path]:
    """Tables in the folder that a folder lies in, which may speak of its images."""
    return sorted(path for path in root.resolve().parent.iterdir() if path.suffix.lower() in ENDINGS)


def states_of(files: Sequence[Path]) -> tuple[tuple[Path, int, int], ...]:
    """Size and time of some files, by which two looks tell whether anything changed."""
    found = ((path, path.stat()) for path in files if path.is_file())
    return tuple((path, status.st_size, status.st_mtime_ns) for path, status in found)


def _all_below(entry: os.DirEntry[str], below: str) -> list[str]:
    if not entry.is_dir(follow_symlinks=False):
        return [below]
    start = below + "/"
    return [
        (start + os.path.relpath(os.path.join(folder, name), entry.path))
        for folder, _, names in os.walk(entry.path)
        for name in names
    ]


def _state(entry: os.DirEntry[str], name: str) -> os.stat_result | None:
    try:
        return entry.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise DataError(f"{name}: is a link that leads to itself; allowed: remove it") from None
        return None


def _kind(entry: os.DirEntry[str], found: os.stat_result) -> str:
    ending = os.path.splitext(entry.name)[1].lower()
    if not stat.S_ISREG(found.st_mode):
        return "other"
    if ending in ENDINGS | UNREAD:
        return "tables"
    return "images" if ending in SUFFIXES or is_image(Path(entry.path)) else "other"


def _in_words(name: str) -> str:
    ending = os.path.splitext(name)[1].lower()
    if ending in _UNREAD:
        return f"of ending {ending}{_UNREAD_WHY}"
    return f"of ending {ending}" if ending else "without an ending"


def _in_folders(paths: Sequence[str]) -> str:
    """Folders with most of the paths, with their numbers."""
    counts = Counter(str(PurePosixPath(path).parent) for path in sorted(paths))
    named = [
        f"{'the folder itself' if name == '.' else name} {count:,}" for name, count in counts.most_common(_NAMED)
    ]
    more = f", and {len(counts) - _NAMED:,} more folders" if len(counts) > _NAMED else ""
    return f" ({', '.join(named)}{more})"


@lru_cache(maxsize=4)
def _copies(scan: Scanned, paths: frozenset[str]) -> int:
    sizes: dict[int, list[str]] = defaultdict(list)
    for path, (size, _) in zip(scan.images, scan.states, strict=False):
        if path in paths:
            sizes[size].append(path)
    return sum(
        len(alike) - len({_digest(scan.root / path) for path in alike})
        for alike in sizes.values()
        if len(alike) > 1
    )


def _digest(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()
