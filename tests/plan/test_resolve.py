"""Plans: what is resolved, and one message naming the key for everything that is wrong."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedassay.plan.resolve import load_scenario, resolve
from fedassay.plan.schema import override, parse_plan, read_yaml
from fedassay.support.errors import PlanError

PLAN: dict[str, Any] = {
    "name": "test",
    "data": {"name": "digits", "split": {"private": 0.4, "attacker": 0.3, "public": 0.1, "test": 0.2}},
    "clients": {"count": 3, "partition": "dirichlet", "alpha": 0.5},
    "backbone": {"name": "pixels"},
    "privacy": {"epsilon": [math.inf, 1], "delta": [1e-5, 1e-2]},
    "methods": [{"fedpft": {"components": 1}}, {"fedcgs": {}}, {"fedpft": {"components": 1, "epsilon": 2}}],
    "attacks": [{"feature_diffusion": {"preset": "tiny"}}],
    "audits": ["reconstruction"],
}


def _with(path: str, value: object) -> dict[str, Any]:
    plan = copy.deepcopy(PLAN)
    *parents, last = path.split(".")
    place: Any = plan
    for part in parents:
        place = place[int(part)] if isinstance(place, list) else place.setdefault(part, {})
    if isinstance(place, list):
        place[int(last)] = value
    else:
        place[last] = value
    return plan


def _resolve(plan: dict[str, Any]) -> Any:
    return resolve(parse_plan(plan, "plan.yaml"), Path(), "plan.yaml")


def test_cells_are_entry_by_epsilon_by_delta_by_seed() -> None:
    scenario = _resolve({**PLAN, "seeds": [0, 1]})
    keys = [cell.key for cell in scenario.cells]
    assert len(set(keys)) == len(keys)
    # At inf delta has no effect, so one cell; at 1 there is one for each delta.
    assert len(keys) == 2 * ((1 + 2) + (1 + 2) + 2)
    assert [method.label for method in scenario.methods] == ["fedpft", "fedcgs", "fedpft#2"]


def test_units_are_the_plan_s_or_the_entry_s() -> None:
    plan = {**PLAN, "privacy": {"epsilon": 1, "unit": "person", "max_records": 4}}
    plan["methods"] = [
        "fedcgs",
        {"fedcgs": {"unit": "client", "max_records": None}},
        {"fedcgs": {"unit": "record", "max_records": None}},
    ]
    found = [(cell.privacy.unit, cell.privacy.max_records) for cell in _resolve(plan).cells]
    assert found == [("person", 4), ("client", None), ("record", None)]
    with pytest.raises(PlanError, match=r"privacy\.unit: given person; fedsgd has no private form for it"):
        _resolve({**plan, "methods": ["fedsgd"]})
    with pytest.raises(PlanError, match=r"given client; feddiff has .* allowed: record, person"):
        _resolve({**plan, "methods": [{"feddiff": {"unit": "client"}}]})
    # Without noise no unit is promised.
    _resolve({**plan, "methods": [{"fedsgd": {"epsilon": math.inf}}]})


def test_a_method_without_private_form_runs_once_at_infinity() -> None:
    scenario = _resolve({**PLAN, "methods": ["raw_features"]})
    assert [cell.privacy.epsilon for cell in scenario.cells] == [math.inf]
    with pytest.raises(PlanError, match=r"raw_features has no private form"):
        _resolve({**PLAN, "methods": [{"raw_features": {"epsilon": 1}}]})


def test_a_delta_in_words_is_the_methods_and_the_plans_is_kept() -> None:
    own = {"fedpft": {"components": 1, "mechanism": "paper", "epsilon": 1, "delta": "per_class"}}
    scenario = _resolve({**PLAN, "methods": [own]})
    assert [cell.privacy.delta for cell in scenario.cells] == [1e-5, 1e-2]
    assert scenario.methods[0].params["delta"] == "per_class"
    again = _resolve({**PLAN, "methods": scenario.resolved()["methods"]})
    assert [cell.key for cell in again.cells] == [cell.key for cell in scenario.cells]
    assert again.methods[0].build == scenario.methods[0].build


def test_default_adjacency_is_the_method_s() -> None:
    found = {cell.method.label: cell.privacy.adjacency for cell in _resolve(PLAN).cells}
    assert found["fedpft"] == "replace_one_same_label"
    assert found["fedcgs"] == "add_remove"


def test_parameters_used_and_given_are_kept_apart() -> None:
    method = _resolve(PLAN).methods[0]
    assert method.given == {"components": 1}
    assert method.params["covariance"] == "diag"


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("colour", "red", r"colour: unknown key; allowed: name, seeds, data"),
        ("clients.cuont", 3, r"clients\.cuont: unknown key; allowed: count, partition, alpha"),
        ("clients.count", 0, r"clients\.count: given 0; allowed: 1 or more"),
        ("clients.count", "five", r"clients\.count: given 'five'"),
        ("privacy.epsilon", True, r"privacy\.epsilon: given true; allowed: a number"),
        ("privacy.epsilon", [2.0, True], r"privacy\.epsilon: given true; allowed: a number"),
        ("seeds", [True], r"seeds: given true; allowed: a number"),
        ("clients.alpha", 0, r"clients\.alpha: given 0; allowed: a number above 0"),
        ("clients.partition", "random", r"clients\.partition: given 'random'; .*iid"),
        ("data.name", "cats", r"data\.name: given 'cats'; allowed: .*digits"),
        ("data.split.private", 0.9, r"data\.split: .*sum to 1\.5"),
        ("data.split.attacker", 0, r"data\.split\.attacker: given 0; feature_diffusion needs"),
        ("backbone.name", "vgg99", r"backbone\.name: given 'vgg99'"),
        ("privacy.epsilon", [1, 0], r"privacy\.epsilon.*given 0"),
        ("privacy.epsilon", -1, r"privacy\.epsilon.*given -1"),
        ("privacy.delta", 1, r"privacy\.delta.*given 1"),
        ("privacy.delta", 0, r"privacy\.delta.*given 0"),
        ("privacy.adjacency", "swap", r"privacy\.adjacency: given 'swap'; .*add_remove"),
        ("privacy.unit", "patient", r"privacy\.unit: given 'patient'; .*person"),
        ("privacy.max_records", 0, r"privacy\.max_records: given 0"),
        (
            "privacy.max_records",
            3,
            r"privacy\.max_records: given 3; it bounds the records of a person or a client",
        ),
        ("methods.0.fedpft.unit", 1, r"methods\.fedpft\.unit: given 1; allowed: record, person, client"),
        ("methods.0.fedpft.max_records", "x", r"methods\.fedpft\.max_records: given 'x'; allowed: null, or 1 to"),
        ("methods.0", {"fedsdg": {}}, r"methods\.0: given 'fedsdg'; allowed: .*fedcgs"),
        ("methods.0.fedpft.component", 3, r"methods\.0\.fedpft: component: unknown key; allowed: components"),
        ("methods.0.fedpft.components", 0, r"components: given 0"),
        (
            "methods.0",
            {"fedavg": {"optimizer": {"name": "adagrad"}}},
            r"methods\.0\.fedavg: optimizer\.name: given 'adagrad'; allowed: adam, adamw, sgd",
        ),
        (
            "methods.0",
            {"dense": {"networks": {"optimizer": {"momentum": 0.9}}}},
            r"methods\.0\.dense: networks\.optimizer: .*momentum 0\.9 given with adam; allowed: with sgd",
        ),
        (
            "methods.0",
            {"average": {"head": {"optimizer": {"name": "sgd", "weight_decay": -1}}}},
            r"methods\.0\.average: head\.optimizer\.weight_decay: given -1; allowed: 0 or more",
        ),
        (
            "methods.0",
            {"fedavg": {"optimizer": "sgd"}},
            r"fedavg: optimizer: given 'sgd'; allowed: a section with keys name, learning_rate, momentum, weight",
        ),
        (
            "methods.0",
            {"feddiff": {"optimizer": {"name": "lion"}}},
            r"methods\.0\.feddiff: optimizer\.name: given 'lion'; allowed: adam, adamw, sgd",
        ),
        (
            "methods.0",
            {"feddiff": {"dp_sgd": {"optimizer": {"name": "adamw", "momentum": 0.9}}}},
            r"methods\.0\.feddiff: dp_sgd\.optimizer: .*momentum 0\.9 given with adamw; allowed: with sgd",
        ),
        (
            "methods.0",
            {"fedcgs": {"personalize": {"optimizer": {"momentum": 0.5}}}},
            r"methods\.0\.fedcgs: personalize\.optimizer: .*momentum 0\.5 given with adam; allowed: with sgd",
        ),
        ("methods.0.fedpft.epsilon", "big", r"methods\.fedpft\.epsilon: given 'big'"),
        ("methods.0.fedpft.delta", 2, r"methods\.fedpft\.delta: given 2"),
        ("methods.1.fedcgs.delta", "per_class", r"fedcgs\.delta: given 'per_class'; allowed: a number in"),
        ("methods.0.fedpft.delta", "per_client", r"methods\.fedpft\.delta: given 'per_client'"),
        ("methods", [], r"methods"),
        ("attacks", [], r"audits: reconstruction judges reconstructions, .* add feature_diffusion"),
        (
            "audits.0",
            {"reconstruction": {}, "dp_claim": {}},
            r"audits\.0: given the keys reconstruction, dp_claim; allowed: one name, its parameters indented",
        ),
        ("seeds", ["yes"], r"seeds\.0: given 'yes'; allowed: a whole number"),
        ("privacy.epsilon", [math.nan], r"privacy\.epsilon\.0: given nan; allowed: a number"),
        ("threat.attacker_share", 0, r"threat\.attacker_share: given 0"),
        ("threat.colluding", -1, r"threat\.colluding: given -1"),
        ("threat.colluding", 3, r"threat\.colluding: 3 given with clients\.count 3; allowed: 0 to 2"),
        ("threat", {"view": "broadcast", "colluding": 1}, r"threat: .*colluding: 1 given with view broadcast"),
        ("threat.server", "evil", r"threat\.server: given 'evil'"),
        (
            "threat.server",
            "malicious",
            r"threat\.server: given malicious; fedpft has no form",
        ),
        ("seeds", ["a"], r"seeds\.0.*given 'a'"),
        ("name", "../escape", r"name: given '\.\./escape'"),
    ],
)
def test_one_message_says_where_what_and_what_is_allowed(path: str, value: object, says: str) -> None:
    with pytest.raises(PlanError, match=says) as caught:
        _resolve(_with(path, value))
    assert str(caught.value).startswith("plan.yaml: ")
    assert "\n" not in str(caught.value)


def test_labels_are_unique() -> None:
    with pytest.raises(PlanError, match="labels are unique"):
        _resolve({**PLAN, "methods": [{"fedcgs": {"label": "a"}}, {"fedpft": {"label": "a"}}]})


def test_overrides(tmp_path: Path) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(yaml.safe_dump(PLAN))
    scenario = load_scenario(file, ["clients.count=7", "methods.0.fedpft.components=2", "privacy.epsilon=.inf"])
    assert scenario.plan.clients.count == 7
    assert scenario.methods[0].params["components"] == 2
    assert len(scenario.cells) == 2 + 2


def test_an_override_may_begin_with_a_star() -> None:
    found = override(copy.deepcopy(PLAN), ["data.layout=*/class/*/image"])
    assert found["data"]["layout"] == "*/class/*/image"


@pytest.mark.parametrize("assignment", ["clients", "methods.9.fedpft={}", "name.x=1", "=3", "a=[1"])
def test_bad_overrides(assignment: str) -> None:
    with pytest.raises(PlanError, match="--set"):
        override(copy.deepcopy(PLAN), [assignment])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "found nothing"),
        ("- a\n- b\n", "found list"),
        ("a: [1", r"not valid YAML: line 2, column 1: did not find expected"),
        ("a: [{b:{c: 1}}]", r"line 1, column 7: found unexpected ':'; a blank must follow each colon$"),
        ("name: a\nname: b\n", "'name' is given twice"),
        ("name: !!python/object/apply:os.system [ls]\n", "not valid YAML"),
    ],
)
def test_files_that_are_no_plan(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(text)
    with pytest.raises(PlanError, match=says):
        read_yaml(file)


def test_words_and_numbers_are_those_of_yaml_1_2(tmp_path: Path) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text("a: [no, on, true, 1:30, 010, 10, -1, 1e-5, 1.5, .inf, ~, 2024-01-01]\n")
    expected = ["no", "on", True, "1:30", "010", 10, -1, 1e-5, 1.5, math.inf, None, "2024-01-01"]
    assert read_yaml(file) == {"a": expected}


def test_a_missing_file() -> None:
    with pytest.raises(PlanError, match="cannot be read"):
        read_yaml(Path("nowhere.yaml"))


@pytest.mark.long
def test_every_shipped_plan_resolves() -> None:
    folder = Path(__file__).resolve().parents[2] / "configs"
    plans = [path for path in folder.rglob("*.yaml") if "policies" not in path.parts]
    assert plans
    for path in plans:
        assert load_scenario(path).cells, path


def test_a_component_of_ones_own_that_is_not_installed_is_told_from_a_slip() -> None:
    """Who wrote an attack in a file next to the plan has to be told how it comes to be known."""
    own = {**PLAN, "attacks": ["lone_sums"]}
    with pytest.raises(PlanError, match=r"given 'lone_sums'; allowed: .*once its package is installed"):
        _resolve(own)
    with pytest.raises(PlanError) as slip:
        _resolve({**PLAN, "attacks": ["message_algebr"]})
    assert "installed" not in str(slip.value)
