"""The one door for files that others wrote: regular files of bounded size, and JSON that is cheap to parse.

Nothing else is opened: reading a named pipe waits for ever, reading a device may never end, and a link inside a
folder that came from elsewhere may lead anywhere.
"""

from __future__ import annotations

import codecs
import os
import re
import stat
from pathlib import Path
from typing import Any, BinaryIO

from fedassay.support import limits
from fedassay.support.atomic import KINDS
from fedassay.support.errors import DataError, FedassayError
from fedassay.support.text import shown

_LONG_NUMBER = re.compile(rb"[0-9]{%d}" % (limits.NUMBER_LENGTH + 1))
_LONG_TEXT = re.compile(rb'"(?:[^"\\]|\\.){%d}' % limits.TEXT_LENGTH, re.DOTALL)
_TEXT_OR_LONG_NUMBER = re.compile(rb'"(?:[^"\\]|\\.)*+"|([0-9]{%d,})' % (limits.NUMBER_LENGTH + 1), re.DOTALL)


def regular_size(path: Path, most: int, *, follow: bool = True, error: type[FedassayError] = DataError) -> int:
    """The size in bytes of a file that may be opened; nothing is opened to find out.

    Args:
        path: The file.
        most: Bytes that it may have.
        follow: Whether a link is followed: where the user named the file, not where a file from elsewhere did.
        error: Raised where it may not.

    Raises:
        FedassayError: `error`: nothing is there, or no regular file, or a larger one.
    """
    try:
        status = path.stat() if follow else path.lstat()
    except (OSError, ValueError) as problem:
        raise error(f"{shown_path(path)}: cannot be read ({_why(problem)})") from None
    _check(path, status, most, error)
    return status.st_size


def read_regular(path: Path, most: int, *, follow: bool = True, error: type[FedassayError] = DataError) -> bytes:
    """The contents of a regular file.

    Args:
        path: The file.
        most: Bytes that it may have.
        follow: As for `regular_size`.
        error: Likewise.

    Raises:
        FedassayError: `error`: as for `regular_size`, or it cannot be read.
    """
    regular_size(path, most, follow=follow, error=error)
    try:
        # The file may have been replaced meanwhile: a pipe must not be waited for, and a link not be followed.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
        with os.fdopen(handle, "rb") as stream:
            status = os.fstat(handle)
            _check(path, status, most, error)
            content = _whole(stream, status.st_size, most)
    except OSError as problem:
        raise error(f"{shown_path(path)}: cannot be read ({_why(problem)})") from None
    if len(content) > most:
        raise error(_too_large(path, len(content), most))
    return content


def _whole(stream: BinaryIO, size: int, most: int) -> bytes:
    """All bytes of a file, or more than `most` of them; as much memory is taken as the file has bytes."""
    content = stream.read(size + 1)
    if len(content) <= size:
        return content
    # The file grows, or is one of the system's own, which have no size.
    grown = bytearray(content)
    while len(grown) <= most and (more := stream.read(limits.MIB)):
        grown += more
    return bytes(grown)


def read_json(path: Path, *, follow: bool = True) -> bytes:
    """The contents of a JSON file that is cheap to parse, unparsed.

    Raises:
        DataError: As `read_regular` and `check_json`.
    """
    content = read_regular(path, limits.JSON_BYTES, follow=follow).removeprefix(codecs.BOM_UTF8)
    check_json(content, path)
    return content


def check_json(content: bytes, path: Path, *, texts: bool = True) -> None:
    """Refuse JSON that is expensive to parse.

    Args:
        content: The JSON.
        path: Path of the text, for the error.
        texts: Whether long texts are refused as well.

    Raises:
        DataError: It holds more lists, mappings or values, or longer texts or numbers, than are parsed.
    """
    # Brackets and commas inside texts are counted too, which only matters near the limit.
    containers = content.count(b"[") + content.count(b"{")
    if containers > limits.JSON_CONTAINERS:
        raise DataError(
            f"{shown_path(path)}: holds {containers:,} lists and mappings; allowed: {limits.JSON_CONTAINERS:,}"
        )
    if (values := content.count(b",")) > limits.JSON_VALUES:
        raise DataError(f"{shown_path(path)}: holds {values:,} values; allowed: {limits.JSON_VALUES:,}")
    if texts and _LONG_TEXT.search(content):
        raise DataError(f"{shown_path(path)}: holds a text of {limits.TEXT_LENGTH:,} bytes; allowed: fewer")
    if _LONG_NUMBER.search(content):
        for found in _TEXT_OR_LONG_NUMBER.finditer(content):
            if found[1]:
                raise DataError(
                    f"{shown_path(path)}: holds a number of {len(found[1]):,} digits; allowed: "
                    f"{limits.NUMBER_LENGTH}"
                )


def each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a mapping of JSON.

    Raises:
        ValueError: It holds a key twice.
    """
    held = dict(pairs)
    if len(held) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {shown(next(key for key in keys if keys.count(key) > 1))} is given twice")
    return held


def shown_path(path: Path) -> str:
    """A path for a message: as it is, but for one that is absurdly long."""
    words = str(path)
    return words if len(words) <= limits.NAME_LENGTH else shown(words)


def _check(path: Path, status: os.stat_result, most: int, error: type[FedassayError]) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = KINDS.get(stat.S_IFMT(status.st_mode), "no regular file")
        raise error(f"{shown_path(path)}: it is {kind}; allowed: a regular file")
    if status.st_size > most:
        raise error(_too_large(path, status.st_size, most))


def _too_large(path: Path, size: int, most: int) -> str:
    return f"{shown_path(path)}: {size:,} bytes; allowed: {most:,}"


def _why(problem: OSError | ValueError) -> str:
    return (problem.strerror or str(problem)) if isinstance(problem, OSError) else str(problem)
