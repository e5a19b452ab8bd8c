"""Check that a file or folder is safe from other users, by the rule that ssh has for its keys.

A path is safe if the user or root owns it and no other user can write it; root may do anything anyway. The mode
also covers access control lists: the group's bits are the most that such a list allows.
"""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

from fedassay.support.reading import shown_path

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def refused_folder(*folders: Path) -> str | None:
    """Return why one of these folders may hold files of other users; None if no other user can write any of them.

    A folder that is missing or unreadable is skipped: nothing is read from it. For a link, both its owner and its
    target count.
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
    """Return why a path may hold content of other users; None if no other user can write it.

    Args:
        path: For the sentence, which states its mode and a remedy.
        status: Status of the path; every user may write a link itself, so the mode of a link is ignored.
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
