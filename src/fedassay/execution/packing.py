"""One archive of a run, to be kept: redacted unless the whole is asked for, and taken by `check` as it is."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from fedassay.execution.run_output import write_run
from fedassay.records.packed import ENDING, write_archive
from fedassay.records.record import load_record
from fedassay.records.redacted import redact
from fedassay.records.signature import sign
from fedassay.records.statement import ENVELOPE
from fedassay.reports.evidence.verify import is_evidence, verify_evidence
from fedassay.reports.gate.beside import EVIDENCE
from fedassay.reports.gate.verify import names_of, verify
from fedassay.reports.gate.vouching import vouched
from fedassay.support.errors import DataError, PlanError
from fedassay.support.temporary import temporary_folder


def sign_run(run: Path, key: Path) -> str:
    """Sign a run, or a folder of evidence, that holds; gives the SHA-256 of the public key.

    Raises:
        DataError: It does not hold.
        PlanError: The key cannot be used.
    """
    problems = (verify_evidence(run) if is_evidence(run) else verify(run)).problems
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise DataError(f"{run}: nothing is signed that does not hold: {problems[0]}{more}")
    return sign(run if run.is_dir() else run.parent, key)


def pack(run: Path, target: Path | None = None, *, whole: bool = False, key: Path | None = None) -> Path:
    """Write one archive of a run, or of a folder of evidence.

    Args:
        run: Its folder.
        target: The archive; None: beside the folder, under its name.
        whole: Whether pictures, transcripts and names go along; else what is packed is redacted.
        key: A private key that signs what is packed; None: it is as signed as the run is.

    Returns:
        The archive.

    Raises:
        DataError: The run does not hold.
        PlanError: It is signed, and a redacted copy would not be.
    """
    folder = run if run.is_dir() else run.parent
    archive = target or folder.resolve().with_name(f"{folder.resolve().name}{ENDING}")
    if archive.resolve().is_relative_to(folder.resolve()):
        raise PlanError(f"-o {archive}: lies in the run that is packed; allowed: a path outside of {folder}")
    if is_evidence(folder):
        if key is not None:
            sign_run(folder, key)
        write_archive(folder, _there(folder, (path.name for path in folder.iterdir())), archive)
        return archive
    record = load_record(folder)
    if whole or record.redacted:
        if key is not None:
            sign_run(folder, key)
        write_archive(folder, _files(folder), archive)
        return archive
    if key is None and os.path.lexists(folder / ENVELOPE):
        raise PlanError(
            f"{folder}: it is signed, and a redacted copy would not be; allowed: --key with a private key that "
            "signs the copy, or --whole"
        )
    problems = vouched(folder, record).problems
    if problems:
        raise DataError(f"{folder}: nothing is packed that does not hold: {problems[0]}")
    with temporary_folder() as temporary:
        copy = temporary / "run"
        write_run(copy, redact(record))
        if key is not None:
            sign(copy, key)
        write_archive(copy, _files(copy), archive)
    return archive


def _files(folder: Path) -> list[str]:
    """The files that a run wrote into its folder, and its evidence; nothing else that lies there."""
    record = load_record(folder)
    names = {*names_of(record, vouched(folder, record).files)}
    for inner in folder.iterdir():
        if inner.is_dir() and (inner / EVIDENCE).is_file():
            names |= {f"{inner.name}/{path.name}" for path in inner.iterdir()}
    return _there(folder, names)


def _there(folder: Path, names: Iterable[str]) -> list[str]:
    """Those that are regular files."""
    return [name for name in names if (folder / name).is_file() and not (folder / name).is_symlink()]
