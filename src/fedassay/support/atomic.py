"""Files that are either whole or absent.

Each writer fills a temporary file in the target's own folder, flushes it to the disk and renames
it over the target, so that an interrupted run (Ctrl-C, kill -9, a full disk) leaves the old file
or none. Temporary names end in `.tmp` and start with a dot.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from fedassay.support.errors import PlanError

_OF_THE_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}
KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
}
"""What a path that is no regular file is, in words."""


@contextmanager
def open_atomic(path: Path, *, wait: bool = True) -> Iterator[BinaryIO]:
    """Open a binary file that replaces `path` when the block ends well, and vanishes otherwise.

    Args:
        path: The target; its folder is made if need be.
        wait: Until the disk has the file, so that it survives a loss of power too.

    Raises:
        PlanError: Something stands there that is no regular file.
        OSError: The folder cannot be written, or the disk is full.
    """
    refuse_unusual(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    temporary = Path(name)
    try:
        with named_on_error(path), os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            if wait:
                os.fsync(stream.fileno())
        # mkstemp makes private files; results get the permissions of any other new file.
        temporary.chmod(0o666 & ~_umask())
        refuse_unusual(path)
        temporary.replace(path)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


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
        # Whatever feeds the file (a download) has errors of its own, which are not about it.
        if error.filename is None and error.errno in _OF_THE_DISK:
            error.filename = str(path)
        raise


def write_bytes(path: Path, data: bytes) -> None:
    """Write `data` to `path`, whole or not at all."""
    with open_atomic(path) as stream:
        stream.write(data)


def write_part(path: Path, data: bytes) -> None:
    """Write one of many files that count for nothing until another one, written last, names them.

    Whole or not at all if the process dies, but the disk is not waited for: for thousands of small files that
    takes most of the time.
    """
    with open_atomic(path, wait=False) as stream:
        stream.write(data)


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` as UTF-8, whole or not at all."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write `value` to `path` as indented JSON, whole or not at all.

    Raises:
        ValueError: The value holds NaN or an infinity, which JSON does not have.
    """
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def _umask() -> int:
    """The process's file mask; it can only be read by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
