"""Every line of evidence stands in the record, or is left to a person."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from fedassay.records.record import RunRecord
from fedassay.reports import write_report
from fedassay.reports.evidence.crosswalk import crosswalk
from fedassay.reports.evidence.lines import PERSON, resolved
from fedassay.reports.evidence.registry import entries


def _traced(value: Any) -> list[dict[str, Any]]:
    """Every value of a registry entry with its places."""
    if isinstance(value, dict) and set(value) == {"value", "record"}:
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [found for part in parts for found in _traced(part)]


def _untraced(value: Any) -> list[Any]:
    """Whatever of a registry entry stands outside a value with its places."""
    if isinstance(value, dict) and set(value) == {"value", "record"}:
        return []
    if isinstance(value, dict):
        return [found for part in value.values() for found in _untraced(part)]
    return [found for part in value for found in _untraced(part)] if isinstance(value, list) else [value]


def test_nothing_in_the_registry_is_said_without_its_place_or_a_person(record: RunRecord) -> None:
    assert [found for entry in entries(record) for found in _untraced(entry)] == []


def test_every_answer_of_the_crosswalk_stands_in_the_record(record: RunRecord) -> None:
    document = json.loads(record.to_json())
    lines = [line for part in crosswalk(record).values() for line in part]
    assert len(lines) > 25
    for line in lines:
        assert line.question.endswith(("?", ")"))
        assert (line.answer == PERSON) == (not line.pointers), line
        for pointer in line.pointers:
            resolved(document, pointer)
    assert 5 < sum(line.answer == PERSON for line in lines) < len(lines) / 2


def test_verdicts_in_the_crosswalk_are_those_of_the_record(record: RunRecord) -> None:
    document = json.loads(record.to_json())
    line = next(
        line for line in crosswalk(record)["ICO: the motivated intruder"] if line.question.startswith("Linking")
    )
    verdicts = {str(resolved(document, pointer)).replace("_", " ") for pointer in line.pointers}
    assert verdicts
    assert all(verdict in line.answer for verdict in verdicts)


def test_what_was_not_run_is_not_called_tested(record: RunRecord) -> None:
    bare = record.model_copy(
        update={"cells": tuple(cell.model_copy(update={"findings": ()}) for cell in record.cells)}
    )
    answers = [line.answer for part in crosswalk(bare).values() for line in part if "tested?" in line.question]
    assert answers
    assert all(answer.startswith(("not tested", "no claim was tested", PERSON)) for answer in answers)
    said = {line.question: line.answer for part in crosswalk(bare).values() for line in part}
    assert "no attack that applies" in said["What was not tested, and why?"]
    assert "nothing was concluded" in said["Identifiability: what did attacks find?"]


def test_registry_entries_are_of_private_releases_alone_and_traced(record: RunRecord) -> None:
    document = json.loads(record.to_json())
    found = entries(record)
    assert len(found) == sum(cell.epsilon != float("inf") for cell in record.cells)
    for entry in found:
        values = _traced(entry)
        assert len(values) > 15
        for value in values:
            assert (value["value"] == PERSON) == (not value["record"])
            for pointer in value["record"]:
                resolved(document, pointer)
        claimed = entry["parameters"]["epsilon_claimed"]
        assert claimed["value"] == resolved(document, claimed["record"][0])


def test_the_folder_holds_what_its_digests_say(tmp_path: Path, record: RunRecord) -> None:
    folder = write_report(record, tmp_path, "evidence", None)
    assert folder == tmp_path / "evidence"
    listed = dict(
        reversed(line.split("  ")) for line in (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    )
    assert set(listed) == {"record.json", "registry.json", "crosswalk.md", "answer.json"}
    statement = json.loads((folder / "statement.json").read_text(encoding="utf-8"))
    for subject in statement["subject"]:
        content = (folder / subject["name"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == subject["digest"]["sha256"] == listed[subject["name"]]
    assert (folder / "record.json").read_text(encoding="utf-8") == record.to_json()


@pytest.mark.parametrize("pointer", ["/cells/99", "/nothing", "/cells/x", "/plan/name/deeper"])
def test_a_pointer_to_nothing_is_an_error(record: RunRecord, pointer: str) -> None:
    with pytest.raises(KeyError):
        resolved(json.loads(record.to_json()), pointer)
