"""A content-addressed cache on disk for results that are expensive to compute.

An entry is a safetensors file named by the hash of its inputs, and it carries the hash of its content. Reading
checks both, so that a truncated, tampered or foreign file counts as absent and is made again. Writing is atomic;
several processes may share a cache. When the folder outgrows its limit, the least recently used entries go first.

An entry is private unless it is proved to be public. The caller names the records that the entry was computed
from, and only if each of them has the role `public` is the entry kept in `public`. All others (features,
attackers' models, entries without named inputs) are kept in `private`, which `drop` empties; after that they are
kept in a temporary folder while a run lasts. Conditions that change numbers but are not part of the question
(threads, kernels, versions) are part of every key; see `fedassay.support.numerics`.

A folder that other users could have written is neither read nor added to; see `fedassay.support.owned`. Files are
therefore their owner's alone even where `FEDASSAY_SHARED` lets others read a run.

The folder is `FEDASSAY_CACHE`, else `fedassay` under the user's cache folder (`XDG_CACHE_HOME`,
else `~/.cache`). The limit is `FEDASSAY_CACHE_LIMIT` in GiB, by default 4.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fedassay.support.atomic import KINDS, write_bytes
from fedassay.support.errors import PlanError
from fedassay.support.hashing import digest_arrays
from fedassay.support.numerics import numerics
from fedassay.support.owned import not_ours, refused_folder
from fedassay.support.temporary import temporary_folder

_FORMAT = 3
_PUBLIC, _PRIVATE = "public", "private"
_DROPPED = "private.dropped"
_ELSEWHERE = "FEDASSAY_PRIVATE_CACHE"
"""Set while private entries live in a temporary folder; workers inherit it."""
_ENTRY = re.compile(r"[0-9a-f]{64}\.safetensors")
_LEFTOVER = re.compile(r"\.[0-9a-f]{64}\.safetensors\..*\.tmp")
_LEFTOVER_AGE = 86_400.0
"""Seconds after which a temporary file is taken to be an interrupted write's."""

Key = Mapping[str, str | int | float | bool | None]
"""The inputs that a result depends on: names to JSON scalars."""

_log = logging.getLogger(__name__)


class Input(Protocol):
    """Records that an entry is computed from."""

    @property
    def role(self) -> str | None:
        """Their role; None if they have not been given one."""
        ...

    def digest(self) -> str:
        """Their content hash."""
        ...


@dataclass(frozen=True)
class CacheInfo:
    """Location of the cache, its content and its limit (sizes in bytes).

    Attributes:
        folder: Folder of the cache.
        entries: Number of entries, private ones among them.
        bytes: Their bytes.
        private_entries: Number of those that are not proved to be computed from public records alone.
        private_bytes: Their bytes.
        private: Whether such entries are kept: `hold` or `drop`.
        limit: Bytes that all entries may take.
        refused: Reason why the cache is neither read nor written; empty where it is used.
    """

    folder: Path
    entries: int
    bytes: int
    private_entries: int
    private_bytes: int
    private: str
    limit: int
    refused: str = ""


@dataclass(frozen=True)
class Entry:
    """One place of the cache, for a result that is kept only where its inputs allow that.

    Attributes:
        path: Path of the entry; None where its kind is not kept.
        about: Facts that the file must state.
    """

    path: Path | None
    about: Mapping[str, str]

    def read(self) -> dict[str, NDArray[Any]] | None:
        """The arrays, equal bit for bit to those that were kept; None where there is no sound entry."""
        return None if self.path is None else _read(self.path, self.about)

    def write(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Keep them.

        Raises:
            PlanError: `FEDASSAY_CACHE_LIMIT` is not a number of GiB.
        """
        limit = _limit()
        if self.path is None:
            return
        try:
            _write(self.path, self.about, arrays, limit)
        except (OSError, PlanError) as error:
            # A cache that cannot be written, or where something else stands, costs time, not results.
            words = getattr(error, "strerror", None) or error
            _warn_once(f"nothing kept in the cache {self.path.parents[2]}: {words}")


def cached_arrays(
    key: Key, build: Callable[[], dict[str, NDArray[Any]]], inputs: Mapping[str, Input] | None = None
) -> dict[str, NDArray[Any]]:
    """Return the arrays kept under `key`, or build and keep them.

    Args:
        key: As `entry_of`.
        build: Makes the arrays; called when there is no sound entry.
        inputs: As `entry_of`.

    Returns:
        The arrays, equal bit for bit whether they were built or read.

    Raises:
        ValueError: As `entry_of`.
        PlanError: `FEDASSAY_CACHE_LIMIT` is not a number of GiB.
    """
    place = entry_of(key, inputs)
    kept = place.read()
    if kept is not None:
        return kept
    _limit()
    arrays = {name: np.ascontiguousarray(a).reshape(a.shape) for name, a in build().items()}
    place.write(arrays)
    return arrays


def entry_of(key: Key, inputs: Mapping[str, Input] | None = None, *, numbers: bool = True) -> Entry:
    """Return the place of the result that depends on `key`.

    Args:
        key: Everything the result depends on, versions of the code that makes it included; threads, kernels and
            versions of libraries are added.
        inputs: All records that the arrays are computed from, by the name of their digest in the key. The entry is
            public where all of them are; without inputs it is private.
        numbers: Whether threads, kernels and versions of libraries, which change last bits, are added to the key.

    Raises:
        ValueError: The key holds something else than JSON scalars, or NaN or an infinity.
    """
    given = {} if inputs is None else inputs
    own = {name: each.digest() for name, each in given.items()}
    exact = {"numerics": numerics(str(key.get("device", "cpu")))} if numbers else {}
    whole = {"format": _FORMAT, **exact, **key, **own}
    text = json.dumps(whole, sort_keys=True, allow_nan=False)
    if any(not isinstance(part, str | int | float | bool | None) for part in key.values()):
        raise ValueError(f"cache key {text}: values must be text, numbers, booleans or None")
    name = hashlib.sha256(text.encode()).hexdigest()
    roles = sorted({each.role or "unknown" for each in given.values()}) or ["unknown"]
    return Entry(_place(name, private=roles != [_PUBLIC]), {"key": text, "roles": json.dumps(roles)})


def _place(name: str, *, private: bool) -> Path | None:
    """Return the path of an entry; None if it is not kept, or if a folder above it is not the user's alone."""
    elsewhere = os.environ.get(_ELSEWHERE)
    if private and not elsewhere and not holds_private():
        return None
    try:
        home = Path(elsewhere) if private and elsewhere else folder() / (_PRIVATE if private else _PUBLIC)
    except PlanError as error:
        _warn_once(f"{error}; no cache is used")
        return None
    path = home / name[:2] / f"{name}.safetensors"
    if problem := refused_folder(home.parent, home, path.parent):
        _warn_once(f"{problem}; the cache is not used")
        return None
    return path


@lru_cache(maxsize=64)
def _warn_once(message: str) -> None:
    _log.warning("%s", message)


def folder() -> Path:
    """The cache's folder; it need not exist.

    Raises:
        PlanError: There is no home folder to have it in.
    """
    if given := os.environ.get("FEDASSAY_CACHE"):
        return Path(given).expanduser()
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification has relative values ignored.
    if Path(base).is_absolute():
        return Path(base) / "fedassay"
    try:
        return Path.home() / ".cache" / "fedassay"
    except RuntimeError:
        raise PlanError("FEDASSAY_CACHE: not set, and this user has no home folder; allowed: a folder") from None


@contextmanager
def private_elsewhere() -> Iterator[Path]:
    """Private entries live in a temporary folder while the block lasts, in this process and those it starts.

    Yields:
        The folder, which is the caller's to put other private files into.
    """
    before = os.environ.get(_ELSEWHERE)
    with temporary_folder() as temporary:
        os.environ[_ELSEWHERE] = str(temporary / "cache")
        try:
            yield temporary
        finally:
            os.environ.pop(_ELSEWHERE, None)
            if before is not None:
                os.environ[_ELSEWHERE] = before


def holds_private() -> bool:
    """Whether private entries outlive a run: they have not been dropped, and the cache is the user's alone."""
    try:
        home = folder()
    except PlanError:
        return False
    if problem := refused_folder(home, home / _PRIVATE):
        _warn_once(f"{problem}; the cache is not used")
    return not problem and not (home / _DROPPED).exists()


def hold() -> CacheInfo:
    """Keep private entries from now on."""
    (folder() / _DROPPED).unlink(missing_ok=True)
    return info()


def drop() -> CacheInfo:
    """Remove every private entry, and keep none from now on; return what there was.

    Every entry is private that does not lie among the public ones.
    """
    before = info()
    words = b"fedassay cache drop: private entries are not kept; `fedassay cache hold` keeps them\n"
    write_bytes(folder() / _DROPPED, words, alone=True)
    _remove_all([folder() / _PRIVATE])
    return before


def info() -> CacheInfo:
    """Count the entries and their bytes."""
    every = _entries()
    private = [size for _, size, _ in _entries([folder() / _PRIVATE])]
    return CacheInfo(
        folder(),
        len(every),
        sum(size for _, size, _ in every),
        len(private),
        sum(private),
        "drop" if (folder() / _DROPPED).exists() else "hold",
        _limit(),
        refused_folder(folder(), *_homes()) or "",
    )


def clear() -> CacheInfo:
    """Remove every entry, and no file that the cache did not write; return what there was."""
    before = info()
    _remove_all(_homes())
    return before


def _remove_all(homes: list[Path]) -> None:
    for path, _, _ in _entries(homes):
        path.unlink(missing_ok=True)
    _remove_leftovers(older_than=0.0, homes=homes)
    for emptied in (*_shelves(homes), *homes):
        with suppress(OSError):  # not empty, or absent: a file of another user is in it
            emptied.rmdir()


def trim(limit: int) -> CacheInfo:
    """Remove the least recently used entries until the rest fits; return the rest.

    Args:
        limit: Bytes; 0 or more. It holds for this call only; `FEDASSAY_CACHE_LIMIT` is the lasting one.
    """
    _evict(limit, None)
    return info()


def _evict(limit: int, spared: Path | None) -> None:
    entries = sorted(_entries(), key=lambda entry: entry[2])
    excess = sum(size for _, size, _ in entries) - limit
    for old, size, _ in entries:
        if excess <= 0:
            break
        if old != spared:
            old.unlink(missing_ok=True)
            excess -= size


def _read(path: Path, about: Mapping[str, str]) -> dict[str, NDArray[Any]] | None:
    """Return the arrays of an unaltered entry that states the facts `about`; None: there is none."""
    if not os.path.lexists(path):
        return None
    try:
        # Opening a named pipe would wait for ever. The checked file is the one read, even if it is renamed
        # meanwhile.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise ValueError(f"it is {KINDS.get(stat.S_IFMT(status.st_mode), 'no regular file')}")
            if problem := not_ours(path, status):
                _warn_once(f"{problem}; the entry is made again")
                return None
            with safe_open(f"/dev/fd/{handle}", framework="np") as entry:
                metadata = entry.metadata() or {}
                arrays = {name: entry.get_tensor(name) for name in entry.keys()}  # noqa: SIM118
        finally:
            os.close(handle)
    # Types that NumPy does not have are TypeErrors.
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        _log.warning("cache entry %s is damaged and will be made again: %s", path.name, error)
        return None
    stated = {name: value for name, value in metadata.items() if name != "sha256"}
    if stated != dict(about) or metadata.get("sha256") != digest_arrays(arrays):
        _log.warning("cache entry %s is not what was written and will be made again", path.name)
        return None
    with suppress(OSError):  # a read-only cache is still a cache
        os.utime(path)
    return arrays


def _write(path: Path, about: Mapping[str, str], arrays: Mapping[str, NDArray[Any]], limit: int) -> None:
    data = save(dict(arrays), metadata={**about, "sha256": digest_arrays(arrays)})
    if len(data) > limit:
        _log.warning("a result of %d bytes is larger than the whole cache and is not kept", len(data))
        return
    write_bytes(path, data, alone=True)
    _remove_leftovers(older_than=_LEFTOVER_AGE)
    _evict(limit, path)


def _limit() -> int:
    text = os.environ.get("FEDASSAY_CACHE_LIMIT", "4")
    try:
        limit = float(text)
    except ValueError:
        limit = math.nan
    if not (math.isfinite(limit) and limit >= 0):
        raise PlanError(f"FEDASSAY_CACHE_LIMIT: {text!r} given; allowed: a number of GiB, 0 or more")
    return int(limit * 2**30)


def _homes() -> list[Path]:
    """The folders that hold shelves of entries."""
    return [folder() / _PRIVATE, folder() / _PUBLIC]


def _shelves(homes: list[Path] | None = None) -> list[Path]:
    found: list[Path] = []
    for home in _homes() if homes is None else homes:
        with suppress(FileNotFoundError, NotADirectoryError):
            found += [path for path in home.iterdir() if re.fullmatch("[0-9a-f]{2}", path.name)]
    return found


def _entries(homes: list[Path] | None = None) -> list[tuple[Path, int, float]]:
    """Path, size and time of last use of each entry; another process may remove some meanwhile."""
    found = []
    for shelf in _shelves(homes):
        with suppress(OSError):
            for path in shelf.iterdir():
                if _ENTRY.fullmatch(path.name):
                    with suppress(FileNotFoundError):
                        status = path.lstat()
                        if not stat.S_ISDIR(status.st_mode):
                            found.append((path, status.st_size, status.st_mtime))
    return found


def _remove_leftovers(older_than: float, homes: list[Path] | None = None) -> None:
    now = time.time()
    for shelf in _shelves(homes):
        with suppress(OSError):
            for path in shelf.iterdir():
                if _LEFTOVER.fullmatch(path.name) and now - path.lstat().st_mtime >= older_than:
                    path.unlink(missing_ok=True)
