"""Files of weights that a plan names are looked for before anything is computed or written."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from click.testing import CliRunner

from fedassay.cli import cli
from fedassay.execution.runner import RunOptions, run_scenario
from fedassay.plan.files import check_files
from fedassay.plan.resolve import load_scenario
from fedassay.plan.schema import parse_plan
from fedassay.support.errors import DataError, PlanError

PLAN: dict[str, Any] = {
    "name": "small",
    "data": {"name": "digits", "limit": 120},
    "clients": {"count": 1, "partition": "iid"},
    "backbone": {"name": "pixels"},
    "methods": ["fedcgs"],
}
TRUNK = {"similarity": {"lpips": {"net": "squeeze", "trunk": "trunk.pt"}}}


@pytest.mark.parametrize(
    ("more", "key"),
    [
        (TRUNK, "similarity.lpips.trunk"),
        ({"backbone": {"name": "cifar_resnet20", "weights": "trunk.pt"}}, "backbone.weights"),
        ({"backbone": {"name": "resnet18", "weights": "folder/weights"}}, "backbone.weights"),
        ({"backbone": {"name": "squeezenet1_1", "weights": "/nowhere/x"}}, "backbone.weights"),
    ],
)
@pytest.mark.parametrize("dry", [True, False])
def test_a_missing_file_is_one_message_and_nothing_is_written(
    tmp_path: Path, more: dict[str, Any], key: str, dry: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FEDASSAY_WEIGHTS", raising=False)
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(PLAN | more))
    args = ["run", str(tmp_path / "plan.yaml"), "-o", str(tmp_path / "out"), *(["--dry-run"] if dry else [])]
    result = CliRunner().invoke(cli, args)
    assert isinstance(result.exception, DataError)
    assert str(result.exception).startswith(f"{key}: ")
    assert "does not exist" in str(result.exception)
    assert os.listdir(tmp_path) == ["plan.yaml"]


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_what_is_no_regular_file_is_not_opened(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "trunk.pt"
    os.mkfifo(path) if kind == "pipe" else path.mkdir()
    with pytest.raises(DataError, match=r"trunk\.pt"):
        check_files(parse_plan(PLAN | TRUNK, "plan.yaml"), tmp_path)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"backbone": {"name": "resnet18", "weights": "IMAGENET1K_V9"}}, "'IMAGENET1K_V9' given; resnet18 takes"),
        ({"backbone": {"name": "resnet18", "weights": "public"}}, "'public' given; resnet18 takes"),
        ({"backbone": {"name": "squeezenet1_1", "weights": "imagnet"}}, "'imagnet' given; squeezenet1_1 takes"),
        ({"backbone": {"name": "cifar_resnet20"}}, "nothing given; cifar_resnet20 takes cifar10, random"),
        ({"backbone": {"name": "small_cnn", "weights": "imagenet"}}, "'imagenet' given; small_cnn takes public"),
        ({"backbone": {"name": "small_cnn", "weights": "plan.yaml"}}, "'plan.yaml' given; small_cnn takes public"),
        ({"backbone": {"name": "pixels", "weights": "random"}}, "'random' given; pixels takes none"),
    ],
)
@pytest.mark.parametrize("dry", [True, False])
def test_weights_that_the_backbone_does_not_take_are_refused_before_anything_is_computed(
    tmp_path: Path, more: dict[str, Any], says: str, dry: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FEDASSAY_WEIGHTS", raising=False)
    monkeypatch.setattr("fedassay.data.loading.load", lambda *_: pytest.fail("the images were read"))
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(PLAN | more))
    args = ["run", str(tmp_path / "plan.yaml"), "-o", str(tmp_path / "out"), *(["--dry-run"] if dry else [])]
    result = CliRunner().invoke(cli, args)
    assert isinstance(result.exception, PlanError)
    assert str(result.exception).startswith(f"backbone.weights: {says}")
    assert os.listdir(tmp_path) == ["plan.yaml"]


def test_a_backbone_trained_on_no_public_records_is_refused_at_once(tmp_path: Path) -> None:
    split = {"private": 0.5, "attacker": 0.3, "public": 0, "test": 0.2}
    plan = PLAN | {"data": PLAN["data"] | {"split": split}, "backbone": {"name": "small_cnn"}}
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(plan))
    with pytest.raises(PlanError, match=r"data\.split\.public: given 0; small_cnn is trained on the public"):
        load_scenario(tmp_path / "plan.yaml")
    plan["backbone"]["weights"] = "random"
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(plan))
    assert load_scenario(tmp_path / "plan.yaml").cells


def test_a_file_without_an_ending_is_taken_where_it_is_there(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"")
    (tmp_path / "plan.yaml").write_text(
        yaml.safe_dump(PLAN | {"backbone": {"name": "cifar_resnet20", "weights": "mine"}})
    )
    assert load_scenario(tmp_path / "plan.yaml").cells


def test_words_are_no_paths(tmp_path: Path) -> None:
    for weights in ("public", "random", "imagenet", "IMAGENET1K_V1", None):
        check_files(
            parse_plan(PLAN | {"backbone": {"name": "resnet18", "weights": weights}}, "plan.yaml"), tmp_path
        )


def test_a_trunk_of_another_network_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    if find_spec("lpips") is None:  # it is imported behind torchvision, and not here
        pytest.skip("lpips is not installed")
    torch.save({"0.weight": torch.zeros(3, 3)}, tmp_path / "trunk.pt")
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(PLAN | TRUNK))
    with pytest.raises(DataError, match=r"similarity\.lpips\.trunk: trunk\.pt"):
        run_scenario(load_scenario(tmp_path / "plan.yaml"), tmp_path / "out", RunOptions(quiet=True))
    assert not (tmp_path / "out").exists()
