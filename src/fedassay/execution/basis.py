"""Basis of the cells of a run, and the comparison of kept cells with it."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedassay.execution.cell_job import CellJob
from fedassay.execution.prepare import Prepared
from fedassay.plan.schema import Cell, Scenario
from fedassay.records.basis import Basis, cells_digest, entry_digest, keyed, plan_digest, unguessable
from fedassay.records.record import CellRecord
from fedassay.records.redacted import redact_params, redact_plan
from fedassay.support import limits
from fedassay.support.environment import code_digest, versions
from fedassay.support.errors import PlanError
from fedassay.support.reading import read_regular

KEY = "FEDASSAY_DATA_KEY"
"""Environment variable that names the file of a key for the digests of data in redacted runs."""
_LEAST = 16
_SHOWN = 3


def key_of_digests() -> bytes:
    """The key of the digests of data in a redacted run: from the file that the environment names, else a new one.

    A new one is kept nowhere: such digests tell whether cells of one run stand on the same data, and no more.

    Raises:
        PlanError: The file cannot be read, or holds too little.
    """
    path = os.environ.get(KEY, "")
    if not path:
        return secrets.token_bytes(32)
    key = read_regular(Path(path), limits.KEY_BYTES, error=PlanError).strip()
    if len(key) < _LEAST:
        raise PlanError(f"{KEY}={path}: the key has {len(key)} bytes; allowed: {_LEAST} or more")
    return key


def basis_of(scenario: Scenario, cell: Cell, prepared: Prepared, key: bytes | None) -> Basis:
    """Return the basis of a cell of a plan.

    Args:
        scenario: The plan.
        cell: Of this plan.
        prepared: The records of the cell's seed.
        key: Of the digests of data, in a redacted run; None: they are plain.
    """
    data, weights = prepared.digests, prepared.backbone.fingerprint
    if key is not None:
        data = {role: keyed(digest, key) for role, digest in data.items()}
        # Features in place of a backbone have a hash of private data.
        weights = keyed(weights, key) if unguessable(weights) != weights else weights
    method, asked, resolved = cell.method, cell.privacy, scenario.resolved()
    params = method.params if key is None else redact_params(method.params)
    return Basis(
        plan=plan_digest(resolved if key is None else redact_plan(resolved)),
        cells=cells_digest(each.key for each in scenario.cells),
        entry=entry_digest(
            *(method.name, method.label, params, asked.epsilon, asked.delta, asked.adjacency),
            *(asked.unit, cell.seed),
        ),
        data=data,
        weights=weights,
        code=code_digest(
            _sources([method.build, *(part.build for part in (*scenario.attacks, *scenario.audits))])
        ),
        versions=versions(),
    )


def basis_of_messages(job: CellJob, plan: dict[str, Any], key: bytes | None) -> Basis:
    """Return the basis of the cell of captured messages.

    Args:
        job: The job.
        plan: The record's description of the run, which names the messages by their digest.
        key: As for `basis_of`.
    """
    entry, asked, backbone = job.entry, job.entry.privacy, job.known.backbone
    weights = "" if backbone is None else backbone.fingerprint
    return Basis(
        plan=plan_digest(plan if key is None else redact_plan(plan)),
        cells=cells_digest([job.key]),
        entry=entry_digest(
            *(entry.method, entry.label, entry.params, asked.epsilon, asked.delta, asked.adjacency),
            *(asked.unit, entry.seed),
        ),
        data={"messages": plan["transcript"]["sha256"]},
        weights=weights if key is None or unguessable(weights) == weights else keyed(weights, key),
        code=code_digest(),
        versions=versions(),
    )


def _sources(components: Iterable[object]) -> tuple[Path, ...]:
    """The files of components that other packages bring."""
    modules = {type(part).__module__ for part in components}
    found = (
        getattr(sys.modules.get(name), "__file__", None) for name in modules if not name.startswith("fedassay.")
    )
    return tuple(sorted(Path(path) for path in found if path and Path(path).is_file()))


def refuse_unlike(folder: Path, kept: Iterable[tuple[CellRecord, Basis]]) -> None:
    """Refuse to continue a run with finished cells on another basis than further ones would have.

    Args:
        folder: The run folder.
        kept: Finished cells, each with its present basis.

    Raises:
        PlanError: Some have; the message names them and the differences.
    """
    wrong: list[str] = []
    for cell, today in kept:
        what = (
            ["the basis is not recorded (an older fedassay)"] if cell.basis is None else cell.basis.unlike(today)
        )
        if what:
            wrong.append(f"{cell.key} ({'; '.join(what)})")
    if wrong:
        more = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise PlanError(
            f"-o {folder}: --resume, but finished cells stand on something else than is there now: "
            f"{', '.join(wrong[:_SHOWN])}{more}; allowed: what they stood on, another folder, or --force"
        )
