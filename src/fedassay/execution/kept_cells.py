"""Finished cells in the cache: an unchanged plan takes them from there, in any run folder.

A cell is a pure function of its basis (`fedassay.records.basis.Basis`), of the facts that its records were
prepared under, of the network that compares images, and of the common part of every cache key. An entry is the
cell's own file of the run folder with the files that this one names. Taking it puts them into the new run folder
and reads them as `--resume` does: each file is held to its SHA-256, and the cell to its present basis.

A cell is not kept if it is no such function: noise has no seed, or a component of another package imports unknown
modules. Nor is it kept if it failed in part, or if the run is redacted and leaves nothing.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from fedassay.execution import runfolder
from fedassay.execution.cell_job import CellJob
from fedassay.execution.runfolder import FinishedCell
from fedassay.plan.schema import Scenario
from fedassay.records import manifest
from fedassay.records.basis import text_digest
from fedassay.similarity.spec import chosen
from fedassay.support.atomic import write_bytes
from fedassay.support.cache import Entry, entry_of
from fedassay.support.errors import PlanError
from fedassay.support.paths import find
from fedassay.support.registry import has_foreign

ANEW = "FEDASSAY_ANEW"
"""Environment variable: unless it is empty or 0, every cell is worked on, whatever the cache holds."""

_LARGEST = 256 << 20
"""Bytes of a cell that is kept at most, its transcript among them: the entry is held in memory as a whole."""


def place_of(job: CellJob, scenario: Scenario, facts: dict[str, Any], apart: bool) -> Entry | None:
    """Return the cache entry of a cell; None where it is not cached.

    Args:
        job: The job of the cell.
        scenario: The plan.
        facts: Facts that its records were prepared under.
        apart: Whether a process that never ran the method answers the questions of claims.
    """
    anew = os.environ.get(ANEW, "") not in {"", "0"}
    if anew or job.basis is None or job.entry.seed is None or not job.keeps or has_foreign():
        return None
    return entry_of(
        {
            "of": "finished cell",
            "cell": job.key,
            "basis": text_digest(job.basis.model_dump(mode="json")),
            "facts": text_digest(facts),
            "images compared by": job.similarity().remark,
            "trunk": _trunk(scenario),
            "apart": apart,
            "device": job.place.device,
        }
    )


def _trunk(scenario: Scenario) -> str:
    """SHA-256 of the file of a network that the plan names, which need not be a published one; else empty."""
    spec = chosen(scenario.plan.similarity.lpips)
    if spec is None or spec.trunk is None:
        return ""
    with find(spec.trunk, scenario.base, "similarity.lpips.trunk").open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def taken(place: Entry, job: CellJob) -> FinishedCell | None:
    """A finished cell, with its files in the run folder; None where the cache has none that can be believed."""
    kept = place.read()
    own = f"{manifest.CELLS}/{job.key}.json"
    if kept is None or own not in kept:
        return None
    files = {name: array.tobytes() for name, array in kept.items() if name != own}
    if not all(manifest.may_write(name, job.key) for name in files):
        return None
    folder = job.place.folder
    manifest.note(folder, job.key, files)
    # The file that names the others goes last, so that a process that dies here leaves nothing that counts.
    for name, content in (*files.items(), (own, kept[own].tobytes())):
        write_bytes(folder / name, content)
    try:
        found = runfolder.finished(folder, job.key)
    except PlanError:
        return None
    if found is None or found.cell.basis is None or job.basis is None or found.cell.basis.unlike(job.basis):
        return None
    return found.model_copy(update={"reused": True})


def keep(place: Entry, job: CellJob, done: FinishedCell) -> None:
    """Keep a finished cell that lies in the run folder, where nothing of it failed and it is not too large."""
    # A component of another package may have come while the cell was worked on.
    if done.errors or has_foreign():
        return
    names = (f"{manifest.CELLS}/{job.key}.json", *manifest.noted(job.place.folder, job.key))
    paths = {name: path for name in names if (path := job.place.folder / name).is_file()}
    if sum(path.stat().st_size for path in paths.values()) <= _LARGEST:
        place.write({name: _content(path) for name, path in paths.items()})


def _content(path: Path) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.frombuffer(path.read_bytes(), np.uint8)
