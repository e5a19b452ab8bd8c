"""SHA-256 of the files of a run folder, read only where regular files lie inside it."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from fedassay.support import limits

_SHA256 = re.compile("[0-9a-f]{64}")


def file_digest(folder: Path, name: str) -> str | None:
    """SHA-256 of a file, in hexadecimal; None where no regular file of that name lies inside the folder.

    Larger files than a run writes count as absent.

    Args:
        folder: The run folder.
        name: Path relative to it, with `/`, as short as it can be: else many names would be one file's.
    """
    path = PurePosixPath(name)
    if str(path) != name or path.is_absolute() or ".." in path.parts or "\0" in name:
        return None
    try:
        if any((folder / part).is_symlink() for part in path.parents if part.parts):
            return None
        # Does not wait for a pipe without a writer.
        handle = os.open(folder / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as stream:
        status = os.fstat(handle)
        largest = limits.MESSAGE_BYTES if path.suffix == ".safetensors" else limits.RUN_FILE_BYTES
        if not stat.S_ISREG(status.st_mode) or status.st_size > largest:
            return None
        return hashlib.file_digest(stream, "sha256").hexdigest()


def digests(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """SHA-256 of those files that are there, by name."""
    found = {name: file_digest(folder, name) for name in sorted(set(names))}
    return {name: digest for name, digest in found.items() if digest is not None}


def altered(folder: Path, expected: Mapping[str, str]) -> list[str]:
    """Describe the files that do not have these digests; empty where all have them."""
    problems = []
    for name, digest in expected.items():
        # A malformed digest matches no file, and reading a large file takes seconds.
        usable = _SHA256.fullmatch(digest) is not None
        found = file_digest(folder, name) if usable else None
        if usable and found is None:
            problems.append(f"{name} is not there, or is no regular file of a size that a run writes")
        elif found != digest:
            problems.append(f"{name} is not what was written")
    return problems
