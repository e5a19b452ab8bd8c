"""The run folder: one writer at a time, nothing overwritten unasked, nothing half written."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedassay.records.record import FILE, CellRecord, ErrorRecord
from fedassay.support.atomic import write_text
from fedassay.support.errors import PlanError
from fedassay.support.types import Frozen

_OWN = (FILE, "report.html", "tables", "transcripts", "artifacts", ".cells")
_PLAN = "plan.sha256"


class FinishedCell(Frozen):
    """A cell that need not be run again, with what failed in it."""

    cell: CellRecord
    errors: tuple[ErrorRecord, ...] = ()


@contextmanager
def claim(folder: Path, plan: dict[str, Any], resume: bool, force: bool) -> Iterator[Path]:
    """Take a run folder for one run.

    Args:
        folder: The run folder; created if need be.
        plan: The resolved plan; a resumed run must have the same.
        resume: Keep the finished cells that the folder holds.
        force: Remove what an earlier run wrote there (and nothing else).

    Raises:
        PlanError: The folder holds a run, another process writes to it, or the plan differs.
    """
    digest = hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()
    if folder.exists() and not folder.is_dir():
        raise PlanError(f"-o {folder}: it is a file; a folder is needed")
    held = [name for name in _OWN if (folder / name).exists()]
    if held and not (resume or force):
        raise PlanError(
            f"-o {folder}: it already holds {', '.join(held)}; allowed: another folder, --resume to go on "
            f"with that run, or --force to replace it"
        )
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / ".lock", os.O_CREAT | os.O_RDWR, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PlanError(f"-o {folder}: another fedassay run is writing to it") from None
        # The file stays: removing it would let a third run lock a new one beside ours.
        kept = folder / ".cells" / _PLAN
        if resume and held and (not kept.is_file() or kept.read_text().strip() != digest):
            raise PlanError(
                f"-o {folder}: --resume, but the run there was made from another plan; allowed: the same "
                f"plan, another folder, or --force"
            )
        if force and not resume:
            _remove(folder)
        write_text(kept, digest + "\n")
        yield folder
    finally:
        os.close(lock)


def finished(folder: Path, key: str) -> FinishedCell | None:
    """The stored result of a cell, or None where there is none that can be read."""
    path = folder / ".cells" / f"{key}.json"
    try:
        return FinishedCell.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def keep(folder: Path, key: str, done: FinishedCell) -> None:
    """Store the result of a cell, whole or not at all."""
    write_text(folder / ".cells" / f"{key}.json", done.model_dump_json(by_alias=True) + "\n")


def scratch(folder: Path, key: str) -> Path:
    """A folder for checkpoints of a cell, inside the run folder."""
    path = folder / ".cells" / f"{key}.scratch"
    path.mkdir(parents=True, exist_ok=True)
    return path


def drop_scratch(folder: Path, key: str) -> None:
    """Remove the checkpoints of a finished cell."""
    shutil.rmtree(folder / ".cells" / f"{key}.scratch", ignore_errors=True)


def _remove(folder: Path) -> None:
    for name in _OWN:
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
