"""The files of a folder that are no pictures of the data set: each is counted by its ending and its folder."""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from fedassay.data.account import LeftOut
from fedassay.data.image_files import is_image
from fedassay.support.errors import DataError

_NAMED = 4
"""Folders that a line names before it counts the rest."""
_SYSTEM = frozenset({"thumbs.db", "desktop.ini", "icon\r"})
_SYSTEM_FOLDERS = frozenset({"__MACOSX", "@eaDir", "$RECYCLE.BIN", "System Volume Information"})
_FOLDER_LINK = ("a link to a folder, which is not followed", False)
IMAGES_ELSEWHERE = frozenset(
    {
        ".avif",
        ".bif",
        ".czi",
        ".heic",
        ".heif",
        ".mha",
        ".mrxs",
        ".ndpi",
        ".nii",
        ".npy",
        ".psd",
        ".raw",
        ".svs",
        ".tga",
    }
)
"""Endings of images that are not read."""
_HELD = 1_000
"""Paths of one line that are kept, for thumbnails."""


def other_files(root: Path, known: Iterable[str]) -> tuple[LeftOut, ...]:
    """What lies in a folder beside the files that were read or accounted for.

    Args:
        root: The folder; links to folders are not followed.
        known: Paths of the files that were read, or are accounted for, below it, with `/`.

    Returns:
        One entry for each ending, one for images elsewhere than where they are looked for, one for hidden files
        and those of operating systems; the largest first.

    Raises:
        DataError: A link leads to itself.
    """
    taken = set(known)
    found: defaultdict[tuple[str, bool], list[str]] = defaultdict(list)
    for folder, folders, files in os.walk(root):
        below = Path(folder).relative_to(root).as_posix()
        start = "" if below == "." else f"{below}/"
        for name in (*files, *(each for each in folders if os.path.islink(os.path.join(folder, each)))):
            if (path := start + name) not in taken:
                found[_reason(Path(folder) / name, root)].append(path)
    if links := found.pop(_FOLDER_LINK, []):
        read_below = {parent for path in taken for parent in map(str, PurePosixPath(path).parents)}
        if unread := [path for path in links if path not in read_below]:
            found[_FOLDER_LINK] = unread
    return tuple(
        LeftOut("image" if image else "file", len(paths), why + _in_folders(paths), tuple(sorted(paths)[:_HELD]))
        for (why, image), paths in sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    )


def lies_there(root: Path) -> str:
    """What lies in a folder without images, for messages."""
    found = other_files(root, ())
    return "; ".join(each.line for each in found[:_NAMED]) or "nothing lies there"


def _reason(path: Path, root: Path) -> tuple[str, bool]:
    """Why a file is not read, in words, and whether it is an image."""
    below = path.relative_to(root)
    if path.name.lower() in _SYSTEM or any(part in _SYSTEM_FOLDERS or part[0] == "." for part in below.parts):
        return "hidden, or of an operating system", False
    try:
        kind = path.stat().st_mode
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise DataError(f"{root.name}/{below}: is a link that leads to itself; allowed: remove it") from None
        return "a link that leads nowhere", False
    if stat.S_ISDIR(kind):
        return _FOLDER_LINK
    if is_image(path):
        return "beside the folders that are read", True
    ending = path.suffix.lower()
    if ending in IMAGES_ELSEWHERE:
        return f"of ending {ending}, which is not read: convert them to PNG", False
    return (f"of ending {ending}" if ending else "without an ending"), False


def _in_folders(paths: list[str]) -> str:
    """Where they lie: the folders with most of them, with their numbers."""
    counts = Counter(str(PurePosixPath(path).parent) for path in sorted(paths))
    named = [
        f"{'the folder itself' if name == '.' else name} {count:,}" for name, count in counts.most_common(_NAMED)
    ]
    more = f", and {len(counts) - _NAMED:,} more folders" if len(counts) > _NAMED else ""
    return f" ({', '.join(named)}{more})"


def _named(folder: str) -> str:
    return "the folder itself" if folder == "." else folder
