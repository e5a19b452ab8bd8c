"""Files in a verified folder that are not verified: they are listed, lest a reader takes them for verified."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

from fedassay.records.manifest import CELLS, LOCK
from fedassay.support.text import shown

EVIDENCE = "evidence.html"
"""The page by which a folder of evidence is known."""
_NAMED = 5
"""Files that are named; of more their number is said."""


def left_out(folder: Path, held: Collection[str], evidence: Collection[str] = ()) -> tuple[str, ...]:
    """Files of a folder that were held to nothing, one line each.

    Args:
        folder: That is verified.
        held: Paths of its files that were compared with something, relative to it.
        evidence: Names of folders in it that are verified by themselves.
    """
    foreign = [name for name in _files(folder) if name not in held and name.split("/")[0] not in evidence]
    more = [f"{len(foreign) - _NAMED:,} more files: nothing names them"] if len(foreign) > _NAMED else []
    return (
        *(f"{name}/: verify it by itself (`fedassay verify {folder / name}`)" for name in evidence),
        *(f"{_plain(name)}: nothing names it, so it is compared with nothing" for name in foreign[:_NAMED]),
        *more,
    )


def _files(folder: Path) -> Iterator[str]:
    """Everything below a folder but what only fedassay reads, relative to it; links are not followed."""
    for path, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not (Path(path) == folder and name == CELLS))
        links = [name for name in folders if stat.S_ISLNK((Path(path) / name).lstat().st_mode)]
        for name in sorted([*files, *links]):
            if not (Path(path) == folder and name == LOCK and _is_empty(folder / name)):
                yield (Path(path) / name).relative_to(folder).as_posix()


def _is_empty(path: Path) -> bool:
    """Whether nothing can hide in a file: a lock with a content is not that of a run."""
    found = path.lstat()
    return stat.S_ISREG(found.st_mode) and found.st_size == 0


def _plain(name: str) -> str:
    return shown(name)[1:-1]
