"""A run, or evidence, in one file: written by `fedassay pack`, and read directly by `check` and `verify`.

The archive is a plain zip, the same to the byte for the same files. One from elsewhere is unpacked into a
temporary folder of the user's alone: regular files inside it, of bounded size, each once.
"""

from __future__ import annotations

import shutil
import stat
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from fedassay.records.record import FILE
from fedassay.support import limits
from fedassay.support.atomic import open_atomic
from fedassay.support.errors import DataError, FedassayError
from fedassay.support.reading import regular_size
from fedassay.support.temporary import temporary_folder
from fedassay.support.text import shown

ENDING = ".zip"
_EARLIEST = (1980, 1, 1, 0, 0, 0)
_MAGIC = b"PK\x03\x04"
_BLOCK = 1 << 20
_BROKEN = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError, ValueError)
"""Exceptions that reading an invalid archive may raise."""


def write_archive(folder: Path, names: Iterable[str], target: Path) -> None:
    """Write files of a folder into an archive.

    Args:
        folder: Folder of the files.
        names: Their paths relative to it, with `/`.
        target: The archive; one that is there is replaced.
    """
    with open_atomic(target) as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(set(names)):
            about = zipfile.ZipInfo(name, _EARLIEST)
            about.compress_type, about.external_attr = zipfile.ZIP_DEFLATED, (stat.S_IFREG | 0o600) << 16
            with (folder / name).open("rb") as source, archive.open(about, "w", force_zip64=True) as packed:
                shutil.copyfileobj(source, packed, _BLOCK)


@contextmanager
def opened(run: Path) -> Iterator[Path]:
    """The folder of a run: itself, or, of an archive, one that is there for as long as the block lasts.

    Raises:
        DataError: It is an archive, and none that could hold a run.
    """
    if not _is_archive(run):
        yield run
        return
    with temporary_folder() as temporary:
        folder = temporary / "run"
        folder.mkdir(mode=0o700)
        _unpack(run, folder)
        inside = [path for path in folder.iterdir() if path.is_dir()]
        # Archives of others may have all of it in one folder.
        root = inside[0] if not (folder / FILE).exists() and len(inside) == 1 else folder
        try:
            yield root
        except FedassayError as error:
            raise type(error)(str(error).replace(str(root), str(run))) from None


def _is_archive(path: Path) -> bool:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return False
        with path.open("rb") as stream:
            return stream.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def _unpack(path: Path, folder: Path) -> None:
    size = regular_size(path, limits.ARCHIVE_BYTES)
    try:
        with zipfile.ZipFile(path) as archive:
            members = [each for each in archive.infolist() if not each.is_dir()]
            _check(path, members, size)
            for member in members:
                target = folder / member.filename
                target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with archive.open(member) as packed, target.open("xb") as stream:
                    _copy(path, packed, stream, member)
    except _BROKEN as error:
        raise DataError(f"{path}: cannot be unpacked ({error}); allowed: an archive of `fedassay pack`") from None


def _check(path: Path, members: list[zipfile.ZipInfo], size: int) -> None:
    """Check an archive's own listing against limits, before any of it is unpacked.

    Raises:
        DataError: It holds too much, a name twice, a link, or something outside of its folder.
    """
    if len(members) > limits.PACKED:
        raise DataError(f"{path}: holds {len(members):,} files; allowed: {limits.PACKED:,}")
    names: set[str] = set()
    for member in members:
        name = PurePosixPath(member.filename)
        mode = member.external_attr >> 16
        if name.is_absolute() or ".." in name.parts or str(name) != member.filename or "\\" in member.filename:
            raise DataError(f"{path}: holds {shown(member.filename)}; allowed: names inside the archive's folder")
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            raise DataError(f"{path}: {shown(member.filename)} is no regular file; allowed: regular files")
        if member.filename in names:
            raise DataError(f"{path}: holds {shown(member.filename)} twice; allowed: once")
        names.add(member.filename)
    total = sum(member.file_size for member in members)
    most = min(limits.ARCHIVE_BYTES, limits.UNPACKED_FREELY + limits.RATIO * size)
    if total > most:
        raise DataError(f"{path}: would be {total:,} bytes unpacked; allowed for {size:,} packed: {most:,}")


def _copy(path: Path, packed: IO[bytes], stream: IO[bytes], member: zipfile.ZipInfo) -> None:
    """One file, and no more of it than the archive says there is."""
    left = member.file_size
    while block := packed.read(min(_BLOCK, left + 1)):
        left -= len(block)
        if left < 0:
            raise DataError(f"{path}: {shown(member.filename)} is larger than the archive says")
        stream.write(block)
