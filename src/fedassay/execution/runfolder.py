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

from fedassay.records import manifest
from fedassay.records.manifest import CELLS, PLAN, Tables
from fedassay.records.record import FILE, CellRecord, ErrorRecord
from fedassay.support.atomic import refuse_unusual, write_text
from fedassay.support.errors import PlanError
from fedassay.support.types import Frozen

_FOLDERS = ("tables", "transcripts", "artifacts", CELLS)
_OWN = (FILE, "report.html", *_FOLDERS)


class FinishedCell(Frozen):
    """A cell that need not be run again, with what failed in it."""

    cell: CellRecord
    errors: tuple[ErrorRecord, ...] = ()


@contextmanager
def claim(
    folder: Path, plan: dict[str, Any], resume: bool, force: bool, tables: Tables = lambda record: ()
) -> Iterator[Path]:
    """Take a run folder for one run.

    Args:
        folder: The run folder; created if need be.
        plan: The resolved plan; a resumed run must have the same.
        resume: Keep the finished cells that the folder holds.
        force: Remove what an earlier run wrote there (and nothing else).
        tables: Names of a record's tables, to remove those of a run that kept no manifest.

    Raises:
        PlanError: The folder holds a run, or something in the way of one that no run wrote; another process writes
            to it; or the plan differs.
    """
    digest = hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()
    if folder.exists() and not folder.is_dir():
        raise PlanError(f"-o {folder}: it is a file; a folder is needed")
    held = [name for name in _OWN if manifest.holds(folder, name)]
    if held and not (resume or force):
        raise PlanError(
            f"-o {folder}: it already holds {', '.join(held)}; allowed: another folder, --resume to go on "
            f"with that run, or --force to replace it"
        )
    if held and force and not resume and not manifest.is_run(folder):
        raise PlanError(
            f"-o {folder}: --force replaces a run, and the folder holds {', '.join(held)} but no sign of a run "
            f"that wrote them; allowed: another folder, or move them away"
        )
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / ".lock", os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PlanError(f"-o {folder}: another fedassay run is writing to it") from None
        # The file stays: removing it would let a third run lock a new one beside ours.
        kept = folder / CELLS / PLAN
        if resume and held and (not kept.is_file() or kept.read_text().strip() != digest):
            raise PlanError(
                f"-o {folder}: --resume, but the run there was made from another plan; allowed: the same "
                f"plan, another folder, or --force"
            )
        if held and force and not resume:
            manifest.remove(folder, tables)
        _refuse_in_the_way(folder)
        write_text(kept, digest + "\n")
        manifest.note(folder, manifest.OF_THE_RUN, (FILE, "report.html"))
        yield folder
    finally:
        os.close(lock)


def _refuse_in_the_way(folder: Path) -> None:
    """Refuse links and files where a run has folders, before anything is computed: files would land elsewhere."""
    for name in _FOLDERS:
        path = folder / name
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise PlanError(f"-o {folder}: {name} in it is no folder of its own; allowed: another folder")
    for name in (FILE, "report.html"):
        refuse_unusual(folder / name)


def finished(folder: Path, key: str) -> FinishedCell | None:
    """The stored result of a cell, or None where there is none that can be read."""
    path = folder / CELLS / f"{key}.json"
    try:
        return FinishedCell.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def keep(folder: Path, key: str, done: FinishedCell) -> None:
    """Store the result of a cell, whole or not at all."""
    write_text(folder / CELLS / f"{key}.json", done.model_dump_json(by_alias=True) + "\n")


def scratch(folder: Path, key: str) -> Path:
    """A folder for checkpoints of a cell, inside the run folder."""
    path = folder / CELLS / f"{key}.scratch"
    path.mkdir(parents=True, exist_ok=True)
    return path


def drop_scratch(folder: Path, key: str) -> None:
    """Remove the checkpoints of a finished cell."""
    shutil.rmtree(folder / CELLS / f"{key}.scratch", ignore_errors=True)
