"""Keys under the names that they had before: older plans and records go on working."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from fedassay.contracts.method import MethodInput
from fedassay.contracts.registry import component
from fedassay.plan.keys import keys
from fedassay.plan.resolve import resolve
from fedassay.plan.scale import scaled
from fedassay.plan.schema import Plan
from fedassay.support.errors import PlanError
from fedassay.support.registry import entries
from fedassay.support.types import Parameters

KINDS = ("method", "attack", "audit")
RENAMED = [
    (kind, name, old, new)
    for kind in KINDS
    for name in entries(kind)
    for old, new in component(kind, name).formerly.items()
]
VALUES: dict[str, Any] = {
    "client_tests": ["canaries"],
    "mechanism_trials": 5000,
    "method_runs": 60,
    "permutations": 400,
    "samples_per_record": 2.0,
    "pictures": 3,
}


def _class(kind: str, name: str) -> type[Parameters]:
    return component(kind, name)  # type: ignore[arg-type]


def test_there_are_old_names() -> None:
    assert len(RENAMED) >= 10


@pytest.mark.parametrize(("kind", "name", "old", "new"), RENAMED)
def test_the_old_name_means_the_new_key(kind: str, name: str, old: str, new: str) -> None:
    made = _class(kind, name)
    value = VALUES.get(new, 7)
    assert made.model_validate({old: value}) == made.model_validate({new: value})
    assert made.model_validate({old: value}) != made()


@pytest.mark.parametrize(("kind", "name", "old", "new"), RENAMED)
def test_a_record_and_a_list_of_keys_have_the_new_name_alone(kind: str, name: str, old: str, new: str) -> None:
    made = _class(kind, name)
    assert new in made().model_dump()
    assert old not in made().model_dump()
    assert {old, new} & {key.name for key in keys(made)} == {new}


@pytest.mark.parametrize(("kind", "name", "old", "new"), RENAMED)
def test_both_names_at_once_are_refused(kind: str, name: str, old: str, new: str) -> None:
    value = VALUES.get(new, 7)
    with pytest.raises(ValidationError, match=f"`{old}` is the old name of `{new}`, and both are given"):
        _class(kind, name).model_validate({old: value, new: value})


PLAN = """
name: old
data: {name: digits, limit: 300, split: {private: 0.5, attacker: 0.2, test: 0.3}}
clients: {count: 2, partition: iid}
backbone: {name: small_cnn, weights: random}
privacy: {epsilon: 4.0}
methods: [fedcgs]
attacks: [{feature_inversion: {limit: 24}}]
audits: [{dp_claim: {reruns: 5000, runs: 60}}, {inversion: {draws: 400}}]
"""


def _plan(text: str) -> Plan:
    return Plan.model_validate(yaml.safe_load(text))


def test_a_plan_of_old_names_is_the_plan_of_new_ones(tmp_path: Path) -> None:
    new = PLAN.replace("reruns", "mechanism_trials").replace("runs: 60", "method_runs: 60")
    new = new.replace("draws", "permutations").replace("{limit: 24}", "{max_vectors: 24}")
    first, second = (resolve(_plan(text), base=tmp_path, where="plan") for text in (PLAN, new))
    assert first.resolved() == second.resolved()
    assert [cell.key for cell in first.cells] == [cell.key for cell in second.cells]


def test_a_plan_of_old_names_is_scaled(tmp_path: Path) -> None:
    small = scaled(_plan(PLAN), 0.5, tmp_path, "plan")
    assert (
        resolve(small, base=tmp_path, where="plan").resolved()["audits"][0]["dp_claim"]["mechanism_trials"] == 5000
    )


def test_a_plan_with_both_names_names_the_key(tmp_path: Path) -> None:
    text = PLAN.replace("reruns: 5000", "reruns: 5000, mechanism_trials: 5000")
    with pytest.raises(PlanError, match="`reruns` is the old name of `mechanism_trials`"):
        resolve(_plan(text), base=tmp_path, where="plan")


def test_a_method_of_old_names_draws_the_same_noise_and_coins(make_task: Callable[..., MethodInput]) -> None:
    task = make_task(epsilon=1.0)
    assert task.door("client/0", 0, "sums") == task.mechanism("client/0", 0, "sums")
    assert task.coins == task.hidden_randomness
    assert task.coins != task.seeds
