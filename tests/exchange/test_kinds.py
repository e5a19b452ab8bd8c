"""Kinds of fields: one table, open to others, from which checks, attacks, solvers and words follow."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from fedassay.contracts.registry import attack_facts
from fedassay.exchange.feature_sources import between, offered, sources
from fedassay.exchange.kinds import FieldFacts, FieldKind, called, kinds
from fedassay.exchange.linear import linear_blocks
from fedassay.exchange.message import Message, MessageField
from fedassay.exchange.release import exact
from fedassay.exchange.shapes import shape_problem
from fedassay.exchange.view import ThreatModel, View
from fedassay.recorders.files.reading import Corrections, read_files
from fedassay.records.record import LedgerRow
from fedassay.reports.evidence.fields import named
from fedassay.support import registry

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def others() -> Iterator[None]:
    """Two kinds of another package: medians, which no solver adds up, and sums of features to the third power."""

    @registry.register("field", "class_medians")
    class ClassMedians:
        facts: ClassVar[FieldFacts] = FieldFacts(
            "(P, d)",
            "median of the features of a class",
            "medians of features over each class",
            sides=2,
            first="classes",
            wide=True,
            vectors=True,
            names="median medians",
        )

    @registry.register("field", "class_totals")
    class ClassTotals:
        facts: ClassVar[FieldFacts] = FieldFacts(
            "(P, d)", "sum of the features of a class", "sums", sides=2, first="classes", wide=True, sums=True
        )

    yield
    # What a test imports registers as well, and must stay: a copy of the registry would lose it for later tests.
    for name in ("class_medians", "class_totals"):
        del registry._registered["field", name], registry._sizes["field", name]


def _message(kind: str, values: np.ndarray, **beside: np.ndarray) -> Message:
    fields = {"it": MessageField(values, kind, exact())}
    fields |= {name: MessageField(each, name, exact("labels")) for name, each in beside.items()}
    return Message(0, "client/0", "server", fields)


@pytest.mark.usefixtures("others")
def test_a_kind_of_others_is_checked_attacked_and_named() -> None:
    medians = np.arange(8.0).reshape(2, 4)
    message = _message("class_medians", medians, class_ids=np.array([2, 0]))
    assert shape_problem(message, 3) is None
    assert "first side must be 3" in str(shape_problem(_message("class_medians", medians), 3))
    assert "must have 2 sides" in str(shape_problem(_message("class_medians", medians[0]), 3))
    beside = _message("class_medians", medians)
    beside.fields["sums"] = MessageField(np.ones((2, 5)), "class_sums", exact())
    assert "different widths" in str(shape_problem(beside, 2))
    (found,) = sources(View((message,), 3, ThreatModel()), np.random.default_rng(0))
    assert found.name == "class_medians"
    np.testing.assert_array_equal(found.vectors, medians)
    assert found.labels.tolist() == [2, 0]
    assert offered("class_medians")
    assert between("class_medians")
    row = LedgerRow.model_construct(kind="class_medians", field="middle")
    assert named([row]) == "medians of features over each class (middle)"


@pytest.mark.usefixtures("others")
def test_attacks_on_vectors_apply_to_it() -> None:
    for attack in ("feature_inversion", "feature_diffusion"):
        assert attack_facts(attack).applies({"class_medians"})
        assert not attack_facts(attack).applies({"labels"})


@pytest.mark.usefixtures("others")
def test_solvers_read_sums_of_others() -> None:
    totals = np.arange(6.0).reshape(2, 3)
    (block,) = linear_blocks(_message("class_totals", totals), 2)
    np.testing.assert_array_equal(block.total, totals)
    assert not linear_blocks(_message("class_medians", totals), 2)


@pytest.mark.usefixtures("others")
def test_a_file_is_read_by_the_names_that_a_kind_of_others_brings(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "a.npz", counts=np.arange(4, 7), medians_of_site=rng.normal(size=(3, 8)))
    (message,) = read_files(tmp_path / "a.npz", Corrections()).transcript.messages
    assert {name: item.kind for name, item in message.fields.items()} == {
        "counts": "class_counts",
        "medians_of_site": "class_medians",
    }
    assert called("medians_of_site") == ("class_medians", "quantiles")
    assert called("nothing") == ()


def test_a_kind_that_nobody_declared_is_refused() -> None:
    with pytest.raises(ValueError, match="'class_medians' of a field is not known; allowed: features"):
        MessageField(np.ones(1), "class_medians", exact())
    with pytest.raises(ValidationError, match="is not known"):
        TypeAdapter(FieldKind).validate_python("medians")


def test_the_page_on_transcripts_lists_every_kind() -> None:
    page = (ROOT / "docs" / "transcript.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*) \|$", page, re.MULTILINE)
    assert [row for row in rows if row[0] in kinds()] == [
        (name, facts.shape, facts.meaning) for name, facts in kinds().items()
    ]


@pytest.mark.long
def test_code_names_no_other_kind() -> None:
    """Strings that are asked for as kinds are declared, as a type of literals would hold."""
    asked = set()
    for room in ("attacks", "audits", "methods", "src/fedassay/exchange", "src/fedassay/execution"):
        for path in sorted((ROOT / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call):
                    name = ast.unparse(node.func).split(".")[-1]
                    place = {"of_kind": 0, "field_of": 1, "MessageField": 1}.get(name, len(node.args))
                    asked |= {
                        each.value for each in node.args[place : place + 1] if isinstance(each, ast.Constant)
                    }
    assert len(asked) > 15
    assert asked <= set(kinds())
