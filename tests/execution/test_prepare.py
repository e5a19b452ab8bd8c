"""Whose the records of a seed are: in every role, at every client, and in the record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedassay.data.records import Records
from fedassay.execution.prepare import ONE_EACH, UNKNOWN_TEST, Prepared, prepare
from fedassay.plan.schema import parse_plan
from fedassay.support.errors import PlanError
from fedassay.support.progress import SILENT


def _archive(file: Path, seed: int, **more: Any) -> None:
    """160 records of 40 persons, of whom every fourth is in both domains."""
    rng = np.random.default_rng(seed)
    persons = np.repeat(np.arange(40), 4)
    domain = persons % 3
    domain[(persons % 4 == 0) & (np.arange(160) % 4 == 3)] += 1
    images = rng.integers(0, 256, (160, 8, 8), np.uint8)
    np.savez(file, x=images, y=np.arange(160) % 2, patient=persons, domain=domain % 3, **more)


def _prepared(folder: Path, data: dict[str, Any], **clients: Any) -> Prepared:
    content = {
        "name": "persons",
        "data": {"name": "npz", "path": "own.npz", **data},
        "clients": {"count": 3, "partition": "iid", **clients},
        "backbone": {"name": "pixels"},
        "methods": ["raw_features"],
    }
    return prepare(parse_plan(content, "plan"), folder, 0, "cpu", SILENT)


def _people(records: Records | None) -> set[int]:
    return set() if records is None or records.groups is None else set(records.groups.tolist())


def test_nobody_is_in_two_roles_or_at_two_clients(tmp_path: Path) -> None:
    _archive(tmp_path / "own.npz", 0)
    made = _prepared(tmp_path, {"groups": "patient"})
    held = [_people(each) for each in (*made.clients, made.test, made.public, made.attacker, made.control)]
    assert sum(map(len, held)) == len(set().union(*held))
    facts = made.facts["persons"]
    assert facts["client_persons"] == [len(each) for each in held[:3]]
    assert facts["most_records"] == 4
    assert facts["assumed"] == ""
    assert _prepared(tmp_path, {}).facts["persons"] == {"groups": None, "assumed": ONE_EACH}
    assert _prepared(tmp_path, {}).clients[0].groups is None


def test_whose_the_test_records_are_may_be_unknown(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    tests = rng.integers(0, 256, (20, 8, 8), np.uint8)
    _archive(tmp_path / "own.npz", 0, x_test=tests, y_test=np.arange(20) % 2)
    assert _prepared(tmp_path, {"groups": "patient"}).facts["persons"]["assumed"] == UNKNOWN_TEST


def test_people_of_another_data_set_are_none_of_this_one(tmp_path: Path) -> None:
    for number, name in enumerate(("own", "other")):
        _archive(tmp_path / f"{name}.npz", number)
    other = {"name": "npz", "path": "other.npz", "groups": "patient"}
    made = _prepared(tmp_path, {"groups": "patient", "attacker_from": other})
    assert len(_people(made.attacker)) == 40
    assert not _people(made.attacker) & set().union(*(_people(client) for client in made.clients))


def test_a_person_of_two_domains_is_refused_or_stays_at_one_client(tmp_path: Path) -> None:
    _archive(tmp_path / "own.npz", 0)
    with pytest.raises(PlanError, match=r"persons at several clients .* clients\.shared_persons: one_client"):
        _prepared(tmp_path, {"groups": "patient"}, partition="domains")
    made = _prepared(tmp_path, {"groups": "patient"}, partition="domains", shared_persons="one_client")
    held = [_people(client) for client in made.clients]
    assert sum(map(len, held)) == len(set().union(*held))
    left_out = made.facts["persons"]["records_left_out_of_shared_persons"]
    assert left_out == made.facts["records"]["private"] - sum(made.facts["client_records"]) > 0
