"""Whether a file or folder can hold what others put there, by the rule that ssh has for its keys.

What the user or root owns, and nobody else can write, holds what the user put there (or root, who may do
anything). Modes tell that for access control lists as well: the group's bits are the most that such a list allows.
"""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

from fedassay.support.reading import shown_path

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def refused_folder(*folders: Path) -> str | None:
    """Why one of these folders may hold what others put there; None: nobody else can write any of them.

    A folder that is missing, or cannot be looked at, is skipped: nothing is read from it. Of a link, its owner
    counts, and what it leads to.
    """
    for folder in folders:
        try:
            own, there = folder.lstat(), folder.stat()
        except OSError:
            continue
        for status in (own, there):
            if problem := not_ours(folder, status):
                return problem
    return None


def not_ours(path: Path, status: os.stat_result) -> str | None:
    """Why what stands at a path may be what others put there; None: nobody else can write it.

    Args:
        path: For the sentence, which says its mode, and what to do.
        status: Of what stands there; everybody may write a link itself, so its mode is not looked at.
    """
    mode, name, quoted = f"{stat.S_IMODE(status.st_mode):04o}", shown_path(path), shlex.quote(str(path))
    if status.st_uid not in {0, os.geteuid()}:
        return (
            f"{name} has mode {mode} and belongs to user {status.st_uid}, not to you; "
            f"remove it, or name a folder of your own with FEDASSAY_CACHE"
        )
    if status.st_mode & _OTHERS_WRITE and not stat.S_ISLNK(status.st_mode):
        return (
            f"{name} has mode {mode}, so others can write to it; check what is in it, then run chmod go-w {quoted}"
        )
    return None
