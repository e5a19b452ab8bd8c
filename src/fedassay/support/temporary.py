"""A temporary folder for its owner alone, which never outlives the work, however that ends.

A process that is killed cannot tidy up. Each process therefore holds a lock on its folder while it lives, and the
next process to make a folder removes those without a lock.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "fedassay-private-"
_LOCK = ".lock"


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder below the system's temporary one (`TMPDIR`), with permissions 0700.

    Raises:
        OSError: The folder cannot be made, or its content cannot be removed; the message names it.
    """
    _remove_left_behind()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    # Locked before it has its name: otherwise another process would take it for an abandoned one.
    handle, name = tempfile.mkstemp(dir=folder)
    fcntl.flock(handle, fcntl.LOCK_EX)
    os.rename(name, folder / _LOCK)
    try:
        yield folder
    finally:
        _remove(folder)
        os.close(handle)


def _remove(folder: Path) -> None:
    # A worker that is being ended may still write its last file while the folder is emptied.
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        shutil.rmtree(folder)


def _remove_left_behind() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            about = folder.lstat()
            if stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid():
                _remove_unheld(folder)


def _remove_unheld(folder: Path) -> None:
    handle = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(handle)
