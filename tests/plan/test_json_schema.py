"""JSON schemas: what they accept is what a plan or policy may hold, with words for every key."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from fedassay.cli import cli
from fedassay.plan.schema import read_yaml

CONFIGS = Path(str(resources.files("fedassay") / "configs"))
POLICIES = sorted((CONFIGS / "policies").glob("*.yaml"))
PLANS = sorted(set(CONFIGS.rglob("*.yaml")) - set(POLICIES))


def _schema(what: str) -> dict[str, Any]:
    result = CliRunner().invoke(cli, ["schema", what], catch_exceptions=False, standalone_mode=False)
    schema: dict[str, Any] = json.loads(result.output)
    jsonschema.Draft202012Validator.check_schema(schema)
    return schema


@pytest.fixture(scope="module")
def plans() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(_schema("plan"))


@pytest.mark.long
@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_every_shipped_plan_is_valid_under_the_schema(path: Path, plans: jsonschema.Draft202012Validator) -> None:
    plans.validate(read_yaml(path))


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ("{methods: [fedsdg]}", "methods"),
        ("{methods: [{fedpft: {component: 3}}]}", "methods"),
        ("{methods: [{fedpft: {components: 0}}]}", "methods"),
        ("{methods: [{fedpft: {}, fedcgs: {}}]}", "methods"),
        ("{methods: [{ccvr: {fedavg: {label: inner}}}]}", "methods"),
        ("{attacks: [fedpft]}", "attacks"),
        ("{clients: {count: 0}}", "clients"),
        ("{seeds: zero}", "seeds"),
    ],
)
def test_what_a_plan_may_not_hold_is_refused(wrong: str, key: str, plans: jsonschema.Draft202012Validator) -> None:
    plan = {"name": "p", "data": {"name": "digits"}, "methods": ["fedcgs"]}
    plans.validate(plan)
    errors = list(plans.iter_errors(plan | yaml.safe_load(wrong)))
    assert [error.absolute_path[0] for error in errors] == [key]


def test_labels_seeds_and_epsilons_may_be_written_as_in_a_plan(plans: jsonschema.Draft202012Validator) -> None:
    entry = {"label": "dp", "epsilon": [10, 1], "delta": 1e-6, "components": 1}
    plans.validate({"name": "p", "data": {"name": "digits"}, "seeds": None, "methods": [{"fedpft": entry}]})
    plans.validate({"name": "p", "data": {"name": "digits"}, "seeds": 3, "methods": [{"fedpft": None}]})


@pytest.mark.long
@pytest.mark.parametrize("what", ["plan", "policy"])
def test_every_key_has_words(what: str) -> None:
    schema = _schema(what)
    for part in (schema, *schema["$defs"].values()):
        for key, facts in part.get("properties", {}).items():
            assert facts.get("description"), (part.get("title"), key)


def test_policies_are_bounded_by_the_metrics_there_are() -> None:
    validator = jsonschema.Draft202012Validator(_schema("policy"))
    for path in POLICIES:
        validator.validate(read_yaml(path))
    assert not validator.is_valid({"name": "p", "maximum": {"sim": 1}})
    assert not validator.is_valid({"name": "p", "must_conclude": ["claim"]})
    assert validator.is_valid({"name": "p", "must_conclude": ["other:mine"]})


def test_records_have_the_published_schema() -> None:
    published = Path(__file__).resolve().parents[2] / "docs" / "record.schema.json"
    assert _schema("record") == json.loads(published.read_text(encoding="utf-8"))
