"""The redacted form of a record, which identifies no person: the result of `--redact`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from fedassay.records.basis import KEYED, entry_digest, plan_digest, unguessable, without_plain
from fedassay.records.private_names import (
    ATTRIBUTE,
    CLASS_NAMES,
    FOLDER,
    GONE,
    IN_DATA,
    SENDERS,
    PrivateNames,
    is_path,
)
from fedassay.records.record import CellRecord, RunRecord
from fedassay.records.unfinished import Unfinished

_SHEET = "contact_sheet"
"""The contact sheet: thumbnails of private records, names of their classes, sites and files."""
_HASH = "fingerprint"
_DIGEST = "sha256"
_READ, _OPTIONS = "read", "options"
"""The reading of files of captured messages, and the user's corrections: both quote names of arrays and files."""
_ACCOUNT = "account"
"""The account of the user's own files that were read or left out; it quotes folders, classes and columns."""
_FREE_TEXT = ("source", "description", "groups")
"""Facts about data that may quote the name of a file, a folder or a column."""
_SECTIONS = ("methods", "attacks", "audits", "backbone", "similarity")
"""Sections with parameters that may be paths."""
_CAPTURED = "captured"
"""The name of a redacted run of captured messages, which is otherwise named after their folder."""
_COMMANDS = ("run", "audit")


def redact(record: RunRecord) -> RunRecord:
    """Return the record without pictures, class names and paths, and marked as such; its numbers stay.

    The result holds numbers computed from many records, and scores: no image, no feature, no label of a record.
    Digests of private data stay only where they are keyed (`fedassay.records.basis`), as others can be compared
    with guesses. Names of folders, files, columns, classes and senders are the user's own, and may reveal the
    persons in the records. Every text of every cell is searched for them, and an error that quotes one is left out
    as a whole.
    """
    names = PrivateNames(record)
    plan = redact_plan(record.plan)
    about = record.plan.get("transcript") if isinstance(record.plan, dict) else None
    read = about.get(_READ) if isinstance(about, dict) else None
    return record.model_copy(
        update={
            "cells": tuple(names.without(_cell(cell, plan, read)) for cell in record.cells),
            "data": _without_names(record.data, names),
            "plan": plan,
            "environment": _environment(record.environment),
            "errors": tuple(
                error.model_copy(update={"message": names.unless_quoted(error.message)}) for error in record.errors
            ),
            "unfinished": _unfinished(record),
            "redacted": True,
        }
    )


def _unfinished(record: RunRecord) -> Unfinished | None:
    """Return the missing parts of a run, without the paths in its command and without the quotes of an error."""
    lacks = record.unfinished
    if lacks is None:
        return None
    command = f"fedassay run PLAN.yaml -o RUN {'--force --redact' if '--redact' in lacks.command else '--resume'}"
    return lacks.model_copy(update={"why": lacks.why.partition(":")[0], "command": command})


def redact_plan(plan: Any) -> Any:
    """The plan without paths and names of the user's own, and without digests of messages that are not keyed."""
    if not isinstance(plan, dict):
        return plan
    out = dict(plan)
    out |= {key: redact_params(plan[key]) for key in _SECTIONS if key in plan}
    if isinstance(plan.get("knowledge"), dict):
        out["knowledge"] = {key: _gone(value) for key, value in plan["knowledge"].items()}
    if "data" in plan:
        out["data"] = _without_paths(plan["data"])
    if isinstance(plan.get("candidates"), dict):
        out["candidates"] = _messages(plan["candidates"])
    about = plan.get("transcript")
    if isinstance(about, dict):
        out |= {"name": _CAPTURED, "transcript": _messages(about)}
        again = about.get("again")
        if isinstance(again, (list, tuple)):
            out["transcript"]["again"] = [_messages(each) if isinstance(each, dict) else each for each in again]
    return out


def redact_params(params: Any) -> Any:
    """Parameters without those texts that are paths; a label is the user's own word for a release, and stays."""
    if isinstance(params, Mapping):
        return {
            key: item if key == "label" else _gone(item) if key == ATTRIBUTE else redact_params(item)
            for key, item in params.items()
        }
    if isinstance(params, (list, tuple)):
        return [redact_params(item) for item in params]
    return GONE if isinstance(params, str) and is_path(params) else params


def _without_paths(data: Any) -> Any:
    if not isinstance(data, dict):
        return data
    kept = {key: _gone(value) if key in IN_DATA else value for key, value in data.items()}
    return {key: _without_paths(value) if key == "attacker_from" else value for key, value in kept.items()}


def _gone(value: Any) -> Any:
    """The mark in place of a text, and of each of several; numbers and nothing stay."""
    if isinstance(value, (list, tuple)):
        return [_gone(each) for each in value]
    return GONE if isinstance(value, str) else value


def _messages(about: dict[str, Any]) -> dict[str, Any]:
    """Return a record's facts about captured messages, or about candidates, without their folder."""
    keyed = str(about.get(_DIGEST, "")).startswith(KEYED)
    kept = {key: value for key, value in about.items() if key != _OPTIONS and (keyed or key != _DIGEST)}
    return {key: _gone(value) if key in (FOLDER, SENDERS, _READ) else value for key, value in kept.items()}


def _cell(cell: CellRecord, plan: Any, read: Any) -> CellRecord:
    """A cell without pictures, paths among its parameters, and digests; its texts but `read` are as they were."""
    params, basis = redact_params(cell.params), cell.basis
    if basis is not None:
        entry = (cell.method, cell.label, params, cell.epsilon, cell.delta, cell.adjacency, cell.unit, cell.seed)
        # Digests of the rest: those of the whole would confirm guesses of a folder's name.
        new = {"plan": plan_digest(plan), **({} if params == cell.params else {"entry": entry_digest(*entry)})}
        basis = without_plain(basis).model_copy(update=new)
    return cell.model_copy(
        update={
            "findings": tuple(finding.model_copy(update={"pictures": ()}) for finding in cell.findings),
            "notes": tuple(note for note in cell.notes if note != read),
            "params": params,
            "params_given": redact_params(cell.params_given),
            "basis": basis,
            # No transcript is kept, and its digest is one of private data.
            "released": None if cell.released is None else cell.released.model_copy(update={"transcript": ""}),
        }
    )


def _without_names(data: Any, names: PrivateNames) -> Any:
    """Facts about data: classes of a folder of images may be people, and their names are labels."""
    if not isinstance(data, dict):
        return data
    return {key: _without_name(key, value, names) for key, value in data.items() if key != _SHEET}


def _without_name(key: str, value: Any, names: PrivateNames) -> Any:
    if key == CLASS_NAMES and isinstance(value, (list, tuple)):
        return len(value)
    if key == _ACCOUNT:
        return None
    if key == _HASH and isinstance(value, str):
        return unguessable(value)
    if key in _FREE_TEXT and isinstance(value, str):
        return names.unless_quoted(value)
    return _without_names(value, names)


def _environment(environment: dict[str, Any]) -> dict[str, Any]:
    """Facts about the machine, without the plan's file and without what options of the command were given."""
    kept = {key: value for key, value in environment.items() if key != "plan"}
    command = kept.get("command")
    if isinstance(command, (list, tuple)):
        kept["command"] = list(_command([str(part) for part in command]))
    return kept


def _command(parts: list[str]) -> Iterator[str]:
    for number, part in enumerate(parts):
        if number == 0:
            yield PurePath(part).name if part != GONE else part
        elif part.startswith("-"):
            option, equals, _ = part.partition("=")
            yield f"{option}={GONE}" if equals else option
        else:
            yield part if part in _COMMANDS and number == 1 else GONE
