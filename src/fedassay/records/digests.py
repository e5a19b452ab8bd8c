"""SHA-256 of the files of a run folder, read only where regular files lie inside it."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from fedassay.support import limits


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
        # Not waiting for a pipe that nobody writes to.
        handle = os.open(folder / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as stream:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > limits.MESSAGE_BYTES:
            return None
        return hashlib.file_digest(stream, "sha256").hexdigest()


def digests(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """SHA-256 of those files that are there, by name."""
    found = {name: file_digest(folder, name) for name in sorted(set(names))}
    return {name: digest for name, digest in found.items() if digest is not None}


def altered(folder: Path, expected: Mapping[str, str]) -> list[str]:
    """What is wrong with files that should have these digests; empty where they have them."""
    problems = []
    for name, digest in expected.items():
        found = file_digest(folder, name)
        if found is None:
            problems.append(f"{name} is not there, or is no regular file of a size that a run writes")
        elif found != digest:
            problems.append(f"{name} is not what was written")
    return problems
