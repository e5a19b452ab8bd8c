"""The table of plans is what its script makes, and holds every plan that ships."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


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
    import yaml

    kept = yaml.safe_load(table.KEPT.read_text())
    for path in table.plans("attacks"):
        assert kept[table.name_of(path)]["seconds"] < 180, path.stem
