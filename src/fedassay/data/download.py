"""Published files: taken where they lie, checked against their MD5, downloaded only if absent."""

from __future__ import annotations

import hashlib
import logging
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path

from fedassay.support.atomic import open_atomic
from fedassay.support.errors import DataError

_TIMEOUT = 30.0
_CHUNK = 2**20

_log = logging.getLogger(__name__)


def published_file(root: Path, name: str, urls: Sequence[str], md5: str) -> Path:
    """A published file under `root`, downloaded if it is not there.

    Args:
        root: Folder of the data sets.
        name: Path of the file below `root`, as torchvision lays it out.
        urls: Where it is published; tried in turn.
        md5: As published.

    Returns:
        The file, whose MD5 has been checked.

    Raises:
        DataError: The file is not the published one, or cannot be downloaded.
    """
    path = root / name
    if not path.exists():
        _download(path, name, urls, md5)
    elif not matches(path, md5):
        raise DataError(
            f"{name}: is not the published file (its MD5 is not {md5}); delete it, or place the file from "
            f"{urls[0]} there"
        )
    return path


def matches(path: Path, md5: str) -> bool:
    """Whether a file has this MD5, which tells a damaged copy (not a forged one)."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, _md5).hexdigest() == md5


def _download(path: Path, name: str, urls: Sequence[str], md5: str) -> None:
    reasons = []
    for url in urls:
        _log.info("downloading %s to %s", url, path)
        request = urllib.request.Request(url, headers={"User-Agent": "fedassay"})
        digest = _md5()
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT) as response, open_atomic(path) as stream:
                while chunk := response.read(_CHUNK):
                    digest.update(chunk)
                    stream.write(chunk)
                if digest.hexdigest() != md5:
                    raise OSError(f"its MD5 is not {md5}")
        # URLError, HTTPError, time-outs and failed writes are OSErrors.
        except (OSError, HTTPException) as error:
            reasons.append(f"{url}: {error}")
        else:
            return
    raise DataError(
        f"{name}: not under data.root, and the download failed ({'; '.join(reasons)}); allowed: place the "
        "file there"
    )


def _md5() -> hashlib._Hash:
    return hashlib.md5(usedforsecurity=False)
