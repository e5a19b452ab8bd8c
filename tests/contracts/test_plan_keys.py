"""What everything that has plan keys owes: words for each of them."""

from __future__ import annotations

import pytest
import yaml
from pydantic import BaseModel, Field

from fedassay.plan.keys import described, entry_keys, every_key, keys
from fedassay.plan.schema import RESERVED, Plan
from fedassay.support.registry import entries, lookup
from fedassay.support.types import Parameters

COMPONENTS = [(kind, name) for kind in ("method", "attack", "audit") for name in entries(kind)]  # type: ignore[arg-type]


def _models(model: type[BaseModel]) -> set[type[BaseModel]]:
    return {model, *(section for key in every_key(model) for section in key.sections)}


@pytest.mark.parametrize(("kind", "name"), COMPONENTS)
def test_every_parameter_is_described(kind: str, name: str) -> None:
    missing = [key.name for key in every_key(lookup(kind, name)) if not key.about.endswith((".", ")", "..."))]  # type: ignore[arg-type]
    assert not missing


def test_every_key_of_a_plan_is_described() -> None:
    assert not [key.name for key in every_key(Plan) if not key.about.endswith(".")]
    assert tuple(key.name for key in entry_keys()) == RESERVED


@pytest.mark.parametrize(("kind", "name"), COMPONENTS)
def test_nothing_is_described_that_is_no_parameter(kind: str, name: str) -> None:
    for model in _models(lookup(kind, name)):  # type: ignore[arg-type]
        assert set(described(model)) <= set(model.model_fields), model


def test_nothing_is_described_that_is_no_key_of_a_plan() -> None:
    for model in _models(Plan):
        assert set(described(model)) <= set(model.model_fields), model


@pytest.mark.parametrize(("kind", "name"), COMPONENTS)
def test_a_plan_may_write_every_default_as_it_is_shown(kind: str, name: str) -> None:
    component = lookup(kind, name)  # type: ignore[arg-type]
    written = {key.name: yaml.safe_load(key.default) for key in keys(component) if key.default is not None}
    assert component.model_validate(written) == component()


def test_what_nobody_describes_has_no_words() -> None:
    class Base(Parameters):
        """A base.

        Attributes:
            one: The first,
                on two lines; None: none.
            two: The second.
        """

        one: int | None = None
        two: float = Field(default=1.0, gt=0, le=2)

    class Derived(Base):
        """One more.

        Attributes:
            two: Said anew.
        """

        three: str = "a"
        """Said below."""
        four: bool

    words = {key.name: key.about for key in keys(Derived)}
    first = "The first, on two lines; `null`: none."
    assert words == {"one": first, "two": "Said anew.", "three": "Said below.", "four": ""}
    types = {key.name: (key.allowed, key.default) for key in keys(Derived)}
    assert types["one"] == ("whole number, or null", "null")
    assert types["two"] == ("number in (0, 2]", "1.0")
    assert types["four"] == ("true or false", None)


@pytest.mark.parametrize(
    ("path", "words", "default"),
    [
        ("seeds", "list of: whole number or null", "[0]"),
        ("data.split", "section", "{private: 0.4, attacker: 0.3, public: 0.1, test: 0.2}"),
        ("data.split.private", "number in (0, 1]", None),
        ("clients.count", "whole number in [1, 100000]", "5"),
        ("similarity.lpips", "section, or auto, or null", "auto"),
        ("similarity.lpips.net", "one of alex | squeeze", "alex"),
        ("privacy.epsilon", "number > 0, or .inf, or a list of these", ".inf"),
        ("threat.rounds", "one of all | last, or whole number", "all"),
        ("methods", "list of: entry", None),
    ],
)
def test_types_and_defaults_are_those_of_a_plan(path: str, words: str, default: str | None) -> None:
    key = next(key for key in every_key(Plan) if key.name == path)
    assert (key.allowed, key.default) == (words, default)


def test_sections_in_lists_have_paths() -> None:
    found = {key.name: key for key in every_key(lookup("method", "ccvr"))}
    assert found["fedavg.bodies"].allowed == "section, or a list of these"
    assert found["fedavg.bodies[].name"].default is None
    assert found["head.solver"].allowed == "one of lbfgs | adam"
