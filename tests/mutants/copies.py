"""Copies of the package with an edit applied, for processes of their own."""

from __future__ import annotations

import compileall
import os
import shutil
from collections.abc import Sequence
from importlib.util import cache_from_source
from pathlib import Path

from catalogue import Edit

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "fedassay"


def pristine(folder: Path) -> Path:
    """The package as it is, its rooms' files in place of links to them, compiled; what copies are made of."""
    package = folder / "fedassay"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__", "configs"))
    compileall.compile_dir(package, quiet=2)
    return package


def edited(package: Path, edits: Sequence[Edit], folder: Path) -> Path:
    """A copy of a package in `folder`, with the edits applied; files that are not edited are the same on the disk.

    Raises:
        ValueError: What an edit replaces does not occur exactly once.
    """
    copy = folder / "fedassay"
    shutil.copytree(package, copy, copy_function=os.link)
    for edit in edits:
        apply(edit, copy)
    return copy


def apply(edit: Edit, package: Path) -> None:
    """Change one file of a package.

    Raises:
        ValueError: What the edit replaces does not occur there exactly once.
    """
    file = package / edit.file
    text = file.read_text(encoding="utf-8")
    if (times := text.count(edit.old)) != 1:
        raise ValueError(f"{edit.file}: occurs {times} times, must occur once: {edit.old!r}")
    changed = text.replace(edit.old, edit.new)
    compile(changed, edit.file, "exec")
    file.unlink()
    file.write_text(changed, encoding="utf-8")
    # A compiled file is taken for the source's where time and size agree, and both may by chance.
    Path(cache_from_source(str(file))).unlink(missing_ok=True)
