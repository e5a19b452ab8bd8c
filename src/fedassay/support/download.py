"""Downloads: over https, announced, with a bar, resumed where they broke off, kept only with the digest expected.

Partial content waits beside the target as `.NAME.part`. With `FEDASSAY_OFFLINE=1` nothing is downloaded.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import logging
import os
import socket
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from email.message import Message
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlparse

from fedassay.support.atomic import make_folder, named_on_error, refuse_unusual
from fedassay.support.errors import DataError
from fedassay.support.progress import current
from fedassay.support.reading import shown_path

OFFLINE = "FEDASSAY_OFFLINE"
"""Environment variable: 1 where nothing may be downloaded."""

MD5 = "md5:"
"""Before a digest that is no SHA-256."""

_SCHEMES = ("https", "file")
_UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS)
_TIMEOUT = 30.0
_CHUNK = 2**20

_log = logging.getLogger(__name__)


def is_offline() -> bool:
    """Whether nothing may be downloaded."""
    return os.environ.get(OFFLINE, "") not in {"", "0"}


def download(path: Path, urls: Sequence[str], digest: str) -> None:
    """Download a file that is not there yet.

    Args:
        path: Path of the file; its folder is made if necessary.
        urls: Addresses of the file, tried in turn.
        digest: The file's SHA-256 in hexadecimal, or its first digits where no more was published; `md5:` and the
            MD5 of a file that is published with no other, and that runs nothing when it is read.

    Raises:
        DataError: Offline, the folder cannot be written, or no address gives a file with this digest; the message
            says why.
        PlanError: Something stands at `path`, or where its parts are kept, that is no file.
    """
    if is_offline():
        raise DataError(f"--offline: it would be downloaded from {urls[0]}")
    part = path.with_name(f".{path.name}.part")
    with _locked(part, path) as stream:
        if path.exists():
            return
        reasons = [reason for url in urls if (reason := _from(url, stream, path, digest)) is not None]
        if len(reasons) < len(urls):
            part.replace(path)
            return
        kept = stream.seek(0, os.SEEK_END)
        if not kept:
            part.unlink()
    more = f"; {kept:,} bytes are kept, and the next try goes on from there" if kept else ""
    raise DataError(f"the download failed ({'; '.join(reasons)}{more})")


@contextmanager
def _locked(part: Path, path: Path) -> Iterator[IO[bytes]]:
    """The part of a file, open and locked: another process at the same file goes first, and its file is ours."""
    while True:
        try:
            make_folder(path.parent, private=False)
            refuse_unusual(path)
            refuse_unusual(part)
            handle = os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            if error.errno not in _UNWRITABLE:
                raise
            said = f"{shown_path(path.parent)} cannot be written ({error.strerror})"
            raise DataError(f"{said}; FEDASSAY_DATA (of weights, TORCH_HOME) names another folder") from None
        with os.fdopen(handle, "r+b") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            # The process that held the lock may have given up, and removed the part that was opened here.
            if path.exists() or (part.exists() and os.path.samestat(os.fstat(stream.fileno()), part.stat())):
                yield stream
                return


def _from(url: str, stream: IO[bytes], path: Path, digest: str) -> str | None:
    """Complete the part from one address; return why it is not whole, or None where it is."""
    if hashes_to(stream, digest):
        return None
    start = stream.seek(0, os.SEEK_END)
    try:
        with _answer(url, start) as response:
            if start and getattr(response, "status", None) != 206:
                start = stream.seek(0)
                stream.truncate()
            whole = _announce(url, path, start, response.headers, digest)
            with current() as progress, progress.step(path.name) as advance:
                _copy(response, stream, path, lambda done: advance(start + done, whole or start + done))
        if hashes_to(stream, digest):
            return None
        stream.seek(0)
        stream.truncate()
        kind, value = in_words(digest).split(" ")
        return f"{url}: its {kind} is not {value}"
    # URLError, HTTPError, time-outs and failed writes are OSErrors.
    except (OSError, HTTPException) as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise
        with suppress(OSError):
            stream.flush()
        return f"{url}: {_why(error)}"


def _copy(response: Any, stream: IO[bytes], path: Path, tell: Callable[[int], None]) -> None:
    done = 0
    while chunk := response.read(_CHUNK):
        with named_on_error(path):
            stream.write(chunk)
            stream.flush()
        done += len(chunk)
        tell(done)


def _why(error: Exception) -> str:
    """Describe a network error in words; a failed resolution of names means that there is no network."""
    if isinstance(getattr(error, "reason", error), socket.gaierror):
        return "there is no network, or it does not know the address"
    return str(error)


def _announce(url: str, path: Path, start: int, headers: Message, digest: str) -> int:
    """Announce a download; returns the size of the whole file in bytes, 0 if the server does not send it."""
    size = headers.get("Content-Length", "")
    words = f"{int(size) / 1e6:,.1f} MB" if size.isdigit() else "a file of unknown size"
    onward = f" from byte {start:,} on" if start else ""
    _log.warning("downloading %s%s: %s to %s, %s (--offline: never)", url, onward, words, path, in_words(digest))
    return start + int(size) if size.isdigit() else 0


def _answer(url: str, start: int) -> Any:
    """Open the response of an address, from byte `start` on if the server supports it.

    Raises:
        OSError: Neither https nor a file, or there is no answer.
    """
    if urlparse(url).scheme not in _SCHEMES:
        raise OSError("not https")
    headers = {"User-Agent": "fedassay", **({"Range": f"bytes={start}-"} if start else {})}
    opener = urllib.request.build_opener(_OnlyToHttps)
    return opener.open(urllib.request.Request(url, headers=headers), timeout=_TIMEOUT)


class _OnlyToHttps(urllib.request.HTTPRedirectHandler):
    """Follows no redirection away from https."""

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """The request for the new address."""
        if urlparse(newurl).scheme != "https":
            raise OSError(f"it leads to {newurl}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def hashes_to(stream: IO[bytes], digest: str) -> bool:
    """Whether a file that is not empty has this digest (as `download` takes it), or one that begins so."""
    if not stream.seek(0, os.SEEK_END):
        return False
    stream.seek(0)
    if digest.startswith(MD5):
        found = hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False))  # type: ignore[arg-type]
        return found.hexdigest() == digest.removeprefix(MD5)
    return hashlib.file_digest(stream, "sha256").hexdigest().startswith(digest)  # type: ignore[arg-type]


def in_words(digest: str) -> str:
    """A digest and its kind."""
    return f"MD5 {digest.removeprefix(MD5)}" if digest.startswith(MD5) else f"SHA-256 {digest}"
