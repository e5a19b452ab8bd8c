"""Folders where the files that a plan names are searched."""

from __future__ import annotations

import os
from pathlib import Path

from fedassay.support.errors import DataError, PlanError
from fedassay.support.reading import shown_path
from fedassay.support.text import shown

_FOLDERS = ("FEDASSAY_DATA", "FEDASSAY_WEIGHTS")
"""Environment variables that name folders, in the order they are tried."""


def find(path: str | Path, base: Path, key: str = "path") -> Path:
    """Find a file or folder that a plan names.

    An absolute path (or one from `~`) is itself. A relative one is tried beside the plan, then
    under the folder that the environment variable FEDASSAY_DATA names, then FEDASSAY_WEIGHTS.

    Args:
        path: As written in the plan.
        base: Folder of the plan.
        key: The plan's key, for the error.

    Returns:
        An existing path.

    Raises:
        DataError: It is in none of these places; the message says which were tried.
    """
    given = _expand(path, key)
    if given.is_absolute():
        if _exists(given):
            return given
        raise DataError(f"{key}: {shown_path(given)} does not exist")
    tried = ["beside the plan"]
    if _exists(base / given):
        return base / given
    for variable in _FOLDERS:
        folder = os.environ.get(variable)
        if not folder:
            tried.append(f"{variable} (not set)")
            continue
        tried.append(variable)
        if _exists(found := Path(folder).expanduser() / given):
            return found
    raise DataError(
        f"{key}: {shown_path(given)} does not exist; looked {tried[0]}, under {' and under '.join(tried[1:])}"
    )


def is_path(words: str) -> bool:
    """Whether a text can be nothing but a path: it has a folder or an ending."""
    return bool(Path(words).suffix) or Path(words).name != words


def data_root(root: str | Path | None, base: Path) -> Path:
    """The folder of published data sets; it need not exist.

    Without `data.root` and FEDASSAY_DATA it is `fedassay-data` under the user's cache folder (`XDG_CACHE_HOME`,
    else `~/.cache`).

    Args:
        root: As written in the plan; relative ones are beside the plan.
        base: Folder of the plan.
    """
    if root is not None:
        return base / _expand(root, "data.root")
    if folder := os.environ.get("FEDASSAY_DATA"):
        return Path(folder).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "fedassay-data"


def root_in_words(root: str | Path | None, base: Path) -> str:
    """Return the name of that folder for errors: the setting that it comes from."""
    if root is not None:
        return "data.root"
    return "FEDASSAY_DATA" if os.environ.get("FEDASSAY_DATA") else shown_path(data_root(None, base))


def _exists(path: Path) -> bool:
    """Whether a path exists; False for a name that no file can have."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _expand(path: str | Path, key: str) -> Path:
    if "\0" in str(path):
        raise PlanError(f"{key}: {shown(str(path))} given; a path cannot hold a null character")
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise PlanError(f"{key}: {path} given, but there is no such user") from None
