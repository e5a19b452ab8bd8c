"""The run folder: one writer at a time, nothing overwritten unasked, nothing half written."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from fedassay.records import manifest
from fedassay.records.basis import plan_digest
from fedassay.records.digests import altered, digests
from fedassay.records.manifest import CELLS, LOCK, PLAN
from fedassay.records.record import FILE, CellRecord, ErrorRecord
from fedassay.records.redacted import redact_plan
from fedassay.records.statement import ENVELOPE, STATEMENT
from fedassay.support import limits
from fedassay.support.atomic import make_folder, refuse_unusual, write_text
from fedassay.support.errors import DataError, PlanError
from fedassay.support.reading import read_regular
from fedassay.support.types import Frozen

_FOLDERS = ("tables", "transcripts", "artifacts", CELLS)
_FILES = (FILE, "report.html", STATEMENT)
_OWN = (*_FILES, *_FOLDERS)
_KEPT = re.compile(rb'\{"sha256":"([0-9a-f]{64})","kept":(.*)\}\n', re.DOTALL)
"""Format of a finished cell: its SHA-256 covers the bytes after `kept`."""


class FinishedCell(Frozen):
    """A cell that need not be run again, with what failed in it.

    Attributes:
        cell: Its record.
        errors: The failures.
        out_of_memory: Whether memory was what failed, so that a resumed run is to try it again.
        reused: Whether an earlier run worked on it, and this one took it from the cache.
    """

    cell: CellRecord
    errors: tuple[ErrorRecord, ...] = ()
    out_of_memory: bool = Field(default=False, exclude=True)
    reused: bool = Field(default=False, exclude=True)


class _Kept(Frozen):
    """A finished cell as it is stored, with the SHA-256 of the files that it wrote."""

    finished: FinishedCell
    files: dict[str, str]


@contextmanager
def claim(
    folder: Path,
    plan: dict[str, Any],
    resume: bool,
    force: bool,
    redact: bool = False,
) -> Iterator[Path]:
    """Take a run folder for one run.

    Args:
        folder: The run folder; created if need be.
        plan: The resolved plan; a resumed run must have the same.
        resume: Keep the finished cells that the folder holds.
        force: Remove what an earlier run wrote there (and nothing else).
        redact: Whether the run keeps nothing private, so that it cannot be resumed.

    Raises:
        PlanError: The folder holds a run, or something in the way of one that no run wrote; another process writes
            to it; it cannot be made; or the plan differs.
    """
    # After a lack of memory cells may be given more: resources are no part of it.
    # A digest of names that were left out would confirm guesses of them.
    digest = plan_digest(redact_plan(plan) if redact else plan)
    if folder.exists() and not folder.is_dir():
        raise PlanError(f"-o {folder}: it is a file; a folder is needed")
    held = [name for name in _OWN if manifest.holds(folder, name)]
    if held and not (resume or force):
        raise PlanError(
            f"-o {folder}: it already holds {', '.join(held)}; allowed: another folder, --resume (resume=True) to "
            f"go on with that run, or --force (force=True) to replace it"
        )
    if held and force and not resume and manifest.plan_digest(folder) is None:
        raise PlanError(
            f"-o {folder}: --force replaces a run, and the folder holds {', '.join(held)} but no sign of a run "
            f"that wrote them; allowed: another folder, or move them away"
        )
    try:
        make_folder(folder)
    except PermissionError as error:
        raise PlanError(f"-o {folder}: it cannot be made ({error.strerror}); allowed: another folder") from None
    refuse_unusual(folder / LOCK)
    lock = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PlanError(f"-o {folder}: another fedassay run is writing to it") from None
        # The file stays: removing it would let a third run lock a new one beside ours.
        if resume and os.path.lexists(folder / CELLS / manifest.REDACTED):
            raise PlanError(
                f"-o {folder}: --resume, but the run there was made with --redact, which keeps nothing to go on "
                f"with; allowed: another folder, or --force"
            )
        if resume and held and manifest.plan_digest(folder) != digest:
            raise PlanError(
                f"-o {folder}: --resume, but the run there was made from another plan; allowed: the same "
                f"plan, another folder, or --force"
            )
        if held and force and not resume:
            manifest.remove(folder)
        _refuse_in_the_way(folder)
        manifest.remove_halves(folder)
        if redact:
            write_text(folder / CELLS / manifest.REDACTED, "")
        write_text(folder / CELLS / PLAN, digest + "\n")
        manifest.note(folder, manifest.OF_THE_RUN, (*_FILES, ENVELOPE))
        yield folder
    finally:
        # Processes that were forked meanwhile hold the file open: closing it here alone would not unlock it.
        fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)


def _refuse_in_the_way(folder: Path) -> None:
    """Refuse links and files where a run has folders, before anything is computed: files would land elsewhere."""
    for name in _FOLDERS:
        path = folder / name
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise PlanError(f"-o {folder}: {name} in it is no folder of its own; allowed: another folder")
    for name in _FILES:
        refuse_unusual(folder / name)


def finished(folder: Path, key: str) -> FinishedCell | None:
    """The stored result of a cell, or None where there is none.

    Raises:
        PlanError: It, or a file that the cell wrote, is not what the run wrote.
    """
    path = folder / CELLS / f"{key}.json"
    if not os.path.lexists(path):
        return None
    try:
        found = _KEPT.fullmatch(read_regular(path, limits.JSON_BYTES, follow=False))
        if found is None or hashlib.sha256(found[2]).hexdigest() != found[1].decode():
            raise _altered(folder, key, f"{CELLS}/{key}.json is not what was written")
        kept = _Kept.model_validate_json(found[2])
    except DataError:
        raise _altered(folder, key, f"{CELLS}/{key}.json cannot be read") from None
    except ValidationError:
        raise _altered(folder, key, f"{CELLS}/{key}.json is of another fedassay") from None
    if problems := altered(folder, kept.files):
        raise _altered(folder, key, problems[0])
    return kept.finished


def _altered(folder: Path, key: str, problem: str) -> PlanError:
    return PlanError(
        f"-o {folder}: --resume, but {problem}; allowed: remove {CELLS}/{key}.json, so that the cell is run "
        f"again, another folder, or --force"
    )


def keep(folder: Path, key: str, done: FinishedCell) -> None:
    """Store the result of a cell and the digests of its files, whole or not at all."""
    kept = _Kept(finished=done, files=digests(folder, manifest.noted(folder, key)))
    body = kept.model_dump_json(by_alias=True)
    digest = hashlib.sha256(body.encode()).hexdigest()
    write_text(folder / CELLS / f"{key}.json", f'{{"sha256":"{digest}","kept":{body}}}\n')


def scratch(folder: Path, key: str) -> Path:
    """A folder for checkpoints of a cell, inside the run folder."""
    path = folder / CELLS / f"{key}.scratch"
    make_folder(path)
    return path


def renew_scratch(folder: Path, key: str, facts: str) -> None:
    """Remove the checkpoints of an earlier try that were computed under other facts (`numerics`)."""
    kept = scratch(folder, key) / "numerics.json"
    if not kept.is_file() or kept.read_text(encoding="utf-8", errors="replace") != facts:
        drop_scratch(folder, key)
        write_text(kept, facts)


def drop_scratch(folder: Path, key: str) -> None:
    """Remove the checkpoints of a finished cell."""
    shutil.rmtree(folder / CELLS / f"{key}.scratch", ignore_errors=True)
