"""A list of the files that a run wrote, so that replacing the run removes those and no others.

A run notes the names of files before it writes them, in `.cells/*.files`. There is one such file a cell and one
for the run as a whole, so that no two processes write to the same one. A name that was noted but never written
does no harm; every written file is noted, however the run ended.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path, PurePosixPath

from fedassay.records.record import FILE
from fedassay.support.atomic import make_folder, refuse_unusual
from fedassay.support.errors import DataError
from fedassay.support.reading import read_json

CELLS = ".cells"
"""The folder inside a run folder for files that only fedassay reads."""
LOCK = ".lock"
"""The empty file that a run locks to keep other processes out of its folder; it stays."""
PLAN = "plan.sha256"
REDACTED = "redacted"
"""Shows the folder of a run with `--redact`, which cannot be resumed."""
OF_THE_RUN = "run"
"""The owner, in place of a cell, of the record, the report and the tables."""

# The places where a run may write at all: a manifest from elsewhere cannot name any other.
_PLACES = re.compile(
    r"record\.json|report\.html|statement(\.dsse)?\.json|tables/[^/]+\.csv|transcripts/[^/]+/(transcript\.json|\d{5,}\.safetensors)"
    r"|artifacts/([^/]+/)?[^/]+\.png"
)
_HALF = re.compile(r"\.(.+)\.[a-z0-9_]{8}\.tmp")
"""The name of a file that `fedassay.support.atomic` is writing, which holds the final name."""


def note(folder: Path, owner: str, names: Iterable[str]) -> None:
    """Note files of a run folder that are about to be written.

    Args:
        folder: The run folder.
        owner: Key of the cell that they belong to, or `OF_THE_RUN`.
        names: Paths relative to the run folder, with `/`.

    Raises:
        PlanError: Something stands where they are noted that is no regular file.
    """
    make_folder(folder / CELLS)
    path = folder / CELLS / f"{owner}.files"
    refuse_unusual(path)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    try:
        # A line end first as well: a process that was killed here may have left half a line.
        os.write(handle, ("\n" + "".join(f"{name}\n" for name in names)).encode())
        os.fsync(handle)
    finally:
        os.close(handle)


def may_write(name: str, key: str) -> bool:
    """Whether a cell may have a file of this name: its transcript's or one of its pictures'."""
    return _PLACES.fullmatch(name) is not None and name.split("/")[:2] in (
        ["transcripts", key],
        ["artifacts", key],
    )


def noted(folder: Path, owner: str | None = None) -> list[str]:
    """The names of files that were noted, by one owner or all, as far as a run may write there."""
    cells = folder / CELLS
    paths = _inside(cells, "*.files") if owner is None else [cells / f"{owner}.files"]
    names: set[str] = set()
    for path in paths:
        names.update(_content(path).decode("utf-8", "replace").splitlines())
    return sorted(name for name in names if _PLACES.fullmatch(name))


def remove_halves(folder: Path) -> None:
    """Remove the half-written files of killed writers from a run folder that no other process writes to."""
    own = {*noted(folder), *(f"{CELLS}/{path.name}" for path in _inside(folder / CELLS, "*"))}
    folders = {folder, folder / CELLS, *((folder / name).parent for name in own)}
    for place in folders:
        for path in _inside(place, ".*.tmp"):
            half = _HALF.fullmatch(path.name)
            name = half and (place / half[1]).relative_to(folder).as_posix()
            if name and (name in own or place.name == CELLS) and _is_file(path):
                path.unlink()


def plan_digest(folder: Path) -> str | None:
    """Return the SHA-256 of the plan of the run in a folder; None where it is not noted."""
    kept = re.fullmatch(rb"([0-9a-f]{64})\n", _content(folder / CELLS / PLAN))
    return None if kept is None else kept[1].decode()


def holds(folder: Path, name: str) -> bool:
    """Whether something stands there; folders that are empty but for half-written files do not count."""
    path = folder / name
    if path.is_symlink() or not path.is_dir():
        return os.path.lexists(path)
    return any(not _HALF.fullmatch(inner.name) for inner in path.iterdir())


def remove(folder: Path) -> None:
    """Remove the files of a run from its folder, and the folders left empty; all other files stay."""
    cells = folder / CELLS
    owners = {path.name.removesuffix(".files") for path in _inside(cells, "*.files") if _is_file(path)}
    names = {"report.html", *noted(folder)}
    for name in sorted(names - {FILE}):
        if _PLACES.fullmatch(name):
            _remove_file(folder, name)
    _remove_file(folder, f"{CELLS}/{REDACTED}")
    # Files that name others are removed after those, so that an interrupted removal can be repeated.
    _remove_file(folder, FILE)
    for key in owners - {OF_THE_RUN}:
        if not (scratch := cells / f"{key}.scratch").is_symlink():
            shutil.rmtree(scratch, ignore_errors=True)
        _remove_file(folder, f"{CELLS}/{key}.json")
    for owner in owners:
        _remove_file(folder, f"{CELLS}/{owner}.files")
    # Last, the files that mark the folder as a run.
    _remove_file(folder, f"{CELLS}/{PLAN}")
    for name in ("tables", "transcripts", "artifacts", CELLS):
        _remove_empty(folder / name)


def _content(path: Path) -> bytes:
    """Read a file of a run; empty where it is not a regular file, or larger than any that a run writes."""
    try:
        return read_json(path, follow=False)
    except DataError:
        return b""


def _inside(folder: Path, pattern: str) -> list[Path]:
    """Entries of a folder that is really there, and no link to one elsewhere."""
    return [] if folder.is_symlink() or not folder.is_dir() else sorted(folder.glob(pattern))


def _remove_file(folder: Path, name: str) -> None:
    """Remove a regular file and a killed writer's remains of it; never through a link or outside the folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        return
    parents = [folder / part for part in path.parents if part.parts]
    if any(parent.is_symlink() or not parent.is_dir() for parent in parents):
        return
    target = folder / path
    halves = [
        each for each in target.parent.iterdir() if (half := _HALF.fullmatch(each.name)) and half[1] == path.name
    ]
    for other in (target, *halves):
        if _is_file(other):
            other.unlink()


def _remove_empty(folder: Path) -> None:
    """Remove a folder, and those in it, as far as they are empty."""
    for inner in (path for path in _inside(folder, "*") if path.is_dir()):
        _remove_empty(inner)
    if not folder.is_symlink():
        with suppress(OSError):
            folder.rmdir()


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except (OSError, ValueError):  # a name that is none
        return False
