"""A file of the user's that is wrong is refused in our words, whichever model it is held against."""

from __future__ import annotations

import copy
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

import fedassay
from fedassay.contracts.registry import ComponentKind, component
from fedassay.exchange.release import Release
from fedassay.exchange.transcript import load_transcript
from fedassay.plan.schema import parse_plan
from fedassay.privacy.listed import read_events
from fedassay.records.record import load_record
from fedassay.reports.gate.policy import parse_policy
from fedassay.support.errors import FedassayError, unexpected
from fedassay.support.registry import entries
from fedassay.support.text import shown
from fedassay.support.validation import explain

ROOT = Path(__file__).resolve().parents[2]

RAW = re.compile(
    r"\b[Ii]nput\b|[Ff]ield required|[Ee]xtra inputs|valid (?:number|integer|string|list|dict|tuple|boolean)"
    r"|unable to|\bNone\b|\bTrue\b|\bFalse\b|\b(?:dict|tuple)\b|instance of|discriminator|pydantic"
)
"""Words for programmers: of the library that checks models, and of Python."""

WRONG: tuple[Any, ...] = (None, True, -1, 0, 1.5, 10**40, "", "x y", "x" * 5000, [], ["x"] * 3, {}, {"a": 1})
"""What may stand in the place of anything."""

PLAN: dict[str, Any] = {
    "name": "p",
    "data": {"name": "digits", "limit": 300, "split": {"private": 0.5, "test": 0.2}},
    "clients": {"count": 3, "partition": "iid", "alpha": 0.1},
    "backbone": {"name": "pixels"},
    "privacy": {"epsilon": [1, 8], "delta": 1e-5, "adjacency": "add_remove", "unit": "record"},
    "threat": {"backbone": "white_box"},
    "seeds": [0],
    "methods": [{"fedcgs": {}}],
}
POLICY: dict[str, Any] = {
    "name": "p",
    "cells": {"labels": ["a"], "epsilon": "finite"},
    "maximum": {"ssim": 0.5},
    "epsilon_of": {"unit": "record"},
    "claims": "sound",
    "must_conclude": ["dp_claim"],
    "limit_of_detection": {"membership": 0.2},
    "forbidden_verdicts": ["leak"],
    "requires": {"plan": ["0" * 64], "days": 3, "versions": ["1"]},
}
EVENTS: list[dict[str, Any]] = [
    {"mechanism": "gaussian", "sigma": 1.0, "sensitivity": 1.0, "count": 2},
    {"mechanism": "dp_sgd", "noise_multiplier": 1.0, "sampling_rate": 0.1, "steps": 5},
    {"mechanism": "pure", "epsilon": 1.0},
]


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place in a tree, but of lists only the first."""
    yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*path, key))
    elif isinstance(value, list) and value:
        yield from places(value[0], (*path, 0))


def wrong(document: Any) -> Iterator[Any]:
    """The document with something else in each of its places, with a key too many, and with each key left out."""
    for path in places(document):
        for value in WRONG:
            yield changed(document, path, lambda place, last, value=value: place.__setitem__(last, value), value)
        if path and isinstance(path[-1], str):
            yield changed(document, path, lambda place, last: place.pop(last))
            yield changed(document, path, lambda place, last: place.__setitem__("colour", 1))


def changed(document: Any, path: tuple[str | int, ...], change: Any, whole: Any = None) -> Any:
    if not path:
        return whole
    made = copy.deepcopy(document)
    place = made
    for part in path[:-1]:
        place = place[part]
    change(place, path[-1])
    return made


def messages(kind: str, folder: Path) -> Iterator[str]:
    """What each wrong document of a kind is refused with; some are no mistake, and raise nothing."""
    for document in wrong(DOCUMENTS[kind](folder)):
        try:
            READ[kind](document, folder)
        except FedassayError as error:
            yield str(error)


def a_transcript(folder: Path) -> Any:
    with fedassay.record(folder / "sent", classes=3, kinds={"sums": "class_sums"}) as recorder:
        recorder.sent(0, {"sums": np.ones((3, 4))})
    return json.loads((folder / "sent" / "transcript.json").read_text(encoding="utf-8"))


def a_record(folder: Path) -> Any:
    del folder
    found = json.loads((ROOT / "docs" / "gallery" / "captured" / "record.json").read_text(encoding="utf-8"))
    found["cells"] = found["cells"][:1]
    found["cells"][0]["findings"] = found["cells"][0]["findings"][:1]
    return found


def written(document: Any, file: Path) -> Path:
    file.write_text(json.dumps(document), encoding="utf-8")
    return file


DOCUMENTS: dict[str, Any] = {
    "plan": lambda folder: PLAN,
    "policy": lambda folder: POLICY,
    "releases": lambda folder: EVENTS,
    "transcript": a_transcript,
    "record": a_record,
}
READ: dict[str, Any] = {
    "plan": lambda document, folder: parse_plan(document, "plan"),
    "policy": lambda document, folder: parse_policy(document, "policy"),
    "releases": lambda document, folder: read_events(written(document, folder / "releases.yaml")),
    "transcript": lambda document, folder: load_transcript(
        written(document, folder / "sent" / "transcript.json").parent
    ),
    "record": lambda document, folder: load_record(written(document, folder / "record.json")),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", list(DOCUMENTS))
def test_no_wrong_file_is_refused_in_the_words_of_a_library(kind: str, tmp_path: Path) -> None:
    said = list(messages(kind, tmp_path))
    assert len(said) > 30
    assert sorted({message for message in said if RAW.search(message)}) == []
    assert all("\n" not in message for message in said)


@pytest.mark.parametrize("kind", ["method", "attack", "audit"])
def test_nor_is_any_key_of_a_component(kind: ComponentKind) -> None:
    said = []
    for name in entries(kind):
        factory = component(kind, name)
        for key, value in itertools.product(factory.model_fields, WRONG):
            try:
                factory.model_validate({key: value})
            except ValidationError as error:
                said.append(explain(error, factory, name))
    assert len(said) > 30
    assert [message for message in said if RAW.search(message) or "\n" in message] == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"format": 7}, "transcript.json: format: given 7; allowed: 1"),
        ({"classes": "ten"}, "transcript.json: classes: given 'ten'; allowed: a whole number"),
        ({"method": None}, "transcript.json: method: given null; allowed: text"),
        ({"claim": {"kind": "some"}}, "transcript.json: claim.kind: given 'some'; allowed: claim, no_claim"),
        ({"claim": {}}, "transcript.json: claim.kind: missing; it must be given"),
        ({"colour": 1}, "transcript.json: colour: unknown key; allowed: format, method, classes"),
    ],
)
def test_a_manifest_says_where_what_was_given_and_what_is_allowed(
    change: dict[str, Any], says: str, tmp_path: Path
) -> None:
    document = {**a_transcript(tmp_path), **change}
    with pytest.raises(FedassayError) as raised:
        READ["transcript"](document, tmp_path)
    assert says in str(raised.value)


def test_what_was_given_is_shown_as_a_plan_writes_it() -> None:
    assert [shown(value) for value in (None, False, {}, (), "a", 1.5)] == [
        "null",
        "false",
        "a mapping",
        "a list",
        "'a'",
        "1.5",
    ]


def test_a_release_that_cannot_be_is_explained_to_whoever_declares_it() -> None:
    """A method's own code raises it, so that it stands in the record as an error of the cell."""
    try:
        Release(mechanism="gauss")  # type: ignore[arg-type]
    except ValidationError as error:
        said = unexpected(error)
    allowed = "exact, public, derived, gaussian, pure, dp_sgd"
    assert re.match(rf"Release: mechanism: given 'gauss'; allowed: {allowed} \(test_validation\.py:\d+\)$", said)
