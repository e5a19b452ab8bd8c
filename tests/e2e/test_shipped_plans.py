"""Shipped plans and shipped policies fit each other: what a run leaves open comes with what would decide it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image
from sklearn.datasets import load_digits

import fedassay
from fedassay.reports.answer.answer import answer
from fedassay.reports.decision.standard import standard_policy
from fedassay.reports.gate.judging import judged
from fedassay.reports.words.groups import cell_name, several_deltas, several_seeds

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def _by_init(folder: Path, classes: int) -> dict[str, Any]:
    """The plan that `init` writes for a folder of digits of so many classes."""
    digits = load_digits()
    for number, (image, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        if label < classes:
            place = folder / "pictures" / str(label)
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray((image * 15.9375).astype(np.uint8)).save(place / f"{number}.png")
    command = [sys.executable, "-m", "fedassay", "init", "plan.yaml", "--data", "pictures", "--quiet"]
    subprocess.run(command, cwd=folder, check=True)
    made: dict[str, Any] = yaml.safe_load((folder / "plan.yaml").read_text(encoding="utf-8"))
    made["data"]["path"] = str(folder / "pictures")
    made["privacy"]["epsilon"] = [each for each in made["privacy"]["epsilon"] if each != float("inf")]
    return made


def _shipped(folder: Path, name: str) -> dict[str, Any]:
    del folder
    made: dict[str, Any] = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text(encoding="utf-8"))
    return made


def _small(folder: Path, name: str) -> dict[str, Any]:
    """A shipped plan as its first lines say it runs without a network: regions of photographs as persons."""
    made = _shipped(folder, name)
    made["data"] |= {"name": "photographs", "groups": "region", "size": 8, "limit": None, "download": False}
    made["privacy"]["unit"] = "person"
    return made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "which"),
    [(_by_init, 10), (_by_init, 2), (_shipped, "demonstration"), (_small, "clinic")],
    ids=["init", "init-two-classes", "demonstration", "clinic"],
)
def test_what_is_open_comes_with_what_would_decide_it(make: Any, which: Any, tmp_path: Path) -> None:
    """And nothing is open because the plan left out an attack that the policy asks for."""
    run = fedassay.run(make(tmp_path, which), tmp_path / "run", progress=False)
    policy = standard_policy(run.record)
    said = answer(run.record, policy)
    helped = {cell for step in said.decision.steps for cell in step.cells}
    for each in judged(run.record, policy).judgements:
        assert each.state != "undecided" or each.cell in helped, f"{each.cell}: {each.rule}: {each.why}"
    states: dict[str, set[str]] = {}
    for each in judged(run.record, policy).judgements:
        states.setdefault(each.cell, set()).add(each.state)
    undecided = {name for name, found in states.items() if "undecided" in found and "broken" not in found}
    for cell in run.record.cells:
        left_out = [row.attack for row in cell.coverage if row.reason == "it is not part of the plan"]
        name = cell_name(cell, several_deltas(run.record), several_seeds(run.record))
        assert not left_out or name not in undecided, f"{name}: {left_out}"
