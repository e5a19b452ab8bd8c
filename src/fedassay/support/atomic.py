"""Files that are either whole or absent.

Each writer fills a temporary file in the target's own folder, flushes it to the disk and renames it over the
target. An interrupted run (Ctrl-C, kill -9, a full disk) therefore leaves the old file or none. Temporary names
end in `.tmp` and start with a dot.

A run writes people's images and features, so only the owner may read its files (0600, folders 0700). Where
`FEDASSAY_SHARED` is 1, they get the permissions of any other new file.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from fedassay.support.errors import OF_THE_DISK, PlanError

SHARED = "FEDASSAY_SHARED"
"""Environment variable: 1 where others may read the files written."""

KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
}
"""Names, for error messages, of the kinds of path that are not regular files."""


@contextmanager
def open_atomic(path: Path, *, wait: bool = True, private: bool = True, alone: bool = False) -> Iterator[BinaryIO]:
    """Open a binary file that replaces `path` when the block ends well, and vanishes otherwise.

    Args:
        path: The target; its folder is made if necessary.
        wait: Whether to wait until the disk has the file, so that it also survives a loss of power.
        private: False for a file without personal data, such as a plan to start from.
        alone: Whether to keep the file for its owner alone even if `FEDASSAY_SHARED` is set.

    Raises:
        PlanError: Something stands there that is no regular file.
        OSError: The folder cannot be written, or the disk is full.
    """
    refuse_unusual(path)
    make_folder(path.parent, private=private, alone=alone)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    temporary = Path(name)
    try:
        with named_on_error(path), os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            if wait:
                os.fsync(stream.fileno())
        # mkstemp makes private files.
        if not alone and (not private or is_shared()):
            temporary.chmod(0o666 & ~_umask())
        refuse_unusual(path)
        temporary.replace(path)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def make_folder(path: Path, *, private: bool = True, alone: bool = False) -> None:
    """Make a folder, and those above it that are missing; one that is there keeps its permissions.

    `private` and `alone` are those of `open_atomic`.

    Raises:
        OSError: It cannot be made, or a file stands there.
    """
    if path.is_dir():
        return
    if path.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    make_folder(path.parent, private=private, alone=alone)
    try:
        path.mkdir(mode=0o700 if alone or (private and not is_shared()) else 0o777)
    except FileExistsError:
        if not path.is_dir():
            raise


def is_shared() -> bool:
    """Whether others may read the files written, as far as the umask lets them."""
    return os.environ.get(SHARED, "") not in {"", "0"}


def refuse_unusual(path: Path) -> None:
    """Refuse to put a file where something else stands: renaming would replace a device, a pipe or a link itself.

    Raises:
        PlanError: A link, a folder, a device, a named pipe or a socket stands at `path`.
    """
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if not stat.S_ISREG(mode):
        kind = KINDS.get(stat.S_IFMT(mode), "no regular file")
        raise PlanError(f"{path}: it is {kind}, which is left alone; allowed: a new file, or one to replace")


@contextmanager
def named_on_error(path: Path) -> Iterator[None]:
    """Says which file an error is about: a failing write (a full disk) does not."""
    try:
        yield
    except OSError as error:
        # The source of the data (a download) raises errors of its own, which are not about this file.
        if error.filename is None and error.errno in OF_THE_DISK:
            error.filename = str(path)
        raise


@contextmanager
def chosen_by_user(path: Path, instead: str) -> Iterator[None]:
    """Distinguish a path that cannot be written from a disk that is full or broken.

    Args:
        path: The path that the user gave.
        instead: Advice on how to choose another path, which ends the error message.

    Raises:
        PlanError: Nothing can be written at this path.
        OSError: The disk is full or broken.
    """
    try:
        with named_on_error(path):
            yield
    except OSError as error:
        if error.errno in OF_THE_DISK:
            raise
        raise PlanError(f"{path}: cannot be written ({error.strerror}); {instead}") from None


def write_bytes(path: Path, data: bytes, *, alone: bool = False) -> None:
    """Write `data` to `path`, whole or not at all; `alone` as in `open_atomic`."""
    with open_atomic(path, alone=alone) as stream:
        stream.write(data)


def write_part(path: Path, data: bytes) -> None:
    """Write one of many files that count for nothing until another one, written last, names them.

    Whole or not at all if the process dies, but the disk is not waited for: for thousands of small files that
    takes most of the time.
    """
    with open_atomic(path, wait=False) as stream:
        stream.write(data)


def write_text(path: Path, text: str, *, private: bool = True) -> None:
    """Write `text` to `path` as UTF-8, whole or not at all; `private` as in `open_atomic`."""
    with open_atomic(path, private=private) as stream:
        stream.write(text.encode("utf-8"))


def _umask() -> int:
    """The process's file mask; it can only be read by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
