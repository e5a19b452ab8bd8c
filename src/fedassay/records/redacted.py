"""A record without what shows anybody: what `--redact` leaves of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

from fedassay.records.basis import KEYED, entry_digest, plan_digest, unguessable, without_plain
from fedassay.records.record import CellRecord, Finding, RunRecord

GONE = "(redacted)"
"""Stands where a path, or the name of a folder, a file or a class was."""

_NAMES = "class_names"
_ACCOUNT = "account"
"""What was read and left out of the user's own files, in words that quote folders, classes and columns."""
_HASH = "fingerprint"
_DIGEST = "sha256"
_FREE_TEXT = ("source", "description", "groups")
"""Facts about data that may quote the name of a file, a folder or a column."""
_IN_DATA = (
    *("root", "path", "labels", "features", "groups"),
    *("file_column", "label_column", "classes", "test_domain", "attributes"),
    *("layout", "sites", "label"),
)
"""Keys of `data` and `data.attacker_from` that hold names of the user's own."""
_SECTIONS = ("methods", "attacks", "audits", "backbone", "similarity")
"""Sections whose parameters may be paths."""
_FOLDER = "folder"
_ATTRIBUTE = "attribute"
"""A parameter that names a column of the user's own."""
_CAPTURED = "captured"
"""What a redacted run of captured messages is called: it is named after their folder otherwise."""
_PLACES = ("path", "root", "labels", "features", "gallery", _FOLDER, "file", "trunk")
"""Keys under which any text is a path, of one part or more."""
_LIKE_A_PATH = re.compile(r"(?:^|[\s\"'(=:])[~.]{0,2}/[^\s/]|\w[/\\]\w+[/\\]\w")
_KIND = re.compile(r"[A-Z][A-Za-z]*Error: ")
"""The type of an error, with which its message begins."""
_COMMANDS = ("run", "audit")
_SHORTEST = 3
"""Letters of a name that is looked for in text."""


def redact(record: RunRecord) -> RunRecord:
    """The record without pictures, class names, and paths, which says that it lacks them; its numbers stay.

    What stays is computed from many records, or is a score: no image, no feature, no label of a record. Digests of
    private data stay where they are keyed (`fedassay.records.basis`): anybody could hold a guess against others.
    Names of folders, files, columns and classes are the user's own, and may say whose the records are: they are
    left out wherever a record holds them, and a text that quotes one is left out as a whole.
    """
    names = _Names(record)
    plan = redact_plan(record.plan)
    return record.model_copy(
        update={
            "cells": tuple(_cell(cell, plan, names) for cell in record.cells),
            "data": _without_names(record.data, names),
            "plan": plan,
            "environment": _environment(record.environment),
            "errors": tuple(
                error.model_copy(update={"message": names.unless_quoted(error.message)}) for error in record.errors
            ),
            "redacted": True,
        }
    )


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
            key: item if key == "label" else _gone(item) if key == _ATTRIBUTE else redact_params(item)
            for key, item in params.items()
        }
    if isinstance(params, (list, tuple)):
        return [redact_params(item) for item in params]
    return GONE if isinstance(params, str) and _is_path(params) else params


def _is_path(words: str) -> bool:
    return any(mark in words for mark in "/\\~") or bool(re.fullmatch(r"\.[A-Za-z]\w*", PurePath(words).suffix))


def _without_paths(data: Any) -> Any:
    if not isinstance(data, dict):
        return data
    kept = {key: _gone(value) if key in _IN_DATA else value for key, value in data.items()}
    return {key: _without_paths(value) if key == "attacker_from" else value for key, value in kept.items()}


def _gone(value: Any) -> Any:
    """The mark in place of a text, and of each of several; numbers and nothing stay."""
    if isinstance(value, (list, tuple)):
        return [_gone(each) for each in value]
    return GONE if isinstance(value, str) else value


def _messages(about: dict[str, Any]) -> dict[str, Any]:
    """What a record says of captured messages, or of candidates, without their folder."""
    keyed = str(about.get(_DIGEST, "")).startswith(KEYED)
    kept = {key: value for key, value in about.items() if keyed or key != _DIGEST}
    return {key: _gone(value) if key == _FOLDER else value for key, value in kept.items()}


def _cell(cell: CellRecord, plan: Any, names: _Names) -> CellRecord:
    params, basis = redact_params(cell.params), cell.basis
    if basis is not None:
        entry = (cell.method, cell.label, params, cell.epsilon, cell.delta, cell.adjacency, cell.unit, cell.seed)
        # Digests of what is left: those of the whole would confirm guesses of a folder's name.
        new = {"plan": plan_digest(plan), **({} if params == cell.params else {"entry": entry_digest(*entry)})}
        basis = without_plain(basis).model_copy(update=new)
    return cell.model_copy(
        update={
            "findings": tuple(_finding(finding, names) for finding in cell.findings),
            "params": params,
            "params_given": redact_params(cell.params_given),
            "notes": tuple(map(names.without, cell.notes)),
            "privacy": cell.privacy.model_copy(
                update={
                    "reason": names.without(cell.privacy.reason),
                    "warnings": tuple(map(names.without, cell.privacy.warnings)),
                }
            ),
            "coverage": tuple(
                row.model_copy(update={"reason": names.without(row.reason)}) for row in cell.coverage
            ),
            "basis": basis,
            # No transcript is kept, and its digest is one of private data.
            "released": None if cell.released is None else cell.released.model_copy(update={"transcript": ""}),
        }
    )


def _finding(finding: Finding, names: _Names) -> Finding:
    own = finding.selection in names.attributes
    kept = {"pictures": (), "reason": names.without(finding.reason)}
    return finding.model_copy(update={**kept, "selection": GONE} if own else kept)


def _without_names(data: Any, names: _Names) -> Any:
    """Facts about data: classes of a folder of images may be people, and their names are labels."""
    if not isinstance(data, dict):
        return data
    return {key: _without_name(key, value, names) for key, value in data.items()}


def _without_name(key: str, value: Any, names: _Names) -> Any:
    if key == _NAMES and isinstance(value, (list, tuple)):
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


class _Names:
    """The names of the user's own that a record holds, to be kept out of its texts."""

    def __init__(self, record: RunRecord) -> None:
        command = record.environment.get("command")
        given = command[1:] if isinstance(command, (list, tuple)) else ()
        paths = {
            *_paths(record.plan),
            *_paths(record.environment.get("plan"), at="file"),
            *(part for part in given if isinstance(part, str) and not part.startswith("-") and _is_path(part)),
        }
        data = record.plan.get("data") if isinstance(record.plan, dict) else None
        held = data.get("attributes") if isinstance(data, dict) else None
        held = held if isinstance(held, (list, tuple)) else ()
        self.attributes = frozenset(name for name in held if isinstance(name, str))
        parts = {part for path in paths for part in re.split(r"[/\\]", path)}
        stems = {PurePath(part).stem for part in parts}
        self._paths = _pattern(paths)
        self._names = _pattern({*paths, *parts, *stems, *_classes(record.data)})

    def without(self, words: str) -> str:
        """The text without the paths in it."""
        return self._paths.sub(GONE, words)

    def unless_quoted(self, words: str) -> str:
        """The text, unless it quotes one of the names or holds what may be another path."""
        if not (self._names.search(words) or _LIKE_A_PATH.search(words)):
            return words
        kind = _KIND.match(words)
        return GONE if kind is None else f"{kind[0]}{GONE}"


def _pattern(names: Iterable[str]) -> re.Pattern[str]:
    """What finds each of some names where it stands as a word; the longest first, and never the mark."""
    words = sorted({name for name in names if len(name) >= _SHORTEST and GONE not in name}, key=len, reverse=True)
    return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)" if words else "(?!)")


def _paths(value: Any, at: str = "") -> Iterator[str]:
    """The texts that redaction takes out of a plan, or those at one key."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _paths(item, str(key))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _paths(item, at)
    elif isinstance(value, str) and at != "label" and (at in _PLACES or _is_path(value)):
        yield value


def _classes(data: Any, at: str = "") -> Iterator[str]:
    """The names of classes, wherever facts about data hold them."""
    if isinstance(data, dict):
        for key, item in data.items():
            yield from _classes(item, str(key))
    elif at == _NAMES and isinstance(data, (list, tuple)):
        yield from (name for name in data if isinstance(name, str))
