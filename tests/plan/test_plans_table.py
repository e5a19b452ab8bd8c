"""The table of plans is what its script makes, and holds every plan that ships."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
import yaml


@pytest.fixture(scope="module")
def table() -> ModuleType:
    spec = importlib.util.spec_from_file_location("plans_of_docs", Path("docs/plans.py").resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_script_writes(table: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDASSAY_DATA", raising=False)
    assert table.PAGE.read_text() == table.page(), "run python docs/plans.py"


def test_every_plan_has_a_row(table: ModuleType) -> None:
    text = table.PAGE.read_text()
    shipped = [path for path in table.CONFIGS.rglob("*.yaml") if "policies" not in path.parts]
    assert len(shipped) > 50
    assert not [path for path in shipped if f"| `{table.name_of(path)}` |" not in text]


def test_plans_of_attacks_were_measured_and_take_under_three_minutes(table: ModuleType) -> None:
    kept = yaml.safe_load(table.KEPT.read_text())
    for path in table.plans("attacks"):
        assert kept[table.name_of(path)]["seconds"] < 180, path.stem


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in sorted(Path("configs").glob("*.yaml"))
        if any(f"name: {name}" in path.read_text() for name in ("fashion_mnist\n", "fashion_mnist,", "cifar10"))
    ],
    ids=lambda path: path.stem,
)
def test_a_plan_on_published_images_names_its_larger_form(path: Path) -> None:
    head = path.read_text().partition("\nname: ")[0]
    larger = re.search(r"configs/papers/\w+\.yaml|(?<=Larger: --set )\S+(?=\.$)", head, re.MULTILINE)
    assert larger is not None
    if larger.group().startswith("configs/"):
        assert Path(larger.group()).is_file()
        return
    key, _, value = larger.group().partition("=")
    plan = yaml.safe_load(path.read_text())
    *parents, last = key.split(".")
    for name in parents:
        plan = plan[name]
    assert float(value) > plan[last]
