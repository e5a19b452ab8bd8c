"""Claims for records on data whose persons have several: said before anything is run, with the number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from fedassay.console import print_cells
from fedassay.exchange.release import PrivacyTarget
from fedassay.plan.own_images import outline_of
from fedassay.plan.record_claims import most_of_a_person, record_claims
from fedassay.plan.resolve import load_scenario
from fedassay.plan.schema import parse_plan
from fedassay.plan.starter import write_starter
from fedassay.privacy.conversions import group_pair
from fedassay.privacy.gaussian import epsilon_of, mu_of


def _plan(folder: Path, each: int, **privacy: Any) -> Path:
    """A plan on 120 records, so many of one person each."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (120, 8, 8)).astype(np.uint8)
    np.savez(folder / "own.npz", x=pixels, y=np.arange(120) % 3, who=np.arange(120) // each)
    content = {
        "name": "claims",
        "data": {"name": "npz", "path": "own.npz", "groups": "who"},
        "clients": {"count": 2, "partition": "iid"},
        "backbone": {"name": "pixels"},
        "privacy": {"epsilon": [float("inf"), 1.0], "delta": 1e-5, **privacy},
        "methods": ["raw_features", "fedcgs"],
    }
    (folder / "plan.yaml").write_text(yaml.safe_dump(content))
    return folder / "plan.yaml"


def _printed(plan: Path, capsys: pytest.CaptureFixture[str], as_json: bool) -> str:
    print_cells(load_scenario(plan), as_json, "cpu")
    return capsys.readouterr().out


@pytest.mark.parametrize("each", [2, 10])
def test_a_dry_run_says_what_the_claim_is_for_a_person(
    each: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = _plan(tmp_path, each)
    expected = epsilon_of(each * mu_of(1.0, 1e-5), 1e-5)
    said = json.loads(_printed(plan, capsys, True))["record_claims"]
    assert f"up to {each} records, and the guarantee of fedcgs is for one record" in said
    assert f"For that person ε = 1 (δ = 1e-05) is ε = {expected:.4g} under Gaussian noise" in said
    pair = group_pair(1.0, 1e-5, each)
    assert f"({pair.epsilon:.4g}, {pair.delta:.3g}) by the claim alone" in said
    lines = [line for line in _printed(plan, capsys, False).splitlines() if line.startswith("warning: ")]
    assert lines == [f"warning: {said}"]


@pytest.mark.parametrize(("each", "privacy"), [(1, {}), (5, {"unit": "person"}), (5, {"epsilon": float("inf")})])
def test_it_is_silent_where_nothing_is_sold_for_more(
    each: int, privacy: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert json.loads(_printed(_plan(tmp_path, each, **privacy), capsys, True))["record_claims"] == ""


def test_a_plan_that_is_fitted_to_own_images_protects_persons(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "own.npz",
        x=rng.integers(0, 256, (120, 8, 8)).astype(np.uint8),
        y=np.arange(120) % 3,
        patient=np.arange(120) // 3,
    )
    write_starter(tmp_path / "plan.yaml", tmp_path / "own.npz")
    text = (tmp_path / "plan.yaml").read_text()
    assert "  unit: person           # all of a person together, up to 3 records" in text
    assert {each.privacy.unit for each in load_scenario(tmp_path / "plan.yaml").cells if each.privacy.private} == {
        "person"
    }
    assert json.loads(_printed(tmp_path / "plan.yaml", capsys, True))["record_claims"] == ""


def test_many_targets_are_cut_and_nothing_is_said_to_be_left_where_nothing_is() -> None:
    targets = [
        ("fedcgs", PrivacyTarget(epsilon=epsilon, delta=1e-5, adjacency="replace_one"))
        for epsilon in (1.0, 2.0, 4.0, 8.0, 16.0)
    ]
    said = record_claims(targets, 12)
    assert "2 more likewise" in said
    assert "nothing by the claim alone" in said
    assert record_claims([], 12) == record_claims(targets, 1) == ""


def test_persons_who_are_not_known_before_images_are_read_are_not_counted(tmp_path: Path) -> None:
    plan = parse_plan({"name": "x", "data": {"name": "digits"}, "methods": ["fedcgs"]}, "plan")
    assert most_of_a_person(outline_of(plan, tmp_path)) == 0
